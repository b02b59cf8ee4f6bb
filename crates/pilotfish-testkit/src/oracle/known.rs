//! The list of known differences: what it says.

use crate::compare::Difference;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// How what Pilotfish sends was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The case's files, read in this process.
    Files,
    /// The case's files, read by the executable and asked over ADS.
    Wire,
    /// A real API server with the case's objects.
    Live,
}

/// The list of known differences. A difference is in it once.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Differences on purpose.
    #[serde(default)]
    pub(super) kept: Vec<Entry>,
    /// Differences that are to be mended.
    #[serde(default)]
    pub(super) open: Vec<Entry>,
    /// Objects that istiod, which the recordings ran without its webhook, reads and that are refused here.
    #[serde(default)]
    pub(super) refused: Vec<Refused>,
}

/// Differences with one reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) reason: String,
    /// Where they show; everywhere when empty.
    #[serde(default)]
    pub(super) only: BTreeSet<Way>,
    /// By `CASE/PROXY`.
    pub(super) differs: BTreeMap<String, Resources>,
}

/// By kind and name, as `listeners 0.0.0.0_443`.
pub(super) type Resources = BTreeMap<String, Resource>;

/// How a resource differs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Resource {
    /// `missing`, or `extra` with the digest of what is sent.
    Whole(String),
    /// By field: all of them.
    Fields(BTreeMap<String, Sides>),
}

/// A field on both sides; absent for a side that does not have it. Long values are digests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sides {
    pub(super) istiod: Option<Value>,
    pub(super) pilotfish: Option<Value>,
}

/// An object of a case that is refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refused {
    pub(super) case: String,
    /// As `Secret edge/web: data.tls.crt`.
    pub(super) object: String,
    pub(super) reason: String,
}

/// What is written where somebody has to give the reason.
pub(super) const UNEXPLAINED: &str = "TO BE EXPLAINED";

/// Where a difference is: `CASE/PROXY`, kind and name, and the field, empty for the whole resource.
pub(super) type Key = (String, String, String);

/// The difference as the list writes it.
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

/// The value, or what it is and a digest if it is long.
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
    /// When it cannot be read, or has a difference twice.
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

    /// Every difference that shows this way.
    pub(super) fn listed(&self, way: Way) -> Vec<(Key, State)> {
        self.entries().filter(|entry| entry.shows(way)).flat_map(Entry::listed).collect()
    }

    /// Whether the list has this difference, with these values.
    #[must_use]
    pub fn has(&self, place: &str, difference: &Difference, way: Way) -> bool {
        let (of, state) = (key(place.to_owned(), difference), State::of(difference));
        self.entries().filter(|entry| entry.shows(way)).any(|entry| entry.state(&of) == Some(state.clone()))
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

    /// The cases, and how many resources differ.
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
