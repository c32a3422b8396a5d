//! Answers in the form in which providers send them, cut anywhere, and answers that are none.

use serde_json::{Value, json};

use super::{ResponseDecoder, encode};
use crate::provider::fixtures::{call, host, prompt, tool, transcript};
use crate::provider::{Decoder, Prompt, Sampling};
use crate::session::{Finish, ModelEvent, ModelFailure, PartKind, Usage};

fn frames(events: &[Value]) -> Vec<u8> {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(frame).collect::<String>().into_bytes()
}

fn decode(chunks: &[&[u8]]) -> Result<Vec<ModelEvent>, ModelFailure> {
    let mut decoder = ResponseDecoder::new();
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk, &mut events)?;
    }
    decoder.finish(&mut events)?;
    Ok(events)
}

fn text(kind: PartKind, fresh: bool, text: &str) -> ModelEvent {
    ModelEvent::Text { kind, fresh, text: text.into() }
}

fn done(usage: Usage) -> ModelEvent {
    ModelEvent::Finish { reason: Finish::Done, usage }
}

fn close() -> ModelEvent {
    ModelEvent::Close { payload: None }
}

/// Reasoning, a text in two deltas, two calls side by side.
fn rich() -> Vec<Value> {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "op🙂aque",
        "summary": [{"type": "summary_text", "text": "Think."}]});
    let item = |id: &str, args: &str, status: &str| json!({"id": format!("fc_{id}"), "type": "function_call", "call_id": id, "name": "look", "arguments": args, "status": status});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": "北京 ok", "annotations": []}]});
    vec![
        json!({"type": "response.created", "response": {"status": "in_progress"}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"id": "rs_1", "type": "reasoning", "summary": []}}),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "Think."}),
        json!({"type": "response.reasoning_summary_text.done", "output_index": 0, "summary_index": 0, "text": "Think."}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": {"id": "msg_1", "type": "message", "content": []}}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "北京"}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": " ok"}),
        json!({"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "北京 ok"}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": message}),
        json!({"type": "keepalive"}),
        json!({"type": "response.output_item.added", "output_index": 2, "item": item("a", "", "in_progress")}),
        json!({"type": "response.output_item.added", "output_index": 3, "item": item("b", "", "in_progress")}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 3, "delta": "{\"q\":2}"}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"q\":1}"}),
        json!({"type": "response.output_item.done", "output_index": 2, "item": item("a", "{\"q\":1}", "completed")}),
        json!({"type": "response.output_item.done", "output_index": 3, "item": item("b", "{\"q\":2}", "completed")}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": [1, 2, 3, 4],
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
                "input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 2}}}}),
    ]
}

fn rich_events() -> Vec<ModelEvent> {
    let payload = rich()[5]["item"].clone();
    let call = |id: &str| ModelEvent::Call { provider_id: id.into(), name: "look".into() };
    vec![
        ModelEvent::Reasoning,
        text(PartKind::Summary, true, "Think."),
        ModelEvent::Close { payload: Some(json!({"provider_fields": payload})) },
        ModelEvent::Message,
        text(PartKind::Text, true, "北京"),
        text(PartKind::Text, false, " ok"),
        close(),
        call("a"),
        text(PartKind::Arguments, false, "{\"q\":1}"),
        close(),
        call("b"),
        text(PartKind::Arguments, false, "{\"q\":2}"),
        close(),
        done(Usage {
            input_tokens: 10,
            output_tokens: 5,
            total_tokens: 15,
            cached_tokens: 4,
            reasoning_tokens: 2,
        }),
    ]
}

