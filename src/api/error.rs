//! Errors as clients see them: one envelope on every route.

use serde_json::{Value, json};

use super::{MAX_BODY, Reply};
use crate::session::{Malformed, Rejected, Unreadable};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    /// What was wrong with this request, and what to do about it.
    pub message: String,
    /// The path of the faulty value, in the body or the query.
    pub param: Option<String>,
    /// `Allow`, for a method the route does not support.
    pub allow: Option<String>,
    /// Seconds until a retry may succeed, if known.
    pub retry_after: Option<u32>,
}

/// Error codes. Each has an HTTP status and a name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The request violates the contract.
    InvalidInput,
    /// Missing or wrong credentials.
    Unauthorized,
    /// Forbidden for this caller, or in this deployment.
    Forbidden,
    NotFound,
    UnknownCallId,
    /// The route does not support the method.
    MethodNotAllowed,
    /// Unsupported content type.
    UnsupportedMediaType,
    /// The call has a different output.
    CallAlreadyResolved,
    /// The session resolved the call itself.
    CallCancelled,
    /// A turn is open.
    TurnInProgress,
    /// The key was used by a different request.
    IdempotencyKeyReused,
    /// The resource already exists.
    AlreadyExists,
    /// The body is too large.
    PayloadTooLarge,
    /// Rate limit exceeded.
    RateLimited,
    /// A limit is reached; a later retry may succeed.
    Overloaded,
    /// The deployment has no keys and is not in open mode.
    AuthNotConfigured,
    /// Storage failed.
    StorageUnavailable,
    /// An internal error.
    Internal,
}

impl Code {
    pub const ALL: [Code; 18] = [
        Code::InvalidInput,
        Code::Unauthorized,
        Code::Forbidden,
        Code::NotFound,
        Code::UnknownCallId,
        Code::MethodNotAllowed,
        Code::UnsupportedMediaType,
        Code::CallAlreadyResolved,
        Code::CallCancelled,
        Code::TurnInProgress,
        Code::AlreadyExists,
        Code::IdempotencyKeyReused,
        Code::PayloadTooLarge,
        Code::RateLimited,
        Code::Overloaded,
        Code::AuthNotConfigured,
        Code::StorageUnavailable,
        Code::Internal,
    ];

    /// The HTTP status and the code's name.
    pub fn wire(self) -> (u16, &'static str) {
        match self {
            Code::InvalidInput => (400, "invalid_input"),
            Code::Unauthorized => (401, "unauthorized"),
            Code::Forbidden => (403, "forbidden"),
            Code::NotFound => (404, "not_found"),
            Code::UnknownCallId => (404, "unknown_call_id"),
            Code::MethodNotAllowed => (405, "method_not_allowed"),
            Code::UnsupportedMediaType => (415, "unsupported_media_type"),
            Code::CallAlreadyResolved => (409, "call_already_resolved"),
            Code::CallCancelled => (409, "call_cancelled"),
            Code::TurnInProgress => (409, "turn_in_progress"),
            Code::AlreadyExists => (409, "already_exists"),
            Code::IdempotencyKeyReused => (409, "idempotency_key_reused"),
            Code::PayloadTooLarge => (413, "payload_too_large"),
            Code::RateLimited => (429, "rate_limited"),
            Code::Overloaded => (503, "overloaded"),
            Code::AuthNotConfigured => (503, "auth_not_configured"),
            Code::StorageUnavailable => (503, "storage_unavailable"),
            Code::Internal => (500, "internal_error"),
        }
    }

    /// Seconds until a retry may succeed.
    fn retry_after(self) -> Option<u32> {
        match self {
            Code::Overloaded => Some(5),
            Code::StorageUnavailable => Some(1),
            _ => None,
        }
    }
}

impl Error {
    /// An error about the request as a whole.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), param: None, allow: None, retry_after: None }
    }

    /// An error about one part of the request.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(Code::InvalidInput, message) }
    }

    pub fn no_session(id: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no session {id}"))
    }

    /// The route does not accept session tokens.
    pub fn forbidden() -> Self {
        Self::new(Code::Forbidden, "this needs an API key; a session token is not enough")
    }

    /// The session was deleted while the request was in progress.
    pub fn deleted() -> Self {
        Self::new(Code::NotFound, "this session was deleted")
    }

    /// An error from another object: passed on if it is about the request, else reported as something to retry.
    pub fn relayed(status: u16, body: &str) -> Self {
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let text = |key: &str| body.pointer(&format!("/error/{key}")).and_then(Value::as_str).map(str::to_string);
        match (status, text("message")) {
            (404, Some(message)) => Self { param: text("param"), ..Self::new(Code::NotFound, message) },
            _ => Self::new(Code::Overloaded, "the other session could not be read; try again"),
        }
    }

    /// A body above the limit.
    pub fn too_large(size: usize) -> Self {
        Self::new(Code::PayloadTooLarge, format!("the body has {size} bytes, the limit is {MAX_BODY}"))
    }

    pub fn reply(&self, request_id: &str) -> Reply {
        let (status, name) = self.code.wire();
        let body = json!({"error": {
            "code": name, "message": self.message, "param": self.param, "request_id": request_id,
        }});
        let mut reply = Reply::json(status, &body);
        if let Some(allow) = &self.allow {
            reply.headers.push(("allow", allow.clone()));
        }
        if let Some(seconds) = self.retry_after.or(self.code.retry_after()) {
            reply.headers.push(("retry-after", seconds.to_string()));
        }
        reply
    }
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Self {
        let code = match &rejected {
            Rejected::UnknownCall(_) => Code::UnknownCallId,
            Rejected::AlreadyResolved(_) => Code::CallAlreadyResolved,
            Rejected::CallCancelled(_) => Code::CallCancelled,
            Rejected::TurnInProgress { .. } => Code::TurnInProgress,
            Rejected::NotQueued(_) => Code::NotFound,
            Rejected::Unpaired { index, .. } => {
                return Self::invalid(format!("initial_items[{index}]"), rejected.to_string());
            }
            Rejected::QueueFull(_) => Code::Overloaded,
            Rejected::Unreadable(Unreadable::TooLarge { .. }) => Code::PayloadTooLarge,
            Rejected::Unreadable(
                Unreadable::Missing(_)
                | Unreadable::Corrupt(..)
                | Unreadable::Newer { .. }
                | Unreadable::Storage(_),
            ) => Code::StorageUnavailable,
        };
        Self::new(code, rejected.to_string())
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::invalid("after", malformed.to_string())
    }
}
