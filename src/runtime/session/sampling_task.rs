//! Runs one model request: sends it, feeds the response to the session as it arrives, and stops when the session has
//! moved on.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Fuse, FusedFuture};
use serde_json::{Map, Value, json};
use wasm_bindgen::prelude::*;
use web_sys::Response;
use worker::wasm_bindgen_futures::JsFuture;
use worker::{AbortSignal, Delay};

use super::driver::Driver;
use super::request::Handle;
use crate::config::{Config, Timeouts};
use crate::json;
use crate::provider::failure::{self, Asked};
use crate::provider::{self, ModelCall, Prompt, Provider, Script, ScriptedModel, WireRequest, compat};
use crate::runtime::platform::js::{self, Chunks};
use crate::runtime::platform::{ai, clock, settings};
use crate::runtime::storage::pages::{CONTEXT, NoContext};
use crate::session::{
    Failure, Input, ModelEvent, ModelFailure, Phase, Remedy, Sample, Seq, Tool, Unreadable, Withheld,
};

/// The most of an error response to read, in bytes.
const ERROR_BODY: usize = 64 * 1024;

/// How long, and for how many more bytes, a complete response is read. A body read to its end leaves a reusable
/// connection; some hosts never end it.
const REST: (Duration, usize) = (Duration::from_secs(1), 64 * 1024);

/// How long to wait for a response's last mark, or its usage, after the model's output is complete. Some hosts send
/// neither.
const SETTLE: Duration = Duration::from_secs(5);

/// The most bytes of one response to read, whatever they contain: sixteen times what the session accepts.
const ANSWER_BODY: usize = 64 * 1024 * 1024;

/// The error where the platform's own models are not available.
const NO_BINDING: &str = "this deployment has no binding AI; add [ai] binding = \"AI\" to wrangler.toml";

/// How to make the request.
enum Plan {
    Ask(Box<Request>),
    Scripted(Result<Vec<ModelEvent>, ModelFailure>, Duration),
}

/// A request, and what its outcome is judged by.
struct Request {
    call: ModelCall,
    decoder: Box<dyn provider::Decoder>,
    asked: Asked,
    /// How it was changed by what the session has learned, for people.
    notes: Vec<String>,
    /// The most tokens that the host takes, if it is known.
    window: Option<u64>,
}

