//! A session's storage: the log, preceded by metadata rows (state, session, checkpoint), and the chunks of large
//! bodies.
//!
//! Always true: a step's records and its state row are written in one statement, or in one transaction where a
//! statement cannot hold them, so they live or die together; a session that was never created has no tables; no row
//! exceeds 1.8 MB. `context` marks what the model sees, `listed` marks items of the transcript. Only calls have an
//! index, since every new one is looked up; others would cost a row per record, and look-ups by item id are rare.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cache::{ContextCache, LogTail};
use super::idempotency::Replies;
use super::schema::{Migration, migrate, version};
use super::sql::{Database, Row, Sql, number, text};
use crate::api::SessionInfo;
use crate::json;
use crate::session::{
    BLOCK, CallId, Entry, Item, Kind, Log, Open, Phase, Record, Role, Seconds, Seq, SessionId, State, Status,
    Unreadable,
};

/// The limit of a record and its body that share a row, in bytes. An entry alone has at most 1.1 MB: a message's tools,
/// and the schema of its response.
const SHARED: usize = 1_800_000;
/// The largest chunk of a body stored in rows of its own, in bytes.
const CHUNK: usize = 1_000_000;
/// Records written by one statement, besides some metadata rows: a record has ten values, and SQLite binds at most 100
/// on this platform.
const ROWS: usize = 9;
/// The largest checkpoint, in bytes.
const CHECKPOINT: usize = 1_800_000;

/// Created when the first body is too large for its row.
const CHUNKS: &str = "
    CREATE TABLE IF NOT EXISTS chunk (seq INTEGER NOT NULL, n INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (seq, n)) WITHOUT ROWID;
";
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, part TEXT NOT NULL, context INTEGER NOT NULL, listed INTEGER NOT NULL,
        item_id TEXT, call_id TEXT, queued INTEGER, size INTEGER NOT NULL, entry TEXT NOT NULL, body TEXT);
    CREATE INDEX IF NOT EXISTS call ON log (call_id) WHERE part = 'call';
";

/// Metadata, each in a row of its own before the first record. `part` and the columns after it exclude these rows from
/// all queries for records.
#[derive(Clone, Copy)]
enum MetaRow {
    State = 1,
    Session = 2,
    /// The open items as of the last checkpoint.
    Open = 3,
    /// That the directory has listed the session.
    Listed = 4,
}

impl MetaRow {
    /// A row, as values of an insert: its place and its text.
    const ROW: &str = "(?, 'kept', 0, 0, NULL, NULL, NULL, 0, ?, NULL)";

    fn with(self, value: &impl Serialize) -> Result<(i64, String), Unreadable> {
        Ok((-(self as i64), to_json(value)?))
    }
}

/// The storage of one session's object.
#[derive(Clone)]
pub struct Store<D = Sql> {
    pub sql: D,
    /// Responses given under a key.
    pub replies: Replies<D>,
    recent: Rc<RefCell<LogTail>>,
    pub(super) shown: Rc<RefCell<ContextCache>>,
}

/// What a waking object loads: a few small rows, however long the transcript is.
pub struct Stored {
    pub id: SessionId,
    pub info: SessionInfo,
    pub state: State,
    /// Open items as of the last checkpoint.
    pub open: Vec<Open>,
    /// When model output last arrived, if a checkpoint says so.
    pub heard: Option<Seconds>,
    /// Whether the directory has ever listed the session.
    pub listed: bool,
}

#[derive(Serialize, Deserialize)]
struct Head {
    /// The schema version.
    schema: u32,
    id: SessionId,
    info: SessionInfo,
}

/// The part of `Head` every version has.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    at: Seq,
    items: Vec<Open>,
    /// When it was written, which is when model output last arrived.
    heard: Seconds,
}

