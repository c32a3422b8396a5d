//! The response: a stream of events, or one JSON object from a host that does not stream.
//!
//! Items are emitted one after the other, however the provider interleaves them; text without deltas is emitted as
//! deltas; repetitions (a delta, the whole text, the item, the response) are emitted once.

use serde_json::Value;

use crate::json;
use crate::provider::dialect::Decoder;
use crate::provider::failure;
use crate::provider::stream::{Frame, Frames};
use crate::session::{Finish, ModelEvent, ModelFailure, PartKind, Usage};

/// The limit of buffered events of other items while one is open, in bytes of memory.
const HELD: usize = 16 * 1024 * 1024;

pub struct ResponseDecoder {
    frames: Frames,
    item: Option<OpenItem>,
    /// Events of other items, buffered until the open one is finished.
    held: Vec<Value>,
    /// The memory they take, in bytes.
    held_size: usize,
    /// `output_index` and id of every call so far: a host may announce or finish one again.
    calls: Vec<(Option<u64>, String)>,
    /// Output items started so far, ignored ones included.
    items: usize,
    finished: bool,
}

struct OpenItem {
    /// `output_index`; `None` if text arrived before its item was announced.
    index: Option<u64>,
    /// Text emitted so far, per part.
    parts: Vec<(PartKind, String)>,
    /// How many of them are summaries.
    summaries: usize,
    ignored: bool,
}

impl ResponseDecoder {
    /// A decoder for one answer.
    pub fn new() -> Self {
        Self {
            frames: Frames::new(),
            item: None,
            held: Vec::new(),
            held_size: 0,
            calls: Vec::new(),
            items: 0,
            finished: false,
        }
    }

