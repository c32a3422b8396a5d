//! The stateless worker: finds out who asks and about what, and hands the request to the session's object.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use worker::{Context, Env, FormEntry, Request, Response, event};

use super::http::{self, IDEMPOTENCY_KEY, REQUEST_ID, SOURCE};
use super::object::Object;
use super::{body, clock, directory, poll, socket};
use crate::api::{self, AgentRecord, Bucket, Claims, Code, Error, Method, Rate, Reply, Route};
use crate::config::{Config, Lines};
use crate::json;
use crate::session::{AgentId, Mint, SessionId};
use crate::web;

#[event(fetch)]
async fn fetch(req: Request, env: Env, _ctx: Context) -> worker::Result<Response> {
    let began = clock::millis();
    let given = http::header(&req, REQUEST_ID).filter(|id| is_plain(id));
    let request_id = given.unwrap_or_else(|| format!("req_{}", clock::Ids.uuid()));
    let method = req.inner().method(); // as it was sent: the platform's own type takes any other for GET
    let origin = http::header(&req, "origin");
    let route = Route::parse(&method, &req.path());
    let pattern = route.as_ref().map_or("", |(route, _)| route.pattern());
    let config = config(&env);
    let allowed = |origin: &str| config.as_ref().ok()?.allowed_origin(origin).map(str::to_string);
    let allowed = origin.as_deref().and_then(allowed);
    let asked = Clone::clone(req.inner()); // the same request, not a copy of its body
    let answer = if method == "OPTIONS" {
        preflight(origin.is_some(), allowed.is_some())
    } else {
        answer(req, &env, route, config.clone(), &request_id).await
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            http::drain(asked).await;
            http::respond(error.reply(&request_id))?
        }
    };
    let (status, took) = (answer.status_code(), clock::millis().saturating_sub(began));
    if config.as_ref().map_or(Lines::Requests, |config| config.log) >= Lines::Requests {
        log_request(&request_id, &method, pattern, status, took);
    }
    let headers = answer.headers().clone();
    headers.set(REQUEST_ID, &request_id)?;
    headers.set("server-timing", &format!("total;dur={took}"))?;
    http::protect(&headers, allowed.as_deref())?;
    if status == 101 {
        return Ok(answer); // its socket would not survive being taken apart
    }
    let (_, body) = answer.into_parts();
    Ok(Response::builder().with_status(status).with_headers(headers).body(body))
}

/// One line per request, without content, addresses or credentials.
fn log_request(request_id: &str, method: &str, route: &str, status: u16, ms: u64) {
    let line = json!({"event": "request", "request_id": request_id, "method": method, "route": route,
        "status": status, "ms": ms});
    worker::console_log!("{line}");
}

/// A browser asks whether a page may ask.
fn preflight(asked: bool, allowed: bool) -> Result<Response, Error> {
    if asked && !allowed {
        return Err(Error::new(Code::Forbidden, "pages of this origin are not allowed here (LAYBY_ORIGINS)"));
    }
    http::respond_empty(204).map_err(internal)
}

async fn answer(
    req: Request,
    env: &Env,
    route: Result<(Route, Method), Error>,
    config: Result<Rc<Config>, Error>,
    request_id: &str,
) -> Result<Response, Error> {
    let (route, method) = route?;
    match route {
        Route::Health => return respond(&json!({"status": "ok"})),
        Route::Web(path) => {
            let page = web::page(path).ok_or_else(|| internal("a page is missing"))?;
            return http::respond_page(page).map_err(internal);
        }
        Route::Document => return http::respond_json(api::OPENAPI.to_string()).map_err(internal),
        _ => {}
    }
    let config = config?;
    let caller = Caller::of(&req, &route, &config)?;
    LIMITS.with_borrow_mut(|limits| limits.take(&caller.counted(&route), config.tenant_rate, clock::millis()))?;
    let Some(id) = route.session() else {
        let Caller::Tenant(tenant) = caller else { return Err(Error::forbidden()) };
        if route == Route::Info {
            return respond(&api::info(&config.features()));
        }
        return tenants(req, &route, method, env, &tenant, request_id).await;
    };
    if !is_session_id(id) {
        return Err(Error::no_session(id));
    }
    let object = Object::named(env, &format!("{}/{id}", caller.tenant()));
    let object = Object { token: caller.token(), origin: http::origin(&req), ..object };
    match (&route, method) {
        (Route::Fork(_), _) if object.token.is_some() => Err(Error::forbidden()),
        (Route::Fork(_), _) => fork(object, req, caller.tenant(), request_id).await,
        (Route::Stream(_), _) => body::stream(object, &req, &config, request_id).await,
        (Route::Socket(_), _) => socket::socket(object, &req, &config, request_id).await,
        (Route::Events(_), Method::Get) => poll::events(&object, &req, request_id).await,
        (_, method) => {
            if matches!(method, Method::Post | Method::Patch) {
                http::must_be_json(&req)?;
            }
            object.pass(&req, request_id).await
        }
    }
}

