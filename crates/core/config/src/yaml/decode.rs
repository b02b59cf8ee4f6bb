//! Decoding of trees into types, by the rules of proto JSON and Kubernetes, with the path of each problem.

use super::node::{Entry, Node, NodeValue, shorten};
use super::scalar::{Scalar, resolve};
use crate::path::{FieldPath, Segment};
use crate::problem::{MOST_PROBLEMS, Problem, nearest};
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use std::cell::{Cell, RefCell};
use std::fmt;

/// Treatment of unknown fields. Unknown values of enums are recorded in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The type has every field of its kind: others are recorded as unknown.
    Complete,
    /// As `Complete`, for objects as a whole: the fields that every object has are none of the type.
    Object,
    /// As `Complete`; names may be written as in the proto file (`trust_domain`): istiod reads mesh config
    /// this way.
    Mesh,
    /// The type has only the fields that are used: others are ignored, as in Kubernetes clients.
    Partial,
}

/// The fields that every object may have beside its `spec`.
pub(crate) const AROUND_SPEC: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// A field, or a value of an enum, that the type does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) path: FieldPath,
    pub(crate) line: u32,
    pub(crate) part: UnknownPart,
    /// The known name closest to the written one.
    pub(crate) near: Option<String>,
}

impl Unknown {
    /// Hint for users: the correction of a mistyped or misplaced part.
    pub(crate) fn hint(&self) -> Option<String> {
        match (&self.part, self.path.segments().last()) {
            (UnknownPart::Stray { .. }, Some(Segment::Field(name))) => {
                Some(format!("move {name:?} into spec"))
            }
            _ => self.near.as_ref().map(|near| format!("did you mean {near:?}?")),
        }
    }
}

/// The part of an object that is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnknownPart {
    /// A field that the type does not have.
    Field,
    /// The field that is set of a oneof, so that its choice is unknown.
    Choice,
    /// A field of `spec` that is written beside it. Its path is that in `spec`.
    Stray {
        /// True if something below it is named `tls`.
        holds_tls: bool,
    },
    /// The value of an enum, as written.
    Value(String),
}

/// Result of decoding: the value if it could be built, all problems, and all unknown parts.
pub(crate) struct Decoded<T> {
    pub(crate) value: Option<T>,
    pub(crate) problems: Vec<Problem>,
    /// Parts that were left out of the value: unknown fields, and fields with unknown values.
    pub(crate) unknown: Vec<Unknown>,
}

/// Maximum number of unknown fields and values of an object (limit `object-unknown`): each costs a walk
/// through its siblings. Longer lists end with one more than that.
pub(crate) const MOST_UNKNOWN: usize = 1_000;

/// Decodes a node as `T`; `prefix` is the node's path in its object.
pub(crate) fn decode<T: DeserializeOwned>(node: &Node, mode: Mode, prefix: &[&str]) -> Decoded<T> {
    let decoded = decode_once(node, mode, prefix);
    let is_value = |unknown: &&Unknown| matches!(unknown.part, UnknownPart::Value(_));
    let values: Vec<&Unknown> = decoded.unknown.iter().filter(is_value).collect();
    if values.is_empty() {
        return decoded;
    }
    // An enum has no variant for an absent value: the first decoding puts another variant there, the second
    // one runs without the field.
    let mut rest = node.clone();
    for unknown in values.into_iter().rev() {
        rest.remove(unknown.path.segments().get(prefix.len()..).unwrap_or_default());
    }
    Decoded { unknown: decoded.unknown, ..decode_once(&rest, mode, prefix) }
}

fn decode_once<T: DeserializeOwned>(node: &Node, mode: Mode, prefix: &[&str]) -> Decoded<T> {
    let prefix = prefix.iter().map(|name| Segment::Field((*name).into())).collect();
    let context =
        Context { mode, path: RefCell::new(prefix), line: Cell::new(node.line), unknown: RefCell::default() };
    let result = T::deserialize(Decoder { node, context: &context });
    let mut problems = Vec::new();
    let unknown = context.unknown.into_inner();
    let value = match result {
        Ok(value) => Some(value),
        Err(Error { message, hint }) => {
            // The path still has the position of the error.
            let path = FieldPath::new(context.path.into_inner());
            problems.push(Problem::error(path, message).at_line(context.line.get()).with_hint(hint));
            None
        }
    };
    Decoded { value, problems, unknown }
}

