//! The interface of every dialect: a prompt becomes a request, and the bytes of the response become events.

use super::sampling::Sampling;
use super::transcript::Line;
use crate::session::{ModelEvent, ModelFailure, Tool};

/// The longest event of a provider's stream, in bytes.
pub const EVENT_CAP: usize = 16 * 1024 * 1024;

/// One model request, independent of the dialect.
#[derive(Debug)]
pub struct Prompt<'a> {
    pub model: &'a str,
    /// The agent's instructions.
    pub instructions: Option<&'a str>,
    /// The tools the model may call.
    pub tools: &'a [Tool],
    pub context: &'a [Line],
    pub sampling: &'a Sampling,
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

/// Turns the bytes of one response into events.
pub trait Decoder {
    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<ModelEvent>, ModelFailure>;

    /// Whether the model's output is complete, although the response has not ended: only the usage, or a last mark, is
    /// missing.
    fn is_whole(&self) -> bool;

    /// The body has ended. A response without an end of its own is a failure.
    fn finish(&mut self) -> Result<Vec<ModelEvent>, ModelFailure>;
}

/// The key in an item's body that holds one provider's private matter, by dialect.
pub const FIELDS: &str = "provider_fields";

/// Whether the model is a reasoning model, judging by OpenAI's names: these reject some settings that others accept,
/// and vice versa.
pub fn reasons(prompt: &Prompt<'_>) -> bool {
    let name = prompt.model.rsplit('/').next().unwrap_or_default();
    let o_series = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    o_series || name.starts_with("gpt-5") || name.contains("codex") || prompt.sampling.reasoning_effort.is_some()
}
