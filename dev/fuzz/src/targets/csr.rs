//! Certificate requests: any text, any DER, or a signed request with any claims.

use crate::input::Input;
use pilotfish_ca::{Authority, AuthorityPem, CertificateRequest, SelfSigned};
use pilotfish_identity::{Pem, WorkloadId};
use rcgen::{KeyPair, PublicKeyData, SigningKey};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

const IDENTITY: &str = "spiffe://cluster.local/ns/shop/sa/web";
/// Algorithm `ecdsa-with-SHA256`, as an identifier without parameters.
const ECDSA: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let made = SelfSigned::create(now()).expect("an authority can be created");
    let pem = |text| Pem { origin: "authority", text: str::as_bytes(text) };
    let (certificate, key) = (pem(&made.certificate), pem(&made.key));
    let texts = AuthorityPem { certificate, key, chain: None, roots: None };
    Authority::from_pem(&texts, now()).expect("a created authority is valid")
});

/// Key of the signed requests.
static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate().expect("a key can be created"));

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

pub(super) fn run(bytes: &[u8]) {
    let text = match bytes.split_first() {
        Some((0, der)) => pem_of(der),
        Some((1, claims)) => pem_of(&signed(&mut Input::new(claims))),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    if let Ok(request) = CertificateRequest::from_pem(&text) {
        check(&text, &request);
    }
}

/// Checks that the certificate has the requested key, and nothing else that the request says.
fn check(text: &str, request: &CertificateRequest) {
    let identity = WorkloadId::parse(IDENTITY).expect("it is an identity");
    let chain = AUTHORITY.sign(request, identity, Duration::from_secs(3600), now());
    let chain = chain.expect("an accepted request is signed");
    let der = |text: &str| pem::parse(text).expect("it is PEM").into_contents();
    let (requested, leaf, root) = (der(text), der(&chain[0]), der(&chain[1]));
    let (_, requested) = X509CertificationRequest::from_der(&requested).expect("it was parsed before");
    let (_, leaf) = X509Certificate::from_der(&leaf).expect("a certificate");
    let (_, root) = X509Certificate::from_der(&root).expect("a certificate");
    leaf.verify_signature(Some(root.public_key())).expect("it is signed by the authority");
    let key = &requested.certification_request_info.subject_pki.subject_public_key.data;
    assert_eq!(&leaf.public_key().subject_public_key.data, key, "another key is certified");
    assert!(!leaf.is_ca() && leaf.subject().iter().next().is_none(), "{leaf:?}");
    let names = leaf.subject_alternative_name().expect("it is well-formed").expect("there are names");
    assert_eq!(names.value.general_names, [GeneralName::URI(IDENTITY)]);
    // Identifiers of both keys, key usage, extended key usage, names, and basic constraints.
    assert_eq!(leaf.extensions().len(), 6, "{:?}", leaf.extensions());
}

fn pem_of(der: &[u8]) -> String {
    pem::encode(&pem::Pem::new("CERTIFICATE REQUEST", der))
}

/// Encodes a request with a valid signature, whose subject and attributes are any bytes.
fn signed(input: &mut Input<'_>) -> Vec<u8> {
    let subject = tlv(0x30, input.piece(255));
    let attributes = tlv(0xa0, input.all());
    let info = [tlv(0x02, &[0]), subject, KEY.subject_public_key_info(), attributes].concat();
    let info = tlv(0x30, &info);
    let signature = KEY.sign(&info).expect("a key signs");
    let signature = tlv(0x03, &[&[0], &*signature].concat());
    tlv(0x30, &[&*info, ECDSA, &*signature].concat())
}

/// Encodes a value of DER with a length of two bytes or less.
fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let length = match (high, low) {
        (0, 0..=127) => vec![low],
        (0, _) => vec![0x81, low],
        _ => vec![0x82, high, low],
    };
    [&[tag], &*length, content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_requests_are_accepted_with_any_claims() {
        // The subject and an attribute are the common name `ab`.
        let claims = b"\x0d\x31\x0b\x30\x09\x06\x03\x55\x04\x03\x0c\x02ab\
            \x30\x0b\x06\x03\x55\x04\x03\x31\x04\x0c\x02ab";
        for claims in [&b""[..], claims] {
            let text = pem_of(&signed(&mut Input::new(claims)));
            check(&text, &CertificateRequest::from_pem(&text).unwrap());
        }
    }
}
