//! Ring 1: what a deployment can set, by variables and secrets.

use std::time::Duration;

use crate::api::{Agent, Code, Error};
use crate::provider::{Line, Provider};

/// A deployment's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `LAYBY_OPEN=true`: no keys are asked for. For local development.
    pub open: bool,
    /// `LAYBY_API_KEYS`: `tenant:key`, separated by commas or white space.
    pub keys: Vec<(String, String)>,
    /// `LAYBY_AGENT`: the default agent, as JSON in the form of the contract.
    pub agent: Option<Agent>,
    /// `LAYBY_PROVIDER`: the default provider, as JSON in the form of the contract.
    pub provider: Option<Provider>,
    /// `LAYBY_HEARTBEAT_S`: seconds of silence after which a stream gets a sign of life; 1 to 30, by default 15.
    pub heartbeat: Duration,
}

/// Where callers without keys belong in open mode.
const OPEN_TENANT: &str = "default";

impl Config {
    /// Reads the settings through `get`.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let json = |name: &str| get(name).filter(|text| !text.trim().is_empty());
        let agent = json("LAYBY_AGENT").map(|text| serde_json::from_str(&text)).transpose();
        let provider = json("LAYBY_PROVIDER").map(|text| serde_json::from_str(&text)).transpose();
        let mut keys = Vec::new();
        for pair in
            get("LAYBY_API_KEYS").unwrap_or_default().split([',', ' ', '\n', '\t']).filter(|pair| !pair.is_empty())
        {
            match pair.split_once(':') {
                Some((tenant, key)) if !tenant.is_empty() && key.len() >= 8 => {
                    keys.push((tenant.into(), key.into()))
                }
                _ => {
                    return Err(
                        "LAYBY_API_KEYS must be a list of tenant:key, each key with at least 8 characters".into(),
                    );
                }
            }
        }
        let heartbeat = match get("LAYBY_HEARTBEAT_S").map(|text| text.parse()) {
            None => 15,
            Some(Ok(seconds @ 1..=30)) => seconds,
            Some(_) => return Err("LAYBY_HEARTBEAT_S must be a whole number of seconds from 1 to 30".into()),
        };
        Ok(Self {
            heartbeat: Duration::from_secs(heartbeat),
            open: get("LAYBY_OPEN").is_some_and(|value| value == "true" || value == "1"),
            keys,
            agent: agent.map_err(|e| format!("LAYBY_AGENT: {e}"))?,
            provider: provider.map_err(|e| format!("LAYBY_PROVIDER: {e}"))?,
        })
    }

    /// The tenant that a request belongs to, by its `Authorization` header.
    pub fn tenant(&self, authorization: Option<&str>) -> Result<String, Error> {
        if self.keys.is_empty() {
            return if self.open {
                Ok(OPEN_TENANT.into())
            } else {
                let message = "this deployment has no API key yet: set the secret LAYBY_API_KEYS, \
                               or LAYBY_OPEN=true for local development";
                Err(Error::new(Code::AuthNotConfigured, message))
            };
        }
        let given = authorization.and_then(|header| header.strip_prefix("Bearer ")).unwrap_or_default().trim();
        // Every key is looked at, and each byte of it, so that the time taken tells nothing.
        let mut tenant = None;
        for (name, key) in &self.keys {
            if same(key.as_bytes(), given.as_bytes()) {
                tenant = Some(name.clone());
            }
        }
        tenant.ok_or_else(|| {
            let message = if given.is_empty() {
                "send an API key: Authorization: Bearer <key>"
            } else {
                "this API key is not valid"
            };
            Error::new(Code::Unauthorized, message)
        })
    }

    /// The agent of a session that names none.
    pub fn default_agent(&self) -> Agent {
        self.agent.clone().unwrap_or_else(|| Agent {
            name: "layby".into(),
            instructions: None,
            model: None,
            provider: Some(Provider::Scripted { script: Vec::<Line>::new(), delta_ms: 20 }),
            tools: Vec::new(),
            reasoning_effort: None,
            max_output_tokens: None,
            temperature: None,
            tool_timeout_s: None,
        })
    }
}

fn same(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vars: &[(&str, &str)]) -> Config {
        Config::read(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string()))
            .unwrap()
    }

    #[test]
    fn a_deployment_is_closed_until_it_has_a_key() {
        assert_eq!(config(&[]).tenant(Some("Bearer x")).unwrap_err().code, Code::AuthNotConfigured);
        assert_eq!(config(&[("LAYBY_OPEN", "true")]).tenant(None).unwrap(), "default");
    }

    #[test]
    fn keys_belong_to_tenants_and_close_an_open_deployment() {
        let config =
            config(&[("LAYBY_OPEN", "true"), ("LAYBY_API_KEYS", "acme:key-one-1,acme:key-two-2\nbeta:key-three")]);
        assert_eq!(config.tenant(Some("Bearer key-two-2")).unwrap(), "acme");
        assert_eq!(config.tenant(Some("Bearer key-three")).unwrap(), "beta");
        for wrong in
            [None, Some("Bearer "), Some("Bearer key-two-3"), Some("key-two-2"), Some("Bearer key-two-22")]
        {
            assert_eq!(config.tenant(wrong).unwrap_err().code, Code::Unauthorized, "{wrong:?}");
        }
    }
}
