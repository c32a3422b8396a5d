//! How requests to a host differ from its dialect: told by the provider's settings, or learned from a refusal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json::field;

/// What to leave out of requests to a host, or to write differently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compat {
    /// Keys to leave out, inner ones by their path: `stream_options`, `reasoning.summary`. `tools.strict` is that of
    /// every tool; `private` stands for thoughts, signatures and everything else that the host itself wrote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omit: Vec<String>,
    /// Top-level keys under another name: `max_tokens` as `max_completion_tokens`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rename: BTreeMap<String, String>,
    /// How Anthropic's models are told to think; absent: by the model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Whether every message with calls needs a `reasoning_content`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reasoning_content: bool,
    /// Whether outputs without a word are filled in.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fill_blanks: bool,
}

/// How a model is told to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// By effort.
    Adaptive,
    /// By a number of tokens.
    Budget,
    Off,
}

/// A refusal that a session can learn from.
#[derive(Debug, PartialEq, Eq)]
pub struct Learnable {
    /// The key that a request must have.
    key: &'static str,
    /// The value that it must have, if not any.
    value: &'static str,
    /// What a refusal says of it, in lower case.
    words: &'static [&'static str],
    /// How requests change.
    pub change: &'static str,
}

const fn omit(key: &'static str, words: &'static [&'static str], change: &'static str) -> Learnable {
    Learnable { key, value: "", words, change }
}

/// What hosts of OpenAI's dialects refuse.
pub const OPENAI: &[Learnable] = &[
    omit("stream_options", &["stream_options"], "omit stream_options"),
    omit("max_tokens", &["max_tokens"], "rename max_tokens max_completion_tokens"),
    omit("max_completion_tokens", &["max_completion_tokens"], "rename max_completion_tokens max_tokens"),
    omit("reasoning.summary", &["reasoning.summary", "reasoning summar"], "omit reasoning.summary"),
    omit("include", &["include", "encrypted content", "reasoning.encrypted_content"], "omit include"),
    omit("reasoning_effort", &["reasoning_effort", "reasoning effort"], "omit reasoning_effort"),
    omit("reasoning", &["reasoning", "reasoning.effort"], "omit reasoning"),
    omit("temperature", &["temperature"], "omit temperature"),
    omit("parallel_tool_calls", &["parallel_tool_calls"], "omit parallel_tool_calls"),
    Learnable { key: "tool_choice", value: "auto", words: &["tool_choice"], change: "omit tool_choice" },
    omit("store", &["store"], "omit store"),
    omit("tools", &["strict"], "omit tools.strict"),
];

/// What hosts of Anthropic's dialect refuse.
pub const ANTHROPIC: &[Learnable] = &[
    Learnable {
        key: "thinking.type",
        value: "adaptive",
        words: &["adaptive", "effort"],
        change: "thinking budget",
    },
    Learnable {
        key: "thinking.type",
        value: "enabled",
        words: &["thinking.type.enabled", "thinking.enabled", "budget_tokens"],
        change: "thinking adaptive",
    },
    omit("thinking", &["thinking"], "thinking off"),
    omit("temperature", &["temperature"], "omit temperature"),
    omit(
        "tool_choice.disable_parallel_tool_use",
        &["disable_parallel_tool_use"],
        "omit tool_choice.disable_parallel_tool_use",
    ),
];

/// Words of a refusal that say that a key is not wanted, rather than that its value is wrong.
const UNWANTED: [&str; 26] = [
    "unsupported",
    "not support",
    "n't support",
    "not permitted",
    "not allowed",
    "not available",
    "not enabled",
    "not recognized",
    "not implemented",
    "unknown",
    "unrecognized",
    "unexpected",
    "extra_forbidden",
    "extra inputs",
    "extra fields",
    "additional properties",
    "deprecated",
    "must be verified",
    "only the default",
    "no longer",
    "invalid field",
    "cannot be used",
    "invalid parameter",
    "no such",
    "does not exist",
    "illegal",
];

/// Words of a refusal of private matter.
const PRIVATE: [&str; 7] = [
    "thought_signature",
    "signature",
    "encrypted_content",
    "encrypted content",
    "thinking block",
    "reasoning_content",
    "reasoning_details",
];

/// Words of a refusal of messages that say nothing.
const EMPTY: [&str; 6] =
    ["not be empty", "non-empty", "is empty", "not be blank", "cannot be empty", "empty content"];

/// Words that say that something is not there.
const MISSING: [&str; 3] = ["missing", "required", "must be p"];

impl Compat {
    /// This, changed by what was learned.
    #[must_use]
    pub fn with<'a>(&self, changes: impl IntoIterator<Item = &'a str>) -> Compat {
        let mut compat = self.clone();
        for change in changes {
            let mut words = change.split(' ').map(str::to_string);
            match (words.next().as_deref(), words.next(), words.next()) {
                (Some("omit"), Some(key), None) => compat.omit.push(key),
                (Some("rename"), Some(key), Some(name)) => {
                    compat.rename.retain(|_, other| *other != key);
                    compat.rename.insert(key, name);
                }
                (Some("thinking"), Some(kind), None) => {
                    compat.thinking = Some(match kind.as_str() {
                        "budget" => Thinking::Budget,
                        "adaptive" => Thinking::Adaptive,
                        _ => Thinking::Off,
                    });
                }
                (Some("reasoning_content"), None, None) => compat.reasoning_content = true,
                (Some("fill_blanks"), None, None) => compat.fill_blanks = true,
                _ => {}
            }
        }
        compat
    }

    /// Whether the host gets back what it wrote for itself.
    pub fn private(&self) -> bool {
        !self.omit.iter().any(|key| key == "private")
    }

    /// Changes the settings of a request.
    pub fn apply(&self, request: &mut Map<String, Value>) {
        for key in &self.omit {
            match key.split_once('.') {
                Some(("tools", inner)) => {
                    let tools = request.get_mut("tools").and_then(Value::as_array_mut);
                    for tool in tools.into_iter().flatten() {
                        remove(tool, inner);
                        if let Some(function) = tool.get_mut("function") {
                            remove(function, inner);
                        }
                    }
                }
                Some((outer, inner)) => {
                    if let Some(outer) = request.get_mut(outer) {
                        remove(outer, inner);
                    }
                }
                None => drop(request.shift_remove(key)),
            }
        }
        for (key, name) in &self.rename {
            if let Some(value) = request.shift_remove(key) {
                request.insert(name.clone(), value);
            }
        }
    }
}

