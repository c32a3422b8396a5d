//! The JSON of what a feed shows: responses, deltas, and items as they were while they were written.

use serde::Serialize;
use serde_json::{Value, json};

use super::entry::{TurnHead, Usage};
use super::item::{Kind, Role, Status};
use super::open::{Open, Opening, Part, PartKind};
use super::{Failure, Item, ItemId, ResponseId, Seconds, SessionId};

// Written out as they are. `json!` would copy all that is in them first.

#[derive(Serialize)]
pub(super) struct OfItem {
    pub(super) r#type: &'static str,
    pub(super) output_index: u32,
    pub(super) item: Value,
}

#[derive(Serialize)]
pub(super) struct OfResponse<'a> {
    pub(super) r#type: &'static str,
    pub(super) response: &'a Response<'a>,
}

#[derive(Serialize)]
pub(super) struct OfSession<'a> {
    pub(super) r#type: &'static str,
    pub(super) session_id: &'a SessionId,
    pub(super) conversation_id: &'a SessionId,
    pub(super) data: Consumed<'a>,
}

#[derive(Serialize)]
pub(super) struct Consumed<'a> {
    pub(super) item_id: &'a ItemId,
    pub(super) r#type: &'static str,
    pub(super) data: Value,
}

#[derive(Serialize)]
pub(super) struct Response<'a> {
    id: &'a ResponseId,
    object: &'static str,
    status: &'static str,
    model: &'a str,
    pub(super) output: Vec<Value>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<&'a Failure>,
    pub(super) incomplete_details: Option<Value>,
    created_at: Seconds,
    pub(super) completed_at: Option<Seconds>,
}

impl<'a> Response<'a> {
    pub(super) fn of(turn: &'a TurnHead, status: &'static str) -> Self {
        Self {
            id: &turn.response_id,
            object: "response",
            status,
            model: &turn.model,
            output: Vec::new(),
            usage: None,
            error: None,
            incomplete_details: None,
            created_at: turn.created_at,
            completed_at: None,
        }
    }
}

#[derive(Serialize)]
pub(super) struct Delta<'a> {
    pub(super) r#type: &'static str,
    item_id: &'a str,
    output_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_index: Option<usize>,
    delta: &'a str,
}

impl<'a> Delta<'a> {
    pub(super) fn of(part: &Part, item_id: &'a str, output_index: u32, number: usize, delta: &'a str) -> Self {
        let (r#type, content_index, summary_index) = match part.kind {
            PartKind::Text => ("response.output_text.delta", Some(number), None),
            PartKind::Refusal => ("response.refusal.delta", Some(number), None),
            PartKind::Arguments => ("response.function_call_arguments.delta", None, None),
            PartKind::Summary => ("response.reasoning_summary_text.delta", None, Some(number)),
            PartKind::Reasoning => ("response.reasoning_text.delta", Some(number), None),
        };
        Self { r#type, item_id, output_index, content_index, summary_index, delta }
    }
}

pub(super) fn part_done(
    part: &Part,
    item_id: &str,
    index: u32,
    number: usize,
    name: &str,
) -> (&'static str, Value) {
    let (kind, number_key, text_key) = match part.kind {
        PartKind::Text => ("response.output_text.done", "content_index", "text"),
        PartKind::Refusal => ("response.refusal.done", "content_index", "refusal"),
        PartKind::Arguments => {
            let kind = "response.function_call_arguments.done";
            let data = json!({"type": kind, "item_id": item_id, "output_index": index,
                "name": name, "arguments": part.text});
            return (kind, data);
        }
        PartKind::Summary => ("response.reasoning_summary_text.done", "summary_index", "text"),
        PartKind::Reasoning => ("response.reasoning_text.done", "content_index", "text"),
    };
    let data = json!({"type": kind, "item_id": item_id, "output_index": index,
        number_key: number, text_key: part.text});
    (kind, data)
}

/// The number of a part among those that clients count together: summaries apart from content.
pub(super) fn number_of(parts: &[Part], place: usize) -> usize {
    let kind = parts.get(place).map(|part| part.kind);
    let summary = kind == Some(PartKind::Summary);
    parts.iter().take(place).filter(|part| (part.kind == PartKind::Summary) == summary).count()
}

pub(super) fn call_name(opening: &Opening) -> &str {
    match opening {
        Opening::Call { name, .. } => name,
        Opening::Message | Opening::Reasoning => "",
    }
}

/// An item as it was when it opened: nothing written yet.
pub(super) fn added(open: &Open, response_id: &ResponseId) -> Value {
    let empty = Open::new(open.id.clone(), open.created_at, open.opening.clone());
    empty.item(response_id, Status::InProgress).show(Status::InProgress)
}

/// A finished item in the form in which it was written.
pub(super) fn reopened(item: &Item) -> Open {
    let body: Value = serde_json::from_str(&item.body).unwrap_or(Value::Null);
    let text_of =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
    let list = |key: &str| body.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let part = |kind, text| Part { kind, text, closed: true };
    let (opening, parts) = match &item.kind {
        Kind::Message { role: Role::User | Role::Assistant } => {
            let content = list("content");
            let parts = content.iter().map(|block| match block.get("refusal") {
                Some(_) => part(PartKind::Refusal, text_of(block, "refusal")),
                None => part(PartKind::Text, text_of(block, "text")),
            });
            (Opening::Message, parts.collect())
        }
        Kind::Reasoning | Kind::FunctionCallOutput { .. } | Kind::Error => {
            let summary =
                list("summary").iter().map(|s| part(PartKind::Summary, text_of(s, "text"))).collect::<Vec<_>>();
            let content = list("content").iter().map(|c| part(PartKind::Reasoning, text_of(c, "text"))).collect();
            (Opening::Reasoning, [summary, content].concat())
        }
        Kind::FunctionCall { call_id, name } => (
            Opening::Call { call_id: call_id.clone(), provider_id: text_of(&body, "call_id"), name: name.clone() },
            vec![part(PartKind::Arguments, text_of(&body, "arguments"))],
        ),
    };
    let mut open = Open::new(item.id.clone(), item.created_at, opening);
    open.parts = parts;
    open.closed = true;
    open
}
