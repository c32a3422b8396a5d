//! Ring 1: model APIs. Pure adapters between the session's terms and what providers send and expect.
//!
//! A decoder takes bytes and emits [`ModelEvent`](crate::session::ModelEvent)s; it never retries, waits or logs.
//! Failures are classified in one table, in [`failure`].

mod anthropic;
mod bounds;
mod chat;
mod dialect;
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

use crate::json;

pub use dialect::{Decoder, Prompt, WireRequest};
pub use host::Host;
pub use sampling::{ResponseFormat, Sampling, ToolChoice};
pub use scripted::{Line, Script, ScriptedModel, play};
pub use transcript::{Line as ContextLine, Part as ContextPart, arrange};
pub use workers_ai::Run;

/// A model provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Provider {
    /// OpenAI's Responses API, or a compatible host.
    #[serde(rename = "openai-responses")]
    OpenAiResponses(Host),
    /// OpenAI's Chat Completions API, or a compatible host.
    #[serde(rename = "openai-chat")]
    OpenAiChat(Host),
    Anthropic(Host),
    /// The platform's own models, through its binding `AI`.
    WorkersAi(workers_ai::Settings),
    /// The built-in model.
    Scripted(ScriptedModel),
    /// The deployment's provider of that name.
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

/// The deployment's provider of that name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    pub name: String,
}

/// How to make a model request.
#[derive(Debug, PartialEq)]
pub enum ModelCall {
    Http(WireRequest),
    /// Through the platform's binding.
    Binding(workers_ai::Run),
}

impl Provider {
    /// The host of its requests, if any.
    pub fn host(&self) -> Option<&Host> {
        match self {
            Provider::OpenAiResponses(host) | Provider::OpenAiChat(host) | Provider::Anthropic(host) => Some(host),
            Provider::WorkersAi(_) | Provider::Scripted(_) | Provider::Named(_) => None,
        }
    }

    /// The same, mutable.
    pub fn host_mut(&mut self) -> Option<&mut Host> {
        match self {
            Provider::OpenAiResponses(host) | Provider::OpenAiChat(host) | Provider::Anthropic(host) => Some(host),
            Provider::WorkersAi(_) | Provider::Scripted(_) | Provider::Named(_) => None,
        }
    }

    /// The settings this provider does not support, and why.
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

    /// The request for a prompt and the decoder of its response; `None` if the provider is not resolved.
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
