//! Ring 0: the one way in which JSON becomes a type of ours.
//!
//! All that is read is a `Value` first, and every type is read from `Value`s by the one `Deserializer` below. So the code
//! that derive makes for a type is in the worker once, not once per source; and a fault says where it is, whatever was read.

use std::fmt;
use std::marker::PhantomData;
use std::vec;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, Expected, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::{Map, Number, Value, map};

/// Why JSON is not what it was to be read as. Small, because everything that is read may come back as one instead.
#[derive(Debug, thiserror::Error)]
pub struct Fault(Box<Wrong>);

/// What a fault says.
#[derive(Debug)]
pub struct Wrong {
    /// Where, such as `agent.tools[0].name`; empty: in the whole.
    pub at: String,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.at.as_str() {
            "" => f.write_str(&self.0.why),
            at => write!(f, "{at}: {}", self.0.why),
        }
    }
}

/// Reads a text.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    take(serde_json::from_str(text).map_err(Fault::custom)?)
}

/// Reads a value.
pub fn take<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    T::deserialize(Reader(value))
}

/// A decimal number in any usual form: also `+5`, `05`, `.5` and `5.`. Rust's own way to read one would bring tables of
/// 10 KB that do not compress.
pub fn decimal(text: &str) -> Option<f64> {
    let (sign, number) = match text.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let some = |digits: &str| if digits.is_empty() { "0".to_string() } else { digits.to_string() };
    let json = format!("{sign}{}.{}e{exponent}", some(whole.trim_start_matches('0')), some(fraction));
    let digits = !(whole.is_empty() && fraction.is_empty()) && whole.bytes().all(|b| b.is_ascii_digit());
    serde_json::from_str::<Value>(&json).ok().filter(|_| digits)?.as_f64()
}

impl Fault {
    /// The fault of a part, seen from the whole in which it stands at `part`.
    #[cold]
    pub fn within(mut self, part: &str) -> Self {
        let at = &self.0.at;
        let dot = if part.is_empty() || at.is_empty() || at.starts_with('[') { "" } else { "." };
        self.0.at = format!("{part}{dot}{at}");
        self
    }

    /// What it says.
    pub fn into_inner(self) -> Wrong {
        *self.0
    }

    fn mismatch(value: &Value, expected: &dyn Expected) -> Self {
        let found = match value {
            Value::Null => Unexpected::Unit,
            Value::Bool(given) => Unexpected::Bool(*given),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => Unexpected::Unsigned(number),
                (None, Some(number)) => Unexpected::Signed(number),
                (None, None) => Unexpected::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        Self::invalid_type(found, expected)
    }
}

impl Error for Fault {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self(Box::new(Wrong { at: String::new(), why: why.to_string() }))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match found {
            Unexpected::Unit => Self::custom(format_args!("invalid type: null, expected {expected}")),
            found => Self::custom(format_args!("invalid type: {found}, expected {expected}")),
        }
    }
}

/// The fields of an object, for types with a tag or with fields that belong to a part of them. What derive makes for
/// `flatten` and `tag` reads from a buffer of serde's own, which brings the code of every type inside once more.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a field. One that is not there is null, if it may be.
    pub fn field<T: DeserializeOwned, E: Error>(&mut self, name: &'static str) -> Result<T, E> {
        let read = match self.0.remove(name) {
            Some(value) => take(value).map_err(|fault| fault.within(name)),
            None => take(Value::Null).map_err(|_| Fault::missing_field(name)),
        };
        read.map_err(E::custom)
    }

    /// Reads what is left.
    pub fn rest<T: DeserializeOwned, E: Error>(self) -> Result<T, E> {
        take(Value::Object(self.0)).map_err(E::custom)
    }
}

/// Reads what the field `name` says the rest is.
pub fn tagged<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
    name: &'static str,
) -> Result<(T, Fields), D::Error> {
    input.deserialize_map(Tagged { name, tag: PhantomData })
}

struct Tagged<T> {
    name: &'static str,
    tag: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Tagged<T> {
    type Value = (T, Fields);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with a field `{}`", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut tag, mut rest) = (None, Map::new());
        while let Some(key) = map.next_key::<String>()? {
            if key == self.name {
                tag = Some(map.next_value()?);
            } else {
                rest.insert(key, map.next_value()?);
            }
        }
        Ok((tag.ok_or_else(|| A::Error::missing_field(self.name))?, Fields(rest)))
    }
}

