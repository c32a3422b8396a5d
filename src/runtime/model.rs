//! Runs one model request: sends it, feeds the answer to the session as it comes, and stops when the session has moved on.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use wasm_bindgen::prelude::*;
use web_sys::ReadableStreamDefaultReader;
use worker::wasm_bindgen_futures::JsFuture;
use worker::{Delay, Fetch, Headers, Method, Request, RequestInit, RequestRedirect, Response, ResponseBody};

use super::driver::Driver;
use super::{ai, clock, http, router};
use crate::config::{Config, Patience};
use crate::json;
use crate::provider::{self, Ask, Play, Prompt, Provider, Script, WireRequest, failure};
use crate::session::{Input, ModelEvent, ModelFailure, Phase, Sample, Seq, Tool, Unreadable};

/// The most of an error answer that is read, in bytes.
const ERROR_BODY: usize = 64 * 1024;

/// What is missing where the platform's own models cannot be asked.
const NO_BINDING: &str = "this deployment has no binding AI; add [ai] binding = \"AI\" to wrangler.toml";

/// How the model will be asked.
enum Way {
    Asked(Ask, Box<dyn provider::Decoder>),
    Scripted(Result<Vec<ModelEvent>, ModelFailure>, Duration),
}

/// Makes the request and sees it through.
pub async fn run(driver: Rc<Driver>, Sample { at }: Sample) {
    let config = match router::config(&driver.env) {
        Ok(config) => config,
        Err(error) => return fail(&driver, at, failure::unconfigured(&error.message)),
    };
    let way = match prepare(&driver, at, &config) {
        Some(Ok(way)) => way,
        None => return,
        Some(Err(e)) => {
            worker::console_error!("the model request could not be built: {e}");
            return fail(&driver, at, failure::unreachable("the transcript could not be read"));
        }
    };
    let result = match way {
        Way::Asked(asked, decoder) => {
            let Patience { first_byte, idle, total } = config.patience;
            let silence = Silence::new(first_byte);
            let mut asking = pin!(ask(&driver, at, &asked, decoder, &silence, idle).fuse());
            let mut overdue = pin!(silence.overdue(idle, total).fuse());
            futures::select_biased! {
                result = asking => result,
                late = overdue => Err(late),
            }
        }
        Way::Scripted(script, pause) => play(&driver, at, script, pause).await,
    };
    if let Err(failed) = result {
        fail(&driver, at, failed);
    }
    driver.request_is_over(at);
}

/// Builds the request from the transcript. `None`: the session has moved on.
fn prepare(driver: &Driver, at: Seq, config: &Config) -> Option<Result<Way, Unreadable>> {
    driver.with_request(at, |live, _| {
        let state = &live.session.state;
        let Phase::Sampling { turn, .. } = &state.phase else { return Err(Unreadable::Missing(at)) };
        let context = driver.store.context()?;
        let agent = &live.info.agent;
        // The newest definition of a tool counts.
        let mut tools: Vec<Tool> = Vec::new();
        for message in turn.joined.iter().rev() {
            add_new(&mut tools, driver.store.message(*message)?.tools);
        }
        let message = driver.store.message(turn.source)?;
        add_new(&mut tools, message.tools);
        add_new(&mut tools, agent.tools.iter().map(|tool| tool.0.clone()));
        let mut sampling = live.info.sampling();
        if let Some(own) = message.settings.and_then(|settings| json::take(settings).ok()) {
            sampling = sampling.with(&own);
        }
        if turn.rounds > 0 {
            sampling = sampling.later();
        }
        let (provider, model) = match config.provider(agent.provider.as_ref(), &turn.head.model) {
            Ok(found) => found,
            Err(why) => return Ok(Way::Scripted(Err(failure::unconfigured(&why)), Duration::ZERO)),
        };
        let prompt = Prompt {
            model,
            instructions: agent.instructions.as_deref(),
            tools: &tools,
            context: &context,
            sampling: &sampling,
        };
        Ok(match provider {
            Provider::Scripted(Play { script, delta_ms }) => {
                let script = Script { lines: script, played: state.requests };
                Way::Scripted(provider::play(script, &prompt), Duration::from_millis(u64::from(*delta_ms)))
            }
            other => match other.ask(&prompt) {
                Some((ask, decoder)) => Way::Asked(ask, decoder),
                None => Way::Scripted(Err(failure::unconfigured("it has no address")), Duration::ZERO),
            },
        })
    })
}

fn add_new(tools: &mut Vec<Tool>, more: impl IntoIterator<Item = Tool>) {
    for tool in more {
        if tools.iter().all(|known| known.name != tool.name) {
            tools.push(tool);
        }
    }
}

/// How long a model has not said anything.
struct Silence {
    since: Cell<u64>,
    limit: Cell<Duration>,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self { since: Cell::new(clock::millis()), limit: Cell::new(limit) }
    }

    /// Something was heard, and the next may take up to `limit`.
    fn broken(&self, limit: Duration) {
        self.since.set(clock::millis());
        self.limit.set(limit);
    }

    /// Waits until it has been too long, or all of it more than `total`. One timer serves all pieces of an answer; limits
    /// that change are noticed after `idle`.
    async fn overdue(&self, idle: Duration, total: Duration) -> ModelFailure {
        let end = Duration::from_millis(clock::millis()).saturating_add(total);
        loop {
            let now = Duration::from_millis(clock::millis());
            let limit = self.limit.get();
            let late = Duration::from_millis(self.since.get()).saturating_add(limit);
            if now >= end {
                return failure::timeout(total.as_secs());
            }
            if now >= late {
                return failure::stalled(limit.as_secs());
            }
            Delay::from(late.min(end).saturating_sub(now).min(idle)).await;
        }
    }
}

