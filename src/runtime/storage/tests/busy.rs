//! Messages that come while the model answers are appended before its answer, and have their place behind it.

use super::laws::Checked;
use crate::api::{self, Event};
use crate::session::tests::{Rig, TestLog, arguments, call, close, done, posted, settings, text};
use crate::session::{Cursor, Input, Log, ModelEvent, NewMessage, OnBusy, Phase, SessionStatus, Settings};

fn rig() -> Rig<Checked> {
    Rig::on(Checked::create(), Settings { max_queue: 40, ..settings() })
}

fn post(rig: &mut Rig<Checked>, words: &str, on_busy: OnBusy) {
    rig.step(Input::Message(NewMessage { on_busy, ..posted(words, &["look"]) })).unwrap();
}

/// The stream as somebody gets it who reads it from a cursor on, in small pages.
fn replay(rig: &Rig<Checked>, mut from: Cursor) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let page = api::replay(&rig.session, from, 2000, &rig.log).unwrap();
        events.extend(page.events);
        from = page.cursor;
        if !page.more {
            return events;
        }
    }
}

#[test]
fn a_call_is_shown_although_a_message_was_posted_meanwhile() {
    for on_busy in [OnBusy::Queue, OnBusy::Steer] {
        let mut rig = rig();
        rig.say_with("go", &["look"]);
        post(&mut rig, "and then?", on_busy);
        rig.heard();
        rig.model(vec![call("a", "look"), arguments("{}"), close(), done()]);
        let heard = rig.heard();
        let last = heard.iter().rev().take(2).collect::<Vec<_>>();
        assert_eq!(
            last,
            ["session.status waiting", "output_item.done function_call action_required"],
            "{on_busy:?}"
        );
        rig.give("a", "seen").unwrap();
        assert_eq!(rig.session.state.status(), SessionStatus::Running);
    }
}

#[test]
fn every_reader_gets_what_was_answered_meanwhile() {
    let mut rig = rig();
    rig.say_with("go", &["look"]);
    rig.model(vec![ModelEvent::Message, text("let me see")]);
    post(&mut rig, "and then?", OnBusy::Queue);
    rig.model(vec![close(), call("a", "look"), close(), done()]);
    rig.give("a", "seen").unwrap();
    rig.model(vec![ModelEvent::Message, text("seen"), close(), done()]);
    let whole = replay(&rig, Cursor::START);
    assert_eq!(whole.last(), rig.seen.last());
    for event in &rig.seen {
        let kind = event.kind;
        assert!(kind.ends_with(".delta") || whole.contains(event), "{event:?} is not in the replay");
    }
}

#[test]
fn a_large_message_that_waited_is_there_when_its_turn_comes() {
    let mut rig = rig();
    rig.say("go");
    post(&mut rig, &"x".repeat(62_000), OnBusy::Queue);
    rig.model(vec![ModelEvent::Message, text(&"y".repeat(4_000)), close(), done()]);
    let Phase::Sampling { turn, .. } = &rig.session.state.phase else { panic!("its turn has not begun") };
    assert_eq!(rig.log.store.message(turn.source).unwrap().tools.len(), 1);
    assert!(rig.log.item(turn.source).unwrap().body.len() > 62_000);
    let prompt = rig.prompts.last().unwrap();
    assert!(prompt.last().unwrap().body.len() > 62_000);
    rig.model(vec![ModelEvent::Message, text("long!"), close(), done()]);
    assert_eq!(rig.session.state.status(), SessionStatus::Idle);
}

#[test]
fn pages_of_the_stream_leave_nothing_out() {
    let mut rig = rig();
    for n in 0..15 {
        rig.say(&format!("{n}"));
        rig.model(vec![ModelEvent::Message, text("yes"), close(), done()]);
    }
    rig.say("and now?");
    for n in 0..32 {
        post(&mut rig, &format!("later {n}"), OnBusy::Queue);
    }
    rig.model(vec![ModelEvent::Message, text("this answer counts"), close(), done()]);
    let whole = replay(&rig, Cursor::START);
    let first = whole.first().unwrap().cursor.unwrap();
    assert_eq!(replay(&rig, first), whole[1..]);
    assert_eq!(whole.iter().filter(|event| event.kind == "response.completed").count(), 16);
    assert_eq!(whole.iter().filter(|event| event.data.contains("this answer counts")).count(), 4);
}
