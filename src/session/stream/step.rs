//! Steps: what happened, one thing at a time.

use serde::{Deserialize, Serialize};

use super::Cursor;
use crate::session::log::{Failure, Item, Open, Outcome, PartKind, ResponseId, Seconds, Status, TurnHead, Usage};

/// Receives steps in order; a protocol's renderer, for example.
pub trait Sink {
    /// Takes one step. `at` is the position of a reader who has it; steps that greet a new reader have none. A text may
    /// be forwarded in pieces: a reader of its first `n` bytes is at `at` with `from + n` as its `bytes`.
    fn step(&mut self, at: Option<Cursor>, step: Step<'_>);

    /// Size of the output so far, in bytes. A replay stops at its budget.
    fn size(&self) -> usize;
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// The session's status changed.
    Status(SessionStatus),
    /// A message entered the transcript.
    InputConsumed(&'a Item),
    TurnCreated(&'a TurnHead),
    /// The turn is running.
    TurnInProgress(&'a TurnHead),
    /// The model started an output item.
    ItemAdded {
        /// The item. Only the fields known from the start count; it may hold text already.
        open: &'a Open,
        response_id: &'a ResponseId,
        /// The item's index among the turn's output items.
        index: u32,
    },
    Text {
        /// The text that grew.
        part: PartHead<'a>,
        /// Bytes of it that the reader has.
        from: u32,
        text: &'a str,
    },
    /// A text is finished.
    PartDone {
        /// The finished text.
        part: PartHead<'a>,
        text: &'a str,
    },
    /// The model finished an output item.
    ItemDone {
        item: &'a Item,
        /// Its current status. A call is `InProgress`: whether somebody must act on it is known later.
        status: Status,
        /// Its index among the turn's output items.
        index: u32,
    },
    /// A call is parked.
    CallParked {
        call: &'a Item,
        /// Its index among the turn's output items.
        index: u32,
    },
    /// A call is no longer open.
    CallResolved {
        call: &'a Item,
        /// `Completed`, or `Cancelled` if the session resolved it in the client's place.
        status: Status,
        /// The call's index among the turn's output items.
        index: u32,
    },
    /// A call's output entered the transcript.
    OutputAdded {
        item: &'a Item,
        /// Its index among the turn's output items.
        index: u32,
    },
    /// A model request failed and is repeated.
    Retry {
        /// The number of the next attempt.
        attempt: u32,
        /// The delay before it, in seconds.
        delay_seconds: u32,
        /// Why the last one failed.
        error: &'a Failure,
    },
    /// The turn has ended.
    TurnEnded {
        turn: &'a TurnHead,
        outcome: &'a Outcome,
        /// Token usage of its model requests.
        usage: Usage,
        at: Seconds,
        /// Its output items, in log order.
        items: Vec<TurnItem>,
    },
    /// A client interrupted the turn.
    Interrupted {
        turn: &'a TurnHead,
        at: Seconds,
    },
}

/// A text of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartHead<'a> {
    pub item: &'a Open,
    /// The item's index among the turn's output items.
    pub index: u32,
    /// The kind of text.
    pub kind: PartKind,
    /// The text's index within the item; summaries are counted separately from everything else.
    pub number: usize,
}

/// An output item of a turn that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnItem {
    /// The item; without its body if that was left out.
    pub item: Item,
    /// Its status at the end of the turn.
    pub status: Status,
    /// Whether the body is included: the end of a turn carries a limited amount.
    pub whole: bool,
}

/// The session's status, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    Idle,
    /// The model is working.
    Running,
    /// Every open call waits for a client.
    Waiting,
    /// Idle, and the last turn failed.
    Failed,
}
