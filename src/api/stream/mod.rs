//! The session's steps, rendered for subscribers in a protocol's grammar.

mod native;

pub use native::{Event, Native};

use crate::session::{Cursor, Log, Record, Session, Unreadable};

/// Part of a session's stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub events: Vec<Event>,
    /// The position after them.
    pub cursor: Cursor,
    /// Whether there are more already.
    pub more: bool,
}

/// The events since the last call.
pub fn publish(session: &mut Session, appended: &[Record], log: &dyn Log) -> Result<Vec<Event>, Unreadable> {
    let mut native = Native::new(session.id.clone());
    session.publish(appended, log, &mut native)?;
    Ok(native.events)
}

/// The events after `from`, up to about `budget` bytes of them.
pub fn replay(session: &Session, from: Cursor, budget: usize, log: &dyn Log) -> Result<Page, Unreadable> {
    let mut native = Native::new(session.id.clone());
    let replayed = session.replay(from, budget, log, &mut native)?;
    Ok(Page { events: native.events, cursor: replayed.cursor, more: replayed.more })
}

/// The first events for a reader without a cursor.
pub fn greeting(session: &Session, log: &dyn Log) -> Result<Vec<Event>, Unreadable> {
    let mut native = Native::new(session.id.clone());
    session.greet(log, &mut native)?;
    Ok(native.events)
}
