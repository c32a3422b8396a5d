//! Reads values that hosts send as another JSON type than their API says.

use std::borrow::Cow;

use serde_json::Value;

use crate::json::{self, field};

/// A text; of a number its digits; of content in parts their texts. Empty for anything else.
pub fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Number(number) => Cow::Owned(number.to_string()),
        Value::Array(parts) => Cow::Owned(parts.iter().map(part).collect()),
        Value::Object(_) => part(value),
        Value::Null | Value::Bool(_) => Cow::Borrowed(""),
    }
}

fn part(part: &Value) -> Cow<'_, str> {
    match part {
        Value::Object(_) => text(field(part, "text")),
        other => text(other),
    }
}

/// A count: a whole number, one with a decimal point, or its digits in a text.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
pub fn count(value: &Value) -> Option<u64> {
    let float = |number: f64| (number.is_finite() && number >= 0.0).then_some(number as u64);
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(float)),
        Value::String(text) => text.trim().parse().ok().or_else(|| json::parse_f64(text.trim()).and_then(float)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A list; empty for anything else.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether there is something: not null, and not empty.
pub fn is_given(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => !object.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_and_texts_come_in_many_types() {
        for (value, want) in [
            (json!(12), Some(12)),
            (json!(12.0), Some(12)),
            (json!("12"), Some(12)),
            (json!("12.0"), Some(12)),
            (json!(-1), None),
            (json!(null), None),
            (json!("x"), None),
        ] {
            assert_eq!(count(&value), want, "{value}");
        }
        assert_eq!(text(&json!(["a", {"type": "text", "text": "b"}, {"text": null}, 3])), "ab3");
        assert_eq!(text(&json!({"text": "x"})), "x");
        assert_eq!(text(&json!(7)), "7");
    }
}
