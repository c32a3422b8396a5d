//! Reads the log in pages bounded in bytes: an isolate has 128 MB for all its sessions.
//!
//! Always true: a query returns only rows of up to `INLINE` bytes; for others it returns their size, and they are read
//! one by one, as long as the page has room. So small records cost one query, and what does not fit is never held in
//! memory.

use std::rc::Rc;

use thiserror::Error;

use super::sql::{Database, Row, number};
use super::store::Store;
use crate::json;
use crate::provider::{ContextLine, ContextPart};
use crate::session::{Entry, Item, Message, Record, ResponseId, Seq, Source, Started, Unreadable};

/// The largest record returned together with others, in bytes.
const INLINE: usize = 16 * 1024;
/// The most records of one query.
const ROWS: usize = 64;
/// The limit of a page of records, in bytes. A single record may exceed it.
pub const PAGE: usize = 1024 * 1024;

/// The limit of the model's context, in bytes of bodies. A request is built from it in memory, in up to five copies.
pub const CONTEXT: usize = 16 * 1024 * 1024;
/// The most context lines one query returns.
const LINES: usize = 256;

/// Why there is no context for the model.
#[derive(Debug, Error)]
pub enum NoContext {
    /// The log cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The transcript's size in bytes is above the limit.
    #[error("the transcript has {0} bytes, the limit is {CONTEXT}")]
    TooLarge(usize),
}

/// The columns `read` reads of a record's row, with texts only up to `inline` bytes. `of` names a column of the row.
fn columns(inline: usize, of: impl Fn(&str) -> String) -> String {
    let (seq, size, entry, body) = (of("seq"), of("size"), of("entry"), of("body"));
    let whole = format!("octet_length({entry}) + {size}");
    let text = |text: &str| format!("CASE WHEN {whole} <= {inline} THEN {text} END");
    format!("{whole}, {seq}, {size}, {}, {}", text(&entry), text(&body))
}

/// A column of the record with a row's item: for a queued message that is another record.
fn queued(column: &str) -> String {
    format!("COALESCE(q.{column}, l.{column})")
}

