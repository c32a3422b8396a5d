//! Classifies failures of model requests. Decoders and the runtime ask here; nobody else decides.
//!
//! | what came | code | retried before any output |
//! |---|---|---|
//! | status 401, 403; code `invalid_api_key` | `upstream_auth` | never |
//! | context too long, by code or by words | `context_length_exceeded` | never |
//! | quota used up (`insufficient_quota`) | `rate_limit_exceeded` | never |
//! | status 429; `rate_limit_exceeded`, `rate_limit_error` | `rate_limit_exceeded` | yes, Retry-After honoured |
//! | other 4xx | `upstream_error` | never (408 and 409: yes) |
//! | 5xx, 529, `overloaded_error`, `server_error` | `upstream_error` | yes |
//! | silence, before or within the answer | `upstream_stalled` | yes |
//! | no end within the total time | `timeout` | never |
//! | no connection | `upstream_unreachable` | yes |
//! | no such provider in the deployment | `upstream_unreachable` | never |
//! | body ends, or breaks, before the answer's own end | `upstream_truncated` | yes |
//! | one event above the cap, in bytes or in values | `upstream_error` | never |
//! | an answer above the cap in all | `upstream_error` | never |
//! | an event that is not JSON | `upstream_error` | yes |
//! | an event of an unknown type | ignored | |

use std::time::UNIX_EPOCH;

use serde_json::Value;

use super::bounds;
use crate::json::{self, ParseError};
use crate::session::{Failure, ModelFailure, Seconds};

/// The longest part of a provider's own message to pass on, in bytes.
const QUOTE: usize = 500;
/// The longest message in all.
const MESSAGE: usize = 4096;

fn failure(code: &str, mut message: String, retryable: bool) -> ModelFailure {
    bounds::clip(&mut message, MESSAGE);
    ModelFailure { failure: Failure { code: code.into(), message }, retryable, retry_after_seconds: None }
}

/// The provider answered with an error status.
pub fn status(status: u16, body: &str, retry_after_seconds: Option<u32>) -> ModelFailure {
    let json = json::parse_untrusted(body).unwrap_or(Value::Null);
    let (code, mut message) = fields(&json);
    if message.is_empty() {
        message = clip(body.trim());
    }
    let mut failed = judge(Some(status), &code, &message);
    failed.retry_after_seconds = retry_after_seconds;
    failed
}

/// How long a provider asks to wait: `retry-after-ms`, or `retry-after` as seconds or as a date (RFC 9110, 10.2.3).
pub fn retry_after(header: &dyn Fn(&str) -> Option<String>, now: Seconds) -> Option<u32> {
    let number = |name: &str| header(name).and_then(|text| json::parse_f64(text.trim()));
    let millis = number("retry-after-ms").map(|millis| millis / 1000.0);
    if let Some(seconds) = millis.or_else(|| number("retry-after")) {
        return Some(whole_seconds(seconds));
    }
    let date = httpdate::parse_http_date(header("retry-after")?.trim()).ok()?;
    let date = date.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(u32::try_from(date.saturating_sub(now.0)).unwrap_or(u32::MAX))
}

/// The provider reported an error inside its response: an object with `message`, and perhaps `code`, `type`, `error`.
pub fn in_band(error: &Value) -> ModelFailure {
    let (code, message) = fields(error);
    judge(None, &code, &message)
}

/// The response ended before its own end.
pub fn truncated() -> ModelFailure {
    failure("upstream_truncated", "the model's response ended before it was complete".into(), true)
}

/// The provider was silent for too long.
pub fn stalled(seconds: u64) -> ModelFailure {
    failure("upstream_stalled", format!("the model provider was silent for {seconds} seconds"), true)
}

/// The response took too long in total.
pub fn timeout(seconds: u64) -> ModelFailure {
    failure("timeout", format!("the model's response was not complete within {seconds} seconds"), false)
}

/// The deployment does not have the provider.
pub fn unconfigured(why: &str) -> ModelFailure {
    failure("upstream_unreachable", format!("the model provider is not configured: {why}"), false)
}

/// The provider could not be reached.
pub fn unreachable(why: &str) -> ModelFailure {
    failure("upstream_unreachable", format!("the model provider could not be reached: {}", clip(why)), true)
}

/// An event of the response is larger than the cap.
pub fn too_long(cap: usize) -> ModelFailure {
    failure("upstream_error", format!("the model provider sent an event of more than {cap} bytes"), false)
}

/// The response is larger than the cap, whatever it contains.
pub fn too_much(limit: usize) -> ModelFailure {
    failure("upstream_error", format!("the model provider sent more than {limit} bytes"), false)
}

/// An event of the response cannot be parsed, or would take too much memory.
pub fn unparsed(e: &ParseError) -> ModelFailure {
    match e {
        ParseError::TooComplex(e) => {
            failure("upstream_error", format!("the model provider sent an event that is too complex: {e}"), false)
        }
        ParseError::Syntax(e) => corrupt(&e.to_string()),
    }
}

