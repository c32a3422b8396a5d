//! Ring 0: Server-Sent Events, both ways, without I/O.
//!
//! The decoder is ours because the established crates (`eventsource-stream`, `sse-stream`) want an async stream and
//! rescan their whole buffer with every chunk; this one is sans-IO, linear and capped.
//!
//! Source: WHATWG HTML, section 9.2, "Server-sent events".

mod decoder;
mod frame;

pub use decoder::{Decoder, Message, TooLong};
pub use frame::{DONE, OwnFrame, frame, id_only, read_frames};
