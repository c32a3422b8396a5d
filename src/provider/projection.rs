//! What a model is shown of a session: the transcript, in a form that the host asked takes.
//!
//! The transcript is the truth, and clients see it as the model wrote it. What goes to a host is a projection of it, the
//! same for all dialects as far as they agree:
//!
//! 1. *Common ground.* What strict hosts insist on, all hosts get: the form of the names and ids of past calls, arguments
//!    that are one JSON object, no empty texts and outputs, every call directly followed by its output.
//! 2. *Private matter goes home.* Thoughts, signatures and other fields of one host are sent to that host only.
//! 3. *Refused matter is withheld.* A placeholder takes the place of what a host refused for good.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::json::{self, field};
use crate::session::{IS_ERROR, Seq, Tool, Withheld, plain_id};

/// The key in an item's body that holds its host's private matter, in the form of the dialect.
pub const FIELDS: &str = "provider_fields";
/// The longest name of a tool, and the form of all: `^[a-zA-Z0-9_-]{1,64}$`.
const NAME: usize = 64;
/// In place of a user's message without a text: most hosts refuse it, and it is still the model's turn.
const BLANK: &str = "(empty message)";
/// In place of an output without a text.
const NO_OUTPUT: &str = "(no output)";
/// In place of the name of a call that has none.
const NO_NAME: &str = "unknown";
/// The key for arguments that are no JSON object.
const MALFORMED: &str = "malformed_arguments";
/// The key that strict hosts of the Responses API want in every text of the assistant.
const ANNOTATIONS: &str = "annotations";
/// In place of what a host refused.
const WITHHELD: &str = "[withheld: the model's host refused this content]";

/// One item of the transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its place in the log.
    pub place: Seq,
    pub part: Part,
    /// The host whose model wrote it, as `Provider::origin` names it.
    pub origin: Option<String>,
    /// Its body, in the form of a Responses API input item.
    pub body: String,
}

/// Who produced the line, and what kind it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    User,
    Assistant,
    Reasoning,
    Call,
    Output,
}

/// One item as it is shown.
#[derive(Debug)]
pub struct Projected<'a> {
    pub part: Part,
    body: Body<'a>,
}

#[derive(Debug)]
enum Body<'a> {
    Stored(&'a str),
    Changed(Value),
}

impl Projected<'_> {
    pub fn json(&self) -> Cow<'_, Value> {
        match &self.body {
            Body::Stored(text) => Cow::Owned(serde_json::from_str(text).unwrap_or(Value::Null)),
            Body::Changed(json) => Cow::Borrowed(json),
        }
    }

    /// The body as text. `change` is applied to what is not shown as it is stored.
    pub fn text(&mut self, change: impl FnOnce(&mut Map<String, Value>)) -> Cow<'_, str> {
        match &mut self.body {
            Body::Stored(text) => Cow::Borrowed(text),
            Body::Changed(json) => {
                if let Some(object) = json.as_object_mut() {
                    change(object);
                }
                Cow::Owned(json.to_string())
            }
        }
    }
}

/// What the transcript is shown to, and what of it is not shown.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The host asked, as `Provider::origin` names it.
    pub home: &'a str,
    /// Whether the host gets its own private matter back.
    pub private: bool,
    /// Whether outputs without a word are filled in.
    pub fills: bool,
    pub withheld: &'a [Withheld],
}

/// The transcript as a host is shown it.
pub fn project<'a>(context: &'a [Line], view: &View<'_>) -> Vec<Projected<'a>> {
    let mut ids = BTreeMap::new();
    let seen = context.iter().filter(|line| line.part != Part::Reasoning || view.is_home(line));
    arrange(seen).into_iter().filter_map(|line| view.show(line, &mut ids)).collect()
}

