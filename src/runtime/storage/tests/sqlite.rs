//! An SQLite in memory, in place of the platform's.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use rusqlite::types::{ToSqlOutput, Value as Sqlite, ValueRef};
use rusqlite::{Connection, Error, MAIN_DB, params_from_iter};
use serde_json::Value;

use crate::runtime::storage::sql::{Database, Row};
use crate::session::Unreadable;

/// The database. Clones share it.
#[derive(Clone)]
pub struct Memory {
    connection: Rc<Connection>,
    /// Rows that queries have returned.
    pub returned: Rc<Cell<usize>>,
    /// Queries that have been made.
    pub queries: Rc<Cell<usize>>,
    /// Bytes of the texts in them.
    pub texts: Rc<Cell<usize>>,
}

impl Memory {
    /// An empty one.
    pub fn new() -> Self {
        Self::over(Connection::open_in_memory().unwrap())
    }

    /// A copy of a file. What is done to it stays in memory.
    pub fn copy_of(file: &Path) -> Self {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.deserialize_read_exact(MAIN_DB, fs::File::open(file).unwrap(), size(file), false).unwrap();
        Self::over(connection)
    }

    fn over(connection: Connection) -> Self {
        let connection = Rc::new(connection);
        Self { connection, returned: Rc::default(), queries: Rc::default(), texts: Rc::default() }
    }

    fn rows(&self, query: &str, args: Vec<Value>) -> Result<Vec<Vec<Value>>, Unreadable> {
        let mut statement = self.connection.prepare(query).map_err(failed)?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(args.into_iter().map(argument))).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            found.push((0..columns).map(|n| value(row.get_ref(n).unwrap())).collect());
        }
        let texts = found.iter().flatten().filter_map(Value::as_str).map(str::len).sum::<usize>();
        self.texts.set(self.texts.get() + texts);
        self.queries.set(self.queries.get() + 1);
        self.returned.set(self.returned.get() + found.len());
        Ok(found)
    }
}

impl Database for Memory {
    fn query(&self, query: &str, args: Vec<Value>) -> Result<Vec<Row>, Unreadable> {
        Ok(self.rows(query, args)?.into_iter().map(Row::new).collect())
    }

    fn execute(&self, statement: &str, args: Vec<Value>) -> Result<(), Unreadable> {
        if args.is_empty() {
            return self.connection.execute_batch(statement).map_err(failed);
        }
        self.connection.execute(statement, params_from_iter(args.into_iter().map(argument))).map_err(failed)?;
        Ok(())
    }

    fn atomically(&self, mut work: impl FnMut() -> Result<(), Unreadable>) -> Result<(), Unreadable> {
        let run = |statement| self.connection.execute_batch(statement).map_err(failed);
        run("SAVEPOINT work")?;
        let done = work();
        run(if done.is_ok() { "RELEASE work" } else { "ROLLBACK TO work; RELEASE work" })?;
        done
    }
}

fn size(file: &Path) -> usize {
    usize::try_from(fs::metadata(file).unwrap().len()).unwrap()
}

fn argument(value: Value) -> ToSqlOutput<'static> {
    ToSqlOutput::Owned(match value {
        Value::Null => Sqlite::Null,
        Value::Number(number) => Sqlite::Integer(number.as_i64().unwrap()),
        Value::String(text) => Sqlite::Text(text),
        other => panic!("{other} is no argument"),
    })
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap().into(),
        other => panic!("{other:?} is not stored"),
    }
}

fn failed(e: Error) -> Unreadable {
    Unreadable::Storage(e.to_string())
}
