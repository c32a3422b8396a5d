//! How much a model may say, and what becomes of names that mean something elsewhere.

use super::*;

fn limited(max_answer: usize) -> Rig {
    let mut rig = Rig::with(Settings { max_answer, ..settings() });
    rig.say_with("go", &["look"]);
    rig
}

fn reason(rig: &Rig) -> Option<&str> {
    match &rig.session.state.last.as_ref()?.outcome {
        Outcome::Incomplete(reason) => Some(reason),
        _ => None,
    }
}

/// The output items of the log that the model is shown, with their status.
fn kept(rig: &Rig) -> Vec<(Status, Value)> {
    let shown =
        rig.log.records.values().filter(|record| matches!(record.entry, Entry::Output { context: true, .. }));
    shown
        .map(|record| {
            let item = record.entry.item().unwrap();
            (item.status, serde_json::from_str(&item.body).unwrap())
        })
        .collect()
}

#[test]
fn a_text_without_end_is_cut_at_the_limit() {
    let mut rig = limited(1000);
    rig.model(vec![ModelEvent::Message, text("so ")]);
    assert_eq!(reason(&rig), None);
    for _ in 0..1000 {
        if rig.request.is_some() {
            rig.model(vec![text("é")]);
        }
    }
    assert_eq!((reason(&rig), rig.request), (Some("max_output_bytes"), None));
    let items = kept(&rig);
    let said = items[0].1["content"][0]["text"].as_str().unwrap();
    assert_eq!((items.len(), items[0].0), (1, Status::Incomplete));
    assert!(said.starts_with("so éé") && said.len() <= 1000 && said.len() > 700, "{} bytes", said.len());
    assert!(rig.heard().contains(&"incomplete".to_string()));
    rig.say("again");
    rig.model(vec![ModelEvent::Message, text("Back."), close(), done()]);
    assert_eq!(reason(&rig), None, "every response has the whole limit");
}

#[test]
fn everything_that_a_model_can_send_counts() {
    let long = "x".repeat(2000);
    let payload = Some(json!({"opaque": long}));
    for events in [
        vec![call("a", "look"), arguments(&long)],
        vec![call(&long, "look")],
        vec![call("a", &long)],
        vec![
            ModelEvent::Reasoning,
            ModelEvent::Text { kind: PartKind::Reasoning, fresh: false, text: long.clone() },
        ],
        vec![ModelEvent::Reasoning, ModelEvent::Close { payload }],
        vec![text(&long)],
        vec![ModelEvent::Message; 1]
            .into_iter()
            .chain((0..8).map(|_| ModelEvent::Text { kind: PartKind::Text, fresh: true, text: "x".into() }))
            .collect(),
        (0..40).flat_map(|n| [call(&format!("c{n}"), "look"), arguments(&long[..50]), close()]).collect(),
    ] {
        let mut rig = limited(1000);
        rig.model([events, vec![done()]].concat());
        assert_eq!(reason(&rig), Some("max_output_bytes"));
        assert!(
            rig.session.state.open_calls().is_empty(),
            "calls of a response that was cut are not to be answered"
        );
        assert!(kept(&rig).iter().all(|(_, body)| body["type"] != "function_call"));
    }
}

#[test]
fn a_call_has_no_name_that_is_a_place_in_an_address() {
    for id in ["..", ".", "-x", ":", ""] {
        let mut rig = Rig::new();
        rig.say_with("go", &["look"]);
        rig.model(vec![call(id, "look"), close(), done()]);
        let call = &rig.session.state.open_calls()[0];
        assert!(call.call_id.0.starts_with("call_"), "{id} became {}", call.call_id);
    }
}

#[test]
fn many_seeds_are_paired() {
    let call = |n: usize| InitialItem::Call {
        call_id: CallId(format!("c{n}")),
        name: "look".into(),
        arguments: "{}".into(),
    };
    let output = |n: usize| {
        InitialItem::Output(ToolOutput { call_id: CallId(format!("c{n}")), output: json!("x"), is_error: false })
    };
    let many = 5000;
    let seeds: Vec<InitialItem> = (0..many).map(call).chain((0..many).rev().map(output)).collect();
    let mut rig = Rig::new();
    let mut context = Context { now: Seconds(1000), ids: &mut rig.ids, log: &rig.log };
    let effects = rig.session.step(Input::InitialItems(seeds), &mut context).unwrap();
    assert_eq!(effects.append.len(), 2 * many);
    let refused = |seeds: Vec<InitialItem>| match Rig::new().step(Input::InitialItems(seeds)).unwrap_err() {
        Rejected::Unpaired { index, why } => (index, why),
        other => panic!("{other:?}"),
    };
    let said = InitialItem::Message { role: Role::User, content: json!("x") };
    assert_eq!(
        refused(vec![call(9), call(1), said]),
        (2, "call c9 has no output before this message".to_string())
    );
    assert_eq!(refused(vec![call(1), output(1), call(1)]), (2, "call c1 is a duplicate".to_string()));
    assert_eq!(refused(vec![call(2), call(1)]), (1, "call c2 has no output".to_string()));
}
