//! Certificate requests that no honest client sends, with the refusals that are due.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pilotfish_bench::messages::framed;
use rcgen::{CertificateParams, CustomExtension, KeyPair, KeyUsagePurpose, PKCS_ED25519, SanType};

use super::Call;
use crate::certificate::{CREATE, csr, request};
use crate::wire::{field, incomplete, nested, structure, text};

const RSA_1024: &str = include_str!("../../../testdata/rsa-1024.csr");
const RSA_8192: &str = include_str!("../../../testdata/rsa-8192.csr");
const RSA_10240: &str = include_str!("../../../testdata/rsa-10240.csr");
const P521: &str = include_str!("../../../testdata/p521.csr");
/// Identity that attackers would like to have.
const ADMIN: &str = "spiffe://cluster.local/ns/kube-system/sa/admin";
const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----\n";
const END: &str = "\n-----END CERTIFICATE REQUEST-----\n";

const NOT_PEM: Option<&str> = Some("not a certificate request in PEM");
const NOT_DER: Option<&str> = Some("cannot be parsed");
const MALFORMED: Option<&str> = Some("malformed request");
const SIGNATURE: Option<&str> = Some("does not match its key");
const KEY: Option<&str> = Some("neither EC P-256");
const LIFETIME: Option<&str> = Some("longer than the maximum");
const OTHERS: Option<&str> = Some("other identities");
const ONE_MESSAGE: Option<&str> = Some("not exactly one message");

fn body(body: Bytes, refusal: Option<&'static str>) -> Call {
    Call { path: CREATE, headers: Vec::new(), body, refusal }
}

fn message(message: &[u8], refusal: Option<&'static str>) -> Call {
    body(framed(message), refusal)
}

/// Request with this CSR.
fn with(csr: &str, refusal: Option<&'static str>) -> Call {
    message(&request(csr, 3600, &[]), refusal)
}

fn der_of(csr: &str) -> Result<Vec<u8>> {
    let lines: String = csr.lines().filter(|line| !line.starts_with('-')).collect();
    Ok(STANDARD.decode(lines)?)
}

fn pem_of(der: &[u8]) -> String {
    format!("{BEGIN}{}{END}", STANDARD.encode(der))
}

/// CSR of a new key with these names and extensions.
fn claiming(change: impl FnOnce(&mut CertificateParams) -> Result<()>) -> Result<String> {
    let mut params = CertificateParams::default();
    change(&mut params)?;
    Ok(params.serialize_request(&KeyPair::generate()?)?.pem()?)
}

pub(super) fn good() -> Result<Vec<Call>> {
    Ok(vec![with(&csr()?, None)])
}

pub(super) fn huge() -> Result<Vec<Call>> {
    const TOO_LONG: Option<&str> = Some("more than 8192 bytes");
    let padded = format!("{}{}", csr()?, "x".repeat(8 << 10));
    let random: Vec<u8> = (0..9_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let nested = pem_of(&[0x30, 0x80].repeat(4_500));
    Ok(vec![with(&padded, TOO_LONG), with(&pem_of(&random), TOO_LONG), with(&nested, TOO_LONG)])
}

pub(super) fn messages() -> Result<Vec<Call>> {
    const TOO_LONG: Option<&str> = Some("grpc-status 8");
    let whole = framed(&request(&csr()?, 3600, &[]));
    let cut = whole.slice(..whole.len() / 2);
    let twice = [&*whole, &whole].concat();
    let compressed = [&[1], whole.get(1..).context("it has a prefix")?].concat();
    Ok(vec![
        body(incomplete(4 << 20, 10_000), TOO_LONG),
        body(incomplete(u32::MAX, 1), TOO_LONG),
        message(&[0; 20_000], TOO_LONG),
        body(cut, ONE_MESSAGE),
        body(twice.into(), ONE_MESSAGE),
        body(Bytes::new(), ONE_MESSAGE),
        body(compressed.into(), Some("grpc-status 12")),
        message(&[], NOT_PEM),
    ])
}

pub(super) fn malformed() -> Result<Vec<Call>> {
    let good = csr()?;
    let der = der_of(&good)?;
    let cut = der.get(..der.len() - 9).context("it is longer")?;
    let of = |der: &[u8]| with(&pem_of(der), NOT_DER);
    Ok(vec![
        with("", NOT_PEM),
        with(&"\0".repeat(4_000), NOT_PEM),
        with(&BEGIN.repeat(100), NOT_PEM),
        with(&KeyPair::generate()?.serialize_pem(), NOT_PEM),
        of(cut),
        of(&[&*der, &[0]].concat()),
        of(&[0x30, 0x80].repeat(2_500)),
        of(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]),
        of(&[]),
        message(&field(1, [0xff, 0xfe]), MALFORMED),
        message(&[0xff; 100], MALFORMED),
        message(&[&request(&good, 3600, &[])[..], &[0x0a]].concat(), MALFORMED),
    ])
}

pub(super) fn signatures() -> Result<Vec<Call>> {
    let changed = |csr: &str, from_end: usize| -> Result<Call> {
        let mut der = der_of(csr)?;
        let place = der.len().checked_sub(from_end).context("it is longer")?;
        *der.get_mut(place).context("it is longer")? ^= 1;
        Ok(with(&pem_of(&der), SIGNATURE))
    };
    // The last byte belongs to the signature; 120 bytes before it is the public key of P-256.
    Ok(vec![changed(&csr()?, 1)?, changed(&csr()?, 120)?, changed(RSA_8192, 1)?])
}

