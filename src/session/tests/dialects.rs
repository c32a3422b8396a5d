//! Every model request is one that each provider accepts: the rules of the three wire formats, as their pages state them.

use serde_json::{Value, json};

use super::hosts::{self, APIS, Request};
use super::{ModelEvent, Rig, State, Withheld};
use crate::provider::{ContextLine, Host, ModelCall, Prompt, Provider, Sampling};

/// One answer of each dialect: thought, text, and two calls, in the provider's own form.
fn answers() -> [(Provider, String); 4] {
    let frames = |events: &[Value]| events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>();
    let host = || Host::at("https://model.test/v1");
    let call = |n: u8| json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": "call.1", "name": "look", "arguments": "{}"});
    let item = |n: u8, item: Value| json!({"type": "response.output_item.done", "output_index": n, "item": item});
    let responses = frames(&[
        item(
            0,
            json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "opaque", "summary": [{"type": "summary_text", "text": "Hm."}]}),
        ),
        item(
            1,
            json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Look."}]}),
        ),
        item(2, call(2)),
        item(3, call(3)),
        json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
    ]);
    let chunk = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let tool = |n: u8| json!({"tool_calls": [{"index": n, "id": "call-1", "extra_content": {"sig": "A"}, "function": {"name": "look", "arguments": ""}}]});
    let chat = frames(&[
        chunk(json!({"reasoning_content": "Hm."})),
        chunk(json!({"content": "Look."})),
        chunk(tool(0)),
        chunk(tool(1)),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
    ]) + "data: [DONE]\n\n";
    let begin = |block: Value| json!({"type": "content_block_start", "index": 0, "content_block": block});
    let stop = || json!({"type": "content_block_stop", "index": 0});
    let anthropic = frames(&[
        begin(json!({"type": "thinking", "thinking": "Hm.", "signature": "sig"})),
        stop(),
        begin(json!({"type": "text", "text": "Look."})),
        stop(),
        begin(json!({"type": "tool_use", "id": "call_1", "name": "look", "input": {}})),
        stop(),
        begin(json!({"type": "tool_use", "id": "call_2", "name": "look", "input": {"q": 1}})),
        stop(),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        json!({"type": "message_stop"}),
    ]);
    let own = frames(&[
        json!({"response": "Look."}),
        json!({"tool_calls": [{"name": "look", "arguments": {}}, {"name": "look", "arguments": {"q": 1}}]}),
    ]) + "data: [DONE]\n\n";
    [
        (Provider::OpenAiResponses(host()), responses),
        (Provider::OpenAiChat(host()), chat),
        (Provider::Anthropic(host()), anthropic),
        (Provider::WorkersAi(Default::default()), own),
    ]
}

/// Each dialect answers in one session, in every order of two, and again: what is shown to the next must be valid for all.
#[test]
fn a_session_may_change_its_provider_at_any_time() {
    for first in 0..4 {
        let mut rig = Rig::new();
        rig.say_with("go", &["look"]);
        for second in [first, 0, 1, 2, 3, first] {
            let (provider, bytes) = &answers()[second];
            let sampling = Sampling::default();
            let prompt = Prompt {
                model: "m",
                instructions: None,
                tools: &[],
                context: &[],
                sampling: &sampling,
                withheld: &[],
                lessons: &[],
            };
            let (_, mut decoder) = provider.ask(&prompt).unwrap();
            let mut events: Vec<_> = provider.origin().map(ModelEvent::Origin).into_iter().collect();
            decoder.push(bytes.as_bytes(), &mut events).unwrap();
            decoder.finish(&mut events).unwrap();
            rig.model(events);
            let calls: Vec<String> =
                rig.session.state.open_calls().iter().map(|call| call.call_id.0.clone()).collect();
            assert_eq!(calls.len(), 2, "{provider:?}");
            for call in calls {
                rig.give(&call, "out").unwrap();
            }
        }
        assert_eq!(rig.prompts.len(), 7);
    }
}

