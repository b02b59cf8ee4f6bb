//! What one proxy was sent.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A kind of resources, in the words of people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// CDS.
    Clusters,
    /// EDS.
    Endpoints,
    /// LDS.
    Listeners,
    /// RDS.
    Routes,
    /// SDS; the content of private keys is never shown.
    Secrets,
    /// ECDS.
    Extensions,
    /// Istio's name table.
    Names,
}

impl Section {
    /// All of them, in the order in which they are sent.
    pub const ALL: [Self; 7] = [
        Self::Clusters,
        Self::Endpoints,
        Self::Secrets,
        Self::Extensions,
        Self::Listeners,
        Self::Routes,
        Self::Names,
    ];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Endpoints => "endpoints",
            Self::Listeners => "listeners",
            Self::Routes => "routes",
            Self::Secrets => "secrets",
            Self::Extensions => "extensions",
            Self::Names => "names",
        }
    }

    /// The section of a word, in the singular or the plural, or by Envoy's abbreviation.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        let abbreviation = |section: Self| match section {
            Self::Clusters => "cds",
            Self::Endpoints => "eds",
            Self::Listeners => "lds",
            Self::Routes => "rds",
            Self::Secrets => "sds",
            Self::Extensions => "ecds",
            Self::Names => "nds",
        };
        Self::ALL.into_iter().find(|section| {
            section.as_str() == word
                || section.as_str().strip_suffix('s') == Some(word.as_str())
                || abbreviation(*section) == word
        })
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one proxy was sent: `/api/v1/proxies/NAME/config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfig {
    /// The proxy.
    pub proxy: String,
    /// The revision in force.
    pub revision: u64,
    /// The resources, by section and name.
    pub resources: Vec<ConfigResource>,
    /// How many there are altogether, behind the filters.
    pub total: usize,
    /// Whether the rest is left out because it would be too much.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigResource {
    /// Its kind.
    pub section: Section,
    /// Its name.
    pub name: String,
    /// The hash of its content, as it is on the wire.
    pub version: String,
    /// The objects that made it.
    pub made_by: Vec<super::ObjectName>,
    /// What is left out of it, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The resource in the field names of Envoy's API; `null` where only names were asked for.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub resource: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_words_in_singular_plural_and_envoys_own() {
        for (word, section) in
            [("cluster", Section::Clusters), ("Routes", Section::Routes), ("eds", Section::Endpoints)]
        {
            assert_eq!(Section::parse(word), Some(section));
        }
        assert_eq!(Section::parse("things"), None);
        assert!(Section::ALL.iter().all(|section| Section::parse(section.as_str()) == Some(*section)));
    }
}
