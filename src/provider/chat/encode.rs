//! The request: the output of one model response becomes one assistant message, directly followed by its tool messages.

use serde_json::{Value, json};

use crate::json::{field, object};
use crate::provider::dialect::{FIELDS, Prompt, WireRequest, reasons};
use crate::provider::transcript::{Part, arrange};
use crate::provider::{Host, ResponseFormat, ToolChoice};
use crate::session::Tool;

/// The request for one prompt.
pub fn encode(host: &Host, prompt: &Prompt<'_>) -> WireRequest {
    host.post("chat/completions", host.bearer(), body(prompt).to_string())
}

fn body(prompt: &Prompt<'_>) -> Value {
    let mut body = json!({"model": prompt.model, "stream": true, "stream_options": {"include_usage": true}});
    let Some(map) = body.as_object_mut() else { return body };
    map.insert("messages".into(), messages(prompt).into()); // `json!` would copy them
    let sampling = prompt.sampling;
    if !prompt.tools.is_empty() {
        map.insert("tools".into(), tools(prompt.tools));
    }
    if let Some(effort) = &sampling.reasoning_effort {
        map.insert("reasoning_effort".into(), effort.as_str().into());
    }
    if let Some(tokens) = sampling.max_output_tokens {
        // Reasoning models accept only the new name, many compatible hosts only the old one.
        let name = if reasons(prompt) { "max_completion_tokens" } else { "max_tokens" };
        map.insert(name.into(), tokens.into());
    }
    if let Some(temperature) = sampling.temperature {
        map.insert("temperature".into(), temperature.into());
    }
    if let Some(choice) = &sampling.tool_choice {
        let choice = match choice {
            ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
            other => other.clone().into(),
        };
        map.insert("tool_choice".into(), choice);
    }
    if let Some(parallel) = sampling.parallel_tool_calls {
        map.insert("parallel_tool_calls".into(), parallel.into());
    }
    if let Some(format) = &sampling.response_format {
        map.insert("response_format".into(), response_format(format));
    }
    body
}

/// Tools in the nested form.
pub fn tools(tools: &[Tool]) -> Value {
    let own = |tool: &Tool| Tool { tool_timeout_s: None, ..tool.clone() };
    tools.iter().map(|tool| json!({"type": "function", "function": own(tool)})).collect()
}

/// The response format, in this dialect.
pub fn response_format(format: &ResponseFormat) -> Value {
    match format {
        ResponseFormat::JsonSchema { name, schema, strict } => {
            let schema = json!({"name": name, "schema": schema, "strict": strict.unwrap_or(false)});
            json!({"type": "json_schema", "json_schema": schema})
        }
        other => other.clone().into(),
    }
}

/// The transcript as messages.
pub fn messages(prompt: &Prompt<'_>) -> Vec<Value> {
    let mut messages = Vec::new();
    if let Some(instructions) = prompt.instructions {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    let (mut spoken, mut shown) = (Spoken::default(), Attachments::default());
    for line in arrange(prompt.context) {
        let body: &Value = &serde_json::from_str(&line.body).unwrap_or(Value::Null);
        match line.part {
            Part::Assistant => {
                messages.extend(shown.take());
                spoken.text.push_str(&text_of(field(body, "content")));
            }
            Part::Call => {
                messages.extend(shown.take());
                spoken.calls.push(call(body));
            }
            // There is no form of reasoning that all hosts accept back.
            Part::Reasoning => {}
            Part::User => {
                messages.extend(spoken.take());
                messages.extend(shown.take());
                messages.push(object([("role", "user".into()), ("content", content(field(body, "content")))]));
            }
            Part::Output => {
                messages.extend(spoken.take());
                let (id, output) = (field(body, "call_id").clone(), shown.add(field(body, "output")));
                messages.push(object([("role", "tool".into()), ("tool_call_id", id), ("content", output.into())]));
            }
        }
    }
    messages.extend(spoken.take());
    messages.extend(shown.take());
    messages
}

/// Images and files in outputs: a tool message can hold text only, so a user message shows them, after all outputs.
#[derive(Default)]
struct Attachments(Vec<Value>);

impl Attachments {
    /// The text of an output. Parts that are not text are kept for later, and the text says so.
    fn add(&mut self, output: &Value) -> String {
        let Value::Array(parts) = output else { return text_of(output) };
        let mut text = String::new();
        for part in parts {
            if field(part, "type") == "input_text" {
                text.push_str(field(part, "text").as_str().unwrap_or_default());
                continue;
            }
            self.0.push(part.clone());
            text.push_str(&format!("[attachment {}: in the next message]", self.0.len()));
        }
        text
    }

    fn take(&mut self) -> Option<Value> {
        let parts = std::mem::take(&mut self.0);
        let message = |parts| object([("role", "user".into()), ("content", content(&parts))]);
        if parts.is_empty() { None } else { Some(message(parts.into())) }
    }
}

/// The output of one model response.
#[derive(Default)]
struct Spoken {
    text: String,
    calls: Vec<Value>,
}

impl Spoken {
    /// The assistant message, if there is anything in it.
    fn take(&mut self) -> Option<Value> {
        let Spoken { text, calls } = std::mem::take(self);
        let content = if text.is_empty() { Value::Null } else { text.into() };
        let role = "assistant".into();
        match (content.is_null(), calls.is_empty()) {
            (true, true) => None,
            (false, true) => Some(object([("role", role), ("content", content)])),
            (_, false) => Some(object([("role", role), ("content", content), ("tool_calls", calls.into())])),
        }
    }
}

/// A call, with the fields its provider wants back.
fn call(body: &Value) -> Value {
    let mut call = json!({"id": field(body, "call_id"), "type": "function",
        "function": {"name": field(body, "name"), "arguments": field(body, "arguments")}});
    if let (Some(call), Some(fields)) = (call.as_object_mut(), field(field(body, FIELDS), "chat").as_object()) {
        call.extend(fields.clone());
    }
    call
}

/// A user's content: a plain string if it is only text, since some hosts accept nothing else.
fn content(parts: &Value) -> Value {
    let list = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.iter().all(|part| field(part, "type") == "input_text") {
        return text_of(parts).into();
    }
    let part = |part: &Value| match field(part, "type").as_str() {
        Some("input_image") => json!({"type": "image_url", "image_url": {"url": field(part, "image_url")}}),
        Some("input_file") => {
            let mut file = part.clone();
            if let Some(file) = file.as_object_mut() {
                file.remove("type");
            }
            json!({"type": "file", "file": file})
        }
        _ => json!({"type": "text", "text": field(part, "text")}),
    };
    list.iter().map(part).collect()
}

/// The text of content: a string, or its parts' texts. Parts that are not text stay JSON.
fn text_of(content: &Value) -> String {
    let part = |part: &Value| {
        let text = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str);
        text.map_or_else(|| part.to_string(), str::to_string)
    };
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => String::new(),
    }
}
