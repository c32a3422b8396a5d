//! `GET …/ws`: a client that prefers a WebSocket. The same events as JSON messages, each with the `cursor` after it; events
//! in as messages, each with a `ref` of the client's that the answer repeats. Here, too, the worker holds the client's
//! socket, and the object sleeps.

use futures::channel::oneshot;
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use web_sys::Response;
use worker::wasm_bindgen_futures::spawn_local;
use worker::{ResponseBuilder, WebSocket, WebSocketPair, WebsocketEvent};

use super::bridge::{self, Bridge, Sink};
use super::http::{self, Request, Stamp};
use super::object::Object;
use super::router::internal;
use crate::api::{self, Code, Error, MAX_BODY};
use crate::config::Config;
use crate::session::SessionId;
use crate::sse;

/// Answers the request.
pub async fn socket(object: Object, req: &Request, config: &Config, stamp: &Stamp) -> Result<Response, Error> {
    if req.header("upgrade").is_none_or(|upgrade| !upgrade.eq_ignore_ascii_case("websocket")) {
        return Err(Error::new(Code::InvalidInput, "this route is a WebSocket: send Upgrade: websocket"));
    }
    let cursor = bridge::cursor(req)?;
    let first = object.dial(cursor.as_deref()).await?;
    if first.status() >= 400 {
        return Ok(first);
    }
    let pair = WebSocketPair::new().map_err(internal)?;
    let (alive, gone) = oneshot::channel();
    let mut inbox = Inbox { object: object.clone(), socket: pair.server.clone() };
    inbox.object.about.key = None; // it is the handshake's, and would make every event a repetition of the first
    spawn_local(inbox.run(alive).boxed_local());
    let sink = Messages { socket: pair.server };
    let bridge = Bridge::new(object, sink, cursor, config.heartbeat);
    spawn_local(bridge.run(first, gone.map(drop).boxed_local().fuse()).boxed_local());
    let headers = stamp.headers(&[]).map_err(internal)?;
    let answer = ResponseBuilder::new().with_status(101).with_headers(headers).with_websocket(pair.client);
    Ok(answer.empty().into())
}

/// The bridge's end of the client's socket.
struct Messages {
    socket: WebSocket,
}

impl Sink for Messages {
    fn frames(&self, frames: &str) -> bool {
        sse::read_frames(frames).all(|frame| {
            let data = frame.data.unwrap_or(r#"{"type":"session.cursor"}"#);
            self.socket.send_with_str(api::message(data, frame.id)).is_ok()
        })
    }

    fn heartbeat(&self, session: &SessionId) -> bool {
        let data = json!({"type": "session.heartbeat", "session_id": session, "conversation_id": session});
        self.socket.send_with_str(data.to_string()).is_ok()
    }

    fn end(&self) {
        drop(self.socket.close(Some(1000), Some("the session was deleted")));
    }

    fn is_full(&self) -> bool {
        false // the platform tells nothing of what waits
    }
}

/// The client's messages, one after the other.
struct Inbox {
    object: Object,
    socket: WebSocket,
}

impl Inbox {
    /// Reads until the client goes. `_alive` then tells the bridge.
    async fn run(self, _alive: oneshot::Sender<()>) {
        let Ok(mut events) = self.socket.events() else { return };
        if self.socket.accept().is_err() {
            return;
        }
        while let Some(Ok(WebsocketEvent::Message(message))) = events.next().await {
            let answer = self.answer(&message.text().unwrap_or_default()).await;
            if self.socket.send_with_str(answer.to_string()).is_err() {
                return;
            }
        }
        drop(self.socket.close::<String>(None, None)); // the other half of the client's close
    }

    async fn answer(&self, text: &str) -> Value {
        let mut reference = Value::Null;
        let (status, body) = match self.post(text, &mut reference).await {
            Ok(answer) => answer,
            Err(error) => {
                let reply = error.reply(&self.object.about.request_id);
                (reply.status, reply.body)
            }
        };
        let body: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
        json!({"type": "session.answer", "ref": reference, "status": status, "body": body})
    }

    async fn post(&self, text: &str, reference: &mut Value) -> Result<(u16, String), Error> {
        if text.len() > MAX_BODY {
            return Err(Error::too_large(text.len()));
        }
        let mut event = api::object(text)?;
        *reference = event.remove("ref").unwrap_or_default();
        let answer = self.object.post_event(Value::Object(event).to_string()).await?;
        Ok((answer.status(), http::text(&answer).await?))
    }
}
