//! Ring 0: the one way JSON becomes a type.
//!
//! Everything is parsed to a `Value` first, and every type is read from `Value`s by the `Deserializer` below. Each
//! type's derived code is therefore monomorphised once, and every error carries its JSON path.

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

/// The limit of JSON values in one text from outside. The worst case is a value in an object, which takes about 100
/// bytes of wasm32 memory with its key, so such a text takes at most 20 MB.
pub const MAX_VALUES: usize = 200_000;
/// The limit of objects among them. A map allocates eleven entries at once, about 500 bytes, so `{"":0}` takes seventy
/// times its length.
pub const MAX_OBJECTS: usize = 30_000;
/// The limit of nesting. Values are parsed, serialized and dropped recursively, on a stack of 1 MB; `serde_json`
/// rejects the 128th level for the same reason.
pub const MAX_DEPTH: usize = 127;

/// JSON that would take too much memory when parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON has {count} {what}, the limit is {limit}")]
pub struct TooComplex {
    what: &'static str,
    count: usize,
    limit: usize,
}

/// Why a text from outside was not parsed.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It would take too much memory.
    #[error(transparent)]
    TooComplex(#[from] TooComplex),
    /// It is not JSON.
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
}

/// Parses untrusted text, if its values fit into memory.
pub fn parse_untrusted(text: &str) -> Result<Value, ParseError> {
    check_complexity(text)?;
    Ok(serde_json::from_str(text)?)
}

/// Rejects JSON with more values or objects than the limits; the parser itself limits nesting. Linear, and allocates
/// nothing. In invalid JSON the counts are right up to the first error, which is as far as the parser goes.
pub fn check_complexity(text: &str) -> Result<(), TooComplex> {
    let (values, objects) = measure(text);
    let counts = [("values", values, MAX_VALUES), ("objects", objects, MAX_OBJECTS)];
    match counts.into_iter().find(|(_, count, limit)| count > limit) {
        Some((what, count, limit)) => Err(TooComplex { what, count, limit }),
        None => Ok(()),
    }
}

/// The number of values, and of objects among them.
fn measure(text: &str) -> (usize, usize) {
    let (mut values, mut objects) = (0_usize, 0_usize);
    let mut in_scalar = false;
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let was_in_scalar = std::mem::replace(&mut in_scalar, false);
        match byte {
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
                while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
                // A key is counted with its value.
                values += usize::from(bytes.peek() != Some(&b':'));
            }
            b'{' | b'[' => {
                values += 1;
                objects += usize::from(byte == b'{');
            }
            b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => {
                values += usize::from(!was_in_scalar);
                in_scalar = true;
            }
        }
    }
    (values, objects)
}

/// Approximate memory of a value, in bytes.
pub fn footprint(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 24,
        Value::String(text) => 40 + text.len(),
        Value::Array(list) => 40 + list.iter().map(footprint).sum::<usize>(),
        Value::Object(map) => {
            500 + map.iter().map(|(key, value)| 40 + key.len() + footprint(value)).sum::<usize>()
        }
    }
}

/// Why JSON does not match a type. Small, because every read returns it in a `Result`.
///
/// Its alternate form, `{fault:#}`, omits the value that was read: for logs, where it may be a secret.
#[derive(Debug, thiserror::Error)]
pub struct Fault(Box<Detail>);

/// What is wrong.
#[derive(Debug)]
pub struct Detail {
    /// Where, such as `agent.tools[0].name`; empty: the value as a whole.
    pub at: String,
    pub why: String,
    /// Both without the value read: where, up to the last expected key, and what is wrong.
    redacted: (String, String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Detail { at, why, redacted } = &*self.0;
        let (at, why) = if f.alternate() { (&redacted.0, &redacted.1) } else { (at, why) };
        if at.is_empty() { f.write_str(why) } else { write!(f, "{at}: {why}") }
    }
}

pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    take(serde_json::from_str(text).map_err(Fault::custom)?)
}

pub fn take<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    T::deserialize(Reader(value))
}

