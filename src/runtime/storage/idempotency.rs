//! Responses given under an idempotency key, in a table of their object.

use std::cell::Cell;
use std::rc::Rc;

use super::sql::{Database, Row, Sql, number, text};
use crate::api::{Error, Key, REPLY_TTL, Remembered, Reply};
use crate::json;
use crate::session::{Seconds, Unreadable};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS answer (name TEXT PRIMARY KEY, at INTEGER NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;
";

/// The table. It is created with the first response: most objects never keep one.
#[derive(Clone)]
pub struct Replies<D = Sql> {
    sql: D,
    made: Rc<Cell<bool>>,
}

impl<D: Database> Replies<D> {
    /// Over the object's SQL.
    pub fn new(sql: D) -> Self {
        Self { sql, made: Rc::default() }
    }

    /// Whether any response has ever been kept.
    fn any(&self) -> Result<bool, Unreadable> {
        if !self.made.get() {
            let table = "SELECT 1 FROM sqlite_master WHERE name = 'answer'";
            self.made.set(!self.sql.query(table, Vec::new())?.is_empty());
        }
        Ok(self.made.get())
    }

    /// Everything has been erased.
    pub fn erased(&self) {
        self.made.set(false);
    }

    /// Whether a response is kept under that name.
    pub fn has(&self, name: &str) -> Result<bool, Unreadable> {
        Ok(self.any()? && !self.sql.query("SELECT 1 FROM answer WHERE name = ?", vec![text(name)])?.is_empty())
    }

    /// The response given under one of the keys.
    pub fn given(&self, keys: &[Key]) -> Result<Option<Remembered>, Error> {
        if keys.is_empty() || !self.any()? {
            return Ok(None);
        }
        for key in keys {
            let mut rows = self.sql.query("SELECT value FROM answer WHERE name = ?", vec![text(&*key.name)])?;
            let remembered: Option<Remembered> =
                rows.first_mut()
                    .map(|row| json::read(&row.text()))
                    .transpose()
                    .map_err(|e| Unreadable::Storage(format!("a kept response cannot be read: {e}")))?;
            if let Some(first) = remembered {
                key.check(&first)?;
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Keeps a response under the keys.
    pub fn keep(&self, keys: &[Key], reply: &Reply, now: Seconds) -> Result<(), Unreadable> {
        if !keys.is_empty() && !self.any()? {
            self.sql.run(SCHEMA, Vec::new())?;
        }
        for key in keys {
            let value =
                serde_json::to_string(&key.remember(reply)).map_err(|e| Unreadable::Storage(e.to_string()))?;
            let args = vec![text(&*key.name), number(now.0), text(value)];
            self.sql.run("INSERT INTO answer (name, at, value) VALUES (?, ?, ?)", args)?;
        }
        Ok(())
    }

    /// Deletes the responses that have expired. Returns when the next one will.
    pub fn sweep(&self, now: Seconds) -> Result<Option<Seconds>, Unreadable> {
        if !self.any()? {
            return Ok(None);
        }
        self.sql.run("DELETE FROM answer WHERE at <= ?", vec![number(now.0.saturating_sub(REPLY_TTL))])?;
        let mut oldest = self.sql.query("SELECT MIN(at) FROM answer", Vec::new())?;
        Ok(oldest.first_mut().and_then(Row::number).map(|at| Seconds(at).after(REPLY_TTL)))
    }
}
