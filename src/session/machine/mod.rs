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
pub use input::{
    Finish, InitialItem, Input, ModelEvent, ModelFailure, NewMessage, OnBusy, Rejected, Remedy, ToolOutput,
};
pub use model::MAX_ANSWER;
pub use state::{BLOCK, LastTurn, Phase, State, Turn, Waiting};

use super::log::{
    Entry, Failure, Item, ItemId, Kind, Log, Mint, Open, Outcome, Record, ResponseId, Seconds, Seq, SessionId,
    Source, Started, Status, TurnHead, Unreadable, Usage,
};
use super::stream::{Cursor, Discard, Feed, SessionStatus, Sink, Step as Shown};

/// Attempts at one model request.
pub const MAX_ATTEMPTS: u32 = 4;

/// The part of the agent's and the deployment's settings the session decides by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The agent's model.
    pub model: String,
    /// Names of the agent's own client-side tools.
    pub client_tools: Vec<String>,
    /// Seconds until a parked call expires; `None`: never.
    pub tool_timeout: Option<u64>,
    /// The same per tool, for tools of the agent that have a timeout of their own.
    pub tool_timeouts: BTreeMap<String, u64>,
    /// When the session expires and is erased; `None`: never.
    pub expires_at: Option<Seconds>,
    /// Limit of model responses per turn.
    pub max_model_calls: u32,
    /// Limit of queued messages.
    pub max_queue: usize,
    /// Limit of one model response, in bytes.
    pub max_answer: usize,
    /// Seconds after which the watchdog checks a model request, in case its instance has died.
    pub watchdog: u64,
    /// Seconds without progress after which recovery gives up.
    pub recovery_window: u64,
}

/// A session: its durable state, and the items the model is writing.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    pub id: SessionId,
    /// The settings it decides by.
    pub settings: Settings,
    pub state: State,
    open: Vec<Open>,
    shown: Cursor,
    /// The current model request.
    asked: Option<Seq>,
    /// When model output last arrived, according to the last checkpoint; `None`: not since the last record.
    heard: Option<Seconds>,
    /// Size of the current response, in bytes.
    answered: usize,
    /// Size of the provider's call ids in it, in bytes.
    provider_ids: usize,
    /// The host that it comes from.
    origin: Option<String>,
}

/// What a step reads and draws from.
pub struct Context<'a> {
    /// The time of the step.
    pub now: Seconds,
    pub ids: &'a mut dyn Mint,
    /// The log so far.
    pub log: &'a dyn Log,
}

impl Session {
    /// A session as loaded from storage, with the open items of the last checkpoint.
    pub fn load(id: SessionId, settings: Settings, state: State, open: Vec<Open>) -> Self {
        let shown = logged(&state);
        Self {
            id,
            settings,
            state,
            open,
            shown,
            asked: None,
            answered: 0,
            provider_ids: 0,
            origin: None,
            heard: None,
        }
    }

    /// The same, with the time model output last arrived: recovery counts from then.
    #[must_use]
    pub fn heard_at(self, heard: Option<Seconds>) -> Self {
        Self { heard, ..self }
    }

    /// Takes one input. A rejected input changes nothing.
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

    /// Shows what is new since the last call: records that were just appended, and the growth of the open items. After
    /// an error the sink may hold a part of it, which must not be sent.
    pub fn publish(&mut self, appended: &[Record], log: &dyn Log, sink: &mut dyn Sink) -> Result<(), Unreadable> {
        let mut feed = Feed::new(self.shown, sink);
        for record in appended {
            feed.record(record, log)?;
        }
        feed_open(&mut feed, &self.state, &self.open);
        self.shown = feed.at();
        Ok(())
    }

    /// Skips everything there is to show. Readers who missed it find it in a replay.
    pub fn skip(&mut self) {
        let mut nobody = Discard;
        let mut feed = Feed::new(self.shown.max(logged(&self.state)), &mut nobody);
        feed_open(&mut feed, &self.state, &self.open);
        self.shown = feed.at();
    }

    /// The last place of the log whose content is final. Items of an unfinished response are not.
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

    /// Where the stream starts for a reader who has the log's items: before the open items.
    pub fn begin(&self) -> Cursor {
        match &self.state.phase {
            Phase::Sampling { at, .. } if !self.open.is_empty() => Cursor::before(*at).min(self.shown),
            Phase::Idle | Phase::Sampling { .. } | Phase::Parked { .. } => self.shown,
        }
    }

