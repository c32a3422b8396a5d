//! Answers as the provider sends them, and requests as it takes them.

use serde_json::{Value, json};

use super::{Answer, encode};
use crate::provider::Sampling;
use crate::provider::fixtures::{
    call, close, cut_anywhere, decode, done, frames, limit, prompt, text, transcript,
};
use crate::session::{ModelEvent, PartKind, Usage};

fn start() -> Value {
    let usage = json!({"input_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1, "output_tokens": 1});
    json!({"type": "message_start", "message": {"content": [], "usage": usage}})
}

fn begin(block: Value) -> Value {
    json!({"type": "content_block_start", "index": 0, "content_block": block})
}

fn delta(delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": 0, "delta": delta})
}

fn stop() -> Value {
    json!({"type": "content_block_stop", "index": 0})
}

fn reason(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}})
}

fn end() -> Value {
    json!({"type": "message_stop"})
}

#[test]
fn thoughts_text_and_calls_come_out_wherever_the_bytes_are_cut() {
    let events = [
        start(),
        json!({"type": "ping"}),
        begin(json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(json!({"type": "thinking_delta", "thinking": "Hm."})),
        delta(json!({"type": "signature_delta", "signature": "sig"})),
        stop(),
        begin(json!({"type": "redacted_thinking", "data": "opaque"})),
        stop(),
        begin(json!({"type": "server_tool_use", "id": "s", "name": "web", "input": {}})),
        delta(json!({"type": "input_json_delta", "partial_json": "{}"})),
        stop(),
        begin(json!({"type": "text", "text": ""})),
        delta(json!({"type": "text_delta", "text": "北京"})),
        delta(json!({"type": "text_delta", "text": " ok"})),
        stop(),
        begin(json!({"type": "tool_use", "id": "a", "name": "look", "input": {}})),
        delta(json!({"type": "input_json_delta", "partial_json": ""})),
        delta(json!({"type": "input_json_delta", "partial_json": "{\"q\":"})),
        delta(json!({"type": "input_json_delta", "partial_json": "1}"})),
        stop(),
        begin(json!({"type": "tool_use", "id": "b", "name": "look", "input": {"q": 2}})),
        stop(),
        reason("tool_use"),
        end(),
    ];
    let thought =
        |thought: Value| ModelEvent::Close { payload: Some(json!({"provider_fields": {"anthropic": thought}})) };
    let want = [
        ModelEvent::Reasoning,
        text(PartKind::Reasoning, "Hm."),
        thought(json!({"type": "thinking", "thinking": "Hm.", "signature": "sig"})),
        ModelEvent::Reasoning,
        thought(json!({"type": "redacted_thinking", "data": "opaque"})),
        ModelEvent::Message,
        text(PartKind::Text, "北京"),
        text(PartKind::Text, " ok"),
        close(),
        call("a", "look"),
        text(PartKind::Arguments, "{\"q\":"),
        text(PartKind::Arguments, "1}"),
        close(),
        call("b", "look"),
        text(PartKind::Arguments, "{\"q\":2}"),
        close(),
        done(Usage { input_tokens: 9, output_tokens: 7, total_tokens: 16, cached_tokens: 5, reasoning_tokens: 0 }),
    ];
    assert_eq!(cut_anywhere(Answer::new, &frames(&events)), want);
}

#[test]
fn an_answer_without_its_end_is_truncated_unless_it_gave_a_reason() {
    let hi = [begin(json!({"type": "text", "text": "hi"})), stop()];
    let failed = decode(Answer::new(), &[&frames(&hi)]).unwrap_err();
    assert_eq!(failed.failure.code, "upstream_truncated");
    let events = decode(Answer::new(), &[&frames(&[&hi[..], &[reason("end_turn")]].concat())]).unwrap();
    assert!(matches!(events.last(), Some(ModelEvent::Finish { .. })));
}

#[test]
fn limits_are_no_success_and_errors_are_failures() {
    for (given, want) in [("max_tokens", "max_output_tokens"), ("refusal", "content_filter")] {
        let reason = json!({"type": "message_delta", "delta": {"stop_reason": given}});
        assert_eq!(decode(Answer::new(), &[&frames(&[reason, end()])]).unwrap(), [limit(want)]);
    }
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "Overloaded"}});
    for (kind, code, retryable) in [
        ("overloaded_error", "upstream_error", true),
        ("rate_limit_error", "rate_limit_exceeded", true),
        ("authentication_error", "upstream_auth", false),
    ] {
        let failed = decode(Answer::new(), &[&frames(&[start(), error(kind)])]).unwrap_err();
        assert_eq!((failed.failure.code.as_str(), failed.retryable), (code, retryable));
    }
}

#[test]
fn a_host_that_does_not_stream_is_understood() {
    let body = json!({"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "usage": {}});
    let events = decode(Answer::new(), &[body.to_string().as_bytes()]).unwrap();
    assert_eq!(events, [ModelEvent::Message, text(PartKind::Text, "hi"), close(), done(Usage::default())]);
}

#[test]
fn in_the_request_roles_alternate_and_results_lead() {
    let (context, sampling) = (transcript(), Sampling::default());
    let request = encode("https://host/v1", Some("key"), &prompt(&context, &sampling));
    assert_eq!(request.url, "https://host/v1/messages");
    assert!(request.headers.contains(&("x-api-key", "key".into())));
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!((body["system"].as_str(), body["max_tokens"].as_u64()), (Some("Be brief."), Some(8192)));
    let tool_use = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {"q": 1}});
    let result = |id: &str, text: &str| json!({"type": "tool_result", "tool_use_id": id, "content": text});
    let say = |text: &str| json!({"type": "text", "text": text});
    let want = json!([
        {"role": "user", "content": [say("go")]},
        {"role": "assistant", "content": [
            say("Looking."), tool_use("call_1"), {"type": "thinking", "thinking": "hm", "signature": "sig"}, tool_use("call_2"),
        ]},
        {"role": "user", "content": [result("call_2", "two"), result("call_1", "one"), say("interrupted"), say("again")]},
    ]);
    assert_eq!(body["messages"], want);
}
