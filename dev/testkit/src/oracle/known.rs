//! List of known differences.

use anyhow::{Context, Result, bail};
use pilotfish_compare::Difference;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// Method by which Pilotfish's resources were obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The case's files, read in this process.
    Files,
    /// The case's files, read by the executable, and requests over ADS.
    Wire,
    /// A real API server with the case's objects.
    Live,
}

/// List of known differences, without duplicates.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Intended differences.
    #[serde(default)]
    pub(super) kept: Vec<Entry>,
    /// Differences that should be fixed.
    #[serde(default)]
    pub(super) open: Vec<Entry>,
    /// Objects that istiod accepts, whose recordings were made without its webhook, and that Pilotfish
    /// refuses.
    #[serde(default)]
    pub(super) refused: Vec<Refused>,
}

/// Differences with one reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) reason: String,
    /// Methods by which they appear; all if empty.
    #[serde(default)]
    pub(super) only: BTreeSet<Way>,
    /// Evidence for the same difference in other meshes (`pilotfish compare`).
    #[serde(default)]
    pub(super) signs: Vec<String>,
    /// Differing resources by `CASE/PROXY`.
    pub(super) differs: BTreeMap<String, Resources>,
}

/// Resources by kind and name, such as `listeners 0.0.0.0_443`.
pub(super) type Resources = BTreeMap<String, Resource>;

/// Difference of a resource.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Resource {
    /// `missing`, or `extra` with the digest of the actual resource.
    Whole(String),
    /// All differing fields.
    Fields(BTreeMap<String, Sides>),
}

/// A field on both sides; absent if a side does not have it. Long values are digests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sides {
    pub(super) istiod: Option<Value>,
    pub(super) pilotfish: Option<Value>,
}

/// A refused object of a case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refused {
    pub(super) case: String,
    /// Object and field, such as `Secret edge/web: data.tls.crt`.
    pub(super) object: String,
    pub(super) reason: String,
}

/// Placeholder for a missing reason.
pub(super) const UNEXPLAINED: &str = "TO BE EXPLAINED";

/// Location of a difference: `CASE/PROXY`, kind and name, and the field, empty for the whole resource.
pub(super) type Key = (String, String, String);

/// The difference in the form of the list.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Whole(String),
    Field(Sides),
}

impl State {
    pub(super) fn of(difference: &Difference) -> Self {
        match (&difference.want, &difference.got) {
            (Some(_), None) if difference.field.is_empty() => Self::Whole("missing".into()),
            (None, Some(got)) if difference.field.is_empty() => Self::Whole(format!("extra {}", digest(got))),
            (want, got) => Self::Field(Sides {
                istiod: want.as_ref().map(abridged),
                pilotfish: got.as_ref().map(abridged),
            }),
        }
    }
}

/// The value, or its type and a digest if it is long.
fn abridged(value: &Value) -> Value {
    let what = match value {
        Value::Null => return "null".into(),
        Value::Object(_) => "object",
        Value::Array(_) => "list",
        Value::String(text) if text.len() > 100 => "text",
        _ => return value.clone(),
    };
    format!("{what} {}", digest(value)).into()
}

fn digest(value: &Value) -> String {
    let [a, b, c, d, ..] = xxhash_rust::xxh3::xxh3_64(value.to_string().as_bytes()).to_be_bytes();
    format!("{:08x}", u32::from_be_bytes([a, b, c, d]))
}

impl Known {
    /// Reads the list.
    ///
    /// # Errors
    /// When it cannot be read, or has a duplicate.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", file.display()))
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let known: Self = serde_saphyr::from_str(text)?;
        for way in [Way::Files, Way::Wire, Way::Live] {
            let mut seen = BTreeSet::new();
            for (key, _) in known.listed(way) {
                if !seen.insert(key.clone()) {
                    bail!("{} is there twice", at(&key));
                }
            }
        }
        Ok(known)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.kept.iter().chain(&self.open)
    }

    /// All differences with this method.
    pub(super) fn listed(&self, way: Way) -> Vec<(Key, State)> {
        self.entries().filter(|entry| entry.shows(way)).flat_map(Entry::listed).collect()
    }

    /// True if the list has this difference, with these values.
    #[must_use]
    pub fn has(&self, place: &str, difference: &Difference, way: Way) -> bool {
        self.reason(place, difference, way).is_some()
    }

    /// Reason of this difference, if the list has it with these values.
    #[must_use]
    pub fn reason(&self, place: &str, difference: &Difference, way: Way) -> Option<&str> {
        let (of, state) = (key(place.to_owned(), difference), State::of(difference));
        let mut entries = self.entries().filter(|entry| entry.shows(way));
        entries.find(|entry| entry.state(&of) == Some(state.clone())).map(|entry| entry.reason.trim())
    }
}

impl Entry {
    pub(super) fn shows(&self, way: Way) -> bool {
        self.only.is_empty() || self.only.contains(&way)
    }

    fn state(&self, (place, resource, field): &Key) -> Option<State> {
        match self.differs.get(place)?.get(resource)? {
            Resource::Whole(text) if field.is_empty() => Some(State::Whole(text.clone())),
            Resource::Whole(_) => None,
            Resource::Fields(fields) => fields.get(field).cloned().map(State::Field),
        }
    }

    pub(super) fn listed(&self) -> Vec<(Key, State)> {
        let mut out = Vec::new();
        for (place, resources) in &self.differs {
            for (resource, how) in resources {
                let key = |field: &str| (place.clone(), resource.clone(), field.to_owned());
                match how {
                    Resource::Whole(text) => out.push((key(""), State::Whole(text.clone()))),
                    Resource::Fields(fields) => {
                        out.extend(fields.iter().map(|(field, it)| (key(field), State::Field(it.clone()))));
                    }
                }
            }
        }
        out
    }

    /// Cases, and number of resources that differ.
    pub(super) fn extent(&self) -> (BTreeSet<&str>, usize) {
        let cases = self.differs.keys().map(|place| case_of(place)).collect();
        (cases, self.differs.values().map(BTreeMap::len).sum())
    }
}

pub(super) fn key(place: String, difference: &Difference) -> Key {
    (place, format!("{} {}", difference.kind, difference.resource), difference.field.clone())
}

pub(super) fn at((place, resource, field): &Key) -> String {
    if field.is_empty() { format!("{place} {resource}") } else { format!("{place} {resource}: {field}") }
}

pub(super) fn case_of(place: &str) -> &str {
    place.split('/').next().unwrap_or_default()
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |value: &Option<Value>| value.as_ref().map_or("absent".into(), Value::to_string);
        match self {
            Self::Whole(text) => f.write_str(text),
            Self::Field(Sides { istiod, pilotfish }) => {
                write!(f, "istiod {}, Pilotfish {}", side(istiod), side(pilotfish))
            }
        }
    }
}
