//! A session under test: the machine, a log, a clock that is turned by hand, and ids that count.

mod dialects;
mod grammar;
mod hosts;
mod large;
pub(crate) mod laws;
mod life;
mod limits;
mod queue;
mod refusals;
mod rows;
mod scenarios;

use std::cell::Cell;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::log::*;
use super::*;
use crate::api::{self, Event};
use crate::provider::{ContextLine, ContextPart, arrange};

/// The log of a session under test, and what is kept beside it.
pub trait TestLog: Log {
    /// Of a new session.
    fn create() -> Self;

    /// Of a session that begins with these records, in the order of their places, and the state that they lead to.
    fn copy(records: &[Record], state: &State) -> Self;

    /// Appends records together with the state that they lead to.
    fn append(&mut self, records: &[Record], state: &State);

    /// Remembers the open items.
    fn checkpoint(&mut self, state: &State, open: &[Open]);

    /// The transcript as the model is shown it.
    fn context(&self) -> Vec<ContextLine>;

    /// Another instance takes over: the state, and the open items of the last checkpoint that are open still.
    fn reload(&mut self) -> (State, Vec<Open>);

    /// Every record, in the order of its places.
    fn all(&self) -> Vec<Record>;

    /// Checks what must hold after every step.
    fn check(&self, _state: &State) {}
}

/// The log, in the order of its places.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    records: BTreeMap<Seq, Record>,
    /// The state, as it was written last.
    state: String,
    /// The open items of the last checkpoint, and the place of the first.
    checkpoint: (Seq, Vec<Open>),
}

impl TestLog for Memory {
    fn create() -> Self {
        Self { state: to_json(&State::new(Seconds(1000))), ..Self::default() }
    }

    fn copy(records: &[Record], state: &State) -> Self {
        let records = records.iter().map(|record| (record.seq, record.clone())).collect();
        Self { records, state: to_json(state), ..Self::default() }
    }

    fn append(&mut self, records: &[Record], state: &State) {
        for record in records {
            assert!(self.records.insert(record.seq, record.clone()).is_none(), "place {:?} twice", record.seq);
        }
        self.state = to_json(state);
    }

    fn checkpoint(&mut self, state: &State, open: &[Open]) {
        if let Phase::Sampling { at, .. } = &state.phase {
            self.checkpoint = (*at, open.to_vec());
        }
    }

    fn context(&self) -> Vec<ContextLine> {
        let shown = self.records.values().filter(|record| record.entry.in_context());
        shown
            .map(|record| {
                let item = match record.entry.queued() {
                    Some(queued) => self.item(queued).unwrap(),
                    None => record.entry.item().unwrap().clone(),
                };
                let part = match &item.kind {
                    Kind::Message { role: Role::User } => ContextPart::User,
                    Kind::Message { role: Role::Assistant } => ContextPart::Assistant,
                    Kind::Reasoning => ContextPart::Reasoning,
                    Kind::FunctionCall { .. } => ContextPart::Call,
                    Kind::FunctionCallOutput { .. } => ContextPart::Output,
                    Kind::Error => panic!("an error is shown to the model"),
                };
                ContextLine { place: record.seq, part, origin: item.origin, body: item.body }
            })
            .collect()
    }

    fn reload(&mut self) -> (State, Vec<Open>) {
        let state: State = serde_json::from_str(&self.state).unwrap();
        let (first, open) = &self.checkpoint;
        let open = match &state.phase {
            Phase::Sampling { at, .. } => {
                let gone = usize::try_from(at.0.saturating_sub(first.0)).unwrap();
                open.iter().skip(gone).cloned().collect()
            }
            Phase::Idle | Phase::Parked { .. } => Vec::new(),
        };
        (state, open)
    }

    fn all(&self) -> Vec<Record> {
        self.records.values().cloned().collect()
    }
}

fn to_json(state: &State) -> String {
    serde_json::to_string(state).unwrap()
}

impl Log for Memory {
    fn records(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable> {
        Ok(self.records.range(from..).take(limit).map(|(_, record)| record.clone()).collect())
    }

    fn output_of(&self, call_id: &CallId) -> Result<Option<Item>, Unreadable> {
        let answered = |record: &Record| match &record.entry {
            Entry::CallResolved { item, .. } | Entry::Seeded { item } if is_output(item, call_id) => {
                Some(item.clone())
            }
            _ => None,
        };
        Ok(self.records.values().find_map(answered))
    }

    fn has_call(&self, call_id: &CallId) -> Result<bool, Unreadable> {
        let is = |item: &Item| matches!(&item.kind, Kind::FunctionCall { call_id: id, .. } if id == call_id);
        Ok(self.records.values().any(|record| record.entry.item().is_some_and(is)))
    }
}

fn is_output(item: &Item, call_id: &CallId) -> bool {
    matches!(&item.kind, Kind::FunctionCallOutput { call_id: id } if id == call_id)
}

/// A log whose reads fail after so many.
struct Failing<'a, L> {
    log: &'a L,
    reads: Cell<usize>,
    failed: Cell<bool>,
}

