//! Ring 2: the only code that names the platform. It performs what the rings inside decide, and decides nothing itself.

mod access;
mod ai;
mod alarm;
mod answers;
mod body;
mod bridge;
mod cache;
mod clock;
mod directory;
mod driver;
mod fork;
mod http;
mod js;
mod listing;
mod model;
mod object;
mod pages;
mod poll;
mod reads;
mod request;
mod router;
mod rows;
mod session;
mod socket;
mod start;
mod store;
#[cfg(test)]
mod tests;
