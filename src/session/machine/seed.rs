//! How a session starts: from items of an earlier conversation, or from the log of the session it forks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{InitialItem, Rejected, Step};
use crate::session::log::{CallId, Entry, Kind, ResponseId, Role, Status, output_body};

impl Step<'_, '_> {
    /// Accepts the items if they form a valid transcript: every call directly followed by its one output.
    pub(super) fn seed(&mut self, seeds: Vec<InitialItem>) -> Result<(), Rejected> {
        check_pairs(&seeds)?;
        let response_id = ResponseId::mint(self.context.ids);
        for seed in seeds {
            let (kind, body) = match seed {
                InitialItem::Message { role, mut content } => {
                    annotate(&mut content);
                    let body = json!({"type": "message", "role": role, "content": content}).to_string();
                    (Kind::Message { role }, body)
                }
                InitialItem::Call { call_id, name, arguments } => {
                    let body =
                        json!({"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments});
                    (Kind::FunctionCall { call_id, name }, body.to_string())
                }
                InitialItem::Output(given) => {
                    let body = output_body(given.call_id.as_str(), &given.output, given.is_error);
                    (Kind::FunctionCallOutput { call_id: given.call_id }, body)
                }
            };
            let item = self.item(response_id.clone(), Status::Completed, kind, body);
            self.append(Entry::Seeded { item });
        }
        Ok(())
    }

    /// Whatever is open in the original belongs to the original: here the turn ends and the queue is empty.
    pub(super) fn forked(&mut self) {
        self.cancel_turn(super::interrupt::FORKED);
        if !self.session.state.queue.is_empty() {
            self.append(Entry::Dropped { at: self.context.now });
        }
    }
}

/// Gives every text of the assistant the annotations that strict hosts want, as those have that a model wrote.
fn annotate(content: &mut Value) {
    for part in content.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if part.get("type").is_some_and(|kind| kind == "output_text") {
            part.entry("annotations").or_insert_with(|| json!([]));
        }
    }
}

fn check_pairs(seeds: &[InitialItem]) -> Result<(), Rejected> {
    let mut open: BTreeMap<&CallId, usize> = BTreeMap::new();
    let mut ever: BTreeSet<&CallId> = BTreeSet::new();
    let first = |open: &BTreeMap<&CallId, usize>| {
        open.iter().min_by_key(|(_, index)| **index).map(|(call_id, _)| call_id.to_string())
    };
    for (index, seed) in seeds.iter().enumerate() {
        let unpaired = |why: String| Err(Rejected::Unpaired { index, why });
        match seed {
            InitialItem::Call { call_id, .. } if !ever.insert(call_id) => {
                return unpaired(format!("call {call_id} is a duplicate"));
            }
            InitialItem::Call { call_id, .. } => drop(open.insert(call_id, index)),
            InitialItem::Output(given) => {
                if open.remove(&given.call_id).is_none() {
                    return unpaired(format!("this output has no open call {} before it", given.call_id));
                }
            }
            InitialItem::Message { role: Role::User | Role::Assistant, .. } => {
                if let Some(call_id) = first(&open) {
                    return unpaired(format!("call {call_id} has no output before this message"));
                }
            }
        }
    }
    match first(&open) {
        Some(call_id) => {
            let index = seeds.len().saturating_sub(1);
            Err(Rejected::Unpaired { index, why: format!("call {call_id} has no output") })
        }
        None => Ok(()),
    }
}
