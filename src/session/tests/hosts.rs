//! What strict hosts refuse, as their public reports say it. A rule is one function: it reads a request and says what is
//! wrong with it. Each is held against every request of the laws.

use serde_json::{Value, json};

use crate::json::field;
use crate::provider::{
    ContextLine, ContextPart, Host, ModelCall, Prompt, Provider, ResponseFormat, Sampling, ToolChoice,
};
use crate::session::{Seq, Tool};

/// The API of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Responses,
    Chat,
    Anthropic,
}

/// A model request.
pub struct Request<'a> {
    pub api: Api,
    pub body: &'a Value,
}

struct Call<'a> {
    id: &'a Value,
    name: &'a Value,
    arguments: &'a Value,
}

impl<'a> Request<'a> {
    fn lines(&self) -> &'a [Value] {
        list(field(self.body, if self.api == Api::Responses { "input" } else { "messages" }))
    }

    fn parts(line: &'a Value) -> &'a [Value] {
        list(field(line, "content"))
    }

    fn calls(&self) -> Vec<Call<'a>> {
        let lines = self.lines().iter();
        match self.api {
            Api::Responses => lines
                .filter(|line| line["type"] == "function_call")
                .map(|line| Call { id: &line["call_id"], name: &line["name"], arguments: &line["arguments"] })
                .collect(),
            Api::Chat => lines
                .flat_map(|line| list(field(line, "tool_calls")))
                .map(|call| {
                    let function = &call["function"];
                    Call { id: &call["id"], name: &function["name"], arguments: &function["arguments"] }
                })
                .collect(),
            Api::Anthropic => lines
                .flat_map(Self::parts)
                .filter(|part| part["type"] == "tool_use")
                .map(|part| Call { id: &part["id"], name: &part["name"], arguments: &part["input"] })
                .collect(),
        }
    }

    fn outputs(&self) -> Vec<(&'a Value, &'a Value)> {
        let lines = self.lines().iter();
        match self.api {
            Api::Responses => lines
                .filter(|line| line["type"] == "function_call_output")
                .map(|line| (&line["call_id"], &line["output"]))
                .collect(),
            Api::Chat => lines
                .filter(|line| line["role"] == "tool")
                .map(|line| (&line["tool_call_id"], &line["content"]))
                .collect(),
            Api::Anthropic => lines
                .flat_map(Self::parts)
                .filter(|part| part["type"] == "tool_result")
                .map(|part| (&part["tool_use_id"], &part["content"]))
                .collect(),
        }
    }

    fn tools(&self) -> Vec<(&'a Value, &'a Value)> {
        let spec = |tool: &'a Value| match self.api {
            Api::Responses => (&tool["name"], &tool["parameters"]),
            Api::Chat => (&tool["function"]["name"], &tool["function"]["parameters"]),
            Api::Anthropic => (&tool["name"], &tool["input_schema"]),
        };
        list(field(self.body, "tools")).iter().map(spec).collect()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_blank(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.trim().is_empty())
}

type Rule = fn(&Request<'_>) -> Option<String>;

/// Every rule, and whose it is.
pub const RULES: [(&str, Rule); 12] = [
    ("names: OpenAI, Azure, Anthropic", names),
    ("ids: all; of letters, digits, _ and - at Anthropic", ids),
    ("nine letters: Mistral", nine_letters),
    ("arguments: llama.cpp, vLLM, SGLang", arguments),
    ("order: Mistral", mistral_order),
    ("order: templates of Devstral, Ministral, Gemma", template_order),
    ("last: Mistral, Anthropic", user_last),
    ("sealed thoughts: OpenAI, Azure", sealed_thoughts),
    ("words: some chat hosts, Anthropic", words),
    ("annotations: Azure Foundry, vLLM", annotations),
    ("tool settings: OpenAI, Azure, vLLM", tool_settings),
    ("schemas: OpenAI, Anthropic", schemas),
];

/// Past calls have names that a tool may have.
fn names(request: &Request<'_>) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let fits = |name: &str| (1..=64).contains(&name.len()) && name.chars().all(plain);
    let bad = request.calls().into_iter().find(|call| !call.name.as_str().is_some_and(fits))?;
    Some(format!("the name {}", bad.name))
}

/// Calls have ids, each its own, and outputs have theirs.
fn ids(request: &Request<'_>) -> Option<String> {
    let mut known = Vec::new();
    for call in request.calls() {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let id = call.id.as_str().unwrap_or_default();
        if id.trim().is_empty() || known.contains(&id) || (request.api == Api::Anthropic && !id.chars().all(plain))
        {
            return Some(format!("the id {id:?}"));
        }
        known.push(id);
    }
    let outputs: Vec<_> = request.outputs().into_iter().map(|(id, _)| id.as_str().unwrap_or_default()).collect();
    let same = known.len() == outputs.len() && known.iter().all(|id| outputs.contains(id));
    (!same).then(|| format!("calls {known:?}, outputs {outputs:?}"))
}

/// Ids of calls that the host has not made have nine letters or digits. The hosts of the laws have made none.
fn nine_letters(request: &Request<'_>) -> Option<String> {
    let fits = |id: &str| id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric());
    let bad = request.calls().into_iter().find(|call| !call.id.as_str().is_some_and(fits))?;
    Some(format!("the id {}", bad.id))
}

