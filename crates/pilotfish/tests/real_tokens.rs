//! Proxies that prove who they are by tokens of their service accounts, which real API servers check: that of
//! Pilotfish's cluster and that of a remote one. With a token, a workload obtains its certificate from the
//! authority in the cluster's Secrets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Envoy, EnvoyOptions, Pilotfish, Tunnel, eventually, free_port,
};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::time::Duration;
use support::certificates::{create_with, der};
use support::delta::{Proxy, node};
use support::kube::{BINARY, cluster, kept_authority, token};
use tokio::process::Command;

const GROUP: &str = "
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: machines, namespace: vms}
spec:
  metadata: {labels: {app: db}}
  template: {serviceAccount: db, ports: {sql: 3306}}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: vms}
spec: {selector: {app: db}, ports: [{name: sql, port: 3306}]}
---
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
";
const CLUSTER: &str = "outbound|3306||db.vms.svc.cluster.local";

/// Pilotfish in a cluster, with the certificate of its webhooks on its secure port.
struct Served {
    pilotfish: Pilotfish,
    port: u16,
    /// The authority of the certificate.
    root: String,
    tunnel: Tunnel,
}

impl Served {
    async fn start(server: &ApiServer) -> Self {
        let (port, webhooks) = (free_port(), free_port());
        let kubeconfig = server.kubeconfig();
        let pilotfish = Pilotfish::launch(
            BINARY,
            &[
                "--kubernetes",
                "--kubeconfig",
                kubeconfig.to_str().unwrap(),
                "--secure-xds-address",
                &format!("127.0.0.1:{port}"),
                "--webhook-address",
                &format!("127.0.0.1:{webhooks}"),
                "--webhook-url",
                &format!("https://127.0.0.1:{webhooks}"),
            ],
        );
        pilotfish.ready().await;
        let root = kept_authority(server).await;
        let tunnel = Tunnel::start(port, &root, None).await;
        Self { pilotfish, port, root, tunnel }
    }

