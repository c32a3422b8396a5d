//! The interface of every dialect: a prompt becomes a request, and the bytes of the response become events.

use super::compat::{Compat, Learnable};
use super::projection::{Line, Part, View};
use super::sampling::{Sampling, ToolChoice};
use crate::session::{ModelEvent, ModelFailure, Seq, Tool, Withheld};

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
    /// What the model is shown placeholders for.
    pub withheld: &'a [Withheld],
    /// How the host's requests were found to differ, as `compat` says it.
    pub lessons: &'a [&'a str],
}

impl<'a> Prompt<'a> {
    /// How a host with these settings differs from its dialect.
    pub fn compat(&self, told: &Compat) -> Compat {
        told.with(self.lessons.iter().copied())
    }

    /// The transcript's view from a host.
    pub fn view(&self, home: &'a str, compat: &Compat) -> View<'a> {
        View { home, private: compat.private(), fills: compat.fill_blanks, withheld: self.withheld }
    }

    /// Whether the transcript has images or files after a place.
    pub fn has_media(&self, after: Seq) -> bool {
        self.context.iter().any(|line| {
            let client = matches!(line.part, Part::User | Part::Output);
            client
                && line.place > after
                && (line.body.contains("\"input_image\"") || line.body.contains("\"input_file\""))
        })
    }

    /// Whether the model must or may call tools: settings about tools go out only with tools, and name one of these.
    pub fn tool_choice(&self) -> Option<&'a ToolChoice> {
        let offered = |name: &String| self.tools.iter().any(|tool| tool.name == *name);
        self.sampling.tool_choice.as_ref().filter(|choice| match choice {
            ToolChoice::Tool(name) => offered(name),
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => !self.tools.is_empty(),
        })
    }

    /// Whether one response may contain several calls, if there are tools.
    pub fn parallel_tool_calls(&self) -> Option<bool> {
        self.sampling.parallel_tool_calls.filter(|_| !self.tools.is_empty())
    }
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
    /// What of it the session could learn to do without.
    pub learnable: Vec<&'static Learnable>,
    /// Whether it has private matter of the host.
    pub private: bool,
}

/// Turns the bytes of one response into events.
pub trait Decoder {
    /// Takes the next bytes, and appends what they say. After a failure, what was said before it has been appended.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure>;

    /// Whether the model's output is complete, although the response has not ended: only the usage, or a last mark, is
    /// missing.
    fn is_whole(&self) -> bool;

    /// The body has ended. A response without an end of its own is a failure.
    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure>;
}

/// Whether the model is a reasoning model, judging by OpenAI's names: these reject some settings that others accept,
/// and vice versa.
pub fn reasons(prompt: &Prompt<'_>) -> bool {
    let name = prompt.model.rsplit('/').next().unwrap_or_default();
    let o_series = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let gpt_5 = name.starts_with("gpt-5") && !name.contains("-chat");
    o_series || gpt_5 || name.contains("codex") || prompt.sampling.reasoning_effort.is_some()
}

impl Decoder for Box<dyn Decoder> {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        (**self).push(bytes, out)
    }

    fn is_whole(&self) -> bool {
        (**self).is_whole()
    }

    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        (**self).finish(out)
    }
}
