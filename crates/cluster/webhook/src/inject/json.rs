//! JSON values with ordered fields, so that a changed document keeps its order.

use indexmap::IndexMap;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;
use std::fmt;

/// A value of JSON or YAML.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Json>),
    /// Fields in their written order.
    Map(Fields),
}

pub type Fields = IndexMap<String, Json>;

impl Json {
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Self> {
        match self {
            Self::Map(fields) => fields.get(field),
            _ => None,
        }
    }

    /// Field at a path.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |value, field| value.get(field))
    }

    pub(crate) fn at_mut(&mut self, path: &[&str]) -> Option<&mut Self> {
        path.iter().try_fold(self, |value, field| match value {
            Self::Map(fields) => fields.get_mut(*field),
            _ => None,
        })
    }

    /// The string, if the value is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Items of a list; empty for other values.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// String field; empty if it is missing.
    pub(crate) fn word(&self, field: &str) -> &str {
        self.get(field).and_then(Self::text).unwrap_or_default()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Map(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        Json::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Number::from_f64(value).map(Json::Number).ok_or_else(|| E::custom("a number that JSON does not have"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut fields = Fields::new();
        while let Some((name, value)) = map.next_entry::<String, Json>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the field {name:?} is there twice")));
            }
            fields.insert(name, value);
        }
        Ok(Json::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_texts_stay_texts() {
        let text = "z: 1\na: \"1.10\"\nm:\n  b: \"on\"\n  a: ~\n  e: \"1e3\"\n  n: \"null\"\n  t: true\n  f: 0.5\n  l: [\"~\", \"\", -7]\n";
        let options = serde_saphyr::options! { strict_booleans: true };
        let value: Json = serde_saphyr::from_str_with_options(text, options).unwrap();
        let json = r#"{"z":1,"a":"1.10","m":{"b":"on","a":null,"e":"1e3","n":"null","t":true,"f":0.5,"l":["~","",-7]}}"#;
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        let printed = serde_saphyr::to_string(&value).unwrap();
        let options = serde_saphyr::options! { strict_booleans: true };
        let again: Json = serde_saphyr::from_str_with_options(&printed, options).unwrap();
        assert_eq!(again, value, "{printed}");
        assert!(serde_json::from_str::<Json>(r#"{"a":1,"a":2}"#).is_err());
    }
}
