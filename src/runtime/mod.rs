//! Ring 2: the only code that names the platform. It performs what the rings inside decide, and decides nothing itself.

mod bridge;
mod clock;
mod driver;
mod http;
mod model;
mod router;
mod rows;
mod session;
mod store;
