//! Workloads outside of Kubernetes, with a real API server and two replicas: an entry for as long as its
//! workload is connected.

mod support;

use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use pilotfish_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use pilotfish_proto::google::rpc::Status;
use pilotfish_testkit::real::{ApiServer, Pilotfish, eventually};
use serde_json::Value;
use support::delta::{Proxy, node};
use support::kube::{BINARY, cluster};

const GROUP: &str = "
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: machines, namespace: vms}
spec:
  metadata: {labels: {app: db}}
  template: {serviceAccount: db, ports: {sql: 3306}}
  probe: {tcpSocket: {port: 3306}}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: vms}
spec: {selector: {app: db}, ports: [{name: sql, port: 3306}]}
";
const CLUSTER: &str = "outbound|3306||db.vms.svc.cluster.local";
const ENTRY: &str = "machines-10.7.0.1";

fn replica(server: &ApiServer) -> Pilotfish {
    let kubeconfig = server.kubeconfig();
    let kubeconfig = kubeconfig.to_string_lossy();
    Pilotfish::launch(
        BINARY,
        &[
            "--kubernetes",
            "--kubeconfig",
            &kubeconfig,
            "--trust-nodes",
            "--workload-entry-grace-period",
            "1s",
        ],
    )
}

async fn connect(pilotfish: &Pilotfish, metadata: &[(&str, &str)]) -> anyhow::Result<Proxy> {
    let mut all = vec![("NAMESPACE", "vms"), ("SERVICE_ACCOUNT", "db"), ("CLUSTER_ID", "Kubernetes")];
    all.extend_from_slice(metadata);
    let node = node("sidecar~10.7.0.1~vm-1.vms~vms.svc.cluster.local", &all);
    Proxy::connect(pilotfish, node, &[CLUSTER]).await
}

fn entries(server: &ApiServer) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("networking.istio.io", "v1", "WorkloadEntry");
    let resource = ApiResource::from_gvk_with_plural(&kind, "workloadentries");
    Api::namespaced_with(server.client(), "vms", &resource)
}

/// Waits until the entry is like that, and gives it.
async fn entry_is(server: &ApiServer, what: &str, test: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("the entry {what}"), || async {
        let found = entries(server).get_opt(ENTRY).await.map_err(|error| error.to_string())?;
        let entry = serde_json::to_value(found).map_err(|error| error.to_string())?;
        if test(&entry) { Ok(entry) } else { Err(entry.to_string()) }
    })
    .await
}

