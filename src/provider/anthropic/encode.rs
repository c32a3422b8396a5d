//! The request: roles alternate, and the results of calls lead the user message that follows them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::json;
use crate::json::{field, object};
use crate::provider::compat::{self, Compat, Thinking};
use crate::provider::dialect::{Prompt, WireRequest};
use crate::provider::projection::{FIELDS, Part, project, schema};
use crate::provider::{Host, ResponseFormat, Sampling, ToolChoice, lenient};
use crate::session::IS_ERROR;

/// The API version this is written for.
const VERSION: &str = "2023-06-01";
/// The API requires a limit; the default of agents that set none.
const MAX_TOKENS: u32 = 8192;
/// Levels of effort, and the thinking budget in tokens for models that need a number.
const EFFORTS: [(&str, u32); 5] =
    [("low", 2048), ("medium", 8192), ("high", 16_384), ("xhigh", 24_576), ("max", 32_768)];
/// Precedes a transcript that starts with the assistant: the API requires the user first.
const BEFORE: &str = "(The conversation begins with your message.)";
/// Follows a transcript that ends with the assistant: newer models do not continue their own messages.
const AFTER: &str = "(Please continue.)";
/// The least budget for thinking, in tokens.
const MIN_BUDGET: u32 = 1024;

/// The request for one prompt.
pub fn encode(host: &Host, home: &str, prompt: &Prompt<'_>) -> WireRequest {
    let mut headers = vec![("anthropic-version", VERSION.to_string())];
    headers.extend(host.api_key.iter().map(|key| ("x-api-key", key.clone())));
    let compat = prompt.compat(&host.compat);
    let mut body = settings(prompt, &compat);
    compat.apply(&mut body);
    let learnable = compat::learnable(&body, compat::ANTHROPIC, prompt.lessons);
    let (messages, private) = messages(prompt, home, &compat);
    body.insert("messages".into(), messages.into()); // `json!` would copy them
    let wire = host.post("messages", headers, Value::from(body).to_string());
    WireRequest { learnable, private, ..wire }
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

/// The request but for its messages.
fn settings(prompt: &Prompt<'_>, compat: &Compat) -> Map<String, Value> {
    let sampling = prompt.sampling;
    let answer = sampling.max_output_tokens.unwrap_or(MAX_TOKENS);
    let mut map = Map::new();
    map.insert("model".into(), prompt.model.into());
    map.insert("stream".into(), true.into());
    map.insert("max_tokens".into(), answer.into());
    if let Some(instructions) = prompt.instructions.filter(|text| !text.trim().is_empty()) {
        map.insert("system".into(), instructions.into());
    }
    if !prompt.tools.is_empty() {
        let tool = |tool: &crate::session::Tool| match &tool.description {
            Some(text) => json!({"name": tool.name, "description": text, "input_schema": schema(tool)}),
            None => json!({"name": tool.name, "input_schema": schema(tool)}),
        };
        map.insert("tools".into(), prompt.tools.iter().map(tool).collect());
    }
    if let Some(temperature) = sampling.temperature {
        map.insert("temperature".into(), temperature.into());
    }
    if let Some(choice) = tool_choice(prompt) {
        map.insert("tool_choice".into(), choice);
    }
    let mut output = Map::new();
    if let Some(ResponseFormat::JsonSchema { schema, .. }) = &sampling.response_format {
        output.insert("format".into(), json!({"type": "json_schema", "schema": schema}));
    }
    let effort = sampling.reasoning_effort.as_deref();
    let effort = effort.and_then(|effort| EFFORTS.into_iter().find(|(name, _)| *name == effort));
    match effort.map(|effort| (effort, compat.thinking.unwrap_or_else(|| thinking(prompt.model)))) {
        Some(((_, budget), Thinking::Budget)) => {
            // Thoughts count as output.
            let most = answer.saturating_add(budget).min(max_output(prompt.model)).max(answer);
            let budget = budget.min(most.saturating_sub(answer)).max(MIN_BUDGET);
            let most = most.max(budget.saturating_add(1));
            map.insert("thinking".into(), json!({"type": "enabled", "budget_tokens": budget}));
            map.insert("max_tokens".into(), most.into());
        }
        Some(((effort, _), Thinking::Adaptive)) => {
            map.insert("thinking".into(), json!({"type": "adaptive"}));
            output.insert("effort".into(), effort.into());
        }
        Some((_, Thinking::Off)) | None => {}
    }
    if !output.is_empty() {
        map.insert("output_config".into(), output.into());
    }
    map
}

/// A model's version: 4.5 of `claude-opus-4-5-20251101`, of `anthropic/claude-sonnet-4.5`, of `claude-haiku-4-5@2025`;
/// `None` if its name does not tell.
fn version(model: &str) -> Option<(u32, u32)> {
    let model = model.to_ascii_lowercase();
    let (_, name) = model.split_once("claude")?;
    let mut words =
        name.split(|c: char| !c.is_ascii_alphanumeric()).skip_while(|word| word.parse::<u32>().is_err());
    // What is longer is a date.
    let mut number = || words.next().filter(|word| word.len() <= 2).and_then(|word| word.parse().ok());
    let major = number()?;
    Some((major, number().unwrap_or(0)))
}

/// Models up to 4.5 think by a token budget, later ones by effort.
fn thinking(model: &str) -> Thinking {
    if version(model).is_some_and(|version| version < (4, 6)) { Thinking::Budget } else { Thinking::Adaptive }
}

/// The most tokens of output that a model takes, thoughts included.
fn max_output(model: &str) -> u32 {
    match version(model) {
        Some((4, 0 | 1)) if model.to_ascii_lowercase().contains("opus") => 32_000,
        Some((..=4, _)) => 64_000,
        _ => u32::MAX,
    }
}

fn tool_choice(prompt: &Prompt<'_>) -> Option<Value> {
    let parallel = prompt.parallel_tool_calls();
    let mut choice = match prompt.tool_choice() {
        Some(ToolChoice::None) => return Some(json!({"type": "none"})),
        Some(ToolChoice::Required) => json!({"type": "any"}),
        Some(ToolChoice::Tool(name)) => json!({"type": "tool", "name": name}),
        Some(ToolChoice::Auto) => json!({"type": "auto"}),
        None if parallel.is_some() => json!({"type": "auto"}),
        None => return None,
    };
    if let (Some(choice), Some(parallel)) = (choice.as_object_mut(), parallel) {
        choice.insert("disable_parallel_tool_use".into(), (!parallel).into());
    }
    Some(choice)
}

/// The transcript as messages, and whether they have private matter of the host.
fn messages(prompt: &Prompt<'_>, home: &str, compat: &Compat) -> (Vec<Value>, bool) {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut private = false;
    for line in project(prompt.context, &prompt.view(home, compat)) {
        let body: &Value = &line.json();
        let fields = field(body, FIELDS);
        private |= fields.is_object();
        let (role, blocks) = match line.part {
            Part::User => ("user", content(field(body, "content"))),
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
                let mut call = json!({"type": "tool_use", "id": id, "name": field(body, "name"), "input": input});
                if let (Some(call), Some(fields)) = (call.as_object_mut(), fields.as_object()) {
                    call.extend(fields.clone());
                }
                ("assistant", vec![call])
            }
            // This provider accepts only thinking blocks it signed itself.
            Part::Reasoning => {
                ("assistant", Some(fields).filter(|block| block.is_object()).cloned().into_iter().collect())
            }
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
    if messages.last().is_none_or(|(role, _)| *role == "assistant") {
        messages.push(("user", vec![text(AFTER)]));
    }
    let message = |(role, content): (&str, Vec<_>)| object([("role", role.into()), ("content", content.into())]);
    (messages.into_iter().map(message).collect(), private)
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
    let given = |key: &str| field(part, key).as_str();
    let by_id = || given("file_id").map(|id| json!({"type": "file", "file_id": id}));
    match given("type") {
        Some("input_image") => {
            let source = given("image_url").and_then(image).or_else(by_id);
            Some(source.map_or_else(|| unshown(part), |source| json!({"type": "image", "source": source})))
        }
        Some("input_file") => Some(file(part).unwrap_or_else(|| unshown(part))),
        _ => {
            let said = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str)?;
            if said.trim().is_empty() { None } else { Some(text(said)) }
        }
    }
}

/// What the model reads in place of a file that this API has no form for. Messages to an agent of this dialect are
/// refused when they are posted; the agent may have had another one.
fn unshown(part: &Value) -> Value {
    let name = ["filename", "file_id", "file_url"].iter().find_map(|key| field(part, key).as_str());
    text(&format!("[file {}: this model's host cannot be shown it]", name.unwrap_or("without a name")))
}

/// The media type and the data of a data URL of base64.
fn data_url(url: &str) -> Option<(&str, &str)> {
    let rest = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).and_then(|_| url.get(5..))?;
    let (kind, data) = rest.split_once(',')?;
    let kind = kind.strip_suffix(";base64")?;
    Some((kind.split(';').next().unwrap_or_default(), data))
}

