//! Answers as the provider sends them, and requests as it takes them.

use serde_json::{Value, json};

use super::{ResponseDecoder, encode, refuses};
use crate::provider::fixtures::{
    call, close, cut_anywhere, decode, done, frames, host, limit, prompt, text, tool, transcript,
};
use crate::provider::projection::{Line, Part};
use crate::provider::{Prompt, Sampling};
use crate::session::{ModelEvent, PartKind, Seq, Usage, plain_id};

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
fn a_files_data_is_never_an_address() {
    let source = |data: &str| {
        let part = json!({"type": "input_file", "file_data": data});
        let context =
            [Line { place: Seq(0), origin: None, part: Part::User, body: json!({"content": [part]}).to_string() }];
        let sampling = Sampling::default();
        let body: Value =
            serde_json::from_str(&encode(&host(), "anthropic https://host", &prompt(&context, &sampling)).body)
                .unwrap();
        body["messages"][0]["content"][0]["source"].clone()
    };
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "AAAA"});
    assert_eq!(source("data:application/pdf;base64,AAAA"), pdf);
    assert_eq!(source("AAAA"), pdf);
    assert_eq!(source("https://a.example.com/")["type"], "base64");
}

#[test]
fn arguments_that_would_take_too_much_memory_are_not_parsed() {
    let arguments = format!("{{\"a\":[{}]}}", vec!["{}"; crate::json::MAX_OBJECTS].join(","));
    let call = json!({"call_id": "a", "name": "look", "arguments": arguments});
    let context = [Line { place: Seq(0), origin: None, part: Part::Call, body: call.to_string() }];
    let sampling = Sampling::default();
    let body: Value =
        serde_json::from_str(&encode(&host(), "anthropic https://host", &prompt(&context, &sampling)).body)
            .unwrap();
    let input = body["messages"][1]["content"][0]["input"].as_object().unwrap();
    assert!(input.len() == 1 && input["malformed_arguments"].is_string());
}

#[test]
fn a_call_that_is_announced_again_is_the_same_call() {
    let start = |index: u64, id: &str| {
        json!({"type": "content_block_start", "index": index,
        "content_block": {"type": "tool_use", "id": id, "name": "look", "input": {}}})
    };
    let delta = |index: u64| {
        json!({"type": "content_block_delta", "index": index,
        "delta": {"type": "input_json_delta", "partial_json": "{}"}})
    };
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let end =
        [json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}), json!({"type": "message_stop"})];
    let one = [call("a", "look"), text(PartKind::Arguments, "{}"), close()];
    let events = |events: &[Value]| {
        let mut events = decode(ResponseDecoder::new(), &[&frames(&[events, &end].concat())]).unwrap();
        events.pop();
        events
    };
    assert_eq!(events(&[start(0, "a"), start(0, "a"), delta(0), stop(0)]), one);
    assert_eq!(events(&[start(0, "a"), delta(0), stop(0), start(0, "a"), delta(0), stop(0)]), one);
    let two = [start(0, "a"), delta(0), stop(0), start(1, "a"), delta(1), stop(1)];
    assert_eq!(events(&two), [one.clone(), one].concat(), "another index is another call");
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
    let thought = |thought: Value| ModelEvent::Close { payload: Some(json!({"provider_fields": thought})) };
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
    assert_eq!(cut_anywhere(ResponseDecoder::new, &frames(&events)), want);
}

#[test]
fn an_answer_without_its_end_is_truncated_unless_it_gave_a_reason() {
    let hi = [begin(json!({"type": "text", "text": "hi"})), stop()];
    let failed = decode(ResponseDecoder::new(), &[&frames(&hi)]).unwrap_err();
    assert_eq!(failed.failure.code, "upstream_truncated");
    let events = decode(ResponseDecoder::new(), &[&frames(&[&hi[..], &[reason("end_turn")]].concat())]).unwrap();
    assert!(matches!(events.last(), Some(ModelEvent::Finish { .. })));
}

#[test]
fn limits_are_no_success_and_errors_are_failures() {
    for (given, want) in [("max_tokens", "max_output_tokens"), ("refusal", "content_filter")] {
        let reason = json!({"type": "message_delta", "delta": {"stop_reason": given}});
        assert_eq!(decode(ResponseDecoder::new(), &[&frames(&[reason, end()])]).unwrap(), [limit(want)]);
    }
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "Overloaded"}});
    for (kind, code, retryable) in [
        ("overloaded_error", "upstream_error", true),
        ("rate_limit_error", "rate_limit_exceeded", true),
        ("authentication_error", "upstream_auth", false),
    ] {
        let failed = decode(ResponseDecoder::new(), &[&frames(&[start(), error(kind)])]).unwrap_err();
        assert_eq!((failed.failure.code.as_str(), failed.retryable), (code, retryable));
    }
}

