//! Authority of which only the roots are known: others sign.

use crate::authority::{CertificateInfo, CertificateRole, certificates_in, expiry, pem_of};
use crate::error::certificate_error;
use crate::issued::{IssuedCertificate, IssuedChain};
use crate::{AuthorityError, CertificateRequest, IssuedError};
use pilotfish_identity::{Pem, WorkloadId};
use rcgen::PublicKeyData;
use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime};
use webpki::anchor_from_trusted_cert;

/// Roots of certificates that an external signer issues.
#[derive(Debug)]
pub struct ExternalAuthority {
    roots: Vec<CertificateDer<'static>>,
    expires: SystemTime,
}

impl ExternalAuthority {
    /// Reads the roots.
    ///
    /// # Errors
    /// When there is none, one cannot be used, or all have expired.
    pub fn from_pem(roots: Pem<'_>, now: SystemTime) -> Result<Self, AuthorityError> {
        let fail = |reason: String| certificate_error(roots.origin, reason);
        let found = certificates_in(roots)?;
        let mut ends = Vec::new();
        for root in &found {
            anchor_from_trusted_cert(root).map_err(|error| fail(error.to_string()))?;
            ends.push(expiry(root).map_err(fail)?);
        }
        let last = ends.into_iter().max().filter(|end| *end > now);
        let expires = last.ok_or_else(|| fail("all roots have expired".into()))?;
        Ok(Self { roots: found, expires })
    }

    /// Checks a chain in PEM that the signer returned for a request.
    ///
    /// # Errors
    /// When it is for another key or identity, is valid for longer than `longest`, or does not verify with
    /// the roots.
    pub fn check(
        &self,
        request: &CertificateRequest,
        chain: &str,
        identity: WorkloadId<'_>,
        longest: Duration,
        now: SystemTime,
    ) -> Result<IssuedCertificate, IssuedError> {
        let pem = Pem { origin: "the signer's answer", text: chain.as_bytes() };
        let chain = certificates_in(pem).map_err(|error| IssuedError::Malformed(error.to_string()))?;
        let chain: Vec<_> = chain.into_iter().filter(|found| !self.roots.contains(found)).collect();
        let key = &request.key.subject_public_key_info();
        let issued = IssuedChain { chain: &chain, roots: &self.roots, key };
        let (identity, expires) = issued.check(Some(identity), longest, now)?;
        let chain = chain.iter().map(pem_of).collect();
        Ok(IssuedCertificate { chain, roots: self.roots_pem(), identity, expires })
    }

    /// Returns the roots in PEM.
    #[must_use]
    pub fn roots_pem(&self) -> String {
        self.roots.iter().map(pem_of).collect()
    }

    /// Describes the roots.
    ///
    /// # Errors
    /// When one cannot be parsed.
    pub fn certificates(&self) -> Result<Vec<CertificateInfo>, String> {
        self.roots.iter().map(|root| CertificateInfo::of(CertificateRole::Root, root)).collect()
    }

    /// Returns the expiry of the last root.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.expires
    }
}
