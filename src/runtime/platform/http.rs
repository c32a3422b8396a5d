//! Converts between the platform's requests and responses and ours.

use std::cell::Cell;
use std::ops::Deref;
use std::time::Duration;

use futures::FutureExt;
use wasm_bindgen::prelude::*;
use worker::wasm_bindgen_futures::JsFuture;
use worker::{Delay, FormData, FromRequest, Headers, Response};

use super::js::{self, Chunks};
use super::{clock, fault};
use crate::api::{self, Code, Error, MAX_BODY, Query, Reply};
use crate::web::{POLICY, Page};

/// The header with the request's id.
pub const REQUEST_ID: &str = "x-request-id";

/// Bytes of an oversized body that are read and discarded, so that its sender sees the response and not a broken pipe.
const DRAINED: usize = 4 * MAX_BODY;

/// The largest body of a rejected request that is read, for the same reason, and for how long.
const REFUSED: (usize, Duration) = (256 * 1024, Duration::from_secs(2));

/// How long a body may take to arrive. An object is active, and billed, while it waits for one.
const ARRIVAL: Duration = Duration::from_secs(60);

/// Bytes of bodies one isolate holds at a time. It has 128 MB for all its sessions.
const BODIES: usize = 4 * MAX_BODY;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Bytes of a body that count towards `BODIES` until this is dropped.
struct Held(usize);

impl Held {
    fn more(&mut self, bytes: usize) -> Result<(), Error> {
        let held = HELD.get().saturating_add(bytes);
        if held > BODIES {
            return Err(Error::new(Code::Overloaded, "too many large requests arrive at once; try again"));
        }
        HELD.set(held);
        self.0 = self.0.saturating_add(bytes);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get().saturating_sub(self.0));
    }
}

/// A body that has arrived.
pub struct Body {
    text: String,
    _held: Held,
}

impl Body {
    /// The text, which no longer counts as held.
    pub fn into_text(self) -> String {
        self.text
    }
}

