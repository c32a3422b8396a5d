//! The protocol between the worker and the objects. Only this file knows its form: the header of every request, the
//! bodies that do not come from a client, and the messages of a subscriber's socket.

use serde::{Deserialize, Serialize};
use serde_json::json;
use wasm_bindgen::prelude::*;
use web_sys::Response;
use worker::Env;
use worker::wasm_bindgen_futures::JsFuture;

use crate::api::{AgentRecord, Claims, Code, Error, Tenant};
use crate::json;
use crate::runtime::platform::clock;
use crate::runtime::platform::fault::internal;
use crate::runtime::platform::http::{Request, ResponseContext};
use crate::runtime::platform::js;
use crate::session::{AgentId, Seconds, Seq, SessionId};

/// The header that carries `CallContext`.
const FORWARDED: &str = "x-layby-forwarded";

/// Sent to subscribers when the session is deleted. Any other message is a line with the position after it, then frames
/// of the stream.
pub const END: &str = "!end";

/// The body of a creation request.
#[derive(Serialize, Deserialize)]
pub struct NewSession {
    pub body: String,
    /// The stored agent named by its id, or the agent of a bundle.
    pub agent: Option<AgentRecord>,
    /// Whether it came in a bundle.
    pub bundled: bool,
}

/// The form of a request to an object, without its body.
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

/// What an object is told about a request besides its body. Every field that decides something is required: an object
/// rejects a request that does not say who asks and for what.
#[derive(Clone, Serialize, Deserialize)]
pub struct CallContext {
    /// The tenant that the object belongs to.
    pub tenant: Tenant,
    /// The session of the object; `None` for a directory.
    pub session: Option<SessionId>,
    /// The operation, and who asks for it.
    pub ask: Purpose,
    pub request_id: String,
    /// The client's `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The `Access-Control-Allow-Origin` of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<String>,
}

/// An operation of an object. The worker and the objects name operations here and never by a path, so no
/// client-supplied text can turn a client's request into an internal one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A client's request, described by its method and path.
    Client(Caller),
    /// Session: create the session in the body, a `NewSession`.
    Create,
    /// Session: become a fork of that session of the same tenant.
    Fork(SessionId),
    /// Session: return a page of the log, for a fork.
    Log(LogQuery),
    /// Session: do nothing. The request itself keeps the object in memory.
    Ping,
    /// Directory: take the summary in the body.
    Summary,
    /// Directory: remove a session from the list. One created under a key is remembered as deleted.
    Unlist {
        session: SessionId,
        /// Whether its id was derived from an `Idempotency-Key`, so that a retry could create it again.
        keyed: bool,
    },
    /// Directory: return the response given when that session was deleted under this key.
    Deleted(SessionId),
    /// Directory: return whether that session, created under a key, was deleted recently.
    WasDeleted(SessionId),
    /// Directory: return an agent, secrets included.
    Agent(AgentId),
}

/// The caller of a client's request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caller {
    /// An API key of the tenant, checked by the worker.
    Key,
    /// A session token, which only the session's object can check.
    Token {
        token: String,
        /// The origin of the page that sent it.
        origin: Option<String>,
    },
}

/// The part of a log to read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LogQuery {
    /// The first place.
    pub from: Seq,
    /// The last place, once known.
    pub until: Option<Seq>,
    /// The turn whose end is the last place.
    pub up_to: Option<String>,
}

impl CallContext {
    /// A request as the object received it.
    pub fn of(req: &Request) -> worker::Result<Self> {
        let text = req.header(FORWARDED).unwrap_or_default();
        json::read(&text).map_err(|fault| format!("{FORWARDED}: {fault}").into())
    }

    /// What the response must say about the request.
    pub fn response_context(&self) -> ResponseContext {
        ResponseContext {
            request_id: self.request_id.clone(),
            reader: self.reader.clone(),
            began: clock::millis(),
        }
    }
}

#[wasm_bindgen]
extern "C" {
    /// A namespace of objects. `worker` sends whole requests only, each of which the platform copies once more.
    type Namespace;

    #[wasm_bindgen(method, catch, js_name = getByName)]
    fn named(this: &Namespace, name: &str, options: &JsValue) -> Result<Stub, JsValue>;

    /// One of its objects.
    type Stub;

    #[wasm_bindgen(method, catch)]
    fn fetch(this: &Stub, url: &str, init: &JsValue) -> Result<js_sys::Promise, JsValue>;
}

