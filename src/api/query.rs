//! Query strings.

use super::Error;

/// The decoded parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(pub Vec<(String, String)>);

/// `GET …/items`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemsQuery {
    /// Items per page.
    pub limit: usize,
    /// Only items after this one, in the requested order.
    pub after: Option<String>,
    /// Only items before this one, in the requested order.
    pub before: Option<String>,
    /// Newest first.
    pub descending: bool,
}

/// `GET /v1/sessions/{id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotQuery {
    /// Whether to include items.
    pub include_items: bool,
    /// How many of the newest items to include.
    pub item_limit: usize,
}

impl Default for SnapshotQuery {
    fn default() -> Self {
        Self { include_items: true, item_limit: 1000 }
    }
}

/// `GET …/events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsQuery {
    /// The position; none: the beginning.
    pub after: Option<String>,
    /// The most events in one page.
    pub limit: usize,
    /// How long to wait for an event when there is none, in seconds.
    pub wait: u64,
}

/// The longest wait for an event, in seconds.
const MAX_WAIT: u64 = 25;

impl Query {
    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Rejects unknown parameters.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Error> {
        match self.0.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((key, _)) => Err(Error::invalid(
                key.clone(),
                format!("unknown query parameter; known are {}", known.join(", ")),
            )),
            None => Ok(()),
        }
    }

    pub(super) fn limit(&self, name: &str, default: usize) -> Result<usize, Error> {
        let Some(text) = self.get(name) else { return Ok(default) };
        match text.parse() {
            Ok(limit @ 1..=1000) => Ok(limit),
            _ => Err(Error::invalid(name, format!("{name} must be a whole number from 1 to 1000"))),
        }
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, Error> {
        match self.get(name) {
            None => Ok(default),
            Some("true" | "1") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(_) => Err(Error::invalid(name, format!("{name} must be true or false"))),
        }
    }

    pub(super) fn descending(&self, default: bool) -> Result<bool, Error> {
        match self.get("order") {
            None => Ok(default),
            Some("asc") => Ok(false),
            Some("desc") => Ok(true),
            Some(_) => Err(Error::invalid("order", "order must be asc or desc")),
        }
    }

    /// From the query of a list of items.
    pub fn items(&self) -> Result<ItemsQuery, Error> {
        self.only(&["limit", "after", "before", "order"])?;
        let descending = self.descending(false)?;
        let text = |name| self.get(name).filter(|text| !text.is_empty()).map(str::to_string);
        Ok(ItemsQuery {
            limit: self.limit("limit", 100)?,
            after: text("after"),
            before: text("before"),
            descending,
        })
    }

    /// From the query of a snapshot.
    pub fn snapshot(&self) -> Result<SnapshotQuery, Error> {
        self.only(&["include_items", "item_limit"])?;
        Ok(SnapshotQuery {
            include_items: self.flag("include_items", true)?,
            item_limit: self.limit("item_limit", 1000)?,
        })
    }

    /// From the query of a page of events.
    pub fn events(&self) -> Result<EventsQuery, Error> {
        self.only(&["after", "limit", "wait"])?;
        let wait = match self.get("wait").map(str::parse) {
            None => 0,
            Some(Ok(wait @ 0..=MAX_WAIT)) => wait,
            Some(_) => {
                return Err(Error::invalid(
                    "wait",
                    format!("wait must be a whole number of seconds from 0 to {MAX_WAIT}"),
                ));
            }
        };
        let after = self.get("after").filter(|after| !after.is_empty()).map(str::to_string);
        Ok(EventsQuery { after, limit: self.limit("limit", 100)?, wait })
    }

    /// The cursor of a stream request: `Last-Event-ID`, which a reconnecting EventSource sends to the same URL; else
    /// `after`.
    pub fn cursor(&self, last_event_id: Option<String>) -> Result<Option<String>, Error> {
        self.only(&["after", "access_token"])?;
        let header = last_event_id.filter(|cursor| !cursor.is_empty());
        Ok(header.or_else(|| self.get("after").filter(|cursor| !cursor.is_empty()).map(str::to_string)))
    }
}
