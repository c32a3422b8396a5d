//! Session tokens: what a browser or a device may do with one session, for a limited time.
//!
//! `lt_<claims>.<signature>`: the claims as base64url of JSON, and the HMAC-SHA256 of that text under a key that only
//! the session's object knows. There is no algorithm to choose. A new key revokes all older tokens.
//!
//! A token is untrusted until its signature has been checked. Until then its claims only select the object that can
//! check it, so tenant and session are parsed as types that cannot reach beyond that name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;

use super::body::{object, parse};
use super::{Code, Command, Error, MAX_MODEL, Method, Reply, Route, Tenant};
use crate::json;
use crate::session::{Input, Seconds, SessionId};

/// The prefix of tokens, so that one is never mistaken for an API key.
pub const PREFIX: &str = "lt_";
/// The longest lifetime of a token, in seconds: thirty days.
const MAX_LIFE: u64 = 30 * 86_400;
/// The longest token examined, in bytes.
const MAX_TOKEN: usize = 16 * 1024;
/// The most models a token can list.
const MAX_MODELS: usize = 16;

/// A token's scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Read the snapshot, the items, the stream.
    Read,
    /// Post messages and interrupts.
    Send,
    Tools,
}

/// A token's claims. Short names: it travels with every request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    #[serde(rename = "t")]
    pub tenant: Tenant,
    #[serde(rename = "s")]
    pub session: SessionId,
    /// The granted scopes.
    #[serde(rename = "c")]
    pub scopes: Vec<Scope>,
    /// The tools whose calls may be resolved; `None`: all.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The only origin that may use it.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The models a message may select with `model_override`; none: only the session's own.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// Whether a message may override the other sampling settings, such as `temperature`.
    #[serde(rename = "x", default, skip_serializing_if = "std::ops::Not::not")]
    pub settings: bool,
    #[serde(rename = "e")]
    pub expires_at: Seconds,
}

/// The permission a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    Scope(Scope),
    /// A scope that some event needs. Which one is known once the body has been read; see [`Access::allows_event`].
    Event,
    Key,
}

/// What a caller may do, after its credentials have been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// An API key of the tenant: everything.
    Key,
    /// A session token: what its claims grant.
    Token(Claims),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    scopes: Vec<Scope>,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(default)]
    expires_in: Option<u64>,
    #[serde(default)]
    origin: Option<String>,
    #[serde(default)]
    models: Option<Vec<String>>,
    #[serde(default)]
    settings: bool,
}

impl Claims {
    /// Reads the body of `POST …/tokens`.
    pub fn asked(body: &str, tenant: &Tenant, session: &SessionId, now: Seconds) -> Result<Self, Error> {
        let Body { mut scopes, tools, expires_in, origin, models, settings } = parse(object(body)?, "")?;
        scopes.dedup();
        if scopes.is_empty() {
            return Err(Error::invalid("scopes", "a token needs at least one of read, send, tools"));
        }
        if tools.as_ref().is_some_and(|tools| tools.len() > super::MAX_TOOLS) {
            return Err(Error::invalid("tools", format!("at most {} tools can be named", super::MAX_TOOLS)));
        }
        let life = expires_in.unwrap_or(900);
        if !(1..=MAX_LIFE).contains(&life) {
            let message = format!("must be a whole number of seconds from 1 to {MAX_LIFE}");
            return Err(Error::invalid("expires_in", message));
        }
        let plain = |origin: &String| origin.len() <= 256 && origin.contains("://") && !origin.ends_with('/');
        if origin.as_ref().is_some_and(|origin| !plain(origin)) {
            return Err(Error::invalid("origin", "must be an origin such as https://app.example.com"));
        }
        let fits = |name: &String| (1..=MAX_MODEL).contains(&name.len());
        if models.as_ref().is_some_and(|models| models.len() > MAX_MODELS || !models.iter().all(fits)) {
            let message = format!("at most {MAX_MODELS} models can be named, each with 1 to {MAX_MODEL} bytes");
            return Err(Error::invalid("models", message));
        }
        let (tenant, session) = (tenant.clone(), session.clone());
        Ok(Self { tenant, session, scopes, tools, origin, models, settings, expires_at: now.after(life) })
    }

    /// The response to a token request.
    pub fn reply(&self, key: &[u8]) -> Result<Reply, Error> {
        let body = json!({"object": "session.token", "token": self.sign(key)?, "scopes": self.scopes,
            "tools": self.tools, "models": self.models, "settings": self.settings, "expires_at": self.expires_at});
        Ok(Reply::json(201, &body))
    }

