//! layby: an agent-session server at the edge.

pub mod api;
pub mod provider;
pub mod session;
pub mod sse;
