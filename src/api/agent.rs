//! Agents in the form clients send.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::idempotency::digest;
use super::{Code, Error, MAX_AGENT, MAX_EXPIRY, MAX_MODEL, MAX_TOOLS, MAX_TOOLS_JSON};
use crate::provider::{Host, Provider, ResponseFormat, Sampling, ToolChoice};
use crate::session::{AgentId, Tool};

/// The longest pause of the built-in model between two deltas, in milliseconds.
const MAX_DELTA_MS: u32 = 60_000;

/// An agent: everything a session needs to run turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    pub name: String,
    /// Its instructions (system prompt).
    #[serde(default)]
    pub instructions: Option<String>,
    /// Its default model.
    #[serde(default)]
    pub model: Option<String>,
    /// Its provider; `None`: the deployment's default.
    #[serde(default)]
    pub provider: Option<Provider>,
    #[serde(default)]
    pub tools: Vec<AgentTool>,
    /// A sampling setting.
    #[serde(default)]
    pub reasoning_effort: Option<String>,
    /// A sampling setting.
    #[serde(default)]
    pub max_output_tokens: Option<u32>,
    /// A sampling setting.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// A sampling setting.
    #[serde(default)]
    pub tool_choice: Option<ToolChoice>,
    /// A sampling setting.
    #[serde(default)]
    pub parallel_tool_calls: Option<bool>,
    /// A sampling setting.
    #[serde(default)]
    pub response_format: Option<ResponseFormat>,
    /// Seconds until a parked call expires; `None`: never.
    #[serde(default)]
    pub tool_timeout_s: Option<u64>,
}

/// An agent's tool. All run at a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentTool(pub Tool);

impl Agent {
    /// An agent with only a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            instructions: None,
            model: None,
            provider: None,
            tools: Vec::new(),
            reasoning_effort: None,
            max_output_tokens: None,
            temperature: None,
            tool_choice: None,
            parallel_tool_calls: None,
            response_format: None,
            tool_timeout_s: None,
        }
    }

    /// Checks what the types do not express. `at` is the agent's path in the body.
    pub fn check(&self, at: &str) -> Result<(), Error> {
        if self.name.trim().is_empty() || self.name.chars().count() > 128 {
            return Err(Error::invalid(under(at, "name"), "an agent's name has 1 to 128 characters"));
        }
        if self.tool_timeout_s.is_some_and(|seconds| !(1..=MAX_EXPIRY).contains(&seconds)) {
            let message =
                format!("must be a whole number of seconds from 1 to {MAX_EXPIRY}, or null for no deadline");
            return Err(Error::invalid(under(at, "tool_timeout_s"), message));
        }
        if let Some(Provider::Scripted(play)) = &self.provider
            && play.delta_ms > MAX_DELTA_MS
        {
            let message = format!("must be at most {MAX_DELTA_MS} milliseconds");
            return Err(Error::invalid(under(at, "provider.delta_ms"), message));
        }
        if self.model.is_none() && !matches!(self.provider, Some(Provider::Scripted(_))) {
            return Err(Error::invalid(under(at, "model"), "the agent needs a model"));
        }
        if self.model.as_ref().is_some_and(|name| !(1..=MAX_MODEL).contains(&name.len())) {
            return Err(Error::invalid(under(at, "model"), format!("a model's name has 1 to {MAX_MODEL} bytes")));
        }
        if let Some((key, why)) = self.provider.as_ref().and_then(Provider::host).and_then(Host::fault) {
            return Err(Error::invalid(under(at, &format!("provider.{key}")), why));
        }
        let size = serde_json::to_string(self).map_or(0, |json| json.len());
        if size > MAX_AGENT {
            let message = format!("this agent has {size} bytes as JSON, the limit is {MAX_AGENT}");
            return Err(Error { param: Some(at.to_string()), ..Error::new(Code::PayloadTooLarge, message) });
        }
        match self.sampling().fault() {
            Some((key, why)) => Err(Error::invalid(under(at, key), why)),
            None => Ok(()),
        }
    }

    /// Its sampling settings.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            reasoning_effort: self.reasoning_effort.clone(),
            max_output_tokens: self.max_output_tokens,
            temperature: self.temperature,
            tool_choice: self.tool_choice.clone(),
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: self.response_format.clone(),
        }
    }

    /// The name of its model.
    pub fn model_name(&self) -> &str {
        self.model.as_deref().unwrap_or("scripted")
    }
}

/// The path of a key of the value at `at`.
pub fn under(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_string() } else { format!("{at}.{key}") }
}