impl<D: Database + Clone + 'static> Store<D> {
    /// Up to `limit` records from a place on, at least one if there is any.
    pub(super) fn page(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable> {
        let columns = columns(if limit == 1 { PAGE } else { INLINE }, str::to_string);
        let sql = format!("SELECT {columns} FROM log WHERE seq >= ? ORDER BY seq LIMIT ?");
        let rows = self.sql.query(&sql, vec![number(from.0), number(limit.min(ROWS) as u64)])?;
        let (mut records, mut bytes) = (Vec::new(), 0usize);
        for mut row in rows {
            bytes = bytes.saturating_add(size_of(&mut row));
            if bytes > PAGE && !records.is_empty() {
                break;
            }
            records.push(self.read(&mut row)?);
        }
        Ok(records)
    }

    /// Up to `limit` items of the transcript beyond a place, in the requested order, of about `room` bytes together; at
    /// least one if there is any. Queued messages are not included. Also returns whether there may be more.
    pub fn items(
        &self,
        beyond: Option<Seq>,
        descending: bool,
        limit: usize,
        room: usize,
    ) -> Result<(Vec<(Seq, Item)>, bool), Unreadable> {
        let (test, order) = if descending { ("<", "DESC") } else { (">", "ASC") };
        let columns = columns(INLINE, queued);
        let sql = format!(
            "SELECT l.seq, CASE WHEN l.queued > 0 THEN json_extract(l.entry, '$.started.turn.response_id') END, {columns}
             FROM log l LEFT JOIN log q ON q.seq = l.queued
             WHERE l.listed = 1 AND l.seq {test} ? ORDER BY l.seq {order} LIMIT ?"
        );
        let edge = if descending { Seq((1 << 53) - 1) } else { Seq(0) };
        let limit = limit.min(ROWS);
        let rows = self.sql.query(&sql, vec![number(beyond.unwrap_or(edge).0), number(limit as u64)])?;
        let more = rows.len() == limit;
        let (mut items, mut bytes) = (Vec::new(), 0usize);
        for mut row in rows {
            let place = Seq(row.number().unwrap_or(0));
            let turn = row.text();
            bytes = bytes.saturating_add(size_of(&mut row));
            if bytes > room && !items.is_empty() {
                return Ok((items, true));
            }
            let record = self.read(&mut row)?;
            if let Some(item) = record.entry.item() {
                let mut item = item.clone();
                if !turn.is_empty() {
                    item.response_id = ResponseId(turn); // it may have missed the turn it was to join
                }
                items.push((place, item));
            }
        }
        Ok((items, more))
    }

    /// The model's context. Its size is checked before it is held in memory.
    pub fn context(&self) -> Result<Rc<Vec<ContextLine>>, NoContext> {
        let (size, seq, body) = (queued("size"), queued("seq"), queued("body"));
        let sql = format!(
            "SELECT l.seq, l.part, json_extract(l.entry, '$.output.item.origin'), {seq}, {size}, CASE WHEN {size} <= {INLINE} THEN {body} END
            FROM log l LEFT JOIN log q ON q.seq = l.queued WHERE l.context = 1 AND l.seq > ? ORDER BY l.seq LIMIT {LINES}"
        );
        let mut shown = self.shown.borrow_mut();
        let mut fits = CONTEXT.saturating_sub(shown.size());
        let mut more: Vec<(Seq, ContextLine)> = Vec::new();
        loop {
            let after = more.last().map_or(shown.upto, |(last, _)| *last);
            let rows = self.sql.query(&sql, vec![number(after.0)])?;
            let count = rows.len();
            for mut row in rows {
                let line = Line::read(&mut row)?;
                fits = match fits.checked_sub(line.size) {
                    Some(fits) => fits,
                    None => return Err(NoContext::TooLarge(self.context_size()?)),
                };
                let body = self.body(line.seq, line.size, line.body)?;
                let Line { place, part, origin, .. } = line;
                more.push((place, ContextLine { place, part, origin, body }));
            }
            if count < LINES {
                return Ok(shown.extend(more));
            }
        }
    }

    fn context_size(&self) -> Result<usize, Unreadable> {
        let size = queued("size");
        let sql = format!("SELECT SUM({size}) FROM log l LEFT JOIN log q ON q.seq = l.queued WHERE l.context = 1");
        Ok(self.sql.query(&sql, Vec::new())?.first_mut().map_or(0, size_of))
    }

    /// The message of a record, without its content.
    pub fn message(&self, source: Seq) -> Result<Message, Unreadable> {
        let rows = self.sql.query("SELECT entry FROM log WHERE seq = ?", vec![number(source.0)])?;
        let mut row = rows.into_iter().next().ok_or(Unreadable::Missing(source))?;
        match entry(source, &row.text())? {
            Entry::Queued(message) => Ok(message),
            Entry::Started(Started { source: Source::Message(message), .. }) => Ok(*message),
            _ => Err(Unreadable::Missing(source)),
        }
    }

    /// A record from the columns after its size.
    fn read(&self, row: &mut Row) -> Result<Record, Unreadable> {
        let seq = Seq(row.number().unwrap_or(0));
        let size = size_of(row);
        let (mut text, mut body) = (row.text(), row.text());
        if text.is_empty() {
            let rows = self.sql.query("SELECT entry, body FROM log WHERE seq = ?", vec![number(seq.0)])?;
            let mut row = rows.into_iter().next().ok_or(Unreadable::Missing(seq))?;
            (text, body) = (row.text(), row.text());
        }
        let mut entry = entry(seq, &text)?;
        if let Some(item) = entry.item_mut() {
            item.body = if body.is_empty() { self.chunks(seq, size)? } else { body };
        }
        Ok(Record { seq, entry })
    }

    /// A body of that size, of which `inline` came with its row, or nothing.
    fn body(&self, seq: Seq, size: usize, inline: String) -> Result<String, Unreadable> {
        if inline.len() == size {
            return Ok(inline);
        }
        let mut rows = self.sql.query("SELECT body FROM log WHERE seq = ?", vec![number(seq.0)])?;
        let body = rows.first_mut().map(Row::text).unwrap_or_default();
        if body.is_empty() { self.chunks(seq, size) } else { Ok(body) }
    }

    /// A body stored in chunks, of that size.
    fn chunks(&self, seq: Seq, size: usize) -> Result<String, Unreadable> {
        let mut body = String::with_capacity(size);
        for mut row in self.sql.query("SELECT text FROM chunk WHERE seq = ? ORDER BY n", vec![number(seq.0)])? {
            body.push_str(&row.text());
        }
        Ok(body)
    }
}

/// A context line, from a row.
struct Line {
    place: Seq,
    part: ContextPart,
    origin: Option<String>,
    /// The record with its body.
    seq: Seq,
    size: usize,
    /// Empty if it is large.
    body: String,
}

impl Line {
    fn read(row: &mut Row) -> Result<Self, Unreadable> {
        let place = Seq(row.number().unwrap_or(0));
        let part = match row.text().as_str() {
            "user" => ContextPart::User,
            "assistant" => ContextPart::Assistant,
            "reasoning" => ContextPart::Reasoning,
            "call" => ContextPart::Call,
            "output" => ContextPart::Output,
            other => return Err(Unreadable::Storage(format!("a record of part {other} is marked as context"))),
        };
        let origin = Some(row.text()).filter(|origin| !origin.is_empty());
        let seq = Seq(row.number().unwrap_or(0));
        Ok(Self { place, part, origin, seq, size: size_of(row), body: row.text() })
    }
}

fn entry(seq: Seq, text: &str) -> Result<Entry, Unreadable> {
    json::read(text).map_err(|e| Unreadable::Corrupt(seq, e.to_string()))
}

/// The next column, a size in bytes.
fn size_of(row: &mut Row) -> usize {
    usize::try_from(row.number().unwrap_or(0)).unwrap_or(usize::MAX)
}