impl<D: Database + Clone + 'static> Store<D> {
    /// The migrations, from each schema version to the next.
    const MIGRATIONS: &'static [Migration<D>] = &[];

    /// Over the object's SQL.
    pub fn new(sql: D) -> Self {
        Self { replies: Replies::new(sql.clone()), sql, recent: Rc::default(), shown: Rc::default() }
    }

    /// Loads what is needed to continue; `None` if the session was never created.
    pub fn load(&self) -> Result<Option<Stored>, Unreadable> {
        let made = self.sql.query("SELECT 1 FROM sqlite_master WHERE name = 'log'", Vec::new())?;
        if made.is_empty() {
            return Ok(None);
        }
        let mut meta = self.meta()?;
        let Some(head) = meta.get(&(MetaRow::Session as u64)) else { return Ok(None) };
        let Version { schema } = kept(head)?;
        if schema != version(Self::MIGRATIONS) {
            migrate(&self.sql, schema, Self::MIGRATIONS, |version| self.stamp(version))?;
            meta = self.meta()?;
        }
        let row = |row: MetaRow| meta.get(&(row as u64));
        let head: Option<Head> = row(MetaRow::Session).map(|text| kept(text)).transpose()?;
        let state: Option<State> = row(MetaRow::State).map(|text| kept(text)).transpose()?;
        let checkpoint: Option<Checkpoint> = row(MetaRow::Open).map(|text| kept(text)).transpose()?;
        let listed = row(MetaRow::Listed).is_some();
        let (Some(head), Some(state)) = (head, state) else { return Ok(None) };
        let heard = checkpoint.as_ref().filter(|checkpoint| is_of(checkpoint, &state)).map(|of| of.heard);
        let open = checkpoint.map(|checkpoint| still_open(checkpoint, &state)).unwrap_or_default();
        self.recent.borrow_mut().begin(state.next);
        Ok(Some(Stored { id: head.id, info: head.info, state, open, heard, listed }))
    }

    /// The texts of the metadata rows.
    fn meta(&self) -> Result<BTreeMap<u64, String>, Unreadable> {
        let rows = self.sql.query("SELECT -seq, entry FROM log WHERE seq < 0", Vec::new())?;
        Ok(rows.into_iter().filter_map(|mut row| Some((row.number()?, row.text()))).collect())
    }

    /// Stores the schema version.
    fn stamp(&self, version: u32) -> Result<(), Unreadable> {
        let sql = "UPDATE log SET entry = json_set(entry, '$.schema', ?) WHERE seq = ?";
        self.sql.run(sql, vec![number(version.into()), Value::from(-(MetaRow::Session as i64))])
    }

    /// The session's metadata, as a row.
    fn head(id: &SessionId, info: &SessionInfo) -> Result<(i64, String), Unreadable> {
        let schema = version(Self::MIGRATIONS);
        MetaRow::Session.with(&Head { schema, id: id.clone(), info: info.clone() })
    }

    /// Everything has been erased.
    pub fn erased(&self) {
        self.replies.erased();
        self.forget();
    }

    fn forget(&self) {
        self.recent.take();
        self.shown.take();
    }

    /// Creates the tables. Only `create` makes them a session.
    pub fn prepare(&self) -> Result<(), Unreadable> {
        self.sql.run(SCHEMA, Vec::new())
    }

    /// Creates the session, with the first records of its log.
    pub fn create(
        &self,
        id: &SessionId,
        info: &SessionInfo,
        state: &State,
        records: &[Record],
    ) -> Result<(), Unreadable> {
        self.prepare()?;
        self.write(records, &[MetaRow::State.with(state)?, Self::head(id, info)?])?;
        self.forget();
        self.recent.borrow_mut().begin(state.next);
        Ok(())
    }

    /// Stores the session's metadata.
    pub fn set_info(&self, id: &SessionId, info: &SessionInfo) -> Result<(), Unreadable> {
        self.insert(&[], &[Self::head(id, info)?])
    }

    /// Stores that the directory has listed the session.
    pub fn set_listed(&self) -> Result<(), Unreadable> {
        self.insert(&[], &[MetaRow::Listed.with(&true)?])
    }

    /// Copies records without a state yet, all or nothing.
    pub fn import(&self, records: &[Record]) -> Result<(), Unreadable> {
        self.sql.atomically(|| self.insert_all(records))
    }

    /// Appends records together with the state they lead to.
    pub fn append(&self, records: &[Record], state: &State) -> Result<(), Unreadable> {
        self.write(records, &[MetaRow::State.with(state)?])?;
        self.recent.borrow_mut().push(records);
        Ok(())
    }

    /// Checkpoints the open items.
    pub fn checkpoint(&self, state: &State, open: &[Open], heard: Seconds) -> Result<(), Unreadable> {
        let Phase::Sampling { at, .. } = &state.phase else { return Ok(()) };
        let checkpoint = Checkpoint { at: *at, items: open.to_vec(), heard };
        let (place, text) = MetaRow::Open.with(&checkpoint)?;
        if text.len() <= CHECKPOINT { self.insert(&[], &[(place, text)]) } else { Ok(()) }
    }

    /// The status of a call's output, by the call's place.
    pub fn output_status(&self, call: Seq, call_id: &CallId) -> Result<Option<Status>, Unreadable> {
        let sql = "SELECT COALESCE(json_extract(entry, '$.call_resolved.item.status'),
            json_extract(entry, '$.seeded.item.status')) FROM log
            WHERE seq > ? AND call_id = ? AND part = 'output' ORDER BY seq LIMIT 1";
        let mut rows = self.sql.query(sql, vec![number(call.0), text(call_id.as_str())])?;
        rows.first_mut().map(|row| kept(&format!("\"{}\"", row.text()))).transpose()
    }

    /// The place of the record that ended a turn.
    pub fn end_of(&self, response_id: &str) -> Result<Option<Seq>, Unreadable> {
        let sql =
            "SELECT seq FROM log WHERE part = 'control' AND json_extract(entry, '$.ended.turn.response_id') = ?";
        let mut rows = self.sql.query(sql, vec![text(response_id)])?;
        Ok(rows.first_mut().and_then(Row::number).map(Seq))
    }

    /// The place of an item of the transcript.
    pub fn seq_of(&self, item_id: &str) -> Result<Option<Seq>, Unreadable> {
        let sql = "SELECT s.seq FROM log i JOIN log s ON s.seq = i.seq OR s.queued = i.seq
            WHERE i.item_id = ? AND s.listed = 1 LIMIT 1";
        let mut rows = self.sql.query(sql, vec![text(item_id)])?;
        Ok(rows.first_mut().and_then(Row::number).map(Seq))
    }

    /// The place of a call, by its id.
    pub fn seq_of_call(&self, call_id: &CallId) -> Result<Option<Seq>, Unreadable> {
        let sql = "SELECT seq FROM log WHERE call_id = ? AND part = 'call' ORDER BY seq LIMIT 1";
        let mut rows = self.sql.query(sql, vec![text(call_id.as_str())])?;
        Ok(rows.first_mut().and_then(Row::number).map(Seq))
    }

    /// Writes records and metadata, all or nothing.
    fn write(&self, records: &[Record], kept: &[(i64, String)]) -> Result<(), Unreadable> {
        let mut one_statement = records.len() <= ROWS;
        for record in records {
            one_statement &= chunks(&to_json(&record.entry)?, body_of(record)).is_empty();
        }
        if one_statement {
            return self.insert(records, kept);
        }
        let (first, last) = records.split_at(records.len().saturating_sub(ROWS));
        self.sql.atomically(|| {
            self.insert_all(first)?;
            self.insert(last, kept)
        })
    }

    fn insert_all(&self, records: &[Record]) -> Result<(), Unreadable> {
        records.chunks(ROWS).try_for_each(|records| self.insert(records, &[]))
    }

    fn insert(&self, records: &[Record], kept: &[(i64, String)]) -> Result<(), Unreadable> {
        let mut rows = Vec::with_capacity(records.len().saturating_add(kept.len()));
        for record in records {
            rows.push(self.columns(record)?);
        }
        rows.extend(kept.iter().map(|(place, text)| vec![Value::from(*place), text.as_str().into()]));
        let mut values = vec!["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"; records.len()];
        values.extend(kept.iter().map(|_| MetaRow::ROW));
        // A duplicate record is an error: NULL violates the constraint.
        let sql = format!(
            "INSERT INTO log (seq, part, context, listed, item_id, call_id, queued, size, entry, body) VALUES {}
            ON CONFLICT (seq) DO UPDATE SET entry = CASE WHEN excluded.seq < 0 THEN excluded.entry END",
            values.join(", ")
        );
        self.sql.insert(&sql, rows)
    }

    /// A record's row. A body too large for it goes into chunks.
    fn columns(&self, record: &Record) -> Result<Vec<Value>, Unreadable> {
        let (entry, body) = (&record.entry, body_of(record));
        let json = to_json(entry)?;
        let chunks = chunks(&json, body);
        if !chunks.is_empty() {
            self.sql.run(CHUNKS, Vec::new())?;
        }
        for (n, chunk) in (0u64..).zip(&chunks) {
            let args = vec![number(record.seq.0), number(n), text(*chunk)];
            self.sql.run("INSERT INTO chunk (seq, n, text) VALUES (?, ?, ?)", args)?;
        }
        Ok(vec![
            number(record.seq.0),
            text(part(entry)),
            number(u64::from(entry.in_context())),
            number(u64::from(is_listed(entry))),
            entry.item_id().map(ToString::to_string).into(),
            entry.call_id().map(ToString::to_string).into(),
            entry.queued().map(|seq| seq.0).into(),
            number(body.len() as u64),
            text(json),
            entry.item().filter(|_| chunks.is_empty()).map(|_| body).into(),
        ])
    }
}

