//! What a step asks of its driver.

use super::Alarm;
use crate::session::log::{CallId, ItemId, Record, ResponseId, Seq};

/// The effects of one step, in the order in which the driver performs them. It publishes what was appended before it sets
/// the alarm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Records to append, together with the new state row, in one synchronous burst.
    pub append: Vec<Record>,
    /// The alarm the session needs from now on; `None` if it needs none.
    pub alarm: Option<Alarm>,
    /// Tasks to abort. What they still report changes nothing.
    pub stop: Vec<TaskId>,
    /// Tasks to run beside the session. Each reports its results as inputs that name it.
    pub start: Vec<Task>,
    /// The reply to the sender of the input.
    pub ack: Ack,
}

/// Work that takes time and runs beside the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A model request, reported by `Input::Model` and `Input::ModelFailed`.
    Sample(Sample),
}

/// Names a task among all that a session ever starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskId {
    /// The model request with that `Sample::at`.
    Sample(Seq),
}

impl Task {
    /// The task's name.
    pub fn id(&self) -> TaskId {
        match self {
            Task::Sample(Sample { at }) => TaskId::Sample(*at),
        }
    }
}

/// A model request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The place in the log reserved for its first output item. Names the request.
    pub at: Seq,
}

/// The reply to an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// The input was not a client's.
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
        /// Whether the output is new.
        status: OutputStatus,
        /// Calls of the turn that still wait.
        remaining: usize,
    },
    /// To a message that was withdrawn.
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

/// Whether an output is new.
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
