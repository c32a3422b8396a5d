//! The response: blocks, each started, grown and stopped. A block is found by its index; what belongs to one that is not
//! the first open one waits until those before it are stopped, since the session takes items one after the other.

use serde_json::{Map, Value, json};

use crate::json::field;
use crate::provider::arguments::{Arguments, Grown};
use crate::provider::projection::FIELDS;
use crate::provider::stream::{Answer, Frame, Streamed};
use crate::provider::{failure, lenient, stop};
use crate::session::{Finish, MAX_ANSWER, ModelEvent, ModelFailure, PartKind, Usage};

/// The decoder of one response.
pub type ResponseDecoder = Streamed<MessageAnswer>;

/// One answer.
#[derive(Default)]
pub struct MessageAnswer {
    /// Blocks that are not finished, in the order they started. Only the first is passed on as it grows.
    blocks: Vec<Block>,
    /// The size of what waits, in bytes.
    waiting: usize,
    /// Index and id of every call so far: a host may announce one again.
    calls: Vec<(Option<u64>, String)>,
    reason: Option<String>,
    usage: Usage,
    finished: bool,
}

struct Block {
    index: Option<u64>,
    /// What starts it; `None` once that is passed on.
    opening: Option<ModelEvent>,
    /// The whole block, to be sent back; for thinking only.
    thought: Option<Value>,
    /// Fields of a call that its host wants back.
    fields: Map<String, Value>,
    /// The kind of text in its deltas.
    kind: PartKind,
    /// Input that came with the block's start, used if no delta follows.
    input: Option<String>,
    /// Text that waits.
    text: String,
    /// A call's arguments.
    arguments: Arguments,
    stopped: bool,
    /// The text that waits takes the place of what was passed on.
    rewritten: bool,
    /// A block that is not passed on.
    ignored: bool,
}

