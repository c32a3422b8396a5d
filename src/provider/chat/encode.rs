//! The request: the output of one model response becomes one assistant message, directly followed by its tool messages.

use serde_json::{Map, Value, json};

use super::decode::{DETAILS, THOUGHT};
use crate::json::{field, object};
use crate::provider::compat::{self, Compat};
use crate::provider::dialect::{Prompt, WireRequest, reasons};
use crate::provider::projection::{FIELDS, Part, project, schema};
use crate::provider::{Host, ResponseFormat, ToolChoice, lenient};
use crate::session::Tool;

/// Between a tool's message and a user's, where templates want the assistant's.
const BETWEEN: &str = "(no answer)";
/// Precedes a transcript that starts with the assistant: templates want the user first.
const BEFORE: &str = "(The conversation begins with your message.)";
/// Follows a transcript that ends with the assistant: some hosts continue it only for a user.
const AFTER: &str = "(Please continue.)";
/// The thought of a message without one, for hosts that require it.
const NO_THOUGHT: &str = "(no thought)";

/// The request for one prompt.
pub fn encode(host: &Host, home: &str, prompt: &Prompt<'_>) -> WireRequest {
    let compat = prompt.compat(&host.compat);
    let mut body = settings(prompt);
    compat.apply(&mut body);
    let learnable = compat::learnable(&body, compat::OPENAI, prompt.lessons);
    let messages = messages(prompt, home, &compat);
    let private = messages.iter().any(|message| message.get(THOUGHT).or(message.get(DETAILS)).is_some());
    body.insert("messages".into(), messages.into()); // `json!` would copy them
    let wire = host.post("chat/completions", host.bearer(), Value::from(body).to_string());
    WireRequest { learnable, private, ..wire }
}

/// The request but for its messages.
fn settings(prompt: &Prompt<'_>) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("model".into(), prompt.model.into());
    map.insert("stream".into(), true.into());
    map.insert("stream_options".into(), json!({"include_usage": true}));
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
    if let Some(choice) = prompt.tool_choice() {
        let choice = match choice {
            ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
            other => other.clone().into(),
        };
        map.insert("tool_choice".into(), choice);
    }
    if let Some(parallel) = prompt.parallel_tool_calls() {
        map.insert("parallel_tool_calls".into(), parallel.into());
    }
    if let Some(format) = &sampling.response_format {
        map.insert("response_format".into(), response_format(format));
    }
    map
}

