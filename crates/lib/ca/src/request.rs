//! Certificate requests (PKCS#10) of workloads.

use crate::RequestError;
use pilotfish_identity::WorkloadId;
use rcgen::SubjectPublicKeyInfo;
use std::ops::RangeInclusive;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{
    OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
    OID_SIG_ECDSA_WITH_SHA384,
};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;

/// Maximum length of a certificate request in PEM. One with an RSA key of 8192 bits has 3 KiB.
pub const MAX_REQUEST_BYTES: usize = 8 << 10;

/// Permitted sizes of RSA keys in bits.
const RSA_BITS: RangeInclusive<usize> = 2048..=8192;

/// Tags of the PEM section; the second is the one of older tools.
const TAGS: [&str; 2] = ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"];

/// A certificate request whose signature was verified. Only its public key counts: whatever else it claims is
/// ignored.
#[derive(Debug)]
pub struct CertificateRequest {
    pub(crate) key: SubjectPublicKeyInfo,
    /// The verified request in DER.
    der: Vec<u8>,
}

impl CertificateRequest {
    /// Parses a request, and verifies that the client has the private key.
    ///
    /// # Errors
    /// When it is too long or malformed, has another type of key, or is signed by another key.
    pub fn from_pem(text: &str) -> Result<Self, RequestError> {
        Self::read(text, |_| Ok(()))
    }

    /// Parses a request that others sign as it is: it must hold this identity, and no other name or
    /// extension.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem), and when it claims anything else.
    pub fn from_pem_claiming(text: &str, identity: WorkloadId<'_>) -> Result<Self, RequestError> {
        Self::read(text, |request| check_claims(request, &identity.to_string()))
    }

    /// Returns the request that was verified as one section of PEM. The text that was parsed may hold others.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let section = pem::Pem::new(TAGS[0], self.der.as_slice());
        pem::encode_config(&section, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
    }

    fn read(
        text: &str,
        check: impl FnOnce(&X509CertificationRequest<'_>) -> Result<(), RequestError>,
    ) -> Result<Self, RequestError> {
        if text.len() > MAX_REQUEST_BYTES {
            return Err(RequestError::TooLong(MAX_REQUEST_BYTES));
        }
        let section = pem::parse(text).map_err(|_| RequestError::Pem)?;
        if !TAGS.contains(&section.tag()) {
            return Err(RequestError::Pem);
        }
        let parsed = X509CertificationRequest::from_der(section.contents());
        let (rest, request) = parsed.map_err(|_| RequestError::Malformed)?;
        if !rest.is_empty() || request.signature_value.unused_bits != 0 {
            return Err(RequestError::Malformed);
        }
        check(&request)?;
        // The library verifies signatures of other algorithms as well, as RSA with SHA-1.
        let algorithms = [
            OID_SIG_ECDSA_WITH_SHA256,
            OID_SIG_ECDSA_WITH_SHA384,
            OID_PKCS1_SHA256WITHRSA,
            OID_PKCS1_SHA384WITHRSA,
            OID_PKCS1_SHA512WITHRSA,
        ];
        if !algorithms.contains(&request.signature_algorithm.algorithm) {
            return Err(RequestError::Key);
        }
        let public = &request.certification_request_info.subject_pki;
        if let PublicKey::RSA(key) = public.parsed().map_err(|_| RequestError::Key)?
            && !RSA_BITS.contains(&key.key_size())
        {
            return Err(RequestError::Key);
        }
        let key = SubjectPublicKeyInfo::from_der(public.raw).map_err(|_| RequestError::Key)?;
        request.verify_signature().map_err(|_| RequestError::Signature)?;
        Ok(Self { key, der: section.contents().to_vec() })
    }
}

/// Checks that a request claims an identity and nothing else. Istio's agent sets an empty organization.
fn check_claims(request: &X509CertificationRequest<'_>, identity: &str) -> Result<(), RequestError> {
    let info = &request.certification_request_info;
    if info.subject.iter_attributes().any(|attribute| !attribute.attr_value().data.is_empty()) {
        return Err(RequestError::Claims("it has a subject"));
    }
    let mut is_named = false;
    for attribute in info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
            return Err(RequestError::Claims("it has another attribute than extensions"));
        };
        for extension in &requested.extensions {
            let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
                return Err(RequestError::Claims("it has another extension than alternative names"));
            };
            if is_named || names.general_names != [GeneralName::URI(identity)] {
                return Err(RequestError::Claims("its alternative names are others"));
            }
            is_named = true;
        }
    }
    if is_named { Ok(()) } else { Err(RequestError::Claims("it has no alternative name")) }
}