fn body_of(record: &Record) -> &str {
    record.entry.item().map_or("", |item| item.body.as_str())
}

impl<D: Database + Clone + 'static> Log for Store<D> {
    fn records(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable> {
        match self.recent.borrow().records(from, limit) {
            Some(recent) => Ok(recent),
            None => self.page(from, limit),
        }
    }

    fn output_of(&self, call_id: &CallId) -> Result<Option<Item>, Unreadable> {
        let Some(call) = self.seq_of_call(call_id)? else { return Ok(None) };
        let sql = "SELECT seq FROM log WHERE seq > ? AND call_id = ? AND part = 'output' ORDER BY seq LIMIT 1";
        let mut rows = self.sql.query(sql, vec![number(call.0), text(call_id.as_str())])?;
        rows.first_mut().and_then(Row::number).map(|seq| self.item(Seq(seq))).transpose()
    }

    fn has_call(&self, call_id: &CallId) -> Result<bool, Unreadable> {
        Ok(self.seq_of_call(call_id)?.is_some())
    }
}

/// Whether a checkpoint belongs to the current model request.
fn is_of(checkpoint: &Checkpoint, state: &State) -> bool {
    let Phase::Sampling { at, .. } = &state.phase else { return false };
    checkpoint.at <= *at && *at < checkpoint.at.plus(BLOCK)
}

