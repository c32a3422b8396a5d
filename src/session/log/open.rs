//! Output items that the model is still writing, or that are held until its response is complete.
//!
//! Always true: open items are a suffix of the turn's items; each knows its place in the log from the start; only the
//! last may still grow. They live in memory and in a checkpoint row. A call stays open until the model's response is
//! complete, because nobody may resolve a call whose response was cut off.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CallId, Item, ItemId, Kind, ResponseId, Role, Seconds, Status};

/// An unfinished item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// The id that the finished item will have.
    pub id: ItemId,
    pub created_at: Seconds,
    /// What the item will become.
    pub opening: Opening,
    /// Its texts, in order.
    pub parts: Vec<Part>,
    /// Whether the model has finished it.
    pub closed: bool,
    /// Whether its payload may come until the response is complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub payload_pending: bool,
    /// The host whose model writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Opaque provider payload: a whole reasoning item, or keys to replay with a call.
    #[serde(default)]
    pub payload: Option<Value>,
    /// Leading white space of a call's arguments, held back until more text follows.
    #[serde(default)]
    lead: String,
}

/// What the model has started to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opening {
    Message,
    Reasoning,
    Call {
        /// The id clients use to resolve the call.
        call_id: CallId,
        /// The provider's name for the call.
        provider_id: String,
        name: String,
    },
}

/// One text of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What kind of text.
    pub kind: PartKind,
    /// The text so far.
    pub text: String,
    /// Whether it is finished.
    pub closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Text of the assistant.
    Text,
    /// The assistant's refusal.
    Refusal,
    /// A call's arguments: the model's own JSON text.
    Arguments,
    /// A summary of reasoning.
    Summary,
    Reasoning,
}

impl Open {
    /// A new item without text.
    pub fn new(id: ItemId, created_at: Seconds, opening: Opening, origin: Option<String>) -> Self {
        let parts = match opening {
            Opening::Call { .. } => vec![Part { kind: PartKind::Arguments, text: String::new(), closed: false }],
            Opening::Message | Opening::Reasoning => Vec::new(),
        };
        Self {
            id,
            created_at,
            opening,
            parts,
            closed: false,
            payload_pending: false,
            origin,
            payload: None,
            lead: String::new(),
        }
    }

    /// Whether it is a call.
    pub fn is_call(&self) -> bool {
        matches!(self.opening, Opening::Call { .. })
    }

    /// Appends text. Text of another kind, or `fresh` text, starts a new part.
    pub fn push(&mut self, kind: PartKind, fresh: bool, text: &str) {
        if text.is_empty() || self.closed {
            return;
        }
        let kind = self.fitting(kind);
        let fresh = fresh && kind != PartKind::Arguments;
        let mut text = std::borrow::Cow::Borrowed(text);
        match self.parts.last_mut() {
            Some(part) if part.kind == PartKind::Arguments && part.text.is_empty() => {
                if text.trim_start().is_empty() {
                    self.lead.push_str(&text);
                    return;
                }
                text = (std::mem::take(&mut self.lead) + &text).into();
            }
            Some(part) if part.kind == kind && !fresh => {}
            Some(part) => {
                part.closed = true;
                self.parts.push(Part { kind, text: String::new(), closed: false });
            }
            None => self.parts.push(Part { kind, text: String::new(), closed: false }),
        }
        if let Some(part) = self.parts.last_mut() {
            part.text.push_str(&text);
        }
    }

    /// The text written last reads so, whatever its deltas said.
    pub fn rewrite(&mut self, text: &str) {
        if self.closed {
            return;
        }
        if let Some(part) = self.parts.last_mut() {
            self.lead.clear();
            let text = if part.kind == PartKind::Arguments { text.trim_start() } else { text };
            part.text = text.to_string();
        }
    }

    /// The kind of text the item accepts in place of `kind`. A stored item has its summaries before its content.
    fn fitting(&self, kind: PartKind) -> PartKind {
        // After the first content, everything is content.
        let content = self.parts.last().is_some_and(|part| part.kind == PartKind::Reasoning);
        match (&self.opening, kind) {
            (Opening::Call { .. }, _) => PartKind::Arguments,
            (Opening::Message, PartKind::Refusal) => PartKind::Refusal,
            (Opening::Message, _) => PartKind::Text,
            (Opening::Reasoning, PartKind::Summary) if !content => PartKind::Summary,
            (Opening::Reasoning, _) => PartKind::Reasoning,
        }
    }

