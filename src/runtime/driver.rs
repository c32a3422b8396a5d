//! Performs the effects of a session's steps, in their order and without an await between them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use worker::{AbortController, Delay, State, WebSocket};

use super::bridge::END;
use super::store::{Store, Stored};
use super::{clock, model, router};
use crate::api::{self, Code, Command, Error, Key, MAX_QUEUE, MAX_ROUNDS, Reply, SessionInfo};
use crate::session::{
    Alarm, Answer, Context, Cursor, Effects, Entry, Event, Input, Outcome, Phase, Record, Rejected, ResponseId,
    Seq, Session, SessionId, Settings, Unreadable,
};
use crate::sse;

/// How soon the watchdog looks after a model request.
const WATCHDOG: u64 = 30;
/// Seconds without progress after which a turn that keeps being interrupted by restarts is given up.
const PATIENCE: u64 = 300;
/// Deltas of less than this are sent together, the first of an item aside.
const COALESCE: Duration = Duration::from_millis(25);
/// Text that a crash may cost: a checkpoint is due after so much of it…
const CHECKPOINT_BYTES: usize = 16 * 1024;
/// … or so long, in milliseconds.
const CHECKPOINT_MILLIS: u64 = 2000;

/// The driver of one session.
pub struct Driver {
    /// The platform's handle of the object.
    pub state: State,
    /// The storage.
    pub store: Store,
    /// The session, once it has been loaded.
    pub live: RefCell<Option<Live>>,
    /// When the alarm goes off, in Unix seconds, as far as this instance knows.
    alarm_at: Cell<Option<u64>>,
}

/// A session in memory.
pub struct Live {
    /// The machine.
    pub session: Session,
    /// What seldom changes.
    pub info: SessionInfo,
    request: Option<AbortController>,
    unsaved: usize,
    saved_at: u64,
    published_at: u64,
    flush_is_due: bool,
}

impl Driver {
    /// For the object with that state. Reads nothing yet.
    pub fn new(state: State) -> Self {
        let store = Store::new(state.storage());
        Self { state, store, live: RefCell::new(None), alarm_at: Cell::new(None) }
    }

    /// Makes the session.
    pub fn create(&self, id: SessionId, info: SessionInfo, key: Option<&Key>) -> Result<Reply, Error> {
        let state = crate::session::State::new(info.created_at);
        self.store.create(&id, &info, &state)?;
        self.store.sql.take_written(); // what is counted is turns
        let session = Session::load(id, settings(&info), state, Vec::new());
        let reply = Reply::json(201, &api::snapshot(&info, &session, Vec::new(), &[], 0));
        if let Some(key) = key {
            self.store.remember(key, &key.remember(&reply), clock::now())?;
        }
        *self.live.borrow_mut() = Some(Live::new(session, info));
        Ok(reply)
    }

    /// The answer that an earlier request to create this session got.
    pub fn created(&self, key: Option<&Key>) -> Result<Option<Reply>, Error> {
        if self.store.load()?.is_none() {
            return Ok(None);
        }
        let judge = |key: &Key| key.judge(self.store.remembered(key)?);
        let first = key.map(judge).transpose()?.flatten();
        let exists =
            || Error::new(Code::AlreadyExists, "the session that this key once made exists; use a new key");
        first.map(Some).ok_or_else(exists)
    }

    /// Loads the session if this instance has not yet, and goes on with what a dead instance left behind.
    pub fn wake(self: &Rc<Self>, id: &str) -> Result<(), Error> {
        if self.live.borrow().is_some() {
            return Ok(());
        }
        let Some(Stored { id, info, state, open }) = self.store.load()? else { return Err(Error::no_session(id)) };
        worker::console_debug!("{id} woke");
        let session = Session::load(id, settings(&info), state, open);
        *self.live.borrow_mut() = Some(Live::new(session, info));
        self.perform(Input::Recover).map(drop)
    }

    /// Takes what a client posted, once: under a key that was used before the first answer is given again.
    pub fn post(self: &Rc<Self>, command: Command, keys: &[Key]) -> Result<Reply, Error> {
        for key in keys {
            if let Some(again) = key.judge(self.store.remembered(key)?)? {
                return Ok(again);
            }
        }
        let (answer, cursor) = self.perform(command.input)?;
        let reply = api::accepted(&answer, &cursor);
        for key in keys {
            // No await since the step: what was done and what was answered are kept together or not at all.
            self.store.remember(key, &key.remember(&reply), clock::now())?;
        }
        Ok(reply)
    }