    fn sign(&self, key: &[u8]) -> Result<String, Error> {
        let claims = BASE64.encode(serde_json::to_vec(self).unwrap_or_default());
        let signature = BASE64.encode(mac(key, &claims)?.finalize().into_bytes());
        Ok(format!("{PREFIX}{claims}.{signature}"))
    }

    /// The unverified claims of a token: enough to find the session that can verify it.
    pub fn unchecked(token: &str) -> Result<Self, Error> {
        let (claims, _) = parts(token)?;
        let text =
            BASE64.decode(claims).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(invalid)?;
        let claims: Self = json::read(&text).map_err(|_| invalid())?;
        SessionId::parse(claims.session.as_str()).map(|_| claims).ok_or_else(invalid)
    }

    /// The claims of a token whose signature, expiry and origin are valid.
    pub fn checked(token: &str, key: Option<&[u8]>, origin: Option<&str>, now: Seconds) -> Result<Self, Error> {
        let (claims, signature) = parts(token)?;
        let signature = BASE64.decode(signature).map_err(|_| invalid())?;
        // Compares in constant time.
        mac(key.ok_or_else(invalid)?, claims)?.verify_slice(&signature).map_err(|_| invalid())?;
        let claims = Self::unchecked(token)?;
        if claims.expires_at <= now {
            return Err(Error::new(Code::Unauthorized, "this token has expired; request a new one"));
        }
        match (&claims.origin, origin) {
            (Some(bound), given) if given != Some(bound) => {
                Err(Error::new(Code::Forbidden, format!("this token may only be used by pages of {bound}")))
            }
            _ => Ok(claims),
        }
    }

    fn allows(&self, need: &Need, tool: Option<&str>) -> Result<(), Error> {
        match need {
            Need::Key => Err(Error::forbidden()),
            Need::Event if !self.scopes.iter().any(|scope| matches!(scope, Scope::Send | Scope::Tools)) => {
                Err(refused("this token has neither of the scopes send and tools"))
            }
            Need::Event => Ok(()),
            Need::Scope(scope) if !self.scopes.contains(scope) => {
                Err(refused(format!("this token does not have the scope {}", name(*scope))))
            }
            Need::Scope(_) => match (&self.tools, tool) {
                (Some(tools), Some(tool)) if !tools.iter().any(|known| known == tool) => {
                    Err(refused(format!("this token does not cover calls of {tool}")))
                }
                _ => Ok(()),
            },
        }
    }

    /// A page must not decide what its user's messages cost.
    fn allows_turn(&self, command: &Command) -> Result<(), Error> {
        if let Input::Message(message) = &command.input
            && let Some(model) = &message.model
            && !self.models.iter().flatten().any(|allowed| allowed == model)
        {
            let message = format!(
                "this token does not allow the model {model}; name it in `models` when you create the token"
            );
            return Err(Error { param: Some("model_override".into()), ..refused(message) });
        }
        if command.sampling.is_some() && !self.settings {
            return Err(refused(
                "this token cannot change the settings of a turn; create the token with `\"settings\": true`",
            ));
        }
        Ok(())
    }
}

impl Access {
    /// Rejects what the caller may not do. `tool` is the tool whose call is resolved.
    pub fn allows(&self, need: &Need, tool: Option<&str>) -> Result<(), Error> {
        match self {
            Access::Key => Ok(()),
            Access::Token(claims) => claims.allows(need, tool),
        }
    }

    /// Rejects an event the caller may not post.
    pub fn allows_event(&self, command: &Command, tool: Option<&str>) -> Result<(), Error> {
        self.allows(&Need::of_input(&command.input), tool)?;
        match self {
            Access::Key => Ok(()),
            Access::Token(claims) => claims.allows_turn(command),
        }
    }
}

impl Need {
    /// The permission a route needs.
    pub fn of(route: &Route, method: Method) -> Self {
        match (route, method) {
            (
                Route::Session(_)
                | Route::Items(_)
                | Route::Events(_)
                | Route::Stream(_)
                | Route::Socket(_)
                | Route::Agent(_),
                Method::Get,
            ) => Need::Scope(Scope::Read),
            (Route::Events(_), Method::Post) => Need::Event,
            (Route::Queued(..), _) => Need::Scope(Scope::Send),
            (Route::Call(..), _) => Need::Scope(Scope::Tools),
            _ => Need::Key,
        }
    }

    fn of_input(input: &Input) -> Self {
        match input {
            Input::Message(_) | Input::Interrupt { .. } | Input::Stop => Need::Scope(Scope::Send),
            Input::Output(_) => Need::Scope(Scope::Tools),
            Input::Withdraw(_)
            | Input::Cancel(_)
            | Input::InitialItems(_)
            | Input::Forked
            | Input::Model { .. }
            | Input::ModelFailed { .. }
            | Input::Recover
            | Input::Alarm => Need::Key,
        }
    }
}

