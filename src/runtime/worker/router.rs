//! The stateless worker: authenticates, routes, and forwards the request to the session's object.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Value, json};
use web_sys::Response;
use worker::{Context, Env, FormEntry, event};

use super::{long_poll, sse, websocket};
use crate::api::{self, AgentRecord, Bucket, Claims, Code, Error, Method, Need, Rate, Reply, Route, Tenant};
use crate::config::{Config, LogLevel};
use crate::json;
use crate::runtime::platform::fault::internal;
use crate::runtime::platform::http::{self, REQUEST_ID, Request, ResponseContext};
use crate::runtime::platform::{clock, settings};
use crate::runtime::wire::{Caller, NewSession, Object, Purpose};
use crate::session::{AgentId, Mint, SessionId};
use crate::web;

#[event(fetch)]
async fn fetch(req: Request, env: Env, _: Context) -> worker::Result<Response> {
    let began = clock::millis();
    let given = req.header(REQUEST_ID).filter(|id| is_plain(id));
    let request_id = given.unwrap_or_else(|| format!("req_{}", clock::Ids.uuid()));
    let route = Route::parse(&req.method, req.path());
    let pattern = route.as_ref().map_or("", |(route, _)| route.pattern());
    let config = settings::config(&env);
    let origin = req.header("origin");
    let reader =
        origin.as_deref().and_then(|origin| Some(config.as_ref().ok()?.allowed_origin(origin)?.to_string()));
    let lines = config.as_ref().map_or(LogLevel::Requests, |config| config.log);
    let context = ResponseContext { request_id, reader, began };
    let answer = if req.method == "OPTIONS" {
        preflight(&req, origin.is_some(), &context)
    } else {
        answer(&req, &env, route, config, &context).await
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            req.drain().await;
            let refusal = context.respond(error.reply(&context.request_id));
            refusal.map_err(|error| error.message)?.into()
        }
    };
    if lines >= LogLevel::Requests {
        log_request(&context, &req.method, pattern, answer.status());
    }
    Ok(answer)
}

/// Logs one line per request, without content, addresses or credentials.
fn log_request(context: &ResponseContext, method: &str, route: &str, status: u16) {
    let line = json!({"event": "request", "request_id": context.request_id, "method": method, "route": route,
        "status": status, "ms": context.took()});
    worker::console_log!("{line}");
}

/// CORS preflight. A page of an allowed origin may send the headers it names: instrumentation adds some of its own,
/// such as `traceparent`.
fn preflight(req: &Request, asked: bool, context: &ResponseContext) -> Result<Response, Error> {
    if asked && context.reader.is_none() {
        return Err(Error::new(Code::Forbidden, "this origin is not allowed; add it to LAYBY_ORIGINS"));
    }
    let named = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~, ".contains(&b);
    let wanted = req.header("access-control-request-headers").unwrap_or_default();
    let wanted = if wanted.len() <= 1024 && wanted.bytes().all(named) { wanted } else { String::new() };
    context.respond_preflight(&wanted).map(Into::into)
}

/// Cold routes are boxed: their code and memory stay out of the hot path's future.
async fn answer(
    req: &Request,
    env: &Env,
    route: Result<(Route, Method), Error>,
    config: Result<Rc<Config>, Error>,
    context: &ResponseContext,
) -> Result<Response, Error> {
    let (route, method) = route?;
    match route {
        Route::Health => return respond(context, &json!({"status": "ok"})),
        Route::Web(path) => {
            let page = web::page(path).ok_or_else(|| internal("a console page is missing"))?;
            return context.respond_page(page).map(Into::into);
        }
        Route::Document => return context.respond_json(api::OPENAPI.to_string()).map(Into::into),
        _ => {}
    }
    let config = config?;
    let (tenant, caller) = caller(req, &route, method, &config)?;
    let Some(id) = route.session() else {
        count(tenant.as_str(), config.tenant_rate)?;
        if route == Route::Info {
            return respond(context, &api::info(&config.features()));
        }
        return Box::pin(tenants(req, &route, method, env, &tenant, context)).await;
    };
    let session = SessionId::parse(id).ok_or_else(|| Error::no_session(id))?;
    match &caller {
        Caller::Key => count(tenant.as_str(), config.tenant_rate)?,
        // Not verified yet: it must not consume its tenant's rate.
        Caller::Token { .. } => count(&format!("{tenant}/{session}"), config.tenant_rate)?,
    }
    let object = Object::session(env, &tenant, session, Purpose::Client(caller)).asked(req, context);
    match (&route, method) {
        (Route::Fork(_), _) => Box::pin(fork(object, req)).await,
        (Route::Stream(_), _) => Box::pin(sse::stream(object, req, &config, context)).await,
        (Route::Socket(_), _) => Box::pin(websocket::socket(object, req, &config, context)).await,
        (Route::Events(_), Method::Get) => Box::pin(long_poll::events(&object, req, context)).await,
        (_, method) => {
            if matches!(method, Method::Post | Method::Patch) {
                req.must_be_json()?;
            }
            object.pass(req).await
        }
    }
}

