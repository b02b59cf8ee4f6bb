//! SPIFFE identities of workloads, from their certificates.

use std::fmt;
use std::sync::Arc;

/// Maximum length of an id in the SPIFFE specification, in bytes.
const MAX_BYTES: usize = 2048;

/// A SPIFFE id: `spiffe://TRUST-DOMAIN/PATH`. Istio's have the path `/ns/NAMESPACE/sa/SERVICE-ACCOUNT`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId(Arc<str>);

/// Text that is not a SPIFFE id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no SPIFFE id: spiffe://TRUST-DOMAIN/PATH of at most {MAX_BYTES} bytes")]
pub struct SpiffeIdError {
    /// The text, truncated to 100 characters.
    pub text: String,
}

impl SpiffeId {
    /// Id of a service account.
    #[must_use]
    pub fn new(trust_domain: &str, namespace: &str, service_account: &str) -> Self {
        // A trust domain may have the form of an email address, for cloud service accounts.
        let trust_domain = trust_domain.replace('@', ".");
        Self(format!("spiffe://{trust_domain}/ns/{namespace}/sa/{service_account}").into())
    }

    /// Parses an id from an untrusted source.
    ///
    /// # Errors
    /// If it has another scheme, no trust domain, spaces or control characters, or is too long.
    pub fn parse(text: &str) -> Result<Self, SpiffeIdError> {
        let fail = || SpiffeIdError { text: text.chars().take(100).collect() };
        let rest = text.strip_prefix("spiffe://").ok_or_else(fail)?;
        let trust_domain = rest.split('/').next().unwrap_or_default();
        let is_clean = !text.chars().any(|c| c.is_whitespace() || c.is_control());
        if trust_domain.is_empty() || !is_clean || text.len() > MAX_BYTES {
            return Err(fail());
        }
        Ok(Self(text.into()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }

    /// Shared text, to replace it by an equal one that is stored elsewhere.
    pub fn shared_mut(&mut self) -> &mut Arc<str> {
        &mut self.0
    }
}

impl serde::Serialize for SpiffeId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for SpiffeId {
    /// Accepts trust domains that [`Self::parse`] would refuse, since ids in memory may have them from
    /// settings.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <String as serde::Deserialize>::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_service_accounts() {
        assert_eq!(SpiffeId::new("cluster.local", "ns", "sa").as_str(), "spiffe://cluster.local/ns/ns/sa/sa");
        assert_eq!(SpiffeId::new("a@b.com", "ns", "sa").as_str(), "spiffe://a.b.com/ns/ns/sa/sa");
    }

    #[test]
    fn ids_from_outside_are_checked() {
        for good in ["spiffe://td/ns/a/sa/b", "spiffe://td", "spiffe://td/any/path"] {
            assert_eq!(SpiffeId::parse(good).unwrap().as_str(), good);
        }
        let long = format!("spiffe://td/{}", "a".repeat(MAX_BYTES));
        for bad in
            ["", "td/ns/a/sa/b", "spiffe://", "spiffe:///ns/a", "https://td/x", "spiffe://td/a b", &long]
        {
            assert!(SpiffeId::parse(bad).is_err(), "{bad}");
        }
    }
}
