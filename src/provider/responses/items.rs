//! The items of a response, as they grow.

use serde_json::{Map, Value, json};

use crate::json::field;
use crate::provider::arguments::{Arguments, Grown};
use crate::provider::halves::joined;
use crate::provider::lenient;
use crate::provider::projection::FIELDS;
use crate::session::{MAX_ANSWER, ModelEvent, PartKind};

/// An item that is being written, or that waits for one.
pub(super) struct Item {
    /// `output_index`; `None` if the host does not number its items, or text arrived before its item was announced.
    pub(super) index: Option<u64>,
    pub(super) id: String,
    /// The id of a call.
    pub(super) call_id: String,
    pub(super) kind: ItemKind,
    /// What starts it; `None` once that is passed on.
    pub(super) opening: Option<ModelEvent>,
    pub(super) parts: Vec<Part>,
    /// The arguments of a call.
    pub(super) arguments: Arguments,
    /// The size of its texts, in bytes.
    pub(super) size: usize,
    /// Events that the item has not passed on.
    pub(super) waiting: Vec<ModelEvent>,
    /// What its host wants back.
    pub(super) payload: Option<Value>,
    /// Its number in the session's response, once it is passed on without its payload.
    pub(super) incomplete: Option<u64>,
    pub(super) done: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    Call,
    /// An item that is not passed on.
    Other,
}

/// Text of an item so far.
pub(super) struct Part {
    pub(super) kind: PartKind,
    text: String,
}

impl ItemKind {
    pub(super) fn of(item: &Value) -> Self {
        match field(item, "type").as_str() {
            Some("message") => Self::Message,
            Some("reasoning") => Self::Reasoning,
            Some("function_call") => Self::Call,
            _ => Self::Other,
        }
    }

    /// The kind of item that has texts of this kind.
    pub(super) fn having(kind: PartKind) -> Self {
        match kind {
            PartKind::Text | PartKind::Refusal => Self::Message,
            PartKind::Arguments => Self::Call,
            PartKind::Summary | PartKind::Reasoning => Self::Reasoning,
        }
    }

    /// What the host wants back of a finished item, beside what the session keeps of it.
    pub(super) fn payload(self, item: &Value) -> Option<Value> {
        let known: &[&str] = match self {
            Self::Reasoning => return item.is_object().then(|| json!({FIELDS: item})),
            Self::Message => {
                return item
                    .get("phase")
                    .filter(|phase| phase.is_string())
                    .map(|phase| json!({FIELDS: {"phase": phase}}));
            }
            Self::Call => &["type", "id", "call_id", "name", "arguments", "status", "created_by"],
            Self::Other => return None,
        };
        let mut fields: Map<String, Value> = item.as_object().cloned().unwrap_or_default();
        fields.retain(|key, value| !known.contains(&key.as_str()) && !value.is_null());
        (!fields.is_empty()).then(|| json!({FIELDS: fields}))
    }
}

/// Whether a thought's payload has what its host needs to read it again.
pub(super) fn is_sealed(payload: &Value) -> bool {
    lenient::is_given(field(field(payload, FIELDS), "encrypted_content"))
}

/// Whether a thought has anything for people to read.
pub(super) fn has_text(thought: &Value) -> bool {
    ["summary", "content"].iter().any(|key| !lenient::text(field(thought, key)).is_empty())
}

impl Item {
    /// The place of a part among those of the item. Summaries have a numbering of their own.
    fn place(&self, number: usize, kind: PartKind) -> Option<usize> {
        let of_kind = |part: &&(usize, &Part)| same_count(part.1.kind, kind);
        self.parts.iter().enumerate().filter(|part| of_kind(&part)).nth(number).map(|(at, _)| at)
    }

    /// Appends text to a part. Only the last part can grow.
    pub(super) fn grow(&mut self, number: usize, kind: PartKind, text: &str) {
        if self.done || text.is_empty() {
            return;
        }
        self.size = self.size.saturating_add(text.len());
        // Above the session's limit there is more than enough to end the response.
        if self.size > MAX_ANSWER + MAX_ANSWER / 4 {
            return;
        }
        if kind == PartKind::Arguments {
            return self.argue(text);
        }
        match self.place(number, kind) {
            Some(at) if at + 1 < self.parts.len() => {}
            Some(at) => {
                if let Some(part) = self.parts.get_mut(at) {
                    part.text.push_str(text);
                }
                self.waiting.push(ModelEvent::Text { kind, fresh: false, text: text.to_string() });
            }
            None => {
                self.parts.push(Part { kind, text: text.to_string() });
                self.waiting.push(ModelEvent::Text { kind, fresh: true, text: text.to_string() });
            }
        }
    }

    /// Appends to a call's arguments.
    fn argue(&mut self, text: &str) {
        self.waiting.extend(match self.arguments.grow(text) {
            Grown::Not => None,
            Grown::By(text) => Some(ModelEvent::Text { kind: PartKind::Arguments, fresh: false, text }),
            Grown::Anew(text) => Some(ModelEvent::Rewrite(text)),
        });
    }

    /// Makes a part read as its host says that it is whole.
    pub(super) fn settle(&mut self, number: usize, kind: PartKind, whole: &str) {
        if self.done || whole.is_empty() {
            return;
        }
        if kind == PartKind::Arguments {
            let had = std::mem::take(&mut self.arguments);
            match whole.strip_prefix(had.text.as_str()) {
                Some(rest) => {
                    self.arguments = had;
                    if !rest.is_empty() {
                        self.argue(rest);
                    }
                }
                None if joined(&had.text) == joined(whole) => self.arguments = had,
                None => self.waiting.push(ModelEvent::Rewrite(whole.to_string())),
            }
            return;
        }
        let Some(at) = self.place(number, kind) else { return self.grow(number, kind, whole) };
        let last = at + 1 == self.parts.len();
        let Some(part) = self.parts.get_mut(at) else { return };
        if let Some(rest) = whole.strip_prefix(part.text.as_str()) {
            let rest = rest.to_string();
            return self.grow(number, kind, &rest);
        }
        if last && joined(&part.text) != joined(whole) {
            part.text = whole.to_string();
            self.waiting.push(ModelEvent::Rewrite(whole.to_string()));
        }
    }
}

/// Whether two kinds of text share a numbering.
fn same_count(one: PartKind, other: PartKind) -> bool {
    (one == PartKind::Summary) == (other == PartKind::Summary)
}
