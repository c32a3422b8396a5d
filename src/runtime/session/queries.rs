//! Reads for clients: nothing here changes the session.

use std::collections::BTreeMap;

use super::driver::Driver;
use super::live::Live;
use super::publish::batch;
use crate::api::{self, Access, Code, Error, EventsQuery, ItemsQuery, Listed, Reply, SnapshotQuery};
use crate::runtime::storage::store::Store;
use crate::session::{
    CallId, Cursor, Item, Kind, Log, Malformed, Seq, Session, SessionStatus, Status, Unreadable,
};
use crate::sse;

/// The limit of what a subscriber is sent when it attaches, in bytes; anything it missed beyond that comes in pages.
const PAGE: usize = 256 * 1024;
/// The limit of a page of items, in bytes of their bodies.
const ITEMS_PAGE: usize = 4 * 1024 * 1024;
/// The limit of a page of events, in bytes.
const EVENTS_PAGE: usize = 4 * 1024 * 1024;

/// Frames for one subscriber.
pub struct Batch {
    /// A line with the position, then the frames.
    pub text: String,
    /// Whether more was missed than fits.
    pub more: bool,
}

impl Driver {
    /// `GET /v1/sessions/{id}`.
    pub fn snapshot(&self, query: &SnapshotQuery) -> Result<Reply, Error> {
        self.flush();
        self.read(|live| {
            let (mut items, mut older) = (Vec::new(), false);
            if query.include_items {
                let list = ItemsQuery { limit: query.item_limit, after: None, before: None, descending: true };
                let page;
                (page, older) = self.page(live, &list)?;
                items = page.iter().rev().map(Listed::nested).collect();
            }
            let calls = live.session.state.open_calls().iter();
            let pending = calls.map(|call| self.store.item(call.seq)).collect::<Result<Vec<Item>, _>>()?;
            Ok(Reply::json(
                200,
                &api::snapshot(
                    &live.info,
                    &live.session,
                    (items, older),
                    &pending,
                    self.state.get_websockets().len(),
                ),
            ))
        })
    }

    /// `GET …/items`.
    pub fn items(&self, query: &ItemsQuery) -> Result<Reply, Error> {
        self.read(|live| {
            let (page, more) = self.page(live, query)?;
            Ok(Reply::json(200, &api::items_page(&page, more)))
        })
    }

    /// `GET …/events`.
    pub fn events(&self, query: &EventsQuery) -> Result<Reply, Error> {
        self.flush();
        self.read(|live| {
            let session = &live.session;
            let from = query.after.as_deref().map_or(Ok(Cursor::START), |after| position(session, after))?;
            let mut page = api::replay(session, from, EVENTS_PAGE, &self.store)?;
            if page.events.len() > query.limit {
                page.events.truncate(query.limit);
                page.cursor = page.events.last().and_then(|event| event.cursor).unwrap_or(page.cursor);
                page.more = true;
            }
            Ok(api::events_page(session, &page))
        })
    }

    /// `GET …/agent`. Token holders, such as pages, do not see the instructions.
    pub fn agent(&self, access: &Access) -> Result<Reply, Error> {
        self.read(|live| Ok(Reply::json(200, &api::agent_view(&live.info, access))))
    }

    /// The first frames of a subscriber.
    pub fn catch_up(&self, cursor: Option<&str>) -> Result<Batch, Error> {
        self.flush();
        self.read(|live| {
            let session = &live.session;
            let Some(cursor) = cursor else {
                return Ok(Batch { text: greeting(session, &self.store)?, more: false });
            };
            let from = position(session, cursor)?;
            let page = api::replay(session, from, PAGE, &self.store)?;
            Ok(Batch { text: batch(session, page.cursor, &page.events), more: page.more })
        })
    }

    fn read<R>(&self, f: impl FnOnce(&Live) -> Result<R, Error>) -> Result<R, Error> {
        f(&*self.live()?)
    }

    /// A page of items with their status, in the requested order, and whether there are more.
    fn page(&self, live: &Live, query: &ItemsQuery) -> Result<(Vec<Listed>, bool), Error> {
        let place = |id: &Option<String>, name| id.as_ref().map(|id| self.place(live, id, name)).transpose();
        let (after, before) = (place(&query.after, "after")?, place(&query.before, "before")?);
        let (low, high) = if query.descending { (before, after) } else { (after, before) };
        let range = Range { low, high, descending: query.descending };
        let mut page =
            ItemsPage { items: Vec::new(), room: Room { items: query.limit, bytes: ITEMS_PAGE }, more: false };
        if query.descending {
            self.queued(live, &range, &mut page)?;
            self.logged(live, &range, &mut page)?;
        } else {
            self.logged(live, &range, &mut page)?;
            self.queued(live, &range, &mut page)?;
        }
        Ok((page.items, page.more))
    }

    /// The position of an item.
    fn place(&self, live: &Live, id: &str, param: &str) -> Result<Place, Error> {
        let mut queue = live.session.state.queue.iter();
        if let Some(n) = queue.position(|waiting| waiting.item_id.as_str() == id) {
            return Ok(Place::Queue(n));
        }
        self.store.seq_of(id)?.map(Place::Log).ok_or_else(|| Error {
            param: Some(param.into()),
            ..Error::new(Code::NotFound, format!("there is no item {id} in this session"))
        })
    }

