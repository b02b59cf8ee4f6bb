//! The authority: a key, the certificates that lead from it to the roots, and signing.

use crate::error::certificate_error;
use crate::key::AuthorityKey;
use crate::revocation::Revocations;
use crate::verification::verify;
use crate::{AuthorityError, CertificateRequest, SignError};
use pilotfish_identity::{Pem, WorkloadId};
use rcgen::{
    CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SerialNumber,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use webpki::ExpirationPolicy;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// Tolerance for slow clocks of clients: certificates are valid that long before they are signed.
pub(crate) const SKEW: Duration = Duration::from_secs(600);

/// Texts of an authority. The file names of Istio are `ca-cert.pem`, `ca-key.pem`, `cert-chain.pem` and
/// `root-cert.pem`.
#[derive(Clone, Copy, Debug)]
pub struct AuthorityPem<'a> {
    /// The certificate that signs, first; others that follow belong to the chain.
    pub certificate: Pem<'a>,
    pub key: Pem<'a>,
    /// Certificates between the authority's and the roots; may repeat both.
    pub chain: Option<Pem<'a>>,
    /// Roots that clients trust; `None` if the certificate is self-signed.
    pub roots: Option<Pem<'a>>,
}

/// A certificate authority that was checked.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, AuthorityKey>,
    /// The certificate that signs.
    signing: CertificateDer<'static>,
    /// Certificates that follow a signed one, without the roots.
    chain: Vec<CertificateDer<'static>>,
    roots: Vec<CertificateDer<'static>>,
    revocations: Option<Revocations>,
    expires: SystemTime,
    root_expires: SystemTime,
}

/// Part that a certificate has in an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateRole {
    /// It signs; a self-signed one is a root as well.
    Signing,
    /// It leads from the signing one to the roots.
    Chain,
    /// Self-signed certificate with which clients verify chains.
    Root,
}

/// Description of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    pub role: CertificateRole,
    pub subject: String,
    /// Serial number in hexadecimal digits.
    pub serial: String,
    pub expires: SystemTime,
}

impl CertificateInfo {
    pub(crate) fn of(role: CertificateRole, der: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = parse(der)?;
        let serial = parsed.tbs_certificate.serial.to_str_radix(16);
        Ok(Self { role, subject: parsed.subject().to_string(), serial, expires: expiry(der)? })
    }
}

/// A key and the certificate for it, in PEM.
pub struct WorkloadCertificate {
    /// The certificate, and those that follow it, without the roots.
    pub chain: String,
    /// The private key in PKCS#8.
    pub key: String,
    /// End of the certificate.
    pub expires: SystemTime,
}

