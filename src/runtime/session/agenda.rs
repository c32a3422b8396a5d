//! When and why a session's object must wake up. The platform has one alarm per object.
//!
//! Always true: once [`Agenda::alarm`] has been followed, the alarm fires no later than the earliest entry; a set alarm
//! is never postponed, since an early one that finds nothing to do is cheaper than rewriting it with every step;
//! nothing is set for a session that waits without a deadline.

use std::collections::BTreeMap;

use crate::session::Seconds;

/// A reason to wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// The session's own timers: watchdog, retry, deadline, expiry.
    Session,
    /// Kept responses must be deleted. That can wait until the session is idle.
    Sweep,
    /// The directory may have missed the session's last change.
    Listing,
    /// A fork may have been left unfinished.
    Copy,
    /// The last alarm's work failed.
    Failure,
}

/// All reasons to wake up known to this instance.
#[derive(Debug, Default)]
pub struct Agenda {
    entries: BTreeMap<Wake, Seconds>,
    is_idle: bool,
    /// When the platform's alarm fires.
    alarm: Option<Seconds>,
}

impl Agenda {
    /// Records an alarm an earlier instance may have set.
    pub fn found(&mut self, alarm: Option<Seconds>) {
        self.alarm = self.alarm.or(alarm);
    }

    /// Whether the platform's alarm is known to be set.
    pub fn has_alarm(&self) -> bool {
        self.alarm.is_some()
    }

    /// Enters when to wake up for a reason; `None` removes it.
    pub fn enter(&mut self, wake: Wake, at: Option<Seconds>) {
        match at {
            Some(at) => drop(self.entries.insert(wake, at)),
            None => drop(self.entries.remove(&wake)),
        }
    }

    /// Enters the session's own timer, and whether it is idle.
    pub fn session(&mut self, due: Option<Seconds>, is_idle: bool) {
        self.is_idle = is_idle;
        self.enter(Wake::Session, due);
    }

    /// The time to set the platform's alarm to now; `None` if it is set early enough, or not needed.
    pub fn alarm(&mut self, now: Seconds) -> Option<Seconds> {
        let counts = |wake: &Wake| self.is_idle || *wake != Wake::Sweep;
        let due = self.entries.iter().filter(|(wake, _)| counts(wake)).map(|(_, at)| *at).min()?.max(now);
        if self.alarm.is_some_and(|at| at <= due) {
            return None;
        }
        self.alarm = Some(due);
        self.alarm
    }

    /// Setting the alarm failed.
    pub fn not_set(&mut self) {
        self.alarm = None;
    }

    /// The alarm fired. Its handler checks every reason, and re-enters those still to come.
    pub fn went_off(&mut self) {
        *self = Self { is_idle: self.is_idle, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Seconds = Seconds(1000);

    fn at(seconds: u64) -> Option<Seconds> {
        Some(Seconds(seconds))
    }

    #[test]
    fn the_earliest_reason_sets_the_alarm_once() {
        let mut agenda = Agenda::default();
        assert_eq!(agenda.alarm(NOW), None);
        agenda.session(at(1090), false);
        agenda.enter(Wake::Listing, at(1030));
        assert_eq!(agenda.alarm(NOW), at(1030));
        assert_eq!(agenda.alarm(NOW), None);
        agenda.session(at(1020), false);
        assert_eq!(agenda.alarm(NOW), at(1020));
    }

    #[test]
    fn an_alarm_is_never_put_off() {
        let mut agenda = Agenda::default();
        agenda.found(at(1010));
        agenda.session(at(1090), false);
        assert_eq!(agenda.alarm(NOW), None);
        agenda.session(None, true);
        assert_eq!(agenda.alarm(NOW), None);
        assert!(agenda.has_alarm());
        // Also an overdue one: it fires at any moment.
        assert_eq!(agenda.alarm(Seconds(2000)), None);
    }

    #[test]
    fn what_is_due_already_is_due_now() {
        let mut agenda = Agenda::default();
        agenda.session(at(1), false);
        assert_eq!(agenda.alarm(NOW), Some(NOW));
    }

    #[test]
    fn nothing_is_set_for_a_session_that_waits_without_a_deadline() {
        let mut agenda = Agenda::default();
        agenda.enter(Wake::Sweep, at(5000));
        agenda.session(None, false);
        assert_eq!(agenda.alarm(NOW), None);
        // The entries remain.
        agenda.session(None, true);
        assert_eq!(agenda.alarm(NOW), at(5000));
    }

    #[test]
    fn after_an_alarm_every_reason_is_entered_anew() {
        let mut agenda = Agenda::default();
        agenda.session(at(1010), true);
        agenda.enter(Wake::Listing, at(1030));
        assert_eq!(agenda.alarm(NOW), at(1010));
        agenda.went_off();
        assert_eq!(agenda.alarm(Seconds(1010)), None);
        agenda.enter(Wake::Sweep, at(2000));
        assert_eq!(agenda.alarm(Seconds(1010)), at(2000));
    }

    #[test]
    fn an_alarm_that_could_not_be_set_is_set_at_the_next_occasion() {
        let mut agenda = Agenda::default();
        agenda.session(at(1010), false);
        assert_eq!(agenda.alarm(NOW), at(1010));
        agenda.not_set();
        assert_eq!(agenda.alarm(NOW), at(1010));
    }

    #[test]
    fn an_alarm_of_an_earlier_instance_does_not_replace_one_that_was_set_since() {
        let mut agenda = Agenda::default();
        agenda.session(at(1010), false);
        assert_eq!(agenda.alarm(NOW), at(1010));
        agenda.found(at(1500));
        agenda.session(at(1400), false);
        assert_eq!(agenda.alarm(NOW), None);
    }
}
