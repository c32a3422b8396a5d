//! Ring 1: what a deployment can set, by variables and secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::api::{Agent, Code, Error, Features, Rate, Reach, SessionInfo, Tenant, check_url};
use crate::json;
use crate::provider::{Host, Named, Provider, Sampling, ScriptedModel};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `LAYBY_OPEN=true`: no API keys are required. For local development.
    pub open: bool,
    /// `LAYBY_API_KEYS`: `tenant:key`, separated by commas or white space. A tenant may have several keys, so keys can
    /// be rotated. `tenant:sha256:<64 hex digits>` stores only a hash. Kept as digests.
    pub keys: Vec<(Tenant, [u8; 32])>,
    /// `LAYBY_ORIGINS`: origins whose pages may read responses, separated by commas, or `*`. By default all in open
    /// mode, none otherwise.
    pub origins: Vec<String>,
    /// `LAYBY_TENANT_RATE`, `LAYBY_SESSION_RATE`: requests per second of a tenant (counted per isolate; unlimited by
    /// default), and events per second of a session (100 by default). Bursts of four times as many; 0 is unlimited.
    pub tenant_rate: Rate,
    /// See `tenant_rate`.
    pub session_rate: Rate,
    /// `LAYBY_TOKEN_MESSAGE_RATE`: messages per second from the holders of a session's tokens; 1 by default, in bursts
    /// of ten times as many. Each may cost a model request.
    pub token_message_rate: Rate,
    /// `LAYBY_TOKEN_READ_RATE`: reads per second by the holders of a session's tokens, opened streams included; 100 by
    /// default, in bursts of ten times as many, so that all readers of a session can reconnect together.
    pub token_read_rate: Rate,
    /// `LAYBY_AGENT`: the default agent, as JSON in the form of the contract.
    pub agent: Option<Agent>,
    /// `LAYBY_PROVIDERS`: providers by name, as JSON. `openai` and `anthropic` exist as soon as the secrets
    /// `OPENAI_API_KEY` and `ANTHROPIC_API_KEY` do. A key, header or query of the form `$NAME` refers to the secret of
    /// that name.
    pub providers: BTreeMap<String, Provider>,
    /// `LAYBY_PROVIDER`: the provider of agents that name none: a name, or JSON in the form of the contract.
    pub provider: Option<Provider>,
    /// `LAYBY_INLINE_PROVIDERS=false`: clients may use the deployment's providers by name, but not bring their own.
    pub inline_providers: bool,
    /// `LAYBY_PRIVATE_HOSTS=true`: provider and image URLs from clients may point anywhere, and need no TLS. For local
    /// development; the default in open mode.
    pub reach: Reach,
    /// `LAYBY_FIRST_BYTE_S`, `LAYBY_IDLE_S`, `LAYBY_TOTAL_S`: time limits of a model response.
    pub timeouts: Timeouts,
    /// `LAYBY_LOG`: what is logged. The platform records every request anyway, and bills log lines.
    pub log: LogLevel,
    /// `LAYBY_HEARTBEAT_S`: seconds of silence before a stream gets a heartbeat; 1 to 30, 15 by default.
    pub heartbeat: Duration,
}

/// Which lines are logged, in increasing number. Failures always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// `errors`: failures only.
    Errors,
    /// `turns`: also one line per turn.
    Turns,
    /// `requests`, the default: also one line per request.
    Requests,
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {why}")]
pub struct BadSetting {
    /// The variable's name. Clients may see it.
    pub setting: &'static str,
    /// What is wrong with it. For the log: it never quotes the value, which may be a misplaced secret, but may name the
    /// deployment's providers.
    pub why: String,
}

fn bad(setting: &'static str, why: impl Into<String>) -> BadSetting {
    BadSetting { setting, why: why.into() }
}

/// Time limits of a model response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until its first byte; 120 seconds by default.
    pub first_byte: Duration,
    /// Between two chunks; 120 seconds by default.
    pub idle: Duration,
    /// In total; one hour by default.
    pub total: Duration,
}

/// Builds a provider from a host.
type Dialect = fn(Host) -> Provider;
/// Providers for which a secret is enough: name, secret, address, dialect.
const KNOWN: [(&str, &str, &str, Dialect); 2] = [
    ("openai", "OPENAI_API_KEY", "https://api.openai.com/v1", Provider::OpenAiResponses),
    ("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1", Provider::Anthropic),
];

