//! Who may do what with a session: its tokens, and how often.

use super::clock;
use super::driver::Driver;
use super::object::Forwarded;
use crate::api::{self, Claims, Code, Error, Key, MAX_SUBSCRIBERS, Rate, Reply, SessionInfo};
use crate::session::{CallId, Kind, Log};

impl Driver {
    /// What whoever asks may do, as far as the token says; none: everything, since there is an API key.
    pub fn caller(&self, about: &Forwarded) -> Result<Option<Claims>, Error> {
        let Some(token) = &about.token else { return Ok(None) };
        let slot = self.live.borrow();
        let live = slot.as_ref().ok_or_else(Error::deleted)?;
        let key = live.info.token_key.as_deref();
        Claims::checked(token, key.map(str::as_bytes), about.origin.as_deref(), clock::now()).map(Some)
    }

    /// `POST …/tokens`.
    pub fn make_token(&self, body: &str, keys: &[Key]) -> Result<Reply, Error> {
        self.once(keys, || {
            let mut slot = self.live.borrow_mut();
            let live = slot.as_mut().ok_or_else(Error::deleted)?;
            let claims = Claims::asked(body, &live.info.tenant, &live.session.id, clock::now())?;
            if live.info.token_key.is_none() {
                let info = SessionInfo { token_key: Some(clock::Ids.secret()?), ..live.info.clone() };
                self.store.set_info(&live.session.id, &info)?;
                live.info = info;
            }
            claims.reply(live.info.token_key.as_deref().unwrap_or_default().as_bytes())
        })
    }

    /// `DELETE …/tokens`: all that were given are void, and streams that were opened with one end.
    pub fn revoke_tokens(&self, keys: &[Key]) -> Result<Reply, Error> {
        self.once(keys, || {
            let mut slot = self.live.borrow_mut();
            let live = slot.as_mut().ok_or_else(Error::deleted)?;
            let info = SessionInfo { token_key: None, ..live.info.clone() };
            self.store.set_info(&live.session.id, &info)?;
            live.info = info;
            for socket in self.state.get_websockets() {
                // The worker dials again for those who may.
                drop(socket.close(Some(1012), Some("tokens were revoked")));
            }
            Ok(Reply::json(200, &api::revoked()))
        })
    }

    /// The tool that a call is of; none if there is no such call.
    pub fn tool_of(&self, call_id: &str) -> Result<Option<String>, Error> {
        let slot = self.live.borrow();
        let live = slot.as_ref().ok_or_else(Error::deleted)?;
        let open = live.session.state.open_calls().iter().find(|call| call.call_id.as_str() == call_id);
        if let Some(call) = open {
            return Ok(Some(call.name.clone()));
        }
        let Some(seq) = self.store.place_of_call(&CallId(call_id.to_string()))? else { return Ok(None) };
        Ok(match self.store.item(seq)?.kind {
            Kind::FunctionCall { name, .. } => Some(name),
            Kind::Message { .. } | Kind::Reasoning | Kind::FunctionCallOutput { .. } | Kind::Error => None,
        })
    }

    /// Counts an event, and refuses one too many.
    pub fn count_event(&self, rate: Rate) -> Result<(), Error> {
        let mut slot = self.live.borrow_mut();
        let live = slot.as_mut().ok_or_else(Error::deleted)?;
        live.bucket.take(rate, clock::millis())
    }

    /// Refuses one reader too many.
    pub fn must_have_room(&self) -> Result<(), Error> {
        if self.state.get_websockets().len() < MAX_SUBSCRIBERS {
            return Ok(());
        }
        let message = format!("{MAX_SUBSCRIBERS} readers follow this session already, which is the limit");
        Err(Error::new(Code::Overloaded, message))
    }
}
