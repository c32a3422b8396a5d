//! Performs the effects of a session's steps, in their order and without an await between them.

use std::rc::Rc;

use super::driver::Driver;
use super::live::Live;
use super::request::OpenRequest;
use super::sampling_task;
use crate::api::Error;
use crate::runtime::platform::clock;
use crate::session::{Ack, Context, Input, Rejected, Task, TaskId};

impl Driver {
    /// Continues what a dead instance left behind, once.
    pub fn resume(self: &Rc<Self>) -> Result<(), Error> {
        if !self.change(|live| Ok(std::mem::replace(&mut live.resumed, true)))? {
            self.perform(Input::Recover)?;
        }
        Ok(())
    }

    /// Takes an input and performs its effects. A session that could not be read or written is dropped from memory,
    /// since its step may be half done, and its readers are disconnected, since they may miss what was stored: both
    /// start again from storage.
    pub fn perform(self: &Rc<Self>, input: Input) -> Result<Ack, Error> {
        let mut live = self.live.take().ok_or_else(Error::deleted)?;
        let failed = match self.step(&mut live, input) {
            Err(Rejected::Unreadable(e)) => e,
            done => {
                self.live.replace(Some(live));
                return Ok(done?);
            }
        };
        self.close_sockets("the session's storage failed");
        Err(failed.into())
    }

    fn step(self: &Rc<Self>, live: &mut Live, input: Input) -> Result<Ack, Rejected> {
        let mut context = Context { now: clock::now(), ids: &mut clock::Ids, log: &self.store };
        let effects = live.session.step(input, &mut context)?;
        self.commit(live, &effects)?;
        self.enter_session(&live.session, effects.alarm);
        if !effects.append.is_empty() {
            self.schedule_sync(live);
        }
        self.set_alarm();
        for TaskId::Sample(at) in effects.stop {
            live.request.take_if(|request| request.at == at);
        }
        for Task::Sample(sample) in effects.start {
            live.request = Some(OpenRequest::new(sample.at));
            self.later(sampling_task::run(self.clone(), sample));
        }
        Ok(effects.ack)
    }
}
