//! Certificates of the webhooks: an authority that API servers trust, and the serving certificate.
//!
//! No IO, and no clock. An authority is replaced a year before it expires: first the next one is trusted in
//! addition, and weeks later it signs the next certificate. So an API server never sees a certificate whose
//! authority has not been announced.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

const DAY: Duration = Duration::from_secs(86_400);
/// Tolerance for slow clocks of API servers.
const SKEW: Duration = Duration::from_secs(3600);
/// Maximum number of trusted authorities: the current and the previous one.
const AUTHORITIES: usize = 2;
/// Maximum number of names in a certificate, including those of other replicas.
const MOST_NAMES: usize = 32;
/// Subject of every authority; they differ by their keys.
const AUTHORITY: &str = "Pilotfish webhook authority";

/// Validity of certificates, and the time before their expiry at which they are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateLifetimes {
    /// Validity of a certificate.
    pub certificate: Duration,
    /// Time before the expiry at which the next certificate is created.
    pub renew_certificate: Duration,
    /// Validity of an authority.
    pub authority: Duration,
    /// Time before the expiry at which the next authority is created.
    pub renew_authority: Duration,
}

impl Default for CertificateLifetimes {
    /// Certificates for 90 days, renewed 30 days before; authorities for 10 years, renewed a year before.
    fn default() -> Self {
        Self {
            certificate: DAY * 90,
            renew_certificate: DAY * 30,
            authority: DAY * 3650,
            renew_authority: DAY * 365,
        }
    }
}

/// State that replicas share, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Material {
    /// Trusted authorities, the signing one first.
    pub(crate) authorities: String,
    /// Key of the first authority.
    pub(crate) authority_key: String,
    /// Expiry of the first authority.
    pub(crate) authority_expires: SystemTime,
    /// Serving certificate, in PEM.
    pub(crate) certificate: String,
    /// Private key of the serving certificate, in PEM.
    pub(crate) key: String,
}

impl std::fmt::Debug for Material {
    /// Omits the private keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("authorities", &self.authorities).finish_non_exhaustive()
    }
}

/// Renewal that is needed, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    Certificate(String),
    /// The authority; the certificate stays.
    Authority(String),
    /// Both; the existing ones cannot be used.
    Everything(String),
}

/// Failure to create a certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// The name is not allowed in a certificate.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    Name(String),
    /// Error of the library.
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("no certificate can hold at that time: {0}")]
    Time(#[from] time::error::ComponentRange),
}

/// Determines the renewal that is needed at that time, for a server with these names.
#[must_use]
pub(crate) fn need(
    material: &Material,
    names: &BTreeSet<String>,
    lifetimes: &CertificateLifetimes,
    now: SystemTime,
) -> Need {
    if let Err(why) = authority_problem(material) {
        return Need::Everything(why);
    }
    if material.authority_expires <= now + lifetimes.renew_authority {
        return match material.authority_expires <= now {
            true => Need::Everything("the authority has expired".into()),
            false => Need::Authority("the authority expires soon".into()),
        };
    }
    let mut at = [("is not valid", now), ("expires soon", now + lifetimes.renew_certificate)].into_iter();
    let problem = at.find_map(|(when, time)| {
        let problem = certificate_problem(material, names, time).err()?;
        Some(format!("the certificate {when}: {problem}"))
    });
    match problem {
        Some(why) => Need::Certificate(why),
        None => Need::Nothing,
    }
}

/// Creates what is needed; everything if `before` is missing.
///
/// # Errors
/// If a name is invalid, or there is no randomness.
pub(crate) fn make(
    before: Option<&Material>,
    need: &Need,
    names: &BTreeSet<String>,
    lifetimes: &CertificateLifetimes,
    now: SystemTime,
) -> Result<Material, CertificateError> {
    match (before, need) {
        (Some(before), Need::Nothing) => Ok(before.clone()),
        (Some(before), Need::Certificate(_)) => with_certificate(before.clone(), names, lifetimes, now),
        (Some(before), Need::Authority(_)) => {
            let next = authority(lifetimes, now)?;
            let kept = certificates(&before.authorities).into_iter().take(AUTHORITIES - 1);
            let kept = kept.map(|old| pem_of(&old)).collect::<String>();
            let authorities = next.authorities + &kept;
            Ok(Material {
                authorities,
                certificate: before.certificate.clone(),
                key: before.key.clone(),
                ..next
            })
        }
        _ => with_certificate(authority(lifetimes, now)?, names, lifetimes, now),
    }
}

/// Key and certificate for the TLS server.
///
/// # Errors
/// If they are malformed or do not belong together.
pub(crate) fn certified(material: &Material) -> Result<CertifiedKey, String> {
    let chain = certificates(&material.certificate);
    if chain.is_empty() {
        return Err("there is no certificate".into());
    }
    let key = PrivateKeyDer::from_pem_slice(material.key.as_bytes()).map_err(|error| error.to_string())?;
    CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| error.to_string())
}

