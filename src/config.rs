//! Ring 1: what a deployment can set, by variables and secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::api::{Agent, Code, Error, SessionInfo};
use crate::provider::{Host, Named, Play, Provider, Sampling};

/// A deployment's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `LAYBY_OPEN=true`: no keys are asked for. For local development.
    pub open: bool,
    /// `LAYBY_API_KEYS`: `tenant:key`, separated by commas or white space.
    pub keys: Vec<(String, String)>,
    /// `LAYBY_AGENT`: the default agent, as JSON in the form of the contract.
    pub agent: Option<Agent>,
    /// `LAYBY_PROVIDERS`: providers by name, as JSON. `openai` and `anthropic` are there as soon as the secrets
    /// `OPENAI_API_KEY` and `ANTHROPIC_API_KEY` are. A key, header or query of the form `$NAME` is the secret of that name.
    pub providers: BTreeMap<String, Provider>,
    /// `LAYBY_PROVIDER`: the provider of agents that name none: a name, or JSON in the form of the contract.
    pub provider: Option<Provider>,
    /// `LAYBY_INLINE_PROVIDERS=false`: clients may name the deployment's providers, and bring none of their own.
    pub inline_providers: bool,
    /// `LAYBY_FIRST_BYTE_S`, `LAYBY_IDLE_S`, `LAYBY_TOTAL_S`: how long a model's answer may take.
    pub patience: Patience,
    /// `LAYBY_HEARTBEAT_S`: seconds of silence after which a stream gets a sign of life; 1 to 30, by default 15.
    pub heartbeat: Duration,
}

/// How long a model's answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Until its first byte. By default 120 seconds.
    pub first_byte: Duration,
    /// Between two pieces of it. By default 120 seconds.
    pub idle: Duration,
    /// In all. By default an hour.
    pub total: Duration,
}

/// Where callers without keys belong in open mode.
const OPEN_TENANT: &str = "default";
/// A way to make a provider of a host.
type Dialect = fn(Host) -> Provider;
/// Providers that a secret suffices for: name, secret, address, dialect.
const KNOWN: [(&str, &str, &str, Dialect); 2] = [
    ("openai", "OPENAI_API_KEY", "https://api.openai.com/v1", Provider::OpenAiResponses),
    ("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1", Provider::Anthropic),
];

impl Config {
    /// Reads the settings through `get`.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let given = |name: &str| get(name).filter(|text| !text.trim().is_empty());
        let flag = |name: &str, default: bool| match given(name).as_deref() {
            None => Ok(default),
            Some("true" | "1") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(_) => Err(format!("{name} must be true or false")),
        };
        let seconds = |name: &str, default: u64, most: u64| match given(name).map(|text| text.parse()) {
            None => Ok(Duration::from_secs(default)),
            Some(Ok(seconds)) if (1..=most).contains(&seconds) => Ok(Duration::from_secs(seconds)),
            Some(_) => Err(format!("{name} must be a whole number of seconds from 1 to {most}")),
        };
        let agent = given("LAYBY_AGENT").map(|text| serde_json::from_str(&text)).transpose();
        let providers = providers(&given)?;
        let provider = match given("LAYBY_PROVIDER") {
            Some(name) if providers.contains_key(name.trim()) => {
                Some(Provider::Named(Named { name: name.trim().to_string() }))
            }
            Some(text) => Some(provider("LAYBY_PROVIDER", &text, &given)?),
            None => None,
        };
        Ok(Self {
            open: flag("LAYBY_OPEN", false)?,
            keys: keys(&given("LAYBY_API_KEYS").unwrap_or_default())?,
            agent: agent.map_err(|e| format!("LAYBY_AGENT: {e}"))?,
            providers,
            provider,
            inline_providers: flag("LAYBY_INLINE_PROVIDERS", true)?,
            patience: Patience {
                first_byte: seconds("LAYBY_FIRST_BYTE_S", 120, 3600)?,
                idle: seconds("LAYBY_IDLE_S", 120, 3600)?,
                total: seconds("LAYBY_TOTAL_S", 3600, 86_400)?,
            },
            heartbeat: seconds("LAYBY_HEARTBEAT_S", 15, 30)?,
        })
    }

    /// The provider and the model that are meant by an agent's provider and a model's name. A model `name:model` is asked
    /// at the provider of that name.
    pub fn provider<'a>(
        &'a self,
        own: Option<&'a Provider>,
        model: &'a str,
    ) -> Result<(&'a Provider, &'a str), String> {
        if let Some((name, model)) = model.split_once(':')
            && let Some(provider) = self.providers.get(name)
        {
            return Ok((provider, model));
        }
        match own.or(self.provider.as_ref()) {
            Some(Provider::Named(Named { name })) => match self.providers.get(name) {
                Some(provider) => Ok((provider, model)),
                None => Err(format!("this deployment has no provider {name}{}", self.known())),
            },
            Some(provider) => Ok((provider, model)),
            None => {
                Err(format!("the agent names no provider and this deployment has no default one{}", self.known()))
            }
        }
    }

    /// Refuses a session whose provider the deployment does not have or allow, or settings that it has no such thing for.
    pub fn check(&self, info: &SessionInfo, turn: &Sampling) -> Result<(), Error> {
        let own = info.agent.provider.as_ref();
        if !self.inline_providers
            && own.is_some_and(|own| !matches!(own, Provider::Named(_)))
            && own != self.default_agent().provider.as_ref()
        {
            let message = format!("this deployment takes no providers from clients{}", self.known());
            return Err(Error { param: Some("agent.provider".into()), ..Error::new(Code::Forbidden, message) });
        }
        let (provider, _) =
            self.provider(own, info.model()).map_err(|why| Error::invalid("agent.provider", why))?;
        match provider.refuses(&info.sampling().with(turn)) {
            Some((setting, why)) => Err(Error::invalid(setting, why)),
            None => Ok(()),
        }
    }

    /// What a client could name instead.
    fn known(&self) -> String {
        let names: Vec<&str> = self.providers.keys().map(String::as_str).collect();
        if names.is_empty() { String::new() } else { format!("; it has {}", names.join(", ")) }
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
            provider: Some(Provider::Scripted(Play::default())),
            tools: Vec::new(),
            reasoning_effort: None,
            max_output_tokens: None,
            temperature: None,
            tool_choice: None,
            parallel_tool_calls: None,
            response_format: None,
            tool_timeout_s: None,
        })
    }
}

