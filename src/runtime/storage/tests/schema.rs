//! Storage of other versions: an older one is brought forward, a newer one is left alone, and one that a released version
//! wrote is read and continued.

use std::fs;
use std::path::Path;

use super::laws::{id, info};
use super::sqlite;
use crate::api;
use crate::runtime::storage::schema::{Migration, migrate, version};
use crate::runtime::storage::sql::{Database, number};
use crate::runtime::storage::store::{Store, Stored};
use crate::session::tests::{Counter, close, done, posted, settings, text};
use crate::session::{
    Context, Cursor, Effects, Input, Log, ModelEvent, Seconds, Seq, Session, SessionStatus, State, Task,
    ToolOutput, Unreadable,
};

fn stored() -> sqlite::Memory {
    let sql = sqlite::Memory::new();
    Store::new(sql.clone()).create(&id(), &info(), &State::new(Seconds(1000)), &[]).unwrap();
    sql
}

/// All that is in the log table.
fn rows(sql: &sqlite::Memory) -> String {
    let rows = sql.query("SELECT concat_ws(' ', seq, entry, body) FROM log ORDER BY seq", Vec::new()).unwrap();
    rows.into_iter().map(|mut row| row.text()).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_a_newer_version_wrote_is_refused_and_left_alone() {
    let sql = stored();
    sql.run("UPDATE log SET entry = json_set(entry, '$.schema', 99, '$.unknown', 1) WHERE seq = -2", vec![])
        .unwrap();
    let before = rows(&sql);
    let Err(refused) = Store::new(sql.clone()).load() else { panic!("it was loaded") };
    assert!(matches!(refused, Unreadable::Newer { found: 99, .. }), "{refused}");
    assert_eq!(rows(&sql), before);
}

#[test]
fn migrations_run_once_each_in_order_and_all_or_nothing() {
    const FINE: &[Migration<sqlite::Memory>] = &[
        |sql| sql.run("CREATE TABLE one (a)", vec![]),
        |sql| sql.run("INSERT INTO one VALUES (?)", vec![number(2)]),
        |sql| sql.run("UPDATE one SET a = a * 10", vec![]),
    ];
    const BROKEN: &[Migration<sqlite::Memory>] =
        &[FINE[0], FINE[1], |_| Err(Unreadable::Storage("it broke".into()))];
    let sql = sqlite::Memory::new();
    sql.run("CREATE TABLE form (version)", vec![]).unwrap();
    sql.run("INSERT INTO form VALUES (1)", vec![]).unwrap();
    let found = || sql.query("SELECT version FROM form", vec![]).unwrap()[0].number().unwrap();
    let stamp = |version: u32| sql.run("UPDATE form SET version = ?", vec![number(version.into())]);
    let run = |migrations| migrate(&sql, u32::try_from(found()).unwrap(), migrations, stamp);

    assert_eq!(run(BROKEN), Err(Unreadable::Storage("it broke".into())));
    assert_eq!(found(), 1);
    assert!(sql.query("SELECT * FROM one", vec![]).is_err(), "a part of a failed migration stayed");
    for _ in 0..2 {
        run(FINE).unwrap();
        assert_eq!(found(), u64::from(version(FINE)));
        assert_eq!(sql.query("SELECT a FROM one", vec![]).unwrap()[0].number(), Some(20));
    }
    assert_eq!(run(&FINE[..1]), Err(Unreadable::Newer { found: 4, known: 2 }));
}

/// Every SQLite file in `tests/storage` is the storage of a session's object as a version of the worker left it on a real
/// workerd; `tests/storage/record.mjs` writes the current one. Each holds a turn that waits for the call `open_call`.
#[test]
fn storage_of_every_version_is_read_and_continued() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/storage");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "sqlite")).collect();
    assert!(!files.is_empty());
    for file in files {
        let store = Store::new(sqlite::Memory::copy_of(&file));
        let Stored { id, state, open, .. } = store.load().unwrap().expect("a session");
        assert_eq!(state.status(), SessionStatus::Waiting);
        let mut session = Session::load(id, settings(), state, open);

        let whole = api::replay(&session, Cursor::START, usize::MAX, &store).unwrap();
        assert!(!whole.more && whole.events.len() > 20);
        let kinds: Vec<&str> = whole.events.iter().map(|event| event.kind).collect();
        for kind in ["response.completed", "response.cancelled", "response.failed", "response.retry"] {
            assert!(kinds.contains(&kind), "no {kind}");
        }
        for (n, event) in whole.events.iter().enumerate() {
            let rest = api::replay(&session, event.cursor.unwrap(), usize::MAX, &store).unwrap();
            let shown = |events: &[api::Event]| events.iter().map(|event| event.data.clone()).collect::<Vec<_>>();
            assert_eq!(shown(&rest.events), shown(&whole.events[n + 1..]));
        }
        let before = store.context().unwrap().len();

        let mut ids = Counter(1_000_000);
        let mut step = |session: &mut Session, input: Input| -> Effects {
            let now = Seconds(session.state.updated_at.0 + 1);
            let effects = session.step(input, &mut Context { now, ids: &mut ids, log: &store }).unwrap();
            store.append(&effects.append, &session.state).unwrap();
            api::publish(session, &effects.append, &store).unwrap();
            effects
        };
        step(&mut session, Input::Recover);
        let call_id = session.state.open_calls()[0].call_id.clone();
        assert_eq!(call_id.as_str(), "open_call");
        let output = ToolOutput { call_id, output: "found".into(), is_error: false };
        let effects = step(&mut session, Input::Output(output));
        let Some(Task::Sample(sample)) = effects.start.first() else { panic!("the model is not asked") };
        let events = vec![ModelEvent::Message, text("done"), close(), done()];
        step(&mut session, Input::Model { at: sample.at, events });
        step(&mut session, Input::Message(posted("and again", &[])));
        assert_eq!(session.state.status(), SessionStatus::Running);
        assert_eq!(store.context().unwrap().len(), before + 3);
        assert!(!store.records(Seq(0), 64).unwrap().is_empty());
    }
}
