//! What clients read of a session: nothing here changes it.

use super::driver::{Driver, Live, batch};
use super::store::Store;
use crate::api::{self, Code, Error, EventsQuery, ItemsQuery, Reply, SnapshotQuery};
use crate::session::{
    Cursor, Item, ItemId, Kind, Log, Malformed, Seq, Session, SessionStatus, Status, Unreadable,
};
use crate::sse;

/// The most that a subscriber is sent when it attaches, in bytes; what it missed beyond that comes in pages.
const PAGE: usize = 256 * 1024;
/// The most that a page of events holds, in bytes.
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
            let mut items = Vec::new();
            if query.include_items {
                let list = ItemsQuery { limit: query.item_limit, after: None, before: None, descending: true };
                let (page, _) = self.page(live, &list)?;
                items = page.iter().rev().map(|(item, status)| api::nested(item, *status)).collect();
            }
            let calls = live.session.state.open_calls().iter();
            let pending = calls.map(|call| self.store.item(call.seq)).collect::<Result<Vec<Item>, _>>()?;
            Ok(Reply::json(
                200,
                &api::snapshot(&live.info, &live.session, items, &pending, self.state.get_websockets().len()),
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
            let mut page = session.replay(from, EVENTS_PAGE, &self.store)?;
            if page.events.len() > query.limit {
                page.events.truncate(query.limit);
                page.cursor = page.events.last().and_then(|event| event.cursor).unwrap_or(page.cursor);
                page.more = true;
            }
            Ok(api::events_page(session, &page))
        })
    }

    /// `GET …/agent`.
    pub fn agent(&self) -> Result<Reply, Error> {
        self.read(|live| Ok(Reply::json(200, &api::agent_view(&live.info))))
    }

    /// What a subscriber has to be sent first.
    pub fn catch_up(&self, cursor: Option<&str>) -> Result<Batch, Error> {
        self.flush();
        self.read(|live| {
            let session = &live.session;
            let Some(cursor) = cursor else {
                return Ok(Batch { text: greeting(session, &self.store)?, more: false });
            };
            let from = position(session, cursor)?;
            let page = session.replay(from, PAGE, &self.store)?;
            Ok(Batch { text: batch(session, page.cursor, &page.events), more: page.more })
        })
    }

    fn read<R>(&self, f: impl FnOnce(&Live) -> Result<R, Error>) -> Result<R, Error> {
        let slot = self.live.borrow();
        f(slot.as_ref().ok_or_else(|| Error::new(Code::NotFound, "this session was deleted"))?)
    }

    /// A page of items with their status, in the order asked for, and whether there are more.
    fn page(&self, live: &Live, query: &ItemsQuery) -> Result<(Vec<(Item, Status)>, bool), Error> {
        let queue = &live.session.state.queue;
        let find = |id: &Option<String>, name: &str| -> Result<Option<Place>, Error> {
            let Some(id) = id else { return Ok(None) };
            if let Some(n) = queue.iter().position(|waiting| waiting.item_id == ItemId(id.clone())) {
                return Ok(Some(Place::Queue(n)));
            }
            let place = self.store.place_of(id)?;
            place.map(Place::Log).map(Some).ok_or_else(|| Error {
                param: Some(name.into()),
                ..Error::new(Code::NotFound, format!("there is no item {id} in this session"))
            })
        };
        let (after, before) = (find(&query.after, "after")?, find(&query.before, "before")?);
        let inside = |place: Place| {
            let (low, high) = if query.descending { (before, after) } else { (after, before) };
            low.is_none_or(|low| place > low) && high.is_none_or(|high| place < high)
        };
        let want = query.limit + 1;
        let mut page: Vec<(Item, Status)> = Vec::new();
        let logged = |page: &mut Vec<(Item, Status)>| -> Result<(), Error> {
            let mut beyond = match after {
                Some(Place::Log(seq)) => Some(seq),
                Some(Place::Queue(_)) if !query.descending => return Ok(()),
                Some(Place::Queue(_)) | None => None,
            };
            while page.len() < want {
                let items = self.store.items(beyond, query.descending, want - page.len())?;
                let Some((last, _)) = items.last() else { break };
                beyond = Some(*last);
                let inside = items.into_iter().filter(|(seq, _)| inside(Place::Log(*seq)));
                page.extend(self.with_status(live, inside.map(|(_, item)| item).collect())?);
            }
            Ok(())
        };
        let queued = |page: &mut Vec<(Item, Status)>| -> Result<(), Error> {
            let places: Vec<usize> =
                if query.descending { (0..queue.len()).rev().collect() } else { (0..queue.len()).collect() };
            for n in places {
                let Some(waiting) = queue.get(n).filter(|_| inside(Place::Queue(n)) && page.len() < want) else {
                    continue;
                };
                page.push((self.store.item(waiting.seq)?, Status::Queued));
            }
            Ok(())
        };
        if query.descending {
            queued(&mut page)?;
            logged(&mut page)?;
        } else {
            logged(&mut page)?;
            queued(&mut page)?;
        }
        let more = page.len() > query.limit;
        page.truncate(query.limit);
        Ok((page, more))
    }

    fn with_status(&self, live: &Live, items: Vec<Item>) -> Result<Vec<(Item, Status)>, Unreadable> {
        let open = live.session.state.open_calls();
        items
            .into_iter()
            .map(|item| {
                let status = match &item.kind {
                    Kind::FunctionCall { call_id, .. } if open.iter().any(|call| call.call_id == *call_id) => {
                        Status::ActionRequired
                    }
                    Kind::FunctionCall { call_id, .. } => match self.store.output_of(call_id)? {
                        Some(output) if output.status != Status::Completed => Status::Cancelled,
                        _ => item.status,
                    },
                    _ => item.status,
                };
                Ok((item, status))
            })
            .collect()
    }
}

/// Where an item is: in the log, or in the queue behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Log(Seq),
    Queue(usize),
}

/// The position that a client names.
fn position(session: &Session, cursor: &str) -> Result<Cursor, Malformed> {
    let cursor = Cursor::parse(cursor, &session.id)?;
    if cursor > session.cursor() { Err(Malformed::Future) } else { Ok(cursor) }
}

/// The first frames of a subscriber without a cursor. The last one brings the position, so that it can resume at once. A
/// status at rest must not look like an event of the log, so its position follows in a frame of its own.
fn greeting(session: &Session, log: &Store) -> Result<String, Unreadable> {
    let cursor = session.cursor().text(&session.id);
    let mut text = format!("{cursor}\n");
    let events = session.greeting(log)?;
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
