//! The example in Python against a server with TLS and tokens: it registers, renews, comes back when it was
//! lost, and deregisters at the end.

#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_identity::{Authorities, Pem, ServerCertificate, Tls};
use pilotfish_registration::testing::MemoryStore;
use pilotfish_registration::{Caller, Deregister, Expected, InstanceKey, Registrar, RegistrarSettings};
use pilotfish_registration_server::{ALPN, AccessFiles, RegistrationServer, ServerSettings, Silent};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXAMPLE: &str = "examples/registration/python/register.py";

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn start(address: SocketAddr, directory: &Path, service: &str) -> Process {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut command = Command::new("python3");
    command.arg(root.join(EXAMPLE)).args(["--server", &format!("https://{address}"), "--service", service]);
    command.args(["--id", "py-1", "--port", "8080", "--ttl", "1"]);
    command.arg("--token-file").arg(directory.join("token")).arg("--ca-file").arg(directory.join("ca.pem"));
    Process(command.stdin(Stdio::null()).spawn().unwrap())
}

fn pem(text: &str) -> Pem<'_> {
    Pem { origin: "test", text: text.as_bytes() }
}

/// TLS of a server on 127.0.0.1, whose authority is written to `ca`.
fn tls(ca: &Path) -> Arc<Tls> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(ca, authority.pem()).unwrap();
    let mut params = CertificateParams::default();
    // OpenSSL in newer versions of Python is strict about it.
    params.use_authority_key_identifier_extension = true;
    params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap().pem();
    let (key, authority) = (key.serialize_pem(), authority.pem());
    let certificate = ServerCertificate::from_pem(pem(&certificate), pem(&key)).unwrap();
    let authorities = Authorities::from_pem(&[pem(&authority)]).unwrap();
    Arc::new(Tls::new(certificate, authorities, ALPN).unwrap())
}

// The test waits for processes: the server needs threads of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_keeps_a_service_registered() {
    let directory = tempfile::tempdir().unwrap();
    let (tokens, rules, token) = (
        directory.path().join("tokens.yaml"),
        directory.path().join("rules.yaml"),
        directory.path().join("token"),
    );
    std::fs::write(&tokens, "tokens:\n- name: python\n  token: 0123456789abcdef\n").unwrap();
    let allowed =
        "rules:\n- identities: [token/python]\n  services: [web]\n  actions: [register, deregister]\n";
    std::fs::write(&rules, allowed).unwrap();
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    let (store, events) = MemoryStore::open();
    let (registrar, driver) = Registrar::new(Arc::new(store), events, RegistrarSettings::default());
    let driver = tokio::spawn(driver.run());
    let mut settings = ServerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    settings.tls = Some(tls(&directory.path().join("ca.pem")));
    settings.access = AccessFiles { tokens: Some(tokens), rules: Some(rules) };
    let bound = RegistrationServer::new(registrar.clone(), settings, Arc::new(Silent)).bind().unwrap();
    let address = bound.local_addr();
    let server = tokio::spawn(bound.run(std::future::pending()));

    let mut process = start(address, directory.path(), "web");
    let key = InstanceKey::new("default", "web", "py-1");
    eventually("it registers", || registrar.get(&key).is_some()).await;
    let view = registrar.get(&key).unwrap();
    assert_eq!(
        (&*view.record.owner, view.record.instance.addresses[0].to_string().as_str()),
        ("token/python", "127.0.0.1")
    );
    eventually("it renews", || registrar.stats().renewed >= 3).await;
    let operator = Caller { identity: "operator".into(), may_take_over: true };
    let request = Deregister { key: key.clone(), expected: Expected::Any, drain: None };
    registrar.deregister(&operator, vec![request]).await.remove(0).unwrap();
    eventually("it comes back", || registrar.get(&key).is_some()).await;
    let ended = Command::new("kill").args(["-TERM", &process.0.id().to_string()]).status().unwrap();
    assert!(ended.success());
    assert!(process.0.wait().unwrap().success());
    assert_eq!(registrar.get(&key), None);

    let mut refused = start(address, directory.path(), "other");
    assert_eq!(refused.0.wait().unwrap().code(), Some(1), "no rule allows it");
    server.abort();
    driver.abort();
}
