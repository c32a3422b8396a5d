//! The response: a stream of events, or one JSON object from a host that does not stream.
//!
//! An item is found by its `output_index` or its id. The session takes items one after the other, so the events of an item
//! that is not the first open one are applied to it, and passed on once those before it are finished. Text without
//! deltas is passed on as deltas; repetitions (a delta, the whole text, the item, the response) count once. Where they
//! differ, the finished item has the last word.

use serde_json::{Value, json};

use super::items::{Item, ItemKind, has_text, is_sealed};
use crate::json::{self, field};
use crate::provider::arguments::Arguments;
use crate::provider::stream::{Answer, Frame, Streamed};
use crate::provider::{failure, lenient, stop};
use crate::session::{Finish, ModelEvent, ModelFailure, PartKind, Usage};

/// The limit of what waits for other items, in bytes of memory.
const HELD: usize = 16 * 1024 * 1024;

/// The decoder of one response.
pub type ResponseDecoder = Streamed<ItemsAnswer>;

/// One answer.
#[derive(Default)]
pub struct ItemsAnswer {
    /// Items in the order they started. Only the first unfinished one is passed on as it grows.
    items: Vec<Item>,
    /// How many of them are passed on whole.
    passed: usize,
    /// How many of those are items of the session.
    numbered: u64,
    /// The size of what waits, in bytes.
    held: usize,
    usage: Usage,
    finished: bool,
}

/// Which of the items so far another one is.
enum Seen {
    At(usize),
    /// A call that was counted before.
    Again,
    New,
}

impl ItemsAnswer {
    fn event(&mut self, event: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let kind = field(event, "type").as_str().unwrap_or_default();
        match kind {
            "response.completed" | "response.incomplete" | "response.done" => return self.complete(event, out),
            "response.failed" | "response.cancelled" => {
                return Err(failure::in_band(event.get("response").unwrap_or(event)));
            }
            "error" => return Err(failure::in_band(event)),
            _ if kind.is_empty() && (failure::is_error(event) || failure::is_flat_error(event)) => {
                return Err(failure::in_band(event));
            }
            _ => {}
        }
        self.count(field(field(event, "response"), "usage"));
        let text = |key: &str| lenient::text(field(event, key));
        let delta = text("delta");
        match kind {
            "response.output_item.added" => drop(self.announced(event)),
            "response.output_item.done" => {
                let at = self.announced(event);
                self.finish_item(at, field(event, "item"));
            }
            "response.output_text.delta" => self.delta(event, PartKind::Text, &delta),
            "response.output_text.done" => self.whole(event, PartKind::Text, &text("text")),
            "response.refusal.delta" => self.delta(event, PartKind::Refusal, &delta),
            "response.refusal.done" => self.whole(event, PartKind::Refusal, &text("refusal")),
            "response.function_call_arguments.delta" => self.delta(event, PartKind::Arguments, &delta),
            "response.function_call_arguments.done" => {
                self.whole(event, PartKind::Arguments, &arguments(field(event, "arguments")));
            }
            "response.reasoning_summary_text.delta" => self.delta(event, PartKind::Summary, &delta),
            "response.reasoning_summary_text.done" => self.whole(event, PartKind::Summary, &text("text")),
            "response.reasoning_text.delta" => self.delta(event, PartKind::Reasoning, &delta),
            "response.reasoning_text.done" => self.whole(event, PartKind::Reasoning, &text("text")),
            _ => {}
        }
        self.pass_on(out);
        if self.held > HELD { Err(failure::too_much(HELD)) } else { Ok(()) }
    }

    /// The item that an event announces or finishes: a known one, or a new one.
    fn announced(&mut self, event: &Value) -> usize {
        let item = field(event, "item");
        let index = lenient::count(field(event, "output_index"));
        match self.find(index, item) {
            Some(at) => {
                if let Some(known) = self.items.get_mut(at) {
                    known.index = known.index.or(index);
                }
                at
            }
            None => self.begin(index, item),
        }
    }

