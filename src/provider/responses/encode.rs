//! The request. Item bodies are spliced in as stored.

use serde_json::{Map, Value, json};

use crate::json::field;
use crate::provider::compat;
use crate::provider::dialect::{Prompt, WireRequest, reasons};
use crate::provider::projection::{FIELDS, Part, Projected, project, schema};
use crate::provider::{Host, lenient};
use crate::session::{IS_ERROR, Tool};

/// The request for one prompt.
pub fn encode(host: &Host, home: &str, prompt: &Prompt<'_>) -> WireRequest {
    let compat = prompt.compat(&host.compat);
    let mut head = settings(prompt);
    compat.apply(&mut head);
    let learnable = compat::learnable(&head, compat::OPENAI, prompt.lessons);
    let mut private = false;
    let mut body = Value::from(head).to_string();
    body.reserve(prompt.context.iter().map(|line| line.body.len() + 1).sum::<usize>() + 16);
    body.pop();
    body.push_str(",\"input\":[");
    let shown = project(prompt.context, &prompt.view(home, &compat));
    for (n, mut item) in shown.into_iter().filter(is_readable).enumerate() {
        if n > 0 {
            body.push(',');
        }
        private |= item.part == Part::Reasoning;
        body.push_str(&item.text(own));
    }
    body.push_str("]}");
    let wire = host.post("responses", host.bearer(), body);
    WireRequest { learnable, private, ..wire }
}

/// The request but for its items.
fn settings(prompt: &Prompt<'_>) -> Map<String, Value> {
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
    if let Some(choice) = prompt.tool_choice() {
        head.insert("tool_choice".into(), choice.clone().into());
    }
    if let Some(parallel) = prompt.parallel_tool_calls() {
        head.insert("parallel_tool_calls".into(), parallel.into());
    }
    if let Some(format) = &sampling.response_format {
        head.insert("text".into(), json!({"format": Value::from(format.clone())}));
    }
    head
}

/// Whether the host can read a thought of its own again. It keeps none, so it needs what it sealed, or the plain text.
fn is_readable(item: &Projected<'_>) -> bool {
    let given = |key: &str| lenient::is_given(field(field(&item.json(), FIELDS), key));
    item.part != Part::Reasoning || given("encrypted_content") || given("content")
}

/// An item as this API has it: with its private fields in place, and without the error mark of an output.
fn own(item: &mut Map<String, Value>) {
    item.shift_remove(IS_ERROR);
    if let Some(Value::Object(fields)) = item.shift_remove(FIELDS) {
        item.extend(fields);
    }
}

fn tool(tool: &Tool) -> Value {
    json!({
        "type": "function", "name": tool.name, "description": tool.description, "parameters": schema(tool),
        "strict": tool.strict.unwrap_or(false),
    })
}
