//! The session's object: takes inputs, performs effects, runs model requests.

pub mod access;
pub mod agenda;
pub mod alarm;
pub mod changes;
pub mod directory_sync;
pub mod driver;
pub mod fork;
pub mod life;
pub mod live;
pub mod object;
pub mod perform;
pub mod publish;
pub mod queries;
pub mod request;
pub mod sampling_task;