#[test]
fn a_host_that_does_not_stream_is_understood() {
    let body = json!({"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "usage": {}});
    let events = decode(ResponseDecoder::new(), &[body.to_string().as_bytes()]).unwrap();
    assert_eq!(events, [ModelEvent::Message, text(PartKind::Text, "hi"), close(), done(Usage::default())]);
}

#[test]
fn in_the_request_roles_alternate_and_results_lead() {
    let (context, sampling) = (transcript(), Sampling::default());
    let request = encode(&host(), "anthropic https://host", &prompt(&context, &sampling));
    assert_eq!(request.url, "https://host/v1/messages");
    assert!(request.headers.contains(&("x-api-key".into(), "key".into())));
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!((body["system"].as_str(), body["max_tokens"].as_u64()), (Some("Be brief."), Some(8192)));
    let tool_use = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {"q": 1}});
    let result = |id: &str, text: &str| json!({"type": "tool_result", "tool_use_id": id, "content": text});
    let say = |text: &str| json!({"type": "text", "text": text});
    let want = json!([
        {"role": "user", "content": [say("go")]},
        // Other hosts made the calls' ids.
        {"role": "assistant", "content": [
            say("Looking."), tool_use(&plain_id("call.1")), {"type": "thinking", "thinking": "hm", "signature": "sig"}, tool_use(&plain_id("call_2")),
        ]},
        {"role": "user", "content": [result(&plain_id("call_2"), "two"), result(&plain_id("call.1"), "one"), say("interrupted"), say("again")]},
    ]);
    assert_eq!(body["messages"], want);
}

#[test]
fn settings_are_mapped_or_refused() {
    let context = transcript();
    let ask = |model: &str, sampling: Value| -> Value {
        let sampling = serde_json::from_value(sampling).unwrap();
        let look = vec![tool("look")];
        let prompt = Prompt { model, tools: &look, ..prompt(&context, &sampling) };
        serde_json::from_str(&encode(&host(), "anthropic https://host", &prompt).body).unwrap()
    };
    let body = ask("claude-opus-4-6", json!({"reasoning_effort": "high", "max_output_tokens": 100}));
    assert_eq!(
        [&body["thinking"], &body["output_config"], &body["max_tokens"]],
        [&json!({"type": "adaptive"}), &json!({"effort": "high"}), &json!(100)]
    );
    let body = ask("claude-sonnet-4-5", json!({"reasoning_effort": "low", "max_output_tokens": 100}));
    assert_eq!(
        [&body["thinking"], &body["output_config"], &body["max_tokens"]],
        [&json!({"type": "enabled", "budget_tokens": 2048}), &Value::Null, &json!(2148)]
    );
    let schema = json!({"type": "object"});
    let format = json!({"type": "json_schema", "name": "n", "schema": schema});
    let body =
        ask("m", json!({"response_format": format, "tool_choice": "required", "parallel_tool_calls": false}));
    assert_eq!(body["output_config"], json!({"format": {"type": "json_schema", "schema": schema}}));
    assert_eq!(body["tool_choice"], json!({"type": "any", "disable_parallel_tool_use": true}));
    let choice = |choice: Value| ask("m", json!({"tool_choice": choice}))["tool_choice"].clone();
    assert_eq!(choice(json!({"type": "function", "name": "look"})), json!({"type": "tool", "name": "look"}));
    assert_eq!(choice(json!("none")), json!({"type": "none"}));
    for (sampling, setting) in [
        (json!({"reasoning_effort": "minimal"}), "reasoning_effort"),
        (json!({"reasoning_effort": "low", "temperature": 0.5}), "temperature"),
        (json!({"reasoning_effort": "low", "tool_choice": "required"}), "tool_choice"),
        (json!({"temperature": 1.5}), "temperature"),
        (json!({"response_format": {"type": "json_object"}}), "response_format"),
    ] {
        assert_eq!(refuses(&serde_json::from_value(sampling).unwrap()).unwrap().0, setting);
    }
    assert_eq!(refuses(&Sampling::default()), None);
}

