//! The laws, over random inputs with random crashes. `Rig::step` checks those that hold after every single step.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
pub enum Op {
    Say { tools: bool, on_busy: OnBusy, content: u8 },
    Give { which: usize, again: bool, is_error: bool, output: u8 },
    Cancel(usize),
    Withdraw(usize),
    Interrupt,
    Stop,
    Alarm,
    Wait(u64),
    Model(Vec<Speech>),
    Fail { retryable: bool, remedy: u8 },
    Save,
    Gather(bool),
    LoseWrite,
    LoseEvents,
    Crash,
}

/// What a model may say; ill-ordered on purpose.
#[derive(Clone, Debug)]
pub enum Speech {
    Message,
    Reasoning,
    Call { id: usize, name: usize },
    Origin(usize),
    Text(PartKind, bool, String),
    Close,
    Finish,
    Limit,
}

/// A picture of nothing.
const PICTURE: &str = "data:image/png;base64,AAAA";
/// Ids of calls as models and hosts write them. Those at odd places are repeated until they are long.
const IDS: [&str; 8] = ["c0", "c1", "", "call_PTLP8xhu", "functions.look:0", "c1 é", "abcDEF123", " "];
/// Names of tools that nobody offers.
const NAMES: [&str; 6] =
    ["other", "", "functions.look:0", "look\" path=\"a", "look<|channel|>commentary", "großé"];
/// The hosts that a session's answers come from.
const ORIGINS: [&str; 3] =
    ["chat https://model.test", "responses https://model.test", "anthropic https://model.test"];

