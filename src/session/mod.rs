//! Ring 0: a session as a state machine. Pure, synchronous, deterministic: no clock, no randomness, no I/O of its own.
//!
//! Three modules, each building on the one before it:
//! - `log`: the durable records;
//! - `stream`: what they show to readers, as typed steps with positions;
//! - `machine`: what an input changes.
//!
//! # Run loop
//!
//! A driver takes an input, lets the session [`step`](Session::step), and performs the [`Effects`] in order. It decides
//! nothing itself: [`publish`](Session::publish) derives what to show from the appended records and the open items.
//!
//! ```
//! # use layby::session::*;
//! # struct Ids(u64);
//! # impl Mint for Ids {
//! #     fn uuid(&mut self) -> String { self.0 += 1; format!("{:032x}", self.0) }
//! # }
//! # #[derive(Default)]
//! # struct Store { records: Vec<Record>, state: Option<State> }
//! # impl Log for Store {
//! #     fn records(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable> {
//! #         Ok(self.records.iter().filter(|record| record.seq >= from).take(limit).cloned().collect())
//! #     }
//! #     fn output_of(&self, _: &CallId) -> Result<Option<Item>, Unreadable> { Ok(None) }
//! #     fn has_call(&self, _: &CallId) -> Result<bool, Unreadable> { Ok(false) }
//! # }
//! # struct Renderer(Vec<String>);
//! # impl Sink for Renderer {
//! #     fn step(&mut self, _: Option<Cursor>, step: Step<'_>) { self.0.push(format!("{step:?}")); }
//! #     fn size(&self) -> usize { 0 }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let settings = Settings { model: "m".into(), client_tools: vec![], tool_timeout: None, tool_timeouts: Default::default(),
//! #     expires_at: None, max_model_calls: 8, max_queue: 8, max_answer: MAX_ANSWER, watchdog: 30, recovery_window: 300 };
//! # let (mut store, mut ids, mut renderer) = (Store::default(), Ids(0), Renderer(Vec::new()));
//! # let mut session = Session::load(SessionId::mint(&mut ids), settings, State::new(Seconds(0)), Vec::new());
//! # let content = serde_json::json!([{"type": "input_text", "text": "hi"}]);
//! # let input = Input::Message(NewMessage { content, tools: vec![], model: None, settings: None, on_busy: OnBusy::Queue });
//! let effects = session.step(input, &mut Context { now: Seconds(1), ids: &mut ids, log: &store })?;
//! store.records.extend(effects.append.iter().cloned()); // together with
//! store.state = Some(session.state.clone()); //            the state, in one synchronous burst
//! session.publish(&effects.append, &store, &mut renderer)?; // to every subscriber
//! let wake = effects.alarm.map(|alarm| alarm.at()); // set the platform's alarm
//! for task in effects.stop { /* abort it */ }
//! for task in effects.start { /* spawn it: it reports back with inputs that name it */ }
//! let reply = effects.ack;
//! # assert!(matches!(reply, Ack::Message { status: MessageStatus::Started, .. }) && wake.is_some() && !renderer.0.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # Always true
//!
//! - A rejected input has changed nothing.
//! - Folding the log gives the state (`machine::state`).
//! - At most one model request is open; output of an older one is ignored.
//! - Every call gets exactly one output before the next model request.
//! - What a reader receives, resuming wherever it likes, equals what an undisturbed reader receives (`stream`).
//!
//! Deliberately not here: HTTP, provider dialects, the JSON clients see, time, storage.

mod log;
mod machine;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

pub use log::{
    AgentId, CallId, Entry, Failure, IS_ERROR, Item, ItemId, Kind, Lesson, Log, Message, Mint, Open, OpenCall,
    Opening, Outcome, Part, PartKind, Record, ResponseId, Role, Seconds, Seq, SessionId, Source, Started, Status,
    Tool, TurnHead, Unreadable, Usage, Withheld, output_body, plain_id, user_message,
};
pub use machine::{
    Ack, Alarm, BLOCK, Context, Effects, Finish, InitialItem, Input, InterruptStatus, LastTurn, MAX_ANSWER,
    MAX_ATTEMPTS, MessageStatus, ModelEvent, ModelFailure, NewMessage, OnBusy, OutputStatus, Phase, Rejected,
    Remedy, Replayed, Sample, Session, Settings, State, Task, TaskId, ToolOutput, Turn, Waiting,
};
#[cfg(test)]
pub use stream::TURN_ITEMS;
pub use stream::{Cursor, Malformed, PartHead, SessionStatus, Sink, Step, TurnItem};
