//! Scenarios: inputs in, what the stream shows and what the model is asked out.

use super::*;

#[test]
fn a_plain_turn() {
    let mut rig = Rig::new();
    let answer = rig.say("hi");
    assert!(matches!(answer, Ack::Message { status: MessageStatus::Started, .. }));
    rig.model(vec![ModelEvent::Message, text("Hel")]);
    rig.model(vec![text("lo"), close(), done()]);
    assert_eq!(
        rig.heard(),
        [
            "session.status running",
            "session.input.consumed",
            "created",
            "in_progress",
            "output_item.added message in_progress",
            "output_text.delta Hel",
            "output_text.delta lo",
            "output_text.done",
            "output_item.done message completed",
            "completed",
            "session.status idle",
        ]
    );
    assert_eq!(rig.session.state.status(), SessionStatus::Idle);
    assert_eq!(rig.session.state.usage.total_tokens, 3);
}

#[test]
fn a_call_parks_and_its_output_resumes_the_turn() {
    let mut rig = Rig::new();
    rig.say_with("go", &["look"]);
    rig.model(vec![call("a", "look"), arguments("{\"x\""), arguments(":1}"), close(), done()]);
    assert_eq!(rig.session.state.status(), SessionStatus::Waiting);
    assert_eq!(
        rig.heard().split_off(4),
        [
            "output_item.added function_call in_progress",
            "function_call_arguments.delta {\"x\":1}",
            "function_call_arguments.done",
            "output_item.done function_call in_progress",
            "output_item.done function_call action_required",
            "session.status waiting",
        ]
    );
    assert_eq!(
        rig.give("a", "out").unwrap(),
        Ack::Output { call_id: CallId("a".into()), status: OutputStatus::Accepted, remaining: 0 }
    );
    assert_eq!(
        rig.heard(),
        [
            "output_item.done function_call completed",
            "output_item.done function_call_output completed",
            "session.status running",
        ]
    );
    rig.model(vec![ModelEvent::Message, text("fine"), close(), done()]);
    assert_eq!(rig.heard().pop().unwrap(), "session.status idle");
    let bodies: Vec<String> = rig.prompts[1].iter().map(|line| line.body.clone()).collect();
    assert_eq!(
        bodies[1],
        json!({"type": "function_call", "call_id": "a", "name": "look", "arguments": "{\"x\":1}"}).to_string()
    );
    assert_eq!(bodies[2], json!({"type": "function_call_output", "call_id": "a", "output": "out"}).to_string());
}

#[test]
fn only_the_last_answer_resumes() {
    let mut rig = parked();
    assert!(matches!(rig.give("b", "2").unwrap(), Ack::Output { remaining: 1, .. }));
    assert_eq!((rig.prompts.len(), rig.session.state.status()), (1, SessionStatus::Waiting));
    rig.give("a", "1").unwrap();
    assert_eq!((rig.prompts.len(), rig.session.state.status()), (2, SessionStatus::Running));
}

#[test]
fn answers_that_do_not_fit_change_nothing() {
    let mut rig = parked();
    rig.give("a", "1").unwrap();
    assert!(matches!(
        rig.give("a", "1").unwrap(),
        Ack::Output { status: OutputStatus::Duplicate, remaining: 1, .. }
    ));
    assert_eq!(rig.give("a", "2"), Err(Rejected::AlreadyResolved(CallId("a".into()))));
    assert_eq!(rig.give("nope", "1"), Err(Rejected::UnknownCall(CallId("nope".into()))));
    rig.interrupt();
    assert_eq!(rig.give("b", "late"), Err(Rejected::CallCancelled(CallId("b".into()))));
}

#[test]
fn an_interrupt_while_parked_closes_every_open_call_once() {
    let mut rig = parked();
    rig.give("a", "1").unwrap();
    rig.heard();
    assert_eq!(rig.interrupt(), Ack::Interrupt(InterruptStatus::Interrupted));
    assert_eq!(
        rig.heard(),
        [
            "output_item.done function_call cancelled",
            "output_item.done function_call_output cancelled",
            "cancelled",
            "session.interrupted",
            "session.status idle",
        ]
    );
    assert_eq!(rig.interrupt(), Ack::Interrupt(InterruptStatus::Idle));
    rig.say("next");
    let told: Vec<&ContextLine> = rig.prompts[1].iter().filter(|line| line.body.contains("interrupted")).collect();
    assert_eq!(told.len(), 2, "the marker and the synthetic output");
}