impl View<'_> {
    fn is_home(&self, line: &Line) -> bool {
        self.private && line.origin.as_deref() == Some(self.home)
    }

    /// Whether a host refused what stands there, and whether that is only images and files.
    fn is_withheld(&self, place: Seq) -> Option<bool> {
        let found = self.withheld.iter().filter(|one| one.from <= place && place <= one.to);
        found.map(|one| one.media).reduce(|one, other| one && other)
    }

    fn show<'a>(&self, line: &'a Line, ids: &mut BTreeMap<String, String>) -> Option<Projected<'a>> {
        let stored = Projected { part: line.part, body: Body::Stored(&line.body) };
        let body = || serde_json::from_str::<Value>(&line.body).unwrap_or(Value::Null);
        let withheld = match line.part {
            Part::User | Part::Output => self.is_withheld(line.place),
            Part::Assistant | Part::Reasoning | Part::Call => None,
        };
        if let Some((id, rest)) = call_id_of(line)
            && withheld.is_none()
        {
            let stored_so = match line.part {
                Part::Call => self.is_own(line) && is_sound(rest),
                Part::Output => {
                    !self.fills && rest.starts_with(",\"output\":\"") && ids.get(id).is_some_and(|own| own == id)
                }
                Part::User | Part::Assistant | Part::Reasoning => false,
            };
            let plain = stored_so && !line.body.contains(FIELDS) && !line.body.contains(IS_ERROR);
            if plain && line.part == Part::Call {
                ids.insert(id.to_string(), id.to_string());
            }
            if plain {
                return Some(stored);
            }
        }
        let mut json = match line.part {
            Part::User if withheld.is_none() && says_something(&line.body) => return Some(stored),
            Part::Assistant if !line.body.contains(FIELDS) && line.body.contains(ANNOTATIONS) => {
                return Some(stored);
            }
            _ => body(),
        };
        let object = json.as_object_mut()?;
        if !self.is_home(line) {
            object.remove(FIELDS);
        }
        match line.part {
            Part::User => {
                let content = object.get("content").cloned().unwrap_or_default();
                let content = placeheld(content, withheld);
                let content = if is_blank(&content) { text_part(BLANK) } else { content };
                object.insert("content".into(), content);
            }
            Part::Assistant => {
                let parts = object.get_mut("content").and_then(Value::as_array_mut);
                for part in parts.into_iter().flatten().filter_map(Value::as_object_mut) {
                    if part.get("type").is_some_and(|kind| kind == "output_text") {
                        part.entry(ANNOTATIONS).or_insert_with(|| json!([]));
                    }
                }
            }
            Part::Reasoning => {}
            Part::Call => {
                let id = text(object, "call_id");
                let shown = if self.is_own(line) && !id.trim().is_empty() { id.clone() } else { shared_id(&id) };
                object.insert("call_id".into(), shown.as_str().into());
                ids.insert(id, shown);
                let name = tool_name(&text(object, "name"));
                object.insert("name".into(), name.into());
                let arguments = arguments(&text(object, "arguments"));
                object.insert("arguments".into(), arguments.into());
            }
            Part::Output => {
                let id = ids.get(&text(object, "call_id"))?;
                object.insert("call_id".into(), id.as_str().into());
                let output = object.get("output").cloned().unwrap_or_default();
                let output = placeheld(output, withheld);
                // What a client posted is passed on as it is, where the host takes it.
                let fills = output.is_array() || self.fills;
                let output = if fills && is_blank(&output) { NO_OUTPUT.into() } else { output };
                object.insert("output".into(), output);
            }
        }
        Some(Projected { part: line.part, body: Body::Changed(json) })
    }

    /// Whether the host asked made the id.
    fn is_own(&self, line: &Line) -> bool {
        line.origin.as_deref() == Some(self.home)
    }
}

/// Arranges the lines for a model. The output of one model response stays together: its texts precede its calls, and
/// each piece of reasoning precedes the item it led to. Reasoning that led to nothing, and messages that say nothing, are
/// left out.
pub fn arrange<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Vec<&'a Line> {
    let lines = lines.into_iter();
    let mut arranged = Vec::with_capacity(lines.size_hint().1.unwrap_or_default());
    let (mut reasoning, mut calls) = (Vec::new(), Vec::new());
    for line in lines {
        match line.part {
            Part::User | Part::Output => {
                reasoning.clear();
                arranged.append(&mut calls);
                arranged.push(line);
            }
            Part::Reasoning => reasoning.push(line),
            Part::Assistant if !says_something(&line.body) => {}
            Part::Assistant => {
                arranged.append(&mut reasoning);
                arranged.push(line);
            }
            Part::Call => {
                calls.append(&mut reasoning);
                calls.push(line);
            }
        }
    }
    arranged.append(&mut calls);
    arranged
}

/// The id of the call that a line makes or resolves, and what follows it in the body. `None` if that is not in the usual
/// form. Together with `is_sound` it spares most lines of a long transcript from being parsed.
fn call_id_of(line: &Line) -> Option<(&str, &str)> {
    let head = match line.part {
        Part::Call => "{\"type\":\"function_call\",\"call_id\":\"",
        Part::Output => "{\"type\":\"function_call_output\",\"call_id\":\"",
        Part::User | Part::Assistant | Part::Reasoning => return None,
    };
    let (id, _) = line.body.strip_prefix(head)?.split_once('"')?;
    let fits = !id.trim().is_empty() && !id.contains('\\');
    fits.then(|| (id, line.body.get(head.len() + id.len() + 1..).unwrap_or_default()))
}

