//! The built-in model: plays a script, or echoes. For tests, demos, and the first five minutes without a key.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bounds::bound;
use super::failure;
use super::projection::Part;
use crate::json;
use crate::provider::dialect::Prompt;
use crate::session::{Finish, ModelEvent, ModelFailure, PartKind, Usage};

/// The built-in model's script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedModel {
    /// One entry per model request.
    #[serde(default)]
    pub script: Vec<Line>,
    /// Pause between two deltas, in milliseconds.
    #[serde(default = "delta_ms")]
    pub delta_ms: u32,
}

impl Default for ScriptedModel {
    fn default() -> Self {
        Self { script: Vec::new(), delta_ms: delta_ms() }
    }
}

/// The reply to one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Line {
    /// A text, streamed word by word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Calls, after the text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ScriptedCall>,
    /// A failure instead: `{"message", "code"?, "status"?, "retry_after"?}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    pub name: String,
    /// JSON text, or an object.
    #[serde(default)]
    pub arguments: Value,
    /// The provider's id of the call.
    #[serde(default)]
    pub call_id: Option<String>,
}

/// A script and its progress.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    pub lines: &'a [Line],
    /// Model requests of the session before this one.
    pub played: u64,
}

/// The default pause between two deltas.
fn delta_ms() -> u32 {
    20
}

/// The reply to `prompt`: steps between which it pauses.
pub fn play(script: Script<'_>, prompt: &Prompt<'_>) -> Result<Vec<ModelEvent>, ModelFailure> {
    let line = usize::try_from(script.played).ok().and_then(|played| script.lines.get(played).cloned());
    let line = line.unwrap_or_else(|| reply(prompt));
    if let Some(error) = &line.error {
        let wait = error.get("retry_after").and_then(Value::as_u64).and_then(|wait| u32::try_from(wait).ok());
        let status = error.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
        return Err(match status {
            Some(status) => failure::status(status, &error.to_string(), wait, &failure::Asked::default()),
            None => failure::in_band(error),
        });
    }
    let mut events = Vec::new();
    let mut words = 0;
    if let Some(text) = line.text {
        events.push(ModelEvent::Message);
        for word in text.split_inclusive(' ') {
            words += 1;
            events.push(ModelEvent::Text { kind: PartKind::Text, fresh: false, text: word.to_string() });
        }
        events.push(ModelEvent::Close { payload: None });
    }
    for (n, call) in line.tool_calls.into_iter().enumerate() {
        let provider_id = call.call_id.unwrap_or_else(|| format!("call_scripted_{}_{n}", script.played));
        let arguments = match call.arguments {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        words += 1;
        events.push(ModelEvent::Call { provider_id, name: call.name });
        events.push(ModelEvent::Text { kind: PartKind::Arguments, fresh: false, text: arguments });
        events.push(ModelEvent::Close { payload: None });
    }
    let heard: usize = prompt.context.iter().map(|line| line.body.split_whitespace().count()).sum();
    let usage = Usage {
        input_tokens: heard as u64,
        output_tokens: words,
        total_tokens: heard as u64 + words,
        ..Usage::default()
    };
    events.push(ModelEvent::Finish { reason: Finish::Done, usage });
    bound(&mut events);
    Ok(events)
}

/// Past the end of the script: echo the message, call an offered tool it names, report a tool's output.
fn reply(prompt: &Prompt<'_>) -> Line {
    let Some(last) = prompt.context.last() else { return Line::default() };
    let body: Value = serde_json::from_str(&last.body).unwrap_or(Value::Null);
    if last.part == Part::Output {
        let output = match body.get("output") {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        return Line { text: Some(format!("The tool answered: {output}")), ..Line::default() };
    }
    let blocks = body.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
    let said: Vec<&str> = blocks.iter().filter_map(|block| block.get("text").and_then(Value::as_str)).collect();
    let said = said.join(" ");
    match prompt.tools.iter().find(|tool| said.contains(&tool.name)) {
        Some(tool) => {
            let call = ScriptedCall { name: tool.name.clone(), arguments: arguments_in(&said), call_id: None };
            Line { tool_calls: vec![call], ..Line::default() }
        }
        None => Line { text: Some(format!("You said: {said}")), ..Line::default() },
    }
}

/// The JSON object in a message, else an empty one.
fn arguments_in(said: &str) -> Value {
    let start = said.find('{').and_then(|start| said.get(start..)).unwrap_or_default();
    let object = match json::check_complexity(start) {
        Ok(()) => serde_json::Deserializer::from_str(start).into_iter::<Value>().next(),
        Err(_) => None,
    };
    object.and_then(Result::ok).filter(Value::is_object).unwrap_or_else(|| serde_json::json!({}))
}
