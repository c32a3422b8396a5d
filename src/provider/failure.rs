//! Classifies failures of model requests. Decoders and the runtime ask here; nobody else decides.
//!
//! A status counts the same whether it is that of the response, or the `code` of an error inside of it.
//!
//! | what came | code | retried before any output |
//! |---|---|---|
//! | refused by a filter, by code or by words | `content_filter` | never |
//! | context too long, by code or by words; status 413 | `context_length_exceeded` | never |
//! | an image or a file that the host does not take, by words | `content_refused` | never |
//! | status 401, 403; code `invalid_api_key` | `upstream_auth` | never |
//! | status 402, quota used up (`insufficient_quota`) | `rate_limit_exceeded` | never |
//! | status 429; `rate_limit_exceeded`, `rate_limit_error` | `rate_limit_exceeded` | yes, a requested wait is honoured |
//! | other 4xx | `upstream_error` | never (408, 409, 425: yes) |
//! | 5xx, 529, `overloaded_error`, `server_error` | `upstream_error` | yes |
//! | JSON that is neither an answer nor an error, a web page | `upstream_error` | yes |
//! | a reason to stop that means a failure | `upstream_error` | yes |
//! | silence, before or within the answer | `upstream_stalled` | yes |
//! | no end within the total time | `timeout` | never |
//! | no connection | `upstream_unreachable` | yes |
//! | no such provider in the deployment | `upstream_unreachable` | never |
//! | body ends, or breaks, before the answer's own end | `upstream_truncated` | yes |
//! | one event above the cap, in bytes or in values | `upstream_error` | never |
//! | an answer above the cap in all | `upstream_error` | never |
//! | an event that is not JSON | `upstream_error` | yes |
//! | an event of an unknown type | ignored | |
//!
//! Refusals of what was sent (400, 413, 415, 422, filters) have a remedy: see `session::Remedy`.

use std::time::UNIX_EPOCH;

use serde_json::Value;

use super::compat::{self, Learnable};
use super::{bounds, lenient};
use crate::json::{self, ParseError, field};
use crate::session::{Failure, Lesson, ModelFailure, Remedy, Seconds};

/// The longest part of a provider's own message to pass on, in bytes.
const QUOTE: usize = 500;
/// The longest message in all.
const MESSAGE: usize = 4096;

/// What a failed request asked for.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The host, as `Provider::origin` names it.
    pub origin: String,
    pub model: String,
    /// What of the request the session could learn to do without.
    pub learnable: Vec<&'static Learnable>,
    /// Whether it had private matter of the host.
    pub private: bool,
    /// Whether it had images or files that the host had not taken before.
    pub media: bool,
}

fn failure(code: &str, mut message: String, retryable: bool) -> ModelFailure {
    bounds::clip(&mut message, MESSAGE);
    let failure = Failure { code: code.into(), message };
    ModelFailure { failure, retryable, retry_after_seconds: None, remedy: Remedy::None }
}

/// The provider answered with an error status.
pub fn status(status: u16, body: &str, retry_after_seconds: Option<u32>, asked: &Asked) -> ModelFailure {
    let error = match json::parse_untrusted(body) {
        Ok(Value::Array(list)) => Said::of(&list.into_iter().next().unwrap_or_default()),
        Ok(json) => Said::of(&json),
        Err(_) => Said { message: quote(body), status: None },
    };
    let mut failed = placed(judge(Some(status), &error, body), asked);
    failed.retry_after_seconds = retry_after_seconds.or(failed.retry_after_seconds);
    if (matches!(failed.remedy, Remedy::Withhold { .. }) || matches!(status, 404 | 405 | 500 | 501))
        && let Some(change) = compat::learned(body, &asked.learnable, asked.private)
    {
        let (origin, model) = (asked.origin.clone(), asked.model.clone());
        failed.remedy = Remedy::Learn(Box::new(Lesson { origin, model, change: change.into() }));
    }
    failed
}

/// A failure as that of this request: a host that complains about images can mean only those that it was sent.
pub fn placed(mut failed: ModelFailure, asked: &Asked) -> ModelFailure {
    if let Remedy::Withhold { media } = &mut failed.remedy {
        *media &= asked.media;
        if *media {
            failed.failure.code = "content_refused".into();
        }
    }
    failed
}

