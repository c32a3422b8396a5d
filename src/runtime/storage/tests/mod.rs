//! The store as it is, over an SQLite in memory.

mod busy;
mod laws;
mod pages;
mod rows;
mod schema;
mod sqlite;
