//! What the worker and the objects say to each other, and how one asks another. Only this file knows the form: the header that
//! goes along with every request, the bodies that are not a client's, and the messages of a subscriber's socket.

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

/// The header in which an object is told what `CallContext` says.
const FORWARDED: &str = "x-layby-forwarded";

/// What an object sends to its subscribers when the session is gone. Any other message is a line with the position after
/// it, then frames of the stream.
pub const END: &str = "!end";

/// What the object of a new session is told.
#[derive(Serialize, Deserialize)]
pub struct NewSession {
    /// What was posted.
    pub body: String,
    /// The agent that was meant by its id, or that came as a bundle.
    pub agent: Option<AgentRecord>,
    /// Whether it came as a bundle.
    pub bundled: bool,
}

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

/// What an object is told of a request beside its body. Every field that decides something is required: an object refuses a
/// request that does not say who asks and for what.
#[derive(Clone, Serialize, Deserialize)]
pub struct CallContext {
    /// The tenant that the object belongs to.
    pub tenant: Tenant,
    /// The session that the object is; none for a directory.
    pub session: Option<SessionId>,
    /// What is asked for, and by whom.
    pub ask: Purpose,
    /// The request's id.
    pub request_id: String,
    /// The client's `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The origin of the pages that may read the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<String>,
}

/// What an object is asked for. What the worker and the objects ask each other is named here and never by a path, so no
/// text that somebody wrote can turn a client's request into one of these.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A client's request: its method and path say what.
    Client(Caller),
    /// A new session's object: become the session in the body, a `NewSession`.
    Create,
    /// A new session's object: become a copy of that session of the same tenant.
    Fork(SessionId),
    /// A session's object: give a page of the log, to be copied.
    Log(LogQuery),
    /// A session's object: nothing. To be asked keeps it in memory.
    Ping,
    /// A directory: take the summary in the body.
    Summary,
    /// A directory: take a session from the list. One that was made under a key is remembered as deleted.
    Unlist {
        /// The session.
        session: SessionId,
        /// Whether its id follows from an `Idempotency-Key`, so that the same request could make it again.
        keyed: bool,
    },
    /// A directory: what was answered when that session was deleted under this key?
    Deleted(SessionId),
    /// A directory: was that session, made under a key, deleted lately?
    WasDeleted(SessionId),
    /// A directory: an agent, secrets included.
    Agent(AgentId),
}

/// Who sent a client's request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caller {
    /// Somebody with an API key of the tenant, as the worker has checked.
    Key,
    /// Somebody with a session token, which only the session's object can check.
    Token {
        /// The token.
        token: String,
        /// The origin of the page that sent it.
        origin: Option<String>,
    },
}

/// Which part of a log is asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LogQuery {
    /// The first place.
    pub from: Seq,
    /// The last place, once it is known.
    pub until: Option<Seq>,
    /// The turn whose end is the last place.
    pub up_to: Option<String>,
}

impl CallContext {
    /// What a request that came to an object says.
    pub fn of(req: &Request) -> worker::Result<Self> {
        let text = req.header(FORWARDED).unwrap_or_default();
        json::read(&text).map_err(|fault| format!("{FORWARDED}: {fault}").into())
    }

    /// What the answer has to say of the request.
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
    /// A binding of objects. `worker` asks them with whole requests only, each of which the platform copies once more.
    type Namespace;

    #[wasm_bindgen(method, catch, js_name = getByName)]
    fn named(this: &Namespace, name: &str, options: &JsValue) -> Result<Stub, JsValue>;

    /// One of its objects.
    type Stub;

    #[wasm_bindgen(method, catch)]
    fn fetch(this: &Stub, url: &str, init: &JsValue) -> Result<js_sys::Promise, JsValue>;
}

/// A session's object, or a tenant's directory, seen from outside.
#[derive(Clone)]
pub struct Object {
    /// The deployment's bindings.
    env: Env,
    /// Where the object is to be placed.
    pub hint: Option<String>,
    /// What it is told.
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

    /// Passes a client's request on. Its body is passed through as a stream.
    pub async fn pass(&self, req: &Request) -> Result<Response, Error> {
        let body = matches!(&*req.method, "POST" | "PATCH").then(|| req.stream()).flatten();
        self.fetch(&req.target, self.init(&req.method)?, body.map(Into::into)).await
    }

    /// Asks without a body.
    pub async fn get(&self) -> Result<Response, Error> {
        self.fetch("/", self.init("GET")?, None).await
    }

    /// Asks with a body.
    pub async fn post(&self, body: String) -> Result<Response, Error> {
        self.fetch("/", self.init("POST")?, Some(body.into())).await
    }

    /// Posts an event in the name of the client that this object is asked for.
    pub async fn post_event(&self, body: String) -> Result<Response, Error> {
        self.fetch(&self.target("/events"), self.init("POST")?, Some(body.into())).await
    }

    /// Asks for the stream after `cursor`: a socket with the live tail, or a page if much was missed.
    pub async fn dial(&self, cursor: Option<&str>) -> Result<Response, Error> {
        let after = cursor.map(|cursor| format!("?after={cursor}")).unwrap_or_default();
        let mut init = self.init("GET")?;
        init.headers.upgrade = Some("websocket");
        self.fetch(&self.target(&format!("/stream{after}")), init, None).await
    }

    /// When the token of the client that this object is asked for expires. Worth nothing before the object has accepted it.
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
