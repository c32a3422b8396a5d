//! The session's alarm: when it goes off, and what is done then.
//!
//! Always true: an alarm that was set is never put off, also not by an instance that did not set it; what is still to come
//! when it goes off is set anew; a parked session without a deadline needs none.

use std::rc::Rc;
use std::time::Duration;

use super::directory_sync::AGAIN;
use super::driver::Driver;
use crate::api::Error;
use crate::runtime::platform::{clock, fault};
use crate::runtime::storage::store::Stored;
use crate::runtime::wire::{Object, Purpose};
use crate::session::{Input, Phase, Seconds};

/// How often a copy is looked after, in seconds.
pub const COPY_SECONDS: u64 = 60;

impl Driver {
    /// Makes sure that the alarm goes off in time. One that is set already and earlier stays, also if it is late: it is cheaper
    /// to let it find nothing to do than to write it anew with every step.
    pub fn arm(self: &Rc<Self>, at: Option<Seconds>) {
        let now = clock::now();
        let Some(due) = at.map(|at| at.max(now)) else { return };
        if self.alarm_at.get().is_some_and(|at| at <= due) {
            return;
        }
        self.alarm_at.set(Some(due));
        self.store.sql.count_alarm();
        let storage = self.state.storage();
        // Deadlines are in whole seconds: go off just after, not just before.
        let wait = Duration::from_secs(due.0 - now.0) + Duration::from_millis(500);
        let set = async move { storage.set_alarm(wait).await };
        // The first poll happens here, so the platform takes it together with the rows that were just written.
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
                driver.alarm_at.set(None);
            }
        });
    }

    /// The alarm went off. Never fails: the platform would try a few times within minutes, and then never again.
    pub async fn alarm(self: &Rc<Self>) {
        self.alarm_at.set(None);
        if let Err(error) = self.went_off().await {
            worker::console_error!("alarm: {}", error.message);
            self.arm(Some(clock::now().after(AGAIN)));
        }
    }

    /// Does what was due. What is still to come is set last.
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
        let sweep = self.store.replies.sweep(now)?;
        self.arm(self.due(now, sweep));
        Ok(())
    }

    /// Asks this object itself while the model answers. Neither a request that waits for a model nor an alarm keeps an object
    /// in memory: `workerd` puts it out 70 to 140 seconds after the last request (workerd#7301), and cuts the answer off.
    fn stay_awake(&self) {
        let Ok(live) = self.live() else { return };
        if live.request.is_some() {
            let own = Object::session(&self.env, &live.info.tenant, live.session.id.clone(), Purpose::Ping);
            self.later(async move { drop(own.get().await) });
        }
    }

    /// When the alarm has to go off next. What is swept can wait until the session is at rest.
    pub fn due(&self, now: Seconds, sweep: Option<Seconds>) -> Option<Seconds> {
        let slot = self.live.borrow();
        let session = &slot.as_ref()?.session;
        let sweep = sweep.filter(|_| matches!(session.state.phase, Phase::Idle));
        session.due(now).map(|alarm| alarm.at()).into_iter().chain(sweep).min()
    }

    /// Storage without a session: a copy that was never finished.
    async fn abandoned(self: &Rc<Self>) -> Result<(), Error> {
        if self.copying.get() {
            self.arm(Some(clock::now().after(COPY_SECONDS)));
            return Ok(());
        }
        self.state.storage().delete_all().await.map_err(fault::internal)?;
        self.store.erased();
        Ok(())
    }
}
