//! Types that several API groups share: durations, string matches, selectors.
#![allow(
    missing_docs,
    reason = "fields carry the names and the meaning of Istio's and Kubernetes' API references"
)]

use crate::kinds::message::{enumeration, message};
use crate::yaml::shorten;
use pilotfish_duration::DurationError;
use pilotfish_model::LabelMap;
use serde::de::{self, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Field of the API that is not read. It is known, so it is not reported as unknown, and takes no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread;

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl Serialize for Unread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

/// A duration as proto JSON and Go write it: `5s`, `1.5s`, `100ms`, `1h30m`. Never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub std::time::Duration);

impl Duration {
    pub const ZERO: Self = Self(std::time::Duration::ZERO);

    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }

    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(std::time::Duration::from_millis(millis))
    }

    /// Reads the form of Go's `time.ParseDuration`: numbers with the units `h`, `m`, `s`, `ms`, `us`, `ns`.
    ///
    /// # Errors
    /// If it is none, with the text, in one sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        pilotfish_duration::parse(text).map(Self).map_err(|error| {
            let written = shorten(text);
            match error {
                DurationError::Syntax => {
                    format!("{written:?} is not a duration, write it like 5s, 1.5s, 100ms or 1h30m")
                }
                DurationError::Negative => format!("duration {written:?} is negative"),
                DurationError::Zero | DurationError::TooLong => format!("duration {written:?} is {error}"),
            }
        })
    }
}

impl fmt::Display for Duration {
    /// Seconds, as proto JSON writes them: `1.5s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs())?;
        let nanos = self.0.subsec_nanos();
        if nanos > 0 {
            write!(f, ".{}", format!("{nanos:09}").trim_end_matches('0'))?;
        }
        f.write_str("s")
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

impl Serialize for Duration {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Duration;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration like 5s or 100ms")
            }
            fn visit_newtype_struct<D: de::Deserializer<'de>>(self, inner: D) -> Result<Duration, D::Error> {
                inner.deserialize_str(self)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                Duration::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_newtype_struct("Duration", Text)
    }
}

/// Bytes, written as base64.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Base64(pub Vec<u8>);

impl fmt::Debug for Base64 {
    /// Length only, since the content may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Base64({} bytes)", self.0.len())
    }
}

impl Serialize for Base64 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::Engine as _;
        serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Base64;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64 text")
            }
            fn visit_newtype_struct<D: de::Deserializer<'de>>(self, inner: D) -> Result<Base64, D::Error> {
                inner.deserialize_str(self)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Base64, E> {
                use base64::Engine as _;
                let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
                let bytes = base64::engine::general_purpose::STANDARD.decode(compact);
                bytes.map(Base64).map_err(|error| E::custom(format!("not base64: {error}")))
            }
        }
        deserializer.deserialize_newtype_struct("Base64", Text)
    }
}

/// Match on a string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StringMatch {
    /// Written as `{}`. For headers it matches if the header is present; elsewhere there is no condition.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// Equality with the whole text.
    Exact(String),
    Prefix(String),
    /// RE2 expression that must match the whole text.
    Regex(String),
}

/// An integer or a text: the number or the name of a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

impl Serialize for IntOrString {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(number) => serializer.serialize_i32(*number),
            Self::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = IntOrString;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a text")
            }
            fn visit_newtype_struct<D: de::Deserializer<'de>>(
                self,
                inner: D,
            ) -> Result<IntOrString, D::Error> {
                inner.deserialize_any(self)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<IntOrString, E> {
                i32::try_from(number)
                    .map(IntOrString::Int)
                    .map_err(|_| E::custom(format!("{number} is out of range")))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<IntOrString, E> {
                i32::try_from(number)
                    .map(IntOrString::Int)
                    .map_err(|_| E::custom(format!("{number} is out of range")))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(text.to_owned()))
            }
        }
        deserializer.deserialize_newtype_struct("IntOrString", Either)
    }
}

message! {
/// Labels that a workload must have. Empty matches every workload.
pub struct WorkloadSelector {
    pub match_labels: BTreeMap<String, String>,
}

/// The object that a policy is attached to.
pub struct PolicyTargetReference {
    pub group: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

/// Kubernetes' label selector. Every label and every expression must hold; empty matches everything.
pub struct LabelSelector {
    pub match_labels: BTreeMap<String, String>,
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One expression of a label selector.
pub struct LabelSelectorRequirement {
    pub key: String,
    pub operator: LabelSelectorOperator,
    pub values: Vec<String>,
}
}

/// Operator of a [`LabelSelectorRequirement`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum LabelSelectorOperator {
    #[default]
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// True if the labels satisfy every label and expression of the selector.
    #[must_use]
    pub fn matches(&self, labels: &LabelMap) -> bool {
        pilotfish_model::label_subset(&self.match_labels, labels)
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

/// Label with the namespace's name, which the API server sets on every namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// True if a namespace takes part in the mesh: one of the mesh's `discoverySelectors` must match.
/// Without any, all do.
#[must_use]
pub fn takes_part(selectors: &[LabelSelector], namespace: &str, labels: Option<&LabelMap>) -> bool {
    if selectors.is_empty() {
        return true;
    }
    let name: LabelMap = [(NAMESPACE_NAME, namespace)].into_iter().collect();
    let own = labels.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
    let labels = name.with(own);
    selectors.iter().any(|selector| selector.matches(&labels))
}

impl LabelSelectorRequirement {
    fn matches(&self, labels: &LabelMap) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            LabelSelectorOperator::In => {
                value.is_some_and(|value| self.values.iter().any(|listed| listed == value))
            }
            LabelSelectorOperator::NotIn => {
                value.is_none_or(|value| !self.values.iter().any(|listed| listed == value))
            }
            LabelSelectorOperator::Exists => value.is_some(),
            LabelSelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

enumeration! {
/// The role of a workload in some traffic.
pub enum WorkloadMode {
    #[default]
    Undefined,
    Client,
    Server,
    ClientAndServer,
}
}
