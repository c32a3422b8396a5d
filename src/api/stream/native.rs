//! The native grammar: one event per step, except that a long text becomes several deltas.

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::item;
use crate::session::{
    Cursor, Failure, Item, ItemId, MAX_ATTEMPTS, Open, Outcome, PartHead, PartKind, ResponseId, Seconds,
    SessionId, SessionStatus, Sink, Status, Step, TurnHead, Usage,
};

/// The longest text in one delta, in bytes.
const DELTA: usize = 32 * 1024;

/// One event of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: &'static str,
    /// The position after it. Events that only greet a new reader have none.
    pub cursor: Option<Cursor>,
    /// One line of JSON, `type` included, without characters that some readers treat as a line end.
    pub data: String,
}

pub struct Native {
    session: SessionId,
    /// The events so far.
    pub events: Vec<Event>,
    size: usize,
}

impl Native {
    /// An empty renderer for that session.
    pub fn new(session: SessionId) -> Self {
        Self { session, events: Vec::new(), size: 0 }
    }

    fn push(&mut self, kind: &'static str, cursor: Option<Cursor>, data: &impl Serialize) {
        let data = one_line(serde_json::to_string(data).unwrap_or_default());
        self.size += data.len();
        self.events.push(Event { kind, cursor, data });
    }

