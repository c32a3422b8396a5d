//! The answer: a stream of chunks, or one JSON object from a host that does not stream.
//!
//! Text comes out as it comes in. Calls come out when the answer is complete: hosts number them wrongly, name them late and
//! repeat their ids, so what belongs together is certain only then. One rule decides (`Calls::find`).

use serde_json::{Map, Value, json};

use crate::provider::stream::{Frame, Frames};
use crate::provider::{Decoder, FIELDS, failure, field};
use crate::session::{Finish, ModelEvent, ModelFailure, PartKind, Usage};

/// Decodes one answer.
pub struct Answer {
    frames: Frames,
    open: Option<PartKind>,
    calls: Calls,
    reason: Option<String>,
    usage: Usage,
    finished: bool,
}

impl Answer {
    /// A decoder for one answer.
    pub fn new() -> Self {
        Self {
            frames: Frames::new(),
            open: None,
            calls: Calls::default(),
            reason: None,
            usage: Usage::default(),
            finished: false,
        }
    }

    fn chunk(&mut self, chunk: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(failure::in_band(chunk));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| !usage.is_null()) {
            self.usage = usage_of(usage);
        }
        let bare = chunk.get("response").is_some() || chunk.get("tool_calls").is_some();
        let (choice, delta) = match field(chunk, "choices").get(0) {
            // A host that does not stream says `message` where others say `delta`.
            Some(choice) => {
                (choice, choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null))
            }
            // Older models of Workers AI say it without an envelope.
            None if bare => (chunk, chunk),
            None => return Ok(()),
        };
        let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        let thought =
            if text("reasoning_content").is_empty() { text("reasoning") } else { text("reasoning_content") };
        self.text(PartKind::Reasoning, thought, out);
        self.text(PartKind::Text, text("content"), out);
        self.text(PartKind::Text, text("response"), out);
        self.text(PartKind::Refusal, text("refusal"), out);
        for call in field(delta, "tool_calls").as_array().map(Vec::as_slice).unwrap_or_default() {
            self.calls.add(call);
        }
        if let Some(reason) = field(choice, "finish_reason").as_str() {
            self.reason = Some(reason.to_string());
        }
        Ok(())
    }

    fn text(&mut self, kind: PartKind, text: &str, out: &mut Vec<ModelEvent>) {
        if text.is_empty() {
            return;
        }
        let thinks = |kind| kind == PartKind::Reasoning;
        if self.open.is_none_or(|open| thinks(open) != thinks(kind)) {
            self.close(out);
            out.push(if thinks(kind) { ModelEvent::Reasoning } else { ModelEvent::Message });
        }
        self.open = Some(kind);
        out.push(ModelEvent::Text { kind, fresh: false, text: text.to_string() });
    }

    fn close(&mut self, out: &mut Vec<ModelEvent>) {
        if self.open.take().is_some() {
            out.push(ModelEvent::Close { payload: None });
        }
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        self.close(out);
        for call in std::mem::take(&mut self.calls.0) {
            let payload = if call.fields.is_empty() { None } else { Some(json!({FIELDS: {"chat": call.fields}})) };
            out.push(ModelEvent::Call { provider_id: call.id, name: call.name });
            out.push(ModelEvent::Text { kind: PartKind::Arguments, fresh: false, text: call.arguments });
            out.push(ModelEvent::Close { payload });
        }
        let reason = match self.reason.as_deref() {
            Some("length") => Finish::Limit("max_output_tokens".into()),
            Some("content_filter") => Finish::Limit("content_filter".into()),
            _ => Finish::Done,
        };
        out.push(ModelEvent::Finish { reason, usage: self.usage });
    }
}

impl Decoder for Answer {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<ModelEvent>, ModelFailure> {
        let mut out = Vec::new();
        for frame in self.frames.push(bytes)? {
            match frame {
                Frame::Json(chunk) if !self.finished => self.chunk(&chunk, &mut out)?,
                Frame::Json(_) => {}
                Frame::Done => self.end(&mut out),
            }
        }
        Ok(out)
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ModelFailure> {
        let mut out = Vec::new();
        if let Some(body) = self.frames.finish()? {
            // Workers AI has an envelope of its own for answers that do not stream.
            let body = body.get("result").filter(|result| result.is_object()).unwrap_or(&body);
            self.chunk(body, &mut out)?;
            if body.get("response").is_some() {
                self.end(&mut out);
            }
        }
        if self.reason.is_some() {
            self.end(&mut out);
        }
        if self.finished { Ok(out) } else { Err(failure::truncated()) }
    }
}

/// The calls of one answer, in the order in which they began.
#[derive(Default)]
struct Calls(Vec<Call>);

struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// What else the provider said of the call. It wants to see it again.
    fields: Map<String, Value>,
}

impl Calls {
    fn add(&mut self, delta: &Value) {
        let text =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
        let (index, id) = (field(delta, "index").as_u64(), text(delta, "id"));
        let function = delta.get("function").unwrap_or(delta);
        let name = text(function, "name");
        let Some(call) = self.find(index, &id, &name) else { return };
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name.is_empty() {
            call.name = name;
        }
        call.arguments.push_str(&match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(object @ Value::Object(_)) => object.to_string(),
            _ => String::new(),
        });
        for (key, value) in delta.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "index" | "id" | "type" | "function" | "name" | "arguments") {
                call.fields.insert(key.clone(), value.clone());
            }
        }
    }

    /// The call that a delta belongs to. A number or an id that is new begins a call; so does a name that comes again after
    /// whole arguments. What has neither goes to the last call.
    fn find(&mut self, index: Option<u64>, id: &str, name: &str) -> Option<&mut Call> {
        let same_id = |call: &Call| id.is_empty() || call.id.is_empty() || call.id == id;
        let at = match index {
            Some(_) => self.0.iter().rposition(|call| call.index == index),
            None if id.is_empty() => self.0.len().checked_sub(1),
            None => self.0.iter().rposition(|call| call.id == id),
        };
        let at = at.filter(|at| {
            self.0.get(*at).is_some_and(|call| {
                let again = !name.is_empty()
                    && !call.name.is_empty()
                    && serde_json::from_str::<Value>(&call.arguments).is_ok();
                same_id(call) && !again
            })
        });
        let at = at.unwrap_or_else(|| {
            let (id, name) = (String::new(), String::new());
            self.0.push(Call { index, id, name, arguments: String::new(), fields: Map::new() });
            self.0.len() - 1
        });
        self.0.get_mut(at)
    }
}

fn usage_of(usage: &Value) -> Usage {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let (input, output) = (count(field(usage, "prompt_tokens")), count(field(usage, "completion_tokens")));
    Usage {
        input_tokens: input,
        output_tokens: output,
        total_tokens: count(field(usage, "total_tokens")).max(input.saturating_add(output)),
        cached_tokens: count(field(field(usage, "prompt_tokens_details"), "cached_tokens")),
        reasoning_tokens: count(field(field(usage, "completion_tokens_details"), "reasoning_tokens")),
    }
}
