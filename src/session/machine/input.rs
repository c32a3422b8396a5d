//! The inputs of a session, and the reasons to reject them.

use serde_json::Value;
use thiserror::Error;

use crate::session::log::{
    CallId, Failure, Item, ItemId, Lesson, Message, PartKind, ResponseId, Role, Seq, Tool, Unreadable, Usage,
};

#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    Message(NewMessage),
    /// The output of a call.
    Output(ToolOutput),
    /// Withdraw a queued message.
    Withdraw(ItemId),
    /// Resolve an open call with a notice that it was cancelled.
    Cancel(CallId),
    /// The initial items of a new session.
    InitialItems(Vec<InitialItem>),
    /// The session is a fork: whatever was open in the original is not open here.
    Forked,
    /// Stop the open turn; the queue goes on.
    Interrupt {
        /// The turn to stop; an open turn with another id is left alone.
        response_id: Option<ResponseId>,
    },
    /// Stop the open turn and drop the queue.
    Stop,
    /// Output of the model.
    Model {
        /// The request it belongs to (`Sample::at`).
        at: Seq,
        /// In order.
        events: Vec<ModelEvent>,
    },
    /// The model request ended without an end of its own.
    ModelFailed {
        /// The request (`Sample::at`).
        at: Seq,
        failure: ModelFailure,
    },
    /// A new instance of the session's object has loaded it: nothing an earlier instance started is still running.
    Recover,
    /// A deadline may have passed.
    Alarm,
}

/// A message as it was posted.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    pub content: Value,
    /// Client-side tools for its turn.
    pub tools: Vec<Tool>,
    /// Replaces the agent's model for its turn.
    pub model: Option<String>,
    /// Sampling settings of its turn. The session passes them on unread.
    pub settings: Option<Value>,
    /// What to do if a turn is open.
    pub on_busy: OnBusy,
}

/// What happens to a message that arrives while a turn is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBusy {
    /// It is queued and gets a turn of its own.
    #[default]
    Queue,
    /// It joins the open turn: the model sees it with the next request.
    Steer,
    /// It interrupts the open turn first.
    Interrupt,
    Reject,
}

/// An output as it was posted.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    pub call_id: CallId,
    /// A string, or content parts. Passed to the model unchanged.
    pub output: Value,
    /// Whether the output reports an error of the tool.
    pub is_error: bool,
}

/// An item a session is created with.
#[derive(Clone, Debug, PartialEq)]
pub enum InitialItem {
    Message {
        role: Role,
        content: Value,
    },
    Call {
        call_id: CallId,
        name: String,
        /// JSON text.
        arguments: String,
    },
    /// The output of an earlier call in the list.
    Output(ToolOutput),
}

/// Output of the model, in terms common to all providers. Items arrive one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// Its items are that host's, as `Provider::origin` names it. Comes first, if at all.
    Origin(String),
    /// An assistant message starts.
    Message,
    Reasoning,
    Call {
        /// The provider's id of the call.
        provider_id: String,
        name: String,
    },
    /// The item that started last gets more text.
    Text {
        kind: PartKind,
        /// Whether it starts a new part.
        fresh: bool,
        text: String,
    },
    /// The text written last reads so, whatever its deltas said.
    Rewrite(String),
    /// The item that started last is finished.
    Close {
        /// Provider payload to replay with it.
        payload: Option<Value>,
    },
    /// The same, and its payload may come with `Payload`.
    CloseBefore {
        /// Provider payload, unless another comes.
        payload: Option<Value>,
    },
    /// The payload of an item closed with `CloseBefore`.
    Payload {
        /// Its number among the items of the response.
        item: u64,
        payload: Value,
    },
    /// The response is complete.
    Finish {
        /// Why the model stopped.
        reason: Finish,
        /// Token usage of the request.
        usage: Usage,
    },
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It finished on its own. Whether there are calls to resolve follows from the calls themselves.
    Done,
    /// It hit a limit, by the contract's name for it: `max_output_tokens`, `content_filter`.
    Limit(String),
}

/// A failed model request.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFailure {
    /// The error clients see.
    pub failure: Failure,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// How many seconds the provider asked to wait, if it did.
    pub retry_after_seconds: Option<u32>,
    /// What the session can do about it.
    pub remedy: Remedy,
}

/// What a session can do about a failed model request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing.
    #[default]
    None,
    /// Repeat it so.
    Learn(Box<Lesson>),
    /// The host refused what it was shown. If it does so again, repeat it without what is new.
    Withhold {
        /// Whether it is images and files that the host refused.
        media: bool,
    },
}

/// Why an input was rejected. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Rejected {
    #[error("there is no call {0} in this session")]
    UnknownCall(CallId),
    /// The call has a different output.
    #[error("call {0} already has a different output; the first one wins")]
    AlreadyResolved(CallId),
    /// The session resolved the call itself.
    #[error("call {0} was cancelled or has expired; the model has been told")]
    CallCancelled(CallId),
    /// A turn is open and the message asked not to be queued.
    #[error("turn {response_id} is open{}; post with on_busy queue, steer or interrupt, or wait for it to end", waiting_for(.calls))]
    TurnInProgress {
        response_id: ResponseId,
        /// The open calls of that turn.
        calls: Vec<CallId>,
    },
    /// No such message is queued.
    #[error("message {0} is not in the queue; its turn may have started")]
    NotQueued(ItemId),
    /// The initial items are inconsistent.
    #[error("{why}")]
    Unpaired {
        index: usize,
        /// What is wrong with them.
        why: String,
    },
    /// The queue is full.
    #[error("the queue is full ({0} messages); retry after the current turn")]
    QueueFull(usize),
    /// The log cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

fn waiting_for(calls: &[CallId]) -> String {
    if calls.is_empty() {
        return String::new();
    }
    let calls: Vec<&str> = calls.iter().map(CallId::as_str).collect();
    format!(" and waits for the output of {}", calls.join(", "))
}

/// A message and its entry.
impl NewMessage {
    /// The durable form of the message.
    pub fn message(self, item: Item, steers: bool) -> Message {
        Message { item, tools: self.tools, model: self.model, settings: self.settings, steers }
    }
}
