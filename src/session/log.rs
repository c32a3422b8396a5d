//! Reading the log. The core reads it only where the small state does not suffice: answers to old calls, and replays.

use serde_json::{Value, json};
use thiserror::Error;

use super::entry::{Entry, Record};
use super::{CallId, Item, Seq, Status};

/// The most that the event at a turn's end holds of the turn's items, in bytes of their bodies.
pub const OUTPUT: usize = 1024 * 1024;

/// The records of a session, as storage has them.
pub trait Log {
    /// Up to `limit` records from place `from` on, in order: as many as have about a megabyte, but at least one if there is
    /// any. Fewer than `limit` do not mean that there are no more.
    fn records(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable>;

    /// The output that a call got.
    fn output_of(&self, call_id: &CallId) -> Result<Option<Item>, Unreadable>;

    /// Whether a call of that name is in the log.
    fn has_call(&self, call_id: &CallId) -> Result<bool, Unreadable>;

    /// One record.
    fn record(&self, seq: Seq) -> Result<Record, Unreadable> {
        let found = self.records(seq, 1)?.into_iter().next().filter(|record| record.seq == seq);
        found.ok_or(Unreadable::Missing(seq))
    }

    /// The item of one record.
    fn item(&self, seq: Seq) -> Result<Item, Unreadable> {
        self.record(seq)?.entry.item().cloned().ok_or(Unreadable::Missing(seq))
    }

    /// The output items of a turn that lies between two places, as clients see them, in the order of their places. Whole are
    /// those that fit into `OUTPUT` together, earlier ones first; the others are references.
    fn outputs(&self, from: Seq, to: Seq) -> Result<Vec<Value>, Unreadable> {
        let mut shown: Vec<(Seq, Value)> = Vec::new();
        let mut room = OUTPUT;
        let mut show = |item: &Item| match room.checked_sub(item.body.len()) {
            Some(rest) => {
                room = rest;
                item.show(item.status)
            }
            None => item.reference(item.status),
        };
        let mut next = from;
        loop {
            let records = self.records(next, 64)?;
            let Some(last) = records.last() else { break };
            next = last.seq.plus(1);
            for record in records.iter().filter(|record| record.seq < to) {
                match &record.entry {
                    Entry::Output { item, context: true, .. } => shown.push((record.seq, show(item))),
                    Entry::CallResolved { item, call, .. } => {
                        let cancelled = item.status != Status::Completed;
                        if let Some((_, call)) = shown.iter_mut().find(|(seq, _)| seq == call && cancelled)
                            && let Some(status) = call.get_mut("status")
                        {
                            *status = json!(Status::Cancelled);
                        }
                        shown.push((record.seq, show(item)));
                    }
                    Entry::Output { .. }
                    | Entry::Seeded { .. }
                    | Entry::Queued(_)
                    | Entry::Withdrawn { .. }
                    | Entry::Steered { .. }
                    | Entry::Started(_)
                    | Entry::Called { .. }
                    | Entry::Note { .. }
                    | Entry::Dropped { .. }
                    | Entry::Retried { .. }
                    | Entry::Ended { .. } => {}
                }
            }
            if next >= to {
                break;
            }
        }
        Ok(shown.into_iter().map(|(_, item)| item).collect())
    }
}

/// The log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// A record that must be there is not.
    #[error("record {} is missing from the log", .0.0)]
    Missing(Seq),
    /// A record cannot be understood.
    #[error("record {} cannot be read: {}", .0.0, .1)]
    Corrupt(Seq, String),
    /// Something is too large to be stored, and was not.
    #[error("this would take {size} bytes in one row of storage, the limit is {limit}")]
    TooLarge {
        /// Its bytes.
        size: usize,
        /// The most that a row may have.
        limit: usize,
    },
    /// Storage failed.
    #[error("storage failed: {0}")]
    Storage(String),
}
