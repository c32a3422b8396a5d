//! The effects of a step.

use super::Alarm;
use crate::session::log::{CallId, ItemId, Record, ResponseId, Seq};

/// The effects of one step, in the order the driver performs them. It publishes what was appended before it sets the
/// alarm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Records to append, together with the new state row, in one synchronous burst.
    pub append: Vec<Record>,
    /// The alarm the session needs from now on; `None` if it needs none.
    pub alarm: Option<Alarm>,
    /// Tasks to abort. Anything they still report is ignored.
    pub stop: Vec<TaskId>,
    /// Tasks to run beside the session. Each reports with inputs that name it.
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

/// Identifies a task among all a session ever starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskId {
    /// The model request with that `Sample::at`.
    Sample(Seq),
}

impl Task {
    pub fn id(&self) -> TaskId {
        match self {
            Task::Sample(Sample { at }) => TaskId::Sample(*at),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The place reserved for its first output item. Identifies the request.
    pub at: Seq,
}

/// The acknowledgement of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// The input did not come from a client.
    #[default]
    None,
    Message {
        item_id: ItemId,
        /// The message's turn.
        response_id: ResponseId,
        /// What happened to it.
        status: MessageStatus,
    },
    /// Of a tool output.
    Output {
        call_id: CallId,
        /// Whether the output is new.
        status: OutputStatus,
        /// Calls of the turn that are still open.
        remaining: usize,
    },
    /// Of a withdrawn message.
    Withdrawn(ItemId),
    /// Of a cancelled call.
    Cancelled {
        call_id: CallId,
        /// Calls of the turn that are still open.
        remaining: usize,
    },
    Interrupt(InterruptStatus),
}

/// What happened to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageStatus {
    /// It started a turn.
    Started,
    /// It is queued.
    Queued,
    /// It will join the open turn.
    Steered,
}

/// Whether an output is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStatus {
    /// It is now the call's output.
    Accepted,
    /// The call already has this very output.
    Duplicate,
}

/// What an interrupt did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptStatus {
    Interrupted,
    /// Nothing: no turn was open.
    Idle,
    /// Nothing: another turn is open.
    Stale,
}
