//! What an object at work need not read again: the end of its log, and what the model was shown last. Both are bounded, and
//! gone when the object sleeps; the log, to which records are only ever added, stays the truth.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::provider::ContextLine;
use crate::session::{Record, Seq};

/// The end of the log as it was just written: a turn asks for its own records.
#[derive(Default)]
pub struct Recent {
    records: VecDeque<Record>,
    size: usize,
}

impl Recent {
    /// The most that is kept, in bytes of items.
    const SIZE: usize = 64 * 1024;

    /// Takes what was appended.
    pub fn push(&mut self, records: &[Record]) {
        self.records.extend(records.iter().cloned());
        self.size = self.size.saturating_add(records.iter().map(weight).sum());
        while self.size > Self::SIZE
            && let Some(oldest) = self.records.pop_front()
        {
            self.size = self.size.saturating_sub(weight(&oldest));
        }
    }

    /// The same as the log would say; none if it goes back further.
    pub fn records(&self, from: Seq, limit: usize) -> Option<Vec<Record>> {
        let first = self.records.front()?.seq;
        (first <= from)
            .then(|| self.records.iter().filter(|record| record.seq >= from).take(limit).cloned().collect())
    }
}

/// About how much memory a record takes.
fn weight(record: &Record) -> usize {
    record.entry.item().map_or(0, |item| item.body.len()).saturating_add(256)
}

/// The context as the model was last shown it. The next request has the same and more.
#[derive(Default)]
pub struct Shown {
    lines: Rc<Vec<ContextLine>>,
    size: usize,
    /// The place of its last line.
    pub upto: Seq,
}

impl Shown {
    /// The most that is kept, in bytes of bodies.
    const SIZE: usize = 1024 * 1024;

    /// Takes what has come since, and gives all of it.
    pub fn extend(&mut self, more: Vec<(Seq, ContextLine)>) -> Rc<Vec<ContextLine>> {
        if let Some((last, _)) = more.last() {
            self.upto = *last;
        }
        self.size = self.size.saturating_add(more.iter().map(|(_, line)| line.body.len()).sum());
        Rc::make_mut(&mut self.lines).extend(more.into_iter().map(|(_, line)| line));
        let lines = self.lines.clone();
        if self.size > Self::SIZE {
            *self = Self::default();
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ContextPart;
    use crate::session::{Entry, Item, ItemId, Kind, ResponseId, Role, Seconds, Status};

    fn record(seq: u64, size: usize) -> Record {
        let item = Item {
            id: ItemId(format!("item_{seq}")),
            response_id: ResponseId("resp_1".into()),
            created_at: Seconds(1),
            status: Status::Completed,
            kind: Kind::Message { role: Role::Assistant },
            body: "x".repeat(size),
        };
        Record { seq: Seq(seq), entry: Entry::Noted { item } }
    }

    #[test]
    fn the_end_of_the_log_is_what_was_appended_last() {
        let mut recent = Recent::default();
        assert_eq!(recent.records(Seq(1), 9), None);
        recent.push(&[record(3, 10), record(7, 10)]);
        let places = |recent: &Recent, from, limit| {
            recent
                .records(Seq(from), limit)
                .map(|found| found.iter().map(|record| record.seq.0).collect::<Vec<_>>())
        };
        assert_eq!(places(&recent, 2, 9), None, "it may have begun before");
        assert_eq!(places(&recent, 3, 1), Some(vec![3]));
        assert_eq!(places(&recent, 4, 9), Some(vec![7]));
        assert_eq!(places(&recent, 8, 9), Some(vec![]));
        recent.push(&[record(8, Recent::SIZE - 500)]);
        assert_eq!((places(&recent, 7, 9), places(&recent, 8, 9)), (None, Some(vec![8])));
        recent.push(&[record(9, Recent::SIZE)]);
        assert_eq!(places(&recent, 9, 9), None, "too large to keep");
    }

    #[test]
    fn the_context_grows_until_it_is_too_large_to_keep() {
        let line = |body: &str| ContextLine { part: ContextPart::User, body: body.into() };
        let mut shown = Shown::default();
        assert_eq!(shown.extend(vec![(Seq(2), line("a"))]).len(), 1);
        assert_eq!((shown.extend(Vec::new()).len(), shown.upto), (1, Seq(2)));
        let all = shown.extend(vec![(Seq(5), line(&"b".repeat(Shown::SIZE)))]);
        assert_eq!((all.len(), shown.upto), (2, Seq(0)), "the next one reads all of it again");
    }
}