/// Parses a decimal number in any usual form: also `+5`, `05`, `.5` and `5.`. `f64::from_str` would add 10 KB of tables
/// that do not compress.
pub fn parse_f64(text: &str) -> Option<f64> {
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
    /// The error of a part, as an error of the whole that contains it at `part`.
    #[cold]
    pub fn within(mut self, part: &str) -> Self {
        self.0.redacted.0 = joined(part, &self.0.redacted.0);
        self.within_unknown(part)
    }

    /// The same where the name of the part may be wrong itself.
    fn within_unknown(mut self, part: &str) -> Self {
        self.0.at = joined(part, &self.0.at);
        self
    }

    pub fn into_inner(self) -> Detail {
        *self.0
    }

    fn new(why: String, redacted: String) -> Self {
        Self(Box::new(Detail { at: String::new(), why, redacted: (String::new(), redacted) }))
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

fn joined(part: &str, at: &str) -> String {
    let dot = if part.is_empty() || at.is_empty() || at.starts_with('[') { "" } else { "." };
    format!("{part}{dot}{at}")
}

impl Error for Fault {
    /// Errors nested in `why` are redacted as well: their alternate form says so.
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self::new(format!("{why}"), format!("{why:#}"))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let kind = kind_of(found);
        let shown = if found == Unexpected::Unit { kind.to_string() } else { found.to_string() };
        Self::new(
            format!("invalid type: {shown}, expected {expected}"),
            format!("invalid type: {kind}, expected {expected}"),
        )
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(
            format!("invalid value: {found}, expected {expected}"),
            format!("invalid value: {}, expected {expected}", kind_of(found)),
        )
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let known = one_of(expected);
        Self::new(format!("unknown variant `{variant}`, {known}"), format!("unknown variant, {known}"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let known = one_of(expected);
        Self::new(format!("unknown field `{field}`, {known}"), format!("unknown field, {known}"))
    }
}

/// In serde's words.
fn one_of(names: &[&str]) -> String {
    match names {
        [] => "there are none".into(),
        [name] => format!("expected `{name}`"),
        [one, other] => format!("expected `{one}` or `{other}`"),
        more => format!("expected one of `{}`", more.join("`, `")),
    }
}

fn kind_of(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Unit => "null",
        Unexpected::Bool(_) => "boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "integer",
        Unexpected::Float(_) => "floating point number",
        Unexpected::Str(_) => "string",
        Unexpected::Seq => "sequence",
        Unexpected::Map => "map",
        _ => "another value",
    }
}

/// The fields of an object, for tagged types and types whose fields are spread over several structs. serde's derive for
/// `tag` and `flatten` reads from a buffer, which would instantiate a second deserializer.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a field. A missing one is null, if the type allows it.
    pub fn field<T: DeserializeOwned, E: Error>(&mut self, name: &'static str) -> Result<T, E> {
        let read = match self.0.remove(name) {
            Some(value) => take(value).map_err(|fault| fault.within(name)),
            None => take(Value::Null).map_err(|_| Fault::missing_field(name)),
        };
        read.map_err(E::custom)
    }

    /// Reads the remaining fields.
    pub fn rest<T: DeserializeOwned, E: Error>(self) -> Result<T, E> {
        take(Value::Object(self.0)).map_err(E::custom)
    }
}

/// Reads the remaining fields as the type selected by the field `name`.
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
            // Keeps the digits, if it is read as a `Value`.
            Value::Number(number) => number.deserialize_any(visitor).map_err(Fault::custom),
            Value::Null | Value::Bool(_) | Value::String(_) => self.scalar(visitor),
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
    /// Advances to the next pair, if there is one.
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
        let key = seed.deserialize(StrDeserializer::new(&self.key));
        key.map(Some).map_err(|fault: Fault| fault.within_unknown(&self.key))
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

/// A JSON object of those fields/// A JSON object of those fields, which move into it; `json!` would copy them.
pub fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut object = Map::new();
    object.extend(fields.map(|(name, value)| (name.to_string(), value)));
    object.into()
}

/// A field of a JSON object; null where there is none.
pub fn field<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests;
