//! Items: the units of the transcript.
//!
//! An item's `body` is its JSON in the form of a Responses API request, stored once and sent as it is. The fields the
//! session itself needs stand beside it in typed form, so the body is parsed only for clients.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CallId, ItemId, ResponseId, Seconds};

/// The key in an output's body that marks it as the tool's error.
pub const IS_ERROR: &str = "is_error";

/// One unit of the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    pub id: ItemId,
    /// The turn the item belongs to.
    pub response_id: ResponseId,
    /// When it was created.
    pub created_at: Seconds,
    /// How complete it is.
    pub status: Status,
    pub kind: Kind,
    /// The host whose model wrote it, as `Provider::origin` names it; absent: nobody's private matter is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The item as the model sees it: a Responses API input item, as JSON.
    #[serde(skip)]
    pub body: String,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Text from the user or the assistant.
    Message { role: Role },
    /// The model's reasoning; its payload is opaque and replayed verbatim.
    Reasoning,
    /// A tool call.
    FunctionCall {
        /// The id clients use to resolve the call.
        call_id: CallId,
        name: String,
    },
    /// The output of a call.
    FunctionCallOutput {
        /// The call it resolves.
        call_id: CallId,
    },
    /// The error that ended a turn. Clients see it, the model does not.
    Error,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, or the session on the user's behalf.
    User,
    Assistant,
}

/// An item's status. For an output it also says who wrote it: a client, or the session in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Being written; appears only on the stream.
    InProgress,
    /// A call without an output.
    ActionRequired,
    /// Complete.
    Completed,
    /// Cut off; the partial text is kept.
    Incomplete,
    /// A queued message.
    Queued,
    /// A cancelled call, and the output the session wrote for it.
    Cancelled,
    /// The output the session wrote for a call whose deadline passed.
    Expired,
}

impl Item {
    /// The call this item makes or resolves.
    pub fn call_id(&self) -> Option<&CallId> {
        match &self.kind {
            Kind::FunctionCall { call_id, .. } | Kind::FunctionCallOutput { call_id } => Some(call_id),
            Kind::Message { .. } | Kind::Reasoning | Kind::Error => None,
        }
    }
}

/// Builds a user message's body from its content parts.
pub fn user_message(content: &Value) -> String {
    json!({"type": "message", "role": "user", "content": content}).to_string()
}

/// Builds an output's body. `call_id` is the provider's id of the call. Some providers cannot be told about errors.
pub fn output(call_id: &str, output: &Value, is_error: bool) -> String {
    let mut body = json!({"type": "function_call_output", "call_id": call_id, "output": output});
    if let (Some(body), true) = (body.as_object_mut(), is_error) {
        body.insert(IS_ERROR.into(), true.into());
    }
    body.to_string()
}
