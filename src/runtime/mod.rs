//! Ring 2: the only code that names the platform. It performs what the rings inside decide, and decides nothing itself.

mod access;
mod ai;
mod alarm;
mod bridge;
mod cache;
mod clock;
mod directory;
mod directory_sync;
mod driver;
mod fork;
mod http;
mod idempotency;
mod js;
mod long_poll;
mod pages;
mod queries;
mod request;
mod router;
mod sampling_task;
mod session;
mod sql;
mod sse;
mod start;
mod store;
mod stub;
#[cfg(test)]
mod tests;
mod websocket;
