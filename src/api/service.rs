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

#[cfg(test)]
mod tests {
    use crate::api::STREAMED;
    use crate::session::TURN_ITEMS;

    use super::*;

    /// The limits that a reader of the documentation sees are those of the code.
    #[test]
    fn the_table_of_limits_has_the_limits() {
        let mib = |bytes: usize| format!("{} MiB", bytes / 1024 / 1024);
        let thousands = |n: usize| format!("{} {:03}", n / 1000, n % 1000);
        let table = include_str!("../../docs/limits.md");
        for (what, limit) in [
            ("request body", mib(MAX_BODY)),
            ("JSON of a body or a provider", format!("{} values", thousands(json::MAX_VALUES))),
            ("JSON of a body or a provider", format!("{} of them objects", thousands(json::MAX_OBJECTS))),
            ("JSON of a body or a provider", format!("{} levels", json::MAX_DEPTH)),
            ("one text or tool output", mib(MAX_TEXT)),
            ("tools of a turn", format!("{MAX_TOOLS}, {} kB", MAX_TOOLS_JSON / 1000)),
            ("an agent", format!("{}.{} MB", MAX_AGENT / 1_000_000, MAX_AGENT / 100_000 % 10)),
            ("`initial_items`", thousands(MAX_INITIAL_ITEMS)),
            ("one model response", mib(MAX_ANSWER)),
            ("model requests per turn", MAX_MODEL_CALLS.to_string()),
            ("queued messages", MAX_QUEUE.to_string()),
            ("client content on the stream", format!("{} KiB", STREAMED / 1024)),
            ("items in a terminal event", mib(TURN_ITEMS)),
            ("subscribers of a session", thousands(MAX_SUBSCRIBERS)),
            ("labels, title", format!("{MAX_LABELS} (64/512 characters), {MAX_TITLE} characters")),
        ] {
            let row = table.lines().find(|line| line.starts_with(&format!("| {what} |")));
            let column = row.and_then(|row| row.split('|').nth(2)).unwrap_or_else(|| panic!("no row {what}"));
            assert!(column.contains(&limit), "{what}: {column} is not {limit}");
        }
    }
}