fn mark<'a>(entry: &'a Value, name: &str) -> &'a str {
    entry["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

fn health(error: Option<&str>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: "type.googleapis.com/istio.v1.HealthInformation".into(),
        error_detail: error.map(|text| Status { code: 500, message: text.into(), ..Status::default() }),
        ..DeltaDiscoveryRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_has_an_entry_for_as_long_as_it_is_connected() {
    let Some(server) = cluster().await else { return };
    server.apply(GROUP).await;
    let (mut first, second) = (replica(&server), replica(&server));
    tokio::join!(first.ready(), second.ready());
    let machine = [("AUTO_REGISTER_GROUP", "machines")];

    let mut proxy = connect(&first, &machine).await.expect("it is admitted");
    let entry = entry_is(&server, "is made", |entry| !entry.is_null()).await;
    assert_eq!(entry["metadata"]["ownerReferences"][0]["name"], "machines");
    assert_eq!(entry["spec"]["address"], "10.7.0.1");
    proxy.has_endpoints(CLUSTER, &["10.7.0.1:3306 1"]).await;
    let controller = mark(&entry, "istio.io/workloadController").to_owned();

    // It moves to the other replica, and leaves the first one later.
    let mut moved = connect(&second, &machine).await.expect("it is admitted");
    entry_is(&server, "has moved", |entry| mark(entry, "istio.io/workloadController") != controller).await;
    drop(proxy);
    first.kill().await;
    moved.send(&health(Some("too slow")));
    entry_is(&server, "is unhealthy", |entry| entry["status"]["conditions"][0]["message"] == "too slow")
        .await;
    moved.send(&health(None));
    let entry =
        entry_is(&server, "is healthy", |entry| entry["status"]["conditions"][0]["status"] == "True").await;
    assert!(!mark(&entry, "istio.io/connectedAt").is_empty(), "{entry}");
    moved.has_endpoints(CLUSTER, &["10.7.0.1:3306 1"]).await;
    drop(moved);
    entry_is(&server, "is gone after the grace period", Value::is_null).await;

    let again = connect(&second, &machine).await.expect("it is admitted");
    entry_is(&server, "is made again", |entry| !entry.is_null()).await;
    drop(again);
    entry_is(&server, "is left", |entry| {
        entry.is_null() || !mark(entry, "istio.io/disconnectedAt").is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_have_an_entry_is_refused() {
    let Some(server) = cluster().await else { return };
    server.apply(GROUP).await;
    let pilotfish = replica(&server);
    pilotfish.ready().await;
    let refused = async |metadata: &[(&str, &str)]| {
        let proxy = connect(&pilotfish, metadata).await;
        let end = match proxy {
            Ok(mut proxy) => proxy.end().await,
            Err(error) => error,
        };
        format!("{end:#}")
    };
    let error = refused(&[("AUTO_REGISTER_GROUP", "others")]).await;
    assert!(error.contains("grpc-status 9") && error.contains("no WorkloadGroup vms/others"), "{error}");
    let error = refused(&[("AUTO_REGISTER_GROUP", "machines"), ("SERVICE_ACCOUNT", "web")]).await;
    assert!(error.contains("grpc-status 7") && error.contains("service account \"web\""), "{error}");
    let error = refused(&[("WORKLOAD_ENTRY", "nobody")]).await;
    assert!(error.contains("grpc-status 9") && error.contains("no WorkloadEntry vms/nobody"), "{error}");
    assert!(entries(&server).list(&Default::default()).await.is_ok_and(|all| all.items.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_while_the_api_server_is_away_is_written_later() {
    let Some(mut server) = cluster().await else { return };
    server.apply(GROUP).await;
    let pilotfish = replica(&server);
    pilotfish.ready().await;
    let machine = [("AUTO_REGISTER_GROUP", "machines")];
    let mut proxy = connect(&pilotfish, &machine).await.expect("it is admitted");
    let first = entry_is(&server, "is made", |entry| !entry.is_null()).await;
    proxy.send(&health(None));
    entry_is(&server, "is healthy", |entry| entry["status"]["conditions"][0]["status"] == "True").await;

    // Somebody takes the entry away: it is made again, with the health of the workload.
    entries(&server).delete(ENTRY, &Default::default()).await.expect("it is there");
    let again = entry_is(&server, "is made again", |entry| {
        !entry.is_null() && entry["metadata"]["uid"] != first["metadata"]["uid"]
    })
    .await;
    assert_eq!(again["metadata"]["annotations"]["istio.io/autoRegistrationGroup"], "machines");
    entry_is(&server, "is healthy again", |entry| entry["status"]["conditions"][0]["status"] == "True").await;

    server.kill().await;
    drop(proxy);
    // Longer than a few quick tries take.
    eventually("it is tried", || async {
        let failed = pilotfish.metric("auto_registration_errors_total").await;
        if failed >= 6.0 { Ok(()) } else { Err(failed.to_string()) }
    })
    .await;
    server.restart().await;
    entry_is(&server, "is gone", Value::is_null).await;
    // It is counted when the answer arrives.
    eventually("its deletion is counted", || async {
        let deleted = pilotfish.metric("auto_registration_deletes_total").await;
        if deleted >= 1.0 { Ok(()) } else { Err(deleted.to_string()) }
    })
    .await;
}
