//! Recovery after a crash or a deadline: sampling turns run again, parked ones stay parked, expired calls are resolved.

use super::output::{OnLastOutput, Resolution};
use super::{BLOCK, Phase, Step};
use crate::session::log::{Entry, Failure, OpenCall, Outcome, Seconds, Status, Usage};

/// The output of an expired call, for the model.
const EXPIRED: &str = "expired: this call got no output before its deadline";

/// How often a turn without progress is run again after its session was found dead.
const MAX_RESTARTS: u32 = 6;

impl Step<'_, '_> {
    /// Repeats the request of a dead instance: at once the first time, then after 1, 2, 4 … seconds. Whatever keeps
    /// killing the session, or keeps it from storing the model's output, must not cause endless model requests, nor
    /// more of them because somebody reads the session.
    pub(super) fn recover(&mut self) {
        let now = self.context.now;
        let Phase::Sampling { attempt, restarts, since, wait, .. } = self.session.state.phase else {
            return;
        };
        if wait.is_some_and(|wait| wait > now) {
            return; // nothing ran; the alarm continues
        }
        let since = [wait, self.session.heard].into_iter().flatten().fold(since, Seconds::max);
        let error = Failure {
            code: "interrupted_by_restart".into(),
            message: "the server restarted while the model was responding".into(),
        };
        self.close_open(false);
        if restarts >= MAX_RESTARTS || now >= since.after(self.session.settings.recovery_window) {
            self.end(Outcome::Failed(error), Usage::default());
            return;
        }
        // A delayed request may not have been made yet: the session may have slept until it was due.
        let (restarts, delay_seconds) = match (wait, restarts) {
            (Some(_), restarts) => (restarts, 0),
            (None, 0) => (1, 0),
            (None, restarts) => (restarts.saturating_add(1), 1 << restarts.saturating_sub(1)),
        };
        self.append(Entry::Retried { attempt, restarts, delay_seconds, error, at: now });
        self.sample();
    }

    pub(super) fn alarm(&mut self) {
        let now = self.context.now;
        if self.session.is_over(now) {
            return; // the driver erases it
        }
        let expired: Vec<OpenCall> = self
            .session
            .state
            .open_calls()
            .iter()
            .filter(|call| call.expires_at.is_some_and(|deadline| deadline <= now))
            .cloned()
            .collect();
        let output = EXPIRED.into();
        for call in &expired {
            self.resolve_call(call, Resolution::synthetic(Status::Expired, &output), OnLastOutput::GoOn);
        }
        let waited = match &self.session.state.phase {
            // A response in progress is anywhere in its block.
            Phase::Sampling { at, wait, .. } => {
                let asked = self.session.asked.is_some_and(|asked| asked <= *at && *at < asked.plus(BLOCK));
                wait.is_some() && !asked
            }
            Phase::Idle | Phase::Parked { .. } => false,
        };
        if waited || !expired.is_empty() {
            self.sample();
        }
    }
}