    /// Shows the stream after `from`, until the sink holds about `budget` bytes. Everything must have been published: a
    /// replay ends where the live steps continue.
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

    /// Shows what a reader without a cursor gets first: the status, the parked calls, and the text being written.
    pub fn greet(&self, log: &dyn Log, sink: &mut dyn Sink) -> Result<(), Unreadable> {
        // A reader who arrives after a failure must not attribute it to the turn it is about to start.
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

    /// Whether there is an open item of which nothing has been published yet.
    pub fn has_unseen_item(&self) -> bool {
        let Phase::Sampling { at, .. } = &self.state.phase else { return false };
        let last = at.plus((self.open.len() as u64).saturating_sub(1));
        !self.open.is_empty() && self.shown <= Cursor::before(last)
    }

    /// Size of the current model response so far, in bytes.
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// The open items, for a checkpoint.
    pub fn open_items(&self) -> &[Open] {
        &self.open
    }

    /// Whether the session has expired.
    pub fn is_over(&self, now: Seconds) -> bool {
        self.settings.expires_at.is_some_and(|at| at <= now)
    }

    /// When and why the session must wake up on its own.
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

/// How far a replay got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The position of a reader who has everything shown.
    pub cursor: Cursor,
    /// Whether there is more to show already.
    pub more: bool,
}

/// When and why a session must wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A model request is running: check it, in case its instance has died.
    Watchdog(Seconds),
    /// A delayed model request is due.
    Retry(Seconds),
    /// A parked call expires.
    Deadline(Seconds),
    /// The session expires.
    End(Seconds),
}

impl Alarm {
    pub fn at(&self) -> Seconds {
        match self {
            Alarm::Watchdog(at) | Alarm::Retry(at) | Alarm::Deadline(at) | Alarm::End(at) => *at,
        }
    }
}

/// The position after everything in the log.
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

/// A step in progress: later parts of the step see every entry that it has appended.
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
        let id = ItemId::mint(self.context.ids);
        Item { id, response_id, created_at: self.context.now, status, kind, origin: None, body }
    }

    /// Requests the model, if the turn is sampling and within its limit of model calls. A delayed request is made when
    /// the alarm fires.
    fn sample(&mut self) {
        let limit = self.session.settings.max_model_calls;
        match &self.session.state.phase {
            Phase::Idle | Phase::Parked { .. } => return,
            Phase::Sampling { wait: Some(wait), .. } if *wait > self.context.now => return,
            Phase::Sampling { turn, .. } if turn.model_calls >= limit => {
                let message = format!("this turn exceeded {limit} model calls; post another message to continue");
                self.end(Outcome::Failed(Failure { code: "tool_loop_limit".into(), message }), Usage::default());
                return;
            }
            Phase::Sampling { .. } => self.steer(),
        }
        if let Phase::Sampling { at, .. } = self.session.state.phase {
            self.session.asked = Some(at);
            self.session.answered = 0;
            self.session.provider_ids = 0;
            self.session.origin = None;
            self.effects.start.push(Task::Sample(Sample { at }));
        }
    }

    /// Aborts the current model request.
    fn stop_sample(&mut self) {
        self.effects.stop.extend(self.session.asked.map(TaskId::Sample));
    }

    /// Whether the turn may make another model request after the one just completed.
    fn may_go_on(&self) -> bool {
        let model_calls = self.session.state.turn().map_or(0, |turn| turn.model_calls);
        model_calls.saturating_add(1) < self.session.settings.max_model_calls
    }

    /// Ends the turn, whose last model request used `usage`, and starts the next queued message's turn.
    fn end(&mut self, outcome: Outcome, usage: Usage) {
        self.end_as(outcome, usage, false);
    }

    /// The same. `refused`: because the host refused what it was shown.
    fn end_as(&mut self, outcome: Outcome, usage: Usage, refused: bool) {
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
        self.append(Entry::Ended { outcome, usage: used, at: self.context.now, turn, refused });
        self.next_turn();
    }

    fn next_turn(&mut self) {
        if let Some(waiting) = self.session.state.queue.front().cloned() {
            let model = waiting.model.unwrap_or_else(|| self.session.settings.model.clone());
            // The turn it was to join has ended.
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