#[test]
fn a_call_that_is_sent_again_is_the_same_call() {
    let item = json!({"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"});
    let event = |kind: &str, index: u64| json!({"type": kind, "output_index": index, "item": item});
    let (added, done_) = (event("response.output_item.added", 0), event("response.output_item.done", 0));
    let end = |output: Value| json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
    let one = [call("a", "look"), text(PartKind::Arguments, false, "{}"), close()];
    let thought = json!({"type": "reasoning", "summary": []});
    for events in [
        vec![added.clone(), added.clone(), done_.clone(), end(json!([item]))],
        vec![added.clone(), done_.clone(), done_.clone(), end(json!([item]))],
        vec![added.clone(), done_.clone(), added.clone(), done_.clone(), end(json!([]))],
        vec![done_.clone(), end(json!([thought, item]))],
    ] {
        let got = decode(&[&frames(&events)]).unwrap();
        assert_eq!(got[..got.len() - 1], one, "{events:#?}");
    }
    let twice = [added, done_, event("response.output_item.done", 1), end(json!([item, item]))];
    let got = decode(&[&frames(&twice)]).unwrap();
    assert_eq!(got[..got.len() - 1], [one.clone(), one].concat(), "another index is another call");
}

#[test]
fn events_that_wait_for_another_item_do_not_fill_the_memory() {
    let open = json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}});
    let mut decoder = ResponseDecoder::new();
    decoder.push(&frames(&[open]), &mut Vec::new()).unwrap();
    let waits = json!({"type": "response.output_text.delta", "output_index": 1, "delta": "x".repeat(1 << 20)});
    let failed =
        (0..32).find_map(|_| decoder.push(&frames(std::slice::from_ref(&waits)), &mut Vec::new()).err()).unwrap();
    assert_eq!((failed.failure.code.as_str(), failed.retryable), ("upstream_error", false));
}

#[test]
fn items_come_out_one_after_the_other_however_they_were_interleaved() {
    assert_eq!(decode(&[&frames(&rich())]).unwrap(), rich_events());
}

#[test]
fn any_cut_of_the_bytes_gives_the_same_events() {
    let bytes = frames(&rich());
    for at in 0..=bytes.len() {
        let (one, two) = bytes.split_at(at);
        assert_eq!(decode(&[one, two]).unwrap(), rich_events(), "cut at {at}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(&single).unwrap(), rich_events());
}

#[test]
fn an_answer_that_ends_early_is_truncated_wherever_it_ends() {
    let bytes = frames(&rich());
    let last = bytes.len() - 2; // without the blank line that ends the last event
    for at in 0..=last {
        let failed = decode(&[&bytes[..at]]).unwrap_err();
        assert_eq!(failed.failure.code, "upstream_truncated", "cut at {at}");
    }
}

#[test]
fn text_without_deltas_comes_out_once_wherever_it_stands() {
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": "hi"}]});
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": message});
    let text_done =
        json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "hi"});
    let item_done = json!({"type": "response.output_item.done", "output_index": 0, "item": message});
    let end = json!({"type": "response.completed", "response": {"status": "completed", "output": [message]}});
    let whole = [added, text_done, item_done, end];
    let want = [ModelEvent::Message, text(PartKind::Text, true, "hi"), close(), done(Usage::default())];
    for kept in 0u8..8 {
        let events: Vec<Value> =
            (0..4).filter(|n| *n == 3 || kept & (1 << n) != 0).map(|n| whole[n].clone()).collect();
        assert_eq!(decode(&[&frames(&events)]).unwrap(), want, "{events:#?}");
    }
}

#[test]
fn deltas_that_come_before_their_item_belong_to_it() {
    let stream = "event: response.output_text.delta\ndata: {\"delta\":\"a \"}\n\nevent: response.output_text.delta\ndata: {\"delta\":\"b \"}\n\n";
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": "a b"}]});
    let rest = frames(&[
        json!({"type": "response.output_item.added", "output_index": 0, "item": message}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message}),
        json!({"type": "response.completed", "response": {"output": [message]}}),
    ]);
    let events = decode(&[stream.as_bytes(), &rest]).unwrap();
    let want = [
        ModelEvent::Message,
        text(PartKind::Text, true, "a "),
        text(PartKind::Text, false, "b "),
        ModelEvent::Rewrite("a b".into()),
        close(),
        done(Usage::default()),
    ];
    assert_eq!(events, want);
}