    /// Marks the item as finished. A call without arguments gets empty ones.
    pub fn close(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        if let Some(part) = self.parts.last_mut() {
            if part.kind == PartKind::Arguments && part.text.is_empty() {
                part.text.push_str("{}");
            }
            part.closed = true;
        }
    }

    /// All text of one kind, concatenated.
    pub fn text(&self, kind: PartKind) -> String {
        self.parts.iter().filter(|part| part.kind == kind).map(|part| part.text.as_str()).collect()
    }

    /// A finished item, as it was written.
    pub fn of(item: &Item) -> Self {
        let body: Value = serde_json::from_str(&item.body).unwrap_or(Value::Null);
        let text_of =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
        let list = |key: &str| body.get(key).and_then(Value::as_array).into_iter().flatten();
        let part = |kind, text| Part { kind, text, closed: true };
        let (opening, parts) = match &item.kind {
            Kind::Message { role: Role::User | Role::Assistant } => {
                let parts = list("content").map(|block| match block.get("refusal") {
                    Some(_) => part(PartKind::Refusal, text_of(block, "refusal")),
                    None => part(PartKind::Text, text_of(block, "text")),
                });
                (Opening::Message, parts.collect())
            }
            Kind::Reasoning | Kind::FunctionCallOutput { .. } | Kind::Error => {
                let summary = list("summary").map(|s| part(PartKind::Summary, text_of(s, "text")));
                let content = list("content").map(|c| part(PartKind::Reasoning, text_of(c, "text")));
                (Opening::Reasoning, summary.chain(content).collect())
            }
            Kind::FunctionCall { call_id, name } => {
                let (call_id, name) = (call_id.clone(), name.clone());
                let opening = Opening::Call { call_id, provider_id: text_of(&body, "call_id"), name };
                (opening, vec![part(PartKind::Arguments, text_of(&body, "arguments"))])
            }
        };
        Self { parts, closed: true, ..Self::new(item.id.clone(), item.created_at, opening, item.origin.clone()) }
    }

    /// The name of the called tool; empty if the item is not a call.
    pub fn tool(&self) -> &str {
        match &self.opening {
            Opening::Call { name, .. } => name,
            Opening::Message | Opening::Reasoning => "",
        }
    }

    /// The item in the form the log stores.
    pub fn item(&self, response_id: &ResponseId, status: Status) -> Item {
        let (kind, body) = match &self.opening {
            Opening::Message => (Kind::Message { role: Role::Assistant }, self.message_body()),
            Opening::Reasoning => (Kind::Reasoning, self.reasoning_body()),
            Opening::Call { call_id, provider_id, name } => (
                Kind::FunctionCall { call_id: call_id.clone(), name: name.clone() },
                self.with_payload(json!({
                    "type": "function_call", "call_id": provider_id, "name": name,
                    "arguments": self.text(PartKind::Arguments),
                })),
            ),
        };
        Item {
            id: self.id.clone(),
            response_id: response_id.clone(),
            created_at: self.created_at,
            status,
            kind,
            origin: self.origin.clone(),
            body: body.to_string(),
        }
    }

    fn message_body(&self) -> Value {
        let content: Vec<Value> = self
            .parts
            .iter()
            .map(|part| match part.kind {
                PartKind::Refusal => json!({"type": "refusal", "refusal": part.text}),
                PartKind::Text | PartKind::Arguments | PartKind::Summary | PartKind::Reasoning => {
                    json!({"type": "output_text", "text": part.text, "annotations": []})
                }
            })
            .collect();
        self.with_payload(json!({"type": "message", "role": "assistant", "content": content}))
    }

    /// The provider's own item, if it sent one: it is replayed verbatim.
    fn reasoning_body(&self) -> Value {
        let texts = |kind, name: &str| -> Vec<Value> {
            self.parts.iter().filter(|p| p.kind == kind).map(|p| json!({"type": name, "text": p.text})).collect()
        };
        let mut body = json!({"type": "reasoning", "summary": texts(PartKind::Summary, "summary_text")});
        let content = texts(PartKind::Reasoning, "reasoning_text");
        if let (Some(body), false) = (body.as_object_mut(), content.is_empty()) {
            body.insert("content".into(), content.into());
        }
        self.with_payload(body)
    }

    fn with_payload(&self, mut body: Value) -> Value {
        if let (Some(body), Some(Value::Object(payload))) = (body.as_object_mut(), &self.payload) {
            body.extend(payload.clone());
        }
        body
    }
}