impl Config {
    /// Reads the settings through `get`.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, BadSetting> {
        let given = |name: &str| get(name).filter(|text| !text.trim().is_empty());
        let flag = |name: &'static str, default: bool| match given(name).as_deref() {
            None => Ok(default),
            Some("true" | "1") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(_) => Err(bad(name, "must be true or false")),
        };
        let seconds = |name: &'static str, default: u64, most: u64| match given(name).map(|text| text.parse()) {
            None => Ok(Duration::from_secs(default)),
            Some(Ok(seconds)) if (1..=most).contains(&seconds) => Ok(Duration::from_secs(seconds)),
            Some(_) => Err(bad(name, format!("must be a whole number of seconds from 1 to {most}"))),
        };
        let rate =
            |name: &'static str, default: u32, at_once: u32| match given(name).map(|text| text.trim().parse()) {
                None => Ok(rate(default, at_once)),
                Some(Ok(per_second)) => Ok(rate(per_second, at_once)),
                Some(Err(_)) => Err(bad(name, "must be a whole number of requests per second, or 0 for no limit")),
            };
        let log = match given("LAYBY_LOG").as_deref() {
            None | Some("requests") => LogLevel::Requests,
            Some("turns") => LogLevel::Turns,
            Some("errors") => LogLevel::Errors,
            Some(_) => return Err(bad("LAYBY_LOG", "must be requests, turns or errors")),
        };
        let open = flag("LAYBY_OPEN", false)?;
        let origins = given("LAYBY_ORIGINS").unwrap_or_else(|| if open { "*".into() } else { String::new() });
        let agent = given("LAYBY_AGENT").map(|text| json::read(&text)).transpose();
        let providers = providers(&given)?;
        let provider = match given("LAYBY_PROVIDER") {
            Some(name) if providers.contains_key(name.trim()) => {
                Some(Provider::Named(Named { name: name.trim().to_string() }))
            }
            Some(text) => {
                let read = provider(json::read(&text), &given);
                Some(read.map_err(|why| bad("LAYBY_PROVIDER", why))?)
            }
            None => None,
        };
        Ok(Self {
            open,
            origins: origins.split([',', ' ']).filter(|origin| !origin.is_empty()).map(str::to_string).collect(),
            tenant_rate: rate("LAYBY_TENANT_RATE", 0, 4)?,
            session_rate: rate("LAYBY_SESSION_RATE", 100, 4)?,
            token_message_rate: rate("LAYBY_TOKEN_MESSAGE_RATE", 1, 10)?,
            token_read_rate: rate("LAYBY_TOKEN_READ_RATE", 100, 10)?,
            keys: keys(&given("LAYBY_API_KEYS").unwrap_or_default())?,
            agent: agent.map_err(|e| bad("LAYBY_AGENT", format!("{e:#}")))?,
            providers,
            provider,
            reach: if flag("LAYBY_PRIVATE_HOSTS", open)? { Reach::Anywhere } else { Reach::Public },
            inline_providers: flag("LAYBY_INLINE_PROVIDERS", true)?,
            timeouts: Timeouts {
                first_byte: seconds("LAYBY_FIRST_BYTE_S", 120, 3600)?,
                idle: seconds("LAYBY_IDLE_S", 120, 3600)?,
                total: seconds("LAYBY_TOTAL_S", 3600, 86_400)?,
            },
            log,
            heartbeat: seconds("LAYBY_HEARTBEAT_S", 15, 30)?,
        })
    }

    /// Resolves an agent's provider and a model's name. A model `name:model` selects the provider of that name.
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

    /// Rejects a session whose provider the deployment does not have or allow, or whose settings the provider does not
    /// support.
    pub fn check(&self, info: &SessionInfo) -> Result<(), Error> {
        self.check_provider(info.agent.provider.as_ref(), info.model(), &info.sampling())
    }

    /// Rejects a message whose settings, images or files its provider does not support. Whether there is such a provider
    /// is asked when the model is.
    pub fn check_message(
        &self,
        info: &SessionInfo,
        model: Option<&str>,
        own: &Sampling,
        content: &Value,
    ) -> Result<(), Error> {
        let model = model.unwrap_or_else(|| info.model());
        let Ok((provider, _)) = self.provider(info.agent.provider.as_ref(), model) else { return Ok(()) };
        let sampling = info.sampling().with(own);
        match sampling.fault().or_else(|| provider.refuses(&sampling)) {
            Some((setting, why)) => Err(Error::invalid(setting, why)),
            None => self.check_content(info, model, content, "data.content"),
        }
    }

    /// Rejects images and files that the provider has no form for.
    pub fn check_content(&self, info: &SessionInfo, model: &str, content: &Value, at: &str) -> Result<(), Error> {
        let Ok((provider, _)) = self.provider(info.agent.provider.as_ref(), model) else { return Ok(()) };
        match provider.unfit(content) {
            Some((n, why)) => Err(Error::invalid(format!("{at}[{n}]"), why)),
            None => Ok(()),
        }
    }

    /// The same for an agent.
    pub fn check_agent(&self, agent: &Agent) -> Result<(), Error> {
        self.check_provider(agent.provider.as_ref(), agent.model_name(), &agent.sampling())
    }

    fn check_provider(&self, own: Option<&Provider>, model: &str, sampling: &Sampling) -> Result<(), Error> {
        self.check_policy(own)?;
        let (provider, _) = self.provider(own, model).map_err(|why| Error::invalid("agent.provider", why))?;
        match sampling.fault().or_else(|| provider.refuses(sampling)) {
            Some((setting, why)) => Err(Error::invalid(setting, why)),
            None => Ok(()),
        }
    }

    /// Rejects an inline provider the deployment does not allow. Checked again before every model request: the
    /// deployment may have changed since the agent was created.
    pub fn check_policy(&self, own: Option<&Provider>) -> Result<(), Error> {
        let inline = own.filter(|own| !matches!(own, Provider::Named(_)));
        if let Some(inline) = inline.filter(|inline| self.default_agent().provider.as_ref() != Some(*inline)) {
            if !self.inline_providers {
                let message = format!("this deployment takes no providers from clients{}", self.known());
                return Err(Error {
                    param: Some("agent.provider".into()),
                    ..Error::new(Code::Forbidden, message)
                });
            }
            if let Some(Err(why)) = inline.host().map(|host| check_url(&host.base_url, self.reach)) {
                return Err(Error::invalid("agent.provider.base_url", why));
            }
        }
        Ok(())
    }

    /// The providers a client could name instead.
    fn known(&self) -> String {
        let names: Vec<&str> = self.providers.keys().map(String::as_str).collect();
        if names.is_empty() { String::new() } else { format!("; it has {}", names.join(", ")) }
    }

    /// The deployment's public description.
    pub fn features(&self) -> Features {
        Features {
            providers: self.providers.keys().cloned().collect(),
            inline_providers: self.inline_providers,
            rates: (self.tenant_rate.per_second, self.session_rate.per_second),
        }
    }

    /// Rejects every request as long as neither keys nor open mode are configured.
    pub fn must_be_set_up(&self) -> Result<(), Error> {
        if self.open || !self.keys.is_empty() {
            return Ok(());
        }
        let message = "this deployment has no API key yet: set the secret LAYBY_API_KEYS, \
                       or LAYBY_OPEN=true for local development";
        Err(Error::new(Code::AuthNotConfigured, message))
    }

    /// The tenant of an API key; in open mode without keys, everybody belongs to the same tenant.
    pub fn tenant(&self, given: Option<&str>) -> Result<Tenant, Error> {
        self.must_be_set_up()?;
        if self.keys.is_empty() {
            return Ok(Tenant::open());
        }
        let given = given.unwrap_or_default().trim();
        let digest = Sha256::digest(given.as_bytes());
        // Compares every byte of every key, so that timing reveals nothing.
        let mut tenant = None;
        for (name, key) in &self.keys {
            if key.ct_eq(digest.as_slice()).into() {
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

    /// Whether the deployment has that tenant, so that its sessions' tokens can be valid.
    pub fn has_tenant(&self, tenant: &Tenant) -> bool {
        match self.keys.as_slice() {
            [] => self.open && *tenant == Tenant::open(),
            keys => keys.iter().any(|(name, _)| name == tenant),
        }
    }

    /// The `Access-Control-Allow-Origin` for a page: the origin itself, or `*`; `None`: the page may not read the
    /// response.
    pub fn allowed_origin<'a>(&'a self, origin: &'a str) -> Option<&'a str> {
        let all = self.origins.iter().any(|allowed| allowed == "*");
        if all { Some("*") } else { self.origins.iter().find(|allowed| *allowed == origin).map(String::as_str) }
    }

    /// The agent of sessions that name none.
    pub fn default_agent(&self) -> Agent {
        let built_in = Some(Provider::Scripted(ScriptedModel::default()));
        self.agent.clone().unwrap_or_else(|| Agent { provider: built_in, ..Agent::named("layby") })
    }
}

fn rate(per_second: u32, at_once: u32) -> Rate {
    Rate { per_second, burst: per_second.saturating_mul(at_once) }
}

fn keys(text: &str) -> Result<Vec<(Tenant, [u8; 32])>, BadSetting> {
    let pairs = text.split([',', ' ', '\n', '\t']).filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (tenant, key) = pair.split_once(':')?;
        Some((Tenant::parse(tenant)?, key_digest(key)?))
    };
    pairs.map(read).collect::<Option<_>>().ok_or_else(|| {
        let why = "must be a list of tenant:key or tenant:sha256:<hex>; a tenant has letters, digits, _ and -, a key at \
                   least 8 characters";
        bad("LAYBY_API_KEYS", why)
    })
}

fn key_digest(key: &str) -> Option<[u8; 32]> {
    let Some(hex) = key.strip_prefix("sha256:") else {
        return (key.len() >= 8).then(|| Sha256::digest(key.as_bytes()).into());
    };
    let mut digest = [0; 32];
    for (n, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * n..2 * n + 2)?, 16).ok()?;
    }
    (hex.len() == 64).then_some(digest)
}

