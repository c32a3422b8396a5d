//! Performs the effects of a session's steps, in their order and without an await between them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use worker::{AbortController, State, WebSocket};

use super::bridge::END;
use super::store::{Store, Stored};
use super::{clock, model, router};
use crate::api::{self, Code, Error, ItemsQuery, MAX_QUEUE, MAX_ROUNDS, Reply, SessionInfo, SnapshotQuery};
use crate::session::{
    Alarm, Answer, Context, Cursor, Effects, Event, Input, Item, ItemId, Kind, Log, Phase, Rejected, Seq, Session,
    SessionId, SessionStatus, Settings, Status, Unreadable,
};
use crate::sse;

/// How soon the watchdog looks after a model request.
const WATCHDOG: u64 = 30;
/// Seconds without progress after which a turn that keeps being interrupted by restarts is given up.
const PATIENCE: u64 = 300;
/// The most that a subscriber is sent when it attaches, in bytes; what it missed beyond that comes in pages.
const PAGE: usize = 256 * 1024;
/// Text that a crash may cost: a checkpoint is due after so much of it…
const CHECKPOINT_BYTES: usize = 16 * 1024;
/// … or so long, in milliseconds.
const CHECKPOINT_MILLIS: u64 = 2000;

/// The driver of one session.
pub struct Driver {
    state: State,
    /// The storage.
    pub store: Store,
    live: RefCell<Option<Live>>,
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
}

/// Frames for one subscriber.
pub struct Batch {
    /// A line with the position, then the frames.
    pub text: String,
    /// Whether more was missed than fits.
    pub more: bool,
}

impl Driver {
    /// For the object with that state. Reads nothing yet.
    pub fn new(state: State) -> Self {
        let store = Store::new(state.storage().sql());
        Self { state, store, live: RefCell::new(None), alarm_at: Cell::new(None) }
    }

    /// Makes the session.
    pub fn create(&self, id: SessionId, info: SessionInfo) -> Result<Reply, Error> {
        if self.store.load()?.is_some() {
            return Err(router::internal(format!("{id} exists already")));
        }
        let state = crate::session::State::new(info.created_at);
        self.store.create(&id, &info, &state)?;
        let session = Session::load(id, settings(&info), state, Vec::new());
        let body = api::snapshot(&info, &session, Vec::new(), &[]);
        *self.live.borrow_mut() = Some(Live::new(session, info));
        Ok(Reply::json(201, &body))
    }