/// Maximum number of unreadable fields found in one object. Each costs one more decoding.
const MOST_UNREADABLE: usize = 10;

/// As [`decode`], but skips fields that cannot be read, so that all of them are found at once. If there are
/// errors, the value serves only to find further problems.
pub(crate) fn decode_all<T: DeserializeOwned>(node: &Node, mode: Mode, prefix: &[&str]) -> Decoded<T> {
    let mut decoded = decode(node, mode, prefix);
    if decoded.value.is_some() {
        return decoded;
    }
    let mut rest = node.clone();
    // Node numbers replace line numbers here, so that problems are sorted in the order of the object even if
    // all of it is on one line, or is JSON, which has no lines.
    let lines = rest.number_lines();
    decoded = decode(&rest, mode, prefix);
    let mut unreadable: Vec<Problem> = Vec::new();
    while decoded.value.is_none() && unreadable.len() < MOST_UNREADABLE {
        // The last problem is the one that ended decoding.
        let Some(error) = decoded.problems.pop() else { break };
        let forgotten = rest.forget(error.path.segments().get(prefix.len()..).unwrap_or_default());
        let is_known = unreadable.iter().any(|known| known.path == error.path);
        if !is_known {
            unreadable.push(error);
        }
        if is_known || !forgotten {
            break;
        }
        decoded = decode(&rest, mode, prefix);
    }
    decoded.problems.extend(unreadable);
    decoded.problems.sort_by_key(|problem| problem.line);
    for problem in &mut decoded.problems {
        problem.line = problem.line.and_then(|place| lines.get(place as usize)).copied();
    }
    for unknown in &mut decoded.unknown {
        unknown.line = lines.get(unknown.line as usize).copied().unwrap_or_default();
    }
    decoded
}

/// State shared by the nested decoders.
struct Context {
    mode: Mode,
    path: RefCell<Vec<Segment>>,
    line: Cell<u32>,
    unknown: RefCell<Vec<Unknown>>,
}

impl Context {
    /// Decodes a part. After an error, the path keeps its position.
    fn part<'de, S: DeserializeSeed<'de>>(
        &self,
        segment: Segment,
        node: &Node,
        seed: S,
    ) -> Result<S::Value, Error> {
        self.path.borrow_mut().push(segment);
        self.line.set(node.line);
        let value = seed.deserialize(Decoder { node, context: self })?;
        self.path.borrow_mut().pop();
        Ok(value)
    }

    /// True for a field that every object may have beside its `spec`.
    fn is_around_spec(&self, name: &str) -> bool {
        self.mode == Mode::Object && self.path.borrow().is_empty() && AROUND_SPEC.contains(&name)
    }

    /// Notes a field of the current object.
    fn unknown_field(&self, entry: &Entry, known: &[&str], part: UnknownPart) {
        let mut segments = self.path.borrow().clone();
        segments.push(Segment::Field(entry.key.clone()));
        let near = self.near(&entry.key, known);
        self.note(Unknown { path: FieldPath::new(segments), line: entry.line, part, near });
    }

    /// Records the unknown value of the current field.
    fn unknown_value(&self, text: &str, known: &[&str]) {
        let path = FieldPath::new(self.path.borrow().clone());
        let near = self.near(text, known);
        self.note(Unknown { path, line: self.line.get(), part: UnknownPart::Value(shorten(text)), near });
    }

    /// The known name that is close. Computed only while problems are listed: it costs the product of the
    /// lengths.
    fn near(&self, written: &str, known: &[&str]) -> Option<String> {
        let is_listed = self.unknown.borrow().len() < MOST_PROBLEMS;
        is_listed.then(|| nearest(written, known.iter().copied())).flatten().map(str::to_owned)
    }

    fn note(&self, unknown: Unknown) {
        let mut known = self.unknown.borrow_mut();
        if known.len() <= MOST_UNKNOWN {
            known.push(unknown);
        }
    }
}

/// An error during decoding; its path is the context's.
#[derive(Debug)]
struct Error {
    message: String,
    hint: Option<String>,
}

