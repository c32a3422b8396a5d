//! A model request in flight. Always true: a request whose result nobody needs is aborted at the provider, so that it
//! costs no more tokens and does not keep the object in memory, unless its response was read to the end, which leaves a
//! reusable connection.

use std::cell::Cell;
use std::rc::Rc;

use worker::{AbortController, AbortSignal};

use crate::session::Seq;

/// The request. Aborted when dropped, whatever the reason: a time-out, a failure, an interrupt, a session that was
/// deleted or could not be stored.
pub struct OpenRequest {
    /// The place that started it (`Sample::at`).
    pub at: Seq,
    controller: Option<AbortController>,
    ended: Rc<Cell<bool>>,
}

/// The handle of the task that makes the request.
pub struct Handle {
    /// Passed to `fetch`.
    pub signal: AbortSignal,
    ended: Rc<Cell<bool>>,
}

impl OpenRequest {
    /// The request of that place.
    pub fn new(at: Seq) -> Self {
        Self { at, controller: Some(AbortController::default()), ended: Rc::default() }
    }

    /// The handle of the task that makes it.
    pub fn handle(&self) -> Option<Handle> {
        let signal = self.controller.as_ref()?.signal();
        Some(Handle { signal, ended: self.ended.clone() })
    }
}

impl Handle {
    /// The response was read to its end: there is nothing to abort.
    pub fn ended(&self) {
        self.ended.set(true);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some(controller) = self.controller.take().filter(|_| !self.ended.get()) {
            controller.abort();
        }
    }
}
