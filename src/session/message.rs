//! A user's message: it begins a turn, or waits for one of its own.

use super::entry::{Entry, Source};
use super::{
    Answer, CallId, Kind, MessageStatus, OnBusy, Posted, Rejected, ResponseId, Role, Status, Step, user_message,
};

impl Step<'_, '_> {
    pub(super) fn message(&mut self, posted: Posted) -> Result<(), Rejected> {
        let state = &self.session.state;
        let mut busy = !state.queue.is_empty();
        if let Some(turn) = state.turn() {
            if posted.on_busy == OnBusy::Reject {
                return Err(Rejected::TurnInProgress {
                    response_id: turn.head.response_id.clone(),
                    calls: state.open_calls().iter().map(|call| CallId::clone(&call.call_id)).collect(),
                });
            }
            busy |= posted.on_busy == OnBusy::Queue;
        }
        let limit = self.session.settings.max_queue;
        if busy && state.queue.len() >= limit {
            return Err(Rejected::QueueFull(limit));
        }
        if posted.on_busy == OnBusy::Interrupt && state.turn().is_some() {
            self.cancel_turn()?;
        }

        let response_id = ResponseId::mint(self.context.ids);
        let (kind, body) = (Kind::Message { role: Role::User }, user_message(&posted.content));
        let item = self.item(response_id.clone(), Status::Completed, kind, body);
        let item_id = item.id.clone();
        let message = posted.message(item);
        let status = if busy {
            self.append(Entry::Queued(message));
            if self.session.state.turn().is_none() {
                self.next_turn();
            }
            MessageStatus::Queued
        } else {
            let model = message.model.clone().unwrap_or_else(|| self.session.settings.model.clone());
            self.start(response_id.clone(), model, Source::Message(message));
            MessageStatus::Started
        };
        self.effects.answer = Answer::Message { item_id, response_id, status };
        Ok(())
    }
}
