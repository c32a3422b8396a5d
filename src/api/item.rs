//! Items as clients see them.

use serde_json::{Map, Value, json};

use crate::session::{IS_ERROR, Item, Kind, Role, Status};

/// The limit of client content in an event, in bytes. The session's items hold all of it.
pub const STREAMED: usize = 256 * 1024;

/// Marks an item whose content was cut.
const TRUNCATED: &str = "truncated";

/// An item of the transcript, and what is to be known of it beside.
pub struct Listed {
    pub item: Item,
    /// Overrides the item's own.
    pub status: Status,
    /// Whether the model is no longer shown it, since its host refused it.
    pub withheld: bool,
}

impl Listed {
    /// The item in the flat form.
    pub fn flat(&self) -> Value {
        self.marked(flat(&self.item, self.status))
    }

    /// The item in the form of the snapshot.
    pub fn nested(&self) -> Value {
        self.marked(nested(&self.item, self.status))
    }

    fn marked(&self, mut shown: Value) -> Value {
        if let (Some(shown), true) = (shown.as_object_mut(), self.withheld) {
            shown.insert("withheld".into(), true.into());
        }
        shown
    }
}

/// An item in the flat form, with `status` overriding its own.
pub fn flat(item: &Item, status: Status) -> Value {
    with(item, status, data(item))
}

/// An item in the form of the snapshot: its keys at the top level and under `data`.
pub fn nested(item: &Item, status: Status) -> Value {
    let data = data(item);
    let mut shown = with(item, status, data.clone());
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("data".into(), data.into());
    }
    shown
}

/// An item in the flat form, cut to fit the stream: see `data_cut`.
pub fn flat_cut(item: &Item, status: Status) -> Value {
    with(item, status, data_cut(item))
}

/// An item without its content.
pub fn reference(item: &Item, status: Status) -> Value {
    let mut data = Map::new();
    match &item.kind {
        Kind::FunctionCall { call_id, name } => {
            data.insert("call_id".into(), json!(call_id));
            data.insert("name".into(), json!(name));
        }
        Kind::FunctionCallOutput { call_id } => drop(data.insert("call_id".into(), json!(call_id))),
        Kind::Message { .. } | Kind::Reasoning | Kind::Error => {}
    }
    data.insert(TRUNCATED.into(), true.into());
    with(item, status, data)
}

/// The keys of an item's type, without opaque provider payload.
pub fn data(item: &Item) -> Map<String, Value> {
    let mut body: Map<String, Value> = serde_json::from_str(&item.body).unwrap_or_default();
    let mut of = |key: &str, missing: Value| body.remove(key).unwrap_or(missing);
    let mut data = Map::new();
    let mut put = |key: &str, value: Value| drop(data.insert(key.into(), value));
    match &item.kind {
        Kind::Message { role } => {
            put("role", json!(role));
            let mut content = of("content", json!([]));
            // An empty list, for strict model hosts alone.
            for part in content.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                if part.get("annotations").and_then(Value::as_array).is_some_and(Vec::is_empty) {
                    part.remove("annotations");
                }
            }
            put("content", content);
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
    data
}

/// The keys of an item's type, with at most `STREAMED` bytes of client content. A text is cut between two characters;
/// of a list, the parts that fit are kept whole.
pub fn data_cut(item: &Item) -> Map<String, Value> {
    let mut data = data(item);
    let key = match &item.kind {
        Kind::Message { role: Role::User } => "content",
        Kind::FunctionCallOutput { .. } => "output",
        Kind::Message { role: Role::Assistant } | Kind::Reasoning | Kind::FunctionCall { .. } | Kind::Error => {
            return data;
        }
    };
    if item.body.len() > STREAMED && data.get_mut(key).is_some_and(cut) {
        data.insert(TRUNCATED.into(), true.into());
    }
    data
}

/// The wire name of an item's type.
pub fn type_name(item: &Item) -> &'static str {
    match item.kind {
        Kind::Message { .. } => "message",
        Kind::Reasoning => "reasoning",
        Kind::FunctionCall { .. } => "function_call",
        Kind::FunctionCallOutput { .. } => "function_call_output",
        Kind::Error => "error",
    }
}

fn with(item: &Item, status: Status, data: Map<String, Value>) -> Value {
    let mut shown = json!({
        "id": item.id, "type": type_name(item), "status": status,
        "response_id": item.response_id, "created_at": item.created_at,
    });
    if let Some(shown) = shown.as_object_mut() {
        shown.extend(data);
    }
    shown
}

/// Cuts content down to `STREAMED` bytes. Returns whether anything was cut.
fn cut(content: &mut Value) -> bool {
    match content {
        Value::String(text) if text.len() > STREAMED => {
            text.truncate(text.floor_char_boundary(STREAMED));
            true
        }
        Value::Array(parts) => {
            let (count, mut space) = (parts.len(), STREAMED);
            parts.retain(|part| match space.checked_sub(part.to_string().len()) {
                Some(rest) => {
                    space = rest;
                    true
                }
                None => false,
            });
            parts.len() < count
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}