#[test]
fn a_host_that_does_not_stream_is_understood() {
    let body = json!({"status": "completed", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": ""},
    ]});
    let events = decode(&[body.to_string().as_bytes()]).unwrap();
    let call = ModelEvent::Call { provider_id: "c".into(), name: "look".into() };
    let want =
        [ModelEvent::Message, text(PartKind::Text, true, "hi"), close(), call, close(), done(Usage::default())];
    assert_eq!(events, want);
}

#[test]
fn errors_inside_an_answer_are_failures_with_their_code() {
    let quota = json!({"error": {"message": "quota exceeded", "code": "insufficient_quota"}}).to_string();
    let cases = [
        (quota.clone().into_bytes(), "rate_limit_exceeded", false),
        (format!("data: {quota}\n\n").into_bytes(), "rate_limit_exceeded", false),
        (frames(&[json!({"type": "error", "code": "server_error", "message": "x"})]), "upstream_error", true),
        (
            frames(&[
                json!({"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "x"}}}),
            ]),
            "context_length_exceeded",
            false,
        ),
        (b"data: {\"type\":\n\n".to_vec(), "upstream_error", true),
        (b"<html>".to_vec(), "upstream_error", true),
    ];
    for (body, code, retryable) in cases {
        let failed = decode(&[&body]).unwrap_err();
        assert_eq!(
            (failed.failure.code.as_str(), failed.retryable),
            (code, retryable),
            "{}",
            String::from_utf8_lossy(&body)
        );
    }
}

#[test]
fn a_limit_is_not_a_success() {
    let end = json!({"type": "response.incomplete", "response": {"status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"}, "output": []}});
    let events = decode(&[&frames(&[end])]).unwrap();
    let want = [ModelEvent::Finish { reason: Finish::Limit("max_output_tokens".into()), usage: Usage::default() }];
    assert_eq!(events, want);
}

#[test]
fn the_request_carries_the_bodies_as_they_were_stored_and_nothing_of_other_providers() {
    let (context, sampling) = (transcript(), Sampling::default());
    let request = encode(&host(), "responses https://host", &prompt(&context, &sampling));
    assert_eq!(request.url, "https://host/v1/responses");
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!((body["stream"].as_bool(), body["store"].as_bool()), (Some(true), Some(false)));
    let kinds: Vec<&str> =
        body["input"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    let want = [
        "message",
        "message",
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
        "message",
    ];
    assert_eq!(kinds, want);
    assert_eq!(body["input"][2]["encrypted_content"], "opaque");
    assert!(!request.body.contains("provider_fields"));
}

#[test]
fn settings_are_said_in_its_words() {
    let context = transcript();
    let sampling = serde_json::from_value(json!({"reasoning_effort": "low", "tool_choice": "required",
        "parallel_tool_calls": true, "max_output_tokens": 9,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}}));
    let (sampling, look) = (sampling.unwrap(), vec![tool("look")]);
    let prompt = Prompt { tools: &look, ..prompt(&context, &sampling) };
    let body: Value = serde_json::from_str(&encode(&host(), "responses https://host", &prompt).body).unwrap();
    assert_eq!(body["text"]["format"], json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}}));
    assert_eq!((&body["tool_choice"], &body["parallel_tool_calls"]), (&json!("required"), &json!(true)));
    assert_eq!((&body["reasoning"]["effort"], &body["max_output_tokens"]), (&json!("low"), &json!(9)));
    assert!(!body.to_string().contains("tool_timeout_s"));
}

