//! The ids and numbers of a session, each a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// A new id: the type's prefix and a time-ordered uuid in hex.
            pub fn mint(ids: &mut dyn Mint) -> Self {
                Self(format!(concat!($prefix, "_{}"), ids.uuid()))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// `sess_…`: one durable conversation.
    SessionId, "sess"
);
id!(
    /// `ag_…`: the agent that a session was made with.
    AgentId, "ag"
);
id!(
    /// `resp_…`: one turn; on the wire a turn is a *response*.
    ResponseId, "resp"
);
id!(
    /// `item_…`: one unit of the transcript.
    ItemId, "item"
);
id!(
    /// `call_…`: one tool call, as clients name it. Usually the provider's own id.
    CallId, "call"
);

impl CallId {
    /// Another id for the call, which every provider takes: nine letters and digits.
    pub fn plain(&self) -> String {
        plain_id(&self.0)
    }
}

/// Nine letters and digits for an id: the form that the strictest provider demands. Other ids have other forms.
pub fn plain_id(id: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = hash(id);
    let mut digit = || {
        let digit = DIGITS.get((rest % 62) as usize).copied().unwrap_or_default();
        rest /= 62;
        char::from(digit)
    };
    (0..9).map(|_| digit()).collect()
}

/// FNV-1a.
pub fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl SessionId {
    /// An id in valid form. It becomes part of an object's name, so it is checked before use.
    pub fn parse(id: &str) -> Option<Self> {
        let hex = id.strip_prefix("sess_")?;
        (hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())).then(|| Self(id.to_string()))
    }
}

/// Source of new ids. The runtime uses the clock and the platform's randomness; tests count.
pub trait Mint {
    /// 32 lower-case hex digits; later ids sort after earlier ones.
    fn uuid(&mut self) -> String;
}

/// Unix time in whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub u64);

impl Seconds {
    /// The moment `seconds` later.
    pub fn after(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

/// The place of a record in the session's log. Increases, may have gaps, and is never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Whether it is before every record.
    pub fn is_start(&self) -> bool {
        self.0 == 0
    }

    /// The place `n` further on.
    pub fn plus(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }
}
