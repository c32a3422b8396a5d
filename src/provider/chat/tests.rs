//! Answers as hosts send them, and requests as they take them.

use serde_json::{Value, json};

use super::{ResponseDecoder, encode};
use crate::provider::fixtures::{
    call, close, cut_anywhere, decode, done, frames, host, limit, prompt, text, tool, transcript,
};
use crate::provider::projection::{Line, Part};
use crate::provider::{Decoder, Prompt, Sampling};
use crate::session::{MAX_ANSWER, ModelEvent, PartKind, Seq, Usage, plain_id};

fn chunk(delta: Value) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": delta}]})
}

fn end(reason: &str) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn stream(events: &[Value]) -> Vec<u8> {
    [frames(events), b"data: [DONE]\n\n".to_vec()].concat()
}

fn piece(mut fields: Value, name: Option<&str>, arguments: &str) -> Value {
    fields["function"] = json!({"arguments": arguments});
    if let Some(name) = name {
        fields["function"]["name"] = name.into();
    }
    chunk(json!({"tool_calls": [fields]}))
}

/// The calls of an answer: name and arguments.
fn calls(events: &[Value]) -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for event in decode(ResponseDecoder::new(), &[&stream(events)]).unwrap() {
        match event {
            ModelEvent::Call { name, .. } => calls.push((name, String::new())),
            ModelEvent::Text { kind: PartKind::Arguments, text, .. } => {
                calls.last_mut().unwrap().1.push_str(&text)
            }
            _ => {}
        }
    }
    calls
}

#[test]
fn thoughts_text_and_calls_come_out_wherever_the_bytes_are_cut() {
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 2}});
    let events = [
        chunk(json!({"role": "assistant", "content": ""})),
        chunk(json!({"reasoning_content": "Hm."})),
        chunk(json!({"content": "北京"})),
        chunk(json!({"content": " ok"})),
        piece(json!({"index": 0, "id": "a", "extra_content": {"sig": "AbC"}}), Some("look"), ""),
        piece(json!({"index": 1, "id": "b"}), Some("look"), "{\"q\""),
        piece(json!({"index": 0}), None, "{\"q\":1}"),
        piece(json!({"index": 1}), None, ":2}"),
        end("tool_calls"),
        json!({"choices": [], "usage": usage}),
    ];
    let fields = json!({"provider_fields": {"call": {"extra_content": {"sig": "AbC"}}}});
    let wanted = json!({"provider_fields": {"reasoning_content": true}});
    let want = [
        ModelEvent::Reasoning,
        text(PartKind::Reasoning, "Hm."),
        ModelEvent::Close { payload: Some(wanted) },
        ModelEvent::Message,
        text(PartKind::Text, "北京"),
        text(PartKind::Text, " ok"),
        close(),
        call("a", "look"),
        text(PartKind::Arguments, "{\"q\":1}"),
        ModelEvent::Close { payload: Some(fields) },
        call("b", "look"),
        text(PartKind::Arguments, "{\"q\":2}"),
        close(),
        done(Usage { input_tokens: 9, output_tokens: 4, total_tokens: 13, cached_tokens: 5, reasoning_tokens: 2 }),
    ];
    assert_eq!(cut_anywhere(ResponseDecoder::new, &stream(&events)), want);
}

#[test]
fn calls_are_told_apart_however_badly_they_are_numbered() {
    let (a, b) = (("look".to_string(), "{\"v\":1}".to_string()), ("look".to_string(), "{\"v\":2}".to_string()));
    let both = [a.clone(), b.clone()];
    let same_index = [
        piece(json!({"index": 0, "id": "a"}), Some("look"), "{\"v\":1}"),
        piece(json!({"index": 0, "id": "b"}), Some("look"), "{\"v\":"),
        piece(json!({"index": 0}), None, "2}"),
    ];
    let no_index = [
        piece(json!({"id": "a"}), Some("look"), "{\"v\""),
        piece(json!({}), None, ":1}"),
        piece(json!({"id": "b", "index": null}), Some("look"), "{\"v\""),
        piece(json!({}), None, ":2}"),
    ];
    let gap = [
        piece(json!({"index": 0, "id": "a"}), Some("look"), "{\"v\":1}"),
        piece(json!({"index": 5, "id": "b"}), Some("look"), "{\"v\":2}"),
    ];
    let one_id = [
        piece(json!({"index": 0, "id": "x"}), Some("look"), "{\"v\":1}"),
        piece(json!({"index": 1, "id": "x"}), Some("look"), "{\"v\":2}"),
    ];
    let no_ids = [
        piece(json!({"index": 0}), Some("look"), "{\"v\":1}"),
        piece(json!({"index": 0}), Some("look"), "{\"v\":2}"),
    ];
    for events in [&same_index[..], &no_index, &gap, &one_id, &no_ids] {
        assert_eq!(calls(&[events, &[end("tool_calls")]].concat()), both, "{events:#?}");
    }
    let blank_id = [
        piece(json!({"index": 0, "id": "a"}), Some("look"), ""),
        piece(json!({"index": 0, "id": ""}), Some(""), "{\"v\":1}"),
    ];
    let late_name = [
        chunk(json!({"tool_calls": [{"index": 0, "id": "a"}]})),
        piece(json!({"index": 0}), Some("look"), ""),
        piece(json!({"index": 0}), None, "{\"v\":1}"),
    ];
    let object = [chunk(
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": {"v": 1}}}]}),
    )];
    for events in [&blank_id[..], &late_name, &object] {
        assert_eq!(calls(&[events, &[end("stop")]].concat()), std::slice::from_ref(&a), "{events:#?}");
    }
}

