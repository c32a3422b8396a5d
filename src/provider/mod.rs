//! Ring 1: model APIs. Pure adapters between the words of the session and what providers send and expect.
//!
//! A decoder takes bytes and gives [`ModelEvent`]s; it never retries, waits or logs. What to do about answers that are
//! no answers stands in one table, in [`failure`].

mod anthropic;
mod bounds;
mod chat;
pub mod failure;
#[cfg(test)]
mod fixtures;
mod host;
mod responses;
mod sampling;
mod scripted;
mod stream;
mod transcript;
mod workers_ai;

use serde::de::Deserializer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json;
use crate::session::{ModelEvent, ModelFailure, Tool};

pub use host::Host;
pub use sampling::{ResponseFormat, Sampling, ToolChoice};
pub use scripted::{Line, Play, Script, play};
pub use transcript::{Line as ContextLine, Part as ContextPart, arrange};
pub use workers_ai::Run;

/// The longest event of a provider's stream, in bytes.
pub const EVENT_CAP: usize = 16 * 1024 * 1024;

/// Where and how to ask a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Provider {
    /// OpenAI's Responses API, or a host that speaks it.
    #[serde(rename = "openai-responses")]
    OpenAiResponses(Host),
    /// OpenAI's Chat Completions API, or a host that imitates it.
    #[serde(rename = "openai-chat")]
    OpenAiChat(Host),
    /// Anthropic's Messages API.
    Anthropic(Host),
    /// The platform's own models, through its binding `AI`.
    WorkersAi(workers_ai::Settings),
    /// The built-in model that plays a script.
    Scripted(Play),
    /// One that the deployment has by that name.
    Named(Named),
}

/// The types of `Provider`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Dialect {
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    Anthropic,
    WorkersAi,
    Scripted,
    Named,
}

impl<'de> Deserialize<'de> for Provider {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let (dialect, settings) = json::tagged(input, "type")?;
        match dialect {
            Dialect::OpenAiResponses => settings.rest().map(Provider::OpenAiResponses),
            Dialect::OpenAiChat => settings.rest().map(Provider::OpenAiChat),
            Dialect::Anthropic => settings.rest().map(Provider::Anthropic),
            Dialect::WorkersAi => settings.rest().map(Provider::WorkersAi),
            Dialect::Scripted => settings.rest().map(Provider::Scripted),
            Dialect::Named => settings.rest().map(Provider::Named),
        }
    }
}

/// A provider of the deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Its name.
    pub name: String,
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

/// How a model is asked.
#[derive(Debug, PartialEq)]
pub enum ModelCall {
    /// Over the network.
    Http(WireRequest),
    /// Through the platform's binding.
    Binding(workers_ai::Run),
}

/// One model request, on the wire. Always a POST of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireRequest {
    /// The whole URL.
    pub url: String,
    /// Header names and values.
    pub headers: Vec<(String, String)>,
    /// The JSON.
    pub body: String,
}

/// Turns the bytes of one answer into events.
pub trait Decoder {
    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<ModelEvent>, ModelFailure>;

    /// Whether the model has said all, although the answer has not ended yet: only the usage, or a last mark, is missing.
    fn is_whole(&self) -> bool;

    /// The body has ended. An answer without an end of its own is a failure.
    fn finish(&mut self) -> Result<Vec<ModelEvent>, ModelFailure>;
}

/// Where an item's body keeps what one provider alone wants to see again, by dialect.
const FIELDS: &str = "provider_fields";

impl Provider {
    /// The host that requests go to, if any.
    pub fn host(&self) -> Option<&Host> {
        match self {
            Provider::OpenAiResponses(host) | Provider::OpenAiChat(host) | Provider::Anthropic(host) => Some(host),
            Provider::WorkersAi(_) | Provider::Scripted(_) | Provider::Named(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn host_mut(&mut self) -> Option<&mut Host> {
        match self {
            Provider::OpenAiResponses(host) | Provider::OpenAiChat(host) | Provider::Anthropic(host) => Some(host),
            Provider::WorkersAi(_) | Provider::Scripted(_) | Provider::Named(_) => None,
        }
    }

    /// Which of the settings this provider has no such thing for, and why.
    pub fn refuses(&self, sampling: &Sampling) -> Option<(&'static str, String)> {
        match self {
            Provider::OpenAiResponses(_)
            | Provider::OpenAiChat(_)
            | Provider::Scripted(_)
            | Provider::Named(_) => None,
            Provider::Anthropic(_) => anthropic::refuses(sampling),
            Provider::WorkersAi(_) => workers_ai::refuses(sampling),
        }
    }

    /// The request for a prompt and the decoder for its answer; none if there is nobody to ask.
    pub fn ask(&self, prompt: &Prompt<'_>) -> Option<(ModelCall, Box<dyn Decoder>)> {
        let (ask, decoder): (ModelCall, Box<dyn Decoder>) = match self {
            Provider::OpenAiResponses(host) => {
                (ModelCall::Http(responses::encode(host, prompt)), Box::new(responses::ResponseDecoder::new()))
            }
            Provider::OpenAiChat(host) => {
                (ModelCall::Http(chat::encode(host, prompt)), Box::new(chat::ResponseDecoder::new()))
            }
            Provider::Anthropic(host) => {
                (ModelCall::Http(anthropic::encode(host, prompt)), Box::new(anthropic::ResponseDecoder::new()))
            }
            Provider::WorkersAi(settings) => {
                (ModelCall::Binding(workers_ai::encode(settings, prompt)), Box::new(chat::ResponseDecoder::new()))
            }
            Provider::Scripted(_) | Provider::Named(_) => return None,
        };
        Some((ask, Box::new(bounds::Bounded(decoder))))
    }
}

/// A JSON object of those fields, which move into it; `json!` would copy them.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut object = Map::new();
    object.extend(fields.map(|(name, value)| (name.to_string(), value)));
    object.into()
}

/// A field of a JSON object; null where there is none.
fn field<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&Value::Null)
}

/// Whether the model is one that reasons, as far as OpenAI's names tell: others refuse some settings, and it refuses others.
fn reasons(prompt: &Prompt<'_>) -> bool {
    let name = prompt.model.rsplit('/').next().unwrap_or_default();
    let o_series = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    o_series || name.starts_with("gpt-5") || name.contains("codex") || prompt.sampling.reasoning_effort.is_some()
}