async fn ask(
    driver: &Rc<Driver>,
    at: Seq,
    asked: &Ask,
    mut decoder: Box<dyn provider::Decoder>,
    silence: &Silence,
    idle: Duration,
) -> Result<(), ModelFailure> {
    let Some(signal) = driver.with_request(at, |_, request| request.signal()) else { return Ok(()) };
    let unreachable = |e: worker::Error| failure::unreachable(&e.to_string());
    let mut answer = match asked {
        Ask::Http(wire) => {
            let request = request(wire).map_err(unreachable)?;
            Fetch::Request(request).send_with_signal(&signal).await.map_err(unreachable)?
        }
        Ask::Binding(run) => {
            let binding = ai::binding(&driver.env).ok_or_else(|| failure::unconfigured(NO_BINDING))?;
            ai::run(&binding, run).await.map_err(unreachable)?
        }
    };
    let status = answer.status_code();
    if !(200..300).contains(&status) {
        silence.broken(Duration::MAX); // what the error says has a limit of its own
        let header = |name: &str| answer.headers().get(name).ok().flatten();
        let asked_for = failure::retry_after(&header, clock::now());
        let body = error_body(&mut answer, idle).await;
        return Err(failure::status(status, &body, asked_for));
    }
    let mut body = Chunks::of(&answer).ok_or_else(|| failure::unreachable("the answer has no body"))?;
    loop {
        let events = match body.next().await {
            Some(bytes) => decoder.push(&bytes)?,
            None => {
                let events = decoder.finish()?;
                tell(driver, at, events);
                return Ok(());
            }
        };
        if !tell(driver, at, events) {
            return Ok(());
        }
        silence.broken(idle);
    }
}

async fn play(
    driver: &Rc<Driver>,
    at: Seq,
    script: Result<Vec<ModelEvent>, ModelFailure>,
    pause: Duration,
) -> Result<(), ModelFailure> {
    let mut batch = Vec::new();
    for event in script? {
        if matches!(event, ModelEvent::Text { .. }) && !pause.is_zero() {
            if !tell(driver, at, std::mem::take(&mut batch)) {
                return Ok(());
            }
            Delay::from(pause).await;
        }
        batch.push(event);
    }
    tell(driver, at, batch);
    Ok(())
}

/// Tells the session what the model said. Whether it wants to hear more.
fn tell(driver: &Rc<Driver>, at: Seq, events: Vec<ModelEvent>) -> bool {
    if !events.is_empty()
        && let Err(error) = driver.perform(Input::Model { at, events })
    {
        worker::console_warn!("a model's answer was dropped: {}", error.message);
    }
    driver.with_request(at, |_, _| ()).is_some()
}

fn fail(driver: &Rc<Driver>, at: Seq, failure: ModelFailure) {
    if driver.with_request(at, |_, _| ()).is_none() {
        return;
    }
    worker::console_warn!("model request failed: {}: {}", failure.failure.code, failure.failure.message);
    if let Err(error) = driver.perform(Input::ModelFailed { at, failure }) {
        worker::console_error!("a model's failure was dropped: {}", error.message);
    }
}

fn request(wire: &WireRequest) -> worker::Result<Request> {
    let headers = Headers::new();
    for (name, value) in &wire.headers {
        headers.set(name, value)?;
    }
    let mut init = RequestInit::new();
    // A redirect would take the key along.
    init.with_redirect(RequestRedirect::Manual);
    init.with_method(Method::Post)
        .with_headers(headers)
        .with_body(Some(js_sys::Uint8Array::from(wire.body.as_bytes()).into()));
    Request::new_with_init(&wire.url, &init)
}

/// An answer's body. Given up, it is cancelled; read to its end, it needs nothing more.
struct Chunks {
    reader: ReadableStreamDefaultReader,
    ended: bool,
}

impl Chunks {
    fn of(answer: &Response) -> Option<Self> {
        let ResponseBody::Stream(stream) = answer.body() else { return None };
        Some(Self { reader: stream.get_reader().unchecked_into(), ended: false })
    }

    /// The next piece. A connection that breaks ends the body: it is judged by what came before.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let read = JsFuture::from(self.reader.read()).await.ok().map(JsCast::unchecked_into::<Chunk>);
        let bytes = read.and_then(|read| read.value());
        self.ended = bytes.is_none();
        bytes.map(|bytes| bytes.to_vec())
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        if !self.ended {
            http::ignore(&self.reader.cancel());
        }
    }
}

#[wasm_bindgen]
extern "C" {
    /// What a read gives.
    type Chunk;

    /// None at the end.
    #[wasm_bindgen(method, getter)]
    fn value(this: &Chunk) -> Option<js_sys::Uint8Array>;
}

async fn error_body(answer: &mut Response, limit: Duration) -> String {
    let Ok(mut stream) = answer.stream() else { return String::new() };
    let mut bytes = Vec::new();
    let mut late = Delay::from(limit).fuse();
    loop {
        let chunk = futures::select_biased! {
            chunk = stream.next().fuse() => chunk,
            () = late => None,
        };
        match chunk {
            Some(Ok(chunk)) if bytes.len() <= ERROR_BODY => bytes.extend_from_slice(&chunk),
            Some(_) | None => return String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}
