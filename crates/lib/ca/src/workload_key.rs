//! Key of a workload, and the request for its certificate.

use crate::authority::{certificates_in, pem_of};
use crate::issued::{IssuedCertificate, IssuedChain};
use crate::{IssuedError, SignError};
use pilotfish_identity::{Pem, WorkloadId};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PublicKeyData, SanType};
use std::fmt;
use std::time::{Duration, SystemTime};

/// A private key (EC P-256) for which a certificate is requested.
pub struct WorkloadKey(KeyPair);

/// Shows nothing of the key.
impl fmt::Debug for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkloadKey").finish_non_exhaustive()
    }
}

impl WorkloadKey {
    /// Creates a key.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn create() -> Result<Self, SignError> {
        Ok(Self(KeyPair::generate()?))
    }

    /// Reads a key.
    ///
    /// # Errors
    /// When the text holds none.
    pub fn from_pem(text: &str) -> Result<Self, SignError> {
        Ok(Self(KeyPair::from_pem(text)?))
    }

    /// Returns the private key in PKCS#8, in PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// Returns a certificate request in PEM. It holds the identity as its only name; authorities that sign
    /// for proven identities need none.
    ///
    /// # Errors
    /// When the request cannot be created.
    pub fn request(&self, identity: Option<WorkloadId<'_>>) -> Result<String, SignError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(identity) = identity {
            params.subject_alt_names = vec![SanType::URI(identity.to_string().try_into()?)];
        }
        Ok(params.serialize_request(&self.0)?.pem()?)
    }

    /// Checks the chain that an authority returned for this key: certificates in PEM, the leaf first, and all
    /// roots in the last text.
    ///
    /// # Errors
    /// When the certificate is for another key or identity, or does not verify with the roots.
    pub fn accept(
        &self,
        texts: &[String],
        identity: Option<WorkloadId<'_>>,
        now: SystemTime,
    ) -> Result<IssuedCertificate, IssuedError> {
        let (roots, chain) = texts.split_last().ok_or(IssuedError::NoCertificate)?;
        if chain.is_empty() {
            return Err(IssuedError::NoRoots);
        }
        self.accept_pem(&chain.concat(), roots, identity, now)
    }

    /// Checks a chain without roots and the roots, as [`accept`](Self::accept) does.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_pem(
        &self,
        chain: &str,
        roots: &str,
        identity: Option<WorkloadId<'_>>,
        now: SystemTime,
    ) -> Result<IssuedCertificate, IssuedError> {
        let read = |origin, text: &str| {
            let pem = Pem { origin, text: text.as_bytes() };
            certificates_in(pem).map_err(|error| IssuedError::Malformed(error.to_string()))
        };
        let (chain, roots) = (read("the chain", chain)?, read("the roots", roots)?);
        // Some authorities repeat the roots in the chain.
        let chain: Vec<_> = chain.into_iter().filter(|certificate| !roots.contains(certificate)).collect();
        let issued = IssuedChain { chain: &chain, roots: &roots, key: &self.0.subject_public_key_info() };
        let (identity, expires) = issued.check(identity, Duration::MAX, now)?;
        Ok(IssuedCertificate {
            chain: chain.iter().map(pem_of).collect(),
            roots: roots.iter().map(pem_of).collect(),
            identity,
            expires,
        })
    }
}
