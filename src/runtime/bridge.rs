//! The stream's body: the worker holds it, not the session's object, which can therefore sleep under a listening client.
//!
//! The object's frames come over a hibernatable socket, ready-made: a line with the position, then text of the stream.
//! When the object goes away the worker dials again with the last position that it passed on, and the client notices
//! nothing. What was missed comes in pages by plain requests; the socket carries the live tail only.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use futures::{FutureExt, Stream, StreamExt};
use worker::{Delay, Headers, Request, Response, WebSocket, WebsocketEvent};

use super::http;
use super::router::{Object, internal};
use crate::api::Error;
use crate::session::SessionId;
use crate::sse;

/// Silence after which a heartbeat is sent.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Bytes that may wait for a slow client. A client that lets more pile up is cut off and resumes with its cursor.
const BUFFER: usize = 4 * 1024 * 1024;
/// Dials without success before a stream is given up.
const DIALS: u32 = 8;
/// What the object sends when the session is gone.
pub const END: &str = "!end";

/// Answers `GET …/stream`.
pub async fn stream(object: &Object, req: &Request, request_id: &str) -> Result<Response, Error> {
    let cursor = http::query(req).cursor(http::header(req, "last-event-id"))?;
    // Percent-encoded or foreign characters are no cursor; the object says so in its own words.
    let cursor =
        cursor.map(|cursor| cursor.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').collect::<String>());
    let first = object.dial(cursor.as_deref(), request_id).await?;
    if first.status_code() >= 400 {
        return Ok(first);
    }
    let (tx, frames) = mpsc::unbounded();
    let (alive, gone) = oneshot::channel();
    let waiting = Rc::new(Cell::new(0));
    let body = Body { frames, waiting: waiting.clone(), _alive: alive };
    let pump = Pump {
        object: object.clone(),
        session: SessionId(object.id.clone()),
        cursor,
        tx,
        waiting,
        request_id: request_id.into(),
    };
    worker::wasm_bindgen_futures::spawn_local(pump.run(first, gone));
    let headers = Headers::new();
    let set = || -> worker::Result<()> {
        headers.set("content-type", "text/event-stream; charset=utf-8")?;
        headers.set("cache-control", "no-cache, no-transform")?;
        headers.set("x-accel-buffering", "no")
    };
    set().map_err(internal)?;
    Response::from_stream(body).map(|answer| answer.with_headers(headers)).map_err(internal)
}

/// The body of one subscriber. Its drop, when the client has gone, ends the pump.
struct Body {
    frames: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Rc<Cell<usize>>,
    _alive: oneshot::Sender<()>,
}

impl Stream for Body {
    type Item = worker::Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Option<Self::Item>> {
        let next = futures::ready!(self.frames.poll_next_unpin(cx));
        if let Some(frame) = &next {
            self.waiting.set(self.waiting.get().saturating_sub(frame.len()));
        }
        Poll::Ready(next.map(Ok))
    }
}

struct Pump {
    object: Object,
    session: SessionId,
    cursor: Option<String>,
    tx: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Rc<Cell<usize>>,
    request_id: String,
}

/// Why a socket was left.
enum Left {
    /// The object went away: dial again.
    Object,
    /// The client went away, or was too slow: stop.
    Client,
    /// The session went away: say so and stop.
    Session,
}

impl Pump {
    async fn run(mut self, first: Response, gone: oneshot::Receiver<()>) {
        let mut gone = gone.fuse();
        let mut answer = Some(first);
        let mut failures = 0;
        if !self.heartbeat() {
            return;
        }
        loop {
            let left = match answer.take() {
                Some(answer) => match self.follow(answer, &mut gone).await {
                    Ok(left) => {
                        failures = 0;
                        left
                    }
                    Err(e) => {
                        worker::console_warn!("stream of {}: {e}", self.session);
                        Some(Left::Object)
                    }
                },
                None => Some(Left::Object),
            };
            match left {
                Some(Left::Client) => return,
                Some(Left::Session) => {
                    self.push(sse::DONE.as_bytes().to_vec());
                    return;
                }
                Some(Left::Object) => {
                    failures += 1;
                    if failures > DIALS {
                        return;
                    }
                    Delay::from(Duration::from_millis(25 << failures)).await;
                }
                None => {} // a page was passed on; there is more
            }
            if self.tx.is_closed() {
                return;
            }
            match self.object.dial(self.cursor.as_deref(), &self.request_id).await {
                Ok(again) if again.status_code() == 404 => answer = self.end(),
                Ok(again) if again.status_code() < 400 => answer = Some(again),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// The session was deleted while nobody was connected to it.
    fn end(&self) -> Option<Response> {
        self.push(sse::DONE.as_bytes().to_vec());
        self.tx.close_channel();
        None
    }

    /// Passes on what one dial brought. `None`: it was a page, and there is more.
    async fn follow(
        &mut self,
        mut answer: Response,
        gone: &mut futures::future::Fuse<oneshot::Receiver<()>>,
    ) -> worker::Result<Option<Left>> {
        if answer.status_code() != 101 {
            let page = answer.text().await?;
            if !self.pass(&page) {
                return Ok(Some(Left::Client));
            }
            self.drain(gone).await;
            return Ok(None);
        }
        let Some(socket) = answer.websocket() else { return Ok(Some(Left::Object)) };
        let left = self.listen(&socket, gone).await?;
        drop(socket.close::<String>(None, None)); // it may be closed already
        Ok(Some(left))
    }

    async fn listen(
        &mut self,
        socket: &WebSocket,
        gone: &mut futures::future::Fuse<oneshot::Receiver<()>>,
    ) -> worker::Result<Left> {
        let mut events = socket.events()?;
        socket.accept()?; // after events(), or the first frames are missed
        let mut beat = Delay::from(HEARTBEAT).fuse();
        loop {
            futures::select_biased! {
                _ = &mut *gone => return Ok(Left::Client),
                event = events.next().fuse() => {
                    let Some(Ok(WebsocketEvent::Message(message))) = event else { return Ok(Left::Object) };
                    let text = message.text().unwrap_or_default();
                    if text == END {
                        return Ok(Left::Session);
                    }
                    if !self.pass(&text) {
                        return Ok(Left::Client);
                    }
                    beat = Delay::from(HEARTBEAT).fuse();
                }
                () = beat => {
                    if !self.heartbeat() {
                        return Ok(Left::Client);
                    }
                    beat = Delay::from(HEARTBEAT).fuse();
                }
            }
        }
    }

    /// Passes on a batch of frames and remembers the position after it.
    fn pass(&mut self, batch: &str) -> bool {
        let Some((cursor, frames)) = batch.split_once('\n') else { return true };
        self.cursor = Some(cursor.to_string());
        frames.is_empty() || self.push(frames.as_bytes().to_vec())
    }

    /// Waits until the client has taken most of what waits for it.
    async fn drain(&self, gone: &mut futures::future::Fuse<oneshot::Receiver<()>>) {
        while self.waiting.get() > BUFFER / 8 {
            let mut pause = Delay::from(Duration::from_millis(10)).fuse();
            futures::select_biased! {
                _ = &mut *gone => return,
                () = pause => {}
            }
        }
    }

    fn heartbeat(&self) -> bool {
        let mut frame = String::new();
        let id = &self.session;
        let data = format!(r#"{{"type":"session.heartbeat","session_id":"{id}","conversation_id":"{id}"}}"#);
        sse::frame(&mut frame, "session.heartbeat", &data, None);
        self.push(frame.into_bytes())
    }

    /// Whether the client is still there and keeps up.
    fn push(&self, frame: Vec<u8>) -> bool {
        let waiting = self.waiting.get().saturating_add(frame.len());
        self.waiting.set(waiting);
        waiting <= BUFFER && self.tx.unbounded_send(frame).is_ok()
    }
}