/// The arguments of past calls are an object.
fn arguments(request: &Request<'_>) -> Option<String> {
    let parsed = |call: &Call<'_>| match call.arguments {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    };
    let bad = request.calls().into_iter().find(|call| !parsed(call).is_object())?;
    Some(format!("the arguments {}", bad.arguments))
}

/// After a tool's message comes the assistant's, and no message is empty.
fn mistral_order(request: &Request<'_>) -> Option<String> {
    if request.api != Api::Chat {
        return None;
    }
    let mut before = "";
    for line in request.lines() {
        let role = line["role"].as_str().unwrap_or_default();
        if role == "user" && before == "tool" {
            return Some("a user after a tool".into());
        }
        let says = line["content"].as_str().is_some_and(|text| !text.is_empty()) || line["content"].is_array();
        if role == "assistant" && !says && list(field(line, "tool_calls")).is_empty() {
            return Some("an empty message".into());
        }
        before = role;
    }
    None
}

/// User and assistant take turns; calls and outputs do not count.
fn template_order(request: &Request<'_>) -> Option<String> {
    if request.api != Api::Chat {
        return None;
    }
    let told = request.lines().iter().filter(|line| {
        !matches!(line["role"].as_str(), Some("tool" | "system")) && list(field(line, "tool_calls")).is_empty()
    });
    let roles: Vec<_> = told.map(|line| line["role"].as_str().unwrap_or_default()).collect();
    let turns = roles.iter().enumerate().all(|(n, role)| *role == ["user", "assistant"][n % 2]);
    (!turns).then(|| format!("{roles:?}"))
}

/// The last word is a user's or a tool's.
fn user_last(request: &Request<'_>) -> Option<String> {
    let last = request.lines().last()?;
    (request.api != Api::Responses && last["role"] == "assistant").then(|| last.to_string())
}

/// A thought comes back sealed, or in plain text.
fn sealed_thoughts(request: &Request<'_>) -> Option<String> {
    let sealed = |line: &&Value| !line["encrypted_content"].is_string() && list(&line["content"]).is_empty();
    let bad = request.lines().iter().filter(|line| line["type"] == "reasoning").find(sealed)?;
    Some(bad.to_string())
}

/// Every message says something, and no output is a list of nothing. An empty text is passed on as it was posted.
fn words(request: &Request<'_>) -> Option<String> {
    let blank_part = |part: &Value| is_blank(&part["text"]);
    for line in request.lines() {
        let content = field(line, "content");
        let called = !list(field(line, "tool_calls")).is_empty();
        let empty = list(content).is_empty() && content.is_array();
        let called = called || line["role"] == "tool";
        let typed = line.get("type").is_some_and(|kind| kind != "message");
        if !called
            && !typed
            && (is_blank(content) || empty || list(content).iter().all(blank_part) && content.is_array())
        {
            return Some(line.to_string());
        }
        if request.api == Api::Anthropic && list(content).iter().any(blank_part) {
            return Some(line.to_string());
        }
    }
    let bad = request.outputs().into_iter().find(|(_, output)| *output == &json!([]))?;
    Some(format!("the output of {}", bad.0))
}

/// An output text has its annotations, if only none.
fn annotations(request: &Request<'_>) -> Option<String> {
    let parts = request.lines().iter().flat_map(Request::parts);
    let mut texts = parts.filter(|part| part["type"] == "output_text");
    texts.find(|part| !part["annotations"].is_array()).map(Value::to_string)
}

/// Settings about tools only where there are tools, and of these alone.
fn tool_settings(request: &Request<'_>) -> Option<String> {
    let offered: Vec<_> = request.tools().into_iter().map(|(name, _)| name).collect();
    let choice = field(request.body, "tool_choice");
    let set = ["tool_choice", "parallel_tool_calls"].iter().any(|key| request.body.get(key).is_some());
    let named = choice.get("function").unwrap_or(choice).get("name");
    let wrong = named.is_some_and(|name| !offered.contains(&name));
    (wrong || set && offered.is_empty()).then(|| choice.to_string())
}

/// A tool's schema is that of an object, and has properties.
fn schemas(request: &Request<'_>) -> Option<String> {
    let bad = |schema: &Value| schema["type"] != "object" || !schema["properties"].is_object();
    request.tools().into_iter().find(|(_, schema)| bad(schema)).map(|(_, schema)| schema.to_string())
}