impl Deref for Body {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// Headers pages may send, and read.
const ALLOWED: &str = "authorization, content-type, idempotency-key, last-event-id, x-request-id";
const EXPOSED: &str = "location, x-request-id, idempotent-replayed, retry-after, server-timing, allow";

/// A request. `worker::Request` does more than is needed: reading its `cf` alone takes as long as everything else.
#[derive(Clone)]
pub struct Request {
    inner: web_sys::Request,
    headers: web_sys::Headers,
    /// As it was sent.
    pub method: String,
    /// Path and query, as they were sent.
    pub target: String,
}

impl FromRequest for Request {
    fn from_raw(request: web_sys::Request) -> Result<Self, impl Into<Box<dyn std::error::Error>>> {
        Ok::<_, worker::Error>(request.into())
    }
}

impl From<worker::Request> for Request {
    fn from(request: worker::Request) -> Self {
        Clone::clone(request.inner()).into() // the same request, not a copy of its body
    }
}

impl From<web_sys::Request> for Request {
    fn from(inner: web_sys::Request) -> Self {
        let url = inner.url();
        let after_scheme = url.find("://").map_or(0, |at| at + 3);
        let path = url.get(after_scheme..).and_then(|rest| rest.find('/')).map(|at| after_scheme + at);
        let target = path.and_then(|at| url.get(at..)).unwrap_or("/").to_string();
        Self { headers: inner.headers(), method: inner.method(), target, inner }
    }
}

impl Request {
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).ok().flatten()
    }

    /// The request's `Idempotency-Key`.
    pub fn key(&self) -> Option<String> {
        self.header("idempotency-key")
    }

    /// The path, as it was sent.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(&*self.target, |(path, _)| path)
    }

    pub fn query(&self) -> Query {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        Query(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The origin of the page that sent the request. Browsers omit it in a page's requests to its own host.
    pub fn origin(&self) -> Option<String> {
        let own = || {
            let same = self.header("sec-fetch-site").is_some_and(|site| site == "same-origin");
            self.inner.url().strip_suffix(&self.target).filter(|_| same).map(str::to_string)
        };
        self.header("origin").or_else(own)
    }

    /// The body as a stream, if there is one.
    pub fn stream(&self) -> Option<web_sys::ReadableStream> {
        self.inner.body()
    }

    /// The body, up to the limit.
    pub async fn body(&self) -> Result<Body, Error> {
        let (bytes, held) = self.bytes().await?;
        let text =
            String::from_utf8(bytes).map_err(|_| Error::new(Code::InvalidInput, "the body is not valid UTF-8"))?;
        Ok(Body { text, _held: held })
    }

    /// The body of a request whose method has one.
    pub async fn body_of(&self, method: api::Method) -> Result<Body, Error> {
        match method {
            api::Method::Post | api::Method::Patch => self.body().await,
            api::Method::Get | api::Method::Delete => Ok(Body { text: String::new(), _held: Held(0) }),
        }
    }

    /// Drains an unread small body. A connection with unread data is closed, perhaps while its client sends the next
    /// request.
    pub async fn drain(&self) {
        let (most, limit) = REFUSED;
        if self.size().is_some_and(|size| size <= most) && !self.inner.body_used() {
            let mut late = Delay::from(limit).fuse();
            futures::select_biased! {
                body = Box::pin(self.arrive()).fuse() => drop(body),
                () = late => {}
            }
        }
    }

    /// The body's declared size, if any.
    fn size(&self) -> Option<usize> {
        self.header("content-length").and_then(|text| text.parse().ok())
    }

    async fn bytes(&self) -> Result<(Vec<u8>, Held), Error> {
        let mut late = Delay::from(ARRIVAL).fuse();
        futures::select_biased! {
            body = Box::pin(self.arrive()).fuse() => body,
            () = late => {
                let message = format!("the body did not arrive within {} s", ARRIVAL.as_secs());
                Err(Error::new(Code::InvalidInput, message))
            }
        }
    }

    async fn arrive(&self) -> Result<(Vec<u8>, Held), Error> {
        let broken = |_| Error::new(Code::InvalidInput, "the request body ended too early");
        let said = self.size();
        let mut held = Held(0);
        let mut refused = None;
        if let Some(size) = said.filter(|size| *size <= MAX_BODY) {
            match held.more(size) {
                Ok(()) => {
                    let buffer = self.inner.array_buffer().map_err(broken)?;
                    let buffer = JsFuture::from(buffer).await.map_err(broken)?;
                    return Ok((js_sys::Uint8Array::new(&buffer).to_vec(), held));
                }
                Err(full) => refused = Some(full),
            }
        }
        let Some(stream) = self.stream() else { return Ok((Vec::new(), held)) };
        let mut stream = Chunks::of(&stream);
        let (mut bytes, mut size) = (Vec::new(), 0_usize);
        // A rejected body is read and discarded, so that its sender sees the response.
        while let Some(chunk) = stream.next().await.map_err(broken)? {
            size = size.saturating_add(chunk.len());
            if size > DRAINED {
                break;
            }
            if refused.is_none() && size <= MAX_BODY {
                match held.more(chunk.len()) {
                    Ok(()) => bytes.extend_from_slice(&chunk),
                    Err(full) => refused = Some(full),
                }
            }
        }
        if size > MAX_BODY {
            return Err(Error::too_large(said.unwrap_or(size)));
        }
        refused.map_or(Ok((bytes, held)), Err)
    }

    /// Whether the body is a form.
    pub fn is_form(&self) -> bool {
        let kind = self.header("content-type");
        kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("multipart/form-data"))
    }

    /// The form, up to the limit.
    pub async fn form(&self) -> Result<FormData, Error> {
        let (bytes, _held) = self.bytes().await?;
        let read = async {
            let kind = self.header("content-type").unwrap_or_default();
            let init = js::object(&serde_json::json!({"headers": {"content-type": kind}}))?;
            let body = js_sys::Uint8Array::from(bytes.as_slice());
            let whole = web_sys::Response::new_with_opt_buffer_source_and_init(Some(&body), init.unchecked_ref())?;
            JsFuture::from(whole.form_data()?).await
        };
        let broken = |_| Error::new(Code::InvalidInput, "the body is not a complete multipart form");
        read.await.map(Into::into).map_err(broken)
    }

    /// Rejects bodies that are not JSON.
    pub fn must_be_json(&self) -> Result<(), Error> {
        let kind = self.header("content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("application/json") {
            return Ok(());
        }
        let given = if kind.is_empty() { "no content type" } else { kind };
        Err(Error::new(Code::UnsupportedMediaType, format!("send application/json; the request has {given}")))
    }
}