    /// The place of a known item. A host may number items wrongly, or not at all, but the same index with another id is
    /// another item, and so is a finished one without a number.
    fn find(&self, index: Option<u64>, item: &Value) -> Option<usize> {
        let (id, call_id) = (lenient::text(field(item, "id")), lenient::text(field(item, "call_id")));
        let kind = ItemKind::of(item);
        let differs = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
        let same = |known: &&Item| known.kind == kind && !differs(&known.call_id, &call_id);
        let at = |found: &dyn Fn(&Item) -> bool| self.items.iter().rposition(|known| same(&known) && found(known));
        let numbered = |known: &Item| known.index.is_none() || index.is_none() || known.index == index;
        let by_call = |known: &Item| !call_id.is_empty() && known.call_id == call_id && numbered(known);
        let by_index =
            |known: &Item| index.is_some() && known.index == index && (!differs(&known.id, &id) || !known.done);
        let by_id = |known: &Item| !id.is_empty() && known.id == id && numbered(known);
        // What is not numbered is the last one of its kind that is not finished.
        let open = |known: &Item| (index.is_none() || known.index.is_none()) && !known.done;
        at(&by_call).or_else(|| at(&by_index)).or_else(|| at(&by_id)).or_else(|| at(&open))
    }

    fn begin(&mut self, index: Option<u64>, item: &Value) -> usize {
        let kind = ItemKind::of(item);
        let text = |key: &str| lenient::text(field(item, key)).into_owned();
        let opening = match kind {
            ItemKind::Message => Some(ModelEvent::Message),
            ItemKind::Reasoning => Some(ModelEvent::Reasoning),
            ItemKind::Call => Some(ModelEvent::Call { provider_id: text("call_id"), name: text("name") }),
            ItemKind::Other => None,
        };
        self.items.push(Item {
            index,
            id: text("id"),
            call_id: text("call_id"),
            kind,
            opening,
            parts: Vec::new(),
            arguments: Arguments::default(),
            size: 0,
            waiting: Vec::new(),
            payload: None,
            incomplete: None,
            done: false,
        });
        self.items.len() - 1
    }

    /// The item that a text belongs to: by its index or id, or the last of a kind that has such texts.
    fn owner(&mut self, event: &Value, kind: PartKind) -> Option<usize> {
        let (index, id) = (lenient::count(field(event, "output_index")), lenient::text(field(event, "item_id")));
        let fits = |item: &Item| item.kind == ItemKind::having(kind);
        let at = |found: &dyn Fn(&Item) -> bool| self.items.iter().rposition(|item| fits(item) && found(item));
        let by_index = |item: &Item| index.is_some() && item.index == index;
        let by_id = |item: &Item| !id.is_empty() && item.id == id;
        let open = |item: &Item| !item.done && (index.is_none() || item.index.is_none());
        let found = at(&|item| by_index(item) && !item.done)
            .or_else(|| at(&|item| by_id(item) && !item.done))
            .or_else(|| at(&open));
        let known = at(&by_index).or_else(|| at(&by_id));
        match (found, known, kind) {
            (Some(at), _, _) => Some(at),
            (None, Some(_), _) => None, // it is finished
            // Text that arrives before its item is announced.
            (None, None, PartKind::Text | PartKind::Refusal) => {
                Some(self.begin(index, &json!({"type": "message", "id": id})))
            }
            (None, None, PartKind::Arguments | PartKind::Summary | PartKind::Reasoning) => None,
        }
    }

    fn delta(&mut self, event: &Value, kind: PartKind, delta: &str) {
        let Some(at) = self.owner(event, kind) else { return };
        self.held = self.held.saturating_add(delta.len());
        if let Some(item) = self.items.get_mut(at) {
            item.grow(number(event, kind), kind, delta);
        }
    }

    fn whole(&mut self, event: &Value, kind: PartKind, whole: &str) {
        let Some(at) = self.owner(event, kind) else { return };
        if let Some(item) = self.items.get_mut(at) {
            item.settle(number(event, kind), kind, whole);
        }
    }

