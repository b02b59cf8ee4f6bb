use super::*;
use pilotfish_identity::{Pem, WorkloadId, spiffe_ids};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::prelude::{FromDer, X509Certificate};

const HOUR: Duration = Duration::from_secs(3600);
const WEB: WorkloadId<'_> =
    WorkloadId { trust_domain: "cluster.local", namespace: "shop", service_account: "web" };

const RSA_PKCS1: &str = include_str!("../testdata/rsa.pkcs1.pem");
const RSA_PKCS8: &str = include_str!("../testdata/rsa.pkcs8.pem");
const P256_SEC1: &str = include_str!("../testdata/p256.sec1.pem");
const P256_PKCS8: &str = include_str!("../testdata/p256.pkcs8.pem");
const P384_SEC1: &str = include_str!("../testdata/p384.sec1.pem");
const P384_PKCS8: &str = include_str!("../testdata/p384.pkcs8.pem");
const RSA_REQUEST: &str = include_str!("../testdata/rsa-2048.csr");

/// The time of the tests.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn pem<'a>(origin: &'a str, text: &'a str) -> Pem<'a> {
    Pem { origin, text: text.as_bytes() }
}

/// A certificate of an authority with its key.
struct Made {
    params: CertificateParams,
    key: KeyPair,
    certificate: String,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2060, 1, 1);
    params
}

fn root_with(params: CertificateParams, key: KeyPair) -> Made {
    let certificate = params.self_signed(&key).unwrap().pem();
    Made { params, key, certificate }
}

fn root() -> Made {
    root_with(params("root"), KeyPair::generate().unwrap())
}

fn below(parent: &Made, params: CertificateParams) -> Made {
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::from_params(&parent.params, &parent.key);
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    Made { params, key, certificate }
}

fn load(
    certificate: &str,
    key: &str,
    chain: Option<&str>,
    roots: Option<&str>,
) -> Result<Authority, AuthorityError> {
    let texts = AuthorityPem {
        certificate: pem("ca-cert.pem", certificate),
        key: pem("ca-key.pem", key),
        chain: chain.map(|text| pem("cert-chain.pem", text)),
        roots: roots.map(|text| pem("root-cert.pem", text)),
    };
    Authority::from_pem(&texts, now())
}

fn self_signed() -> Authority {
    let made = SelfSigned::create(now()).unwrap();
    load(&made.certificate, &made.key, None, None).unwrap()
}

fn request_of(key: &KeyPair) -> String {
    CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
}

fn request() -> CertificateRequest {
    CertificateRequest::from_pem(&request_of(&KeyPair::generate().unwrap())).unwrap()
}

/// The certificates of these texts, in order.
fn ders(chain: &[String]) -> Vec<CertificateDer<'static>> {
    let all = chain.concat();
    CertificateDer::pem_slice_iter(all.as_bytes()).collect::<Result<_, _>>().unwrap()
}

/// Verifies a chain as a peer does that trusts its last certificate.
fn verify(chain: &[String], at: SystemTime, usage: KeyUsage) -> Result<(), webpki::Error> {
    let all = ders(chain);
    let (leaf, others) = all.split_first().unwrap();
    let (root, between) = others.split_last().unwrap();
    let anchors = [anchor_from_trusted_cert(root).unwrap()];
    let time = UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap());
    let leaf = EndEntityCert::try_from(leaf).unwrap();
    leaf.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &anchors, between, time, usage, None, None).map(drop)
}

#[test]
fn signed_certificate_proves_the_identity_and_nothing_that_the_request_claims() {
    let authority = self_signed();
    for text in [
        request_of(&KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()),
        request_of(&KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap()),
        // Claims spiffe://cluster.local/ns/kube-system/sa/admin.
        RSA_REQUEST.to_owned(),
        // Claims to be an authority, and the DNS name of the API server.
        include_str!("../testdata/p256-extensions.csr").to_owned(),
        include_str!("../testdata/p384-sha256.csr").to_owned(),
    ] {
        let request = CertificateRequest::from_pem(&text).unwrap();
        let chain = authority.sign(&request, WEB, HOUR, now()).unwrap();
        for usage in [KeyUsage::client_auth(), KeyUsage::server_auth()] {
            verify(&chain, now(), usage).unwrap();
        }
        let all = ders(&chain);
        assert_eq!(all.len(), 2, "leaf and root");
        assert_eq!(spiffe_ids(Some(&all)).unwrap().identities, ["spiffe://cluster.local/ns/shop/sa/web"]);
        let (_, leaf) = X509Certificate::from_der(&all[0]).unwrap();
        assert_eq!(leaf.subject().iter().count(), 0, "an empty subject");
        let names = leaf.subject_alternative_name().unwrap().unwrap();
        assert_eq!((names.critical, names.value.general_names.len()), (true, 1));
        let usage = leaf.key_usage().unwrap().unwrap().value;
        assert_eq!(usage.flags, 0b101, "digital signature and key encipherment");
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && usage.server_auth && !usage.any && usage.other.is_empty());
        let constraints = leaf.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && !constraints.value.ca);
    }
}

