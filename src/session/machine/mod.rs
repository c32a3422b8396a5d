//! The machine: inputs in, records and effects out.

mod cancel;
mod effects;
mod input;
mod interrupt;
mod message;
mod model;
mod output;
mod recovery;
mod seed;
mod state;

use std::collections::BTreeMap;

pub use effects::{Ack, Effects, InterruptStatus, MessageStatus, OutputStatus, Sample, Task, TaskId};
pub use input::{Finish, InitialItem, Input, ModelEvent, ModelFailure, NewMessage, OnBusy, Rejected, ToolOutput};
pub use model::MAX_ANSWER;
pub use state::{BLOCK, LastTurn, Phase, State, Turn, Waiting};

use super::log::{
    Entry, Failure, Item, ItemId, Kind, Log, Mint, Open, Outcome, Record, ResponseId, Seconds, Seq, SessionId,
    Source, Started, Status, TurnHead, Unreadable, Usage,
};
use super::stream::{Cursor, Discard, Feed, SessionStatus, Sink, Step as Shown};

/// Attempts at one model request.
pub const MAX_ATTEMPTS: u32 = 4;

/// What a session needs to know of its agent and its deployment to decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The model that the agent asks.
    pub model: String,
    /// Names of the agent's own client-side tools.
    pub client_tools: Vec<String>,
    /// Seconds until a parked call expires; none: never.
    pub tool_timeout: Option<u64>,
    /// The same for those of the agent's tools that have a time of their own.
    pub tool_timeouts: BTreeMap<String, u64>,
    /// When the session is over and everything of it is erased; none: never.
    pub expires_at: Option<Seconds>,
    /// Model responses that one turn may have.
    pub max_model_calls: u32,
    /// Messages that may wait.
    pub max_queue: usize,
    /// Bytes that one response of a model may hold.
    pub max_answer: usize,
    /// Seconds after which somebody looks after a model request, in case that whoever runs it has died.
    pub watchdog: u64,
    /// Seconds without progress after which recovery gives up.
    pub recovery_window: u64,
}

/// A session: its durable state, and what the model is writing at the moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// What it needs to know of its agent.
    pub settings: Settings,
    /// The durable state.
    pub state: State,
    open: Vec<Open>,
    shown: Cursor,
    /// The model request that was made last.
    asked: Option<Seq>,
    /// When the model was last heard, as far as the last checkpoint tells; none: not since the log tells.
    heard: Option<Seconds>,
    /// Bytes of its answer so far.
    answered: usize,
    /// Bytes of its calls' ids so far, as the provider knows them.
    provider_ids: usize,
}

/// What a step may look at and draw from.
pub struct Context<'a> {
    /// The time of the step.
    pub now: Seconds,
    /// New ids.
    pub ids: &'a mut dyn Mint,
    /// The log so far.
    pub log: &'a dyn Log,
}

impl Session {
    /// A session as storage has it, with the open items that were last checkpointed.
    pub fn load(id: SessionId, settings: Settings, state: State, open: Vec<Open>) -> Self {
        let shown = logged(&state);
        Self { id, settings, state, open, shown, asked: None, answered: 0, provider_ids: 0, heard: None }
    }

    /// The same, knowing that the model was last heard at that time: recovery counts from then.
    #[must_use]
    pub fn heard_at(self, heard: Option<Seconds>) -> Self {
        Self { heard, ..self }
    }

    /// Takes one input. An input that is rejected has changed nothing.
    pub fn step(&mut self, input: Input, context: &mut Context<'_>) -> Result<Effects, Rejected> {
        let mut step = Step { session: self, context, effects: Effects::default() };
        match input {
            Input::Message(posted) => step.message(posted)?,
            Input::Output(given) => step.output(given)?,
            Input::Withdraw(item_id) => step.withdraw(item_id)?,
            Input::Cancel(call_id) => step.cancel_call(call_id)?,
            Input::InitialItems(seeds) => step.seed(seeds)?,
            Input::Forked => step.forked(),
            Input::Interrupt { response_id } => step.interrupt(response_id.as_ref()),
            Input::Stop => step.stop(),
            Input::Model { at, events } => step.model(at, events)?,
            Input::ModelFailed { at, failure } => step.model_failed(at, failure),
            Input::Recover => step.recover(),
            Input::Alarm => step.alarm(),
        }
        let effects = step.effects;
        Ok(Effects { alarm: self.due(context.now), ..effects })
    }

    /// Shows what is new since the last time: records that were just appended, and the growth of the open items. After a
    /// failure the sink may have got a part of it, which must not be sent.
    pub fn publish(&mut self, appended: &[Record], log: &dyn Log, sink: &mut dyn Sink) -> Result<(), Unreadable> {
        let mut feed = Feed::new(self.shown, sink);
        for record in appended {
            feed.record(record, log)?;
        }
        feed_open(&mut feed, &self.state, &self.open);
        self.shown = feed.at();
        Ok(())
    }

