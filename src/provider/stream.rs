//! The envelope of every response: an event stream of JSON, or one JSON object from a host that does not stream.

use serde_json::Value;

use super::{failure, halves};
use crate::json::{self, ParseError};
use crate::provider::dialect::{Decoder, EVENT_CAP};
use crate::session::{ModelEvent, ModelFailure};
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
    /// The bytes of a byte order mark at the start.
    mark: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { sse: sse::Decoder::new(EVENT_CAP), body: None, begun: false, mark: 0 }
    }
}

impl Frames {
    /// Takes the next bytes, and hands over the frames that they complete. After an error there are no more.
    pub fn push(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(Frame) -> Result<(), ModelFailure>,
    ) -> Result<(), ModelFailure> {
        let mut bytes = bytes;
        if !self.begun {
            // A byte order mark, or a part of one, says nothing. An event stream takes care of it itself.
            let is_mark = |byte: u8, seen: usize| [0xef, 0xbb, 0xbf].get(seen) == Some(&byte);
            let first = bytes.iter().position(|byte| {
                let mark = is_mark(*byte, self.mark);
                self.mark += usize::from(mark);
                !mark && !byte.is_ascii_whitespace()
            });
            if let Some(first) = first {
                self.begun = true;
                if let Some(rest @ [b'{' | b'[' | b'<', ..]) = bytes.get(first..) {
                    self.body = Some(Vec::new());
                    bytes = rest;
                }
            }
        }
        if let Some(body) = &mut self.body {
            body.extend_from_slice(bytes);
            return if body.len() > EVENT_CAP { Err(failure::too_long(EVENT_CAP)) } else { Ok(()) };
        }
        let mut messages = Vec::new();
        let read = self.sse.push(bytes, &mut messages);
        for message in messages {
            if let Some(frame) = frame(message)? {
                take(frame)?;
            }
        }
        read.map_err(|e| failure::too_long(e.0))
    }

    /// The body has ended: the object it was, if it was one and not an error.
    pub fn finish(&mut self) -> Result<Option<Value>, ModelFailure> {
        let Some(body) = self.body.take() else { return Ok(None) };
        if body.starts_with(b"<") {
            return Err(failure::page());
        }
        let text = std::str::from_utf8(&body).map_err(|e| failure::corrupt(&e.to_string()))?;
        let body = match read(text).map_err(|e| failure::unparsed(&e))? {
            Value::Array(list) => list.into_iter().next().unwrap_or_default(),
            body => body,
        };
        if failure::is_error(&body) { Err(failure::in_band(&body)) } else { Ok(Some(body)) }
    }
}

/// What the frames of one response say, in one dialect.
pub trait Answer: Default {
    /// Takes the next frame.
    fn frame(&mut self, frame: Frame, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure>;

    /// Takes the whole response of a host that does not stream.
    fn body(&mut self, body: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure>;

    /// See `Decoder::is_whole`.
    fn is_whole(&self) -> bool;

    /// Ends an answer that is whole.
    fn end(&mut self, out: &mut Vec<ModelEvent>);

    /// Whether it has ended. It takes nothing more.
    fn is_finished(&self) -> bool;
}

/// The decoder of one response.
#[derive(Default)]
pub struct Streamed<A> {
    frames: Frames,
    answer: A,
}

impl<A: Answer> Streamed<A> {
    pub fn new() -> Self {
        Self::default()
    }
}

impl<A: Answer> Decoder for Streamed<A> {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let Self { frames, answer } = self;
        if answer.is_finished() {
            return Ok(());
        }
        let pushed =
            frames.push(bytes, |frame| if answer.is_finished() { Ok(()) } else { answer.frame(frame, out) });
        if answer.is_finished() {
            return Ok(());
        }
        if pushed.is_err() && answer.is_whole() {
            // Whatever is wrong with what follows a whole answer changes nothing.
            answer.end(out);
            return Ok(());
        }
        pushed
    }

    fn is_whole(&self) -> bool {
        self.answer.is_whole()
    }

    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let Self { frames, answer } = self;
        if !answer.is_finished()
            && let Some(body) = frames.finish()?
        {
            answer.body(&body, out)?;
        }
        if answer.is_whole() {
            answer.end(out);
        }
        if answer.is_finished() { Ok(()) } else { Err(failure::truncated()) }
    }
}

