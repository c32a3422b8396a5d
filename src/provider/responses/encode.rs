//! The request. The transcript's bodies are spliced in as they were stored.

use serde_json::{Map, Value, json};

use crate::provider::transcript::arrange;
use crate::provider::{Prompt, WireRequest};
use crate::session::Tool;

/// The request for one prompt.
pub fn encode(base_url: &str, api_key: Option<&str>, prompt: &Prompt<'_>) -> WireRequest {
    let mut headers =
        vec![("content-type", "application/json".to_string()), ("accept", "text/event-stream".to_string())];
    if let Some(key) = api_key {
        headers.push(("authorization", format!("Bearer {key}")));
    }
    WireRequest { url: format!("{}/responses", base_url.trim_end_matches('/')), headers, body: body(prompt) }
}

fn body(prompt: &Prompt<'_>) -> String {
    let mut head = Map::new();
    head.insert("model".into(), prompt.model.into());
    head.insert("stream".into(), true.into());
    // The session is the store. What a provider would keep for us, it hands out to be sent again.
    head.insert("store".into(), false.into());
    if let Some(instructions) = prompt.instructions {
        head.insert("instructions".into(), instructions.into());
    }
    if !prompt.tools.is_empty() {
        head.insert("tools".into(), prompt.tools.iter().map(tool).collect());
    }
    let sampling = prompt.sampling;
    if let Some(effort) = &sampling.reasoning_effort {
        head.insert("reasoning".into(), json!({"effort": effort, "summary": "auto"}));
    }
    if reasons(prompt) {
        head.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    if let Some(tokens) = sampling.max_output_tokens {
        head.insert("max_output_tokens".into(), tokens.into());
    }
    if let Some(temperature) = sampling.temperature {
        head.insert("temperature".into(), temperature.into());
    }
    let mut body = Value::Object(head).to_string();
    body.pop();
    body.push_str(",\"input\":[");
    for (n, line) in arrange(prompt.context).into_iter().enumerate() {
        if n > 0 {
            body.push(',');
        }
        body.push_str(&line.body);
    }
    body.push_str("]}");
    body
}

/// Whether the model is one that reasons: others refuse to be asked for their reasoning.
fn reasons(prompt: &Prompt<'_>) -> bool {
    let name = prompt.model.rsplit('/').next().unwrap_or_default();
    let o_series = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    o_series || name.starts_with("gpt-5") || name.contains("codex") || prompt.sampling.reasoning_effort.is_some()
}

fn tool(tool: &Tool) -> Value {
    let empty = || json!({"type": "object", "properties": {}});
    json!({
        "type": "function", "name": tool.name, "description": tool.description,
        "parameters": tool.parameters.clone().unwrap_or_else(empty), "strict": tool.strict.unwrap_or(false),
    })
}