/// How long a provider asks to wait: `retry-after-ms`, or `retry-after` as seconds, as a date (RFC 9110, 10.2.3) or, as some
/// write it, `30s`.
pub fn retry_after(header: &dyn Fn(&str) -> Option<String>, now: Seconds) -> Option<u32> {
    let number = |name: &str| header(name).and_then(|text| json::parse_f64(text.trim()));
    let millis = number("retry-after-ms").map(|millis| millis / 1000.0);
    if let Some(seconds) = millis.or_else(|| number("retry-after")) {
        return Some(whole_seconds(seconds));
    }
    let text = header("retry-after")?.trim().to_ascii_lowercase();
    if let Some(seconds) = duration(&text) {
        return Some(whole_seconds(seconds));
    }
    let date = httpdate::parse_http_date(header("retry-after")?.trim()).ok()?;
    let date = date.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(u32::try_from(date.saturating_sub(now.0)).unwrap_or(u32::MAX))
}

/// How long a provider asks to wait in the body of an error: `"retryDelay":"2.3s"`, `try again in 1m30s`.
fn wait_in(body: &str) -> Option<u32> {
    let said = body.to_ascii_lowercase();
    let after = |words: &str| said.split_once(words).map(|(_, rest)| rest.trim_start_matches([':', ' ', '"']));
    if let Some(millis) = after("retry_after_ms\"").and_then(duration) {
        return Some(whole_seconds(millis / 1000.0));
    }
    let words = [
        "retrydelay\"",
        "retry_after\"",
        "retryafter\"",
        "retry_after_seconds\"",
        "retry in ",
        "again in ",
        "retry after ",
        "again after ",
        "please wait ",
        "available in ",
    ];
    words.into_iter().filter_map(after).find_map(duration).map(whole_seconds)
}

/// The seconds of a text that begins with a duration: `2.3s`, `450ms`, `1m30s`, `20 seconds`, `7`.
fn duration(text: &str) -> Option<f64> {
    let (mut rest, mut seconds) = (text, None);
    loop {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let number = rest.split_at_checked(digits).and_then(|(n, after)| Some((json::parse_f64(n)?, after)));
        let Some((number, after)) = number else { return seconds };
        let after = after.trim_start_matches(' ');
        let unit = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit)?;
        let scale = match unit {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            _ => 1.0,
        };
        seconds = Some(seconds.unwrap_or(0.0) + number * scale);
        rest = after;
    }
}

/// The provider reported an error inside its response: an object with `message`, and perhaps `code`, `type`, `error`.
pub fn in_band(error: &Value) -> ModelFailure {
    let said = Said::of(error);
    judge(None, &said, &error.to_string())
}

/// Whether JSON is an error rather than a part of an answer.
pub fn is_error(json: &Value) -> bool {
    let kind = |key: &str| field(json, key) == "error";
    let code = lenient::count(field(field(json, "base_resp"), "status_code"));
    lenient::is_given(field(json, "error")) || kind("object") || kind("type") || code.is_some_and(|code| code != 0)
}

/// Whether JSON that is no part of an answer says only that something went wrong.
pub fn is_flat_error(json: &Value) -> bool {
    let says = ["message", "detail", "msg", "error_msg"].iter().any(|key| lenient::is_given(field(json, key)));
    says && ["choices", "usage", "content", "output", "type"].iter().all(|key| field(json, key).is_null())
}

/// The response is JSON that is no answer.
pub fn no_answer(json: &Value) -> ModelFailure {
    let said = Said::of(json);
    if !said.message.is_empty() {
        return judge(None, &said, &json.to_string());
    }
    failure("upstream_error", format!("the model provider sent no answer: {}", quote(&json.to_string())), true)
}

/// The response is a web page.
pub fn page() -> ModelFailure {
    failure("upstream_error", "the model provider sent a web page instead of an answer".into(), true)
}

