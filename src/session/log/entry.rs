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
    /// The place.
    pub seq: Seq,
    /// What happened.
    pub entry: Entry,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// An item that the session was made with. Shows nothing.
    Seeded {
        /// The message, call or output.
        item: Item,
    },
    /// A message was accepted while a turn was open; it waits. Shows nothing.
    Queued(Message),
    /// A client took a message back that waited. Shows nothing.
    Withdrawn {
        /// Where its `Queued` record stands.
        queued: Seq,
        /// When.
        at: Seconds,
    },
    /// A message that waited joined the open turn, just before a model request.
    Steered {
        /// Where its `Queued` record stands.
        queued: Seq,
        /// When.
        at: Seconds,
    },
    /// A turn began.
    Started(Started),
    /// An output item of the turn is whole, or as whole as it will get.
    Output {
        /// The item: a message, reasoning or a call.
        item: Item,
        /// Its place among the output items of the turn.
        index: u32,
        /// Whether the model is shown it from now on. A call that never got to be answered is not in the transcript.
        context: bool,
    },
    /// The model's response is complete and made these calls; client-side ones are parked from now on.
    Called {
        /// The calls, in the order in which the model made them.
        calls: Vec<OpenCall>,
        /// What the model request used.
        usage: Usage,
        /// When.
        at: Seconds,
    },
    /// A call got its output.
    CallResolved {
        /// The function_call_output.
        item: Item,
        /// Where the call stands in the log.
        call: Seq,
        /// Its place among the output items of the turn.
        index: u32,
        /// Whether it is the last that the turn waited for, so that the model is asked again.
        resumes: bool,
    },
    /// The session added to the transcript: a word to the model in the user's name, or why the turn failed. Shows nothing.
    Note {
        /// The user-role message, or the error.
        item: Item,
    },
    /// The messages that waited were dropped. Shows nothing.
    Dropped {
        /// When.
        at: Seconds,
    },
    /// A model request failed or was lost and is made again.
    Retried {
        /// The attempt that comes now; the first request was attempt 1.
        attempt: u32,
        /// How often the session was found dead at this point of the turn, this time included.
        restarts: u32,
        /// How long it is put off.
        delay_seconds: u32,
        /// Why.
        error: Failure,
        /// When.
        at: Seconds,
    },
    /// The turn is over.
    Ended {
        /// How it ended.
        outcome: Outcome,
        /// What its model requests used.
        usage: Usage,
        /// When.
        at: Seconds,
        /// What an observer of the stream needs to know of the turn.
        turn: TurnHead,
    },
}

/// A message and what its turn will need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The user's message.
    pub item: Item,
    /// The client-side tools of its turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// The model to use instead of the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What its turn asks of the model. Nothing that the session reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<serde_json::Value>,
    /// Whether it is to join the open turn instead of having its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steers: bool,
}

/// A turn's beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// The turn.
    pub turn: TurnHead,
    /// The message that it answers.
    pub source: Source,
}

/// Where the message of a turn is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// In this record.
    Message(Box<Message>),
    /// In the `Queued` record at that place.
    Queued(Seq),
}

/// What all records of one turn agree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnHead {
    /// The turn's id.
    pub response_id: ResponseId,
    /// The model that was asked.
    pub model: String,
    /// When the turn began.
    pub created_at: Seconds,
    /// Where its `Started` record stands.
    pub started: Seq,
}

/// A tool that runs at a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// What the model is told about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON schema of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<serde_json::Value>,
    /// Whether the model must keep to the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Seconds until a call of it expires, instead of the agent's. The model is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_timeout_s: Option<u64>,
}

/// A call without an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// Where its item stands in the log.
    pub seq: Seq,
    /// The item.
    pub item_id: ItemId,
    /// The call, as clients name it.
    pub call_id: CallId,
    /// The provider's own id of the call, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The tool.
    pub name: String,
    /// Its place among the output items of the turn.
    pub index: u32,
    /// When the model made it.
    pub created_at: Seconds,
    /// When it expires, if ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Seconds>,
    /// Whether a client has to answer it. Otherwise the session does, at once.
    pub parked: bool,
}

impl OpenCall {
    /// The id by which the provider knows the call.
    pub fn provider_id(&self) -> &str {
        self.provider_id.as_deref().unwrap_or(self.call_id.as_str())
    }
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The model finished.
    Completed,
    /// The model was stopped before it had finished, for example by a limit on its output.
    Incomplete(String),
    /// The turn could not go on.
    Failed(Failure),
    /// A client stopped it.
    Cancelled,
}

impl Outcome {
    /// The word for it, as clients see it.
    pub fn status(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Incomplete(_) => "incomplete",
            Outcome::Failed(_) => "failed",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// Why something failed: a code for programs, a message for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// One of the codes of the contract, such as `upstream_error`.
    pub code: String,
    /// What happened, without secrets.
    pub message: String,
}

/// Tokens used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens of the requests, those from a cache included.
    pub input_tokens: u64,
    /// Tokens of the answers, reasoning included.
    pub output_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// Input tokens that came from the provider's cache.
    pub cached_tokens: u64,
    /// Output tokens spent on reasoning.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Adds what another request used.
    pub fn add(&mut self, more: Usage) {
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.total_tokens = self.total_tokens.saturating_add(more.total_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(more.cached_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(more.reasoning_tokens);
    }
}

impl Usage {
    /// What is more here than there.
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
    /// Where the `Queued` record of the message stands that enters the transcript here.
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
            | Entry::Ended { .. } => None,
        }
    }

    /// The item that the record adds to the transcript or to the queue.
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
            | Entry::Ended { .. } => None,
        }
    }

    /// The same item, for putting its body in place.
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
            | Entry::Ended { .. } => None,
        }
    }

    /// Whether the model is shown the record's item.
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
            | Entry::Ended { .. } => false,
        }
    }

    /// The call that the record's item is or answers.
    pub fn call_id(&self) -> Option<&CallId> {
        self.item().and_then(Item::call_id)
    }

    /// The id of the record's item.
    pub fn item_id(&self) -> Option<&ItemId> {
        self.item().map(|item| &item.id)
    }
}
