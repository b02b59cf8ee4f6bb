//! Resources that one proxy was sent.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Kind of resources, with a readable name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    Clusters,
    Endpoints,
    Listeners,
    Routes,
    /// Resources of SDS; the content of private keys is never shown.
    Secrets,
    /// Resources of ECDS: extension configurations.
    Extensions,
    /// Name table of Istio's DNS proxy (NDS).
    Names,
}

impl Section {
    /// All sections, in the order in which they are sent.
    pub const ALL: [Self; 7] = [
        Self::Clusters,
        Self::Endpoints,
        Self::Secrets,
        Self::Extensions,
        Self::Listeners,
        Self::Routes,
        Self::Names,
    ];

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

    /// Parses a section name, in the singular or the plural, or Envoy's abbreviation.
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

/// Resources that one proxy was sent: `/api/v1/proxies/NAME/config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfig {
    pub proxy: String,
    /// World revision in force.
    pub revision: u64,
    /// Resources, by section and name.
    pub resources: Vec<ConfigResource>,
    /// Number of resources that match the filters.
    pub total: usize,
    /// True if the rest is left out because of the size.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Node of a proxy whose resources are computed without a connection: `POST /api/v1/node/config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRequest {
    /// Node as in Envoy's bootstrap: `id`, `cluster`, `metadata`, `locality`.
    pub node: Value,
    /// Number of skipped resources.
    #[serde(default)]
    pub offset: usize,
    /// Subscriptions by name. Sections without an entry are subscribed to as Envoy does: clusters and
    /// listeners as a whole, endpoints and routes by reference, extensions not at all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<Section, Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigResource {
    pub section: Section,
    pub name: String,
    /// Hash of the encoded content.
    pub version: String,
    /// Objects that it was made from.
    pub made_by: Vec<super::ObjectName>,
    /// Omitted parts of the objects, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Resource with the field names of Envoy's API; `null` if only names were requested.
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
