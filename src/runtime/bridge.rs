//! The bridge: the worker holds the client's stream, not the session's object, which can therefore sleep under a
//! listening client.
//!
//! The object's frames come over a hibernatable socket, ready-made: a line with the position, then text of the stream.
//! When the object goes away the worker dials again with the last position that it passed on, and the client notices
//! nothing. What was missed comes in pages by plain requests; the socket carries the live tail only.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::{Fuse, LocalBoxFuture};
use futures::{FutureExt, StreamExt};
use wasm_bindgen::prelude::*;
use web_sys::{MessageEvent, Response};
use worker::{Delay, WebSocket};

use super::clock;
use super::http::{self, Request};
use super::object::Object;
use crate::api::Error;
use crate::session::SessionId;

/// Dials without success before a stream is given up.
const DIALS: u32 = 8;
/// What the object sends when the session is gone.
pub const END: &str = "!end";

/// Tells that the client has gone.
pub type Gone = Fuse<LocalBoxFuture<'static, ()>>;

/// Where a client's events go. Every method says whether the client is still there and keeps up.
pub trait Sink {
    /// Passes on frames.
    fn frames(&self, frames: &str) -> bool;
    /// Passes on a sign of life.
    fn heartbeat(&self, session: &SessionId) -> bool;
    /// Says that the stream has come to an orderly end.
    fn end(&self);
    /// Whether so much waits for the client that it is better to wait for it.
    fn is_full(&self) -> bool;
}

/// Brings a session's events to one client.
pub struct Bridge<S> {
    /// The session's object.
    object: Object,
    /// Silence after which a heartbeat is sent.
    heartbeat: Duration,
    passing: Rc<Passing<S>>,
}

/// What the listeners of a socket work with. They pass a message on themselves: to wake a task for it would take as long
/// as all the rest.
struct Passing<S> {
    /// The client.
    sink: S,
    /// The position after what was passed on.
    cursor: RefCell<Option<String>>,
    /// When something was passed on last, Unix time in milliseconds.
    heard: Cell<u64>,
}

/// Why a socket was left.
#[derive(Clone, Copy)]
enum Left {
    /// It was no socket but a page, and there is more.
    Page,
    /// The object went away: dial again.
    Object,
    /// The client went away, or was too slow: stop.
    Client,
    /// The session went away: say so and stop.
    Session,
}

/// The position that a request asks for.
pub fn cursor(req: &Request) -> Result<Option<String>, Error> {
    let cursor = req.query().cursor(req.header("last-event-id"))?;
    // It becomes part of a path. What cannot be one is refused by the object, in its own words.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    Ok(cursor.map(|cursor| if cursor.chars().all(plain) { cursor } else { "malformed".into() }))
}

