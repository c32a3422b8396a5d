//! Every model request is one that each provider accepts: the rules of the three wire formats, as their pages state them.

use serde_json::Value;

use crate::provider::{ContextLine, Prompt, Provider, Sampling};

/// Encodes the context for every dialect and checks the dialect's own rules.
pub(super) fn assert_valid(context: &[ContextLine]) {
    let key = || (String::from("https://model.test/v1"), None);
    let ((base_url, api_key), sampling) = (key(), Sampling::default());
    let prompt = Prompt { model: "m", instructions: Some("i"), tools: &[], context, sampling: &sampling };
    let body = |provider: Provider| -> Value {
        let (request, _) = provider.ask(&prompt).unwrap();
        serde_json::from_str(&request.body).unwrap()
    };
    let (chat_url, other_url) = (base_url.clone(), base_url.clone());
    responses(&body(Provider::OpenAiResponses { base_url, api_key: api_key.clone() })["input"]);
    chat(&body(Provider::OpenAiChat { base_url: chat_url, api_key: api_key.clone() })["messages"]);
    anthropic(&body(Provider::Anthropic { base_url: other_url, api_key })["messages"]);
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
