//! What the targets share: an answer decoded in one piece and in many has to say the same, and a session has to come to
//! rest whatever it says.

use std::collections::BTreeMap;

use layby::provider::{Decoder, Host, Prompt, Provider, Sampling};
use layby::session::{
    CallId, Context, Entry, Input, Item, Kind, Log, Mint, ModelEvent, ModelFailure, NewMessage, OnBusy, PartKind,
    Record, Seconds, Seq, Session, SessionId, SessionStatus, Settings, State, Task, Unreadable,
};

/// Decodes `data`, whose first two bytes say where to cut, and lets a session hear it.
pub fn answer(dialect: fn(Host) -> Provider, data: &[u8]) {
    let [high, low, bytes @ ..] = data else { return };
    let cut = usize::from(u16::from_be_bytes([*high, *low])) % (bytes.len() + 1);
    let (one, two) = bytes.split_at(cut);
    let provider = dialect(Host::at("https://model.test/v1"));
    let whole = decode(&provider, &[bytes]);
    assert_eq!(said(&whole), said(&decode(&provider, &[one, two])), "the cut at {cut} changed what was said");
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(said(&whole), said(&decode(&provider, &single)), "single bytes changed what was said");
    hear(&provider, &[one, two]);
}

type Decoded = (Vec<ModelEvent>, Option<ModelFailure>);

fn decoder(provider: &Provider) -> Box<dyn Decoder> {
    let sampling = Sampling::default();
    let prompt = Prompt {
        model: "m",
        instructions: None,
        tools: &[],
        context: &[],
        sampling: &sampling,
        withheld: &[],
        lessons: &[],
    };
    match provider.ask(&prompt) {
        Some((_, decoder)) => decoder,
        None => panic!("nobody to ask"),
    }
}

fn decode(provider: &Provider, chunks: &[&[u8]]) -> Decoded {
    let mut decoder = decoder(provider);
    let mut events = Vec::new();
    let pushed = chunks.iter().try_for_each(|chunk| decoder.push(chunk, &mut events));
    let failure = pushed.and_then(|()| decoder.finish(&mut events)).err();
    (events, failure)
}

/// What remains the same however an answer was cut: all that was said, and why it failed.
fn said((events, failure): &Decoded) -> (&[ModelEvent], Option<&str>) {
    (events, failure.as_ref().map(|failure| failure.failure.code.as_str()))
}

#[derive(Default)]
struct Memory(BTreeMap<Seq, Record>);

impl Log for Memory {
    fn records(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable> {
        Ok(self.0.range(from..).take(limit).map(|(_, record)| record.clone()).collect())
    }

    fn output_of(&self, call_id: &CallId) -> Result<Option<Item>, Unreadable> {
        let output =
            |item: &&Item| matches!(&item.kind, Kind::FunctionCallOutput { call_id: id } if id == call_id);
        Ok(self.0.values().filter_map(|record| record.entry.item()).find(output).cloned())
    }

    fn has_call(&self, call_id: &CallId) -> Result<bool, Unreadable> {
        let call = |item: &Item| matches!(&item.kind, Kind::FunctionCall { call_id: id, .. } if id == call_id);
        Ok(self.0.values().filter_map(|record| record.entry.item()).any(call))
    }
}

struct Counter(u64);

impl Mint for Counter {
    fn uuid(&mut self) -> String {
        self.0 += 1;
        format!("{:032x}", self.0)
    }
}

struct Rig {
    session: Session,
    log: Memory,
    ids: Counter,
}

impl Rig {
    fn step(&mut self, input: Input) -> Option<Seq> {
        let mut context = Context { now: Seconds(1000), ids: &mut self.ids, log: &self.log };
        let effects = match self.session.step(input, &mut context) {
            Ok(effects) => effects,
            Err(rejected) => panic!("{rejected}"),
        };
        for record in &effects.append {
            assert!(self.log.0.insert(record.seq, record.clone()).is_none(), "a place was used twice");
        }
        match layby::api::publish(&mut self.session, &effects.append, &self.log) {
            Ok(events) => assert!(events.iter().all(|event| !event.data.contains(['\n', '\r']))),
            Err(e) => panic!("{e}"),
        }
        effects.start.first().map(|Task::Sample(sample)| sample.at)
    }

    fn say(&mut self) -> Option<Seq> {
        let content = serde_json::json!([{"type": "input_text", "text": "go"}]);
        let message =
            NewMessage { content, tools: Vec::new(), model: None, settings: None, on_busy: OnBusy::Interrupt };
        self.step(Input::Message(message))
    }
}

fn hear(provider: &Provider, chunks: &[&[u8]]) {
    let settings = Settings {
        model: "m".into(),
        client_tools: vec!["look".into()],
        tool_timeout: None,
        tool_timeouts: BTreeMap::new(),
        expires_at: None,
        max_model_calls: 8,
        max_queue: 4,
        max_answer: layby::session::MAX_ANSWER,
        watchdog: 30,
        recovery_window: 300,
    };
    let id = SessionId("sess_0".into());
    let session = Session::load(id, settings, State::new(Seconds(1000)), Vec::new());
    let mut rig = Rig { session, log: Memory::default(), ids: Counter(0) };
    let Some(at) = rig.say() else { panic!("the model was not asked") };
    let mut decoder = decoder(provider);
    let mut hear = |said: Result<(), ModelFailure>, events: Vec<ModelEvent>| {
        let _ = rig.step(Input::Model { at, events });
        if let Err(failure) = said {
            let _ = rig.step(Input::ModelFailed { at, failure });
        }
    };
    for chunk in chunks {
        let mut events = Vec::new();
        hear(decoder.push(chunk, &mut events), events);
    }
    let mut events = Vec::new();
    hear(decoder.finish(&mut events), events);
    // Whatever was said, the next message gets an answer, and every call has one output by then.
    let Some(at) = rig.say() else { panic!("the session cannot be used any more") };
    let (mut calls, mut outputs) = (0, 0);
    for record in rig.log.0.values().filter(|record| record.entry.in_context()) {
        match record.entry.item().map(|item| &item.kind) {
            Some(Kind::FunctionCall { .. }) => calls += 1,
            Some(Kind::FunctionCallOutput { .. }) => outputs += 1,
            _ => {}
        }
    }
    assert_eq!(calls, outputs, "a call has no output");
    let fine = ModelEvent::Text { kind: PartKind::Text, fresh: false, text: "fine".into() };
    let reason = layby::session::Finish::Done;
    let end = ModelEvent::Finish { reason, usage: Default::default() };
    rig.step(Input::Model { at, events: vec![ModelEvent::Message, fine, end] });
    assert_eq!(rig.session.state.status(), SessionStatus::Idle);
    let last = rig.log.0.values().next_back().map(|record| &record.entry);
    assert!(matches!(last, Some(Entry::Ended { .. })));
}
