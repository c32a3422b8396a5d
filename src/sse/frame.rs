//! Frames of our own stream: `event`, `data`, `id`, in this order, one space after each colon, LF only.

/// The orderly end of a stream.
pub const DONE: &str = "data: [DONE]\n\n";

/// Appends one frame. `data` is one line of JSON, so nothing in it can end the line; `kind` and `id` are the session's own.
pub fn frame(out: &mut String, kind: &str, data: &str, id: Option<&str>) {
    out.push_str("event: ");
    out.push_str(kind);
    out.push_str("\ndata: ");
    out.push_str(data);
    if let Some(id) = id {
        out.push_str("\nid: ");
        out.push_str(id);
    }
    out.push_str("\n\n");
}

/// Appends a frame that only moves a reader's last event id.
pub fn id_only(out: &mut String, id: &str) {
    out.push_str("id: ");
    out.push_str(id);
    out.push_str("\n\n");
}

/// One of our own frames, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnFrame<'a> {
    /// The JSON; none in a frame that only moves the last event id.
    pub data: Option<&'a str>,
    pub id: Option<&'a str>,
}

/// Parses frames written by `frame` and `id_only`.
pub fn read_frames(text: &str) -> impl Iterator<Item = OwnFrame<'_>> {
    text.split("\n\n").filter(|frame| !frame.is_empty()).map(|frame| {
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
        OwnFrame { data: field("data: "), id: field("id: ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_order_and_the_spaces_of_the_contract() {
        let mut out = String::new();
        frame(&mut out, "session.status", r#"{"a":"b\nc"}"#, Some("x.1.0.0"));
        frame(&mut out, "session.heartbeat", "{}", None);
        id_only(&mut out, "x.2.0.0");
        let want = "event: session.status\ndata: {\"a\":\"b\\nc\"}\nid: x.1.0.0\n\n\
                    event: session.heartbeat\ndata: {}\n\nid: x.2.0.0\n\n";
        assert_eq!(out, want);
        let read: Vec<_> = read_frames(&out).map(|frame| (frame.data, frame.id)).collect();
        let want = [(Some(r#"{"a":"b\nc"}"#), Some("x.1.0.0")), (Some("{}"), None), (None, Some("x.2.0.0"))];
        assert_eq!(read, want);
    }
}
