//! The laws of sessions over the store, its caches included. Whatever a session reads of its log is compared with a log in
//! memory that was given the same records.

use serde_json::json;

use super::sqlite;
use crate::api::SessionInfo;
use crate::json;
use crate::provider::ContextLine;
use crate::runtime::storage::pages::PAGE;
use crate::runtime::storage::store::{Store, Stored};
use crate::session::tests::laws::test_laws;
use crate::session::tests::{Memory, TestLog};
use crate::session::{CallId, Item, Log, Open, Record, Seq, SessionId, State, Unreadable};

/// The store, and what it must say.
pub struct Checked {
    pub store: Store<sqlite::Memory>,
    truth: Memory,
    /// Leaves the whole log out of what is compared after every step.
    pub unchecked: bool,
}

impl Checked {
    fn begin(store: Store<sqlite::Memory>, truth: Memory, state: &State) -> Self {
        store.create(&id(), &info(), state, &[]).unwrap();
        Self { store, truth, unchecked: false }
    }

    /// Another instance over the same database.
    pub fn another(&self) -> Store<sqlite::Memory> {
        Store::new(self.store.sql.clone())
    }
}

impl Log for Checked {
    fn records(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable> {
        let (records, truth) = (self.store.records(from, limit)?, self.truth.records(from, limit)?);
        // A page may end before its limit, but not without need.
        let size = |record: &Record| record.entry.item().map_or(0, |item| item.body.len());
        let beyond: usize = truth.iter().take(records.len() + 1).map(size).sum();
        assert!(records.len() == truth.len().min(64) || (!records.is_empty() && beyond > PAGE / 2));
        assert_eq!(records, truth[..records.len()], "{limit} records from {from:?}");
        Ok(records)
    }

    fn output_of(&self, call_id: &CallId) -> Result<Option<Item>, Unreadable> {
        let output = self.store.output_of(call_id)?;
        assert_eq!(output, self.truth.output_of(call_id)?);
        Ok(output)
    }

    fn has_call(&self, call_id: &CallId) -> Result<bool, Unreadable> {
        let has = self.store.has_call(call_id)?;
        assert_eq!(has, self.truth.has_call(call_id)?);
        Ok(has)
    }
}

impl TestLog for Checked {
    fn create() -> Self {
        let state = State::new(info().created_at);
        Self::begin(Store::new(sqlite::Memory::new()), Memory::create(), &state)
    }

    fn copy(records: &[Record], state: &State) -> Self {
        let store = Store::new(sqlite::Memory::new());
        store.prepare().unwrap();
        store.import(records).unwrap();
        Self::begin(store, Memory::copy(records, state), state)
    }

    fn append(&mut self, records: &[Record], state: &State) {
        self.truth.append(records, state);
        self.store.append(records, state).unwrap();
    }

    fn checkpoint(&mut self, state: &State, open: &[Open]) {
        self.truth.checkpoint(state, open);
        self.store.checkpoint(state, open, crate::session::Seconds(1000)).unwrap();
    }

    fn context(&self) -> Vec<ContextLine> {
        let context = self.store.context().unwrap();
        assert_eq!(context, self.another().context().unwrap(), "another instance shows the model something else");
        assert_eq!(*context, self.truth.context());
        self.truth.context()
    }

    fn reload(&mut self) -> (State, Vec<Open>) {
        self.store = self.another();
        let Stored { state, open, .. } = self.store.load().unwrap().unwrap();
        assert_eq!((&state, &open), (&self.truth.reload().0, &self.truth.reload().1));
        (state, open)
    }

    fn all(&self) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        loop {
            let from = records.last().map_or(Seq(0), |record| record.seq.plus(1));
            let page = self.records(from, 64).unwrap();
            if page.is_empty() {
                return records;
            }
            records.extend(page);
        }
    }

    fn check(&self, state: &State) {
        assert_eq!(&self.another().load().unwrap().unwrap().state, state);
        let all = if self.unchecked { Vec::new() } else { self.truth.all() };
        for record in all {
            for (from, limit) in [(record.seq, 1), (record.seq, 64), (record.seq.plus(1), 2)] {
                self.records(from, limit).unwrap();
            }
        }
    }
}

pub fn id() -> SessionId {
    SessionId("sess_000000000000000000000000000abcde".into())
}

pub fn info() -> SessionInfo {
    let text =
        json!({"agent": {"name": "a"}, "agent_id": "agent_1", "tenant": "t", "created_at": 1000}).to_string();
    json::read(&text).unwrap()
}

test_laws!(Checked, 64);
