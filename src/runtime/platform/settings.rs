//! The deployment's settings.

use std::cell::OnceCell;
use std::rc::Rc;

use worker::Env;

use crate::api::{Code, Error};
use crate::config::Config;

/// The deployment's settings, read once: they are constant for the life of an isolate.
pub fn config(env: &Env) -> Result<Rc<Config>, Error> {
    thread_local! {
        static CONFIG: OnceCell<Rc<Config>> = const { OnceCell::new() };
    }
    if let Some(config) = CONFIG.with(|config| config.get().cloned()) {
        return Ok(config);
    }
    // Secrets are bound like variables.
    let read = Config::read(|name| env.var(name).ok().map(|value| value.to_string())).map_err(|bad| {
        worker::console_error!("configuration: {bad}");
        let message = format!("the deployment's setting {} is invalid; its log says why", bad.setting);
        Error::new(Code::AuthNotConfigured, message)
    })?;
    Ok(CONFIG.with(|config| config.get_or_init(|| Rc::new(read)).clone()))
}
