//! Checks of certificates that another authority issued.

use crate::IssuedError;
use crate::authority::{SKEW, expiry, parse};
use crate::verification::verify;
use pilotfish_identity::{WorkloadId, spiffe_ids};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::time::{Duration, SystemTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// A certificate that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The certificate and those that follow it, without the roots, in PEM.
    pub chain: String,
    /// Roots in PEM.
    pub roots: String,
    /// SPIFFE id of the workload.
    pub identity: String,
    pub expires: SystemTime,
}

/// A chain that is not trusted yet.
pub(crate) struct IssuedChain<'a> {
    /// The certificate of the workload, first, and those that lead to the roots.
    pub(crate) chain: &'a [CertificateDer<'static>],
    pub(crate) roots: &'a [CertificateDer<'static>],
    /// Public key of the request, as a `SubjectPublicKeyInfo`.
    pub(crate) key: &'a [u8],
}

impl IssuedChain<'_> {
    /// Checks key, names, validity and chain. Returns the identity and the expiry.
    ///
    /// # Errors
    /// When one is not as requested.
    pub(crate) fn check(
        &self,
        identity: Option<WorkloadId<'_>>,
        longest: Duration,
        now: SystemTime,
    ) -> Result<(String, SystemTime), IssuedError> {
        let (leaf, between) = self.chain.split_first().ok_or(IssuedError::NoCertificate)?;
        let parsed = parse(leaf).map_err(IssuedError::Malformed)?;
        if parsed.public_key().raw != self.key {
            return Err(IssuedError::Key);
        }
        let proven = only_name(&parsed, leaf).map_err(IssuedError::Names)?;
        if let Some(expected) = identity.map(|identity| identity.to_string())
            && expected != proven
        {
            return Err(IssuedError::Identity { expected, proven });
        }
        let expires = expiry(leaf).map_err(IssuedError::Malformed)?;
        let validity = expires.duration_since(now).unwrap_or_default();
        // The clock of the signer may be ahead.
        if validity > longest.saturating_add(SKEW) {
            return Err(IssuedError::Lifetime { validity, longest });
        }
        verify(leaf, between, self.roots, None, now).map_err(IssuedError::Chain)?;
        Ok((proven, expires))
    }
}

/// Returns the SPIFFE id of a certificate without other alternative names.
fn only_name(parsed: &X509Certificate<'_>, leaf: &CertificateDer<'static>) -> Result<String, String> {
    let names = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    if let Some(other) = names.iter().find(|name| !matches!(name, GeneralName::URI(_))) {
        return Err(format!("{other:?} is another name than a SPIFFE id"));
    }
    let proof = spiffe_ids(Some(std::slice::from_ref(leaf)))?;
    proof.identities.into_iter().next().ok_or_else(|| "it has no SPIFFE identity".to_owned())
}

/// Returns the expiry of the first certificate in a PEM text.
///
/// # Errors
/// When there is none, or it cannot be parsed.
pub fn first_expiry(text: &[u8]) -> Result<SystemTime, IssuedError> {
    let first = CertificateDer::from_pem_slice(text).map_err(|_| IssuedError::NoCertificate)?;
    expiry(&first).map_err(IssuedError::Malformed)
}
