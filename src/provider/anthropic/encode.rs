//! The request: roles alternate, and the results of calls lead the user message that follows them.

use serde_json::{Map, Value, json};

use crate::json;
use crate::json::{field, object};
use crate::provider::dialect::{FIELDS, Prompt, WireRequest};
use crate::provider::transcript::{Part, arrange};
use crate::provider::{Host, ResponseFormat, Sampling, ToolChoice};
use crate::session::IS_ERROR;

/// The API version this is written for.
const VERSION: &str = "2023-06-01";
/// The API requires a limit; the default of agents that set none.
const MAX_TOKENS: u32 = 8192;
/// Levels of effort, and the thinking budget in tokens for models that need a number.
const EFFORTS: [(&str, u32); 5] =
    [("low", 2048), ("medium", 8192), ("high", 16_384), ("xhigh", 24_576), ("max", 32_768)];
/// Replaces a blank user message: the API rejects blank texts, and it is still the model's turn.
const BLANK: &str = "(empty message)";
/// Precedes a transcript that starts with the assistant: the API requires the user first.
const BEFORE: &str = "(The conversation begins with your message.)";

/// The request for one prompt.
pub fn encode(host: &Host, prompt: &Prompt<'_>) -> WireRequest {
    let mut headers = vec![("anthropic-version", VERSION.to_string())];
    headers.extend(host.api_key.iter().map(|key| ("x-api-key", key.clone())));
    host.post("messages", headers, body(prompt).to_string())
}

/// Settings the API does not support.
pub fn refuses(sampling: &Sampling) -> Option<(&'static str, String)> {
    if let Some(effort) = &sampling.reasoning_effort {
        if !EFFORTS.iter().any(|(name, _)| name == effort) {
            let known = EFFORTS.map(|(name, _)| name).join(", ");
            return Some(("reasoning_effort", format!("this provider supports {known}")));
        }
        if sampling.temperature.is_some() {
            return Some((
                "temperature",
                "this provider does not support temperature together with reasoning_effort".into(),
            ));
        }
        if matches!(sampling.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_))) {
            let why = "this provider does not support a forced tool call together with reasoning_effort";
            return Some(("tool_choice", why.into()));
        }
    }
    if sampling.temperature.is_some_and(|temperature| temperature > 1.0) {
        return Some(("temperature", "this provider supports values from 0 to 1".into()));
    }
    if sampling.response_format == Some(ResponseFormat::JsonObject) {
        return Some(("response_format", "this provider requires a schema; use json_schema".into()));
    }
    None
}

fn body(prompt: &Prompt<'_>) -> Value {
    let sampling = prompt.sampling;
    let mut body = json!({
        "model": prompt.model, "stream": true, "max_tokens": sampling.max_output_tokens.unwrap_or(MAX_TOKENS),
    });
    let Some(map) = body.as_object_mut() else { return body };
    map.insert("messages".into(), messages(prompt).into()); // `json!` would copy them
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
    if let Some(choice) = tool_choice(sampling).filter(|_| !prompt.tools.is_empty()) {
        map.insert("tool_choice".into(), choice);
    }
    let mut output = Map::new();
    if let Some(ResponseFormat::JsonSchema { schema, .. }) = &sampling.response_format {
        output.insert("format".into(), json!({"type": "json_schema", "schema": schema}));
    }
    let effort = sampling.reasoning_effort.as_deref();
    if let Some((effort, budget)) = effort.and_then(|effort| EFFORTS.into_iter().find(|(name, _)| *name == effort))
    {
        if wants_budget(prompt.model) {
            let answer = sampling.max_output_tokens.unwrap_or(MAX_TOKENS);
            map.insert("thinking".into(), json!({"type": "enabled", "budget_tokens": budget}));
            map.insert("max_tokens".into(), answer.saturating_add(budget).into());
        } else {
            map.insert("thinking".into(), json!({"type": "adaptive"}));
            output.insert("effort".into(), effort.into());
        }
    }
    if !output.is_empty() {
        map.insert("output_config".into(), output.into());
    }
    body
}

/// Models up to 4.5 think by a token budget, later ones by effort.
fn wants_budget(model: &str) -> bool {
    let old = ["claude-3", "-4-0", "-4-1", "-4-5", "-4-2025"];
    old.iter().any(|part| model.contains(part))
}

fn tool_choice(sampling: &Sampling) -> Option<Value> {
    let mut choice = match &sampling.tool_choice {
        Some(ToolChoice::None) => return Some(json!({"type": "none"})),
        Some(ToolChoice::Required) => json!({"type": "any"}),
        Some(ToolChoice::Tool(name)) => json!({"type": "tool", "name": name}),
        Some(ToolChoice::Auto) => json!({"type": "auto"}),
        None if sampling.parallel_tool_calls.is_some() => json!({"type": "auto"}),
        None => return None,
    };
    if let (Some(choice), Some(parallel)) = (choice.as_object_mut(), sampling.parallel_tool_calls) {
        choice.insert("disable_parallel_tool_use".into(), (!parallel).into());
    }
    Some(choice)
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
                let input = json::parse_untrusted(arguments).ok().filter(Value::is_object);
                let (id, input) = (safe_id(field(body, "call_id")), input.unwrap_or_else(|| json!({})));
                (
                    "assistant",
                    vec![json!({"type": "tool_use", "id": id, "name": field(body, "name"), "input": input})],
                )
            }
            // This provider accepts only thinking blocks it signed itself.
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
    let message = |(role, content): (&str, Vec<_>)| object([("role", role.into()), ("content", content.into())]);
    messages.into_iter().map(message).collect()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Content parts as blocks. Blank texts are dropped: the provider rejects them.
fn content(parts: &Value) -> Vec<Value> {
    let list = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(block).collect()
}

fn block(part: &Value) -> Option<Value> {
    let url = |key: &str| part.get(key).and_then(Value::as_str).map(source);
    let file_data = part.get("file_data").and_then(Value::as_str).map(|data| match data.get(..5) {
        Some(scheme) if scheme.eq_ignore_ascii_case("data:") => source(data),
        _ => json!({"type": "base64", "media_type": "application/pdf", "data": data}),
    });
    match field(part, "type").as_str() {
        Some("input_image") => Some(json!({"type": "image", "source": url("image_url")?})),
        Some("input_file") => Some(json!({"type": "document", "source": file_data.or_else(|| url("file_url"))?})),
        _ => {
            let said = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str)?;
            if said.trim().is_empty() { None } else { Some(text(said)) }
        }
    }
}

/// The source of an image or a file: a data URL, or an address.
fn source(url: &str) -> Value {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match data {
        Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
        None => json!({"type": "url", "url": url}),
    }
}

/// A call id in this provider's alphabet; another provider may have made it. Different ids stay different.
fn safe_id(id: &Value) -> String {
    let mut safe = String::new();
    for c in id.as_str().unwrap_or_default().chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            safe.push(c);
        } else {
            safe.push_str(&format!("-{:x}-", u32::from(c)));
        }
    }
    safe
}
