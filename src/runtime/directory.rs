//! The directory's object: one per tenant. Lists its sessions, stores its agents, and counts usage.
//!
//! Always true: a summary never replaces a newer one; a late summary does not bring a deleted session back; a session's
//! usage is counted once and kept after the session is gone; an inline agent is removed with the last session that uses
//! it; reads create no storage. The directory takes part in creating, listing and deleting sessions, and gets a summary
//! when one becomes idle, but is never on the path of an event.

use std::cell::Cell;

use serde::Serialize;
use serde_json::{Value, json};
use worker::{DurableObject, Env, Response, State, durable_object};

use crate::api::{
    self, AgentRecord, Code, Error, Key, Method, PageQuery, REPLY_TTL, Reply, Route, SessionsQuery, Summary,
    SummaryUpdate, list_page,
};
use crate::json;
use crate::runtime::platform::clock;
use crate::runtime::platform::fault::internal;
use crate::runtime::platform::http::Request;
use crate::runtime::platform::settings::config;
use crate::runtime::storage::idempotency::Replies;
use crate::runtime::storage::schema::{Migration, migrate, version};
use crate::runtime::storage::sql::{Database, Row, Sql, number, text};
use crate::runtime::wire::{CallContext, Caller, Purpose};
use crate::session::{AgentId, Mint, SessionId, Unreadable, Usage};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, version INTEGER NOT NULL, created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL, agent_id TEXT NOT NULL, agent_name TEXT NOT NULL, status TEXT NOT NULL,
        archived INTEGER NOT NULL, words TEXT NOT NULL, summary TEXT NOT NULL) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS created ON session (created_at, id);
    CREATE INDEX IF NOT EXISTS of_agent ON session (agent_id);
    CREATE TABLE IF NOT EXISTS agent (id TEXT PRIMARY KEY, listed INTEGER NOT NULL, created_at INTEGER NOT NULL,
        record TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS used (day INTEGER PRIMARY KEY, usage TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS form (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL);
";
/// The migrations, from each schema version to the next.
const MIGRATIONS: &[Migration<Sql>] = &[];

/// The object. It holds no client connections.
#[durable_object(alarm)]
pub struct Directory {
    state: State,
    env: Env,
    sql: Sql,
    replies: Replies,
    /// Whether the tables exist, as far as this instance knows.
    made: Cell<bool>,
}

// A caught panic leaves no state behind: everything is in storage.
impl std::panic::UnwindSafe for Directory {}
impl std::panic::RefUnwindSafe for Directory {}

impl DurableObject for Directory {
    fn new(state: State, env: Env) -> Self {
        let sql = Sql::new(state.storage());
        Self { state, env, replies: Replies::new(sql.clone()), sql, made: Cell::new(false) }
    }

    async fn fetch(&self, req: worker::Request) -> worker::Result<Response> {
        let req = Request::from(req);
        let about = CallContext::of(&req)?;
        let context = about.response_context();
        let reply = match self.answer(&req, &about).await {
            Ok(reply) => reply,
            Err(error) => {
                req.drain().await;
                error.reply(&about.request_id)
            }
        };
        context.respond(reply).map_err(|error| error.message.into())
    }

    async fn alarm(&self) -> worker::Result<Response> {
        // The platform would retry an error a few times within minutes, and then never again.
        let next = self.replies.sweep(clock::now()).unwrap_or_else(|e| {
            worker::console_error!("expired responses could not be deleted: {e}");
            Some(clock::now().after(600))
        });
        self.wake_at(next.map(|at| at.0)).await?;
        Response::empty()
    }
}

impl Directory {
    /// Creates the tables, before a write.
    fn prepare(&self) -> Result<(), Unreadable> {
        if self.made.get() {
            return Ok(());
        }
        if self.has_tables()? {
            let found = self.sql.query("SELECT version FROM form", Vec::new())?.first_mut().and_then(Row::number);
            let found = found.and_then(|version| u32::try_from(version).ok()).unwrap_or(1);
            migrate(&self.sql, found, MIGRATIONS, |version| self.stamp(version))?;
        } else {
            self.sql.atomically(|| {
                self.sql.run(SCHEMA, Vec::new())?;
                self.stamp(version(MIGRATIONS))
            })?;
        }
        self.made.set(true);
        Ok(())
    }

    fn has_tables(&self) -> Result<bool, Unreadable> {
        Ok(!self.sql.query("SELECT 1 FROM sqlite_master WHERE name = 'session'", Vec::new())?.is_empty())
    }

    /// Stores the schema version.
    fn stamp(&self, version: u32) -> Result<(), Unreadable> {
        self.sql.run("INSERT OR REPLACE INTO form (one, version) VALUES (1, ?)", vec![number(version.into())])
    }

    /// The rows of a query; none if nothing was ever written.
    fn query(&self, query: &str, args: Vec<Value>) -> Result<Vec<Row>, Unreadable> {
        if !self.made.get() {
            if !self.has_tables()? {
                return Ok(Vec::new());
            }
            self.prepare()?; // which also migrates
        }
        self.sql.query(query, args)
    }

    async fn answer(&self, req: &Request, about: &CallContext) -> Result<Reply, Error> {
        match &about.ask {
            Purpose::Summary => {
                let body = req.body().await?;
                self.told(json::read(&body).map_err(internal)?)?;
                Ok(Reply::json(200, &json!({})))
            }
            Purpose::Client(Caller::Key) => Box::pin(self.client(req, about)).await, // as in `router::answer`
            Purpose::Client(Caller::Token { .. }) => Err(Error::forbidden()),
            Purpose::Unlist { session, keyed } => {
                let mut keys = Key::of(&deletion(session), about.key.as_deref(), session.as_str())?;
                keys.extend(keyed.then(|| Key { name: gone(session), digest: String::new() }));
                Box::pin(self.forget(session, &keys)).await
            }
            Purpose::Deleted(session) => {
                // Asked when the session is gone: this very request may have deleted it.
                let keys = Key::of(&deletion(session), about.key.as_deref(), session.as_str())?;
                let first = self.replies.given(&keys)?.ok_or_else(|| Error::no_session(session.as_str()))?;
                first.replay(too_large)
            }
            Purpose::WasDeleted(session) if self.replies.has(&gone(session))? => Ok(Reply::json(200, &json!({}))),
            Purpose::WasDeleted(session) => Err(Error::no_session(session.as_str())),
            Purpose::Agent(id) => {
                let record = self.agent(id.as_str())?;
                Ok(Reply::json(200, &serde_json::to_value(record).map_err(internal)?))
            }
            Purpose::Create | Purpose::Fork(_) | Purpose::Log(_) | Purpose::Ping => {
                Err(internal("a directory got a session's request"))
            }
        }
    }

    /// Handles a request of a client with an API key of the tenant.
    async fn client(&self, req: &Request, about: &CallContext) -> Result<Reply, Error> {
        let (path, query) = (req.path(), req.query());
        let key = about.key.as_deref();
        let (route, method) = Route::parse(&req.method, path)?;
        let body = req.body_of(method).await?;
        match (route, method) {
            (Route::Sessions, _) => self.sessions(&query.sessions()?),
            (Route::Usage, _) => self.usage(),
            (Route::Agents, Method::Get) => self.agents(&query.agents()?),
            (Route::Agents, _) => {
                let keys = Key::of("agents", key, &body)?;
                let made = self.once(&keys, || self.make_agent(&body)).await?;
                let agent: Value = serde_json::from_str(&made.body).map_err(internal)?;
                let id = agent.get("id").and_then(Value::as_str).unwrap_or_default().to_string();
                Ok(made.with("location", format!("/v1/agents/{id}")))
            }
            (Route::TenantAgent(id), Method::Patch) => {
                let keys = Key::of(&format!("patch {id}"), key, &body)?;
                self.once(&keys, || {
                    let record = self.agent(&id)?.patched(&body, clock::now())?;
                    config(&self.env)?.check_agent(&record.agent)?;
                    self.keep_agent(&record, Listed::Yes)?;
                    Ok(Reply::json(200, &record.view()))
                })
                .await
            }
            (Route::TenantAgent(id), Method::Delete) => {
                let keys = Key::of(&format!("delete agent {id}"), key, &id)?;
                self.once(&keys, || {
                    self.agent(&id)?;
                    self.sql.run("DELETE FROM agent WHERE id = ?", vec![text(&*id)])?;
                    Ok(Reply::json(200, &json!({"id": id, "object": "agent.deleted", "deleted": true})))
                })
                .await
            }
            (Route::TenantAgent(id), _) => Ok(Reply::json(200, &self.agent(&id)?.view())),
            _ => Err(Error::new(Code::NotFound, format!("there is no route {path}"))),
        }
    }

    async fn once(&self, keys: &[Key], act: impl FnOnce() -> Result<Reply, Error>) -> Result<Reply, Error> {
        if let Some(first) = self.replies.given(keys)? {
            return first.replay(too_large);
        }
        let reply = act()?;
        // No await since then: the change and its response are stored together or not at all.
        let now = clock::now();
        self.replies.keep(keys, &reply, now)?;
        if !keys.is_empty() && self.state.storage().get_alarm().await.map_err(internal)?.is_none() {
            self.wake_at(Some(now.after(REPLY_TTL).0)).await.map_err(internal)?;
        }
        Ok(reply)
    }

    async fn wake_at(&self, at: Option<u64>) -> worker::Result<()> {
        let Some(at) = at else { return Ok(()) };
        let wait = std::time::Duration::from_secs(at.saturating_sub(clock::now().0).saturating_add(1));
        self.state.storage().set_alarm(wait).await
    }

    /// Stores a session's summary.
    fn told(&self, told: SummaryUpdate) -> Result<(), Error> {
        let SummaryUpdate { summary, new, inherits, agent } = told;
        let id = summary.id.as_str();
        self.prepare()?;
        let known = self.sql.query("SELECT version, summary FROM session WHERE id = ?", vec![text(id)])?;
        let known = known.into_iter().next().map(|mut row| (row.number().unwrap_or(0), row.text()));
        let before = match &known {
            Some((version, _)) if *version >= summary.version => return Ok(()),
            Some((_, before)) => json::read::<Summary>(before).map_err(internal)?.usage,
            None if !new => return Ok(()),
            None if inherits => summary.usage,
            None => Usage::default(),
        };
        if let Some(agent) = agent {
            let (created_at, updated_at) = (summary.created_at, summary.created_at);
            let record = AgentRecord { id: summary.agent_id.clone(), version: 1, created_at, updated_at, agent };
            self.keep_agent(&record, Listed::No)?;
        }
        self.count(summary.usage.less(before))?;
        let words = summary.title.iter().chain(summary.labels.keys()).chain(summary.labels.values());
        let words: Vec<&str> = words.map(String::as_str).collect();
        let args = vec![
            text(id),
            number(summary.version),
            number(summary.created_at.0),
            number(summary.updated_at.0),
            text(summary.agent_id.as_str()),
            text(&*summary.agent_name),
            text(json!(summary.status).as_str().unwrap_or_default()),
            number(u64::from(summary.archived)),
            text(words.join("\n").to_lowercase()),
            text(to_json(&summary)?),
        ];
        let sql = "INSERT INTO session
            (id, version, created_at, updated_at, agent_id, agent_name, status, archived, words, summary)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET version = excluded.version,
            updated_at = excluded.updated_at, status = excluded.status, archived = excluded.archived,
            words = excluded.words, summary = excluded.summary";
        self.sql.run(sql, args)?;
        Ok(())
    }

    /// Removes a session from the list, and its inline agent if no other session uses it.
    async fn forget(&self, id: &SessionId, keys: &[Key]) -> Result<Reply, Error> {
        self.once(keys, || {
            let known = self.query("SELECT agent_id FROM session WHERE id = ?", vec![text(id.as_str())])?;
            for mut row in known {
                let agent = row.text();
                self.sql.run("DELETE FROM session WHERE id = ?", vec![text(id.as_str())])?;
                let sql = "DELETE FROM agent WHERE id = ?1 AND listed = 0
                    AND NOT EXISTS (SELECT 1 FROM session WHERE agent_id = ?1)";
                self.sql.run(sql, vec![text(agent)])?;
            }
            Ok(Reply::json(200, &json!({"id": id, "object": "conversation.deleted", "deleted": true})))
        })
        .await
    }

    fn sessions(&self, query: &SessionsQuery) -> Result<Reply, Error> {
        let order = if query.by_update { "updated_at" } else { "created_at" };
        let mut list = List::new("session", order, "summary");
        list.equals("agent_id", query.agent_id.as_deref());
        list.equals("agent_name", query.agent_name.as_deref());
        list.equals("status", query.status.as_deref());
        if let Some(archived) = query.archived {
            list.also("archived = ?", vec![number(u64::from(archived))]);
        }
        if let Some((key, value)) = &query.label {
            let sql = "EXISTS (SELECT 1 FROM json_each(summary, '$.labels') WHERE key = ? AND value = ?)";
            list.also(sql, vec![text(&**key), text(&**value)]);
        }
        if let Some(search) = &query.search {
            list.also("instr(words, ?) > 0", vec![text(search.to_lowercase())]);
        }
        let (rows, more) = list.page(self, &query.page)?;
        let view = |text: String| json::read(&text).map(|summary: Summary| summary.view()).map_err(internal);
        let data = rows.into_iter().map(view).collect::<Result<Vec<Value>, Error>>()?;
        Ok(Reply::json(200, &list_page(&data, more)))
    }

    fn agents(&self, query: &PageQuery) -> Result<Reply, Error> {
        let mut list = List::new("agent", "created_at", "record");
        list.also("listed = 1", Vec::new());
        let (rows, more) = list.page(self, query)?;
        let view = |text: String| json::read(&text).map(|record: AgentRecord| record.view()).map_err(internal);
        let data = rows.into_iter().map(view).collect::<Result<Vec<Value>, Error>>()?;
        Ok(Reply::json(200, &list_page(&data, more)))
    }

    fn agent(&self, id: &str) -> Result<AgentRecord, Error> {
        let mut rows = self.query("SELECT record FROM agent WHERE id = ?", vec![text(id)])?;
        let Some(row) = rows.first_mut() else {
            return Err(Error::new(Code::NotFound, format!("there is no agent {id}")));
        };
        json::read(&row.text()).map_err(internal)
    }

    fn make_agent(&self, body: &str) -> Result<Reply, Error> {
        let agent = api::new_agent(body)?;
        config(&self.env)?.check_agent(&agent)?;
        let now = clock::now();
        let id = AgentId::mint(&mut clock::Ids as &mut dyn Mint);
        let record = AgentRecord { id, version: 1, created_at: now, updated_at: now, agent };
        self.keep_agent(&record, Listed::Yes)?;
        Ok(Reply::json(201, &record.view()))
    }

    fn keep_agent(&self, record: &AgentRecord, listed: Listed) -> Result<(), Error> {
        let sql = match listed {
            Listed::Yes => "INSERT OR REPLACE INTO agent (id, listed, created_at, record) VALUES (?, 1, ?, ?)",
            Listed::No => "INSERT OR IGNORE INTO agent (id, listed, created_at, record) VALUES (?, 0, ?, ?)",
        };
        let args = vec![text(record.id.as_str()), number(record.created_at.0), text(to_json(record)?)];
        self.prepare()?;
        self.sql.run(sql, args)?;
        Ok(())
    }

    fn count(&self, used: Usage) -> Result<(), Error> {
        if used == Usage::default() {
            return Ok(());
        }
        let day = clock::now().0 / 86_400;
        let mut rows = self.sql.query("SELECT usage FROM used WHERE day = ?", vec![number(day)])?;
        let mut whole: Usage = rows.first_mut().and_then(|row| json::read(&row.text()).ok()).unwrap_or_default();
        whole.add(used);
        let sql = "INSERT OR REPLACE INTO used (day, usage) VALUES (?, ?)";
        self.sql.run(sql, vec![number(day), text(to_json(&whole)?)])?;
        Ok(())
    }

    /// `GET /v1/usage`: of the tenant, in total and by day, newest first.
    fn usage(&self) -> Result<Reply, Error> {
        let mut total = Usage::default();
        let mut days = Vec::new();
        for mut row in self.query("SELECT day, usage FROM used ORDER BY day DESC", Vec::new())? {
            let day = row.number().unwrap_or(0);
            let used: Usage = json::read(&row.text()).map_err(internal)?;
            total.add(used);
            if days.len() < 90 {
                days.push(json!({"starts_at": day.saturating_mul(86_400), "usage": used}));
            }
        }
        let mut sessions = self.query("SELECT COUNT(*) FROM session", Vec::new())?;
        let sessions = sessions.first_mut().and_then(Row::number).unwrap_or(0);
        Ok(Reply::json(200, &json!({"object": "usage", "sessions": sessions, "total": total, "days": days})))
    }
}

/// The route of a deletion, for idempotency keys.
fn deletion(session: &SessionId) -> String {
    format!("delete {session}")
}

/// The name under which a deletion is remembered, for as long as responses are kept.
fn gone(session: &SessionId) -> String {
    format!("gone {session}")
}

fn too_large() -> Result<String, Error> {
    Err(Error::new(
        Code::AlreadyExists,
        "this request has succeeded, but its response was too large to keep; read the resource instead",
    ))
}

/// The limit of a list's page, in bytes, not counting its last entry.
const PAGE: u64 = 2 * 1024 * 1024;

/// Whether an agent is stored by itself, or came inline with a session.
#[derive(Clone, Copy)]
enum Listed {
    Yes,
    No,
}

/// A list in pages that stay stable while entries are added.
struct List {
    table: &'static str,
    order: &'static str,
    column: &'static str,
    tests: Vec<String>,
    args: Vec<Value>,
}

impl List {
    fn new(table: &'static str, order: &'static str, column: &'static str) -> Self {
        Self { table, order, column, tests: Vec::new(), args: Vec::new() }
    }

    fn also(&mut self, test: &str, args: Vec<Value>) {
        self.tests.push(test.to_string());
        self.args.extend(args);
    }

    fn equals(&mut self, column: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.also(&format!("{column} = ?"), vec![text(value)]);
        }
    }

    /// A page's entries, and whether there are more.
    fn page(mut self, directory: &Directory, query: &PageQuery) -> Result<(Vec<String>, bool), Error> {
        let Self { table, order, column, .. } = self;
        let (after, before) = if query.descending { ("<", ">") } else { (">", "<") };
        for (edge, id, param) in [(after, &query.after, "after"), (before, &query.before, "before")] {
            let Some(id) = id else { continue };
            let at = format!("SELECT {order} FROM {table} WHERE id = ?");
            let Some(at) = directory.query(&at, vec![text(&**id)])?.first_mut().and_then(Row::number) else {
                let message = format!("there is no {table} {id}");
                return Err(Error { param: Some(param.into()), ..Error::new(Code::NotFound, message) });
            };
            self.also(&format!("({order}, id) {edge} (?, ?)"), vec![number(at), text(&**id)]);
        }
        let tests = if self.tests.is_empty() { "1".to_string() } else { self.tests.join(" AND ") };
        let direction = if query.descending { "DESC" } else { "ASC" };
        // An agent can be 1.5 MB, so pages are bounded in bytes, too. The first entry always fits.
        let by = format!("ORDER BY {order} {direction}, id {direction}");
        let all = format!(
            "SELECT found, {column} FROM (SELECT {column}, {order}, id, COUNT(*) OVER () AS found,
                SUM(octet_length({column})) OVER ({by} ROWS UNBOUNDED PRECEDING) - octet_length({column}) AS ahead
                FROM (SELECT {column}, {order}, id FROM {table} WHERE {tests} {by} LIMIT ?)) WHERE ahead < ? {by}"
        );
        self.args.push(number(query.limit.saturating_add(1) as u64));
        self.args.push(number(PAGE));
        let mut found = 0;
        let mut rows = Vec::new();
        for mut row in directory.query(&all, self.args)? {
            found = row.number().unwrap_or(0);
            rows.push(row.text());
        }
        rows.truncate(query.limit);
        let more = found > rows.len() as u64;
        Ok((rows, more))
    }
}

fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(internal)
}
