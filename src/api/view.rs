//! Response bodies.

use serde_json::{Value, json};

use super::agent::agent_fields;
use super::item::Listed;
use super::stream::Page;
use super::{Access, Reply, SessionInfo, item};
use crate::session::{Ack, InterruptStatus, Item, MessageStatus, Outcome, OutputStatus, Session};

/// The snapshot, with items in the form of `nested` and whether there are older ones.
pub fn snapshot(
    info: &SessionInfo,
    session: &Session,
    (items, older): (Vec<Value>, bool),
    pending: &[Item],
    subscribers: usize,
) -> Value {
    let state = &session.state;
    let last = state.last.as_ref().map(|last| {
        let error = match &last.outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Completed | Outcome::Incomplete(_) | Outcome::Cancelled => None,
        };
        json!({"id": last.id, "status": last.outcome.status(), "error": error})
    });
    let calls = state.open_calls().iter().zip(pending).map(|(call, item)| {
        json!({
            "call_id": call.call_id, "name": call.name, "arguments": item::data(item).get("arguments"),
            "response_id": item.response_id, "created_at": call.created_at, "expires_at": call.expires_at,
        })
    });
    let queue = state.queue.iter().map(|waiting| {
        json!({"item_id": waiting.item_id, "response_id": waiting.response_id, "created_at": waiting.created_at})
    });
    json!({
        "id": session.id, "object": "session", "status": state.status(),
        "agent_id": info.agent_id, "agent_name": info.agent.name, "model": session.settings.model,
        "llm_model": info.agent.model_name(), "model_override": info.model_override,
        "reasoning_effort": info.reasoning_effort,
        "title": info.title, "labels": info.labels, "archived": info.archived,
        "created_at": info.created_at, "updated_at": state.updated_at.max(info.updated_at),
        "expires_at": info.expires_at,
        "active_response_id": state.turn().map(|turn| &turn.head.response_id),
        "last_response": last, "last_task_error": state.last_error(),
        "pending_tool_calls": calls.collect::<Vec<_>>(), "queue": queue.collect::<Vec<_>>(),
        "usage": state.usage, "cursor": session.begin().text(&session.id), "subscribers": subscribers,
        "items": items, "items_has_more": older,
    })
}

/// A page of items, in the requested order.
pub fn items_page(items: &[Listed], has_more: bool) -> Value {
    json!({
        "object": "list", "data": items.iter().map(Listed::flat).collect::<Vec<_>>(),
        "first_id": items.first().map(|one| &one.item.id), "last_id": items.last().map(|one| &one.item.id),
        "has_more": has_more,
    })
}

/// An event as JSON, with the cursor after it.
pub fn message(data: &str, cursor: Option<&str>) -> String {
    match (cursor, data.strip_prefix('{')) {
        (Some(cursor), Some(rest)) => format!("{{\"cursor\":\"{cursor}\",{rest}"),
        _ => data.to_string(),
    }
}

/// A page of events and the position after it.
pub fn events_page(session: &Session, page: &Page) -> Reply {
    let events = page.events.iter().map(|event| {
        let cursor = event.cursor.map(|cursor| cursor.text(&session.id));
        message(&event.data, cursor.as_deref())
    });
    let data = events.collect::<Vec<_>>().join(",");
    let cursor = page.cursor.text(&session.id);
    let body = format!(r#"{{"object":"list","data":[{data}],"cursor":"{cursor}","has_more":{}}}"#, page.more);
    Reply { status: 200, headers: Vec::new(), body }
}

/// A session's agent, without secrets. Its instructions are shown only to API keys.
pub fn agent_view(info: &SessionInfo, access: &Access) -> Value {
    let mut view = agent_fields(&info.agent_id, &info.agent);
    if let (Access::Token(_), Some(view)) = (access, view.as_object_mut()) {
        view.insert("instructions".into(), Value::Null);
    }
    view
}

/// The response to an accepted input. `cursor` is the position just before its effects.
pub fn accepted(answer: &Ack, cursor: &str) -> Reply {
    let body = match answer {
        Ack::Message { item_id, response_id, status } => {
            let status = match status {
                MessageStatus::Started => "started",
                MessageStatus::Queued => "queued",
                MessageStatus::Steered => "steered",
            };
            json!({"queued": true, "item_id": item_id, "response_id": response_id, "status": status, "cursor": cursor})
        }
        Ack::Output { call_id, status, remaining } => {
            let status = match status {
                OutputStatus::Accepted => "accepted",
                OutputStatus::Duplicate => "duplicate",
            };
            json!({"queued": true, "item_id": call_id, "status": status, "remaining": remaining, "cursor": cursor})
        }
        Ack::Interrupt(status) => {
            let status = match status {
                InterruptStatus::Interrupted => "interrupted",
                InterruptStatus::Idle => "idle",
                InterruptStatus::Stale => "stale",
            };
            json!({"queued": false, "status": status, "cursor": cursor})
        }
        Ack::Withdrawn(item_id) => {
            json!({"id": item_id, "object": "queue.item.deleted", "deleted": true, "cursor": cursor})
        }
        Ack::Cancelled { call_id, remaining } => {
            json!({"call_id": call_id, "status": "cancelled", "remaining": remaining, "cursor": cursor})
        }
        Ack::None => json!({"queued": false, "cursor": cursor}),
    };
    let status = match answer {
        Ack::Withdrawn(_) | Ack::Cancelled { .. } => 200,
        Ack::Message { .. } | Ack::Output { .. } | Ack::Interrupt(_) | Ack::None => 202,
    };
    Reply::json(status, &body)
}
