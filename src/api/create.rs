//! `POST /v1/sessions`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Error;
use super::agent::{Agent, AgentTool, tools, under};
use super::body::{check_expiry, check_labels, check_model, check_title, object, parse};
use super::seed::{InitialItems, seeds};
use crate::session::AgentId;

/// A session to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSession {
    /// Its inline agent; `None`: the deployment's default.
    pub agent: Option<Agent>,
    /// The id of a stored agent, instead.
    pub agent_id: Option<AgentId>,
    pub title: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Replaces the agent's model.
    pub model_override: Option<String>,
    /// Replaces the agent's reasoning effort.
    pub reasoning_effort: Option<String>,
    /// Its initial items.
    pub seeds: InitialItems,
    /// Seconds until it is erased.
    pub expires_in: Option<u64>,
    /// Where its object is placed: one of the platform's location hints.
    pub location_hint: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Body {
    agent_id: Option<String>,
    agent: Option<Map<String, Value>>,
    title: Option<String>,
    labels: BTreeMap<String, String>,
    model_override: Option<String>,
    reasoning_effort: Option<String>,
    initial_items: Vec<Map<String, Value>>,
    expires_in: Option<u64>,
    location_hint: Option<String>,
}

/// The platform's location hints.
const LOCATIONS: [&str; 9] = ["wnam", "enam", "sam", "weur", "eeur", "apac", "oc", "afr", "me"];

pub fn create(body: &str) -> Result<NewSession, Error> {
    let body: Body = parse(object(body)?, "")?;
    if body.agent_id.is_some() && body.agent.is_some() {
        return Err(Error::invalid("agent_id", "a session has either agent_id or agent, not both"));
    }
    check_title(body.title.as_deref())?;
    check_labels(&body.labels)?;
    check_expiry(body.expires_in)?;
    check_model(body.model_override.as_deref())?;
    if body.location_hint.as_ref().is_some_and(|hint| !LOCATIONS.contains(&hint.as_str())) {
        return Err(Error::invalid("location_hint", format!("must be one of {}", LOCATIONS.join(", "))));
    }
    Ok(NewSession {
        agent: body.agent.map(|body| agent(body, "agent")).transpose()?,
        agent_id: body.agent_id.map(AgentId),
        title: body.title,
        labels: body.labels,
        model_override: body.model_override,
        reasoning_effort: body.reasoning_effort,
        seeds: seeds(body.initial_items)?,
        expires_in: body.expires_in,
        location_hint: body.location_hint,
    })
}

/// Reads an agent; `at` is its path in the body.
pub fn agent(mut object: Map<String, Value>, at: &str) -> Result<Agent, Error> {
    let list = object.remove("tools").filter(|list| !list.is_null());
    if let Some(provider) = object.get_mut("provider")
        && let Some(name) = provider.as_str()
    {
        *provider = json!({"type": "named", "name": name});
    }
    let mut agent: Agent = parse(object, at)?;
    if let Some(list) = list {
        agent.tools = tools(&list, &under(at, "tools"))?.into_iter().map(AgentTool).collect();
    }
    agent.check(at)?;
    Ok(agent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Code;
    use crate::json;
    use crate::provider::Provider;

    #[test]
    fn a_whole_body_is_read() {
        let body = r#"{"agent":{"name":"weather","instructions":"Be terse.","model":"m","tool_timeout_s":5,
            "provider":{"type":"openai-responses","base_url":"https://example.com/v1","api_key":"k"},
            "tools":[{"type":"function","runtime":"client","function":{"name":"look"}}]},
            "title":"t","labels":{"a":"b"},"runner_id":"r"}"#;
        let new = create(body).unwrap();
        let agent = new.agent.unwrap();
        assert_eq!(
            (agent.name.as_str(), agent.model_name(), agent.tools[0].0.name.as_str()),
            ("weather", "m", "look")
        );
        assert!(matches!(agent.provider, Some(Provider::OpenAiResponses(_))));
    }

    #[test]
    fn a_body_that_would_take_too_much_memory_is_refused() {
        let body = format!(r#"{{"labels":[{}]}}"#, vec![r#"{"":0}"#; json::MAX_OBJECTS].join(","));
        let error = create(&body).unwrap_err();
        assert_eq!(error.code, Code::PayloadTooLarge);
        assert_eq!(error.message, "the body is too complex: the JSON has 30001 objects, the limit is 30000");
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let cases = [
            (r#"{"agnet":{}}"#, None),
            (r#"{"agent":"x"}"#, Some("agent")),
            (r#"{"agent":{}}"#, Some("agent")),
            (r#"{"agent":{"name":"a"}}"#, Some("agent.model")),
            (r#"{"agent":{"name":"a","model":"m","provider":{"type":"nope"}}}"#, Some("agent.provider.type")),
            (r#"{"agent":{"name":"a","model":"m","tools":[{"type":"web_search"}]}}"#, Some("agent.tools[0].type")),
            (r#"{"agent":{"name":"a","model":"m","temprature":1}}"#, Some("agent.temprature")),
            (r#"{"agent":{"name":"a","model":"m","temperature":3}}"#, Some("agent.temperature")),
            (r#"{"agent":{"name":"a","model":"m","tool_choice":"maybe"}}"#, Some("agent.tool_choice")),
            (
                r#"{"agent":{"name":"a","model":"m","provider":{"type":"anthropic","base_url":"x"}}}"#,
                Some("agent.provider.base_url"),
            ),
            (r#"{"title":7}"#, Some("title")),
            ("[]", None),
            ("", None),
        ];
        for (body, param) in cases {
            let error = create(body).unwrap_err();
            assert_eq!(error.code, Code::InvalidInput, "{body}");
            if param.is_some() {
                assert_eq!(error.param.as_deref(), param, "{body}: {}", error.message);
            }
        }
    }
}