#[test]
fn images_errors_and_silence_are_said_in_its_words() {
    let line = |part, body: Value| Line { place: Seq(0), origin: None, part, body: body.to_string() };
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA"});
    let context = [
        line(Part::Assistant, json!({"content": [{"type": "output_text", "text": "Hello."}]})),
        line(Part::User, json!({"content": [{"type": "input_text", "text": " "}]})),
        line(Part::Call, json!({"call_id": "a", "name": "look", "arguments": "{}"})),
        line(
            Part::Output,
            json!({"call_id": "a", "output": [{"type": "input_text", "text": "see"}, image], "is_error": true}),
        ),
    ];
    let sampling = Sampling::default();
    let body: Value =
        serde_json::from_str(&encode(&host(), "anthropic https://host", &prompt(&context, &sampling)).body)
            .unwrap();
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"], "the user is first, and says something");
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    let want = json!({"type": "tool_result", "tool_use_id": plain_id("a"),
        "content": [{"type": "text", "text": "see"}, {"type": "image", "source": source}], "is_error": true});
    assert_eq!(messages[4]["content"], json!([want]));
}

/// What an answer's calls were given: their ids and arguments, whatever was written anew.
fn given(events: &[Value]) -> Vec<(String, String)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for event in decode(ResponseDecoder::new(), &[&frames(events)]).unwrap() {
        match (event, calls.last_mut()) {
            (ModelEvent::Call { provider_id, .. }, _) => calls.push((provider_id, String::new())),
            (ModelEvent::Text { kind: PartKind::Arguments, text, .. }, Some((_, arguments))) => {
                arguments.push_str(&text)
            }
            (ModelEvent::Rewrite(text), Some((_, arguments))) => *arguments = text,
            _ => {}
        }
    }
    calls
}

#[test]
fn blocks_are_found_by_their_index() {
    let start = |index: u64, id: &str| {
        json!({"type": "content_block_start", "index": index,
        "content_block": {"type": "tool_use", "id": id, "name": "look", "input": {}}})
    };
    let delta = |index: Value, text: &str| {
        json!({"type": "content_block_delta", "index": index,
        "delta": {"type": "input_json_delta", "partial_json": text}})
    };
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let end =
        [json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}), json!({"type": "message_stop"})];
    let two = [("a".to_string(), "{\"q\":0}".to_string()), ("b".to_string(), "{\"q\":1}".to_string())];
    for events in [
        vec![
            start(0, "a"),
            start(1, "b"),
            delta(0.into(), "{\"q\":0}"),
            delta(1.into(), "{\"q\":1}"),
            stop(1),
            stop(0),
        ],
        vec![
            start(0, "a"),
            start(1, "b"),
            delta(1.into(), "{\"q\""),
            delta(0.into(), "{\"q\":0}"),
            delta(1.into(), ":1}"),
        ],
        vec![
            start(0, "a"),
            delta("0".into(), "{}"),
            delta(0.into(), "{\"q\":0}"),
            start(0, "b"),
            delta(0.into(), "{\"q\":1}"),
        ],
        vec![
            start(0, "a"),
            delta(Value::Null, "{\"q\":0}"),
            stop(0),
            start(1, "b"),
            delta(Value::Null, "{\"q\":1}"),
        ],
        vec![
            start(0, "a"),
            delta(0.into(), "{\"q\":0}"),
            delta(0.into(), "{\"q\":0}"),
            stop(0),
            start(1, "b"),
            delta(1.into(), "{\"q\":1}"),
            stop(1),
        ],
    ] {
        assert_eq!(given(&[&events[..], &end].concat()), two, "{events:#?}");
    }
}

#[test]
fn names_of_models_tell_how_they_think() {
    let context = transcript();
    let ask = |model: &str| -> Value {
        let sampling = Sampling { reasoning_effort: Some("xhigh".into()), ..Sampling::default() };
        let prompt = Prompt { model, ..prompt(&context, &sampling) };
        serde_json::from_str(&encode(&host(), "anthropic https://host", &prompt).body).unwrap()
    };
    for old in [
        "claude-3-7-sonnet-latest",
        "anthropic/claude-sonnet-4.5",
        "claude-sonnet-4@20250514",
        "claude-opus-4",
        "us.anthropic.claude-opus-4-1-20250805-v1:0",
        "claude-4-opus",
        "Claude Haiku 4.5",
        "claude-opus-4-5",
    ] {
        let body = ask(old);
        let (budget, most) = (body["thinking"]["budget_tokens"].as_u64(), body["max_tokens"].as_u64());
        assert!(budget >= Some(1024) && budget < most, "{old}: {body:#}");
        let limited = old.contains("pus-4") && !old.contains("4-5") || old.contains("4-opus");
        assert!(!limited || most <= Some(32_000), "{old}: {most:?}");
    }
    for new in ["claude-opus-4-6", "claude-sonnet-5", "anthropic/claude-opus-4.8", "prod-main"] {
        assert_eq!(ask(new)["thinking"]["type"], "adaptive", "{new}");
    }
}
