//! Ring 1: the HTTP contract. Parses what clients send into inputs and renders what the session shows. The only place
//! that knows status codes.

mod agent;
mod body;
mod bundle;
mod create;
mod directory;
mod error;
mod event;
mod idempotency;
mod info;
mod item;
mod limit;
mod outbound;
mod patch;
mod query;
mod reader;
mod reply;
mod route;
mod seed;
mod service;
mod stream;
mod tenant;
mod token;
mod view;
mod yaml;

pub use agent::{Agent, AgentTool, inline_id};
pub use body::{check_labels, object};
pub use bundle::bundle;
pub use create::{NewSession, create};
pub use directory::{AgentRecord, PageQuery, SessionsQuery, Summary, SummaryUpdate, list_page, new_agent};
pub use error::{Code, Error};
pub use event::{Command, command};
pub use idempotency::{Key, REPLY_TTL, Remembered, keyed_session};
pub use info::SessionInfo;
pub use item::Listed;
#[cfg(test)]
pub use item::{STREAMED, data, flat, nested, type_name};
pub use limit::{Bucket, Rate};
pub use outbound::{Reach, check_url};
pub use patch::{Fork, Patch, fork, patch};
pub use query::{EventsQuery, ItemsQuery, Query, SnapshotQuery};
pub use reader::{End, MAX_ACK, Redial, Window, ack};
pub use reply::Reply;
pub use route::{Method, Route};
pub use seed::InitialItems;
pub use service::{Features, OPENAPI, info};
pub use stream::{Event, Page, greeting, publish, replay};
pub use tenant::Tenant;
pub use token::{Access, Claims, Need, PREFIX as TOKEN, Scope, revoked};
pub use view::{accepted, agent_view, events_page, items_page, message, snapshot};

/// The largest request body, in bytes.
pub const MAX_BODY: usize = 8 * 1024 * 1024;
/// The largest text or tool output, in bytes.
pub const MAX_TEXT: usize = 4 * 1024 * 1024;
/// The largest list of tools, as JSON, in bytes: it must fit into one row.
pub const MAX_TOOLS_JSON: usize = 750_000;
/// The largest agent, as JSON, in bytes: it must fit into one row with the session's other metadata.
pub const MAX_AGENT: usize = 1_500_000;
/// Tools per turn.
pub const MAX_TOOLS: usize = 128;
/// Characters in a title.
pub const MAX_TITLE: usize = 200;
/// Bytes in a model name.
pub const MAX_MODEL: usize = 256;
/// The longest lifetime of a session, in seconds: ten years.
pub const MAX_EXPIRY: u64 = 315_360_000;
/// Labels per session.
pub const MAX_LABELS: usize = 16;
/// Initial items per session.
pub const MAX_INITIAL_ITEMS: usize = 10_000;
/// Model responses per turn.
pub const MAX_MODEL_CALLS: u32 = 64;
/// Readers per session.
pub const MAX_SUBSCRIBERS: usize = 1000;
/// Queued messages per session.
pub const MAX_QUEUE: usize = 32;