/// The id of an inline agent: derived from its content, so equal agents share it.
pub fn inline_id(agent: &Agent) -> AgentId {
    let json = serde_json::to_string(agent).unwrap_or_default();
    let mut hex = digest(&json);
    hex.truncate(32);
    AgentId(format!("ag_{hex}"))
}

/// The agent as clients see it: without secrets.
pub fn agent_fields(id: &AgentId, agent: &Agent) -> Value {
    let tools = agent.tools.iter().map(|AgentTool(tool)| {
        json!({"name": tool.name, "runtime": "client", "description": tool.description, "parameters": tool.parameters,
            "tool_timeout_s": tool.tool_timeout_s})
    });
    json!({
        "id": id, "object": "agent", "name": agent.name, "instructions": agent.instructions,
        "model": agent.model_name(), "reasoning_effort": agent.reasoning_effort,
        "max_output_tokens": agent.max_output_tokens, "temperature": agent.temperature,
        "tool_choice": agent.tool_choice, "parallel_tool_calls": agent.parallel_tool_calls,
        "response_format": agent.response_format,
        "tool_timeout_s": agent.tool_timeout_s, "tools": tools.collect::<Vec<_>>(),
    })
}

/// Reads a list of client-side tools, in the nested form or the flat one.
pub fn tools(list: &Value, at: &str) -> Result<Vec<Tool>, Error> {
    let Some(list) = list.as_array() else {
        return Err(Error::invalid(at, "tools must be a list"));
    };
    if list.len() > MAX_TOOLS {
        return Err(Error::invalid(at, format!("there are {} tools, the limit is {MAX_TOOLS}", list.len())));
    }
    let mut tools: Vec<Tool> = Vec::with_capacity(list.len());
    for (n, entry) in list.iter().enumerate() {
        let at = format!("{at}[{n}]");
        let tool = tool(entry, &at)?;
        if tools.iter().any(|other| other.name == tool.name) {
            return Err(Error::invalid(at, format!("there are two tools with the name {}", tool.name)));
        }
        tools.push(tool);
    }
    let size = serde_json::to_string(&tools).map_or(0, |json| json.len());
    if size > MAX_TOOLS_JSON {
        return Err(Error::invalid(
            at,
            format!("the tools have {size} bytes of JSON, the limit is {MAX_TOOLS_JSON}"),
        ));
    }
    Ok(tools)
}

fn tool(entry: &Value, at: &str) -> Result<Tool, Error> {
    if entry.get("type").and_then(Value::as_str) != Some("function") {
        return Err(Error::invalid(format!("{at}.type"), "a tool's type must be \"function\""));
    }
    if entry.get("runtime").is_some_and(|runtime| runtime != "client") {
        return Err(Error::invalid(format!("{at}.runtime"), "only runtime \"client\" is supported"));
    }
    let (spec, at) = match entry.get("function") {
        Some(nested) => (nested, format!("{at}.function")),
        None => (entry, at.to_string()),
    };
    let Some(name) = spec.get("name").and_then(Value::as_str) else {
        return Err(Error::invalid(format!("{at}.name"), "a tool needs a name"));
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if !(1..=64).contains(&name.len()) || !name.bytes().all(plain) {
        let message = "a tool's name has 1 to 64 letters, digits, underscores and hyphens";
        return Err(Error::invalid(format!("{at}.name"), message));
    }
    let given = |key: &str| spec.get(key).filter(|value| !value.is_null());
    let description = match given("description") {
        None => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => return Err(Error::invalid(format!("{at}.description"), "must be a string")),
    };
    let parameters = match given("parameters") {
        None => None,
        Some(schema @ Value::Object(_)) => Some(schema.clone()),
        Some(_) => return Err(Error::invalid(format!("{at}.parameters"), "must be a JSON schema, an object")),
    };
    // Our own key, normally beside the function; accepted inside, too.
    let timeout =
        entry.get("tool_timeout_s").or_else(|| spec.get("tool_timeout_s")).filter(|value| !value.is_null());
    let tool_timeout_s = match timeout.map(Value::as_u64) {
        None => None,
        Some(Some(seconds @ 1..=MAX_EXPIRY)) => Some(seconds),
        Some(_) => {
            let message = "must be a whole number of seconds from 1 to ten years, or null for the agent's";
            return Err(Error::invalid(format!("{at}.tool_timeout_s"), message));
        }
    };
    let strict = match given("strict") {
        None => None,
        Some(Value::Bool(strict)) => Some(*strict),
        Some(_) => return Err(Error::invalid(format!("{at}.strict"), "must be true or false")),
    };
    Ok(Tool { name: name.to_string(), description, parameters, strict, tool_timeout_s })
}