/// A stub of a session's object, or of a tenant's directory.
#[derive(Clone)]
pub struct Object {
    env: Env,
    /// The location hint of a new object.
    pub hint: Option<String>,
    /// The context of the request.
    pub about: CallContext,
}

impl Object {
    /// The object of a session.
    pub fn session(env: &Env, tenant: &Tenant, session: SessionId, ask: Purpose) -> Self {
        Self::of(env, tenant, Some(session), ask)
    }

    /// The directory of a tenant.
    pub fn directory(env: &Env, tenant: &Tenant, ask: Purpose) -> Self {
        Self::of(env, tenant, None, ask)
    }

    fn of(env: &Env, tenant: &Tenant, session: Option<SessionId>, ask: Purpose) -> Self {
        let request_id = String::new();
        let about = CallContext { tenant: tenant.clone(), session, ask, request_id, key: None, reader: None };
        Self { env: env.clone(), hint: None, about }
    }

    /// The same, on behalf of a client's request.
    #[must_use]
    pub fn asked(mut self, req: &Request, context: &ResponseContext) -> Self {
        self.about.key = req.key();
        self.about.request_id.clone_from(&context.request_id);
        self.about.reader.clone_from(&context.reader);
        self
    }

    /// Forwards a client's request. Its body is passed through as a stream.
    pub async fn pass(&self, req: &Request) -> Result<Response, Error> {
        let body = matches!(&*req.method, "POST" | "PATCH").then(|| req.stream()).flatten();
        self.fetch(&req.target, self.init(&req.method)?, body.map(Into::into)).await
    }

    /// Sends a request without a body.
    pub async fn get(&self) -> Result<Response, Error> {
        self.fetch("/", self.init("GET")?, None).await
    }

    /// Sends a request with a body.
    pub async fn post(&self, body: String) -> Result<Response, Error> {
        self.fetch("/", self.init("POST")?, Some(body.into())).await
    }

    /// Posts an event on behalf of this client.
    pub async fn post_event(&self, body: String) -> Result<Response, Error> {
        self.fetch(&self.target("/events"), self.init("POST")?, Some(body.into())).await
    }

    /// Requests the stream after `cursor`: a socket with the live tail, or a page if much was missed.
    pub async fn dial(&self, cursor: Option<&str>) -> Result<Response, Error> {
        let after = cursor.map(|cursor| format!("?after={cursor}")).unwrap_or_default();
        let mut init = self.init("GET")?;
        init.headers.upgrade = Some("websocket");
        self.fetch(&self.target(&format!("/stream{after}")), init, None).await
    }

    /// The expiry of this client's token. Unverified until the object has accepted the token.
    pub fn expires_at(&self) -> Option<Seconds> {
        let Purpose::Client(Caller::Token { token, .. }) = &self.about.ask else { return None };
        Claims::unchecked(token).ok().map(|claims| claims.expires_at)
    }

    fn target(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.about.session.as_ref().map_or("", SessionId::as_str))
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
            let CallContext { tenant, session, .. } = &self.about;
            let (binding, name) = match session {
                Some(session) => ("SESSION", format!("{tenant}/{session}")),
                None => ("DIRECTORY", tenant.to_string()),
            };
            let namespace: Namespace = js_sys::Reflect::get(&self.env, &binding.into())?.unchecked_into();
            let options = self.hint.as_ref().map(|hint| js::object(&json!({"locationHint": hint})));
            let stub = namespace.named(&name, &options.transpose()?.unwrap_or_default())?;
            JsFuture::from(stub.fetch(&format!("https://session{target}"), &init)?).await
        };
        asked.await.map(JsCast::unchecked_into).map_err(|e| {
            let CallContext { tenant, session, .. } = &self.about;
            let session = session.as_ref().map_or("directory", SessionId::as_str);
            worker::console_error!("{tenant}/{session} could not be reached: {}", js::message(&e));
            Error::new(Code::Overloaded, "the session's object could not be reached; try again")
        })
    }
}