/// The model stopped for a reason that means a failure.
pub fn stopped(reason: &str) -> ModelFailure {
    failure("upstream_error", format!("the model provider broke off its answer: {}", quote(reason)), true)
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
    failure("upstream_unreachable", format!("the model provider could not be reached: {}", quote(why)), true)
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
    failure(
        "upstream_error",
        format!("the model provider sent an event that cannot be read: {}", quote(why)),
        true,
    )
}

impl ModelFailure {
    /// With what people need to know beside the provider's words: how the request differed from its usual form, and
    /// how much fits into the model.
    #[must_use]
    pub fn noted(mut self, notes: &[String], window: Option<u64>) -> Self {
        let message = &mut self.failure.message;
        if let Some(window) = window.filter(|_| self.failure.code == "context_length_exceeded") {
            message.push_str(&format!(" (the window of this model is {window} tokens)"));
        }
        if !notes.is_empty() && self.remedy != Remedy::None {
            message.push_str(&format!(
                " (the request was sent {}, which this host had refused)",
                notes.join(" and ")
            ));
        }
        bounds::clip(message, MESSAGE);
        self
    }
}

/// What an error says.
struct Said {
    message: String,
    /// The status that the code is, or stands for.
    status: Option<u16>,
}

impl Said {
    /// The message and the status of an error, wherever the host puts them.
    fn of(json: &Value) -> Self {
        let error = Some(field(json, "error")).filter(|error| lenient::is_given(error)).unwrap_or(json);
        let base = field(json, "base_resp");
        let text = |value: &Value| match value {
            Value::Object(_) | Value::Array(_) if lenient::is_given(value) => value.to_string(),
            other => lenient::text(other).into_owned(),
        };
        let messages = [
            field(error, "message"),
            field(json, "message"),
            field(json, "detail"),
            field(base, "status_msg"),
            field(error, "msg"),
            field(error, "error_msg"),
            field(error, "error_description"),
        ];
        let message = messages.into_iter().map(text).find(|text| !text.trim().is_empty());
        let message = message.unwrap_or_else(|| error.as_str().unwrap_or_default().to_string());
        // A gateway quotes the host behind it.
        let raw = text(field(field(error, "metadata"), "raw"));
        let message = if raw.is_empty() { message } else { format!("{message}: {raw}") };
        let kinds =
            [field(error, "code"), field(error, "type"), field(error, "status"), field(base, "status_code")];
        let codes: Vec<String> = kinds.into_iter().map(|code| lenient::text(code).into_owned()).collect();
        let status = codes.iter().find_map(|code| status_of(code));
        Self { message: quote(&message), status }
    }
}

/// The status that the code of an error is, or stands for.
fn status_of(code: &str) -> Option<u16> {
    if let Ok(status) = code.trim_end_matches(".0").parse::<u16>() {
        return (400..600).contains(&status).then_some(status);
    }
    match code.to_ascii_lowercase().as_str() {
        "invalid_request_error"
        | "invalid_request"
        | "invalid_prompt"
        | "invalid_argument"
        | "failed_precondition"
        | "bad_request"
        | "badrequesterror" => Some(400),
        "authentication_error" | "invalid_api_key" | "unauthenticated" | "unauthorized" => Some(401),
        "billing_error" | "insufficient_quota" | "insufficient_balance" => Some(402),
        "permission_error" | "permission_denied" | "forbidden" => Some(403),
        "not_found_error" | "not_found" | "model_not_found" => Some(404),
        "request_too_large" => Some(413),
        "rate_limit_exceeded"
        | "rate_limit_error"
        | "rate_limited"
        | "resource_exhausted"
        | "too_many_requests" => Some(429),
        "server_error" | "api_error" | "internal_error" | "internal" | "internal_server_error" => Some(500),
        "unavailable" | "service_unavailable" => Some(503),
        "deadline_exceeded" | "timeout_error" => Some(504),
        "overloaded_error" => Some(529),
        _ => None,
    }
}

/// Words of a refusal by a filter, in lower case.
const FILTERS: [&str; 16] = [
    "content_filter",
    "content filter",
    "content management policy",
    "content policy",
    "content_policy",
    "responsibleaipolicyviolation",
    "data_inspection_failed",
    "inappropriate content",
    "moderation",
    "flagged",
    "usage polic",
    "safety system",
    "content exists risk",
    "considered high risk",
    "sensitive words",
    "敏感",
];