fn remove(value: &mut Value, path: &str) {
    let Some(object) = value.as_object_mut() else { return };
    match path.split_once('.') {
        Some((outer, inner)) => {
            if let Some(outer) = object.get_mut(outer) {
                remove(outer, inner);
            }
        }
        None => drop(object.shift_remove(path)),
    }
}

/// What of a request a session could learn to do without, and has not yet.
pub fn learnable(
    request: &Map<String, Value>,
    known: &'static [Learnable],
    learned: &[&str],
) -> Vec<&'static Learnable> {
    let has = |one: &&Learnable| {
        let (outer, inner) = one.key.split_once('.').unwrap_or((one.key, ""));
        let found = request.get(outer).map(|value| if inner.is_empty() { value } else { field(value, inner) });
        found.is_some_and(|found| !found.is_null() && (one.value.is_empty() || found == one.value))
    };
    known.iter().filter(has).filter(|one| !learned.contains(&one.change)).collect()
}

/// What a refusal teaches: the change to requests. `body` is all that the host said, `private` whether it was sent matter
/// of its own.
pub fn learned(body: &str, learnable: &[&'static Learnable], private: bool) -> Option<&'static str> {
    let said = body.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if said.contains("reasoning_content") && any(&MISSING) {
        return Some("reasoning_content");
    }
    if private && any(&PRIVATE) && !any(&["include"]) {
        return Some("omit private");
    }
    if any(&EMPTY) && any(&["message", "content", "output", "text"]) {
        return Some("fill_blanks");
    }
    if !any(&UNWANTED) {
        return None;
    }
    let names = |one: &&&Learnable| one.words.iter().any(|word| mentions(&said, word));
    learnable.iter().find(names).map(|one| one.change)
}

/// Whether a text has those words, and not as a part of longer ones.
fn mentions(text: &str, words: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(words).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + words.len()..).and_then(|text| text.chars().next());
        // A sentence may go on in the plural.
        !before.is_some_and(inner) && (words.contains(' ') || !after.is_some_and(inner))
    })
}