fn keys(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split([',', ' ', '\n', '\t']).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| match pair.split_once(':') {
        Some((tenant, key)) if !tenant.is_empty() && key.len() >= 8 => Ok((tenant.into(), key.into())),
        _ => Err("LAYBY_API_KEYS must be a list of tenant:key, each key with at least 8 characters".into()),
    };
    pairs.map(pair).collect()
}

fn providers(get: &dyn Fn(&str) -> Option<String>) -> Result<BTreeMap<String, Provider>, String> {
    let mut providers = BTreeMap::new();
    for (name, secret, base_url, dialect) in KNOWN {
        if let Some(key) = get(secret) {
            let host = Host { api_key: Some(key.trim().to_string()), ..Host::at(base_url) };
            providers.insert(name.to_string(), dialect(host));
        }
    }
    let Some(text) = get("LAYBY_PROVIDERS") else { return Ok(providers) };
    let given: BTreeMap<String, Value> =
        serde_json::from_str(&text).map_err(|e| format!("LAYBY_PROVIDERS: {e}"))?;
    for (name, value) in given {
        providers.insert(name.clone(), provider(&format!("LAYBY_PROVIDERS.{name}"), &value.to_string(), get)?);
    }
    Ok(providers)
}

/// A provider with its secrets in place.
fn provider(at: &str, text: &str, get: &dyn Fn(&str) -> Option<String>) -> Result<Provider, String> {
    let mut provider: Provider = serde_json::from_str(text).map_err(|e| format!("{at}: {e}"))?;
    if let Some(host) = provider.host_mut() {
        let secrets = host.api_key.iter_mut().chain(host.headers.values_mut()).chain(host.query.values_mut());
        for text in secrets {
            if let Some(name) = text.strip_prefix('$') {
                *text = get(name).ok_or_else(|| format!("{at}: there is no secret {name}"))?.trim().to_string();
            }
        }
        if let Some((key, why)) = host.fault() {
            return Err(format!("{at}.{key} {why}"));
        }
    }
    Ok(provider)
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
    fn providers_have_names_and_their_secrets_come_from_elsewhere() {
        let azure = r#"{"azure":{"type":"openai-chat","base_url":"https://a.example.com","headers":{"api-key":"$AZURE"}}}"#;
        let config = config(&[
            ("OPENAI_API_KEY", "sk-1\n"),
            ("LAYBY_PROVIDERS", azure),
            ("AZURE", "secret"),
            ("LAYBY_PROVIDER", "azure"),
        ]);
        let host = |provider: &Provider| provider.host().unwrap().clone();
        assert_eq!(host(&config.providers["openai"]).api_key.as_deref(), Some("sk-1"));
        assert_eq!(host(config.provider(None, "m").unwrap().0).headers["api-key"], "secret");
        let named = Provider::Named(Named { name: "openai".into() });
        assert_eq!(host(config.provider(Some(&named), "m").unwrap().0).base_url, "https://api.openai.com/v1");
        let (provider, model) = config.provider(None, "openai:gpt-5").unwrap();
        assert_eq!((host(provider).base_url.as_str(), model), ("https://api.openai.com/v1", "gpt-5"));
        assert_eq!(config.provider(None, "llama3:8b").unwrap().1, "llama3:8b");
        let unknown = Provider::Named(Named { name: "x".into() });
        assert!(
            config.provider(Some(&unknown), "m").unwrap_err().ends_with("no provider x; it has azure, openai")
        );
        let missing = r#"{"p":{"type":"anthropic","base_url":"https://x","api_key":"$NOPE"}}"#;
        let wrong = |name: &str, value: &str| {
            Config::read(|asked| (asked == name).then(|| value.to_string())).unwrap_err()
        };
        assert_eq!(wrong("LAYBY_PROVIDERS", missing), "LAYBY_PROVIDERS.p: there is no secret NOPE");
        assert!(wrong("LAYBY_PROVIDER", "openai").starts_with("LAYBY_PROVIDER: "));
        assert!(wrong("LAYBY_IDLE_S", "0").contains("from 1 to 3600"));
        assert!(wrong("LAYBY_OPEN", "yes").contains("true or false"));
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
