//! Cancels one call: the model is told that it has no output, and the turn continues.

use super::output::{OnLastOutput, Resolution};
use super::{Ack, Rejected, Step};
use crate::session::log::{CallId, Status};

/// The output of a cancelled call, for the model.
const CANCELLED: &str = "cancelled: the user or the client decided not to run this call";

impl Step<'_, '_> {
    pub(super) fn cancel_call(&mut self, call_id: CallId) -> Result<(), Rejected> {
        let calls = self.session.state.open_calls();
        match calls.iter().find(|call| call.call_id == call_id).cloned() {
            Some(call) => {
                let output = CANCELLED.into();
                self.resolve_call(&call, Resolution::synthetic(Status::Cancelled, &output), OnLastOutput::GoOn);
                self.sample();
            }
            None => match self.context.log.output_of(&call_id)? {
                None => return Err(Rejected::UnknownCall(call_id)),
                Some(settled) if settled.status == Status::Completed => {
                    return Err(Rejected::AlreadyResolved(call_id));
                }
                Some(_) => {} // no client resolved it, as requested
            },
        }
        let remaining = self.session.state.open_calls().len();
        self.effects.ack = Ack::Cancelled { call_id, remaining };
        Ok(())
    }
}
