//! From records and open items to steps.

use self::number::*;
use super::Cursor;
use super::step::{PartHead, SessionStatus, Sink, Step, TurnItem};
use crate::session::log::{
    Entry, Item, Kind, Log, Open, Outcome, PartKind, Record, ResponseId, Seq, Source, Started, Status, Unreadable,
};

/// The limit of the items that the end of a turn carries, in bytes of their bodies.
pub const TURN_ITEMS: usize = 1024 * 1024;

/// Step numbers within a record. Cursors contain them, so a number never changes its meaning; a new step takes a number
/// in between.
pub mod number {
    /// `Started`.
    pub const STARTED_STATUS: u32 = 10;
    /// `Started`.
    pub const STARTED_INPUT: u32 = 20;
    /// `Started`.
    pub const STARTED_CREATED: u32 = 30;
    /// `Started`.
    pub const STARTED_IN_PROGRESS: u32 = 40;
    /// `Steered`.
    pub const STEERED_INPUT: u32 = 20;
    /// `Output`.
    pub const ITEM_ADDED: u32 = 10;
    /// `Output`, or `Called`: the first text, or the first call. The others follow at a distance of `EACH`.
    pub const FIRST: u32 = 100;
    /// Between two texts or calls.
    pub const EACH: u32 = 16;
    /// `Output`: within a text.
    pub const TEXT: u32 = 4;
    /// `Output`: within a text.
    pub const PART_DONE: u32 = 8;
    /// `Output` and `Called`: after all texts or calls.
    pub const LAST: u32 = 1_000_000;
    /// `CallResolved`.
    pub const RESOLVED_CALL: u32 = 10;
    /// `CallResolved`.
    pub const RESOLVED_OUTPUT: u32 = 20;
    /// `CallResolved`.
    pub const RESOLVED_STATUS: u32 = 30;
    /// `Retried`.
    pub const RETRIED: u32 = 10;
    /// `Ended`.
    pub const ENDED_TURN: u32 = 10;
    /// `Ended`.
    pub const ENDED_INTERRUPTED: u32 = 20;
    /// `Ended`.
    pub const ENDED_STATUS: u32 = 30;
}

/// Passes the steps of records and open items to a sink, from a cursor on.
pub struct Feed<'s> {
    sink: &'s mut dyn Sink,
    at: Cursor,
    seq: Seq,
}

impl<'s> Feed<'s> {
    /// A feed for a reader at `from`.
    pub fn new(from: Cursor, sink: &'s mut dyn Sink) -> Self {
        Self { sink, at: from, seq: from.seq }
    }

    /// The position of a reader who has everything so far.
    pub fn at(&self) -> Cursor {
        self.at
    }

    /// Size of what the sink holds, in bytes.
    pub fn size(&self) -> usize {
        self.sink.size()
    }

