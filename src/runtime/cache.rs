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