/// A call is sent in one piece or in several, and something of it is sent again afterwards.
#[test]
fn a_call_that_is_sent_again_is_the_same_call() {
    let indexes = [json!({"index": 0}), json!({}), json!({"index": null})];
    let ids = [json!({"id": "a"}), json!({}), json!({"id": ""})];
    let names = [Some("look"), Some(""), None];
    let again = ["", " ", "\n", "{\"v\":1}", "{ \"v\": 1 }\n"];
    let joined = |one: &Value, other: &Value| {
        let mut all = one.clone();
        all.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        all
    };
    for (first_index, index) in indexes.iter().flat_map(|one| indexes.iter().map(move |other| (one, other))) {
        for (first_id, id) in ids.iter().flat_map(|one| ids.iter().map(move |other| (one, other))) {
            let begun = joined(first_index, first_id);
            let whole = vec![piece(begun.clone(), Some("look"), "{\"v\":1}")];
            let pieces = ["", "{\"v\"", ":1}"].map(|arguments| piece(begun.clone(), Some("look"), arguments));
            let unnamed = [piece(begun, Some("look"), ""), piece(joined(index, id), None, "{\"v\":1}")];
            for sent in [whole, pieces.to_vec(), unnamed.to_vec()] {
                for (name, arguments) in names.iter().flat_map(|name| again.map(|again| (*name, again))) {
                    // Complete arguments without any sign of whose they are could not be anything else.
                    let last = piece(joined(index, id), name, arguments);
                    let events = [sent.clone(), vec![last, end("tool_calls")]].concat();
                    let got = calls(&events);
                    assert_eq!(got.len(), 1, "{events:#?}");
                    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
                    assert_eq!((got[0].0.as_str(), value(&got[0].1)), ("look", json!({"v": 1})), "{events:#?}");
                }
            }
        }
    }
}

#[test]
fn a_list_of_calls_that_is_sent_again_is_the_same_list() {
    let list = |calls: [Value; 2]| chunk(json!({"tool_calls": calls}));
    let call = |mut fields: Value, v: u8| {
        fields["function"] = json!({"name": "look", "arguments": format!("{{\"v\":{v}}}")});
        fields
    };
    let forms = [
        [json!({"index": 0, "id": "a"}), json!({"index": 1, "id": "b"})],
        [json!({"id": "a"}), json!({"id": "b"})],
        [json!({"index": 0}), json!({"index": 1})],
        [json!({"index": 0}), json!({"index": 0})],
        [json!({"index": 0, "id": "a"}), json!({"index": 0, "id": "b"})],
        [json!({}), json!({})],
    ];
    for form in &forms {
        for again in &forms {
            let [one, two] = form.clone();
            let [one_again, two_again] = again.clone();
            let events = [
                list([call(one, 1), call(two, 2)]),
                list([call(one_again, 1), call(two_again, 2)]),
                end("tool_calls"),
            ];
            let want =
                [("look".to_string(), "{\"v\":1}".to_string()), ("look".to_string(), "{\"v\":2}".to_string())];
            assert_eq!(calls(&events), want, "{events:#?}");
        }
    }
}

#[test]
fn other_arguments_after_whole_ones_are_another_call() {
    let (a, b) = (("look".to_string(), "{\"v\":1}".to_string()), ("look".to_string(), "{\"v\":2}".to_string()));
    for fields in [json!({"index": 0}), json!({}), json!({"id": "x"}), json!({"index": 0, "id": ""})] {
        let whole = |v| piece(fields.clone(), Some("look"), v);
        let named_first = [
            whole("{\"v\":1}"),
            whole(""),
            piece(json!({"index": 0}), None, "{\"v\""),
            piece(json!({"index": 0}), None, ":2}"),
        ];
        for events in [&[whole("{\"v\":1}"), whole("{\"v\":2}")][..], &named_first] {
            assert_eq!(calls(&[events, &[end("tool_calls")]].concat()), [a.clone(), b.clone()], "{events:#?}");
        }
    }
    let other = [piece(json!({}), Some("look"), "{}"), piece(json!({}), Some("find"), "")];
    assert_eq!(calls(&[&other[..], &[end("stop")]].concat()).len(), 2, "another name is another call");
    let placeholder = [
        piece(json!({"index": 0, "id": "a"}), Some("look"), "{}"),
        piece(json!({"index": 0}), None, "{\"v\""),
        piece(json!({"index": 0}), None, ":1}"),
    ];
    assert_eq!(calls(&[&placeholder[..], &[end("stop")]].concat()), [a]);
}