#[test]
fn validity_begins_ten_minutes_back_and_ends_with_the_authority_at_the_latest() {
    let mut short = params("root");
    short.not_after = date_time_ymd(2027, 1, 15) + Duration::from_secs(9 * 3600);
    let short = root_with(short, KeyPair::generate().unwrap());
    let short = load(&short.certificate, &short.key.serialize_pem(), None, None).unwrap();
    let since = |at: SystemTime| i64::try_from(at.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let left = Duration::from_secs(u64::try_from(since(short.expires()) - since(now())).unwrap());
    assert!(left < HOUR * 24, "the authority expires within a day");
    for (authority, lifetime, expected) in
        [(&self_signed(), HOUR, HOUR), (&short, HOUR * 24, left), (&short, Duration::MAX, left)]
    {
        let chain = authority.sign(&request(), WEB, lifetime, now()).unwrap();
        let all = ders(&chain);
        let (_, leaf) = X509Certificate::from_der(&all[0]).unwrap();
        assert_eq!(leaf.validity().not_before.timestamp(), since(now()) - 600);
        assert_eq!(leaf.validity().not_after.timestamp(), since(now() + expected));
        let client = || KeyUsage::client_auth();
        verify(&chain, now() - Duration::from_secs(300), client()).unwrap();
        verify(&chain, now() + expected + HOUR, client()).unwrap_err();
    }
    let late = short.sign(&request(), WEB, HOUR, short.expires());
    assert!(matches!(late, Err(SignError::Expired)), "{late:?}");
}

/// Clock of a machine that differs from [`now`] by these seconds.
fn clock(skew: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000_u64.saturating_add_signed(skew))
}

#[test]
fn clocks_that_differ_by_five_minutes_accept_each_others_certificates() {
    const SKEW: i64 = 300;
    let made = SelfSigned::create(now()).unwrap();
    for of_authority in [-SKEW, 0, SKEW] {
        // A replica with another clock loads the root right after it was created.
        let texts = AuthorityPem {
            certificate: pem("ca-cert.pem", &made.certificate),
            key: pem("ca-key.pem", &made.key),
            chain: None,
            roots: None,
        };
        let authority = Authority::from_pem(&texts, clock(of_authority)).unwrap();
        for lifetime in [Duration::from_secs(600), HOUR, HOUR * 24] {
            let chain = authority.sign(&request(), WEB, lifetime, clock(of_authority)).unwrap();
            let seconds = i64::try_from(lifetime.as_secs()).unwrap();
            for of_peer in [-SKEW, 0, SKEW] {
                let at = |after: i64| verify(&chain, clock(of_peer + after), KeyUsage::client_auth());
                at(0).unwrap();
                // Agents renew when half of the validity is left: until then, peers accept it.
                at(seconds / 2 - SKEW).unwrap();
                at(seconds + 3 * SKEW).unwrap_err();
            }
        }
    }
}

#[test]
fn own_certificate_is_valid_for_clients_whose_clock_differs_by_five_minutes() {
    let authority = self_signed();
    let names = BTreeSet::from(["istiod.istio-system.svc".to_owned()]);
    let certified = authority.server(&names, HOUR, now()).unwrap();
    let leaf = pem::encode(&pem::Pem::new("CERTIFICATE", certified.cert[0].to_vec()));
    let chain = [leaf, authority.roots_pem()];
    for skew in [-300, 0, 300] {
        verify(&chain, clock(skew), KeyUsage::server_auth()).unwrap();
    }
    verify(&chain, clock(-900), KeyUsage::server_auth()).unwrap_err();
}

