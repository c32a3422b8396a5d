//! Ring 1: model APIs. Pure adapters between the words of the session and what providers send and expect.
//!
//! A decoder takes bytes and gives [`ModelEvent`]s; it never retries, waits or logs. What to do about answers that are
//! no answers stands in one table, in [`failure`].

pub mod failure;
mod responses;
mod scripted;
mod stream;
mod transcript;

use serde::{Deserialize, Serialize};

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

/// The request to an `openai-responses` provider.
pub fn encode(base_url: &str, api_key: Option<&str>, prompt: &Prompt<'_>) -> WireRequest {
    responses::encode(base_url, api_key, prompt)
}

/// The decoder for its answer.
pub fn decoder() -> Box<dyn Decoder> {
    Box::new(responses::Answer::new())
}
