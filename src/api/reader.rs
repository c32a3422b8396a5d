//! Clients that follow a session: why their streams end, how much may be buffered for one, and how often its object is
//! redialled.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use super::{Error, object};
use crate::session::{Cursor, SessionId};

/// Bytes sent over a WebSocket that its client may leave unacknowledged.
const WINDOW: usize = 4 * 1024 * 1024;
/// Unacknowledged bytes above which the next page of history waits.
const HISTORY: usize = 1024 * 1024;
/// How long history waits for a client's first acknowledgement, in milliseconds.
const PATIENCE: u64 = 2000;
/// Bytes between two marks of a window. An acknowledgement can lag by this much.
const MARK: usize = 16 * 1024;
/// The longest message parsed as an acknowledgement, in bytes.
pub const MAX_ACK: usize = 512;
/// Consecutive dials without progress before a stream ends.
const MAX_FAILURES: u32 = 8;
/// How long a connection must last to count as a success although nothing came over it.
const STABLE: Duration = Duration::from_secs(30);

/// Why a client's stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has disconnected.
    ClientGone,
    /// The session was deleted.
    SessionDeleted,
    /// The stream's token has expired.
    TokenExpired,
    /// The session no longer accepts the token.
    TokenRefused,
    /// The session's object could not be reached.
    Unreachable,
    /// The client's request has used up the subrequests the platform allows.
    RequestLimit,
    /// The client reads too slowly.
    TooSlow,
    /// Too many of the client's messages wait for a reply.
    Flooded,
}

impl End {
    /// How a WebSocket is closed: the code of RFC 6455 or its registry, and a reason of at most 123 bytes.
    pub fn close(self) -> (u16, &'static str) {
        match self {
            End::ClientGone => (1000, ""),
            End::SessionDeleted => (1000, "the session was deleted"),
            End::TokenExpired => (1008, "token expired"),
            End::TokenRefused => (1008, "the token was revoked or has expired"),
            End::Unreachable => (1012, "the session could not be reached: reconnect with the last cursor"),
            End::RequestLimit => (1012, "this connection has reached its limit: reconnect with the last cursor"),
            End::TooSlow => {
                (1013, r#"4 MiB unacknowledged: send {"type":"ack","cursor":…}; reconnect with the last cursor"#)
            }
            End::Flooded => (1013, "too many messages wait for a reply: read the replies, then reconnect"),
        }
    }
}

/// Decides when to redial a stream's object. A dial that succeeds and then makes no progress is a failure, too.
#[derive(Debug, Default)]
pub struct Redial {
    failures: u32,
}

impl Redial {
    /// Records how a connection ended: whether it brought anything, and how long it lasted.
    pub fn ended(&mut self, passed_on: bool, lasted: Duration) {
        if passed_on || lasted >= STABLE {
            self.failures = 0;
        }
    }

    /// The pause before the next dial; `None`: give up.
    pub fn pause(&mut self) -> Option<Duration> {
        self.failures += 1;
        (self.failures <= MAX_FAILURES).then(|| Duration::from_millis(25 << self.failures))
    }
}

/// Data sent over a WebSocket and not yet acknowledged. The platform does not expose how much is still buffered.
#[derive(Debug, Default)]
pub struct Window {
    /// Stream positions, each with the bytes sent since the previous one.
    marks: VecDeque<(Cursor, usize)>,
    /// Bytes sent since the last mark.
    rest: usize,
    /// All unacknowledged bytes.
    waiting: usize,
    /// The last position sent.
    last: Option<Cursor>,
    /// Whether this client sends acknowledgements.
    acknowledges: bool,
    /// When history first had to wait, Unix time in milliseconds.
    waits_since: Option<u64>,
}

impl Window {
    /// Records a message that was sent, and the position after it if it was an event.
    pub fn sent(&mut self, bytes: usize, cursor: Option<Cursor>) {
        self.rest += bytes;
        self.waiting += bytes;
        let Some(cursor) = cursor else { return };
        self.last = Some(cursor);
        match self.marks.back_mut() {
            Some((at, size)) if *size + self.rest <= MARK => {
                *at = cursor;
                *size += self.rest;
            }
            Some(_) | None => self.marks.push_back((cursor, self.rest)),
        }
        self.rest = 0;
    }

    /// Records that the client has handled all events up to `cursor`. Returns whether that position was ever sent.
    pub fn acknowledge(&mut self, cursor: Cursor) -> bool {
        if self.last.is_none_or(|last| cursor > last) {
            return false;
        }
        self.acknowledges = true;
        while let Some((at, size)) = self.marks.front()
            && *at <= cursor
        {
            self.waiting -= size;
            self.marks.pop_front();
        }
        true
    }

    /// Whether the client has left so much unacknowledged that it must be disconnected.
    pub fn is_over(&self) -> bool {
        self.waiting > WINDOW
    }

