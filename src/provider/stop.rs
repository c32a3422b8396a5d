//! Why a model stopped, in the words of many hosts. Case does not count.

use super::failure;
use crate::session::{Finish, ModelFailure};

/// Reasons that mean a failure.
const FAILURES: [&str; 12] = [
    "error",
    "failed",
    "failure",
    "insufficient_system_resource",
    "network_error",
    "malformed_function_call",
    "malformed_response",
    "unexpected_tool_call",
    "abort",
    "cancelled",
    "timeout",
    "server_error",
];
/// Reasons that mean the limit of output.
const LIMITS: [&str; 8] = [
    "length",
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "model_length",
    "token_limit",
    "max_length",
    "model_context_window_exceeded",
];
/// Reasons that mean a filter.
const FILTERS: [&str; 13] = [
    "content_filter",
    "content_filtered",
    "sensitive",
    "safety",
    "recitation",
    "prohibited_content",
    "blocklist",
    "spii",
    "image_safety",
    "refusal",
    "guardrail_intervened",
    "language",
    "moderation",
];

/// What a reason means. Any other is an end like any: whether there are calls to resolve, the calls themselves say.
pub fn finish(reason: &str) -> Result<Finish, ModelFailure> {
    let is = |names: &[&str]| names.iter().any(|name| reason.eq_ignore_ascii_case(name));
    if is(&FAILURES) {
        return Err(failure::stopped(reason));
    }
    Ok(match (is(&LIMITS), is(&FILTERS)) {
        (true, _) => Finish::Limit("max_output_tokens".into()),
        (_, true) => Finish::Limit("content_filter".into()),
        _ => Finish::Done,
    })
}
