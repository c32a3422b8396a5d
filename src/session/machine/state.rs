//! The small state of a session: one row, whatever the length of the transcript.
//!
//! Always true: folding the records of the log, in the order they were appended, gives this state (`apply` is the only
//! thing that changes it); each phase holds only the data that exists in it; `next` is above every place that was ever
//! used or shown to anybody.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::session::log::{
    Entry, Failure, Item, ItemId, Kind, Lesson, OpenCall, Outcome, Record, ResponseId, Role, Seconds, Seq, Source,
    Started, Tool, TurnHead, Usage, Withheld,
};
use crate::session::stream::SessionStatus;

/// Places of the log that a model request reserves for its output items. An item gets its place, and with it the
/// cursors of its deltas, when it opens; other records appended meanwhile go above the block.
pub const BLOCK: u64 = 1024;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The place of the next record.
    pub next: Seq,
    /// What the session is doing.
    pub phase: Phase,
    /// Queued messages, first in first out.
    #[serde(default)]
    pub queue: VecDeque<Waiting>,
    /// The last turn that ended.
    #[serde(default)]
    pub last: Option<LastTurn>,
    /// Token usage of all turns.
    #[serde(default)]
    pub usage: Usage,
    /// Number of completed model requests. The scripted model selects its entry by it.
    #[serde(default)]
    pub requests: u64,
    /// When the session last changed.
    pub updated_at: Seconds,
    /// The place of the last model response that succeeded: what is older, its host has taken.
    #[serde(default, skip_serializing_if = "Seq::is_start")]
    pub taken: Seq,
    /// Until where a host has refused what came after `taken`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Seq>,
    /// What the current model request is tried without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Withheld>,
    /// What the model is no longer shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<Withheld>,
    /// What hosts were found to refuse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lessons: Vec<Lesson>,
}

/// What a session is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Idle,
    /// A model request is running, or is about to.
    Sampling {
        turn: Turn,
        /// The attempt at this request, from 1.
        attempt: u32,
        /// How often a new instance found the session dead since the turn last made progress.
        restarts: u32,
        /// The place of the next output item.
        at: Seq,
        /// When the turn last made progress; recovery gives up when that is too long ago.
        since: Seconds,
        /// When to make the request; absent: at once. Until then nothing runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait: Option<Seconds>,
    },
    /// Calls are open. Nothing runs.
    Parked {
        turn: Turn,
        /// The open calls, in the order the model made them.
        calls: Vec<OpenCall>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The fields all its records share.
    pub head: TurnHead,
    /// The place of the record with its message and tools.
    pub source: Seq,
    /// Names of the tools its messages brought.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Per-tool call timeouts, in seconds, for tools that have one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<String, u64>,
    /// The places of messages that joined the turn and brought tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<Seq>,
    /// Completed model responses so far.
    pub model_calls: u32,
    /// Output items so far.
    pub items: u32,
    /// Token usage so far.
    pub usage: Usage,
}

/// A queued message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The place of its `Queued` record.
    pub seq: Seq,
    pub item_id: ItemId,
    /// The id its turn will have.
    pub response_id: ResponseId,
    /// When it was accepted.
    pub created_at: Seconds,
    /// Names of the tools it brings.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Per-tool call timeouts, in seconds, for tools that have one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<String, u64>,
    /// Whether it is to join the turn that was open when it arrived. If that turn has ended, it gets one of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steers: bool,
    /// The model it asks for.
    #[serde(default)]
    pub model: Option<String>,
}

/// The last turn that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastTurn {
    pub id: ResponseId,
    pub outcome: Outcome,
}

impl State {
    /// The state of a new session.
    pub fn new(now: Seconds) -> Self {
        Self {
            next: Seq(1),
            phase: Phase::Idle,
            queue: VecDeque::new(),
            last: None,
            usage: Usage::default(),
            requests: 0,
            updated_at: now,
            taken: Seq(0),
            refused: None,
            trial: None,
            withheld: Vec::new(),
            lessons: Vec::new(),
        }
    }

