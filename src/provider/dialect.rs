//! What every dialect is given and gives: a prompt becomes a request, and the bytes of its answer become events.

use super::sampling::Sampling;
use super::transcript::Line;
use crate::session::{ModelEvent, ModelFailure, Tool};

/// The longest event of a provider's stream, in bytes.
pub const EVENT_CAP: usize = 16 * 1024 * 1024;

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
    pub context: &'a [Line],
    /// Settings.
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
pub const FIELDS: &str = "provider_fields";

/// Whether the model is one that reasons, as far as OpenAI's names tell: others refuse some settings, and it refuses others.
pub fn reasons(prompt: &Prompt<'_>) -> bool {
    let name = prompt.model.rsplit('/').next().unwrap_or_default();
    let o_series = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    o_series || name.starts_with("gpt-5") || name.contains("codex") || prompt.sampling.reasoning_effort.is_some()
}
