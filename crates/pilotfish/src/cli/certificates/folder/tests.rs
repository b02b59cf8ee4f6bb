use super::*;
use pilotfish_ca::{Authority, AuthorityPem, CertificateRequest, SelfSigned};
use pilotfish_identity::Pem;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const WEB: WorkloadId<'_> =
    WorkloadId { trust_domain: "cluster.local", namespace: "shop", service_account: "web" };
const CART: WorkloadId<'_> = WorkloadId { service_account: "cart", ..WEB };

/// A key and a certificate for it.
fn issued(now: SystemTime) -> (WorkloadKey, IssuedCertificate) {
    let made = SelfSigned::create(now).unwrap();
    let pem = |text: &'static str| Pem { origin: "test", text: text.as_bytes() };
    let (certificate, key) = (made.certificate.leak(), made.key.leak());
    let texts = AuthorityPem { certificate: pem(certificate), key: pem(key), chain: None, roots: None };
    let authority = Authority::from_pem(&texts, now).unwrap();
    let key = WorkloadKey::create().unwrap();
    let request = CertificateRequest::from_pem(&key.request(Some(WEB)).unwrap()).unwrap();
    let chain = authority.sign(&request, WEB, Duration::from_secs(3600), now).unwrap();
    let certificate = key.accept(&chain, Some(WEB), now).unwrap();
    (key, certificate)
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn all_files_change_at_once_and_the_version_before_stays_for_its_readers() {
    let (temporary, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let path = temporary.path().join("a/certificates");
    let folder = OutputFolder::open(&path).unwrap();
    assert_eq!(folder.kept(None, now).unwrap(), None);
    let [first, second, third] = [issued(now), issued(now), issued(now)];
    folder.replace(&first.0, &first.1).unwrap();
    // A reader resolves the link once.
    let reader = fs::canonicalize(path.join(CURRENT)).unwrap();
    folder.replace(&second.0, &second.1).unwrap();
    assert_eq!(read(&reader, KEY), first.0.to_pem());
    assert_eq!(read(&reader, CHAIN), first.1.chain);
    for (name, expected) in [(KEY, &second.0.to_pem()), (CHAIN, &second.1.chain), (ROOTS, &second.1.roots)] {
        assert_eq!(&read(&path, name), expected);
    }
    let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(KEY), 0o600);
    folder.replace(&third.0, &third.1).unwrap();
    assert_eq!(
        names(&path),
        ["..certificates-2", "..certificates-3", "..data", CHAIN, KEY, ROOTS].map(str::to_owned)
    );
    let kept = folder.kept(Some(WEB), now).unwrap().unwrap();
    assert_eq!(kept.certificate, third.1);
}

#[test]
fn files_of_another_program_are_replaced_and_remains_of_a_crash_are_removed() {
    let (temporary, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let path = temporary.path();
    for name in [CHAIN, KEY, "..new-..data", "other"] {
        fs::write(path.join(name), "old").unwrap();
    }
    fs::create_dir(path.join("..certificates-7")).unwrap();
    let (key, certificate) = issued(now);
    let folder = OutputFolder::open(path).unwrap();
    folder.replace(&key, &certificate).unwrap();
    assert_eq!(read(path, KEY), key.to_pem());
    assert_eq!(names(path), ["..certificates-8", "..data", CHAIN, KEY, "other", ROOTS].map(str::to_owned));
}

#[test]
fn certificate_that_cannot_be_used_is_not_kept() {
    let (temporary, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let path = temporary.path();
    let folder = OutputFolder::open(path).unwrap();
    let [(key, certificate), (other, _)] = [issued(now), issued(now)];
    folder.replace(&key, &certificate).unwrap();
    let reason = |identity, now| format!("{:#}", folder.kept(identity, now).unwrap_err());
    assert!(reason(Some(CART), now).contains("and not for spiffe://cluster.local/ns/shop/sa/cart"));
    assert!(reason(None, now + Duration::from_secs(3601)).contains("does not verify"));
    folder.replace(&other, &certificate).unwrap();
    assert!(reason(None, now).contains("for another key"));
    fs::remove_file(path.join(ROOTS).canonicalize().unwrap()).unwrap();
    assert!(reason(None, now).contains("root-cert.pem"));
}

#[test]
fn two_processes_do_not_share_a_folder() {
    let temporary = tempfile::tempdir().unwrap();
    let first = OutputFolder::open(temporary.path()).unwrap();
    let error = format!("{:#}", OutputFolder::open(temporary.path()).unwrap_err());
    assert!(error.contains("--output-dir") && error.contains("another process"), "{error}");
    drop(first);
    OutputFolder::open(temporary.path()).unwrap();
}
