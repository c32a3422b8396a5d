//! The session's object: takes inputs, performs effects, runs the model request.

pub mod access;
pub mod agenda;
pub mod alarm;
pub mod directory_sync;
pub mod driver;
pub mod fork;
pub mod object;
pub mod publish;
pub mod queries;
pub mod request;
pub mod sampling_task;