    /// Passes over everything that there is to show. Whoever missed it finds it in a replay.
    pub fn skip(&mut self) {
        let mut nobody = Discard;
        let mut feed = Feed::new(self.shown.max(logged(&self.state)), &mut nobody);
        feed_open(&mut feed, &self.state, &self.open);
        self.shown = feed.at();
    }

    /// The last place of the log whose content is final: what the model is writing is not, and of its response nothing is.
    pub fn settled(&self) -> Seq {
        let end = match &self.state.phase {
            Phase::Sampling { at, .. } => {
                self.asked.filter(|asked| asked <= at && *at < asked.plus(BLOCK)).unwrap_or(*at)
            }
            Phase::Idle | Phase::Parked { .. } => self.state.next,
        };
        Seq(end.0.saturating_sub(1))
    }

    /// The position of the stream: everything before it has been published.
    pub fn cursor(&self) -> Cursor {
        self.shown
    }

    /// Where a reader has to begin who knows the items of the log: before those that are being written.
    pub fn begin(&self) -> Cursor {
        match &self.state.phase {
            Phase::Sampling { at, .. } if !self.open.is_empty() => Cursor::before(*at).min(self.shown),
            Phase::Idle | Phase::Sampling { .. } | Phase::Parked { .. } => self.shown,
        }
    }

    /// Shows the stream after `from`, until the sink has made about `budget` bytes of it. Everything must have been published:
    /// a replay ends where the live steps go on.
    pub fn replay(
        &self,
        from: Cursor,
        budget: usize,
        log: &dyn Log,
        sink: &mut dyn Sink,
    ) -> Result<Replayed, Unreadable> {
        let mut feed = Feed::new(from, sink);
        let mut next = from.seq;
        loop {
            let records = log.records(next, 64)?;
            let Some(last) = records.last() else { break };
            next = last.seq.plus(1);
            for record in &records {
                feed.record(record, log)?;
                if feed.size() >= budget && feed.at() < self.shown {
                    return Ok(Replayed { cursor: feed.at(), more: true });
                }
            }
        }
        feed_open(&mut feed, &self.state, &self.open);
        Ok(Replayed { cursor: self.shown, more: false })
    }

    /// Shows what a reader without a cursor is told first: the status, the parked calls, and the text that is being written.
    pub fn greet(&self, log: &dyn Log, sink: &mut dyn Sink) -> Result<(), Unreadable> {
        // A reader who comes after a failure must not take it for that of the turn which it is about to start.
        let status = match self.state.status() {
            SessionStatus::Failed => SessionStatus::Idle,
            status => status,
        };
        sink.step(None, Shown::Status(status));
        for call in self.state.open_calls() {
            sink.step(None, Shown::CallParked { call: &log.item(call.seq)?, index: call.index });
        }
        if let Phase::Sampling { turn, .. } = &self.state.phase
            && let Some(open) = self.open.last().filter(|open| !open.closed)
        {
            let index = turn.items.saturating_add(u32::try_from(self.open.len() - 1).unwrap_or(0));
            Feed::greet(sink, open, index, &turn.head.response_id);
        }
        Ok(())
    }

    /// Whether an item has been begun of which nothing was published yet.
    pub fn has_unseen_item(&self) -> bool {
        let Phase::Sampling { at, .. } = &self.state.phase else { return false };
        let last = at.plus((self.open.len() as u64).saturating_sub(1));
        !self.open.is_empty() && self.shown <= Cursor::before(last)
    }

    /// How much the model has written to its current response, in bytes.
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// The items that the model is writing, for a checkpoint.
    pub fn open_items(&self) -> &[Open] {
        &self.open
    }

    /// Whether the session's time is over.
    pub fn is_over(&self, now: Seconds) -> bool {
        self.settings.expires_at.is_some_and(|at| at <= now)
    }

    /// When the session must be woken although nobody asks for it, and why.
    pub fn due(&self, now: Seconds) -> Option<Alarm> {
        let work = match &self.state.phase {
            Phase::Idle => None,
            Phase::Sampling { wait: Some(wait), .. } if *wait > now => Some(Alarm::Retry(*wait)),
            Phase::Sampling { .. } => Some(Alarm::Watchdog(now.after(self.settings.watchdog))),
            Phase::Parked { calls, .. } => {
                calls.iter().filter_map(|call| call.expires_at).min().map(Alarm::Deadline)
            }
        };
        work.into_iter().chain(self.settings.expires_at.map(Alarm::End)).min_by_key(Alarm::at)
    }
}

/// How far a replay came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The position of a reader who has what was shown.
    pub cursor: Cursor,
    /// Whether there is more already.
    pub more: bool,
}

