//! `PATCH /v1/sessions/{id}` and `POST /v1/sessions/{id}/fork`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::body::{check_expiry, check_model, check_title, object, parse};
use super::{Error, check_labels};

/// Changes to a session. `None` leaves a field as it is; `Some(None)` resets it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Patch {
    #[serde(deserialize_with = "given")]
    pub title: Option<Option<String>>,
    /// Labels to set or, where empty, to remove.
    pub labels: Option<BTreeMap<String, String>>,
    /// Replaces the agent's model.
    #[serde(deserialize_with = "given")]
    pub model_override: Option<Option<String>>,
    /// Replaces the agent's reasoning effort.
    #[serde(deserialize_with = "given")]
    pub reasoning_effort: Option<Option<String>>,
    /// Whether the session is archived.
    pub archived: Option<bool>,
    /// Seconds until the session is erased.
    #[serde(deserialize_with = "given")]
    pub expires_in: Option<Option<u64>>,
}

impl Patch {
    /// Whether it changes the model or how the model is asked.
    pub fn changes_model(&self) -> bool {
        self.model_override.is_some() || self.reasoning_effort.is_some()
    }
}

/// A fork to create.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fork {
    /// Its title; `None`: the original's.
    pub title: Option<String>,
    /// The last turn to include; `None`: all of them.
    pub up_to_response_id: Option<String>,
}

/// Distinguishes a null key from a missing one.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

/// Reads the body of a PATCH.
pub fn patch(body: &str) -> Result<Patch, Error> {
    let mut patch: Patch = parse(object(body)?, "")?;
    // The compatible API's form of null.
    for setting in [&mut patch.model_override, &mut patch.reasoning_effort] {
        if setting.as_ref().is_some_and(|given| given.as_deref() == Some("default")) {
            *setting = Some(None);
        }
    }
    check_title(patch.title.as_ref().and_then(Option::as_deref))?;
    check_model(patch.model_override.as_ref().and_then(Option::as_deref))?;
    check_expiry(patch.expires_in.flatten())?;
    if let Some(labels) = &patch.labels {
        check_labels(labels)?;
    }
    Ok(patch)
}

/// Reads the body of a fork. No body is the same as an empty object.
pub fn fork(body: &str) -> Result<Fork, Error> {
    let fork: Fork = if body.trim().is_empty() { Fork::default() } else { parse(object(body)?, "")? };
    check_title(fork.title.as_deref())?;
    Ok(fork)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_told_from_nothing() {
        let patch = patch(r#"{"title":null,"runner_id":"r"}"#).unwrap();
        assert_eq!(patch, Patch { title: Some(None), ..Patch::default() });
        let patch =
            super::patch(r#"{"model_override":"default","reasoning_effort":"default","silent":true}"#).unwrap();
        assert_eq!((patch.model_override, patch.reasoning_effort), (Some(None), Some(None)));
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let long = format!(r#"{{"title":"{}"}}"#, "x".repeat(201));
        let cases = [
            (r#"{"titel":"x"}"#, "titel"),
            (r#"{"title":7}"#, "title"),
            (r#"{"labels":{"a":1}}"#, "labels.a"),
            (r#"{"labels":{"":"x"}}"#, "labels."),
            (r#"{"archived":"yes"}"#, "archived"),
            (r#"{"expires_in":0}"#, "expires_in"),
            (r#"{"expires_in":-1}"#, "expires_in"),
            (r#"{"model_override":""}"#, "model_override"),
            (&long, "title"),
        ];
        for (body, param) in cases {
            assert_eq!(super::patch(body).unwrap_err().param.as_deref(), Some(param), "{body}");
        }
        assert_eq!(fork("").unwrap(), Fork::default());
        assert_eq!(fork(r#"{"upto":"x"}"#).unwrap_err().param.as_deref(), Some("upto"));
    }
}
