//! The stream: what a session shows, as typed steps with positions.
//!
//! Steps are derived from the log and from the open items, never stored. A record always shows the same steps, live and in
//! a replay, because both come from here. How a protocol writes them is for its renderer to say.

mod cursor;
mod feed;
mod step;

pub use cursor::{Cursor, Malformed};
pub use feed::{Discard, Feed};
#[cfg(test)]
pub use feed::{TURN_ITEMS, number};
pub use step::{PartHead, SessionStatus, Sink, Step, TurnItem};