#[test]
fn calls_that_never_end_are_passed_on_before_they_fill_the_memory() {
    let mut decoder = ResponseDecoder::new();
    let text = format!("[\"{}\",", "x".repeat(MAX_ANSWER / 4));
    let mut passed = Vec::new();
    for _ in 0..5 {
        let bytes = frames(&[piece(json!({"index": 0, "id": "a"}), Some("look"), &text)]);
        decoder.push(&bytes, &mut passed).unwrap();
    }
    assert!(!passed.is_empty());
}

#[test]
fn an_answer_needs_an_end_and_either_kind_will_do() {
    let hi = chunk(json!({"content": "hi"}));
    let complete = |bytes: Vec<u8>| decode(ResponseDecoder::new(), &[&bytes]).map(|events| events.last().cloned());
    let finish = Ok(Some(done(Usage::default())));
    assert_eq!(complete(stream(std::slice::from_ref(&hi))), finish, "[DONE] without a reason");
    assert_eq!(complete(frames(&[hi.clone(), end("stop")])), finish, "a reason without [DONE]");
    let call = piece(json!({"index": 0, "id": "a"}), Some("look"), "{}");
    for events in [vec![], vec![hi], vec![call]] {
        assert_eq!(complete(frames(&events)).unwrap_err().failure.code, "upstream_truncated");
    }
}

#[test]
fn limits_are_no_success_and_errors_are_failures() {
    let ends = |reason| {
        decode(ResponseDecoder::new(), &[&stream(&[chunk(json!({"content": "x"})), end(reason)])])
            .unwrap()
            .pop()
            .unwrap()
    };
    assert_eq!(ends("length"), limit("max_output_tokens"));
    assert_eq!(ends("content_filter"), limit("content_filter"));
    let error = json!({"id": "x", "choices": [], "error": {"code": 502, "message": "provider_unavailable"}});
    let failed = decode(ResponseDecoder::new(), &[&frames(&[error])]).unwrap_err();
    assert_eq!((failed.failure.code.as_str(), failed.retryable), ("upstream_error", true));
    assert!(failed.failure.message.contains("provider_unavailable"));
}

#[test]
fn a_host_that_does_not_stream_is_understood() {
    let body = json!({"choices": [{"message": {"content": "hi", "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": "{}"}}]},
        "finish_reason": "tool_calls"}]});
    let events = decode(ResponseDecoder::new(), &[body.to_string().as_bytes()]).unwrap();
    assert_eq!(
        events.iter().filter(|event| matches!(event, ModelEvent::Message | ModelEvent::Call { .. })).count(),
        2
    );
}

#[test]
fn the_request_keeps_calls_and_outputs_together() {
    let (context, sampling) = (transcript(), Sampling { max_output_tokens: Some(7), ..Sampling::default() });
    let request = encode(&host(), "chat https://host", &prompt(&context, &sampling));
    assert_eq!(request.url, "https://host/v1/chat/completions");
    assert!(request.headers.contains(&("authorization".into(), "Bearer key".into())));
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(body["max_tokens"], 7);
    let function = json!({"name": "look", "arguments": "{\"q\":1}"});
    let want = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "Looking.", "tool_calls": [
            {"id": "call.1", "type": "function", "function": function, "extra_content": {"sig": "AbC"}},
            {"id": plain_id("call_2"), "type": "function", "function": function},
        ]},
        {"role": "tool", "tool_call_id": plain_id("call_2"), "content": "two"},
        {"role": "tool", "tool_call_id": "call.1", "content": "one"},
        {"role": "assistant", "content": "(no answer)"},
        {"role": "user", "content": "interrupted\n\nagain"},
    ]);
    assert_eq!(body["messages"], want);
}

