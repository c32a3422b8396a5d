//! Paths and methods.

use percent_encoding::percent_decode_str;

use super::{Code, Error};
use crate::web;

/// The resource of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/health`
    Health,
    /// `/v1/sessions`
    Sessions,
    /// `/v1/agents`
    Agents,
    /// `/v1/agents/{id}`
    TenantAgent(String),
    /// `/v1/usage`
    Usage,
    /// `/v1/info`
    Info,
    /// `/openapi.json`
    Document,
    /// A page of the console, or one of its assets.
    Web(&'static str),
    /// `/v1/sessions/{id}`
    Session(String),
    /// `/v1/sessions/{id}/items`
    Items(String),
    /// `/v1/sessions/{id}/events`
    Events(String),
    /// `/v1/sessions/{id}/stream`
    Stream(String),
    /// `/v1/sessions/{id}/ws`
    Socket(String),
    /// `/v1/sessions/{id}/agent`
    Agent(String),
    /// `/v1/sessions/{id}/fork`
    Fork(String),
    /// `/v1/sessions/{id}/tokens`
    Tokens(String),
    /// `/v1/sessions/{id}/queue/{item_id}`
    Queued(String, String),
    /// `/v1/sessions/{id}/calls/{call_id}`
    Call(String, String),
}

/// All methods of any route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

impl Method {
    /// The method's name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

impl Route {
    /// Parses path and method. HEAD is handled as GET, except where the response would never end.
    pub fn parse(method: &str, path: &str) -> Result<(Route, Method), Error> {
        check_path(path)?;
        let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
        let found = if parts.contains(&"") { &[] } else { parts.as_slice() };
        let route = match found {
            ["health"] => Route::Health,
            ["v1", "sessions"] => Route::Sessions,
            ["v1", "agents"] => Route::Agents,
            ["v1", "agents", id] => Route::TenantAgent(decoded(id)),
            ["v1", "usage"] => Route::Usage,
            ["v1", "info"] => Route::Info,
            ["openapi.json"] => Route::Document,
            ["v1", "sessions", id] => Route::Session((*id).to_string()),
            ["v1", "sessions", id, "items"] => Route::Items((*id).to_string()),
            ["v1", "sessions", id, "events"] => Route::Events((*id).to_string()),
            ["v1", "sessions", id, "stream"] => Route::Stream((*id).to_string()),
            ["v1", "sessions", id, "ws"] => Route::Socket((*id).to_string()),
            ["v1", "sessions", id, "agent"] => Route::Agent((*id).to_string()),
            ["v1", "sessions", id, "tokens"] => Route::Tokens((*id).to_string()),
            ["v1", "sessions", id, "fork"] => Route::Fork((*id).to_string()),
            ["v1", "sessions", id, "queue", item] => Route::Queued((*id).to_string(), decoded(item)),
            ["v1", "sessions", id, "calls", call] => Route::Call((*id).to_string(), decoded(call)),
            _ => match web::page(path) {
                Some(page) => Route::Web(page.path),
                None => return Err(Error::new(Code::NotFound, format!("there is no route {path}"))),
            },
        };
        let allowed = route.methods();
        let endless = matches!(route, Route::Stream(_) | Route::Socket(_));
        let wanted = if method == "HEAD" && !endless { "GET" } else { method };
        let found = allowed.iter().find(|allowed| allowed.name() == wanted);
        found.map(|method| (route.clone(), *method)).ok_or_else(|| not_taken(method, allowed))
    }

    /// The methods of a route.
    pub fn methods(&self) -> &'static [Method] {
        match self {
            Route::Health
            | Route::Document
            | Route::Web(_)
            | Route::Info
            | Route::Usage
            | Route::Items(_)
            | Route::Stream(_)
            | Route::Socket(_)
            | Route::Agent(_) => &[Method::Get],
            Route::Sessions | Route::Agents => &[Method::Get, Method::Post],
            Route::Fork(_) => &[Method::Post],
            Route::Queued(..) | Route::Call(..) => &[Method::Delete],
            Route::Tokens(_) => &[Method::Post, Method::Delete],
            Route::Events(_) => &[Method::Get, Method::Post],
            Route::Session(_) | Route::TenantAgent(_) => &[Method::Get, Method::Patch, Method::Delete],
        }
    }

    /// One route of each kind, with these ids.
    pub fn all(session: &str, other: &str) -> Vec<Route> {
        let (id, other) = (|| session.to_string(), || other.to_string());
        vec![
            Route::Health,
            Route::Document,
            Route::Web("/"),
            Route::Info,
            Route::Usage,
            Route::Sessions,
            Route::Agents,
            Route::TenantAgent(other()),
            Route::Session(id()),
            Route::Items(id()),
            Route::Events(id()),
            Route::Stream(id()),
            Route::Socket(id()),
            Route::Agent(id()),
            Route::Fork(id()),
            Route::Tokens(id()),
            Route::Queued(id(), other()),
            Route::Call(id(), other()),
        ]
    }

