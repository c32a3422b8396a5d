//! What a step asks of its driver, in the order in which the driver performs it.

use super::entry::Record;
use super::{Alarm, CallId, ItemId, ResponseId, Seq};

/// The effects of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Records to append, together with the new state row, in one synchronous burst.
    pub append: Vec<Record>,
    /// The alarm that must be set by then; none: none is needed.
    pub alarm: Option<Alarm>,
    /// Whether the open model request has to be closed at once.
    pub cancel: bool,
    /// A model request to make.
    pub sample: Option<Sample>,
    /// Whether the session's time is over: everything of it has to be erased.
    pub erase: bool,
    /// The answer to whoever gave the input.
    pub answer: Ack,
}

/// A model request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Where its first output item will stand. Names the request: its events come back with it.
    pub at: Seq,
}

/// The answer to an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// Nobody asked.
    #[default]
    None,
    /// To a message.
    Message {
        /// The message's item.
        item_id: ItemId,
        /// The turn that answers it.
        response_id: ResponseId,
        /// What becomes of it.
        status: MessageStatus,
    },
    /// To a tool output.
    Output {
        /// The call.
        call_id: CallId,
        /// Whether it was news.
        status: OutputStatus,
        /// Calls of the turn that still wait.
        remaining: usize,
    },
    /// To a message that was taken back.
    Withdrawn(ItemId),
    /// To a call that was to be cancelled.
    Cancelled {
        /// The call.
        call_id: CallId,
        /// Calls of the turn that still wait.
        remaining: usize,
    },
    /// To an interrupt.
    Interrupt(InterruptStatus),
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageStatus {
    /// Its turn has begun.
    Started,
    /// It waits for its turn.
    Queued,
    /// It joins the open turn.
    Steered,
}

/// Whether an output was news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStatus {
    /// It is the call's output.
    Accepted,
    /// The call has the very same output already.
    Duplicate,
}

/// What an interrupt did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptStatus {
    /// Ended the turn.
    Interrupted,
    /// Nothing: no turn was open.
    Idle,
    /// Nothing: another turn is open.
    Stale,
}