fn name(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Send => "send",
        Scope::Tools => "tools",
    }
}

fn parts(token: &str) -> Result<(&str, &str), Error> {
    let text = token.strip_prefix(PREFIX).filter(|_| token.len() <= MAX_TOKEN);
    text.and_then(|text| text.split_once('.')).ok_or_else(invalid)
}

fn mac(key: &[u8], text: &str) -> Result<Hmac<Sha256>, Error> {
    let mut mac = <Hmac<Sha256>>::new_from_slice(key).map_err(|_| invalid())?;
    mac.update(text.as_bytes());
    Ok(mac)
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(Code::Forbidden, message)
}

fn invalid() -> Error {
    Error::new(Code::Unauthorized, "invalid session token; request a new one")
}

/// The response to `DELETE …/tokens`.
pub fn revoked() -> Value {
    json!({"object": "session.tokens.revoked", "revoked": true})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{CallId, NewMessage, OnBusy, ToolOutput};

    const KEY: &[u8] = b"a key of thirty-two bytes or more";

    fn session() -> SessionId {
        SessionId(format!("sess_{}", "1".repeat(32)))
    }

    fn tenant() -> Tenant {
        Tenant::parse("acme").unwrap()
    }

    fn claims(body: &str) -> Claims {
        Claims::asked(body, &tenant(), &session(), Seconds(1000)).unwrap()
    }

    fn token(claims: &Claims) -> String {
        claims.sign(KEY).unwrap()
    }

    #[test]
    fn a_token_says_what_it_was_made_for_until_its_time_is_over() {
        let claims = claims(r#"{"scopes":["read","tools"],"tools":["look"],"expires_in":10}"#);
        let token = token(&claims);
        assert_eq!(Claims::checked(&token, Some(KEY), None, Seconds(1009)).unwrap(), claims);
        let late = Claims::checked(&token, Some(KEY), None, Seconds(1010)).unwrap_err();
        assert!(late.code == Code::Unauthorized && late.message.contains("expired"));
    }

    #[test]
    fn a_token_that_was_touched_is_worth_nothing() {
        let token = token(&claims(r#"{"scopes":["read"]}"#));
        let refused = |token: &str, key: Option<&[u8]>| {
            Claims::checked(token, key, None, Seconds(1000)).unwrap_err().code == Code::Unauthorized
        };
        assert!(refused(&token, Some(b"another key, of another session")));
        assert!(refused(&token, None));
        for at in PREFIX.len()..token.len() {
            let mut forged = token.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            // The last character of the signature has unused bits; a strict decoder rejects them if set.
            assert!(refused(&forged, Some(KEY)), "byte {at}");
        }
        let none =
            format!("{PREFIX}{}.", BASE64.encode(r#"{"t":"acme","s":"sess_1","c":["read"],"e":9999999999}"#));
        for forged in ["", "lt_", "lt_.", "lt_x.y", &none, "eyJhbGciOiJub25lIn0.e30.", &token[3..]] {
            assert!(refused(forged, Some(KEY)), "{forged}");
        }
    }

    #[test]
    fn a_token_may_be_bound_to_an_origin() {
        let token = token(&claims(r#"{"scopes":["read"],"origin":"https://a.example.com"}"#));
        let check = |origin| Claims::checked(&token, Some(KEY), origin, Seconds(1000));
        assert!(check(Some("https://a.example.com")).is_ok());
        for origin in [None, Some("https://b.example.com"), Some("https://a.example.com.evil.test")] {
            assert_eq!(check(origin).unwrap_err().code, Code::Forbidden);
        }
    }

    #[test]
    fn what_cannot_be_asked_for_is_pointed_at() {
        for (body, param) in [
            (r#"{}"#, None),
            (r#"{"scopes":[]}"#, Some("scopes")),
            (r#"{"scopes":["admin"]}"#, Some("scopes[0]")),
            (r#"{"scopes":["read"],"expires_in":0}"#, Some("expires_in")),
            (r#"{"scopes":["read"],"expires_in":9999999}"#, Some("expires_in")),
            (r#"{"scopes":["read"],"origin":"a.example.com"}"#, Some("origin")),
            (r#"{"scopes":["read"],"alg":"none"}"#, Some("alg")),
        ] {
            let error = Claims::asked(body, &tenant(), &session(), Seconds(0)).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), (Code::InvalidInput, param), "{body}");
        }
    }

    /// For every route and method, and every scope: what a token with that scope alone may do.
    #[test]
    fn every_route_needs_what_the_contract_says() {
        let id = || "sess_1".to_string();
        let read = [
            Route::Session(id()),
            Route::Items(id()),
            Route::Events(id()),
            Route::Stream(id()),
            Route::Socket(id()),
            Route::Agent(id()),
        ];
        let mut seen = 0;
        for route in Route::all("sess_1", "x") {
            for method in route.methods() {
                let want = match (&route, method) {
                    (route, Method::Get) if read.contains(route) => Need::Scope(Scope::Read),
                    (Route::Events(_), Method::Post) => Need::Event,
                    (Route::Queued(..), Method::Delete) => Need::Scope(Scope::Send),
                    (Route::Call(..), Method::Delete) => Need::Scope(Scope::Tools),
                    _ => Need::Key,
                };
                assert_eq!(Need::of(&route, *method), want, "{route:?} {method:?}");
                for scope in [Scope::Read, Scope::Send, Scope::Tools] {
                    let token = claims(&json!({"scopes": [scope]}).to_string());
                    let allowed = want == Need::Scope(scope) || want == Need::Event && scope != Scope::Read;
                    assert_eq!(token.allows(&want, None).is_ok(), allowed, "{scope:?}: {route:?} {method:?}");
                }
                seen += 1;
            }
        }
        assert!(seen > 20);
        let (content, tools) = (json!([]), Vec::new());
        let message = NewMessage { content, tools, model: None, settings: None, on_busy: OnBusy::Queue };
        let given = ToolOutput { call_id: CallId("c".into()), output: json!("x"), is_error: false };
        for (input, need) in [
            (Input::Message(message), Scope::Send),
            (Input::Interrupt { response_id: None }, Scope::Send),
            (Input::Stop, Scope::Send),
            (Input::Output(given), Scope::Tools),
        ] {
            assert_eq!(Need::of_input(&input), Need::Scope(need));
        }
    }

    #[test]
    fn what_a_token_says_cannot_reach_beyond_one_object() {
        let forged = |claims: &Value| {
            let claims = BASE64.encode(claims.to_string());
            Claims::unchecked(&format!("{PREFIX}{claims}.AA"))
        };
        assert!(forged(&json!({"t": "acme", "s": session(), "c": [], "e": 0})).is_ok());
        for tenant in ["", "acme/../agents/x?", r"acme\..", "acme\0", "acme/../../v1/usage?x="] {
            let error = forged(&json!({"t": tenant, "s": session(), "c": [], "e": 0})).unwrap_err();
            assert_eq!(error.code, Code::Unauthorized, "{tenant:?}");
        }
        for session in ["", "sess_1", "sess_../x", &format!("sess_{}?", "1".repeat(31))] {
            assert!(forged(&json!({"t": "acme", "s": session, "c": [], "e": 0})).is_err(), "{session:?}");
        }
    }

    #[test]
    fn a_token_changes_no_model_and_no_setting_unless_it_says_so() {
        let command = |more: Value| {
            let mut body = json!({"type": "message", "data": {"role": "user", "content": "x"}});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            crate::api::command(&body.to_string()).unwrap()
        };
        let plain = Access::Token(claims(r#"{"scopes":["send"]}"#));
        let free = Access::Token(claims(r#"{"scopes":["send"],"models":["m","other:n"],"settings":true}"#));
        let tool = json!({"type": "function", "name": "look"});
        assert!(plain.allows_event(&command(json!({"tools": [tool]})), None).is_ok());
        for (more, allowed) in [
            (json!({"model_override": "m"}), true),
            (json!({"model_override": "other:n"}), true),
            (json!({"model_override": "n"}), false),
            (json!({"reasoning_effort": "high"}), true),
            (json!({"max_output_tokens": 1}), true),
            (json!({"temperature": 0}), true),
            (json!({"tool_choice": "none"}), true),
            (json!({"parallel_tool_calls": false}), true),
            (json!({"response_format": {"type": "json_object"}}), true),
        ] {
            let command = command(more);
            assert_eq!(plain.allows_event(&command, None).unwrap_err().code, Code::Forbidden, "{command:?}");
            assert_eq!(free.allows_event(&command, None).is_ok(), allowed, "{command:?}");
            assert!(Access::Key.allows_event(&command, None).is_ok());
        }
    }

    #[test]
    fn a_token_may_answer_some_tools_only() {
        let token = claims(r#"{"scopes":["tools"],"tools":["look"]}"#);
        let need = Need::Scope(Scope::Tools);
        assert!(token.allows(&need, Some("look")).is_ok());
        assert_eq!(token.allows(&need, Some("pay")).unwrap_err().code, Code::Forbidden);
    }
}
