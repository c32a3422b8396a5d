//! The session's side of the directory: what lists show of it follows what it does, a moment later.
//!
//! Always true: until the directory has heard of a change, an alarm is set, which tells it again. Nothing has to be written
//! down for that: an instance that does not know what was heard tells it once more, and the directory knows the version.
//! No step waits for it.

use std::rc::Rc;
use std::time::Duration;

use worker::Delay;

use super::agenda::Wake;
use super::driver::Driver;
use super::live::{DirectorySync, Live};
use crate::api::{Agent, Error, Key, Reply, SessionInfo, Summary, SummaryUpdate, Tenant};
use crate::runtime::platform::{clock, http};
use crate::runtime::wire::{Object, Purpose};
use crate::session::{SessionId, SessionStatus};

/// A turn that is over sooner is not listed as running.
const RUNNING_DELAY: u64 = 2000;
/// The least time, in milliseconds, from one telling to the next. A tenant's sessions share one directory: it must not be
/// asked as often as they are.
const INTERVAL: u64 = 1000;
/// How soon a summary that did not arrive is told again, in seconds.
pub const AGAIN: u64 = 30;

impl Driver {
    /// Sees to it that the directory hears of what changed.
    pub fn schedule_sync(self: &Rc<Self>, live: &mut Live) {
        let rests = live.session.state.status() != SessionStatus::Running;
        let paced = live.listing.told_at.saturating_add(INTERVAL);
        self.schedule_sync_at(live, if rests { paced } else { clock::millis().saturating_add(RUNNING_DELAY) });
    }

    /// The same, at a time of its own.
    pub fn schedule_sync_at(self: &Rc<Self>, live: &mut Live, due: u64) {
        let now = clock::millis();
        let due = due.max(now);
        let listing = &mut live.listing;
        if listing.telling || listing.due.is_some_and(|sooner| sooner <= due) {
            return;
        }
        listing.due = Some(due);
        self.tell_again();
        let driver = self.clone();
        self.later(async move {
            if due > now {
                Delay::from(Duration::from_millis(due - now)).await;
            }
            let awaited = driver.live.borrow().as_ref().is_some_and(|live| live.listing.due == Some(due));
            if awaited {
                driver.sync(None).await;
            }
        });
    }

    /// Sees to it that the directory is told by alarm, whatever happens until then.
    pub fn tell_again(self: &Rc<Self>) {
        self.wake(Wake::Listing, clock::now().after(AGAIN));
    }

    /// Tells the directory. Whether it heard.
    pub async fn sync(self: &Rc<Self>, agent: Option<Agent>) -> bool {
        let Some((told, version)) = self.pending_update(agent) else { return true };
        let answer = self.send(&told).await;
        let mut slot = self.live.borrow_mut();
        let Some(live) = slot.as_mut() else { return true };
        live.listing.telling = false;
        live.listing.told_at = clock::millis();
        match answer {
            Ok(()) => {
                live.listing.told = Some(version);
                if Summary::version_of(&live.info, &live.session) != version {
                    self.schedule_sync(live);
                }
                true
            }
            Err(error) => {
                worker::console_warn!("the directory was not told: {}", error.message);
                self.tell_again();
                false
            }
        }
    }

    /// What the directory does not know yet, and its version. From here on it is being told.
    fn pending_update(&self, agent: Option<Agent>) -> Option<(SummaryUpdate, u64)> {
        let mut slot = self.live.borrow_mut();
        let live = slot.as_mut()?;
        live.listing.due = None;
        let summary = Summary::of(&live.info, &live.session);
        let version = summary.version;
        let DirectorySync { told, known, inherits, .. } = live.listing;
        if live.listing.telling || told == Some(version) {
            return None;
        }
        live.listing.telling = true;
        Some((SummaryUpdate { summary, new: !known && told.is_none(), inherits, agent }, version))
    }

    async fn send(&self, told: &SummaryUpdate) -> Result<(), Error> {
        let directory = Object::directory(&self.env, &self.live()?.info.tenant, Purpose::Summary);
        let body = serde_json::to_string(told).map_err(crate::runtime::platform::fault::internal)?;
        let answer = directory.post(body).await?;
        if answer.status() == 200 { Ok(()) } else { Err(Error::relayed(answer.status(), "")) }
    }

    /// By alarm: tells what may not have been heard. That the session is listed is remembered, so that it can never be
    /// listed anew once it was deleted.
    pub async fn settle_listing(self: &Rc<Self>) -> Result<(), Error> {
        if self.live.borrow().as_ref().is_some_and(|live| live.listing.telling) {
            self.tell_again(); // what is being told may be lost, and this alarm is used up
            return Ok(());
        }
        if !self.sync(None).await {
            return Ok(());
        }
        let mut slot = self.live.borrow_mut();
        let Some(live) = slot.as_mut().filter(|live| !live.listing.known) else { return Ok(()) };
        self.store.set_listed()?;
        live.listing.known = true;
        Ok(())
    }

    /// Takes the session from the list. An answer that the directory keeps outlives the session.
    pub async fn unlist(&self, id: &SessionId, info: &SessionInfo, keys: &[Key]) -> Result<(), Error> {
        let ask = Purpose::Unlist { session: id.clone(), keyed: info.keyed };
        let mut directory = Object::directory(&self.env, &info.tenant, ask);
        directory.about.key = keys.first().map(|key| key.given().to_string());
        let answer = directory.get().await?;
        if answer.status() == 200 {
            return Ok(());
        }
        Err(Error::relayed(answer.status(), ""))
    }

    /// What was answered when the session was deleted under this very key.
    pub async fn replayed_delete(&self, id: &SessionId, tenant: &Tenant, key: &str) -> Result<Reply, Error> {
        let mut directory = Object::directory(&self.env, tenant, Purpose::Deleted(id.clone()));
        directory.about.key = Some(key.to_string());
        let answer = directory.get().await?;
        if answer.status() != 200 {
            return Err(Error::no_session(id.as_str()));
        }
        let body = http::text(&answer).await?;
        Ok(Reply { status: 200, headers: Vec::new(), body }.with("idempotent-replayed", "true"))
    }

    /// Whether a session of that id, which follows from a key, was deleted lately.
    pub async fn was_deleted(&self, id: &SessionId, tenant: &Tenant) -> Result<bool, Error> {
        let answer = Object::directory(&self.env, tenant, Purpose::WasDeleted(id.clone())).get().await?;
        match answer.status() {
            200 => Ok(true),
            404 => Ok(false),
            status => Err(Error::relayed(status, "")),
        }
    }
}
