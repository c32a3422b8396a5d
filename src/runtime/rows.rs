//! A thin layer over the platform's SQL: rows of text and numbers, errors in our words, and a count of what is billed.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use wasm_bindgen::prelude::*;
use worker::{SqlStorage, SqlStorageValue, Storage};

use crate::session::Unreadable;

/// One row.
pub struct Row(std::vec::IntoIter<SqlStorageValue>);

impl Row {
    /// The next column as text; empty for NULL.
    pub fn text(&mut self) -> String {
        match self.0.next() {
            Some(SqlStorageValue::String(text)) => text,
            _ => String::new(),
        }
    }

    /// The next column as a number that cannot be negative; none for NULL.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "only whole numbers below 2^53 are stored"
    )]
    pub fn number(&mut self) -> Option<u64> {
        match self.0.next() {
            Some(SqlStorageValue::Integer(n)) => u64::try_from(n).ok(),
            Some(SqlStorageValue::Float(n)) => Some(n as u64),
            _ => None,
        }
    }
}

#[wasm_bindgen]
extern "C" {
    /// The part of the platform's storage that `worker` does not bind.
    type Transactions;

    #[wasm_bindgen(method, catch, js_name = transactionSync)]
    fn transaction_sync(
        this: &Transactions,
        work: &mut dyn FnMut() -> Result<JsValue, JsValue>,
    ) -> Result<JsValue, JsValue>;
}

/// An object's SQL.
#[derive(Clone)]
pub struct Sql {
    inner: SqlStorage,
    storage: Rc<Storage>,
    written: Rc<Cell<usize>>,
    read: Rc<Cell<usize>>,
}

impl Sql {
    /// Over the platform's.
    pub fn new(storage: Storage) -> Self {
        Self { inner: storage.sql(), storage: Rc::new(storage), written: Rc::default(), read: Rc::default() }
    }

    /// Does all of `work` or, if any of it fails, nothing.
    pub fn atomically(&self, mut work: impl FnMut() -> Result<(), Unreadable>) -> Result<(), Unreadable> {
        let mut failure = None;
        // A panic in here fails the whole request, and what is in memory is read again.
        let mut shared = AssertUnwindSafe((&mut work, &mut failure));
        let mut attempt = move || {
            let whole = &mut shared;
            let (work, failure) = &mut whole.0;
            work().map(|()| JsValue::UNDEFINED).map_err(|e| {
                let why = JsValue::from_str(&e.to_string());
                **failure = Some(e);
                why
            })
        };
        let storage: &Transactions = self.storage.as_raw().unchecked_ref();
        let done = storage.transaction_sync(&mut attempt);
        match (failure, done) {
            (Some(failure), _) => Err(failure),
            (None, Err(e)) => Err(Unreadable::Storage(format!("{e:?}"))),
            (None, Ok(_)) => Ok(()),
        }
    }

    /// Runs a query and returns its rows.
    pub fn query(&self, query: &str, args: Vec<SqlStorageValue>) -> Result<Vec<Row>, Unreadable> {
        let cursor = self.inner.exec(query, args).map_err(storage)?;
        let rows = cursor.raw().map(|row| row.map(|row| Row(row.into_iter())).map_err(storage)).collect();
        self.written.set(self.written.get().saturating_add(cursor.rows_written()));
        self.read.set(self.read.get().saturating_add(cursor.rows_read()));
        rows
    }

    /// Counts a row that the platform bills without a query: an alarm that was set.
    pub fn count_alarm(&self) {
        self.written.set(self.written.get().saturating_add(1));
    }

    /// Rows read since the last time this was asked.
    pub fn take_read(&self) -> usize {
        self.read.take()
    }

    /// Rows written since the last time this was asked.
    pub fn take_written(&self) -> usize {
        self.written.take()
    }
}

/// A number as a query's argument.
pub fn number(n: u64) -> SqlStorageValue {
    i64::try_from(n).map_or(SqlStorageValue::Null, SqlStorageValue::Integer)
}

/// A text as a query's argument.
pub fn text(text: impl Into<String>) -> SqlStorageValue {
    SqlStorageValue::String(text.into())
}

/// An optional text as a query's argument.
pub fn maybe(text: Option<String>) -> SqlStorageValue {
    text.map_or(SqlStorageValue::Null, SqlStorageValue::String)
}

fn storage(e: worker::Error) -> Unreadable {
    Unreadable::Storage(e.to_string())
}