/// Whether the rest of a call's body has a name and arguments in the form that `show` would give them.
fn is_sound(rest: &str) -> bool {
    let Some((name, rest)) = rest.strip_prefix(",\"name\":\"").and_then(|rest| rest.split_once('"')) else {
        return false;
    };
    let Some(escaped) = rest.strip_prefix(",\"arguments\":").and_then(|rest| rest.strip_suffix('}')) else {
        return false;
    };
    tool_name(name) == name
        && (escaped == "\"{}\""
            || serde_json::from_str::<String>(escaped).is_ok_and(|given| arguments(&given) == given))
}

/// Whether a message has anything but white space in it. Reads no further than to the first word.
fn says_something(body: &str) -> bool {
    let words = |key: &str| {
        body.match_indices(key).any(|(at, _)| {
            let text = body.get(at + key.len()..).unwrap_or_default();
            let text = text.trim_start_matches(|c: char| c.is_whitespace());
            !["\"", "\\n", "\\t", "\\r", "\\u"].iter().any(|end| text.starts_with(end))
        })
    };
    if words("\"text\":\"")
        || words("\"refusal\":\"")
        || body.contains("\"input_image\"")
        || body.contains("\"input_file\"")
    {
        return true;
    }
    let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    !is_blank(field(&body, "content"))
}

/// Whether content is a text, or parts, without a word.
fn is_blank(content: &Value) -> bool {
    let says = |part: &Value| match part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str) {
        Some(text) => !text.trim().is_empty(),
        None => part.is_object(),
    };
    match content {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(parts) => !parts.iter().any(says),
        _ => true,
    }
}

fn text_part(text: &str) -> Value {
    json!([{"type": "input_text", "text": text}])
}

/// Content with placeholders for what is withheld: for everything, or for images and files.
fn placeheld(content: Value, withheld: Option<bool>) -> Value {
    let is_text = |part: &Value| part.get("text").is_some();
    match (content, withheld) {
        (content, None) => content,
        (Value::Array(parts), Some(true)) => {
            let placeholder = || json!({"type": "input_text", "text": WITHHELD});
            parts.into_iter().map(|part| if is_text(&part) { part } else { placeholder() }).collect()
        }
        (content @ Value::String(_), Some(true)) => content,
        (Value::Array(_), Some(false)) => text_part(WITHHELD),
        (_, Some(_)) => WITHHELD.into(),
    }
}

fn text(object: &Map<String, Value>, key: &str) -> String {
    object.get(key).and_then(Value::as_str).unwrap_or_default().to_string()
}

/// The id of a call that another host, or a client, made.
fn shared_id(id: &str) -> String {
    let fits = id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
    if fits { id.to_string() } else { plain_id(id) }
}

/// The name of a past call, as one that a tool can have. Clients and outputs tell the model's own.
fn tool_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = name.trim().chars().take(NAME).map(plain).collect();
    if name.is_empty() { NO_NAME.into() } else { name }
}

/// The arguments of a past call, as one JSON object.
fn arguments(given: &str) -> String {
    let bare = given.trim();
    if bare.starts_with('{') && json::parse_untrusted(bare).is_ok() {
        return given.to_string();
    }
    match bare {
        "" | "null" => "{}".into(),
        _ => json!({MALFORMED: given}).to_string(),
    }
}

