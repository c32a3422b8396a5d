//! A thin layer over the platform's SQL: rows of text and numbers, typed errors, and a count of billed rows.
//!
//! Arguments and rows cross between Rust and JavaScript as one JSON text each (see `js`): crossing value by value, a
//! query would take dozens of crossings.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use serde_json::Value;
use wasm_bindgen::prelude::*;
use worker::Storage;

use crate::runtime::platform::js;
use crate::session::Unreadable;

/// The largest row, in bytes. The platform rejects one of 2 MB; a local server would accept it, and nobody would
/// notice.
const ROW_LIMIT: usize = 1_900_000;

/// The database a store needs: the platform's or, in native tests, another SQLite.
pub trait Database {
    /// Runs a query and returns its rows.
    fn query(&self, query: &str, args: Vec<Value>) -> Result<Vec<Row>, Unreadable>;

    /// Runs a statement that returns no rows. Callers use `run` and `insert`, which make sure that no row is too large.
    fn execute(&self, statement: &str, args: Vec<Value>) -> Result<(), Unreadable>;

    /// Runs a statement that returns no rows and writes at most one.
    fn run(&self, statement: &str, args: Vec<Value>) -> Result<(), Unreadable> {
        check_row(&args)?;
        self.execute(statement, args)
    }

    /// Runs a statement that writes these rows.
    fn insert(&self, statement: &str, rows: Vec<Vec<Value>>) -> Result<(), Unreadable> {
        rows.iter().try_for_each(|row| check_row(row))?;
        self.execute(statement, rows.into_iter().flatten().collect())
    }

    /// Performs all of `work` or, if any of it fails, nothing.
    fn atomically(&self, work: impl FnMut() -> Result<(), Unreadable>) -> Result<(), Unreadable>;
}

pub struct Row(std::vec::IntoIter<Value>);

impl Row {
    /// Of the values of its columns.
    pub fn new(columns: Vec<Value>) -> Self {
        Self(columns.into_iter())
    }

    /// The next column as text; empty for NULL.
    pub fn text(&mut self) -> String {
        match self.0.next() {
            Some(Value::String(text)) => text,
            _ => String::new(),
        }
    }

    /// The next column as a non-negative number; `None` for NULL.
    pub fn number(&mut self) -> Option<u64> {
        self.0.next()?.as_u64()
    }
}

#[wasm_bindgen]
extern "C" {
    /// The part of the platform's storage `worker` does not bind.
    type Transactions;

    #[wasm_bindgen(method, catch, js_name = transactionSync)]
    fn transaction_sync(
        this: &Transactions,
        work: &mut dyn FnMut() -> Result<JsValue, JsValue>,
    ) -> Result<JsValue, JsValue>;

    type SqlStorage;

    #[wasm_bindgen(method, catch, variadic)]
    fn exec(this: &SqlStorage, query: &str, args: &JsValue) -> Result<Cursor, JsValue>;

    /// The outcome of a query.
    type Cursor;

    #[wasm_bindgen(method, catch)]
    fn raw(this: &Cursor) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, getter, js_name = rowsRead)]
    fn rows_read(this: &Cursor) -> u32;

    #[wasm_bindgen(method, getter, js_name = rowsWritten)]
    fn rows_written(this: &Cursor) -> u32;

    #[wasm_bindgen(catch, js_namespace = Array, js_name = from)]
    fn collect(iterator: &JsValue) -> Result<JsValue, JsValue>;
}

#[derive(Clone)]
pub struct Sql {
    storage: Rc<Storage>,
    inner: Rc<SqlStorage>,
    written: Rc<Cell<u32>>,
    read: Rc<Cell<u32>>,
}

impl Sql {
    pub fn new(storage: Storage) -> Self {
        let inner: JsValue = storage.sql().as_ref().clone();
        let inner = Rc::new(inner.unchecked_into());
        Self { storage: Rc::new(storage), inner, written: Rc::default(), read: Rc::default() }
    }

    fn exec(&self, query: &str, args: Vec<Value>) -> Result<Cursor, Unreadable> {
        let args = js::object(&Value::Array(args)).map_err(|e| failed(&e))?;
        self.inner.exec(query, &args).map_err(|e| failed(&e))
    }

    /// Counts a row the platform bills without a query: setting an alarm.
    pub fn count_alarm(&self) {
        self.written.set(self.written.get().saturating_add(1));
    }

    /// Rows read since the last call.
    pub fn take_read(&self) -> u32 {
        self.read.take()
    }

    /// Rows written since the last call.
    pub fn take_written(&self) -> u32 {
        self.written.take()
    }
}

impl Database for Sql {
    fn query(&self, query: &str, args: Vec<Value>) -> Result<Vec<Row>, Unreadable> {
        let cursor = self.exec(query, args)?;
        let rows = cursor.raw().and_then(|rows| collect(&rows)).and_then(|rows| js_sys::JSON::stringify(&rows));
        let rows = rows.map_err(|e| failed(&e))?;
        self.read.set(self.read.get().saturating_add(cursor.rows_read()));
        let rows: Vec<Vec<Value>> = serde_json::from_str(&string(&rows)?).map_err(unreadable)?;
        Ok(rows.into_iter().map(Row::new).collect())
    }

    fn execute(&self, statement: &str, args: Vec<Value>) -> Result<(), Unreadable> {
        let cursor = self.exec(statement, args)?;
        self.written.set(self.written.get().saturating_add(cursor.rows_written()));
        Ok(())
    }

    fn atomically(&self, mut work: impl FnMut() -> Result<(), Unreadable>) -> Result<(), Unreadable> {
        let mut failure = None;
        // Unwind safety: a panic fails the whole request, and the session is loaded again.
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
            (None, Err(e)) => Err(failed(&e)),
            (None, Ok(_)) => Ok(()),
        }
    }
}

/// Rejects a row the platform would reject.
fn check_row(columns: &[Value]) -> Result<(), Unreadable> {
    let column = |value: &Value| value.as_str().map_or(9, str::len);
    let size = columns.iter().map(column).fold(0usize, usize::saturating_add);
    if size <= ROW_LIMIT { Ok(()) } else { Err(Unreadable::TooLarge { size, limit: ROW_LIMIT }) }
}

/// A possibly long text.
fn string(text: &js_sys::JsString) -> Result<String, Unreadable> {
    String::from_utf8(js::string(text)).map_err(|e| Unreadable::Storage(e.to_string()))
}

/// A number as a query's argument.
pub fn number(n: u64) -> Value {
    n.into()
}

/// A text as a query's argument.
pub fn text(text: impl Into<String>) -> Value {
    Value::String(text.into())
}

fn failed(e: &JsValue) -> Unreadable {
    Unreadable::Storage(js::message(e))
}

fn unreadable(e: serde_json::Error) -> Unreadable {
    Unreadable::Storage(e.to_string())
}
