//! `GET …/stream`: server-sent events.

use std::cell::Cell;

use futures::FutureExt;
use js_sys::JsString;
use wasm_bindgen::prelude::*;
use web_sys::Response;
use worker::ResponseBuilder;
use worker::wasm_bindgen_futures::{JsFuture, spawn_local};

use super::bridge::{self, Bridge, Requests, Sink};
use crate::api::{End, Error};
use crate::config::Config;
use crate::runtime::platform::fault::internal;
use crate::runtime::platform::http::{Request, ResponseContext};
use crate::runtime::platform::js;
use crate::runtime::wire::Object;
use crate::session::SessionId;
use crate::sse;

/// Bytes that may be buffered for a slow client, besides the largest batch in flight: an event can be as large as its
/// text. A client that falls further behind is disconnected, and resumes with its cursor.
const BUFFER: f64 = 1024.0 * 1024.0;

#[wasm_bindgen]
extern "C" {
    /// The platform's own pipe, which moves bytes to the client without running code of the isolate.
    /// <https://developers.cloudflare.com/workers/runtime-apis/streams/transformstream/#identitytransformstream>
    type IdentityTransformStream;

    #[wasm_bindgen(constructor, catch)]
    fn new(options: &JsValue) -> Result<IdentityTransformStream, JsValue>;

    #[wasm_bindgen(method, getter)]
    fn readable(this: &IdentityTransformStream) -> web_sys::ReadableStream;

    #[wasm_bindgen(method, getter)]
    fn writable(this: &IdentityTransformStream) -> WritableStream;

    type WritableStream;

    #[wasm_bindgen(method, catch, js_name = getWriter)]
    fn writer(this: &WritableStream) -> Result<Writer, JsValue>;

    type Writer;

    #[wasm_bindgen(method, getter)]
    fn closed(this: &Writer) -> js_sys::Promise;

    /// Bytes of free space in the pipe; negative if it is overfull, `None` if nobody reads it any more.
    #[wasm_bindgen(method, getter, js_name = desiredSize)]
    fn room(this: &Writer) -> Option<f64>;

    #[wasm_bindgen(method)]
    fn write(this: &Writer, chunk: &js_sys::Uint8Array) -> js_sys::Promise;

    #[wasm_bindgen(method)]
    fn close(this: &Writer) -> js_sys::Promise;

    /// Aborts the client's stream and drops what is buffered.
    #[wasm_bindgen(method)]
    fn abort(this: &Writer, reason: &str) -> js_sys::Promise;
}

pub async fn stream(
    object: Object,
    req: &Request,
    config: &Config,
    context: &ResponseContext,
) -> Result<Response, Error> {
    let cursor = bridge::cursor(req)?;
    let requests = Requests::to(object);
    let first = requests.dial(cursor.as_deref()).await?;
    if first.status() >= 400 {
        return Ok(first);
    }
    let (sink, readable) = pipe().map_err(|e| internal(js::message(&e)))?;
    let gone = JsFuture::from(sink.writer.closed()).map(|_| End::ClientGone).boxed_local();
    let bridge = Bridge::new(requests, sink, cursor.as_deref(), config.heartbeat);
    spawn_local(bridge.run(first, gone.fuse()).boxed_local());
    let headers = context.headers(&[
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
    ]);
    Ok(ResponseBuilder::new().with_headers(headers.map_err(internal)?).stream(readable).into())
}

fn pipe() -> Result<(Frames, web_sys::ReadableStream), JsValue> {
    let options = js_sys::Object::new();
    js_sys::Reflect::set(&options, &"highWaterMark".into(), &BUFFER.into())?;
    let pipe = IdentityTransformStream::new(&options)?;
    let writer = pipe.writable().writer()?;
    Ok((Frames { writer, largest: Cell::new(0.0), ended: Cell::new(false) }, pipe.readable()))
}

/// The bridge's end of the pipe.
struct Frames {
    writer: Writer,
    /// The largest batch since the buffer was last empty.
    largest: Cell<f64>,
    ended: Cell<bool>,
}

impl Frames {
    /// Bytes buffered for the client; `None` if it has gone.
    fn waiting(&self) -> Option<f64> {
        self.writer.room().map(|room| BUFFER - room)
    }
}

impl Sink for Frames {
    fn frames(&self, frames: &JsString) -> Result<(), End> {
        let waiting = self.waiting().ok_or(End::ClientGone)?;
        let largest = if waiting > 0.0 { self.largest.get() } else { 0.0 };
        if waiting > BUFFER + largest {
            return Err(End::TooSlow);
        }
        let chunk = js::encode(frames);
        self.largest.set(largest.max(f64::from(chunk.length())));
        js::ignore(&self.writer.write(&chunk));
        Ok(())
    }

    fn heartbeat(&self, session: &SessionId) -> Result<(), End> {
        let mut frame = String::new();
        let data =
            format!(r#"{{"type":"session.heartbeat","session_id":"{session}","conversation_id":"{session}"}}"#);
        sse::frame(&mut frame, "session.heartbeat", &data, None);
        self.frames(&frame.into())
    }

    fn is_full(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting > BUFFER / 8.0)
    }

    fn end(&self, end: End) {
        self.ended.set(true);
        let is_orderly = match end {
            End::SessionDeleted => self.frames(&sse::DONE.into()).is_ok(),
            End::TokenExpired | End::TokenRefused | End::Unreachable | End::RequestLimit => true,
            End::ClientGone | End::TooSlow | End::Flooded => false,
        };
        js::ignore(&if is_orderly { self.writer.close() } else { self.writer.abort(end.close().1) });
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        if !self.ended.get() {
            self.end(End::Unreachable);
        }
    }
}