/// A message as a frame; `None` for a sign of life.
fn frame(message: sse::Message) -> Result<Option<Frame>, ModelFailure> {
    let data = message.data.trim();
    if data == "[DONE]" {
        return Ok(Some(Frame::Done));
    }
    if !data.starts_with(['{', '[']) {
        return Ok(None);
    }
    let mut json = read(&message.data).map_err(|e| failure::unparsed(&e))?;
    if let Some(object) = json.as_object_mut()
        && !message.event.is_empty()
        && object.get("type").is_none_or(|kind| !kind.is_string())
    {
        object.insert("type".into(), message.event.into());
    }
    Ok(Some(Frame::Json(json)))
}

fn read(text: &str) -> Result<Value, ParseError> {
    json::parse_untrusted(text).or_else(|e| match (e, halves::mended(text)) {
        (ParseError::Syntax(_), Some(mended)) => json::parse_untrusted(&mended),
        (e, _) => Err(e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(frames: &mut Frames, bytes: &[u8]) -> Result<Vec<Frame>, ModelFailure> {
        let mut all = Vec::new();
        frames.push(bytes, |frame| {
            all.push(frame);
            Ok(())
        })?;
        Ok(all)
    }

    /// Found by the fuzzer: a space before a field makes another field of it, however the bytes are cut.
    #[test]
    fn white_space_at_the_start_counts_wherever_it_is_cut() {
        let body = b" data: {\n\ndata: {}\n\n";
        for cut in 0..body.len() {
            let (one, two) = body.split_at(cut);
            let mut frames = Frames::default();
            let mut all = pushed(&mut frames, one).unwrap();
            all.extend(pushed(&mut frames, two).unwrap());
            assert!(matches!(&all[..], [Frame::Json(json)] if json == &serde_json::json!({})), "cut at {cut}");
        }
        for cut in 0..8 {
            let body: &[u8] = if cut < 4 { b" \x0c\n{\"a\":1}" } else { b"\xef\xbb\xbf{\"a\":1}" };
            let (one, two) = body.split_at(cut % 4);
            let mut frames = Frames::default();
            pushed(&mut frames, one).unwrap();
            pushed(&mut frames, two).unwrap();
            assert_eq!(frames.finish().unwrap(), Some(serde_json::json!({"a": 1})));
        }
    }

    #[test]
    fn an_answer_that_would_take_too_much_memory_is_a_failure_that_is_not_tried_again() {
        let bomb = format!("{{\"a\":[{}]}}", vec![r#"{"":0}"#; json::MAX_OBJECTS].join(","));
        let streamed = pushed(&mut Frames::default(), format!("data: {bomb}\n\n").as_bytes()).map(drop);
        let mut frames = Frames::default();
        pushed(&mut frames, bomb.as_bytes()).unwrap();
        for failed in [streamed, frames.finish().map(drop)] {
            let failed = failed.unwrap_err();
            assert_eq!((failed.failure.code.as_str(), failed.retryable), ("upstream_error", false));
            assert!(failed.failure.message.contains("30001 objects"), "{}", failed.failure.message);
        }
    }

    #[test]
    fn a_delta_with_half_a_character_is_no_corrupt_event() {
        let frames = pushed(&mut Frames::default(), b"data: {\"delta\":\"x \\ud83d\"}\n\n").unwrap();
        assert!(matches!(&frames[..], [Frame::Json(_)]));
        assert!(pushed(&mut Frames::default(), b"data: {\"delta\":\n\n").is_err());
    }

    #[test]
    fn signs_of_life_are_no_events_and_a_page_is_no_answer() {
        let frames =
            pushed(&mut Frames::default(), b"data:\n\nevent: ping\ndata: \n\n: x\n\ndata: ping\n\n").unwrap();
        assert!(frames.is_empty());
        let mut frames = Frames::default();
        pushed(&mut frames, b"<html>x").unwrap();
        assert!(!frames.finish().unwrap_err().failure.message.contains('<'));
    }

    #[test]
    fn what_came_before_an_error_is_kept() {
        let mut seen = 0;
        let broken = Frames::default().push(b"data: {}\n\ndata: {\n\ndata: {}\n\n", |_| {
            seen += 1;
            Ok(())
        });
        assert!(broken.is_err() && seen == 1);
    }
}
