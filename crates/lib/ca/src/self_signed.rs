//! A new authority that signs its own certificate.

use crate::AuthorityError;
use crate::authority::{SKEW, random_serial, seconds};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose};
use std::fmt;
use std::time::{Duration, SystemTime};

/// Validity of a self-signed authority: ten years, as istiod's.
const VALIDITY: Duration = Duration::from_secs(3650 * 86_400);

/// Key and certificate of a new authority, in PEM.
pub struct SelfSigned {
    pub certificate: String,
    /// Private key, encoded as PKCS#8.
    pub key: String,
}

/// Shows nothing of the key.
impl fmt::Debug for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelfSigned").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl SelfSigned {
    /// Creates an EC P-256 key and its certificate.
    ///
    /// # Errors
    /// When there is no randomness, or the time cannot be written.
    pub fn create(now: SystemTime) -> Result<Self, AuthorityError> {
        let fail = |error: String| AuthorityError::Create(error);
        let key = KeyPair::generate().map_err(|error| fail(error.to_string()))?;
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, "Pilotfish");
        name.push(DnType::CommonName, "Mesh root");
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.serial_number = Some(random_serial().map_err(|error| fail(error.to_string()))?);
        params.not_before = seconds(now - SKEW).map_err(|error| fail(error.to_string()))?;
        params.not_after = seconds(now + VALIDITY).map_err(|error| fail(error.to_string()))?;
        let certificate = params.self_signed(&key).map_err(|error| fail(error.to_string()))?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
