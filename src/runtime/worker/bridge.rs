//! The bridge: the worker holds the client's stream, not the session's object, which can therefore sleep while a client
//! listens.
//!
//! The object's frames arrive ready-made over a hibernatable socket: a line with the position, then text of the stream.
//! When the object goes away, the worker redials from the last position it forwarded, and the client notices nothing.
//! Missed events come in pages, by plain requests; the socket carries only the live tail.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::{Fuse, LocalBoxFuture};
use futures::{FutureExt, StreamExt};
use js_sys::JsString;
use wasm_bindgen::prelude::*;
use web_sys::{MessageEvent, Response};
use worker::{Delay, WebSocket};

use crate::api::{End, Error, Redial};
use crate::runtime::platform::clock;
use crate::runtime::platform::http::{self, Request};
use crate::runtime::wire::{END, Object};
use crate::session::{Seconds, SessionId};

/// Requests to objects per client. The platform allows 10 000 subrequests per request, 50 on the free plan, and a
/// stream is one request however long it lasts.
const MAX_REQUESTS: u32 = 1000;
/// The longest duration of one timer.
const MAX_TIMER: Duration = Duration::from_secs(3600);
/// Interval between checks of a client that must read before it gets more.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));

/// Signals that the stream is to end, and why.
pub type Stop = Fuse<LocalBoxFuture<'static, End>>;

/// Where a client's events go.
pub trait Sink {
    /// Forwards frames. An error means that the stream is over: the client has gone or reads too slowly.
    fn frames(&self, frames: &JsString) -> Result<(), End>;
    /// Sends a heartbeat, with the same errors.
    fn heartbeat(&self, session: &SessionId) -> Result<(), End>;
    /// Whether so much is buffered for the client that more history must wait.
    fn is_full(&self) -> bool;
    /// Ends the client's stream.
    fn end(&self, end: End);
}

/// Makes and counts the requests to a session's object on behalf of one client.
#[derive(Clone)]
pub struct Requests {
    object: Object,
    made: Rc<Cell<u32>>,
}

impl Requests {
    pub fn to(object: Object) -> Self {
        Self { object, made: Rc::default() }
    }

    /// Whether the client has used up its requests.
    pub fn are_used_up(&self) -> bool {
        self.made.get() >= MAX_REQUESTS
    }

    /// Requests the stream after `cursor`.
    pub async fn dial(&self, cursor: Option<&str>) -> Result<Response, Error> {
        self.count();
        self.object.dial(cursor).await
    }

    pub async fn post_event(&self, event: String) -> Result<Response, Error> {
        self.count();
        self.object.post_event(event).await
    }

    /// The id of the client's request.
    pub fn request_id(&self) -> &str {
        &self.object.about.request_id
    }

    fn count(&self) {
        self.made.set(self.made.get().saturating_add(1));
    }
}

/// Forwards a session's events to one client.
pub struct Bridge<S> {
    requests: Requests,
    /// Silence before a heartbeat.
    heartbeat: Duration,
    passing: Rc<Forwarder<S>>,
}

/// State of a socket's listeners. They forward messages themselves: waking a task for each would take as long as all
/// the rest.
struct Forwarder<S> {
    sink: S,
    /// The position after the last forwarded frame.
    cursor: RefCell<Option<JsString>>,
    /// When something was last forwarded, Unix time in milliseconds.
    heard: Cell<u64>,
    /// Whether any frames were forwarded since this was last reset.
    passed_on: Cell<bool>,
}

/// Why a connection to the object ended while the client's stream continues.
#[derive(Clone, Copy)]
enum Exit {
    /// It was a page rather than a socket, and there is more.
    Page,
    /// The object went away: redial.
    Object,
}

/// The cursor of a request.
pub fn cursor(req: &Request) -> Result<Option<String>, Error> {
    let cursor = req.query().cursor(req.header("last-event-id"))?;
    // It becomes part of a path. An invalid one is rejected by the object.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    Ok(cursor.map(|cursor| if cursor.chars().all(plain) { cursor } else { "malformed".into() }))
}

