//! The session's object: one per session. Owns its storage, sockets, alarm and model request.
//!
//! Always true: whatever a client has been told is durable, because records, state row and frames leave in one block
//! without an await, which the platform's output gate holds back until the write is safe; a waking object reads a few
//! small rows and never the transcript; a session that does not exist has no storage; nothing is done for a client, and
//! no body is read, before its credentials have been checked.

use std::rc::Rc;

use worker::{
    DurableObject, Env, Response, State, WebSocket, WebSocketIncomingMessage, WebSocketPair, durable_object,
};

use super::driver::Driver;
use crate::api::{self, Access, Error, Key, Method, Query, Reply, Route, SessionInfo};
use crate::json;
use crate::runtime::platform::fault::internal;
use crate::runtime::platform::http::{Request, ResponseContext};
use crate::runtime::platform::{clock, settings};
use crate::runtime::wire::NewSession;
use crate::runtime::wire::{CallContext, Caller, Purpose};
use crate::session::{CallId, Input, ItemId, SessionId};

#[durable_object]
pub struct Session {
    driver: Rc<Driver>,
    env: Env,
}

// A caught panic leaves no state behind: while the session in memory is changed it is out of its place (`Driver::change`,
// `Driver::perform`), so a panic loses it and it is read again.
impl std::panic::UnwindSafe for Session {}
impl std::panic::RefUnwindSafe for Session {}

impl DurableObject for Session {
    fn new(state: State, env: Env) -> Self {
        Self { driver: Rc::new(Driver::new(state, env.clone())), env }
    }

    async fn fetch(&self, req: worker::Request) -> worker::Result<Response> {
        let req = Request::from(req);
        let about = CallContext::of(&req)?;
        let context = about.response_context();
        let answer = match self.answer(&req, &about, &context).await {
            Err(error) => {
                req.drain().await;
                context.respond(error.reply(&about.request_id))
            }
            answer => answer,
        };
        answer.map_err(|error| error.message.into())
    }

    async fn alarm(&self) -> worker::Result<Response> {
        self.driver.alarm().await;
        Response::empty()
    }

    async fn websocket_message(&self, _: WebSocket, _: WebSocketIncomingMessage) -> worker::Result<()> {
        Ok(()) // subscribers do not send messages
    }

    async fn websocket_close(&self, _: WebSocket, _: usize, _: String, _: bool) -> worker::Result<()> {
        Ok(())
    }

    async fn websocket_error(&self, _: WebSocket, _: worker::Error) -> worker::Result<()> {
        Ok(())
    }
}

impl Session {
    async fn answer(
        &self,
        req: &Request,
        about: &CallContext,
        context: &ResponseContext,
    ) -> Result<Response, Error> {
        let driver = &self.driver;
        let id = about
            .session
            .as_ref()
            .ok_or_else(|| internal("a session's object got a request without a session"))?;
        let key = about.key.as_deref();
        match &about.ask {
            Purpose::Client(caller) => self.client(req, about, id, caller, context).await,
            Purpose::Ping => context.respond(Reply::json(200, &serde_json::json!({}))),
            Purpose::Log(query) => {
                driver.load(id).await?;
                context.respond(driver.export(query)?)
            }
            Purpose::Create => {
                let body = req.body().await?;
                let made = Box::pin(self.create(id, about, &body)).await?;
                context.respond(made.with("location", format!("/v1/sessions/{id}")))
            }
            Purpose::Fork(source) => {
                let body = req.body().await?;
                let keys = Key::of("fork", key, &body)?;
                let made = Box::pin(driver.fork(id.clone(), &about.tenant, source, &body, &keys)).await?;
                context.respond(made.with("location", format!("/v1/sessions/{id}")))
            }
            Purpose::Summary
            | Purpose::Unlist { .. }
            | Purpose::Deleted(_)
            | Purpose::WasDeleted(_)
            | Purpose::Agent(_) => Err(internal("a session's object got a directory's request")),
        }
    }

    /// Handles a client's request. The credentials are checked before anything is done or read for it.
    async fn client(
        &self,
        req: &Request,
        about: &CallContext,
        id: &SessionId,
        caller: &Caller,
        context: &ResponseContext,
    ) -> Result<Response, Error> {
        let (driver, query, key) = (&self.driver, req.query(), about.key.as_deref());
        let (route, method) = Route::parse(&req.method, req.path())?;
        if let (Caller::Key, Some(key), Method::Delete) = (caller, key, method)
            && driver.store.load()?.is_none()
        {
            return context.respond(Box::pin(driver.replayed_delete(id, &about.tenant, key)).await?);
        }
        driver.load(id).await?;
        let access = driver.authorize(caller, &route, method)?;
        if driver.is_over() {
            Box::pin(driver.delete(&[])).await?;
            return Err(Error::no_session(id.as_str()));
        }
        driver.resume()?;
        if method == Method::Get {
            driver.count_read(&access, &*settings::config(&self.env)?)?;
        }
        let body = req.body_of(method).await?;
        match (&route, method) {
            (Route::Events(_), Method::Post) => {
                // Again: the token may have been revoked while the body arrived.
                let access = driver.authorize(caller, &route, method)?;
                context.respond(self.event(&body, key, &access)?)
            }
            (Route::Stream(_), _) => self.subscribe(query.cursor(None)?.as_deref()),
            // Boxed, like all cold routes (see `router::answer`).
            _ => context.respond(Box::pin(self.other(route, method, &query, &body, about, &access)).await?),
        }
    }