#[test]
fn settings_are_said_in_its_words() {
    let context = transcript();
    let sampling = serde_json::from_value(json!({"reasoning_effort": "low", "temperature": 0.5,
        "tool_choice": {"type": "function", "name": "look"}, "parallel_tool_calls": false,
        "response_format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}));
    let (sampling, look) = (sampling.unwrap(), vec![tool("look")]);
    let prompt = Prompt { tools: &look, ..prompt(&context, &sampling) };
    let body: Value = serde_json::from_str(&encode(&host(), "chat https://host", &prompt).body).unwrap();
    assert_eq!(body["tool_choice"], json!({"type": "function", "function": {"name": "look"}}));
    let schema = json!({"name": "n", "schema": {"type": "object"}, "strict": false});
    assert_eq!(body["response_format"], json!({"type": "json_schema", "json_schema": schema}));
    assert_eq!((&body["parallel_tool_calls"], &body["reasoning_effort"]), (&json!(false), &json!("low")));
    let empty = json!({"type": "object", "properties": {}});
    assert_eq!(body["tools"], json!([{"type": "function", "function": {"name": "look", "parameters": empty}}]));
}

#[test]
fn images_in_outputs_follow_all_outputs() {
    let line = |part, body: Value| Line { place: Seq(0), origin: None, part, body: body.to_string() };
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA"});
    let context = [
        line(Part::User, json!({"content": [{"type": "input_text", "text": "go"}]})),
        line(Part::Call, json!({"call_id": "a", "name": "look", "arguments": "{}"})),
        line(Part::Call, json!({"call_id": "b", "name": "look", "arguments": "{}"})),
        line(Part::Output, json!({"call_id": "a", "output": [{"type": "input_text", "text": "see "}, image]})),
        line(Part::Output, json!({"call_id": "b", "output": "none"})),
        line(Part::User, json!({"content": [{"type": "input_text", "text": "steered"}]})),
    ];
    let sampling = Sampling::default();
    let body: Value =
        serde_json::from_str(&encode(&host(), "chat https://host", &prompt(&context, &sampling)).body).unwrap();
    let want = json!([
        {"role": "tool", "tool_call_id": plain_id("a"), "content": "see [attachment 1: in the next message of the user]"},
        {"role": "tool", "tool_call_id": plain_id("b"), "content": "none"},
        {"role": "assistant", "content": "(no answer)"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "text", "text": "steered"}]},
    ]);
    assert_eq!(body["messages"].as_array().unwrap()[3..], want.as_array().unwrap()[..]);
}

#[test]
fn the_platforms_own_models_are_understood_in_both_their_forms() {
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5});
    let bare = [
        json!({"response": "北", "p": "abc"}),
        json!({"response": "京", "tool_calls": []}),
        json!({"response": null, "tool_calls": [{"name": "look", "arguments": {"q": 1}}, {"name": "look", "arguments": {"q": 2}}]}),
        json!({"response": "", "usage": usage}),
    ];
    let want = [
        ModelEvent::Message,
        text(PartKind::Text, "北"),
        text(PartKind::Text, "京"),
        close(),
        call("", "look"),
        text(PartKind::Arguments, "{\"q\":1}"),
        close(),
        call("", "look"),
        text(PartKind::Arguments, "{\"q\":2}"),
        close(),
        done(Usage { input_tokens: 3, output_tokens: 2, total_tokens: 5, ..Usage::default() }),
    ];
    assert_eq!(cut_anywhere(ResponseDecoder::new, &stream(&bare)), want);
    assert_eq!(decode(ResponseDecoder::new(), &[&frames(&bare)]).unwrap_err().failure.code, "upstream_truncated");
    let whole =
        json!({"result": {"response": "hi", "tool_calls": [], "usage": {}}, "success": true, "errors": []});
    let events = decode(ResponseDecoder::new(), &[whole.to_string().as_bytes()]).unwrap();
    assert_eq!(events, [ModelEvent::Message, text(PartKind::Text, "hi"), close(), done(Usage::default())]);
}

#[test]
fn a_refusal_is_told_as_one() {
    let events = [chunk(json!({"refusal": "I "})), chunk(json!({"refusal": "won't."})), end("stop")];
    let want = [
        ModelEvent::Message,
        text(PartKind::Refusal, "I "),
        text(PartKind::Refusal, "won't."),
        close(),
        done(Usage::default()),
    ];
    assert_eq!(cut_anywhere(ResponseDecoder::new, &stream(&events)), want);
}

#[test]
fn text_after_the_end_changes_nothing() {
    let hi = chunk(json!({"content": "hi"}));
    let late = chunk(json!({"content": " late"}));
    let said = |events: &[Value]| -> String {
        let events = decode(ResponseDecoder::new(), &[&stream(events)]).unwrap();
        events
            .iter()
            .filter_map(|event| if let ModelEvent::Text { text, .. } = event { Some(text.as_str()) } else { None })
            .collect()
    };
    assert_eq!(said(&[hi.clone(), end("stop"), late.clone()]), "hi");
    let every =
        |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]});
    assert_eq!(said(&[every("hi"), every(" there")]), "hi there", "a host that sends the reason with every text");
    let broken = [stream(&[hi, end("stop")]), b"data: {\n\n".to_vec(), stream(&[late])].concat();
    assert!(decode(ResponseDecoder::new(), &[&broken]).is_ok());
}
