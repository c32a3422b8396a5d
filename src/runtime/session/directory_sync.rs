//! Keeps the directory in sync: lists show what a session does, a moment later.
//!
//! Always true: until the directory has acknowledged a change, an alarm is set that sends it again. Nothing is stored
//! for that: an instance that does not know what was acknowledged sends its summary once more, and the directory
//! compares versions. No step waits for it.

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

/// A turn shorter than this is never listed as running.
const RUNNING_DELAY: u64 = 2000;
/// The least time between two updates, in milliseconds. All sessions of a tenant share one directory, which must not
/// get a request for each of theirs.
const INTERVAL: u64 = 1000;
/// How soon a lost summary is sent again, in seconds.
pub const AGAIN: u64 = 30;

impl Driver {
    /// Schedules an update of the directory.
    pub fn schedule_sync(self: &Rc<Self>, live: &mut Live) {
        let rests = live.session.state.status() != SessionStatus::Running;
        let paced = live.listing.told_at.saturating_add(INTERVAL);
        self.schedule_sync_at(live, if rests { paced } else { clock::millis().saturating_add(RUNNING_DELAY) });
    }

    /// The same, at a given time.
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

    /// Makes sure that an alarm updates the directory, whatever happens until then.
    pub fn tell_again(self: &Rc<Self>) {
        self.wake(Wake::Listing, clock::now().after(AGAIN));
    }

    /// Sends the summary. Returns whether it arrived.
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
                worker::console_warn!("the directory update failed: {}", error.message);
                self.tell_again();
                false
            }
        }
    }

    /// The update the directory lacks, and its version. From here on it counts as being sent.
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

    /// By alarm: sends what may not have arrived. That the session is listed is stored, so that it can never be listed
    /// anew once it was deleted.
    pub async fn settle_listing(self: &Rc<Self>) -> Result<(), Error> {
        if self.live.borrow().as_ref().is_some_and(|live| live.listing.telling) {
            self.tell_again(); // the update in flight may be lost, and this alarm has fired
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

    /// Removes the session from the list. A response kept by the directory outlives the session.
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

    /// The response given when the session was deleted under this key.
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

    /// Whether a session with that id, derived from a key, was deleted recently.
    pub async fn was_deleted(&self, id: &SessionId, tenant: &Tenant) -> Result<bool, Error> {
        let answer = Object::directory(&self.env, tenant, Purpose::WasDeleted(id.clone())).get().await?;
        match answer.status() {
            200 => Ok(true),
            404 => Ok(false),
            status => Err(Error::relayed(status, "")),
        }
    }
}
