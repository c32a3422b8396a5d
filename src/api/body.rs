//! Request bodies: how JSON becomes a type, and checks of fields that several bodies share.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Code, Error, MAX_EXPIRY, MAX_LABELS, MAX_MODEL, MAX_TITLE};
use crate::json::{self, Detail, ParseError};

/// Keys of the compatible API that are accepted and ignored.
pub const FOREIGN: [&str; 12] = [
    "silent",
    "external_session_id",
    "runner_id",
    "host_id",
    "host_type",
    "workspace",
    "git",
    "terminal_launch_args",
    "parent_session_id",
    "sub_agent_name",
    "metadata",
    "harness",
];

/// A body that is a JSON object, without the ignored keys.
pub fn object(body: &str) -> Result<Map<String, Value>, Error> {
    let json = json::parse_untrusted(body).map_err(|e| match e {
        ParseError::TooComplex(e) => Error::new(Code::PayloadTooLarge, format!("the body is too complex: {e}")),
        ParseError::Syntax(e) => {
            let why = e.to_string();
            let hint = if why.contains("hex escape") { "; an unpaired surrogate is not a character" } else { "" };
            Error::new(Code::InvalidInput, format!("the body is not valid JSON: {why}{hint}"))
        }
    })?;
    let Value::Object(mut object) = json else {
        return Err(Error::new(Code::InvalidInput, "the body must be a JSON object"));
    };
    object.retain(|key, _| !FOREIGN.contains(&key.as_str()));
    Ok(object)
}

/// Reads an object as a type; `at` is the object's path in the body.
pub fn parse<T: DeserializeOwned>(object: Map<String, Value>, at: &str) -> Result<T, Error> {
    json::take(Value::Object(object)).map_err(|fault| {
        let Detail { at, why, .. } = fault.within(at).into_inner();
        Error { param: Some(at).filter(|at| !at.is_empty()), ..Error::new(Code::InvalidInput, why) }
    })
}

/// Rejects an invalid model name.
pub fn check_model(name: Option<&str>) -> Result<(), Error> {
    match name {
        Some(name) if !(1..=MAX_MODEL).contains(&name.len()) => {
            Err(Error::invalid("model_override", format!("a model's name has 1 to {MAX_MODEL} bytes")))
        }
        _ => Ok(()),
    }
}

/// Rejects a title that is too long.
pub fn check_title(title: Option<&str>) -> Result<(), Error> {
    match title {
        Some(title) if title.chars().count() > MAX_TITLE => {
            Err(Error::invalid("title", format!("a title has at most {MAX_TITLE} characters")))
        }
        _ => Ok(()),
    }
}

/// Rejects a lifetime that is zero, too long or not a number.
pub fn check_expiry(seconds: Option<u64>) -> Result<(), Error> {
    match seconds {
        None | Some(1..=MAX_EXPIRY) => Ok(()),
        Some(_) => {
            let message =
                format!("must be a whole number of seconds from 1 to {MAX_EXPIRY}, or null for no expiry");
            Err(Error::invalid("expires_in", message))
        }
    }
}

/// Rejects labels above the limits.
pub fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Error> {
    if labels.len() > MAX_LABELS {
        return Err(Error::invalid("labels", format!("a session has at most {MAX_LABELS} labels")));
    }
    for (key, value) in labels {
        if key.is_empty() || key.chars().count() > 64 || value.chars().count() > 512 {
            let message = "a label's key has 1 to 64 characters and its value at most 512";
            return Err(Error::invalid(format!("labels.{key}"), message));
        }
    }
    Ok(())
}
