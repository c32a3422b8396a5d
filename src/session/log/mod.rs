//! The log: the durable records and how they are read.
//!
//! The machine reads the log only where its small state does not suffice: for outputs of old calls, and for replays.

mod entry;
mod id;
mod item;
mod open;

use thiserror::Error;

pub use entry::{
    Entry, Failure, Lesson, Message, OpenCall, Outcome, Record, Source, Started, Tool, TurnHead, Usage, Withheld,
};
pub use id::{AgentId, CallId, ItemId, Mint, ResponseId, Seconds, Seq, SessionId, hash, plain_id};
pub use item::{IS_ERROR, Item, Kind, Role, Status, output as output_body, user_message};
pub use open::{Open, Opening, Part, PartKind};

/// The records of a session, as storage has them.
pub trait Log {
    /// Up to `limit` records from place `from` on, in order: at most about a megabyte, but at least one if there is
    /// one. Fewer than `limit` records do not mean that the log ends there.
    fn records(&self, from: Seq, limit: usize) -> Result<Vec<Record>, Unreadable>;

    /// The output of a call, if it has one.
    fn output_of(&self, call_id: &CallId) -> Result<Option<Item>, Unreadable>;

    /// Whether the log has a call with that id.
    fn has_call(&self, call_id: &CallId) -> Result<bool, Unreadable>;

    fn record(&self, seq: Seq) -> Result<Record, Unreadable> {
        let found = self.records(seq, 1)?.into_iter().next().filter(|record| record.seq == seq);
        found.ok_or(Unreadable::Missing(seq))
    }

    /// The item of one record.
    fn item(&self, seq: Seq) -> Result<Item, Unreadable> {
        self.record(seq)?.entry.item().cloned().ok_or(Unreadable::Missing(seq))
    }
}

/// The log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// A record is missing.
    #[error("record {} is missing from the log", .0.0)]
    Missing(Seq),
    /// A record cannot be decoded.
    #[error("record {} cannot be read: {}", .0.0, .1)]
    Corrupt(Seq, String),
    /// A newer version of the server wrote it.
    #[error(
        "this storage has schema version {found}, written by a newer server; this one supports up to {known}. Deploy the newer version again; nothing was changed"
    )]
    Newer {
        /// The form of the storage.
        found: u32,
        /// The newest schema version this build knows.
        known: u32,
    },
    /// Something was too large to store, and was not stored.
    #[error("one row of storage would take {size} bytes, the limit is {limit}")]
    TooLarge {
        size: usize,
        /// The limit of a row, in bytes.
        limit: usize,
    },
    /// Storage failed.
    #[error("storage failed: {0}")]
    Storage(String),
}
