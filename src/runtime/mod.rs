//! Ring 2: the only code that names the platform. It performs what the inner rings decide, and decides nothing itself.
//!
//! Three programs, connected only by `wire`: the stateless `worker`, the `session` object and the `directory` object.
//! All use `storage` and `platform`.

mod directory;
mod platform;
mod session;
mod storage;
mod wire;
mod worker;