#[test]
fn a_refusal_is_told_as_one() {
    let item = |content: Value| json!({"type": "message", "id": "msg_1", "role": "assistant", "content": content});
    let events = [
        json!({"type": "response.output_item.added", "output_index": 0, "item": item(json!([]))}),
        json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "I "}),
        json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "won't."}),
        json!({"type": "response.refusal.done", "output_index": 0, "content_index": 0, "refusal": "I won't."}),
        json!({"type": "response.output_item.done", "output_index": 0,
            "item": item(json!([{"type": "refusal", "refusal": "I won't."}]))}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
    ];
    let said: Vec<ModelEvent> = decode(&[&frames(&events)]).unwrap();
    assert_eq!(
        said,
        [
            ModelEvent::Message,
            text(PartKind::Refusal, true, "I "),
            text(PartKind::Refusal, false, "won't."),
            close(),
            done(Usage::default()),
        ]
    );
}

#[test]
fn the_finished_item_has_the_last_word_and_a_placeholder_none() {
    let item = |arguments: Value| json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "look", "arguments": arguments});
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": item("".into())});
    let delta =
        |text: &str| json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": text});
    let done = |arguments: Value| json!({"type": "response.output_item.done", "output_index": 0, "item": item(arguments)});
    let end = json!({"type": "response.completed", "response": {"status": "completed"}});
    let arguments = |events: &[Value]| {
        let mut text = String::new();
        for event in decode(&[&frames(events)]).unwrap() {
            match event {
                ModelEvent::Text { text: more, .. } => text.push_str(&more),
                ModelEvent::Rewrite(whole) => text = whole,
                _ => {}
            }
        }
        text
    };
    let right = "{\"q\":1}";
    for events in [
        vec![added.clone(), delta("{\"q\":"), delta("1}"), done(right.into()), end.clone()],
        vec![added.clone(), delta("{}"), delta("{\"q\":"), delta("1}"), done("".into()), end.clone()],
        vec![added.clone(), delta(right), delta(right), done(Value::Null), end.clone()],
        vec![added.clone(), delta("{\"q\":2}"), done(right.into()), end.clone()],
        vec![added.clone(), delta("{\"q"), done(json!({"q": 1})), end.clone()],
        vec![added, end.clone(), delta("late")][..1].iter().cloned().chain([done(right.into()), end]).collect(),
    ] {
        assert_eq!(arguments(&events), right, "{events:#?}");
    }
}

#[test]
fn a_thought_may_be_sealed_by_the_final_response_alone() {
    let bare = json!({"id": "rs_1", "type": "reasoning", "summary": []});
    let mut sealed = bare.clone();
    sealed["encrypted_content"] = "gAAA".into();
    let message = json!({"id": "m1", "type": "message", "content": [{"type": "output_text", "text": "one"}]});
    let events = [
        json!({"type": "response.output_item.added", "output_index": 0, "item": bare}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": bare}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": message}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": message}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": [sealed, message]}}),
    ];
    let got = decode(&[&frames(&events)]).unwrap();
    let payload = |thought: &Value| json!({"provider_fields": thought});
    assert_eq!(got[1], ModelEvent::CloseBefore { payload: Some(payload(&bare)) });
    assert!(got.contains(&ModelEvent::Payload { item: 0, payload: payload(&sealed) }), "{got:#?}");
}

#[test]
fn what_was_said_before_a_failure_is_kept_however_it_was_cut() {
    let events = [
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "so far"}),
        json!({"type": "error", "code": "429", "message": "Please try again in 2.3s"}),
    ];
    for cut in 0..frames(&events).len() {
        let bytes = frames(&events);
        let (one, two) = bytes.split_at(cut);
        let (mut decoder, mut out) = (ResponseDecoder::new(), Vec::new());
        let failed = decoder.push(one, &mut out).and_then(|()| decoder.push(two, &mut out)).unwrap_err();
        assert_eq!(out.last(), Some(&text(PartKind::Text, true, "so far")));
        assert_eq!((failed.failure.code.as_str(), failed.retry_after_seconds), ("rate_limit_exceeded", Some(3)));
    }
}
