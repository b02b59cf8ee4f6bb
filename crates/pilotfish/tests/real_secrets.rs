//! Which Secrets proxies are served, as a real API server with RBAC says what their accounts may read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bytes::Bytes;
use pilotfish_bench::connection::Connection;
use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Authorization, LIMIT, Pilotfish, Tunnel, eventually, free_port,
};
use prost::Message;
use std::net::SocketAddr;
use support::delta::node;
use support::kube::{BINARY, install_definitions, kept_authority, token};

const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const SECRETS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const ROLE: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: edge}, data: {tls.crt: Yw==, tls.key: aw==}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: sds},
 rules: [{apiGroups: [''], resources: [secrets], verbs: [get, watch, list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: sds, namespace: edge},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sds},
 subjects: [{kind: ServiceAccount, name: gateway, namespace: edge}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: sds, namespace: istio-system},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sds},
 subjects: [{kind: ServiceAccount, name: gateway, namespace: istio-system}]}
";

async fn cluster() -> Option<ApiServer> {
    let options = ApiServerOptions { authorization: Authorization::Rbac, ..ApiServerOptions::default() };
    let server = ApiServer::start(options).await?;
    install_definitions(&server).await;
    server.apply(ROLE).await;
    Some(server)
}

/// Pilotfish in a cluster, behind a tunnel to its secure port.
struct Served {
    _pilotfish: Pilotfish,
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
        Self { _pilotfish: pilotfish, tunnel }
    }

    /// Whether a router of a namespace with that token is served a Secret; waits until it is answered.
    async fn serves(
        &self,
        (cluster, token): (&str, &str),
        namespace: &str,
        secret: &str,
    ) -> anyhow::Result<bool> {
        let id = format!("router~10.0.0.1~gateway-0.{namespace}~{namespace}.svc.cluster.local");
        // What the node says about its cluster counts for nothing.
        let metadata = [("NAMESPACE", namespace), ("CLUSTER_ID", "Kubernetes")];
        let first = DeltaDiscoveryRequest {
            node: Some(node(&id, &metadata)),
            type_url: SECRETS.to_owned(),
            resource_names_subscribe: vec![secret.to_owned()],
            ..DeltaDiscoveryRequest::default()
        };
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("clusterid", cluster)];
        let target = SocketAddr::from(([127, 0, 0, 1], self.tunnel.port()));
        let first = vec![Bytes::from(first.encode_to_vec())];
        let mut connection = Connection::open_with(target, PATH, &headers, first).await?;
        let message = tokio::time::timeout(LIMIT, connection.next()).await??;
        let response = DeltaDiscoveryResponse::decode(message.unwrap()).unwrap();
        assert!(response.resources.iter().all(|resource| resource.name == secret), "{response:?}");
        Ok(!response.resources.is_empty())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_for_accounts_that_may_list_them() {
    let (own, other) = tokio::join!(cluster(), ApiServer::start(ApiServerOptions::default()));
    let (Some(own), Some(other)) = (own, other) else { return };
    let served = Served::start(&own).await;
    let gateway = token(&own, "edge", "gateway", "istio-ca").await;
    let web = token(&own, "edge", "web", "istio-ca").await;
    let system = token(&own, "istio-system", "gateway", "istio-ca").await;

    let has = served.serves(("", &gateway), "edge", "kubernetes://web").await.unwrap();
    assert!(has, "its account may list the Secrets of its namespace");
    let has = served.serves(("Kubernetes", &web), "edge", "kubernetes://web").await.unwrap();
    assert!(!has, "another account of the namespace may not");
    for secret in ["kubernetes://pilotfish-webhook-certificate", "kubernetes://edge/web"] {
        let has = served.serves(("", &system), "istio-system", secret).await.unwrap();
        assert!(!has, "{secret} is for nobody there");
    }

    // An account of the same name in a remote cluster is another one.
    let theirs = token(&other, "edge", "gateway", "istio-ca").await;
    let kubeconfig = other.remote_kubeconfig("admintoken").replace('\n', "\n    ");
    let remote = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: west, namespace: istio-system, labels: {{istio/multiCluster: \"true\"}}}}\n\
         stringData:\n  west: |\n    {kubeconfig}\n"
    );
    own.apply(&remote).await;
    let has =
        eventually("their token is taken", || served.serves(("west", &theirs), "edge", "kubernetes://web"))
            .await;
    assert!(!has, "the Secrets are not of its cluster");
    let has = served.serves(("", &system), "istio-system", "kubernetes://west").await.unwrap();
    assert!(!has, "kubeconfigs are for nobody");
}