    fn item(&mut self, kind: &'static str, cursor: Option<Cursor>, output_index: u32, item: Value) {
        self.push(kind, cursor, &OfItem { r#type: kind, output_index, item });
    }

    fn done(&mut self, cursor: Option<Cursor>, output_index: u32, item: &Item, status: Status) {
        self.item("response.output_item.done", cursor, output_index, item::flat_cut(item, status));
    }

    fn response(&mut self, kind: &'static str, cursor: Option<Cursor>, response: &Response<'_>) {
        self.push(kind, cursor, &OfResponse { r#type: kind, response });
    }

    fn status(&mut self, cursor: Option<Cursor>, status: SessionStatus) {
        let (kind, session) = ("session.status", &self.session);
        let data = json!({"type": kind, "status": status, "session_id": session, "conversation_id": session});
        self.push(kind, cursor, &data);
    }

    fn consumed(&mut self, cursor: Option<Cursor>, item: &Item) {
        let (kind, session) = ("session.input.consumed", self.session.clone());
        let data =
            Consumed { item_id: &item.id, r#type: item::type_name(item), data: item::data_cut(item).into() };
        let data = OfSession { r#type: kind, session_id: &session, conversation_id: &session, data };
        self.push(kind, cursor, &data);
    }

    fn text(&mut self, cursor: Option<Cursor>, part: PartHead<'_>, from: u32, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let cut = if rest.len() <= DELTA { rest.len() } else { rest.floor_char_boundary(DELTA) };
            let (piece, more) = rest.split_at_checked(cut).unwrap_or((rest, ""));
            rest = more;
            let read = u32::try_from(text.len() - rest.len()).unwrap_or(u32::MAX);
            let delta = Delta::of(part, piece);
            self.push(delta.r#type, cursor.map(|at| Cursor { bytes: from.saturating_add(read), ..at }), &delta);
        }
    }

    fn part_done(&mut self, cursor: Option<Cursor>, part: PartHead<'_>, text: &str) {
        let (kind, number, text_key) = match part.kind {
            PartKind::Text => ("response.output_text.done", "content_index", "text"),
            PartKind::Refusal => ("response.refusal.done", "content_index", "refusal"),
            PartKind::Summary => ("response.reasoning_summary_text.done", "summary_index", "text"),
            PartKind::Reasoning => ("response.reasoning_text.done", "content_index", "text"),
            PartKind::Arguments => {
                let kind = "response.function_call_arguments.done";
                let data = json!({"type": kind, "item_id": part.item.id, "output_index": part.index,
                    "name": part.item.tool(), "arguments": text});
                return self.push(kind, cursor, &data);
            }
        };
        let data = json!({"type": kind, "item_id": part.item.id, "output_index": part.index,
            number: part.number, text_key: text});
        self.push(kind, cursor, &data);
    }
}

impl Sink for Native {
    fn step(&mut self, at: Option<Cursor>, step: Step<'_>) {
        match step {
            Step::Status(status) => self.status(at, status),
            Step::InputConsumed(item) => self.consumed(at, item),
            Step::TurnCreated(turn) => {
                self.response("response.created", at, &Response::of(turn, "in_progress"));
            }
            Step::TurnInProgress(turn) => {
                self.response("response.in_progress", at, &Response::of(turn, "in_progress"));
            }
            Step::ItemAdded { open, response_id, index } => {
                // As it was when it opened: empty.
                let empty = Open::new(open.id.clone(), open.created_at, open.opening.clone(), None);
                let item = empty.item(response_id, Status::InProgress);
                self.item("response.output_item.added", at, index, item::flat(&item, item.status));
            }
            Step::Text { part, from, text } => self.text(at, part, from, text),
            Step::PartDone { part, text } => self.part_done(at, part, text),
            Step::ItemDone { item, status, index } => self.done(at, index, item, status),
            Step::CallParked { call, index } => self.done(at, index, call, Status::ActionRequired),
            Step::CallResolved { call, status, index } => self.done(at, index, call, status),
            Step::OutputAdded { item, index } => self.done(at, index, item, item.status),
            Step::Retry { attempt, delay_seconds, error } => {
                let kind = "response.retry";
                let data = json!({"type": kind, "attempt": attempt, "max_attempts": MAX_ATTEMPTS,
                    "delay_seconds": delay_seconds, "error": error, "source": "llm"});
                self.push(kind, at, &data);
            }
            Step::TurnEnded { turn, outcome, usage, at: completed_at, items } => {
                let kind = match outcome {
                    Outcome::Completed => "response.completed",
                    Outcome::Incomplete(_) => "response.incomplete",
                    Outcome::Failed(_) => "response.failed",
                    Outcome::Cancelled => "response.cancelled",
                };
                let shown = items.iter().map(|shown| match shown.whole {
                    true => item::flat(&shown.item, shown.status),
                    false => item::reference(&shown.item, shown.status),
                });
                let mut response = Response::of(turn, outcome.status());
                response.output = shown.collect();
                response.usage = Some(usage);
                response.completed_at = Some(completed_at);
                match outcome {
                    Outcome::Completed | Outcome::Cancelled => {}
                    Outcome::Incomplete(reason) => response.incomplete_details = Some(json!({"reason": reason})),
                    Outcome::Failed(failure) => response.error = Some(failure),
                }
                self.response(kind, at, &response);
            }
            Step::Interrupted { turn, at: requested_at } => {
                let (kind, session) = ("session.interrupted", &self.session);
                let data = json!({"type": kind, "session_id": session, "conversation_id": session,
                    "data": {"response_id": turn.response_id, "requested_at": requested_at}});
                self.push(kind, at, &data);
            }
        }
    }

    fn size(&self) -> usize {
        self.size
    }
}

/// `json` with the line separators escaped that JSON allows in a string: some clients split lines at them.
fn one_line(json: String) -> String {
    if json.is_ascii() {
        return json;
    }
    let ends = [('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029"), ('\u{85}', "\\u0085")];
    // One by one: searching for a set decodes every character, searching for one uses memchr.
    ends.into_iter().fold(json, |json, (end, escaped)| match json.contains(end) {
        true => json.replace(end, escaped),
        false => json,
    })
}

// Written out as they are: `json!` would copy all that is in them first.

#[derive(Serialize)]
struct OfItem {
    r#type: &'static str,
    output_index: u32,
    item: Value,
}

#[derive(Serialize)]
struct OfResponse<'a> {
    r#type: &'static str,
    response: &'a Response<'a>,
}

#[derive(Serialize)]
struct OfSession<'a> {
    r#type: &'static str,
    session_id: &'a SessionId,
    conversation_id: &'a SessionId,
    data: Consumed<'a>,
}

#[derive(Serialize)]
struct Consumed<'a> {
    item_id: &'a ItemId,
    r#type: &'static str,
    data: Value,
}

#[derive(Serialize)]
struct Response<'a> {
    id: &'a ResponseId,
    object: &'static str,
    status: &'static str,
    model: &'a str,
    output: Vec<Value>,
    usage: Option<Usage>,
    error: Option<&'a Failure>,
    incomplete_details: Option<Value>,
    created_at: Seconds,
    completed_at: Option<Seconds>,
}

impl<'a> Response<'a> {
    fn of(turn: &'a TurnHead, status: &'static str) -> Self {
        Self {
            id: &turn.response_id,
            object: "response",
            status,
            model: &turn.model,
            output: Vec::new(),
            usage: None,
            error: None,
            incomplete_details: None,
            created_at: turn.created_at,
            completed_at: None,
        }
    }
}

#[derive(Serialize)]
struct Delta<'a> {
    r#type: &'static str,
    item_id: &'a str,
    output_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_index: Option<usize>,
    delta: &'a str,
}

impl<'a> Delta<'a> {
    fn of(part: PartHead<'a>, delta: &'a str) -> Self {
        let (r#type, content_index, summary_index) = match part.kind {
            PartKind::Text => ("response.output_text.delta", Some(part.number), None),
            PartKind::Refusal => ("response.refusal.delta", Some(part.number), None),
            PartKind::Arguments => ("response.function_call_arguments.delta", None, None),
            PartKind::Summary => ("response.reasoning_summary_text.delta", None, Some(part.number)),
            PartKind::Reasoning => ("response.reasoning_text.delta", Some(part.number), None),
        };
        let item_id = part.item.id.as_str();
        Self { r#type, item_id, output_index: part.index, content_index, summary_index, delta }
    }
}
