//! Replicas whose clocks are wrong, in opposite ways and by leaps while they run: the time of day decides
//! nothing that matters.

mod support;

use kube::api::{Api, ApiResource, DynamicObject, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use pilotfish_testkit::real::{
    ApiServer, ApiServerProxy, Envoy, EnvoyOptions, Load, Pilotfish, WrongClock, eventually, get,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::delta::{Proxy, Recorder, node};
use support::kube::{BINARY, addresses, catalog, cluster, endpoints, entries, serve, service, slice};
use support::{CATALOG, Shop};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const QUIET: &str = "quiet.shop.svc.cluster.local";
const QUIET_CLUSTER: &str = "outbound|80||quiet.shop.svc.cluster.local";
const NAMESPACE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}\n---\n";
const MACHINES: &str = "
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: machines, namespace: vms}
spec: {template: {serviceAccount: db, ports: {sql: 3306}}, probe: {tcpSocket: {port: 3306}}}
";

/// A replica with a clock of its own. Without TLS to the API server: certificates have times, too, and are
/// not the subject.
struct Replica {
    clock: WrongClock,
    pilotfish: Pilotfish,
}

impl Replica {
    fn start(proxy: &ApiServerProxy, wrong: i64, more: &[&str]) -> Option<Self> {
        let clock = WrongClock::new(wrong)?;
        let kubeconfig = proxy.kubeconfig();
        let kubeconfig = kubeconfig.to_string_lossy();
        let mut arguments = vec!["--kubernetes", "--kubeconfig", &kubeconfig, "--trust-nodes"];
        arguments.extend(["--workload-entry-grace-period", "1s"]);
        arguments.extend(more);
        let pilotfish = Pilotfish::launch_with_clock(BINARY, &arguments, &clock);
        Some(Self { clock, pilotfish })
    }

    /// Waits until the replica has read an object.
    async fn knows(&self, name: &str) {
        eventually(&format!("{name} is known"), || async {
            let page = self.pilotfish.page("/debug/configz").await?;
            if page.contains(name) { Ok(()) } else { Err(format!("not among {} bytes", page.len())) }
        })
        .await;
    }

    async fn leads(&self) -> bool {
        self.pilotfish.metric("pilotfish_status_leader").await > 0.0
    }
}

async fn connect(replica: &Replica, number: u8) -> Proxy {
    let metadata = [
        ("NAMESPACE", "vms"),
        ("SERVICE_ACCOUNT", "db"),
        ("CLUSTER_ID", "Kubernetes"),
        ("AUTO_REGISTER_GROUP", "machines"),
    ];
    let node = node(&format!("sidecar~10.7.0.{number}~vm-{number}.vms~vms.svc.cluster.local"), &metadata);
    Proxy::connect(&replica.pilotfish, node, &[QUIET_CLUSTER]).await.expect("it is admitted")
}

fn workload_entries(server: &ApiServer) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("networking.istio.io", "v1", "WorkloadEntry");
    Api::namespaced_with(server.client(), "vms", &ApiResource::from_gvk_with_plural(&kind, "workloadentries"))
}

/// Waits until the entry of a machine is like that; `null` when there is none.
async fn entry_is(server: &ApiServer, number: u8, what: &str, test: impl Fn(&Value) -> bool) -> Value {
    let name = format!("machines-10.7.0.{number}");
    eventually(&format!("{name} {what}"), || async {
        let found = workload_entries(server).get_opt(&name).await.map_err(|error| error.to_string())?;
        let entry = serde_json::to_value(found).map_err(|error| error.to_string())?;
        if test(&entry) { Ok(entry) } else { Err(entry.to_string()) }
    })
    .await
}

fn controller(entry: &Value) -> String {
    let annotation = &entry["metadata"]["annotations"]["istio.io/workloadController"];
    annotation.as_str().unwrap_or_default().to_owned()
}

