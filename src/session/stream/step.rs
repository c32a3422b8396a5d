//! Steps: what happened, one thing at a time.

use serde::{Deserialize, Serialize};

use super::Cursor;
use crate::session::log::{Failure, Item, Open, Outcome, PartKind, ResponseId, Seconds, Status, TurnHead, Usage};

/// Receives steps in order: the renderer of a protocol, for example.
pub trait Sink {
    /// Takes one step. `at` is the position of a reader who has it; a step that greets a new reader has none. A text may be
    /// passed on in pieces: a reader of its first `n` bytes stands at `at` with `from + n` as its `bytes`.
    fn step(&mut self, at: Option<Cursor>, step: Step<'_>);

    /// How much it has made of the steps so far, in bytes. A replay stops at its budget.
    fn size(&self) -> usize;
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// The session's status changed.
    Status(SessionStatus),
    /// A message entered the transcript.
    InputConsumed(&'a Item),
    /// A turn began.
    TurnCreated(&'a TurnHead),
    /// The turn is being worked on.
    TurnInProgress(&'a TurnHead),
    /// The model began an output item.
    ItemAdded {
        /// The item. Only what is known from the start counts; it may hold text already.
        open: &'a Open,
        /// The turn.
        response_id: &'a ResponseId,
        /// The item's place among the output items of the turn.
        index: u32,
    },
    /// A text grew.
    Text {
        /// The text that grew.
        part: PartHead<'a>,
        /// Bytes that the reader has of it.
        from: u32,
        /// What follows them.
        text: &'a str,
    },
    /// A text is finished.
    PartDone {
        /// The text that is finished.
        part: PartHead<'a>,
        /// All of it.
        text: &'a str,
    },
    /// The model finished an output item.
    ItemDone {
        /// The item.
        item: &'a Item,
        /// Its status now. A call is `InProgress`: whether somebody has to act on it comes later.
        status: Status,
        /// Its place among the output items of the turn.
        index: u32,
    },
    /// A call waits for a client.
    CallParked {
        /// The call.
        call: &'a Item,
        /// Its place among the output items of the turn.
        index: u32,
    },
    /// A call waits no more.
    CallResolved {
        /// The call.
        call: &'a Item,
        /// `Completed`, or `Cancelled` if the session answered it in the client's place.
        status: Status,
        /// The call's place among the output items of the turn.
        index: u32,
    },
    /// A call's output entered the transcript.
    OutputAdded {
        /// The output.
        item: &'a Item,
        /// Its place among the output items of the turn.
        index: u32,
    },
    /// A model request failed and is made again.
    Retry {
        /// The attempt that comes now.
        attempt: u32,
        /// How long it is put off.
        delay_seconds: u32,
        /// Why the last one failed.
        error: &'a Failure,
    },
    /// The turn is over.
    TurnEnded {
        /// The turn.
        turn: &'a TurnHead,
        /// How it ended.
        outcome: &'a Outcome,
        /// What its model requests used.
        usage: Usage,
        /// When.
        at: Seconds,
        /// Its output items in the order of their places in the log.
        items: Vec<TurnItem>,
    },
    /// A client stopped the turn.
    Interrupted {
        /// The turn.
        turn: &'a TurnHead,
        /// When.
        at: Seconds,
    },
}

/// A text of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartHead<'a> {
    /// The item.
    pub item: &'a Open,
    /// The item's place among the output items of the turn.
    pub index: u32,
    /// The kind of text.
    pub kind: PartKind,
    /// The text's place among those of the item, counted separately for summaries and for everything else.
    pub number: usize,
}

/// An output item of a turn that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnItem {
    /// The item; without its body if it is not whole.
    pub item: Item,
    /// Its status at the end of the turn.
    pub status: Status,
    /// Whether the item fits into the space that the end of a turn has for all of them.
    pub whole: bool,
}

/// The session's status, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// At rest.
    Idle,
    /// The model is at work.
    Running,
    /// Every open call waits for a client.
    Waiting,
    /// At rest, and the last turn failed.
    Failed,
}
