//! The envelope of every response: an event stream of JSON, or one JSON object from a host that does not stream.

use serde_json::Value;

use super::failure;
use crate::json::{self, ParseError};
use crate::provider::dialect::EVENT_CAP;
use crate::session::ModelFailure;
use crate::sse;

/// One frame of a response.
pub enum Frame {
    /// `[DONE]`.
    Done,
    /// A JSON object. If it has no `type`, it gets the frame's.
    Json(Value),
}

/// Splits a response into frames.
pub struct Frames {
    sse: sse::Decoder,
    /// The whole body, once it is clear that it is not an event stream.
    body: Option<Vec<u8>>,
    begun: bool,
}

impl Frames {
    pub fn new() -> Self {
        Self { sse: sse::Decoder::new(EVENT_CAP), body: None, begun: false }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, ModelFailure> {
        let mut bytes = bytes;
        if !self.begun
            && let Some(first) = bytes.iter().position(|b| !b.is_ascii_whitespace())
        {
            self.begun = true;
            if let Some(rest @ [b'{', ..]) = bytes.get(first..) {
                self.body = Some(Vec::new());
                bytes = rest;
            }
        }
        if let Some(body) = &mut self.body {
            body.extend_from_slice(bytes);
            return if body.len() > EVENT_CAP { Err(failure::too_long(EVENT_CAP)) } else { Ok(Vec::new()) };
        }
        let messages = self.sse.push(bytes).map_err(|e| failure::too_long(e.0))?;
        messages.into_iter().map(frame).collect()
    }

    /// The body has ended: the object it was, if it was one and not an error.
    pub fn finish(&mut self) -> Result<Option<Value>, ModelFailure> {
        let Some(body) = self.body.take() else { return Ok(None) };
        let text = std::str::from_utf8(&body).map_err(|e| failure::corrupt(&e.to_string()))?;
        let body = json::parse_untrusted(text).map_err(|e| failure::unparsed(&e))?;
        let failed = body.get("error").is_some_and(|error| !error.is_null());
        if failed { Err(failure::in_band(&body)) } else { Ok(Some(body)) }
    }
}

fn frame(message: sse::Message) -> Result<Frame, ModelFailure> {
    if message.data.trim() == "[DONE]" {
        return Ok(Frame::Done);
    }
    let parsed = json::parse_untrusted(&message.data).or_else(|e| match (e, mended(&message.data)) {
        (ParseError::Syntax(_), Some(mended)) => json::parse_untrusted(&mended),
        (e, _) => Err(e),
    });
    let mut json = parsed.map_err(|e| failure::unparsed(&e))?;
    if let Some(object) = json.as_object_mut()
        && !message.event.is_empty()
    {
        object.entry("type").or_insert_with(|| message.event.into());
    }
    Ok(Frame::Json(json))
}

/// `json` with a replacement character for every unpaired surrogate; `None` if there is none. Some hosts cut their
/// texts into deltas inside of a pair.
fn mended(json: &str) -> Option<String> {
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at_checked(at)?;
        mended.push_str(before);
        let pair = (unit(escape), escape.get(6..).and_then(unit));
        let (length, whole) = match pair {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, true),
            (Some(0xD800..=0xDFFF), _) => (6, false),
            (Some(_), _) => (6, true),
            (None, _) => (escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end), true),
        };
        let (escape, after) = escape.split_at_checked(length)?;
        mended.push_str(if whole { escape } else { "\\ufffd" });
        rest = after;
    }
    mended.push_str(rest);
    if mended == json { None } else { Some(mended) }
}

/// The code unit of the escape at the start of the text.
fn unit(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzzer: a space before a field makes another field of it, however the bytes are cut.
    #[test]
    fn white_space_at_the_start_counts_wherever_it_is_cut() {
        let body = b" data: {\n\ndata: {}\n\n";
        for cut in 0..body.len() {
            let (one, two) = body.split_at(cut);
            let mut frames = Frames::new();
            let mut all = frames.push(one).unwrap();
            all.extend(frames.push(two).unwrap());
            assert!(matches!(&all[..], [Frame::Json(json)] if json == &serde_json::json!({})), "cut at {cut}");
        }
        for cut in 0..4 {
            let (one, two) = b" \x0c\n{\"a\":1}".split_at(cut);
            let mut frames = Frames::new();
            frames.push(one).unwrap();
            frames.push(two).unwrap();
            assert_eq!(frames.finish().unwrap(), Some(serde_json::json!({"a": 1})));
        }
    }

    #[test]
    fn half_a_character_costs_only_itself() {
        let mended = |json: &str| mended(json).map(|json| serde_json::from_str::<String>(&json).unwrap());
        assert_eq!(mended(r#""a\ud83d""#).as_deref(), Some("a\u{fffd}"));
        assert_eq!(mended(r#""\ude42b""#).as_deref(), Some("\u{fffd}b"));
        assert_eq!(mended(r#""\ud83d\ud83d\ude42\ud83d\n""#).as_deref(), Some("\u{fffd}🙂\u{fffd}\n"));
        assert_eq!(mended(r#""\\ud83d \ud83d\u0041""#).as_deref(), Some("\\ud83d \u{fffd}A"));
        for fine in [r#""\ud83d\ude42""#, r#""\\ud83d""#, r#""plain""#, "\"\\", r#""\u12"#] {
            assert_eq!(super::mended(fine), None, "{fine}");
        }
    }

    #[test]
    fn an_answer_that_would_take_too_much_memory_is_a_failure_that_is_not_tried_again() {
        let bomb = format!("{{\"a\":[{}]}}", vec![r#"{"":0}"#; json::MAX_OBJECTS].join(","));
        let streamed = Frames::new().push(format!("data: {bomb}\n\n").as_bytes()).map(drop);
        let mut frames = Frames::new();
        frames.push(bomb.as_bytes()).unwrap();
        for failed in [streamed, frames.finish().map(drop)] {
            let failed = failed.unwrap_err();
            assert_eq!((failed.failure.code.as_str(), failed.retryable), ("upstream_error", false));
            assert!(failed.failure.message.contains("30001 objects"), "{}", failed.failure.message);
        }
    }

    #[test]
    fn a_delta_with_half_a_character_is_no_corrupt_event() {
        let frames = Frames::new().push(b"data: {\"delta\":\"x \\ud83d\"}\n\n").unwrap();
        assert!(matches!(&frames[..], [Frame::Json(json)] if json["delta"] == "x \u{fffd}"));
        assert!(Frames::new().push(b"data: {\"delta\":\n\n").is_err());
    }
}
