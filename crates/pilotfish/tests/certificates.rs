//! Certificates of workloads: a client that does what Istio's agent does obtains one, connects with it,
//! renews it, and survives a restart of the control plane.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use pilotfish_testkit::real::{Authority, Pilotfish, Program, Tunnel, eventually, free_port};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertificateSigningRequest, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use support::certificates::{create_with, der};
use support::delta::{Proxy, node};
use support::issuer::Ed25519;
use tempfile::TempDir;
use tokio::process::Command;
use tonic::{Code, Status};

const BINARY: &str = env!("CARGO_BIN_EXE_pilotfish");
const WEB: &str = "outbound|80||web.shop.svc.cluster.local";
const SHOP_WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
const ENTRY: &str = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: web, namespace: shop}\nspec:\n  hosts: \
                     [web.shop.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  ports: [{name: http, \
                     number: 80, protocol: HTTP}]\n  endpoints: [{address: 192.0.2.1, ports: {http: 8080}}]\n";

/// Pilotfish with an authority of its own. Clients prove who they are by certificates of another one at
/// first.
struct Mesh {
    folder: TempDir,
    pilotfish: Pilotfish,
    port: u16,
}

impl Mesh {
    async fn start(first: &Authority, ca: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_in(folder, first, ca).await
    }

    async fn start_in(folder: TempDir, first: &Authority, ca: &str) -> Self {
        Self::start_with(folder, first, ca, &[]).await
    }

    async fn start_with(folder: TempDir, first: &Authority, ca: &str, more: &[&str]) -> Self {
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(at("mesh")).unwrap();
        std::fs::write(at("mesh/web.yaml"), ENTRY).unwrap();
        std::fs::write(at("first.pem"), first.root()).unwrap();
        let port = free_port();
        let (mesh, address) = (at("mesh"), format!("127.0.0.1:{port}"));
        let (data, authorities) = (at("data"), at("first.pem"));
        let own = [&mesh, "--secure-xds-address", &address, "--ca", ca, "--data-dir", &data];
        let arguments = [&own[..], &["--ca-cert-file", &authorities], more].concat();
        let pilotfish = Pilotfish::launch(BINARY, &arguments);
        pilotfish.ready().await;
        Self { folder, pilotfish, port }
    }

    /// The file of a self-signed authority.
    fn file(&self) -> PathBuf {
        self.folder.path().join("data/ca.pem")
    }

    /// A tunnel of a client that trusts these roots.
    async fn tunnel(&self, roots: &str, client: Option<&(String, String)>) -> Tunnel {
        Tunnel::start(self.port, roots, client).await
    }
}

/// A new key with a request for it, which claims another identity.
fn request() -> (KeyPair, CertificateSigningRequest) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    let admin = "spiffe://cluster.local/ns/kube-system/sa/admin";
    params.subject_alt_names = vec![SanType::URI(admin.try_into().unwrap())];
    let request = params.serialize_request(&key).unwrap();
    (key, request)
}

/// Requests a certificate without a token.
async fn create(port: u16, csr: &str) -> Result<Vec<String>, Status> {
    create_with(port, csr, None).await
}

/// Obtains a certificate: the chain without roots with its key, and the roots.
async fn obtain(port: u16) -> ((String, String), String) {
    let (key, request) = request();
    let mut chain = create(port, &request.pem().unwrap()).await.unwrap();
    let root = chain.pop().unwrap();
    ((chain.concat(), key.serialize_pem()), root)
}

