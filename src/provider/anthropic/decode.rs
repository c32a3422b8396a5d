//! The response: blocks, each started, grown and stopped.

use serde_json::{Value, json};

use crate::json::field;
use crate::provider::dialect::{Decoder, FIELDS};
use crate::provider::failure;
use crate::provider::stream::{Frame, Frames};
use crate::session::{Finish, MAX_ANSWER, ModelEvent, ModelFailure, PartKind, Usage};

pub struct ResponseDecoder {
    frames: Frames,
    block: Option<Block>,
    /// Index and id of every call so far: a host may announce one again.
    calls: Vec<(Option<u64>, String)>,
    reason: Option<String>,
    usage: Usage,
    finished: bool,
}

/// The block being written.
struct Block {
    /// The whole block, to be sent back; for thinking only.
    thought: Option<Value>,
    /// The kind of text in its deltas.
    kind: PartKind,
    /// Input that came with the block's start, used if no delta follows.
    input: Option<String>,
}

impl ResponseDecoder {
    /// A decoder for one answer.
    pub fn new() -> Self {
        Self {
            frames: Frames::new(),
            block: None,
            calls: Vec::new(),
            reason: None,
            usage: Usage::default(),
            finished: false,
        }
    }

    fn event(&mut self, event: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        match field(event, "type").as_str().unwrap_or_default() {
            "message_start" => self.count(field(field(event, "message"), "usage")),
            "content_block_start" => {
                self.begin(field(event, "index").as_u64(), field(event, "content_block"), out);
            }
            "content_block_delta" => self.delta(field(event, "delta"), out),
            "content_block_stop" => self.stop(out),
            "message_delta" => {
                self.count(field(event, "usage"));
                if let Some(reason) = field(field(event, "delta"), "stop_reason").as_str() {
                    self.reason = Some(reason.to_string());
                }
            }
            "message_stop" => self.end(out),
            "error" => return Err(failure::in_band(event)),
            _ if event.get("error").is_some_and(|error| !error.is_null()) => return Err(failure::in_band(event)),
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, index: Option<u64>, block: &Value, out: &mut Vec<ModelEvent>) {
        let id = field(block, "id").as_str().filter(|_| field(block, "type") == "tool_use").unwrap_or_default();
        let again = self.calls.iter().position(|(at, call)| *at == index && call == id && !id.is_empty());
        if again.is_some_and(|again| self.block.is_some() && again + 1 == self.calls.len()) {
            return; // it is being written
        }
        self.stop(out);
        if again.is_some() {
            return; // deltas of an ignored block are ignored, too
        }
        let text = |key: &str| field(block, key).as_str().unwrap_or_default();
        let (opening, kind, given) = match field(block, "type").as_str() {
            Some("text") => (ModelEvent::Message, PartKind::Text, text("text")),
            Some("thinking") => (ModelEvent::Reasoning, PartKind::Reasoning, text("thinking")),
            Some("redacted_thinking") => (ModelEvent::Reasoning, PartKind::Reasoning, ""),
            Some("tool_use") => {
                let call =
                    ModelEvent::Call { provider_id: text("id").to_string(), name: text("name").to_string() };
                self.calls.push((index, id.to_string()));
                (call, PartKind::Arguments, "")
            }
            _ => return,
        };
        let thought = if opening == ModelEvent::Reasoning { Some(block.clone()) } else { None };
        let input = field(block, "input")
            .as_object()
            .filter(|input| !input.is_empty())
            .map(|_| field(block, "input").to_string());
        out.push(opening);
        self.block = Some(Block { thought, kind, input });
        self.text(given, out);
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<ModelEvent>) {
        let text = |key: &str| field(delta, key).as_str().unwrap_or_default();
        match field(delta, "type").as_str() {
            Some("text_delta") => self.text(text("text"), out),
            Some("input_json_delta") => {
                if let Some(block) = self.block.as_mut().filter(|_| !text("partial_json").is_empty()) {
                    block.input = None;
                }
                self.text(text("partial_json"), out);
            }
            Some("thinking_delta") => {
                self.grow("thinking", text("thinking"));
                self.text(text("thinking"), out);
            }
            Some("signature_delta") => self.grow("signature", text("signature")),
            _ => {}
        }
    }

    fn text(&self, text: &str, out: &mut Vec<ModelEvent>) {
        if let Some(block) = self.block.as_ref().filter(|_| !text.is_empty()) {
            out.push(ModelEvent::Text { kind: block.kind, fresh: false, text: text.to_string() });
        }
    }

    /// Appends to a thinking block that must be sent back.
    fn grow(&mut self, key: &str, more: &str) {
        let thought = self.block.as_mut().and_then(|block| block.thought.as_mut());
        if let Some(thought) = thought.and_then(Value::as_object_mut) {
            match thought.get_mut(key) {
                // Stop collecting above the session's limit; it ends the response when it sees the block.
                Some(Value::String(so_far)) if so_far.len() > MAX_ANSWER => {}
                Some(Value::String(so_far)) => so_far.push_str(more),
                _ => drop(thought.insert(key.to_string(), more.into())),
            }
        }
    }

    fn stop(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some(block) = &self.block {
            self.text(block.input.as_deref().unwrap_or_default(), out);
        }
        if let Some(block) = self.block.take() {
            let payload = block.thought.map(|thought| json!({FIELDS: {"anthropic": thought}}));
            out.push(ModelEvent::Close { payload });
        }
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        self.stop(out);
        let reason = match self.reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Finish::Limit("max_output_tokens".into()),
            Some("refusal") => Finish::Limit("content_filter".into()),
            _ => Finish::Done,
        };
        out.push(ModelEvent::Finish { reason, usage: self.usage });
    }

    /// Counts are running totals; this provider counts cached input separately.
    fn count(&mut self, usage: &Value) {
        let count = |key: &str| field(usage, key).as_u64();
        if let Some(input) = count("input_tokens") {
            let cached = count("cache_read_input_tokens").unwrap_or(0);
            let written = count("cache_creation_input_tokens").unwrap_or(0);
            self.usage.input_tokens = input.saturating_add(cached).saturating_add(written);
            self.usage.cached_tokens = cached;
        }
        self.usage.output_tokens = count("output_tokens").unwrap_or(self.usage.output_tokens);
        self.usage.total_tokens = self.usage.input_tokens.saturating_add(self.usage.output_tokens);
    }

    /// The response of a host that does not stream.
    fn whole(&mut self, body: &Value, out: &mut Vec<ModelEvent>) {
        self.count(field(body, "usage"));
        let blocks = field(body, "content").as_array().map(Vec::as_slice).unwrap_or_default();
        for (index, block) in (0..).zip(blocks) {
            self.begin(Some(index), block, out);
        }
        self.reason = field(body, "stop_reason").as_str().map(str::to_string);
    }
}

impl Decoder for ResponseDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<ModelEvent>, ModelFailure> {
        let mut out = Vec::new();
        for frame in self.frames.push(bytes)? {
            match frame {
                Frame::Json(event) if !self.finished => self.event(&event, &mut out)?,
                Frame::Json(_) | Frame::Done => {}
            }
        }
        Ok(out)
    }

    fn is_whole(&self) -> bool {
        self.reason.is_some() && !self.finished
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ModelFailure> {
        let mut out = Vec::new();
        if let Some(body) = self.frames.finish()? {
            self.whole(&body, &mut out);
        }
        if self.reason.is_some() {
            self.end(&mut out);
        }
        if self.finished { Ok(out) } else { Err(failure::truncated()) }
    }
}