/// Who asks.
enum Caller {
    /// Somebody with an API key of that tenant.
    Tenant(String),
    /// Somebody with a session token, which the session's object will check.
    Token(String, String),
}

impl Caller {
    fn of(req: &Request, route: &Route, config: &Config) -> Result<Self, Error> {
        config.must_be_set_up()?;
        let header = http::header(req, "authorization");
        let bearer = header.as_deref().and_then(|header| header.strip_prefix("Bearer ")).map(str::trim);
        // An EventSource and a browser's WebSocket cannot send headers.
        let query = match route {
            Route::Stream(_) | Route::Socket(_) => http::query(req).get("access_token").map(str::to_string),
            _ => None,
        };
        let token = match (bearer, query) {
            (None, Some(token)) if token.starts_with(api::TOKEN) => Some(token),
            (None, Some(_)) => {
                let message =
                    "access_token takes a session token; an API key belongs into the header Authorization";
                return Err(Error::new(Code::Unauthorized, message));
            }
            (bearer, _) => bearer.filter(|bearer| bearer.starts_with(api::TOKEN)).map(str::to_string),
        };
        let Some(token) = token else { return config.tenant(bearer).map(Caller::Tenant) };
        let claims = Claims::unchecked(&token)?;
        match route.session() {
            Some(id) if id == claims.session.as_str() => Ok(Caller::Token(claims.tenant, token)),
            Some(_) => Err(Error::new(Code::Forbidden, "this token is for another session")),
            None => Err(Error::forbidden()),
        }
    }

    /// Whose requests these count as. A token is not checked yet: it must not use up what is its tenant's.
    fn counted(&self, route: &Route) -> String {
        match self {
            Caller::Tenant(tenant) => tenant.clone(),
            Caller::Token(tenant, _) => format!("{tenant}/{}", route.session().unwrap_or_default()),
        }
    }

    fn tenant(&self) -> &str {
        match self {
            Caller::Tenant(tenant) | Caller::Token(tenant, _) => tenant,
        }
    }

    fn token(&self) -> Option<String> {
        match self {
            Caller::Tenant(_) => None,
            Caller::Token(_, token) => Some(token.clone()),
        }
    }
}

/// How often each tenant, and the holders of each session's tokens, have asked, as far as this isolate knows.
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

fn respond(body: &Value) -> Result<Response, Error> {
    http::respond(Reply::json(200, body)).map_err(internal)
}

/// What is about a tenant and not about one session.
async fn tenants(
    req: Request,
    route: &Route,
    method: Method,
    env: &Env,
    tenant: &str,
    request_id: &str,
) -> Result<Response, Error> {
    if (route, method) == (&Route::Sessions, Method::Post) {
        return create(req, env, tenant, request_id).await;
    }
    if matches!(method, Method::Post | Method::Patch) {
        http::must_be_json(&req)?;
    }
    Object::directory(env, tenant).pass(&req, request_id).await
}

/// What the object of a new session is told.
#[derive(Serialize, Deserialize)]
pub struct NewSession {
    /// Whose it is.
    pub tenant: String,
    /// What was posted.
    pub body: String,
    /// The agent that was meant by its id, or that came as a bundle.
    pub agent: Option<AgentRecord>,
    /// Whether it came as a bundle.
    pub bundled: bool,
}

/// A session whose agent comes as a bundle: multipart, with `metadata` (JSON) and `bundle` (a `.tar.gz`).
async fn create_bundled(mut req: Request, env: &Env, tenant: &str, request_id: &str) -> Result<Response, Error> {
    let form = http::form(&mut req).await?;
    let gz = match form.get("bundle") {
        Some(FormEntry::File(file)) => file.bytes().await.map_err(internal)?,
        _ => return Err(Error::invalid("bundle", "the form needs a file `bundle`, a .tar.gz")),
    };
    let body = match form.get("metadata") {
        Some(FormEntry::Field(text)) => text,
        Some(FormEntry::File(file)) => String::from_utf8(file.bytes().await.map_err(internal)?)
            .map_err(|_| Error::invalid("metadata", "must be JSON"))?,
        None => "{}".into(),
    };
    let new = api::create(&body)?;
    if new.agent.is_some() || new.agent_id.is_some() {
        return Err(Error::invalid("metadata.agent", "the agent comes with the bundle; leave it out here"));
    }
    let agent = api::bundle(&gz)?;
    let (id, now) = (api::inline_id(&agent), clock::now());
    let answer = json!({"agent_id": id, "agent_name": agent.name});
    let record = AgentRecord { id, version: 1, created_at: now, updated_at: now, agent };
    let envelope = NewSession { tenant: tenant.to_string(), body, agent: Some(record), bundled: true };
    let mut made = make(&req, env, &envelope, new.location_hint, request_id).await?;
    if made.status_code() != 201 {
        return Ok(made);
    }
    let snapshot: Value = json::read(&made.text().await.map_err(internal)?).map_err(internal)?;
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
    http::respond(reply).map_err(internal)
}

