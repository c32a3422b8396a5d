//! Items: the units of the transcript.
//!
//! An item's `body` is the JSON that a Responses API request carries for it, stored once and sent as it is. What the
//! session itself needs to know of an item stands beside it in typed form, so the body is parsed only to show it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CallId, ItemId, ResponseId, Seconds};

/// Where an output's body says that it tells why the tool failed.
pub const IS_ERROR: &str = "is_error";

/// One unit of the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// The item's id.
    pub id: ItemId,
    /// The turn that the item belongs to.
    pub response_id: ResponseId,
    /// When it was made.
    pub created_at: Seconds,
    /// How complete it is.
    pub status: Status,
    /// What it is.
    pub kind: Kind,
    /// The item as the model sees it: one JSON object in the form of a Responses API input item.
    #[serde(skip)]
    pub body: String,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Text from the user or the assistant.
    Message {
        /// Who speaks.
        role: Role,
    },
    /// The model's reasoning; its payload is opaque and replayed verbatim.
    Reasoning,
    /// The model calls a tool.
    FunctionCall {
        /// The id by which clients answer.
        call_id: CallId,
        /// The tool.
        name: String,
    },
    /// The answer to a call.
    FunctionCallOutput {
        /// The call that it answers.
        call_id: CallId,
    },
    /// Why a turn failed. Clients see it, the model does not.
    Error,
}

/// Who speaks in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, or the session on the user's behalf.
    User,
    /// The model.
    Assistant,
}

/// How complete an item is. For an output it says whether a client gave it or the session made it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Being written; on the stream only.
    InProgress,
    /// A call that waits for its output.
    ActionRequired,
    /// Whole.
    Completed,
    /// Cut off; what there is was kept.
    Incomplete,
    /// A message that waits for its turn.
    Queued,
    /// An output that the session wrote because the call was cancelled, and that call.
    Cancelled,
    /// An output that the session wrote because the call's deadline passed.
    Expired,
}

impl Item {
    /// The call that this item is or answers.
    pub fn call_id(&self) -> Option<&CallId> {
        match &self.kind {
            Kind::FunctionCall { call_id, .. } | Kind::FunctionCallOutput { call_id } => Some(call_id),
            Kind::Message { .. } | Kind::Reasoning | Kind::Error => None,
        }
    }
}

/// A user message's body from its content parts.
pub fn user_message(content: &Value) -> String {
    json!({"type": "message", "role": "user", "content": content}).to_string()
}

/// An output's body. `call_id` is the provider's name for the call. Not every provider can be told that it is an error.
pub fn output(call_id: &str, output: &Value, is_error: bool) -> String {
    let mut body = json!({"type": "function_call_output", "call_id": call_id, "output": output});
    if let (Some(body), true) = (body.as_object_mut(), is_error) {
        body.insert(IS_ERROR.into(), true.into());
    }
    body.to_string()
}