    fn event(&mut self, event: Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        if self.finished {
            return Ok(());
        }
        let kind = text(&event, "type");
        match kind {
            "response.completed" | "response.incomplete" | "response.done" => return self.complete(&event, out),
            "response.failed" => return Err(failure::in_band(event.get("response").unwrap_or(&event))),
            "error" => return Err(failure::in_band(&event)),
            _ if kind.is_empty() && event.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(failure::in_band(&event));
            }
            _ => {}
        }
        let index = event.get("output_index").and_then(Value::as_u64);
        let open = self.item.as_ref().and_then(|item| item.index);
        if let (Some(index), Some(open)) = (index, open)
            && index != open
        {
            self.held_size += json::footprint(&event);
            self.held.push(event);
            return if self.held_size > HELD { Err(failure::too_much(HELD)) } else { Ok(()) };
        }
        self.item_event(&event, index, out);
        Ok(())
    }

    fn item_event(&mut self, event: &Value, index: Option<u64>, out: &mut Vec<ModelEvent>) {
        let item = event.get("item").unwrap_or(&Value::Null);
        let delta = text(event, "delta");
        match text(event, "type") {
            "response.output_item.added" => self.begin(item, index, out),
            "response.output_item.done" => {
                if self.item.as_ref().is_none_or(|open| open.index != index) {
                    self.begin(item, index, out);
                }
                self.end(item, out);
                self.release(out);
            }
            "response.output_text.delta" => {
                if self.item.is_none() {
                    self.begin(&serde_json::json!({"type": "message"}), None, out);
                }
                self.delta(event, PartKind::Text, delta, out);
            }
            "response.output_text.done" => self.rest(event, PartKind::Text, text(event, "text"), out),
            "response.refusal.delta" => self.delta(event, PartKind::Refusal, delta, out),
            "response.refusal.done" => self.rest(event, PartKind::Refusal, text(event, "refusal"), out),
            "response.function_call_arguments.delta" => self.delta(event, PartKind::Arguments, delta, out),
            "response.function_call_arguments.done" => {
                self.rest(event, PartKind::Arguments, text(event, "arguments"), out);
            }
            "response.reasoning_summary_text.delta" => self.delta(event, PartKind::Summary, delta, out),
            "response.reasoning_summary_text.done" => {
                self.rest(event, PartKind::Summary, text(event, "text"), out)
            }
            "response.reasoning_text.delta" => self.delta(event, PartKind::Reasoning, delta, out),
            "response.reasoning_text.done" => self.rest(event, PartKind::Reasoning, text(event, "text"), out),
            _ => {}
        }
    }

    fn begin(&mut self, item: &Value, index: Option<u64>, out: &mut Vec<ModelEvent>) {
        if let Some(open) = &mut self.item
            && open.index.is_none()
            && text(item, "type") == "message"
        {
            open.index = index; // the announcement of an item whose text came first
            return;
        }
        if text(item, "type") == "function_call" {
            let call = (index, text(item, "call_id").to_string());
            let again = !call.1.is_empty() && self.calls.contains(&call);
            if again && self.item.as_ref().is_some_and(|open| open.index == index) {
                return; // it is being written
            }
            if again {
                self.item = Some(OpenItem { index, parts: Vec::new(), summaries: 0, ignored: true });
                return;
            }
            self.calls.push(call);
        }
        let begun = match text(item, "type") {
            "message" => Some(ModelEvent::Message),
            "reasoning" => Some(ModelEvent::Reasoning),
            "function_call" => Some(ModelEvent::Call {
                provider_id: text(item, "call_id").to_string(),
                name: text(item, "name").to_string(),
            }),
            _ => None,
        };
        self.items += 1;
        self.item = Some(OpenItem { index, parts: Vec::new(), summaries: 0, ignored: begun.is_none() });
        out.extend(begun);
    }

    /// Emits what is left of a finished item, and finishes it.
    fn end(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        let list = |key: &str| item.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut payload = None;
        match text(item, "type") {
            "message" => {
                for (n, part) in list("content").iter().enumerate() {
                    match text(part, "type") {
                        "refusal" => self.rest_of(n, PartKind::Refusal, text(part, "refusal"), out),
                        _ => self.rest_of(n, PartKind::Text, text(part, "text"), out),
                    }
                }
            }
            "reasoning" => {
                for (n, part) in list("summary").iter().enumerate() {
                    self.rest_of(n, PartKind::Summary, text(part, "text"), out);
                }
                for (n, part) in list("content").iter().enumerate() {
                    self.rest_of(n, PartKind::Reasoning, text(part, "text"), out);
                }
                payload = Some(item.clone());
            }
            "function_call" => self.rest_of(0, PartKind::Arguments, text(item, "arguments"), out),
            _ => {}
        }
        if let Some(open) = self.item.take()
            && !open.ignored
        {
            out.push(ModelEvent::Close { payload });
        }
    }

    /// Replays the events that were buffered behind the open item.
    fn release(&mut self, out: &mut Vec<ModelEvent>) {
        let held = std::mem::take(&mut self.held);
        self.held_size = 0;
        for event in held {
            let index = event.get("output_index").and_then(Value::as_u64);
            match self.item.as_ref().and_then(|item| item.index) {
                Some(open) if index != Some(open) => {
                    self.held_size += json::footprint(&event);
                    self.held.push(event);
                }
                _ => self.item_event(&event, index, out),
            }
        }
    }

    fn delta(&mut self, event: &Value, kind: PartKind, delta: &str, out: &mut Vec<ModelEvent>) {
        let number = number(event, kind);
        if let Some(item) = self.item.as_mut().filter(|item| !item.ignored) {
            item.pass(number, kind, delta, out);
        }
    }

    fn rest(&mut self, event: &Value, kind: PartKind, whole: &str, out: &mut Vec<ModelEvent>) {
        self.rest_of(number(event, kind), kind, whole, out);
    }

    fn rest_of(&mut self, number: usize, kind: PartKind, whole: &str, out: &mut Vec<ModelEvent>) {
        if let Some(item) = self.item.as_mut().filter(|item| !item.ignored) {
            let passed = item.passed(number, kind);
            if let Some(rest) = whole.strip_prefix(passed.as_str()) {
                item.pass(number, kind, rest, out);
            }
        }
    }

    fn complete(&mut self, event: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let response = event.get("response").unwrap_or(event);
        if text(response, "status") == "failed" {
            return Err(failure::in_band(response));
        }
        let output = response.get("output").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        // The final response finishes items that had no finishing event of their own.
        while self.item.is_some() {
            self.end(output.get(self.items.saturating_sub(1)).unwrap_or(&Value::Null), out);
            self.release(out);
        }
        let streamed = std::mem::take(&mut self.calls);
        for (index, item) in (0..).zip(output).skip(self.items) {
            let id = text(item, "call_id");
            if id.is_empty() || streamed.iter().all(|(_, call)| call != id) {
                self.begin(item, Some(index), out);
                self.end(item, out);
            }
        }
        let limit = response.get("incomplete_details").and_then(|details| details.get("reason"));
        let reason = match (text(event, "type"), text(response, "status")) {
            ("response.incomplete", _) | (_, "incomplete") => {
                Finish::Limit(limit.and_then(Value::as_str).unwrap_or("max_output_tokens").to_string())
            }
            _ => Finish::Done,
        };
        out.push(ModelEvent::Finish { reason, usage: usage(response.get("usage").unwrap_or(&Value::Null)) });
        self.finished = true;
        Ok(())
    }
}

