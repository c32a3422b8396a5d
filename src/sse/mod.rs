//! Ring 0: Server-Sent Events, both ways, without I/O.
//!
//! The decoder is ours because the kept crates (`eventsource-stream`, `sse-stream`) want an async stream, and search
//! their whole buffer again with every chunk; this one takes bytes as they come, in linear time, with a cap.
//!
//! Source: WHATWG HTML, section 9.2, "Server-sent events".

mod decoder;
mod frame;

pub use decoder::{Decoder, Message, TooLong};
pub use frame::{DONE, OwnFrame, frame, id_only, read_frames};
