//! The request: what one model response wrote becomes one assistant message, directly followed by its tool messages.

use serde_json::{Value, json};

use crate::provider::transcript::{Part, arrange};
use crate::provider::{FIELDS, Prompt, WireRequest, bearer, field, reasons};
use crate::session::Tool;

/// The request for one prompt.
pub fn encode(base_url: &str, api_key: Option<&str>, prompt: &Prompt<'_>) -> WireRequest {
    let url = format!("{}/chat/completions", base_url.trim_end_matches('/'));
    WireRequest { url, headers: bearer(api_key), body: body(prompt).to_string() }
}

fn body(prompt: &Prompt<'_>) -> Value {
    let mut body = json!({
        "model": prompt.model, "stream": true, "stream_options": {"include_usage": true}, "messages": messages(prompt),
    });
    let Some(map) = body.as_object_mut() else { return body };
    let sampling = prompt.sampling;
    if !prompt.tools.is_empty() {
        let tool =
            |tool: &Tool| json!({"type": "function", "function": Tool { tool_timeout_s: None, ..tool.clone() }});
        map.insert("tools".into(), prompt.tools.iter().map(tool).collect());
    }
    if let Some(effort) = &sampling.reasoning_effort {
        map.insert("reasoning_effort".into(), effort.as_str().into());
    }
    if let Some(tokens) = sampling.max_output_tokens {
        // Models that reason know only the new name, many imitations only the old one.
        let name = if reasons(prompt) { "max_completion_tokens" } else { "max_tokens" };
        map.insert(name.into(), tokens.into());
    }
    if let Some(temperature) = sampling.temperature {
        map.insert("temperature".into(), temperature.into());
    }
    body
}

fn messages(prompt: &Prompt<'_>) -> Vec<Value> {
    let mut messages = Vec::new();
    if let Some(instructions) = prompt.instructions {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    let mut spoken = Spoken::default();
    for line in arrange(prompt.context) {
        let body: &Value = &serde_json::from_str(&line.body).unwrap_or(Value::Null);
        match line.part {
            Part::Assistant => spoken.text.push_str(&text_of(field(body, "content"))),
            Part::Call => spoken.calls.push(call(body)),
            // No host takes reasoning back in a form that the others take as well.
            Part::Reasoning => {}
            Part::User => {
                messages.extend(spoken.take());
                messages.push(json!({"role": "user", "content": content(field(body, "content"))}));
            }
            Part::Output => {
                messages.extend(spoken.take());
                let output = text_of(field(body, "output"));
                messages.push(json!({"role": "tool", "tool_call_id": field(body, "call_id"), "content": output}));
            }
        }
    }
    messages.extend(spoken.take());
    messages
}

/// What one model response wrote.
#[derive(Default)]
struct Spoken {
    text: String,
    calls: Vec<Value>,
}

impl Spoken {
    /// The assistant message, if anything was written.
    fn take(&mut self) -> Option<Value> {
        let Spoken { text, calls } = std::mem::take(self);
        let content = if text.is_empty() { Value::Null } else { text.into() };
        match (content.is_null(), calls.is_empty()) {
            (true, true) => None,
            (false, true) => Some(json!({"role": "assistant", "content": content})),
            (_, false) => Some(json!({"role": "assistant", "content": content, "tool_calls": calls})),
        }
    }
}

/// A call, with the fields that its provider wants to see again.
fn call(body: &Value) -> Value {
    let mut call = json!({"id": field(body, "call_id"), "type": "function",
        "function": {"name": field(body, "name"), "arguments": field(body, "arguments")}});
    if let (Some(call), Some(fields)) = (call.as_object_mut(), field(field(body, FIELDS), "chat").as_object()) {
        call.extend(fields.clone());
    }
    call
}

/// A user's content: a plain string where it is only text, since some hosts take nothing else.
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

/// The text of content: a string, or the texts of its parts. Parts that are no text stay as JSON.
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
