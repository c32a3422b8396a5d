//! YAML as JSON, in the core schema of YAML 1.2: an unquoted number is a number, `yes` is a string.
//!
//! The text is untrusted. Nesting is limited and uses no call stack; whatever an alias repeats counts each time, so a
//! few lines cannot exhaust memory. Unsupported: non-scalar keys, merge keys, several documents.
//!
//! Source: YAML 1.2.2, section 10.3.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Number, Value};
use thiserror::Error;

use crate::json;

/// The limit of nested lists and mappings.
const MAX_DEPTH: usize = 64;
/// What a document may come to: bytes of its scalars, and [`NODE`] for every node.
const MAX_SIZE: usize = 4 * 1024 * 1024;
/// Approximate memory of a node without its text, in bytes.
const NODE: usize = 32;
/// The parser's number for "no anchor".
const NO_ANCHOR: usize = 0;

const TOO_DEEP: &str = "nested too deeply";
const TOO_LARGE: &str = "too large";

/// Why a text was rejected.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// It is not YAML.
    #[error("not valid YAML: {0}")]
    Syntax(#[from] granit_parser::ScanError),
    /// It is YAML, but outside of the supported subset.
    #[error("{what}, in line {line}")]
    Refused { what: &'static str, line: usize },
}

/// Reads a document. An empty one is null.
pub fn yaml(text: &str) -> Result<Value, Unreadable> {
    let mut reader = Reader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event?;
        reader.take(event).map_err(|what| Unreadable::Refused { what, line: span.start.line() })?;
    }
    Ok(reader.document.unwrap_or_default())
}

#[derive(Default)]
struct Reader {
    /// The open lists and mappings, innermost last.
    open: Vec<Open>,
    /// Anchored values, by the anchor's number.
    anchored: BTreeMap<usize, Node>,
    /// The size of everything read.
    size: usize,
    document: Option<Value>,
}

struct Open {
    kind: Kind,
    anchor: usize,
    /// The size of everything read before it.
    before: usize,
    /// The depth of lists and mappings below it.
    depth: usize,
}

enum Kind {
    List(Vec<Value>),
    /// A mapping, with the key whose value comes next.
    Map(Map<String, Value>, Option<String>),
}

#[derive(Clone)]
struct Node {
    value: Value,
    size: usize,
    depth: usize,
}

impl Reader {
    fn take(&mut self, event: Event<'_>) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let size = NODE + text.len();
                self.grow(size)?;
                // A key is always a string, `1` and `true` included.
                let value = if self.wants_key() { text.into() } else { scalar(&text, style, tag.as_deref()) };
                self.put(Node { value, size, depth: 0 }, anchor)
            }
            Event::Alias(anchor) => {
                let Some(Node { size, depth, .. }) = self.anchored.get(&anchor) else {
                    return Err("an alias inside its own anchor");
                };
                self.check_depth(*depth)?;
                self.grow(*size)?;
                match self.anchored.get(&anchor).cloned() {
                    Some(node) => self.put(node, NO_ANCHOR),
                    None => Ok(()),
                }
            }
            Event::SequenceStart(_, anchor, _) => self.begin(Kind::List(Vec::new()), anchor),
            Event::MappingStart(_, anchor, _) => self.begin(Kind::Map(Map::new(), None), anchor),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::DocumentStart(..) if self.document.is_some() => Err("a second document"),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, kind: Kind, anchor: usize) -> Result<(), &'static str> {
        if self.wants_key() {
            return Err("a list or a mapping as a key");
        }
        self.check_depth(1)?;
        let before = self.size;
        self.grow(NODE)?;
        self.open.push(Open { kind, anchor, before, depth: 0 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), &'static str> {
        let Some(Open { kind, anchor, before, depth }) = self.open.pop() else {
            return Ok(());
        };
        let value = match kind {
            Kind::List(list) => list.into(),
            Kind::Map(map, _) => map.into(),
        };
        self.put(Node { value, size: self.size.saturating_sub(before), depth: depth + 1 }, anchor)
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        if anchor != NO_ANCHOR {
            self.grow(node.size)?;
            self.anchored.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.document = Some(node.value);
            return Ok(());
        };
        open.depth = open.depth.max(node.depth);
        match &mut open.kind {
            Kind::List(list) => list.push(node.value),
            Kind::Map(map, key) => match (key.take(), node.value) {
                (Some(name), value) => drop(map.insert(name, value)),
                (None, Value::String(name)) if name == "<<" => return Err("a merge key"),
                (None, Value::String(name)) if map.contains_key(&name) => return Err("a duplicate key"),
                (None, Value::String(name)) => *key = Some(name),
                (None, _) => return Err("a key that is not a scalar"),
            },
        }
        Ok(())
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { kind: Kind::Map(_, None), .. }))
    }

    fn check_depth(&self, more: usize) -> Result<(), &'static str> {
        if self.open.len() + more > MAX_DEPTH { Err(TOO_DEEP) } else { Ok(()) }
    }

    fn grow(&mut self, by: usize) -> Result<(), &'static str> {
        self.size = self.size.saturating_add(by);
        if self.size > MAX_SIZE { Err(TOO_LARGE) } else { Ok(()) }
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    let resolved = match tag {
        None => style == ScalarStyle::Plain,
        Some(tag) => matches!(tag.core_suffix(), Some("null" | "bool" | "int" | "float")),
    };
    if !resolved {
        return text.into();
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        _ => number(text).map_or_else(|| text.into(), Value::Number),
    }
}

