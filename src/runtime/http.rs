//! Between the platform's requests and answers and ours.

use futures::StreamExt;
use wasm_bindgen::prelude::*;
use worker::{FormData, Headers, Method, Request, RequestInit, Response};

use crate::api::{self, Code, Error, MAX_BODY, Query, Reply};
use crate::web::{POLICY, Page};

/// The header that names the session to its object.
pub const SESSION: &str = "x-layby-session";
/// The header that names the tenant to a session's object.
pub const TENANT: &str = "x-layby-tenant";
/// The header that carries a session token to the object that can check it.
pub const TOKEN: &str = "x-layby-token";
/// The header that tells the object the origin of the page that asks.
pub const ORIGIN: &str = "x-layby-origin";
/// The header that names to an object the session of which it is to become a copy.
pub const SOURCE: &str = "x-layby-source";
/// The header by which a repeated request is known.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header that carries the request id to the object.
pub const REQUEST_ID: &str = "x-request-id";

/// Bytes of a body above the limit that are read and thrown away, so that its sender sees the answer and no broken pipe.
const DRAINED: usize = 4 * MAX_BODY;

/// The largest body of a refused request that is read, for the same reason.
const REFUSED: usize = 256 * 1024;

/// Headers that pages may send, and read.
const ALLOWED: &str = "authorization, content-type, idempotency-key, last-event-id, x-request-id";
const EXPOSED: &str = "location, x-request-id, idempotent-replayed, retry-after, server-timing, allow";

/// An answer of ours as the platform's.
pub fn respond(reply: Reply) -> worker::Result<Response> {
    let headers = Headers::new();
    headers.set("content-type", "application/json")?;
    headers.set("cache-control", "no-store")?;
    for (name, value) in &reply.headers {
        headers.set(name, value)?;
    }
    Ok(Response::builder().with_status(reply.status).with_headers(headers).fixed(reply.body.into_bytes()))
}

/// JSON that is text already, as the platform's answer.
pub fn respond_json(body: String) -> worker::Result<Response> {
    respond(Reply { status: 200, headers: Vec::new(), body })
}

/// A page.
pub fn respond_page(page: &Page) -> worker::Result<Response> {
    let headers = Headers::new();
    headers.set("content-type", page.kind)?;
    headers.set("cache-control", "no-cache")?;
    headers.set("content-security-policy", POLICY)?;
    Ok(Response::builder().with_status(200).with_headers(headers).fixed(page.text.as_bytes().to_vec()))
}

/// An answer without a body.
pub fn respond_empty(status: u16) -> worker::Result<Response> {
    Ok(Response::builder().with_status(status).empty())
}

/// Headers of every answer: what a browser may make of it, and which pages may read it.
pub fn protect(headers: &Headers, origin: Option<&str>) -> worker::Result<()> {
    headers.set("x-content-type-options", "nosniff")?;
    headers.set("referrer-policy", "no-referrer")?;
    if !headers.has("content-security-policy")? {
        headers.set("content-security-policy", "default-src 'none'; frame-ancestors 'none'")?;
    }
    let Some(origin) = origin else { return Ok(()) };
    headers.set("access-control-allow-origin", origin)?;
    headers.append("vary", "origin")?;
    headers.set("access-control-allow-methods", "GET, POST, PATCH, DELETE")?;
    headers.set("access-control-allow-headers", ALLOWED)?;
    headers.set("access-control-expose-headers", EXPOSED)?;
    headers.set("access-control-max-age", "86400")
}

/// A request's header.
pub fn header(req: &Request, name: &str) -> Option<String> {
    req.headers().get(name).ok().flatten()
}

/// The origin of the page that asks. Browsers leave it out of a page's requests to its own host.
pub fn origin(req: &Request) -> Option<String> {
    let own = || {
        let same = header(req, "sec-fetch-site").is_some_and(|site| site == "same-origin");
        req.url().ok().filter(|_| same).map(|url| url.origin().ascii_serialization())
    };
    header(req, "origin").or_else(own)
}

