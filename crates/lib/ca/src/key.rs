//! The key of an authority, in each of the encodings that are in use.

use crate::AuthorityError;
use pilotfish_identity::Pem;
use rcgen::{PublicKeyData, SubjectPublicKeyInfo};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::SigningKey;
use std::fmt;
use std::sync::Arc;

/// A private key that signs certificates: PKCS#8, SEC1 or PKCS#1. rcgen reads PKCS#8 only, so that rustls
/// reads and signs.
pub(crate) struct AuthorityKey {
    key: Arc<dyn SigningKey>,
    scheme: SignatureScheme,
    public: SubjectPublicKeyInfo,
}

/// Shows nothing of the key.
impl fmt::Debug for AuthorityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityKey").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl AuthorityKey {
    /// Parses a key.
    ///
    /// # Errors
    /// When there is none, or one of another type.
    pub(crate) fn from_pem(pem: Pem<'_>) -> Result<Self, AuthorityError> {
        let fail = |reason: String| AuthorityError::Key { origin: pem.origin.to_owned(), reason };
        let private = PrivateKeyDer::from_pem_slice(pem.text).map_err(|error| fail(error.to_string()))?;
        let key = any_supported_type(&private).map_err(|error| fail(error.to_string()))?;
        let schemes = [
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::RSA_PKCS1_SHA256,
        ];
        let signer = key.choose_scheme(&schemes).ok_or_else(|| fail("another type of key".into()))?;
        let scheme = signer.scheme();
        let public = key.public_key().ok_or_else(|| fail("no public key".into()))?;
        let public = SubjectPublicKeyInfo::from_der(&public).map_err(|error| fail(error.to_string()))?;
        Ok(Self { key, scheme, public })
    }
}

impl PublicKeyData for AuthorityKey {
    fn der_bytes(&self) -> &[u8] {
        self.public.der_bytes()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        self.public.algorithm()
    }
}

impl rcgen::SigningKey for AuthorityKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signer = self.key.choose_scheme(&[self.scheme]).ok_or(rcgen::Error::RemoteKeyError)?;
        signer.sign(message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}
