//! Outputs of tool calls: the first one wins, and the last one resumes the turn, exactly once.

use serde_json::Value;

use super::{Ack, OutputStatus, Rejected, Step, ToolOutput};
use crate::session::log::{Entry, IS_ERROR, Kind, OpenCall, Status, output_body};

/// What happens after the last open call has been resolved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnLastOutput {
    /// The model is asked again.
    GoOn,
    End,
}

/// How a call is settled.
#[derive(Clone, Copy)]
pub(super) struct Resolution<'a> {
    /// The status that records who wrote it: a client, or the session and why.
    pub(super) status: Status,
    /// The output the model sees.
    pub(super) output: &'a Value,
    /// Whether the output reports an error of the tool.
    pub(super) is_error: bool,
}

impl<'a> Resolution<'a> {
    /// The output the session writes in place of a client's.
    pub(super) fn synthetic(status: Status, output: &'a Value) -> Self {
        Self { status, output, is_error: true }
    }
}

impl Step<'_, '_> {
    pub(super) fn output(&mut self, given: ToolOutput) -> Result<(), Rejected> {
        let Some(call) =
            self.session.state.open_calls().iter().find(|call| call.call_id == given.call_id).cloned()
        else {
            return self.late_output(given);
        };
        let answer = Resolution { status: Status::Completed, output: &given.output, is_error: given.is_error };
        self.resolve_call(&call, answer, OnLastOutput::GoOn);
        let remaining = self.session.state.open_calls().len();
        self.sample();
        self.effects.ack = Ack::Output { call_id: given.call_id, status: OutputStatus::Accepted, remaining };
        Ok(())
    }

    /// Handles an output for a call that is not open.
    fn late_output(&mut self, given: ToolOutput) -> Result<(), Rejected> {
        let Some(settled) = self.context.log.output_of(&given.call_id)? else {
            return Err(Rejected::UnknownCall(given.call_id));
        };
        if settled.status != Status::Completed {
            return Err(Rejected::CallCancelled(given.call_id));
        }
        let body: Value = serde_json::from_str(&settled.body).unwrap_or_default();
        let is_error = body.get(IS_ERROR).is_some_and(Value::is_boolean);
        if body.get("output") != Some(&given.output) || is_error != given.is_error {
            return Err(Rejected::AlreadyResolved(given.call_id));
        }
        let remaining = self.session.state.open_calls().len();
        self.effects.ack = Ack::Output { call_id: given.call_id, status: OutputStatus::Duplicate, remaining };
        Ok(())
    }

    /// Resolves an open call.
    pub(super) fn resolve_call(&mut self, call: &OpenCall, resolution: Resolution<'_>, then: OnLastOutput) {
        let resumes = then == OnLastOutput::GoOn && self.session.state.open_calls().len() == 1;
        let Some(turn) = self.session.state.turn() else { return };
        let (response_id, index) = (turn.head.response_id.clone(), turn.items);
        let body = output_body(call.provider_id(), resolution.output, resolution.is_error);
        let kind = Kind::FunctionCallOutput { call_id: call.call_id.clone() };
        let item = self.item(response_id, resolution.status, kind, body);
        self.append(Entry::CallResolved { item, call: call.seq, index, resumes });
    }

    /// Resolves the open calls that are not a client's.
    pub(super) fn resolve_unknown_calls(&mut self) {
        let calls: Vec<OpenCall> =
            self.session.state.open_calls().iter().filter(|call| !call.parked).cloned().collect();
        for call in calls {
            let text = format!("unknown tool {}: it is not offered in this turn", call.name);
            let answer = Resolution { status: Status::Completed, output: &text.into(), is_error: true };
            self.resolve_call(&call, answer, OnLastOutput::GoOn);
        }
        self.sample();
    }
}
