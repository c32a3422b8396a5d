//! The request. Item bodies are spliced in as stored.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::json::field;
use crate::provider::Host;
use crate::provider::dialect::{FIELDS, Prompt, WireRequest, reasons};
use crate::provider::transcript::{Line, Part, arrange};
use crate::session::{IS_ERROR, Tool};

/// The request for one prompt.
pub fn encode(host: &Host, prompt: &Prompt<'_>) -> WireRequest {
    host.post("responses", host.bearer(), body(prompt))
}

fn body(prompt: &Prompt<'_>) -> String {
    let mut head = Map::new();
    head.insert("model".into(), prompt.model.into());
    head.insert("stream".into(), true.into());
    // The session is the store: the provider returns its private items instead of keeping them.
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
    if let Some(choice) = &sampling.tool_choice {
        head.insert("tool_choice".into(), choice.clone().into());
    }
    if let Some(parallel) = sampling.parallel_tool_calls {
        head.insert("parallel_tool_calls".into(), parallel.into());
    }
    if let Some(format) = &sampling.response_format {
        head.insert("text".into(), json!({"format": Value::from(format.clone())}));
    }
    let mut body = Value::Object(head).to_string();
    body.reserve(prompt.context.iter().map(|line| line.body.len() + 1).sum::<usize>() + 16);
    body.pop();
    body.push_str(",\"input\":[");
    for (n, item) in arrange(prompt.context).into_iter().filter_map(own).enumerate() {
        if n > 0 {
            body.push(',');
        }
        body.push_str(&item);
    }
    body.push_str("]}");
    body
}

/// A body as sent. Another provider's private keys are removed, and so is the error mark of an output, which this API
/// does not have.
fn own(line: &Line) -> Option<Cow<'_, str>> {
    let body = line.body.as_str();
    let message = matches!(line.part, Part::User | Part::Assistant);
    if message || !body.contains(FIELDS) && !body.contains(IS_ERROR) {
        return Some(Cow::Borrowed(body));
    }
    let mut json: Value = serde_json::from_str(body).ok()?;
    let object = json.as_object_mut()?;
    object.remove(IS_ERROR);
    let foreign = object.remove(FIELDS).is_some();
    // Without its payload, another provider's reasoning is empty.
    let dropped = foreign && field(&json, "type") == "reasoning";
    if dropped { None } else { Some(Cow::Owned(json.to_string())) }
}

fn tool(tool: &Tool) -> Value {
    let empty = || json!({"type": "object", "properties": {}});
    json!({
        "type": "function", "name": tool.name, "description": tool.description,
        "parameters": tool.parameters.clone().unwrap_or_else(empty), "strict": tool.strict.unwrap_or(false),
    })
}