    /// Applies what is left of a finished item, and finishes it.
    fn finish_item(&mut self, at: usize, item: &Value) {
        self.held = self.held.saturating_add(json::footprint(item));
        let Some(known) = self.items.get_mut(at).filter(|known| !known.done) else { return };
        match known.kind {
            ItemKind::Message => {
                for (n, part) in lenient::list(field(item, "content")).iter().enumerate() {
                    match field(part, "type").as_str() {
                        Some("refusal") => {
                            known.settle(n, PartKind::Refusal, &lenient::text(field(part, "refusal")))
                        }
                        _ => known.settle(n, PartKind::Text, &lenient::text(part)),
                    }
                }
            }
            ItemKind::Reasoning => {
                for (n, part) in lenient::list(field(item, "summary")).iter().enumerate() {
                    known.settle(n, PartKind::Summary, &lenient::text(part));
                }
                for (n, part) in lenient::list(field(item, "content")).iter().enumerate() {
                    known.settle(n, PartKind::Reasoning, &lenient::text(part));
                }
            }
            ItemKind::Call => known.settle(0, PartKind::Arguments, &arguments(field(item, "arguments"))),
            ItemKind::Other => {}
        }
        if let Some(ModelEvent::Call { provider_id, name }) = &mut known.opening {
            let text = |key: &str| lenient::text(field(item, key)).into_owned();
            if provider_id.is_empty() {
                *provider_id = text("call_id");
            }
            if name.is_empty() {
                *name = text("name");
            }
        }
        known.payload = known.kind.payload(item);
        known.done = true;
    }

    /// Passes on what is known of the first unfinished item and, once that is finished, of those after it.
    fn pass_on(&mut self, out: &mut Vec<ModelEvent>) {
        while let Some(item) = self.items.get_mut(self.passed) {
            // A call without a name or an id may get them until it is finished.
            let unnamed = matches!(&item.opening, Some(ModelEvent::Call { provider_id, name })
                if provider_id.is_empty() || name.is_empty());
            if unnamed && !item.done {
                break;
            }
            if item.kind != ItemKind::Other {
                out.extend(item.opening.take());
                out.append(&mut item.waiting);
            }
            if !item.done {
                break;
            }
            if item.kind != ItemKind::Other {
                let payload = item.payload.take();
                let sealed = item.kind != ItemKind::Reasoning || payload.as_ref().is_some_and(is_sealed);
                out.push(if sealed {
                    ModelEvent::Close { payload }
                } else {
                    item.incomplete = Some(self.numbered);
                    ModelEvent::CloseBefore { payload }
                });
                self.numbered += 1;
            }
            item.parts.clear();
            self.passed += 1;
        }
        if self.passed + 1 >= self.items.len() {
            self.held = 0;
        }
    }

    fn complete(&mut self, event: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let response = event.get("response").filter(|response| response.is_object()).unwrap_or(event);
        if matches!(field(response, "status").as_str(), Some("failed" | "cancelled")) {
            return Err(failure::in_band(response));
        }
        // The final response has what had no event of its own.
        let mut taken = vec![false; self.items.len()];
        for (index, item) in (0..).zip(lenient::list(field(response, "output"))) {
            let at = match self.streamed(index, item, &taken) {
                Seen::At(at) => at,
                Seen::Again => continue,
                // A thought that says nothing, and too late to go with what it led to.
                Seen::New if ItemKind::of(item) == ItemKind::Reasoning && !has_text(item) => continue,
                Seen::New => self.begin(Some(index), item),
            };
            taken.resize(self.items.len(), false);
            if let Some(taken) = taken.get_mut(at) {
                *taken = true;
            }
            match self.items.get_mut(at).and_then(|known| known.incomplete.take()) {
                Some(number) => {
                    if let Some(payload) = ItemKind::Reasoning.payload(item).filter(is_sealed) {
                        out.push(ModelEvent::Payload { item: number, payload });
                    }
                }
                None => self.finish_item(at, item),
            }
        }
        self.items.iter_mut().for_each(|item| item.done = true);
        self.pass_on(out);
        self.count(field(response, "usage"));
        let limit = lenient::text(field(field(response, "incomplete_details"), "reason"));
        let reason = match (field(event, "type").as_str(), field(response, "status").as_str()) {
            (Some("response.incomplete"), _) | (_, Some("incomplete")) => match stop::finish(&limit)? {
                Finish::Done if limit.is_empty() => Finish::Limit("max_output_tokens".into()),
                Finish::Done => Finish::Limit(limit.into_owned()),
                known => known,
            },
            _ => Finish::Done,
        };
        out.push(ModelEvent::Finish { reason, usage: self.usage });
        self.finished = true;
        Ok(())
    }

