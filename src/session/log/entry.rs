//! Entries: the durable records of a session's log.
//!
//! The log is append-only, and what the stream shows is derived from it (`event`), so a record says once what happened.
//! Records are read by older and newer versions of this code at the same time: fields are only ever added, with a default. They
//! are externally tagged and not flattened, so that derived readers do it all and none can forget a variant.

use serde::{Deserialize, Serialize};

use super::{CallId, Item, ItemId, Kind, ResponseId, Seconds, Seq};

/// A record and its place in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub seq: Seq,
    pub entry: Entry,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// An initial item. Shows nothing.
    Seeded {
        /// The message, call or output.
        item: Item,
    },
    /// A message was accepted while a turn was open, and queued. Shows nothing.
    Queued(Message),
    /// A client withdrew a queued message. Shows nothing.
    Withdrawn {
        /// The place of its `Queued` record.
        queued: Seq,
        at: Seconds,
    },
    /// A queued message joined the open turn, just before a model request.
    Steered {
        /// The place of its `Queued` record.
        queued: Seq,
        at: Seconds,
    },
    Started(Started),
    /// An output item of the turn is complete, or will not grow any further.
    Output {
        /// The item: a message, reasoning or a call.
        item: Item,
        /// Its index among the turn's output items.
        index: u32,
        /// Whether the model sees it from now on. A call that was cut off never enters the transcript.
        context: bool,
    },
    /// The model's response is complete and made these calls; its client-side calls are parked from now on.
    Called {
        /// The calls, in the order the model made them.
        calls: Vec<OpenCall>,
        /// Token usage of the model request.
        usage: Usage,
        at: Seconds,
    },
    /// A call got its output.
    CallResolved {
        item: Item,
        /// The place of the call's record.
        call: Seq,
        /// The output's index among the turn's output items.
        index: u32,
        /// Whether this was the turn's last open call, so that the model is asked again.
        resumes: bool,
    },
    /// An item the session itself added: a notice to the model in the user's name, or the error that ended the turn.
    /// Shows nothing.
    Note {
        /// The user-role message, or the error.
        item: Item,
    },
    /// The queue was dropped. Shows nothing.
    Dropped {
        at: Seconds,
    },
    /// A model request failed or was lost, and is repeated.
    Retried {
        /// The number of the next attempt; the first request was attempt 1.
        attempt: u32,
        /// How often a new instance found the session dead at this point of the turn, this time included.
        restarts: u32,
        /// The delay before the attempt, in seconds.
        delay_seconds: u32,
        error: Failure,
        at: Seconds,
    },
    /// A host refused a setting, and the request is repeated without it. Shows nothing.
    Learned {
        lesson: Lesson,
        at: Seconds,
    },
    /// A host refused a request twice: it is repeated without what is new since the last response that succeeded. If
    /// that succeeds, the model is not shown it again. Shows nothing.
    Withheld {
        withheld: Withheld,
        at: Seconds,
    },
    /// The turn has ended.
    Ended {
        outcome: Outcome,
        /// Token usage of all its model requests.
        usage: Usage,
        at: Seconds,
        /// The outcome and everything a reader of the stream needs to know about the turn.
        turn: TurnHead,
        /// Whether it failed because the host refused what it was shown.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
    },
}

/// What a host refuses, so that it is not sent there again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    /// The host, as `Provider::origin` names it.
    pub origin: String,
    pub model: String,
    /// How requests change, in the words of `provider::compat`.
    pub change: String,
}

/// Users' messages and outputs of calls that the model is shown a placeholder for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    /// The place of the first.
    pub from: Seq,
    /// The place of the last.
    pub to: Seq,
    /// Whether images and files are withheld, and the texts beside them are not.
    pub media: bool,
}

/// A message and the parameters of its turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub item: Item,
    /// Client-side tools posted with the message, available during its turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Replaces the agent's model for this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sampling settings of the turn. The session passes them on unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<serde_json::Value>,
    /// Whether to join the open turn instead of starting one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steers: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    pub turn: TurnHead,
    /// The message that it answers.
    pub source: Source,
}

/// Where the message that started a turn is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Message(Box<Message>),
    /// In the `Queued` record at that place.
    Queued(Seq),
}

/// The fields all records of one turn share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnHead {
    pub response_id: ResponseId,
    /// The model of the turn.
    pub model: String,
    /// When the turn began.
    pub created_at: Seconds,
    /// The place of its `Started` record.
    pub started: Seq,
}

/// A client-side tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// The description the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON schema of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<serde_json::Value>,
    /// Whether arguments must conform to the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Seconds until a call of this tool expires; overrides the agent's value. Not sent to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_timeout_s: Option<u64>,
}

