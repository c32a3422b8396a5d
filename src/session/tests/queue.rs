//! Messages that come while a turn is open: they wait, steer, interrupt, or are withdrawn.

use super::*;

#[test]
fn messages_wait_for_a_turn_of_their_own_in_order() {
    let mut rig = parked();
    assert!(matches!(rig.say("second"), Ack::Message { status: MessageStatus::Queued, .. }));
    rig.say("third");
    rig.give("a", "1").unwrap();
    rig.give("b", "2").unwrap();
    for _ in 0..3 {
        rig.model(vec![ModelEvent::Message, text("ok"), close(), done()]);
    }
    let users: Vec<bool> = rig.prompts[3].iter().map(|line| line.part == ContextPart::User).collect();
    assert_eq!(users, [true, false, false, false, false, false, true, false, true]);
    assert_eq!(rig.session.state.status(), SessionStatus::Idle);
}

#[test]
fn a_full_queue_refuses() {
    let mut rig = parked();
    for _ in 0..4 {
        rig.say("more");
    }
    assert_eq!(rig.step(Input::Message(posted("fifth", &[]))), Err(Rejected::QueueFull(4)));
}

#[test]
fn a_message_may_refuse_to_wait_or_stop_the_turn_first() {
    let mut rig = parked();
    let message = |on_busy| Input::Message(NewMessage { on_busy, ..posted("now", &[]) });
    let refused = rig.step(message(OnBusy::Reject)).unwrap_err().to_string();
    assert!(refused.contains("waits for the output of a, b"), "{refused}");
    let answer = rig.step(message(OnBusy::Interrupt)).unwrap();
    assert!(matches!(answer, Ack::Message { status: MessageStatus::Started, .. }));
    assert_eq!(rig.prompts.len(), 2);
}

#[test]
fn stop_drops_the_queue_and_interrupt_does_not() {
    let mut rig = parked();
    rig.say("second");
    rig.interrupt();
    assert_eq!(rig.session.state.status(), SessionStatus::Running);
    rig.say("third");
    rig.step(Input::Stop).unwrap();
    assert_eq!((rig.session.state.status(), rig.session.state.queue.len()), (SessionStatus::Idle, 0));
}

#[test]
fn a_steering_message_is_shown_with_the_next_request_and_never_between_a_call_and_its_output() {
    let mut rig = parked();
    let (item_id, turn) = match rig.steer("also this", &[]) {
        Ack::Message { item_id, response_id, status: MessageStatus::Steered } => (item_id, response_id),
        other => panic!("{other:?}"),
    };
    assert_eq!(rig.session.state.turn().unwrap().head.response_id, turn);
    assert_eq!(rig.session.state.queue[0].item_id, item_id);
    rig.give("a", "1").unwrap();
    rig.give("b", "2").unwrap();
    let heard = rig.heard();
    assert_eq!(heard[heard.len() - 2..], ["session.status running", "session.input.consumed"]);
    let parts: Vec<ContextPart> = rig.prompts[1].iter().map(|line| line.part).collect();
    use ContextPart::{Call, Output, User};
    assert_eq!(parts, [User, Call, Call, Output, Output, User]);
    rig.model(vec![ModelEvent::Message, text("both"), close(), done()]);
    assert_eq!(rig.session.state.status(), SessionStatus::Idle);
    assert_eq!(rig.session.state.last.as_ref().unwrap().id, turn);
}

#[test]
fn a_steering_message_that_comes_while_the_model_finishes_keeps_the_turn_going() {
    let mut rig = Rig::new();
    rig.say("go");
    rig.model(vec![ModelEvent::Message, text("first")]);
    rig.steer("wait", &["look"]);
    rig.heard();
    rig.model(vec![close(), done()]);
    assert_eq!(rig.heard(), ["output_text.done", "output_item.done message completed", "session.input.consumed"]);
    let said: Vec<&str> = rig.prompts[1].iter().map(|line| line.body.as_str()).collect();
    assert!(said[1].contains("first") && said[2].contains("wait"), "{said:?}");
    rig.model(vec![call("a", "look"), close(), done()]);
    assert_eq!(rig.session.state.status(), SessionStatus::Waiting, "its tools can be called");
    rig.give("a", "1").unwrap();
    rig.model(vec![ModelEvent::Message, text("second"), close(), done()]);
    let heard = rig.heard();
    assert_eq!(heard.iter().filter(|event| *event == "completed").count(), 1);
}

#[test]
fn a_steering_message_whose_turn_ends_first_gets_its_own() {
    let mut rig = Rig::new();
    let Ack::Message { response_id: first, .. } = rig.say("go") else { panic!() };
    rig.say("queued");
    rig.steer("late", &[]);
    rig.interrupt();
    rig.model(vec![ModelEvent::Message, text("to queued"), close(), done()]);
    rig.model(vec![ModelEvent::Message, text("to late"), close(), done()]);
    let ids: Vec<Value> = rig
        .seen
        .iter()
        .filter(|event| event.kind == "response.created")
        .map(|event| data(event)["response"]["id"].clone())
        .collect();
    assert_eq!((ids.len(), &ids[0]), (3, &json!(first)));
    assert_ne!(ids[2], ids[0]);
    assert!(rig.prompts[2].iter().any(|line| line.body.contains("late")));
}

#[test]
fn steering_a_session_at_rest_starts_a_turn() {
    let mut rig = Rig::new();
    assert!(matches!(rig.steer("go", &[]), Ack::Message { status: MessageStatus::Started, .. }));
}

#[test]
fn a_message_that_waits_can_be_taken_back() {
    let mut rig = Rig::new();
    rig.say("first");
    let Ack::Message { item_id, .. } = rig.say("second") else { panic!() };
    assert_eq!(rig.step(Input::Withdraw(item_id.clone())), Ok(Ack::Withdrawn(item_id.clone())));
    assert_eq!(rig.step(Input::Withdraw(item_id.clone())), Err(Rejected::NotQueued(item_id)));
    rig.model(vec![ModelEvent::Message, text("done"), close(), done()]);
    assert_eq!((rig.prompts.len(), rig.session.state.status()), (1, SessionStatus::Idle));
}
