//! A deployment's public description.

use serde_json::{Value, json};

use super::{
    MAX_AGENT, MAX_BODY, MAX_EXPIRY, MAX_INITIAL_ITEMS, MAX_LABELS, MAX_MODEL_CALLS, MAX_QUEUE, MAX_SUBSCRIBERS,
    MAX_TEXT, MAX_TITLE, MAX_TOOLS, MAX_TOOLS_JSON,
};
use crate::json;
use crate::session::MAX_ANSWER;

/// The OpenAPI document.
pub const OPENAPI: &str = include_str!(concat!(env!("OUT_DIR"), "/openapi.json"));

/// The optional features of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The names of its providers.
    pub providers: Vec<String>,
    /// Whether clients may bring providers of their own.
    pub inline_providers: bool,
    /// Requests per second of a tenant, and events per second of a session; 0: unlimited.
    pub rates: (u32, u32),
}

/// `GET /v1/info`.
pub fn info(features: &Features) -> Value {
    let mut names =
        vec!["client_tools", "steer", "fork", "initial_items", "session_tokens", "websocket", "long_poll"];
    if features.inline_providers {
        names.push("inline_providers");
    }
    json!({
        "object": "info", "version": env!("CARGO_PKG_VERSION"), "features": names, "providers": features.providers,
        "limits": {
            "body_bytes": MAX_BODY, "text_bytes": MAX_TEXT, "tools": MAX_TOOLS, "tools_bytes": MAX_TOOLS_JSON, "agent_bytes": MAX_AGENT,
            "json_values": json::MAX_VALUES, "json_objects": json::MAX_OBJECTS, "json_depth": json::MAX_DEPTH,
            "initial_items": MAX_INITIAL_ITEMS, "answer_bytes": MAX_ANSWER, "labels": MAX_LABELS, "title_chars": MAX_TITLE, "model_calls": MAX_MODEL_CALLS, "queue": MAX_QUEUE,
            "subscribers": MAX_SUBSCRIBERS, "expires_in_seconds": MAX_EXPIRY,
            "tenant_requests_per_second": features.rates.0, "session_events_per_second": features.rates.1,
        },
    })
}