    /// Adds items of the log until the page is full.
    fn logged(&self, live: &Live, range: &Range, page: &mut ItemsPage) -> Result<(), Error> {
        if !live.session.state.has_records() || page.more {
            return Ok(());
        }
        let mut beyond = match if range.descending { range.high } else { range.low } {
            Some(Place::Log(seq)) => Some(seq),
            Some(Place::Queue(_)) if !range.descending => return Ok(()),
            Some(Place::Queue(_)) | None => None,
        };
        let mut found = Vec::new();
        'log: loop {
            let Room { items, bytes } = page.room;
            let (read, more) = self.store.items(beyond, range.descending, items + 1, bytes)?;
            beyond = read.last().map(|(last, _)| *last);
            for (seq, item) in read {
                if !range.holds(Place::Log(seq)) || !page.admits(&item) {
                    break 'log;
                }
                found.push((seq, item));
            }
            if !more {
                break;
            }
        }
        let cancelled = self.cancelled(&found)?;
        page.items.extend(found.into_iter().map(|(seq, item)| {
            let status = status(&item, live, &cancelled);
            let withheld = live.session.state.withholds(seq, &item);
            Listed { item, status, withheld }
        }));
        Ok(())
    }

    /// The calls on a page that no client resolved.
    fn cancelled(&self, page: &[(Seq, Item)]) -> Result<Vec<CallId>, Unreadable> {
        let outputs = page.iter().filter_map(|(_, item)| match &item.kind {
            Kind::FunctionCallOutput { call_id } => Some((call_id, item.status)),
            Kind::FunctionCall { .. } | Kind::Message { .. } | Kind::Reasoning | Kind::Error => None,
        });
        let outputs: BTreeMap<&CallId, Status> = outputs.collect();
        let mut cancelled = Vec::new();
        for (seq, item) in page {
            let Kind::FunctionCall { call_id, .. } = &item.kind else { continue };
            let status = match outputs.get(call_id) {
                Some(status) => Some(*status),
                None => self.store.output_status(*seq, call_id)?,
            };
            if status.is_some_and(|status| status != Status::Completed) {
                cancelled.push(call_id.clone());
            }
        }
        Ok(cancelled)
    }

    /// Adds queued messages until the page is full.
    fn queued(&self, live: &Live, range: &Range, page: &mut ItemsPage) -> Result<(), Error> {
        let mut waiting: Vec<_> = live.session.state.queue.iter().enumerate().collect();
        if range.descending {
            waiting.reverse();
        }
        for (_, message) in waiting.into_iter().filter(|(n, _)| range.holds(Place::Queue(*n))) {
            if page.more {
                break;
            }
            let item = self.store.item(message.seq)?;
            if page.admits(&item) {
                page.items.push(Listed { item, status: Status::Queued, withheld: false });
            }
        }
        Ok(())
    }
}

/// A page of items under construction.
struct ItemsPage {
    items: Vec<Listed>,
    room: Room,
    /// Whether something did not fit.
    more: bool,
}

#[derive(Clone, Copy)]
struct Room {
    items: usize,
    bytes: usize,
}

impl ItemsPage {
    /// Reserves room for the next item. The first one always fits.
    fn admits(&mut self, item: &Item) -> bool {
        let size = item.body.len() + 256;
        let first = self.room.bytes == ITEMS_PAGE;
        if self.room.items == 0 || (size > self.room.bytes && !first) {
            self.more = true;
            return false;
        }
        self.room = Room { items: self.room.items - 1, bytes: self.room.bytes.saturating_sub(size) };
        true
    }
}

/// An item's status as clients see it: a call's depends on its output.
fn status(item: &Item, live: &Live, cancelled: &[CallId]) -> Status {
    match &item.kind {
        Kind::FunctionCall { call_id, .. } => {
            let open = live.session.state.open_calls().iter().any(|call| call.call_id == *call_id);
            match (open, cancelled.contains(call_id)) {
                (true, _) => Status::ActionRequired,
                (false, true) => Status::Cancelled,
                (false, false) => item.status,
            }
        }
        Kind::Message { .. } | Kind::Reasoning | Kind::FunctionCallOutput { .. } | Kind::Error => item.status,
    }
}

/// The items a page may hold: those between two places, both exclusive.
struct Range {
    low: Option<Place>,
    high: Option<Place>,
    descending: bool,
}

impl Range {
    fn holds(&self, place: Place) -> bool {
        self.low.is_none_or(|low| place > low) && self.high.is_none_or(|high| place < high)
    }
}

/// The position of an item: in the log, or in the queue behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Log(Seq),
    Queue(usize),
}

/// The position a client names.
fn position(session: &Session, cursor: &str) -> Result<Cursor, Malformed> {
    let cursor = Cursor::parse(cursor, &session.id)?;
    if cursor > session.cursor() { Err(Malformed::Future) } else { Ok(cursor) }
}

/// The first frames of a subscriber without a cursor. The last one carries the position, so that it can resume at once.
/// An idle status must not look like an event of the log, so its position follows in a frame of its own.
fn greeting(session: &Session, log: &Store) -> Result<String, Unreadable> {
    let cursor = session.cursor().text(&session.id);
    let mut text = format!("{cursor}\n");
    let events = api::greeting(session, log)?;
    let resting = matches!(session.state.status(), SessionStatus::Idle | SessionStatus::Failed);
    for (n, event) in events.iter().enumerate() {
        let last = n + 1 == events.len() && !resting;
        sse::frame(&mut text, event.kind, &event.data, last.then_some(cursor.as_str()));
    }
    if resting {
        sse::id_only(&mut text, &cursor);
    }
    Ok(text)
}
