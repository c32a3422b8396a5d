//! `POST /v1/sessions/{id}/events`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::agent::tools;
use super::body::{check_model, object, parse};
use super::outbound::{Reach, check_part_url};
use super::{Code, Error, MAX_TEXT};
use crate::provider::{ResponseFormat, Sampling, ToolChoice};
use crate::session::{CallId, Input, NewMessage, OnBusy, ResponseId, ToolOutput};

/// Fields of a content part that hold a URL.
const ADDRESSES: [&str; 2] = ["image_url", "file_url"];

/// An event a client posts.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub input: Input,
    /// The client's own id of a message.
    pub id: Option<String>,
    /// A message's sampling settings.
    pub sampling: Option<Sampling>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    r#type: String,
    #[serde(default)]
    data: Map<String, Value>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    on_busy: Option<String>,
    #[serde(default)]
    model_override: Option<String>,
    #[serde(default)]
    reasoning_effort: Option<String>,
    #[serde(default)]
    max_output_tokens: Option<u32>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    tool_choice: Option<ToolChoice>,
    #[serde(default)]
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    response_format: Option<ResponseFormat>,
}

impl Envelope {
    /// A key only messages may have, if it is present.
    fn of_messages(&self) -> Option<&'static str> {
        let keys = [
            ("tools", self.tools.is_some()),
            ("on_busy", self.on_busy.is_some()),
            ("model_override", self.model_override.is_some()),
            ("reasoning_effort", self.reasoning_effort.is_some()),
            ("max_output_tokens", self.max_output_tokens.is_some()),
            ("temperature", self.temperature.is_some()),
            ("tool_choice", self.tool_choice.is_some()),
            ("parallel_tool_calls", self.parallel_tool_calls.is_some()),
            ("response_format", self.response_format.is_some()),
        ];
        keys.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageData {
    role: String,
    content: Value,
    #[serde(default)]
    id: Option<String>,
}

#[derive(Deserialize)]
struct OutputData {
    call_id: String,
    output: Value,
    #[serde(default)]
    is_error: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct InterruptData {
    response_id: Option<String>,
}

pub fn command(body: &str) -> Result<Command, Error> {
    let envelope: Envelope = parse(object(body)?, "")?;
    if envelope.r#type != "message"
        && let Some(key) = envelope.of_messages()
    {
        return Err(Error::invalid(key, format!("only a message takes {key}")));
    }
    let input = match envelope.r#type.as_str() {
        "message" => return message(envelope),
        "function_call_output" => {
            let data: OutputData = parse(envelope.data, "data")?;
            let output = output(data.output, "data.output")?;
            Input::Output(ToolOutput { call_id: CallId(data.call_id), output, is_error: data.is_error })
        }
        "interrupt" => {
            let data: InterruptData = parse(envelope.data, "data")?;
            Input::Interrupt { response_id: data.response_id.map(ResponseId) }
        }
        "stop_session" => Input::Stop,
        other => {
            let known = "message, function_call_output, interrupt, stop_session";
            return Err(Error::invalid("type", format!("unknown event type {other:?}; known are {known}")));
        }
    };
    Ok(Command { input, id: None, sampling: None })
}

impl Command {
    /// Rejects images and files at addresses providers must not fetch.
    pub fn check_reach(&self, reach: Reach) -> Result<(), Error> {
        match &self.input {
            Input::Message(posted) => check_urls(&posted.content, "data.content", reach),
            Input::Output(given) => check_urls(&given.output, "data.output", reach),
            _ => Ok(()),
        }
    }
}

/// Rejects content parts with a forbidden URL.
pub fn check_urls(parts: &Value, at: &str, reach: Reach) -> Result<(), Error> {
    for (n, part) in parts.as_array().into_iter().flatten().enumerate() {
        for (key, value) in part.as_object().into_iter().flatten() {
            check_field(key, value, &format!("{at}[{n}].{key}"), reach)?;
        }
    }
    Ok(())
}

/// A part is passed to the provider as posted, so any of its fields may be a URL to some provider.
fn check_field(key: &str, value: &Value, at: &str, reach: Reach) -> Result<(), Error> {
    match (key, value) {
        ("type" | "text" | "refusal" | "filename" | "file_data", _) => Ok(()),
        (_, Value::String(url)) if ADDRESSES.contains(&key) || url.contains("://") => {
            check_part_url(url, reach).map_err(|why| Error::invalid(at, why))
        }
        (_, Value::Array(list)) => list.iter().try_for_each(|value| check_field(key, value, at, reach)),
        (_, Value::Object(fields)) => {
            fields.iter().try_for_each(|(key, value)| check_field(key, value, &format!("{at}.{key}"), reach))
        }
        (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => Ok(()),
    }
}

fn message(envelope: Envelope) -> Result<Command, Error> {
    let data: MessageData = parse(envelope.data, "data")?;
    if data.id.as_ref().is_some_and(|id| !(1..=128).contains(&id.len())) {
        return Err(Error::invalid("data.id", "a message's id has 1 to 128 bytes"));
    }
    if data.role != "user" {
        return Err(Error::invalid("data.role", "only messages of role user can be posted"));
    }
    check_model(envelope.model_override.as_deref())?;
    let on_busy = match envelope.on_busy.as_deref() {
        None | Some("queue") => OnBusy::Queue,
        Some("steer") => OnBusy::Steer,
        Some("interrupt") => OnBusy::Interrupt,
        Some("reject") => OnBusy::Reject,
        Some(_) => return Err(Error::invalid("on_busy", "must be queue, steer, interrupt or reject")),
    };
    let tools = match envelope.tools.filter(|list| !list.is_null()) {
        Some(list) => tools(&list, "tools")?,
        None => Vec::new(),
    };
    let sampling = Sampling {
        reasoning_effort: envelope.reasoning_effort,
        max_output_tokens: envelope.max_output_tokens,
        temperature: envelope.temperature,
        tool_choice: envelope.tool_choice,
        parallel_tool_calls: envelope.parallel_tool_calls,
        response_format: envelope.response_format,
    };
    if let Some((key, why)) = sampling.fault() {
        return Err(Error::invalid(key, why));
    }
    let sampling = Some(sampling).filter(|sampling| *sampling != Sampling::default());
    let posted = NewMessage {
        content: content(data.content)?,
        tools,
        model: envelope.model_override,
        settings: sampling.as_ref().and_then(|sampling| serde_json::to_value(sampling).ok()),
        on_busy,
    };
    Ok(Command { input: Input::Message(posted), id: data.id, sampling })
}

/// A message's content as a list of parts.
fn content(content: Value) -> Result<Value, Error> {
    let parts = match content {
        Value::String(text) => json!([{"type": "input_text", "text": text}]),
        other => other,
    };
    let Some(list) = parts.as_array() else {
        return Err(Error::invalid("data.content", "content must be a string or a list of parts"));
    };
    if list.is_empty() {
        return Err(Error::invalid("data.content", "a message needs content"));
    }
    check_parts(list, "data.content")?;
    Ok(parts)
}

/// An output: a string, or content parts.
pub fn output(output: Value, at: &str) -> Result<Value, Error> {
    match &output {
        Value::String(text) => check_text(text, at)?,
        Value::Array(list) => check_parts(list, at)?,
        _ => return Err(Error::invalid(at, "an output is a string or a list of content parts")),
    }
    Ok(output)
}

/// Rejects content parts a user cannot send.
pub fn check_parts(parts: &[Value], at: &str) -> Result<(), Error> {
    for (n, part) in parts.iter().enumerate() {
        let at = format!("{at}[{n}]");
        let (key, text) = match part.get("type").and_then(Value::as_str) {
            Some("input_text") => ("text", part.get("text")),
            Some("input_image") if part.get("file_id").is_some_and(|id| !id.is_null()) => {
                ("file_id", part.get("file_id"))
            }
            Some("input_image") => ("image_url", part.get("image_url")),
            Some("input_file") => {
                let keys = ["file_data", "file_url", "file_id"];
                let key = keys.into_iter().find(|key| part.get(*key).is_some()).unwrap_or("file_data");
                (key, part.get(key))
            }
            _ => {
                let message = "a part's type must be input_text, input_image or input_file";
                return Err(Error::invalid(format!("{at}.type"), message));
            }
        };
        match text {
            Some(Value::String(text)) => check_text(text, &format!("{at}.{key}"))?,
            _ => return Err(Error::invalid(format!("{at}.{key}"), "must be a string")),
        }
        for key in ["image_url", "file_url", "file_id", "file_data"] {
            if part.get(key).is_some_and(|value| !value.is_string() && !value.is_null()) {
                return Err(Error::invalid(format!("{at}.{key}"), "must be a string"));
            }
        }
        if part.get("file_data").and_then(Value::as_str).is_some_and(|data| !is_data(data)) {
            let message = "must be a data: URL or base64; an address belongs in file_url";
            return Err(Error::invalid(format!("{at}.file_data"), message));
        }
    }
    Ok(())
}

/// Whether a text embeds a file's data and no other reference to a file.
fn is_data(text: &str) -> bool {
    let scheme = text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    let base64 = |b: u8| b.is_ascii_alphanumeric() || b.is_ascii_whitespace() || b"+/-_=".contains(&b);
    scheme || text.bytes().all(base64)
}

/// Rejects a text above the limit.
pub fn check_text(text: &str, at: &str) -> Result<(), Error> {
    if text.len() > MAX_TEXT {
        let message = format!("this text has {} bytes, the limit is {MAX_TEXT}", text.len());
        return Err(Error { param: Some(at.to_string()), ..Error::new(Code::PayloadTooLarge, message) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(body: Value) -> NewMessage {
        match command(&body.to_string()).unwrap().input {
            Input::Message(posted) => posted,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn short_forms_mean_the_same_as_long_ones() {
        let short = json!({"type": "message", "data": {"role": "user", "content": "hi"},
            "tools": [{"type": "function", "name": "look"}]});
        let long = json!({"type": "message", "data": {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            "tools": [{"type": "function", "function": {"name": "look"}}], "on_busy": "queue"});
        assert_eq!(posted(short), posted(long));
    }

    #[test]
    fn an_output_keeps_its_text() {
        let text = " a\r\n\u{2028}\u{0} ";
        let body = json!({"type": "function_call_output", "data": {"call_id": "c", "output": text}});
        let Input::Output(given) = command(&body.to_string()).unwrap().input else { panic!() };
        assert_eq!(given.output, json!(text));
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let tool = json!({"type": "function", "function": {"name": "twin"}});
        let cases = [
            (json!({"data": {}}), None),
            (json!({"type": 7, "data": {}}), Some("type")),
            (json!({"type": "interrupt", "on_busy": "queue"}), Some("on_busy")),
            (json!({"type": "interrupt", "data": {"responseid": "r"}}), Some("data.responseid")),
            (json!({"type": "make_coffee", "data": {}}), Some("type")),
            (json!({"type": "message", "data": {"role": "user"}}), Some("data")),
            (json!({"type": "message", "data": {"role": "wizard", "content": []}}), Some("data.role")),
            (json!({"type": "message", "data": {"role": "user", "content": []}}), Some("data.content")),
            (
                json!({"type": "message", "data": {"role": "user", "content": [{"no": "type"}]}}),
                Some("data.content[0].type"),
            ),
            (json!({"type": "function_call_output", "data": {"call_id": 7, "output": "x"}}), Some("data.call_id")),
            (json!({"type": "function_call_output", "data": {"call_id": "c"}}), Some("data")),
            (
                json!({"type": "function_call_output", "data": {"call_id": "c", "output": {"a": 1}}}),
                Some("data.output"),
            ),
            (json!({"type": "message", "data": {"role": "user", "content": "x"}, "tools": "none"}), Some("tools")),
            (
                json!({"type": "message", "data": {"role": "user", "content": "x"}, "tools": [tool, tool]}),
                Some("tools[1]"),
            ),
            (
                json!({"type": "message", "data": {"role": "user", "content": "x"}, "on_buzy": "queue"}),
                Some("on_buzy"),
            ),
            (
                json!({"type": "message", "data": {"role": "user", "content": "x"}, "model_override": ""}),
                Some("model_override"),
            ),
            (
                json!({"type": "message", "data": {"role": "user", "content": "x"}, "temperature": -1}),
                Some("temperature"),
            ),
        ];
        for (body, param) in cases {
            let error = command(&body.to_string()).unwrap_err();
            assert_eq!(error.code, Code::InvalidInput, "{body}");
            if param.is_some() {
                assert_eq!(error.param.as_deref(), param, "{body}: {}", error.message);
            }
        }
    }

    #[test]
    fn images_are_where_everybody_may_look() {
        let image = |url: &str| json!({"type": "input_image", "image_url": url});
        let body =
            |part: Value| json!({"type": "message", "data": {"role": "user", "content": [part]}}).to_string();
        let check = |url: &str, reach| command(&body(image(url))).unwrap().check_reach(reach);
        assert_eq!(check("data:image/png;base64,AA", Reach::Public), Ok(()));
        assert_eq!(check("https://example.com/a.png", Reach::Public), Ok(()));
        assert_eq!(check("http://127.0.0.1/a.png", Reach::Anywhere), Ok(()));
        for url in
            ["http://127.0.0.1/a.png", "https://169.254.169.254/", "file:///etc/passwd", "https://a.internal/"]
        {
            let error = check(url, Reach::Public).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("data.content[0].image_url"), "{url}");
        }
    }

    #[test]
    fn a_files_data_is_no_address() {
        let commands = |part: &Value| {
            [
                json!({"type": "message", "data": {"role": "user", "content": [part]}}),
                json!({"type": "function_call_output", "data": {"call_id": "c", "output": [part]}}),
            ]
            .map(|body| command(&body.to_string()))
        };
        let file = |data: &str| json!({"type": "input_file", "filename": "a.pdf", "file_data": data});
        for fine in ["data:application/pdf;base64,AAAA", "DATA:text/plain,a", "AAAA/+==", "AA-_\r\nAA", "//uQxAAA"]
        {
            assert!(commands(&file(fine)).iter().all(Result::is_ok), "{fine}");
        }
        for address in
            ["https://169.254.169.254/x", "http:a", "//10.0.0.1/x", " https://a.example.com/a.pdf", "a.b"]
        {
            for (refused, at) in commands(&file(address)).into_iter().zip(["data.content", "data.output"]) {
                assert_eq!(refused.unwrap_err().param, Some(format!("{at}[0].file_data")), "{address}");
            }
        }
    }

    #[test]
    fn no_field_of_a_part_is_an_address_that_nobody_has_looked_at() {
        let address = "http://169.254.169.254/";
        for part in [
            json!({"type": "input_file", "file_id": "f", "file_url": address}),
            json!({"type": "input_file", "file_data": "AAAA", "url": address}),
            json!({"type": "input_image", "file_id": "f", "image_url": address}),
            json!({"type": "input_image", "file_id": "f", "image_url": {"url": address}}),
            json!({"type": "input_text", "text": "x", "image_url": address}),
            json!({"type": "input_text", "text": "x", "source": {"type": "url", "url": [address]}}),
        ] {
            let body = json!({"type": "message", "data": {"role": "user", "content": [part]}}).to_string();
            let checked = command(&body).and_then(|command| command.check_reach(Reach::Public));
            assert_eq!(checked.unwrap_err().code, Code::InvalidInput, "{part}");
        }
        let text = json!({"type": "input_text", "text": address, "note": "no address"});
        let body = json!({"type": "message", "data": {"role": "user", "content": [text]}}).to_string();
        assert_eq!(command(&body).unwrap().check_reach(Reach::Public), Ok(()));
    }

    #[test]
    fn an_output_above_the_limit_says_the_limit_and_the_size() {
        let body =
            json!({"type": "function_call_output", "data": {"call_id": "c", "output": "x".repeat(MAX_TEXT + 1)}});
        let error = command(&body.to_string()).unwrap_err();
        assert_eq!(error.code, Code::PayloadTooLarge);
        assert!(error.message.contains("4194305") && error.message.contains("4194304"), "{}", error.message);
    }
}
