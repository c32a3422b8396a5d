//! The stateless worker: finds out who asks and about what, and hands the request to the session's object.

use serde::{Deserialize, Serialize};
use worker::{Context, Env, Headers, Method as HttpMethod, Request, RequestInit, Response, Stub, event};

use super::http::{self, IDEMPOTENCY_KEY, REQUEST_ID, SESSION, SOURCE, TENANT};
use super::{body, clock, directory, poll, socket};
use crate::api::{self, AgentRecord, Code, Error, Key, Method, Reply, Route};
use crate::config::Config;
use crate::session::{AgentId, Mint, SessionId};

#[event(fetch)]
async fn fetch(req: Request, env: Env, _ctx: Context) -> worker::Result<Response> {
    let began = clock::millis();
    let given = http::header(&req, REQUEST_ID).filter(|id| is_plain(id));
    let request_id = given.unwrap_or_else(|| format!("req_{}", clock::Ids.uuid()));
    let answer = match route(req, &env, &request_id).await {
        Ok(answer) => answer,
        Err(error) => http::respond(error.reply(&request_id))?,
    };
    let status = answer.status_code();
    let headers = answer.headers().clone();
    headers.set(REQUEST_ID, &request_id)?;
    headers.set("server-timing", &format!("total;dur={}", clock::millis().saturating_sub(began)))?;
    if status == 101 {
        return Ok(answer); // its socket would not survive being taken apart
    }
    let (_, body) = answer.into_parts();
    Ok(Response::builder().with_status(status).with_headers(headers).body(body))
}

async fn route(mut req: Request, env: &Env, request_id: &str) -> Result<Response, Error> {
    let (route, method) = Route::parse(req.method().as_ref(), &req.path())?;
    if route == Route::Health {
        return http::respond(Reply::json(200, &serde_json::json!({"status": "ok"}))).map_err(internal);
    }
    let config = config(env)?;
    let tenant = config.tenant(http::header(&req, "authorization").as_deref())?;
    let Some(id) = route.session() else { return tenants(req, &route, method, env, &tenant, request_id).await };
    if !is_session_id(id) {
        return Err(Error::no_session(id));
    }
    let object = Object::named(env, &format!("{tenant}/{id}"));
    match (&route, method) {
        (Route::Fork(_), _) => fork(object, req, &tenant, request_id).await,
        (Route::Stream(_), _) => body::stream(object, &req, &config, request_id).await,
        (Route::Socket(_), _) => socket::socket(object, &req, &config, request_id).await,
        (Route::Events(_), Method::Get) => poll::events(&object, &req, request_id).await,
        (_, Method::Post | Method::Patch) => {
            http::must_be_json(&req)?;
            let body = http::body(&mut req).await?;
            object.send(&req, Some(body), request_id).await
        }
        (_, Method::Get | Method::Delete) => object.send(&req, None, request_id).await,
    }
}

/// What is about a tenant and not about one session.
async fn tenants(
    mut req: Request,
    route: &Route,
    method: Method,
    env: &Env,
    tenant: &str,
    request_id: &str,
) -> Result<Response, Error> {
    if (route, method) == (&Route::Sessions, Method::Post) {
        return create(req, env, tenant, request_id).await;
    }
    let body = match method {
        Method::Post | Method::Patch => {
            http::must_be_json(&req)?;
            Some(http::body(&mut req).await?)
        }
        Method::Get | Method::Delete => None,
    };
    Object::directory(env, tenant).send(&req, body, request_id).await
}

/// What the object of a new session is told.
#[derive(Serialize, Deserialize)]
pub struct NewSession {
    /// Whose it is.
    pub tenant: String,
    /// What was posted.
    pub body: String,
    /// The agent that was meant by its id.
    pub agent: Option<AgentRecord>,
}

async fn create(mut req: Request, env: &Env, tenant: &str, request_id: &str) -> Result<Response, Error> {
    http::must_be_json(&req)?;
    let body = http::body(&mut req).await?;
    // Refused here already, so that a bad request makes no object.
    let new = api::create(&body)?;
    let agent = match &new.agent_id {
        Some(id) => Some(agent(env, tenant, id).await?),
        None => None,
    };
    // A keyed request finds the session that it made the first time.
    let key = http::header(&req, IDEMPOTENCY_KEY);
    let id = match &key {
        Some(key) => format!("sess_{}", api::session_hex(tenant, key)),
        None => SessionId::mint(&mut clock::Ids).0,
    };
    let object = Object { hint: new.location_hint, ..Object::named(env, &format!("{tenant}/{id}")) };
    let envelope = NewSession { tenant: tenant.to_string(), body, agent };
    object.send(&req, Some(serde_json::to_string(&envelope).map_err(internal)?), request_id).await
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
        200 => serde_json::from_str(&answer.text().await.map_err(internal)?).map_err(internal),
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
    let mut request = copy.forward(&req, Some(body), request_id)?;
    request.headers_mut().and_then(|headers| headers.set(SOURCE, &source.name)).map_err(internal)?;
    copy.fetch(request).await
}

/// A session's object, seen from outside.
#[derive(Clone)]
pub struct Object {
    env: Env,
    binding: &'static str,
    /// The object's: tenant and session.
    pub name: String,
    hint: Option<String>,
    /// The session's id.
    pub id: String,
}