/// A call without an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The place of its item in the log.
    pub seq: Seq,
    pub item_id: ItemId,
    /// The call's id, as clients know it.
    pub call_id: CallId,
    /// The provider's own id of the call, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    pub name: String,
    /// Its index among the turn's output items.
    pub index: u32,
    /// When the model made the call.
    pub created_at: Seconds,
    /// When the call expires; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Seconds>,
    /// Whether a client must resolve it. The session resolves other calls itself, at once.
    pub parked: bool,
}

impl OpenCall {
    /// The id the provider uses for the call.
    pub fn provider_id(&self) -> &str {
        self.provider_id.as_deref().unwrap_or(self.call_id.as_str())
    }
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed,
    /// The model stopped early, for example at its output limit.
    Incomplete(String),
    /// The turn failed.
    Failed(Failure),
    /// A client interrupted it.
    Cancelled,
}

impl Outcome {
    /// The outcome's name in the contract.
    pub fn status(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Incomplete(_) => "incomplete",
            Outcome::Failed(_) => "failed",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// An error: a code for programs and a message for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// A code from the contract, such as `upstream_error`.
    pub code: String,
    /// What happened; never contains secrets.
    pub message: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    pub total_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cached_tokens: u64,
    /// Output tokens spent on reasoning.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Adds the usage of another request.
    pub fn add(&mut self, more: Usage) {
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.total_tokens = self.total_tokens.saturating_add(more.total_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(more.cached_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(more.reasoning_tokens);
    }
}

impl Usage {
    /// The difference `self - other`, field by field.
    pub fn less(self, other: Usage) -> Usage {
        Usage {
            input_tokens: self.input_tokens.saturating_sub(other.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(other.output_tokens),
            total_tokens: self.total_tokens.saturating_sub(other.total_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(other.cached_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(other.reasoning_tokens),
        }
    }
}

impl Entry {
    /// The place of the `Queued` record whose message enters the transcript with this record.
    pub fn queued(&self) -> Option<Seq> {
        match self {
            Entry::Started(Started { source: Source::Queued(queued), .. }) | Entry::Steered { queued, .. } => {
                Some(*queued)
            }
            Entry::Seeded { .. }
            | Entry::Queued(_)
            | Entry::Withdrawn { .. }
            | Entry::Started(_)
            | Entry::Output { .. }
            | Entry::Called { .. }
            | Entry::CallResolved { .. }
            | Entry::Note { .. }
            | Entry::Dropped { .. }
            | Entry::Retried { .. }
            | Entry::Learned { .. }
            | Entry::Withheld { .. }
            | Entry::Ended { .. } => None,
        }
    }

    /// The item this record adds to the transcript or to the queue.
    pub fn item(&self) -> Option<&Item> {
        match self {
            Entry::Queued(message) => Some(&message.item),
            Entry::Started(Started { source: Source::Message(message), .. }) => Some(&message.item),
            Entry::Seeded { item }
            | Entry::Output { item, .. }
            | Entry::CallResolved { item, .. }
            | Entry::Note { item } => Some(item),
            Entry::Started(_)
            | Entry::Withdrawn { .. }
            | Entry::Steered { .. }
            | Entry::Called { .. }
            | Entry::Dropped { .. }
            | Entry::Retried { .. }
            | Entry::Learned { .. }
            | Entry::Withheld { .. }
            | Entry::Ended { .. } => None,
        }
    }

    /// The same item, mutable: storage puts its body in place.
    pub fn item_mut(&mut self) -> Option<&mut Item> {
        match self {
            Entry::Queued(message) => Some(&mut message.item),
            Entry::Started(Started { source: Source::Message(message), .. }) => Some(&mut message.item),
            Entry::Seeded { item }
            | Entry::Output { item, .. }
            | Entry::CallResolved { item, .. }
            | Entry::Note { item } => Some(item),
            Entry::Started(_)
            | Entry::Withdrawn { .. }
            | Entry::Steered { .. }
            | Entry::Called { .. }
            | Entry::Dropped { .. }
            | Entry::Retried { .. }
            | Entry::Learned { .. }
            | Entry::Withheld { .. }
            | Entry::Ended { .. } => None,
        }
    }

    /// Whether the model sees the record's item.
    pub fn in_context(&self) -> bool {
        match self {
            Entry::Output { context, .. } => *context,
            Entry::Note { item } => item.kind != Kind::Error,
            Entry::Seeded { .. } | Entry::Started(_) | Entry::Steered { .. } | Entry::CallResolved { .. } => true,
            Entry::Queued(_)
            | Entry::Withdrawn { .. }
            | Entry::Called { .. }
            | Entry::Dropped { .. }
            | Entry::Retried { .. }
            | Entry::Learned { .. }
            | Entry::Withheld { .. }
            | Entry::Ended { .. } => false,
        }
    }

    /// The call the record's item makes or resolves.
    pub fn call_id(&self) -> Option<&CallId> {
        self.item().and_then(Item::call_id)
    }

    /// The id of the record's item.
    pub fn item_id(&self) -> Option<&ItemId> {
        self.item().map(|item| &item.id)
    }
}
