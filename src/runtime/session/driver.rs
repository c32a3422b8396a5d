//! The driver of one session: its storage, sockets and alarm, and the session itself while it is in memory. Its methods
//! are in the files beside this one.

use std::cell::{Cell, Ref, RefCell};

use futures::future::LocalBoxFuture;
use worker::{Env, State};

use super::agenda::Agenda;
use super::live::{DirectorySync, Live};
use super::request::OpenRequest;
use crate::api::{Code, Error};
use crate::runtime::platform::{clock, fault};
use crate::runtime::storage::sql::Sql;
use crate::runtime::storage::store::{Store, Stored};
use crate::session::{Phase, Seconds, Seq, Session, SessionId, Unreadable};

/// The driver of one session.
pub struct Driver {
    /// The platform's handle of the object.
    pub state: State,
    /// The deployment's settings, as the platform has them.
    pub env: Env,
    pub store: Store,
    /// The session, once it has been loaded.
    pub live: RefCell<Option<Live>>,
    /// When and why the object must wake up. The alarm of an earlier instance is read when the session is loaded.
    pub agenda: RefCell<Agenda>,
    /// Whether a fork is copying another session's log into this one.
    pub copying: Cell<bool>,
}

impl Driver {
    /// The driver of an object. Reads nothing yet.
    pub fn new(state: State, env: Env) -> Self {
        let store = Store::new(Sql::new(state.storage()));
        Self { state, env, store, live: RefCell::default(), agenda: RefCell::default(), copying: Cell::default() }
    }

    /// Loads the session if this instance has not yet. Only reads: the caller has not been checked.
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
        // It may have been loaded, or deleted, meanwhile.
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

    /// The session in memory.
    pub fn live(&self) -> Result<Ref<'_, Live>, Error> {
        Ref::filter_map(self.live.borrow(), Option::as_ref).map_err(|_| Error::deleted())
    }

    /// Changes the session in memory. A panic in `change` drops it, so that it is loaded again and not used half
    /// changed.
    pub fn change<R>(&self, change: impl FnOnce(&mut Live) -> Result<R, Error>) -> Result<R, Error> {
        let mut live = self.live.take().ok_or_else(Error::deleted)?;
        let changed = change(&mut live);
        self.live.replace(Some(live));
        changed
    }

    /// Continues a task after the response. Boxed, so that the platform's glue is compiled once and not per task.
    pub fn later(&self, work: impl Future<Output = ()> + 'static) {
        let work: LocalBoxFuture<'static, ()> = Box::pin(work);
        self.state.wait_until(work);
    }

    /// Whether the session has expired.
    pub fn is_over(&self) -> bool {
        self.live.borrow().as_ref().is_some_and(|live| live.session.is_over(clock::now()))
    }

    /// Whether `at` is the current model request.
    pub fn with_request<R>(&self, at: Seq, f: impl FnOnce(&Live, &OpenRequest) -> R) -> Option<R> {
        let slot = self.live.borrow();
        let live = slot.as_ref()?;
        let Phase::Sampling { at: now, .. } = &live.session.state.phase else { return None };
        let current = at <= *now && *now < at.plus(crate::session::BLOCK);
        live.request.as_ref().filter(|_| current).map(|request| f(live, request))
    }

    /// The model request `at` has ended: its response is complete, or it was given up.
    pub fn request_is_over(&self, at: Seq) {
        if let Some(live) = self.live.borrow_mut().as_mut() {
            live.request.take_if(|request| request.at == at);
        }
    }
}

impl From<Unreadable> for Error {
    fn from(e: Unreadable) -> Self {
        worker::console_error!("{e}");
        match e {
            Unreadable::TooLarge { .. } => Self::new(Code::PayloadTooLarge, e.to_string()), // a retry would not fit either
            Unreadable::Newer { .. } => Self::new(Code::StorageUnavailable, e.to_string()),
            Unreadable::Missing(_) | Unreadable::Corrupt(..) | Unreadable::Storage(_) => Self::new(
                Code::StorageUnavailable,
                "the session's storage could not be read or written; retry with an Idempotency-Key so that nothing is done twice",
            ),
        }
    }
}
