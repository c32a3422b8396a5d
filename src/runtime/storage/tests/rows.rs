//! No row is larger than the platform takes, and what would make one is refused without a trace.

use super::laws::Checked;
use super::{pages, sqlite};
use crate::provider::ContextPart;
use crate::runtime::storage::sql::{Database, text};
use crate::runtime::storage::store::Store;
use crate::session::tests::{Rig, TestLog, arguments, call, close, done, posted, settings, text as said};
use crate::session::{
    BLOCK, Entry, Input, Log, ModelEvent, NewMessage, Record, Seconds, Seq, SessionStatus, Settings, State, Tool,
    Unreadable,
};

/// The most that the platform takes, in bytes.
const PLATFORM: u64 = 2_000_000;

fn largest_row(database: &sqlite::Memory) -> u64 {
    let size = "MAX(octet_length(entry) + COALESCE(octet_length(body), 0) + 200)";
    let mut largest = database.query(&format!("SELECT {size} FROM log"), Vec::new()).unwrap();
    largest[0].number().unwrap()
}

fn tool(name: &str, description: usize) -> Tool {
    Tool {
        name: name.into(),
        description: Some("d".repeat(description)),
        parameters: None,
        strict: None,
        tool_timeout_s: Some(86_400),
    }
}

#[test]
fn a_message_with_all_that_may_be_large_is_stored() {
    for size in [10, 700_000, 780_000, 800_000, 1_000_000, 4_194_304] {
        let mut rig = Rig::on(Checked::create(), settings());
        let settings = serde_json::json!({"response_format": {"schema": "s".repeat(262_144)}});
        let message = NewMessage {
            tools: vec![tool("look", 750_000)],
            settings: Some(settings),
            ..posted(&"ü".repeat(size / 2), &[])
        };
        for _ in 0..2 {
            rig.step(Input::Message(message.clone())).unwrap(); // the first has its turn, the second waits
        }
        rig.model(vec![ModelEvent::Message, said("yes"), close(), done()]);
        assert_eq!(rig.prompts.last().unwrap().iter().filter(|line| line.part == ContextPart::User).count(), 2);
        assert!(largest_row(&rig.log.store.sql) < PLATFORM, "{size}");
    }
}

#[test]
fn the_largest_states_fit_into_their_row() {
    let mut rig = Rig::on(Checked::create(), Settings { max_queue: 32, ..settings() });
    let name = |n: usize| format!("{n:0>64}");
    let tools: Vec<Tool> = (0..128).map(|n| tool(&name(n), 0)).collect();
    let message = NewMessage { tools, model: Some("m".repeat(256)), ..posted("go", &[]) };
    for _ in 0..33 {
        rig.step(Input::Message(message.clone())).unwrap();
    }
    let mut answer = Vec::new();
    for n in 0..BLOCK as usize - 1 {
        answer.extend([call(&name(n), &name(n % 128)), arguments("{}"), close()]);
    }
    rig.log.unchecked = true; // a thousand times a thousand records
    answer.push(done());
    rig.model(answer);
    assert_eq!(rig.session.state.status(), SessionStatus::Waiting);
    assert_eq!(rig.session.state.open_calls().len(), BLOCK as usize - 1);
    assert!(largest_row(&rig.log.store.sql) < PLATFORM / 2, "{} bytes", largest_row(&rig.log.store.sql));
}

#[test]
fn a_row_that_the_platform_would_refuse_is_refused() {
    let database = sqlite::Memory::new();
    database.run("CREATE TABLE t (a TEXT, b TEXT)", Vec::new()).unwrap();
    let insert = "INSERT INTO t (a, b) VALUES (?, ?)";
    let row = |size: usize| vec![text("x".repeat(size)), text("y".repeat(1_000_000))];
    database.run(insert, row(900_000)).unwrap();
    let refused = Err(Unreadable::TooLarge { size: 1_900_001, limit: 1_900_000 });
    assert_eq!(database.run(insert, row(900_001)), refused);
    let two = "INSERT INTO t (a, b) VALUES (?, ?), (?, ?)";
    database.insert(two, vec![row(900_000), row(900_000)]).unwrap();
    assert_eq!(database.insert(two, vec![row(10), row(900_001)]), refused);
    assert_eq!(database.query("SELECT COUNT(*) FROM t", Vec::new()).unwrap()[0].number(), Some(3));
}

#[test]
fn a_step_with_a_row_that_is_too_large_leaves_no_trace() {
    let mut rig = Rig::on(Checked::create(), settings());
    rig.say("go");
    let store = &rig.log.store;
    let before = (store.records(Seq(0), 64).unwrap(), store.load().unwrap().unwrap().state);
    let large = |seq: u64| {
        let Entry::Seeded { mut item } = pages::record(seq, &"b".repeat(3_000_000)).entry else { panic!() };
        item.response_id.0 = "r".repeat(2_000_000);
        Record { seq: Seq(seq), entry: Entry::Seeded { item } }
    };
    for records in [vec![large(5000)], vec![pages::record(5000, &"b".repeat(3_000_000)), large(5001)]] {
        let failed = store.append(&records, &State::new(Seconds(1)));
        assert!(matches!(failed, Err(Unreadable::TooLarge { size: 2_000_000.., .. })), "{failed:?}");
        for store in [store, &Store::new(store.sql.clone())] {
            assert_eq!(store.load().unwrap().unwrap().state, before.1);
            assert_eq!(store.records(Seq(0), 64).unwrap(), before.0);
        }
    }
    rig.crash(); // the driver forgets what it has in memory and reads it again
    rig.model(vec![ModelEvent::Message, said("fine"), close(), done()]);
    let store = &rig.log.store;
    store.append(&[pages::record(5000, &"b".repeat(3_000_000))], &rig.session.state).unwrap();
    assert_eq!(store.item(Seq(5000)).unwrap().body.len(), 3_000_000);
}
