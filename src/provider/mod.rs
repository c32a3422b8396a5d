//! Ring 1: model APIs. Pure adapters between the words of the session and what providers send and expect.
//!
//! A decoder takes bytes and gives [`ModelEvent`]s; it never retries, waits or logs. What to do about answers that are
//! no answers stands in one table, in [`failure`].

mod anthropic;
mod chat;
pub mod failure;
#[cfg(test)]
mod fixtures;
mod responses;
mod scripted;
mod stream;
mod transcript;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::{ModelEvent, ModelFailure, Tool};

pub use scripted::{Line, Script, play};
pub use transcript::{Line as ContextLine, Part as ContextPart, arrange};

/// The longest event of a provider's stream, in bytes.
pub const EVENT_CAP: usize = 16 * 1024 * 1024;

/// Where and how to ask a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Provider {
    /// OpenAI's Responses API, or a host that speaks it.
    #[serde(rename = "openai-responses")]
    OpenAiResponses {
        /// Up to and including the version: `https://api.openai.com/v1`.
        base_url: String,
        /// Sent as bearer token. Never shown.
        #[serde(default)]
        api_key: Option<String>,
    },
    /// OpenAI's Chat Completions API, or a host that imitates it.
    #[serde(rename = "openai-chat")]
    OpenAiChat {
        /// Up to and including the version: `https://api.openai.com/v1`.
        base_url: String,
        /// Sent as bearer token. Never shown.
        #[serde(default)]
        api_key: Option<String>,
    },
    /// Anthropic's Messages API.
    Anthropic {
        /// Up to and including the version: `https://api.anthropic.com/v1`.
        base_url: String,
        /// Sent as `x-api-key`. Never shown.
        #[serde(default)]
        api_key: Option<String>,
    },
    /// The built-in model that plays a script.
    Scripted {
        /// One entry per model request.
        #[serde(default)]
        script: Vec<Line>,
        /// Pause between two deltas, in milliseconds.
        #[serde(default = "scripted::delta_ms")]
        delta_ms: u32,
    },
}

/// What an agent asks of its model in every request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// `low`, `medium`, … in the provider's words.
    pub reasoning_effort: Option<String>,
    /// The most tokens that one response may have.
    pub max_output_tokens: Option<u32>,
    /// Randomness.
    pub temperature: Option<f64>,
}

/// One model request, in the words of the session.
#[derive(Debug)]
pub struct Prompt<'a> {
    /// The model.
    pub model: &'a str,
    /// What the agent is.
    pub instructions: Option<&'a str>,
    /// The tools that may be called.
    pub tools: &'a [Tool],
    /// The transcript.
    pub context: &'a [ContextLine],
    /// Settings.
    pub sampling: &'a Sampling,
}

/// One model request, on the wire. Always a POST of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireRequest {
    /// The whole URL.
    pub url: String,
    /// Header names and values.
    pub headers: Vec<(&'static str, String)>,
    /// The JSON.
    pub body: String,
}

/// Turns the bytes of one answer into events.
pub trait Decoder {
    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<ModelEvent>, ModelFailure>;

    /// The body has ended. An answer without an end of its own is a failure.
    fn finish(&mut self) -> Result<Vec<ModelEvent>, ModelFailure>;
}

/// Where an item's body keeps what one provider alone wants to see again, by dialect.
const FIELDS: &str = "provider_fields";

impl Provider {
    /// The address that requests go to, if any.
    pub fn base_url(&self) -> Option<&str> {
        match self {
            Provider::OpenAiResponses { base_url, .. }
            | Provider::OpenAiChat { base_url, .. }
            | Provider::Anthropic { base_url, .. } => Some(base_url),
            Provider::Scripted { .. } => None,
        }
    }

    /// The request for a prompt and the decoder for its answer; none if the model is not asked over the network.
    pub fn ask(&self, prompt: &Prompt<'_>) -> Option<(WireRequest, Box<dyn Decoder>)> {
        match self {
            Provider::OpenAiResponses { base_url, api_key } => {
                Some((responses::encode(base_url, api_key.as_deref(), prompt), Box::new(responses::Answer::new())))
            }
            Provider::OpenAiChat { base_url, api_key } => {
                Some((chat::encode(base_url, api_key.as_deref(), prompt), Box::new(chat::Answer::new())))
            }
            Provider::Anthropic { base_url, api_key } => {
                Some((anthropic::encode(base_url, api_key.as_deref(), prompt), Box::new(anthropic::Answer::new())))
            }
            Provider::Scripted { .. } => None,
        }
    }
}

/// A field of a JSON object; null where there is none.
fn field<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&Value::Null)
}

/// The headers of OpenAI's dialects.
fn bearer(api_key: Option<&str>) -> Vec<(&'static str, String)> {
    let mut headers =
        vec![("content-type", "application/json".to_string()), ("accept", "text/event-stream".to_string())];
    if let Some(key) = api_key {
        headers.push(("authorization", format!("Bearer {key}")));
    }
    headers
}

/// Whether the model is one that reasons, as far as OpenAI's names tell: others refuse some settings, and it refuses others.
fn reasons(prompt: &Prompt<'_>) -> bool {
    let name = prompt.model.rsplit('/').next().unwrap_or_default();
    let o_series = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    o_series || name.starts_with("gpt-5") || name.contains("codex") || prompt.sampling.reasoning_effort.is_some()
}
