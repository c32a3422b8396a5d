//! Reads the log in pages that are bounded in bytes: an isolate has 128 MB for all its sessions.
//!
//! Always true: a query returns only rows of up to `INLINE` bytes; of others it says how large they are, and they are read one
//! by one, as far as the page has room. So small records cost one query, and what does not fit is never held.

use std::rc::Rc;

use super::rows::{COLUMN, Database, ROW, Row, number};
use super::store::{CHUNK, Store};
use crate::json;
use crate::provider::{ContextLine, ContextPart};
use crate::session::{Entry, Item, Record, ResponseId, Seq, Unreadable};

/// The largest record, in bytes, that a query returns with others.
const INLINE: usize = 16 * 1024;
/// The most records of one query.
const ROWS: usize = 64;
/// The most that a page of records holds, in bytes. One record may go beyond it.
pub const PAGE: usize = 1024 * 1024;

/// The columns that `read` reads, of a record's row, its texts only up to `inline` bytes. `of` names a column of the row.
fn columns(inline: usize, of: impl Fn(&str) -> String) -> String {
    let (seq, chunks, entry, body) = (of("seq"), of("chunks"), of("entry"), of("body"));
    let size = format!("octet_length({entry}) + COALESCE(octet_length({body}), 0) + {chunks} * {CHUNK}");
    let text = |text: &str| format!("CASE WHEN {size} <= {inline} THEN {text} END");
    format!("{size}, {seq}, {chunks}, {}, {}", text(&entry), text(&body))
}

impl<D: Database + Clone> Store<D> {
    /// Up to `limit` records from a place on, at least one if there is any.
    pub(super) fn page(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable> {
        let columns = columns(if limit == 1 { PAGE } else { INLINE }, str::to_string);
        let sql = format!("SELECT {columns} FROM log WHERE seq >= ? ORDER BY seq LIMIT ?");
        let rows = self.sql.query(&sql, vec![number(from.0), number(limit.min(ROWS) as u64)])?;
        let (mut records, mut held) = (Vec::new(), 0usize);
        for mut row in rows {
            held = held.saturating_add(size(&mut row));
            if held > PAGE && !records.is_empty() {
                break;
            }
            records.push(self.read(&mut row)?);
        }
        Ok(records)
    }

    /// Up to `limit` items of the transcript beyond a place, in the order asked for, that have about `room` bytes; at least one
    /// if there is any. Messages in the queue are not among them. Also whether there may be more.
    pub fn items(
        &self,
        beyond: Option<Seq>,
        descending: bool,
        limit: usize,
        room: usize,
    ) -> Result<(Vec<(Seq, Item)>, bool), Unreadable> {
        let (test, order) = if descending { ("<", "DESC") } else { (">", "ASC") };
        let columns = columns(INLINE, |column| format!("COALESCE(q.{column}, l.{column})"));
        let sql = format!(
            "SELECT l.seq, CASE WHEN l.held > 0 THEN json_extract(l.entry, '$.turn.response_id') END, {columns}
             FROM log l LEFT JOIN log q ON q.seq = l.held
             WHERE l.listed = 1 AND l.seq {test} ? ORDER BY l.seq {order} LIMIT ?"
        );
        let edge = if descending { Seq((1 << 53) - 1) } else { Seq(0) };
        let limit = limit.min(ROWS);
        let rows = self.sql.query(&sql, vec![number(beyond.unwrap_or(edge).0), number(limit as u64)])?;
        let more = rows.len() == limit;
        let (mut items, mut held) = (Vec::new(), 0usize);
        for mut row in rows {
            let place = Seq(row.number().unwrap_or(0));
            let turn = row.text();
            held = held.saturating_add(size(&mut row));
            if held > room && !items.is_empty() {
                return Ok((items, true));
            }
            let record = self.read(&mut row)?;
            if let Some(item) = record.entry.item() {
                let mut item = item.clone();
                if !turn.is_empty() {
                    item.response_id = ResponseId(turn); // it may have missed the one that it was to join
                }
                items.push((place, item));
            }
        }
        Ok((items, more))
    }

    /// The transcript as the model is shown it.
    pub fn context(&self) -> Result<Rc<Vec<ContextLine>>, Unreadable> {
        let sql =
            "SELECT l.seq, l.part, COALESCE(q.seq, l.seq), COALESCE(q.chunks, l.chunks), COALESCE(q.body, l.body)
            FROM log l LEFT JOIN log q ON q.seq = l.held WHERE l.context = 1 AND l.seq > ? ORDER BY l.seq";
        let mut shown = self.shown.borrow_mut();
        let rows = self.sql.joined(sql, vec![number(shown.upto.0)])?;
        let more = rows.split(ROW).filter(|row| !row.is_empty()).map(|row| self.line(row));
        Ok(shown.extend(more.collect::<Result<_, _>>()?))
    }

    /// A line of the context and its place, from the columns seq, part, body's seq, chunks, body.
    fn line(&self, row: &str) -> Result<(Seq, ContextLine), Unreadable> {
        let unreadable = || Unreadable::Storage("a line of the context cannot be read".into());
        let number = |text: &str| text.parse().map_err(|_| unreadable());
        let mut columns = row.splitn(5, COLUMN);
        let mut next = || columns.next().ok_or_else(unreadable);
        let place = Seq(number(next()?)?);
        let part = match next()? {
            "user" => ContextPart::User,
            "assistant" => ContextPart::Assistant,
            "reasoning" => ContextPart::Reasoning,
            "call" => ContextPart::Call,
            "output" => ContextPart::Output,
            other => return Err(Unreadable::Storage(format!("a record of part {other} is marked as context"))),
        };
        let (held, chunks) = (Seq(number(next()?)?), number(next()?)?);
        Ok((place, ContextLine { part, body: self.body(held, chunks, next()?.to_string())? }))
    }

    /// A record from the columns that follow its size.
    fn read(&self, row: &mut Row) -> Result<Record, Unreadable> {
        let seq = Seq(row.number().unwrap_or(0));
        let chunks = row.number().unwrap_or(0);
        let (mut entry, mut body) = (row.text(), row.text());
        if entry.is_empty() {
            let rows = self.sql.query("SELECT entry, body FROM log WHERE seq = ?", vec![number(seq.0)])?;
            let mut row = rows.into_iter().next().ok_or(Unreadable::Missing(seq))?;
            (entry, body) = (row.text(), row.text());
        }
        let mut entry: Entry = json::read(&entry).map_err(|e| Unreadable::Corrupt(seq, e.to_string()))?;
        if let Some(item) = entry.item_mut() {
            item.body = self.body(seq, chunks, body)?;
        }
        Ok(Record { seq, entry })
    }

    fn body(&self, seq: Seq, chunks: u64, kept: String) -> Result<String, Unreadable> {
        if chunks == 0 {
            return Ok(kept);
        }
        let rows = self.sql.query("SELECT text FROM chunk WHERE seq = ? ORDER BY n", vec![number(seq.0)])?;
        Ok(rows.into_iter().map(|mut row| row.text()).collect())
    }
}

/// The first of the columns that `columns` names.
fn size(row: &mut Row) -> usize {
    usize::try_from(row.number().unwrap_or(0)).unwrap_or(usize::MAX)
}
