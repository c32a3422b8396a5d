//! The response: a stream of chunks, or one JSON object from a host that does not stream.
//!
//! Text is passed on as it arrives. Calls are emitted when the response is complete: hosts number them wrongly, name
//! them late and repeat their ids, so what belongs together is certain only then (`calls`). Thoughts that follow the text
//! are emitted then, too: some hosts change between the two with every word.

use serde_json::{Map, Value, json};

use super::calls::Calls;
use crate::json::field;
use crate::provider::projection::FIELDS;
use crate::provider::stream::{Answer, Frame, Streamed};
use crate::provider::{failure, lenient, stop};
use crate::session::{Finish, MAX_ANSWER, ModelEvent, ModelFailure, PartKind, Usage};

/// The key of a thought that its host wants back, and its name in the payload of a reasoning item.
pub(super) const THOUGHT: &str = "reasoning_content";
/// The key of thoughts in parts that their host wants back.
pub(super) const DETAILS: &str = "reasoning_details";

/// The decoder of one response.
pub type ResponseDecoder = Streamed<ChatAnswer>;

/// One answer.
#[derive(Default)]
pub struct ChatAnswer {
    open: Option<PartKind>,
    /// A text has begun: what is thought from now on waits for the end.
    spoken: bool,
    /// Thoughts that wait.
    late: String,
    /// Whether thoughts came under the key `THOUGHT`.
    wants_thoughts: bool,
    details: Vec<Value>,
    /// The size of the details, in bytes.
    details_size: usize,
    calls: Calls,
    reason: Option<String>,
    usage: Usage,
    /// A part of an answer has come.
    begun: bool,
    /// The reason to stop has come by itself: what is said after it is not part of the answer. Some hosts send a reason
    /// with every text.
    ended: bool,
    finished: bool,
}

impl ChatAnswer {
    fn chunk(&mut self, chunk: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let choices = lenient::list(field(chunk, "choices"));
        let choice =
            choices.iter().find(|choice| matches!(lenient::count(field(choice, "index")), None | Some(0)));
        let bare = chunk.get("response").is_some() || chunk.get("tool_calls").is_some();
        let (choice, delta) = match choice {
            // Without streaming, `message` takes the place of `delta`.
            Some(choice) => {
                let parts = [field(choice, "delta"), field(choice, "message"), choice];
                (choice, parts.into_iter().find(|part| part.is_object()).unwrap_or(choice))
            }
            // Older models of Workers AI have no envelope.
            None if bare => (chunk, chunk),
            None => (&Value::Null, &Value::Null),
        };
        let said = out.len();
        self.content(delta, out);
        let said = out.len() > said;
        let reason = lenient::text(field(choice, "finish_reason"));
        if lenient::is_given(field(choice, "error")) {
            return Err(failure::in_band(choice));
        }
        if failure::is_error(chunk) || (choice.is_null() && failure::is_flat_error(chunk)) {
            return Err(failure::in_band(chunk));
        }
        if let Err(stopped) = stop::finish(&reason) {
            let native = lenient::text(field(choice, "native_finish_reason"));
            return Err(if native.is_empty() { stopped } else { failure::stopped(&native) });
        }
        self.begun |= !choice.is_null();
        self.count(field(chunk, "usage"));
        self.count(field(choice, "usage"));
        self.count(field(field(chunk, "x_groq"), "usage"));
        if !reason.is_empty() {
            self.ended |= !said;
            self.reason = Some(reason.into_owned());
        }
        Ok(())
    }

    fn content(&mut self, delta: &Value, out: &mut Vec<ModelEvent>) {
        let thought = lenient::text(field(delta, THOUGHT));
        self.wants_thoughts |= !thought.is_empty();
        let thought = if thought.is_empty() { lenient::text(field(delta, "reasoning")) } else { thought };
        self.text(PartKind::Reasoning, &thought, out);
        match field(delta, "content") {
            Value::Array(parts) => parts.iter().for_each(|part| self.part(part, out)),
            content => self.text(PartKind::Text, &lenient::text(content), out),
        }
        self.text(PartKind::Text, &lenient::text(field(delta, "response")), out);
        self.text(PartKind::Refusal, &lenient::text(field(delta, "refusal")), out);
        lenient::list(field(delta, DETAILS)).iter().for_each(|detail| self.detail(detail));
        self.calls.add(lenient::list(field(delta, "tool_calls")));
        if let function @ Value::Object(_) = field(delta, "function_call") {
            self.calls.add(&[json!({"index": 0, "function": function})]);
        }
        if self.calls.size() > MAX_ANSWER {
            // Above the session's limit: emit the calls now, so that it ends the response.
            self.close(out);
            self.calls.take(Map::new(), out);
        }
    }

