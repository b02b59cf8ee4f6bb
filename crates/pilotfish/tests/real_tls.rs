//! xDS over TLS: who is let in, with which certificates, while those of the server and the authorities
//! change; and an Envoy that gets its gateway's secrets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use pilotfish_testkit::real::{
    Authority, Backend, Envoy, EnvoyOptions, Load, Pilotfish, Tunnel, eventually, free_port, get,
};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use support::delta::{Proxy, node};

const BINARY: &str = env!("CARGO_BIN_EXE_pilotfish");
const WEB: &str = "outbound|80||web.shop.svc.cluster.local";
const SHOP_WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";

fn entry(address: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: web, namespace: shop}}\nspec:\n  hosts: \
         [web.shop.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  ports: [{{name: http, number: 80, \
         protocol: HTTP}}]\n  endpoints: [{{address: {address}, ports: {{http: 8080}}}}]\n"
    )
}

/// Pilotfish on files, with a secure port whose certificates are those of an authority.
struct Served {
    folder: tempfile::TempDir,
    pilotfish: Pilotfish,
    port: u16,
}

impl Served {
    async fn start(authority: &Authority, files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mesh = folder.path().join("mesh");
        std::fs::create_dir(&mesh).unwrap();
        for (name, text) in files {
            std::fs::write(mesh.join(name), text).unwrap();
        }
        let server = folder.path().join("server");
        authority.write(authority.server(), &server);
        let port = free_port();
        let file = |name: &str| server.join(name).to_str().unwrap().to_owned();
        let pilotfish = Pilotfish::launch(
            BINARY,
            &[
                mesh.to_str().unwrap(),
                "--secure-xds-address",
                &format!("127.0.0.1:{port}"),
                "--tls-cert-file",
                &file("cert-chain.pem"),
                "--tls-key-file",
                &file("key.pem"),
                "--ca-cert-file",
                &file("root-cert.pem"),
            ],
        );
        pilotfish.ready().await;
        Self { folder, pilotfish, port }
    }

    /// The folder of the server's certificate.
    fn certificates(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    fn write(&self, name: &str, text: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, self.folder.path().join("mesh").join(name)).unwrap();
    }
}

/// A proxy of the service account shop/web behind a tunnel.
async fn connect(tunnel: &Tunnel, account: &str) -> anyhow::Result<Proxy> {
    let metadata = [("NAMESPACE", "shop"), ("SERVICE_ACCOUNT", account)];
    let node = node("sidecar~10.0.0.9~client-1.shop~shop.svc.cluster.local", &metadata);
    Proxy::connect_to(tunnel.port(), node, &[WEB], &[]).await
}

