//! layby: an agent-session server at the edge.
//!
//! Three rings; imports point inward only (`tests/architecture` checks it):
//! - ring 0, `session`, `sse` and `json`: pure, synchronous, deterministic;
//! - ring 1, `provider`, `api`, `web` and `config`: pure adapters between bytes or JSON and the words of ring 0;
//! - ring 2, `runtime`: the only code that names the platform.

pub mod api;
pub mod config;
pub mod json;
pub mod provider;
mod runtime;
pub mod session;
pub mod sse;
pub mod web;
