//! Events: what the stream shows, derived from the log.
//!
//! A record always shows the same steps, live and in a replay, because both come from here. An open item shows the steps
//! that its record will show, as far as they are known yet.

use serde::Serialize;
use serde_json::{Value, json};

use super::entry::{Entry, Outcome, Record, Source, Started, TurnHead, Usage};
use super::item::{Kind, Status};
use super::open::{Open, Part};
use super::shape::{
    Consumed, Delta, OfItem, OfResponse, OfSession, Response, added, call_name, number_of, part_done, reopened,
};
use super::{Cursor, Item, Log, ResponseId, Seconds, Seq, SessionId, SessionStatus, Unreadable};

/// The longest text of one delta in a replay, in bytes.
const DELTA: usize = 32 * 1024;

/// One event of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event's type.
    pub kind: &'static str,
    /// The position after it. Events that only greet a new reader have none.
    pub cursor: Option<Cursor>,
    /// One line of JSON, `type` included, without any character that some reader takes for the end of a line.
    pub data: String,
}

impl Event {
    /// An event from its JSON object.
    pub fn new(kind: &'static str, cursor: Option<Cursor>, data: &impl Serialize) -> Self {
        Self { kind, cursor, data: one_line(serde_json::to_string(data).unwrap_or_default()) }
    }

    /// `session.status`.
    pub fn status(session: &SessionId, cursor: Option<Cursor>, status: SessionStatus) -> Self {
        let kind = "session.status";
        Self::new(
            kind,
            cursor,
            &json!({"type": kind, "status": status, "session_id": session, "conversation_id": session}),
        )
    }
}