/// The caller and its tenant. The claims of a token only select the object that can check it, so a token must name a
/// tenant of this deployment, the session of the request, and a route that accepts tokens.
fn caller(req: &Request, route: &Route, method: Method, config: &Config) -> Result<(Tenant, Caller), Error> {
    config.must_be_set_up()?;
    let header = req.header("authorization");
    let bearer = header.as_deref().and_then(bearer);
    // An EventSource and a browser's WebSocket cannot send headers.
    let query = match route {
        Route::Stream(_) | Route::Socket(_) => req.query().get("access_token").map(str::to_string),
        _ => None,
    };
    let token = match (bearer, query) {
        (None, Some(token)) if token.starts_with(api::TOKEN) => Some(token),
        (None, Some(_)) => {
            let message = "access_token accepts session tokens only; send API keys in the Authorization header";
            return Err(Error::new(Code::Unauthorized, message));
        }
        (bearer, _) => bearer.filter(|bearer| bearer.starts_with(api::TOKEN)).map(str::to_string),
    };
    let Some(token) = token else { return Ok((config.tenant(bearer)?, Caller::Key)) };
    let claims = Claims::unchecked(&token)?;
    if !config.has_tenant(&claims.tenant) {
        return Err(Error::new(Code::Unauthorized, "invalid session token; request a new one"));
    }
    match route.session() {
        Some(id) if id == claims.session.as_str() => {}
        Some(_) => return Err(Error::new(Code::Forbidden, "this token belongs to another session")),
        None => return Err(Error::forbidden()),
    }
    if Need::of(route, method) == Need::Key {
        return Err(Error::forbidden());
    }
    Ok((claims.tenant, Caller::Token { token, origin: req.origin() }))
}

/// The credentials of an `Authorization` header. The scheme's case does not matter (RFC 9110, 11.1).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, credentials) = header.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| credentials.trim())
}

fn count(whose: &str, rate: Rate) -> Result<(), Error> {
    LIMITS.with_borrow_mut(|limits| limits.take(whose, rate, clock::millis()))
}

/// Request rates per tenant, and per session for token holders, as far as this isolate knows.
#[derive(Default)]
struct Limits(HashMap<String, Bucket>);

thread_local! {
    static LIMITS: RefCell<Limits> = RefCell::default();
}

impl Limits {
    fn take(&mut self, tenant: &str, rate: Rate, now: u64) -> Result<(), Error> {
        if rate.per_second == 0 {
            return Ok(());
        }
        if self.0.len() > 1000 {
            self.0.retain(|_, bucket| !bucket.is_full(rate, now));
        }
        self.0.entry(tenant.to_string()).or_default().take(rate, now)
    }
}

fn respond(context: &ResponseContext, body: &Value) -> Result<Response, Error> {
    context.respond(Reply::json(200, body)).map(Into::into)
}

/// Routes of a tenant rather than of a session.
async fn tenants(
    req: &Request,
    route: &Route,
    method: Method,
    env: &Env,
    tenant: &Tenant,
    context: &ResponseContext,
) -> Result<Response, Error> {
    if (route, method) == (&Route::Sessions, Method::Post) {
        return create(req, env, tenant, context).await;
    }
    if matches!(method, Method::Post | Method::Patch) {
        req.must_be_json()?;
    }
    Object::directory(env, tenant, Purpose::Client(Caller::Key)).asked(req, context).pass(req).await
}

