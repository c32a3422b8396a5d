//! The session's object: one per session. Owns its storage, its sockets, its alarm and its model request.
//!
//! Always true: what has been answered or sent is durable, because records, state row and frames leave in one block
//! without an await, which the platform's output gate holds back until the write is safe; an object that wakes reads a
//! few small rows and never the transcript; a session that does not exist gets no storage.

use std::rc::Rc;

use worker::{
    DurableObject, Env, Response, State, WebSocket, WebSocketIncomingMessage, WebSocketPair, durable_object,
};

use super::driver::Driver;
use super::http::{Request, Stamp};
use super::object::{Forwarded, Object};
use super::router::NewSession;
use super::{clock, fork, router};
use crate::api::{self, Claims, Code, Error, Key, Method, Need, Query, Reply, Route, SessionInfo};
use crate::json;
use crate::provider::Sampling;
use crate::session::{CallId, Input, ItemId, SessionId};

/// The object.
#[durable_object]
pub struct Session {
    driver: Rc<Driver>,
    env: Env,
}

// A caught panic leaves no state behind: the driver forgets what it has in memory and reads it again.
impl std::panic::UnwindSafe for Session {}
impl std::panic::RefUnwindSafe for Session {}

impl DurableObject for Session {
    fn new(state: State, env: Env) -> Self {
        Self { driver: Rc::new(Driver::new(state, env.clone())), env }
    }

    async fn fetch(&self, req: worker::Request) -> worker::Result<Response> {
        let req = Request::from(req);
        let about = Forwarded::of(&req)?;
        let stamp = about.stamp();
        let answer = match self.answer(&req, &about, &stamp).await {
            Err(error) => stamp.respond(error.reply(&about.request_id)),
            answer => answer,
        };
        answer.map_err(|error| error.message.into())
    }

    async fn alarm(&self) -> worker::Result<Response> {
        if let Err(error) = self.driver.alarm().await {
            worker::console_error!("alarm: {}", error.message);
            return Err(error.message.into()); // the platform calls again
        }
        Response::empty()
    }

    async fn websocket_message(&self, _: WebSocket, _: WebSocketIncomingMessage) -> worker::Result<()> {
        Ok(()) // subscribers have nothing to say
    }

    async fn websocket_close(&self, _: WebSocket, _: usize, _: String, _: bool) -> worker::Result<()> {
        Ok(())
    }

    async fn websocket_error(&self, _: WebSocket, _: worker::Error) -> worker::Result<()> {
        Ok(())
    }
}

impl Session {
    async fn answer(&self, req: &Request, about: &Forwarded, stamp: &Stamp) -> Result<Response, Error> {
        let (id, query) = (about.session.clone(), req.query());
        let key = about.key.as_deref();
        let driver = &self.driver;
        if req.path() == fork::LOG {
            driver.wake(&id)?;
            return stamp.respond(driver.export(&query)?);
        }
        let (route, method) = Route::parse(&req.method, req.path())?;
        let body = req.body_of(method).await?;
        if let Route::Sessions | Route::Fork(_) = route {
            let location = format!("/v1/sessions/{id}");
            let made = match &about.source {
                None => Box::pin(self.create(SessionId(id), &body, key)).await?,
                Some(source) => {
                    let source = Object::named(&self.env, source);
                    let keys = Key::of("fork", key, &body)?;
                    Box::pin(driver.fork(SessionId(id), &source, &body, &keys)).await?
                }
            };
            return stamp.respond(made.with("location", location));
        }
        if let (Err(gone), Some(key), Method::Delete) = (driver.wake(&id), key, method)
            && gone.code == Code::NotFound
        {
            return stamp.respond(Box::pin(driver.goodbye(&id, &about.tenant, key)).await?);
        }
        driver.wake(&id)?;
        if driver.is_over() {
            Box::pin(driver.delete(&[])).await?;
            return Err(Error::no_session(&id));
        }
        let caller = driver.caller(about)?;
        let event = matches!((&route, method), (Route::Events(_), Method::Post));
        if let Some(claims) = caller.as_ref().filter(|_| !event) {
            let tool = match &route {
                Route::Call(_, call) => driver.tool_of(call)?,
                _ => None,
            };
            claims.allows(&Need::of(&route, method), tool.as_deref())?;
        }
        match (&route, method) {
            (Route::Events(_), Method::Post) => stamp.respond(self.event(&body, key, caller.as_ref())?),
            (Route::Stream(_), _) => self.subscribe(query.cursor(None)?.as_deref()),
            // Boxed, like all that is not asked all the time (see `router::answer`).
            _ => stamp.respond(Box::pin(self.other(route, method, &query, &body, about)).await?),
        }
    }