/// The names of entries that were deleted so far.
async fn deletions(server: &ApiServer) -> Arc<Mutex<Vec<String>>> {
    use futures::StreamExt;
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let (shared, api) = (deleted.clone(), workload_entries(server));
    let newest =
        api.list(&Default::default()).await.expect("entries can be listed").metadata.resource_version;
    let newest = newest.unwrap_or_default();
    tokio::spawn(async move {
        let events = api.watch(&WatchParams::default(), &newest).await.expect("entries can be watched");
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            if let WatchEvent::Deleted(object) = event {
                let name = object.metadata.name.unwrap_or_default();
                shared.lock().expect("no holder panics").push(name);
            }
        }
    });
    deleted
}

async fn lease(server: &ApiServer) -> Value {
    let api: Api<DynamicObject> = Api::namespaced_with(
        server.client(),
        "istio-system",
        &ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease")),
    );
    let lease = api.get_opt("pilotfish-status-leader").await.expect("Leases can be read");
    lease.map(|lease| lease.data["spec"].clone()).unwrap_or_default()
}

async fn record(replica: &Replica, shop: &Shop) -> Recorder {
    let node = node("sidecar~10.9.9.9~recorder.shop~shop.svc.cluster.local", &[("NAMESPACE", "shop")]);
    let cluster = format!("outbound|{}||{CATALOG}", shop.port);
    Proxy::connect(&replica.pilotfish, node, &[&cluster, QUIET_CLUSTER]).await.expect("it is served").record()
}

