use std::collections::BTreeMap;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    #[serde(default)]
    parts: Vec<Part>,
    #[serde(default)]
    labels: BTreeMap<String, u32>,
    ratio: Option<f64>,
    name: String,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    Empty,
    Text(String),
    Place { line: u64 },
}

#[test]
fn what_derive_makes_is_read() {
    let text = r#"{"name":"n","parts":["empty",{"text":"t"},{"place":{"line":7}}],"labels":{"a":1},"ratio":2}"#;
    let whole: Whole = read(text).unwrap();
    assert_eq!(whole.parts, [Part::Empty, Part::Text("t".into()), Part::Place { line: 7 }]);
    assert_eq!((whole.labels["a"], whole.ratio, whole.name.as_str()), (1, Some(2.0), "n"));
}

#[test]
fn json_that_would_take_too_much_memory_is_refused() {
    let list = |item: &str, n: usize| format!("[{}]", vec![item; n].join(","));
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    for fine in [list("0", MAX_VALUES - 1), list(r#"{"":0}"#, MAX_OBJECTS), nested(MAX_DEPTH)] {
        assert!(parse_untrusted(&fine).is_ok(), "{fine:.20}");
    }
    let object = |n: usize| format!("{{{}}}", vec![r#""k" : "v\\\"""#; n].join(" , "));
    for (text, why) in [
        (list("0", MAX_VALUES), "the JSON has 200001 values, the limit is 200000"),
        (object(MAX_VALUES), "the JSON has 200001 values, the limit is 200000"),
        (list(r#"{"":0}"#, MAX_OBJECTS + 1), "the JSON has 30001 objects, the limit is 30000"),
        (nested(MAX_DEPTH + 1), "recursion limit exceeded"),
        // The parser consumes all of this before the error.
        (format!("{}:{}", list("0", MAX_VALUES), ":".repeat(MAX_VALUES)), "the JSON has 200001 values"),
    ] {
        let refused = parse_untrusted(&text).unwrap_err().to_string();
        assert!(refused.starts_with(why), "{text:.20}: {refused}");
    }
}

#[test]
fn invalid_json_is_the_parsers_to_report() {
    for text in ["", "{", r#"{"a"#, r#"{"a":"\"#, "]]]", r#""\""#, ":::", "{,}", "\u{0}", "北京"] {
        assert_eq!(check_complexity(text), Ok(()), "{text}");
        assert!(matches!(parse_untrusted(text), Err(ParseError::Syntax(_))), "{text}");
    }
}

fn count(value: &Value) -> (usize, usize) {
    let inner: Vec<_> = match value {
        Value::Array(list) => list.iter().map(count).collect(),
        Value::Object(map) => map.values().map(count).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return (1, 0),
    };
    let own = (1, usize::from(value.is_object()));
    inner.iter().fold(own, |all, one| (all.0 + one.0, all.1 + one.1))
}

proptest::proptest! {
    #[test]
    fn what_is_counted_is_what_is_parsed(value in value(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        proptest::prop_assert_eq!(measure(&text.unwrap()), count(&value));
    }
}

fn value() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let text = r#"[a\\"{}\[\]:,\n北]{0,5}"#;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(text, inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

#[test]
fn a_fault_can_be_told_without_what_was_read() {
    for (text, fault) in [
        (r#"{"name":"n","ratio":"sk-SECRET"}"#, "ratio: invalid type: string, expected f64"),
        (r#"{"name":7777}"#, "name: invalid type: integer, expected a string"),
        (r#"{"name":"n","labels":{"a":-7777}}"#, "labels.a: invalid value: integer, expected u32"),
        (r#"{"name":"n","labels":{"a":77.77}}"#, "labels.a: invalid type: floating point number, expected u32"),
        (r#"{"sk-SECRET":1}"#, "unknown field, expected one of `parts`, `labels`, `ratio`, `name`"),
        (
            r#"{"name":"n","parts":["sk-SECRET"]}"#,
            "parts[0]: unknown variant, expected one of `empty`, `text`, `place`",
        ),
        (r#""sk-SECRET""#, "invalid type: string, expected struct Whole"),
        (r#"{"a":sk-SECRET}"#, "expected value at line 1 column 6"),
    ] {
        assert_eq!(format!("{:#}", read::<Whole>(text).unwrap_err()), fault, "{text}");
    }
    // Through types read by hand, whose errors are nested in another.
    let play = r#"{"type":"scripted","delta_ms":"sk-SECRET"}"#;
    let fault = read::<crate::provider::Provider>(play).unwrap_err();
    assert_eq!(fault.to_string(), "delta_ms: invalid type: string \"sk-SECRET\", expected u32");
    assert_eq!(format!("{fault:#}"), "delta_ms: invalid type: string, expected u32");
}

#[test]
fn a_decimal_number_has_many_forms() {
    for text in
        ["0", "7", "-7", "+7", "007", "1.5", ".5", "5.", "-0.25", "1e3", "1.5E-3", "2.e2", "1e+2", "1e-400"]
    {
        assert_eq!(parse_f64(text), text.parse().ok(), "{text}");
    }
    for text in ["", ".", "-", "+", "e", "1e", "--1", "+-1", "1.2.3", "1 ", "0x1", "inf", "nan", "1e999", "1_0"] {
        assert_eq!(parse_f64(text), None, "{text}");
    }
}

#[test]
fn a_fault_says_where_it_is() {
    for (text, fault) in [
        (r#"{}"#, "missing field `name`"),
        (r#"{"nmae":"n"}"#, "nmae: unknown field `nmae`, expected one of `parts`, `labels`, `ratio`, `name`"),
        (r#"{"name":null}"#, "name: invalid type: null, expected a string"),
        (r#"{"name":{}}"#, "name: invalid type: map, expected a string"),
        (r#"{"name":"n","ratio":"x"}"#, "ratio: invalid type: string \"x\", expected f64"),
        (r#"{"name":"n","labels":{"a":1,"b":-1}}"#, "labels.b: invalid value: integer `-1`, expected u32"),
        (
            r#"{"name":"n","parts":["empty",{"place":{"line":1.5}}]}"#,
            "parts[1].line: invalid type: floating point `1.5`, expected u64",
        ),
        (
            r#"{"name":"n","parts":["full"]}"#,
            "parts[0]: unknown variant `full`, expected one of `empty`, `text`, `place`",
        ),
        (r#"{"name":"n","parts":[[]]}"#, "parts[0]: invalid type: sequence, expected string or map"),
        (r#"[1]"#, "invalid type: sequence, expected struct Whole"),
        (r#"{"#, "EOF while parsing an object at line 1 column 1"),
    ] {
        assert_eq!(read::<Whole>(text).unwrap_err().to_string(), fault, "{text}");
    }
}

#[test]
fn json_that_passes_through_keeps_its_order_and_its_digits() {
    #[derive(serde::Deserialize)]
    struct Holder {
        schema: Value,
        ratio: f64,
    }
    let schema = r#"{"b":12345678901234567890123,"a":1.50,"c":[-9223372036854775809,0.1]}"#;
    let holder: Holder = read(&format!("{{\"ratio\":1.50,\"schema\":{schema}}}")).unwrap();
    assert_eq!((holder.schema.to_string().as_str(), holder.ratio), (schema, 1.5));
}