#[test]
fn serial_numbers_are_random() {
    let (authority, request) = (self_signed(), request());
    let serials: BTreeSet<_> = (0..20)
        .map(|_| {
            let chain = authority.sign(&request, WEB, HOUR, now()).unwrap();
            let (_, leaf) = X509Certificate::from_der(&ders(&chain)[0])
                .map(|(r, c)| (r.len(), c.raw_serial().to_vec()))
                .unwrap();
            assert!(leaf.len() > 8, "{leaf:?}");
            leaf
        })
        .collect();
    assert_eq!(serials.len(), 20);
}

#[test]
fn each_encoding_of_a_key_signs() {
    for (pkcs8, other) in [(RSA_PKCS8, RSA_PKCS1), (P256_PKCS8, P256_SEC1), (P384_PKCS8, P384_SEC1)] {
        let root = root_with(params("root"), KeyPair::from_pem(pkcs8).unwrap());
        for key in [pkcs8, other] {
            let authority = load(&root.certificate, key, None, None).unwrap();
            let chain = authority.sign(&request(), WEB, HOUR, now()).unwrap();
            verify(&chain, now(), KeyUsage::client_auth()).unwrap();
        }
    }
}

#[test]
fn plugged_in_intermediate_is_followed_by_its_chain_and_the_roots() {
    let root = root();
    let upper = below(&root, params("upper"));
    let lower = below(&upper, params("lower"));
    let key = lower.key.serialize_pem();
    let both = format!("{}{}", lower.certificate, upper.certificate);
    let all = format!("{both}{}", root.certificate);
    for (certificate, chain) in [
        // As Istio's documentation builds them: the chain repeats the authority and the root.
        (lower.certificate.as_str(), Some(all.as_str())),
        (lower.certificate.as_str(), Some(upper.certificate.as_str())),
        // As `tls.crt` of cert-manager.
        (both.as_str(), None),
        (all.as_str(), None),
    ] {
        let authority = load(certificate, &key, chain, Some(&root.certificate)).unwrap();
        let chain = authority.sign(&request(), WEB, HOUR, now()).unwrap();
        assert_eq!(
            ders(&chain)[1..],
            ders(&[lower.certificate.clone(), upper.certificate.clone(), root.certificate.clone()])
        );
        verify(&chain, now(), KeyUsage::server_auth()).unwrap();
        assert_eq!(ders(&[authority.roots_pem()]), ders(std::slice::from_ref(&root.certificate)));
    }
}

#[test]
fn all_roots_are_the_last_text_of_a_chain() {
    let (old, new) = (root(), root());
    let lower = below(&old, params("lower"));
    let roots = format!("{}{}", old.certificate, new.certificate);
    let authority = load(&lower.certificate, &lower.key.serialize_pem(), None, Some(&roots)).unwrap();
    let chain = authority.sign(&request(), WEB, HOUR, now()).unwrap();
    let counts: Vec<_> = chain.iter().map(|text| text.matches("BEGIN CERTIFICATE").count()).collect();
    assert_eq!(counts, [1, 1, 2], "leaf, intermediate, roots");
    assert_eq!(ders(&chain[2..]), ders(&[roots]));
}

/// Certificate, key, chain and roots of an authority, with the beginning of the error that refuses it.
type Unusable<'a> = (&'a str, String, Option<&'a str>, Option<&'a str>, &'a str);

