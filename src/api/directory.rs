//! What a tenant's directory stores: a summary of every session, the agents, and usage.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::agent::agent_fields;
use super::body::object;
use super::create::agent;
use super::{Agent, Error, Query, SessionInfo};
use crate::session::{AgentId, Seconds, Session, SessionId, SessionStatus, Usage};

/// A session as listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub id: SessionId,
    pub agent_id: AgentId,
    pub agent_name: String,
    /// The session's model.
    pub model: String,
    /// The session's status.
    pub status: SessionStatus,
    pub title: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Whether it is archived.
    pub archived: bool,
    /// When it was created.
    pub created_at: Seconds,
    /// When it last changed.
    pub updated_at: Seconds,
    /// When it will be erased.
    pub expires_at: Option<Seconds>,
    /// Its token usage.
    pub usage: Usage,
    /// Incremented with every change, so that an older summary never replaces a newer one.
    pub version: u64,
}

impl Summary {
    pub fn of(info: &SessionInfo, session: &Session) -> Self {
        let state = &session.state;
        Self {
            id: session.id.clone(),
            agent_id: info.agent_id.clone(),
            agent_name: info.agent.name.clone(),
            model: info.model().to_string(),
            status: state.status(),
            title: info.title.clone(),
            labels: info.labels.clone(),
            archived: info.archived,
            created_at: info.created_at,
            updated_at: state.updated_at.max(info.updated_at),
            expires_at: info.expires_at,
            usage: state.usage,
            version: Self::version_of(info, session),
        }
    }

    /// The version of a session's summary.
    pub fn version_of(info: &SessionInfo, session: &Session) -> u64 {
        session.state.next.0.saturating_add(info.revision)
    }

    /// The summary as clients see it.
    pub fn view(&self) -> Value {
        let mut view = serde_json::to_value(self).unwrap_or_default();
        if let Some(view) = view.as_object_mut() {
            view.remove("version");
            view.insert("object".into(), "session".into());
        }
        view
    }
}

/// What a session sends to the directory.
#[derive(Debug, Serialize, Deserialize)]
pub struct SummaryUpdate {
    pub summary: Summary,
    /// Whether the directory may not know the session yet. A session it has forgotten must not reappear.
    pub new: bool,
    /// Whether its usage is inherited from the session it forks.
    pub inherits: bool,
    /// The agent, if it came inline with the session, so that other sessions can use it by id.
    pub agent: Option<Agent>,
}

/// An agent of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    pub id: AgentId,
    /// Incremented with every change, from 1.
    pub version: u32,
    /// When it was created.
    pub created_at: Seconds,
    /// When it last changed.
    pub updated_at: Seconds,
    /// The agent itself, secrets included.
    pub agent: Agent,
}

impl AgentRecord {
    /// The agent as clients see it: without secrets.
    pub fn view(&self) -> Value {
        let mut view = agent_fields(&self.id, &self.agent);
        if let Some(view) = view.as_object_mut() {
            view.insert("version".into(), self.version.into());
            view.insert("created_at".into(), json!(self.created_at));
            view.insert("updated_at".into(), json!(self.updated_at));
        }
        view
    }

    /// The next version, with the keys of a PATCH applied. A null key is reset to its default.
    pub fn patched(self, body: &str, now: Seconds) -> Result<Self, Error> {
        let mut whole: Map<String, Value> = match serde_json::to_value(&self.agent) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        whole.remove("tools");
        let changes = object(body)?;
        let tools = (!changes.contains_key("tools")).then(|| self.agent.tools.clone());
        for (key, value) in changes {
            if !AGENT_KEYS.contains(&key.as_str()) {
                return Err(Error::invalid(
                    key,
                    format!("unknown field, expected one of {}", AGENT_KEYS.join(", ")),
                ));
            }
            if value.is_null() {
                whole.remove(&key);
            } else {
                whole.insert(key, value);
            }
        }
        let mut agent = agent(whole, "")?;
        agent.tools = tools.unwrap_or(agent.tools);
        Ok(Self { agent, version: self.version.saturating_add(1), updated_at: now, ..self })
    }
}

/// The keys of an agent.
const AGENT_KEYS: [&str; 12] = [
    "name",
    "instructions",
    "model",
    "provider",
    "tools",
    "reasoning_effort",
    "max_output_tokens",
    "temperature",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "tool_timeout_s",
];

/// Reads the body of `POST /v1/agents`.
pub fn new_agent(body: &str) -> Result<Agent, Error> {
    agent(object(body)?, "")
}

/// A page of a list.
pub fn list_page(data: &[Value], has_more: bool) -> Value {
    let id = |value: Option<&Value>| value.and_then(|value| value.get("id")).cloned();
    json!({"object": "list", "data": data, "first_id": id(data.first()), "last_id": id(data.last()), "has_more": has_more})
}

/// `GET /v1/sessions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionsQuery {
    pub page: PageQuery,
    /// Whether the list is ordered by last change instead of creation.
    pub by_update: bool,
    /// Only sessions of that agent.
    pub agent_id: Option<String>,
    /// Only sessions whose agent has that name.
    pub agent_name: Option<String>,
    /// Only sessions with that status.
    pub status: Option<String>,
    /// Only sessions with that label.
    pub label: Option<(String, String)>,
    /// Only sessions whose title or labels contain this text.
    pub search: Option<String>,
    /// Only archived sessions, or only those that are not.
    pub archived: Option<bool>,
}

/// Which part of a list to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuery {
    /// Entries per page.
    pub limit: usize,
    /// Only entries after this one, in the requested order.
    pub after: Option<String>,
    /// Only entries before this one, in the requested order.
    pub before: Option<String>,
    /// Newest first.
    pub descending: bool,
}

