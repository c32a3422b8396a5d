//! Assembles the calls of one response from deltas.
//!
//! Hosts number calls wrongly, name them late, reuse one id for several calls, and repeat what they have sent. A delta
//! belongs to:
//!
//! | the delta | belongs to |
//! |---|---|
//! | has the id and the index of a call | that call, whatever else it repeats |
//! | has a known id, and no name | the call with that id |
//! | has a known id and another index | a call of its own, unless it repeats the whole call |
//! | has an unknown id | the call at its index (without one: the last call) if that has no id yet, else a call of its own |
//! | has no id | the call at its index; without an index, the last call |
//! | has neither id nor name, and an unknown index | the last call |
//!
//! Where that does not settle it, a name repeated after complete arguments starts another call, but only with a
//! different name or different arguments: running a call twice is worse than dropping a duplicate.

use serde_json::{Map, Value, json};

use crate::json::field;
use crate::provider::arguments::Arguments;
use crate::provider::lenient;
use crate::provider::projection::FIELDS;
use crate::session::{ModelEvent, PartKind};

/// The least that a call counts, in bytes.
const CALL: usize = 4096;

/// The calls, in the order they started.
#[derive(Default)]
pub(super) struct Calls {
    list: Vec<Call>,
    /// Number of calls that started before the current chunk.
    before: usize,
    size: usize,
}

struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Arguments,
    /// Its name was repeated after its arguments were complete: different arguments would belong to another call.
    named_again: bool,
    /// Other fields of the call. They must be sent back.
    fields: Map<String, Value>,
}

/// A delta of a call, or a whole one.
struct Delta<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
    /// Its index in the chunk's list.
    position: usize,
}

impl Calls {
    /// Takes the list of one chunk.
    pub(super) fn add(&mut self, list: &[Value]) {
        self.before = self.list.len();
        for (position, value) in list.iter().enumerate() {
            let function = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
            let (id, name) = (lenient::text(field(value, "id")), lenient::text(field(function, "name")));
            let arguments = match field(function, "arguments") {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                json => json.to_string(),
            };
            let index = lenient::count(field(value, "index"));
            let delta = Delta { index, id: &id, name: &name, arguments: &arguments, position };
            self.add_delta(&delta, value);
        }
    }

    /// Size of everything held here, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Drains the calls as events. `message` has fields of the message around them, and goes with the first.
    pub(super) fn take(&mut self, message: Map<String, Value>, out: &mut Vec<ModelEvent>) {
        let mut message = Some(message).filter(|fields| !fields.is_empty());
        for call in std::mem::take(self).list {
            let mut fields = Map::new();
            if !call.fields.is_empty() {
                fields.insert("call".into(), call.fields.into());
            }
            if let Some(message) = message.take() {
                fields.insert("message".into(), message.into());
            }
            let payload = if fields.is_empty() { None } else { Some(json!({FIELDS: fields})) };
            out.push(ModelEvent::Call { provider_id: call.id, name: call.name });
            out.push(ModelEvent::Text { kind: PartKind::Arguments, fresh: false, text: call.arguments.text });
            out.push(ModelEvent::Close { payload });
        }
    }

    fn add_delta(&mut self, delta: &Delta<'_>, value: &Value) {
        let found = self.find(delta);
        let before = found.and_then(|at| self.list.get(at)).map_or(0, Call::size);
        let at = found.unwrap_or(self.list.len());
        if found.is_none() {
            self.list.push(Call {
                index: delta.index,
                id: String::new(),
                name: self.name_of_next(delta),
                arguments: Arguments::default(),
                named_again: false,
                fields: Map::new(),
            });
        }
        let Some(call) = self.list.get_mut(at) else { return };
        call.take(delta);
        for (key, value) in value.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "index" | "id" | "type" | "function" | "name" | "arguments")
                && call.fields.get(key) != Some(value)
            {
                self.size += key.len() + value.to_string().len();
                call.fields.insert(key.clone(), value.clone());
            }
        }
        self.size += call.size().saturating_sub(before);
    }

    /// A call that starts with arguments alone was announced by the repeated name.
    fn name_of_next(&self, delta: &Delta<'_>) -> String {
        match self.list.last() {
            Some(last) if delta.name.is_empty() && last.named_again => last.name.clone(),
            _ => String::new(),
        }
    }

    /// The call a delta belongs to; `None`: it starts a new one.
    fn find(&self, delta: &Delta<'_>) -> Option<usize> {
        let at = self.candidate(delta)?;
        let call = self.list.get(at)?;
        let identified = !delta.id.is_empty() && call.id == delta.id && call.index == delta.index;
        let certain = identified && delta.index.is_some();
        (certain || !call.is_followed_by(delta)).then_some(at)
    }

    fn candidate(&self, delta: &Delta<'_>) -> Option<usize> {
        // A list of complete calls that repeats the calls so far.
        let repeated = self.list.get(delta.position).is_some_and(|call| {
            let same_id = delta.id.is_empty() || call.id.is_empty() || call.id == delta.id;
            same_id && call.is_repeated_by(delta)
        });
        if repeated && delta.position < self.before {
            return Some(delta.position);
        }
        let last = self.list.len().checked_sub(1);
        let at_index = || {
            let Some(index) = delta.index else { return last };
            let numbered = self.list.iter().rposition(|call| call.index == delta.index);
            // A call without an index is numbered in order.
            let counted = usize::try_from(index).ok();
            numbered.or(counted.filter(|at| self.list.get(*at).is_some_and(|call| call.index.is_none())))
        };
        if delta.id.is_empty() {
            return at_index().or(if delta.name.is_empty() { last } else { None });
        }
        let same_index = |call: &Call| delta.index.is_none() || call.index.is_none() || call.index == delta.index;
        let known = self.list.iter().rposition(|call| call.id == delta.id && same_index(call)).or_else(|| {
            let same = |call: &Call| call.id == delta.id && (delta.name.is_empty() || call.is_repeated_by(delta));
            self.list.iter().rposition(same)
        });
        known.or_else(|| at_index().filter(|at| self.list.get(*at).is_some_and(|call| call.id.is_empty())))
    }
}

impl Call {
    fn size(&self) -> usize {
        CALL + self.id.len() + self.name.len() + self.arguments.text.len()
    }

    /// Whether a delta repeats this whole call.
    fn is_repeated_by(&self, delta: &Delta<'_>) -> bool {
        self.name == delta.name && self.arguments.is_whole() && self.arguments.is_same(delta.arguments)
    }

    /// Whether a delta without an index or id starts the next call.
    fn is_followed_by(&self, delta: &Delta<'_>) -> bool {
        if !self.arguments.is_whole() {
            return false;
        }
        let named = !delta.name.is_empty() && !self.name.is_empty();
        let differs = named && delta.name != self.name;
        let has_arguments = || !delta.arguments.trim().is_empty() && !self.arguments.is_same(delta.arguments);
        differs || ((named || self.named_again) && has_arguments())
    }

    fn take(&mut self, delta: &Delta<'_>) {
        self.named_again |= !self.name.is_empty() && !delta.name.is_empty() && self.arguments.is_whole();
        if self.id.is_empty() {
            self.id = delta.id.to_string();
        }
        if self.name.is_empty() {
            self.name = delta.name.to_string();
        }
        self.arguments.take(delta.arguments);
    }
}