async fn create(mut req: Request, env: &Env, tenant: &str, request_id: &str) -> Result<Response, Error> {
    if http::is_form(&req) {
        return create_bundled(req, env, tenant, request_id).await;
    }
    http::must_be_json(&req)?;
    let body = http::body(&mut req).await?;
    // Refused here already, so that a bad request makes no object.
    let new = api::create(&body)?;
    let agent = match &new.agent_id {
        Some(id) => Some(agent(env, tenant, id).await?),
        None => None,
    };
    let envelope = NewSession { tenant: tenant.to_string(), body, agent, bundled: false };
    make(&req, env, &envelope, new.location_hint, request_id).await
}

/// Has the object of a new session make it.
async fn make(
    req: &Request,
    env: &Env,
    envelope: &NewSession,
    hint: Option<String>,
    request_id: &str,
) -> Result<Response, Error> {
    let tenant = &envelope.tenant;
    // A keyed request finds the session that it made the first time.
    let id = match http::header(req, IDEMPOTENCY_KEY) {
        Some(key) => format!("sess_{}", api::session_hex(tenant, &key)),
        None => SessionId::mint(&mut clock::Ids).0,
    };
    let object = Object { hint, ..Object::named(env, &format!("{tenant}/{id}")) };
    object.send(req, serde_json::to_string(envelope).map_err(internal)?, request_id).await
}

/// An agent of the tenant, secrets included.
async fn agent(env: &Env, tenant: &str, id: &AgentId) -> Result<AgentRecord, Error> {
    let missing = || Error {
        param: Some("agent_id".into()),
        ..Error::new(Code::NotFound, format!("there is no agent {id}"))
    };
    if !id.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(missing());
    }
    let mut answer = Object::directory(env, tenant).get(&format!("{}{id}", directory::AGENTS)).await?;
    match answer.status_code() {
        200 => json::read(&answer.text().await.map_err(internal)?).map_err(internal),
        404 => Err(missing()),
        status => Err(Error::relayed(status, "")),
    }
}

/// Asks the object of a new session to become a copy of `source`.
async fn fork(source: Object, mut req: Request, tenant: &str, request_id: &str) -> Result<Response, Error> {
    if http::header(&req, "content-type").is_some() {
        http::must_be_json(&req)?;
    }
    let body = http::body(&mut req).await?;
    api::fork(&body)?;
    let key = http::header(&req, IDEMPOTENCY_KEY);
    let id = match &key {
        Some(key) => format!("sess_{}", api::session_hex(tenant, &format!("fork {} {key}", source.id))),
        None => SessionId::mint(&mut clock::Ids).0,
    };
    let copy = Object { name: format!("{tenant}/{id}"), id, ..source.clone() };
    let mut request = copy.forward(&req, Some(body.into()), request_id)?;
    request.headers_mut().and_then(|headers| headers.set(SOURCE, &source.name)).map_err(internal)?;
    copy.fetch(request).await
}

/// The deployment's settings, read once: they are the same for all that an isolate ever does.
pub fn config(env: &Env) -> Result<Rc<Config>, Error> {
    thread_local! {
        static CONFIG: OnceCell<Rc<Config>> = const { OnceCell::new() };
    }
    if let Some(config) = CONFIG.with(|config| config.get().cloned()) {
        return Ok(config);
    }
    // Secrets are bound like variables.
    let read = Config::read(|name| env.var(name).ok().map(|value| value.to_string())).map_err(|message| {
        worker::console_error!("configuration: {message}");
        Error::new(Code::AuthNotConfigured, format!("this deployment is not configured well: {message}"))
    })?;
    Ok(CONFIG.with(|config| config.get_or_init(|| Rc::new(read)).clone()))
}

/// A mistake of ours: logged in full, told in short.
pub fn internal(e: impl std::fmt::Display) -> Error {
    worker::console_error!("internal: {e}");
    Error::new(Code::Internal, "something went wrong here; nothing of your request is to blame")
}

fn is_session_id(id: &str) -> bool {
    id.strip_prefix("sess_").is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_plain(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}