impl<L: Log> Failing<'_, L> {
    fn read<R>(&self, read: impl FnOnce(&L) -> Result<R, Unreadable>) -> Result<R, Unreadable> {
        match self.reads.get().checked_sub(1) {
            Some(left) => {
                self.reads.set(left);
                read(self.log)
            }
            None => {
                self.failed.set(true);
                Err(Unreadable::Storage("out of order".into()))
            }
        }
    }
}

impl<L: Log> Log for Failing<'_, L> {
    fn records(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable> {
        self.read(|log| log.records(from, limit))
    }

    fn output_of(&self, call_id: &CallId) -> Result<Option<Item>, Unreadable> {
        self.read(|log| log.output_of(call_id))
    }

    fn has_call(&self, call_id: &CallId) -> Result<bool, Unreadable> {
        self.read(|log| log.has_call(call_id))
    }
}

#[derive(Clone)]
pub struct Counter(pub u64);

impl Mint for Counter {
    fn uuid(&mut self) -> String {
        self.0 += 1;
        format!("{:032x}", self.0)
    }
}

/// The machine with what a driver would have around it.
pub struct Rig<L = Memory> {
    pub session: Session,
    pub log: L,
    pub ids: Counter,
    pub now: u64,
    /// Everything that was ever published.
    pub seen: Vec<Event>,
    /// Records in the order in which they were appended.
    appended: Vec<Record>,
    /// The model request that was made last. It may be over.
    pub request: Option<Seq>,
    /// The task that runs.
    running: Option<TaskId>,
    /// Whether the next write is lost.
    pub loses_write: bool,
    /// Whether the next events cannot be made.
    pub loses_events: bool,
    /// What the model was shown, request by request.
    pub prompts: Vec<Vec<ContextLine>>,
    /// Whether growth of open items is left to be published later, together.
    pub gathers: bool,
}

impl Rig {
    fn new() -> Self {
        Self::with(settings())
    }

    fn with(settings: Settings) -> Self {
        Self::on(Memory::create(), settings)
    }
}

impl<L: TestLog> Rig<L> {
    /// A new session with that log.
    pub fn on(log: L, settings: Settings) -> Self {
        let id = SessionId("sess_000000000000000000000000000abcde".into());
        let session = Session::load(id, settings, State::new(Seconds(1000)), Vec::new());
        Self {
            session,
            log,
            ids: Counter(0),
            now: 1000,
            seen: Vec::new(),
            appended: Vec::new(),
            request: None,
            running: None,
            loses_write: false,
            loses_events: false,
            prompts: Vec::new(),
            gathers: false,
        }
    }

    /// Takes one input and does what a driver does. Checks the laws that hold after every step.
    pub fn step(&mut self, input: Input) -> Result<Ack, Rejected> {
        let over = match &input {
            Input::ModelFailed { at, .. } => Some(*at),
            Input::Model { at, events } => {
                events.iter().any(|event| matches!(event, ModelEvent::Finish { .. })).then_some(*at)
            }
            _ => None,
        };
        self.running.take_if(|task| over.is_some_and(|at| *task == TaskId::Sample(at)));
        let before = self.session.clone();
        let taken = self.take(&input);
        let effects =
            taken.inspect_err(|_| assert!(self.session == before, "a rejected input changed something"))?;
        if !effects.append.is_empty() {
            if std::mem::take(&mut self.loses_write) {
                self.reload();
                let ack = self.step(Input::Recover)?;
                return if input == Input::Recover { Ok(ack) } else { self.step(input) };
            }
            self.log.append(&effects.append, &self.session.state);
        }
        self.appended.extend(effects.append.iter().cloned());
        assert_eq!(self.fold(), self.session.state, "folding the log gives another state");
        if !(self.gathers && effects.append.is_empty()) {
            self.publish(&effects.append);
        }
        for task in effects.stop {
            self.running.take_if(|running| *running == task);
            self.request.take_if(|at| TaskId::Sample(*at) == task);
        }
        for Task::Sample(sample) in effects.start {
            assert!(matches!(self.session.state.phase, Phase::Sampling { at, .. } if at == sample.at));
            assert_eq!(self.running.replace(TaskId::Sample(sample.at)), None, "two model requests at once");
            self.request = Some(sample.at);
            let prompt = self.log.context();
            assert_valid(&prompt);
            dialects::assert_valid(&prompt, &self.session.state);
            if let Some(last) = self.prompts.last() {
                assert!(
                    prompt.starts_with(last),
                    "the model's context was not only added to:\n{last:#?}\n{prompt:#?}"
                );
            }
            self.prompts.push(prompt);
        }
        if self.running.is_some() {
            assert!(matches!(self.session.state.phase, Phase::Sampling { .. }), "a request that nobody waits for");
        }
        match &self.session.state.phase {
            Phase::Idle => assert_eq!(effects.alarm, None),
            Phase::Sampling { wait: Some(wait), .. } if wait.0 > self.now => {
                assert_eq!(effects.alarm, Some(Alarm::Retry(*wait)));
                assert_eq!(self.running, None, "a request that has to wait is made");
            }
            Phase::Sampling { .. } => assert_eq!(effects.alarm, Some(Alarm::Watchdog(Seconds(self.now + 30)))),
            Phase::Parked { calls, .. } => {
                let first = calls.iter().filter_map(|call| call.expires_at).min();
                assert_eq!(effects.alarm, first.map(Alarm::Deadline));
            }
        }
        self.log.check(&self.session.state);
        Ok(effects.ack)
    }