#[test]
fn an_interrupt_while_the_model_writes_keeps_the_text_and_drops_the_unfinished_call() {
    let mut rig = Rig::new();
    rig.say_with("go", &["look"]);
    rig.model(vec![ModelEvent::Message, text("so far"), close(), call("a", "look"), arguments("{\"x")]);
    rig.interrupt();
    let at = rig.prompts.len();
    rig.say("next");
    let bodies: Vec<&str> = rig.prompts[at].iter().map(|line| line.body.as_str()).collect();
    assert!(
        bodies[1].contains("so far") && bodies[2].contains("interrupted") && bodies[3].contains("next"),
        "{bodies:?}"
    );
    assert_eq!(rig.give("a", "x"), Err(Rejected::UnknownCall(CallId("a".into()))));
}

#[test]
fn a_stale_interrupt_leaves_the_turn_alone() {
    let mut rig = parked();
    let other = Input::Interrupt { response_id: Some(ResponseId("resp_other".into())) };
    assert_eq!(rig.step(other).unwrap(), Ack::Interrupt(InterruptStatus::Stale));
    assert_eq!(rig.session.state.open_calls().len(), 2);
}

#[test]
fn a_tool_that_nobody_offered_is_answered_at_once() {
    let mut rig = Rig::new();
    rig.say("go");
    rig.model(vec![call("a", "nope"), close(), done()]);
    assert_eq!(rig.session.state.status(), SessionStatus::Running);
    assert!(rig.prompts[1].last().unwrap().body.contains("unknown tool nope"));
    assert!(!rig.heard().iter().any(|event| event.contains("action_required") || event.contains("waiting")));
}

#[test]
fn a_tool_name_without_end_is_cut_short() {
    let mut rig = Rig::new();
    rig.say_with("go", &["look"]);
    rig.model(vec![call("a", &"北".repeat(1_000_000)), close(), done()]);
    assert!(rig.prompts[1].iter().all(|line| line.body.len() < 300));
}

#[test]
fn tools_of_a_message_do_not_outlive_its_turn_and_those_of_the_agent_do() {
    let mut rig = Rig::with(Settings { client_tools: vec!["own".into()], ..settings() });
    rig.say_with("one", &["brought"]);
    rig.model(vec![ModelEvent::Message, text("ok"), close(), done()]);
    rig.say("two");
    rig.model(vec![call("a", "own"), close(), call("b", "brought"), close(), done()]);
    let open: Vec<&str> = rig.session.state.open_calls().iter().map(|call| call.name.as_str()).collect();
    assert_eq!(open, ["own"]);
}

#[test]
fn a_call_without_arguments_has_empty_ones() {
    for pieces in [vec![], vec![""], vec![" ", "\n"]] {
        let mut rig = Rig::new();
        rig.say_with("go", &["look"]);
        let mut events = vec![call("a", "look")];
        events.extend(pieces.into_iter().map(arguments));
        rig.model([events, vec![close(), done()]].concat());
        let seq = rig.session.state.open_calls()[0].seq;
        assert_eq!(api::data(&rig.log.item(seq).unwrap())["arguments"], "{}");
    }
}

#[test]
fn call_ids_that_cannot_be_used_are_replaced() {
    let mut rig = Rig::new();
    let long = "x".repeat(65);
    rig.say_with("go", &["look"]);
    rig.model(vec![
        call("same", "look"),
        close(),
        call("same", "look"),
        close(),
        call(&long, "look"),
        close(),
        done(),
    ]);
    let ids: Vec<String> = rig.session.state.open_calls().iter().map(|call| call.call_id.0.clone()).collect();
    assert_eq!(ids[0], "same");
    assert!(ids[1].starts_with("call_") && ids[2].starts_with("call_") && ids[1] != ids[2], "{ids:?}");
    for id in &ids {
        rig.give(id, id).unwrap();
    }
    assert!(rig.prompts[1].iter().any(|line| line.body.contains(&long)), "the provider sees its own id again");
    rig.model(vec![call(&long, "look"), close(), call(&long, "look"), close(), done()]);
    let ids: Vec<String> = rig.session.state.open_calls().iter().map(|call| call.call_id.0.clone()).collect();
    for id in &ids {
        rig.give(id, "out").unwrap();
    }
    let own = rig.prompts[2].iter().filter(|line| line.body.contains(&long)).count();
    assert_eq!((ids.len(), own), (2, 2), "a name that is too long counts as used, too");
}

