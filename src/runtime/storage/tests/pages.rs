//! No page holds more than its budget, and a small one costs one query.

use super::laws::{Checked, id, info};
use super::sqlite;
use crate::runtime::storage::pages::{CONTEXT, NoContext, PAGE};
use crate::runtime::storage::store::Store;
use crate::session::tests::{Rig, TestLog, call, close, done, settings};
use crate::session::{
    Cursor, Entry, Item, ItemId, Kind, Log, Record, ResponseId, Role, Seconds, Seq, State, Status,
};

pub fn record(seq: u64, body: &str) -> Record {
    let item = Item {
        id: ItemId(format!("item_{seq}")),
        response_id: ResponseId("resp_1".into()),
        created_at: Seconds(1),
        status: Status::Completed,
        kind: Kind::Message { role: Role::User },
        origin: None,
        body: body.into(),
    };
    Record { seq: Seq(seq), entry: Entry::Seeded { item } }
}

/// A log whose records have bodies of these sizes, not of ASCII only.
fn log(sizes: &[usize]) -> (Store<sqlite::Memory>, Vec<Record>) {
    let bodies = sizes.iter().map(|size| "ü".repeat(size / 2));
    let records: Vec<Record> = (1..).zip(bodies).map(|(seq, body)| record(seq, &body)).collect();
    let store = Store::new(sqlite::Memory::new());
    store.create(&id(), &info(), &State::new(Seconds(1)), &records).unwrap();
    (Store::new(store.sql), records)
}

#[test]
fn a_page_of_records_is_bounded_in_bytes() {
    for size in [10, 20_000, 300_000, 900_000, 1_300_000, 3_000_000] {
        let (store, records) = log(&[size; 9]);
        let (mut from, mut read) = (Seq(0), Vec::new());
        loop {
            let page = store.records(from, 64).unwrap();
            let Some(last) = page.last() else { break };
            from = last.seq.plus(1);
            let held: usize = page.iter().map(|record| record.entry.item().unwrap().body.len()).sum();
            assert!(held <= PAGE || page.len() == 1, "{held} bytes in a page");
            assert!(page.len() == 9 || held + size > PAGE / 2 || from == Seq(10), "a page of {held} bytes");
            read.extend(page);
        }
        assert_eq!(read, records, "records of {size} bytes");
    }
}

#[test]
fn a_page_of_items_is_bounded_in_bytes_in_both_directions() {
    let (store, records) = log(&[10, 2_500_000, 20_000, 600_000, 600_000, 10, 600_000, 10]);
    let items: Vec<Item> = records.iter().map(|record| record.entry.item().unwrap().clone()).collect();
    for (descending, count) in [(false, [1, 1, 4, 2]), (true, [4, 2, 1, 1])] {
        let (mut beyond, mut read, mut pages) = (None, Vec::new(), Vec::new());
        loop {
            let (page, more) = store.items(beyond, descending, 64, 1_300_000).unwrap();
            pages.push(page.len());
            beyond = page.last().map(|(seq, _)| *seq);
            read.extend(page.into_iter().map(|(_, item)| item));
            if !more {
                break;
            }
        }
        if descending {
            read.reverse();
        }
        assert_eq!(read, items);
        assert_eq!(pages, count, "descending: {descending}");
    }
}

#[test]
fn small_records_cost_one_query_and_large_ones_are_only_read_if_they_fit() {
    let (store, _) = log(&[100; 40]);
    store.records(Seq(0), 64).unwrap();
    assert_eq!((store.sql.returned.take(), store.sql.queries.take()), (40, 1));
    let (store, _) = log(&[700_000; 40]);
    store.records(Seq(0), 64).unwrap();
    assert_eq!(store.sql.queries.take(), 2, "one for the sizes, one for the first body");
    let (store, _) = log(&[3_000_000; 3]);
    store.records(Seq(0), 64).unwrap();
    assert!(store.sql.queries.take() <= 3);
}

#[test]
fn a_context_that_is_too_large_is_found_out_before_it_is_held() {
    for size in [1_000, 16_000, 100_000, 900_000, 1_900_000, 5_000_000] {
        let fits = CONTEXT / size;
        let (store, records) = log(&vec![size; fits]);
        let context = store.context().unwrap();
        let bodies = records.iter().map(|record| &record.entry.item().unwrap().body);
        assert!(context.iter().map(|line| &line.body).eq(bodies), "{fits} bodies of {size} bytes");
        drop(context);
        let (store, records) = log(&vec![size; fits + 1]);
        store.sql.queries.take();
        for _ in 0..2 {
            match store.context() {
                Err(NoContext::TooLarge(found)) => assert_eq!(found, (fits + 1) * size),
                other => panic!("{other:?}"),
            }
            assert!(store.sql.texts.take() < CONTEXT + 2 * 256 * size.min(16_384), "{} records", records.len());
        }
    }
}

#[test]
fn the_context_grows_over_its_limit_while_it_is_kept() {
    let mut state = State::new(Seconds(1));
    let (store, _) = log(&[1000]);
    store.load().unwrap();
    for seq in 2.. {
        let record = record(seq, &"x".repeat(4_000_000));
        state.apply(&record);
        store.append(&[record], &state).unwrap();
        let lines = store.context().map(|context| context.len());
        match lines {
            Ok(lines) => assert!(lines as u64 == seq && seq < 6),
            Err(NoContext::TooLarge(size)) => return assert!(seq == 6 && size == 20_001_000, "{size}"),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_replay_in_pages_of_large_records_is_whole() {
    let mut rig = Rig::on(Checked::create(), settings());
    rig.say_with("go", &["look"]);
    for n in 0..4 {
        let id = format!("c{n}");
        rig.model(vec![call(&id, "look"), close(), done()]);
        rig.give(&id, &"x".repeat(400_000)).unwrap();
    }
    let (mut from, mut kinds) = (Cursor::START, Vec::new());
    loop {
        let page = crate::api::replay(&rig.session, from, 100_000, &rig.log).unwrap();
        kinds.extend(page.events.iter().map(|event| event.kind));
        from = page.cursor;
        if !page.more {
            break;
        }
    }
    assert_eq!(kinds, rig.seen.iter().map(|event| event.kind).collect::<Vec<_>>());
}