impl Object {
    /// The object of that name.
    pub fn named(env: &Env, name: &str) -> Self {
        let id = name.rsplit('/').next().unwrap_or_default().to_string();
        Self { env: env.clone(), binding: "SESSION", name: name.to_string(), hint: None, id }
    }

    /// The directory of a tenant.
    pub fn directory(env: &Env, tenant: &str) -> Self {
        Self { binding: "DIRECTORY", ..Self::named(env, tenant) }
    }

    fn stub(&self) -> worker::Result<Stub> {
        let namespace = self.env.durable_object(self.binding)?;
        match &self.hint {
            Some(hint) => namespace.get_by_name_with_location_hint(&self.name, hint),
            None => namespace.get_by_name(&self.name),
        }
    }

    /// Hands a request on.
    pub async fn send(&self, req: &Request, body: Option<String>, request_id: &str) -> Result<Response, Error> {
        self.fetch(self.forward(req, body, request_id)?).await
    }

    /// Asks for something that only objects ask each other for.
    pub async fn get(&self, path: &str) -> Result<Response, Error> {
        self.fetch(self.request(path, HttpMethod::Get, None, "").map_err(internal)?).await
    }

    /// Tells an object something that only objects tell each other.
    pub async fn post(&self, path: &str, body: String) -> Result<Response, Error> {
        self.fetch(self.request(path, HttpMethod::Post, Some(body), "").map_err(internal)?).await
    }

    /// Asks an object to forget something, and to keep its answer under the keys.
    pub async fn delete(&self, path: &str, keys: &[Key]) -> Result<Response, Error> {
        let mut request = self.request(path, HttpMethod::Delete, None, "").map_err(internal)?;
        if let Some(key) = keys.first() {
            let set = request.headers_mut().and_then(|headers| headers.set(IDEMPOTENCY_KEY, key.given()));
            set.map_err(internal)?;
        }
        self.fetch(request).await
    }

    /// Asks for an answer that was kept under a key.
    pub async fn kept(&self, path: &str, key: &str) -> Result<Response, Error> {
        let mut request = self.request(path, HttpMethod::Get, None, "").map_err(internal)?;
        request.headers_mut().and_then(|headers| headers.set(IDEMPOTENCY_KEY, key)).map_err(internal)?;
        self.fetch(request).await
    }

    fn forward(&self, req: &Request, body: Option<String>, request_id: &str) -> Result<Request, Error> {
        let url = req.url().map_err(internal)?;
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let request = self.request(&format!("{}{query}", url.path()), req.method(), body, request_id);
        let mut request = request.map_err(internal)?;
        if let Some(key) = http::header(req, IDEMPOTENCY_KEY) {
            let set = request.headers_mut().and_then(|headers| headers.set(IDEMPOTENCY_KEY, &key));
            set.map_err(internal)?;
        }
        Ok(request)
    }

    /// Asks for the stream after `cursor`: a socket with the live tail, or a page if much was missed.
    pub async fn dial(&self, cursor: Option<&str>, request_id: &str) -> Result<Response, Error> {
        let path = match cursor {
            Some(cursor) => format!("/v1/sessions/{}/stream?after={cursor}", self.id),
            None => format!("/v1/sessions/{}/stream", self.id),
        };
        let mut request = self.request(&path, HttpMethod::Get, None, request_id).map_err(internal)?;
        request.headers_mut().and_then(|headers| headers.set("upgrade", "websocket")).map_err(internal)?;
        self.fetch(request).await
    }

    /// Posts an event.
    pub async fn post_event(&self, body: String, request_id: &str) -> Result<Response, Error> {
        let path = format!("/v1/sessions/{}/events", self.id);
        self.fetch(self.request(&path, HttpMethod::Post, Some(body), request_id).map_err(internal)?).await
    }

    fn request(
        &self,
        path: &str,
        method: HttpMethod,
        body: Option<String>,
        request_id: &str,
    ) -> worker::Result<Request> {
        let headers = Headers::new();
        headers.set(SESSION, &self.id)?;
        headers.set(TENANT, self.name.split('/').next().unwrap_or_default())?;
        headers.set(REQUEST_ID, request_id)?;
        let mut init = RequestInit::new();
        init.with_method(method).with_headers(headers).with_body(body.map(Into::into));
        Request::new_with_init(&format!("https://session{path}"), &init)
    }

    async fn fetch(&self, request: Request) -> Result<Response, Error> {
        let stub = self.stub().map_err(internal)?;
        stub.fetch_with_request(request).await.map_err(|e| {
            worker::console_error!("session {}: {e}", self.id);
            Error::new(Code::Overloaded, "the session's object could not be reached; try again")
        })
    }
}

/// The deployment's settings.
pub fn config(env: &Env) -> Result<Config, Error> {
    // Secrets are bound like variables.
    Config::read(|name| env.var(name).ok().map(|value| value.to_string())).map_err(|message| {
        worker::console_error!("configuration: {message}");
        Error::new(Code::AuthNotConfigured, format!("this deployment is not configured well: {message}"))
    })
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
