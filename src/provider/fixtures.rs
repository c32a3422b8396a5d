//! What the tests of all dialects share.

use serde_json::{Value, json};

use super::projection::{Line, Part};
use super::{Decoder, Host, Prompt, Sampling};
use crate::session::{Finish, ModelEvent, ModelFailure, PartKind, Seq, Tool, Usage};

/// An event stream of those events, without names.
pub fn frames(events: &[Value]) -> Vec<u8> {
    events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>().into_bytes()
}

/// Decodes an answer that comes in those chunks.
pub fn decode(mut decoder: impl Decoder, chunks: &[&[u8]]) -> Result<Vec<ModelEvent>, ModelFailure> {
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk, &mut events)?;
    }
    decoder.finish(&mut events)?;
    Ok(events)
}

/// Checks that any cut of the bytes gives the same events, and that an end before their own end is a truncation, wherever it
/// comes. Returns the events.
pub fn cut_anywhere<D: Decoder>(new: impl Fn() -> D, bytes: &[u8]) -> Vec<ModelEvent> {
    let whole = decode(new(), &[bytes]).unwrap();
    for at in 0..=bytes.len() {
        let (one, two) = bytes.split_at(at);
        assert_eq!(decode(new(), &[one, two]).unwrap(), whole, "cut at {at}");
    }
    let said = |events: &[ModelEvent]| -> Vec<ModelEvent> {
        events.iter().filter(|event| !matches!(event, ModelEvent::Finish { .. })).cloned().collect()
    };
    for end in 0..bytes.len() {
        match decode(new(), &[bytes.get(..end).unwrap_or_default()]) {
            // The output is complete; only the usage or a last mark is missing.
            Ok(events) => assert_eq!(said(&events), said(&whole), "ended at {end}"),
            Err(failed) => assert_eq!(failed.failure.code, "upstream_truncated", "ended at {end}"),
        }
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(new(), &single).unwrap(), whole);
    whole
}

pub fn text(kind: PartKind, text: &str) -> ModelEvent {
    ModelEvent::Text { kind, fresh: false, text: text.into() }
}

pub fn call(id: &str, name: &str) -> ModelEvent {
    ModelEvent::Call { provider_id: id.into(), name: name.into() }
}

pub fn close() -> ModelEvent {
    ModelEvent::Close { payload: None }
}

pub fn done(usage: Usage) -> ModelEvent {
    ModelEvent::Finish { reason: Finish::Done, usage }
}

pub fn limit(reason: &str) -> ModelEvent {
    ModelEvent::Finish { reason: Finish::Limit(reason.into()), usage: Usage::default() }
}

/// A transcript with everything in it: thoughts of two providers, text after a call, parallel calls, an interrupt.
pub fn transcript() -> Vec<Line> {
    let line = |part, body: Value| Line { place: Seq(0), part, origin: None, body: body.to_string() };
    let of = |origin: &str, line: Line| Line { origin: Some(origin.into()), ..line };
    let message = |role: &str, kind: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
    let call = |id: &str, fields: Value| {
        let mut call = json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{\"q\":1}"});
        if let (Some(call), Value::Object(fields)) = (call.as_object_mut(), fields) {
            call.extend(fields);
        }
        call
    };
    let output = |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
    let sealed = json!({"type": "reasoning", "summary": [], "id": "rs_1", "encrypted_content": "opaque"});
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "sig"});
    vec![
        line(Part::User, message("user", "input_text", "go")),
        of(
            "responses https://host",
            line(Part::Reasoning, json!({"type": "reasoning", "summary": [], "provider_fields": sealed})),
        ),
        of(
            "chat https://host",
            line(
                Part::Call,
                call("call.1", json!({"provider_fields": {"call": {"extra_content": {"sig": "AbC"}}}})),
            ),
        ),
        of(
            "anthropic https://host",
            line(Part::Reasoning, json!({"type": "reasoning", "summary": [], "provider_fields": thought})),
        ),
        line(Part::Call, call("call_2", json!({}))),
        line(Part::Assistant, message("assistant", "output_text", "Looking.")),
        line(Part::Output, output("call_2", "two")),
        line(Part::Output, output("call.1", "one")),
        line(Part::User, message("user", "input_text", "interrupted")),
        line(Part::User, message("user", "input_text", "again")),
    ]
}

/// A prompt over a transcript.
pub fn prompt<'a>(context: &'a [Line], sampling: &'a Sampling) -> Prompt<'a> {
    Prompt {
        model: "m",
        instructions: Some("Be brief."),
        tools: &[],
        context,
        sampling,
        withheld: &[],
        lessons: &[],
    }
}

/// A host with a key.
pub fn host() -> Host {
    Host { api_key: Some("key".into()), ..Host::at("https://host/v1/") }
}

/// A tool without arguments.
pub fn tool(name: &str) -> Tool {
    Tool { name: name.into(), description: None, parameters: None, strict: None, tool_timeout_s: Some(9) }
}