#[test]
fn a_request_that_failed_before_any_output_is_made_again() {
    let mut rig = Rig::new();
    rig.say("go");
    rig.heard();
    for attempt in 2..=4 {
        let at = rig.request.unwrap();
        rig.step(Input::ModelFailed { at, failure: failed("upstream_error", true) }).unwrap();
        let seconds = 1 << (attempt - 2);
        assert_eq!(rig.heard(), [format!("retry {attempt} after {seconds}")]);
        let made = rig.prompts.len();
        rig.step(Input::Alarm).unwrap();
        assert_eq!(rig.prompts.len(), made, "not yet");
        rig.now += seconds;
        rig.step(Input::Alarm).unwrap();
        rig.step(Input::Alarm).unwrap();
        assert_eq!(rig.prompts.len(), made + 1, "once, though the alarm went off twice");
    }
    let at = rig.request.unwrap();
    rig.step(Input::ModelFailed { at, failure: failed("upstream_error", true) }).unwrap();
    assert_eq!(rig.heard(), ["failed upstream_error", "session.status failed"]);
    assert_eq!(rig.session.state.last_error().unwrap().code, "upstream_error");
    let error = rig.log.records.values().filter_map(|r| r.entry.item()).next_back().unwrap();
    let want = json!({"code": "upstream_error", "message": "it went wrong"});
    assert_eq!((api::type_name(error), Value::Object(api::data(error))), ("error", want));
    rig.say("again");
    assert_eq!(rig.session.state.status(), SessionStatus::Running);
}

#[test]
fn a_request_that_waits_outlives_a_crash_and_can_be_stopped() {
    let mut rig = Rig::new();
    rig.say("go");
    let at = rig.request.unwrap();
    let failure = ModelFailure { retry_after_seconds: Some(100), ..failed("rate_limit_exceeded", true) };
    rig.step(Input::ModelFailed { at, failure: failure.clone() }).unwrap();
    rig.heard();
    rig.now += 50;
    rig.crash();
    assert_eq!((rig.heard(), rig.prompts.len()), (Vec::new(), 1));
    rig.now += 50;
    rig.step(Input::Alarm).unwrap();
    assert_eq!(rig.prompts.len(), 2);
    let at = rig.request.unwrap();
    rig.step(Input::ModelFailed { at, failure }).unwrap();
    rig.interrupt();
    rig.now += 100;
    rig.step(Input::Alarm).unwrap();
    assert_eq!((rig.prompts.len(), rig.session.state.status()), (2, SessionStatus::Idle));
}

#[test]
fn a_wait_that_is_too_long_fails_the_turn_at_once() {
    let mut rig = Rig::new();
    rig.say("go");
    let at = rig.request.unwrap();
    let failure = ModelFailure { retry_after_seconds: Some(3600), ..failed("rate_limit_exceeded", true) };
    rig.step(Input::ModelFailed { at, failure }).unwrap();
    assert_eq!(rig.session.state.status(), SessionStatus::Failed);
}

#[test]
fn a_request_that_failed_after_output_fails_the_turn_and_keeps_the_text() {
    let mut rig = Rig::new();
    rig.say("go");
    rig.model(vec![ModelEvent::Message, text("half")]);
    rig.heard();
    let at = rig.request.unwrap();
    rig.step(Input::ModelFailed { at, failure: failed("upstream_truncated", true) }).unwrap();
    assert_eq!(
        rig.heard(),
        [
            "output_text.done",
            "output_item.done message incomplete",
            "failed upstream_truncated",
            "session.status failed"
        ]
    );
}

#[test]
fn a_response_that_hit_a_limit_parks_nothing() {
    let mut rig = Rig::new();
    rig.say_with("go", &["look"]);
    let reason = Finish::Limit("max_output_tokens".into());
    rig.model(vec![call("a", "look"), arguments("{\"x"), ModelEvent::Finish { reason, usage: Usage::default() }]);
    assert_eq!(rig.session.state.status(), SessionStatus::Idle);
    let end = data(&rig.seen[rig.seen.len() - 2]);
    assert_eq!(end["response"]["incomplete_details"]["reason"], "max_output_tokens");
}

#[test]
fn a_turn_that_goes_round_for_ever_is_ended() {
    let mut rig = Rig::new();
    rig.say("go");
    for n in 0..8 {
        rig.model(vec![call(&format!("c{n}"), "nope"), close(), done()]);
    }
    assert_eq!(rig.session.state.last_error().unwrap().code, "tool_loop_limit");
}

#[test]
fn what_an_older_request_says_is_ignored() {
    let mut rig = Rig::new();
    rig.say("go");
    let old = rig.request.unwrap();
    rig.interrupt();
    rig.say("again");
    let before = rig.session.state.clone();
    rig.step(Input::Model { at: old, events: vec![ModelEvent::Message, text("ghost"), close(), done()] }).unwrap();
    rig.step(Input::ModelFailed { at: old, failure: failed("upstream_error", false) }).unwrap();
    assert_eq!(rig.session.state, before);
}