fn speech() -> impl Strategy<Value = Speech> {
    let kind = prop_oneof![Just(PartKind::Text), Just(PartKind::Refusal), Just(PartKind::Summary)];
    prop_oneof![
        3 => Just(Speech::Message),
        1 => Just(Speech::Reasoning),
        3 => (0..IDS.len(), 0..NAMES.len() * 2).prop_map(|(id, name)| Speech::Call { id, name }),
        1 => (0..ORIGINS.len()).prop_map(Speech::Origin),
        6 => (kind, any::<bool>(), "[a-z北🙂\n {}\":1]{0,6}").prop_map(|(kind, fresh, text)| Speech::Text(kind, fresh, text)),
        4 => Just(Speech::Close),
        3 => Just(Speech::Finish),
        1 => Just(Speech::Limit),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    let on_busy = prop_oneof![4 => Just(OnBusy::Queue), 2 => Just(OnBusy::Steer),
        1 => Just(OnBusy::Interrupt), 1 => Just(OnBusy::Reject)];
    prop_oneof![
        4 => (any::<bool>(), on_busy, 0u8..8).prop_map(|(tools, on_busy, content)| Op::Say { tools, on_busy, content }),
        6 => (0usize..4, any::<bool>(), any::<bool>(), 0u8..8)
            .prop_map(|(which, again, is_error, output)| Op::Give { which, again, is_error, output }),
        1 => (0usize..4).prop_map(Op::Cancel),
        1 => (0usize..4).prop_map(Op::Withdraw),
        1 => Just(Op::Interrupt),
        1 => Just(Op::Stop),
        1 => Just(Op::Alarm),
        1 => (1u64..200).prop_map(Op::Wait),
        12 => vec(speech(), 1..5).prop_map(Op::Model),
        2 => (any::<bool>(), 0u8..6).prop_map(|(retryable, remedy)| Op::Fail { retryable, remedy }),
        2 => Just(Op::Save),
        2 => any::<bool>().prop_map(Op::Gather),
        1 => Just(Op::LoseWrite),
        1 => Just(Op::LoseEvents),
        1 => Just(Op::Crash),
    ]
}

pub fn perform<L: TestLog>(rig: &mut Rig<L>, op: &Op) {
    match op {
        Op::Say { tools, on_busy, content } => {
            let tools: &[&str] = if *tools { &["look"] } else { &[] };
            let content = match content {
                0 => json!([]),
                1 => json!([{"type": "input_text", "text": " \n"}]),
                2 => json!([{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PICTURE}]),
                3 => json!([{"type": "input_image", "image_url": PICTURE}, {"type": "input_text", "text": ""}]),
                _ => json!([{"type": "input_text", "text": "hello"}]),
            };
            let message = NewMessage { on_busy: *on_busy, content, ..posted("hello", tools) };
            drop(rig.step(Input::Message(message)));
        }
        Op::Give { which, again, is_error, output } => {
            let open = rig.session.state.open_calls();
            let Some(call) = open.get(*which % open.len().max(1)) else { return };
            let call_id = call.call_id.0.clone();
            if *is_error {
                let given = ToolOutput { call_id: CallId(call_id), output: json!("failed"), is_error: true };
                accepted(rig, Input::Output(given));
                return;
            }
            let output = match output {
                0 => json!(""),
                1 => json!([]),
                2 => json!([{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PICTURE}]),
                3 => json!("\n"),
                _ => json!("out"),
            };
            let given = ToolOutput { call_id: CallId(call_id.clone()), output: output.clone(), is_error: false };
            if accepted(rig, Input::Output(given)) && *again {
                let before = rig.session.state.clone();
                let same = ToolOutput { call_id: CallId(call_id.clone()), output, is_error: false };
                let again = rig.step(Input::Output(same));
                assert!(matches!(again, Ok(Ack::Output { status: OutputStatus::Duplicate, .. })));
                assert_eq!(rig.give(&call_id, "other"), Err(Rejected::AlreadyResolved(CallId(call_id))));
                assert_eq!(rig.session.state, before, "a duplicate has changed something");
            }
        }
        Op::Cancel(which) => {
            let open = rig.session.state.open_calls();
            let Some(call) = open.get(*which % open.len().max(1)) else { return };
            let call_id = call.call_id.clone();
            if !accepted(rig, Input::Cancel(call_id.clone())) {
                return;
            }
            let before = rig.session.state.clone();
            rig.step(Input::Cancel(call_id)).unwrap();
            assert_eq!(rig.session.state, before, "a call was cancelled twice");
        }
        Op::Withdraw(which) => {
            let queue = &rig.session.state.queue;
            let Some(waiting) = queue.get(*which % queue.len().max(1)) else { return };
            let item_id = waiting.item_id.clone();
            if accepted(rig, Input::Withdraw(item_id.clone())) {
                assert_eq!(rig.step(Input::Withdraw(item_id.clone())), Err(Rejected::NotQueued(item_id)));
            }
        }
        Op::Interrupt => drop(rig.interrupt()),
        Op::Stop => drop(rig.step(Input::Stop).unwrap()),
        Op::Alarm => drop(rig.step(Input::Alarm).unwrap()),
        Op::Wait(seconds) => rig.now += seconds,
        Op::Model(speeches) => {
            let Some(at) = rig.request else { return };
            let events = speeches.iter().map(event).collect();
            rig.step(Input::Model { at, events }).unwrap();
        }
        Op::Fail { retryable, remedy } => {
            let Some(at) = rig.request else { return };
            let change = ["omit stream_options", "omit private"].get(usize::from(*remedy)).copied();
            let remedy = match (change, remedy) {
                (Some(change), _) => {
                    let (origin, model) = (ORIGINS[0].to_string(), "m".to_string());
                    Remedy::Learn(Box::new(Lesson { origin, model, change: change.into() }))
                }
                (None, 2 | 3) => Remedy::Withhold { media: *remedy == 2 },
                (None, _) => Remedy::None,
            };
            let failure = ModelFailure { remedy, ..failed("upstream_error", *retryable) };
            rig.step(Input::ModelFailed { at, failure }).unwrap();
        }
        Op::Save => rig.save(),
        Op::Gather(gathers) => rig.gathers = *gathers,
        Op::LoseWrite => rig.loses_write = true,
        Op::LoseEvents => rig.loses_events = true,
        Op::Crash => rig.crash(),
    }
}

/// Whether the input was accepted. It is, unless a write was lost: recovery then comes before the second try.
fn accepted<L: TestLog>(rig: &mut Rig<L>, input: Input) -> bool {
    let lossy = rig.loses_write;
    let taken = rig.step(input);
    assert!(lossy || taken.is_ok(), "{taken:?}");
    taken.is_ok()
}

fn event(speech: &Speech) -> ModelEvent {
    match speech {
        Speech::Message => ModelEvent::Message,
        Speech::Reasoning => ModelEvent::Reasoning,
        Speech::Call { id, name } => call(&IDS[*id].repeat(1 + id % 2 * 30), NAMES.get(*name).unwrap_or(&"look")),
        Speech::Origin(origin) => ModelEvent::Origin(ORIGINS[*origin].into()),
        Speech::Text(kind, fresh, text) => ModelEvent::Text { kind: *kind, fresh: *fresh, text: text.clone() },
        Speech::Close => close(),
        Speech::Finish => done(),
        Speech::Limit => {
            ModelEvent::Finish { reason: Finish::Limit("max_output_tokens".into()), usage: Usage::default() }
        }
    }
}

/// What a reader got, however its texts were cut: neighbouring deltas of one text are one.
fn content(events: &[Event]) -> Vec<String> {
    let mut joined: Vec<(String, String)> = Vec::new();
    for event in events {
        let mut data = data(event);
        let delta = data.as_object_mut().unwrap().remove("delta");
        let (name, text) = match delta {
            Some(delta) => (data.to_string(), delta.as_str().unwrap().to_string()),
            None => (String::new(), data.to_string()),
        };
        match joined.last_mut() {
            Some((last, so_far)) if !name.is_empty() && *last == name => so_far.push_str(&text),
            _ => joined.push((name, text)),
        }
    }
    joined.into_iter().map(|(name, text)| name + &text).collect()
}

fn alike(one: &[Event], other: &[Event]) -> Result<(), TestCaseError> {
    let (one, other) = (content(one), content(other));
    let differs = one.iter().zip(&other).position(|(a, b)| a != b).unwrap_or(one.len().min(other.len()));
    prop_assert!(one == other, "event {differs}: {:?} is not {:?}", one.get(differs), other.get(differs));
    Ok(())
}

/// Reads the stream from `from` to its end in pages.
fn replay<L: TestLog>(rig: &Rig<L>, from: Cursor, budget: usize) -> Vec<Event> {
    let (mut events, mut at) = (Vec::new(), from);
    loop {
        let page = api::replay(&rig.session, at, budget, &rig.log).unwrap();
        events.extend(page.events);
        at = page.cursor;
        if !page.more {
            assert_eq!(at, rig.session.cursor());
            return events;
        }
    }
}

type Law = Result<(), TestCaseError>;

/// No order of events, no crash, and no nonsense from a model makes a session unusable.
pub fn every_session_can_be_brought_to_rest<L: TestLog>(ops: &[Op]) -> Law {
    let mut rig = Rig::on(L::create(), Settings { tool_timeout: Some(100), max_answer: 1500, ..settings() });
    for op in ops {
        perform(&mut rig, op);
    }
    rig.step(Input::Stop).unwrap();
    let begun = rig.prompts.len();
    rig.say("one more");
    rig.model(vec![ModelEvent::Message, text("fine"), close(), done()]);
    prop_assert_eq!(rig.session.state.status(), SessionStatus::Idle);
    prop_assert_eq!(rig.prompts.len(), begun + 1);
    Ok(())
}

/// Every turn that began has exactly one end, and shows it once.
pub fn every_turn_ends_once<L: TestLog>(ops: &[Op]) -> Law {
    let mut rig = Rig::on(L::create(), Settings { tool_timeout: Some(100), max_answer: 1500, ..settings() });
    for op in ops {
        perform(&mut rig, op);
    }
    rig.step(Input::Stop).unwrap();
    let ids = |kinds: &[&str]| -> Vec<String> {
        let of_kind = rig.seen.iter().filter(|event| kinds.contains(&event.kind));
        of_kind.map(|event| data(event)["response"]["id"].to_string()).collect()
    };
    let ends = ["response.completed", "response.failed", "response.incomplete", "response.cancelled"];
    prop_assert_eq!(ids(&["response.created"]), ids(&ends));
    Ok(())
}

/// The cursor law: what a reader gets who resumes after any event is what an undisturbed reader got after it.
pub fn resuming_anywhere_misses_nothing<L: TestLog>(ops: &[Op], budget: usize, phase: usize) -> Law {
    let mut rig = Rig::on(L::create(), Settings { tool_timeout: Some(100), max_answer: 1500, ..settings() });
    for op in ops.iter().filter(|op| !matches!(op, Op::Crash | Op::LoseWrite)) {
        perform(&mut rig, op);
    }
    rig.flush();
    let cursors: Vec<Cursor> = rig.seen.iter().map(|event| event.cursor.unwrap()).collect();
    prop_assert!(cursors.is_sorted_by(|a, b| a < b), "{cursors:?}");
    alike(&replay(&rig, Cursor::START, budget), &rig.seen)?;
    for (n, cursor) in cursors.iter().enumerate().filter(|(n, _)| n % 16 == phase) {
        alike(&replay(&rig, *cursor, budget), &rig.seen[n + 1..])?;
    }
    Ok(())
}

/// A copy that is made at any moment has no open turn, and can be used. Making it takes time: the original goes on with `more`.
pub fn every_copy_can_be_used<L: TestLog>(ops: &[Op], more: &[Op]) -> Law {
    let mut rig = Rig::on(L::create(), Settings { tool_timeout: Some(100), max_answer: 1500, ..settings() });
    for op in ops {
        perform(&mut rig, op);
    }
    let until = rig.session.settled();
    for op in more {
        perform(&mut rig, op);
    }
    let mut copy = rig.fork_until(until);
    prop_assert!(copy.session.state.turn().is_none() && copy.session.state.queue.is_empty());
    copy.say("one more");
    copy.model(vec![ModelEvent::Message, text("fine"), close(), done()]);
    prop_assert_eq!(copy.session.state.status(), SessionStatus::Idle);
    let whole = replay(&copy, Cursor::START, 1000);
    let cursors: Vec<Cursor> = whole.iter().map(|event| event.cursor.unwrap()).collect();
    prop_assert!(cursors.is_sorted_by(|a, b| a < b));
    Ok(())
}

/// After crashes the log may say less of an open item than was shown, but it never says anything twice and its
/// positions lie above all that were given out.
pub fn positions_only_grow_over_crashes<L: TestLog>(ops: &[Op], phase: usize) -> Law {
    let mut rig = Rig::on(L::create(), settings());
    // A reader who connects anew after every step, and has been shown text that a crash then loses.
    let mut read = vec![Cursor::START];
    for op in ops {
        perform(&mut rig, op);
        rig.flush();
        let last = read[read.len() - 1];
        read.extend(replay(&rig, last, 1000).iter().filter_map(|event| event.cursor));
    }
    prop_assert!(read.is_sorted_by(|a, b| a < b), "{read:?}");
    let whole = replay(&rig, Cursor::START, 1000);
    let cursors: Vec<Cursor> = whole.iter().map(|event| event.cursor.unwrap()).collect();
    prop_assert!(cursors.is_sorted_by(|a, b| a < b));
    for (n, cursor) in cursors.iter().enumerate().filter(|(n, _)| n % 16 == phase) {
        alike(&replay(&rig, *cursor, 1000), &whole[n + 1..])?;
    }
    let shown: Vec<Cursor> = rig.seen.iter().filter_map(|event| event.cursor).collect();
    prop_assert!(shown.iter().all(|cursor| *cursor <= rig.session.cursor()));
    Ok(())
}

/// Tests of the laws over one kind of log.
macro_rules! test_laws {
    ($log:ty, $cases:expr) => {
        use proptest::collection::vec;
        use proptest::prelude::*;
        use $crate::session::tests::laws::{self, op};

        proptest! {
            #![proptest_config(ProptestConfig::with_cases($cases))]

            #[test]
            fn every_session_can_be_brought_to_rest(ops in vec(op(), 1..60)) {
                laws::every_session_can_be_brought_to_rest::<$log>(&ops)?;
            }

            #[test]
            fn every_turn_ends_once(ops in vec(op(), 1..60)) {
                laws::every_turn_ends_once::<$log>(&ops)?;
            }

            #[test]
            fn resuming_anywhere_misses_nothing(ops in vec(op(), 1..40), budget in 1usize..4000, phase in 0usize..16) {
                laws::resuming_anywhere_misses_nothing::<$log>(&ops, budget, phase)?;
            }

            #[test]
            fn every_copy_can_be_used(ops in vec(op(), 1..60), more in vec(op(), 0..20)) {
                laws::every_copy_can_be_used::<$log>(&ops, &more)?;
            }

            #[test]
            fn positions_only_grow_over_crashes(ops in vec(op(), 1..60), phase in 0usize..16) {
                laws::positions_only_grow_over_crashes::<$log>(&ops, phase)?;
            }
        }
    };
}
pub(crate) use test_laws;

mod memory {
    use crate::session::tests::Memory;

    super::test_laws!(Memory, 256);
}
