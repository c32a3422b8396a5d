//! Between the platform's requests and answers and ours.

use wasm_bindgen::prelude::*;
use worker::wasm_bindgen_futures::JsFuture;
use worker::{FormData, FromRequest, Headers, Response};

use super::js::{self, Chunks};
use super::{clock, router};
use crate::api::{self, Code, Error, MAX_BODY, Query, Reply};
use crate::web::{POLICY, Page};

/// The header that names a request.
pub const REQUEST_ID: &str = "x-request-id";

/// Bytes of a body above the limit that are read and thrown away, so that its sender sees the answer and no broken pipe.
const DRAINED: usize = 4 * MAX_BODY;

/// The largest body of a refused request that is read, for the same reason.
const REFUSED: usize = 256 * 1024;

/// Headers that pages may send, and read.
const ALLOWED: &str = "authorization, content-type, idempotency-key, last-event-id, x-request-id";
const EXPOSED: &str = "location, x-request-id, idempotent-replayed, retry-after, server-timing, allow";

/// A request. `worker::Request` reads more of it than is needed: its `cf` alone takes as long as all else.
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
    /// A header.
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).ok().flatten()
    }

    /// The key by which a repetition of the request is known.
    pub fn key(&self) -> Option<String> {
        self.header("idempotency-key")
    }

    /// The path, as it was sent.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(&*self.target, |(path, _)| path)
    }

    /// The query.
    pub fn query(&self) -> Query {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        Query(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The origin of the page that asks. Browsers leave it out of a page's requests to its own host.
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

    /// The body, read no further than the limit.
    pub async fn body(&self) -> Result<String, Error> {
        String::from_utf8(self.bytes().await?)
            .map_err(|_| Error::new(Code::InvalidInput, "the body is not valid UTF-8"))
    }

    /// The body of a request that has one, before anything is said (see `drain`).
    pub async fn body_of(&self, method: api::Method) -> Result<String, Error> {
        match method {
            api::Method::Post | api::Method::Patch => self.body().await,
            api::Method::Get | api::Method::Delete => Ok(String::new()),
        }
    }

    /// Reads what nobody has read of a small body. A connection on which a part was left unread is closed, perhaps while
    /// its client sends the next request.
    pub async fn drain(&self) {
        if self.size().is_some_and(|size| size <= REFUSED) && !self.inner.body_used() {
            drop(self.bytes().await);
        }
    }

    /// The body's size, if its sender said.
    fn size(&self) -> Option<usize> {
        self.header("content-length").and_then(|text| text.parse().ok())
    }

    async fn bytes(&self) -> Result<Vec<u8>, Error> {
        let broken = |_| Error::new(Code::InvalidInput, "the body broke off before its end");
        let said = self.size();
        if said.is_some_and(|size| size <= MAX_BODY) {
            let buffer = JsFuture::from(self.inner.array_buffer().map_err(broken)?).await.map_err(broken)?;
            return Ok(js_sys::Uint8Array::new(&buffer).to_vec());
        }
        let Some(stream) = self.stream() else { return Ok(Vec::new()) };
        let mut stream = Chunks::of(&stream);
        let (mut bytes, mut size) = (Vec::new(), 0_usize);
        while let Some(chunk) = stream.next().await.map_err(broken)? {
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

    /// Whether the body is a form.
    pub fn is_form(&self) -> bool {
        let kind = self.header("content-type");
        kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("multipart/form-data"))
    }

    /// The form, read no further than the limit.
    pub async fn form(&self) -> Result<FormData, Error> {
        let bytes = self.bytes().await?;
        let read = async {
            let kind = self.header("content-type").unwrap_or_default();
            let init = js::object(&serde_json::json!({"headers": {"content-type": kind}}))?;
            let body = js_sys::Uint8Array::from(bytes.as_slice());
            let whole = web_sys::Response::new_with_opt_buffer_source_and_init(Some(&body), init.unchecked_ref())?;
            JsFuture::from(whole.form_data()?).await
        };
        let broken = |_| Error::new(Code::InvalidInput, "the body is not a whole multipart form");
        read.await.map(Into::into).map_err(broken)
    }

    /// Refuses bodies that are not JSON.
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

/// What every answer says of its request. Whoever makes an answer puts it on, so that nobody has to take it apart again.
pub struct Stamp {
    /// The request's.
    pub request_id: String,
    /// The origin of the pages that may read the answer.
    pub reader: Option<String>,
    /// When the request came, Unix time in milliseconds.
    pub began: u64,
}

impl Stamp {
    /// Milliseconds since the request came.
    pub fn took(&self) -> u64 {
        clock::millis().saturating_sub(self.began)
    }

    /// An answer's headers: its own, and those of every answer: what it is to, what a browser may make of it, and which
    /// pages may read it.
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

    /// An answer of ours as the platform's.
    pub fn respond(&self, reply: Reply) -> Result<Response, Error> {
        let mut own = vec![("content-type", "application/json"), ("cache-control", "no-store")];
        own.extend(reply.headers.iter().map(|(name, value)| (*name, value.as_str())));
        let headers = self.headers(&own).map_err(router::internal)?;
        Ok(Response::builder().with_status(reply.status).with_headers(headers).fixed(reply.body.into_bytes()))
    }

    /// JSON that is text already, as the platform's answer.
    pub fn respond_json(&self, body: String) -> Result<Response, Error> {
        self.respond(Reply { status: 200, headers: Vec::new(), body })
    }

    /// A page.
    pub fn respond_page(&self, page: &Page) -> Result<Response, Error> {
        let own =
            [("content-type", page.kind), ("cache-control", "no-cache"), ("content-security-policy", POLICY)];
        let headers = self.headers(&own).map_err(router::internal)?;
        Ok(Response::builder().with_status(200).with_headers(headers).fixed(page.text.as_bytes().to_vec()))
    }

    /// An answer without a body.
    pub fn respond_empty(&self, status: u16) -> Result<Response, Error> {
        let headers = self.headers(&[]).map_err(router::internal)?;
        Ok(Response::builder().with_status(status).with_headers(headers).empty())
    }
}

/// The text of an answer.
pub async fn text(answer: &web_sys::Response) -> Result<String, Error> {
    let broken = |e: JsValue| router::internal(js::message(&e));
    let text = JsFuture::from(answer.text().map_err(broken)?).await.map_err(broken)?;
    String::from_utf8(js::string(text.unchecked_ref())).map_err(router::internal)
}