/// When and why a session has to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A model request is under way: look after it, in case that whoever runs it has died.
    Watchdog(Seconds),
    /// A model request that had to wait is to be made.
    Retry(Seconds),
    /// A parked call expires.
    Deadline(Seconds),
    /// The session's time is over.
    End(Seconds),
}

impl Alarm {
    /// When.
    pub fn at(&self) -> Seconds {
        match self {
            Alarm::Watchdog(at) | Alarm::Retry(at) | Alarm::Deadline(at) | Alarm::End(at) => *at,
        }
    }
}

/// The position after everything that is in the log.
fn logged(state: &State) -> Cursor {
    match &state.phase {
        Phase::Sampling { at, .. } => Cursor::before(*at),
        Phase::Idle | Phase::Parked { .. } => Cursor::before(state.next),
    }
}

fn feed_open(feed: &mut Feed<'_>, state: &State, open: &[Open]) {
    let Phase::Sampling { turn, at, .. } = &state.phase else {
        return;
    };
    for (n, item) in (0u32..).zip(open) {
        let seq = at.plus(u64::from(n));
        if seq >= feed.at().seq {
            let last = (n as usize).saturating_add(1) == open.len();
            feed.open(seq, item, turn.items.saturating_add(n), &turn.head.response_id, last);
        }
    }
}

/// A step in progress: every entry that it appends has happened for what follows in the same step.
struct Step<'a, 'c> {
    session: &'a mut Session,
    context: &'a mut Context<'c>,
    effects: Effects,
}

impl Step<'_, '_> {
    fn append(&mut self, entry: Entry) -> Seq {
        let record = Record { seq: self.session.state.seq_of(&entry), entry };
        self.session.state.apply(&record);
        let seq = record.seq;
        self.effects.append.push(record);
        seq
    }

    fn item(&mut self, response_id: ResponseId, status: Status, kind: Kind, body: String) -> Item {
        Item { id: ItemId::mint(self.context.ids), response_id, created_at: self.context.now, status, kind, body }
    }

    /// Asks the model, if the session is to and the turn has not gone round too often. A request that has to wait is made
    /// when the alarm goes off.
    fn sample(&mut self) {
        let limit = self.session.settings.max_model_calls;
        match &self.session.state.phase {
            Phase::Idle | Phase::Parked { .. } => return,
            Phase::Sampling { wait: Some(wait), .. } if *wait > self.context.now => return,
            Phase::Sampling { turn, .. } if turn.model_calls >= limit => {
                let message = format!("the model was asked {limit} times in this turn, which is the limit");
                self.end(Outcome::Failed(Failure { code: "tool_loop_limit".into(), message }), Usage::default());
                return;
            }
            Phase::Sampling { .. } => self.steer(),
        }
        if let Phase::Sampling { at, .. } = self.session.state.phase {
            self.session.asked = Some(at);
            self.session.answered = 0;
            self.session.provider_ids = 0;
            self.effects.start.push(Task::Sample(Sample { at }));
        }
    }

    /// Stops the model request that was made last.
    fn stop_sample(&mut self) {
        self.effects.stop.extend(self.session.asked.map(TaskId::Sample));
    }

    /// Whether the turn may have one model response more after the one that is just complete.
    fn may_go_on(&self) -> bool {
        let model_calls = self.session.state.turn().map_or(0, |turn| turn.model_calls);
        model_calls.saturating_add(1) < self.session.settings.max_model_calls
    }

    /// Ends the turn, whose last model request used `usage`, and lets the next message in the queue have its own.
    fn end(&mut self, outcome: Outcome, usage: Usage) {
        let Some(turn) = self.session.state.turn() else {
            return;
        };
        let (mut used, turn) = (turn.usage, turn.head.clone());
        used.add(usage);
        if let Outcome::Failed(Failure { code, message }) = &outcome {
            let body = serde_json::json!({"type": "error", "code": code, "message": message}).to_string();
            let item = self.item(turn.response_id.clone(), Status::Completed, Kind::Error, body);
            self.append(Entry::Note { item });
        }
        self.append(Entry::Ended { outcome, usage: used, at: self.context.now, turn });
        self.next_turn();
    }

    fn next_turn(&mut self) {
        if let Some(waiting) = self.session.state.queue.front().cloned() {
            let model = waiting.model.unwrap_or_else(|| self.session.settings.model.clone());
            // The turn that it was to join is over.
            let missed = waiting.steers.then(|| ResponseId::mint(self.context.ids));
            self.start(missed.unwrap_or(waiting.response_id), model, Source::Queued(waiting.seq));
        }
    }

    fn start(&mut self, response_id: ResponseId, model: String, source: Source) {
        let started = self.session.state.next;
        let turn = TurnHead { response_id, model, created_at: self.context.now, started };
        self.append(Entry::Started(Started { turn, source }));
        self.sample();
    }
}