/// What every response says about its request. Each response gets it when it is built, so that it need not be rebuilt
/// later.
pub struct ResponseContext {
    pub request_id: String,
    /// The `Access-Control-Allow-Origin` of the response.
    pub reader: Option<String>,
    /// When the request arrived, Unix time in milliseconds.
    pub began: u64,
}

impl ResponseContext {
    /// Milliseconds since the request arrived.
    pub fn took(&self) -> u64 {
        clock::millis().saturating_sub(self.began)
    }

    /// A response's headers: its own, and those of every response: the request's id, browser safety and CORS.
    pub fn headers(&self, own: &[(&str, &str)]) -> worker::Result<Headers> {
        let took = format!("total;dur={}", self.took());
        let mut all = vec![
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            (REQUEST_ID, self.request_id.as_str()),
            ("server-timing", took.as_str()),
        ];
        if let Some(reader) = &self.reader {
            all.extend([
                ("access-control-allow-origin", reader.as_str()),
                ("vary", "origin"),
                ("access-control-allow-methods", "GET, POST, PATCH, DELETE"),
                ("access-control-allow-headers", ALLOWED),
                ("access-control-expose-headers", EXPOSED),
                ("access-control-max-age", "86400"),
            ]);
        }
        all.extend(own);
        if all.iter().all(|(name, _)| *name != "content-security-policy") {
            all.push(("content-security-policy", "default-src 'none'; frame-ancestors 'none'"));
        }
        Ok(Headers(web_sys::Headers::new_with_str_sequence_sequence(&js::object(&all)?)?))
    }

    /// The response to a CORS preflight request.
    pub fn respond_preflight(&self, wanted: &str) -> Result<Response, Error> {
        let headers = self.headers(&[]).map_err(fault::internal)?;
        if self.reader.is_some() && !wanted.is_empty() {
            headers
                .set("access-control-allow-headers", &format!("{ALLOWED}, {wanted}"))
                .map_err(fault::internal)?;
        }
        Ok(Response::builder().with_status(204).with_headers(headers).empty())
    }

    /// Converts our response to the platform's.
    pub fn respond(&self, reply: Reply) -> Result<Response, Error> {
        let mut own = vec![("content-type", "application/json"), ("cache-control", "no-store")];
        own.extend(reply.headers.iter().map(|(name, value)| (*name, value.as_str())));
        let headers = self.headers(&own).map_err(fault::internal)?;
        Ok(Response::builder().with_status(reply.status).with_headers(headers).fixed(reply.body.into_bytes()))
    }

    /// The platform's response for JSON that is text already.
    pub fn respond_json(&self, body: String) -> Result<Response, Error> {
        self.respond(Reply { status: 200, headers: Vec::new(), body })
    }

    pub fn respond_page(&self, page: &Page) -> Result<Response, Error> {
        let own =
            [("content-type", page.kind), ("cache-control", "no-cache"), ("content-security-policy", POLICY)];
        let headers = self.headers(&own).map_err(fault::internal)?;
        Ok(Response::builder().with_status(200).with_headers(headers).fixed(page.text.as_bytes().to_vec()))
    }
}

/// The text of a response.
pub async fn text(answer: &web_sys::Response) -> Result<String, Error> {
    String::from_utf8(js::string(&js_text(answer).await?)).map_err(fault::internal)
}

/// The text of a response that is passed on unread.
pub async fn js_text(answer: &web_sys::Response) -> Result<js_sys::JsString, Error> {
    let broken = |e: JsValue| fault::internal(js::message(&e));
    let text = JsFuture::from(answer.text().map_err(broken)?).await.map_err(broken)?;
    Ok(text.unchecked_into())
}