impl MessageAnswer {
    fn event(&mut self, event: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let index = lenient::count(field(event, "index"));
        match field(event, "type").as_str().unwrap_or_default() {
            "message_start" => self.count(field(field(event, "message"), "usage")),
            // The answer has ended.
            "content_block_start" | "content_block_delta" if self.reason.is_some() => {}
            "content_block_start" => self.begin(index, field(event, "content_block"), out),
            "content_block_delta" => self.delta(index, field(event, "delta"), out),
            "content_block_stop" => self.stop(index, out),
            "message_delta" => {
                self.count(field(event, "usage"));
                let reason = lenient::text(field(field(event, "delta"), "stop_reason"));
                stop::finish(&reason)?;
                if !reason.is_empty() {
                    self.reason = Some(reason.into_owned());
                }
            }
            "message_stop" => self.end(out),
            // A host that ignores that a stream was asked for.
            "message" => return self.whole(event, out),
            _ if failure::is_error(event) || failure::is_flat_error(event) => return Err(failure::in_band(event)),
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, index: Option<u64>, block: &Value, out: &mut Vec<ModelEvent>) {
        let text = |key: &str| lenient::text(field(block, key));
        let kind = field(block, "type").as_str().unwrap_or_default();
        let id = if kind == "tool_use" { text("id") } else { "".into() };
        let again = !id.is_empty() && self.calls.iter().any(|(at, call)| *at == index && *call == id);
        let open = self.blocks.iter().any(|block| block.index == index && !block.stopped && !block.ignored);
        if again && open {
            return; // it is being written
        }
        // Without its own end, a block ends where another takes its index, or where nothing is numbered.
        self.stop(index, out);
        let (opening, kind, given) = match kind {
            "text" => (Some(ModelEvent::Message), PartKind::Text, text("text")),
            "thinking" => (Some(ModelEvent::Reasoning), PartKind::Reasoning, text("thinking")),
            "redacted_thinking" => (Some(ModelEvent::Reasoning), PartKind::Reasoning, "".into()),
            "tool_use" if !again => {
                self.calls.push((index, id.to_string()));
                let call = ModelEvent::Call { provider_id: id.to_string(), name: text("name").into_owned() };
                (Some(call), PartKind::Arguments, "".into())
            }
            _ => (None, PartKind::Text, "".into()),
        };
        let thought = if opening == Some(ModelEvent::Reasoning) { Some(block.clone()) } else { None };
        let own = ["type", "id", "name", "input", "cache_control"];
        let mut fields = block.as_object().filter(|_| kind == PartKind::Arguments).cloned().unwrap_or_default();
        fields.retain(|key, value| !own.contains(&key.as_str()) && !value.is_null());
        let input = match field(block, "input") {
            Value::Object(input) if !input.is_empty() => Some(field(block, "input").to_string()),
            Value::String(input) if !input.trim().is_empty() => Some(input.clone()),
            _ => None,
        };
        self.blocks.push(Block {
            index,
            ignored: opening.is_none(),
            opening,
            thought,
            fields,
            kind,
            input,
            text: given.into_owned(),
            arguments: Arguments::default(),
            stopped: false,
            rewritten: false,
        });
        self.pass_on(out);
    }

    /// The block of an index: the last that started with it, or the last of all if the host does not number them.
    fn block(&mut self, index: Option<u64>) -> Option<&mut Block> {
        self.blocks.iter_mut().rev().find(|block| (index.is_none() || block.index == index) && !block.stopped)
    }

    fn delta(&mut self, index: Option<u64>, delta: &Value, out: &mut Vec<ModelEvent>) {
        let text = |key: &str| lenient::text(field(delta, key));
        let more = match field(delta, "type").as_str() {
            Some("text_delta") => text("text"),
            Some("input_json_delta") => match field(delta, "partial_json") {
                json @ Value::Object(_) => json.to_string().into(),
                _ => text("partial_json"),
            },
            Some("thinking_delta") => text("thinking"),
            Some("signature_delta") => "".into(),
            _ => return,
        };
        let Some(block) = self.block(index) else { return };
        match field(delta, "type").as_str() {
            Some("input_json_delta") if !more.is_empty() => block.input = None,
            Some("thinking_delta") => block.grow("thinking", &more),
            Some("signature_delta") => block.grow("signature", &text("signature")),
            _ => {}
        }
        // Above the session's limit there is more than enough to end the response.
        if !block.ignored && block.text.len() <= MAX_ANSWER {
            match block.kind {
                PartKind::Arguments => block.argue(&more),
                _ => block.text.push_str(&more),
            }
        }
        self.waiting = self.waiting.saturating_add(more.len());
        self.pass_on(out);
        if self.waiting > MAX_ANSWER {
            self.stop_all(out);
        }
    }

    fn stop(&mut self, index: Option<u64>, out: &mut Vec<ModelEvent>) {
        if let Some(block) = self.block(index) {
            block.stopped = true;
        }
        self.pass_on(out);
    }

    fn stop_all(&mut self, out: &mut Vec<ModelEvent>) {
        self.blocks.iter_mut().for_each(|block| block.stopped = true);
        self.pass_on(out);
    }

    /// Passes on what is known of the first block and, once that is stopped, of those after it.
    fn pass_on(&mut self, out: &mut Vec<ModelEvent>) {
        while let Some(block) = self.blocks.first_mut() {
            if !block.ignored {
                out.extend(block.opening.take());
                if block.stopped {
                    block.text.push_str(&block.input.take().unwrap_or_default());
                }
                let text = std::mem::take(&mut block.text);
                if std::mem::take(&mut block.rewritten) {
                    out.push(ModelEvent::Rewrite(text));
                } else if !text.is_empty() {
                    out.push(ModelEvent::Text { kind: block.kind, fresh: false, text });
                }
            }
            if !block.stopped {
                break;
            }
            let block = self.blocks.remove(0);
            if !block.ignored {
                out.push(ModelEvent::Close { payload: block.payload() });
            }
        }
        if self.blocks.len() < 2 {
            self.waiting = 0;
        }
    }

    /// Counts are running totals; this provider counts cached input separately.
    fn count(&mut self, usage: &Value) {
        let count = |key: &str| lenient::count(field(usage, key)).unwrap_or(0);
        let cached = count("cache_read_input_tokens");
        let input =
            count("input_tokens").saturating_add(cached).saturating_add(count("cache_creation_input_tokens"));
        self.usage.cached_tokens = self.usage.cached_tokens.max(cached);
        self.usage.input_tokens = self.usage.input_tokens.max(input);
        self.usage.output_tokens = self.usage.output_tokens.max(count("output_tokens"));
        self.usage.total_tokens = self.usage.input_tokens.saturating_add(self.usage.output_tokens);
    }

    /// The response of a host that does not stream.
    fn whole(&mut self, body: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        self.count(field(body, "usage"));
        for (index, block) in (0..).zip(lenient::list(field(body, "content"))) {
            self.begin(Some(index), block, out);
            self.stop(Some(index), out);
        }
        let reason = lenient::text(field(body, "stop_reason"));
        stop::finish(&reason)?;
        self.reason = Some(reason.into_owned());
        self.end(out);
        Ok(())
    }
}

impl Block {
    /// Appends to a call's arguments.
    fn argue(&mut self, more: &str) {
        match self.arguments.grow(more) {
            Grown::Not => {}
            Grown::By(text) => self.text.push_str(&text),
            Grown::Anew(text) => {
                self.text = text;
                self.rewritten = true;
            }
        }
    }

    /// Appends to a thinking block that must be sent back.
    fn grow(&mut self, key: &str, more: &str) {
        if let Some(thought) = self.thought.as_mut().and_then(Value::as_object_mut) {
            match thought.get_mut(key) {
                // Stop collecting above the session's limit; it ends the response when it sees the block.
                Some(Value::String(so_far)) if so_far.len() > MAX_ANSWER => {}
                Some(Value::String(so_far)) => so_far.push_str(more),
                _ => drop(thought.insert(key.to_string(), more.into())),
            }
        }
    }

    /// What its host wants back.
    fn payload(self) -> Option<Value> {
        match self.thought {
            Some(thought) => Some(json!({FIELDS: thought})),
            None if self.fields.is_empty() => None,
            None => Some(json!({FIELDS: self.fields})),
        }
    }
}

impl Answer for MessageAnswer {
    fn frame(&mut self, frame: Frame, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        match frame {
            Frame::Json(event) => self.event(&event, out),
            Frame::Done => Ok(()),
        }
    }

    fn body(&mut self, body: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        if !body.get("content").is_some_and(Value::is_array) {
            return Err(failure::no_answer(body));
        }
        self.whole(body, out)
    }

    fn is_whole(&self) -> bool {
        self.reason.is_some() && !self.finished
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        self.stop_all(out);
        let reason = stop::finish(self.reason.as_deref().unwrap_or_default()).unwrap_or(Finish::Done);
        out.push(ModelEvent::Finish { reason, usage: self.usage });
    }

    fn is_finished(&self) -> bool {
        self.finished
    }
}