    /// A machine of the group that shows a token.
    async fn connect(&self, token: &str, cluster: &str) -> anyhow::Result<Proxy> {
        let metadata = [("NAMESPACE", "vms"), ("SERVICE_ACCOUNT", "db"), ("AUTO_REGISTER_GROUP", "machines")];
        let node = node("sidecar~10.7.0.1~vm-1.vms~vms.svc.cluster.local", &metadata);
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("clusterid", cluster)];
        Proxy::connect_to(self.tunnel.port(), node, &[CLUSTER], &headers).await
    }

    /// How a token is refused.
    async fn refused(&self, token: &str, cluster: &str) -> String {
        match self.connect(token, cluster).await {
            Ok(mut proxy) => format!("{:#}", proxy.end().await),
            Err(error) => format!("{error:#}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_proves_a_service_account() {
    let Some(mut server) = cluster().await else { return };
    server.apply(GROUP).await;
    let served = Served::start(&server).await;
    let good = token(&server, "vms", "db", "istio-ca").await;

    // It registers itself: its node metadata did not have to be trusted.
    let mut proxy = eventually("the machine is admitted", || served.connect(&good, "Kubernetes")).await;
    proxy.has_endpoints(CLUSTER, &["10.7.0.1:3306 1"]).await;
    let kind = GroupVersionKind::gvk("networking.istio.io", "v1", "WorkloadEntry");
    let resource = ApiResource::from_gvk_with_plural(&kind, "workloadentries");
    let entries: Api<DynamicObject> = Api::namespaced_with(server.client(), "vms", &resource);
    assert!(entries.get_opt("machines-10.7.0.1").await.unwrap().is_some());

    for (audience, account, code, why) in [
        ("other", "db", "16", "the token is not for istio-ca"),
        (
            "istio-ca",
            "web",
            "7",
            "service account \"db\", and its connection proves spiffe://cluster.local/ns/vms/sa/web",
        ),
    ] {
        let token = token(&server, "vms", account, audience).await;
        let error = served.refused(&token, "").await;
        assert!(error.contains(&format!("grpc-status {code}")) && error.contains(why), "{error}");
    }
    // What is no token is refused without a question; one that only looks good, by the API server.
    let (claims, _) = good.rsplit_once('.').unwrap();
    for (token, why) in [
        ("nonsense".to_owned(), "token: the token is empty, too long, or none of a service account"),
        (format!("{claims}.c2lnbmF0dXJl"), "token: the token is not accepted"),
    ] {
        let error = served.refused(&token, "").await;
        assert!(error.contains("grpc-status 16") && error.contains(why), "{error}");
    }
    let error = served.refused(&good, "elsewhere").await;
    assert!(error.contains("grpc-status 16") && error.contains("no cluster"), "{error}");

    // While the API server is away, new clients are refused, and connected ones stay.
    let late = token(&server, "vms", "db", "istio-ca").await;
    server.kill().await;
    let error = served.refused(&late, "").await;
    assert!(error.contains("grpc-status 16") && error.contains("cannot check the token now"), "{error}");
    eventually("the connected one is left", || async {
        let connected = served.pilotfish.metric("pilot_xds").await;
        if connected == 1.0 { Ok(()) } else { Err(connected) }
    })
    .await;
    server.restart().await;
    eventually("the review is retried", || served.connect(&late, "")).await;
    let log = std::fs::read_to_string(served.pilotfish.folder().join("pilotfish.log")).unwrap();
    drop(proxy);
    for secret in [&good, &late] {
        assert!(!log.contains(secret.as_str()), "tokens are not in the log");
    }
    assert!(log.contains("was refused"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_cluster_checks_the_tokens_of_its_proxies() {
    let (own, other) = tokio::join!(cluster(), ApiServer::start(ApiServerOptions::default()));
    let (Some(own), Some(other)) = (own, other) else { return };
    own.apply(GROUP).await;
    let served = Served::start(&own).await;
    let theirs = token(&other, "vms", "db", "istio-ca").await;
    let error = served.refused(&theirs, "west").await;
    assert!(error.contains("no cluster \"west\""), "{error}");
    let kubeconfig = other.remote_kubeconfig("admintoken").replace('\n', "\n    ");
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: west, namespace: istio-system, labels: {{istio/multiCluster: \"true\"}}}}\n\
         stringData:\n  west: |\n    {kubeconfig}\n"
    );
    own.apply(&secret).await;
    let mut connected = eventually("their token is taken", || served.connect(&theirs, "west")).await;
    let error = served.refused(&theirs, "").await;
    assert!(error.contains("grpc-status 16") && error.contains("not accepted"), "{error}");
    own.delete(&secret).await;
    // Those that are connected have nobody left who vouches for them.
    let ended = connected.end().await;
    assert!(format!("{ended:#}").contains("authentication has expired"), "{ended:#}");
    eventually("the cluster is forgotten", || async {
        // As long as it is known, the stream is served and does not end.
        let attempt = tokio::time::timeout(Duration::from_secs(2), served.refused(&theirs, "west"));
        match attempt.await {
            Ok(error) if error.contains("no cluster \"west\"") => Ok(()),
            Ok(error) => Err(error),
            Err(_) => Err("their token is taken".into()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_shows_the_token_of_its_pod() {
    let Some(server) = cluster().await else { return };
    server.apply(GROUP).await;
    let served = Served::start(&server).await;
    let folder = served.pilotfish.folder();
    let (authority, file) = (folder.join("root-cert.pem"), folder.join("istio-token"));
    std::fs::write(&authority, &served.root).unwrap();
    std::fs::write(&file, token(&server, "vms", "db", "istio-ca").await).unwrap();
    let arguments = [
        "--name",
        "client",
        "--namespace",
        "vms",
        "--xds-ca-file",
        authority.to_str().unwrap(),
        "--xds-token-file",
        file.to_str().unwrap(),
    ];
    let arguments = arguments.map(str::to_owned).to_vec();
    let options = EnvoyOptions { protocol: "delta", arguments, xds_port: Some(served.port) };
    let Some(envoy) = Envoy::start(&served.pilotfish, &options).await else { return };
    eventually("it has its clusters", || async {
        let clusters = envoy.page("/clusters").await?;
        if clusters.contains(CLUSTER) { Ok(()) } else { Err(format!("{clusters}\n{}", envoy.printed())) }
    })
    .await;
    assert!(served.pilotfish.metric("pilotfish_xds_authenticated").await >= 1.0);
}

/// Starts Pilotfish with the authority of a namespace; returns the port for certificate requests.
async fn serve_authority(server: &ApiServer, namespace: &str) -> (Pilotfish, u16) {
    let port = free_port();
    let kubeconfig = server.kubeconfig();
    let address = format!("127.0.0.1:{port}");
    let pilotfish = Pilotfish::launch(
        BINARY,
        &[
            "--kubernetes",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--root-namespace",
            namespace,
            "--secure-xds-address",
            &address,
            "--ca",
            "secret",
        ],
    );
    pilotfish.ready().await;
    (pilotfish, port)
}

/// A Secret with the key and certificate of an authority, as istiod makes it: RSA, in PKCS#1.
struct IstiodSecret {
    root: String,
    object: serde_json::Value,
}

impl IstiodSecret {
    fn new(namespace: &str, name: &str) -> Self {
        let key = include_str!("../../lib/ca/testdata/rsa.pkcs1.pem");
        let signer = KeyPair::from_pem(include_str!("../../lib/ca/testdata/rsa.pkcs8.pem")).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "cluster.local");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = params.self_signed(&signer).unwrap().pem();
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "type": "istio.io/ca-root",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": {
                "ca-cert.pem": root, "ca-key.pem": key, "cert-chain.pem": "", "key.pem": "", "root-cert.pem": root,
            },
        });
        Self { root, object }
    }

    async fn apply(&self, server: &ApiServer) {
        server.apply(&self.object.to_string()).await;
    }
}

async fn secret(server: &ApiServer, namespace: &str, name: &str) -> Secret {
    let api: Api<Secret> = Api::namespaced(server.client(), namespace);
    api.get(name).await.unwrap()
}

/// An entry of a Secret, as text.
fn entry(secret: &Secret, name: &str) -> String {
    String::from_utf8(secret.data.as_ref().unwrap()[name].0.clone()).unwrap()
}

/// Obtains a certificate of `web` in `shop` from a server that trusts `root`.
async fn signed(port: u16, root: &str, token: &str) -> Result<Vec<String>, String> {
    let tunnel = Tunnel::start(port, root, None).await;
    let csr = CertificateParams::default().serialize_request(&KeyPair::generate().unwrap()).unwrap();
    let chain = create_with(tunnel.port(), &csr.pem().unwrap(), Some(token)).await;
    chain.map_err(|status| format!("{status}, {:?}", tunnel.errors()))
}

/// Waits until the ConfigMaps of these namespaces have these roots and istiod's label.
async fn has_roots(server: &ApiServer, namespaces: &[&str], roots: &str) {
    for namespace in namespaces {
        let maps: Api<ConfigMap> = Api::namespaced(server.client(), namespace);
        eventually(&format!("{namespace} has the roots"), || async {
            let map = maps.get_opt("istio-ca-root-cert").await.map_err(|error| error.to_string())?;
            let map = map.ok_or("there is none")?;
            let found = map.data.as_ref().and_then(|data| data.get("root-cert.pem"));
            let label = map.metadata.labels.as_ref().and_then(|labels| labels.get("istio.io/config"));
            let is_good = found.is_some_and(|found| der_of(found) == der_of(roots))
                && label.is_some_and(|label| label == "true");
            if is_good { Ok(()) } else { Err(format!("{map:?}")) }
        })
        .await;
    }
}

/// The certificates of a text.
fn der_of(text: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok).collect()
}

/// Rotates the root `old` of the replicas, stage by stage.
async fn rotate(server: &ApiServer, replicas: &[&Pilotfish], old: &str) {
    let kubeconfig = server.kubeconfig();
    let rotate = || {
        let mut command = Command::new(BINARY);
        command.args(["ca", "rotate", "--overlap", "1h", "--kubeconfig"]).arg(&kubeconfig);
        command.output()
    };
    let done = rotate().await.unwrap();
    assert!(done.status.success(), "{done:?}");
    let again = String::from_utf8(rotate().await.unwrap().stderr).unwrap();
    assert!(again.contains("a rotation of the root is under way"), "{again}");

    let first = has_stage(replicas, Some("distributing"), 2).await;
    let both = first["roots"].as_str().unwrap().to_owned();
    assert!(both.starts_with(old), "the old root signs");
    has_roots(server, &["istio-system", "late"], &both).await;
    end_stage(server).await;
    let second = has_stage(replicas, Some("overlapping"), 2).await;
    assert_ne!(first["certificates"][0]["serial"], second["certificates"][0]["serial"]);
    end_stage(server).await;
    let third = has_stage(replicas, None, 1).await;
    assert_eq!(second["certificates"][0]["serial"], third["certificates"][0]["serial"]);
    has_roots(server, &["istio-system", "late"], third["roots"].as_str().unwrap()).await;
}

/// Waits until all replicas have reached a stage, with this number of roots; returns what the last one shows.
async fn has_stage(replicas: &[&Pilotfish], stage: Option<&str>, roots: usize) -> serde_json::Value {
    let mut last = serde_json::Value::Null;
    for replica in replicas {
        last = eventually("the stage is reached", || async {
            let page = replica.json("/api/v1/ca").await;
            let found = der_of(page["roots"].as_str().unwrap()).len();
            let is_there = page["rotation"]["stage"].as_str() == stage && found == roots;
            if is_there { Ok(page) } else { Err(page.to_string()) }
        })
        .await;
    }
    last
}

/// Sets the end of the rotation's stage to the past.
async fn end_stage(server: &ApiServer) {
    let api: Api<Secret> = Api::namespaced(server.client(), "istio-system");
    let mut secret = api.get("istio-ca-secret").await.unwrap();
    let text = entry(&secret, "pilotfish-rotation");
    let lines = text.lines().map(|line| if line.starts_with("until: ") { "until: 1" } else { line });
    let text = lines.map(|line| format!("{line}\n")).collect::<String>();
    secret.data.as_mut().unwrap().insert("pilotfish-rotation".into(), ByteString(text.into_bytes()));
    api.replace("istio-ca-secret", &PostParams::default(), &secret).await.unwrap();
}

/// Each namespace has the roots for its workloads, and gets them back if somebody changes them.
async fn roots_are_restored(server: &ApiServer, root: &str) {
    has_roots(server, &["istio-system", "shop", "default"], root).await;
    server.apply("{apiVersion: v1, kind: Namespace, metadata: {name: late}}").await;
    has_roots(server, &["late"], root).await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "shop");
    let edit = serde_json::json!({"data": {"root-cert.pem": "edited", "own": "stays"}});
    maps.patch("istio-ca-root-cert", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    has_roots(server, &["shop"], root).await;
    let edited = maps.get("istio-ca-root-cert").await.unwrap();
    assert_eq!(edited.data.unwrap()["own"], "stays");
    maps.delete("istio-ca-root-cert", &DeleteParams::default()).await.unwrap();
    has_roots(server, &["shop"], root).await;
}

/// Checks that neither the log nor a debug page has a line of the key.
async fn shows_no_key(pilotfish: &Pilotfish, key: &str) {
    let line = key.lines().nth(1).unwrap();
    let log = std::fs::read_to_string(pilotfish.log()).unwrap();
    assert!(!log.contains(line), "keys are not in the log: {log}");
    for (name, _) in pilotfish_admin::ENDPOINTS {
        // Some need parameters, and answer with an error.
        let (_, page) = pilotfish.answer(&format!("/debug/{name}")).await.unwrap();
        assert!(!page.contains(line), "keys are not in {name}");
    }
}

/// A machine obtains its first certificate by a token, and the next ones by that certificate.
async fn files_are_obtained_by_token(server: &ApiServer, port: u16, root: &str, token: &str) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("root.pem"), root).unwrap();
    let run = async |token: &str| {
        std::fs::write(at("token"), token).unwrap();
        let (address, out) = (format!("127.0.0.1:{port}"), at("certificates"));
        let (chain, key) = (format!("{out}/cert-chain.pem"), format!("{out}/key.pem"));
        let mut command = Command::new(BINARY);
        command.args(["certificates", "--once", "--output-dir", &out, "--xds-address", &address]);
        command.args(["--xds-ca-file", &at("root.pem"), "--xds-token-file", &at("token")]);
        command.args(["--xds-cert-file", &chain, "--xds-key-file", &key]);
        let done = command.output().await.unwrap();
        let error = String::from_utf8(done.stderr).unwrap();
        if done.status.success() { Ok(std::fs::read_to_string(chain).unwrap()) } else { Err(error) }
    };
    let foreign = self::token(server, "shop", "web", "other").await;
    let error = run(&foreign).await.unwrap_err();
    assert!(error.contains("the token is not for istio-ca") && !error.contains(&foreign), "{error}");
    let first = run(token).await.unwrap();
    let proof = pilotfish_identity::spiffe_ids(Some(&[der(&first)])).unwrap();
    assert_eq!(proof.identities, ["spiffe://cluster.local/ns/shop/sa/web"]);
    let second = run("expired").await.unwrap();
    assert_ne!(first, second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_the_authority_of_the_cluster_and_take_over_that_of_istiod() {
    let Some(server) = cluster().await else { return };
    for namespace in ["istio-system", "taken-over", "shop"] {
        server.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}")).await;
    }
    let good = token(&server, "shop", "web", "istio-ca").await;
    // Both start at the same time, and one of them creates the Secret.
    let ((first, one), (second, other)) =
        tokio::join!(serve_authority(&server, "istio-system"), serve_authority(&server, "istio-system"));
    let created = secret(&server, "istio-system", "istio-ca-secret").await;
    let root = entry(&created, "root-cert.pem");
    for port in [one, other] {
        let chain = signed(port, &root, &good).await.unwrap();
        assert_eq!(der(chain.last().unwrap()), der(&root));
        let leaf = [der(&chain[0])];
        let proof = pilotfish_identity::spiffe_ids(Some(&leaf)).unwrap();
        assert_eq!(proof.identities, ["spiffe://cluster.local/ns/shop/sa/web"]);
    }
    files_are_obtained_by_token(&server, one, &root, &good).await;
    let refused = signed(one, &root, "nonsense").await.unwrap_err();
    assert!(refused.contains("the client proves no identity"), "{refused}");

    roots_are_restored(&server, &root).await;

    rotate(&server, &[&first, &second], &root).await;
    let rotated = secret(&server, "istio-system", "istio-ca-secret").await;
    let root = entry(&rotated, "root-cert.pem");
    signed(one, &root, &good).await.unwrap();

    // A plug-in authority wins over the self-signed one, and both replicas follow.
    let plugged_in = IstiodSecret::new("istio-system", "cacerts");
    plugged_in.apply(&server).await;
    for port in [one, other] {
        eventually("the plug-in authority signs", || async {
            let chain = signed(port, &plugged_in.root, &good).await?;
            let is_new = der(chain.last().unwrap()) == der(&plugged_in.root);
            if is_new { Ok(()) } else { Err("the old root".to_owned()) }
        })
        .await;
    }

    has_roots(&server, &["istio-system", "shop", "default", "late"], &plugged_in.root).await;
    let public: Api<ConfigMap> = Api::namespaced(server.client(), "kube-public");
    assert!(public.get_opt("istio-ca-root-cert").await.unwrap().is_none());

    // A new installation takes over what istiod made.
    let istiods = IstiodSecret::new("taken-over", "istio-ca-secret");
    istiods.apply(&server).await;
    let before = secret(&server, "taken-over", "istio-ca-secret").await;
    let (third, port) = serve_authority(&server, "taken-over").await;
    let chain = signed(port, &istiods.root, &good).await.unwrap();
    assert_eq!(der(chain.last().unwrap()), der(&istiods.root));
    assert_eq!(secret(&server, "taken-over", "istio-ca-secret").await, before, "it is not written");

    for (pilotfish, secret) in
        [(&first, &created), (&second, &created), (&second, &rotated), (&third, &before)]
    {
        shows_no_key(pilotfish, &entry(secret, "ca-key.pem")).await;
    }
}
