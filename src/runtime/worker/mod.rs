//! The stateless worker: finds out who asks and about what, and holds the streams of clients.

pub mod bridge;
pub mod long_poll;
pub mod router;
pub mod sse;
pub mod websocket;
