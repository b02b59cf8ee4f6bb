//! The API server that other tests stand on: starts, takes objects with status, survives being killed.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, eventually};

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: catalog, namespace: shop, labels: {app: catalog}}
spec: {containers: [{name: app, image: none}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn objects_with_status_survive_a_crash() {
    let Some(mut server) = ApiServer::start(ApiServerOptions::default()).await else { return };
    server.apply(POD).await;
    server.kill().await;
    server.restart().await;

    let pods: Api<Pod> = Api::namespaced(server.client(), "shop");
    let pod = eventually("the pod is served", || pods.get("catalog")).await;
    assert_eq!(pod.status.and_then(|status| status.pod_ip).as_deref(), Some("10.1.0.1"));

    server.delete(POD).await;
    assert!(pods.get_opt("catalog").await.expect("pods can be read").is_none());
}