    /// Whether the log is empty.
    pub fn has_records(&self) -> bool {
        self.next > Seq(1)
    }

    pub fn turn(&self) -> Option<&Turn> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Sampling { turn, .. } | Phase::Parked { turn, .. } => Some(turn),
        }
    }

    /// The open calls.
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

    /// The status clients see.
    pub fn status(&self) -> SessionStatus {
        match &self.phase {
            Phase::Sampling { .. } => SessionStatus::Running,
            Phase::Parked { .. } => SessionStatus::Waiting,
            Phase::Idle if self.last_error().is_some() => SessionStatus::Failed,
            Phase::Idle => SessionStatus::Idle,
        }
    }

    /// The place of the next record: output items take their reserved place, everything else goes above all reserved
    /// ones.
    pub fn seq_of(&self, entry: &Entry) -> Seq {
        match (entry, &self.phase) {
            (Entry::Output { .. }, Phase::Sampling { at, .. }) => *at,
            _ => self.next,
        }
    }

    /// Applies a record. A record that does not fit the phase changes only `next`.
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
                self.succeed(record.seq);
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
            Entry::Learned { lesson, at } => {
                self.updated_at = *at;
                self.lessons.push(lesson.clone());
                self.repeat(record.seq, *at);
            }
            Entry::Withheld { withheld, at } => {
                self.updated_at = *at;
                self.trial = Some(*withheld);
                self.repeat(record.seq, *at);
            }
            Entry::Ended { outcome, usage, at, turn, refused } => {
                self.updated_at = *at;
                match outcome {
                    Outcome::Completed | Outcome::Incomplete(_) => self.succeed(record.seq),
                    Outcome::Failed(_) if *refused => self.refused = Some(record.seq),
                    Outcome::Failed(_) | Outcome::Cancelled => {}
                }
                self.trial = None;
                if matches!(self.phase, Phase::Sampling { .. }) {
                    self.requests = self.requests.saturating_add(1);
                }
                self.usage.add(*usage);
                self.last = Some(LastTurn { id: turn.response_id.clone(), outcome: outcome.clone() });
                self.phase = Phase::Idle;
            }
        }
    }

    /// A host has taken everything before this place, but for what it was tried without.
    fn succeed(&mut self, seq: Seq) {
        self.taken = seq;
        self.refused = None;
        self.withheld.extend(self.trial.take());
    }

    /// Whether the model is no longer shown an item as it is.
    pub fn withholds(&self, place: Seq, item: &Item) -> bool {
        let refusable = match item.kind {
            Kind::Message { role: Role::User } | Kind::FunctionCallOutput { .. } => true,
            Kind::Message { role: Role::Assistant }
            | Kind::Reasoning
            | Kind::FunctionCall { .. }
            | Kind::Error => false,
        };
        let media = || item.body.contains("\"input_image\"") || item.body.contains("\"input_file\"");
        let is = |one: &Withheld| one.from <= place && place <= one.to && (!one.media || media());
        refusable && self.withheld.iter().any(is)
    }

    /// What a model is shown placeholders for.
    pub fn withheld(&self) -> impl Iterator<Item = &Withheld> {
        self.withheld.iter().chain(&self.trial)
    }

    /// The same model request again, at once and in another form.
    fn repeat(&mut self, seq: Seq, at: Seconds) {
        self.requests = self.requests.saturating_add(1);
        let next = match &self.phase {
            Phase::Sampling { attempt, restarts, since, .. } => {
                Next { attempt: *attempt, restarts: *restarts, since: *since, wait: None }
            }
            Phase::Idle | Phase::Parked { .. } => Next::first(at),
        };
        if let Some(turn) = self.take_turn() {
            self.sample(turn, seq, next);
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

    /// A message joins the turn: it precedes the next model request.
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

/// The phase of the next model request; see `Phase::Sampling`.
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
