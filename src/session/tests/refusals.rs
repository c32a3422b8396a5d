//! What a session does when a host refuses a setting, or what it is shown.

use super::*;

fn refuse<L: TestLog>(rig: &mut Rig<L>, remedy: Remedy) {
    let at = rig.request.expect("a model request is open");
    let failure = ModelFailure { remedy, ..failed("upstream_error", false) };
    rig.step(Input::ModelFailed { at, failure }).unwrap();
}

fn lesson(change: &str) -> Remedy {
    let (origin, model) = ("chat https://model.test".to_string(), "m".to_string());
    Remedy::Learn(Box::new(Lesson { origin, model, change: change.into() }))
}

const CONTENT: Remedy = Remedy::Withhold { media: false };

fn answer(rig: &mut Rig, said: &str) {
    rig.model(vec![ModelEvent::Message, text(said), close(), done()]);
}

#[test]
fn a_setting_that_a_host_refuses_is_left_out_at_once_and_from_then_on() {
    let mut rig = Rig::new();
    rig.say("go");
    rig.heard();
    refuse(&mut rig, lesson("omit stream_options"));
    refuse(&mut rig, lesson("omit temperature"));
    assert_eq!((rig.heard(), rig.prompts.len()), (Vec::new(), 3));
    rig.crash();
    assert_eq!(rig.session.state.lessons.len(), 2);
    answer(&mut rig, "hi");
    rig.say("again");
    refuse(&mut rig, lesson("omit temperature"));
    assert_eq!(rig.session.state.status(), SessionStatus::Failed, "what was learned did not help");
}

#[test]
fn what_a_host_refuses_twice_is_withheld_if_that_helps() {
    let mut rig = Rig::new();
    rig.say("fine");
    answer(&mut rig, "ok");
    rig.say("forbidden");
    refuse(&mut rig, CONTENT);
    assert_eq!((rig.session.state.status(), rig.prompts.len()), (SessionStatus::Failed, 2));
    rig.say("again");
    refuse(&mut rig, CONTENT);
    assert_eq!((rig.session.state.status(), rig.prompts.len()), (SessionStatus::Running, 4));
    rig.crash();
    assert!(rig.session.state.withheld.is_empty() && rig.session.state.trial.is_some(), "it is only tried");
    answer(&mut rig, "ok");
    let state = &rig.session.state;
    let shown = rig.prompts[3].iter().filter(|line| line.part == ContextPart::User);
    let withheld: Vec<bool> = shown
        .map(|line| state.withheld.iter().any(|one| one.from <= line.place && line.place <= one.to))
        .collect();
    assert_eq!(withheld, [false, true, false]);
    assert_eq!((state.refused, state.trial), (None, None));
}

#[test]
fn what_does_not_help_is_not_withheld() {
    let mut rig = Rig::new();
    rig.say("one");
    refuse(&mut rig, CONTENT);
    rig.say("two");
    refuse(&mut rig, CONTENT);
    refuse(&mut rig, CONTENT);
    assert_eq!(rig.session.state.status(), SessionStatus::Failed);
    assert_eq!((rig.session.state.trial, rig.session.state.withheld.len()), (None, 0));
    // A message whose turn failed for another reason is offered again.
    rig.say("three");
    let at = rig.request.unwrap();
    rig.step(Input::ModelFailed { at, failure: failed("upstream_auth", false) }).unwrap();
    rig.say("four");
    answer(&mut rig, "ok");
    assert!(rig.session.state.withheld.is_empty() && rig.session.state.refused.is_none());
}

#[test]
fn a_payload_may_come_with_the_end_of_the_response() {
    let mut rig = Rig::new();
    rig.say("go");
    let sealed = json!({"provider_fields": {"encrypted_content": "x"}});
    rig.model(vec![
        ModelEvent::Origin("responses https://model.test".into()),
        ModelEvent::Reasoning,
        ModelEvent::CloseBefore { payload: None },
        ModelEvent::Message,
        text("hi"),
        close(),
        ModelEvent::Payload { item: 0, payload: sealed },
        done(),
    ]);
    let thought =
        rig.log.records.values().filter_map(|r| r.entry.item()).find(|item| item.kind == Kind::Reasoning);
    let thought = thought.unwrap();
    assert!(thought.body.contains("encrypted_content"));
    assert_eq!(thought.origin.as_deref(), Some("responses https://model.test"));
}

#[test]
fn the_finished_text_counts_whatever_its_deltas_said() {
    let mut rig = Rig::new();
    rig.say_with("go", &["look"]);
    rig.model(vec![call("a", "look"), arguments("{}"), ModelEvent::Rewrite("{\"q\":1}".into()), close(), done()]);
    let call = &rig.session.state.open_calls()[0];
    assert!(rig.log.item(call.seq).unwrap().body.contains("{\\\"q\\\":1}"));
}
