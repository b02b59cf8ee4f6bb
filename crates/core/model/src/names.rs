//! Names that are validated once at their construction, and are cheap to copy.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// True if the name is empty, which means unset.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl From<&str> for $type {
            fn from(text: &str) -> Self {
                // The empty string is shared, since it is used in very many places.
                if text.is_empty() { Self::default() } else { Self(text.into()) }
            }
        }

        impl From<String> for $type {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<$type> for Arc<str> {
            fn from(name: $type) -> Self {
                name.0
            }
        }

        impl Default for $type {
            fn default() -> Self {
                Self(Arc::default())
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $type {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $type {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(|text| Self::from(text.as_str()))
            }
        }
    };
}

name!(
    /// A Kubernetes namespace, or its equivalent for services from elsewhere. Empty for cluster-scoped
    /// objects.
    Namespace
);
name!(
    /// Cluster id: the `CLUSTER_ID` of proxies, and part of the keys of endpoint shards.
    ClusterId
);
name!(
    /// Network as in Istio's `topology.istio.io/network`: endpoints of one network reach each other directly.
    /// Empty means unknown, which counts as the same network as any other.
    NetworkId
);

/// Host name of a service: lower-case DNS labels, possibly with a leading `*` label (`*.example.com`, `*`).
///
/// Validated once by [`Hostname::parse`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hostname(Arc<str>);

/// Reason why a text is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostnameError {
    #[error("host name is empty")]
    Empty,
    /// Longer than the 255 bytes of DNS.
    #[error("host name is longer than 255 characters")]
    TooLong,
    /// A label between dots is empty, over 63 bytes, or begins or ends with `-`.
    #[error("label {0:?} is not a DNS label (1-63 of a-z, 0-9, '-', '_', not at the ends '-')")]
    Label(String),
    /// `*` in a place other than the whole first label.
    #[error("'*' may only be the whole first label, as in *.example.com")]
    Wildcard,
}

impl Hostname {
    /// Validates a host name and converts it to lower case. One trailing dot is dropped.
    ///
    /// # Errors
    /// If the text is not a DNS name, with or without a leading `*` label.
    pub fn parse(text: &str) -> Result<Self, HostnameError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(HostnameError::Empty);
        }
        if text.len() > 255 {
            return Err(HostnameError::TooLong);
        }
        for (index, label) in text.split('.').enumerate() {
            if label == "*" && index == 0 {
                continue;
            }
            if label.contains('*') {
                return Err(HostnameError::Wildcard);
            }
            let known = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
            let ends = label.starts_with('-') || label.ends_with('-');
            if label.is_empty() || label.len() > 63 || ends || !label.bytes().all(known) {
                return Err(HostnameError::Label(label.to_owned()));
            }
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }

    /// Host name of a Kubernetes Service: `<name>.<namespace>.svc.<domain>` (spec/registry.md 2.1).
    ///
    /// # Errors
    /// If the parts do not make a DNS name.
    pub fn of_kubernetes_service(name: &str, namespace: &str, domain: &str) -> Result<Self, HostnameError> {
        Self::parse(&format!("{name}.{namespace}.svc.{domain}"))
    }

    /// Lower bound of all host names, for ranges.
    pub(crate) fn lowest() -> Self {
        Self("".into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reference to the shared text.
    #[must_use]
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }

    #[must_use]
    pub fn text(&self) -> Arc<str> {
        self.0.clone()
    }

    /// True if the first label is `*`.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with('*')
    }

    /// True if both can match a common host: equal, or one is a wildcard that covers the other.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        match (self.is_wildcard(), other.is_wildcard()) {
            (false, false) => self == other,
            (true, true) => {
                let (a, b) = (&self.0[1..], &other.0[1..]);
                a.ends_with(b) || b.ends_with(a)
            }
            (true, false) => other.0.ends_with(&self.0[1..]),
            (false, true) => self.0.ends_with(&other.0[1..]),
        }
    }

    /// True if `other` covers every host of this name: equal, or a wildcard above.
    #[must_use]
    pub fn is_subset_of(&self, other: &Self) -> bool {
        match (self.is_wildcard(), other.is_wildcard()) {
            (_, false) => self == other,
            (true, true) => self.0[1..].ends_with(&other.0[1..]),
            (false, true) => self.0.ends_with(&other.0[1..]),
        }
    }
}

impl Borrow<str> for Hostname {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Hostname {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl serde::Serialize for Hostname {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Locality of a workload: region, zone and sub-zone; any part may be empty.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Locality {
    /// Region, such as `eu-west`.
    pub region: Arc<str>,
    /// Zone, such as `eu-west-1`.
    pub zone: Arc<str>,
    /// Part of a zone, such as a rack.
    pub sub_zone: Arc<str>,
}

impl Locality {
    /// Parses `region/zone/sub_zone`, each part optional. Without a slash, dots separate the parts (labels
    /// cannot have slashes).
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let separator = if text.contains('/') { '/' } else { '.' };
        let mut parts = text.splitn(3, separator).map(Arc::from);
        let mut next = || parts.next().unwrap_or_else(|| "".into());
        Self { region: next(), zone: next(), sub_zone: next() }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty() && self.sub_zone.is_empty()
    }
}

impl fmt::Display for Locality {
    /// `region/zone/sub_zone` without empty parts at the end; nothing for an empty locality.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = format!("{}/{}/{}", self.region, self.zone, self.sub_zone);
        f.write_str(full.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).unwrap()
    }

    #[test]
    fn hostnames_are_checked_and_lower_cased() {
        assert_eq!(host("Web.Shop.svc.cluster.local.").as_str(), "web.shop.svc.cluster.local");
        assert_eq!(host("*").as_str(), "*");
        assert_eq!(Hostname::parse(""), Err(HostnameError::Empty));
        assert_eq!(Hostname::parse("a..b"), Err(HostnameError::Label(String::new())));
        assert_eq!(Hostname::parse("a.*.b"), Err(HostnameError::Wildcard));
        assert_eq!(Hostname::parse("a b"), Err(HostnameError::Label("a b".into())));
        assert_eq!(Hostname::parse(&"a".repeat(300)), Err(HostnameError::TooLong));
    }

    #[test]
    fn wildcards_match_and_nest() {
        assert!(host("*.example.com").matches(&host("a.example.com")));
        assert!(host("a.example.com").matches(&host("*.example.com")));
        assert!(host("*.com").matches(&host("*.example.com")));
        assert!(!host("*.example.com").matches(&host("example.com")));
        assert!(host("*.example.com").is_subset_of(&host("*.com")));
        assert!(!host("*.com").is_subset_of(&host("*.example.com")));
        assert!(host("a.b").is_subset_of(&host("*")));
    }

    #[test]
    fn localities_parse_and_print() {
        assert_eq!(Locality::parse("r/z/s").to_string(), "r/z/s");
        assert_eq!(Locality::parse("r.z").to_string(), "r/z");
        assert_eq!(Locality::parse("/z/").to_string(), "/z");
        assert!(Locality::parse("").is_empty());
    }
}
