//! Decodes an event stream from bytes cut anywhere.
//!
//! Always true: every byte is examined once; only the unfinished line and the unfinished event are kept between calls,
//! together never more than the cap.

use thiserror::Error;

/// One event of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The `event` field; empty when there was none.
    pub event: String,
    /// The `data` lines, joined by LF.
    pub data: String,
}

/// A line or an event is longer than the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("one event of the stream is longer than {0} bytes")]
pub struct TooLong(pub usize);

#[derive(Clone, Debug)]
pub struct Decoder {
    cap: usize,
    line: Vec<u8>,
    event: String,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    /// Nothing of the first line has been consumed, so a byte order mark may still be stripped.
    at_start: bool,
}

impl Decoder {
    /// A decoder that rejects events of more than `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            line: Vec::new(),
            event: String::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            at_start: true,
        }
    }

    /// Takes the next bytes, and appends the events that they complete.
    pub fn push(&mut self, bytes: &[u8], messages: &mut Vec<Message>) -> Result<(), TooLong> {
        for piece in bytes.split_inclusive(|b| matches!(b, b'\n' | b'\r')) {
            let (text, end) = match piece.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (piece, None),
            };
            let joined = self.after_cr && text.is_empty() && end == Some(b'\n');
            self.after_cr = end == Some(b'\r');
            if joined {
                continue;
            }
            if self.line.len().saturating_add(text.len()).saturating_add(self.data.len()) > self.cap {
                return Err(TooLong(self.cap));
            }
            match end {
                None => self.line.extend_from_slice(text),
                Some(_) if self.line.is_empty() => messages.extend(self.end_line(text)),
                Some(_) => {
                    let mut line = std::mem::take(&mut self.line);
                    line.extend_from_slice(text);
                    messages.extend(self.end_line(&line));
                }
            }
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8]) -> Option<Message> {
        let mut rest = line;
        if std::mem::take(&mut self.at_start) {
            rest = rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest);
        }
        if rest.is_empty() {
            return self.end_event();
        }
        let (field, value) = match rest.iter().position(|b| *b == b':') {
            Some(colon) => rest.split_at_checked(colon).unwrap_or((rest, b"")),
            None => (rest, b"".as_slice()),
        };
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.event = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Message> {
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        // Decoded only here, where no character can be split.
        let data = String::from_utf8(data).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        std::mem::take(&mut self.has_data).then_some(Message { event, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Message> {
        let mut decoder = Decoder::new(1 << 20);
        let mut messages = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, &mut messages).unwrap();
        }
        messages
    }

    fn message(event: &str, data: &str) -> Message {
        Message { event: event.into(), data: data.into() }
    }

    #[test]
    fn any_cut_gives_the_same_events() {
        let stream =
            "\u{feff}: hello\r\nevent: a\r\ndata: {\"x\":\"北京🙂\"}\r\n\r\ndata:b\rdata: c\r\rdata:  d\n\n"
                .as_bytes();
        let whole = decode(&[stream]);
        assert_eq!(whole, [message("a", "{\"x\":\"北京🙂\"}"), message("", "b\nc"), message("", " d")]);
        for one in 0..=stream.len() {
            for two in one..=stream.len() {
                assert_eq!(
                    decode(&[&stream[..one], &stream[one..two], &stream[two..]]),
                    whole,
                    "cut at {one}, {two}"
                );
            }
        }
        assert_eq!(decode(&stream.iter().map(std::slice::from_ref).collect::<Vec<_>>()), whole);
    }

    #[test]
    fn a_line_end_cut_in_two_is_one_line_end() {
        let events = decode(&[b"data: A\r\n", b"data: B\r", b"\ndata: C\r\n", b"\r\n"]);
        assert_eq!(events, [message("", "A\nB\nC")]);
    }

    #[test]
    fn comments_and_fields_without_meaning_are_no_events() {
        let events = decode(&[b": OPENROUTER PROCESSING\n\n: again\n\nid: 7\nretry: 1\n\nevent: x\n\ndata\n\n"]);
        assert_eq!(events, [message("", "")]);
    }

    #[test]
    fn an_event_above_the_cap_is_refused() {
        let mut decoder = Decoder::new(100);
        assert!(decoder.push(&[b'x'; 90], &mut Vec::new()).is_ok());
        assert_eq!(decoder.push(&[b'x'; 20], &mut Vec::new()), Err(TooLong(100)));
        let mut decoder = Decoder::new(100);
        assert_eq!(decoder.push("data: 0123456789\n".repeat(11).as_bytes(), &mut Vec::new()), Err(TooLong(100)));
    }
}