/// How it is refused.
async fn refused(tunnel: &Tunnel, account: &str) -> String {
    match connect(tunnel, account).await {
        Ok(mut proxy) => format!("{:#}", proxy.end().await),
        Err(error) => format!("{error:#}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_proves_the_nodes_identity_is_served() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let served = Served::start(&authority, &[("web.yaml", &entry("192.0.2.1"))]).await;
    let to = async |client: Option<(String, String)>| {
        Tunnel::start(served.port, authority.root(), client.as_ref()).await
    };
    let good = to(Some(authority.workload(SHOP_WEB))).await;
    connect(&good, "web").await.unwrap().has_endpoints(WEB, &["192.0.2.1:8080 1"]).await;
    connect(&good, "").await.unwrap().has_endpoints(WEB, &["192.0.2.1:8080 1"]).await;

    let error = refused(&good, "cart").await;
    assert!(error.contains("grpc-status 7") && error.contains("service account \"cart\""), "{error}");
    let other = to(Some(authority.workload("spiffe://cluster.local/ns/other/sa/web"))).await;
    let error = refused(&other, "web").await;
    assert!(error.contains("grpc-status 7") && error.contains("proves spiffe://"), "{error}");
    let anonymous = to(None).await;
    let error = refused(&anonymous, "web").await;
    assert!(error.contains("grpc-status 16") && error.contains("certificate: none was presented"), "{error}");
    let nameless = to(Some(authority.client("web"))).await;
    let error = refused(&nameless, "web").await;
    assert!(error.contains("grpc-status 16") && error.contains("no SPIFFE identity"), "{error}");

    // Both authorities have one name and different keys.
    for (client, alert) in
        [(stranger.workload(SHOP_WEB), "decrypterror"), (authority.expired(SHOP_WEB), "certificateexpired")]
    {
        let tunnel = to(Some(client)).await;
        assert!(!refused(&tunnel, "web").await.contains("grpc-status"), "there is no gRPC");
        eventually("the handshake fails", || async {
            let errors = tunnel.errors();
            let found = errors.iter().any(|error| error.to_ascii_lowercase().contains(alert));
            if found { Ok(()) } else { Err(errors) }
        })
        .await;
    }
    // A client that trusts another authority gets no stream.
    let elsewhere = Tunnel::start(served.port, stranger.root(), Some(&authority.workload(SHOP_WEB))).await;
    assert!(!refused(&elsewhere, "web").await.contains("grpc-status"));

    // The server may count after its client has been told.
    for line in [
        "pilotfish_xds_authenticated{method=\"certificate\"} 4",
        "pilotfish_xds_tls_handshakes{result=\"failed\"} 3",
        "pilot_total_xds_internal_errors{code=\"PERMISSION_DENIED\"} 2",
        "pilot_total_xds_internal_errors{code=\"UNAUTHENTICATED\"} 2",
    ] {
        eventually(line, || async {
            let metrics = served.pilotfish.page("/metrics").await?;
            if metrics.lines().any(|found| found == line) { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_while_streams_go_on() {
    let (first, second) = (Authority::new(), Authority::new());
    let served = Served::start(&first, &[("web.yaml", &entry("192.0.2.1"))]).await;
    let old = Tunnel::start(served.port, first.root(), Some(&first.workload(SHOP_WEB))).await;
    let mut stream = connect(&old, "web").await.unwrap();
    stream.has_endpoints(WEB, &["192.0.2.1:8080 1"]).await;

    second.write(second.server(), &served.certificates());
    let new = Tunnel::start(served.port, second.root(), Some(&second.workload(SHOP_WEB))).await;
    eventually("the new certificates are in force", || async { connect(&new, "web").await.map(drop) }).await;
    assert!(!refused(&old, "web").await.contains("grpc-status"), "the old authority counts no longer");

    // A certificate without its key: it is reported, and the last good pair stays.
    std::fs::write(served.certificates().join("cert-chain.pem"), first.server().0).unwrap();
    eventually("the broken files are reported", || async {
        let refused = served.pilotfish.metric("pilotfish_xds_tls_files_refused").await;
        if refused == 1.0 { Ok(()) } else { Err(refused) }
    })
    .await;
    connect(&new, "web").await.unwrap().has_endpoints(WEB, &["192.0.2.1:8080 1"]).await;

    // The first stream has seen nothing of all this.
    served.write("web.yaml", &entry("192.0.2.2"));
    stream.has_endpoints(WEB, &["192.0.2.2:8080 1"]).await;
    second.write(second.server(), &served.certificates());
    eventually("the mended files are in force", || async {
        let refused = served.pilotfish.metric("pilotfish_xds_tls_files_refused").await;
        if refused == 0.0 { Ok(()) } else { Err(refused) }
    })
    .await;
}

fn gateway(port: u16, authority: &Authority) -> String {
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let (chain, key) = authority.server();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: web, namespace: edge}}\nspec:\n  selector: \
         {{istio: edge}}\n  servers:\n  - port: {{number: {port}, name: https, protocol: HTTPS}}\n    hosts: ['*']\n    tls: \
         {{mode: SIMPLE, credentialName: web}}\n---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: \
         {{name: web, namespace: edge}}\nspec: {{hosts: ['*'], gateways: [web], http: [{{directResponse: {{status: 200, body: \
         {{string: hello}}}}}}]}}\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: web, namespace: edge}}\ntype: \
         kubernetes.io/tls\ndata: {{tls.crt: {}, tls.key: {}}}\n",
        encode(&chain),
        encode(&key)
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_gets_the_secrets_of_its_gateway() {
    let authority = Authority::new();
    let port = free_port();
    let served = Served::start(&authority, &[("edge.yaml", &gateway(port, &authority))]).await;
    for protocol in ["delta", "sotw"] {
        let client = served.folder.path().join(protocol);
        authority.issue("spiffe://cluster.local/ns/edge/sa/gateway", &client);
        let file = |name: &str| client.join(name).to_str().unwrap().to_owned();
        let arguments =
            ["--kind", "router", "--name", "gateway", "--namespace", "edge", "--label", "istio=edge"];
        let files = [
            "--xds-ca-file",
            "root-cert.pem",
            "--xds-cert-file",
            "cert-chain.pem",
            "--xds-key-file",
            "key.pem",
        ];
        let files =
            files.iter().map(|part| if part.starts_with("--") { (*part).to_owned() } else { file(part) });
        let arguments = arguments.iter().map(|part| (*part).to_owned()).chain(files).collect();
        let options = EnvoyOptions { protocol, arguments, xds_port: Some(served.port) };
        let Some(envoy) = Envoy::start(&served.pilotfish, &options).await else { return };
        eventually("the secret is there", || async {
            let secrets = envoy.page("/config_dump?resource=dynamic_active_secrets").await?;
            let page = envoy.page("/certs").await?;
            if secrets.contains("kubernetes://web") {
                Ok(())
            } else {
                Err(format!("{secrets}\n{page}\n{}", envoy.printed()))
            }
        })
        .await;
        assert!(envoy.stat("cluster.xds-grpc;.ssl.handshake").await > 0);
    }
}

/// The example with these ports in place of its own: a server with mutual TLS on `inbound` for the program at
/// `app`, and a client that reaches it on `outbound`. Each request takes a new connection.
fn mesh_of_two(inbound: u16, app: u16, outbound: u16) -> String {
    let rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\nspec: {host: \
                web.shop.svc.cluster.local, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}}\n";
    let mesh = include_str!("../../../examples/mutual-tls/mesh.yaml");
    let mesh = mesh.replace("9080", "INBOUND").replace("8080", "APP").replace("9090", "OUTBOUND");
    let mesh = [("INBOUND", inbound), ("APP", app), ("OUTBOUND", outbound)]
        .iter()
        .fold(mesh, |mesh, (name, port)| mesh.replace(name, &port.to_string()));
    format!("{mesh}\n---\n{rule}")
}

/// The policies of the example, which let in this service account alone.
fn allow(account: &str) -> String {
    include_str!("../../../examples/mutual-tls/policy.yaml").replace("sa/client", &format!("sa/{account}"))
}

/// A Pilotfish that signs, and Envoys with certificates of it.
struct SigningMesh {
    folder: tempfile::TempDir,
    /// Authority of the certificates with which Envoys connect.
    first: Authority,
    pilotfish: Pilotfish,
    port: u16,
}

impl SigningMesh {
    async fn start(authority: &pilotfish_ca::SelfSigned, mesh: &str) -> Self {
        let (folder, first, port) = (tempfile::tempdir().unwrap(), Authority::new(), free_port());
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["mesh", "ca"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("mesh/mesh.yaml"), mesh).unwrap();
        std::fs::write(at("mesh/policy.yaml"), allow("client")).unwrap();
        std::fs::write(at("first.pem"), first.root()).unwrap();
        std::fs::write(at("ca/ca-cert.pem"), &authority.certificate).unwrap();
        std::fs::write(at("ca/ca-key.pem"), &authority.key).unwrap();
        std::fs::set_permissions(at("ca/ca-key.pem"), Permissions::from_mode(0o600)).unwrap();
        std::fs::write(at("ca/root-cert.pem"), &authority.certificate).unwrap();
        let (address, ca) = (format!("127.0.0.1:{port}"), format!("files={}", at("ca")));
        let (trusted, served) = (at("first.pem"), at("mesh"));
        let flags = ["--secure-xds-address", &address, "--ca", &ca, "--ca-cert-file", &trusted];
        let pilotfish = Pilotfish::launch(BINARY, &[&[&*served][..], &flags].concat());
        pilotfish.ready().await;
        Self { folder, first, pilotfish, port }
    }

    /// Replaces a file at once.
    fn write(&self, name: &str, text: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, self.folder.path().join(name)).unwrap();
    }

    async fn envoy(&self, protocol: &'static str, account: &str, ip: &str) -> Option<Envoy> {
        let client = self.folder.path().join(account);
        self.first.issue(&format!("spiffe://cluster.local/ns/shop/sa/{account}"), &client);
        let file = |name: &str| client.join(name).to_str().unwrap().to_owned();
        let root = self.folder.path().join("ca/root-cert.pem").to_str().unwrap().to_owned();
        let label = format!("app={account}");
        let (chain, key) = (file("cert-chain.pem"), file("key.pem"));
        let node = ["--name", account, "--namespace", "shop", "--label", &label, "--ip", ip];
        let files = ["--xds-ca-file", &root, "--xds-cert-file", &chain, "--xds-key-file", &key];
        let files = [&files[..], &["--workload-certificates"]].concat();
        let arguments = node.iter().chain(&files).map(|part| (*part).to_owned()).collect();
        Envoy::start(&self.pilotfish, &EnvoyOptions { protocol, arguments, xds_port: Some(self.port) }).await
    }
}

/// Updates of a secret in each Envoy.
async fn updates(envoys: &[&Envoy], secret: &str) -> Vec<u64> {
    let mut all = Vec::new();
    for envoy in envoys {
        all.push(envoy.stat(&format!("sds.{secret}.update_success")).await);
    }
    all
}

/// Waits until each Envoy has more updates of the secret than before.
async fn updated(envoys: &[&Envoy], secret: &str, before: &[u64]) {
    eventually(&format!("{secret} is updated"), || async {
        let now = updates(envoys, secret).await;
        let all = now.iter().zip(before).all(|(now, before)| now > before);
        if all { Ok(()) } else { Err(format!("{before:?} and then {now:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stock_envoys_speak_mutual_tls_while_their_authority_changes() {
    let now = std::time::SystemTime::now();
    let [old, new] = [(); 2].map(|()| pilotfish_ca::SelfSigned::create(now).unwrap());
    let (app, inbound, outbound) = (Backend::start("127.0.0.1", "web").await, free_port(), free_port());
    let mesh = SigningMesh::start(&old, &mesh_of_two(inbound, app.port(), outbound)).await;
    let Some(server) = mesh.envoy("delta", "web", "127.0.0.1").await else { return };
    let Some(client) = mesh.envoy("sotw", "client", "127.0.0.2").await else { return };
    let host = "web.shop.svc.cluster.local";
    let reached = async |what: &str, allowed: bool| {
        eventually(what, || async {
            match get(outbound, host, &[]).await {
                Ok(_) if allowed => Ok(()),
                Err(error) if !allowed && error.contains("403") => Ok(()),
                other => Err(format!("{other:?}\n{}\n{}", client.printed(), server.printed())),
            }
        })
        .await;
    };
    reached("the account is let in", true).await;
    get(inbound, host, &[]).await.expect_err("plaintext is refused");
    mesh.write("mesh/policy.yaml", &allow("another"));
    reached("another account is not", false).await;
    mesh.write("mesh/policy.yaml", &allow("client"));
    reached("the account is let in again", true).await;

    let (envoys, load) = ([&server, &client], Load::start(outbound, host));
    load.answers(10).await;
    let before = updates(&envoys, "ROOTCA").await;
    mesh.write("ca/root-cert.pem", &format!("{}{}", old.certificate, new.certificate));
    updated(&envoys, "ROOTCA", &before).await;
    let before = updates(&envoys, "default").await;
    std::fs::write(mesh.folder.path().join("ca/ca-cert.pem"), &new.certificate).unwrap();
    std::fs::write(mesh.folder.path().join("ca/ca-key.pem"), &new.key).unwrap();
    updated(&envoys, "default", &before).await;
    load.answers(20).await;
    let before = updates(&envoys, "ROOTCA").await;
    mesh.write("ca/root-cert.pem", &new.certificate);
    updated(&envoys, "ROOTCA", &before).await;
    load.answers(20).await;
    let tally = load.stop().await;
    assert_eq!(tally.keys().collect::<Vec<_>>(), ["web"], "requests failed: {tally:?}");
    for page in ["/debug/config_dump?proxyID=web.shop", "/debug/syncz", "/metrics"] {
        let shown = mesh.pilotfish.page(page).await.unwrap();
        assert!(!shown.is_empty() && !shown.contains("PRIVATE KEY"), "{page}");
    }
}