/// The checkpointed items that have not been appended since.
fn still_open(checkpoint: Checkpoint, state: &State) -> Vec<Open> {
    let Phase::Sampling { at, .. } = &state.phase else { return Vec::new() };
    let appended = usize::try_from(at.0.saturating_sub(checkpoint.at.0)).unwrap_or(usize::MAX);
    checkpoint.items.into_iter().skip(appended).collect()
}

/// A record's role in the transcript, if any.
fn part(entry: &Entry) -> &'static str {
    let Some(item) = entry.item() else {
        return if entry.queued().is_some() { "user" } else { "control" };
    };
    match (&item.kind, entry) {
        (_, Entry::Queued(_)) => "queued",
        (Kind::Message { role: Role::User }, _) => "user",
        (Kind::Message { role: Role::Assistant }, _) => "assistant",
        (Kind::Reasoning, _) => "reasoning",
        (Kind::FunctionCall { .. }, _) => "call",
        (Kind::FunctionCallOutput { .. }, _) => "output",
        (Kind::Error, _) => "error",
    }
}

/// Whether clients see the record as an item. Calls that were cut off never became one.
fn is_listed(entry: &Entry) -> bool {
    match entry {
        Entry::Output { item, context, .. } => *context || !matches!(item.kind, Kind::FunctionCall { .. }),
        Entry::Seeded { .. }
        | Entry::Started(_)
        | Entry::Steered { .. }
        | Entry::CallResolved { .. }
        | Entry::Note { .. } => true,
        Entry::Queued(_)
        | Entry::Withdrawn { .. }
        | Entry::Called { .. }
        | Entry::Dropped { .. }
        | Entry::Retried { .. }
        | Entry::Learned { .. }
        | Entry::Withheld { .. }
        | Entry::Ended { .. } => false,
    }
}

/// The chunks of a body that does not fit into a row with its entry, cut between characters; empty for one that does.
fn chunks<'a>(entry: &str, body: &'a str) -> Vec<&'a str> {
    let mut chunks = Vec::new();
    let mut rest = if entry.len().saturating_add(body.len()) > SHARED { body } else { "" };
    while !rest.is_empty() {
        let (chunk, more) = rest.split_at_checked(rest.floor_char_boundary(CHUNK)).unwrap_or((rest, ""));
        chunks.push(chunk);
        rest = more;
    }
    chunks
}

fn to_json(value: &impl Serialize) -> Result<String, Unreadable> {
    serde_json::to_string(value).map_err(|e| Unreadable::Storage(e.to_string()))
}

fn kept<T: DeserializeOwned>(text: &str) -> Result<T, Unreadable> {
    json::read(text).map_err(|e| Unreadable::Storage(format!("a stored row cannot be read: {e}")))
}
