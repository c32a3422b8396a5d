//! Length limits of what a provider sends, apart from texts and arguments, which the session limits.
//!
//! Reasons, names and ids end up in records and state rows that every step reads, so the provider must not decide their
//! length. Every decoder is wrapped in `Bounded`; failure messages are clipped where failures are built.

use crate::provider::dialect::Decoder;
use crate::session::{Finish, ModelEvent, ModelFailure};

/// The longest reason for a limit, in bytes.
const REASON: usize = 64;
/// The longest tool name, in bytes. No offered one has more than 64.
const NAME: usize = 128;
/// The longest call id, in bytes. Long, because some hosts hide a signature in it and require it back.
const ID: usize = 16 * 1024;

/// A decoder with its events clipped.
pub(super) struct Bounded(pub(super) Box<dyn Decoder>);

impl Decoder for Bounded {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let pushed = self.0.push(bytes, out);
        bound(out);
        pushed
    }

    fn is_whole(&self) -> bool {
        self.0.is_whole()
    }

    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let finished = self.0.finish(out);
        bound(out);
        finished
    }
}

/// Clips oversized strings in events.
pub(super) fn bound(events: &mut [ModelEvent]) {
    for event in events {
        match event {
            ModelEvent::Call { provider_id, name } => {
                clip(provider_id, ID);
                clip(name, NAME);
            }
            ModelEvent::Finish { reason: Finish::Limit(reason), .. } => clip(reason, REASON),
            ModelEvent::Origin(_)
            | ModelEvent::Message
            | ModelEvent::Reasoning
            | ModelEvent::Text { .. }
            | ModelEvent::Rewrite(_)
            | ModelEvent::Close { .. }
            | ModelEvent::CloseBefore { .. }
            | ModelEvent::Payload { .. }
            | ModelEvent::Finish { reason: Finish::Done, .. } => {}
        }
    }
}

/// Truncates a text to at most `limit` bytes, between two characters.
pub(super) fn clip(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provider::fixtures::{decode, frames, host, prompt};
    use crate::provider::{Provider, Sampling};

    #[test]
    fn nothing_that_a_provider_says_is_kept_at_any_length() {
        let long = "é".repeat(50_000);
        let call = json!({"type": "function_call", "call_id": long, "name": long, "arguments": "{}"});
        let details = json!({"reason": long});
        let response = json!({"status": "incomplete", "incomplete_details": details, "output": [call]});
        let stream = frames(&[json!({"type": "response.incomplete", "response": response})]);
        let sampling = Sampling::default();
        let (_, decoder) = Provider::OpenAiResponses(host()).ask(&prompt(&[], &sampling)).unwrap();
        let events = decode(Bounded(decoder), &[&stream]).unwrap();
        let ModelEvent::Call { provider_id, name } = &events[0] else { panic!("{:?}", events[0]) };
        assert_eq!((provider_id.len(), name.len()), (ID, NAME));
        let ModelEvent::Finish { reason: Finish::Limit(reason), .. } = &events[3] else {
            panic!("{:?}", events[3])
        };
        assert_eq!(reason, &"é".repeat(32));
        let (_, mut decoder) = Provider::OpenAiChat(host()).ask(&prompt(&[], &sampling)).unwrap();
        let error = frames(&[json!({"error": {"message": long, "code": long}})]);
        let failed = decoder.push(&error, &mut Vec::new()).unwrap_err();
        assert!(failed.failure.message.len() < 4096 && failed.failure.code.len() < 64);
    }
}