async fn connect(tunnel: &Tunnel) -> Proxy {
    let metadata = [("NAMESPACE", "shop"), ("SERVICE_ACCOUNT", "web")];
    let node = node("sidecar~10.0.0.9~web-1.shop~shop.svc.cluster.local", &metadata);
    let mut proxy = Proxy::connect_to(tunnel.port(), node, &[WEB], &[]).await.unwrap();
    proxy.has_endpoints(WEB, &["192.0.2.1:8080 1"]).await;
    proxy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_obtains_a_certificate_connects_and_renews_across_a_restart() {
    let first = Authority::new();
    let mut mesh = Mesh::start(&first, "self-signed").await;
    let kept = std::fs::read_to_string(mesh.file()).unwrap();

    // The server's own certificate is of the authority, and the first proof of another one.
    let tunnel = mesh.tunnel(&kept, Some(&first.workload(SHOP_WEB))).await;
    let (certificate, root) = obtain(tunnel.port()).await;
    assert_eq!(der(&root), der(&kept));
    let leaf = [der(&certificate.0)];
    assert_eq!(pilotfish_identity::spiffe_ids(Some(&leaf)).unwrap().identities, [SHOP_WEB]);

    let tunnel = mesh.tunnel(&root, Some(&certificate)).await;
    connect(&tunnel).await;
    let (renewed, _) = obtain(tunnel.port()).await;
    assert_ne!(renewed.0, certificate.0);

    mesh.pilotfish.kill().await;
    mesh.pilotfish.restart().await;
    let tunnel = mesh.tunnel(&root, Some(&renewed)).await;
    connect(&tunnel).await;
    let (_, after) = obtain(tunnel.port()).await;
    assert_eq!(der(&after), der(&root), "a restart keeps the root");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_the_authority_and_rotate_its_root() {
    let first = Authority::new();
    let mesh = Mesh::start(&first, "self-signed").await;
    let ca = async |arguments: &[&str]| {
        let done = Command::new(BINARY).arg("ca").args(arguments).output().await.unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let server = format!("127.0.0.1:{}", mesh.pilotfish.admin_port());
    let kept = std::fs::read_to_string(mesh.file()).unwrap();
    assert_eq!(der(&ca(&["roots", "--admin-address", &server]).await), der(&kept));
    let data = mesh.folder.path().join("data");
    let begun = ca(&["rotate", "--data-dir", data.to_str().unwrap(), "--overlap", "1h"]).await;
    assert!(begun.contains("The new root is distributed. It signs from 20"), "{begun}");
    let shown = eventually("the control plane follows", || async {
        let shown = ca(&["status", "--admin-address", &server]).await;
        if shown.contains("rotation: distributing") { Ok(shown) } else { Err(shown) }
    })
    .await;
    assert_eq!(shown.matches("O=Pilotfish, CN=Mesh root").count(), 3, "{shown}");

    // A client gets both roots, and trusts the old one until then.
    let tunnel = mesh.tunnel(&kept, Some(&first.workload(SHOP_WEB))).await;
    let (certificate, roots) = obtain(tunnel.port()).await;
    assert_eq!(CertificateDer::pem_slice_iter(roots.as_bytes()).count(), 2);
    connect(&mesh.tunnel(&roots, Some(&certificate)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_an_intermediate_sign_with_their_chain() {
    let (first, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let intermediate = Intermediate::write(&folder.path().join("ca"));
    let ca = format!("files={}", folder.path().join("ca").display());
    let mesh = Mesh::start_in(folder, &first, &ca).await;
    let tunnel = mesh.tunnel(&intermediate.root, Some(&first.workload(SHOP_WEB))).await;
    let (certificate, root) = obtain(tunnel.port()).await;
    assert_eq!(der(&root), der(&intermediate.root));
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(certificate.0.as_bytes()).collect::<Result<_, _>>().unwrap();
    assert_eq!(chain[1..], [der(&intermediate.certificate)]);
    connect(&mesh.tunnel(&root, Some(&certificate)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_proves_nothing_gets_no_certificate_and_nobody_sees_the_key() {
    let first = Authority::new();
    let mesh = Mesh::start(&first, "self-signed").await;
    let kept = std::fs::read_to_string(mesh.file()).unwrap();
    let (_, request) = request();
    let good = request.pem().unwrap();

    let anonymous = mesh.tunnel(&kept, None).await;
    let status = create(anonymous.port(), &good).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let status = create(mesh.pilotfish.xds_port(), &good).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "in plaintext: {status}");
    let foreign = mesh.tunnel(&kept, Some(&first.workload("spiffe://other/ns/shop/sa/web"))).await;
    let status = create(foreign.port(), &good).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");

    let web = mesh.tunnel(&kept, Some(&first.workload(SHOP_WEB))).await;
    let mut forged = request.der().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let forged = pem::encode(&pem::Pem::new("CERTIFICATE REQUEST", forged));
    for (csr, expected) in [
        (forged, "signature"),
        ("x".repeat(9_000), "more than 8192 bytes"),
        (String::new(), "not a certificate request"),
    ] {
        let status = create(web.port(), &csr).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(expected), "{status}");
    }
    let status = create(web.port(), &"x".repeat(100_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    create(web.port(), &good).await.unwrap();

    let metrics = mesh.pilotfish.page("/metrics").await.unwrap();
    for line in [
        "citadel_server_csr_count 7",
        "citadel_server_authentication_failure_count 2",
        "citadel_server_csr_parsing_err_count 3",
        "citadel_server_csr_sign_err_count{error=\"CSR_ERROR\"} 3",
        "citadel_server_success_cert_issuance_count 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    let (_, key) = kept.split_once("PRIVATE KEY-----\n").unwrap();
    let key = key.lines().next().unwrap();
    let log = std::fs::read_to_string(mesh.pilotfish.log()).unwrap();
    assert!(log.contains("no certificate was signed for a client") && !log.contains(key), "{log}");
    for (name, _) in pilotfish_admin::ENDPOINTS {
        // Some need parameters, and answer with an error.
        let (_, page) = mesh.pilotfish.answer(&format!("/debug/{name}")).await.unwrap();
        assert!(!page.contains(key), "{name}");
    }
}

/// A root with a list of revoked certificates, in the files of Istio's plug-in CA.
struct RevokingRoot {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
}

impl RevokingRoot {
    fn write(folder: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("ca-cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(folder.join("ca-key.pem"), key.serialize_pem()).unwrap();
        std::fs::set_permissions(folder.join("ca-key.pem"), Permissions::from_mode(0o600)).unwrap();
        Self { issuer: Issuer::new(params, key), folder: folder.to_owned() }
    }

    /// Writes the list with a certificate.
    fn revoke(&self, certificate: &str) {
        let der = der(certificate);
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        let revoked = RevokedCertParams {
            serial_number: parsed.raw_serial().to_vec().into(),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(2090, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.write_list(&list.signed_by(&self.issuer).unwrap().pem().unwrap());
    }

    fn write_list(&self, text: &str) {
        std::fs::write(self.folder.join("new"), text).unwrap();
        std::fs::rename(self.folder.join("new"), self.folder.join("ca-crl.pem")).unwrap();
    }
}

/// Obtains a certificate by `pilotfish certificates` of a machine with a revoked certificate and a token.
async fn obtain_in_files(mesh: &Mesh, roots: &str, revoked: &(String, String), token: &str) -> String {
    let output = mesh.folder.path().join("certificates");
    let mut command = Command::new(BINARY);
    command.args(["certificates", "--once", "--xds-address", &format!("127.0.0.1:{}", mesh.port)]);
    command.arg("--output-dir").arg(&output);
    for (flag, name, text) in [
        ("--root-file", "roots.pem", roots),
        ("--xds-cert-file", "revoked.pem", &revoked.0),
        ("--xds-key-file", "revoked.key", &revoked.1),
        ("--token-file", "token", token),
    ] {
        let path = mesh.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        command.arg(flag).arg(path);
    }
    let done = command.output().await.unwrap();
    let log = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && log.contains("the token proved the identity"), "{log}");
    std::fs::read_to_string(output.join("cert-chain.pem")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_certificate_is_refused_while_others_of_the_authority_are_accepted() {
    let (first, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let root = RevokingRoot::write(&folder.path().join("ca"));
    let ca = format!("files={}", folder.path().join("ca").display());
    let (issuer, rules) = (Ed25519::new(), folder.path().join("issuers.yaml"));
    let keys = issuer.jwks();
    let rule = format!(
        "jwtRules: [{{issuer: https://ci.test, audiences: [mesh], namespace: {{value: shop}}, serviceAccount: \
         {{value: web}}, jwks: '{keys}'}}]"
    );
    std::fs::write(&rules, rule).unwrap();
    let more = ["--jwt-rules", rules.to_str().unwrap()];
    let mesh = Mesh::start_with(folder, &first, &ca, &more).await;
    let trusted = std::fs::read_to_string(root.folder.join("ca-cert.pem")).unwrap();
    let proof = first.workload(SHOP_WEB);
    let by_first = mesh.tunnel(&trusted, Some(&proof)).await;
    let [(stolen, _), (good, _)] = [obtain(by_first.port()).await, obtain(by_first.port()).await];
    let csr = request().1.pem().unwrap();
    let asks = async |pair: &(String, String)| {
        let tunnel = mesh.tunnel(&trusted, Some(pair)).await;
        create(tunnel.port(), &csr).await.map_err(|status| format!("{status}, {:?}", tunnel.errors()))
    };
    asks(&stolen).await.unwrap();
    root.revoke(&stolen.0);
    let is_refused = || async {
        match asks(&stolen).await {
            Err(error) if error.to_lowercase().contains("revoked") => Ok(()),
            other => Err(other),
        }
    };
    eventually("the certificate is refused", is_refused).await;
    asks(&good).await.unwrap();
    asks(&proof).await.unwrap();

    let fallback = obtain_in_files(&mesh, &trusted, &stolen, &issuer.token("a", "mesh")).await;
    let leaf = [der(&fallback)];
    assert_eq!(pilotfish_identity::spiffe_ids(Some(&leaf)).unwrap().identities, [SHOP_WEB]);

    // A list that cannot be used changes nothing, and is a problem.
    root.write_list("");
    let status = || async {
        let page = mesh.pilotfish.json("/api/v1/ca").await;
        match page["failure"].as_str() {
            Some(failure) if failure.contains("ca-crl.pem: no revocation list in PEM") => Ok(()),
            _ => Err(page.to_string()),
        }
    };
    eventually("the list is a problem", status).await;
    assert!(mesh.pilotfish.metric("pilotfish_ca_files_refused").await > 0.0);
    eventually("the certificate is still refused", is_refused).await;
    asks(&good).await.unwrap();
}

/// The program that keeps the certificate of a workload in a folder.
struct Keeper {
    program: Program,
    folder: PathBuf,
}

impl Keeper {
    /// Starts it with a proof of `web` by the first authority.
    fn start(mesh: &Mesh, first: &Authority, more: &[&str]) -> Self {
        let own = mesh.folder.path();
        let folder = own.join("certificates");
        let mut command = command(mesh, &folder);
        let (chain, key) = first.workload(SHOP_WEB);
        for (flag, name, text) in [("--xds-cert-file", "web.pem", chain), ("--xds-key-file", "web.key", key)]
        {
            std::fs::write(own.join(name), text).unwrap();
            command.arg(flag).arg(own.join(name));
        }
        command.args(more);
        Self { program: Program::start(&mut command, own.join("certificates.log")), folder }
    }

    /// The certificate and its key, of one version.
    fn pair(&self) -> Result<(String, String), String> {
        let version = self.folder.join("..data").canonicalize();
        let version = version.map_err(|_| self.program.printed())?;
        let read =
            |name: &str| std::fs::read_to_string(version.join(name)).map_err(|error| error.to_string());
        Ok((read("cert-chain.pem")?, read("key.pem")?))
    }

    /// Waits until the certificate is another one.
    async fn renewed(&self, before: &str) -> (String, String) {
        eventually("the certificate is renewed", || async {
            let pair = self.pair()?;
            if pair.0 == before { Err(self.program.printed()) } else { Ok(pair) }
        })
        .await
    }

    /// Waits for a text in its log.
    async fn logs(&self, text: &str) {
        eventually(text, || async {
            let log = self.program.printed();
            if log.contains(text) { Ok(()) } else { Err(log) }
        })
        .await;
    }
}

/// `pilotfish certificates` without a proof.
fn command(mesh: &Mesh, folder: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("certificates").arg("--output-dir").arg(folder);
    command.args(["--xds-address", &format!("127.0.0.1:{}", mesh.port)]);
    command.arg("--root-file").arg(mesh.file());
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_in_files_is_renewed_and_stays_while_no_server_answers() {
    let first = Authority::new();
    let mut mesh = Mesh::start(&first, "self-signed").await;
    let mut keeper = Keeper::start(&mesh, &first, &["--ttl", "6s", "--identity", SHOP_WEB]);
    let (chain, key) = keeper.renewed("").await;
    let leaf = [der(&chain)];
    assert_eq!(pilotfish_identity::spiffe_ids(Some(&leaf)).unwrap().identities, [SHOP_WEB]);
    let file = |name: &str| keeper.folder.join(name);
    assert_eq!(std::fs::metadata(file("key.pem")).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = std::fs::read_to_string(mesh.file()).unwrap();
    assert_eq!(der(&std::fs::read_to_string(file("root-cert.pem")).unwrap()), der(&kept));
    let renewed = keeper.renewed(&chain).await;
    assert_ne!(renewed.1, key, "the key is a new one");

    mesh.pilotfish.kill().await;
    keeper.logs("no certificate was obtained; the files stay as they are").await;
    let before = keeper.pair().unwrap();
    mesh.pilotfish.restart().await;
    keeper.renewed(&before.0).await;

    // Another process would write to the same files.
    let mut second = command(&mesh, &keeper.folder);
    let done = second.args(["--token-file", "none"]).output().await.unwrap();
    let error = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success() && error.contains("another process"), "{error}");
    keeper.program.terminate().await;
    assert_eq!(keeper.program.ended().await, Some(0));
    assert!(!keeper.program.printed().contains("PRIVATE KEY"));

    // The next run keeps a valid certificate, and one by itself obtains another.
    let mut once = Keeper::start(&mesh, &first, &["--once"]);
    assert_eq!(once.program.ended().await, Some(0));
    let pair = once.pair().unwrap();
    connect(&mesh.tunnel(&kept, Some(&pair)).await).await;
    let again = Keeper::start(&mesh, &first, &[]);
    again.logs("the certificate in the folder is valid").await;
    assert_eq!(again.pair().unwrap(), pair);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_certificate_that_is_refused_ends_the_program_with_the_reason() {
    let first = Authority::new();
    let mesh = Mesh::start(&first, "self-signed").await;
    let folder = mesh.folder.path().join("certificates");
    let refused = async |flags: &[&str]| {
        let done = command(&mesh, &folder).args(flags).output().await.unwrap();
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let token = mesh.folder.path().join("token");
    std::fs::write(&token, "stolen-text\n").unwrap();
    let by_token = ["--token-file", token.to_str().unwrap()];
    for flags in [&by_token[..], &[by_token[0], by_token[1], "--once"]] {
        let error = refused(flags).await;
        assert!(error.contains("no certificate was obtained: 127.0.0.1:"), "{error}");
        assert!(error.contains("(Unauthenticated)") && !error.contains("stolen-text"), "{error}");
    }
    let mut long = Keeper::start(&mesh, &first, &["--ttl", "3000h"]);
    assert_eq!(long.program.ended().await, Some(2));
    assert!(long.program.printed().contains("longer than the maximum"), "{}", long.program.printed());
    assert!(refused(&[]).await.contains("name a proof of the identity"));
    assert!(refused(&["--token-file", "/nowhere/token"]).await.contains("/nowhere/token cannot be read"));
    assert!(!folder.join("key.pem").exists());

    // A server with a certificate of another authority gets no token.
    let other = mesh.folder.path().join("other.pem");
    std::fs::write(&other, Authority::new().root()).unwrap();
    let mut stranger = Command::new(BINARY);
    stranger.arg("certificates").arg("--output-dir").arg(&folder).args(by_token).arg("--once");
    stranger.arg("--xds-ca-file").arg(&other).args(["--xds-address", &format!("127.0.0.1:{}", mesh.port)]);
    let error = String::from_utf8(stranger.output().await.unwrap().stderr).unwrap();
    assert!(error.contains("no TLS with") && error.contains("UnknownIssuer"), "{error}");
}

/// An intermediate authority, in the files of Istio's plug-in CA.
struct Intermediate {
    root: String,
    certificate: String,
}

impl Intermediate {
    fn write(folder: &std::path::Path) -> Self {
        use rcgen::{DistinguishedName, DnType};
        let params = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            params
        };
        let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let root = params("root").self_signed(&root_key).unwrap().pem();
        let issuer = Issuer::new(params("root"), root_key);
        let certificate = params("intermediate").signed_by(&key, &issuer).unwrap().pem();
        std::fs::create_dir(folder).unwrap();
        for (name, text) in [
            ("ca-cert.pem", certificate.clone()),
            ("ca-key.pem", key.serialize_pem()),
            ("cert-chain.pem", format!("{certificate}{root}")),
            ("root-cert.pem", root.clone()),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
            if name == "ca-key.pem" {
                std::fs::set_permissions(folder.join(name), Permissions::from_mode(0o600)).unwrap();
            }
        }
        Self { root, certificate }
    }
}
