//! Certificates for tests with mutual TLS, created at run time.

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose};
use rcgen::{IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use std::path::Path;

/// Certificate authority of one test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: String,
}

impl Authority {
    /// Creates an authority with its own key.
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

    /// Certificate of the authority, in PEM.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Certificate and key of a client, in PEM, with this common name: the user name for an API server.
    ///
    /// # Panics
    /// When the machine has no randomness.
    #[must_use]
    pub fn client(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// Certificate and key of a server on loopback, in PEM.
    ///
    /// # Panics
    /// When the machine has no randomness.
    #[must_use]
    pub fn server(&self) -> (String, String) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("they are names");
        params.distinguished_name = named("server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Expired certificate and key of a server on loopback, in PEM.
    ///
    /// # Panics
    /// When the machine has no randomness.
    #[must_use]
    pub fn expired_server(&self) -> (String, String) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("they are names");
        params.distinguished_name = named("server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 2);
        self.sign(params)
    }

    /// Certificate and key of a workload with this SPIFFE identity, in PEM, valid for clients and servers.
    ///
    /// # Panics
    /// When the identity is no URI.
    #[must_use]
    pub fn workload(&self, identity: &str) -> (String, String) {
        self.sign(workload(identity))
    }

    /// Certificate and key, in PEM, with these URIs instead of a single identity.
    ///
    /// # Panics
    /// When one is no URI.
    #[must_use]
    pub fn with_uris(&self, uris: &[&str]) -> (String, String) {
        let mut params = workload("spiffe://cluster.local/replaced");
        let uri = |uri: &&str| SanType::URI((*uri).try_into().expect("it is a URI"));
        params.subject_alt_names = uris.iter().map(uri).collect();
        self.sign(params)
    }

    /// Expired certificate and key of a workload with this SPIFFE identity, in PEM.
    ///
    /// # Panics
    /// When the identity is no URI.
    #[must_use]
    pub fn expired(&self, identity: &str) -> (String, String) {
        let mut params = workload(identity);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 2);
        self.sign(params)
    }

    /// Writes `cert-chain.pem`, `key.pem` and `root-cert.pem` for a workload with this SPIFFE identity, like
    /// Istio's agent.
    ///
    /// # Panics
    /// When the folder cannot be written, or the identity is no URI.
    pub fn issue(&self, identity: &str, folder: &Path) {
        self.write(self.workload(identity), folder);
    }

    /// Writes these files for a certificate and its key.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn write(&self, (certificate, key): (String, String), folder: &Path) {
        std::fs::create_dir_all(folder).expect("the folder can be made");
        let files = [("cert-chain.pem", certificate), ("key.pem", key), ("root-cert.pem", self.root.clone())];
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("the folder can be written");
        }
    }

    fn sign(&self, mut params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().expect("a key can be made");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        (certificate.pem(), key.serialize_pem())
    }
}

fn workload(identity: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("workload");
    params.subject_alt_names = vec![SanType::URI(identity.try_into().expect("ASCII"))];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// Distinct name of a subject: OpenSSL treats a certificate as self-signed when its subject equals its
/// issuer.
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
