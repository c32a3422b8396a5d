//! Characters that a host cut in two.
//!
//! Some hosts count in UTF-16 and cut their deltas between the halves of a character. JSON can say a half (`\ud83d`), Rust
//! text cannot, so each half becomes a stand-in from the last private-use plane until its delta meets the next one. A half
//! that stays alone becomes U+FFFD.

use std::borrow::Cow;

use serde_json::Value;

use super::dialect::Decoder;
use crate::session::{ModelEvent, ModelFailure, PartKind};

/// The stand-in for U+D800; the others follow.
const FIRST: u32 = 0x10_F800;
/// The first byte of every stand-in, and of few other characters.
const LEAD: u8 = 0xF4;

fn stand_in(unit: u32) -> char {
    char::from_u32(FIRST + (unit - 0xD800)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The half that a character stands for.
fn half(c: char) -> Option<u32> {
    u32::from(c).checked_sub(FIRST).map(|n| n + 0xD800)
}

fn is_first_half(c: char) -> bool {
    half(c).is_some_and(|unit| unit < 0xDC00)
}

/// `json` with a stand-in for every unpaired surrogate; `None` if there is none.
pub fn mended(json: &str) -> Option<String> {
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at_checked(at)?;
        mended.push_str(before);
        let pair = (unit(escape), escape.get(6..).and_then(unit));
        let (length, lone) = match pair {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, None),
            (Some(unit @ 0xD800..=0xDFFF), _) => (6, Some(stand_in(unit))),
            (Some(_), _) => (6, None),
            (None, _) => (escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end), None),
        };
        let (escape, after) = escape.split_at_checked(length)?;
        match lone {
            Some(half) => mended.push(half),
            None => mended.push_str(escape),
        }
        rest = after;
    }
    mended.push_str(rest);
    if mended == json { None } else { Some(mended) }
}

/// The code unit of the escape at the start of the text.
fn unit(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// The text with its halves put together.
pub fn joined(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|b| b == LEAD) {
        return Cow::Borrowed(text);
    }
    let mut whole = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(unit) = half(c) else {
            whole.push(c);
            continue;
        };
        let second = chars.peek().and_then(|next| half(*next)).filter(|second| unit < 0xDC00 && *second >= 0xDC00);
        if second.is_some() {
            chars.next();
        }
        let whole_char =
            second.and_then(|second| char::from_u32(0x1_0000 + ((unit - 0xD800) << 10) + (second - 0xDC00)));
        whole.push(whole_char.unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(whole)
}

/// A decoder whose texts have whole characters.
pub struct Joined<D> {
    decoder: D,
    /// The first half of a character that the last text ended with.
    held: Option<(PartKind, char)>,
}

impl<D: Decoder> Joined<D> {
    pub fn new(decoder: D) -> Self {
        Self { decoder, held: None }
    }

    fn take(&mut self, event: ModelEvent, out: &mut Vec<ModelEvent>) {
        match event {
            ModelEvent::Text { kind, fresh, mut text } => {
                if fresh {
                    self.give_up(out);
                }
                if let Some((_, half)) = self.held.take() {
                    text.insert(0, half);
                }
                if let Some(half) = text.chars().next_back().filter(|c| is_first_half(*c)) {
                    text.pop();
                    self.held = Some((kind, half));
                }
                if !text.is_empty() || fresh {
                    out.push(ModelEvent::Text { kind, fresh, text: joined(&text).into_owned() });
                }
            }
            ModelEvent::Rewrite(text) => {
                self.held = None;
                out.push(ModelEvent::Rewrite(joined(&text).into_owned()));
            }
            other => {
                self.give_up(out);
                out.push(whole(other));
            }
        }
    }

    fn give_up(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some((kind, _)) = self.held.take() {
            let text = char::REPLACEMENT_CHARACTER.to_string();
            out.push(ModelEvent::Text { kind, fresh: false, text });
        }
    }

    fn take_all(&mut self, events: Vec<ModelEvent>, out: &mut Vec<ModelEvent>) {
        for event in events {
            self.take(event, out);
        }
    }
}

/// An event without halves in its ids, names and payload.
fn whole(event: ModelEvent) -> ModelEvent {
    let payload = |payload: Option<Value>| payload.map(whole_json);
    match event {
        ModelEvent::Call { provider_id, name } => {
            ModelEvent::Call { provider_id: joined(&provider_id).into_owned(), name: joined(&name).into_owned() }
        }
        ModelEvent::Close { payload: given } => ModelEvent::Close { payload: payload(given) },
        ModelEvent::CloseBefore { payload: given } => ModelEvent::CloseBefore { payload: payload(given) },
        ModelEvent::Payload { item, payload } => ModelEvent::Payload { item, payload: whole_json(payload) },
        other @ (ModelEvent::Origin(_)
        | ModelEvent::Message
        | ModelEvent::Reasoning
        | ModelEvent::Text { .. }
        | ModelEvent::Rewrite(_)
        | ModelEvent::Finish { .. }) => other,
    }
}

fn whole_json(json: Value) -> Value {
    let text = json.to_string();
    match joined(&text) {
        Cow::Borrowed(_) => json,
        Cow::Owned(text) => serde_json::from_str(&text).unwrap_or(json),
    }
}

impl<D: Decoder> Decoder for Joined<D> {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let mut events = Vec::new();
        let pushed = self.decoder.push(bytes, &mut events);
        self.take_all(events, out);
        pushed
    }

    fn is_whole(&self) -> bool {
        self.decoder.is_whole()
    }

    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let mut events = Vec::new();
        let finished = self.decoder.finish(&mut events);
        self.take_all(events, out);
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<String> {
        mended(json).map(|json| serde_json::from_str(&json).unwrap())
    }

    #[test]
    fn half_a_character_costs_only_itself() {
        let mended = |json: &str| read(json).map(|text| joined(&text).into_owned());
        assert_eq!(mended(r#""a\ud83d""#).as_deref(), Some("a\u{fffd}"));
        assert_eq!(mended(r#""\ude42b""#).as_deref(), Some("\u{fffd}b"));
        assert_eq!(mended(r#""\ud83d\ud83d\ude42\ud83d\n""#).as_deref(), Some("\u{fffd}🙂\u{fffd}\n"));
        assert_eq!(mended(r#""\\ud83d \ud83d\u0041""#).as_deref(), Some("\\ud83d \u{fffd}A"));
        for fine in [r#""\ud83d\ude42""#, r#""\\ud83d""#, r#""plain""#, "\"\\", r#""\u12"#] {
            assert_eq!(super::mended(fine), None, "{fine}");
        }
    }

    #[test]
    fn the_halves_of_two_deltas_are_one_character() {
        let halves = [read(r#""a\ud83d""#).unwrap(), read(r#""\ude42b""#).unwrap()];
        assert_eq!(joined(&halves.concat()), "a🙂b");
        assert_eq!(joined("🙂 \u{10ffff}x"), "🙂 \u{fffd}x");
    }
}