impl Error {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    fn expected(what: &str, node: &Node) -> Self {
        Self::new(format!("expected {what}, got {}", node.describe()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

#[derive(Clone, Copy)]
struct Decoder<'a> {
    node: &'a Node,
    context: &'a Context,
}

impl Decoder<'_> {
    /// Reads an integer: as such, with a zero fraction, or in quotes, as proto JSON allows.
    fn integer(self) -> Result<i128, Error> {
        let text = match &self.node.value {
            NodeValue::Plain(text) | NodeValue::Quoted(text) => text,
            _ => return Err(Error::expected("a whole number", self.node)),
        };
        match resolve(text) {
            Scalar::Null if matches!(self.node.value, NodeValue::Plain(_)) => Ok(0),
            Scalar::Int(value) => Ok(value.into()),
            Scalar::Uint(value) => Ok(value.into()),
            #[allow(clippy::cast_possible_truncation, reason = "whole and small, so exact")]
            Scalar::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => Ok(value as i128),
            _ => Err(Error::expected("a whole number", self.node)),
        }
    }

    fn number<N: TryFrom<i128>>(self, least: i128, most: i128) -> Result<N, Error> {
        let value = self.integer()?;
        N::try_from(value)
            .map_err(|_| Error::new(format!("{value} is out of range, must be {least} to {most}")))
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.number::<$type>(<$type>::MIN.into(), <$type>::MAX.into())?)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Decoder<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            NodeValue::Sequence(_) => self.deserialize_seq(visitor),
            NodeValue::Mapping(_) => self.deserialize_map(visitor),
            NodeValue::Quoted(text) => visitor.visit_str(text),
            NodeValue::Plain(text) => match resolve(text) {
                Scalar::Null => visitor.visit_unit(),
                Scalar::Bool(value) => visitor.visit_bool(value),
                Scalar::Int(value) => visitor.visit_i64(value),
                Scalar::Uint(value) => visitor.visit_u64(value),
                Scalar::Float(value) if value.is_finite() => visitor.visit_f64(value),
                Scalar::Float(_) => Err(Error::expected("a finite number", self.node)),
                Scalar::Text => visitor.visit_str(text),
            },
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            NodeValue::Plain(text) => match resolve(text) {
                Scalar::Bool(value) => visitor.visit_bool(value),
                Scalar::Null => visitor.visit_bool(false),
                _ => Err(Error::expected("true or false", self.node)),
            },
            _ => Err(Error::expected("true or false", self.node)),
        }
    }