    /// The step itself, tried first with a log that fails at its first read, at its second, and so on: it then changes nothing.
    fn take(&mut self, input: &Input) -> Result<Effects, Rejected> {
        for reads in 0.. {
            let before = self.session.clone();
            let mut ids = self.ids.clone();
            let log = Failing { log: &self.log, reads: Cell::new(reads), failed: Cell::new(false) };
            let mut context = Context { now: Seconds(self.now), ids: &mut ids, log: &log };
            let taken = self.session.step(input.clone(), &mut context);
            if !log.failed.get() {
                self.ids = ids;
                return taken;
            }
            assert!(matches!(taken, Err(Rejected::Unreadable(_))), "a failed read was taken for an answer");
            assert!(self.session == before, "a step that could not read the log changed something");
        }
        unreachable!("a step reads the log without end")
    }

    /// Shows what there is to show. If that fails the readers come back with the cursor that they have.
    fn publish(&mut self, appended: &[Record]) {
        if !std::mem::take(&mut self.loses_events) {
            self.seen.extend(api::publish(&mut self.session, appended, &self.log).unwrap());
            return;
        }
        let log = Failing { log: &self.log, reads: Cell::new(0), failed: Cell::new(false) };
        match api::publish(&mut self.session, appended, &log) {
            Ok(events) => self.seen.extend(events),
            Err(_) => {
                self.session.skip();
                let from = self.seen.last().and_then(|event| event.cursor).unwrap_or(Cursor::START);
                self.seen.extend(api::replay(&self.session, from, usize::MAX, &self.log).unwrap().events);
            }
        }
    }

    fn fold(&self) -> State {
        let mut state = State::new(Seconds(1000));
        for record in &self.appended {
            state.apply(record);
        }
        state
    }

    /// The object dies and another instance takes over, from the state row and the last checkpoint.
    pub fn crash(&mut self) {
        let before = self.session.state.clone();
        self.reload();
        assert_eq!(self.session.state, before, "another state was stored");
        self.step(Input::Recover).unwrap();
    }

    fn reload(&mut self) {
        let (state, open) = self.log.reload();
        self.session = Session::load(self.session.id.clone(), self.session.settings.clone(), state, open);
        (self.request, self.running) = (None, None);
    }

    /// A copy of the session, made from its log in the order of its places.
    pub fn fork(&self) -> Rig<L> {
        self.fork_until(self.session.settled())
    }

    /// The same, up to the place that was settled when the copy began: the original has gone on meanwhile.
    pub fn fork_until(&self, until: Seq) -> Rig<L> {
        let mut state = State::new(Seconds(1000));
        let records: Vec<Record> = self.log.all().into_iter().filter(|record| record.seq <= until).collect();
        for record in &records {
            state.apply(record);
        }
        let mut copy = Rig::on(L::copy(&records, &state), self.session.settings.clone());
        copy.ids = Counter(1_000_000);
        copy.now = self.now;
        copy.appended = records;
        copy.session = Session::load(copy.session.id, copy.session.settings, state, Vec::new());
        copy.step(Input::Forked).unwrap();
        copy
    }

    pub fn flush(&mut self) {
        self.publish(&[]);
    }

    pub fn save(&mut self) {
        self.log.checkpoint(&self.session.state, self.session.open_items());
    }

    pub fn say(&mut self, text: &str) -> Ack {
        self.step(Input::Message(posted(text, &[]))).unwrap()
    }

    pub fn say_with(&mut self, text: &str, tools: &[&str]) -> Ack {
        self.step(Input::Message(posted(text, tools))).unwrap()
    }

    pub fn model(&mut self, events: Vec<ModelEvent>) {
        let at = self.request.expect("a model request is open");
        self.step(Input::Model { at, events }).unwrap();
    }

    pub fn steer(&mut self, text: &str, tools: &[&str]) -> Ack {
        self.step(Input::Message(NewMessage { on_busy: OnBusy::Steer, ..posted(text, tools) })).unwrap()
    }

