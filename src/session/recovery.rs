//! After a crash or a deadline: turns that ran run again, parked ones stay parked, expired calls get an output.

use super::entry::{Entry, Failure, OpenCall, Outcome, Usage};
use super::output::{Settlement, Then};
use super::{Phase, Rejected, Status, Step};

/// What the model is told about a call that nobody answered in time.
const EXPIRED: &str = "expired: nobody answered this call before its deadline";

impl Step<'_, '_> {
    pub(super) fn recover(&mut self) -> Result<(), Rejected> {
        let Phase::Sampling { attempt, since, wait, .. } = self.session.state.phase else {
            return Ok(());
        };
        if wait.is_some_and(|wait| wait > self.context.now) {
            return Ok(()); // nothing ran, and the alarm goes on with it
        }
        let since = wait.map_or(since, |wait| since.max(wait));
        let error = Failure {
            code: "interrupted_by_restart".into(),
            message: "the server restarted while the model was answering".into(),
        };
        self.close_open(false);
        if self.context.now >= since.after(self.session.settings.patience) {
            self.end(Outcome::Failed(error), Usage::default());
            return Ok(());
        }
        let at = self.context.now;
        self.append(Entry::Retried { attempt, delay_seconds: 0, error, at });
        self.sample();
        Ok(())
    }

    pub(super) fn alarm(&mut self) -> Result<(), Rejected> {
        let now = self.context.now;
        if self.session.is_over(now) {
            self.effects.erase = true;
            return Ok(());
        }
        let expired: Vec<OpenCall> = self
            .session
            .state
            .open_calls()
            .iter()
            .filter(|call| call.expires_at.is_some_and(|deadline| deadline <= now))
            .cloned()
            .collect();
        for call in &expired {
            // Before the first append, so that a log that cannot be read changes nothing.
            self.context.log.item(call.seq)?;
        }
        for call in &expired {
            self.answer(call, Settlement::synthetic(Status::Expired, &EXPIRED.into()), Then::GoOn)?;
        }
        let waited = match &self.session.state.phase {
            Phase::Sampling { at, wait, .. } => wait.is_some() && self.session.asked != Some(*at),
            Phase::Idle | Phase::Parked { .. } => false,
        };
        if waited || !expired.is_empty() {
            self.sample();
        }
        Ok(())
    }
}
