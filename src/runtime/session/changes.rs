//! Client requests that change the session, once per idempotency key.

use std::rc::Rc;

use super::agenda::Wake;
use super::driver::Driver;
use crate::api::{self, Command, Error, Key, Patch, REPLY_TTL, Reply, SnapshotQuery};
use crate::config::Config;
use crate::runtime::platform::{clock, settings};
use crate::session::Input;

impl Driver {
    /// Performs a request once: a key that was used before returns the original response.
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
                    settings::config(&self.env)?.check(&info)?;
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

    /// The current session, for a response that was too large to keep.
    pub(super) fn snapshot_text(&self) -> Result<String, Error> {
        Ok(self.snapshot(&SnapshotQuery::default())?.body)
    }

    /// Rejects a message, or an output, that its provider could not be asked with.
    pub fn check(&self, command: &Command, config: &Config) -> Result<(), Error> {
        let live = self.live()?;
        match &command.input {
            Input::Message(posted) => {
                let own = command.sampling.clone().unwrap_or_default();
                config.check_message(&live.info, posted.model.as_deref(), &own, &posted.content)
            }
            Input::Output(given) => {
                let model = live.session.state.turn().map_or_else(|| live.info.model(), |turn| &turn.head.model);
                config.check_content(&live.info, model, &given.output, "data.output")
            }
            _ => Ok(()),
        }
    }

    /// Runs `act`, unless one of the keys was used before.
    pub fn once(
        self: &Rc<Self>,
        keys: &[Key],
        act: impl FnOnce() -> Result<Reply, Error>,
    ) -> Result<Reply, Error> {
        if let Some(first) = self.store.replies.given(keys)? {
            return first.replay(|| self.snapshot_text());
        }
        let reply = act()?;
        // No await since the step: the change and its response are stored together or not at all.
        self.remember(keys, &reply)?;
        Ok(reply)
    }

    pub(super) fn remember(self: &Rc<Self>, keys: &[Key], reply: &Reply) -> Result<(), Error> {
        let now = clock::now();
        self.store.replies.keep(keys, reply, now)?;
        if !keys.is_empty() {
            self.wake(Wake::Sweep, now.after(REPLY_TTL));
        }
        Ok(())
    }
}
