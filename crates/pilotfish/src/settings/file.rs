//! The settings file: one flat YAML mapping for all groups.

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum similarity, 0 to 1, of a misspelt name to a known one.
const ALIKE: f64 = 0.75;

/// A settings file, from which groups take their part.
pub(super) struct SettingsFile<'a> {
    text: &'a str,
    keys: BTreeSet<String>,
    known: BTreeSet<String>,
    errors: Vec<String>,
}

impl<'a> SettingsFile<'a> {
    /// # Errors
    /// When the text is no mapping in YAML.
    pub(super) fn read(text: &'a str) -> Result<Self, Vec<String>> {
        // An empty file is null.
        let map: Option<BTreeMap<String, IgnoredAny>> =
            serde_saphyr::from_str(text).map_err(|error| vec![error.to_string()])?;
        let keys = map.unwrap_or_default().into_keys().collect();
        Ok(Self { text, keys, known: BTreeSet::new(), errors: Vec::new() })
    }

    /// Notes the names of a group's settings.
    pub(super) fn knows<T: Serialize + Default>(&mut self) {
        if let Ok(Value::Object(fields)) = serde_json::to_value(T::default()) {
            self.known.extend(fields.into_iter().map(|(name, _)| name));
        }
    }

    /// Completes a group by what the file has and was not given otherwise.
    pub(super) fn complete<T: Serialize + DeserializeOwned>(&mut self, given: T) -> T {
        let merged = self.merge(&given);
        merged.unwrap_or_else(|error| {
            self.errors.push(error);
            given
        })
    }

    fn merge<T: Serialize + DeserializeOwned>(&self, given: &T) -> Result<T, String> {
        // Each group reads the text itself: so a number or a version stays the text that was written.
        let file: Option<T> = serde_saphyr::from_str(self.text).map_err(|error| error.to_string())?;
        let mut fields = serde_json::to_value(file).map_err(|error| error.to_string())?;
        let given = serde_json::to_value(given).map_err(|error| error.to_string())?;
        match (&mut fields, given) {
            (Value::Object(fields), Value::Object(given)) => {
                fields.extend(given.into_iter().filter(|(_, value)| is_given(value)));
            }
            (fields, given) => *fields = given,
        }
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    /// # Errors
    /// When the file has names that no group knows, or values of a wrong type.
    pub(super) fn finish(mut self) -> Result<(), Vec<String>> {
        for name in self.keys.difference(&self.known) {
            self.errors.push(match nearest(name, &self.known) {
                Some(meant) => format!("no setting {name:?} (did you mean {meant:?}?)"),
                None => format!("no setting {name:?} (the names are those of flags, as in xdsAddress)"),
            });
        }
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors) }
    }
}

/// True if a value differs from that of a setting that was not given.
fn is_given(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// The known name that was likely meant.
fn nearest<'k>(name: &str, known: &'k BTreeSet<String>) -> Option<&'k str> {
    let flat = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let name = flat(name);
    let alike = known.iter().map(|known| (strsim::jaro_winkler(&name, &flat(known)), known.as_str()));
    let best = alike.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(score, _)| *score >= ALIKE).map(|(_, known)| known)
}
