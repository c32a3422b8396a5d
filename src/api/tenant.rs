//! Tenants: the owners of sessions and agents.

use std::fmt;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

/// A tenant's name: 1 to 64 letters, digits, underscores and hyphens. It becomes part of object names, so an unchecked
/// one cannot be constructed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Tenant(String);

impl Tenant {
    /// The one tenant of a deployment in open mode.
    pub fn open() -> Self {
        Self("default".into())
    }

    /// Checks a name.
    pub fn parse(name: &str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        ((1..=64).contains(&name.len()) && name.bytes().all(plain)).then(|| Self(name.to_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Tenant {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let name = String::deserialize(input)?;
        Self::parse(&name).ok_or_else(|| {
            D::Error::custom("a tenant's name has 1 to 64 letters, digits, underscores and hyphens")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_reach_beyond_itself() {
        assert!(Tenant::parse("acme_2-b").is_some());
        for name in ["", "a/b", "a/../b", r"a\b", "a\0", "a b", "a?", "a%2f", "ä", &"a".repeat(65)] {
            assert_eq!(Tenant::parse(name), None, "{name:?}");
            let json = serde_json::to_string(name).unwrap();
            assert!(crate::json::read::<Tenant>(&json).is_err(), "{name:?}");
        }
    }
}