    /// Takes an input and performs what comes of it. Returns the answer and the position just before what it causes.
    pub fn perform(self: &Rc<Self>, input: Input) -> Result<(Answer, String), Error> {
        let mut slot = self.live.borrow_mut();
        let live = slot.as_mut().ok_or_else(|| Error::new(Code::NotFound, "this session was deleted"))?;
        let cursor = live.session.cursor().text(&live.session.id);
        let mut context = Context { now: clock::now(), ids: &mut clock::Ids, log: &self.store };
        let effects = match live.session.step(input, &mut context) {
            Ok(effects) => effects,
            Err(Rejected::Unreadable(e)) => {
                *slot = None; // it may have gone half-way: forget it and read it again
                return Err(e.into());
            }
            Err(rejected) => return Err(rejected.into()),
        };
        if let Err(e) = self.commit(live, &effects) {
            *slot = None;
            return Err(e.into());
        }
        self.arm(effects.alarm);
        if (effects.cancel || effects.sample.is_some())
            && let Some(request) = live.request.take()
        {
            request.abort();
        }
        if let Some(sample) = effects.sample {
            live.request = Some(AbortController::default());
            self.state.wait_until(model::run(self.clone(), sample));
        }
        Ok((effects.answer, cursor))
    }

    /// Writes and publishes. One synchronous block.
    fn commit(self: &Rc<Self>, live: &mut Live, effects: &Effects) -> Result<(), Unreadable> {
        if effects.append.is_empty() {
            let recent = clock::millis().saturating_sub(live.published_at) < COALESCE.as_millis() as u64;
            if recent && !live.session.has_unseen_item() {
                self.flush_soon(live);
                return Ok(());
            }
        } else {
            self.store.append(&effects.append, &live.session.state)?;
        }
        self.publish(live, &effects.append)?;
        for record in &effects.append {
            if let Entry::Ended { turn, outcome, .. } = &record.entry {
                log_turn(&live.session.id, &turn.response_id, outcome, self.store.sql.take_written());
            }
        }
        Ok(())
    }

    /// Sends to all subscribers what there is to show now, encoded once.
    fn publish(&self, live: &mut Live, appended: &[Record]) -> Result<(), Unreadable> {
        let events = live.session.publish(appended, &self.store)?;
        if events.is_empty() {
            return Ok(());
        }
        self.save_open(live, &events)?;
        live.published_at = clock::millis();
        let text = batch(&live.session, live.session.cursor(), &events);
        for socket in self.state.get_websockets() {
            // One that has just gone is about to be closed anyway.
            drop(socket.send_with_str(&text));
        }
        Ok(())
    }

    /// Lets deltas gather that come faster than readers can tell apart.
    fn flush_soon(self: &Rc<Self>, live: &mut Live) {
        if std::mem::replace(&mut live.flush_is_due, true) {
            return;
        }
        let driver = self.clone();
        self.state.wait_until(async move {
            Delay::from(COALESCE).await;
            driver.flush();
        });
    }

    /// Sends what has gathered. Also before anybody reads the stream: a replay ends where the live events go on.
    pub fn flush(&self) {
        let mut slot = self.live.borrow_mut();
        let Some(live) = slot.as_mut() else { return };
        if std::mem::take(&mut live.flush_is_due)
            && let Err(e) = self.publish(live, &[])
        {
            worker::console_error!("{e}");
            *slot = None; // memory may be ahead of what was shown: read it again
        }
    }

    /// Writes a checkpoint of the open items when enough has been written since the last one.
    fn save_open(&self, live: &mut Live, events: &[Event]) -> Result<(), Unreadable> {
        if live.session.open_items().is_empty() {
            live.unsaved = 0;
            live.saved_at = clock::millis();
            return Ok(());
        }
        live.unsaved += events.iter().map(|event| event.data.len()).sum::<usize>();
        let now = clock::millis();
        if live.unsaved >= CHECKPOINT_BYTES || now.saturating_sub(live.saved_at) >= CHECKPOINT_MILLIS {
            self.store.checkpoint(&live.session.state, live.session.open_items())?;
            live.unsaved = 0;
            live.saved_at = now;
        }
        Ok(())
    }

