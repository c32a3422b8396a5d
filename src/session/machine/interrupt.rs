//! Interrupts: the turn ends in one durable step, and the next model request is valid.

use super::output::{OnLastOutput, Resolution};
use super::{Ack, InterruptStatus, Phase, Step};
use crate::session::log::{Entry, Kind, OpenCall, Outcome, ResponseId, Role, Status, user_message};

/// What the model reads about an interrupted turn.
#[derive(Clone, Copy)]
pub(super) struct Notice {
    /// As a message in the user's name.
    marker: &'static str,
    /// As the output of a call that was open.
    output: &'static str,
}

pub(super) const INTERRUPTED: Notice = Notice {
    marker: "[The user interrupted the previous response. What was running has been stopped.]",
    output: "cancelled: the user interrupted the turn before this call got an output",
};
pub(super) const FORKED: Notice = Notice {
    marker: "[This conversation was forked before the previous response was complete.]",
    output: "cancelled: the conversation was forked before this call got an output",
};

impl Step<'_, '_> {
    pub(super) fn interrupt(&mut self, meant: Option<&ResponseId>) {
        let status = match self.session.state.turn() {
            None => InterruptStatus::Idle,
            Some(turn) if meant.is_some_and(|meant| *meant != turn.head.response_id) => InterruptStatus::Stale,
            Some(_) => {
                self.cancel_turn(INTERRUPTED);
                self.next_turn();
                InterruptStatus::Interrupted
            }
        };
        self.effects.ack = Ack::Interrupt(status);
    }

    pub(super) fn stop(&mut self) {
        let status = if self.session.state.turn().is_some() {
            self.cancel_turn(INTERRUPTED);
            InterruptStatus::Interrupted
        } else {
            InterruptStatus::Idle
        };
        if !self.session.state.queue.is_empty() {
            self.append(Entry::Dropped { at: self.context.now });
        }
        self.effects.ack = Ack::Interrupt(status);
    }

    /// Stops the open turn: partial text is kept, open calls are resolved, the model is told.
    pub(super) fn cancel_turn(&mut self, words: Notice) {
        let calls: Vec<OpenCall> = self.session.state.open_calls().to_vec();
        if let Phase::Sampling { .. } = self.session.state.phase {
            self.stop_sample();
        }
        self.close_open(true);
        let output = words.output.into();
        for call in &calls {
            self.resolve_call(call, Resolution::synthetic(Status::Cancelled, &output), OnLastOutput::End);
        }
        let Some(turn) = self.session.state.turn() else { return };
        let (usage, turn) = (turn.usage, turn.head.clone());
        let body = user_message(&serde_json::json!([{"type": "input_text", "text": words.marker}]));
        let kind = Kind::Message { role: Role::User };
        let item = self.item(turn.response_id.clone(), Status::Completed, kind, body);
        self.append(Entry::Note { item });
        self.append(Entry::Ended {
            outcome: Outcome::Cancelled,
            usage,
            at: self.context.now,
            turn,
            refused: false,
        });
    }
}