    /// Loads the session if this instance has not yet, and goes on with what a dead instance left behind.
    pub fn wake(self: &Rc<Self>, id: &str) -> Result<(), Error> {
        if self.live.borrow().is_some() {
            return Ok(());
        }
        let Some(Stored { id, info, state, open }) = self.store.load()? else { return Err(Error::no_session(id)) };
        let session = Session::load(id, settings(&info), state, open);
        *self.live.borrow_mut() = Some(Live::new(session, info));
        self.perform(Input::Recover).map(drop)
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
    fn commit(&self, live: &mut Live, effects: &Effects) -> Result<(), Unreadable> {
        if !effects.append.is_empty() {
            self.store.append(&effects.append, &live.session.state)?;
        }
        let events = live.session.publish(&effects.append, &self.store)?;
        if events.is_empty() {
            return Ok(());
        }
        self.save_open(live, &events)?;
        let text = batch(&live.session, live.session.cursor(), &events);
        for socket in self.state.get_websockets() {
            // One that has just gone is about to be closed anyway.
            drop(socket.send_with_str(&text));
        }
        Ok(())
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

    /// `GET /v1/sessions/{id}`.
    pub fn snapshot(&self, query: &SnapshotQuery) -> Result<Reply, Error> {
        self.read(|live| {
            let mut items = Vec::new();
            if query.include_items {
                let list = ItemsQuery { limit: query.item_limit, after: None, before: None, descending: true };
                let (page, _) = self.page(live, &list)?;
                items = page.iter().rev().map(|(item, status)| api::nested(item, *status)).collect();
            }
            let calls = live.session.state.open_calls().iter();
            let pending = calls.map(|call| self.store.item(call.seq)).collect::<Result<Vec<Item>, _>>()?;
            Ok(Reply::json(200, &api::snapshot(&live.info, &live.session, items, &pending)))
        })
    }

    /// `GET …/items`.
    pub fn items(&self, query: &ItemsQuery) -> Result<Reply, Error> {
        self.read(|live| {
            let (page, more) = self.page(live, query)?;
            Ok(Reply::json(200, &api::items_page(&page, more)))
        })
    }

    /// `GET …/agent`.
    pub fn agent(&self) -> Result<Reply, Error> {
        self.read(|live| Ok(Reply::json(200, &api::agent_view(&live.info))))
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
        Ok(Reply::json(200, &serde_json::json!({"id": id, "object": "conversation.deleted", "deleted": true})))
    }

    /// What a subscriber has to be sent first.
    pub fn catch_up(&self, cursor: Option<&str>) -> Result<Batch, Error> {
        self.read(|live| {
            let session = &live.session;
            let Some(cursor) = cursor else {
                return Ok(Batch { text: greeting(session, &self.store)?, more: false });
            };
            let from = Cursor::parse(cursor, &session.id)?;
            if from > session.cursor() {
                return Err(crate::session::Malformed::Future.into());
            }
            let page = session.replay(from, PAGE, &self.store)?;
            Ok(Batch { text: batch(session, page.cursor, &page.events), more: page.more })
        })
    }

    /// Takes a subscriber on and sends it its first frames.
    pub fn attach(&self, socket: &WebSocket, first: &str) -> worker::Result<()> {
        self.state.accept_web_socket(socket);
        socket.send_with_str(first)
    }

    fn read<R>(&self, f: impl FnOnce(&Live) -> Result<R, Error>) -> Result<R, Error> {
        let slot = self.live.borrow();
        f(slot.as_ref().ok_or_else(|| Error::new(Code::NotFound, "this session was deleted"))?)
    }

    /// A page of items with their status, in the order asked for, and whether there are more.
    fn page(&self, live: &Live, query: &ItemsQuery) -> Result<(Vec<(Item, Status)>, bool), Error> {
        let queue = &live.session.state.queue;
        let find = |id: &Option<String>, name: &str| -> Result<Option<Place>, Error> {
            let Some(id) = id else { return Ok(None) };
            if let Some(n) = queue.iter().position(|waiting| waiting.item_id == ItemId(id.clone())) {
                return Ok(Some(Place::Queue(n)));
            }
            let place = self.store.place_of(id)?;
            place.map(Place::Log).map(Some).ok_or_else(|| Error {
                param: Some(name.into()),
                ..Error::new(Code::NotFound, format!("there is no item {id} in this session"))
            })
        };
        let (after, before) = (find(&query.after, "after")?, find(&query.before, "before")?);
        let inside = |place: Place| {
            let (low, high) = if query.descending { (before, after) } else { (after, before) };
            low.is_none_or(|low| place > low) && high.is_none_or(|high| place < high)
        };
        let want = query.limit + 1;
        let mut page: Vec<(Item, Status)> = Vec::new();
        let logged = |page: &mut Vec<(Item, Status)>| -> Result<(), Error> {
            let mut beyond = match after {
                Some(Place::Log(seq)) => Some(seq),
                Some(Place::Queue(_)) if !query.descending => return Ok(()),
                Some(Place::Queue(_)) | None => None,
            };
            while page.len() < want {
                let items = self.store.items(beyond, query.descending, want - page.len())?;
                let Some((last, _)) = items.last() else { break };
                beyond = Some(*last);
                let inside = items.into_iter().filter(|(seq, _)| inside(Place::Log(*seq)));
                page.extend(self.with_status(live, inside.map(|(_, item)| item).collect())?);
            }
            Ok(())
        };
        let queued = |page: &mut Vec<(Item, Status)>| -> Result<(), Error> {
            let places: Vec<usize> =
                if query.descending { (0..queue.len()).rev().collect() } else { (0..queue.len()).collect() };
            for n in places {
                let Some(waiting) = queue.get(n).filter(|_| inside(Place::Queue(n)) && page.len() < want) else {
                    continue;
                };
                page.push((self.store.item(waiting.seq)?, Status::Queued));
            }
            Ok(())
        };
        if query.descending {
            queued(&mut page)?;
            logged(&mut page)?;
        } else {
            logged(&mut page)?;
            queued(&mut page)?;
        }
        let more = page.len() > query.limit;
        page.truncate(query.limit);
        Ok((page, more))
    }

    fn with_status(&self, live: &Live, items: Vec<Item>) -> Result<Vec<(Item, Status)>, Unreadable> {
        let open = live.session.state.open_calls();
        items
            .into_iter()
            .map(|item| {
                let status = match &item.kind {
                    Kind::FunctionCall { call_id, .. } if open.iter().any(|call| call.call_id == *call_id) => {
                        Status::ActionRequired
                    }
                    Kind::FunctionCall { call_id, .. } => match self.store.output_of(call_id)? {
                        Some(output) if output.status != Status::Completed => Status::Cancelled,
                        _ => item.status,
                    },
                    _ => item.status,
                };
                Ok((item, status))
            })
            .collect()
    }
}

/// Where an item is: in the log, or in the queue behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Log(Seq),
    Queue(usize),
}

impl Live {
    fn new(session: Session, info: SessionInfo) -> Self {
        Self { session, info, request: None, unsaved: 0, saved_at: clock::millis() }
    }
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
fn batch(session: &Session, cursor: Cursor, events: &[Event]) -> String {
    let mut text = cursor.text(&session.id);
    text.push('\n');
    for event in events {
        let id = event.cursor.map(|cursor| cursor.text(&session.id));
        sse::frame(&mut text, event.kind, &event.data, id.as_deref());
    }
    text
}

/// The first frames of a subscriber without a cursor. The last one brings the position, so that it can resume at once. A
/// status at rest must not look like an event of the log, so its position follows in a frame of its own.
fn greeting(session: &Session, log: &Store) -> Result<String, Unreadable> {
    let cursor = session.cursor().text(&session.id);
    let mut text = format!("{cursor}\n");
    let events = session.greeting(log)?;
    let resting = matches!(session.state.status(), SessionStatus::Idle | SessionStatus::Failed);
    for (n, event) in events.iter().enumerate() {
        let last = n + 1 == events.len() && !resting;
        sse::frame(&mut text, event.kind, &event.data, last.then_some(cursor.as_str()));
    }
    if resting {
        sse::id_only(&mut text, &cursor);
    }
    Ok(text)
}

impl From<Unreadable> for Error {
    fn from(e: Unreadable) -> Self {
        worker::console_error!("{e}");
        Self::new(
            Code::StorageUnavailable,
            "the session's storage could not be read or written; nothing was done, try again",
        )
    }
}