    /// A part of content in parts: text, or a thought.
    fn part(&mut self, part: &Value, out: &mut Vec<ModelEvent>) {
        match field(part, "type").as_str() {
            Some("thinking" | "reasoning") => {
                let thought = [field(part, "thinking"), field(part, "reasoning"), field(part, "text")];
                let thought = thought.into_iter().find(|thought| lenient::is_given(thought));
                self.text(PartKind::Reasoning, &lenient::text(thought.unwrap_or(&Value::Null)), out);
            }
            _ => self.text(PartKind::Text, &lenient::text(part), out),
        }
    }

    fn text(&mut self, kind: PartKind, text: &str, out: &mut Vec<ModelEvent>) {
        if text.is_empty() || self.ended {
            return;
        }
        let thinks = kind == PartKind::Reasoning;
        if thinks && self.spoken {
            // Above the session's limit there is more than enough to end the response.
            if self.late.len() <= MAX_ANSWER {
                self.late.push_str(text);
            }
            return;
        }
        if self.open.is_none_or(|open| (open == PartKind::Reasoning) != thinks) {
            self.close(out);
            out.push(if thinks { ModelEvent::Reasoning } else { ModelEvent::Message });
        }
        self.spoken |= !thinks;
        self.open = Some(kind);
        out.push(ModelEvent::Text { kind, fresh: false, text: text.to_string() });
    }

    fn close(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some(kind) = self.open.take() {
            let thought = kind == PartKind::Reasoning && self.wants_thoughts;
            out.push(ModelEvent::Close { payload: thought.then(|| json!({FIELDS: {THOUGHT: true}})) });
        }
    }

    /// Details come whole, or in deltas: then they have the same type and index, and their texts are pieces.
    fn detail(&mut self, detail: &Value) {
        self.details_size = self.details_size.saturating_add(detail.to_string().len());
        if self.details_size > MAX_ANSWER {
            return;
        }
        let same = |last: &&mut Value| {
            ["type", "index"].iter().all(|key| field(last, key) == field(detail, key))
                && last.get("index").is_some()
        };
        match self.details.last_mut().filter(same).and_then(Value::as_object_mut) {
            Some(last) => {
                for (key, value) in detail.as_object().into_iter().flatten() {
                    match (last.get_mut(key), value) {
                        (Some(Value::String(text)), Value::String(more)) if PIECES.contains(&key.as_str()) => {
                            text.push_str(more);
                        }
                        (_, Value::Null) => {}
                        _ => drop(last.insert(key.clone(), value.clone())),
                    }
                }
            }
            None => self.details.push(detail.clone()),
        }
    }

    /// Counts are running totals, and come in any of several chunks.
    fn count(&mut self, usage: &Value) {
        let count = |value: &Value| lenient::count(value).unwrap_or(0);
        let input = count(field(usage, "prompt_tokens")).max(count(field(usage, "input_tokens")));
        let output = count(field(usage, "completion_tokens")).max(count(field(usage, "output_tokens")));
        let cached = count(field(field(usage, "prompt_tokens_details"), "cached_tokens"))
            .max(count(field(usage, "prompt_cache_hit_tokens")));
        let thought = count(field(field(usage, "completion_tokens_details"), "reasoning_tokens"));
        let had = self.usage;
        self.usage = Usage {
            input_tokens: had.input_tokens.max(input),
            output_tokens: had.output_tokens.max(output),
            total_tokens: had
                .total_tokens
                .max(count(field(usage, "total_tokens")))
                .max(input.saturating_add(output)),
            cached_tokens: had.cached_tokens.max(cached),
            reasoning_tokens: had.reasoning_tokens.max(thought),
        };
    }
}

/// The keys of a detail whose texts come in pieces.
const PIECES: [&str; 4] = ["text", "summary", "data", "signature"];
impl Answer for ChatAnswer {
    fn frame(&mut self, frame: Frame, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        match frame {
            Frame::Json(chunk) => self.chunk(&chunk, out),
            Frame::Done if self.begun => {
                self.end(out);
                Ok(())
            }
            Frame::Done => Err(failure::truncated()),
        }
    }

    fn body(&mut self, body: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        // Workers AI wraps responses that do not stream.
        let body = body.get("result").filter(|result| result.is_object()).unwrap_or(body);
        if lenient::list(field(body, "choices")).is_empty()
            && body.get("response").is_none()
            && body.get("tool_calls").is_none()
        {
            return Err(failure::no_answer(body));
        }
        self.chunk(body, out)?;
        self.end(out);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.reason.is_some() && !self.finished
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        self.close(out);
        let late = std::mem::take(&mut self.late);
        (self.spoken, self.ended) = (false, false);
        self.text(PartKind::Reasoning, &late, out);
        self.close(out);
        let mut message = Map::new();
        if !self.details.is_empty() {
            message.insert(DETAILS.into(), std::mem::take(&mut self.details).into());
        }
        self.calls.take(message, out);
        let reason = stop::finish(self.reason.as_deref().unwrap_or_default()).unwrap_or(Finish::Done);
        out.push(ModelEvent::Finish { reason, usage: self.usage });
    }

    fn is_finished(&self) -> bool {
        self.finished
    }
}
