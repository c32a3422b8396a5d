//! Requests that come twice: the same key with the same body gets the first answer again and does nothing.
//!
//! A key belongs to a session, and to one route of it; a message's own id is such a key too. Answers that refused a request
//! are not kept, since nothing was done: the same request may work later.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Code, Error, Reply, Tenant};
use crate::session::SessionId;

/// How long an answer is kept, in seconds.
pub const REPLY_TTL: u64 = 48 * 3600;
/// The largest body that is kept with an answer. A snapshot may be larger than any row, and holds a transcript that is stored
/// already: of a larger one only the status is kept, and it is made again from what the session is by then.
const MAX_KEPT_REPLY: usize = 64 * 1024;
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
    /// The answer's body; none: it was too large to keep.
    pub body: Option<String>,
}

impl Remembered {
    /// The answer once more. `remake` makes a body that was too large to keep.
    pub fn replay(self, remake: impl FnOnce() -> Result<String, Error>) -> Result<Reply, Error> {
        let body = self.body.map_or_else(remake, Ok)?;
        Ok(Reply { status: self.status, headers: Vec::new(), body }.with("idempotent-replayed", "true"))
    }
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

    /// Refuses a request that says something else than the one that used this key first.
    pub fn check(&self, first: &Remembered) -> Result<(), Error> {
        if first.digest == self.digest {
            return Ok(());
        }
        let message = "this key was used for a request with another body; use a new key for a new request";
        Err(Error::new(Code::IdempotencyKeyReused, message))
    }

    /// What has to be kept of an answer.
    pub fn remember(&self, reply: &Reply) -> Remembered {
        let body = Some(&reply.body).filter(|body| body.len() <= MAX_KEPT_REPLY).cloned();
        Remembered { digest: self.digest.clone(), status: reply.status, body }
    }
}

/// The id of the session that a keyed request to create one makes: the same for every repetition.
pub fn keyed_session(tenant: &Tenant, key: &str) -> SessionId {
    let mut hex = digest(&format!("{tenant}\n{key}"));
    hex.truncate(32);
    SessionId(format!("sess_{hex}"))
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
        let reply = |body: &str| Reply { status: 202, headers: Vec::new(), body: body.into() };
        let first = key.remember(&reply("{\"a\":1}"));
        assert_eq!(key.check(&first), Ok(()));
        let other = Key::header("events", "k", "{ }").unwrap();
        assert_eq!(other.check(&first).unwrap_err().code, Code::IdempotencyKeyReused);
        let again = first.replay(|| panic!("it was kept")).unwrap();
        assert_eq!((again.status, again.body.as_str()), (202, "{\"a\":1}"));
        assert_eq!(again.headers, [("idempotent-replayed", "true".to_string())]);
    }

    #[test]
    fn an_answer_of_any_size_fits_into_a_row() {
        let key = Key::header("patch", "k", "{}").unwrap();
        let kept = key.remember(&Reply { status: 200, headers: Vec::new(), body: "x".repeat(3_000_000) });
        assert!(serde_json::to_string(&kept).unwrap().len() < 1000);
        assert_eq!(kept.replay(|| Ok("as it is now".into())).unwrap().body, "as it is now");
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
        let id = |tenant: &str| keyed_session(&Tenant::parse(tenant).unwrap(), "k");
        assert_eq!(id("a"), id("a"));
        assert_ne!(id("a"), id("b"));
        assert!(SessionId::parse(id("a").as_str()).is_some());
    }
}