/// Creates a session from a bundle: multipart, with `metadata` (JSON) and `bundle` (a `.tar.gz`).
async fn create_bundled(
    req: &Request,
    env: &Env,
    tenant: &Tenant,
    context: &ResponseContext,
) -> Result<Response, Error> {
    let form = req.form().await?;
    let gz = match form.get("bundle") {
        Some(FormEntry::File(file)) => file.bytes().await.map_err(internal)?,
        _ => return Err(Error::invalid("bundle", "missing file `bundle` (a .tar.gz)")),
    };
    let body = match form.get("metadata") {
        Some(FormEntry::Field(text)) => text,
        Some(FormEntry::File(file)) => String::from_utf8(file.bytes().await.map_err(internal)?)
            .map_err(|_| Error::invalid("metadata", "must be JSON"))?,
        None => "{}".into(),
    };
    let new = api::create(&body)?;
    if new.agent.is_some() || new.agent_id.is_some() {
        return Err(Error::invalid("metadata.agent", "the bundle already contains the agent; omit it here"));
    }
    let agent = api::bundle(&gz)?;
    let (id, now) = (api::inline_id(&agent), clock::now());
    let answer = json!({"agent_id": id, "agent_name": agent.name});
    let record = AgentRecord { id, version: 1, created_at: now, updated_at: now, agent };
    let envelope = NewSession { body, agent: Some(record), bundled: true };
    let made = make(req, env, tenant, &envelope, new.location_hint, context).await?;
    if made.status() != 201 {
        return Ok(made);
    }
    let snapshot: Value = json::read(&http::text(&made).await?).map_err(internal)?;
    let mut body = answer;
    if let Some(body) = body.as_object_mut() {
        body.insert("session_id".into(), snapshot.get("id").cloned().unwrap_or_default());
    }
    let mut reply = Reply::json(201, &body);
    for name in ["location", "idempotent-replayed"] {
        if let Some(value) = made.headers().get(name).ok().flatten() {
            reply = reply.with(name, value);
        }
    }
    context.respond(reply).map(Into::into)
}

async fn create(req: &Request, env: &Env, tenant: &Tenant, context: &ResponseContext) -> Result<Response, Error> {
    if req.is_form() {
        return Box::pin(create_bundled(req, env, tenant, context)).await;
    }
    req.must_be_json()?;
    let body = req.body().await?;
    // Rejected here, so that a bad request creates no object.
    let new = api::create(&body)?;
    let agent = match &new.agent_id {
        Some(id) => Some(agent(env, tenant, id).await?),
        None => None,
    };
    let envelope = NewSession { body: body.into_text(), agent, bundled: false };
    make(req, env, tenant, &envelope, new.location_hint, context).await
}

/// Asks a new object to create its session.
async fn make(
    req: &Request,
    env: &Env,
    tenant: &Tenant,
    envelope: &NewSession,
    hint: Option<String>,
    context: &ResponseContext,
) -> Result<Response, Error> {
    // A retry finds the session its first attempt created.
    let id = match req.key() {
        Some(key) => api::keyed_session(tenant, &key),
        None => SessionId::mint(&mut clock::Ids),
    };
    let mut object = Object::session(env, tenant, id, Purpose::Create).asked(req, context);
    object.hint = hint;
    object.post(serde_json::to_string(envelope).map_err(internal)?).await
}

/// A tenant's agent, secrets included.
async fn agent(env: &Env, tenant: &Tenant, id: &AgentId) -> Result<AgentRecord, Error> {
    let missing = || Error {
        param: Some("agent_id".into()),
        ..Error::new(Code::NotFound, format!("there is no agent {id}"))
    };
    let answer = Object::directory(env, tenant, Purpose::Agent(id.clone())).get().await?;
    match answer.status() {
        200 => json::read(&http::text(&answer).await?).map_err(internal),
        404 => Err(missing()),
        status => Err(Error::relayed(status, "")),
    }
}

/// Asks a new object to become a fork of `source`.
async fn fork(source: Object, req: &Request) -> Result<Response, Error> {
    if req.header("content-type").is_some() {
        req.must_be_json()?;
    }
    let body = req.body().await?;
    api::fork(&body)?;
    let mut copy = source;
    let Some(original) = copy.about.session.take() else { return Err(Error::forbidden()) };
    let session = match req.key() {
        Some(key) => api::keyed_session(&copy.about.tenant, &format!("fork {original} {key}")),
        None => SessionId::mint(&mut clock::Ids),
    };
    copy.about.session = Some(session);
    copy.about.ask = Purpose::Fork(original);
    copy.post(body.into_text()).await
}

fn is_plain(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}