impl Decoder for ResponseDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<ModelEvent>, ModelFailure> {
        let mut out = Vec::new();
        for frame in self.frames.push(bytes)? {
            match frame {
                Frame::Done => {}
                Frame::Json(event) => self.event(event, &mut out)?,
            }
        }
        Ok(out)
    }

    /// The event that says why the model stopped is the last one.
    fn is_whole(&self) -> bool {
        false
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ModelFailure> {
        let mut out = Vec::new();
        if let Some(body) = self.frames.finish()? {
            self.complete(&body, &mut out)?;
        }
        if self.finished { Ok(out) } else { Err(failure::truncated()) }
    }
}

impl OpenItem {
    fn passed(&self, number: usize, kind: PartKind) -> String {
        let of_kind = self.parts.iter().filter(|(other, _)| same_count(*other, kind));
        of_kind.clone().nth(number).map(|(_, text)| text.clone()).unwrap_or_default()
    }

    fn pass(&mut self, number: usize, kind: PartKind, text: &str, out: &mut Vec<ModelEvent>) {
        let count = match kind {
            PartKind::Summary => self.summaries,
            PartKind::Text | PartKind::Refusal | PartKind::Arguments | PartKind::Reasoning => {
                self.parts.len().saturating_sub(self.summaries)
            }
        };
        if text.is_empty() || number.saturating_add(1) < count {
            return; // only the last part can grow
        }
        let fresh = number >= count;
        if fresh {
            self.parts.push((kind, String::new()));
            self.summaries += usize::from(kind == PartKind::Summary);
        }
        if let Some((_, passed)) = self.parts.last_mut() {
            passed.push_str(text);
        }
        out.push(ModelEvent::Text { kind, fresh, text: text.to_string() });
    }
}

/// Whether two kinds of text share a numbering.
fn same_count(one: PartKind, other: PartKind) -> bool {
    (one == PartKind::Summary) == (other == PartKind::Summary)
}

fn number(event: &Value, kind: PartKind) -> usize {
    let key = if kind == PartKind::Summary { "summary_index" } else { "content_index" };
    event.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn usage(usage: &Value) -> Usage {
    let count = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0);
    let detail = |group: &str, key: &str| usage.get(group).map_or(0, |group| count(group, key));
    let (input, output) = (count(usage, "input_tokens"), count(usage, "output_tokens"));
    Usage {
        input_tokens: input,
        output_tokens: output,
        total_tokens: count(usage, "total_tokens").max(input.saturating_add(output)),
        cached_tokens: detail("input_tokens_details", "cached_tokens"),
        reasoning_tokens: detail("output_tokens_details", "reasoning_tokens"),
    }
}
