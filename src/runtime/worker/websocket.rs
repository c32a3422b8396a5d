//! `GET …/ws`: the stream over a WebSocket. Events out as JSON messages, each with the `cursor` after it; events in as
//! messages, each with a `ref` that its reply repeats. Here, too, the worker holds the client's socket, and the object
//! sleeps.
//!
//! The platform neither exposes how much is buffered for a client nor applies backpressure to its messages, so both are
//! counted here: data sent until the client acknowledges it, and messages received until they are replied to.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures::channel::{mpsc, oneshot};
use futures::{FutureExt, StreamExt};
use js_sys::JsString;
use serde_json::{Value, json};
use wasm_bindgen::JsCast;
use web_sys::{MessageEvent, Response};
use worker::wasm_bindgen_futures::spawn_local;
use worker::{ResponseBuilder, WebSocket, WebSocketPair};

use super::bridge::{self, Bridge, Listeners, Requests, Sink};
use crate::api::{self, Code, End, Error, MAX_ACK, MAX_BODY, Window};
use crate::config::Config;
use crate::runtime::platform::fault::internal;
use crate::runtime::platform::http::{self, Request, ResponseContext};
use crate::runtime::platform::{clock, js};
use crate::runtime::wire::Object;
use crate::session::{Cursor, SessionId};
use crate::sse;

/// Characters of a client's messages that may wait for a reply, besides the message in progress.
const INBOX: usize = MAX_BODY;
/// The least that a message counts.
const MESSAGE: usize = 256;

pub async fn socket(
    mut object: Object,
    req: &Request,
    config: &Config,
    context: &ResponseContext,
) -> Result<Response, Error> {
    if req.header("upgrade").is_none_or(|upgrade| !upgrade.eq_ignore_ascii_case("websocket")) {
        return Err(Error::new(Code::InvalidInput, "this route is a WebSocket; send Upgrade: websocket"));
    }
    let cursor = bridge::cursor(req)?;
    object.about.key = None; // it belongs to the handshake, and would make every event a retry of the first
    let session = object.about.session.clone().ok_or_else(|| internal("a socket without a session"))?;
    let requests = Requests::to(object);
    let first = requests.dial(cursor.as_deref()).await?;
    if first.status() >= 400 {
        return Ok(first);
    }
    let pair = WebSocketPair::new().map_err(internal)?;
    let client =
        Rc::new(Client { socket: pair.server, session, window: RefCell::default(), ended: Cell::default() });
    let (stop, stopped) = mpsc::unbounded();
    let inbox = Inbox::open(requests.clone(), client.clone(), stop).map_err(internal)?;
    let (alive, ended) = oneshot::channel();
    spawn_local(inbox.run(ended).boxed_local());
    let bridge = Bridge::new(requests, Messages { client, _alive: alive }, cursor.as_deref(), config.heartbeat);
    let stopped = stopped.into_future().map(|(end, _)| end.unwrap_or(End::ClientGone));
    spawn_local(bridge.run(first, stopped.boxed_local().fuse()).boxed_local());
    let headers = context.headers(&[]).map_err(internal)?;
    let answer = ResponseBuilder::new().with_status(101).with_headers(headers).with_websocket(pair.client);
    Ok(answer.empty().into())
}

struct Client {
    socket: WebSocket,
    session: SessionId,
    /// The data the client has not acknowledged.
    window: RefCell<Window>,
    ended: Cell<bool>,
}

impl Client {
    /// Sends a message; `cursor` is the position after it, if it is an event.
    fn send(&self, message: &str, cursor: Option<&str>) -> Result<(), End> {
        let mut window = self.window.borrow_mut();
        if window.is_over() {
            return Err(End::TooSlow);
        }
        self.socket.send_with_str(message).map_err(|_| End::ClientGone)?;
        window.sent(message.len(), cursor.and_then(|cursor| Cursor::parse(cursor, &self.session).ok()));
        Ok(())
    }

    fn close(&self, end: End) {
        if !self.ended.replace(true) {
            let (code, reason) = end.close();
            drop(self.socket.close(Some(code), Some(reason))); // the client may have closed it
        }
    }
}

/// The bridge's end of the client's socket.
struct Messages {
    client: Rc<Client>,
    /// Ends the inbox when this is dropped.
    _alive: oneshot::Sender<()>,
}

