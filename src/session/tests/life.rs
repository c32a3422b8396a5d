//! How sessions begin, survive and end.

use super::*;

#[test]
fn a_parked_turn_survives_a_crash_without_asking_the_model() {
    let mut rig = parked();
    rig.crash();
    assert_eq!((rig.prompts.len(), rig.heard().len()), (1, 0));
    rig.give("a", "1").unwrap();
    rig.give("b", "2").unwrap();
    assert_eq!(rig.prompts.len(), 2);
}

#[test]
fn an_alarm_does_not_ask_again_while_a_request_that_had_to_wait_is_answered() {
    let mut rig = Rig::new();
    rig.say("go");
    let at = rig.request.unwrap();
    rig.step(Input::ModelFailed { at, failure: failed("upstream_error", true) }).unwrap();
    rig.now += 1;
    rig.step(Input::Alarm).unwrap();
    let asked = rig.request;
    rig.model(vec![ModelEvent::Message, text("one"), close(), ModelEvent::Message]);
    rig.step(Input::Alarm).unwrap();
    assert_eq!((rig.request, rig.prompts.len()), (asked, 2));
}

#[test]
fn a_running_turn_is_sampled_again_after_a_crash() {
    let mut rig = Rig::new();
    rig.say("go");
    rig.model(vec![ModelEvent::Message, text("half")]);
    rig.save();
    rig.model(vec![text(" and lost")]);
    rig.heard();
    rig.crash();
    assert_eq!(rig.heard().last().unwrap(), "retry 1 after 0");
    rig.model(vec![ModelEvent::Message, text("whole"), close(), done()]);
    let items: Vec<(Status, Value)> = rig
        .log
        .records
        .values()
        .filter_map(|r| r.entry.item())
        .map(|i| (i.status, api::data(i)["content"][0]["text"].clone()))
        .collect();
    assert_eq!(items[1], (Status::Incomplete, json!("half")));
    assert_eq!(items[2], (Status::Completed, json!("whole")));
}

#[test]
fn recovery_gives_up_after_long_without_progress() {
    let mut rig = Rig::new();
    rig.say("go");
    rig.now += 299;
    rig.crash();
    assert_eq!(rig.session.state.status(), SessionStatus::Running);
    rig.now += 1;
    rig.crash();
    assert_eq!(rig.session.state.last_error().unwrap().code, "interrupted_by_restart");
}

#[test]
fn a_session_that_keeps_dying_asks_less_and_less_often_and_then_gives_up() {
    let mut rig = Rig::with(Settings { recovery_window: 10_000, ..settings() });
    rig.say("go");
    let mut delays = Vec::new();
    let mut died = 0;
    while rig.session.state.status() == SessionStatus::Running {
        rig.crash();
        died += 1;
        if let Phase::Sampling { wait, .. } = &rig.session.state.phase {
            let delay = wait.map_or(0, |wait| wait.0 - rig.now);
            delays.push(delay);
            rig.now += delay;
            rig.step(Input::Alarm).unwrap();
            // From now on it runs, and dies in the middle of it.
            if let Phase::Sampling { wait, .. } = &mut rig.session.state.phase {
                *wait = None;
            }
            rig.log.append(&[], &rig.session.state);
        }
        assert!(died < 20, "{delays:?}");
    }
    assert_eq!(delays, [0, 1, 2, 4, 8, 16]);
    assert_eq!(rig.session.state.last_error().unwrap().code, "interrupted_by_restart");
    rig.say("and again");
    assert_eq!(rig.session.state.status(), SessionStatus::Running);
}

#[test]
fn what_the_model_was_writing_counts_as_progress() {
    for (heard, status) in [(None, SessionStatus::Failed), (Some(1290), SessionStatus::Running)] {
        let mut rig = Rig::new();
        rig.say("go");
        rig.now += 310;
        let Session { id, settings, state, .. } = rig.session.clone();
        rig.session = Session::load(id, settings, state, Vec::new()).heard_at(heard.map(Seconds));
        rig.running = None;
        rig.step(Input::Recover).unwrap();
        assert_eq!(rig.session.state.status(), status, "{heard:?}");
    }
}

#[test]
fn a_session_may_have_an_end() {
    let mut rig = Rig::new();
    rig.session.settings.expires_at = Some(Seconds(1020));
    assert_eq!(rig.session.due(Seconds(1000)), Some(Alarm::End(Seconds(1020))));
    assert!(!rig.session.is_over(Seconds(1019)));
    assert!(rig.session.is_over(Seconds(1020)));
    rig.session.state = State::new(Seconds(1000));
    let before = rig.session.state.clone();
    let mut context = Context { now: Seconds(1020), ids: &mut rig.ids, log: &rig.log };
    assert_eq!(rig.session.step(Input::Alarm, &mut context).unwrap().append, []);
    assert_eq!(rig.session.state, before, "what is about to be erased is written");
}

#[test]
fn a_session_begins_with_items_if_they_fit_together() {
    let message = |role| InitialItem::Message { role, content: json!([]) };
    let call =
        |id: &str| InitialItem::Call { call_id: CallId(id.into()), name: "look".into(), arguments: "{}".into() };
    let given = |id: &str| ToolOutput { call_id: CallId(id.into()), output: json!("out"), is_error: false };
    let output = |id: &str| InitialItem::Output(given(id));
    let mut rig = Rig::new();
    for (seeds, wrong) in [
        (vec![call("a")], 0),
        (vec![output("a")], 0),
        (vec![call("a"), message(Role::User), output("a")], 1),
        (vec![call("a"), output("a"), output("a")], 2),
        (vec![call("a"), output("a"), call("a"), output("a")], 2),
        (vec![call("a"), call("b"), output("b")], 2),
    ] {
        let rejected = rig.step(Input::InitialItems(seeds)).unwrap_err();
        assert!(matches!(rejected, Rejected::Unpaired { index, .. } if index == wrong), "{rejected:?}");
    }
    let seeds =
        vec![message(Role::User), call("a"), call("b"), output("b"), output("a"), message(Role::Assistant)];
    rig.step(Input::InitialItems(seeds)).unwrap();
    assert_eq!(rig.heard(), [""; 0]);
    rig.say("next");
    assert_eq!(rig.prompts[0].len(), 7);
    assert!(matches!(rig.give("a", "out").unwrap(), Ack::Output { status: OutputStatus::Duplicate, .. }));
    rig.model(vec![super::call("a", "look"), close(), done()]);
    let answered_here = rig.heard().iter().any(|event| event == "output_item.done function_call_output completed");
    assert!(answered_here && rig.session.state.status() == SessionStatus::Running);
}

#[test]
fn a_copy_has_what_was_complete_and_no_open_turn() {
    let mut rig = parked();
    rig.give("a", "1").unwrap();
    rig.say("waits");
    let mut copy = rig.fork();
    assert_eq!(copy.session.state.status(), SessionStatus::Idle);
    assert_eq!(copy.session.state.last.as_ref().unwrap().outcome, Outcome::Cancelled);
    copy.say("next");
    let bodies: Vec<&str> = copy.prompts[0].iter().map(|line| line.body.as_str()).collect();
    assert!(bodies[4].contains("the conversation was forked"), "{bodies:#?}");
    assert!(!bodies.iter().any(|body| body.contains("waits")));
    assert_eq!(rig.session.state.status(), SessionStatus::Waiting, "the original has noticed");
}
