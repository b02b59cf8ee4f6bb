//! Fields of JSON objects as Consul reads them: names in any case, with or without underscores.

use pilotfish_registration_server::Failure;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Fields of an object, by their names in lower case without underscores.
pub(crate) struct Fields {
    /// Place of the object for errors; empty for the body.
    place: String,
    values: BTreeMap<String, Value>,
}

impl Fields {
    /// Reads the fields of a body.
    pub(crate) fn of_body(body: &[u8]) -> Result<Self, Failure> {
        let value = serde_json::from_slice(body)
            .map_err(|error| Failure::invalid(format!("the body is no JSON: {error}")))?;
        Self::of(value, String::new())
    }

    /// Reads the fields of a value at a place.
    pub(crate) fn of(value: Value, place: String) -> Result<Self, Failure> {
        let Value::Object(object) = value else {
            let place = if place.is_empty() { "the body" } else { &place };
            return Err(Failure::invalid(format!("{place}: it is no object")));
        };
        let values = object.into_iter().filter(|(_, value)| !value.is_null());
        Ok(Self { place, values: values.map(|(name, value)| (normal(&name), value)).collect() })
    }

    /// Removes the field of this name, in any of its spellings.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.values.remove(&normal(name))
    }

    /// Removes a text; empty if it is absent.
    pub(crate) fn text(&mut self, name: &str) -> Result<String, Failure> {
        match self.take(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(self.wrong(name, "it is no text")),
        }
    }

    /// Removes a number from 0 to `most`.
    pub(crate) fn number(&mut self, name: &str, most: u32) -> Result<Option<u32>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| *number <= most) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, &format!("{value} is no number from 0 to {most}"))),
        }
    }

    /// Removes a flag; false if it is absent.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(self.wrong(name, "it is neither true nor false")),
        }
    }

    /// Removes a duration such as `10s`, or a number of nanoseconds.
    pub(crate) fn duration(&mut self, name: &str) -> Result<Option<Duration>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => match pilotfish_duration::parse(&text) {
                Ok(duration) => Ok(Some(duration)),
                Err(error) => Err(self.wrong(name, &format!("{text:?}: {error}"))),
            },
            Some(value) => match value.as_u64() {
                Some(nanos) => Ok(Some(Duration::from_nanos(nanos))),
                None => Err(self.wrong(name, "it is no duration")),
            },
        }
    }

    /// Removes a list of texts; empty if it is absent.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>, Failure> {
        let items = self.list(name)?;
        let text = |item| match item {
            Value::String(text) => Ok(text),
            _ => Err(self.wrong(name, "an item is no text")),
        };
        items.into_iter().map(text).collect()
    }

    /// Removes a list; empty if it is absent.
    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<Value>, Failure> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(self.wrong(name, "it is no list")),
        }
    }

    /// Removes an object with keys of the client's own; empty if it is absent.
    pub(crate) fn map(&mut self, name: &str) -> Result<Map<String, Value>, Failure> {
        match self.take(name) {
            None => Ok(Map::new()),
            Some(Value::Object(map)) => Ok(map),
            Some(_) => Err(self.wrong(name, "it is no object")),
        }
    }

    /// Removes an object of texts with keys of the client's own; empty if it is absent.
    pub(crate) fn text_map(&mut self, name: &str) -> Result<BTreeMap<String, String>, Failure> {
        let entries = self.map(name)?;
        let text = |(key, value): (String, Value)| match value {
            Value::String(text) => Ok((key, text)),
            _ => Err(self.wrong(&format!("{name}[{key:?}]"), "it is no text")),
        };
        entries.into_iter().map(text).collect()
    }

    /// Removes an object of a fixed form.
    pub(crate) fn nested(&mut self, name: &str) -> Result<Option<Self>, Failure> {
        let place = self.place_of(name);
        self.take(name).map(|value| Self::of(value, place)).transpose()
    }

    /// Refuses a field whose value is neither absent nor empty.
    pub(crate) fn refuse(&mut self, name: &str, reason: &str) -> Result<(), Failure> {
        let is_empty = match self.take(name) {
            None | Some(Value::Bool(false)) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(value) => value.as_u64() == Some(0),
        };
        if is_empty { Ok(()) } else { Err(self.wrong(name, reason)) }
    }

    /// Error of a field.
    pub(crate) fn wrong(&self, name: &str, message: &str) -> Failure {
        Failure::invalid(format!("{}: {message}", self.place_of(name)))
    }

    /// Returns the place of a field.
    pub(crate) fn place_of(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }
}

fn normal(name: &str) -> String {
    name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_case() {
        let body = br#"{"Name":"a","enable_tag_override":true,"PORT":80,"tags":["x"],"meta":null,
            "ttl":"1m30s","interval":1000000,"Check":{"TTL":5}}"#;
        let mut fields = Fields::of_body(body).unwrap();
        assert_eq!(fields.text("Name").unwrap(), "a");
        assert!(fields.flag("EnableTagOverride").unwrap());
        assert_eq!(fields.number("Port", 65_535).unwrap(), Some(80));
        assert_eq!(fields.texts("Tags").unwrap(), ["x"]);
        assert!(fields.map("Meta").unwrap().is_empty());
        assert_eq!(fields.duration("TTL").unwrap(), Some(Duration::from_secs(90)));
        assert_eq!(fields.duration("Interval").unwrap(), Some(Duration::from_millis(1)));
        assert_eq!(fields.duration("Timeout").unwrap(), None);
        assert_eq!(fields.nested("Check").unwrap().unwrap().place_of("TTL"), "Check.TTL");
    }

    #[test]
    fn wrong_fields_are_named() {
        type Read = fn(&mut Fields) -> Result<(), Failure>;
        let cases: [(&str, Read, &str); 8] = [
            (r#"{"Name":1}"#, |fields| fields.text("Name").map(drop), "Name: it is no text"),
            (
                r#"{"Port":70000}"#,
                |fields| fields.number("Port", 65_535).map(drop),
                "Port: 70000 is no number",
            ),
            (r#"{"Port":-1}"#, |fields| fields.number("Port", 65_535).map(drop), "Port: -1 is no number"),
            (r#"{"TTL":"soon"}"#, |fields| fields.duration("TTL").map(drop), "TTL: \"soon\": not a duration"),
            (r#"{"Tags":"a"}"#, |fields| fields.texts("Tags").map(drop), "Tags: it is no list"),
            (r#"{"Tags":[1]}"#, |fields| fields.texts("Tags").map(drop), "Tags: an item is no text"),
            (r#"{"Check":[]}"#, |fields| fields.nested("Check").map(drop), "Check: it is no object"),
            (r#"{"Kind":"x"}"#, |fields| fields.refuse("Kind", "not served"), "Kind: not served"),
        ];
        for (body, read, expected) in cases {
            let error = read(&mut Fields::of_body(body.as_bytes()).unwrap()).unwrap_err();
            assert!(error.message().starts_with(expected), "{body}: {error:?}");
        }
        for (body, expected) in [("[]", "the body: it is no object"), ("{", "the body is no JSON: EOF")] {
            let error = Fields::of_body(body.as_bytes()).err().unwrap();
            assert!(error.message().starts_with(expected), "{body}: {error:?}");
        }
        let nothing = r#"{"Kind":"","Proxy":{},"Args":[],"Count":0,"Use":false}"#;
        let mut fields = Fields::of_body(nothing.as_bytes()).unwrap();
        for name in ["Kind", "Proxy", "Args", "Count", "Use", "Absent"] {
            assert!(fields.refuse(name, "not served").is_ok(), "{name}");
        }
    }
}
