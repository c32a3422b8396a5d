//! A session with what its driver has around it: a log, ids, and somebody who reads the stream.

use std::collections::BTreeMap;

use layby::api::{Event, publish};
use layby::session::{
    CallId, Context, Effects, Finish, Input, Item, Log, Mint, ModelEvent, NewMessage, OnBusy, PartKind, Record,
    Seconds, Seq, Session, SessionId, Settings, State, Task, ToolOutput, Unreadable, Usage,
};
use layby::sse;

use crate::streams::{PROSE, texts};

/// The session.
#[derive(Clone)]
pub struct Rig {
    pub session: Session,
    pub log: Memory,
    ids: Counter,
    /// The model request that was made last.
    at: Seq,
}

impl Rig {
    pub fn new() -> Self {
        let settings = Settings {
            model: "m".into(),
            client_tools: vec!["read".into()],
            tool_timeout: None,
            tool_timeouts: BTreeMap::new(),
            expires_at: None,
            max_model_calls: 8,
            max_queue: 4,
            max_answer: layby::session::MAX_ANSWER,
            watchdog: 30,
            recovery_window: 300,
        };
        let id = SessionId("sess_0198f1f2a7c27d6a8b1c2d3e4f506172".into());
        let session = Session::load(id, settings, State::new(Seconds(1000)), Vec::new());
        Self { session, log: Memory::default(), ids: Counter(0), at: Seq(0) }
    }

    /// With a turn that waits for the model.
    pub fn asked() -> Self {
        let mut rig = Self::new();
        rig.perform(say());
        rig
    }

    /// With an answer that is published and not finished.
    pub fn written() -> Self {
        let mut rig = Self::asked();
        rig.model([ModelEvent::Message].into_iter().chain(texts().map(|words| text(&words))).collect());
        rig
    }

    pub fn said(&self, events: Vec<ModelEvent>) -> Input {
        Input::Model { at: self.at, events }
    }

    pub fn model(&mut self, events: Vec<ModelEvent>) {
        self.perform(self.said(events));
    }

    pub fn step(&mut self, input: Input) -> Effects {
        let mut context = Context { now: Seconds(1000), ids: &mut self.ids, log: &self.log };
        self.session.step(input, &mut context).unwrap()
    }

    /// Does what a driver does. Returns the frames.
    pub fn perform(&mut self, input: Input) -> String {
        let effects = self.step(input);
        self.at = effects.start.first().map_or(self.at, |Task::Sample(sample)| sample.at);
        self.log.append(&effects.append);
        let events = publish(&mut self.session, &effects.append, &self.log).unwrap();
        frames(&self.session, &events)
    }
}

pub fn frames(session: &Session, events: &[Event]) -> String {
    let mut out = String::new();
    for event in events {
        let id = event.cursor.map(|cursor| cursor.text(&session.id));
        sse::frame(&mut out, event.kind, &event.data, id.as_deref());
    }
    out
}

pub fn say() -> Input {
    let content = serde_json::json!([{"type": "input_text", "text": PROSE}]);
    Input::Message(NewMessage { content, tools: Vec::new(), model: None, settings: None, on_busy: OnBusy::Queue })
}

pub fn given(call: usize) -> Input {
    Input::Output(ToolOutput { call_id: CallId(format!("call_{call}")), output: PROSE.into(), is_error: false })
}

pub fn text(text: &str) -> ModelEvent {
    ModelEvent::Text { kind: PartKind::Text, fresh: false, text: text.into() }
}

pub fn finish() -> ModelEvent {
    ModelEvent::Finish { reason: Finish::Done, usage: Usage::default() }
}

pub fn call(n: usize) -> Vec<ModelEvent> {
    let call = ModelEvent::Call { provider_id: format!("call_{n}"), name: "read".into() };
    vec![call, text("{\"path\":\"canary.log\"}"), finish()]
}

#[derive(Clone, Default)]
pub struct Memory(BTreeMap<Seq, Record>);

impl Memory {
    pub fn append(&mut self, records: &[Record]) {
        self.0.extend(records.iter().map(|record| (record.seq, record.clone())));
    }
}

impl Log for Memory {
    fn records(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable> {
        Ok(self.0.range(from..).take(limit).map(|(_, record)| record.clone()).collect())
    }

    fn output_of(&self, _: &CallId) -> Result<Option<Item>, Unreadable> {
        Ok(None)
    }

    fn has_call(&self, _: &CallId) -> Result<bool, Unreadable> {
        Ok(false)
    }
}

#[derive(Clone)]
struct Counter(u64);

impl Mint for Counter {
    fn uuid(&mut self) -> String {
        self.0 += 1;
        format!("{:032x}", self.0)
    }
}