impl<S: Sink + 'static> Bridge<S> {
    /// From a session's object to a client that has everything up to `cursor`.
    pub fn new(requests: Requests, sink: S, cursor: Option<&str>, heartbeat: Duration) -> Self {
        let cursor = RefCell::new(cursor.map(JsString::from));
        let passing = Forwarder { sink, cursor, heard: Cell::new(0), passed_on: Cell::new(false) };
        Self { requests, heartbeat, passing: Rc::new(passing) }
    }

    /// Follows the session until `stop`, or until the session ends or the token expires, and ends the client's stream.
    /// `first` is the response to the first dial, which has checked the token.
    pub async fn run(self, first: Response, mut stop: Stop) {
        let expires_at = self.requests.object.expires_at();
        let stop = async move {
            let mut expired = Box::pin(expiry(expires_at)).fuse();
            futures::select_biased! {
                end = stop => end,
                () = expired => End::TokenExpired,
            }
        };
        let Err(end) = self.follow_all(first, stop.boxed_local().fuse()).await;
        self.passing.sink.end(end);
    }

    async fn follow_all(&self, first: Response, mut stop: Stop) -> Result<Infallible, End> {
        let Some(session) = self.requests.object.about.session.clone() else { return Err(End::Unreachable) };
        self.passing.sink.heartbeat(&session)?;
        let (mut answer, mut redial) = (Some(first), Redial::default());
        loop {
            let mut again = false;
            if let Some(answer) = answer.take() {
                let began = clock::millis();
                self.passing.passed_on.set(false);
                let left = self.follow(answer, &session, &mut stop).await?;
                let passed_on = self.passing.passed_on.get();
                redial.ended(passed_on, Duration::from_millis(clock::millis().saturating_sub(began)));
                again = matches!(left, Exit::Page) && passed_on;
            }
            if !again {
                let pause = redial.pause().ok_or(End::Unreachable)?;
                wait(pause, &mut stop).await?;
            }
            answer = self.dial(&mut stop).await?;
        }
    }

    /// Requests what follows the last forwarded position. `None` if that failed for now.
    async fn dial(&self, stop: &mut Stop) -> Result<Option<Response>, End> {
        if self.requests.are_used_up() {
            return Err(End::RequestLimit);
        }
        let cursor = self.passing.cursor.borrow().as_ref().map(String::from);
        let mut dial = Box::pin(self.requests.dial(cursor.as_deref())).fuse();
        let answer = futures::select_biased! {
            end = &mut *stop => return Err(end),
            answer = dial => answer,
        };
        match answer {
            // Deleted while nobody was connected to it.
            Ok(answer) if answer.status() == 404 => Err(End::SessionDeleted),
            Ok(answer) if matches!(answer.status(), 401 | 403) => Err(End::TokenRefused),
            Ok(answer) if answer.status() < 400 => Ok(Some(answer)),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    async fn follow(&self, answer: Response, session: &SessionId, stop: &mut Stop) -> Result<Exit, End> {
        let warn = |e: &dyn std::fmt::Display| worker::console_warn!("stream of {session}: {e}");
        if answer.status() != 101 {
            let Ok(page) = http::js_text(&answer).await else { return Ok(Exit::Object) };
            self.passing.pass(&page)?;
            let (mut pause, longest) = LOOK;
            while self.passing.sink.is_full() {
                wait(pause, stop).await?;
                pause = longest.min(pause * 2);
            }
            return Ok(Exit::Page);
        }
        let Some(socket) = socket(answer) else { return Ok(Exit::Object) };
        let left = self.listen(&socket, session, stop).await;
        drop(socket.close::<String>(None, None)); // it may be closed already
        left.unwrap_or_else(|e| {
            warn(&e);
            Ok(Exit::Object)
        })
    }

    async fn listen(
        &self,
        socket: &WebSocket,
        session: &SessionId,
        stop: &mut Stop,
    ) -> worker::Result<Result<Exit, End>> {
        let (leave, mut left) = mpsc::unbounded();
        let passing = self.passing.clone();
        let on_message = {
            let leave = leave.clone();
            move |event: MessageEvent| {
                let Ok(text) = event.data().dyn_into::<JsString>() else { return };
                if let Err(end) = passing.pass(&text) {
                    drop(leave.unbounded_send(Err(end))); // the receiver may be gone
                }
            }
        };
        let on_end = move |_| drop(leave.unbounded_send(Ok(Exit::Object)));
        self.passing.heard.set(clock::millis());
        let _listeners = Listeners::of(socket, on_message, on_end)?;
        socket.accept()?; // after the listeners, or the first frames are missed
        let mut beat = Delay::from(self.heartbeat).fuse();
        loop {
            futures::select_biased! {
                end = &mut *stop => return Ok(Err(end)),
                left = left.next() => return Ok(left.unwrap_or(Ok(Exit::Object))),
                // The timer is not reset by events, so some may have arrived since it was set.
                () = beat => {
                    let silence = Duration::from_millis(clock::millis().saturating_sub(self.passing.heard.get()));
                    let rest = self.heartbeat.saturating_sub(silence);
                    beat = Delay::from(if rest.is_zero() { self.heartbeat } else { rest }).fuse();
                    if rest.is_zero() && let Err(end) = self.passing.sink.heartbeat(session) {
                        return Ok(Err(end));
                    }
                }
            }
        }
    }
}

impl<S: Sink> Forwarder<S> {
    /// Forwards a batch of frames and remembers the position after it. The batch stays in JavaScript: it may be large,
    /// and only its first line is needed here.
    fn pass(&self, batch: &JsString) -> Result<(), End> {
        let Ok(line) = u32::try_from(batch.index_of("\n", 0)) else {
            return if *batch == END { Err(End::SessionDeleted) } else { Ok(()) };
        };
        let frames = batch.substring(line + 1, batch.length());
        if frames.length() > 0 {
            self.sink.frames(&frames)?;
            self.passed_on.set(true);
        }
        self.cursor.replace(Some(batch.substring(0, line)));
        self.heard.set(clock::millis());
        Ok(())
    }
}

/// A socket's listeners, removed when this is dropped.
pub struct Listeners {
    socket: WebSocket,
    on_message: Closure<dyn FnMut(MessageEvent)>,
    on_end: Closure<dyn FnMut(JsValue)>,
}

impl Listeners {
    /// Listens to messages and to the end of the socket.
    pub fn of(
        socket: &WebSocket,
        on_message: impl FnMut(MessageEvent) + 'static,
        on_end: impl FnMut(JsValue) + 'static,
    ) -> worker::Result<Self> {
        let listeners = Self {
            socket: socket.clone(),
            // Unwind safety: a panic leaves nothing half done.
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

/// The socket of a response.
pub fn socket(answer: Response) -> Option<WebSocket> {
    worker::Response::from(answer).websocket()
}

/// Sleeps, unless the stream is to end meanwhile.
async fn wait(pause: Duration, stop: &mut Stop) -> Result<(), End> {
    let mut pause = Delay::from(pause).fuse();
    futures::select_biased! {
        end = &mut *stop => Err(end),
        () = pause => Ok(()),
    }
}

/// Sleeps until a token expires; forever if there is none.
async fn expiry(at: Option<Seconds>) {
    let Some(at) = at else { return std::future::pending().await };
    loop {
        let rest = Duration::from_millis(at.0.saturating_mul(1000).saturating_sub(clock::millis()));
        if rest.is_zero() {
            return;
        }
        Delay::from(rest.min(MAX_TIMER)).await;
    }
}
