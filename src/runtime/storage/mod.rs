//! What is kept: SQL, the log of a session, what is remembered of requests. Knows no sockets and no routes.

pub mod cache;
pub mod idempotency;
pub mod pages;
pub mod schema;
pub mod sql;
pub mod store;
#[cfg(test)]
mod tests;
