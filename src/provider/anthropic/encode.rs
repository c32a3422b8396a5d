//! The request: roles alternate, the results of calls lead the user message that follows them.

use serde_json::{Value, json};

use crate::provider::transcript::{Part, arrange};
use crate::provider::{FIELDS, Prompt, WireRequest, field};
use crate::session::IS_ERROR;

/// The version of the API that this is written for.
const VERSION: &str = "2023-06-01";
/// The API wants a limit; this is what an agent gets that names none.
const MAX_TOKENS: u32 = 8192;
/// In place of a user's message that says nothing: the API refuses blank texts, and the turn is still the model's.
const BLANK: &str = "(empty message)";
/// Before a transcript that the assistant begins: the API wants the user to be first.
const BEFORE: &str = "(The conversation begins with your message.)";

/// The request for one prompt.
pub fn encode(base_url: &str, api_key: Option<&str>, prompt: &Prompt<'_>) -> WireRequest {
    let mut headers = vec![
        ("content-type", "application/json".to_string()),
        ("accept", "text/event-stream".to_string()),
        ("anthropic-version", VERSION.to_string()),
    ];
    if let Some(key) = api_key {
        headers.push(("x-api-key", key.to_string()));
    }
    WireRequest {
        url: format!("{}/messages", base_url.trim_end_matches('/')),
        headers,
        body: body(prompt).to_string(),
    }
}

fn body(prompt: &Prompt<'_>) -> Value {
    let sampling = prompt.sampling;
    let mut body = json!({
        "model": prompt.model, "stream": true, "max_tokens": sampling.max_output_tokens.unwrap_or(MAX_TOKENS),
        "messages": messages(prompt),
    });
    let Some(map) = body.as_object_mut() else { return body };
    if let Some(instructions) = prompt.instructions {
        map.insert("system".into(), instructions.into());
    }
    if !prompt.tools.is_empty() {
        let tool = |tool: &crate::session::Tool| {
            let schema = tool.parameters.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}}));
            match &tool.description {
                Some(text) => json!({"name": tool.name, "description": text, "input_schema": schema}),
                None => json!({"name": tool.name, "input_schema": schema}),
            }
        };
        map.insert("tools".into(), prompt.tools.iter().map(tool).collect());
    }
    if let Some(temperature) = sampling.temperature {
        map.insert("temperature".into(), temperature.into());
    }
    body
}

fn messages(prompt: &Prompt<'_>) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for line in arrange(prompt.context) {
        let body: &Value = &serde_json::from_str(&line.body).unwrap_or(Value::Null);
        let (role, blocks) = match line.part {
            Part::User => {
                let said = content(field(body, "content"));
                ("user", if said.is_empty() { vec![text(BLANK)] } else { said })
            }
            Part::Output => {
                let output = match field(body, "output") {
                    Value::String(text) => Value::String(text.clone()),
                    parts => content(parts).into(),
                };
                let id = safe_id(field(body, "call_id"));
                let mut result = json!({"type": "tool_result", "tool_use_id": id, "content": output});
                if let (Some(result), Some(is_error)) = (result.as_object_mut(), body.get(IS_ERROR)) {
                    result.insert(IS_ERROR.into(), is_error.clone());
                }
                ("user", vec![result])
            }
            Part::Assistant => ("assistant", content(field(body, "content"))),
            Part::Call => {
                let arguments = field(body, "arguments").as_str().unwrap_or_default();
                let input = serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object);
                let (id, input) = (safe_id(field(body, "call_id")), input.unwrap_or_else(|| json!({})));
                (
                    "assistant",
                    vec![json!({"type": "tool_use", "id": id, "name": field(body, "name"), "input": input})],
                )
            }
            // Only its own thoughts, signed by itself, mean anything to this provider.
            Part::Reasoning => ("assistant", field(body, FIELDS).get("anthropic").cloned().into_iter().collect()),
        };
        match messages.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last, open)) if *last == role => open.extend(blocks),
            _ => messages.push((role, blocks)),
        }
    }
    if messages.first().is_some_and(|(role, _)| *role == "assistant") {
        messages.insert(0, ("user", vec![text(BEFORE)]));
    }
    messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Content parts as blocks. Blank texts are refused by the provider, and say nothing.
fn content(parts: &Value) -> Vec<Value> {
    let list = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(block).collect()
}

fn block(part: &Value) -> Option<Value> {
    let url = |key: &str| part.get(key).and_then(Value::as_str).map(source);
    match field(part, "type").as_str() {
        Some("input_image") => Some(json!({"type": "image", "source": url("image_url")?})),
        Some("input_file") => {
            Some(json!({"type": "document", "source": url("file_data").or_else(|| url("file_url"))?}))
        }
        _ => {
            let said = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str)?;
            if said.trim().is_empty() { None } else { Some(text(said)) }
        }
    }
}

/// Where an image or a file is: in a data URL, or elsewhere.
fn source(url: &str) -> Value {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match data {
        Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
        None => json!({"type": "url", "url": url}),
    }
}

/// A call id in the letters that this provider takes; another provider may have made it.
fn safe_id(id: &Value) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    id.as_str().unwrap_or_default().chars().map(plain).collect()
}
