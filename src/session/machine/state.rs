//! The small state of a session: one row, whatever the length of the transcript.
//!
//! Always true: folding the records of the log, in the order in which they were appended, gives this state (`apply` is
//! the only thing that changes it); each phase holds just the data that exists in it; `next` lies above every place in
//! the log that was ever used or shown to anybody.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::session::log::{
    Entry, Failure, Item, ItemId, OpenCall, Outcome, Record, ResponseId, Seconds, Seq, Source, Started, Tool,
    TurnHead, Usage,
};
use crate::session::stream::SessionStatus;

/// How many places of the log a model request reserves for its output items. Items get their place, and with it the
/// cursors of their deltas, when they open; other records that come meanwhile go above the block.
pub const BLOCK: u64 = 1024;

/// The state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The place of the next record.
    pub next: Seq,
    /// What the session is doing.
    pub phase: Phase,
    /// Messages that wait for a turn, first in first out.
    #[serde(default)]
    pub queue: VecDeque<Waiting>,
    /// The last turn that ended.
    #[serde(default)]
    pub last: Option<LastTurn>,
    /// Sum over all turns.
    #[serde(default)]
    pub usage: Usage,
    /// Model requests that are over. A scripted model plays its entries by this number.
    #[serde(default)]
    pub requests: u64,
    /// When the session last changed.
    pub updated_at: Seconds,
}

/// What a session is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing.
    Idle,
    /// A model request is under way, or has to be.
    Sampling {
        /// The open turn.
        turn: Turn,
        /// Which attempt at this request, from 1.
        attempt: u32,
        /// How often the session was found dead since the turn last moved on.
        restarts: u32,
        /// Where the next output item goes.
        at: Seq,
        /// When the request's turn last moved on; recovery gives up when that is long ago.
        since: Seconds,
        /// When the request is to be made, if not at once. Until then nothing runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait: Option<Seconds>,
    },
    /// Calls wait for their outputs. Nothing runs.
    Parked {
        /// The open turn.
        turn: Turn,
        /// The calls without an output, in the order in which the model made them.
        calls: Vec<OpenCall>,
    },
}

/// An open turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// What all its records agree on.
    pub head: TurnHead,
    /// Where the record is that holds its message and its tools.
    pub source: Seq,
    /// Names of the tools that its messages brought.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Seconds until calls expire of those tools that have a time of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<String, u64>,
    /// Where the records are of messages that joined it and brought tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<Seq>,
    /// Model responses that were complete so far.
    pub model_calls: u32,
    /// Output items so far.
    pub items: u32,
    /// What its model requests used so far.
    pub usage: Usage,
}

/// A message in the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Where its `Queued` record stands.
    pub seq: Seq,
    /// Its item.
    pub item_id: ItemId,
    /// The turn that it will get.
    pub response_id: ResponseId,
    /// When it was accepted.
    pub created_at: Seconds,
    /// Names of the tools that it brings.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Seconds until calls expire of those tools that have a time of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<String, u64>,
    /// Whether it is to join the turn that was open when it came. If that turn has ended, it gets one of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steers: bool,
    /// The model that it asks for.
    #[serde(default)]
    pub model: Option<String>,
}

/// The last turn that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastTurn {
    /// The turn.
    pub id: ResponseId,
    /// How it ended.
    pub outcome: Outcome,
}

impl State {
    /// A session that has just been made.
    pub fn new(now: Seconds) -> Self {
        Self {
            next: Seq(1),
            phase: Phase::Idle,
            queue: VecDeque::new(),
            last: None,
            usage: Usage::default(),
            requests: 0,
            updated_at: now,
        }
    }

    /// Whether there is anything in the log.
    pub fn has_records(&self) -> bool {
        self.next > Seq(1)
    }

