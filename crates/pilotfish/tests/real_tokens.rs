//! Proxies that prove who they are by tokens of their service accounts, which real API servers check: that of
//! Pilotfish's cluster and that of a remote one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Envoy, EnvoyOptions, Pilotfish, Tunnel, eventually, free_port,
};
use std::time::Duration;
use support::delta::{Proxy, node};
use support::kube::{BINARY, cluster, kept_authority, token};

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