impl<S: Sink + 'static> Bridge<S> {
    /// From a session's object to a client that has everything up to `cursor`.
    pub fn new(object: Object, sink: S, cursor: Option<String>, heartbeat: Duration) -> Self {
        let passing = Passing { sink, cursor: RefCell::new(cursor), heard: Cell::new(0) };
        Self { object, heartbeat, passing: Rc::new(passing) }
    }

    /// Follows the session until the client or the session goes. `first` is the answer to the first dial.
    pub async fn run(self, first: Response, mut gone: Gone) {
        let Some(session) = self.object.about.session.clone() else { return };
        if !self.passing.sink.heartbeat(&session) {
            return;
        }
        let mut answer = Some(first);
        let mut failures = 0;
        loop {
            let left = match answer.take() {
                Some(answer) => {
                    failures = 0;
                    self.follow(answer, &session, &mut gone).await.unwrap_or_else(|e| {
                        worker::console_warn!("stream of {session}: {e}");
                        Left::Object
                    })
                }
                None => Left::Object,
            };
            match left {
                Left::Client => return,
                Left::Session => return self.passing.sink.end(),
                Left::Page => {}
                Left::Object => {
                    failures += 1;
                    let pause = Delay::from(Duration::from_millis(25 << failures));
                    if failures > DIALS || !stays(pause, &mut gone).await {
                        return;
                    }
                }
            }
            let cursor = self.passing.cursor.borrow().clone();
            match self.object.dial(cursor.as_deref()).await {
                // Deleted while nobody was connected to it.
                Ok(again) if again.status() == 404 => return self.passing.sink.end(),
                // The token has expired, or was revoked.
                Ok(again) if matches!(again.status(), 401 | 403) => return,
                Ok(again) if again.status() < 400 => answer = Some(again),
                Ok(_) | Err(_) => {}
            }
        }
    }

    async fn follow(&self, answer: Response, session: &SessionId, gone: &mut Gone) -> worker::Result<Left> {
        if answer.status() != 101 {
            let page = http::text(&answer).await.map_err(|error| error.message)?;
            let mut there = self.passing.pass(&page);
            while there && self.passing.sink.is_full() {
                there = stays(Delay::from(Duration::from_millis(10)), gone).await;
            }
            return Ok(if there { Left::Page } else { Left::Client });
        }
        let Some(socket) = socket(answer) else { return Ok(Left::Object) };
        let left = self.listen(&socket, session, gone).await?;
        drop(socket.close::<String>(None, None)); // it may be closed already
        Ok(left)
    }

    async fn listen(&self, socket: &WebSocket, session: &SessionId, gone: &mut Gone) -> worker::Result<Left> {
        let (leave, mut left) = mpsc::unbounded();
        let passing = self.passing.clone();
        let on_message = {
            let leave = leave.clone();
            move |event: MessageEvent| {
                let text = event.data().as_string().unwrap_or_default();
                let why = if text == END {
                    Left::Session
                } else if passing.pass(&text) {
                    return;
                } else {
                    Left::Client
                };
                drop(leave.unbounded_send(why)); // nobody waits who has left already
            }
        };
        let on_end = move |_| drop(leave.unbounded_send(Left::Object));
        self.passing.heard.set(clock::millis());
        let _listeners = Listeners::of(socket, on_message, on_end)?;
        socket.accept()?; // after the listeners, or the first frames are missed
        let mut beat = Delay::from(self.heartbeat).fuse();
        loop {
            futures::select_biased! {
                _ = &mut *gone => return Ok(Left::Client),
                left = left.next() => return Ok(left.unwrap_or(Left::Object)),
                // The timer is not set anew with every event, so something may have been heard since it was.
                () = beat => {
                    let silence = Duration::from_millis(clock::millis().saturating_sub(self.passing.heard.get()));
                    let rest = self.heartbeat.saturating_sub(silence);
                    beat = Delay::from(if rest.is_zero() { self.heartbeat } else { rest }).fuse();
                    if rest.is_zero() && !self.passing.sink.heartbeat(session) {
                        return Ok(Left::Client);
                    }
                }
            }
        }
    }
}

impl<S: Sink> Passing<S> {
    /// Passes on a batch of frames and remembers the position after it. Whether the client is still there.
    fn pass(&self, batch: &str) -> bool {
        let Some((cursor, frames)) = batch.split_once('\n') else { return true };
        let there = frames.is_empty() || self.sink.frames(frames);
        self.cursor.replace(Some(cursor.to_string()));
        self.heard.set(clock::millis());
        there
    }
}

/// The listeners of a socket, which end with this.
struct Listeners {
    socket: WebSocket,
    on_message: Closure<dyn FnMut(MessageEvent)>,
    on_end: Closure<dyn FnMut(JsValue)>,
}

impl Listeners {
    fn of(
        socket: &WebSocket,
        on_message: impl FnMut(MessageEvent) + 'static,
        on_end: impl FnMut(JsValue) + 'static,
    ) -> worker::Result<Self> {
        let listeners = Self {
            socket: socket.clone(),
            // They leave nothing half done.
            on_message: Closure::own_assert_unwind_safe(on_message),
            on_end: Closure::own_assert_unwind_safe(on_end),
        };
        for (name, listener) in listeners.all() {
            socket.as_ref().add_event_listener_with_callback(name, listener)?;
        }
        Ok(listeners)
    }

    fn all(&self) -> [(&'static str, &js_sys::Function); 3] {
        let end = self.on_end.as_ref().unchecked_ref();
        [("message", self.on_message.as_ref().unchecked_ref()), ("close", end), ("error", end)]
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for (name, listener) in self.all() {
            drop(self.socket.as_ref().remove_event_listener_with_callback(name, listener));
        }
    }
}

/// The socket that came with an answer.
pub fn socket(answer: Response) -> Option<WebSocket> {
    worker::Response::from(answer).websocket()
}

/// Waits; false if the client has gone meanwhile.
async fn stays(pause: Delay, gone: &mut Gone) -> bool {
    let mut pause = pause.fuse();
    futures::select_biased! {
        _ = &mut *gone => false,
        () = pause => true,
    }
}