/// Makes the request and runs it to its end.
pub async fn run(driver: Rc<Driver>, Sample { at }: Sample) {
    let config = match settings::config(&driver.env) {
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
    let Timeouts { first_byte, idle, total } = config.timeouts;
    let silence = Silence::new(match way {
        Plan::Ask(_) => first_byte,
        Plan::Scripted(..) => Duration::MAX,
    });
    let answered = async {
        match way {
            Plan::Ask(request) => ask(&driver, at, *request, &silence, idle).await,
            Plan::Scripted(script, pause) => play(&driver, at, script, pause).await,
        }
    };
    let result = {
        let mut answered = pin!(answered.fuse());
        let mut overdue = pin!(silence.overdue(idle, total).fuse());
        futures::select_biased! {
            result = answered => result,
            late = overdue => Err(late),
        }
    };
    if let Err(failed) = result {
        fail(&driver, at, failed);
    }
    driver.request_is_over(at);
}

/// Builds the request from the transcript. `None`: the session has moved on.
fn prepare(driver: &Driver, at: Seq, config: &Config) -> Option<Result<Plan, Unreadable>> {
    driver.with_request(at, |live, _| {
        let state = &live.session.state;
        let Phase::Sampling { turn, .. } = &state.phase else { return Err(Unreadable::Missing(at)) };
        let context = match driver.store.context() {
            Ok(context) => context,
            Err(NoContext::Unreadable(e)) => return Err(e),
            Err(NoContext::TooLarge(size)) => return Ok(Plan::Scripted(Err(too_long(size)), Duration::ZERO)),
        };
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
        if turn.model_calls > 0 {
            sampling = sampling.later();
        }
        if let Err(error) = config.check_policy(agent.provider.as_ref()) {
            return Ok(Plan::Scripted(Err(failure::unconfigured(&error.message)), Duration::ZERO));
        }
        let (provider, model) = match config.provider(agent.provider.as_ref(), &turn.head.model) {
            Ok(found) => found,
            Err(why) => return Ok(Plan::Scripted(Err(failure::unconfigured(&why)), Duration::ZERO)),
        };
        let origin = provider.origin().unwrap_or_default();
        let learned = state.lessons.iter().filter(|lesson| lesson.origin == origin && lesson.model == model);
        let lessons: Vec<&str> = learned.map(|lesson| lesson.change.as_str()).collect();
        let withheld: Vec<Withheld> = state.withheld().copied().collect();
        let prompt = Prompt {
            model,
            instructions: agent.instructions.as_deref(),
            tools: &tools,
            context: &context,
            sampling: &sampling,
            withheld: &withheld,
            lessons: &lessons,
        };
        Ok(match provider {
            Provider::Scripted(ScriptedModel { script, delta_ms }) => {
                let script = Script { lines: script, played: state.requests };
                Plan::Scripted(provider::play(script, &prompt), Duration::from_millis(u64::from(*delta_ms)))
            }
            other => match other.ask(&prompt) {
                Some((mut call, decoder)) => {
                    let (learnable, private) = match &mut call {
                        ModelCall::Http(wire) => (std::mem::take(&mut wire.learnable), wire.private),
                        ModelCall::Binding(_) => (Vec::new(), false),
                    };
                    let media = prompt.has_media(state.taken);
                    Plan::Ask(Box::new(Request {
                        call,
                        decoder,
                        asked: Asked { origin, model: model.to_string(), learnable, private, media },
                        notes: lessons.iter().map(|change| compat::described(change)).collect(),
                        window: other.host().and_then(|host| host.context_window),
                    }))
                }
                None => Plan::Scripted(Err(failure::unconfigured("it has no address")), Duration::ZERO),
            },
        })
    })
}

/// A transcript too large for any model. It only grows, so a retry would not help.
fn too_long(size: usize) -> ModelFailure {
    let message = format!(
        "the transcript has {size} bytes, the limit is {CONTEXT}; start a new session, or fork this one from an earlier response"
    );
    let failure = Failure { code: "context_length_exceeded".into(), message };
    ModelFailure { failure, retryable: false, retry_after_seconds: None, remedy: Remedy::None }
}

fn add_new(tools: &mut Vec<Tool>, more: impl IntoIterator<Item = Tool>) {
    for tool in more {
        if tools.iter().all(|known| known.name != tool.name) {
            tools.push(tool);
        }
    }
}

/// The idle timer of a model response.
struct Silence {
    since: Cell<u64>,
    limit: Cell<Duration>,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self { since: Cell::new(clock::millis()), limit: Cell::new(limit) }
    }

    /// Restarts the timer: the next chunk may take up to `limit`.
    fn broken(&self, limit: Duration) {
        self.since.set(clock::millis());
        self.limit.set(limit);
    }

    /// Waits until the response has been idle too long, or has taken more than `total`. One timer serves all its
    /// chunks; a changed limit is noticed after `idle`.
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
    request: Request,
    silence: &Silence,
    idle: Duration,
) -> Result<(), ModelFailure> {
    let Request { call, decoder, asked, notes, window } = request;
    let answered = exchange(driver, at, call, decoder, &asked, silence, idle).await;
    answered.map_err(|failed| failure::placed(failed, &asked).noted(&notes, window))
}

async fn exchange(
    driver: &Rc<Driver>,
    at: Seq,
    call: ModelCall,
    mut decoder: Box<dyn provider::Decoder>,
    asked: &Asked,
    silence: &Silence,
    idle: Duration,
) -> Result<(), ModelFailure> {
    let Some(handle) = driver.with_request(at, |_, request| request.handle()).flatten() else { return Ok(()) };
    let unreachable = |e: JsValue| failure::unreachable(&js::message(&e));
    let answer = match call {
        ModelCall::Http(wire) => send(wire, &handle.signal).await.map_err(unreachable)?,
        ModelCall::Binding(run) => {
            let binding = ai::binding(&driver.env).ok_or_else(|| failure::unconfigured(NO_BINDING))?;
            ai::run(&binding, run).await.map_err(unreachable)?
        }
    };
    let status = answer.status();
    if !(200..300).contains(&status) {
        silence.broken(Duration::MAX); // reading the error has a limit of its own
        let headers = answer.headers();
        let header = |name: &str| headers.get(name).ok().flatten();
        let asked_for = failure::retry_after(&header, clock::now());
        let body = error_body(&answer, idle).await;
        return Err(failure::status(status, &body, asked_for, asked));
    }
    let body = answer.body().ok_or_else(|| failure::unreachable("the response has no body"))?;
    let mut body = Chunks::of(&body);
    let mut events = vec![ModelEvent::Origin(asked.origin.clone())];
    let (mut size, mut settled) = (0_usize, Fuse::terminated());
    loop {
        let chunk = futures::select_biased! {
            chunk = body.next().fuse() => chunk,
            () = settled => Err(JsValue::NULL),
        };
        let bytes = match chunk {
            Ok(Some(bytes)) => bytes,
            // A broken connection ends the body: the decoder judges what came before.
            end => {
                if end.is_ok() {
                    handle.ended();
                }
                let finished = decoder.finish(&mut events);
                feed(driver, at, events);
                return finished;
            }
        };
        size = size.saturating_add(bytes.len());
        if size > ANSWER_BODY {
            return Err(failure::too_much(ANSWER_BODY));
        }
        let pushed = decoder.push(&bytes, &mut events);
        // The host is told once, with the first output.
        let wants_more = events.len() == 1 && events.first().is_some_and(is_origin)
            || feed(driver, at, std::mem::take(&mut events));
        pushed?;
        if !wants_more {
            if !handle.signal.aborted() {
                rest(body, &handle).await;
            }
            return Ok(());
        }
        if !decoder.is_whole() {
            silence.broken(idle);
        } else if settled.is_terminated() {
            settled = Delay::from(SETTLE.min(idle)).fuse();
            silence.broken(Duration::MAX);
        }
    }
}

