//! The address of a model API, and what a request to it needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::compat::Compat;
use super::dialect::WireRequest;

/// The address of a model API. Its secrets are never shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The base URL, version included: `https://api.openai.com/v1`.
    pub base_url: String,
    /// Sent as the dialect requires: as bearer token, or as `x-api-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Headers for every request: what gateways and clouds need beyond the dialect, such as `api-key`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Query parameters for every request, such as `api-version`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// What this host wants differently from its dialect.
    #[serde(default, skip_serializing_if = "is_plain")]
    pub compat: Compat,
    /// The most tokens of a request and its response together, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
}

fn is_plain(compat: &Compat) -> bool {
    *compat == Compat::default()
}

impl Host {
    /// A host without secrets.
    pub fn at(base_url: &str) -> Self {
        Self { base_url: base_url.to_string(), ..Self::default() }
    }

    /// Checks the address and headers; errors have a path.
    pub fn fault(&self) -> Option<(String, &'static str)> {
        if !(self.base_url.starts_with("https://") || self.base_url.starts_with("http://")) {
            return Some(("base_url".into(), "must be an http or https URL"));
        }
        if self.base_url.contains(['?', '#']) {
            return Some(("base_url".into(), "must end with the path; move query parameters into `query`"));
        }
        let token = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let printable = |text: &str| text.bytes().all(|b| (b' '..=b'~').contains(&b));
        if self.api_key.as_ref().is_some_and(|key| !printable(key)) {
            return Some(("api_key".into(), "must be printable ASCII"));
        }
        for (name, value) in &self.headers {
            if name.is_empty() || !name.bytes().all(token) || !printable(value) {
                return Some((format!("headers.{name}"), "must be a header name with a value of printable ASCII"));
            }
        }
        None
    }

    /// A POST of JSON to a path of the API. `own` are the dialect's headers; the host's come last and win.
    pub(super) fn post(&self, path: &str, own: Vec<(&str, String)>, body: String) -> WireRequest {
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        headers.insert("content-type".into(), "application/json".into());
        headers.insert("accept".into(), "text/event-stream".into());
        headers.extend(own.into_iter().map(|(name, value)| (name.to_string(), value)));
        headers.extend(self.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        let mut url = format!("{}/{path}", self.base_url.trim_end_matches('/'));
        for (n, (name, value)) in self.query.iter().enumerate() {
            url.push(if n == 0 { '?' } else { '&' });
            url.push_str(&format!("{}={}", encoded(name), encoded(value)));
        }
        let headers = headers.into_iter().collect();
        WireRequest { url, headers, body, learnable: Vec::new(), private: false }
    }

    /// The scheme, host and port of the address.
    pub fn origin(&self) -> String {
        let (scheme, rest) = self.base_url.split_once("://").unwrap_or(("", &self.base_url));
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = host.rsplit('@').next().unwrap_or_default();
        format!("{}://{}", scheme.to_ascii_lowercase(), host.to_ascii_lowercase().replace(',', ""))
    }

    /// The headers of OpenAI's dialects.
    pub(super) fn bearer(&self) -> Vec<(&'static str, String)> {
        self.api_key.iter().map(|key| ("authorization", format!("Bearer {key}"))).collect()
    }
}

fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cloud_with_headers_and_a_query_of_its_own_is_reached() {
        let host = Host {
            base_url: "https://r.example.com/openai/deployments/d/".into(),
            headers: [("Api-Key".to_string(), "k".to_string())].into(),
            query: [("api-version".to_string(), "2026-01-01 preview".to_string())].into(),
            ..Host::default()
        };
        let request = host.post("chat/completions", host.bearer(), "{}".into());
        assert_eq!(
            request.url,
            "https://r.example.com/openai/deployments/d/chat/completions?api-version=2026-01-01%20preview"
        );
        let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["accept", "api-key", "content-type"]);
    }

    #[test]
    fn what_cannot_be_right_is_pointed_at() {
        let fault = |host: Host| host.fault().unwrap().0;
        assert_eq!(fault(Host::at("ftp://x")), "base_url");
        assert_eq!(fault(Host::at("https://x/v1?a=b")), "base_url");
        let header = |name: &str, value: &str| [(name.to_string(), value.to_string())].into();
        assert_eq!(fault(Host { headers: header("a b", "c"), ..Host::at("https://x") }), "headers.a b");
        assert_eq!(fault(Host { headers: header("a", "b\nc: d"), ..Host::at("https://x") }), "headers.a");
        assert_eq!(fault(Host { api_key: Some("k\r\n".into()), ..Host::at("https://x") }), "api_key");
        assert_eq!(Host::at("https://x/v1").fault(), None);
    }
}
