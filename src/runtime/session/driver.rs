//! Performs the effects of a session's steps, in their order and without an await between them.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use futures::future::LocalBoxFuture;
use worker::{Env, State};

use super::agenda::{Agenda, Wake};
use super::directory_sync::DirectorySync;
use super::publish::Published;
use super::request::OpenRequest;
use super::sampling_task;
use crate::api::{
    self, Agent, Bucket, Code, Error, InitialItems, Key, Patch, REPLY_TTL, Reply, SessionInfo, SnapshotQuery,
    Tenant,
};
use crate::provider::Sampling;
use crate::runtime::platform::{clock, fault, settings};
use crate::runtime::storage::sql::Sql;
use crate::runtime::storage::store::{Store, Stored};
use crate::runtime::wire::END;
use crate::session::{
    Ack, Context, Input, Phase, Rejected, Seconds, Seq, Session, SessionId, Task, TaskId, Unreadable,
};

/// The driver of one session.
pub struct Driver {
    /// The platform's handle of the object.
    pub state: State,
    /// The deployment's settings, as the platform has them.
    pub env: Env,
    /// The storage.
    pub store: Store,
    /// The session, once it has been loaded.
    pub live: RefCell<Option<Live>>,
    /// When and why the object has to wake up. The alarm of an earlier instance is read when the session is loaded.
    pub agenda: RefCell<Agenda>,
    /// Whether another session's log is being copied into this one.
    pub copying: Cell<bool>,
}

/// A session in memory.
pub struct Live {
    /// The machine.
    pub session: Session,
    /// What seldom changes.
    pub info: SessionInfo,
    /// What the directory knows of it.
    pub listing: DirectorySync,
    /// How often it was sent events.
    pub events: Bucket,
    /// How often holders of tokens posted messages.
    pub token_messages: Bucket,
    /// How often holders of tokens read.
    pub token_reads: Bucket,
    /// Whether this instance has gone on with what a dead one left behind.
    resumed: bool,
    /// The model request that runs, by the place that asked for it.
    pub request: Option<OpenRequest>,
    /// What its subscribers have been shown.
    pub published: Published,
}

impl Driver {
    /// For the object with that state. Reads nothing yet.
    pub fn new(state: State, env: Env) -> Self {
        let store = Store::new(Sql::new(state.storage()));
        Self { state, env, store, live: RefCell::default(), agenda: RefCell::default(), copying: Cell::default() }
    }

    /// Makes the session. `agent` came with it, and may be had by others.
    pub async fn create(
        self: &Rc<Self>,
        id: SessionId,
        info: SessionInfo,
        seeds: InitialItems,
        agent: Option<Agent>,
        keys: &[Key],
    ) -> Result<Reply, Error> {
        let state = crate::session::State::new(info.created_at);
        self.begin(id, info, state, Input::InitialItems(seeds.items))?;
        if let Some(message) = seeds.message {
            self.perform(Input::Message(message))?;
        }
        let made = self.creation_reply(keys)?;
        self.sync(agent).await; // the alarm sees to it if this fails, or if nothing here survives it
        Ok(made)
    }

    /// Makes the session from a state whose records are stored, and a first input.
    pub fn begin(
        self: &Rc<Self>,
        id: SessionId,
        info: SessionInfo,
        state: crate::session::State,
        first: Input,
    ) -> Result<(), Error> {
        let mut session = Session::load(id.clone(), info.settings(), state, Vec::new());
        let mut context = Context { now: clock::now(), ids: &mut clock::Ids, log: &self.store };
        let effects = session.step(first, &mut context)?;
        self.store.create(&id, &info, &session.state, &effects.append)?;
        self.store.sql.take_written(); // what is counted is turns
        self.agenda.borrow_mut().enter(Wake::Copy, None); // if it was one, it is whole
        self.enter_session(&session, effects.alarm);
        self.tell_again();
        // Nobody has seen anything of it yet, so there is nothing to publish.
        let session = Session::load(id, session.settings, session.state, Vec::new());
        *self.live.borrow_mut() =
            Some(Live { resumed: true, ..Live::new(session, info, DirectorySync::default()) });
        Ok(())
    }

    /// The answer to whoever made the session.
    pub fn creation_reply(self: &Rc<Self>, keys: &[Key]) -> Result<Reply, Error> {
        let reply = Reply { status: 201, ..self.snapshot(&SnapshotQuery::default())? };
        self.remember(keys, &reply)?;
        Ok(reply)
    }

