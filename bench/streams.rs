//! Answers of providers as they come over the network, and transcripts as they are asked about.

use layby::provider::{ContextLine, ContextPart, Host, Provider};
use layby::session::Seq;
use serde_json::{Value, json};

/// Deltas of one answer.
pub const DELTAS: usize = 2000;
/// Characters of one delta.
const DELTA: usize = 20;
/// Bytes of one network chunk.
const PACKET: usize = 1400;
/// What is said, again and again.
pub const PROSE: &str =
    "The deploy took 41 s and passed.\nThen \"canary\" rose to 5 % — café.log has 3 warnings, none new. ";

/// A way to say it.
#[derive(Clone, Copy, Debug)]
pub enum Dialect {
    Responses,
    Chat,
    Anthropic,
    /// Anthropic's, and all of it thoughts.
    Thinking,
    WorkersAi,
}

impl Dialect {
    pub fn provider(self) -> Provider {
        let host = Host::at("https://model.test/v1");
        match self {
            Dialect::Responses => Provider::OpenAiResponses(host),
            Dialect::Chat => Provider::OpenAiChat(host),
            Dialect::Anthropic | Dialect::Thinking => Provider::Anthropic(host),
            Dialect::WorkersAi => Provider::WorkersAi(Default::default()),
        }
    }

    /// One answer, event by event.
    pub fn events(self) -> Vec<Vec<u8>> {
        let whole = json!(texts().collect::<String>());
        let (before, after) = match self {
            Dialect::Responses => (
                json!([{"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}]),
                json!([{"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": whole},
                    {"type": "response.output_item.done", "output_index": 0,
                        "item": {"type": "message", "content": [{"type": "output_text", "text": whole}]}},
                    {"type": "response.completed", "response": {"output": [
                        {"type": "message", "content": [{"type": "output_text", "text": whole}]}]}}]),
            ),
            Dialect::Chat => {
                (json!([]), json!([{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]))
            }
            Dialect::Anthropic | Dialect::Thinking => {
                let kind = if matches!(self, Dialect::Thinking) { "thinking" } else { "text" };
                (
                    json!([{"type": "content_block_start", "index": 0, "content_block": {"type": kind}}]),
                    json!([{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]),
                )
            }
            Dialect::WorkersAi => (json!([]), json!([])),
        };
        let around = |events: Value| events.as_array().cloned().unwrap_or_default();
        let deltas = texts().map(|text| self.delta(&text));
        let events = around(before).into_iter().chain(deltas).chain(around(after));
        let frame = |event: Value| match event.get("type").and_then(Value::as_str) {
            Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
            None => format!("data: {event}\n\n"),
        };
        events.map(frame).chain(["data: [DONE]\n\n".to_string()]).map(String::into_bytes).collect()
    }

    /// The same in chunks that know nothing of events.
    pub fn packets(self) -> Vec<Vec<u8>> {
        self.events().concat().chunks(PACKET).map(<[u8]>::to_vec).collect()
    }

    /// One delta, with all that the provider puts around it.
    fn delta(self, text: &str) -> Value {
        match self {
            Dialect::Responses => json!({"type": "response.output_text.delta", "sequence_number": 1234,
                "item_id": "msg_68af4030592c81938ec0a5fbab4a3e9f05438e46b5f69a3b", "output_index": 0,
                "content_index": 0, "delta": text, "logprobs": [], "obfuscation": "sZZM2lqk6P2"}),
            Dialect::Chat => {
                json!({"id": "chatcmpl-C9hTFGsVZ4ZeWvZ9xSLfZbLkmNbYB", "object": "chat.completion.chunk",
                "created": 1_756_315_657, "model": "gpt-4.1-mini", "service_tier": "default",
                "system_fingerprint": "fp_4fce0778af", "usage": null, "obfuscation": "tyqNRr",
                "choices": [{"index": 0, "delta": {"content": text}, "logprobs": null, "finish_reason": null}]})
            }
            Dialect::Anthropic => {
                let delta = json!({"type": "text_delta", "text": text});
                json!({"type": "content_block_delta", "index": 0, "delta": delta})
            }
            Dialect::Thinking => {
                let delta = json!({"type": "thinking_delta", "thinking": text});
                json!({"type": "content_block_delta", "index": 0, "delta": delta})
            }
            Dialect::WorkersAi => json!({"response": text, "p": "abdefghijklmnopqrst"}),
        }
    }
}

/// What one answer says, delta by delta.
pub fn texts() -> impl Iterator<Item = String> {
    let mut prose = PROSE.chars().cycle();
    (0..DELTAS).map(move |_| prose.by_ref().take(DELTA).collect())
}

/// A transcript: between what the user and the assistant say, a call and its output.
pub fn transcript(items: usize) -> Vec<ContextLine> {
    let message =
        |role, kind| json!({"type": "message", "role": role, "content": [{"type": kind, "text": PROSE}]});
    let line = |n: usize| {
        let id = format!("call_{}", n / 4);
        let (part, body) = match n % 4 {
            0 => (ContextPart::User, message("user", "input_text")),
            1 => {
                let arguments = "{\"path\":\"canary.log\"}";
                let call = json!({"type": "function_call", "call_id": id, "name": "read", "arguments": arguments});
                (ContextPart::Call, call)
            }
            2 => (ContextPart::Output, json!({"type": "function_call_output", "call_id": id, "output": PROSE})),
            _ => (ContextPart::Assistant, message("assistant", "output_text")),
        };
        ContextLine { place: Seq(0), part, origin: None, body: body.to_string() }
    };
    (0..items).map(line).collect()
}
