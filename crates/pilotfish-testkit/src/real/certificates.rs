//! Certificates for tests with mutual TLS, made on the spot.

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose};
use rcgen::{IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use std::path::Path;

/// A certificate authority of one test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: String,
}

impl Authority {
    /// A new one, with a key of its own.
    ///
    /// # Panics
    /// When the machine has no randomness.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name = named("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let root = params.self_signed(&key).expect("it can be signed").pem();
        Self { issuer: Issuer::new(params, key), root }
    }

    /// The certificate of the authority, in PEM.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The certificate and the key of a client, in PEM, with this common name: the name of a user for an API server.
    ///
    /// # Panics
    /// When the machine has no randomness.
    #[must_use]
    pub fn client(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes `cert-chain.pem`, `key.pem` and `root-cert.pem` for a workload with this SPIFFE identity, as Istio's
    /// agent does: good for both ends of a connection.
    ///
    /// # Panics
    /// When the folder cannot be written, or the identity is no URI.
    pub fn issue(&self, identity: &str, folder: &Path) {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name = named("workload");
        params.subject_alt_names = vec![SanType::URI(identity.try_into().expect("ASCII"))];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        std::fs::create_dir_all(folder).expect("the folder can be made");
        let files = [
            ("cert-chain.pem", certificate.pem()),
            ("key.pem", key.serialize_pem()),
            ("root-cert.pem", self.root.clone()),
        ];
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("the folder can be written");
        }
    }
}

/// OpenSSL takes a certificate for self-signed when its subject has the same name as its issuer.
fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::OrganizationName, name);
    names
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