/// Words of a context that is too long, in lower case. Each line must occur whole, its parts in any order.
const OVERFLOWS: [&[&str]; 32] = [
    &["context_length_exceeded"],
    &["context_window_exceeded"],
    &["exceed_context_size"],
    &["max_prompt_tokens_exceeded"],
    &["string_above_max_length"],
    &["context length"],
    &["context window"],
    &["context size"],
    &["context limit"],
    &["context-length"],
    &["maximum context"],
    &["exceeds the context"],
    &["prompt is too long"],
    &["prompt too long"],
    &["prompt is longer"],
    &["input is too long"],
    &["input too long"],
    &["input token", "exceed"],
    &["prompt token", "exceed"],
    &["input length", "exceed"],
    &["prompt length", "exceed"],
    &["input length should be"],
    &["maximum prompt length"],
    &["maximum input length"],
    &["maximum model length"],
    &["max_model_len"],
    &["model token limit"],
    &["too many tokens", "limit for this model"],
    &["too many input tokens"],
    &["too many prompt tokens"],
    &["reduce the length of"],
    &["`inputs` tokens", "must be <="],
];

/// Words of a refusal of an image or a file, in lower case.
const MEDIA: [&str; 12] = [
    "image",
    "picture",
    "photo",
    "vision",
    "multimodal",
    "media",
    "file",
    "document",
    "pdf",
    "audio",
    "base64",
    "attachment",
];

/// Words of an image that cannot be read, in lower case.
const BAD_IMAGES: [&str; 6] =
    ["process image", "valid image", "image data", "unsupported image", "image format", "image_parse_error"];

/// Words of an account without money, in lower case.
const MONEY: [&str; 5] =
    ["insufficient_quota", "insufficient balance", "credit balance", "exceeded your current quota", "billing"];

fn judge(http: Option<u16>, error: &Said, raw: &str) -> ModelFailure {
    let raw = raw.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| raw.contains(word));
    let said = if error.message.is_empty() { "no message" } else { &error.message };
    let message = match http {
        Some(status) if error.message.is_empty() => format!("the model provider returned {status}"),
        Some(status) => format!("the model provider returned {status}: {said}"),
        None => format!("the model provider reported: {said}"),
    };
    let status = http.or(error.status);
    let refused = |code: &str, message: String, media: bool| {
        let remedy = Remedy::Withhold { media };
        ModelFailure { remedy, ..failure(code, message, false) }
    };
    let overflow = || OVERFLOWS.iter().any(|words| words.iter().all(|word| raw.contains(word)));
    match status {
        Some(401) => failure("upstream_auth", message, false),
        None | Some(400 | 403 | 422 | 451) if any(&FILTERS) => refused("content_filter", message, false),
        Some(403) => failure("upstream_auth", message, false),
        Some(402) => failure("rate_limit_exceeded", message, false),
        Some(429) if any(&MONEY) && !any(&["per minute", "retry"]) => {
            failure("rate_limit_exceeded", message, false)
        }
        Some(400) if any(&["insufficient balance", "credit balance"]) => {
            failure("rate_limit_exceeded", message, false)
        }
        Some(429) => limited(failure("rate_limit_exceeded", message, true), &raw),
        Some(413) if error.status == Some(429) => failure("rate_limit_exceeded", message, false),
        Some(413) => refused("context_length_exceeded", message, false),
        _ if overflow() => refused("context_length_exceeded", message, false),
        Some(400 | 415 | 422) if any(&MEDIA) => refused("upstream_error", message, true),
        Some(400 | 415 | 422) => refused("upstream_error", message, false),
        Some(404) if any(&["image input", "support image"]) => refused("upstream_error", message, true),
        Some(408 | 409 | 425) => limited(failure("upstream_error", message, true), &raw),
        Some(status) if status < 500 => failure("upstream_error", message, false),
        None if any(&BAD_IMAGES) => refused("upstream_error", message, true),
        None if any(&["insufficient balance", "insufficient_quota"]) => {
            failure("rate_limit_exceeded", message, false)
        }
        Some(_) | None => limited(failure("upstream_error", message, true), &raw),
    }
}

