//! Session metadata: changed by PATCH, never by a turn. Stored in a row of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Agent, Error, MAX_MODEL_CALLS, MAX_QUEUE, NewSession, Patch, Tenant, check_labels};
use crate::provider::Sampling;
use crate::session::{AgentId, MAX_ANSWER, Seconds, Settings};

/// Seconds after which the watchdog checks a model request.
const WATCHDOG: u64 = 30;
/// Seconds without progress after which a turn interrupted by restarts is given up.
const RECOVERY_WINDOW: u64 = 300;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The agent as it was when the session was created, secrets included.
    pub agent: Agent,
    pub agent_id: AgentId,
    /// Replaces the agent's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_override: Option<String>,
    /// Replaces the agent's reasoning effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    #[serde(default)]
    pub title: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether it is archived. An archived session works as before.
    #[serde(default)]
    pub archived: bool,
    /// The session's tenant.
    pub tenant: Tenant,
    /// Whether the session's id was derived from an `Idempotency-Key`, so that a retry could create it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keyed: bool,
    /// The key that signs the session's tokens, in hex; `None`: no token is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_key: Option<String>,
    /// Incremented with every change of this row.
    #[serde(default)]
    pub revision: u64,
    /// When the session was created.
    pub created_at: Seconds,
    /// When this row last changed.
    #[serde(default)]
    pub updated_at: Seconds,
    /// When the session and all its data are erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Seconds>,
}

impl SessionInfo {
    /// Of a new session with this agent.
    pub fn new(new: NewSession, agent: Agent, agent_id: AgentId, tenant: Tenant, now: Seconds) -> Self {
        Self {
            agent,
            agent_id,
            model_override: new.model_override,
            reasoning_effort: new.reasoning_effort,
            title: new.title,
            labels: new.labels,
            archived: false,
            tenant,
            keyed: false,
            token_key: None,
            revision: 0,
            created_at: now,
            updated_at: now,
            expires_at: new.expires_in.map(|seconds| now.after(seconds)),
        }
    }

    /// Of a fork of this session.
    pub fn fork(self, title: Option<String>, now: Seconds) -> Self {
        let title = title.or(self.title);
        Self {
            title,
            archived: false,
            keyed: false,
            token_key: None,
            created_at: now,
            updated_at: now,
            expires_at: None,
            ..self
        }
    }

    /// The row with the changes applied.
    pub fn patched(&self, patch: Patch, now: Seconds) -> Result<Self, Error> {
        let mut next = Self { updated_at: now, revision: self.revision.saturating_add(1), ..self.clone() };
        for (key, value) in patch.labels.into_iter().flatten() {
            if value.is_empty() {
                next.labels.remove(&key);
            } else {
                next.labels.insert(key, value);
            }
        }
        check_labels(&next.labels)?;
        next.title = patch.title.unwrap_or(next.title);
        next.model_override = patch.model_override.unwrap_or(next.model_override);
        next.reasoning_effort = patch.reasoning_effort.unwrap_or(next.reasoning_effort);
        next.archived = patch.archived.unwrap_or(next.archived);
        if let Some(expires_in) = patch.expires_in {
            next.expires_at = expires_in.map(|seconds| now.after(seconds));
        }
        Ok(next)
    }

    /// The session's model.
    pub fn model(&self) -> &str {
        self.model_override.as_deref().unwrap_or_else(|| self.agent.model_name())
    }

    /// The sampling settings of every request.
    pub fn sampling(&self) -> Sampling {
        let own = self.agent.sampling();
        Sampling { reasoning_effort: self.reasoning_effort.clone().or(own.reasoning_effort), ..own }
    }

    /// The settings the state machine decides by.
    pub fn settings(&self) -> Settings {
        let tools = self.agent.tools.iter().map(|tool| &tool.0);
        let timeouts = tools.clone().filter_map(|tool| Some((tool.name.clone(), tool.tool_timeout_s?)));
        Settings {
            model: self.model().to_string(),
            tool_timeouts: timeouts.collect(),
            client_tools: tools.map(|tool| tool.name.clone()).collect(),
            tool_timeout: self.agent.tool_timeout_s,
            expires_at: self.expires_at,
            max_model_calls: MAX_MODEL_CALLS,
            max_queue: MAX_QUEUE,
            max_answer: MAX_ANSWER,
            watchdog: WATCHDOG,
            recovery_window: RECOVERY_WINDOW,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{create, patch};
    use super::*;

    fn info() -> SessionInfo {
        let new = create(
            r#"{"agent":{"name":"a","model":"m","reasoning_effort":"low"},"title":"t","labels":{"a":"1","b":"2"},
                "expires_in":60}"#,
        );
        let new = new.unwrap();
        let agent = new.agent.clone().unwrap();
        SessionInfo::new(new, agent, AgentId("ag_1".into()), Tenant::open(), Seconds(100))
    }

    #[test]
    fn a_patch_changes_what_it_names() {
        let info = info();
        assert_eq!(info.expires_at, Some(Seconds(160)));
        let changed = info.patched(patch(r#"{"labels":{"b":"","c":"3"}}"#).unwrap(), Seconds(110)).unwrap();
        let labels: Vec<_> = changed.labels.iter().map(|(k, v)| format!("{k}{v}")).collect();
        assert_eq!(
            (labels.join(" "), changed.title.as_deref(), changed.updated_at.0),
            ("a1 c3".into(), Some("t"), 110)
        );
        let body =
            r#"{"title":null,"model_override":"n","reasoning_effort":"high","archived":true,"expires_in":5}"#;
        let changed = info.patched(patch(body).unwrap(), Seconds(110)).unwrap();
        assert_eq!((changed.title.as_deref(), changed.model(), changed.archived), (None, "n", true));
        assert_eq!(changed.sampling().reasoning_effort.as_deref(), Some("high"));
        assert_eq!(changed.settings().expires_at, Some(Seconds(115)));
        let body = r#"{"model_override":null,"reasoning_effort":null,"expires_in":null}"#;
        let back = changed.patched(patch(body).unwrap(), Seconds(120)).unwrap();
        assert_eq!((back.model(), back.expires_at), ("m", None));
        assert_eq!(back.sampling().reasoning_effort.as_deref(), Some("low"));
    }

    #[test]
    fn a_patch_cannot_bring_too_many_labels() {
        let many: BTreeMap<String, String> = (0..17).map(|n| (format!("l{n}"), "x".into())).collect();
        let body = serde_json::json!({"labels": many}).to_string();
        let error = patch(&body).and_then(|patch| info().patched(patch, Seconds(0))).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("labels"));
    }
}
