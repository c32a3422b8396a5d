//! `GET …/stream`: a client that listens to server-sent events.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures::channel::{mpsc, oneshot};
use futures::{FutureExt, Stream, StreamExt};
use worker::{Headers, Request, Response};

use super::bridge::{self, Bridge, Sink};
use super::object::Object;
use super::router::internal;
use crate::api::Error;
use crate::config::Config;
use crate::session::SessionId;
use crate::sse;

/// Bytes that may wait for a slow client. A client that lets more pile up is cut off, and resumes with its cursor. One
/// batch may go beyond it: an event can be as large as the text that it carries.
const BUFFER: usize = 4 * 1024 * 1024;

/// Answers the request.
pub async fn stream(object: Object, req: &Request, config: &Config, request_id: &str) -> Result<Response, Error> {
    let cursor = bridge::cursor(req)?;
    let first = object.dial(cursor.as_deref(), request_id).await?;
    if first.status_code() >= 400 {
        return Ok(first);
    }
    let (frames, reader) = mpsc::unbounded();
    let (alive, gone) = oneshot::channel();
    let waiting = Rc::new(Cell::new(0));
    let body = Body { frames: reader, waiting: waiting.clone(), _alive: alive };
    let sink = Frames { frames, waiting };
    let bridge = Bridge { object, sink, cursor, request_id: request_id.into(), heartbeat: config.heartbeat };
    worker::wasm_bindgen_futures::spawn_local(bridge.run(first, gone.fuse()));
    answer(body).map_err(internal)
}

fn answer(body: Body) -> worker::Result<Response> {
    let headers = Headers::new();
    headers.set("content-type", "text/event-stream; charset=utf-8")?;
    headers.set("cache-control", "no-cache, no-transform")?;
    headers.set("x-accel-buffering", "no")?;
    Response::from_stream(body).map(|answer| answer.with_headers(headers))
}

/// The body of the answer. Its drop, when the client has gone, ends the bridge.
struct Body {
    frames: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Rc<Cell<usize>>,
    _alive: oneshot::Sender<()>,
}

impl Stream for Body {
    type Item = worker::Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = futures::ready!(self.frames.poll_next_unpin(cx));
        if let Some(frame) = &next {
            self.waiting.set(self.waiting.get().saturating_sub(frame.len()));
        }
        Poll::Ready(next.map(Ok))
    }
}

/// The bridge's end of it.
struct Frames {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Rc<Cell<usize>>,
}

impl Sink for Frames {
    fn frames(&self, frames: &str) -> bool {
        let waiting = self.waiting.get();
        self.waiting.set(waiting.saturating_add(frames.len()));
        waiting <= BUFFER && self.frames.unbounded_send(frames.as_bytes().to_vec()).is_ok()
    }

    fn heartbeat(&self, session: &SessionId) -> bool {
        let mut frame = String::new();
        let data =
            format!(r#"{{"type":"session.heartbeat","session_id":"{session}","conversation_id":"{session}"}}"#);
        sse::frame(&mut frame, "session.heartbeat", &data, None);
        self.frames(&frame)
    }

    fn end(&self) {
        self.frames(sse::DONE);
    }

    fn is_full(&self) -> bool {
        self.waiting.get() > BUFFER / 8
    }
}