    /// Sees to it that the alarm goes off in time. One that is set already and earlier stays: it is cheaper to let it
    /// find nothing to do than to write it anew with every step.
    fn arm(self: &Rc<Self>, alarm: Option<Alarm>) {
        let now = clock::now().0;
        let due = match alarm {
            None => return,
            Some(Alarm::Watchdog) => now + WATCHDOG,
            Some(Alarm::Deadline(at)) => at.0.max(now),
        };
        if self.alarm_at.get().is_some_and(|at| at > now && at <= due) {
            return;
        }
        self.alarm_at.set(Some(due));
        self.store.sql.count_alarm();
        let storage = self.state.storage();
        // Deadlines are in whole seconds: go off just after, not just before.
        let set =
            async move { storage.set_alarm(Duration::from_secs(due - now) + Duration::from_millis(500)).await };
        // The first poll happens here, so the platform takes it together with the rows that were just written.
        let mut set = Box::pin(set);
        let polled = futures::FutureExt::now_or_never(&mut set);
        self.state.wait_until(async move {
            if polled.is_none()
                && let Err(e) = set.await
            {
                worker::console_error!("the alarm could not be set: {e}");
            }
        });
    }

    /// The alarm went off.
    pub fn alarm(self: &Rc<Self>) {
        self.alarm_at.set(None);
        if let Err(error) = self.wake("").and_then(|()| self.perform(Input::Alarm).map(drop))
            && error.code != Code::NotFound
        {
            worker::console_error!("alarm: {}", error.message);
        }
    }

    /// Whether `at` names the model request that the session waits for, and how it can be aborted.
    pub fn with_request<R>(&self, at: Seq, f: impl FnOnce(&Live, &AbortController) -> R) -> Option<R> {
        let slot = self.live.borrow();
        let live = slot.as_ref()?;
        let Phase::Sampling { at: now, .. } = &live.session.state.phase else { return None };
        let current = at <= *now && *now < at.plus(crate::session::BLOCK);
        live.request.as_ref().filter(|_| current).map(|request| f(live, request))
    }

    /// `DELETE /v1/sessions/{id}`.
    pub async fn delete(&self, id: &str) -> Result<Reply, Error> {
        if let Some(request) = self.live.borrow_mut().take().and_then(|live| live.request) {
            request.abort();
        }
        for socket in self.state.get_websockets() {
            drop(socket.send_with_str(END));
            drop(socket.close(Some(1000), Some("deleted")));
        }
        let storage = self.state.storage();
        storage.delete_alarm().await.map_err(router::internal)?;
        storage.delete_all().await.map_err(router::internal)?;
        *self.live.borrow_mut() = None; // nothing that came meanwhile outlives the storage
        Ok(Reply::json(200, &serde_json::json!({"id": id, "object": "conversation.deleted", "deleted": true})))
    }

    /// Takes a subscriber on and sends it its first frames.
    pub fn attach(&self, socket: &WebSocket, first: &str) -> worker::Result<()> {
        self.state.accept_web_socket(socket);
        socket.send_with_str(first)
    }
}

impl Live {
    fn new(session: Session, info: SessionInfo) -> Self {
        let now = clock::millis();
        Self { session, info, request: None, unsaved: 0, saved_at: now, published_at: 0, flush_is_due: false }
    }
}

/// One line per turn, without content.
fn log_turn(session: &SessionId, turn: &ResponseId, outcome: &Outcome, rows_written: usize) {
    let (status, code) = match outcome {
        Outcome::Completed => ("completed", None),
        Outcome::Incomplete(reason) => ("incomplete", Some(reason.as_str())),
        Outcome::Failed(failure) => ("failed", Some(failure.code.as_str())),
        Outcome::Cancelled => ("cancelled", None),
    };
    let line = serde_json::json!({"event": "turn", "session": session, "response": turn, "status": status,
        "code": code, "rows_written": rows_written});
    worker::console_log!("{line}");
}

fn settings(info: &SessionInfo) -> Settings {
    Settings {
        model: info.agent.model_name().to_string(),
        client_tools: info.agent.tools.iter().map(|tool| tool.0.name.clone()).collect(),
        tool_timeout: info.agent.tool_timeout_s,
        max_rounds: MAX_ROUNDS,
        max_queue: MAX_QUEUE,
        patience: PATIENCE,
    }
}

/// Frames for subscribers: encoded once for all of them.
pub fn batch(session: &Session, cursor: Cursor, events: &[Event]) -> String {
    let mut text = cursor.text(&session.id);
    text.push('\n');
    for event in events {
        let id = event.cursor.map(|cursor| cursor.text(&session.id));
        sse::frame(&mut text, event.kind, &event.data, id.as_deref());
    }
    text
}

impl From<Unreadable> for Error {
    fn from(e: Unreadable) -> Self {
        worker::console_error!("{e}");
        Self::new(
            Code::StorageUnavailable,
            "the session's storage could not be read or written; try again, with an Idempotency-Key so that nothing is done twice",
        )
    }
}