    /// Whether more history must wait for an acknowledgement. A client that sends none within two seconds is assumed
    /// never to send any.
    pub fn is_full(&mut self, now: u64) -> bool {
        if self.waiting <= HISTORY {
            return false;
        }
        self.acknowledges || now < self.waits_since.get_or_insert(now).saturating_add(PATIENCE)
    }
}

/// Parses a client's message as an acknowledgement; `None` if it is something else.
pub fn ack(text: &str, session: &SessionId) -> Option<Result<Cursor, Error>> {
    if text.len() > MAX_ACK || !text.contains("ack") {
        return None;
    }
    let message = object(text).ok().filter(|message| message.get("type").is_some_and(|kind| kind == "ack"))?;
    let Some(Value::String(cursor)) = message.get("cursor") else {
        return Some(Err(Error::invalid("cursor", "an ack needs the cursor of the last event you have handled")));
    };
    Some(Cursor::parse(cursor, session).map_err(Error::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Seq;

    fn at(seq: u64) -> Cursor {
        Cursor::before(Seq(seq))
    }

    #[test]
    fn every_end_has_a_code_and_a_reason_that_fits_into_a_close_frame() {
        for (end, code) in [
            (End::ClientGone, 1000),
            (End::SessionDeleted, 1000),
            (End::TokenExpired, 1008),
            (End::TokenRefused, 1008),
            (End::Unreachable, 1012),
            (End::RequestLimit, 1012),
            (End::TooSlow, 1013),
            (End::Flooded, 1013),
        ] {
            let (given, reason) = end.close();
            assert_eq!(given, code, "{end:?}");
            assert!(reason.len() <= 123, "{end:?}: {} bytes", reason.len());
            assert_eq!(reason.is_empty(), end == End::ClientGone);
        }
    }

    #[test]
    fn dials_that_achieve_nothing_become_rarer_and_end() {
        let mut redial = Redial::default();
        let mut pauses = Vec::new();
        // Each dial succeeds, and fails at once.
        while let Some(pause) = redial.pause() {
            pauses.push(pause);
            redial.ended(false, Duration::from_millis(1));
            assert!(pauses.len() < 100, "it never gives up");
        }
        assert_eq!(pauses.len(), 8);
        assert!(pauses.is_sorted_by(|a, b| a < b), "{pauses:?}");
    }

    #[test]
    fn a_connection_that_was_of_use_begins_the_count_anew() {
        for (passed_on, lasted) in [(true, 0), (false, 30)] {
            let mut redial = Redial::default();
            let first = redial.pause();
            for _ in 0..100 {
                redial.ended(passed_on, Duration::from_secs(lasted));
                assert_eq!(redial.pause(), first);
            }
        }
    }

    #[test]
    fn a_client_that_never_acknowledges_is_waited_for_once_and_then_gets_a_window() {
        let mut window = Window::default();
        let (mut sent, mut now, mut waited) = (0, 1, 0);
        while !window.is_over() {
            while window.is_full(now) {
                now += 10;
                waited += 10;
            }
            sent += 1;
            window.sent(1000, Some(at(sent)));
        }
        assert_eq!((sent, waited), (4_195, PATIENCE));
    }

    #[test]
    fn acknowledgements_free_what_was_sent_before_them() {
        let mut window = Window::default();
        for n in 1..=2_000 {
            window.sent(1000, Some(at(n)));
        }
        assert!(window.acknowledge(at(1)));
        assert!(window.is_full(0) && window.is_full(1_000_000) && !window.is_over());
        assert!(window.acknowledge(at(1_500)));
        assert!(!window.is_full(0));
        // Between two marks, less is freed than was acknowledged, never more.
        assert!((500_000..500_000 + MARK).contains(&window.waiting), "{}", window.waiting);
        assert!(window.acknowledge(at(2_000)) && window.acknowledge(at(3)));
        assert_eq!((window.waiting, window.marks.len()), (0, 0));
    }

    #[test]
    fn what_has_no_cursor_is_freed_by_the_next_event_that_has_one() {
        let mut window = Window::default();
        window.sent(WINDOW, None);
        window.sent(1, None);
        assert!(window.is_over());
        window.sent(1, Some(at(1)));
        assert!(window.acknowledge(at(1)));
        assert_eq!(window.waiting, 0);
    }

    #[test]
    fn what_was_not_sent_cannot_be_acknowledged() {
        let mut window = Window::default();
        assert!(!window.acknowledge(at(0)));
        window.sent(10, Some(at(1)));
        assert!(!window.acknowledge(at(2)));
        assert_eq!(window.waiting, 10);
    }

    #[test]
    fn a_window_of_small_events_has_few_marks() {
        let mut window = Window::default();
        let mut n = 0;
        while !window.is_over() {
            n += 1;
            window.sent(40, Some(at(n)));
        }
        assert!(n > 100_000 && window.marks.len() < 300, "{} marks for {n} events", window.marks.len());
    }

    #[test]
    fn an_ack_is_told_from_an_event() {
        let session = SessionId(format!("sess_{}", "0".repeat(32)));
        let cursor = at(7).text(&session);
        let read = |text: &str| ack(text, &session);
        assert_eq!(read(&format!(r#"{{"type":"ack","cursor":"{cursor}"}}"#)), Some(Ok(at(7))));
        for event in [
            r#"{"type":"message","data":{"content":"ack"}}"#,
            r#"{"type":"interrupt"}"#,
            r#"{"ack":1}"#,
            r#"["ack"]"#,
            "ack",
            "",
        ] {
            assert_eq!(read(event), None, "{event}");
        }
        for broken in [r#"{"type":"ack"}"#, r#"{"type":"ack","cursor":7}"#, r#"{"type":"ack","cursor":"x"}"#] {
            assert!(matches!(read(broken), Some(Err(_))), "{broken}");
        }
        assert_eq!(read(&format!(r#"{{"type":"ack","cursor":"{}"}}"#, " ".repeat(MAX_ACK))), None);
    }
}
