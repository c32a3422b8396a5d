//! Faults of our own.

use crate::api::{Code, Error};

/// An internal error: logged in full, reported to the client without its cause.
pub fn internal(e: impl std::fmt::Display) -> Error {
    worker::console_error!("internal: {e}");
    Error::new(Code::Internal, "internal error; the request was valid, retrying may help")
}