/// `json` with the line ends escaped that JSON allows in a string: some clients split lines at them.
fn one_line(json: String) -> String {
    if json.is_ascii() {
        return json;
    }
    let ends = [('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029"), ('\u{85}', "\\u0085")];
    // One after the other: a search for several characters decodes every one, a search for one looks for its last byte.
    ends.into_iter().fold(json, |json, (end, escaped)| match json.contains(end) {
        true => json.replace(end, escaped),
        false => json,
    })
}

/// Collects the events of records and open items from a cursor on.
pub struct Feed<'a> {
    session: &'a SessionId,
    /// The position after the last step that was shown or passed over.
    pub at: Cursor,
    /// The events.
    pub events: Vec<Event>,
    /// Their size in bytes.
    pub size: usize,
    step: Cursor,
}

impl<'a> Feed<'a> {
    /// A feed that begins at `from`.
    pub fn new(session: &'a SessionId, from: Cursor) -> Self {
        Self { session, at: from, events: Vec::new(), size: 0, step: from }
    }

    /// Shows a record.
    pub fn record(&mut self, record: &Record, log: &dyn Log) -> Result<(), Unreadable> {
        if record.seq < self.at.seq {
            return Ok(());
        }
        self.step = Cursor::before(record.seq);
        match &record.entry {
            Entry::Seeded { .. }
            | Entry::Queued(_)
            | Entry::Withdrawn { .. }
            | Entry::Dropped { .. }
            | Entry::Note { .. } => {}
            Entry::Started(started) => self.started(started, log)?,
            Entry::Steered { held, .. } => self.consumed(&log.item(*held)?),
            Entry::Output { item, index, .. } => self.output(item, *index),
            Entry::Called { calls, .. } => {
                for call in calls.iter().filter(|call| call.parked) {
                    let item = log.item(call.seq)?;
                    self.item("response.output_item.done", call.index, || item.show(Status::ActionRequired));
                }
                if calls.iter().any(|call| call.parked) {
                    self.status(SessionStatus::Waiting);
                }
            }
            Entry::CallResolved { item, call, index, resumes, .. } => {
                let answered = log.record(*call)?;
                if let Entry::Output { item: call, index, .. } = &answered.entry {
                    let status =
                        if item.status == Status::Completed { Status::Completed } else { Status::Cancelled };
                    self.item("response.output_item.done", *index, || call.show(status));
                }
                self.item("response.output_item.done", *index, || item.show_cut(item.status));
                if *resumes {
                    self.status(SessionStatus::Running);
                }
            }
            Entry::Retried { attempt, delay_seconds, error, .. } => {
                let kind = "response.retry";
                let max_attempts = super::MAX_ATTEMPTS;
                self.event(kind, || {
                    json!({"type": kind, "attempt": attempt, "max_attempts": max_attempts,
                        "delay_seconds": delay_seconds, "error": error, "source": "llm"})
                });
            }
            Entry::Ended { outcome, usage, at, turn } => {
                self.ended(record.seq, outcome, *usage, *at, turn, log)?;
            }
        }
        Ok(())
    }

    /// Shows an open item: of its steps those that are known yet. That the `last` one is done is for its record to show,
    /// which says that it is in the log; a call's is not done until it has its output.
    pub fn open(&mut self, seq: Seq, open: &Open, index: u32, response_id: &ResponseId, last: bool) {
        self.step = Cursor::before(seq);
        self.item("response.output_item.added", index, || added(open, response_id));
        self.parts(open.id.as_str(), index, &open.parts, call_name(&open.opening));
        if open.closed && (open.is_call() || !last) {
            let status = if open.is_call() { Status::InProgress } else { Status::Completed };
            self.item("response.output_item.done", index, || open.item(response_id, status).show(status));
        }
    }

    /// Shows, to a reader who joins in the middle of it, what there is of an open item, in few events and without ids.
    pub fn greet(&mut self, open: &Open, index: u32, response_id: &ResponseId) {
        let kind = "response.output_item.added";
        let data = OfItem { r#type: kind, output_index: index, item: added(open, response_id) };
        self.events.push(Event::new(kind, None, &data));
        for (place, part) in open.parts.iter().enumerate().filter(|(_, part)| !part.text.is_empty()) {
            let delta = Delta::of(part, open.id.as_str(), index, number_of(&open.parts, place), &part.text);
            self.events.push(Event::new(delta.r#type, None, &delta));
        }
    }

    fn started(&mut self, started: &Started, log: &dyn Log) -> Result<(), Unreadable> {
        let held;
        let item = match &started.source {
            Source::Message(message) => &message.item,
            Source::Queued(seq) => {
                held = log.item(*seq)?;
                &held
            }
        };
        self.status(SessionStatus::Running);
        self.consumed(item);
        let response = Response::of(&started.turn, "in_progress");
        for kind in ["response.created", "response.in_progress"] {
            self.event(kind, || OfResponse { r#type: kind, response: &response });
        }
        Ok(())
    }

    fn consumed(&mut self, item: &Item) {
        let (kind, session) = ("session.input.consumed", self.session);
        self.event(kind, || OfSession {
            r#type: kind,
            session_id: session,
            conversation_id: session,
            data: Consumed { item_id: &item.id, r#type: item.type_name(), data: item.data_cut() },
        });
    }

    fn output(&mut self, item: &Item, index: u32) {
        let open = reopened(item);
        self.item("response.output_item.added", index, || added(&open, &item.response_id));
        self.parts(item.id.as_str(), index, &open.parts, call_name(&open.opening));
        // A call has been finished by the model and nothing more; whether somebody has to act on it comes later.
        let status = match (&item.kind, item.status) {
            (Kind::FunctionCall { .. }, Status::Completed) => Status::InProgress,
            (_, status) => status,
        };
        self.item("response.output_item.done", index, || item.show(status));
    }

    fn ended(
        &mut self,
        seq: Seq,
        outcome: &Outcome,
        usage: Usage,
        at: Seconds,
        turn: &TurnHead,
        log: &dyn Log,
    ) -> Result<(), Unreadable> {
        let (kind, status) = match outcome {
            Outcome::Completed => ("response.completed", "completed"),
            Outcome::Incomplete(_) => ("response.incomplete", "incomplete"),
            Outcome::Failed(_) => ("response.failed", "failed"),
            Outcome::Cancelled => ("response.cancelled", "cancelled"),
        };
        let mut response = Response::of(turn, status);
        response.output = log.outputs(turn.started, seq)?;
        response.usage = Some(usage);
        response.completed_at = Some(at);
        match outcome {
            Outcome::Completed | Outcome::Cancelled => {}
            Outcome::Incomplete(reason) => response.incomplete_details = Some(json!({"reason": reason})),
            Outcome::Failed(failure) => response.error = Some(failure),
        }
        self.event(kind, || OfResponse { r#type: kind, response: &response });
        if *outcome == Outcome::Cancelled {
            let (kind, session) = ("session.interrupted", self.session);
            self.event(kind, || {
                json!({"type": kind, "session_id": session, "conversation_id": session,
                    "data": {"response_id": turn.response_id, "requested_at": at}})
            });
        }
        self.status(if matches!(outcome, Outcome::Failed(_)) {
            SessionStatus::Failed
        } else {
            SessionStatus::Idle
        });
        Ok(())
    }

    fn parts(&mut self, item_id: &str, index: u32, parts: &[Part], name: &str) {
        for (place, part) in parts.iter().enumerate() {
            let number = || number_of(parts, place);
            self.text(&part.text, |text| Delta::of(part, item_id, index, number(), text));
            if !part.closed {
                return;
            }
            self.step.step += 1;
            self.step.bytes = 0;
            self.whole(|cursor| {
                let (kind, data) = part_done(part, item_id, index, number(), name);
                Event::new(kind, Some(cursor), &data)
            });
        }
    }

    fn item(&mut self, kind: &'static str, index: u32, item: impl FnOnce() -> Value) {
        self.event(kind, || OfItem { r#type: kind, output_index: index, item: item() });
    }

    fn status(&mut self, status: SessionStatus) {
        let session = self.session;
        self.whole(|cursor| Event::status(session, Some(cursor), status));
    }

    fn event<T: Serialize>(&mut self, kind: &'static str, data: impl FnOnce() -> T) {
        self.whole(|cursor| Event::new(kind, Some(cursor), &data()));
    }

    /// A step that is a whole event. It is made only if it is wanted: of an open item most steps were shown already.
    fn whole(&mut self, event: impl FnOnce(Cursor) -> Event) {
        self.step.step += 1;
        if self.step > self.at {
            self.at = self.step;
            self.push(event(self.step));
        }
    }

    fn push(&mut self, event: Event) {
        self.size += event.data.len();
        self.events.push(event);
    }

    /// A step that is a text, of which the reader may have a part.
    fn text<'t>(&mut self, text: &'t str, delta: impl Fn(&'t str) -> Delta<'t>) {
        let have = if self.at.seq == self.step.seq && self.at.step == self.step.step {
            text.floor_char_boundary(self.at.bytes as usize)
        } else if self.at > self.step {
            return;
        } else {
            0
        };
        let mut rest = text.get(have..).unwrap_or_default();
        let mut bytes = have;
        while !rest.is_empty() {
            let cut = if rest.len() <= DELTA { rest.len() } else { rest.floor_char_boundary(DELTA) };
            let (piece, more) = rest.split_at_checked(cut).unwrap_or((rest, ""));
            rest = more;
            bytes += piece.len();
            self.at = Cursor { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), ..self.step };
            let delta = delta(piece);
            self.push(Event::new(delta.r#type, Some(self.at), &delta));
        }
    }
}