/// Tools in the nested form.
pub fn tools(tools: &[Tool]) -> Value {
    let own = |tool: &Tool| Tool { tool_timeout_s: None, parameters: Some(schema(tool)), ..tool.clone() };
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
pub fn messages(prompt: &Prompt<'_>, home: &str, compat: &Compat) -> Vec<Value> {
    let mut messages = Messages::default();
    let (mut spoken, mut shown) =
        (Spoken { fills: compat.reasoning_content, ..Spoken::default() }, Attachments::default());
    for line in project(prompt.context, &prompt.view(home, compat)) {
        let body: &Value = &line.json();
        match line.part {
            Part::Assistant => {
                messages.extend(shown.take());
                spoken.text.push_str(&text_of(field(body, "content")));
            }
            Part::Call => {
                messages.extend(shown.take());
                spoken.call(body);
            }
            Part::Reasoning => spoken.think(body),
            Part::User => {
                messages.extend(spoken.take());
                messages.extend(shown.take());
                messages.add(object([("role", "user".into()), ("content", content(field(body, "content")))]));
            }
            Part::Output => {
                messages.extend(spoken.take());
                let (id, output) = (field(body, "call_id").clone(), shown.add(field(body, "output")));
                messages.add(object([("role", "tool".into()), ("tool_call_id", id), ("content", output.into())]));
            }
        }
    }
    messages.extend(spoken.take());
    messages.extend(shown.take());
    messages.finish(prompt.instructions)
}

/// Messages whose roles alternate: templates of open models, and some hosts, insist on it.
#[derive(Default)]
struct Messages(Vec<Value>);

impl Messages {
    fn add(&mut self, message: Value) {
        let role = field(&message, "role").clone();
        let last = self.0.last().map(|last| field(last, "role").clone()).unwrap_or_default();
        match (last.as_str(), role.as_str()) {
            (Some("user"), Some("user")) => {
                if let Some(last) = self.0.last_mut() {
                    join(last, &message);
                }
                return;
            }
            (Some("tool"), Some("user")) => self.0.push(said("assistant", BETWEEN)),
            (None, Some("assistant")) => self.0.push(said("user", BEFORE)),
            _ => {}
        }
        self.0.push(message);
    }

    fn extend(&mut self, message: Option<Value>) {
        if let Some(message) = message {
            self.add(message);
        }
    }

    fn finish(mut self, instructions: Option<&str>) -> Vec<Value> {
        if self.0.last().is_none_or(|last| field(last, "role") == "assistant") {
            self.0.push(said("user", AFTER));
        }
        if let Some(instructions) = instructions.filter(|text| !text.trim().is_empty()) {
            self.0.insert(0, said("system", instructions));
        }
        self.0
    }
}

fn said(role: &str, text: &str) -> Value {
    object([("role", role.into()), ("content", text.into())])
}

/// Appends the content of a user's message to another.
fn join(message: &mut Value, more: &Value) {
    let Some(content) = message.get_mut("content") else { return };
    let parts = |content: &Value| match content {
        Value::Array(parts) => parts.clone(),
        text => vec![json!({"type": "text", "text": text})],
    };
    *content = match (&*content, field(more, "content")) {
        (Value::String(one), Value::String(other)) => format!("{one}\n\n{other}").into(),
        (one, other) => [parts(one), parts(other)].concat().into(),
    };
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
            text.push_str(&format!("[attachment {}: in the next message of the user]", self.0.len()));
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
    /// Thoughts that the host wants back.
    thought: String,
    calls: Vec<Value>,
    /// Fields of the message that the host wants back.
    fields: Map<String, Value>,
    /// Whether a message with calls must have a thought.
    fills: bool,
}

impl Spoken {
    fn think(&mut self, body: &Value) {
        if field(field(body, FIELDS), THOUGHT) == true {
            self.thought.push_str(&text_of(field(body, "content")));
        }
    }

    /// A call, with the fields its host wants back.
    fn call(&mut self, body: &Value) {
        let mut call = json!({"id": field(body, "call_id"), "type": "function",
            "function": {"name": field(body, "name"), "arguments": field(body, "arguments")}});
        let fields = |key: &str| field(field(body, FIELDS), key).as_object().cloned().unwrap_or_default();
        if let Some(call) = call.as_object_mut() {
            call.extend(fields("call"));
        }
        self.fields.extend(fields("message"));
        self.calls.push(call);
    }

    /// The assistant message, if there is anything in it.
    fn take(&mut self) -> Option<Value> {
        let fills = self.fills;
        let Spoken { text, mut thought, calls, fields, .. } =
            std::mem::replace(self, Spoken { fills, ..Spoken::default() });
        let content = if text.is_empty() { Value::Null } else { text.into() };
        if content.is_null() && calls.is_empty() {
            return None;
        }
        let mut message = Map::from_iter([("role".into(), "assistant".into()), ("content".into(), content)]);
        if !calls.is_empty() {
            if fills && thought.trim().is_empty() {
                thought = NO_THOUGHT.into();
            }
            if !thought.is_empty() {
                message.insert(THOUGHT.into(), thought.into());
            }
            message.extend(fields);
            message.insert("tool_calls".into(), calls.into());
        }
        Some(message.into())
    }
}

/// A user's content: a plain string if it is only text, since some hosts accept nothing else.
fn content(parts: &Value) -> Value {
    let list = lenient::list(parts);
    if list.iter().all(|part| field(part, "type") == "input_text") {
        return text_of(parts).into();
    }
    list.iter().filter_map(part).collect()
}

fn part(part: &Value) -> Option<Value> {
    let name = || field(part, "filename").as_str().or(field(part, "file_id").as_str()).unwrap_or("without a name");
    match field(part, "type").as_str() {
        Some("input_image") => Some(match field(part, "image_url").as_str() {
            Some(url) => {
                let mut image = Map::from_iter([("url".into(), url.into())]);
                if let Some(detail) = part.get("detail").filter(|detail| detail.is_string()) {
                    image.insert("detail".into(), detail.clone());
                }
                json!({"type": "image_url", "image_url": image})
            }
            None => json!({"type": "text", "text": format!("[image {}: {UNSHOWN}]", name())}),
        }),
        Some("input_file") => Some(match field(part, "file_url").as_str() {
            Some(url) => json!({"type": "text", "text": format!("[file {} at {url}: {UNSHOWN}]", name())}),
            None => {
                let mut file = part.clone();
                if let Some(file) = file.as_object_mut() {
                    file.remove("type");
                }
                json!({"type": "file", "file": file})
            }
        }),
        _ => {
            let text = field(part, "text").as_str().filter(|text| !text.trim().is_empty())?;
            Some(json!({"type": "text", "text": text}))
        }
    }
}

/// What the model reads in place of an image or a file that this dialect has no form for. Messages to an agent of this
/// dialect are refused when they are posted; the agent may have had another one.
const UNSHOWN: &str = "this model's host cannot be shown it";

/// What this dialect has no form for: the number of the part, and why.
pub fn unfit(parts: &Value) -> Option<(usize, &'static str)> {
    lenient::list(parts).iter().enumerate().find_map(|(n, part)| {
        let given = |key: &str| field(part, key).is_string();
        match field(part, "type").as_str() {
            Some("input_image") if !given("image_url") => {
                Some((n, "this provider takes images by image_url only, not by file_id"))
            }
            Some("input_file") if given("file_url") => {
                Some((n, "this provider takes files by file_data or file_id, not by file_url"))
            }
            _ => None,
        }
    })
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