    /// The open turn.
    pub fn turn(&self) -> Option<&Turn> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Sampling { turn, .. } | Phase::Parked { turn, .. } => Some(turn),
        }
    }

    /// The calls that wait for an output.
    pub fn open_calls(&self) -> &[OpenCall] {
        match &self.phase {
            Phase::Parked { calls, .. } => calls,
            Phase::Idle | Phase::Sampling { .. } => &[],
        }
    }

    /// The error of the last turn, until the next one starts.
    pub fn last_error(&self) -> Option<&Failure> {
        match (&self.phase, &self.last) {
            (Phase::Idle, Some(LastTurn { outcome: Outcome::Failed(failure), .. })) => Some(failure),
            _ => None,
        }
    }

    /// The status, as clients see it.
    pub fn status(&self) -> SessionStatus {
        match &self.phase {
            Phase::Sampling { .. } => SessionStatus::Running,
            Phase::Parked { .. } => SessionStatus::Waiting,
            Phase::Idle if self.last_error().is_some() => SessionStatus::Failed,
            Phase::Idle => SessionStatus::Idle,
        }
    }

    /// Where the next record goes: an output item to its reserved place, anything else above all that is reserved.
    pub fn seq_of(&self, entry: &Entry) -> Seq {
        match (entry, &self.phase) {
            (Entry::Output { .. }, Phase::Sampling { at, .. }) => *at,
            _ => self.next,
        }
    }

    /// Lets a record happen. Records that do not fit the phase change nothing but the place of the next one.
    pub fn apply(&mut self, record: &Record) {
        self.next = self.next.max(record.seq.plus(1));
        match &record.entry {
            Entry::Queued(message) => {
                self.updated_at = message.item.created_at;
                self.queue.push_back(Waiting {
                    seq: record.seq,
                    item_id: message.item.id.clone(),
                    response_id: message.item.response_id.clone(),
                    created_at: message.item.created_at,
                    tools: names(&message.tools),
                    timeouts: timeouts(&message.tools),
                    steers: message.steers,
                    model: message.model.clone(),
                });
            }
            Entry::Withdrawn { queued, at } => {
                self.updated_at = *at;
                self.queue.retain(|waiting| waiting.seq != *queued);
            }
            Entry::Steered { queued, at } => self.steer(record.seq, *queued, *at),
            Entry::Started(started) => self.start(record.seq, started),
            Entry::Output { item, .. } => {
                self.updated_at = item.created_at;
                if let Phase::Sampling { turn, at, since, .. } = &mut self.phase {
                    turn.items = turn.items.saturating_add(1);
                    *at = record.seq.plus(1);
                    *since = item.created_at;
                }
            }
            Entry::Called { calls, usage, at } => {
                self.updated_at = *at;
                if let Some(mut turn) = self.take_turn() {
                    self.requests = self.requests.saturating_add(1);
                    turn.model_calls = turn.model_calls.saturating_add(1);
                    turn.usage.add(*usage);
                    self.phase = Phase::Parked { turn, calls: calls.clone() };
                }
            }
            Entry::CallResolved { item, call, resumes, .. } => self.answer(record.seq, item, *call, *resumes),
            Entry::Dropped { at } => {
                self.updated_at = *at;
                self.queue.clear();
            }
            Entry::Note { item } | Entry::Seeded { item } => self.updated_at = item.created_at,
            Entry::Retried { attempt, restarts, delay_seconds, at, .. } => {
                self.updated_at = *at;
                let since = match &self.phase {
                    Phase::Sampling { since, .. } => *since,
                    Phase::Idle | Phase::Parked { .. } => *at,
                };
                self.requests = self.requests.saturating_add(1);
                if let Some(turn) = self.take_turn() {
                    let wait = (*delay_seconds > 0).then(|| at.after(u64::from(*delay_seconds)));
                    let next = Next { attempt: *attempt, restarts: *restarts, since, wait };
                    self.sample(turn, record.seq, next);
                }
            }
            Entry::Ended { outcome, usage, at, turn } => {
                self.updated_at = *at;
                if matches!(self.phase, Phase::Sampling { .. }) {
                    self.requests = self.requests.saturating_add(1);
                }
                self.usage.add(*usage);
                self.last = Some(LastTurn { id: turn.response_id.clone(), outcome: outcome.clone() });
                self.phase = Phase::Idle;
            }
        }
    }

    fn start(&mut self, seq: Seq, started: &Started) {
        let (source, (tools, timeouts)) = match &started.source {
            Source::Message(message) => (seq, (names(&message.tools), timeouts(&message.tools))),
            Source::Queued(queued) => {
                (*queued, self.take_waiting(*queued).map(|w| (w.tools, w.timeouts)).unwrap_or_default())
            }
        };
        let head = started.turn.clone();
        let now = head.created_at;
        self.updated_at = now;
        let joined = Vec::new();
        let turn =
            Turn { head, source, tools, timeouts, joined, model_calls: 0, items: 0, usage: Usage::default() };
        self.sample(turn, seq, Next::first(now));
    }

    /// A message joins the turn: the next model request comes after it.
    fn steer(&mut self, seq: Seq, queued: Seq, at: Seconds) {
        self.updated_at = at;
        let waiting = self.take_waiting(queued);
        let next = match &self.phase {
            Phase::Sampling { attempt, restarts, since, wait, .. } => {
                Next { attempt: *attempt, restarts: *restarts, since: *since, wait: *wait }
            }
            Phase::Idle | Phase::Parked { .. } => Next::first(at),
        };
        let Some(mut turn) = self.take_turn() else { return };
        if let Some(waiting) = waiting.filter(|waiting| !waiting.tools.is_empty()) {
            turn.joined.push(queued);
            turn.tools.extend(waiting.tools);
            turn.timeouts.extend(waiting.timeouts);
        }
        self.sample(turn, seq, next);
    }

    fn take_waiting(&mut self, queued: Seq) -> Option<Waiting> {
        self.queue.iter().position(|waiting| waiting.seq == queued).and_then(|n| self.queue.remove(n))
    }

    fn answer(&mut self, seq: Seq, item: &Item, call: Seq, resumes: bool) {
        self.updated_at = item.created_at;
        let Phase::Parked { turn, calls } = &mut self.phase else {
            return;
        };
        turn.items = turn.items.saturating_add(1);
        calls.retain(|open| open.seq != call);
        if resumes && let Some(turn) = self.take_turn() {
            self.sample(turn, seq, Next::first(item.created_at));
        }
    }

    fn sample(&mut self, turn: Turn, after: Seq, next: Next) {
        let at = after.plus(1);
        let Next { attempt, restarts, since, wait } = next;
        self.next = self.next.max(at.plus(BLOCK));
        self.phase = Phase::Sampling { turn, attempt, restarts, at, since, wait };
    }

    fn take_turn(&mut self) -> Option<Turn> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => None,
            Phase::Sampling { turn, .. } | Phase::Parked { turn, .. } => Some(turn),
        }
    }
}

/// The model request that comes next; see `Phase::Sampling`.
struct Next {
    attempt: u32,
    restarts: u32,
    since: Seconds,
    wait: Option<Seconds>,
}

impl Next {
    fn first(now: Seconds) -> Self {
        Self { attempt: 1, restarts: 0, since: now, wait: None }
    }
}

fn timeouts(tools: &[Tool]) -> BTreeMap<String, u64> {
    tools.iter().filter_map(|tool| Some((tool.name.clone(), tool.tool_timeout_s?))).collect()
}

fn names(tools: &[Tool]) -> Vec<String> {
    tools.iter().map(|tool| tool.name.clone()).collect()
}
