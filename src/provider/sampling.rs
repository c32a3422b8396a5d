//! Sampling settings: an agent's own, and a turn's overrides.
//!
//! | setting | `openai-responses` | `openai-chat` | `anthropic` | `workers-ai` | `scripted` |
//! |---|---|---|---|---|---|
//! | `temperature` | yes | yes | 0 to 1, not with effort | yes | ignored |
//! | `max_output_tokens` | yes | yes | yes, 8 192 without | yes | ignored |
//! | `reasoning_effort` | yes | yes | as effort and thinking | refused | ignored |
//! | `tool_choice` | yes | yes | yes; forced not with effort | refused | ignored |
//! | `parallel_tool_calls` | yes | yes | yes | refused | ignored |
//! | `response_format` | yes | yes | with a schema | yes | ignored |
//!
//! Settings a dialect does not support are rejected when the agent or the message is posted, not when the model is
//! asked.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::field;

/// The largest schema of a response format, as JSON, in bytes: it must fit into a row with a message's tools.
const MAX_SCHEMA: usize = 256 * 1024;

/// The settings. `None` is the provider's own default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// `low`, `medium`, `high`, …, as the provider names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// The limit of output tokens of one response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Sampling temperature, from 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Whether the model may, must or must not call tools. A forced call applies to the first request of a turn only:
    /// if it applied after the output, too, the turn would never end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether one response may contain several calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// The format of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat>,
}

/// Whether the model calls tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// Never.
    None,
    /// At least one tool.
    Required,
    /// This tool.
    Tool(String),
}

/// The format of the model's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum ResponseFormat {
    Text,
    /// Some JSON object.
    JsonObject,
    /// JSON that conforms to a schema.
    JsonSchema {
        name: String,
        schema: Value,
        /// Whether the provider enforces the schema.
        strict: Option<bool>,
    },
}

impl Sampling {
    /// These settings, overridden by a turn's.
    pub fn with(&self, turn: &Sampling) -> Sampling {
        let (own, turn) = (self.clone(), turn.clone());
        Sampling {
            reasoning_effort: turn.reasoning_effort.or(own.reasoning_effort),
            max_output_tokens: turn.max_output_tokens.or(own.max_output_tokens),
            temperature: turn.temperature.or(own.temperature),
            tool_choice: turn.tool_choice.or(own.tool_choice),
            parallel_tool_calls: turn.parallel_tool_calls.or(own.parallel_tool_calls),
            response_format: turn.response_format.or(own.response_format),
        }
    }

    /// The settings for a request that is not the first of its turn.
    pub fn later(mut self) -> Sampling {
        if matches!(self.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_))) {
            self.tool_choice = None;
        }
        self
    }

    /// A setting no provider supports, with its name.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if self.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
            return Some(("temperature", "must be a number from 0 to 2".into()));
        }
        if self.max_output_tokens == Some(0) {
            return Some(("max_output_tokens", "must be at least 1".into()));
        }
        if let Some(ResponseFormat::JsonSchema { schema, .. }) = &self.response_format
            && schema.to_string().len() > MAX_SCHEMA
        {
            return Some(("response_format", format!("a schema has at most {MAX_SCHEMA} bytes")));
        }
        let word = |text: &String| (1..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if self.reasoning_effort.as_ref().is_some_and(|effort| !word(effort)) {
            return Some(("reasoning_effort", "must be a level such as low, medium or high".into()));
        }
        None
    }
}

impl TryFrom<Value> for ToolChoice {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let name = value.get("name").or_else(|| field(&value, "function").get("name")).and_then(Value::as_str);
        match (value.as_str(), name) {
            (Some("auto"), _) => Ok(Self::Auto),
            (Some("none"), _) => Ok(Self::None),
            (Some("required"), _) => Ok(Self::Required),
            (None, Some(name)) => Ok(Self::Tool(name.to_string())),
            _ => Err("must be \"auto\", \"none\", \"required\" or {\"type\":\"function\",\"name\":…}".into()),
        }
    }
}