    pub fn give(&mut self, call_id: &str, output: &str) -> Result<Ack, Rejected> {
        self.step(Input::Output(ToolOutput {
            call_id: CallId(call_id.into()),
            output: json!(output),
            is_error: false,
        }))
    }

    pub fn interrupt(&mut self) -> Ack {
        self.step(Input::Interrupt { response_id: None }).unwrap()
    }

    /// What was published so far, in short. Forgets it.
    pub fn heard(&mut self) -> Vec<String> {
        self.seen.drain(..).map(|event| short(&event)).collect()
    }
}

/// A turn that is parked on the calls `a` and `b` of the tool `look`.
fn parked() -> Rig {
    let mut rig = Rig::new();
    rig.say_with("go", &["look"]);
    rig.model(vec![call("a", "look"), arguments("{\"x\":1}"), close(), call("b", "look"), close(), done()]);
    rig.heard();
    rig
}

pub fn settings() -> Settings {
    Settings {
        model: "m".into(),
        client_tools: Vec::new(),
        tool_timeout: None,
        tool_timeouts: BTreeMap::new(),
        expires_at: None,
        watchdog: 30,
        max_model_calls: 8,
        max_queue: 4,
        max_answer: MAX_ANSWER,
        recovery_window: 300,
    }
}

pub fn posted(text: &str, tools: &[&str]) -> NewMessage {
    let tool = |name: &&str| Tool {
        name: (*name).into(),
        description: None,
        parameters: None,
        strict: None,
        tool_timeout_s: None,
    };
    NewMessage {
        content: json!([{"type": "input_text", "text": text}]),
        tools: tools.iter().map(tool).collect(),
        model: None,
        settings: None,
        on_busy: OnBusy::Queue,
    }
}

pub fn text(text: &str) -> ModelEvent {
    ModelEvent::Text { kind: PartKind::Text, fresh: false, text: text.into() }
}

pub fn arguments(text: &str) -> ModelEvent {
    ModelEvent::Text { kind: PartKind::Arguments, fresh: false, text: text.into() }
}

pub fn call(id: &str, name: &str) -> ModelEvent {
    ModelEvent::Call { provider_id: id.into(), name: name.into() }
}

pub fn close() -> ModelEvent {
    ModelEvent::Close { payload: None }
}

pub fn done() -> ModelEvent {
    ModelEvent::Finish {
        reason: Finish::Done,
        usage: Usage { input_tokens: 2, output_tokens: 1, total_tokens: 3, ..Usage::default() },
    }
}

pub fn failed(code: &str, retryable: bool) -> ModelFailure {
    let failure = Failure { code: code.into(), message: "it went wrong".into() };
    ModelFailure { failure, retryable, retry_after_seconds: None, remedy: Remedy::None }
}

pub fn data(event: &Event) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

/// `status running`, `output_text.delta hello`, `output_item.done function_call action_required`, …
pub fn short(event: &Event) -> String {
    let data = data(event);
    let item = |key: &str| data["item"][key].as_str().unwrap_or_default().to_string();
    let kind = event.kind.strip_prefix("response.").unwrap_or(event.kind);
    let detail = match event.kind {
        "session.status" => data["status"].as_str().unwrap().to_string(),
        kind if kind.ends_with(".delta") => data["delta"].as_str().unwrap().to_string(),
        "response.output_item.added" | "response.output_item.done" => {
            format!("{} {}", item("type"), item("status"))
        }
        "response.failed" => data["response"]["error"]["code"].as_str().unwrap().to_string(),
        "response.retry" => format!("{} after {}", data["attempt"], data["delay_seconds"]),
        _ => String::new(),
    };
    format!("{kind} {detail}").trim_end().to_string()
}

/// Every call has exactly one output, after it, and no text of anybody stands between the two.
fn assert_valid(prompt: &[ContextLine]) {
    let mut open: Vec<String> = Vec::new();
    let mut ever: Vec<String> = Vec::new();
    for line in arrange(prompt) {
        let body: Value = serde_json::from_str(&line.body).unwrap();
        let id = body["call_id"].as_str().unwrap_or_default().to_string();
        match line.part {
            ContextPart::Call => {
                assert!(!ever.contains(&id), "call {id} twice in {prompt:#?}");
                ever.push(id.clone());
                open.push(id);
            }
            ContextPart::Output => {
                let at = open.iter().position(|other| *other == id);
                open.remove(at.unwrap_or_else(|| panic!("output {id} without an open call in {prompt:#?}")));
            }
            ContextPart::User | ContextPart::Assistant => assert!(open.is_empty(), "text while {open:?} is open"),
            ContextPart::Reasoning => {}
        }
    }
    assert!(open.is_empty(), "calls {open:?} without an output in {prompt:#?}");
}
