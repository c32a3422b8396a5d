//! `initial_items`: the transcript a session starts with.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::body::parse;
use super::event::{check_parts, check_text, check_urls, output};
use super::outbound::Reach;
use super::{Code, Error, MAX_INITIAL_ITEMS};
use crate::session::{CallId, InitialItem, NewMessage, OnBusy, Role, ToolOutput};

/// The initial items, and the message that starts the first turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InitialItems {
    pub items: Vec<InitialItem>,
    /// The trailing user message.
    pub message: Option<NewMessage>,
}

#[derive(Deserialize)]
struct Message {
    role: Role,
    content: Value,
}

#[derive(Deserialize)]
struct Call {
    call_id: String,
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct Output {
    call_id: String,
    output: Value,
    #[serde(default)]
    is_error: bool,
}

impl InitialItems {
    /// Rejects images and files at addresses providers must not fetch.
    pub fn check_reach(&self, reach: Reach) -> Result<(), Error> {
        for (n, item) in self.items.iter().enumerate() {
            let at = format!("initial_items[{n}]");
            match item {
                InitialItem::Message { content, .. } => check_urls(content, &format!("{at}.content"), reach)?,
                InitialItem::Output(given) => check_urls(&given.output, &format!("{at}.output"), reach)?,
                InitialItem::Call { .. } => {}
            }
        }
        let last = format!("initial_items[{}].content", self.items.len());
        self.message.as_ref().map_or(Ok(()), |message| check_urls(&message.content, &last, reach))
    }
}

/// Reads the list. Whether calls and outputs match is for the session to check.
pub fn seeds(list: Vec<Map<String, Value>>) -> Result<InitialItems, Error> {
    if list.len() > MAX_INITIAL_ITEMS {
        let message = format!("there are {} initial items, the limit is {MAX_INITIAL_ITEMS}", list.len());
        return Err(Error { param: Some("initial_items".into()), ..Error::new(Code::PayloadTooLarge, message) });
    }
    let mut items = Vec::with_capacity(list.len());
    for (n, item) in list.into_iter().enumerate() {
        items.push(seed(item, &format!("initial_items[{n}]"))?);
    }
    match items.pop() {
        Some(InitialItem::Message { role: Role::User, content }) => {
            let message =
                NewMessage { content, tools: Vec::new(), model: None, settings: None, on_busy: OnBusy::Queue };
            Ok(InitialItems { items, message: Some(message) })
        }
        last => {
            items.extend(last);
            Ok(InitialItems { items, message: None })
        }
    }
}

fn seed(mut item: Map<String, Value>, at: &str) -> Result<InitialItem, Error> {
    // The form of the snapshot has the keys of the type under `data` as well.
    if let Some(Value::Object(data)) = item.remove("data") {
        for (key, value) in data {
            item.entry(key).or_insert(value);
        }
    }
    let kind = item.remove("type");
    match kind.as_ref().map_or(Some("message"), Value::as_str) {
        Some("message") => {
            let message: Message = parse(item, at)?;
            let content = content(message.role, message.content, &format!("{at}.content"))?;
            Ok(InitialItem::Message { role: message.role, content })
        }
        Some("function_call") => {
            let call: Call = parse(item, at)?;
            check_id(&call.call_id, at)?;
            if !(1..=64).contains(&call.name.len()) {
                return Err(Error::invalid(format!("{at}.name"), "a tool's name has 1 to 64 characters"));
            }
            check_text(&call.arguments, &format!("{at}.arguments"))?;
            let arguments = if call.arguments.trim().is_empty() { "{}".into() } else { call.arguments };
            Ok(InitialItem::Call { call_id: CallId(call.call_id), name: call.name, arguments })
        }
        Some("function_call_output") => {
            let given: Output = parse(item, at)?;
            check_id(&given.call_id, at)?;
            let output = output(given.output, &format!("{at}.output"))?;
            Ok(InitialItem::Output(ToolOutput {
                call_id: CallId(given.call_id),
                output,
                is_error: given.is_error,
            }))
        }
        _ => {
            let message = "an item's type must be message, function_call or function_call_output";
            Err(Error::invalid(format!("{at}.type"), message))
        }
    }
}

fn check_id(id: &str, at: &str) -> Result<(), Error> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    if (1..=64).contains(&id.len()) && id.bytes().all(plain) && id.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        return Ok(());
    }
    let message =
        "a call id has 1 to 64 letters, digits, underscores, hyphens, dots and colons, a letter or a digit first";
    Err(Error::invalid(format!("{at}.call_id"), message))
}