impl From<ToolChoice> for Value {
    fn from(choice: ToolChoice) -> Value {
        match choice {
            ToolChoice::Auto => "auto".into(),
            ToolChoice::None => "none".into(),
            ToolChoice::Required => "required".into(),
            ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
        }
    }
}

impl TryFrom<Value> for ResponseFormat {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let nested = value.get("json_schema").unwrap_or(&value);
        let fits = |key: &str, test: fn(&Value) -> bool| {
            nested.get(key).is_none_or(|value| value.is_null() || test(value))
        };
        if !fits("name", Value::is_string) || !fits("strict", Value::is_boolean) {
            return Err("a schema's name must be a string, and strict must be true or false".into());
        }
        match (field(&value, "type").as_str(), nested.get("schema")) {
            (Some("text"), _) => Ok(Self::Text),
            (Some("json_object"), _) => Ok(Self::JsonObject),
            (Some("json_schema"), Some(schema @ Value::Object(_))) => Ok(Self::JsonSchema {
                name: field(nested, "name").as_str().unwrap_or("answer").to_string(),
                schema: schema.clone(),
                strict: field(nested, "strict").as_bool(),
            }),
            _ => Err("must be {\"type\":\"text\"}, {\"type\":\"json_object\"} or \
                      {\"type\":\"json_schema\",\"name\":…,\"schema\":{…}}"
                .into()),
        }
    }
}

impl From<ResponseFormat> for Value {
    fn from(format: ResponseFormat) -> Value {
        match format {
            ResponseFormat::Text => json!({"type": "text"}),
            ResponseFormat::JsonObject => json!({"type": "json_object"}),
            ResponseFormat::JsonSchema { name, schema, strict } => {
                let mut format = json!({"type": "json_schema", "name": name, "schema": schema});
                if let (Some(format), Some(strict)) = (format.as_object_mut(), strict) {
                    format.insert("strict".into(), strict.into());
                }
                format
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: Value) -> Result<Sampling, String> {
        serde_json::from_value(json).map_err(|e| e.to_string())
    }

    #[test]
    fn both_forms_of_openai_are_understood() {
        let schema = json!({"type": "object"});
        let flat = json!({"tool_choice": {"type": "function", "name": "look"},
            "response_format": {"type": "json_schema", "name": "n", "schema": schema, "strict": true}});
        let nested = json!({"tool_choice": {"type": "function", "function": {"name": "look"}},
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}}});
        let read_flat = read(flat.clone()).unwrap();
        assert_eq!(read_flat, read(nested).unwrap());
        assert_eq!(serde_json::to_value(&read_flat).unwrap(), flat);
        assert!(read(json!({"tool_choice": "sometimes"})).unwrap_err().contains("required"));
        assert!(read(json!({"response_format": {"type": "yaml"}})).unwrap_err().contains("json_object"));
    }

    #[test]
    fn a_turn_goes_before_its_agent_and_must_call_only_once() {
        let agent = read(json!({"temperature": 1.0, "tool_choice": "required"})).unwrap();
        let turn = read(json!({"temperature": 0.5})).unwrap();
        let both = agent.with(&turn);
        assert_eq!((both.temperature, both.tool_choice.clone()), (Some(0.5), Some(ToolChoice::Required)));
        assert_eq!(both.later().tool_choice, None);
        let never = read(json!({"tool_choice": "none"})).unwrap();
        assert_eq!(never.later().tool_choice, Some(ToolChoice::None));
    }

    #[test]
    fn what_no_provider_takes_is_named() {
        for (json, name) in [
            (json!({"temperature": 2.1}), "temperature"),
            (json!({"max_output_tokens": 0}), "max_output_tokens"),
            (json!({"reasoning_effort": ""}), "reasoning_effort"),
        ] {
            assert_eq!(read(json).unwrap().fault().unwrap().0, name);
        }
        assert_eq!(Sampling::default().fault(), None);
    }
}