/// The number a text denotes. Infinities and `.nan`, which JSON does not have, stay strings.
fn number(text: &str) -> Option<Number> {
    let radix = |digits: &str, radix| {
        let plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
        plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten().map(Number::from)
    };
    if let Some(number) = text.strip_prefix("0x").and_then(|digits| radix(digits, 16)) {
        return Some(number);
    }
    if let Some(number) = text.strip_prefix("0o").and_then(|digits| radix(digits, 8)) {
        return Some(number);
    }
    let integer = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    integer.ok().or_else(|| json::parse_f64(text).and_then(Number::from_f64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_means_what_its_core_schema_says() {
        let text = "
# a comment
text: a b  # another
quoted: '1'
double: \"a\\nb\\u00e9\"
none: ~
empty:
yes: yes
on: on
true: TRUE
numbers: [1, -2, +3, 0x1F, 0o17, 1.5, 1e3, .5, 18446744073709551615]
words: [1.2.3, 2026-01-02, 1_000, '', '~', .inf, inf, nan, 0x, '-', +, '0x+1', e]
tagged: [!!str 1, !!int '2', !!float '2.5', !custom 3, ! 4]
block: |
  one
   two
folded: >-
  one
  two
list:
- a: 1
  b: [x, {y: z}]
-
  - deep
? long
: key
";
        let expected = json!({
            "text": "a b", "quoted": "1", "double": "a\nbé", "none": null, "empty": null, "yes": "yes", "on": "on",
            "true": true,
            "numbers": [1, -2, 3, 31, 15, 1.5, 1000.0, 0.5, u64::MAX],
            "words": ["1.2.3", "2026-01-02", "1_000", "", "~", ".inf", "inf", "nan", "0x", "-", "+", "0x+1", "e"],
            "tagged": ["1", 2, 2.5, "3", "4"],
            "block": "one\n two\n", "folded": "one two",
            "list": [{"a": 1, "b": ["x", {"y": "z"}]}, ["deep"]], "long": "key",
        });
        assert_eq!(yaml(text).unwrap(), expected);
        assert_eq!(yaml(&expected.to_string()).unwrap(), expected, "JSON is YAML");
        assert_eq!(yaml("").unwrap(), Value::Null);
        assert_eq!(yaml("\u{feff}--- 7\n...\n").unwrap(), json!(7));
    }

    #[test]
    fn aliases_repeat_what_they_name() {
        let text = "a: &x {k: &y [1, 2]}\nb: *x\nc: *y\n&z d: *z\ne: &x 1\nf: *x\n";
        let expected = json!({"a": {"k": [1, 2]}, "b": {"k": [1, 2]}, "c": [1, 2], "d": "d", "e": 1, "f": 1});
        assert_eq!(yaml(text).unwrap(), expected);
    }

    #[test]
    fn what_would_grow_beyond_memory_is_refused() {
        let mut laughs = "a0: &a0 [lol, lol]\n".to_string();
        for n in 1..40 {
            laughs += &format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1);
        }
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(100_000));
        let nested = "&a [".to_string() + &"&b [".repeat(62) + &"x".repeat(500_000) + &"]".repeat(63);
        let empty = "[".to_string() + &"'',".repeat(300_000) + "]";
        for text in [laughs, long, nested, empty] {
            let why = yaml(&text).unwrap_err().to_string();
            assert!(why.starts_with(TOO_LARGE), "{why}");
        }
    }

    #[test]
    fn nesting_needs_no_stack() {
        let block = "- ".repeat(200_000) + "x";
        let keys = (0..1000).map(|n| format!("{}a:\n", " ".repeat(n))).collect::<String>();
        for text in
            ["[".repeat(500_000), "{a: ".repeat(200_000), "{".repeat(500_000), block, keys, "? ".repeat(200_000)]
        {
            assert!(yaml(&text).is_err(), "{}", &text[..20]);
        }
        let mut chain = "- &a0 x\n".to_string();
        for n in 1..100 {
            chain += &format!("- &a{n} [*a{}]\n", n - 1);
        }
        assert!(yaml(&chain).unwrap_err().to_string().starts_with(TOO_DEEP), "nor can aliases deepen it");
        assert!(yaml(&("[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH))).is_ok());
        assert!(yaml(&("[".repeat(MAX_DEPTH + 1) + &"]".repeat(MAX_DEPTH + 1))).is_err());
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let cases = [
            ("a: 1\nb: [", "not valid YAML"),
            ("a: 1\n b: 2", "not valid YAML"),
            ("a: *nobody", "not valid YAML"),
            ("a: \"\u{1}\"", "not valid YAML"),
            ("a: 1\na: 2", "a duplicate key, in line 2"),
            ("a: 1\n[b]: 2", "a list or a mapping as a key, in line 2"),
            ("&x [1]: 2", "a list or a mapping as a key, in line 1"),
            ("a: &x [1]\n*x : 2", "a key that is not a scalar, in line 2"),
            ("a: &x {b: 1}\nc:\n  <<: *x", "a merge key, in line 3"),
            ("a: 1\n---\nb: 2", "a second document, in line 2"),
            ("&a [*a]", "an alias inside its own anchor, in line 1"),
        ];
        for (text, what) in cases {
            let why = yaml(text).unwrap_err().to_string();
            assert!(why.starts_with(what), "{text}: {why}");
        }
    }
}
