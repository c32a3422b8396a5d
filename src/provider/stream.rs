//! The outside of every dialect's answer: an event stream of JSON, or one JSON object where a host does not stream.

use serde_json::Value;

use super::{EVENT_CAP, failure};
use crate::session::ModelFailure;
use crate::sse;

/// One frame of an answer.
pub enum Frame {
    /// `[DONE]`.
    Done,
    /// A JSON object. Where it does not name its `type`, it has the frame's.
    Json(Value),
}

/// Takes an answer apart.
pub struct Frames {
    sse: sse::Decoder,
    /// The whole body, once it is clear that it is not an event stream.
    body: Option<Vec<u8>>,
    begun: bool,
}

impl Frames {
    /// For one answer.
    pub fn new() -> Self {
        Self { sse: sse::Decoder::new(EVENT_CAP), body: None, begun: false }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, ModelFailure> {
        if !self.begun {
            let Some(first) = bytes.iter().find(|b| !b.is_ascii_whitespace()) else { return Ok(Vec::new()) };
            self.begun = true;
            if *first == b'{' {
                self.body = Some(Vec::new());
            }
        }
        if let Some(body) = &mut self.body {
            body.extend_from_slice(bytes);
            return if body.len() > EVENT_CAP { Err(failure::too_long(EVENT_CAP)) } else { Ok(Vec::new()) };
        }
        let messages = self.sse.push(bytes).map_err(|e| failure::too_long(e.0))?;
        messages.into_iter().map(frame).collect()
    }

    /// The body has ended: the object that it was, if it was one and no error.
    pub fn finish(&mut self) -> Result<Option<Value>, ModelFailure> {
        let Some(body) = self.body.take() else { return Ok(None) };
        let body: Value = serde_json::from_slice(&body).map_err(|e| failure::corrupt(&e.to_string()))?;
        let failed = body.get("error").is_some_and(|error| !error.is_null());
        if failed { Err(failure::in_band(&body)) } else { Ok(Some(body)) }
    }
}

fn frame(message: sse::Message) -> Result<Frame, ModelFailure> {
    if message.data.trim() == "[DONE]" {
        return Ok(Frame::Done);
    }
    let mut json: Value = serde_json::from_str(&message.data).map_err(|e| failure::corrupt(&e.to_string()))?;
    if let Some(object) = json.as_object_mut()
        && !message.event.is_empty()
    {
        object.entry("type").or_insert_with(|| message.event.into());
    }
    Ok(Frame::Json(json))
}
