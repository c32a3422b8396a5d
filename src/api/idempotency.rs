//! Idempotency keys: a retry with the same key and body returns the original response and has no further effect.
//!
//! A key is scoped to one route of a session; a message's own id is such a key too. Error responses are not kept, since
//! nothing was done: a retry may succeed.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Code, Error, Reply, Tenant};
use crate::session::SessionId;

/// How long a response is kept, in seconds.
pub const REPLY_TTL: u64 = 48 * 3600;
/// The largest body kept with a response. A snapshot may be larger than any row, and repeats a transcript that is
/// stored anyway: of a larger response only the status is kept, and its body is rebuilt from the session's current
/// state.
const MAX_KEPT_REPLY: usize = 64 * 1024;
const MAX_KEY: usize = 255;

/// The name under which a response is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub name: String,
    /// The digest of the request.
    pub digest: String,
}

/// A response that was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The digest of the request.
    pub digest: String,
    pub status: u16,
    /// The response's body; `None`: too large to keep.
    pub body: Option<String>,
}

impl Remembered {
    /// Repeats the response. `remake` rebuilds a body that was too large to keep.
    pub fn replay(self, remake: impl FnOnce() -> Result<String, Error>) -> Result<Reply, Error> {
        let body = self.body.map_or_else(remake, Ok)?;
        Ok(Reply { status: self.status, headers: Vec::new(), body }.with("idempotent-replayed", "true"))
    }
}

impl Key {
    /// The key in an `Idempotency-Key` header.
    pub fn header(route: &str, key: &str, body: &str) -> Result<Self, Error> {
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(|b| b.is_ascii_graphic()) {
            let message = format!("an Idempotency-Key has 1 to {MAX_KEY} visible ASCII characters");
            return Err(Error::invalid("Idempotency-Key", message));
        }
        Ok(Self { name: format!("{route} {key}"), digest: digest(body) })
    }

    /// The keys of a request: that of its header, if it has one.
    pub fn of(route: &str, header: Option<&str>, body: &str) -> Result<Vec<Self>, Error> {
        header.map(|key| Self::header(route, key, body)).into_iter().collect()
    }

    /// The key as sent by the client.
    pub fn given(&self) -> &str {
        self.name.rsplit(' ').next().unwrap_or_default()
    }

    /// The key a message's own id amounts to.
    pub fn message(id: &str, body: &str) -> Self {
        Self { name: format!("message {id}"), digest: digest(body) }
    }

    /// Rejects a request that differs from the one that first used this key.
    pub fn check(&self, first: &Remembered) -> Result<(), Error> {
        if first.digest == self.digest {
            return Ok(());
        }
        let message = "this key was used for a request with another body; use a new key for a new request";
        Err(Error::new(Code::IdempotencyKeyReused, message))
    }

    /// The part of a response to keep.
    pub fn remember(&self, reply: &Reply) -> Remembered {
        let body = Some(&reply.body).filter(|body| body.len() <= MAX_KEPT_REPLY).cloned();
        Remembered { digest: self.digest.clone(), status: reply.status, body }
    }
}

/// The id of a session created under a key: the same for every retry.
pub fn keyed_session(tenant: &Tenant, key: &str) -> SessionId {
    let mut hex = digest(&format!("{tenant}\n{key}"));
    hex.truncate(32);
    SessionId(format!("sess_{hex}"))
}

/// SHA-256, in hex.
pub fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_is_answered_again_and_another_one_refused() {
        let key = Key::header("events", "k", "{}").unwrap();
        let reply = |body: &str| Reply { status: 202, headers: Vec::new(), body: body.into() };
        let first = key.remember(&reply("{\"a\":1}"));
        assert_eq!(key.check(&first), Ok(()));
        let other = Key::header("events", "k", "{ }").unwrap();
        assert_eq!(other.check(&first).unwrap_err().code, Code::IdempotencyKeyReused);
        let again = first.replay(|| panic!("it was kept")).unwrap();
        assert_eq!((again.status, again.body.as_str()), (202, "{\"a\":1}"));
        assert_eq!(again.headers, [("idempotent-replayed", "true".to_string())]);
    }

    #[test]
    fn an_answer_of_any_size_fits_into_a_row() {
        let key = Key::header("patch", "k", "{}").unwrap();
        let kept = key.remember(&Reply { status: 200, headers: Vec::new(), body: "x".repeat(3_000_000) });
        assert!(serde_json::to_string(&kept).unwrap().len() < 1000);
        assert_eq!(kept.replay(|| Ok("as it is now".into())).unwrap().body, "as it is now");
    }

    #[test]
    fn a_key_is_visible_and_not_endless() {
        for key in ["", "a b", "ü", "a\n", &"k".repeat(256)] {
            assert_eq!(
                Key::header("events", key, "").unwrap_err().param.as_deref(),
                Some("Idempotency-Key"),
                "{key:?}"
            );
        }
        assert!(Key::header("events", &"k".repeat(255), "").is_ok());
    }

    #[test]
    fn a_session_is_named_by_tenant_and_key() {
        let id = |tenant: &str| keyed_session(&Tenant::parse(tenant).unwrap(), "k");
        assert_eq!(id("a"), id("a"));
        assert_ne!(id("a"), id("b"));
        assert!(SessionId::parse(id("a").as_str()).is_some());
    }
}
