//! Objects seen from outside: how the worker asks a session's or a tenant's, and how they ask each other.

use serde::{Deserialize, Serialize};
use serde_json::json;
use wasm_bindgen::prelude::*;
use web_sys::Response;
use worker::Env;
use worker::wasm_bindgen_futures::JsFuture;

use super::http::{Request, Stamp};
use super::router::internal;
use super::{clock, js};
use crate::api::{Code, Error, Key};
use crate::json;

/// The header in which an object is told what `Forwarded` says.
const FORWARDED: &str = "x-layby-forwarded";

/// How an object is asked, without the body.
#[derive(Serialize)]
struct Init<'a> {
    method: &'a str,
    headers: Headers,
}

#[derive(Serialize)]
struct Headers {
    #[serde(rename = "x-layby-forwarded")]
    forwarded: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    upgrade: Option<&'static str>,
}

/// What an object is told of a request beside the request itself.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Forwarded {
    /// The session that is meant.
    pub session: String,
    /// Whose it is.
    pub tenant: String,
    /// The request's id.
    pub request_id: String,
    /// The key by which a repeated request is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The token that whoever asks has instead of an API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The origin of the page that asks with a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The origin of the pages that may read the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<String>,
    /// The object of the session of which it is to become a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Forwarded {
    /// What a request that came to an object says. Nothing is taken for granted: who has no token may do everything.
    pub fn of(req: &Request) -> worker::Result<Self> {
        let text = req.header(FORWARDED).unwrap_or_default();
        json::read(&text).map_err(|fault| format!("{FORWARDED}: {fault}").into())
    }

    /// What the answer has to say of the request.
    pub fn stamp(&self) -> Stamp {
        Stamp { request_id: self.request_id.clone(), reader: self.reader.clone(), began: clock::millis() }
    }
}

#[wasm_bindgen]
extern "C" {
    /// A binding of objects. `worker` asks them with whole requests only, each of which the platform copies once more.
    type Namespace;

    #[wasm_bindgen(method, catch, js_name = getByName)]
    fn named(this: &Namespace, name: &str, options: &JsValue) -> Result<Stub, JsValue>;

    /// One of its objects.
    type Stub;

    #[wasm_bindgen(method, catch)]
    fn fetch(this: &Stub, url: &str, init: &JsValue) -> Result<js_sys::Promise, JsValue>;
}

/// A session's object, or a tenant's, seen from outside.
#[derive(Clone)]
pub struct Object {
    /// The deployment's bindings.
    env: Env,
    /// The one that has objects of its kind.
    binding: &'static str,
    /// The object's: tenant and session.
    pub name: String,
    /// Where the object is to be placed.
    pub hint: Option<String>,
    /// What it is told.
    pub about: Forwarded,
}

impl Object {
    /// The object of that name.
    pub fn named(env: &Env, name: &str) -> Self {
        let (tenant, session) = name.split_once('/').unwrap_or((name, name));
        let about = Forwarded { session: session.into(), tenant: tenant.into(), ..Forwarded::default() };
        Self { env: env.clone(), binding: "SESSION", name: name.to_string(), hint: None, about }
    }

    /// The directory of a tenant.
    pub fn directory(env: &Env, tenant: &str) -> Self {
        Self { binding: "DIRECTORY", ..Self::named(env, tenant) }
    }

    /// The same, for a request of a client.
    #[must_use]
    pub fn asked(mut self, req: &Request, stamp: &Stamp) -> Self {
        self.about.key = req.key();
        self.about.request_id.clone_from(&stamp.request_id);
        self.about.reader.clone_from(&stamp.reader);
        self
    }

    /// Hands a request on as it is: its body goes by without being looked at.
    pub async fn pass(&self, req: &Request) -> Result<Response, Error> {
        let body = matches!(&*req.method, "POST" | "PATCH").then(|| req.stream()).flatten();
        self.forward(req, body.map(Into::into)).await
    }

    /// Hands a request on, with a body of our own.
    pub async fn send(&self, req: &Request, body: String) -> Result<Response, Error> {
        self.forward(req, Some(body.into())).await
    }

    async fn forward(&self, req: &Request, body: Option<JsValue>) -> Result<Response, Error> {
        self.fetch(&req.target, self.init(&req.method)?, body).await
    }

    /// Asks for something that only objects ask each other for.
    pub async fn get(&self, path: &str) -> Result<Response, Error> {
        self.fetch(path, self.init("GET")?, None).await
    }

    /// Tells an object something: what only objects tell each other, or an event.
    pub async fn post(&self, path: &str, body: String) -> Result<Response, Error> {
        self.fetch(path, self.init("POST")?, Some(body.into())).await
    }

    /// Asks an object to forget something, and to keep its answer under the keys.
    pub async fn delete(mut self, path: &str, keys: &[Key]) -> Result<Response, Error> {
        self.about.key = keys.first().map(|key| key.given().to_string());
        self.fetch(path, self.init("DELETE")?, None).await
    }

    /// Asks for an answer that was kept under a key.
    pub async fn kept(mut self, path: &str, key: &str) -> Result<Response, Error> {
        self.about.key = Some(key.into());
        self.get(path).await
    }

    /// Asks for the stream after `cursor`: a socket with the live tail, or a page if much was missed.
    pub async fn dial(&self, cursor: Option<&str>) -> Result<Response, Error> {
        let after = cursor.map(|cursor| format!("?after={cursor}")).unwrap_or_default();
        let mut init = self.init("GET")?;
        init.headers.upgrade = Some("websocket");
        self.fetch(&format!("/v1/sessions/{}/stream{after}", self.about.session), init, None).await
    }

    fn init<'a>(&self, method: &'a str) -> Result<Init<'a>, Error> {
        let forwarded = serde_json::to_string(&self.about).map_err(internal)?;
        Ok(Init { method, headers: Headers { forwarded, upgrade: None } })
    }

    async fn fetch(&self, target: &str, init: Init<'_>, body: Option<JsValue>) -> Result<Response, Error> {
        let asked = async {
            let init = js::object(&init)?;
            if let Some(body) = body {
                js_sys::Reflect::set(&init, &"body".into(), &body)?;
            }
            let namespace: Namespace = js_sys::Reflect::get(&self.env, &self.binding.into())?.unchecked_into();
            let options = self.hint.as_ref().map(|hint| js::object(&json!({"locationHint": hint})));
            let stub = namespace.named(&self.name, &options.transpose()?.unwrap_or_default())?;
            JsFuture::from(stub.fetch(&format!("https://session{target}"), &init)?).await
        };
        asked.await.map(JsCast::unchecked_into).map_err(|e| {
            worker::console_error!("{} {}: {}", self.binding.to_lowercase(), self.name, js::message(&e));
            Error::new(Code::Overloaded, "the session's object could not be reached; try again")
        })
    }
}