/// A failure with the wait that its body asks for.
fn limited(failed: ModelFailure, body: &str) -> ModelFailure {
    ModelFailure { retry_after_seconds: wait_in(body), ..failed }
}

/// The provider's own words, cut and without markup.
fn quote(text: &str) -> String {
    const MARKUP: [&str; 10] =
        ["<html", "<!doctype", "<head", "<body", "<center", "<title", "<h1", "<p>", "<div", "<?xml"];
    let lower = text.to_ascii_lowercase();
    let end = MARKUP.iter().filter_map(|tag| lower.find(tag)).min().unwrap_or(text.len());
    let end = if lower.trim_start().starts_with('<') { 0 } else { end };
    let plain = text.get(..end).unwrap_or_default().trim();
    plain.get(..plain.floor_char_boundary(QUOTE)).unwrap_or_default().to_string()
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
            let failed = status(code, body, None, &Asked::default());
            assert_eq!((failed.failure.code.as_str(), failed.retryable), (want, retryable), "{code} {body}");
        }
        assert_eq!(status(429, "{}", Some(7), &Asked::default()).retry_after_seconds, Some(7));
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
    fn a_wait_may_stand_in_the_body() {
        for (said, seconds) in [
            (r#"{"details":[{"retryDelay":"2.337906927s"}]}"#, 3),
            ("Please try again in 450ms.", 1),
            ("Please retry in 1m30s", 90),
            ("Please wait 20 seconds", 20),
            (r#"{"retry_after": 7}"#, 7),
            (r#"{"retry_after_ms": 2300}"#, 3),
        ] {
            assert_eq!(status(429, said, None, &Asked::default()).retry_after_seconds, Some(seconds), "{said}");
        }
        assert_eq!(status(429, "try again in 9s", Some(2), &Asked::default()).retry_after_seconds, Some(2));
        assert_eq!(status(429, "try again in a while", None, &Asked::default()).retry_after_seconds, None);
    }

    #[test]
    fn the_words_of_many_hosts_are_known() {
        let code = |status_code: u16, said: &str| status(status_code, said, None, &Asked::default()).failure.code;
        for said in [
            "request (124071 tokens) exceeds the available context size (123904 tokens)",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "Input is too long for requested model.",
            "Your request exceeded model token limit: 262144",
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096",
            "prompt token count of 100 exceeds the limit of 80",
            "`inputs` tokens + `max_new_tokens` must be <= 4096",
        ] {
            assert_eq!(code(400, said), "context_length_exceeded", "{said}");
        }
        for said in ["Content Exists Risk", "rejected as a result of our safety system", "code: content_filter"] {
            assert_eq!(code(400, said), "content_filter", "{said}");
        }
        assert_eq!(code(400, "max_tokens is above the maximum value 32768"), "upstream_error");
        assert_eq!(code(429, "Too many tokens, please wait"), "rate_limit_exceeded");
        assert_eq!(code(402, "{}"), "rate_limit_exceeded");
        let asked = Asked { media: true, ..Asked::default() };
        let failed = status(400, "Could not process image", None, &asked);
        assert_eq!(failed.failure.code, "content_refused");
        assert_eq!(failed.remedy, Remedy::Withhold { media: true });
        let page = status(502, "<html><head><title>502</title>", None, &asked).failure.message;
        assert_eq!(page, "the model provider returned 502");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failed = in_band(&serde_json::json!({"error": {"message": "🙂".repeat(200)}}));
        let said = failed.failure.message.strip_prefix("the model provider reported: ").unwrap();
        assert_eq!(said, "🙂".repeat(125));
    }

    #[test]
    fn the_message_says_what_the_provider_said() {
        let failed = status(500, r#"{"error":{"message":"out of memory"}}"#, None, &Asked::default());
        assert_eq!(failed.failure.message, "the model provider returned 500: out of memory");
        let failed = in_band(
            &serde_json::json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        );
        assert_eq!(failed.failure.message, "the model provider reported: Overloaded");
        assert!(failed.retryable);
    }
}