    numbers! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let wrong = || Error::expected("a number", self.node);
        let text = match &self.node.value {
            NodeValue::Plain(text) | NodeValue::Quoted(text) => text,
            _ => return Err(wrong()),
        };
        #[allow(clippy::cast_precision_loss, reason = "what a double is")]
        match resolve(text) {
            Scalar::Int(value) => visitor.visit_f64(value as f64),
            Scalar::Uint(value) => visitor.visit_f64(value as f64),
            Scalar::Float(value) if value.is_finite() => visitor.visit_f64(value),
            Scalar::Null if matches!(self.node.value, NodeValue::Plain(_)) => visitor.visit_f64(0.0),
            _ => Err(wrong()),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            NodeValue::Quoted(text) => visitor.visit_str(text),
            NodeValue::Plain(text) => match resolve(text) {
                Scalar::Text => visitor.visit_str(text),
                Scalar::Null => visitor.visit_str(""),
                _ => {
                    let hint = Some(format!("put it in quotes: {:?}", shorten(text)));
                    Err(Error { hint, ..Error::expected("a text", self.node) })
                }
            },
            _ => Err(Error::expected("a text", self.node)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !matches!(self.node.value, NodeValue::Sequence(_)) && !self.node.is_null() {
            return Err(Error::expected("a list", self.node));
        }
        visitor.visit_seq(Items { items: self.node.items(), next: 0, context: self.context })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !matches!(self.node.value, NodeValue::Mapping(_)) && !self.node.is_null() {
            return Err(Error::expected("an object with fields", self.node));
        }
        let entries = self.node.entries();
        visitor.visit_map(Fields { entries, value: None, fields: None, context: self.context })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if !matches!(self.node.value, NodeValue::Mapping(_)) && !self.node.is_null() {
            return Err(Error::expected("an object with fields", self.node));
        }
        let entries = self.node.entries();
        visitor.visit_map(Fields { entries, value: None, fields: Some(fields), context: self.context })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            // A oneof written as an object: `{exact: /a}`; `{}` is the variant without a name.
            NodeValue::Mapping(entries) if variants.contains(&"") => {
                let set = entries.iter().filter(|entry| !entry.value.is_null());
                let (known, unknown): (Vec<&Entry>, Vec<&Entry>) =
                    set.partition(|entry| variants.contains(&&*entry.key));
                for entry in unknown {
                    let part = if known.is_empty() { UnknownPart::Choice } else { UnknownPart::Field };
                    self.context.unknown_field(entry, variants, part);
                }
                match *known {
                    [] => visitor.visit_enum("".into_deserializer()),
                    [entry] => visitor.visit_enum(OneOf { entry, context: self.context }),
                    _ => Err(Error::new(format!("only one of {} may be set", listed(variants)))),
                }
            }
            _ if variants.contains(&"") => {
                Err(Error::expected(&format!("an object with one of {}", listed(variants)), self.node))
            }
            NodeValue::Plain(text) | NodeValue::Quoted(text) => {
                if variants.contains(&&**text) {
                    return visitor.visit_enum((**text).into_deserializer());
                }
                self.context.unknown_value(text, variants);
                visitor.visit_enum(variants.first().copied().unwrap_or_default().into_deserializer())
            }
            _ => Err(Error::expected(&format!("one of {}", listed(variants)), self.node)),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

fn listed(variants: &[&str]) -> String {
    variants.iter().copied().filter(|variant| !variant.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The items of a list.
struct Items<'a> {
    items: &'a [Node],
    next: usize,
    context: &'a Context,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(item) = self.items.get(self.next) else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        self.context.part(Segment::Index(index), item, seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len().saturating_sub(self.next))
    }
}

/// The entries of an object, or of a struct if its fields are known.
struct Fields<'a> {
    entries: &'a [Entry],
    value: Option<&'a Entry>,
    fields: Option<&'static [&'static str]>,
    context: &'a Context,
}

impl<'de> de::MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        while let [entry, rest @ ..] = self.entries {
            self.entries = rest;
            self.value = Some(entry);
            let Some(fields) = self.fields else {
                let key = Key { text: &entry.key };
                return seed.deserialize(key).map(Some);
            };
            // As in proto JSON and Kubernetes, `null` counts as absent.
            let known = fields.iter().copied().find(|field| **field == *entry.key);
            let known = match self.context.mode {
                Mode::Mesh => known.or_else(|| camel_case(&entry.key, fields.iter().copied())),
                Mode::Complete | Mode::Object | Mode::Partial => known,
            };
            match known {
                Some(_) if entry.value.is_null() => {}
                Some(field) => return seed.deserialize(Key { text: field }).map(Some),
                None if self.context.mode == Mode::Partial => {}
                None if self.context.is_around_spec(&entry.key) => {}
                None => self.context.unknown_field(entry, fields, UnknownPart::Field),
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some(entry) = self.value.take() else { return Err(Error::new("a value without a key")) };
        let segment = if self.fields.is_some() { Segment::Field } else { Segment::Key };
        self.context.part(segment(entry.key.clone()), &entry.value, seed)
    }
}

/// Returns the field whose proto name was written: `trustDomain` for `trust_domain`.
fn camel_case(written: &str, mut fields: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let mut camel = String::with_capacity(written.len());
    let mut upper = false;
    for c in written.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                camel.extend(c.to_uppercase());
                upper = false;
            }
            c => camel.push(c),
        }
    }
    fields.find(|field| **field == *camel)
}

/// A key of an object: text, or a number in maps by number.
struct Key<'a> {
    text: &'a str,
}

macro_rules! number_keys {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let wrong = |_| Error::new(format!("key {:?} is not a whole number", shorten(self.text)));
            visitor.$visit(self.text.parse::<$type>().map_err(wrong)?)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Key<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.text)
    }

    number_keys! {
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i128 u8 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The one field that is set of a oneof.
struct OneOf<'a> {
    entry: &'a Entry,
    context: &'a Context,
}

impl<'a, 'de> de::EnumAccess<'de> for OneOf<'a> {
    type Error = Error;
    type Variant = OneOfValue<'a>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, OneOfValue<'a>), Error> {
        let variant = seed.deserialize(Key { text: &self.entry.key })?;
        Ok((variant, OneOfValue { entry: self.entry, context: self.context }))
    }
}

struct OneOfValue<'a> {
    entry: &'a Entry,
    context: &'a Context,
}

impl<'de> de::VariantAccess<'de> for OneOfValue<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        self.context.part(Segment::Field(self.entry.key.clone()), &self.entry.value, seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(Error::expected("a single value", &self.entry.value))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Error> {
        Err(Error::expected("a single value", &self.entry.value))
    }
}
