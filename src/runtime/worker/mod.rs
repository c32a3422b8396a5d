//! The stateless worker: authenticates, routes, and holds the clients' streams.

pub mod bridge;
pub mod long_poll;
pub mod router;
pub mod sse;
pub mod websocket;