/// Shows nothing of the key.
impl fmt::Debug for WorkloadCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkloadCertificate").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Authority {
    /// Reads an authority, and checks that clients which trust its roots accept what it signs.
    ///
    /// # Errors
    /// When a text cannot be used, texts do not belong together, or a certificate has expired.
    pub fn from_pem(texts: &AuthorityPem<'_>, now: SystemTime) -> Result<Self, AuthorityError> {
        let own = texts.certificate;
        let mut chain = certificates_in(own)?;
        let key = AuthorityKey::from_pem(texts.key)?;
        let (is_self_signed, expires) = check_signing(own, chain.first(), &key, texts.key.origin)?;
        let signing =
            chain.first().cloned().ok_or_else(|| AuthorityError::NoCertificate(own.origin.into()))?;
        let roots = match texts.roots {
            Some(roots) => certificates_in(roots)?,
            None if is_self_signed => vec![signing.clone()],
            None => return Err(AuthorityError::NoRoot(own.origin.into())),
        };
        if let Some(more) = texts.chain {
            chain.extend(certificates_in(more)?);
        }
        let mut seen = BTreeSet::new();
        chain.retain(|certificate| !roots.contains(certificate) && seen.insert(certificate.to_vec()));
        let origin = texts.roots.unwrap_or(own).origin;
        let root_expires = match roots.first() {
            Some(first) => expiry(first).map_err(|reason| certificate_error(origin, reason))?,
            None => return Err(AuthorityError::NoCertificate(origin.into())),
        };
        let issuer = Issuer::from_ca_cert_der(&signing, key)
            .map_err(|error| certificate_error(own.origin, error.to_string()))?;
        let authority = Self { issuer, signing, chain, roots, revocations: None, expires, root_expires };
        let fail = |reason| AuthorityError::Chain { origin: own.origin.into(), reason };
        authority.check_trial(now, ExpirationPolicy::Enforce).map_err(fail)?;
        Ok(authority)
    }

    /// Adds lists of revoked certificates, and checks that clients which use them accept what it signs. Lists
    /// may have expired: see [`check_revocations`](Self::check_revocations).
    ///
    /// # Errors
    /// When there is none, one cannot be used, one of an authority of the chain is missing, or a certificate
    /// of the chain is revoked.
    pub fn with_revocations(self, lists: Pem<'_>, now: SystemTime) -> Result<Self, AuthorityError> {
        let authority = Self { revocations: Some(Revocations::from_pem(lists)?), ..self };
        let fail = |reason| AuthorityError::Revocation { origin: lists.origin.into(), reason };
        authority.check_trial(now, ExpirationPolicy::Ignore).map_err(fail)?;
        Ok(authority)
    }

    /// Checks that the lists of revoked certificates have not expired: clients that use them would reject
    /// what it signs.
    ///
    /// # Errors
    /// When one of an authority of the chain has expired.
    pub fn check_revocations(&self, now: SystemTime) -> Result<(), AuthorityError> {
        let Some(lists) = self.revocations.as_ref().filter(|lists| lists.ends <= now) else { return Ok(()) };
        // Those of other authorities are not used.
        self.check_trial(now, ExpirationPolicy::Enforce).map_err(|_| AuthorityError::Revocation {
            origin: lists.origin.clone(),
            reason: "a list has expired".to_owned(),
        })
    }

    /// Returns the lists of revoked certificates in PEM, if there are any.
    #[must_use]
    pub fn revocations_pem(&self) -> Option<&str> {
        self.revocations.as_ref().map(Revocations::pem)
    }

    /// Signs a certificate for a proven identity: the chain in PEM, one certificate in each text, the leaf
    /// first, and all roots in the last text. Istio's agents and ztunnel take the last text as their roots.
    /// It does not outlive the authority's own certificate.
    ///
    /// # Errors
    /// When the authority has expired, or a certificate cannot be created.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        identity: WorkloadId<'_>,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Vec<String>, SignError> {
        let leaf = self.leaf(&request.key, identity, lifetime, now)?;
        let chain = [&leaf].into_iter().chain(&self.chain).map(pem_of);
        Ok(chain.chain([self.roots_pem()]).collect())
    }

    /// Creates a key (EC P-256) and a certificate for a proven identity, as [`sign`](Self::sign) does for the
    /// key of a request.
    ///
    /// # Errors
    /// As [`sign`](Self::sign).
    pub fn workload(
        &self,
        identity: WorkloadId<'_>,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<WorkloadCertificate, SignError> {
        let key = KeyPair::generate()?;
        let leaf = self.leaf(&key, identity, lifetime, now)?;
        let chain = [&leaf].into_iter().chain(&self.chain).map(pem_of).collect();
        let expires = self.end(lifetime, now);
        Ok(WorkloadCertificate { chain, key: key.serialize_pem(), expires })
    }

    /// Creates a key and a certificate for a TLS server with these DNS names and IP addresses.
    ///
    /// # Errors
    /// As [`sign`](Self::sign), and when a name is neither.
    pub fn server(
        &self,
        names: &BTreeSet<String>,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<CertifiedKey, SignError> {
        let key = KeyPair::generate()?;
        let mut params = self.params(lifetime, now)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = names.iter().map(|name| alt_name(name)).collect::<Result<_, _>>()?;
        let leaf = params.signed_by(&key, &self.issuer)?.der().clone();
        let private = PrivateKeyDer::try_from(key.serialized_der().to_vec());
        let private = private.map_err(|error| SignError::Create(error.to_owned()))?;
        let chain = [&leaf].into_iter().chain(&self.chain).cloned().collect();
        CertifiedKey::from_der(chain, private, &default_provider())
            .map_err(|error| SignError::Create(error.to_string()))
    }

    /// Returns the roots in PEM, which clients have to trust.
    #[must_use]
    pub fn roots_pem(&self) -> String {
        self.roots.iter().map(pem_of).collect()
    }

    /// Describes the certificates: the signing one first, then its chain, then the roots.
    ///
    /// # Errors
    /// When one cannot be parsed; then verification would fail as well.
    pub fn certificates(&self) -> Result<Vec<CertificateInfo>, String> {
        use CertificateRole::{Chain, Root, Signing};
        let chain = self.chain.iter().filter(|certificate| **certificate != self.signing);
        let all = [(Signing, &self.signing)].into_iter().chain(chain.map(|certificate| (Chain, certificate)));
        let all = all.chain(self.roots.iter().map(|certificate| (Root, certificate)));
        all.map(|(role, certificate)| CertificateInfo::of(role, certificate)).collect()
    }

    /// True if certificates of both have the same issuer and chain; their roots may differ.
    #[must_use]
    pub fn has_chain_of(&self, other: &Self) -> bool {
        self.signing == other.signing && self.chain == other.chain
    }

    /// True if a certificate of one, roots included, is for the same key as a certificate of the other:
    /// what one has signed may then be valid with the roots of the other.
    #[must_use]
    pub fn shares_key_with(&self, other: &Self) -> bool {
        match (self.keys(), other.keys()) {
            (Ok(keys), Ok(others)) => !keys.is_disjoint(&others),
            // A certificate that cannot be parsed may be for any key.
            _ => true,
        }
    }

    /// Returns the public keys of all certificates.
    fn keys(&self) -> Result<BTreeSet<Vec<u8>>, String> {
        let all = [&self.signing].into_iter().chain(&self.chain).chain(&self.roots);
        let key = |parsed: X509Certificate<'_>| parsed.public_key().subject_public_key.data.to_vec();
        all.map(|certificate| parse(certificate).map(key)).collect()
    }

    /// Returns the expiry of the certificate that signs.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.expires
    }

    /// Returns the expiry of the first root.
    #[must_use]
    pub fn root_expires(&self) -> SystemTime {
        self.root_expires
    }

    fn leaf(
        &self,
        key: &impl PublicKeyData,
        identity: WorkloadId<'_>,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<CertificateDer<'static>, SignError> {
        let mut params = self.params(lifetime, now)?;
        params.subject_alt_names = vec![SanType::URI(identity.to_string().try_into()?)];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok(params.signed_by(key, &self.issuer)?.der().clone())
    }

    /// Returns the end of a certificate that is signed now.
    fn end(&self, lifetime: Duration, now: SystemTime) -> SystemTime {
        now.checked_add(lifetime).map_or(self.expires, |end| end.min(self.expires))
    }

    /// Fields that all signed certificates share. The subject is empty, so that the alternative names are
    /// critical.
    fn params(&self, lifetime: Duration, now: SystemTime) -> Result<CertificateParams, SignError> {
        if now >= self.expires {
            return Err(SignError::Expired);
        }
        let end = self.end(lifetime, now);
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.not_before = seconds(now - SKEW)?;
        params.not_after = seconds(end)?;
        params.serial_number = Some(random_serial()?);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }

    /// Signs a certificate and verifies it as a client and a server would. This finds wrong roots, a chain
    /// with a gap, constraints of an authority, and names that do not come out as they are in its
    /// certificate.
    fn check_trial(&self, now: SystemTime, policy: ExpirationPolicy) -> Result<(), String> {
        let identity = WorkloadId { trust_domain: "cluster.local", namespace: "a", service_account: "b" };
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let lifetime = Duration::from_secs(3600);
        let leaf = self.leaf(&key, identity, lifetime, now).map_err(|error| error.to_string())?;
        let revocations = self.revocations.as_ref().map(|lists| (lists, policy));
        verify(&leaf, &self.chain, &self.roots, revocations, now)
    }
}