    pub fn record(&mut self, record: &Record, log: &dyn Log) -> Result<(), Unreadable> {
        if record.seq < self.at.seq {
            return Ok(());
        }
        self.seq = record.seq;
        match &record.entry {
            Entry::Seeded { .. }
            | Entry::Queued(_)
            | Entry::Withdrawn { .. }
            | Entry::Dropped { .. }
            | Entry::Learned { .. }
            | Entry::Withheld { .. }
            | Entry::Note { .. } => {}
            Entry::Started(started) => self.started(started, log)?,
            Entry::Steered { queued, .. } => self.show(STEERED_INPUT, Step::InputConsumed(&log.item(*queued)?)),
            Entry::Output { item, index, .. } => self.output(item, *index),
            Entry::Called { calls, .. } => {
                for (number, call) in numbers().zip(calls).filter(|(_, call)| call.parked) {
                    if self.wants(number) {
                        self.show(number, Step::CallParked { call: &log.item(call.seq)?, index: call.index });
                    }
                }
                if calls.iter().any(|call| call.parked) {
                    self.show(LAST, Step::Status(SessionStatus::Waiting));
                }
            }
            Entry::CallResolved { item, call, index, resumes, .. } => {
                if self.wants(RESOLVED_CALL)
                    && let Entry::Output { item: call, index, .. } = &log.record(*call)?.entry
                {
                    let status = resolved(item);
                    self.show(RESOLVED_CALL, Step::CallResolved { call, status, index: *index });
                }
                self.show(RESOLVED_OUTPUT, Step::OutputAdded { item, index: *index });
                if *resumes {
                    self.show(RESOLVED_STATUS, Step::Status(SessionStatus::Running));
                }
            }
            Entry::Retried { attempt, delay_seconds, error, .. } => {
                let (attempt, delay_seconds) = (*attempt, *delay_seconds);
                self.show(RETRIED, Step::Retry { attempt, delay_seconds, error });
            }
            Entry::Ended { outcome, usage, at, turn, .. } => {
                if self.wants(ENDED_TURN) {
                    let items = turn_items(turn.started, record.seq, log)?;
                    self.show(ENDED_TURN, Step::TurnEnded { turn, outcome, usage: *usage, at: *at, items });
                }
                if *outcome == Outcome::Cancelled {
                    self.show(ENDED_INTERRUPTED, Step::Interrupted { turn, at: *at });
                }
                let failed = matches!(outcome, Outcome::Failed(_));
                let status = if failed { SessionStatus::Failed } else { SessionStatus::Idle };
                self.show(ENDED_STATUS, Step::Status(status));
            }
        }
        Ok(())
    }

    /// Shows the steps of an open item known so far. That the `last` part is done is for its record to show, which
    /// proves it is in the log; a call is not done until it has its output.
    pub fn open(&mut self, seq: Seq, open: &Open, index: u32, response_id: &ResponseId, last: bool) {
        self.seq = seq;
        self.show(ITEM_ADDED, Step::ItemAdded { open, response_id, index });
        self.parts(open, index);
        if open.closed && (open.is_call() || !last) && self.wants(LAST) {
            let status = if open.is_call() { Status::InProgress } else { Status::Completed };
            self.show(LAST, Step::ItemDone { item: &open.item(response_id, status), status, index });
        }
    }

    /// Shows an open item to a reader who joins in the middle of it, without positions.
    pub fn greet(sink: &mut dyn Sink, open: &Open, index: u32, response_id: &ResponseId) {
        sink.step(None, Step::ItemAdded { open, response_id, index });
        for (head, text, _) in heads(open, index).filter(|(_, text, _)| !text.is_empty()) {
            sink.step(None, Step::Text { part: head, from: 0, text });
        }
    }

    fn started(&mut self, started: &Started, log: &dyn Log) -> Result<(), Unreadable> {
        self.show(STARTED_STATUS, Step::Status(SessionStatus::Running));
        match &started.source {
            Source::Message(message) => self.show(STARTED_INPUT, Step::InputConsumed(&message.item)),
            Source::Queued(seq) => self.show(STARTED_INPUT, Step::InputConsumed(&log.item(*seq)?)),
        }
        self.show(STARTED_CREATED, Step::TurnCreated(&started.turn));
        self.show(STARTED_IN_PROGRESS, Step::TurnInProgress(&started.turn));
        Ok(())
    }

    fn output(&mut self, item: &Item, index: u32) {
        let open = Open::of(item);
        self.show(ITEM_ADDED, Step::ItemAdded { open: &open, response_id: &item.response_id, index });
        self.parts(&open, index);
        // The model has finished the call; whether somebody must act on it is known later.
        let status = match (&item.kind, item.status) {
            (Kind::FunctionCall { .. }, Status::Completed) => Status::InProgress,
            (_, status) => status,
        };
        self.show(LAST, Step::ItemDone { item, status, index });
    }

    fn parts(&mut self, open: &Open, index: u32) {
        for (first, (part, text, done)) in numbers().zip(heads(open, index)) {
            self.text(first.saturating_add(TEXT), part, text);
            if done {
                self.show(first.saturating_add(PART_DONE), Step::PartDone { part, text });
            }
        }
    }

