//! The platform in our own terms: requests, time, randomness, JavaScript values, settings, faults.

pub mod ai;
pub mod clock;
pub mod fault;
pub mod http;
pub mod js;
pub mod settings;
pub mod start;