    /// Which of the items so far an item of the final response is. Hosts number them differently there, and repeat calls.
    fn streamed(&self, index: u64, item: &Value, taken: &[bool]) -> Seen {
        let (id, call_id) = (lenient::text(field(item, "id")), lenient::text(field(item, "call_id")));
        let kind = ItemKind::of(item);
        let fits = |known: &Item| {
            known.kind == kind && (kind != ItemKind::Call || known.call_id == call_id || known.call_id.is_empty())
        };
        let first = |found: &dyn Fn(&Item) -> bool| {
            let free = |at: &usize| taken.get(*at) == Some(&false);
            let found = |(_, known): &(usize, &Item)| fits(known) && found(known);
            self.items.iter().enumerate().filter(|(at, _)| free(at)).find(found).map(|(at, _)| at)
        };
        let same_id = |known: &Item| !id.is_empty() && known.id == id;
        let found =
            first(&|known| known.index == Some(index)).or_else(|| first(&same_id)).or_else(|| first(&|_| true));
        let known_call = || !call_id.is_empty() && self.items.iter().any(|known| known.call_id == call_id);
        match found {
            Some(at) => Seen::At(at),
            None if known_call() => Seen::Again,
            None => Seen::New,
        }
    }

    /// Counts never fall within a response.
    fn count(&mut self, usage: &Value) {
        let count = |key: &str| lenient::count(field(usage, key)).unwrap_or(0);
        let detail = |group: &str, key: &str| lenient::count(field(field(usage, group), key)).unwrap_or(0);
        let (had, input, output) = (self.usage, count("input_tokens"), count("output_tokens"));
        let (cached, thought) =
            (detail("input_tokens_details", "cached_tokens"), detail("output_tokens_details", "reasoning_tokens"));
        self.usage = Usage {
            input_tokens: had.input_tokens.max(input),
            output_tokens: had.output_tokens.max(output),
            total_tokens: had.total_tokens.max(count("total_tokens")).max(input.saturating_add(output)),
            cached_tokens: had.cached_tokens.max(cached),
            reasoning_tokens: had.reasoning_tokens.max(thought),
        };
    }
}

impl Answer for ItemsAnswer {
    fn frame(&mut self, frame: Frame, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        match frame {
            Frame::Json(event) => self.event(&event, out),
            Frame::Done => Ok(()),
        }
    }

    fn body(&mut self, body: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let response = body.get("response").unwrap_or(body);
        if !response.get("output").is_some_and(Value::is_array) && field(response, "status") != "failed" {
            return Err(failure::no_answer(body));
        }
        self.complete(body, out)
    }

    /// The event that says why the model stopped is the last one.
    fn is_whole(&self) -> bool {
        false
    }

    fn end(&mut self, _: &mut Vec<ModelEvent>) {}

    fn is_finished(&self) -> bool {
        self.finished
    }
}

fn number(event: &Value, kind: PartKind) -> usize {
    let key = if kind == PartKind::Summary { "summary_index" } else { "content_index" };
    lenient::count(field(event, key)).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

/// Arguments as text; some hosts send the object itself.
fn arguments(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        json => json.to_string(),
    }
}
