//! Cursors outlive the grammar: step numbers are fixed, and a step that a later version adds moves nobody's cursor.

use proptest::collection::vec;
use proptest::prelude::*;

use super::laws::{Op, op, perform};
use super::*;
use crate::session::stream::number;

/// A renderer that knows only some of the steps, in short.
struct Grammar {
    knows: fn(&str) -> bool,
    lines: Vec<(Cursor, String)>,
}

impl Grammar {
    fn new(knows: fn(&str) -> bool) -> Self {
        Self { knows, lines: Vec::new() }
    }

    fn replay(self, rig: &Rig, from: Cursor) -> Vec<(Cursor, String)> {
        let mut grammar = self;
        let replayed = rig.session.replay(from, usize::MAX, &rig.log, &mut grammar).unwrap();
        assert_eq!((replayed.cursor, replayed.more), (rig.session.cursor(), false));
        grammar.lines
    }
}

impl Sink for Grammar {
    fn step(&mut self, at: Option<Cursor>, step: Step<'_>) {
        let line = format!("{step:?}");
        let name = line.split([' ', '(']).next().unwrap();
        if (self.knows)(name) {
            self.lines.push((at.unwrap(), line));
        }
    }

    fn size(&self) -> usize {
        self.lines.len()
    }
}

/// What is left for a reader of the old grammar who stands at `from`. Of a text it has read all so far.
fn rest(whole: &[(Cursor, String)], from: Cursor) -> Vec<(Cursor, String)> {
    whole.iter().filter(|(at, _)| *at > from).cloned().collect()
}

fn all(_: &str) -> bool {
    true
}

fn old(name: &str) -> bool {
    !["TurnInProgress", "PartDone", "ItemAdded", "Retry", "CallResolved"].contains(&name)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cursors_of_an_older_grammar_are_exact_under_a_newer_one(ops in vec(op(), 1..40)) {
        let mut rig = Rig::with(Settings { tool_timeout: Some(100), max_answer: 1500, ..settings() });
        for op in ops.iter().filter(|op| !matches!(op, Op::Crash | Op::LoseWrite)) {
            perform(&mut rig, op);
        }
        rig.flush();
        let new = Grammar::new(all).replay(&rig, Cursor::START);
        prop_assert!(new.is_sorted_by(|a, b| a.0 < b.0));
        let before = Grammar::new(old).replay(&rig, Cursor::START);
        for (cursor, _) in &before {
            prop_assert_eq!(Grammar::new(all).replay(&rig, *cursor), rest(&new, *cursor));
        }
        for (cursor, _) in &new {
            prop_assert_eq!(Grammar::new(old).replay(&rig, *cursor), rest(&before, *cursor));
        }
    }
}

#[test]
fn a_cursor_within_a_text_goes_on_at_that_byte_under_every_grammar() {
    let mut rig = Rig::new();
    rig.say("hi");
    rig.model(vec![ModelEvent::Message, text("one two"), close(), done()]);
    let whole = Grammar::new(old).replay(&rig, Cursor::START);
    let (at, _) = whole.iter().find(|(_, line)| line.starts_with("Text")).unwrap();
    let within = Cursor { bytes: 4, ..*at };
    for knows in [old as fn(&str) -> bool, all] {
        let resumed = Grammar::new(knows).replay(&rig, within);
        assert!(resumed[0].1.contains("from: 4, text: \"two\""), "{:?}", resumed[0]);
    }
}

/// Cursors that clients hold name these numbers: a change here is a break, a new step takes a number in between.
#[test]
fn step_numbers_never_change() {
    use number::*;
    assert_eq!([STARTED_STATUS, STARTED_INPUT, STARTED_CREATED, STARTED_IN_PROGRESS], [10, 20, 30, 40]);
    assert_eq!(STEERED_INPUT, 20);
    assert_eq!([ITEM_ADDED, FIRST, EACH, TEXT, PART_DONE, LAST], [10, 100, 16, 4, 8, 1_000_000]);
    assert_eq!([RESOLVED_CALL, RESOLVED_OUTPUT, RESOLVED_STATUS], [10, 20, 30]);
    assert_eq!(RETRIED, 10);
    assert_eq!([ENDED_TURN, ENDED_INTERRUPTED, ENDED_STATUS], [10, 20, 30]);
}

#[test]
fn a_turn_with_a_tool_has_these_positions() {
    let mut rig = Rig::new();
    rig.say_with("hi", &["look"]);
    rig.model(vec![ModelEvent::Message, text("a"), close(), call("c1", "look"), close(), done()]);
    rig.give("c1", "out").unwrap();
    rig.model(vec![ModelEvent::Message, text("b"), close(), done()]);
    let steps: Vec<u32> = Grammar::new(all).replay(&rig, Cursor::START).iter().map(|(at, _)| at.step).collect();
    let item = [10, 104, 108, 1_000_000];
    let want = [&[10, 20, 30, 40][..], &item, &item, &[100, 1_000_000], &[10, 20, 30], &item, &[10, 30]].concat();
    assert_eq!(steps, want);
}
