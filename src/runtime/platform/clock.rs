//! The time and new ids: the only place that asks the platform for either.

use crate::api::Error;
use crate::session::{Mint, Seconds};

/// Unix time in milliseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below 2^53")]
pub fn millis() -> u64 {
    js_sys::Date::now() as u64
}

/// Unix time in seconds.
pub fn now() -> Seconds {
    Seconds(millis() / 1000)
}

/// Time-ordered ids.
pub struct Ids;

impl Ids {
    /// A new key, in hex.
    pub fn secret(&self) -> Result<String, Error> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(super::fault::internal)?;
        Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Mint for Ids {
    fn uuid(&mut self) -> String {
        let mut random = [0; 10];
        if let Err(e) = getrandom::fill(&mut random) {
            worker::console_error!("no randomness: {e}");
        }
        uuid::Builder::from_unix_timestamp_millis(millis(), &random).into_uuid().simple().to_string()
    }
}