/// A request's path and query, as they were sent.
pub fn target(req: &Request) -> String {
    let url = req.inner().url();
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let path = url.get(after_scheme..).and_then(|rest| rest.find('/')).map(|at| after_scheme + at);
    path.and_then(|at| url.get(at..)).unwrap_or("/").to_string()
}

/// A request's query.
pub fn query(req: &Request) -> Query {
    let target = target(req);
    let query = target.split_once('?').map_or("", |(_, query)| query);
    Query(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
}

/// The body of a request that has one, before anything is said (see `drain`).
pub async fn body_of(method: api::Method, req: &mut Request) -> Result<String, Error> {
    match method {
        api::Method::Post | api::Method::Patch => body(req).await,
        api::Method::Get | api::Method::Delete => Ok(String::new()),
    }
}

/// Reads what nobody has read of a small body. A connection on which a part was left unread is closed, perhaps while its
/// client sends the next request.
pub async fn drain(asked: web_sys::Request) {
    let mut req = Request::from(asked);
    let size = header(&req, "content-length").and_then(|text| text.parse::<usize>().ok());
    if size.is_some_and(|size| size <= REFUSED) && !req.inner().body_used() {
        drop(req.bytes().await);
    }
}

/// A request's body, read no further than the limit.
pub async fn body(req: &mut Request) -> Result<String, Error> {
    String::from_utf8(bytes(req).await?).map_err(|_| Error::new(Code::InvalidInput, "the body is not valid UTF-8"))
}

async fn bytes(req: &mut Request) -> Result<Vec<u8>, Error> {
    let broken = |_| Error::new(Code::InvalidInput, "the body broke off before its end");
    let said: Option<usize> = header(req, "content-length").and_then(|text| text.parse().ok());
    if said.is_some_and(|size| size <= MAX_BODY) {
        return req.bytes().await.map_err(broken);
    }
    let Ok(mut stream) = req.stream() else { return Ok(Vec::new()) };
    let (mut bytes, mut size) = (Vec::new(), 0_usize);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(broken)?;
        size = size.saturating_add(chunk.len());
        if size <= MAX_BODY {
            bytes.extend_from_slice(&chunk);
        } else if size > DRAINED {
            break;
        }
    }
    if size > MAX_BODY {
        return Err(Error::too_large(said.unwrap_or(size)));
    }
    Ok(bytes)
}

/// Whether a request's body is a form.
pub fn is_form(req: &Request) -> bool {
    header(req, "content-type").is_some_and(|kind| kind.to_ascii_lowercase().starts_with("multipart/form-data"))
}

/// A request's form, read no further than the limit.
pub async fn form(req: &mut Request) -> Result<FormData, Error> {
    let bytes = bytes(req).await?;
    let broken = |_| Error::new(Code::InvalidInput, "the body is not a whole multipart form");
    let headers = Headers::new();
    headers.set("content-type", &header(req, "content-type").unwrap_or_default()).map_err(broken)?;
    let mut init = RequestInit::new();
    let body = js_sys::Uint8Array::from(bytes.as_slice()).into();
    init.with_method(Method::Post).with_headers(headers).with_body(Some(body));
    let mut whole = Request::new_with_init("https://form/", &init).map_err(broken)?;
    whole.form_data().await.map_err(broken)
}

/// Lets a promise be: that it fails is noticed elsewhere.
pub fn ignore(promise: &js_sys::Promise) {
    thread_local! {
        static NOTHING: Closure<dyn FnMut(JsValue)> = Closure::new(drop);
    }
    NOTHING.with(|nothing| drop(promise.catch(nothing)));
}

/// Refuses bodies that are not JSON.
pub fn must_be_json(req: &Request) -> Result<(), Error> {
    let kind = header(req, "content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" {
        return Ok(());
    }
    let given = if kind.is_empty() { "no content type".to_string() } else { kind };
    Err(Error::new(Code::UnsupportedMediaType, format!("send application/json; the request has {given}")))
}
