//! Storage: SQL, a session's log, kept responses. Knows no sockets and no routes.

pub mod cache;
pub mod idempotency;
pub mod pages;
pub mod schema;
pub mod sql;
pub mod store;
#[cfg(test)]
mod tests;
