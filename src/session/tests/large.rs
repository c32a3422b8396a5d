//! What is large is cut on the stream, and the same in every replay.

use super::*;
use crate::api::STREAMED;
use crate::session::stream::TURN_ITEMS;

/// A turn that gets these outputs, one after the other, and then ends. What was heard of it.
fn turn(outputs: &[Value]) -> (Rig, Vec<Event>) {
    let mut rig = Rig::with(Settings { max_model_calls: 64, ..settings() });
    rig.say_with("go", &["look"]);
    for (n, output) in outputs.iter().enumerate() {
        let call_id = format!("c{n}");
        rig.model(vec![call(&call_id, "look"), close(), done()]);
        let given = ToolOutput { call_id: CallId(call_id), output: output.clone(), is_error: false };
        rig.step(Input::Output(given)).unwrap();
    }
    rig.model(vec![ModelEvent::Message, text("that was all"), close(), done()]);
    let seen = rig.seen.clone();
    let replayed = api::replay(&rig.session, Cursor::START, usize::MAX, &rig.log).unwrap().events;
    let whole = |events: &[Event]| -> Vec<String> {
        let whole = events.iter().filter(|event| !event.kind.ends_with(".delta"));
        whole.map(|event| event.data.clone()).collect()
    };
    assert_eq!(whole(&replayed), whole(&seen), "a replay differs");
    (rig, seen)
}

/// The items of the event that ended the turn.
fn output(events: &[Event]) -> Vec<Value> {
    let end = events.iter().find(|event| event.kind == "response.completed").unwrap();
    data(end)["response"]["output"].as_array().unwrap().clone()
}

/// The tool outputs that were shown when they came.
fn given(events: &[Event]) -> Vec<Value> {
    let done = events.iter().filter(|event| event.kind == "response.output_item.done");
    done.map(|event| data(event)["item"].clone()).filter(|item| item["type"] == "function_call_output").collect()
}

#[test]
fn the_end_of_a_turn_names_every_item_and_holds_what_fits() {
    let (rig, events) = turn(&vec![json!("x".repeat(300_000)); 5]);
    let items = output(&events);
    assert_eq!(items.len(), 11);
    let end = events.iter().find(|event| event.kind == "response.completed").unwrap();
    assert!(end.data.len() < TURN_ITEMS + 10_000, "{} bytes", end.data.len());
    let outputs: Vec<&Value> = items.iter().filter(|item| item["type"] == "function_call_output").collect();
    for (n, item) in outputs.iter().enumerate() {
        let truncated = n >= 3;
        assert_eq!(item["call_id"], format!("c{n}"));
        assert_eq!(item["status"], "completed");
        assert_eq!(item["truncated"], json!(truncated.then_some(true)), "{n}");
        assert_eq!(item["output"].as_str().map(str::len), (!truncated).then_some(300_000), "{n}");
    }
    let last = items.last().unwrap();
    assert_eq!(last["content"][0]["text"], "that was all", "what comes later and fits is whole");
    let stored = rig.log.output_of(&CallId("c4".into())).unwrap().unwrap();
    assert_eq!(api::flat(&stored, Status::Completed)["output"].as_str().unwrap().len(), 300_000);
}

#[test]
fn a_call_that_is_only_named_says_its_tool_and_what_became_of_it() {
    let mut rig = Rig::with(Settings { tool_timeout: Some(100), ..settings() });
    rig.say_with("go", &["look"]);
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(TURN_ITEMS));
    rig.model(vec![call("a", "look"), arguments(&large), close(), done()]);
    rig.now += 200;
    rig.step(Input::Alarm).unwrap();
    rig.model(vec![ModelEvent::Message, text("too late"), close(), done()]);
    let items = output(&rig.seen);
    let keys: Vec<&String> = items[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["id", "type", "status", "response_id", "created_at", "call_id", "name", "truncated"]);
    assert_eq!((&items[0]["name"], &items[0]["status"]), (&json!("look"), &json!("cancelled")));
    assert_eq!((&items[1]["status"], &items[1]["truncated"]), (&json!("expired"), &Value::Null));
}

#[test]
fn outputs_are_verbatim_up_to_the_limit_and_cut_between_characters_beyond() {
    let image = |size: usize| json!({"type": "input_image", "image_url": "i".repeat(size)});
    let note = json!({"type": "input_text", "text": "a note"});
    let cases = [
        json!("x".repeat(200_000)),
        json!("x".repeat(STREAMED)),
        json!("北".repeat(100_000)),
        json!([image(100_000), image(300_000), note]),
        json!([image(100_000), note]),
    ];
    let (_, events) = turn(&cases);
    let given = given(&events);
    assert_eq!(given[0]["output"], cases[0]);
    assert_eq!(given[1]["output"], cases[1]);
    assert_eq!(given[2]["output"], "北".repeat(STREAMED / 3));
    assert_eq!(given[3]["output"], json!([image(100_000), note]));
    assert_eq!(given[4]["output"], cases[4]);
    let truncated: Vec<bool> = given.iter().map(|item| item["truncated"] == true).collect();
    assert_eq!(truncated, [false, false, true, true, false]);
}

#[test]
fn a_large_message_is_cut_on_the_stream() {
    let mut rig = Rig::new();
    rig.say(&"北".repeat(100_000));
    let consumed = rig.seen.iter().find(|event| event.kind == "session.input.consumed").unwrap();
    assert_eq!(data(consumed)["data"]["data"], json!({"role": "user", "content": [], "truncated": true}));
    assert!(rig.prompts[0][0].body.len() > 300_000, "the model gets all of it");
}
