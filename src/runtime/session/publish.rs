//! Sends subscribers everything that is appended, and open text as it grows.
//!
//! Always true: what a subscriber was sent is durable or part of an open item, and all subscribers get the same text.

use std::rc::Rc;
use std::time::Duration;

use wasm_bindgen::prelude::*;
use worker::{Delay, WebSocket};

use super::driver::Driver;
use super::live::Live;
use crate::api::{self, Event};
use crate::config::LogLevel;
use crate::runtime::platform::{clock, settings};
use crate::session::{Cursor, Effects, Entry, Outcome, Record, ResponseId, Session, SessionId, Unreadable};
use crate::sse;

/// Deltas smaller than this are coalesced, except for the first of an item.
const COALESCE: Duration = Duration::from_millis(25);
/// Text a crash may lose: a checkpoint is due after this much of it, or after an eighth of the current size. It
/// contains all the text, so a fixed distance would write a long text thousands of times…
const CHECKPOINT_BYTES: usize = 16 * 1024;
/// … or after this long, in milliseconds.
const CHECKPOINT_MILLIS: u64 = 2000;

#[wasm_bindgen]
extern "C" {
    /// A subscriber's socket. It accepts a text that crossed to JavaScript once for all of them.
    type Subscriber;

    #[wasm_bindgen(method, catch)]
    fn send(this: &Subscriber, text: &js_sys::JsString) -> Result<(), JsValue>;
}

impl Driver {
    /// Writes and publishes. One synchronous block.
    pub(super) fn commit(self: &Rc<Self>, live: &mut Live, effects: &Effects) -> Result<(), Unreadable> {
        if effects.append.is_empty() {
            let recent = clock::millis().saturating_sub(live.published.at) < COALESCE.as_millis() as u64;
            if recent && !live.session.has_unseen_item() {
                self.flush_soon(live);
                return Ok(());
            }
        } else {
            self.store.append(&effects.append, &live.session.state)?;
        }
        self.publish(live, &effects.append);
        for record in &effects.append {
            if let Entry::Ended { turn, outcome, .. } = &record.entry {
                let written = self.store.sql.take_written();
                if settings::config(&self.env).map_or(LogLevel::Requests, |config| config.log) >= LogLevel::Turns {
                    log_turn(&live.session.id, &turn.response_id, outcome, written);
                }
            }
        }
        Ok(())
    }

    /// Sends what there is to show to all subscribers, encoded once. Appended records are durable by now, so a failure
    /// here must not undo them: the subscribers are disconnected instead, and find them in the log when they resume.
    fn publish(&self, live: &mut Live, appended: &[Record]) {
        let events = match api::publish(&mut live.session, appended, &self.store) {
            Ok(events) => events,
            Err(e) => {
                worker::console_error!("events could not be rendered: {e}");
                live.session.skip();
                self.close_sockets("resume from the last cursor");
                return;
            }
        };
        if events.is_empty() {
            return;
        }
        if let Err(e) = self.save_open(live, &events) {
            worker::console_error!("the open items could not be checkpointed: {e}"); // a crash would lose more of them
        }
        live.published.at = clock::millis();
        let text = batch(&live.session, live.session.cursor(), &events).into();
        for socket in self.state.get_websockets() {
            // A send fails only if the socket is about to be closed anyway.
            drop(socket.as_ref().unchecked_ref::<Subscriber>().send(&text));
        }
    }

    /// Disconnects the subscribers. The worker redials, for those still allowed, from the cursor each of them has.
    pub fn close_sockets(&self, why: &str) {
        for socket in self.state.get_websockets() {
            drop(socket.close(Some(1012), Some(why)));
        }
    }

    /// Coalesces deltas that arrive faster than readers can tell apart.
    fn flush_soon(self: &Rc<Self>, live: &mut Live) {
        if std::mem::replace(&mut live.published.flush_is_due, true) {
            return;
        }
        let driver = self.clone();
        self.later(async move {
            Delay::from(COALESCE).await;
            driver.flush();
        });
    }

    /// Sends coalesced deltas. Also called before anybody reads the stream: a replay ends where the live events
    /// continue.
    pub fn flush(&self) {
        let Some(mut live) = self.live.take() else { return };
        if std::mem::take(&mut live.published.flush_is_due) {
            self.publish(&mut live, &[]);
        }
        self.live.replace(Some(live));
    }

    /// Writes a checkpoint of the open items when enough text has arrived since the last one.
    fn save_open(&self, live: &mut Live, events: &[Event]) -> Result<(), Unreadable> {
        if live.session.open_items().is_empty() {
            live.published.unsaved = 0;
            live.published.saved_at = clock::millis();
            return Ok(());
        }
        live.published.unsaved += events.iter().map(|event| event.data.len()).sum::<usize>();
        let now = clock::millis();
        let distance = CHECKPOINT_BYTES.max(live.session.answered() / 8);
        if live.published.unsaved >= distance || now.saturating_sub(live.published.saved_at) >= CHECKPOINT_MILLIS {
            self.store.checkpoint(&live.session.state, live.session.open_items(), clock::now())?;
            live.published.unsaved = 0;
            live.published.saved_at = now;
        }
        Ok(())
    }

    /// Attaches a subscriber and sends it its first frames.
    pub fn attach(&self, socket: &WebSocket, first: &str) -> worker::Result<()> {
        self.state.accept_web_socket(socket);
        socket.send_with_str(first)
    }
}

/// Logs one line per turn, without content.
fn log_turn(session: &SessionId, turn: &ResponseId, outcome: &Outcome, rows_written: u32) {
    let code = match outcome {
        Outcome::Completed | Outcome::Cancelled => None,
        Outcome::Incomplete(reason) => Some(reason.as_str()),
        Outcome::Failed(failure) => Some(failure.code.as_str()),
    };
    let line = serde_json::json!({"event": "turn", "session": session, "response": turn, "status": outcome.status(),
        "code": code, "rows_written": rows_written});
    worker::console_log!("{line}");
}

/// Frames for subscribers: encoded once for all of them.
pub fn batch(session: &Session, cursor: Cursor, events: &[Event]) -> String {
    let mut text = cursor.text(&session.id);
    text.push('\n');
    for event in events {
        let id = event.cursor.map(|cursor| cursor.text(&session.id));
        sse::frame(&mut text, event.kind, &event.data, id.as_deref());
    }
    text
}