/// A tool's schema as hosts want it: of an object, and with its properties.
pub fn schema(tool: &Tool) -> Value {
    let mut schema = match &tool.parameters {
        Some(Value::Object(schema)) => schema.clone(),
        _ => Map::new(),
    };
    if schema.get("type").is_none_or(|kind| kind != "object") {
        schema.insert("type".into(), "object".into());
    }
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".into(), json!({}));
    }
    schema.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(part: Part, body: &str) -> Line {
        Line { place: Seq(0), part, origin: None, body: body.into() }
    }

    fn order(lines: &[Line]) -> String {
        arrange(lines).iter().map(|line| line.body.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn said(name: &str) -> Line {
        line(Part::Assistant, &format!("{{\"text\":\"{name}\"}}"))
    }

    #[test]
    fn text_after_a_call_does_not_come_between_the_call_and_its_output() {
        use Part::{Call, Output, Reasoning, User};
        let lines = [
            line(User, "u"),
            line(Reasoning, "r1"),
            line(Call, "c1"),
            line(Reasoning, "r2"),
            said("a"),
            line(Call, "c2"),
            line(Output, "o2"),
            line(Output, "o1"),
            said("b"),
        ];
        assert_eq!(order(&lines), r#"u r2 {"text":"a"} r1 c1 c2 o2 o1 {"text":"b"}"#);
    }

    #[test]
    fn reasoning_that_led_to_nothing_is_left_out() {
        use Part::{Reasoning, User};
        let lines = [line(User, "u"), line(Reasoning, "r"), line(User, "v"), said("a"), line(Reasoning, "s")];
        assert_eq!(order(&lines), r#"u v {"text":"a"}"#);
    }

    fn shown(context: &[Line], withheld: &[Withheld]) -> Vec<Value> {
        let view = View { home: "chat https://here", private: true, fills: false, withheld };
        project(context, &view).iter().map(|shown| shown.json().into_owned()).collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> Line {
        let body = json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments,
            FIELDS: {"sig": 1}});
        line(Part::Call, &body.to_string())
    }

    fn output(id: &str, output: Value) -> Line {
        line(Part::Output, &json!({"type": "function_call_output", "call_id": id, "output": output}).to_string())
    }

    #[test]
    fn what_a_model_wrote_badly_is_shown_in_a_form_that_hosts_take() {
        for (name, want) in [
            ("look", "look"),
            ("", "unknown"),
            (" ", "unknown"),
            ("functions.look:0", "functions_look_0"),
            ("look\" path=\"a", "look__path__a"),
            ("großé", "gro__"),
        ] {
            assert_eq!(shown(&[call("a", name, "{}")], &[])[0]["name"], want);
        }
        assert_eq!(shown(&[call("a", &"é".repeat(99), "{}")], &[])[0]["name"], "_".repeat(64));
        for (given, want) in [
            ("{\"a\": 1.50}", "{\"a\": 1.50}"),
            ("", "{}"),
            (" null ", "{}"),
            ("[1]", r#"{"malformed_arguments":"[1]"}"#),
            ("{\"q\": \"a", r#"{"malformed_arguments":"{\"q\": \"a"}"#),
            ("{\"a\":1}{\"b\":2}", r#"{"malformed_arguments":"{\"a\":1}{\"b\":2}"}"#),
            (r#"{"q":"\ud83d"}"#, r#"{"malformed_arguments":"{\"q\":\"\\ud83d\"}"}"#),
        ] {
            assert_eq!(shown(&[call("a", "look", given)], &[])[0]["arguments"], want);
        }
    }

    #[test]
    fn ids_and_private_fields_are_shown_to_the_host_that_made_them() {
        let own = |origin: &str| Line { origin: Some(origin.into()), ..call("functions.look:0", "look", "{}") };
        let pair = |call: Line| shown(&[call, output("functions.look:0", "x".into())], &[]);
        let home = pair(own("chat https://here"));
        assert_eq!((&home[0]["call_id"], &home[0][FIELDS]["sig"]), (&"functions.look:0".into(), &1.into()));
        assert_eq!(home[1]["call_id"], "functions.look:0");
        let away = pair(own("chat https://there"));
        assert!(away[0].get(FIELDS).is_none() && away[0]["call_id"].as_str().unwrap().len() == 9);
        assert_eq!(away[0]["call_id"], away[1]["call_id"]);
        assert!(shown(&[output("nobody's", "x".into())], &[]).is_empty(), "an output without its call");
    }

    fn output_of(given: Value) -> Line {
        output("a", given)
    }

    #[test]
    fn nothing_is_blank_and_what_is_withheld_has_a_placeholder() {
        let said = |content: Value| {
            line(Part::User, &json!({"type": "message", "role": "user", "content": content}).to_string())
        };
        let text = |text: &str| json!([{"type": "input_text", "text": text}]);
        for blank in [json!([]), text(""), text(" \n\t\u{a0}")] {
            assert_eq!(shown(&[said(blank)], &[])[0]["content"], text(BLANK));
        }
        for fine in [text("\n x"), text("x"), json!([{"type": "input_image", "image_url": "data:"}])] {
            assert_eq!(shown(&[said(fine.clone())], &[])[0]["content"], fine);
        }
        let result =
            |output: Value| shown(&[call("a", "look", "{}"), output_of(output)], &[])[1]["output"].clone();
        assert_eq!((result(json!([])), result(json!(""))), (NO_OUTPUT.into(), "".into()));
        let picture = json!({"type": "input_image", "image_url": "data:"});
        let both = said(json!([{"type": "input_text", "text": "see"}, picture]));
        let withheld = |media| [Withheld { from: Seq(0), to: Seq(0), media }];
        let first = |withheld: &[Withheld]| shown(std::slice::from_ref(&both), withheld)[0]["content"].clone();
        assert_eq!(first(&withheld(true))[0]["text"], "see");
        assert_eq!(first(&withheld(true))[1]["text"], WITHHELD);
        assert_eq!(first(&withheld(false)), text(WITHHELD));
        assert_eq!(shown(&[said(text("x"))], &withheld(true))[0]["content"], text("x"));
    }
}