    /// The answer that an earlier request to make this session got. Nothing is awaited after it has found that there was none.
    pub async fn earlier_creation(
        self: &Rc<Self>,
        id: &SessionId,
        tenant: &Tenant,
        keys: &[Key],
    ) -> Result<Option<Reply>, Error> {
        if keys.is_empty() {
            return Ok(None); // the id is new
        }
        if self.store.load()?.is_none() && self.was_deleted(id, tenant).await? {
            let message = format!("the session that this key made, {id}, was deleted; use a new key");
            return Err(Error::new(Code::IdempotencyKeyReused, message));
        }
        if self.store.load()?.is_none() {
            return Ok(None);
        }
        self.load(id).await?;
        self.resume()?;
        let Some(first) = self.store.replies.given(keys)? else {
            let message =
                "the session that this key made still exists, but its answer is no longer kept; use a new key";
            return Err(Error::new(Code::AlreadyExists, message));
        };
        first.replay(|| self.snapshot_text()).map(Some)
    }

    /// Loads the session if this instance has not yet. Reads only: whoever asks has not been checked.
    pub async fn load(&self, id: &SessionId) -> Result<(), Error> {
        if self.live.borrow().is_some() {
            return Ok(());
        }
        if self.store.load()?.is_none() {
            return Err(Error::no_session(id.as_str()));
        }
        if !self.agenda.borrow().has_alarm() {
            let at = self.state.storage().get_alarm().await.map_err(fault::internal)?;
            let at = at.and_then(|millis| u64::try_from(millis).ok()).map(|millis| Seconds(millis / 1000));
            self.agenda.borrow_mut().found(at);
        }
        // Somebody else may have loaded, or deleted, it meanwhile.
        if self.live.borrow().is_some() {
            return Ok(());
        }
        let Some(Stored { id, info, state, open, heard, listed }) = self.store.load()? else {
            return Err(Error::no_session(id.as_str()));
        };
        worker::console_debug!("{id} woke, {} rows read", self.store.sql.take_read());
        let session = Session::load(id, info.settings(), state, open).heard_at(heard);
        *self.live.borrow_mut() = Some(Live::new(session, info, DirectorySync::stored(listed)));
        Ok(())
    }

    /// Goes on with what a dead instance left behind, once.
    pub fn resume(self: &Rc<Self>) -> Result<(), Error> {
        if !self.change(|live| Ok(std::mem::replace(&mut live.resumed, true)))? {
            self.perform(Input::Recover)?;
        }
        Ok(())
    }

