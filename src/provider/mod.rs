//! Ring 1: model APIs. Pure adapters between the session's terms and what providers send and expect.
//!
//! A decoder takes bytes and emits [`ModelEvent`](crate::session::ModelEvent)s; it never retries, waits or logs.
//! Failures are classified in one table, in [`failure`].

mod anthropic;
mod arguments;
mod bounds;
mod chat;
pub mod compat;
mod dialect;
pub mod failure;
#[cfg(test)]
mod fixtures;
mod halves;
mod host;
mod lenient;
mod projection;
mod responses;
mod sampling;
mod scripted;
mod stop;
mod stream;
mod workers_ai;

use serde::de::Deserializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json;

pub use dialect::{Decoder, Prompt, WireRequest};
pub use host::Host;
pub use projection::{Line as ContextLine, Part as ContextPart, arrange};
pub use sampling::{ResponseFormat, Sampling, ToolChoice};
pub use scripted::{Line, Script, ScriptedModel, play};
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

    /// The number of the first image or file that this provider has no form for, and why.
    pub fn unfit(&self, content: &Value) -> Option<(usize, &'static str)> {
        match self {
            Provider::OpenAiChat(_) | Provider::WorkersAi(_) => chat::unfit(content),
            Provider::Anthropic(_) => anthropic::unfit(content),
            Provider::OpenAiResponses(_) | Provider::Scripted(_) | Provider::Named(_) => None,
        }
    }

    /// Names the host that a model's private matter belongs to, and its dialect: `chat https://api.deepseek.com`. `None`
    /// if it has none.
    pub fn origin(&self) -> Option<String> {
        match self {
            Provider::OpenAiResponses(host) => Some(format!("responses {}", host.origin())),
            Provider::OpenAiChat(host) => Some(format!("chat {}", host.origin())),
            Provider::Anthropic(host) => Some(format!("anthropic {}", host.origin())),
            Provider::WorkersAi(_) => Some("workers-ai".into()),
            Provider::Scripted(_) | Provider::Named(_) => None,
        }
    }

    /// The request for a prompt and the decoder of its response; `None` if the provider is not resolved.
    pub fn ask(&self, prompt: &Prompt<'_>) -> Option<(ModelCall, Box<dyn Decoder>)> {
        let home = self.origin()?;
        let (ask, decoder): (ModelCall, Box<dyn Decoder>) = match self {
            Provider::OpenAiResponses(host) => (
                ModelCall::Http(responses::encode(host, &home, prompt)),
                Box::new(responses::ResponseDecoder::new()),
            ),
            Provider::OpenAiChat(host) => {
                (ModelCall::Http(chat::encode(host, &home, prompt)), Box::new(chat::ResponseDecoder::new()))
            }
            Provider::Anthropic(host) => (
                ModelCall::Http(anthropic::encode(host, &home, prompt)),
                Box::new(anthropic::ResponseDecoder::new()),
            ),
            Provider::WorkersAi(settings) => (
                ModelCall::Binding(workers_ai::encode(settings, &home, prompt)),
                Box::new(chat::ResponseDecoder::new()),
            ),
            Provider::Scripted(_) | Provider::Named(_) => return None,
        };
        Some((ask, Box::new(bounds::Bounded(Box::new(halves::Joined::new(decoder))))))
    }
}
