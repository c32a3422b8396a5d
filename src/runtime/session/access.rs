//! Authorisation: who may do what with a session, and how often. The worker has checked API keys; a token is checked
//! here, because only the session has the key that signed it.

use std::rc::Rc;

use super::driver::Driver;
use crate::api::{
    self, Access, Claims, Code, Error, Key, MAX_SUBSCRIBERS, Method, Need, Reply, Route, SessionInfo,
};
use crate::config::Config;
use crate::runtime::platform::clock;
use crate::runtime::wire::Caller;
use crate::session::{CallId, Kind, Log};

impl Driver {
    /// Checks the credentials of a client's request to a route. Nothing is done, read or written for it before.
    pub fn authorize(&self, caller: &Caller, route: &Route, method: Method) -> Result<Access, Error> {
        let Caller::Token { token, origin } = caller else { return Ok(Access::Key) };
        let claims = {
            let live = self.live()?;
            let key = live.info.token_key.as_deref().map(str::as_bytes);
            let claims = Claims::checked(token, key, origin.as_deref(), clock::now())?;
            if claims.tenant != live.info.tenant || claims.session != live.session.id {
                return Err(Error::new(Code::Forbidden, "this token belongs to another session"));
            }
            claims
        };
        let (access, need) = (Access::Token(claims), Need::of(route, method));
        access.allows(&need, None)?;
        if let Route::Call(_, call) = route {
            access.allows(&need, self.tool_of(call)?.as_deref())?;
        }
        Ok(access)
    }

    /// Counts a read by a token holder.
    pub fn count_read(&self, access: &Access, config: &Config) -> Result<(), Error> {
        match access {
            Access::Key => Ok(()),
            Access::Token(_) => self.change(|live| live.token_reads.take(config.token_read_rate, clock::millis())),
        }
    }

    /// Counts an event, and a token holder's message once more: each may cost a model request.
    pub fn count_event(&self, access: &Access, is_message: bool, config: &Config) -> Result<(), Error> {
        let now = clock::millis();
        self.change(|live| {
            if is_message && matches!(access, Access::Token(_)) {
                live.token_messages.take(config.token_message_rate, now)?;
            }
            live.events.take(config.session_rate, now)
        })
    }

    /// `POST …/tokens`.
    pub fn make_token(self: &Rc<Self>, body: &str, keys: &[Key]) -> Result<Reply, Error> {
        self.once(keys, || {
            self.change(|live| {
                let claims = Claims::asked(body, &live.info.tenant, &live.session.id, clock::now())?;
                if live.info.token_key.is_none() {
                    let info = SessionInfo { token_key: Some(clock::Ids.secret()?), ..live.info.clone() };
                    self.store.set_info(&live.session.id, &info)?;
                    live.info = info;
                }
                claims.reply(live.info.token_key.as_deref().unwrap_or_default().as_bytes())
            })
        })
    }

    /// `DELETE …/tokens`: revokes all tokens. Streams opened with one end.
    pub fn revoke_tokens(self: &Rc<Self>, keys: &[Key]) -> Result<Reply, Error> {
        self.once(keys, || {
            self.change(|live| {
                let info = SessionInfo { token_key: None, ..live.info.clone() };
                self.store.set_info(&live.session.id, &info)?;
                live.info = info;
                Ok(())
            })?;
            // The worker redials for clients that are still allowed.
            self.close_sockets("tokens were revoked");
            Ok(Reply::json(200, &api::revoked()))
        })
    }

    /// The tool of a call; `None` if there is no such call.
    pub fn tool_of(&self, call_id: &str) -> Result<Option<String>, Error> {
        let live = self.live()?;
        let open = live.session.state.open_calls().iter().find(|call| call.call_id.as_str() == call_id);
        if let Some(call) = open {
            return Ok(Some(call.name.clone()));
        }
        let Some(seq) = self.store.seq_of_call(&CallId(call_id.to_string()))? else { return Ok(None) };
        Ok(match self.store.item(seq)?.kind {
            Kind::FunctionCall { name, .. } => Some(name),
            Kind::Message { .. } | Kind::Reasoning | Kind::FunctionCallOutput { .. } | Kind::Error => None,
        })
    }

    /// Rejects a reader above the limit.
    pub fn must_have_room(&self) -> Result<(), Error> {
        if self.state.get_websockets().len() < MAX_SUBSCRIBERS {
            return Ok(());
        }
        let message = format!("{MAX_SUBSCRIBERS} readers already follow this session, which is the limit");
        Err(Error::new(Code::Overloaded, message))
    }
}
