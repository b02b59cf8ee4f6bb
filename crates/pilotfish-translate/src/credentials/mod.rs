//! Credentials that gateways end TLS with: which keys of a Secret or a ConfigMap hold them, and whether they can be used.
//!
//! Listeners ask before they are served, and secrets (SDS) are made of the same values.

mod der;
mod servable;
mod usable;

pub(crate) use servable::secret;
pub(crate) use usable::{AuthoritiesIn, KeyPairIn, Unusable};

use pilotfish_config::kubernetes::{ConfigMap, Secret};

/// What the name of a credential's authorities ends with.
pub(crate) const CA_SUFFIX: &str = "-cacert";

/// The workload's own certificate, from the agent beside the proxy, in place of a Secret.
pub(crate) const BUILT_IN: &str = "builtin://";

/// A certificate chain and its key, both in PEM.
#[derive(Clone, Copy)]
pub(crate) struct KeyPair<'a> {
    pub(crate) chain: &'a [u8],
    pub(crate) key: &'a [u8],
}

/// Certificates of authorities and their revocations, both in PEM.
#[derive(Clone, Copy)]
pub(crate) struct Authorities<'a> {
    pub(crate) certificates: &'a [u8],
    pub(crate) revoked: Option<&'a [u8]>,
}

impl<'a> KeyPair<'a> {
    /// The pair of a Secret: with Istio's keys, else with those of the type `kubernetes.io/tls`.
    pub(crate) fn of(secret: &'a Secret) -> Option<Self> {
        [("cert", "key"), ("tls.crt", "tls.key")]
            .into_iter()
            .find_map(|(chain, key)| Some(Self { chain: value(secret, chain)?, key: value(secret, key)? }))
    }
}

impl<'a> Authorities<'a> {
    /// The authorities in a Secret.
    pub(crate) fn of_secret(secret: &'a Secret) -> Option<Self> {
        [("cacert", "crl"), ("ca.crt", "ca.crl")].into_iter().find_map(|(certificates, revoked)| {
            Some(Self { certificates: value(secret, certificates)?, revoked: value(secret, revoked) })
        })
    }

    /// The authorities in a ConfigMap.
    pub(crate) fn of_config_map(map: &'a ConfigMap) -> Option<Self> {
        let certificates = map.authorities()?.as_bytes();
        Some(Self { certificates, revoked: None })
    }
}

/// The value of a key, unless it is empty.
pub(crate) fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.value(key).filter(|value| !value.is_empty())
}