/// Holds a request against every rule.
pub fn assert_accepted(request: &Request<'_>) {
    for (name, rule) in RULES {
        let wrong = rule(request);
        assert!(wrong.is_none(), "refused: {name}: {}\n{:#}", wrong.unwrap_or_default(), request.body);
    }
}

/// The body of a request to a host of an API, which has written nothing of the transcript.
pub fn asked(api: Api, prompt: &Prompt<'_>) -> Value {
    let host = Host::at("https://stranger.test/v1");
    let provider = match api {
        Api::Responses => Provider::OpenAiResponses(host),
        Api::Chat => Provider::OpenAiChat(host),
        Api::Anthropic => Provider::Anthropic(host),
    };
    match provider.ask(prompt) {
        Some((ModelCall::Http(request), _)) => serde_json::from_str(&request.body).unwrap(),
        other => panic!("no request: {}", other.is_some()),
    }
}

pub const APIS: [Api; 3] = [Api::Responses, Api::Chat, Api::Anthropic];

/// Every setting at every API, with and without tools.
#[test]
fn settings_are_in_a_form_that_strict_hosts_take() {
    let schema = json!({"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "string"}}});
    let tool = |parameters: Option<Value>| Tool {
        name: "look".into(),
        description: None,
        parameters,
        strict: Some(true),
        tool_timeout_s: Some(5),
    };
    let schemas = [
        None,
        Some(json!({})),
        Some(json!({"type": "object"})),
        Some(json!({"properties": {}})),
        Some(json!(null)),
        Some(json!({"type": ["object", "null"]})),
        Some(schema.clone()),
    ];
    let body =
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}).to_string();
    let context = [ContextLine { place: Seq(1), part: ContextPart::User, origin: None, body }];
    let choices = [
        None,
        Some(ToolChoice::Auto),
        Some(ToolChoice::None),
        Some(ToolChoice::Required),
        Some(ToolChoice::Tool("look".into())),
        Some(ToolChoice::Tool("other".into())),
    ];
    for api in APIS {
        for tools in schemas.clone().map(|schema| vec![tool(schema)]).into_iter().chain([vec![]]) {
            for tool_choice in choices.clone() {
                let response_format =
                    Some(ResponseFormat::JsonSchema { name: "n".into(), schema: schema.clone(), strict: None });
                let sampling = Sampling {
                    reasoning_effort: Some("low".into()),
                    max_output_tokens: Some(100),
                    temperature: Some(0.5),
                    tool_choice: tool_choice.clone(),
                    parallel_tool_calls: Some(false),
                    response_format,
                };
                let prompt = Prompt {
                    model: "claude-opus-4-1",
                    instructions: Some(" "),
                    tools: &tools,
                    context: &context,
                    sampling: &sampling,
                    withheld: &[],
                    lessons: &[],
                };
                let body = asked(api, &prompt);
                assert_accepted(&Request { api, body: &body });
                assert!(body.to_string().contains(r#""properties":{"b":{"type":"string"},"a""#), "{body}");
            }
        }
    }
}

/// What a session learns to leave out is left out, at every API.
#[test]
fn what_was_learned_changes_requests() {
    let sampling =
        Sampling { reasoning_effort: Some("low".into()), max_output_tokens: Some(9), ..Sampling::default() };
    let body = |api, lessons: &[&str]| {
        let prompt = Prompt {
            model: "m",
            instructions: None,
            tools: &[],
            context: &[],
            sampling: &sampling,
            withheld: &[],
            lessons,
        };
        asked(api, &prompt)
    };
    assert!(body(Api::Chat, &["omit stream_options"]).get("stream_options").is_none());
    assert_eq!(body(Api::Chat, &["rename max_completion_tokens max_tokens"])["max_tokens"], 9);
    assert_eq!(body(Api::Responses, &["omit reasoning.summary"])["reasoning"], json!({"effort": "low"}));
    assert!(body(Api::Responses, &["omit include"]).get("include").is_none());
    let output = |lessons: &[&str]| {
        let line = |part, body: Value| ContextLine { place: Seq(1), part, origin: None, body: body.to_string() };
        let context = [
            line(
                ContextPart::Call,
                json!({"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}),
            ),
            line(ContextPart::Output, json!({"type": "function_call_output", "call_id": "a", "output": ""})),
        ];
        let prompt = Prompt {
            model: "m",
            instructions: None,
            tools: &[],
            context: &context,
            sampling: &sampling,
            withheld: &[],
            lessons,
        };
        asked(Api::Chat, &prompt)["messages"][2]["content"].clone()
    };
    assert_eq!((output(&[]), output(&["fill_blanks"])), ("".into(), "(no output)".into()));
    let thinking = |lessons: &[&str]| body(Api::Anthropic, lessons)["thinking"]["type"].clone();
    assert_eq!(thinking(&["thinking budget"]), "enabled");
    assert_eq!(thinking(&["thinking budget", "thinking adaptive"]), "adaptive");
    assert_eq!(thinking(&["thinking off"]), Value::Null);
}