    /// Whether the reader lacks that step of the record.
    fn wants(&self, number: u32) -> bool {
        self.position(number) > self.at
    }

    fn position(&self, number: u32) -> Cursor {
        Cursor { seq: self.seq, step: number, bytes: 0 }
    }

    /// Shows a step, unless the reader has it.
    fn show(&mut self, number: u32, step: Step<'_>) {
        if self.wants(number) {
            self.at = self.position(number);
            self.sink.step(Some(self.at), step);
        }
    }

    /// Shows a text of which the reader may have a part.
    fn text(&mut self, number: u32, part: PartHead<'_>, text: &str) {
        let have = if self.at.seq == self.seq && self.at.step == number {
            text.floor_char_boundary(self.at.bytes as usize)
        } else if self.wants(number) {
            0
        } else {
            return;
        };
        let rest = text.get(have..).unwrap_or_default();
        if !rest.is_empty() {
            let bytes = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
            self.at = Cursor { bytes: bytes(text.len()), ..self.position(number) };
            self.sink.step(Some(self.at), Step::Text { part, from: bytes(have), text: rest });
        }
    }
}

/// Takes steps and forgets them.
pub struct Discard;

impl Sink for Discard {
    fn step(&mut self, _: Option<Cursor>, _: Step<'_>) {}

    fn size(&self) -> usize {
        0
    }
}

/// The step numbers of a record's texts or calls.
fn numbers() -> impl Iterator<Item = u32> {
    (FIRST..LAST).step_by(EACH as usize)
}

/// The texts of an item that have started: each with its head, and whether it is finished.
fn heads(open: &Open, index: u32) -> impl Iterator<Item = (PartHead<'_>, &str, bool)> {
    let (mut summaries, mut others) = (0, 0);
    open.parts.iter().map(move |part| {
        let count = if part.kind == PartKind::Summary { &mut summaries } else { &mut others };
        let number = *count;
        *count += 1;
        (PartHead { item: open, index, kind: part.kind, number }, part.text.as_str(), part.closed)
    })
}

/// The call's status once it has this output.
fn resolved(output: &Item) -> Status {
    if output.status == Status::Completed { Status::Completed } else { Status::Cancelled }
}

/// The output items of a turn between two places. Items are whole as long as they fit into `TURN_ITEMS` together,
/// earlier ones first.
fn turn_items(from: Seq, to: Seq, log: &dyn Log) -> Result<Vec<TurnItem>, Unreadable> {
    let mut found: Vec<(Seq, TurnItem)> = Vec::new();
    let mut space = TURN_ITEMS;
    let mut turn_item = |item: Item| {
        let status = item.status;
        match space.checked_sub(item.body.len()) {
            Some(rest) => {
                space = rest;
                TurnItem { item, status, whole: true }
            }
            None => TurnItem { item: Item { body: String::new(), ..item }, status, whole: false },
        }
    };
    let mut next = from;
    while next < to {
        let records = log.records(next, 64)?;
        let Some(last) = records.last() else { break };
        next = last.seq.plus(1);
        for Record { seq, entry } in records.into_iter().filter(|record| record.seq < to) {
            match entry {
                Entry::Output { item, context: true, .. } => found.push((seq, turn_item(item))),
                Entry::CallResolved { item, call, .. } => {
                    let call = found.iter_mut().find(|(seq, _)| *seq == call);
                    if let Some((_, call)) = call.filter(|_| item.status != Status::Completed) {
                        call.status = Status::Cancelled;
                    }
                    found.push((seq, turn_item(item)));
                }
                Entry::Output { .. }
                | Entry::Seeded { .. }
                | Entry::Queued(_)
                | Entry::Withdrawn { .. }
                | Entry::Steered { .. }
                | Entry::Started(_)
                | Entry::Called { .. }
                | Entry::Note { .. }
                | Entry::Dropped { .. }
                | Entry::Retried { .. }
                | Entry::Learned { .. }
                | Entry::Withheld { .. }
                | Entry::Ended { .. } => {}
            }
        }
    }
    Ok(found.into_iter().map(|(_, item)| item).collect())
}