/// Checks that a certificate may sign others and belongs to the key. Returns whether it signed itself, and
/// its expiry.
fn check_signing(
    own: Pem<'_>,
    certificate: Option<&CertificateDer<'_>>,
    key: &AuthorityKey,
    key_origin: &str,
) -> Result<(bool, SystemTime), AuthorityError> {
    let fail = |reason: &str| certificate_error(own.origin, reason.to_owned());
    let der = certificate.ok_or_else(|| AuthorityError::NoCertificate(own.origin.into()))?;
    let parsed = parse(der).map_err(|reason| fail(&reason))?;
    let constraints = parsed.basic_constraints().map_err(|error| fail(&error.to_string()))?;
    if !constraints.is_some_and(|constraints| constraints.value.ca) {
        return Err(fail("it is not the certificate of an authority (basic constraints)"));
    }
    let usage = parsed.key_usage().map_err(|error| fail(&error.to_string()))?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err(fail("its key must not sign certificates (key usage)"));
    }
    if parsed.public_key().subject_public_key.data.as_ref() != key.der_bytes() {
        let (certificate, key) = (own.origin.to_owned(), key_origin.to_owned());
        return Err(AuthorityError::Mismatch { certificate, key });
    }
    let is_self_signed = parsed.subject() == parsed.issuer() && parsed.verify_signature(None).is_ok();
    Ok((is_self_signed, expiry(der).map_err(|reason| fail(&reason))?))
}

pub(crate) fn certificates_in(pem: Pem<'_>) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.text).collect();
    let found = found.map_err(|error| certificate_error(pem.origin, error.to_string()))?;
    match found.is_empty() {
        true => Err(AuthorityError::NoCertificate(pem.origin.to_owned())),
        false => Ok(found),
    }
}

pub(crate) fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    let (rest, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    if rest.is_empty() { Ok(parsed) } else { Err("bytes follow the certificate".into()) }
}

pub(crate) fn expiry(der: &CertificateDer<'_>) -> Result<SystemTime, String> {
    let end = parse(der)?.validity().not_after.timestamp();
    // An authority that expired before 1970 has expired.
    Ok(UNIX_EPOCH + Duration::from_secs(u64::try_from(end).unwrap_or_default()))
}

fn alt_name(name: &str) -> Result<SanType, SignError> {
    match name.parse::<IpAddr>() {
        Ok(ip) => Ok(SanType::IpAddress(ip)),
        Err(_) => Ok(SanType::DnsName(name.try_into()?)),
    }
}

pub(crate) fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let section = pem::Pem::new("CERTIFICATE", certificate.as_ref());
    pem::encode_config(&section, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
}

/// Returns the time in whole seconds, as certificates have it.
pub(crate) fn seconds(at: SystemTime) -> Result<OffsetDateTime, time::error::ComponentRange> {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    OffsetDateTime::from_unix_timestamp(i64::try_from(since).unwrap_or(i64::MAX))
}

/// Returns a random serial number of 16 bytes.
pub(crate) fn random_serial() -> Result<SerialNumber, rcgen::Error> {
    let mut bytes = [0; 16];
    default_provider().secure_random.fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    Ok(SerialNumber::from_slice(&bytes))
}
