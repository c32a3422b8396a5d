//! The stream: what a session shows, as typed steps with positions.
//!
//! Steps are derived from the log and the open items, never stored. A record shows the same steps live and in a replay,
//! because both come from here. Rendering them is up to each protocol.

mod cursor;
mod feed;
mod step;

pub use cursor::{Cursor, Malformed};
pub use feed::{Discard, Feed};
#[cfg(test)]
pub use feed::{TURN_ITEMS, number};
pub use step::{PartHead, SessionStatus, Sink, Step, TurnItem};