impl Query {
    /// From the query of a list, newest first by default.
    pub fn page(&self) -> Result<PageQuery, Error> {
        let text = |name| self.get(name).filter(|text| !text.is_empty()).map(str::to_string);
        Ok(PageQuery {
            limit: self.limit("limit", 20)?,
            after: text("after"),
            before: text("before"),
            descending: self.descending(true)?,
        })
    }

    /// From the query of a list of sessions.
    pub fn sessions(&self) -> Result<SessionsQuery, Error> {
        let known = ["agent_id", "agent_name", "status", "label", "search_query", "archived", "sort_by"];
        // The compatible API's filters. There is one kind of session, shared within its tenant.
        let compatible = ["visibility", "include_archived", "kind"];
        self.only(&[&["limit", "after", "before", "order"], known.as_slice(), &compatible].concat())?;
        let text = |name| self.get(name).filter(|text| !text.is_empty()).map(str::to_string);
        let by_update = match self.get("sort_by") {
            None | Some("created_at") => false,
            Some("updated_at") => true,
            Some(_) => return Err(Error::invalid("sort_by", "sort_by must be created_at or updated_at")),
        };
        let status = text("status");
        if status
            .as_ref()
            .is_some_and(|status| !["idle", "running", "waiting", "failed"].contains(&status.as_str()))
        {
            return Err(Error::invalid("status", "status must be idle, running, waiting or failed"));
        }
        let label = match text("label").map(|label| label.split_once(':').map(|(k, v)| (k.into(), v.into()))) {
            None => None,
            Some(Some(pair)) => Some(pair),
            Some(None) => return Err(Error::invalid("label", "label must be key:value")),
        };
        let mut archived = self.get("archived").is_some().then(|| self.flag("archived", false)).transpose()?;
        match self.get("visibility") {
            None => {}
            Some("all" | "mine" | "shared") if self.flag("include_archived", false)? => {}
            Some("all" | "mine" | "shared") => archived = archived.or(Some(false)),
            Some("archived") => archived = Some(true),
            Some(_) => {
                return Err(Error::invalid("visibility", "visibility must be all, mine, shared or archived"));
            }
        }
        if !matches!(self.get("kind"), None | Some("default" | "any")) {
            return Err(Error::invalid("kind", "kind must be default or any; there are no other sessions"));
        }
        let (agent_id, agent_name, search) = (text("agent_id"), text("agent_name"), text("search_query"));
        Ok(SessionsQuery { page: self.page()?, by_update, agent_id, agent_name, status, label, search, archived })
    }

    /// From the query of a list of agents.
    pub fn agents(&self) -> Result<PageQuery, Error> {
        self.only(&["limit", "after", "before", "order"])?;
        self.page()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> AgentRecord {
        let agent = new_agent(
            r#"{"name":"a","model":"m","temperature":1,
                "provider":{"type":"anthropic","base_url":"https://x","api_key":"zebra"},"tools":[{"type":"function","name":"look"}]}"#,
        );
        let (created_at, updated_at) = (Seconds(1), Seconds(1));
        AgentRecord { id: AgentId("ag_1".into()), version: 1, created_at, updated_at, agent: agent.unwrap() }
    }

    #[test]
    fn an_agent_changes_in_what_a_patch_names_and_shows_no_secret() {
        let next = record().patched(r#"{"model":"n","temperature":null}"#, Seconds(5)).unwrap();
        assert_eq!((next.version, next.updated_at, next.agent.model.as_deref()), (2, Seconds(5), Some("n")));
        assert_eq!((next.agent.temperature, next.agent.tools.len()), (None, 1));
        assert!(!next.view().to_string().contains("zebra"));
        let wrong = |body: &str| record().patched(body, Seconds(5)).unwrap_err().param;
        assert_eq!(wrong(r#"{"modle":"n"}"#).as_deref(), Some("modle"));
        assert_eq!(wrong(r#"{"modle":null}"#).as_deref(), Some("modle"));
        assert_eq!(wrong(r#"{"name":null}"#), None);
        assert_eq!(wrong(r#"{"tools":[{"type":"web"}]}"#).as_deref(), Some("tools[0].type"));
    }

    #[test]
    fn what_is_wrong_in_a_query_is_pointed_at() {
        let query = |pairs: &[(&str, &str)]| {
            Query(pairs.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect())
        };
        for (key, value) in [
            ("limit", "0"),
            ("limit", "many"),
            ("order", "sideways"),
            ("sort_by", "mood"),
            ("status", "asleep"),
            ("label", "plain"),
            ("archived", "maybe"),
            ("visibility", "none"),
            ("kind", "sub_agent"),
            ("agentname", "x"),
        ] {
            assert_eq!(query(&[(key, value)]).sessions().unwrap_err().param.as_deref(), Some(key));
        }
        let whole = query(&[("label", "a:b:c"), ("archived", "false"), ("order", "asc")]).sessions().unwrap();
        assert_eq!(whole.label, Some(("a".into(), "b:c".into())));
        let archived = |pairs: &[(&str, &str)]| query(pairs).sessions().unwrap().archived;
        assert_eq!(archived(&[("visibility", "mine")]), Some(false));
        assert_eq!(archived(&[("visibility", "archived")]), Some(true));
        assert_eq!(archived(&[("visibility", "all"), ("include_archived", "true")]), None);
        assert_eq!((whole.archived, whole.page.descending, whole.page.limit), (Some(false), false, 20));
    }
}
