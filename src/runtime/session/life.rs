//! Creation and deletion of a session.

use std::rc::Rc;

use super::agenda::{Agenda, Wake};
use super::driver::Driver;
use super::live::{DirectorySync, Live};
use crate::api::{Agent, Code, Error, InitialItems, Key, Reply, SessionInfo, SnapshotQuery, Tenant};
use crate::runtime::platform::{clock, fault};
use crate::runtime::wire::END;
use crate::session::{Context, Input, Session, SessionId};

impl Driver {
    /// Creates the session. `agent` came inline, and other sessions may use it by id.
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
        self.sync(agent).await; // the alarm retries if this fails, or if this instance dies
        Ok(made)
    }

    /// Creates the session from a state whose records are stored, and a first input.
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
        self.store.sql.take_written(); // only turns are counted
        self.agenda.borrow_mut().enter(Wake::Copy, None); // if it was a fork, it is complete
        self.enter_session(&session, effects.alarm);
        self.tell_again();
        // It has no subscribers yet, so there is nothing to publish.
        let session = Session::load(id, session.settings, session.state, Vec::new());
        *self.live.borrow_mut() =
            Some(Live { resumed: true, ..Live::new(session, info, DirectorySync::default()) });
        Ok(())
    }

    /// The response to a creation request.
    pub fn creation_reply(self: &Rc<Self>, keys: &[Key]) -> Result<Reply, Error> {
        let reply = Reply { status: 201, ..self.snapshot(&SnapshotQuery::default())? };
        self.remember(keys, &reply)?;
        Ok(reply)
    }

    /// The response to an earlier request to create this session. After finding none, nothing is awaited.
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
            let message = format!("session {id}, created with this key, was deleted; use a new key");
            return Err(Error::new(Code::IdempotencyKeyReused, message));
        }
        if self.store.load()?.is_none() {
            return Ok(None);
        }
        self.load(id).await?;
        self.resume()?;
        let Some(first) = self.store.replies.given(keys)? else {
            let message = "the session created with this key still exists, but its response is no longer kept; use a new key";
            return Err(Error::new(Code::AlreadyExists, message));
        };
        first.replay(|| self.snapshot_text()).map(Some)
    }

    /// `DELETE /v1/sessions/{id}`. The list comes first, so that it never shows a session that no longer exists.
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
        *self.live.borrow_mut() = None; // nothing that arrived meanwhile outlives the storage
        Ok(Reply::json(200, &serde_json::json!({"id": id, "object": "conversation.deleted", "deleted": true})))
    }
}
