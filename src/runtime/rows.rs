//! Small helpers over the platform's SQL: rows of text and numbers, with errors in our words.

use worker::{SqlStorage, SqlStorageValue};

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

/// Runs a query and returns its rows.
pub fn query(sql: &SqlStorage, query: &str, args: Vec<SqlStorageValue>) -> Result<Vec<Row>, Unreadable> {
    let cursor = sql.exec(query, args).map_err(storage)?;
    cursor.raw().map(|row| row.map(|row| Row(row.into_iter())).map_err(storage)).collect()
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
