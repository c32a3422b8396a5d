//! The bridge: the worker holds the client's stream, not the session's object, which can therefore sleep under a
//! listening client.
//!
//! The object's frames come over a hibernatable socket, ready-made: a line with the position, then text of the stream.
//! When the object goes away the worker dials again with the last position that it passed on, and the client notices
//! nothing. What was missed comes in pages by plain requests; the socket carries the live tail only.

use std::time::Duration;

use futures::future::{Fuse, LocalBoxFuture};
use futures::{FutureExt, StreamExt};
use web_sys::Response;
use worker::{Delay, WebSocket, WebsocketEvent};

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
    pub object: Object,
    /// The client.
    pub sink: S,
    /// The position after what was passed on.
    pub cursor: Option<String>,
    /// Silence after which a heartbeat is sent.
    pub heartbeat: Duration,
}

/// Why a socket was left.
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

impl<S: Sink> Bridge<S> {
    /// Follows the session until the client or the session goes. `first` is the answer to the first dial.
    pub async fn run(mut self, first: Response, mut gone: Gone) {
        let session = SessionId(self.object.about.session.clone());
        if !self.sink.heartbeat(&session) {
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
                Left::Session => return self.sink.end(),
                Left::Page => {}
                Left::Object => {
                    failures += 1;
                    let pause = Delay::from(Duration::from_millis(25 << failures));
                    if failures > DIALS || !stays(pause, &mut gone).await {
                        return;
                    }
                }
            }
            match self.object.dial(self.cursor.as_deref()).await {
                // Deleted while nobody was connected to it.
                Ok(again) if again.status() == 404 => return self.sink.end(),
                // The token has expired, or was revoked.
                Ok(again) if matches!(again.status(), 401 | 403) => return,
                Ok(again) if again.status() < 400 => answer = Some(again),
                Ok(_) | Err(_) => {}
            }
        }
    }

    async fn follow(&mut self, answer: Response, session: &SessionId, gone: &mut Gone) -> worker::Result<Left> {
        if answer.status() != 101 {
            let page = http::text(&answer).await.map_err(|error| error.message)?;
            let mut there = self.pass(&page);
            while there && self.sink.is_full() {
                there = stays(Delay::from(Duration::from_millis(10)), gone).await;
            }
            return Ok(if there { Left::Page } else { Left::Client });
        }
        let Some(socket) = socket(answer) else { return Ok(Left::Object) };
        let left = self.listen(&socket, session, gone).await?;
        drop(socket.close::<String>(None, None)); // it may be closed already
        Ok(left)
    }

    async fn listen(&mut self, socket: &WebSocket, session: &SessionId, gone: &mut Gone) -> worker::Result<Left> {
        let mut events = socket.events()?;
        socket.accept()?; // after events(), or the first frames are missed
        let mut beat = Delay::from(self.heartbeat).fuse();
        let mut heard = clock::millis();
        loop {
            let there = futures::select_biased! {
                _ = &mut *gone => return Ok(Left::Client),
                event = events.next().fuse() => {
                    let Some(Ok(WebsocketEvent::Message(message))) = event else { return Ok(Left::Object) };
                    let text = message.text().unwrap_or_default();
                    if text == END {
                        return Ok(Left::Session);
                    }
                    heard = clock::millis();
                    self.pass(&text)
                }
                // The timer is not set anew with every event, so something may have been heard since it was.
                () = beat => {
                    let silence = Duration::from_millis(clock::millis().saturating_sub(heard));
                    let left = self.heartbeat.saturating_sub(silence);
                    beat = Delay::from(if left.is_zero() { self.heartbeat } else { left }).fuse();
                    !left.is_zero() || self.sink.heartbeat(session)
                }
            };
            if !there {
                return Ok(Left::Client);
            }
        }
    }

    /// Passes on a batch of frames and remembers the position after it.
    fn pass(&mut self, batch: &str) -> bool {
        let Some((cursor, frames)) = batch.split_once('\n') else { return true };
        self.cursor = Some(cursor.to_string());
        frames.is_empty() || self.sink.frames(frames)
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
