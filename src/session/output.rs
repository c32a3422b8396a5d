//! The output of a tool call: first answer wins, the last one resumes the turn, exactly once.

use serde_json::Value;

use super::entry::{Entry, OpenCall};
use super::item::IS_ERROR;
use super::{Ack, Kind, OutputStatus, Rejected, Seq, Status, Step, ToolOutput, Unreadable, output_body};

/// What comes after the last open call has got its output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnLastOutput {
    /// The model is asked again.
    GoOn,
    /// The turn ends.
    End,
}

/// How a call is settled.
#[derive(Clone, Copy)]
pub(super) struct Resolution<'a> {
    /// Whether a client gave it, or why the session did.
    pub(super) status: Status,
    /// What the model is told.
    pub(super) output: &'a Value,
    /// Whether that is why the tool failed.
    pub(super) is_error: bool,
}

impl<'a> Resolution<'a> {
    /// What the session answers in place of a client.
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
        self.resolve_call(&call, answer, OnLastOutput::GoOn)?;
        let remaining = self.session.state.open_calls().len();
        self.sample();
        self.effects.answer = Ack::Output { call_id: given.call_id, status: OutputStatus::Accepted, remaining };
        Ok(())
    }

    /// An output for a call that does not wait for one.
    fn late_output(&mut self, given: ToolOutput) -> Result<(), Rejected> {
        let Some(settled) = self.context.log.output_of(&given.call_id)? else {
            return Err(Rejected::UnknownCall(given.call_id));
        };
        if settled.status != Status::Completed {
            return Err(Rejected::CallCancelled(given.call_id));
        }
        let data = settled.data();
        let is_error = data.get(IS_ERROR).is_some();
        if data.get("output") != Some(&given.output) || is_error != given.is_error {
            return Err(Rejected::AlreadyResolved(given.call_id));
        }
        let remaining = self.session.state.open_calls().len();
        self.effects.answer = Ack::Output { call_id: given.call_id, status: OutputStatus::Duplicate, remaining };
        Ok(())
    }

    /// Gives an open call its output.
    pub(super) fn resolve_call(
        &mut self,
        call: &OpenCall,
        answer: Resolution<'_>,
        then: OnLastOutput,
    ) -> Result<(), Unreadable> {
        let resumes = then == OnLastOutput::GoOn && self.session.state.open_calls().len() == 1;
        let Some(turn) = self.session.state.turn() else { return Ok(()) };
        let (response_id, index) = (turn.head.response_id.clone(), turn.items);
        let body = output_body(&self.provider_id(call.seq)?, answer.output, answer.is_error);
        let kind = Kind::FunctionCallOutput { call_id: call.call_id.clone() };
        let item = self.item(response_id, answer.status, kind, body);
        self.append(Entry::CallResolved { item, call: call.seq, index, resumes });
        Ok(())
    }

    /// The provider's name for a call, which stands in the call's own body.
    fn provider_id(&self, call: Seq) -> Result<String, Unreadable> {
        let appended = self.effects.append.iter().find(|record| record.seq == call);
        let item = match appended.and_then(|record| record.entry.item()) {
            Some(item) => item.clone(),
            None => self.context.log.item(call)?,
        };
        let body: Value =
            serde_json::from_str(&item.body).map_err(|e| Unreadable::Corrupt(call, e.to_string()))?;
        let id = body.get("call_id").and_then(Value::as_str);
        Ok(id.map_or_else(|| item.call_id().map(ToString::to_string).unwrap_or_default(), str::to_string))
    }

    /// Answers the open calls that no client has to answer.
    pub(super) fn resolve_unknown_calls(&mut self) -> Result<(), Unreadable> {
        let calls: Vec<OpenCall> =
            self.session.state.open_calls().iter().filter(|call| !call.parked).cloned().collect();
        for call in calls {
            let text = format!("unknown tool {}: it is not among the tools that can be called now", call.name);
            let answer = Resolution { status: Status::Completed, output: &text.into(), is_error: true };
            self.resolve_call(&call, answer, OnLastOutput::GoOn)?;
        }
        self.sample();
        Ok(())
    }
}
