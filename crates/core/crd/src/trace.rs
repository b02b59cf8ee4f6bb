//! Shapes of types, traced by deserializing them from generated values.
//!
//! A type's `Deserialize` requests the form of each value: an integer here, one of these names there. The
//! tracer records the requests and returns any value of that form. So the shape is exactly the form that the
//! reader accepts, without a second declaration. Each pass sets one field of a oneof.

use serde::de::value::Error;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, Visitor};
use std::cell::Cell;

/// Form of the data that a type deserializes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Shape {
    /// No deserializer method was called yet.
    #[default]
    Unknown,
    Any,
    Bool,
    /// A whole number of this range.
    Integer(i128, i128),
    Number,
    Text,
    /// A type with its own parser for strings or numbers, by name.
    Special(&'static str),
    List(Box<Shape>),
    /// An object with arbitrary keys.
    Map(Box<Shape>),
    /// An object with a fixed set of fields.
    Fields(Vec<(&'static str, Shape)>),
    /// A string out of a fixed set.
    Names(&'static [&'static str]),
    /// An object with at most one of several fields.
    OneOf(Vec<(&'static str, Shape)>),
}

/// Maximum number of fields in a oneof, and so of passes over a type.
const MOST_PASSES: usize = 64;

/// Traces the shape of `T`.
///
/// # Errors
/// If the type requests a form that no kind uses: a mistake in `T`, not in an input.
pub(crate) fn trace<T: DeserializeOwned>() -> Result<Shape, Error> {
    let mut shape = Shape::Unknown;
    for _ in 0..MOST_PASSES {
        let more = Cell::new(false);
        T::deserialize(Tracer { shape: &mut shape, more: &more })?;
        if !more.get() {
            return Ok(shape);
        }
    }
    Err(Error::custom("a oneof has too many fields"))
}

/// Deserializer of one value, which records the requested shape.
struct Tracer<'a> {
    shape: &'a mut Shape,
    /// True while a oneof has fields that no pass has set.
    more: &'a Cell<bool>,
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            *self.shape = Shape::Integer(<$type>::MIN.into(), <$type>::MAX.into());
            visitor.$visit(1)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    integers! {
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.shape = Shape::Any;
        visitor.visit_unit()
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.shape = Shape::Bool;
        visitor.visit_bool(false)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.shape = Shape::Number;
        visitor.visit_f64(1.0)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.shape = Shape::Text;
        visitor.visit_str("")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    /// Types with their own parser request it by their name.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.shape = Shape::Special(name);
        visitor.visit_newtype_struct(IntoDeserializer::<Error>::into_deserializer(sample(name)))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !matches!(self.shape, Shape::List(_)) {
            *self.shape = Shape::List(Box::default());
        }
        let Shape::List(item) = self.shape else { return Err(Error::custom("a list changed its shape")) };
        visitor.visit_seq(Once { shape: Some(item), more: self.more })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !matches!(self.shape, Shape::Map(_)) {
            *self.shape = Shape::Map(Box::default());
        }
        let Shape::Map(value) = self.shape else { return Err(Error::custom("a map changed its shape")) };
        visitor.visit_map(Once { shape: Some(value), more: self.more })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if !matches!(self.shape, Shape::Fields(_)) {
            *self.shape = Shape::Fields(fields.iter().map(|field| (*field, Shape::Unknown)).collect());
        }
        let Shape::Fields(fields) = self.shape else { return Err(Error::custom("a type changed its shape")) };
        let value = visitor.visit_map(Fields { fields: fields.iter_mut(), value: None, more: self.more })?;
        for index in 0..fields.len() {
            let of = fields.get(index).and_then(|(name, _)| alias_of(name, fields)).cloned();
            if let (Some(shape), Some(alias)) = (of, fields.get_mut(index)) {
                alias.1 = shape;
            }
        }
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if !variants.contains(&"") {
            *self.shape = Shape::Names(variants);
            let first = *variants.first().ok_or_else(|| Error::custom("an enum has no names"))?;
            return visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(first));
        }
        if !matches!(self.shape, Shape::OneOf(_)) {
            let named = variants.iter().filter(|variant| !variant.is_empty());
            *self.shape = Shape::OneOf(named.map(|variant| (*variant, Shape::Unknown)).collect());
        }
        let Shape::OneOf(fields) = self.shape else { return Err(Error::custom("an enum changed its shape")) };
        let mut unknown = fields.iter().enumerate().filter(|(_, (_, shape))| *shape == Shape::Unknown);
        let next = unknown.next().map_or(0, |(index, _)| index);
        if unknown.next().is_some() {
            self.more.set(true);
        }
        let field = fields.get_mut(next).ok_or_else(|| Error::custom("a oneof has no fields"))?;
        visitor.visit_enum(Variant { name: field.0, shape: &mut field.1, more: self.more })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i128 u8 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// Shape of the field of which `name` is an alias: `jwks_uri` of `jwksUri`.
fn alias_of<'a>(name: &str, fields: &'a [(&'static str, Shape)]) -> Option<&'a Shape> {
    if !is_alias(name) {
        return None;
    }
    let camel_case = name.replace('_', "");
    let mut named = fields.iter().filter(|(field, _)| !is_alias(field));
    named.find(|(field, _)| field.eq_ignore_ascii_case(&camel_case)).map(|(_, shape)| shape)
}

/// True if the field has a proto name, which is always an alias, or is the one name with two spellings.
fn is_alias(name: &str) -> bool {
    name.contains('_') || name == "meshMtls"
}

/// Valid string for a type with its own parser.
fn sample(name: &str) -> &'static str {
    if name == "Duration" { "0" } else { "" }
}

/// List with one item, or map with one entry.
struct Once<'a> {
    shape: Option<&'a mut Shape>,
    more: &'a Cell<bool>,
}

impl<'de> de::SeqAccess<'de> for Once<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let more = self.more;
        self.shape.take().map(|shape| seed.deserialize(Tracer { shape, more })).transpose()
    }
}

impl<'de> de::MapAccess<'de> for Once<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        // The kind of key has no place in a schema.
        let mut ignored = Shape::Unknown;
        let tracer = Tracer { shape: &mut ignored, more: self.more };
        if self.shape.is_some() { seed.deserialize(tracer).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let shape = self.shape.take().ok_or_else(|| Error::custom("a value without a key"))?;
        seed.deserialize(Tracer { shape, more: self.more })
    }
}

/// Fields of a type, in their order.
struct Fields<'a> {
    fields: std::slice::IterMut<'a, (&'static str, Shape)>,
    value: Option<&'a mut Shape>,
    more: &'a Cell<bool>,
}

impl<'de> de::MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        // A field may be read once, so not by its alias as well.
        let Some((name, shape)) = self.fields.find(|(name, _)| !is_alias(name)) else { return Ok(None) };
        self.value = Some(shape);
        let name: de::value::StrDeserializer<'_, Error> = (*name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let shape = self.value.take().ok_or_else(|| Error::custom("a value without a field"))?;
        seed.deserialize(Tracer { shape, more: self.more })
    }
}

/// The field of a oneof that is set.
struct Variant<'a> {
    name: &'static str,
    shape: &'a mut Shape,
    more: &'a Cell<bool>,
}

impl<'a, 'de> de::EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = Tracer<'a>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Tracer<'a>), Error> {
        let name: de::value::StrDeserializer<'_, Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, Tracer { shape: self.shape, more: self.more }))
    }
}

impl<'de> de::VariantAccess<'de> for Tracer<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Err(Error::custom("a field of a oneof without a value"))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("a field of a oneof with several values"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Error> {
        Err(Error::custom("a field of a oneof with several values"))
    }
}