/// The source of an image: a data URL, or an address.
fn image(url: &str) -> Option<Value> {
    match data_url(url) {
        Some((media_type, data)) => Some(json!({"type": "base64", "media_type": media_type, "data": data})),
        None if url.starts_with("data:") => None,
        None => Some(json!({"type": "url", "url": url})),
    }
}

/// A file as a block: a PDF, plain text, an image, or what an address or an id names.
fn file(part: &Value) -> Option<Value> {
    let given = |key: &str| field(part, key).as_str();
    let document = |source: Value| json!({"type": "document", "source": source});
    let Some(data) = given("file_data") else {
        let url = given("file_url").map(|url| json!({"type": "url", "url": url}));
        return url.or_else(|| given("file_id").map(|id| json!({"type": "file", "file_id": id}))).map(document);
    };
    let name = given("filename").unwrap_or_default().to_ascii_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let by_name = if ends(&[".txt", ".md", ".csv", ".json", ".xml", ".html", ".yaml", ".yml", ".log"]) {
        "text/plain"
    } else {
        "application/pdf"
    };
    let (kind, data) = data_url(data).unwrap_or((by_name, data));
    let is_text = kind.starts_with("text/") || matches!(kind, "application/json" | "application/xml");
    if kind.starts_with("image/") {
        return Some(json!({"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}));
    }
    if is_text {
        let text = STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
        let source = json!({"type": "text", "media_type": "text/plain", "data": text});
        return if text.trim().is_empty() { None } else { Some(document(source)) };
    }
    let source = json!({"type": "base64", "media_type": kind, "data": data});
    (kind == "application/pdf").then(|| document(source))
}

/// What this API has no form for: the number of the part, and why.
pub fn unfit(parts: &Value) -> Option<(usize, &'static str)> {
    lenient::list(parts).iter().enumerate().find_map(|(n, part)| match field(part, "type").as_str() {
        Some("input_file") if file(part).is_none() => {
            Some((n, "this provider takes PDFs, plain text in UTF-8 and images as files"))
        }
        Some("input_image") if field(part, "image_url").as_str().is_some_and(|url| image(url).is_none()) => {
            Some((n, "this provider takes data URLs in base64 only"))
        }
        _ => None,
    })
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