fn is_origin(event: &ModelEvent) -> bool {
    matches!(event, ModelEvent::Origin(_))
}

/// Reads the rest of a complete response.
async fn rest(mut body: Chunks, handle: &Handle) {
    let (limit, most) = REST;
    let mut size = 0;
    let mut late = Delay::from(limit).fuse();
    while size <= most {
        let chunk = futures::select_biased! {
            chunk = body.next().fuse() => chunk,
            () = late => return,
        };
        match chunk {
            Ok(Some(chunk)) => size += chunk.len(),
            Ok(None) => return handle.ended(),
            Err(_) => return,
        }
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
            if !feed(driver, at, std::mem::take(&mut batch)) {
                return Ok(());
            }
            Delay::from(pause).await;
        }
        batch.push(event);
    }
    feed(driver, at, batch);
    Ok(())
}

/// Feeds model output to the session. Returns whether it wants more.
fn feed(driver: &Rc<Driver>, at: Seq, events: Vec<ModelEvent>) -> bool {
    if !events.is_empty()
        && let Err(error) = driver.perform(Input::Model { at, events })
    {
        worker::console_warn!("model output could not be applied: {}", error.message);
    }
    driver.with_request(at, |_, _| ()).is_some()
}

fn fail(driver: &Rc<Driver>, at: Seq, failure: ModelFailure) {
    if driver.with_request(at, |_, _| ()).is_none() {
        return;
    }
    worker::console_warn!("model request failed: {}: {}", failure.failure.code, failure.failure.message);
    if let Err(error) = driver.perform(Input::ModelFailed { at, failure }) {
        worker::console_error!("a model failure could not be applied: {}", error.message);
    }
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch)]
    fn fetch(url: &str, init: &JsValue) -> Result<js_sys::Promise, JsValue>;
}

/// Sends a request. `worker` would build a whole request first, which the platform copies once more.
async fn send(wire: WireRequest, signal: &AbortSignal) -> Result<Response, JsValue> {
    let headers: Map<String, Value> =
        wire.headers.iter().map(|(name, value)| (name.to_string(), value.as_str().into())).collect();
    // A redirect would take the key along.
    let init = js::object(&json!({"method": "POST", "headers": headers, "redirect": "manual"}))?;
    js_sys::Reflect::set(&init, &"body".into(), &js_sys::Uint8Array::from(wire.body.as_bytes()))?;
    js_sys::Reflect::set(&init, &"signal".into(), signal)?;
    let sent = fetch(&wire.url, &init)?;
    drop(wire); // the platform has a copy, and the model may think for long
    JsFuture::from(sent).await.map(JsCast::unchecked_into)
}

async fn error_body(answer: &Response, limit: Duration) -> String {
    let Some(stream) = answer.body() else { return String::new() };
    let mut chunks = Chunks::of(&stream);
    let mut bytes = Vec::new();
    let mut late = Delay::from(limit).fuse();
    loop {
        let chunk = futures::select_biased! {
            chunk = chunks.next().fuse() => chunk,
            () = late => Ok(None),
        };
        match chunk {
            Ok(Some(chunk)) if bytes.len() <= ERROR_BODY => bytes.extend_from_slice(&chunk),
            _ => return String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}
