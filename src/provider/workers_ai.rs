//! The platform's own models, through its binding: the chat dialect in another envelope.
//!
//! Source: the platform's pages on Workers AI, text generation. Older models reply with `response` and calls without a
//! `function` wrapper, newer ones with chunks of the chat dialect; `chat::ResponseDecoder` understands both.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::compat::Compat;
use super::{Sampling, chat};
use crate::provider::dialect::Prompt;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The AI Gateway of the account that requests go through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

/// One call of the binding's `run`.
#[derive(Debug, PartialEq)]
pub struct Run {
    /// The model: `@cf/…`.
    pub model: String,
    /// The input, JSON.
    pub input: String,
    /// The options, JSON. They request the raw response, so that a failure keeps its status.
    pub options: String,
}

/// The request for one prompt.
pub fn encode(settings: &Settings, home: &str, prompt: &Prompt<'_>) -> Run {
    let mut messages = chat::messages(prompt, home, &prompt.compat(&Compat::default()));
    for message in messages.iter_mut().filter_map(|message| message.as_object_mut()) {
        // Its models require a text in every message, even one with calls.
        if message.get("content").is_some_and(serde_json::Value::is_null) {
            message.insert("content".into(), "".into());
        }
    }
    let mut input = json!({"stream": true});
    let mut options = json!({"returnRawResponse": true});
    let sampling = prompt.sampling;
    if let Some(map) = input.as_object_mut() {
        map.insert("messages".into(), messages.into()); // `json!` would copy them
        if !prompt.tools.is_empty() {
            map.insert("tools".into(), chat::tools(prompt.tools));
        }
        if let Some(tokens) = sampling.max_output_tokens {
            map.insert("max_tokens".into(), tokens.into());
        }
        if let Some(temperature) = sampling.temperature {
            map.insert("temperature".into(), temperature.into());
        }
        if let Some(format) = &sampling.response_format {
            map.insert("response_format".into(), chat::response_format(format));
        }
    }
    if let (Some(options), Some(gateway)) = (options.as_object_mut(), &settings.gateway) {
        options.insert("gateway".into(), json!({"id": gateway}));
    }
    Run { model: prompt.model.to_string(), input: input.to_string(), options: options.to_string() }
}

/// Settings the binding does not support.
pub fn refuses(sampling: &Sampling) -> Option<(&'static str, String)> {
    let why = || "this provider does not support this setting".to_string();
    match sampling {
        Sampling { reasoning_effort: Some(_), .. } => Some(("reasoning_effort", why())),
        Sampling { tool_choice: Some(_), .. } => Some(("tool_choice", why())),
        Sampling { parallel_tool_calls: Some(_), .. } => Some(("parallel_tool_calls", why())),
        _ => None,
    }
}
