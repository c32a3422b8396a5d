//! The response: a stream of chunks, or one JSON object from a host that does not stream.
//!
//! Text is passed on as it arrives. Calls are emitted when the response is complete: hosts number them wrongly, name
//! them late and repeat their ids, so what belongs together is certain only then (`calls`).

use serde_json::Value;

use super::calls::Calls;
use crate::json::field;
use crate::provider::dialect::Decoder;
use crate::provider::failure;
use crate::provider::stream::{Frame, Frames};
use crate::session::{Finish, MAX_ANSWER, ModelEvent, ModelFailure, PartKind, Usage};

pub struct ResponseDecoder {
    frames: Frames,
    open: Option<PartKind>,
    calls: Calls,
    reason: Option<String>,
    usage: Usage,
    finished: bool,
}

impl ResponseDecoder {
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
            // Without streaming, `message` takes the place of `delta`.
            Some(choice) => {
                (choice, choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null))
            }
            // Older models of Workers AI have no envelope.
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
        self.calls.add(field(delta, "tool_calls").as_array().map(Vec::as_slice).unwrap_or_default());
        if self.calls.size() > MAX_ANSWER {
            // Above the session's limit: emit the calls now, so that it ends the response.
            self.close(out);
            self.calls.take(out);
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
        self.calls.take(out);
        let reason = match self.reason.as_deref() {
            Some("length") => Finish::Limit("max_output_tokens".into()),
            Some("content_filter") => Finish::Limit("content_filter".into()),
            _ => Finish::Done,
        };
        out.push(ModelEvent::Finish { reason, usage: self.usage });
    }
}

impl Decoder for ResponseDecoder {
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

    fn is_whole(&self) -> bool {
        self.reason.is_some() && !self.finished
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ModelFailure> {
        let mut out = Vec::new();
        if let Some(body) = self.frames.finish()? {
            // Workers AI wraps responses that do not stream.
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