    /// `POST …/events`.
    fn event(&self, body: &str, key: Option<&str>, caller: Option<&Claims>) -> Result<Reply, Error> {
        let (driver, config) = (&self.driver, router::config(&self.env)?);
        let command = api::command(body)?;
        command.check_reach(config.reach)?;
        if let Some(claims) = caller {
            let tool = match &command.input {
                Input::Output(given) => driver.tool_of(given.call_id.as_str())?,
                _ => None,
            };
            claims.allows(&Need::of_input(&command.input), tool.as_deref())?;
        }
        driver.count_event(config.session_rate)?; // only what may be done at all
        if let Some(sampling) = &command.sampling {
            driver.check(sampling)?;
        }
        let mut keys = Key::of("events", key, body)?;
        keys.extend(command.id.as_ref().map(|id| Key::message(id, body)));
        driver.take(command.input, &keys)
    }

    /// What is neither an event nor the stream.
    async fn other(
        &self,
        route: Route,
        method: Method,
        query: &Query,
        body: &str,
        about: &Forwarded,
    ) -> Result<Reply, Error> {
        let (driver, id, key) = (&self.driver, &about.session, about.key.as_deref());
        match (route, method) {
            (Route::Tokens(_), Method::Post) => driver.make_token(body, &Key::of("tokens", key, body)?),
            (Route::Tokens(_), _) => driver.revoke_tokens(&Key::of("revoke", key, "")?),
            (Route::Session(_), Method::Delete) => {
                driver.delete(&Key::of(&format!("delete {id}"), key, id)?).await
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
            (Route::Agent(_), _) => driver.agent(),
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
            ) => Err(Error::no_session(id)),
        }
    }

    async fn create(&self, id: SessionId, envelope: &str, key: Option<&str>) -> Result<Reply, Error> {
        let NewSession { tenant, body, agent, bundled } = json::read(envelope).map_err(router::internal)?;
        // The id of a bundled agent tells whether it is the same bundle.
        let bundle = agent.as_ref().filter(|_| bundled).map(|agent| agent.id.0.as_str()).unwrap_or_default();
        let keys = Key::of("create", key, &format!("{body}{bundle}"))?;
        if let Some(again) = self.driver.created(&keys)? {
            return Ok(again);
        }
        let mut new = api::create(&body)?;
        let config = router::config(&self.env)?;
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
        let info = SessionInfo::new(new, agent, agent_id, tenant, clock::now());
        config.check(&info, &Sampling::default())?;
        seeds.check_reach(config.reach)?;
        self.driver.create(id, info, seeds, inline, &keys).await
    }

    /// Attaches a subscriber after `cursor`, or answers a page if it has missed much. No await: nothing can come between
    /// what is read here and what is sent later.
    fn subscribe(&self, cursor: Option<&str>) -> Result<Response, Error> {
        self.driver.must_have_room()?;
        let batch = self.driver.catch_up(cursor)?;
        if batch.more {
            return Response::ok(batch.text).map_err(router::internal);
        }
        let pair = WebSocketPair::new().map_err(router::internal)?;
        self.driver.attach(&pair.server, &batch.text).map_err(router::internal)?;
        Response::from_websocket(pair.client).map_err(router::internal)
    }
}