    /// The session in memory.
    pub fn live(&self) -> Result<Ref<'_, Live>, Error> {
        Ref::filter_map(self.live.borrow(), Option::as_ref).map_err(|_| Error::deleted())
    }

    /// Changes the session in memory. A panic in `change` leaves none behind, so that it is read again and not used half
    /// changed.
    pub fn change<R>(&self, change: impl FnOnce(&mut Live) -> Result<R, Error>) -> Result<R, Error> {
        let mut live = self.live.take().ok_or_else(Error::deleted)?;
        let changed = change(&mut live);
        self.live.replace(Some(live));
        changed
    }

    /// Takes what a client wants, once: under a key that was used before the first answer is given again.
    pub fn take(self: &Rc<Self>, input: Input, keys: &[Key]) -> Result<Reply, Error> {
        self.once(keys, || {
            let cursor = {
                let session = &self.live()?.session;
                session.cursor().text(&session.id)
            };
            let answer = self.perform(input)?;
            Ok(api::accepted(&answer, &cursor))
        })
    }

    /// `PATCH /v1/sessions/{id}`.
    pub fn patch(self: &Rc<Self>, patch: Patch, keys: &[Key]) -> Result<Reply, Error> {
        self.once(keys, || {
            self.change(|live| {
                let changes_model = patch.changes_model();
                let info = live.info.patched(patch, clock::now())?;
                if changes_model {
                    settings::config(&self.env)?.check(&info, &Sampling::default())?;
                }
                self.store.set_info(&live.session.id, &info)?;
                live.session.settings = info.settings();
                live.info = info;
                self.enter_session(&live.session, live.session.due(clock::now()));
                self.schedule_sync_at(live, 0);
                self.set_alarm();
                Ok(())
            })?;
            self.snapshot(&SnapshotQuery::default())
        })
    }

    /// The session as it is now, for an answer that was too large to keep.
    fn snapshot_text(&self) -> Result<String, Error> {
        Ok(self.snapshot(&SnapshotQuery::default())?.body)
    }

    /// Refuses settings of a turn that the session's provider does not support.
    pub fn check(&self, turn: &Sampling) -> Result<(), Error> {
        settings::config(&self.env)?.check(&self.live()?.info, turn)
    }

    /// Acts, unless that was done under one of the keys already.
    pub fn once(
        self: &Rc<Self>,
        keys: &[Key],
        act: impl FnOnce() -> Result<Reply, Error>,
    ) -> Result<Reply, Error> {
        if let Some(first) = self.store.replies.given(keys)? {
            return first.replay(|| self.snapshot_text());
        }
        let reply = act()?;
        // No await since the step: what was done and what was answered are kept together or not at all.
        self.remember(keys, &reply)?;
        Ok(reply)
    }

    fn remember(self: &Rc<Self>, keys: &[Key], reply: &Reply) -> Result<(), Error> {
        let now = clock::now();
        self.store.replies.keep(keys, reply, now)?;
        if !keys.is_empty() {
            self.wake(Wake::Sweep, now.after(REPLY_TTL));
        }
        Ok(())
    }

    /// Takes an input and performs what comes of it. A session that could not be read or written is forgotten, since its step
    /// may have gone half-way, and its readers are cut off, since they may miss what was stored: both begin again from storage.
    pub fn perform(self: &Rc<Self>, input: Input) -> Result<Ack, Error> {
        let mut live = self.live.take().ok_or_else(Error::deleted)?;
        let failed = match self.step(&mut live, input) {
            Err(Rejected::Unreadable(e)) => e,
            done => {
                self.live.replace(Some(live));
                return Ok(done?);
            }
        };
        self.close_sockets("the session's storage failed");
        Err(failed.into())
    }

    fn step(self: &Rc<Self>, live: &mut Live, input: Input) -> Result<Ack, Rejected> {
        let mut context = Context { now: clock::now(), ids: &mut clock::Ids, log: &self.store };
        let effects = live.session.step(input, &mut context)?;
        self.commit(live, &effects)?;
        self.enter_session(&live.session, effects.alarm);
        if !effects.append.is_empty() {
            self.schedule_sync(live);
        }
        self.set_alarm();
        for TaskId::Sample(at) in effects.stop {
            live.request.take_if(|request| request.at == at);
        }
        for Task::Sample(sample) in effects.start {
            live.request = Some(OpenRequest::new(sample.at));
            self.later(sampling_task::run(self.clone(), sample));
        }
        Ok(effects.ack)
    }

    /// Goes on with something while the object answers. Boxed, so that the platform's glue is made once and not for each.
    pub fn later(&self, work: impl Future<Output = ()> + 'static) {
        let work: LocalBoxFuture<'static, ()> = Box::pin(work);
        self.state.wait_until(work);
    }

    /// Whether the session's time is over.
    pub fn is_over(&self) -> bool {
        self.live.borrow().as_ref().is_some_and(|live| live.session.is_over(clock::now()))
    }

    /// Whether `at` names the model request that the session waits for.
    pub fn with_request<R>(&self, at: Seq, f: impl FnOnce(&Live, &OpenRequest) -> R) -> Option<R> {
        let slot = self.live.borrow();
        let live = slot.as_ref()?;
        let Phase::Sampling { at: now, .. } = &live.session.state.phase else { return None };
        let current = at <= *now && *now < at.plus(crate::session::BLOCK);
        live.request.as_ref().filter(|_| current).map(|request| f(live, request))
    }

    /// The model request of that place is over, whether its answer is complete or was given up.
    pub fn request_is_over(&self, at: Seq) {
        if let Some(live) = self.live.borrow_mut().as_mut() {
            live.request.take_if(|request| request.at == at);
        }
    }

    /// `DELETE /v1/sessions/{id}`. First from the list, so that it never shows a session that is no more.
    pub async fn delete(&self, keys: &[Key]) -> Result<Reply, Error> {
        let found = self.live.borrow().as_ref().map(|live| (live.session.id.clone(), live.info.clone()));
        let (id, info) = found.ok_or_else(Error::deleted)?;
        self.unlist(&id, &info, keys).await?;
        *self.live.borrow_mut() = None;
        for socket in self.state.get_websockets() {
            drop(socket.send_with_str(END));
            drop(socket.close(Some(1000), Some("deleted")));
        }
        let storage = self.state.storage();
        storage.delete_alarm().await.map_err(fault::internal)?;
        storage.delete_all().await.map_err(fault::internal)?;
        self.store.erased();
        self.agenda.replace(Agenda::default());
        *self.live.borrow_mut() = None; // nothing that came meanwhile outlives the storage
        Ok(Reply::json(200, &serde_json::json!({"id": id, "object": "conversation.deleted", "deleted": true})))
    }
}

impl Live {
    fn new(session: Session, info: SessionInfo, listing: DirectorySync) -> Self {
        Self {
            session,
            info,
            listing,
            events: Bucket::default(),
            token_messages: Bucket::default(),
            token_reads: Bucket::default(),
            resumed: false,
            request: None,
            published: Published::new(),
        }
    }
}

impl From<Unreadable> for Error {
    fn from(e: Unreadable) -> Self {
        worker::console_error!("{e}");
        match e {
            Unreadable::TooLarge { .. } => Self::new(Code::PayloadTooLarge, e.to_string()), // again, it would not fit either
            Unreadable::Newer { .. } => Self::new(Code::StorageUnavailable, e.to_string()),
            Unreadable::Missing(_) | Unreadable::Corrupt(..) | Unreadable::Storage(_) => Self::new(
                Code::StorageUnavailable,
                "the session's storage could not be read or written; retry with an Idempotency-Key so that nothing is done twice",
            ),
        }
    }
}
