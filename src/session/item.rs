//! Items: the units of the transcript.
//!
//! An item's `body` is the JSON that a Responses API request carries for it, stored once and sent as it is. What the
//! session itself needs to know of an item stands beside it in typed form, so the body is parsed only to show it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{CallId, ItemId, ResponseId, Seconds};

/// Where an output's body says that it tells why the tool failed.
pub const IS_ERROR: &str = "is_error";

/// Where an item says that this is not all of it.
const TRUNCATED: &str = "truncated";

/// The most that an event holds of what a client posted, in bytes. All of it is among the session's items.
pub const STREAMED: usize = 256 * 1024;

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

    /// The keys of the item's type, as clients see them. Opaque provider payload stays behind.
    pub fn data(&self) -> Value {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let mut body = if let Value::Object(body) = body { body } else { Map::new() };
        let mut of = |key: &str, missing: Value| body.remove(key).unwrap_or(missing);
        let mut data = Map::new();
        let mut put = |key: &str, value: Value| drop(data.insert(key.into(), value));
        match &self.kind {
            Kind::Message { role } => {
                put("role", json!(role));
                put("content", of("content", json!([])));
            }
            Kind::Error => ["code", "message"].into_iter().for_each(|key| put(key, of(key, Value::Null))),
            Kind::Reasoning => put("summary", of("summary", json!([]))),
            Kind::FunctionCall { call_id, name } => {
                put("call_id", json!(call_id));
                put("name", name.as_str().into());
                put("arguments", of("arguments", "{}".into()));
            }
            Kind::FunctionCallOutput { call_id } => {
                put("call_id", json!(call_id));
                put("output", of("output", "".into()));
                if let is_error @ Value::Bool(_) = of(IS_ERROR, Value::Null) {
                    put(IS_ERROR, is_error);
                }
            }
        }
        Value::Object(data)
    }

    /// The wire name of the item's type.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Message { .. } => "message",
            Kind::Reasoning => "reasoning",
            Kind::FunctionCall { .. } => "function_call",
            Kind::FunctionCallOutput { .. } => "function_call_output",
            Kind::Error => "error",
        }
    }

    /// The item as clients see it, in the flat form, with `status` in place of its own.
    pub fn show(&self, status: Status) -> Value {
        self.with(status, self.data())
    }

    /// The same, as the stream has room for it: see `data_cut`.
    pub fn show_cut(&self, status: Status) -> Value {
        self.with(status, self.data_cut())
    }

    /// The item without its content.
    pub fn reference(&self, status: Status) -> Value {
        let mut data = json!({TRUNCATED: true});
        match &self.kind {
            Kind::FunctionCall { call_id, name } => {
                data = json!({"call_id": call_id, "name": name, TRUNCATED: true});
            }
            Kind::FunctionCallOutput { call_id } => data = json!({"call_id": call_id, TRUNCATED: true}),
            Kind::Message { .. } | Kind::Reasoning | Kind::Error => {}
        }
        self.with(status, data)
    }

    /// The keys of the item's type, with at most `STREAMED` bytes of what a client posted. A text is cut between two
    /// characters; of a list those parts are kept that fit whole.
    pub fn data_cut(&self) -> Value {
        let mut data = self.data();
        let key = match &self.kind {
            Kind::Message { role: Role::User } => "content",
            Kind::FunctionCallOutput { .. } => "output",
            Kind::Message { role: Role::Assistant }
            | Kind::Reasoning
            | Kind::FunctionCall { .. }
            | Kind::Error => {
                return data;
            }
        };
        if self.body.len() > STREAMED
            && let Some(data) = data.as_object_mut()
            && data.get_mut(key).is_some_and(cut)
        {
            data.insert(TRUNCATED.into(), true.into());
        }
        data
    }

    fn with(&self, status: Status, data: Value) -> Value {
        let mut shown = json!({
            "id": self.id, "type": self.type_name(), "status": status,
            "response_id": self.response_id, "created_at": self.created_at,
        });
        if let (Some(shown), Value::Object(data)) = (shown.as_object_mut(), data) {
            shown.extend(data);
        }
        shown
    }
}

/// Cuts a content down to `STREAMED` bytes. Whether there was more.
fn cut(content: &mut Value) -> bool {
    match content {
        Value::String(text) if text.len() > STREAMED => {
            text.truncate(text.floor_char_boundary(STREAMED));
            true
        }
        Value::Array(parts) => {
            let (count, mut room) = (parts.len(), STREAMED);
            parts.retain(|part| match room.checked_sub(part.to_string().len()) {
                Some(rest) => {
                    room = rest;
                    true
                }
                None => false,
            });
            parts.len() < count
        }
        _ => false,
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