/// A message's content as a list of parts valid for its role.
fn content(role: Role, content: Value, at: &str) -> Result<Value, Error> {
    let kind = match role {
        Role::User => "input_text",
        Role::Assistant => "output_text",
    };
    let parts = match content {
        Value::String(text) => json!([{"type": kind, "text": text}]),
        other => other,
    };
    let Some(list) = parts.as_array().filter(|list| !list.is_empty()) else {
        return Err(Error::invalid(at, "content must be a string or a list of parts that is not empty"));
    };
    match role {
        Role::User => check_parts(list, at)?,
        Role::Assistant => check_spoken(list, at)?,
    }
    Ok(parts)
}

fn check_spoken(parts: &[Value], at: &str) -> Result<(), Error> {
    for (n, part) in parts.iter().enumerate() {
        let at = format!("{at}[{n}]");
        let key = match part.get("type").and_then(Value::as_str) {
            Some("output_text") => "text",
            Some("refusal") => "refusal",
            _ => return Err(Error::invalid(format!("{at}.type"), "a part's type must be output_text or refusal")),
        };
        match part.get(key) {
            Some(Value::String(text)) => check_text(text, &format!("{at}.{key}"))?,
            _ => return Err(Error::invalid(format!("{at}.{key}"), "must be a string")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: Value) -> Result<InitialItems, Error> {
        seeds(serde_json::from_value(list).unwrap())
    }

    #[test]
    fn a_last_user_message_starts_a_turn() {
        let list =
            json!([{"type": "message", "role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]);
        let InitialItems { items, message } = read(list).unwrap();
        assert_eq!((items.len(), message), (2, None));
        assert_eq!(
            items[1],
            InitialItem::Message {
                role: Role::Assistant,
                content: json!([{"type": "output_text", "text": "ho"}])
            }
        );
        let InitialItems { items, message } = read(json!([{"data": {"role": "user", "content": "hi"}}])).unwrap();
        assert!(items.is_empty() && message.is_some());
    }

    #[test]
    fn there_is_a_limit_to_initial_items() {
        let list = |n: usize| Value::from(vec![json!({"role": "assistant", "content": "x"}); n]);
        assert!(read(list(MAX_INITIAL_ITEMS)).is_ok());
        let error = read(list(MAX_INITIAL_ITEMS + 1)).unwrap_err();
        assert_eq!((error.code, error.param.as_deref()), (Code::PayloadTooLarge, Some("initial_items")));
        assert!(error.message.contains("10001") && error.message.contains("10000"), "{}", error.message);
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let cases = [
            (json!({"type": "reasoning"}), "type"),
            (json!({"type": 7, "role": "user", "content": "x"}), "type"),
            (json!({"role": "system", "content": "x"}), "role"),
            (json!({"role": "user", "content": []}), "content"),
            (json!({"role": "user", "content": [{"type": "output_text", "text": "x"}]}), "content[0].type"),
            (json!({"role": "assistant", "content": [{"type": "output_text"}]}), "content[0].text"),
            (json!({"type": "function_call", "call_id": "a b", "name": "x", "arguments": ""}), "call_id"),
            (json!({"type": "function_call", "call_id": "..", "name": "x", "arguments": ""}), "call_id"),
            (json!({"type": "function_call_output", "call_id": ".", "output": "x"}), "call_id"),
            (json!({"type": "function_call", "call_id": "a", "name": "", "arguments": ""}), "name"),
            (json!({"type": "function_call_output", "call_id": "a", "output": {}}), "output"),
            (
                json!({"type": "function_call_output", "call_id": "a",
                    "output": [{"type": "input_file", "file_data": "https://169.254.169.254/"}]}),
                "output[0].file_data",
            ),
            (
                json!({"role": "user", "content": [{"type": "input_file", "file_data": "https://169.254.169.254/"}]}),
                "content[0].file_data",
            ),
        ];
        for (item, param) in cases {
            let error = read(json!([{"role": "user", "content": "x"}, item])).unwrap_err();
            assert_eq!(error.param, Some(format!("initial_items[1].{param}")), "{}", error.message);
        }
    }
}
