//! The object's alarm: set only here, for what is on the [`Agenda`](super::agenda::Agenda), and handled here.

use std::rc::Rc;
use std::time::Duration;

use super::agenda::Wake;
use super::directory_sync::AGAIN;
use super::driver::Driver;
use crate::api::Error;
use crate::runtime::platform::{clock, fault};
use crate::runtime::storage::store::Stored;
use crate::runtime::wire::{Object, Purpose};
use crate::session::{Alarm, Input, Phase, Seconds, Session};

/// How often a fork in progress is checked, in seconds.
const COPY_SECONDS: u64 = 60;

impl Driver {
    /// Wakes the object for a reason.
    pub fn wake(self: &Rc<Self>, wake: Wake, at: Seconds) {
        self.agenda.borrow_mut().enter(wake, Some(at));
        self.set_alarm();
    }

    /// Enters the session's own timer, without setting the alarm yet.
    pub fn enter_session(&self, session: &Session, due: Option<Alarm>) {
        let is_idle = matches!(session.state.phase, Phase::Idle);
        self.agenda.borrow_mut().session(due.map(|alarm| alarm.at()), is_idle);
    }

    /// Sets the platform's alarm if the agenda needs it.
    pub fn set_alarm(self: &Rc<Self>) {
        let now = clock::now();
        let Some(due) = self.agenda.borrow_mut().alarm(now) else { return };
        self.store.sql.count_alarm();
        let storage = self.state.storage();
        // Deadlines are whole seconds: fire just after one, not just before.
        let wait = Duration::from_secs(due.0 - now.0) + Duration::from_millis(500);
        let set = async move { storage.set_alarm(wait).await };
        // Polled here, so the platform commits it together with the rows just written.
        let mut set = Box::pin(set);
        let polled = futures::FutureExt::now_or_never(&mut set);
        let driver = self.clone();
        self.later(async move {
            let set = match polled {
                Some(set) => set,
                None => set.await,
            };
            if let Err(e) = set {
                worker::console_error!("the alarm could not be set: {e}");
                driver.agenda.borrow_mut().not_set();
            }
        });
    }

    /// The alarm fired. Never fails: the platform would retry a few times within minutes, and then never again.
    pub async fn alarm(self: &Rc<Self>) {
        self.agenda.borrow_mut().went_off();
        if let Err(error) = self.went_off().await {
            worker::console_error!("alarm: {}", error.message);
            self.wake(Wake::Failure, clock::now().after(AGAIN));
        }
    }

    /// Does what is due. The next alarm is set last.
    async fn went_off(self: &Rc<Self>) -> Result<(), Error> {
        if self.live().is_err() {
            let Some(Stored { id, .. }) = self.store.load()? else { return self.abandoned().await };
            self.load(&id).await?;
        }
        self.resume()?;
        self.perform(Input::Alarm)?;
        if self.is_over() {
            return self.delete(&[]).await.map(drop);
        }
        self.stay_awake();
        self.settle_listing().await?;
        let now = clock::now();
        self.agenda.borrow_mut().enter(Wake::Sweep, self.store.replies.sweep(now)?);
        if let Ok(live) = self.live() {
            self.enter_session(&live.session, live.session.due(now));
        }
        self.set_alarm();
        Ok(())
    }

    /// Sends this object requests while a model responds. Neither a pending fetch nor an alarm keeps an object in
    /// memory: `workerd` evicts it 70 to 140 seconds after the last request (workerd#7301), which cuts the response
    /// off.
    fn stay_awake(&self) {
        let Ok(live) = self.live() else { return };
        if live.request.is_some() {
            let own = Object::session(&self.env, &live.info.tenant, live.session.id.clone(), Purpose::Ping);
            self.later(async move { drop(own.get().await) });
        }
    }

    /// Makes sure that a fork which is never finished gets erased.
    pub fn look_after_copy(self: &Rc<Self>) {
        self.wake(Wake::Copy, clock::now().after(COPY_SECONDS));
    }

    /// Erases storage without a session: a fork that was never finished.
    async fn abandoned(self: &Rc<Self>) -> Result<(), Error> {
        if self.copying.get() {
            self.look_after_copy();
            return Ok(());
        }
        self.state.storage().delete_all().await.map_err(fault::internal)?;
        self.store.erased();
        Ok(())
    }
}
