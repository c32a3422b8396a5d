//! What an active object need not read again: the end of its log, and the last model context. Both are bounded, and
//! gone when the object sleeps; the append-only log stays the truth.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::provider::ContextLine;
use crate::session::{Record, Seq};

/// The end of the log as just written: a turn reads its own records.
///
/// Always true: it holds every record from `floor` on, in order of place. That is not the order in which they were
/// appended: a message queued while the model responds gets a place above those of the response.
#[derive(Default)]
pub struct LogTail {
    records: BTreeMap<Seq, Record>,
    size: usize,
    /// `None` as long as nothing is known about the log.
    floor: Option<Seq>,
}

impl LogTail {
    /// The limit, in bytes of items.
    const SIZE: usize = 64 * 1024;

    /// Records that the log has nothing at `next` or above. Changes nothing if more is known already.
    pub fn begin(&mut self, next: Seq) {
        self.floor.get_or_insert(next);
    }

    /// Adds appended records.
    pub fn push(&mut self, records: &[Record]) {
        let Some(mut floor) = self.floor else { return };
        for record in records.iter().filter(|record| record.seq >= floor) {
            self.size = self.size.saturating_add(weight(record));
            self.records.insert(record.seq, record.clone());
        }
        while self.size > Self::SIZE
            && let Some((lowest, record)) = self.records.pop_first()
        {
            self.size = self.size.saturating_sub(weight(&record));
            floor = lowest.plus(1);
        }
        self.floor = Some(floor);
    }

    /// The records the log would return; `None` if they start before the cache.
    pub fn records(&self, from: Seq, limit: usize) -> Option<Vec<Record>> {
        let known = self.floor.is_some_and(|floor| from >= floor);
        known.then(|| self.records.range(from..).take(limit).map(|(_, record)| record.clone()).collect())
    }
}

/// Approximate memory of a record, in bytes.
fn weight(record: &Record) -> usize {
    record.entry.item().map_or(0, |item| item.body.len()).saturating_add(256)
}

/// The context of the last model request. The next request has the same and more.
#[derive(Default)]
pub struct ContextCache {
    lines: Rc<Vec<ContextLine>>,
    size: usize,
    /// The place of its last line.
    pub upto: Seq,
}

impl ContextCache {
    /// The limit, in bytes of bodies.
    const SIZE: usize = 1024 * 1024;

    /// The bytes of bodies that are kept.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Adds new lines, and returns all of them.
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
    use proptest::collection::vec;
    use proptest::prelude::*;

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
            origin: None,
            body: "x".repeat(size),
        };
        Record { seq: Seq(seq), entry: Entry::Note { item } }
    }

    fn places(recent: &LogTail, from: u64, limit: usize) -> Option<Vec<u64>> {
        recent.records(Seq(from), limit).map(|found| found.iter().map(|record| record.seq.0).collect())
    }

    #[test]
    fn the_end_of_the_log_is_what_was_appended_last() {
        let mut recent = LogTail::default();
        recent.push(&[record(1, 10)]);
        assert_eq!(places(&recent, 1, 9), None, "nothing is known of the log");
        recent.begin(Seq(3));
        assert_eq!((places(&recent, 2, 9), places(&recent, 3, 9)), (None, Some(vec![])));
        recent.push(&[record(3, 10), record(7, 10)]);
        recent.begin(Seq(8));
        assert_eq!(places(&recent, 2, 9), None, "the log may have more");
        assert_eq!(places(&recent, 3, 1), Some(vec![3]));
        assert_eq!(places(&recent, 4, 9), Some(vec![7]));
        assert_eq!(places(&recent, 8, 9), Some(vec![]));
        recent.push(&[record(8, LogTail::SIZE - 500)]);
        assert_eq!((places(&recent, 7, 9), places(&recent, 8, 9)), (None, Some(vec![8])));
        recent.push(&[record(9, LogTail::SIZE)]);
        assert_eq!((places(&recent, 9, 9), places(&recent, 10, 9)), (None, Some(vec![])), "too large to keep");
    }

    #[test]
    fn records_are_in_the_order_of_their_places_however_they_were_appended() {
        let mut recent = LogTail::default();
        recent.begin(Seq(10));
        recent.push(&[record(20, 10)]);
        recent.push(&[record(11, 10), record(5, 10)]);
        assert_eq!(places(&recent, 10, 9), Some(vec![11, 20]));
        assert_eq!(places(&recent, 5, 9), None, "what lies below the floor is not kept");
        recent.push(&[record(12, LogTail::SIZE - 700)]);
        assert_eq!((places(&recent, 11, 9), places(&recent, 12, 9)), (None, Some(vec![12, 20])));
        recent.push(&[record(11, 10)]);
        assert_eq!(places(&recent, 12, 9), Some(vec![12, 20]), "the floor does not fall");
    }

    proptest! {
        /// Whatever is appended in whatever order: what the cache answers is what the log would say.
        #[test]
        fn what_the_cache_says_is_what_the_log_says(
            appends in vec(vec((0u64..60, 0usize..30_000), 1..4), 1..30), begun in 0usize..10, limit in 1usize..5,
        ) {
            let (mut recent, mut log) = (LogTail::default(), BTreeMap::new());
            for (n, append) in appends.iter().enumerate() {
                if n == begun {
                    recent.begin(log.last_key_value().map_or(Seq(0), |(last, _): (&Seq, &Record)| last.plus(1)));
                }
                for record in append.iter().map(|(seq, size)| record(*seq, *size)) {
                    log.entry(record.seq).or_insert_with(|| {
                        recent.push(std::slice::from_ref(&record));
                        record
                    });
                }
                for from in (0..61).map(Seq) {
                    let said: Vec<Record> = log.range(from..).take(limit).map(|(_, record)| record.clone()).collect();
                    prop_assert!(recent.records(from, limit).is_none_or(|found| found == said), "from {from:?}");
                }
            }
        }
    }

    #[test]
    fn the_context_grows_until_it_is_too_large_to_keep() {
        let line =
            |body: &str| ContextLine { place: Seq(0), part: ContextPart::User, origin: None, body: body.into() };
        let mut shown = ContextCache::default();
        assert_eq!(shown.extend(vec![(Seq(2), line("a"))]).len(), 1);
        assert_eq!((shown.extend(Vec::new()).len(), shown.upto), (1, Seq(2)));
        let all = shown.extend(vec![(Seq(5), line(&"b".repeat(ContextCache::SIZE)))]);
        assert_eq!((all.len(), shown.upto), (2, Seq(0)), "the next one reads all of it again");
    }
}