struct Reader(Value);

impl Reader {
    fn scalar<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(given) => visitor.visit_bool(given),
            Value::Number(number) => visit_number(&number, visitor),
            Value::String(text) => visitor.visit_string(text),
            other @ (Value::Array(_) | Value::Object(_)) => Err(Fault::mismatch(&other, &visitor)),
        }
    }
}

fn visit_number<'de, V: Visitor<'de>>(number: &Number, visitor: V) -> Result<V::Value, Fault> {
    match (number.as_u64(), number.as_i64()) {
        (Some(number), _) => visitor.visit_u64(number),
        (None, Some(number)) => visitor.visit_i64(number),
        (None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
    }
}

macro_rules! scalars {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.scalar(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Reader {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => self.scalar(visitor),
        }
    }

    scalars! {
        deserialize_bool deserialize_u64 deserialize_u32 deserialize_u16 deserialize_i64 deserialize_f64
        deserialize_str deserialize_string
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Array(list) => visitor.visit_seq(Items { next: 0, rest: list.into_iter() }),
            other => Err(Fault::mismatch(&other, &visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Object(map) => {
                visitor.visit_map(Pairs { rest: map.into_iter(), key: String::new(), value: Value::Null })
            }
            other => Err(Fault::mismatch(&other, &visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(self, _: &str, _: &[&str], visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _: &str, _: &[&str], visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(Variant { name, content: Value::Null }),
            Value::Object(map) if map.len() == 1 => match map.into_iter().next() {
                Some((name, content)) => visitor.visit_enum(Variant { name, content }),
                None => Err(Fault::custom("a variant has a name")),
            },
            other => Err(Fault::mismatch(&other, &"string or map")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i32 u8 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

struct Items {
    next: usize,
    rest: vec::IntoIter<Value>,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(value) = self.rest.next() else { return Ok(None) };
        let item = seed.deserialize(Reader(value)).map_err(|fault| fault.within(&format!("[{}]", self.next)))?;
        self.next += 1;
        Ok(Some(item))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Pairs {
    rest: map::IntoIter,
    key: String,
    value: Value,
}

impl Pairs {
    /// Goes on to the next pair, if there is one.
    fn advance(&mut self) -> bool {
        let next = self.rest.next();
        let found = next.is_some();
        (self.key, self.value) = next.unwrap_or_default();
        found
    }
}

impl<'de> MapAccess<'de> for Pairs {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        if !self.advance() {
            return Ok(None);
        }
        seed.deserialize(StrDeserializer::new(&self.key)).map(Some).map_err(|fault: Fault| fault.within(&self.key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(Reader(self.value.take())).map_err(|fault| fault.within(&self.key))
    }
}

struct Variant {
    name: String,
    content: Value,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Fault;
    type Variant = Reader;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Reader), Fault> {
        Ok((seed.deserialize(StrDeserializer::<Fault>::new(&self.name))?, Reader(self.content)))
    }
}

impl<'de> VariantAccess<'de> for Reader {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &[&str], visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }
}

#[cfg(test)]
mod tests {
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
        let text =
            r#"{"name":"n","parts":["empty",{"text":"t"},{"place":{"line":7}}],"labels":{"a":1},"ratio":2}"#;
        let whole: Whole = read(text).unwrap();
        assert_eq!(whole.parts, [Part::Empty, Part::Text("t".into()), Part::Place { line: 7 }]);
        assert_eq!((whole.labels["a"], whole.ratio, whole.name.as_str()), (1, Some(2.0), "n"));
    }

    #[test]
    fn a_decimal_number_has_many_forms() {
        for text in
            ["0", "7", "-7", "+7", "007", "1.5", ".5", "5.", "-0.25", "1e3", "1.5E-3", "2.e2", "1e+2", "1e-400"]
        {
            assert_eq!(decimal(text), text.parse().ok(), "{text}");
        }
        for text in
            ["", ".", "-", "+", "e", "1e", "--1", "+-1", "1.2.3", "1 ", "0x1", "inf", "nan", "1e999", "1_0"]
        {
            assert_eq!(decimal(text), None, "{text}");
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
}