/// An event of the response is malformed.
pub fn corrupt(why: &str) -> ModelFailure {
    failure("upstream_error", format!("the model provider sent an event that cannot be read: {}", clip(why)), true)
}

fn judge(status: Option<u16>, code: &str, message: &str) -> ModelFailure {
    let words = message.to_ascii_lowercase();
    let said = if message.is_empty() { "no message" } else { message };
    let message = match status {
        Some(status) => format!("the model provider returned {status}: {said}"),
        None => format!("the model provider reported: {said}"),
    };
    let too_long = code == "context_length_exceeded"
        || ["context length", "prompt is too long", "context window", "maximum context"]
            .iter()
            .any(|w| words.contains(w));
    match (status, code) {
        _ if too_long => failure("context_length_exceeded", message, false),
        (Some(401 | 403), _) | (_, "invalid_api_key" | "authentication_error" | "permission_error") => {
            failure("upstream_auth", message, false)
        }
        (_, "insufficient_quota") => failure("rate_limit_exceeded", message, false),
        (Some(429), _) | (_, "rate_limit_exceeded" | "rate_limit_error") => {
            failure("rate_limit_exceeded", message, true)
        }
        (Some(status), _) => failure("upstream_error", message, status >= 500 || matches!(status, 408 | 409)),
        (None, "invalid_request_error" | "invalid_prompt" | "not_found_error") => {
            failure("upstream_error", message, false)
        }
        (None, _) => failure("upstream_error", message, true),
    }
}

/// The code and the message of an error, wherever the host puts them.
fn fields(json: &Value) -> (String, String) {
    let error = json.get("error").filter(|error| !error.is_null()).unwrap_or(json);
    let text = |key: &str| error.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let code =
        text("code").or_else(|| text("type").filter(|kind| *kind != "error")).unwrap_or_default().to_string();
    let message = text("message").or_else(|| error.as_str()).unwrap_or_default();
    (code, clip(message))
}

fn clip(text: &str) -> String {
    text.get(..text.floor_char_boundary(QUOTE)).unwrap_or_default().to_string()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a day first")]
fn whole_seconds(seconds: f64) -> u32 {
    seconds.clamp(0.0, 86_400.0).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds() {
        let quota = r#"{"error":{"message":"quota exceeded","code":"insufficient_quota"}}"#;
        let long = r#"{"error":{"message":"This model's maximum context length is 10 tokens"}}"#;
        let cases = [
            (401, "{}", "upstream_auth", false),
            (403, "no", "upstream_auth", false),
            (400, long, "context_length_exceeded", false),
            (400, "{}", "upstream_error", false),
            (404, "{}", "upstream_error", false),
            (429, quota, "rate_limit_exceeded", false),
            (429, "{}", "rate_limit_exceeded", true),
            (500, "<html>", "upstream_error", true),
            (529, "{}", "upstream_error", true),
        ];
        for (code, body, want, retryable) in cases {
            let failed = status(code, body, None);
            assert_eq!((failed.failure.code.as_str(), failed.retryable), (want, retryable), "{code} {body}");
        }
        assert_eq!(status(429, "{}", Some(7)).retry_after_seconds, Some(7));
    }

    #[test]
    fn a_provider_may_say_in_every_form_how_long_to_wait() {
        let after = |name: &str, value: &str| {
            let header = |asked: &str| (asked == name).then(|| value.to_string());
            retry_after(&header, Seconds(1_796_000_000))
        };
        assert_eq!(after("retry-after", "1.2"), Some(2));
        assert_eq!(after("retry-after", " 30 "), Some(30));
        assert_eq!(after("retry-after-ms", "1500"), Some(2));
        assert_eq!(after("retry-after", "-5"), Some(0));
        assert_eq!(after("retry-after", "1e99"), Some(86_400));
        assert_eq!(after("retry-after", "Mon, 30 Nov 2026 00:54:20 GMT"), Some(60));
        assert_eq!(after("retry-after", "Mon, 30 Nov 2020 00:00:00 GMT"), Some(0));
        for nonsense in ["soon", "", "NaN", "Mon, 99 Nov 2026"] {
            assert_eq!(after("retry-after", nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failed = in_band(&serde_json::json!({"error": {"message": "🙂".repeat(200)}}));
        let said = failed.failure.message.strip_prefix("the model provider reported: ").unwrap();
        assert_eq!(said, "🙂".repeat(125));
    }

    #[test]
    fn the_message_says_what_the_provider_said() {
        let failed = status(500, r#"{"error":{"message":"out of memory"}}"#, None);
        assert_eq!(failed.failure.message, "the model provider returned 500: out of memory");
        let failed = in_band(
            &serde_json::json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        );
        assert_eq!(failed.failure.message, "the model provider reported: Overloaded");
        assert!(failed.retryable);
    }
}