/// Watches both replicas for a while: of two, never more than one leads, and the Lease stays with its holder.
async fn one_leads(server: &ApiServer, replicas: [&Replica; 2], time: Duration) {
    let before = lease(server).await;
    let end = Instant::now() + time;
    while Instant::now() < end {
        let leading = [replicas[0].leads().await, replicas[1].leads().await];
        let now = lease(server).await;
        assert_eq!(
            now["holderIdentity"], before["holderIdentity"],
            "both replicas are alive, and the Lease moved: {now}"
        );
        assert_ne!(leading, [true, true], "{now}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_ne!(lease(server).await["renewTime"], before["renewTime"], "it is renewed");
}

/// Waits until the only one that is left leads.
async fn takes_over(server: &ApiServer, left: &Replica) {
    let held = lease(server).await;
    eventually("the one that is left leads", || async {
        left.leads().await.then_some(()).ok_or_else(|| held.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_whose_clocks_are_hours_apart_lose_nothing() {
    let Some(server) = cluster().await else { return };
    let shop = Shop::start().await;
    let all = [catalog(&shop), entries(&shop, &[0, 1]), service("quiet"), "---\n".into(), slice("quiet", 1)];
    server.apply(&[NAMESPACE.to_owned(), all.concat(), "---\n".into(), MACHINES.into()].concat()).await;
    let proxy = ApiServerProxy::start(&server).await;
    let Some(mut ahead) = Replica::start(&proxy, HOUR, &[]) else { return };
    let Some(behind) = Replica::start(&proxy, -HOUR, &[]) else { return };
    tokio::join!(ahead.pilotfish.ready(), behind.pilotfish.ready());
    let recorders = [record(&ahead, &shop).await, record(&behind, &shop).await];
    let Some(_envoy) = Envoy::start(&behind.pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    eventually("the catalog is reached", || get(shop.port, CATALOG, &[])).await;
    let load = Load::start(shop.port, CATALOG);

    // One machine moves from the clock that is ahead to the one that is behind, others stay where they are.
    let deleted = deletions(&server).await;
    let (stays_ahead, stays_behind) = (connect(&ahead, 1).await, connect(&behind, 2).await);
    let moves = connect(&ahead, 3).await;
    let entry = entry_is(&server, 3, "is made", |entry| !entry.is_null()).await;
    let of_ahead = controller(&entry);
    entry_is(&server, 1, "is made", |entry| !entry.is_null()).await;
    entry_is(&server, 2, "is made", |entry| !entry.is_null()).await;
    // By its own clock the other one would come first: it has to know of the entry.
    behind.knows("machines-10.7.0.3").await;
    let moved = connect(&behind, 3).await;
    let is_moved = |entry: &Value| {
        controller(entry) != of_ahead && !entry["metadata"]["annotations"]["istio.io/connectedAt"].is_null()
    };
    entry_is(&server, 3, "has moved", is_moved).await;
    // Not before: on a busy machine the short grace period could be over before the write has come.
    drop(moves);

    // Both sweep once in ten seconds: by the clocks, marks of the other one are two hours old, or not made
    // yet.
    one_leads(&server, [&ahead, &behind], Duration::from_secs(25)).await;
    ahead.clock.set(-2 * HOUR);
    behind.clock.set(3 * HOUR);
    server.apply(&slice("quiet", 2)).await;
    for recorder in &recorders {
        recorder.has(QUIET_CLUSTER, 2).await;
    }
    one_leads(&server, [&ahead, &behind], Duration::from_secs(25)).await;
    assert!(deleted.lock().expect("no holder panics").is_empty(), "{deleted:?}");
    for recorder in &recorders {
        recorder.so_far().lost_nothing("while clocks are wrong", &BTreeMap::new());
    }

    // Back to the one that was ahead; and one that leaves is still noticed.
    let back = connect(&ahead, 3).await;
    drop(moved);
    entry_is(&server, 3, "has moved back", |entry| controller(entry) == of_ahead).await;
    drop(stays_behind);
    entry_is(&server, 2, "is gone", Value::is_null).await;
    drop((back, stays_ahead));
    entry_is(&server, 1, "is gone", Value::is_null).await;
    entry_is(&server, 3, "is gone", Value::is_null).await;

    // One dies, perhaps the leader: the other one leads within the time of the Lease.
    ahead.pilotfish.kill().await;
    takes_over(&server, &behind).await;

    load.answers(20).await;
    let failed: Vec<_> = load.stop().await.into_iter().filter(|(who, _)| !who.starts_with('v')).collect();
    assert!(failed.is_empty(), "failed requests: {failed:?}");
    let fresh = serve(&server.kubeconfig()).await;
    assert_eq!(addresses(&behind.pilotfish, QUIET).await.len(), 2);
    let (found, wanted) = (endpoints(&behind.pilotfish).await, endpoints(&fresh).await);
    assert_eq!(found, wanted, "equal to a fresh start");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_whose_clocks_are_months_apart_share_one_certificate() {
    let Some(server) = cluster().await else { return };
    server.apply(NAMESPACE).await;
    let proxy = ApiServerProxy::start(&server).await;
    let webhooks = ["--webhook-address", "127.0.0.1:0"];
    let Some(ahead) = Replica::start(&proxy, 100 * DAY, &webhooks) else { return };
    let Some(behind) = Replica::start(&proxy, -100 * DAY, &webhooks) else { return };
    let both = [&ahead, &behind];
    let count = |text: &str| both.map(|replica| replica.pilotfish.printed().matches(text).count());
    let serve = |times: [usize; 2]| {
        let count = &count;
        async move {
            eventually("both serve a certificate", || async {
                let found = count("a certificate of webhooks is served");
                if found == times { Ok(()) } else { Err(both.map(|replica| replica.pilotfish.printed())) }
            })
            .await;
        }
    };
    serve([1, 1]).await;
    let made = || count("renewing certificates of webhooks").iter().sum::<usize>();
    let first = made();
    assert!(first <= 2, "each may begin to, and one of them is first");
    // Somebody breaks it: one new one for both, and not one after the other.
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(server.client(), "istio-system");
    let broken = serde_json::json!({"stringData": {"tls.crt": "broken"}});
    let patch = kube::api::Patch::Merge(&broken);
    secrets.patch("pilotfish-webhook-certificate", &Default::default(), &patch).await.expect("it is there");
    serve([2, 2]).await;
    assert!(made() - first <= 2, "they make certificates against each other");
}
