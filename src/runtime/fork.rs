//! `POST …/fork`: the copy's object reads the log of the original, page by page, and makes it its own.
//!
//! Always true: the copy is no session before it is whole; what an unfinished copy leaves behind is erased by alarm; the
//! original does not notice. What is written to the log of the original after the copy has begun is not part of it.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::driver::{COPY_SECONDS, Driver};
use super::object::Object;
use super::router::internal;
use super::{clock, http};
use crate::api::{self, Code, Error, Key, Query, Reply, SessionInfo};
use crate::json;
use crate::session::{Entry, Input, Log, Record, Seq, SessionId, State};

/// Where an object shows its log to another one. No route for clients.
pub const LOG: &str = "/log";
/// The most that one page holds, in bytes. One record may go beyond it.
const PAGE: usize = 4 * 1024 * 1024;

/// A part of a log.
#[derive(Serialize, Deserialize)]
struct Page {
    info: SessionInfo,
    records: Vec<Copied>,
    /// The last place that belongs to the copy.
    until: Seq,
    /// Where the next page begins, if there is one.
    next: Option<Seq>,
}

#[derive(Serialize, Deserialize)]
struct Copied {
    seq: Seq,
    entry: Entry,
    body: Option<String>,
}

impl From<Record> for Copied {
    fn from(Record { seq, entry }: Record) -> Self {
        let body = entry.item().map(|item| item.body.clone());
        Self { seq, entry, body }
    }
}

impl From<Copied> for Record {
    fn from(Copied { seq, mut entry, body }: Copied) -> Self {
        if let (Some(item), Some(body)) = (entry.item_mut(), body) {
            item.body = body;
        }
        Self { seq, entry }
    }
}

impl Driver {
    /// A page of the log. The query says `from` where, and up to the end of which turn (`up_to`) or place (`until`).
    pub fn export(&self, query: &Query) -> Result<Reply, Error> {
        let number = |name| query.get(name).and_then(|text| text.parse().ok()).map(Seq);
        let slot = self.live.borrow();
        let live = slot.as_ref().ok_or_else(Error::deleted)?;
        let until = match (number("until"), query.get("up_to")) {
            (Some(until), _) => until,
            (None, Some(turn)) => self.store.end_of(turn)?.ok_or_else(|| no_turn(turn))?,
            (None, None) => live.session.state.next,
        };
        let (mut records, mut size, mut from) = (Vec::new(), 0, number("from").unwrap_or_default());
        let mut next = None;
        'log: loop {
            let page = self.store.records(from, 64)?;
            let Some(last) = page.last() else { break };
            from = last.seq.plus(1);
            for record in page.into_iter().filter(|record| record.seq <= until) {
                size += record.entry.item().map_or(0, |item| item.body.len()) + 256;
                if size > PAGE && !records.is_empty() {
                    next = Some(record.seq);
                    break 'log;
                }
                records.push(Copied::from(record));
            }
            if from > until {
                break;
            }
        }
        let page = Page { info: live.info.clone(), records, until, next };
        Ok(Reply { status: 200, headers: Vec::new(), body: serde_json::to_string(&page).map_err(internal)? })
    }

    /// Makes this object's session a copy of `source`.
    pub async fn fork(
        self: &Rc<Self>,
        id: SessionId,
        source: &Object,
        body: &str,
        keys: &[Key],
    ) -> Result<Reply, Error> {
        if let Some(again) = self.created(keys)? {
            return Ok(again);
        }
        if self.copying.replace(true) {
            return Err(Error::new(Code::Overloaded, "this copy is being made; try again"));
        }
        let copied = self.copy(id, source, body, keys).await;
        self.copying.set(false);
        copied
    }

    async fn copy(
        self: &Rc<Self>,
        id: SessionId,
        source: &Object,
        body: &str,
        keys: &[Key],
    ) -> Result<Reply, Error> {
        let fork = api::fork(body)?;
        let up_to = fork.up_to_response_id.map(|turn| format!("&up_to={}", encoded(&turn))).unwrap_or_default();
        let mut path = format!("{LOG}?from=0{up_to}");
        let mut state: Option<State> = None;
        loop {
            let answer = source.get(&path).await?;
            let text = http::text(&answer).await?;
            if answer.status() != 200 {
                return Err(Error::relayed(answer.status(), &text));
            }
            let page: Page = json::read(&text).map_err(internal)?;
            if state.is_none() {
                self.state
                    .storage()
                    .set_alarm(std::time::Duration::from_secs(COPY_SECONDS))
                    .await
                    .map_err(internal)?;
                self.store.prepare()?;
            }
            let state = state.get_or_insert_with(|| State::new(clock::now()));
            let records: Vec<Record> = page.records.into_iter().map(Record::from).collect();
            for record in &records {
                state.apply(record);
            }
            self.store.sql.atomically(|| self.store.import(&records))?;
            match page.next {
                Some(next) => path = format!("{LOG}?from={}&until={}", next.0, page.until.0),
                None => {
                    let info = page.info.fork(fork.title, clock::now());
                    self.begin(id, info, state.clone(), Input::Forked)?;
                    if let Some(live) = self.live.borrow_mut().as_mut() {
                        live.listing.inherits = true;
                    }
                    let made = self.made(keys)?;
                    self.tell_now(None).await;
                    return Ok(made);
                }
            }
        }
    }
}

fn no_turn(id: &str) -> Error {
    let message = format!("no turn {id} has ended in this session");
    Error { param: Some("up_to_response_id".into()), ..Error::new(Code::NotFound, message) }
}

/// A text as part of a query.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |b| {
                if b.is_ascii_alphanumeric() || b == b'_' {
                    char::from(b).to_string()
                } else {
                    format!("%{b:02X}")
                }
            },
        )
        .collect()
}