    /// `POST …/events`.
    fn event(&self, body: &str, key: Option<&str>, access: &Access) -> Result<Reply, Error> {
        let (driver, config) = (&self.driver, settings::config(&self.env)?);
        let command = api::command(body)?;
        let tool = match (&command.input, access) {
            (Input::Output(given), Access::Token(_)) => driver.tool_of(given.call_id.as_str())?,
            _ => None,
        };
        access.allows_event(&command, tool.as_deref())?;
        command.check_reach(config.reach)?;
        driver.count_event(access, matches!(command.input, Input::Message(_)), &config)?;
        driver.check(&command, &config)?;
        let mut keys = Key::of("events", key, body)?;
        keys.extend(command.id.as_ref().map(|id| Key::message(id, body)));
        driver.take(command.input, &keys)
    }

    /// Everything but events and the stream.
    async fn other(
        &self,
        route: Route,
        method: Method,
        query: &Query,
        body: &str,
        about: &CallContext,
        access: &Access,
    ) -> Result<Reply, Error> {
        let (driver, key) = (&self.driver, about.key.as_deref());
        match (route, method) {
            (Route::Tokens(_), Method::Post) => driver.make_token(body, &Key::of("tokens", key, body)?),
            (Route::Tokens(_), _) => driver.revoke_tokens(&Key::of("revoke", key, "")?),
            (Route::Session(id), Method::Delete) => {
                driver.delete(&Key::of(&format!("delete {id}"), key, &id)?).await
            }
            (Route::Session(_), Method::Patch) => driver.patch(api::patch(body)?, &Key::of("patch", key, body)?),
            (Route::Session(_), _) => driver.snapshot(&query.snapshot()?),
            (Route::Queued(_, item), _) => {
                let keys = Key::of("queue", key, &item)?;
                driver.take(Input::Withdraw(ItemId(item)), &keys)
            }
            (Route::Call(_, call), _) => {
                let keys = Key::of("calls", key, &call)?;
                driver.take(Input::Cancel(CallId(call)), &keys)
            }
            (Route::Items(_), _) => driver.items(&query.items()?),
            (Route::Agent(_), _) => driver.agent(access),
            (Route::Events(_), Method::Get) => driver.events(&query.events()?),
            (
                Route::Health
                | Route::Document
                | Route::Web(_)
                | Route::Info
                | Route::Sessions
                | Route::Agents
                | Route::TenantAgent(_)
                | Route::Usage
                | Route::Events(_)
                | Route::Stream(_)
                | Route::Socket(_)
                | Route::Fork(_),
                _,
            ) => Err(internal("a session's object got another program's route")),
        }
    }

    async fn create(&self, id: &SessionId, about: &CallContext, envelope: &str) -> Result<Reply, Error> {
        let (key, tenant) = (about.key.as_deref(), &about.tenant);
        let NewSession { body, agent, bundled } = json::read(envelope).map_err(internal)?;
        // A bundled agent's id identifies the bundle.
        let bundle = agent.as_ref().filter(|_| bundled).map(|agent| agent.id.0.as_str()).unwrap_or_default();
        let keys = Key::of("create", key, &format!("{body}{bundle}"))?;
        if let Some(again) = self.driver.earlier_creation(id, tenant, &keys).await? {
            return Ok(again);
        }
        let mut new = api::create(&body)?;
        let config = settings::config(&self.env)?;
        let (agent_id, agent, inline) = match agent {
            Some(known) => {
                let inline = bundled.then(|| known.agent.clone());
                (known.id, known.agent, inline)
            }
            None => {
                let agent = new.agent.take().unwrap_or_else(|| config.default_agent());
                (api::inline_id(&agent), agent.clone(), Some(agent))
            }
        };
        let seeds = std::mem::take(&mut new.seeds);
        let info = SessionInfo::new(new, agent, agent_id, tenant.clone(), clock::now());
        let info = SessionInfo { keyed: !keys.is_empty(), ..info };
        config.check(&info)?;
        seeds.check_reach(config.reach)?;
        self.driver.create(id.clone(), info, seeds, inline, &keys).await
    }

    /// Attaches a subscriber after `cursor`, or returns a page if it has missed much. No await: nothing can come
    /// between what is read here and what is sent later.
    fn subscribe(&self, cursor: Option<&str>) -> Result<Response, Error> {
        self.driver.must_have_room()?;
        let batch = self.driver.catch_up(cursor)?;
        if batch.more {
            return Response::ok(batch.text).map_err(internal);
        }
        let pair = WebSocketPair::new().map_err(internal)?;
        self.driver.attach(&pair.server, &batch.text).map_err(internal)?;
        Response::from_websocket(pair.client).map_err(internal)
    }
}
