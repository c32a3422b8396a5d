//! User messages: a message starts a turn, is queued for one, or joins the open one.

use super::{Ack, MessageStatus, NewMessage, OnBusy, Rejected, Step};
use crate::session::log::{CallId, Entry, ItemId, Kind, ResponseId, Role, Source, Status, user_message};

impl Step<'_, '_> {
    pub(super) fn message(&mut self, posted: NewMessage) -> Result<(), Rejected> {
        let state = &self.session.state;
        let open = state.turn().map(|turn| turn.head.response_id.clone());
        if let (Some(response_id), OnBusy::Reject) = (&open, posted.on_busy) {
            let calls = state.open_calls().iter().map(|call| CallId::clone(&call.call_id)).collect();
            return Err(Rejected::TurnInProgress { response_id: response_id.clone(), calls });
        }
        let joins = open.clone().filter(|_| posted.on_busy == OnBusy::Steer);
        let waits = open.is_some() && posted.on_busy != OnBusy::Interrupt || !state.queue.is_empty();
        let limit = self.session.settings.max_queue;
        if waits && state.queue.len() >= limit {
            return Err(Rejected::QueueFull(limit));
        }
        if posted.on_busy == OnBusy::Interrupt && open.is_some() {
            self.cancel_turn(super::interrupt::INTERRUPTED);
        }

        let steers = joins.is_some();
        let response_id = joins.unwrap_or_else(|| ResponseId::mint(self.context.ids));
        let (kind, body) = (Kind::Message { role: Role::User }, user_message(&posted.content));
        let item = self.item(response_id.clone(), Status::Completed, kind, body);
        let item_id = item.id.clone();
        let message = posted.message(item, steers);
        let status = if waits {
            self.append(Entry::Queued(message));
            if self.session.state.turn().is_none() {
                self.next_turn();
            }
            if steers { MessageStatus::Steered } else { MessageStatus::Queued }
        } else {
            let model = message.model.clone().unwrap_or_else(|| self.session.settings.model.clone());
            self.start(response_id.clone(), model, Source::Message(Box::new(message)));
            MessageStatus::Started
        };
        self.effects.ack = Ack::Message { item_id, response_id, status };
        Ok(())
    }

    /// Withdraws a queued message.
    pub(super) fn withdraw(&mut self, item_id: ItemId) -> Result<(), Rejected> {
        let mut queue = self.session.state.queue.iter();
        let Some(queued) = queue.find(|waiting| waiting.item_id == item_id).map(|waiting| waiting.seq) else {
            return Err(Rejected::NotQueued(item_id));
        };
        self.append(Entry::Withdrawn { queued, at: self.context.now });
        self.effects.ack = Ack::Withdrawn(item_id);
        Ok(())
    }

    /// Whether a queued message is to join the open turn.
    pub(super) fn is_steered(&self) -> bool {
        let state = &self.session.state;
        state
            .turn()
            .is_some_and(|turn| state.queue.iter().any(|w| w.steers && w.response_id == turn.head.response_id))
    }

    /// Lets queued messages join the open turn. Only between two model requests, with every call resolved.
    pub(super) fn steer(&mut self) {
        let Some(turn) = self.session.state.turn() else { return };
        let queue = self.session.state.queue.iter();
        let joining = queue.filter(|w| w.steers && w.response_id == turn.head.response_id).map(|w| w.seq);
        for queued in joining.collect::<Vec<_>>() {
            self.append(Entry::Steered { queued, at: self.context.now });
        }
    }
}
