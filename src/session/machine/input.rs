//! What a session can be told, and why it may say no.

use serde_json::Value;
use thiserror::Error;

use crate::session::log::{
    CallId, Failure, Item, ItemId, Message, PartKind, ResponseId, Role, Seq, Tool, Unreadable, Usage,
};

/// An input.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A user's message.
    Message(NewMessage),
    /// The output of a call.
    Output(ToolOutput),
    /// Take a message back that waits.
    Withdraw(ItemId),
    /// Answer an open call with the word that nobody will.
    Cancel(CallId),
    /// What a new session begins with.
    InitialItems(Vec<InitialItem>),
    /// The session is a copy of another one: whatever was open there is not open here.
    Forked,
    /// Stop the open turn; the queue goes on.
    Interrupt {
        /// The turn that is meant; another one is left alone.
        response_id: Option<ResponseId>,
    },
    /// Stop the open turn and drop the queue.
    Stop,
    /// What the model says.
    Model {
        /// The request that it answers (`Sample::at`).
        at: Seq,
        /// In order.
        events: Vec<ModelEvent>,
    },
    /// The model request is over without an end of its own.
    ModelFailed {
        /// The request (`Sample::at`).
        at: Seq,
        /// Why.
        failure: ModelFailure,
    },
    /// A new instance of the session's object has loaded it: whatever ran before runs no more.
    Recover,
    /// A deadline may have passed.
    Alarm,
}

/// A message as it was posted.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    /// Its content parts.
    pub content: Value,
    /// The client-side tools of its turn.
    pub tools: Vec<Tool>,
    /// The model to use instead of the agent's.
    pub model: Option<String>,
    /// What its turn asks of the model. Nothing that the session reads.
    pub settings: Option<Value>,
    /// What to do when a turn is open.
    pub on_busy: OnBusy,
}

/// What becomes of a message that comes while a turn is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBusy {
    /// It waits for a turn of its own.
    #[default]
    Queue,
    /// It joins the open turn: the model is shown it with the next request.
    Steer,
    /// It stops the open turn first.
    Interrupt,
    /// It is refused.
    Reject,
}

/// An output as it was posted.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// The call.
    pub call_id: CallId,
    /// A string, or content parts. The model gets it unchanged.
    pub output: Value,
    /// Whether it tells why the tool failed.
    pub is_error: bool,
}

/// An item that a session is made with.
#[derive(Clone, Debug, PartialEq)]
pub enum InitialItem {
    /// A message.
    Message {
        /// Who spoke.
        role: Role,
        /// Its content parts.
        content: Value,
    },
    /// A call.
    Call {
        /// Its id.
        call_id: CallId,
        /// The tool.
        name: String,
        /// JSON text.
        arguments: String,
    },
    /// The output of a call before it.
    Output(ToolOutput),
}

/// What the model says, in words common to all providers. Items come one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// An assistant message begins.
    Message,
    /// Reasoning begins.
    Reasoning,
    /// A call begins.
    Call {
        /// The provider's name for it.
        provider_id: String,
        /// The tool.
        name: String,
    },
    /// The item that began last gets more text.
    Text {
        /// What kind.
        kind: PartKind,
        /// Whether it begins a part of its own.
        fresh: bool,
        /// The text.
        text: String,
    },
    /// The item that began last is finished.
    Close {
        /// Provider payload that must be replayed with it.
        payload: Option<Value>,
    },
    /// The response is complete.
    Finish {
        /// Why the model stopped.
        reason: Finish,
        /// What the request used.
        usage: Usage,
    },
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It had said what it wanted. Whether there are calls to answer is seen from the calls.
    Done,
    /// A limit, by the contract's name for it: `max_output_tokens`, `content_filter`.
    Limit(String),
}

/// A model request that went wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFailure {
    /// What clients are told.
    pub failure: Failure,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// When the provider asked to be left alone for a while: how long.
    pub retry_after_seconds: Option<u32>,
}

/// Why an input was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Rejected {
    /// No such call.
    #[error("no call {0} was ever made in this session")]
    UnknownCall(CallId),
    /// The call has another output.
    #[error("call {0} already has a different output; the first answer counts")]
    AlreadyResolved(CallId),
    /// The session answered the call itself.
    #[error("call {0} was cancelled or expired before this output came; the model was told so")]
    CallCancelled(CallId),
    /// A turn is open and the message did not want to wait.
    #[error("turn {response_id} is open{}; post with on_busy queue, steer or interrupt, or wait for it to end", waiting_for(.calls))]
    TurnInProgress {
        /// The open turn.
        response_id: ResponseId,
        /// The calls that it waits for.
        calls: Vec<CallId>,
    },
    /// No such message waits.
    #[error("no message {0} waits in the queue; its turn may have begun")]
    NotQueued(ItemId),
    /// The items that a session was to be made with do not fit together.
    #[error("{why}")]
    Unpaired {
        /// Which of them.
        index: usize,
        /// What is wrong with it.
        why: String,
    },
    /// Too many messages wait.
    #[error("{0} messages wait already, which is the limit; wait for one to be answered")]
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