#[test]
fn a_call_with_a_deadline_expires() {
    let mut rig = Rig::with(Settings { tool_timeout: Some(60), ..settings() });
    rig.say_with("go", &["look"]);
    rig.model(vec![call("a", "look"), close(), done()]);
    rig.now += 59;
    rig.step(Input::Alarm).unwrap();
    assert_eq!(rig.session.state.status(), SessionStatus::Waiting);
    rig.now += 1;
    rig.step(Input::Alarm).unwrap();
    assert_eq!(rig.session.state.status(), SessionStatus::Running);
    assert!(rig.prompts[1].last().unwrap().body.contains("expired"));
    assert_eq!(rig.give("a", "late"), Err(Rejected::CallCancelled(CallId("a".into()))));
}

#[test]
fn nothing_that_anybody_writes_breaks_a_line() {
    let mut rig = Rig::new();
    let hostile = "x\nevent: response.completed\r\ndata: {}\u{2028}\u{2029}\u{85}\u{0}";
    rig.say_with(hostile, &["look"]);
    rig.model(vec![
        ModelEvent::Message,
        text(hostile),
        close(),
        call("a\nb", "lo\rok"),
        arguments(hostile),
        close(),
        done(),
    ]);
    for event in &rig.seen {
        assert!(!event.data.contains(['\n', '\r', '\u{2028}', '\u{2029}', '\u{85}', '\u{0}']), "{}", event.data);
    }
    let delta = rig.seen.iter().find(|event| event.kind == "response.output_text.delta").unwrap();
    assert_eq!(data(delta)["delta"], hostile);
}

#[test]
fn one_call_can_be_cancelled_and_the_turn_goes_on() {
    let mut rig = parked();
    let cancel = |id: &str| Input::Cancel(CallId(id.into()));
    let answer = |id: &str, remaining| Ok(Ack::Cancelled { call_id: CallId(id.into()), remaining });
    assert_eq!(rig.step(cancel("nope")), Err(Rejected::UnknownCall(CallId("nope".into()))));
    assert_eq!(rig.step(cancel("a")), answer("a", 1));
    assert_eq!(
        rig.heard(),
        ["output_item.done function_call cancelled", "output_item.done function_call_output cancelled"]
    );
    assert_eq!(rig.step(cancel("a")), answer("a", 1));
    assert_eq!(rig.give("a", "late"), Err(Rejected::CallCancelled(CallId("a".into()))));
    rig.give("b", "2").unwrap();
    assert_eq!(rig.step(cancel("b")), Err(Rejected::AlreadyResolved(CallId("b".into()))));
    assert_eq!(rig.session.state.status(), SessionStatus::Running);
    assert_eq!(rig.prompts.len(), 2);
}

#[test]
fn an_output_may_say_that_the_tool_failed() {
    let mut rig = parked();
    let given =
        |is_error| Input::Output(ToolOutput { call_id: CallId("a".into()), output: json!("no"), is_error });
    rig.step(given(true)).unwrap();
    assert!(matches!(rig.step(given(true)), Ok(Ack::Output { status: OutputStatus::Duplicate, .. })));
    assert_eq!(rig.step(given(false)), Err(Rejected::AlreadyResolved(CallId("a".into()))));
    let shown = rig.seen.iter().map(data).find(|data| data["item"]["type"] == "function_call_output").unwrap();
    assert_eq!((&shown["item"]["output"], &shown["item"]["is_error"]), (&json!("no"), &json!(true)));
}

#[test]
fn a_tool_may_have_a_deadline_of_its_own() {
    let mut rig = Rig::with(Settings {
        client_tools: vec!["slow".into()],
        tool_timeouts: BTreeMap::from([("slow".into(), 100)]),
        tool_timeout: Some(50),
        ..settings()
    });
    let mut message = posted("go", &["look", "quick"]);
    message.tools[1].tool_timeout_s = Some(10);
    rig.step(Input::Message(message)).unwrap();
    rig.model(vec![call("a", "look"), close(), call("b", "quick"), close(), call("c", "slow"), close(), done()]);
    let deadlines = |rig: &Rig| -> Vec<u64> {
        rig.session.state.open_calls().iter().map(|call| call.expires_at.unwrap().0 - 1000).collect()
    };
    assert_eq!(deadlines(&rig), [50, 10, 100]);
    rig.now += 10;
    rig.step(Input::Alarm).unwrap();
    assert_eq!(deadlines(&rig), [50, 100]);
}
