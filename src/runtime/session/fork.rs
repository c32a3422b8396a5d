//! `POST …/fork`: the fork's object reads the original's log, page by page, and stores it as its own.
//!
//! Always true: a fork is not a session before it is complete; an alarm erases what an unfinished one leaves behind;
//! the original is unaffected. Records appended to the original after the fork has begun are not part of it.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::driver::Driver;
use crate::api::{self, Code, Error, Key, Reply, SessionInfo, Tenant};
use crate::json;
use crate::runtime::platform::fault::internal;
use crate::runtime::platform::{clock, http};
use crate::runtime::wire::{LogQuery, Object, Purpose};
use crate::session::{Entry, Input, Log, Record, Seq, SessionId, State};

/// The limit of one page, in bytes. A single record may exceed it.
const PAGE: usize = 4 * 1024 * 1024;

/// A page of a log.
#[derive(Serialize, Deserialize)]
struct Page {
    info: SessionInfo,
    records: Vec<Copied>,
    /// The last place of the fork.
    until: Seq,
    /// Where the next page starts, if there is one.
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
    /// A page of the log.
    pub fn export(&self, query: &LogQuery) -> Result<Reply, Error> {
        let live = self.live()?;
        let until = match (query.until, &query.up_to) {
            (Some(until), _) => until,
            (None, Some(turn)) => self.store.end_of(turn)?.ok_or_else(|| no_turn(turn))?,
            (None, None) => live.session.settled(),
        };
        let (mut records, mut size, mut from) = (Vec::new(), 0, query.from);
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

    /// Makes this object's session a fork of `source`.
    pub async fn fork(
        self: &Rc<Self>,
        id: SessionId,
        tenant: &Tenant,
        source: &SessionId,
        body: &str,
        keys: &[Key],
    ) -> Result<Reply, Error> {
        if let Some(again) = self.earlier_creation(&id, tenant, keys).await? {
            return Ok(again);
        }
        if self.copying.replace(true) {
            return Err(Error::new(Code::Overloaded, "this fork is in progress; try again"));
        }
        let source = Object::session(&self.env, tenant, source.clone(), Purpose::Ping);
        let copied = self.copy(id, source, body, keys).await;
        self.copying.set(false);
        copied
    }

    async fn copy(
        self: &Rc<Self>,
        id: SessionId,
        mut source: Object,
        body: &str,
        keys: &[Key],
    ) -> Result<Reply, Error> {
        let fork = api::fork(body)?;
        let mut query = LogQuery { up_to: fork.up_to_response_id, ..LogQuery::default() };
        let mut state: Option<State> = None;
        loop {
            source.about.ask = Purpose::Log(query.clone());
            let answer = source.get().await?;
            let text = http::text(&answer).await?;
            if answer.status() != 200 {
                return Err(Error::relayed(answer.status(), &text));
            }
            let page: Page = json::read(&text).map_err(internal)?;
            if state.is_none() {
                self.look_after_copy();
                self.store.prepare()?;
            }
            let state = state.get_or_insert_with(|| State::new(clock::now()));
            let records: Vec<Record> = page.records.into_iter().map(Record::from).collect();
            for record in &records {
                state.apply(record);
            }
            self.store.import(&records)?;
            match page.next {
                Some(next) => query = LogQuery { from: next, until: Some(page.until), up_to: None },
                None => {
                    let info = SessionInfo { keyed: !keys.is_empty(), ..page.info.fork(fork.title, clock::now()) };
                    self.begin(id, info, state.clone(), Input::Forked)?;
                    self.change(|live| {
                        live.listing.inherits = true;
                        Ok(())
                    })?;
                    let made = self.creation_reply(keys)?;
                    self.sync(None).await;
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
