//! Checks of credentials that routers use. They are those of istiod (Go's `tls.X509KeyPair` and
//! `x509.CertPool.AppendCertsFromPEM`): the formats, and that key and certificate belong together. Issuer and
//! expiry are not checked.

use super::der::PublicKey;
use super::{Authorities, KeyPair, secret};
use crate::engine::{Cx, Query};
use pilotfish_config::kubernetes::ConfigMap;
use pilotfish_model::{Kind, Namespace};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, alg_id};
use std::sync::Arc;

/// Reason why a credential is unusable. Messages never contain parts of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("is not there, cannot be read, or is for no proxy")]
    Absent,
    #[error("has no tls.crt with tls.key, and no cert with key")]
    NoKeyPair,
    #[error("has neither cacert nor ca.crt")]
    NoAuthorities,
    #[error("has no certificate in PEM")]
    NotPem,
    #[error("has a certificate that is not X.509")]
    NotX509,
    #[error(
        "has no private key in PEM of a type that can be used (RSA of 2,048 bits or more, ECDSA, Ed25519)"
    )]
    NoKey,
    #[error("has a certificate and a key that do not belong together")]
    Mismatch,
}

/// Checks that a Secret has a certificate and the matching key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyPairIn {
    pub(crate) namespace: Namespace,
    pub(crate) name: Arc<str>,
}

impl Query for KeyPairIn {
    type Output = Result<(), Unusable>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let secret = secret(cx, &self.namespace, &self.name).ok_or(Unusable::Absent)?;
        pair(KeyPair::of(&secret).ok_or(Unusable::NoKeyPair)?)
    }
}

/// Checks that a ConfigMap or a Secret has CA certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AuthoritiesIn {
    /// `ConfigMap`, or else a Secret.
    pub(crate) kind: Kind,
    pub(crate) namespace: Namespace,
    pub(crate) name: Arc<str>,
}

impl Query for AuthoritiesIn {
    type Output = Result<(), Unusable>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        if self.kind == Kind::ConfigMap {
            let map = cx.object::<ConfigMap>(&self.namespace, &self.name).ok_or(Unusable::Absent)?;
            return authorities(Authorities::of_config_map(&map));
        }
        let secret = secret(cx, &self.namespace, &self.name).ok_or(Unusable::Absent)?;
        authorities(Authorities::of_secret(&secret))
    }
}

fn pair(pair: KeyPair<'_>) -> Result<(), Unusable> {
    let chain = certificates(pair.chain)?;
    let certificate = chain.first().ok_or(Unusable::NotPem)?;
    let certified = PublicKey::of_certificate(certificate).ok_or(Unusable::NotX509)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key).map_err(|_| Unusable::NoKey)?;
    // Envoy supports this curve and ring does not, so the match of key and certificate is not checked.
    if certified.algorithm == alg_id::ECDSA_P521.as_ref() {
        return Ok(());
    }
    let key = any_supported_type(&key).map_err(|_| Unusable::NoKey)?;
    let public = key.public_key().ok_or(Unusable::NoKey)?;
    let public = PublicKey::of_key(&public).ok_or(Unusable::NoKey)?;
    if public.key == certified.key { Ok(()) } else { Err(Unusable::Mismatch) }
}

fn authorities(found: Option<Authorities<'_>>) -> Result<(), Unusable> {
    let found = certificates(found.ok_or(Unusable::NoAuthorities)?.certificates)?;
    let all = found.iter().all(|certificate| PublicKey::of_certificate(certificate).is_some());
    if all { Ok(()) } else { Err(Unusable::NotX509) }
}

/// Parses all certificates of a PEM text, at least one. Envoy rejects a text if it cannot parse all.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(Unusable::NotPem)
}

#[cfg(test)]
mod tests;