impl Sink for Messages {
    fn frames(&self, frames: &JsString) -> Result<(), End> {
        let text = String::from_utf8(js::string(frames)).unwrap_or_default();
        sse::read_frames(&text).try_for_each(|frame| {
            let data = frame.data.unwrap_or(r#"{"type":"session.cursor"}"#);
            self.client.send(&api::message(data, frame.id), frame.id)
        })
    }

    fn heartbeat(&self, session: &SessionId) -> Result<(), End> {
        let data = json!({"type": "session.heartbeat", "session_id": session, "conversation_id": session});
        self.client.send(&data.to_string(), None)
    }

    fn is_full(&self) -> bool {
        self.client.window.borrow_mut().is_full(clock::millis())
    }

    fn end(&self, end: End) {
        self.client.close(end);
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.client.close(End::Unreachable);
    }
}

/// The client's messages, replied to one after the other.
struct Inbox {
    requests: Requests,
    client: Rc<Client>,
    messages: mpsc::UnboundedReceiver<Result<JsString, Error>>,
    /// The size of `messages`.
    waiting: Rc<Cell<usize>>,
    stop: mpsc::UnboundedSender<End>,
    _listeners: Listeners,
}

impl Inbox {
    /// Listens to the client's messages.
    fn open(requests: Requests, client: Rc<Client>, stop: mpsc::UnboundedSender<End>) -> worker::Result<Self> {
        let (put, messages) = mpsc::unbounded();
        let waiting: Rc<Cell<usize>> = Rc::default();
        // If the send fails, the receiver is gone.
        let on_message = {
            let (client, waiting, stop) = (client.clone(), waiting.clone(), stop.clone());
            move |event: MessageEvent| {
                let Some(message) = client.read(&event) else { return };
                waiting.set(waiting.get().saturating_add(size(&message)));
                if waiting.get() > INBOX {
                    drop(stop.unbounded_send(End::Flooded));
                } else {
                    drop(put.unbounded_send(message));
                }
            }
        };
        let on_end = {
            let stop = stop.clone();
            move |_| drop(stop.unbounded_send(End::ClientGone))
        };
        let listeners = Listeners::of(&client.socket, on_message, on_end)?;
        client.socket.accept()?;
        Ok(Self { requests, client, messages, waiting, stop, _listeners: listeners })
    }

    /// Replies to messages until the stream ends.
    async fn run(mut self, mut ended: oneshot::Receiver<()>) {
        loop {
            let message = futures::select_biased! {
                _ = ended => return,
                message = self.messages.next() => message,
            };
            let Some(message) = message else { return };
            self.waiting.set(self.waiting.get().saturating_sub(size(&message)));
            let (answer, end) = self.answer(message).await;
            if let Some(end) = self.client.send(&answer.to_string(), None).err().or(end) {
                drop(self.stop.unbounded_send(end));
                return;
            }
        }
    }

    /// The reply, and whether it is the last one.
    async fn answer(&self, message: Result<JsString, Error>) -> (Value, Option<End>) {
        let mut reference = Value::Null;
        let event = message.and_then(|message| read(&message, &mut reference));
        let (mut end, sent) = match event {
            Ok(event) => {
                let sent = self.post(event).await;
                (sent.is_err().then_some(End::Unreachable), sent)
            }
            Err(refused) => (None, Err(refused)),
        };
        if self.requests.are_used_up() {
            end = Some(End::RequestLimit);
        }
        let (status, body) = sent.unwrap_or_else(|error| {
            let reply = error.reply(self.requests.request_id());
            (reply.status, reply.body)
        });
        let body: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
        (json!({"type": "session.answer", "ref": reference, "status": status, "body": body}), end)
    }

    async fn post(&self, event: String) -> Result<(u16, String), Error> {
        let answer = self.requests.post_event(event).await?;
        Ok((answer.status(), http::text(&answer).await?))
    }
}

impl Client {
    /// Receives a message. An acknowledgement takes effect at once, whatever waits before it, and has no reply.
    fn read(&self, event: &MessageEvent) -> Option<Result<JsString, Error>> {
        let Ok(text) = event.data().dyn_into::<JsString>() else {
            return Some(Err(Error::new(
                Code::InvalidInput,
                "binary messages are not supported: send JSON as text",
            )));
        };
        let length = text.length() as usize;
        if length > MAX_BODY {
            return Some(Err(Error::too_large(length)));
        }
        if length > MAX_ACK {
            return Some(Ok(text));
        }
        match api::ack(&String::from(&text), &self.session) {
            None => Some(Ok(text)),
            Some(Ok(cursor)) if self.window.borrow_mut().acknowledge(cursor) => None,
            Some(Ok(_)) => Some(Err(Error::invalid("cursor", "this cursor was not sent over this connection"))),
            Some(Err(error)) => Some(Err(error)),
        }
    }
}

/// What a message counts while it waits.
fn size(message: &Result<JsString, Error>) -> usize {
    message.as_ref().map_or(0, |text| text.length() as usize).max(MESSAGE)
}

/// The event in a message, without its `ref`.
fn read(message: &JsString, reference: &mut Value) -> Result<String, Error> {
    let text = String::from_utf8(js::string(message)).map_err(internal)?;
    if text.len() > MAX_BODY {
        return Err(Error::too_large(text.len()));
    }
    let mut event = api::object(&text)?;
    *reference = event.remove("ref").unwrap_or_default();
    Ok(Value::Object(event).to_string())
}
