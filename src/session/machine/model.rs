//! Model output, and what happens when it ends: the turn ends, or its calls are parked.

use serde_json::Value;

use super::{BLOCK, Finish, MAX_ATTEMPTS, ModelEvent, ModelFailure, Phase, Rejected, Remedy, Step};
use crate::session::log::{
    CallId, Entry, Failure, ItemId, Open, OpenCall, Opening, Outcome, Seq, Status, Usage, Withheld, hash,
};

/// The limit of one model response, in bytes: texts, arguments, names and provider payload.
pub const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// The least that a part of an item counts, in bytes.
const PART: usize = 256;
/// The longest call id used as it is, in bytes.
const CALL_ID: usize = 64;
/// The longest tool name kept, in bytes; no offered tool has a longer one.
const NAME: usize = 64;
/// The limit of all provider call ids in one response, in bytes: they are kept in the state row. Some hosts hide
/// signatures of several kilobytes in them. A call beyond the limit is sent back under its client-side id.
const PROVIDER_IDS: usize = 512 * 1024;
/// The limit of what a session learns about hosts.
const MAX_LESSONS: usize = 32;
/// The longest provider-requested delay before a retry, in seconds.
const MAX_DELAY: u32 = 120;

impl Step<'_, '_> {
    pub(super) fn model(&mut self, request: Seq, events: Vec<ModelEvent>) -> Result<(), Rejected> {
        if !self.is_current(request) {
            return Ok(());
        }
        // All reads come first: nothing below can fail.
        let known = |event: &ModelEvent| match event {
            ModelEvent::Call { provider_id, .. } => Some(self.context.log.has_call(&own_name(provider_id))),
            _ => None,
        };
        let mut in_log = events.iter().filter_map(known).collect::<Result<Vec<bool>, _>>()?.into_iter();
        for event in events {
            if self.is_full(request) {
                self.stop_sample();
                self.close_open(true);
                let message = format!("the model's response has more than {} items", BLOCK - 1);
                self.end(Outcome::Failed(Failure { code: "upstream_error".into(), message }), Usage::default());
                return Ok(());
            }
            let room = self.session.settings.max_answer.saturating_sub(self.session.answered);
            let size = size_of(&event);
            self.session.answered = self.session.answered.saturating_add(size);
            if size > room {
                if let (ModelEvent::Text { kind, fresh, text }, Some(open)) = (event, self.session.open.last_mut())
                {
                    let fits = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
                    open.push(kind, fresh, fits);
                }
                self.stop_sample();
                self.finish(Finish::Limit("max_output_bytes".into()), Usage::default());
                return Ok(());
            }
            match event {
                ModelEvent::Origin(origin) => self.session.origin = Some(origin),
                ModelEvent::Message => self.open(Opening::Message),
                ModelEvent::Reasoning => self.open(Opening::Reasoning),
                ModelEvent::Call { provider_id, name } => {
                    self.open_call(provider_id, &name, in_log.next().unwrap_or(true));
                }
                ModelEvent::Text { kind, fresh, text } => {
                    if let Some(open) = self.session.open.last_mut() {
                        let parts = open.parts.len();
                        open.push(kind, fresh, &text);
                        let begun = open.parts.len().saturating_sub(parts);
                        self.session.answered = self.session.answered.saturating_add(PART * begun);
                    }
                }
                ModelEvent::Rewrite(text) => {
                    if let Some(open) = self.session.open.last_mut() {
                        open.rewrite(&text);
                    }
                }
                ModelEvent::Close { payload } => self.close_last(payload, false),
                ModelEvent::CloseBefore { payload } => self.close_last(payload, true),
                ModelEvent::Payload { item, payload } => self.take_payload(request, item, payload),
                ModelEvent::Finish { reason, usage } => {
                    self.finish(reason, usage);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    pub(super) fn model_failed(&mut self, request: Seq, failed: ModelFailure) {
        if !self.is_current(request) {
            return;
        }
        let Phase::Sampling { attempt, restarts, at, .. } = self.session.state.phase else { return };
        let untouched = self.session.open.is_empty() && at == request;
        if untouched && self.repeats(&failed.remedy) {
            self.sample();
            return;
        }
        // 1, 2, 4 … seconds, unless the provider says otherwise.
        let delay_seconds = failed.retry_after_seconds.unwrap_or(1 << attempt.saturating_sub(1).min(5));
        if failed.retryable && untouched && attempt < MAX_ATTEMPTS && delay_seconds <= MAX_DELAY {
            let attempt = attempt.saturating_add(1);
            let (error, at) = (failed.failure, self.context.now);
            self.append(Entry::Retried { attempt, restarts, delay_seconds, error, at });
            self.sample();
            return;
        }
        self.close_open(true);
        let refused = untouched && matches!(failed.remedy, Remedy::Withhold { .. });
        self.end_as(Outcome::Failed(failed.failure), Usage::default(), refused);
    }

    /// Records how the request is to be repeated, if there is a way.
    fn repeats(&mut self, remedy: &Remedy) -> bool {
        let (state, at) = (&self.session.state, self.context.now);
        let entry = match remedy {
            Remedy::Learn(lesson) if !state.lessons.contains(&**lesson) && state.lessons.len() < MAX_LESSONS => {
                Entry::Learned { lesson: (**lesson).clone(), at }
            }
            Remedy::Withhold { media } if state.trial.is_none() => {
                let Some(to) = state.refused else { return false };
                let withheld = Withheld { from: state.taken.plus(1), to, media: *media };
                Entry::Withheld { withheld, at }
            }
            Remedy::None | Remedy::Learn(_) | Remedy::Withhold { .. } => return false,
        };
        self.append(entry);
        true
    }

    /// Closes the item that started last.
    fn close_last(&mut self, payload: Option<Value>, payload_pending: bool) {
        if let Some(open) = self.session.open.last_mut() {
            open.payload = open.payload.take().or(payload);
            open.payload_pending = payload_pending;
            open.close();
        }
    }

    /// Takes the payload that an item of the response waits for.
    fn take_payload(&mut self, request: Seq, item: u64, payload: Value) {
        let Phase::Sampling { at, .. } = self.session.state.phase else { return };
        let open = request.0.saturating_add(item).checked_sub(at.0).and_then(|n| usize::try_from(n).ok());
        if let Some(open) = open.and_then(|n| self.session.open.get_mut(n)).filter(|open| open.payload_pending) {
            open.payload = Some(payload);
            open.payload_pending = false;
        }
    }

    /// Whether a request is the current one. Items of it may have been appended already.
    fn is_current(&self, request: Seq) -> bool {
        match self.session.state.phase {
            Phase::Sampling { at, .. } => request <= at && at < request.plus(BLOCK),
            Phase::Idle | Phase::Parked { .. } => false,
        }
    }

    /// Whether the places reserved for the request's items are used up.
    fn is_full(&self, request: Seq) -> bool {
        let Phase::Sampling { at, .. } = self.session.state.phase else {
            return false;
        };
        at.0.saturating_sub(request.0) + self.session.open.len() as u64 >= BLOCK
    }

    fn open(&mut self, opening: Opening) {
        if let Some(last) = self.session.open.last_mut() {
            last.close();
        }
        self.flush();
        let id = ItemId::mint(self.context.ids);
        let origin = self.session.origin.clone();
        self.session.open.push(Open::new(id, self.context.now, opening, origin));
    }

    /// Appends what is finished, up to the first call or the first item that waits for its payload, once the model continues with something else. Most often it does
    /// not, and the item is appended together with the end of the turn. Calls wait for the end of the response.
    fn flush(&mut self) {
        while self.session.open.first().is_some_and(|open| open.closed && !open.is_call() && !open.payload_pending)
        {
            let open = self.session.open.remove(0);
            self.append_output(&open, Status::Completed, true);
        }
    }

    fn append_output(&mut self, open: &Open, status: Status, context: bool) -> Option<Seq> {
        let turn = self.session.state.turn()?;
        let (item, index) = (open.item(&turn.head.response_id, status), turn.items);
        Some(self.append(Entry::Output { item, index, context }))
    }

    /// Closes what the model was writing when it was cut off. Calls are dropped; unfinished text is kept as incomplete
    /// and, if `context` says so, shown to the model in later requests.
    pub(super) fn close_open(&mut self, context: bool) {
        for mut open in std::mem::take(&mut self.session.open) {
            let whole = open.closed;
            open.close();
            if open.is_call() {
                // A finished item stays finished.
                self.append_output(&open, if whole { Status::Completed } else { Status::Cancelled }, false);
            } else if whole {
                self.append_output(&open, Status::Completed, true);
            } else {
                let reasoning = open.opening == Opening::Reasoning;
                self.append_output(&open, Status::Incomplete, context && !reasoning);
            }
        }
    }

    fn finish(&mut self, reason: Finish, usage: Usage) {
        let calls = match reason {
            Finish::Done => {
                if let Some(last) = self.session.open.last_mut() {
                    last.close();
                }
                self.append_calls()
            }
            // A call in a truncated response cannot be trusted.
            Finish::Limit(_) => {
                self.close_open(true);
                Vec::new()
            }
        };
        let at = self.context.now;
        if calls.is_empty() && reason == Finish::Done && self.is_steered() && self.may_go_on() {
            // The model has finished, but has not seen every message of this turn.
            self.append(Entry::Called { calls, usage, at });
            self.steer();
            self.sample();
            return;
        }
        if calls.is_empty() {
            let outcome = match reason {
                Finish::Done => Outcome::Completed,
                Finish::Limit(reason) => Outcome::Incomplete(reason),
            };
            self.end(outcome, usage);
            return;
        }
        self.append(Entry::Called { calls, usage, at });
        self.resolve_unknown_calls();
    }

    /// Appends all open items and returns the calls among them.
    fn append_calls(&mut self) -> Vec<OpenCall> {
        let mut calls = Vec::new();
        for open in std::mem::take(&mut self.session.open) {
            let index = self.session.state.turn().map_or(0, |turn| turn.items);
            let Some(seq) = self.append_output(&open, Status::Completed, true) else {
                continue;
            };
            let Opening::Call { call_id, provider_id, name } = open.opening else {
                continue;
            };
            let provider_id = Some(provider_id).filter(|id| id != call_id.as_str());
            let parked = self.is_client_tool(&name);
            let timeout = self.timeout(&name).filter(|_| parked);
            calls.push(OpenCall {
                seq,
                item_id: open.id,
                call_id,
                provider_id,
                parked,
                index,
                created_at: open.created_at,
                expires_at: timeout.map(|seconds| self.context.now.after(seconds)),
                name,
            });
        }
        calls
    }

    fn is_client_tool(&self, name: &str) -> bool {
        let turn = self.session.state.turn();
        turn.is_some_and(|turn| turn.tools.iter().any(|tool| tool == name))
            || self.session.settings.client_tools.iter().any(|tool| tool == name)
    }

    /// Seconds until a call of a client-side tool expires.
    fn timeout(&self, name: &str) -> Option<u64> {
        let settings = &self.session.settings;
        let turn = self.session.state.turn()?;
        let own = match turn.tools.iter().any(|tool| tool == name) {
            true => turn.timeouts.get(name),
            false => settings.tool_timeouts.get(name),
        };
        own.copied().or(settings.tool_timeout)
    }

    /// Starts a call. `in_log`: whether the log already has a call with the id this one would get.
    fn open_call(&mut self, provider_id: String, name: &str, in_log: bool) {
        let own = own_name(&provider_id);
        let mut others = self.session.open.iter().filter_map(|open| match &open.opening {
            Opening::Call { call_id, provider_id, .. } => Some((call_id, provider_id)),
            Opening::Message | Opening::Reasoning => None,
        });
        let taken = in_log || others.clone().any(|(call_id, _)| *call_id == own);
        let reused = in_log || others.any(|(_, other)| *other == provider_id);
        let call_id = if taken { CallId::mint(self.context.ids) } else { own };
        let room = PROVIDER_IDS.saturating_sub(self.session.provider_ids);
        // A provider that used an id twice, or none, needs another in later requests.
        let renamed = provider_id.trim().is_empty() || reused || provider_id.len() > room;
        let provider_id = if renamed { call_id.plain() } else { provider_id };
        self.session.provider_ids = self.session.provider_ids.saturating_add(provider_id.len());
        let name = name.get(..name.floor_char_boundary(NAME)).unwrap_or_default().to_string();
        self.open(Opening::Call { call_id, provider_id, name });
    }
}

/// What an event adds to the size of a response, in bytes.
fn size_of(event: &ModelEvent) -> usize {
    match event {
        ModelEvent::Origin(_) | ModelEvent::Message | ModelEvent::Reasoning | ModelEvent::Finish { .. } => 0,
        ModelEvent::Call { provider_id, name } => provider_id.len() + name.len(),
        ModelEvent::Text { text, .. } => text.len(),
        ModelEvent::Rewrite(text) => text.len(),
        ModelEvent::Payload { payload, .. } => payload.to_string().len(),
        ModelEvent::Close { payload } | ModelEvent::CloseBefore { payload } => {
            payload.as_ref().map_or(0, |payload| payload.to_string().len())
        }
    }
}

/// The preferred id of a call: the provider's own or, if that is too long or malformed, one derived from it, so that a
/// second use is noticed. It starts with a letter or a digit: `..` would name another resource in a path.
fn own_name(provider_id: &str) -> CallId {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    let begins_well = provider_id.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins_well && provider_id.len() <= CALL_ID && provider_id.bytes().all(plain) {
        return CallId(provider_id.to_string());
    }
    // On a collision the second call merely gets a minted id.
    CallId(format!("call_{:016x}", hash(provider_id)))
}