fn providers(get: &dyn Fn(&str) -> Option<String>) -> Result<BTreeMap<String, Provider>, BadSetting> {
    let mut providers = BTreeMap::new();
    for (name, secret, base_url, dialect) in KNOWN {
        if let Some(key) = get(secret) {
            let host = Host { api_key: Some(key.trim().to_string()), ..Host::at(base_url) };
            providers.insert(name.to_string(), dialect(host));
        }
    }
    let Some(text) = get("LAYBY_PROVIDERS") else { return Ok(providers) };
    let wrong = |why: String| bad("LAYBY_PROVIDERS", why);
    let given: BTreeMap<String, Value> = json::read(&text).map_err(|e| wrong(format!("{e:#}")))?;
    for (name, value) in given {
        let read = provider(json::take(value), get).map_err(|why| wrong(format!("{name}: {why}")))?;
        providers.insert(name, read);
    }
    Ok(providers)
}

/// Puts a provider's secrets in place, or says what is wrong with it.
fn provider(
    read: Result<Provider, json::Fault>,
    get: &dyn Fn(&str) -> Option<String>,
) -> Result<Provider, String> {
    let mut provider = read.map_err(|e| format!("{e:#}"))?;
    if let Some(host) = provider.host_mut() {
        let key = host.api_key.iter_mut().map(|text| ("api_key".to_string(), text));
        let headers = host.headers.iter_mut().map(|(name, text)| (format!("headers.{name}"), text));
        let query = host.query.iter_mut().map(|(name, text)| (format!("query.{name}"), text));
        for (at, text) in key.chain(headers).chain(query) {
            if let Some(name) = text.strip_prefix('$') {
                // Does not quote it: it could be a key that happens to start with a dollar sign.
                let secret = get(name).ok_or_else(|| format!("{at} refers to a secret that is not set"))?;
                *text = secret.trim().to_string();
            }
        }
        if let Some((key, why)) = host.fault() {
            return Err(format!("{key} {why}"));
        }
    }
    Ok(provider)
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
        assert_eq!(config(&[]).tenant(Some("x")).unwrap_err().code, Code::AuthNotConfigured);
        assert_eq!(config(&[("LAYBY_OPEN", "true")]).tenant(None).unwrap(), Tenant::open());
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
        assert_eq!(wrong("LAYBY_PROVIDERS", missing), "p: api_key refers to a secret that is not set");
        assert_eq!(wrong("LAYBY_PROVIDER", "openai"), "expected value at line 1 column 1");
        assert!(wrong("LAYBY_IDLE_S", "0").contains("from 1 to 3600"));
        assert!(wrong("LAYBY_OPEN", "yes").contains("true or false"));
        assert!(wrong("LAYBY_LOG", "all").contains("requests, turns or errors"));
    }

    /// What is wrong with a setting's value.
    fn wrong(setting: &str, value: &str) -> String {
        let fault = Config::read(|asked| (asked == setting).then(|| value.to_string())).unwrap_err();
        assert_eq!(fault.setting, setting);
        fault.why
    }

    #[test]
    fn what_is_wrong_with_a_setting_quotes_nothing_of_it() {
        let provider = |fields: &str| format!(r#"{{"p":{{"type":"anthropic",{fields}}}}}"#);
        for (setting, value) in [
            ("LAYBY_PROVIDERS", r#"{"azure":"zebra-1"}"#.to_string()),
            ("LAYBY_PROVIDERS", r#"zebra-1"#.to_string()),
            ("LAYBY_PROVIDERS", r#"["zebra-1"]"#.to_string()),
            ("LAYBY_PROVIDERS", r#"{"p":{"type":"zebra-1"}}"#.to_string()),
            ("LAYBY_PROVIDERS", provider(r#""base_url":"https://x","zebra-1":1"#)),
            ("LAYBY_PROVIDERS", provider(r#""base_url":"https://x","headers":"zebra-1""#)),
            ("LAYBY_PROVIDERS", provider(r#""base_url":"https://x","api_key":["zebra-1"]"#)),
            ("LAYBY_PROVIDERS", provider(r#""base_url":"https://x","api_key":"$zebra-1""#)),
            ("LAYBY_PROVIDERS", provider(r#""base_url":"zebra-1""#)),
            ("LAYBY_PROVIDER", "zebra-1".to_string()),
            ("LAYBY_PROVIDER", r#""zebra-1""#.to_string()),
            ("LAYBY_AGENT", r#"{"name":"a","temperature":"zebra-1"}"#.to_string()),
            ("LAYBY_AGENT", r#"{"name":"a","tool_choice":"zebra-1"}"#.to_string()),
            ("LAYBY_AGENT", r#"{"name":"a","response_format":{"type":"zebra-1"}}"#.to_string()),
            ("LAYBY_API_KEYS", "zebra-1".to_string()),
            ("LAYBY_OPEN", "zebra-1".to_string()),
            ("LAYBY_LOG", "zebra-1".to_string()),
            ("LAYBY_IDLE_S", "zebra-1".to_string()),
            ("LAYBY_SESSION_RATE", "zebra-1".to_string()),
        ] {
            let why = wrong(setting, &value);
            assert!(!why.is_empty() && !why.contains("zebra"), "{setting}={value}: {why}");
        }
    }

    #[test]
    fn keys_belong_to_tenants_and_close_an_open_deployment() {
        let digest: String = Sha256::digest(b"key-four").iter().map(|byte| format!("{byte:02x}")).collect();
        let keys = format!("acme:key-one-1,acme:key-two-2\nbeta:key-three gamma:sha256:{digest}");
        let config = config(&[("LAYBY_OPEN", "true"), ("LAYBY_API_KEYS", &keys)]);
        for (key, tenant) in [("key-two-2", "acme"), ("key-three", "beta"), ("key-four", "gamma")] {
            assert_eq!(config.tenant(Some(key)).unwrap().as_str(), tenant);
            assert!(config.has_tenant(&Tenant::parse(tenant).unwrap()));
        }
        for wrong in [None, Some(""), Some("key-two-3"), Some("key-two-22"), Some(digest.as_str())] {
            assert_eq!(config.tenant(wrong).unwrap_err().code, Code::Unauthorized, "{wrong:?}");
        }
        for wrong in ["short:key", "a/b:long-enough", "nokey", "t:sha256:zz", ":long-enough"] {
            let read = |name: &str| (name == "LAYBY_API_KEYS").then(|| wrong.to_string());
            assert_eq!(Config::read(read).unwrap_err().setting, "LAYBY_API_KEYS", "{wrong}");
        }
    }

    #[test]
    fn pages_of_other_origins_read_nothing_unless_they_may() {
        let closed = config(&[("LAYBY_API_KEYS", "a:long-enough")]);
        assert_eq!(closed.allowed_origin("https://a.example.com"), None);
        let some = config(&[("LAYBY_ORIGINS", "https://a.example.com,https://b.example.com")]);
        assert_eq!(some.allowed_origin("https://b.example.com"), Some("https://b.example.com"));
        assert_eq!(some.allowed_origin("https://b.example.com.evil.test"), None);
        assert_eq!(config(&[("LAYBY_OPEN", "true")]).allowed_origin("null"), Some("*"));
    }
}