/// Encodes the context for every dialect and checks the dialect's own rules.
pub(super) fn assert_valid(context: &[ContextLine], state: &State) {
    let sampling = Sampling::default();
    let withheld: Vec<Withheld> = state.withheld().copied().collect();
    let lessons: Vec<&str> = state.lessons.iter().map(|lesson| lesson.change.as_str()).collect();
    let host = || Host::at("https://model.test/v1");
    let prompt = Prompt {
        model: "m",
        instructions: Some("i"),
        tools: &[],
        context,
        sampling: &sampling,
        withheld: &withheld,
        lessons: &lessons,
    };
    for api in APIS {
        hosts::assert_accepted(&Request { api, body: &hosts::asked(api, &prompt) });
    }
    let body = |provider: Provider| -> Value {
        match provider.ask(&prompt) {
            Some((ModelCall::Http(request), _)) => serde_json::from_str(&request.body).unwrap(),
            Some((ModelCall::Binding(run), _)) => serde_json::from_str(&run.input).unwrap(),
            None => panic!("nobody to ask"),
        }
    };
    responses(&body(Provider::OpenAiResponses(host()))["input"]);
    chat(&body(Provider::OpenAiChat(host()))["messages"]);
    anthropic(&body(Provider::Anthropic(host()))["messages"]);
    chat(&body(Provider::WorkersAi(Default::default()))["messages"]);
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Every call has one output, every output its call; reasoning is followed by what it led to; no keys of our own.
fn responses(input: &Value) {
    let (mut calls, mut outputs) = (Vec::new(), Vec::new());
    for (n, item) in list(input).iter().enumerate() {
        match text(item, "type") {
            "function_call" => calls.push(text(item, "call_id")),
            "function_call_output" => {
                assert!(calls.contains(&text(item, "call_id")), "an output before its call: {input:#}");
                assert!(item.get("is_error").is_none());
                outputs.push(text(item, "call_id"));
            }
            "reasoning" => {
                let next = input.get(n + 1).map(|next| (text(next, "type"), text(next, "role")));
                assert!(
                    matches!(next, Some(("reasoning" | "function_call", _) | ("message", "assistant"))),
                    "reasoning led to nothing: {input:#}"
                );
            }
            kind => assert_eq!(kind, "message"),
        }
        assert!(item.get("provider_fields").is_none());
    }
    outputs.sort_unstable();
    calls.sort_unstable();
    assert_eq!(calls, outputs, "{input:#}");
}

/// An assistant message with calls is followed at once by one tool message per call; tool messages stand nowhere else.
fn chat(messages: &Value) {
    let mut open: Vec<&str> = Vec::new();
    for message in list(messages) {
        if text(message, "role") == "tool" {
            let id = text(message, "tool_call_id");
            let at = open.iter().position(|open| *open == id);
            open.remove(at.unwrap_or_else(|| panic!("a result without its call: {messages:#}")));
            continue;
        }
        assert!(open.is_empty(), "calls without results before the next message: {messages:#}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            open.push(text(call, "id"));
        }
        let says = !message["content"].is_null() || message["tool_calls"].is_array();
        assert!(says, "an empty message: {messages:#}");
    }
    assert!(open.is_empty(), "calls without results: {messages:#}");
}

/// Roles alternate and the user begins; the results of all calls lead the next user message; ids are not used twice.
fn anthropic(messages: &Value) {
    let mut open: Vec<&str> = Vec::new();
    let mut ever: Vec<&str> = Vec::new();
    for (n, message) in list(messages).iter().enumerate() {
        let role = text(message, "role");
        assert_eq!(role, if n % 2 == 0 { "user" } else { "assistant" }, "{messages:#}");
        let blocks = list(&message["content"]);
        assert!(!blocks.is_empty(), "an empty message: {messages:#}");
        let results = blocks.iter().take_while(|block| text(block, "type") == "tool_result").count();
        for (at, block) in blocks.iter().enumerate() {
            match text(block, "type") {
                "tool_result" => {
                    assert!(at < results, "a result after something else: {messages:#}");
                    let id = text(block, "tool_use_id");
                    let at = open.iter().position(|open| *open == id);
                    open.remove(at.unwrap_or_else(|| panic!("a result without its call: {messages:#}")));
                }
                "tool_use" => {
                    let id = text(block, "id");
                    assert!(!ever.contains(&id), "call {id} twice: {messages:#}");
                    ever.push(id);
                    open.push(id);
                }
                "text" => assert!(!text(block, "text").trim().is_empty(), "a blank text: {messages:#}"),
                _ => {}
            }
        }
        assert!(role == "assistant" || open.is_empty(), "calls without results: {messages:#}");
    }
    assert!(open.is_empty(), "calls without results: {messages:#}");
}