/// What was learned, for people: "without stream_options".
pub fn described(change: &str) -> String {
    match change.split(' ').collect::<Vec<_>>().as_slice() {
        ["omit", "private"] => "without the reasoning that this host wrote earlier".into(),
        ["omit", key] => format!("without {key}"),
        ["rename", key, name] => format!("with {name} in place of {key}"),
        ["fill_blanks"] => "with a placeholder for empty outputs".into(),
        ["reasoning_content"] => "with a reasoning_content in every message with calls".into(),
        ["thinking", "off"] => "without thinking".into(),
        ["thinking", kind] => format!("with {kind} thinking"),
        _ => format!("with {change}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(json: Value) -> Map<String, Value> {
        json.as_object().unwrap().clone()
    }

    #[test]
    fn a_refusal_that_names_a_key_teaches_to_leave_it_out() {
        let request = object(json!({"model": "m", "stream_options": {}, "max_tokens": 1, "temperature": 0.5,
            "reasoning": {"effort": "low", "summary": "auto"}, "tool_choice": "auto", "include": ["x"]}));
        let known = learnable(&request, OPENAI, &[]);
        let cases = [
            (r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"]}]}"#, "omit stream_options"),
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                "rename max_tokens max_completion_tokens",
            ),
            ("Your organization must be verified to generate reasoning summaries.", "omit reasoning.summary"),
            ("Encrypted content is not supported with this model.", "omit include"),
            ("Unsupported value: 'temperature' does not support 0.5 with this model.", "omit temperature"),
            ("Unknown parameter: 'reasoning.effort'", "omit reasoning"),
            ("tool_choice is not supported in thinking mode", "omit tool_choice"),
        ];
        for (said, change) in cases {
            assert_eq!(learned(said, &known, false), Some(change), "{said}");
        }
        for said in [
            "`max_tokens` is not valid: expected a value <= 32768",
            "Unsupported parameter: 'max_completion_tokens'",
            "this model does not support images",
            "temperature must be at most 1",
        ] {
            assert_eq!(learned(said, &known, false), None, "{said}");
        }
        assert_eq!(learned("Invalid signature in thinking block", &known, true), Some("omit private"));
        assert_eq!(learned("message at position 2 must not be empty", &known, false), Some("fill_blanks"));
        assert_eq!(learned("Missing `reasoning_content` field", &known, true), Some("reasoning_content"));
    }

    #[test]
    fn a_request_changes_as_told() {
        let mut request = object(json!({"a": 1, "stream_options": {}, "max_tokens": 9,
            "reasoning": {"effort": "low", "summary": "auto"},
            "tools": [{"strict": true, "name": "x"}, {"function": {"strict": false}}]}));
        let changes =
            ["omit stream_options", "rename max_tokens b", "omit reasoning.summary", "omit tools.strict"];
        Compat::default().with(changes).apply(&mut request);
        let want =
            json!({"a": 1, "reasoning": {"effort": "low"}, "tools": [{"name": "x"}, {"function": {}}], "b": 9});
        assert_eq!(Value::from(request), want);
        let back = ["rename max_tokens max_completion_tokens", "rename max_completion_tokens max_tokens"];
        let mut request = object(json!({"max_tokens": 9}));
        Compat::default().with(back).apply(&mut request);
        assert_eq!(Value::from(request), json!({"max_tokens": 9}));
    }
}