pub(super) fn keys() -> Result<Vec<Call>> {
    let ed = CertificateParams::default().serialize_request(&KeyPair::generate_for(&PKCS_ED25519)?)?.pem()?;
    Ok([RSA_1024, RSA_10240, P521, &ed].map(|csr| with(csr, KEY)).into())
}

pub(super) fn costly() -> Result<Vec<Call>> {
    Ok(vec![with(RSA_8192, None)])
}

pub(super) fn names() -> Result<Vec<Call>> {
    let uri = |uri: &str| Ok::<_, rcgen::Error>(SanType::URI(uri.try_into()?));
    let admin = claiming(|params| {
        params.subject_alt_names = vec![uri(ADMIN)?];
        Ok(())
    })?;
    let many = claiming(|params| {
        for number in 0..100 {
            params
                .subject_alt_names
                .push(SanType::DnsName(format!("istiod-{number}.istio-system.svc").try_into()?));
        }
        params.subject_alt_names.extend([uri(ADMIN)?, uri("spiffe://cluster.local/ns/bench/sa/default")?]);
        Ok(())
    })?;
    Ok(vec![with(&admin, None), with(&many, None)])
}

pub(super) fn extensions() -> Result<Vec<Call>> {
    let authority = claiming(|params| {
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Basic constraints of an authority.
        let is_authority = vec![0x30, 0x03, 0x01, 0x01, 0xff];
        params.custom_extensions.push(CustomExtension::from_oid_content(&[2, 5, 29, 19], is_authority));
        for number in 0..60 {
            let content = vec![0x04, 0x02, 0, 0];
            let oid = [1, 3, 6, 1, 4, 1, 99_999, number];
            params.custom_extensions.push(CustomExtension::from_oid_content(&oid, content));
        }
        Ok(())
    })?;
    Ok(vec![with(&authority, None)])
}

pub(super) fn lifetimes() -> Result<Vec<Call>> {
    const DAY: i64 = 86_400;
    let csr = csr()?;
    let all = [
        (0, None),
        (-1, None),
        (i64::MIN, None),
        (90 * DAY, None),
        (90 * DAY + 1, LIFETIME),
        (i64::MAX, LIFETIME),
    ];
    Ok(all.map(|(seconds, refusal)| message(&request(&csr, seconds, &[]), refusal)).into())
}

pub(super) fn impersonation() -> Result<Vec<Call>> {
    const FIELD: &str = "ImpersonatedIdentity";
    let csr = csr()?;
    let number = [&[0x11], &1.0_f64.to_le_bytes()[..]].concat();
    let case = |values: &[Vec<u8>], refusal| {
        let metadata = structure(values.iter().map(|value| (FIELD.to_owned(), value.clone())));
        message(&request(&csr, 3600, &metadata), refusal)
    };
    Ok(vec![
        case(&[text(ADMIN)], OTHERS),
        case(&[text(" ")], OTHERS),
        case(&[number], OTHERS),
        case(&[nested(1, true)], OTHERS),
        // The last value of a key counts.
        case(&[text(""), text(ADMIN)], OTHERS),
        case(&[text(ADMIN), text("")], None),
    ])
}

pub(super) fn metadata() -> Result<Vec<Call>> {
    let csr = csr()?;
    let many = structure((0..800).map(|number| (format!("key-{number}"), text("x"))));
    let case = |metadata: &[u8], refusal| message(&request(&csr, 3600, metadata), refusal);
    Ok(vec![
        case(&many, None),
        case(&structure([("a".to_owned(), nested(10, false))]), None),
        case(&structure([("a".to_owned(), nested(300, false))]), MALFORMED),
        case(&structure([("a".to_owned(), nested(300, true))]), MALFORMED),
        case(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], MALFORMED),
    ])
}

pub(super) fn paths() -> Result<Vec<Call>> {
    const UNKNOWN: Option<&str> = Some("no such method");
    const GRPC: Option<&str> = Some("this is a gRPC server");
    let body = framed(&request(&csr()?, 3600, &[]));
    let to = |path, refusal| Call { path, headers: Vec::new(), body: body.clone(), refusal };
    let typed = |value: &str| Call { headers: vec![("content-type", value.to_owned())], ..to(CREATE, GRPC) };
    Ok(vec![
        to("/istio.v1.auth.IstioCertificateService/createCertificate", UNKNOWN),
        to("/istio.v1.auth.IstioCertificateService/CreateCertificate/", UNKNOWN),
        to("/istio.v1.auth.IstioCertificateService/", UNKNOWN),
        to("//istio.v1.auth.IstioCertificateService/CreateCertificate", UNKNOWN),
        to("/google.security.meshca.v1.MeshCertificateService/CreateCertificate", UNKNOWN),
        typed("application/json"),
        typed("text/plain"),
        typed(""),
    ])
}

/// Honest requests without a token, and with junk as one.
pub(super) fn tokens() -> Result<Vec<Call>> {
    let call = with(&csr()?, Some(super::STATUS));
    let bearer =
        |token: &str| Call { headers: vec![("authorization", format!("Bearer {token}"))], ..call.clone() };
    Ok(vec![call.clone(), bearer("junk"), bearer("a.b.c"), bearer(&"x".repeat(4_000))])
}
