//! Requests that come twice: the same key with the same body gets the first answer again and does nothing.
//!
//! A key belongs to a session, and to one route of it; a message's own id is such a key too. Answers that refused a request
//! are not kept, since nothing was done: the same request may work later.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Code, Error, Reply};

/// How long an answer is kept, in seconds.
pub const KEPT: u64 = 48 * 3600;
/// The longest key.
const MAX_KEY: usize = 255;

/// A name under which an answer is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Route and key.
    pub name: String,
    /// What the request said.
    pub digest: String,
}

/// An answer that was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// What the request said.
    pub digest: String,
    /// The answer's status.
    pub status: u16,
    /// The answer's body.
    pub body: String,
}

impl Key {
    /// The key of a header `Idempotency-Key`.
    pub fn header(route: &str, key: &str, body: &str) -> Result<Self, Error> {
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(|b| b.is_ascii_graphic()) {
            let message = format!("an Idempotency-Key has 1 to {MAX_KEY} visible ASCII characters");
            return Err(Error::invalid("Idempotency-Key", message));
        }
        Ok(Self { name: format!("{route} {key}"), digest: digest(body) })
    }

    /// The keys of a request: that of its header, if it has one.
    pub fn of(route: &str, header: Option<&str>, body: &str) -> Result<Vec<Self>, Error> {
        header.map(|key| Self::header(route, key, body)).into_iter().collect()
    }

    /// The key as the client gave it.
    pub fn given(&self) -> &str {
        self.name.rsplit(' ').next().unwrap_or_default()
    }

    /// The key that a message's own id is.
    pub fn message(id: &str, body: &str) -> Self {
        Self { name: format!("message {id}"), digest: digest(body) }
    }

    /// What is to be done about a request under this key: answer again, refuse, or nothing if it is new.
    pub fn judge(&self, remembered: Option<Remembered>) -> Result<Option<Reply>, Error> {
        let Some(first) = remembered else { return Ok(None) };
        if first.digest != self.digest {
            let message = "this key was used for a request with another body; use a new key for a new request";
            return Err(Error::new(Code::IdempotencyKeyReused, message));
        }
        let reply = Reply { status: first.status, headers: Vec::new(), body: first.body };
        Ok(Some(reply.with("idempotent-replayed", "true")))
    }

    /// What has to be kept of an answer.
    pub fn remember(&self, reply: &Reply) -> Remembered {
        Remembered { digest: self.digest.clone(), status: reply.status, body: reply.body.clone() }
    }
}

/// The id of the session that a keyed request to create one makes: the same for every repetition.
pub fn session_hex(tenant: &str, key: &str) -> String {
    let mut hex = digest(&format!("{tenant}\n{key}"));
    hex.truncate(32);
    hex
}

/// SHA-256, in hex.
pub fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_is_answered_again_and_another_one_refused() {
        let key = Key::header("events", "k", "{}").unwrap();
        let first = key.remember(&Reply { status: 202, headers: Vec::new(), body: "{\"a\":1}".into() });
        let again = key.judge(Some(first.clone())).unwrap().unwrap();
        assert_eq!((again.status, again.body.as_str()), (202, "{\"a\":1}"));
        assert_eq!(again.headers, [("idempotent-replayed", "true".to_string())]);
        let other = Key::header("events", "k", "{ }").unwrap();
        assert_eq!(other.judge(Some(first)).unwrap_err().code, Code::IdempotencyKeyReused);
        assert_eq!(key.judge(None), Ok(None));
    }

    #[test]
    fn a_key_is_visible_and_not_endless() {
        for key in ["", "a b", "ü", "a\n", &"k".repeat(256)] {
            assert_eq!(
                Key::header("events", key, "").unwrap_err().param.as_deref(),
                Some("Idempotency-Key"),
                "{key:?}"
            );
        }
        assert!(Key::header("events", &"k".repeat(255), "").is_ok());
    }

    #[test]
    fn a_session_is_named_by_tenant_and_key() {
        assert_eq!(session_hex("a", "k"), session_hex("a", "k"));
        assert_ne!(session_hex("a", "k"), session_hex("b", "k"));
        assert_eq!(session_hex("a", "k").len(), 32);
    }
}
