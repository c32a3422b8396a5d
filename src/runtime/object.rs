//! Objects seen from outside: how the worker asks a session's or a tenant's, and how they ask each other.

use wasm_bindgen::JsValue;
use worker::{Env, Headers, Method as HttpMethod, Request, RequestInit, Response, Stub};

use super::http::{self, IDEMPOTENCY_KEY, ORIGIN, REQUEST_ID, SESSION, TENANT, TOKEN};
use super::router::internal;
use crate::api::{Code, Error, Key};

/// A session's object, seen from outside.
#[derive(Clone)]
pub struct Object {
    /// The deployment's bindings.
    pub env: Env,
    /// The one that has objects of its kind.
    pub binding: &'static str,
    /// The object's: tenant and session.
    pub name: String,
    /// Where the object is to be placed.
    pub hint: Option<String>,
    /// The session's id.
    pub id: String,
    /// The token that whoever asks has instead of an API key.
    pub token: Option<String>,
    /// The origin of the page that asks.
    pub origin: Option<String>,
}

impl Object {
    /// The object of that name.
    pub fn named(env: &Env, name: &str) -> Self {
        let id = name.rsplit('/').next().unwrap_or_default().to_string();
        Self {
            env: env.clone(),
            binding: "SESSION",
            name: name.to_string(),
            hint: None,
            id,
            token: None,
            origin: None,
        }
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

    /// Hands a request on as it is: its body goes by without being looked at.
    pub async fn pass(&self, req: &Request, request_id: &str) -> Result<Response, Error> {
        let has_body = matches!(req.method(), HttpMethod::Post | HttpMethod::Patch);
        let body = req.inner().body().filter(|_| has_body).map(Into::into);
        self.fetch(self.forward(req, body, request_id)?).await
    }

    /// Hands a request on, with a body of our own.
    pub async fn send(&self, req: &Request, body: String, request_id: &str) -> Result<Response, Error> {
        self.fetch(self.forward(req, Some(body.into()), request_id)?).await
    }

    /// Asks for something that only objects ask each other for.
    pub async fn get(&self, path: &str) -> Result<Response, Error> {
        self.fetch(self.request(path, HttpMethod::Get, None, "").map_err(internal)?).await
    }

    /// Tells an object something that only objects tell each other.
    pub async fn post(&self, path: &str, body: String) -> Result<Response, Error> {
        self.fetch(self.request(path, HttpMethod::Post, Some(body.into()), "").map_err(internal)?).await
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

    /// A client's request, to be handed on.
    pub fn forward(&self, req: &Request, body: Option<JsValue>, request_id: &str) -> Result<Request, Error> {
        let request = self.request(&http::target(req), req.method(), body, request_id);
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
        self.fetch(self.request(&path, HttpMethod::Post, Some(body.into()), request_id).map_err(internal)?).await
    }

    fn request(
        &self,
        path: &str,
        method: HttpMethod,
        body: Option<JsValue>,
        request_id: &str,
    ) -> worker::Result<Request> {
        let headers = Headers::new();
        headers.set(SESSION, &self.id)?;
        headers.set(TENANT, self.name.split('/').next().unwrap_or_default())?;
        headers.set(REQUEST_ID, request_id)?;
        if let Some(token) = &self.token {
            headers.set(TOKEN, token)?;
            headers.set(ORIGIN, self.origin.as_deref().unwrap_or_default())?;
        }
        let mut init = RequestInit::new();
        init.with_method(method).with_headers(headers).with_body(body);
        Request::new_with_init(&format!("https://session{path}"), &init)
    }

    /// Asks.
    pub async fn fetch(&self, request: Request) -> Result<Response, Error> {
        let stub = self.stub().map_err(internal)?;
        stub.fetch_with_request(request).await.map_err(|e| {
            worker::console_error!("session {}: {e}", self.id);
            Error::new(Code::Overloaded, "the session's object could not be reached; try again")
        })
    }
}
