//! Cursors: positions in what a session's stream shows.
//!
//! A record shows itself in *steps*: whole events, and texts that may be cut between any two characters. A cursor says
//! how much a reader has: everything before record `seq`, `step` whole steps of that record, and `bytes` bytes of the
//! next step's text. Deltas need no storage of their own, since an item's text is stored anyway.

use std::fmt;

use thiserror::Error;

use crate::session::log::{Seq, SessionId};

/// A position in the stream. Later positions compare greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The next record, or the record the reader has in part.
    pub seq: Seq,
    /// Number of its steps that the reader has in full.
    pub step: u32,
    /// Bytes of the next step's text that the reader has.
    pub bytes: u32,
}

impl Cursor {
    /// Before everything.
    pub const START: Cursor = Cursor { seq: Seq(0), step: 0, bytes: 0 };

    /// Just before a record.
    pub fn before(seq: Seq) -> Self {
        Cursor { seq, step: 0, bytes: 0 }
    }

    /// The cursor in the form clients hold, tagged with this session.
    pub fn text(self, session: &SessionId) -> String {
        Tagged { cursor: self, session }.to_string()
    }

    /// Parses a cursor of this session; `start` is the beginning of the log.
    pub fn parse(text: &str, session: &SessionId) -> Result<Self, Malformed> {
        if text == "start" {
            return Ok(Self::START);
        }
        let mut parts = text.split('.');
        let (tag, seq, step, bytes) =
            (parts.next(), number(parts.next()), number(parts.next()), number(parts.next()));
        let (Some(tag), Some(seq), Some(step), Some(bytes), None) = (tag, seq, step, bytes, parts.next()) else {
            return Err(Malformed::Form);
        };
        if tag != tag_of(session) {
            return Err(Malformed::Foreign);
        }
        let (Ok(step), Ok(bytes)) = (u32::try_from(step), u32::try_from(bytes)) else {
            return Err(Malformed::Form);
        };
        Ok(Cursor { seq: Seq(seq), step, bytes })
    }
}

/// Why a text is not a cursor of this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Not the form of a cursor.
    #[error("malformed cursor: use an event id, a snapshot's or response's `cursor`, or `start`")]
    Form,
    #[error("this cursor belongs to another session")]
    Foreign,
    /// A position this session has not reached.
    #[error("this cursor is ahead of the session's stream")]
    Future,
}

struct Tagged<'a> {
    cursor: Cursor,
    session: &'a SessionId,
}

impl fmt::Display for Tagged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cursor { seq, step, bytes } = self.cursor;
        write!(f, "{}.{}.{step}.{bytes}", tag_of(self.session), seq.0)
    }
}

/// The random tail of the session's id.
fn tag_of(session: &SessionId) -> &str {
    let id = session.as_str();
    id.get(id.len().saturating_sub(6)..).unwrap_or(id)
}

fn number(text: Option<&str>) -> Option<u64> {
    let text = text?;
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionId {
        SessionId("sess_0123456789abcdef".into())
    }

    #[test]
    fn a_cursor_survives_the_way_to_a_client_and_back() {
        let cursor = Cursor { seq: Seq(7), step: 3, bytes: 4096 };
        assert_eq!(Cursor::parse(&cursor.text(&session()), &session()), Ok(cursor));
        assert_eq!(Cursor::parse("start", &session()), Ok(Cursor::START));
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for text in [
            "",
            "7",
            "abcdef.1.2",
            "abcdef.1.2.3.4",
            "abcdef.-1.0.0",
            "abcdef.01.0.0",
            "abcdef.1.x.0",
            "abcdef.1.99999999999.0",
        ] {
            assert_eq!(Cursor::parse(text, &session()), Err(Malformed::Form), "{text}");
        }
        assert_eq!(Cursor::parse("000000.1.0.0", &session()), Err(Malformed::Foreign));
    }

    #[test]
    fn later_is_greater() {
        let at = |seq, step, bytes| Cursor { seq: Seq(seq), step, bytes };
        let order = [Cursor::START, at(1, 0, 0), at(1, 1, 0), at(1, 1, 9), at(1, 2, 0), Cursor::before(Seq(2))];
        assert!(order.is_sorted());
    }
}