fn assert_refused<const N: usize>(cases: [Unusable<'_>; N]) {
    for (certificate, key, chain, roots, expected) in cases {
        let error = load(certificate, &key, chain, roots).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{expected}: {error}");
        assert!(key.lines().nth(1).is_none_or(|secret| !error.contains(secret)), "{error}");
    }
}

#[test]
fn unusable_authority_is_refused_with_the_file_and_without_the_key() {
    let (root, other) = (root(), self::root());
    let lower = below(&root, params("lower"));
    let key = |made: &Made| made.key.serialize_pem();
    let ed = KeyPair::generate_for(&PKCS_ED25519).unwrap().serialize_pem();
    let (roots, others) = (Some(root.certificate.as_str()), Some(other.certificate.as_str()));
    assert_refused([
        ("", key(&root), None, None, "ca-cert.pem: no certificate in PEM"),
        (&root.key.serialize_pem(), key(&root), None, None, "ca-cert.pem: no certificate in PEM"),
        (&root.certificate, String::new(), None, None, "ca-key.pem: no private key"),
        (&root.certificate, ed, None, None, "ca-key.pem: no private key"),
        (&root.certificate, key(&other), None, None, "ca-cert.pem and ca-key.pem do not belong together"),
        (&lower.certificate, key(&lower), None, None, "ca-cert.pem is not self-signed"),
        (&lower.certificate, key(&lower), None, others, "certificates signed by ca-cert.pem"),
        (&lower.certificate, key(&lower), Some(""), roots, "cert-chain.pem: no certificate"),
        (&lower.certificate, key(&lower), None, Some(""), "root-cert.pem: no certificate"),
    ]);
}

#[test]
fn authority_that_must_not_sign_is_refused() {
    let root = root();
    let mut leaf = params("leaf");
    leaf.is_ca = IsCa::ExplicitNoCa;
    let leaf = below(&root, leaf);
    let mut signer = params("signs nothing");
    signer.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let no_signer = below(&root, signer);
    let mut old = params("old");
    old.not_after = date_time_ymd(2021, 1, 1);
    let old = below(&root, old);
    let mut old_root = params("old root");
    old_root.not_after = date_time_ymd(2021, 1, 1);
    let old_root = root_with(old_root, KeyPair::generate().unwrap());
    let mut last = params("last");
    last.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let last = below(&root, last);
    let beyond = below(&last, params("beyond"));
    let key = |made: &Made| made.key.serialize_pem();
    let (roots, chain) = (Some(root.certificate.as_str()), Some(last.certificate.as_str()));
    let unverified = "certificates signed by ca-cert.pem do not verify";
    assert_refused([
        (
            &leaf.certificate,
            key(&leaf),
            None,
            roots,
            "ca-cert.pem: it is not the certificate of an authority",
        ),
        (&no_signer.certificate, key(&no_signer), None, roots, "ca-cert.pem: its key must not sign"),
        (&old.certificate, key(&old), None, roots, unverified),
        (&old_root.certificate, key(&old_root), None, None, unverified),
        (&beyond.certificate, key(&beyond), chain, roots, "certificates signed by ca-cert.pem"),
    ]);
}

#[test]
fn requests_with_weak_or_foreign_keys_are_refused() {
    let ed = request_of(&KeyPair::generate_for(&PKCS_ED25519).unwrap());
    for (text, expected) in [
        (include_str!("../testdata/rsa-1024.csr"), RequestError::Key),
        (include_str!("../testdata/rsa-10240.csr"), RequestError::Key),
        (include_str!("../testdata/rsa-1024-sha1.csr"), RequestError::Key),
        (include_str!("../testdata/rsa-sha1.csr"), RequestError::Key),
        (include_str!("../testdata/p521.csr"), RequestError::Key),
        (include_str!("../testdata/secp256k1.csr"), RequestError::Key),
        (&ed, RequestError::Key),
    ] {
        assert_eq!(CertificateRequest::from_pem(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn malformed_requests_are_refused_without_a_panic() {
    let good = request_of(&KeyPair::generate().unwrap());
    let der = pem::parse(&good).unwrap().into_contents();
    let text = |tag: &str, der: Vec<u8>| pem::encode(&pem::Pem::new(tag, der));
    let request = |der| text("CERTIFICATE REQUEST", der);
    assert!(CertificateRequest::from_pem(&text("NEW CERTIFICATE REQUEST", der.clone())).is_ok());
    let long = "x".repeat(MAX_REQUEST_BYTES + 1);
    for (text, expected) in [
        (String::new(), RequestError::Pem),
        ("no request".into(), RequestError::Pem),
        (text("CERTIFICATE", der.clone()), RequestError::Pem),
        (long, RequestError::TooLong(MAX_REQUEST_BYTES)),
        (request(vec![]), RequestError::Malformed),
        (request([der.clone(), vec![0]].concat()), RequestError::Malformed),
        (request(vec![0x30; 4000]), RequestError::Malformed),
        (request(vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), RequestError::Malformed),
    ] {
        assert_eq!(CertificateRequest::from_pem(&text).unwrap_err(), expected, "{text}");
    }
    for length in 0..der.len() {
        assert!(CertificateRequest::from_pem(&request(der[..length].to_vec())).is_err(), "{length} bytes");
    }
}

#[test]
fn each_changed_byte_of_a_request_breaks_its_signature() {
    let good = request_of(&KeyPair::generate().unwrap());
    let der = pem::parse(&good).unwrap().into_contents();
    // The identifier of the algorithm, 12 bytes, is not signed, and not each of its tags is checked.
    let algorithm = der.windows(4).position(|bytes| bytes == [0x30, 0x0a, 0x06, 0x08]).unwrap();
    for place in (0..algorithm).chain(algorithm + 12..der.len()) {
        let mut changed = der.clone();
        changed[place] ^= 1;
        let text = pem::encode(&pem::Pem::new("CERTIFICATE REQUEST", changed));
        assert!(CertificateRequest::from_pem(&text).is_err(), "byte {place}");
    }
}

#[test]
fn validity_is_the_default_where_none_is_asked_for_and_never_above_the_maximum() {
    let rules = Lifetimes { default: HOUR, max: HOUR * 2 };
    for (asked, expected) in [
        (0, Some(HOUR)),
        (-1, Some(HOUR)),
        (i64::MIN, Some(HOUR)),
        (60, Some(HOUR / 60)),
        (7200, Some(HOUR * 2)),
        (7201, None),
        (i64::MAX, None),
    ] {
        assert_eq!(rules.of(asked).ok(), expected, "{asked}");
    }
    let error = rules.of(7201).unwrap_err().to_string();
    assert_eq!(error, "the requested validity of 7201 seconds is longer than the maximum of 7200 seconds");
}

#[test]
fn workload_certificate_is_for_a_key_of_its_own() {
    let authority = self_signed();
    let [one, two] = [0, 1].map(|_| authority.workload(WEB, HOUR, now()).unwrap());
    assert!(one.key != two.key && one.key.starts_with("-----BEGIN PRIVATE KEY-----"), "PKCS#8");
    assert_eq!(one.expires, now() + HOUR);
    let key = KeyPair::from_pem(&one.key).unwrap();
    let leaf = CertificateDer::from_pem_slice(one.chain.as_bytes()).unwrap();
    let (_, parsed) = X509Certificate::from_der(&leaf).unwrap();
    assert_eq!(parsed.public_key().subject_public_key.data.as_ref(), key.public_key_raw());
    assert_eq!(
        spiffe_ids(Some(std::slice::from_ref(&leaf))).unwrap().identities,
        ["spiffe://cluster.local/ns/shop/sa/web"]
    );
    let chain = [one.chain.clone(), authority.roots_pem()];
    for usage in [KeyUsage::client_auth(), KeyUsage::server_auth()] {
        verify(&chain, now(), usage).unwrap();
    }
    let shown = format!("{one:?}");
    assert!(!shown.contains("PRIVATE") && !shown.contains("CERTIFICATE"), "{shown}");
    let long = authority.workload(WEB, HOUR * 24 * 365 * 20, now()).unwrap();
    assert_eq!(long.expires, authority.expires(), "it ends with the authority");
}

#[test]
fn server_certificate_has_the_names() {
    let authority = self_signed();
    let names = ["istiod.istio-system.svc", "127.0.0.1", "::1"].map(str::to_owned).into();
    let certified = authority.server(&names, HOUR, now()).unwrap();
    let leaf = EndEntityCert::try_from(certified.end_entity_cert().unwrap()).unwrap();
    for name in names {
        leaf.verify_is_valid_for_subject_name(&name.as_str().try_into().unwrap()).unwrap();
    }
    let serving = Serving::new(certified);
    assert!(format!("{serving:?}").len() < 20, "no key: {serving:?}");
    assert!(authority.server(&BTreeSet::from(["\u{e9}".to_owned()]), HOUR, now()).is_err());
}

#[test]
fn debug_output_shows_no_key() {
    let made = SelfSigned::create(now()).unwrap();
    let secret = made.key.lines().nth(1).unwrap().to_owned();
    let shown = format!("{made:?}");
    assert!(!shown.contains(&secret), "{shown}");
    let shown = format!("{:?}", load(&made.certificate, &made.key, None, None).unwrap());
    assert!(shown.contains("elided") && !shown.contains("Ecdsa"), "{shown}");
}

#[test]
fn joined_roots_have_each_certificate_once_and_nothing_else() {
    let now = SystemTime::now();
    let (one, two) = (SelfSigned::create(now).unwrap(), SelfSigned::create(now).unwrap());
    let both = format!("a comment\n{}\n{}", two.certificate, one.certificate.replace('\n', "\r\n"));
    let with_key = format!("{}{}", two.certificate, two.key);
    let texts = [&*one.certificate, "no certificate", &both, &with_key, ""];
    let (joined, unusable) = crate::join_roots(texts);
    assert_eq!(joined, format!("{}{}", one.certificate, two.certificate));
    assert_eq!(unusable, [1, 3, 4], "a text with a key is left out");
}

#[test]
fn certificates_are_described_by_their_part() {
    let now = SystemTime::now();
    let made = SelfSigned::create(now).unwrap();
    let certificate = Pem { origin: "cert", text: made.certificate.as_bytes() };
    let key = Pem { origin: "key", text: made.key.as_bytes() };
    let authority =
        Authority::from_pem(&AuthorityPem { certificate, key, chain: None, roots: None }, now).unwrap();
    let [signing, root] = authority.certificates().unwrap().try_into().unwrap();
    assert_eq!((signing.role, root.role), (CertificateRole::Signing, CertificateRole::Root));
    assert_eq!(signing.subject, "O=Pilotfish, CN=Mesh root");
    assert!(signing.serial == root.serial && (20..=32).contains(&signing.serial.len()), "{signing:?}");
    assert_eq!(signing.expires, authority.expires());
}

#[test]
fn debug_shows_no_key() {
    let SelfSigned { certificate, key } = SelfSigned::create(now()).unwrap();
    let texts = AuthorityPem {
        certificate: pem("ca-cert.pem", &certificate),
        key: pem("ca-key.pem", &key),
        chain: None,
        roots: None,
    };
    let authority = Authority::from_pem(&texts, now()).unwrap();
    let made = SelfSigned { certificate: certificate.clone(), key: key.clone() };
    let identity = WorkloadId { trust_domain: "cluster.local", namespace: "a", service_account: "b" };
    let workload = authority.workload(identity, Duration::from_secs(3600), now()).unwrap();
    let shown = format!("{texts:?}\n{:#?}\n{made:?}\n{authority:?}\n{workload:?}", texts.key);
    assert!(shown.contains("ca-key.pem"));
    for secret in [&key, &workload.key] {
        let planted = secret.lines().nth(1).unwrap();
        assert!(!shown.contains(planted), "as text: {shown}");
        // Bytes are shown as a list of numbers.
        let bytes = format!("{:?}", &planted.as_bytes()[..8]);
        assert!(!shown.contains(bytes.trim_matches(['[', ']'])), "as bytes: {shown}");
    }
}

/// A root with an authority of it.
fn authority() -> (Made, Authority) {
    let root = root();
    let authority = load(&root.certificate, &root.key.serialize_pem(), None, None).unwrap();
    (root, authority)
}

#[test]
fn a_client_accepts_the_certificate_of_its_key_and_no_other() {
    let (_, authority) = authority();
    let (_, stranger) = self::authority();
    let [key, other] = [WorkloadKey::create().unwrap(), WorkloadKey::create().unwrap()];
    let request =
        |key: &WorkloadKey, identity| CertificateRequest::from_pem(&key.request(identity).unwrap()).unwrap();
    let chain = authority.sign(&request(&key, None), WEB, HOUR, now()).unwrap();
    let issued = key.accept(&chain, Some(WEB), now()).unwrap();
    assert_eq!((&*issued.identity, issued.expires), (&*WEB.to_string(), now() + HOUR));
    assert_eq!(issued.chain + &issued.roots, chain.concat());
    assert_eq!(key.accept(&chain, None, now()).unwrap().identity, WEB.to_string());
    let again = WorkloadKey::from_pem(&key.to_pem()).unwrap();
    assert!(again.accept(&chain, None, now()).is_ok());

    let cart = WorkloadId { service_account: "cart", ..WEB };
    let late = now() + HOUR * 2;
    let with_other_roots = [chain[0].clone(), stranger.roots_pem()];
    for (key, chain, identity, at, expected) in [
        (&other, &chain[..], None, now(), "for another key"),
        (&key, &chain, Some(cart), now(), "and not for spiffe://cluster.local/ns/shop/sa/cart"),
        (&key, &chain, None, late, "does not verify with the roots: "),
        (&key, &with_other_roots, None, now(), "does not verify with the roots: "),
        (&key, &chain[..1], None, now(), "no roots"),
        (&key, &[], None, now(), "no certificate"),
        (&key, &["x".into(), chain[1].clone()], None, now(), "cannot be parsed"),
    ] {
        let error = key.accept(chain, identity, at).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_client_accepts_spiffe_ids_only() {
    use rcgen::SanType;
    let (root, _) = authority();
    let key = KeyPair::generate().unwrap();
    let own = WorkloadKey::from_pem(&key.serialize_pem()).unwrap();
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    let dns = SanType::DnsName("web.example.com".try_into().unwrap());
    for (names, is_ca, expected) in [
        (vec![uri(&WEB.to_string())], IsCa::ExplicitNoCa, None),
        (vec![uri(&WEB.to_string()), dns.clone()], IsCa::ExplicitNoCa, Some("another name than a SPIFFE id")),
        (vec![dns], IsCa::ExplicitNoCa, Some("another name than a SPIFFE id")),
        (vec![uri(&WEB.to_string()), uri("spiffe://a/b")], IsCa::ExplicitNoCa, Some("2 URI names")),
        (vec![uri("https://example.com/")], IsCa::ExplicitNoCa, Some("no SPIFFE id")),
        (vec![], IsCa::ExplicitNoCa, Some("no SPIFFE identity")),
        (vec![uri(&WEB.to_string())], IsCa::Ca(BasicConstraints::Unconstrained), Some("does not verify")),
    ] {
        let mut params = params("leaf");
        params.is_ca = is_ca;
        params.subject_alt_names = names;
        let leaf = params.signed_by(&key, &Issuer::from_params(&root.params, &root.key)).unwrap().pem();
        let checked = own.accept(&[leaf, root.certificate.clone()], None, now());
        match (checked, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (checked, expected) => panic!("{expected:?}: {checked:?}"),
        }
    }
}

#[test]
fn workload_keys_show_nothing_of_themselves() {
    let key = WorkloadKey::create().unwrap();
    assert_eq!(format!("{key:?}"), "WorkloadKey { .. }");
    let error = WorkloadKey::from_pem("secret").unwrap_err().to_string();
    assert!(!error.contains("secret"), "{error}");
}

#[test]
fn a_request_for_external_signers_holds_the_identity_and_nothing_else() {
    use rcgen::{CustomExtension, ExtendedKeyUsagePurpose, SanType};
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    let own = || uri(&WEB.to_string());
    let key = KeyPair::generate().unwrap();
    let read = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![own()];
        change(&mut params);
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        CertificateRequest::from_pem_claiming(&request, WEB)
    };
    read(&|_| {}).unwrap();
    read(&|params| params.distinguished_name.push(DnType::OrganizationName, "")).unwrap();
    // Other parsers of PEM would find the second one.
    let [first, second] = [WEB, WorkloadId { service_account: "admin", ..WEB }]
        .map(|identity| WorkloadKey::create().unwrap().request(Some(identity)).unwrap());
    let verified = CertificateRequest::from_pem_claiming(&format!("x{first}{second}"), WEB).unwrap();
    assert_eq!(verified.to_pem(), first);
    let admin = WorkloadId { service_account: "admin", ..WEB }.to_string();
    let dns = || SanType::DnsName("web.example.com".try_into().unwrap());
    type Change<'a> = &'a dyn Fn(&mut CertificateParams);
    let cases: [(Change<'_>, &str); 9] = [
        (&|params| params.subject_alt_names = vec![uri(&admin)], "alternative names are others"),
        (&|params| params.subject_alt_names = vec![own(), uri(&admin)], "alternative names are others"),
        (&|params| params.subject_alt_names = vec![own(), own()], "alternative names are others"),
        (&|params| params.subject_alt_names = vec![own(), dns()], "alternative names are others"),
        (&|params| params.subject_alt_names = vec![dns()], "alternative names are others"),
        (&|params| params.subject_alt_names = vec![], "no alternative name"),
        (&|params| params.distinguished_name.push(DnType::CommonName, "admin"), "it has a subject"),
        (
            &|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning],
            "another extension than alternative names",
        ),
        (
            &|params| {
                params.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0])]
            },
            "another extension than alternative names",
        ),
    ];
    for (change, expected) in cases {
        let error = read(change).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn what_an_external_signer_returns_is_checked() {
    let (root, authority) = authority();
    let external = ExternalAuthority::from_pem(pem("roots.pem", &root.certificate), now()).unwrap();
    assert_eq!(external.roots_pem(), root.certificate);
    assert_eq!(external.certificates().unwrap().len(), 1);
    let [key, other] = [WorkloadKey::create().unwrap(), WorkloadKey::create().unwrap()];
    let request = CertificateRequest::from_pem_claiming(&key.request(Some(WEB)).unwrap(), WEB).unwrap();
    let foreign = CertificateRequest::from_pem(&other.request(Some(WEB)).unwrap()).unwrap();
    let cart = WorkloadId { service_account: "cart", ..WEB };
    let sign = |request, identity, lifetime| authority.sign(request, identity, lifetime, now()).unwrap();
    let check = |text: &str| external.check(&request, text, WEB, HOUR, now());
    let good = sign(&request, WEB, HOUR);
    let issued = check(&good.concat()).unwrap();
    assert_eq!((issued.chain, issued.roots), (good[0].clone(), root.certificate.clone()));
    check(&good[0]).unwrap();
    let (_, stranger) = self::authority();
    for (text, expected) in [
        (sign(&foreign, WEB, HOUR)[0].clone(), "for another key"),
        (sign(&request, cart, HOUR)[0].clone(), "is for spiffe://cluster.local/ns/shop/sa/cart"),
        (sign(&request, WEB, HOUR * 2)[0].clone(), "longer than the maximum of 3600 seconds"),
        (stranger.sign(&request, WEB, HOUR, now()).unwrap()[0].clone(), "does not verify"),
        (root.certificate.clone(), "no certificate"),
        (String::new(), "cannot be parsed"),
    ] {
        let error = check(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn external_roots_must_be_usable() {
    let root = root();
    let year = HOUR * 24 * 366;
    for (text, at, expected) in [
        (String::new(), now(), "no certificate"),
        (root.certificate.replace("MII", "AAA"), now(), "roots.pem"),
        (root.certificate.clone(), now() + year * 40, "all roots have expired"),
    ] {
        let error = ExternalAuthority::from_pem(pem("roots.pem", &text), at).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

/// A list of an authority in PEM, with these serial numbers, valid until this year.
fn list(issuer: &Made, serials: &[u64], year: i32) -> String {
    use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2024, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(year, 1, 1),
        crl_number: SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&Issuer::from_params(&issuer.params, &issuer.key)).unwrap().pem().unwrap()
}

#[test]
fn revocation_lists_must_cover_the_chain_and_revoke_nothing_of_it() {
    let with_crls = |name: &str, serial: u64| {
        let mut params = params(name);
        params.key_usages.push(KeyUsagePurpose::CrlSign);
        params.serial_number = Some(serial.into());
        params
    };
    let root = root_with(with_crls("root", 1), KeyPair::generate().unwrap());
    let between = below(&root, with_crls("between", 7));
    let stranger = root_with(with_crls("stranger", 2), KeyPair::generate().unwrap());
    let key = between.key.serialize_pem();
    let read = |lists: &str| {
        let authority = load(&between.certificate, &key, None, Some(&root.certificate)).unwrap();
        assert_eq!(authority.revocations_pem(), None);
        authority.with_revocations(pem("ca-crl.pem", lists), now())
    };
    let of_root = list(&root, &[5], 2060);
    let both = format!("{of_root}{}", list(&between, &[6], 2060));
    assert_eq!(read(&both).unwrap().revocations_pem(), Some(&*both));
    for (lists, expected) in [
        (String::new(), "ca-crl.pem: no revocation list in PEM"),
        (root.certificate.clone(), "ca-crl.pem: no revocation list in PEM"),
        (both.replace("CRL-----\nM", "CRL-----\nA"), "ca-crl.pem: "),
        (of_root.clone(), "UnknownRevocationStatus"),
        (format!("{of_root}{}", list(&stranger, &[], 2060)), "UnknownRevocationStatus"),
        (format!("{}{}", list(&root, &[7], 2060), list(&between, &[], 2060)), "CertRevoked"),
    ] {
        let error = read(&lists).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("ca-crl.pem"), "{expected}: {error}");
    }
    let expired = |lists: &str| read(lists).unwrap().check_revocations(now()).map_err(|e| e.to_string());
    let error = expired(&format!("{of_root}{}", list(&between, &[], 2025))).unwrap_err();
    assert!(error.contains("ca-crl.pem: a list has expired"), "{error}");
    assert_eq!(expired(&both), Ok(()));
    assert_eq!(expired(&format!("{both}{}", list(&stranger, &[], 2025))), Ok(()));
}
