//! Credentials for TLS termination at gateways: the keys of a Secret or a ConfigMap that contain them, and
//! checks that they are usable.
//!
//! Listeners are checked before they are served, and secrets (SDS) are made of the same values.

mod der;
mod servable;
mod usable;
mod workload;

pub(crate) use servable::secret;
pub(crate) use usable::{AuthoritiesIn, KeyPairIn, Unusable};
pub use workload::CertificateSource;
pub(crate) use workload::{from_server, from_stream};

use pilotfish_config::kubernetes::{ConfigMap, Secret};

/// Suffix of the names of credentials with CA certificates.
pub(crate) const CA_SUFFIX: &str = "-cacert";

/// The name under which the authorities in a Secret or ConfigMap are subscribed to.
pub(crate) fn with_ca_suffix(name: &str) -> String {
    if name.ends_with(CA_SUFFIX) { name.to_owned() } else { format!("{name}{CA_SUFFIX}") }
}

/// The workload's own certificate, in place of a Secret.
pub(crate) const BUILT_IN: &str = "builtin://";

/// A certificate chain and its key, both in PEM.
#[derive(Clone, Copy)]
pub(crate) struct KeyPair<'a> {
    pub(crate) chain: &'a [u8],
    pub(crate) key: &'a [u8],
}

/// CA certificates and revocation lists, both in PEM.
#[derive(Clone, Copy)]
pub(crate) struct Authorities<'a> {
    pub(crate) certificates: &'a [u8],
    pub(crate) revoked: Option<&'a [u8]>,
}

impl<'a> KeyPair<'a> {
    /// Returns the pair in a Secret: in Istio's keys, or else in those of the type `kubernetes.io/tls`.
    pub(crate) fn of(secret: &'a Secret) -> Option<Self> {
        [("cert", "key"), ("tls.crt", "tls.key")]
            .into_iter()
            .find_map(|(chain, key)| Some(Self { chain: value(secret, chain)?, key: value(secret, key)? }))
    }
}

impl<'a> Authorities<'a> {
    /// Returns the CA certificates in a Secret.
    pub(crate) fn of_secret(secret: &'a Secret) -> Option<Self> {
        [("cacert", "crl"), ("ca.crt", "ca.crl")].into_iter().find_map(|(certificates, revoked)| {
            Some(Self { certificates: value(secret, certificates)?, revoked: value(secret, revoked) })
        })
    }

    /// Returns the CA certificates in a ConfigMap.
    pub(crate) fn of_config_map(map: &'a ConfigMap) -> Option<Self> {
        let certificates = map.authorities()?.as_bytes();
        Some(Self { certificates, revoked: None })
    }
}

/// The value of a key, unless it is empty.
pub(crate) fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.value(key).filter(|value| !value.is_empty())
}
