//! Ring 2: the only code that names the platform. It performs what the rings inside decide, and decides nothing itself.
//!
//! Three programs, each of which knows the others only by what `wire` says: the stateless `worker`, the `session` object and
//! the `directory` object. All stand on `storage` and `platform`.

mod directory;
mod platform;
mod session;
mod storage;
mod wire;
mod worker;