    /// The route's template, without ids: for logs.
    pub fn pattern(&self) -> &'static str {
        match self {
            Route::Health => "/health",
            Route::Document => "/openapi.json",
            Route::Web(path) => path,
            Route::Info => "/v1/info",
            Route::Usage => "/v1/usage",
            Route::Sessions => "/v1/sessions",
            Route::Agents => "/v1/agents",
            Route::TenantAgent(_) => "/v1/agents/{id}",
            Route::Session(_) => "/v1/sessions/{id}",
            Route::Items(_) => "/v1/sessions/{id}/items",
            Route::Events(_) => "/v1/sessions/{id}/events",
            Route::Stream(_) => "/v1/sessions/{id}/stream",
            Route::Socket(_) => "/v1/sessions/{id}/ws",
            Route::Agent(_) => "/v1/sessions/{id}/agent",
            Route::Fork(_) => "/v1/sessions/{id}/fork",
            Route::Tokens(_) => "/v1/sessions/{id}/tokens",
            Route::Queued(..) => "/v1/sessions/{id}/queue/{item_id}",
            Route::Call(..) => "/v1/sessions/{id}/calls/{call_id}",
        }
    }

    /// The session of the request.
    pub fn session(&self) -> Option<&str> {
        match self {
            Route::Health
            | Route::Document
            | Route::Web(_)
            | Route::Info
            | Route::Sessions
            | Route::Agents
            | Route::TenantAgent(_)
            | Route::Usage => None,
            Route::Session(id)
            | Route::Items(id)
            | Route::Events(id)
            | Route::Stream(id)
            | Route::Socket(id)
            | Route::Agent(id)
            | Route::Fork(id)
            | Route::Tokens(id)
            | Route::Queued(id, _)
            | Route::Call(id, _) => Some(id),
        }
    }
}

/// The route does not support the method.
fn not_taken(method: &str, allowed: &[Method]) -> Error {
    let allow = allowed.iter().map(|m| m.name()).collect::<Vec<_>>().join(", ");
    let message = format!("this route does not take {method}; it takes {allow}");
    Error { allow: Some(allow), ..Error::new(Code::MethodNotAllowed, message) }
}

/// Rejects a path that a URL parser would rewrite: it reads `\` as `/`, resolves dot segments even where the dots are
/// escaped, drops tabs and line ends, and cuts at `#`. Every part of the platform must see the path that was checked.
/// <https://url.spec.whatwg.org/#path-state>
fn check_path(path: &str) -> Result<(), Error> {
    let invalid = |message: &str| Err(Error::new(Code::InvalidInput, message));
    if !path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'\\' | b'#')) {
        return invalid(
            r"the path has a character that must be percent-encoded: a backslash, #, white space or non-ASCII",
        );
    }
    let is_dots = |segment: &str| matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | "..");
    if path.split('/').any(is_dots) {
        return invalid("the path has a segment `.` or `..`; give the whole path");
    }
    Ok(())
}

/// A percent-decoded path segment.
fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_found_by_path_and_method() {
        assert_eq!(Route::parse("GET", "/health"), Ok((Route::Health, Method::Get)));
        assert_eq!(Route::parse("DELETE", "/v1/sessions/a"), Ok((Route::Session("a".into()), Method::Delete)));
        let call = Route::Call("a".into(), "x:y".into());
        assert_eq!(Route::parse("DELETE", "/v1/sessions/a/calls/x%3Ay"), Ok((call, Method::Delete)));
        assert_eq!(Route::parse("HEAD", "/v1/sessions/a/stream").unwrap_err().code, Code::MethodNotAllowed);
        assert_eq!(Route::parse("HEAD", "/v1/sessions/a/items"), Ok((Route::Items("a".into()), Method::Get)));
    }

    #[test]
    fn every_route_is_found_by_its_own_path() {
        for route in Route::all("s", "o") {
            let path = route.pattern().replace("/agents/{id}", "/agents/o").replace("{id}", "s");
            let path = path.replace("{item_id}", "o").replace("{call_id}", "o");
            for method in route.methods() {
                assert_eq!(Route::parse(method.name(), &path), Ok((route.clone(), *method)));
            }
        }
    }

    #[test]
    fn a_path_that_reads_in_two_ways_is_refused() {
        for path in [
            r"/v1/sessions/a/calls/a\..\..\..\..\..\log",
            "/v1/sessions/a/calls/..",
            "/v1/sessions/a/calls/%2e%2E",
            "/v1/sessions/a/calls/.%2e",
            "/v1/sessions/./a",
            "/v1/agents/../sessions",
            "/v1/sessions/a\t",
            "/v1/sessions/a#b",
            "/v1/sessions/\u{0}",
            "/v1/sessions/é",
        ] {
            for method in ["GET", "DELETE", "POST", "PATCH"] {
                assert_eq!(Route::parse(method, path).unwrap_err().code, Code::InvalidInput, "{path:?}");
            }
        }
        assert!(Route::parse("DELETE", "/v1/sessions/a/calls/...").is_ok());
        for path in ["/v1/sessions/a/", "/v1/sessions//a", "//v1/sessions", "/v1/sessions/"] {
            assert_eq!(Route::parse("DELETE", path).unwrap_err().code, Code::NotFound, "{path:?}");
        }
    }

    #[test]
    fn a_missing_route_and_a_missing_method_are_told_apart() {
        assert_eq!(Route::parse("GET", "/v2").unwrap_err().code, Code::NotFound);
        let error = Route::parse("PUT", "/v1/sessions/a").unwrap_err();
        assert_eq!((error.code, error.allow.as_deref()), (Code::MethodNotAllowed, Some("GET, PATCH, DELETE")));
    }
}