/// Certificates of a PEM text, without invalid ones.
pub(crate) fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
}

fn pem_of(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for (index, c) in text.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(c);
    }
    pem + "\n-----END CERTIFICATE-----\n"
}

/// Checks that new certificates can be signed.
fn authority_problem(material: &Material) -> Result<(), String> {
    let authorities = certificates(&material.authorities);
    let first = authorities.first().ok_or("there is no authority")?;
    let key = KeyPair::from_pem(&material.authority_key)
        .map_err(|error| format!("the authority's key: {error}"))?;
    let anchor = anchor_from_trusted_cert(first).map_err(|error| format!("the authority: {error}"))?;
    match anchor.subject_public_key_info.ends_with(key.public_key_raw()) {
        true => Ok(()),
        false => Err("the authority and its key do not belong together".into()),
    }
}

/// Checks that an API server which trusts the authorities accepts the certificate at that time.
fn certificate_problem(material: &Material, names: &BTreeSet<String>, at: SystemTime) -> Result<(), String> {
    let certified = certified(material)?;
    let authorities = certificates(&material.authorities);
    let anchors: Vec<_> = authorities.iter().filter_map(|der| anchor_from_trusted_cert(der).ok()).collect();
    let served = certified.end_entity_cert().map_err(|error| error.to_string())?;
    let served = EndEntityCert::try_from(served).map_err(|error| error.to_string())?;
    let time = UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap_or_default());
    served
        .verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &anchors,
            &[],
            time,
            KeyUsage::server_auth(),
            None,
            None,
        )
        .map_err(|error| error.to_string())?;
    for name in names {
        let parsed = ServerName::try_from(name.as_str()).map_err(|error| format!("{name}: {error}"))?;
        served.verify_is_valid_for_subject_name(&parsed).map_err(|_| format!("{name} is not in it"))?;
    }
    Ok(())
}

fn authority(lifetimes: &CertificateLifetimes, now: SystemTime) -> Result<Material, CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = authority_params();
    let expires = hold(&mut params, now, lifetimes.authority)?;
    Ok(Material {
        authorities: params.self_signed(&key)?.pem(),
        authority_key: key.serialize_pem(),
        authority_expires: expires,
        certificate: String::new(),
        key: String::new(),
    })
}

/// Parameters of an authority. Its fields in certificates depend on these and its key only.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn with_certificate(
    mut material: Material,
    names: &BTreeSet<String>,
    lifetimes: &CertificateLifetimes,
    now: SystemTime,
) -> Result<Material, CertificateError> {
    let issuer = Issuer::new(authority_params(), KeyPair::from_pem(&material.authority_key)?);
    let mut params = CertificateParams::default();
    params.distinguished_name = named("pilotfish");
    let mut wanted: Vec<_> = names.iter().cloned().collect();
    wanted.extend(dns_names(&material.certificate).into_iter().filter(|name| !names.contains(name)));
    wanted.truncate(MOST_NAMES.max(names.len()));
    params.subject_alt_names = wanted.iter().map(|name| alt_name(name)).collect::<Result<_, _>>()?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    hold(&mut params, now, lifetimes.certificate)?;
    let key = KeyPair::generate()?;
    material.certificate = params.signed_by(&key, &issuer)?.pem();
    material.key = key.serialize_pem();
    Ok(material)
}

/// Names of the existing certificate, which are kept: replicas with other names may still be running, and
/// each would create a new certificate for itself.
fn dns_names(pem: &str) -> Vec<String> {
    let certificates = certificates(pem);
    let served = certificates.first().and_then(|der| EndEntityCert::try_from(der).ok());
    served.map(|served| served.valid_dns_names().map(str::to_owned).collect()).unwrap_or_default()
}

fn alt_name(name: &str) -> Result<SanType, CertificateError> {
    match name.parse::<IpAddr>() {
        Ok(ip) => Ok(SanType::IpAddress(ip)),
        Err(_) => {
            let dns = name.try_into().map_err(|_| CertificateError::Name(name.to_owned()))?;
            Ok(SanType::DnsName(dns))
        }
    }
}

fn hold(
    params: &mut CertificateParams,
    now: SystemTime,
    term: Duration,
) -> Result<SystemTime, CertificateError> {
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let date = |at: u64| OffsetDateTime::from_unix_timestamp(i64::try_from(at).unwrap_or(i64::MAX));
    let end = seconds(now + term);
    params.not_before = date(seconds(now).saturating_sub(SKEW.as_secs()))?;
    params.not_after = date(end)?;
    Ok(UNIX_EPOCH + Duration::from_secs(end))
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

#[cfg(test)]
mod tests;
