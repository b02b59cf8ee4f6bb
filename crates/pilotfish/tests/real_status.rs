//! Status on a real API server: the statuses of Gateways and routes, and that one of two replicas writes
//! them, once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use futures::TryStreamExt;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, Program, eventually, fetch, free_port};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::process::Command;

const MESH: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio}
spec: {controllerName: istio.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: front-istio, namespace: shop}
spec: {type: LoadBalancer, ports: [{name: http, port: 80}], selector: {app: front}}
status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: front-1, namespace: shop, labels: {kubernetes.io/service-name: front-istio}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1], conditions: {ready: true}}]
---
apiVersion: v1
kind: Service
metadata: {name: istio-ingressgateway, namespace: istio-system}
spec: {type: LoadBalancer, ports: [{name: http, port: 80}], selector: {app: ingress}}
status: {loadBalancer: {ingress: [{ip: 192.0.2.8}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: old, namespace: shop, annotations: {kubernetes.io/ingress.class: istio}}
spec: {defaultBackend: {service: {name: catalog, port: {number: 80}}}}
";

const CATALOG: &str = "
apiVersion: v1
kind: Service
metadata: {name: catalog, namespace: shop}
spec: {ports: [{name: http, port: 80}], selector: {app: catalog}}
";

/// A route with what another controller wrote to it.
const SHARED_ROUTE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: catalog, namespace: shop}
spec: {parentRefs: [{name: front}], hostnames: [catalog.example.com], rules: [{backendRefs: [{name: catalog, port: 80}]}]}
status:
  parents:
  - parentRef: {name: elsewhere}
    controllerName: example.com/other
    conditions: [{type: Accepted, status: 'True', reason: Accepted, message: mine, lastTransitionTime: '2025-01-01T00:00:00Z'}]
";

fn route(name: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{parentRefs: \
         [{{name: front}}], hostnames: [{name}.example.com], rules: [{{backendRefs: [{{name: catalog, port: 80}}]}}]}}\n"
    )
}

async fn cluster() -> Option<ApiServer> {
    let server = ApiServer::start(ApiServerOptions::default()).await?;
    server.apply_definitions().await;
    server.apply(MESH).await;
    server.apply(CATALOG).await;
    Some(server)
}

fn api(server: &ApiServer, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(server.client(), "shop", &resource)
}

fn routes(server: &ApiServer) -> Api<DynamicObject> {
    api(server, "gateway.networking.k8s.io", "HTTPRoute")
}

fn gateways(server: &ApiServer) -> Api<DynamicObject> {
    api(server, "gateway.networking.k8s.io", "Gateway")
}

/// `Type=status:reason` of conditions that were observed for this generation.
fn words(object: &DynamicObject, conditions: &Value) -> Vec<String> {
    let of_now = |condition: &&Value| condition["observedGeneration"].as_i64() == object.metadata.generation;
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or("?").to_owned();
    let word = |c: &Value| format!("{}={}:{}", text(c, "type"), text(c, "status"), text(c, "reason"));
    let mut words: Vec<String> =
        conditions.as_array().into_iter().flatten().filter(of_now).map(word).collect();
    words.sort();
    words
}

/// Waits until an object's conditions, found by a JSON pointer, are these; gives the object.
async fn has_status(api: &Api<DynamicObject>, name: &str, pointer: &str, expected: &[&str]) -> DynamicObject {
    eventually(&format!("{name} gets {expected:?}"), || async {
        let object = api.get(name).await.map_err(|error| error.to_string())?;
        let found = words(&object, object.data.pointer(pointer).unwrap_or(&Value::Null));
        if found == expected { Ok(object) } else { Err(format!("{found:?}")) }
    })
    .await
}

const GOOD_ROUTE: &[&str] = &["Accepted=True:Accepted", "ResolvedRefs=True:ResolvedRefs"];

/// A running Pilotfish that reads the cluster.
struct Replica {
    admin: u16,
    program: Program,
    _folder: TempDir,
}

impl Replica {
    async fn start(server: &ApiServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let admin = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilotfish"));
        command
            .args(["serve", "--write-status=all", "--kubernetes", "--kubeconfig"])
            .arg(server.kubeconfig());
        command.arg(format!("--xds-address=127.0.0.1:{}", free_port()));
        command.arg(format!("--admin-address=127.0.0.1:{admin}"));
        let program = Program::start(&mut command, folder.path().join("pilotfish.log"));
        let this = Self { admin, program, _folder: folder };
        eventually("pilotfish is ready", || async {
            let page = fetch(&format!("http://127.0.0.1:{admin}/ready")).await;
            page.map_err(|error| format!("{error}\n{}", this.program.printed()))
        })
        .await;
        this
    }

    async fn leads(&self) -> bool {
        let metrics = fetch(&format!("http://127.0.0.1:{}/metrics", self.admin)).await.unwrap();
        metrics.lines().any(|line| line == "pilotfish_status_leader 1")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_routes_and_ingresses_get_their_status() {
    let Some(server) = cluster().await else { return };
    server.apply(SHARED_ROUTE).await;
    let _replica = Replica::start(&server).await;
    let (routes, gateways) = (routes(&server), gateways(&server));

    let object = has_status(&routes, "catalog", "/status/parents/1/conditions", GOOD_ROUTE).await;
    let parents = &object.data["status"]["parents"];
    assert_eq!(parents[0]["controllerName"], "example.com/other", "what others wrote stays");
    assert_eq!(parents[0]["conditions"][0]["message"], "mine");
    assert_eq!(parents[1]["controllerName"], "istio.io/gateway-controller");

    let good = ["Accepted=True:Accepted", "Programmed=True:Programmed"];
    has_status(&gateways, "front", "/status/conditions", &good).await;
    eventually("one route is attached", || async {
        let status = gateways.get("front").await.unwrap().data["status"].clone();
        let listener = &status["listeners"][0];
        let is_right = listener["attachedRoutes"] == 1
            && listener["supportedKinds"].as_array().is_some_and(|kinds| kinds.len() == 2)
            && status["addresses"][0]["value"] == "192.0.2.7";
        if is_right { Ok(()) } else { Err(status) }
    })
    .await;
    let ingresses = api(&server, "networking.k8s.io", "Ingress");
    eventually("the Ingress has its address", || async {
        let object = ingresses.get("old").await.unwrap();
        assert!(object.metadata.annotations.is_some(), "nothing but the status is written");
        let points = object.data["status"]["loadBalancer"]["ingress"].clone();
        if points[0]["ip"] == "192.0.2.8" { Ok(()) } else { Err(points) }
    })
    .await;

    let before = words_time(&object);
    server.delete(CATALOG).await;
    let bad = ["Accepted=True:Accepted", "ResolvedRefs=False:BackendNotFound"];
    let object = has_status(&routes, "catalog", "/status/parents/1/conditions", &bad).await;
    let after = words_time(&object);
    assert_eq!(before.get("Accepted"), after.get("Accepted"), "only what changed has a new time");

    // Whoever is done rests: a later route gets its status, and nothing else has moved by then but the count.
    let quiet = routes.get("catalog").await.unwrap().metadata.resource_version;
    server.apply(&route("later")).await;
    has_status(&routes, "later", "/status/parents/0/conditions", &bad).await;
    assert_eq!(routes.get("catalog").await.unwrap().metadata.resource_version, quiet);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_of_istio_objects_are_in_their_status() {
    let Some(server) = cluster().await else { return };
    let service = |ports: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: odd, namespace: shop}}\nspec: {{hosts: [catalog], \
             http: [{{route: [{{destination: {{host: catalog}}}}]}}{ports}]}}\n"
        )
    };
    // The second route is never reached, which is a warning.
    server.apply(&service(", {route: [{destination: {host: other}}]}")).await;
    let _replica = Replica::start(&server).await;
    let services = api(&server, "networking.istio.io", "VirtualService");
    has_status(&services, "odd", "/status/conditions", &["PassedAnalysis=False:Warnings"]).await;
    server.apply(&service("")).await;
    has_status(&services, "odd", "/status/conditions", &["PassedAnalysis=True:NoProblems"]).await;
}

const POINT_AT_NOBODY: &str = "
apiVersion: v1
kind: Pod
metadata: {name: front-1, namespace: shop, labels: {app: front}}
spec: {containers: [{name: app, image: app}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {selector: {app: fornt}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: machines, namespace: shop}
spec:
  hosts: [machines.example.com]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: fornt}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_points_at_nothing_is_in_the_status_beside_what_else_is_there() {
    let Some(server) = cluster().await else { return };
    server.apply(POINT_AT_NOBODY).await;
    let _replica = Replica::start(&server).await;
    let kinds = [("Gateway", "edge", "IST0101"), ("ServiceEntry", "machines", "IST0127")];
    for (kind, name, code) in kinds {
        let api = api(&server, "networking.istio.io", kind);
        let found = has_status(&api, name, "/status/conditions", &["PassedAnalysis=False:Warnings"]).await;
        let condition = found.data["status"]["conditions"][0].to_string();
        let messages = found.data["status"]["validationMessages"].to_string();
        assert!((condition + &messages).contains(code), "{:#}", found.data["status"]);
    }
    let entries = api(&server, "networking.istio.io", "ServiceEntry");
    assert_eq!(has_addresses(&entries, "machines").await.len(), 2, "allocated addresses stand beside it");
    server.apply(&POINT_AT_NOBODY.replace("fornt", "front")).await;
    for (kind, name, _) in kinds {
        let api = api(&server, "networking.istio.io", kind);
        has_status(&api, name, "/status/conditions", &["PassedAnalysis=True:NoProblems"]).await;
    }
    assert_eq!(has_addresses(&entries, "machines").await.len(), 2);
}

/// The times of our conditions.
fn words_time(object: &DynamicObject) -> BTreeMap<String, String> {
    let conditions = object.data["status"]["parents"][1]["conditions"].as_array().unwrap().clone();
    let pair = |condition: &Value| {
        let text = |field: &str| condition[field].as_str().unwrap().to_owned();
        (text("type"), text("lastTransitionTime"))
    };
    conditions.iter().map(pair).collect()
}

/// Counts how often each route is modified, from now on.
async fn count(server: &ApiServer) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let counts: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let (api, seen) = (routes(server), counts.clone());
    let from = api.list(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    tokio::spawn(async move {
        let mut events = Box::pin(api.watch(&WatchParams::default().timeout(290), &from).await.unwrap());
        while let Some(event) = events.try_next().await.unwrap() {
            if let WatchEvent::Modified(object) = event {
                *seen.lock().unwrap().entry(object.metadata.name.unwrap()).or_default() += 1;
            }
        }
    });
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_replicas_one_writes_and_the_other_follows_it() {
    let Some(server) = cluster().await else { return };
    let mut first = Replica::start(&server).await;
    eventually("the first leads", || async { if first.leads().await { Ok(()) } else { Err(()) } }).await;
    let mut second = Replica::start(&server).await;
    assert!(!second.leads().await);

    let counts = count(&server).await;
    let routes = routes(&server);
    let names: Vec<String> = (0..10).map(|n| format!("r{n}")).collect();
    for name in &names {
        server.apply(&route(name)).await;
    }
    for name in &names {
        has_status(&routes, name, "/status/parents/0/conditions", GOOD_ROUTE).await;
    }

    first.program.kill().await;
    server.apply(&route("orphan")).await;
    has_status(&routes, "orphan", "/status/parents/0/conditions", GOOD_ROUTE).await;
    assert!(second.leads().await);

    // After a stop, too. That the Lease is given back then is a test of the election.
    let third = Replica::start(&server).await;
    second.program.terminate().await;
    server.apply(&route("heir")).await;
    has_status(&routes, "heir", "/status/parents/0/conditions", GOOD_ROUTE).await;
    assert!(third.leads().await);

    // The watch sends writes in order: once it has sent the last one, it has sent all.
    let all = eventually("every route was written", || async {
        let counts = counts.lock().unwrap().clone();
        if counts.contains_key("heir") { Ok(counts) } else { Err(counts) }
    })
    .await;
    assert_eq!(all.len(), names.len() + 2);
    assert!(all.values().all(|writes| *writes == 1), "each status is written once: {all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_frozen_writes_nothing_when_it_goes_on() {
    let Some(server) = cluster().await else { return };
    let mut frozen = Replica::start(&server).await;
    eventually("the first leads", || async { if frozen.leads().await { Ok(()) } else { Err(()) } }).await;
    let other = Replica::start(&server).await;
    let counts = count(&server).await;
    let routes = routes(&server);

    // It never sees these, and would have to write all of them when it goes on.
    frozen.program.freeze().await;
    let names: Vec<String> = (0..10).map(|n| format!("r{n}")).collect();
    for name in &names {
        server.apply(&route(name)).await;
    }
    eventually("the other one leads", || async { if other.leads().await { Ok(()) } else { Err(()) } }).await;
    frozen.program.thaw().await;
    eventually("the first knows", || async { if frozen.leads().await { Err(()) } else { Ok(()) } }).await;
    for name in &names {
        has_status(&routes, name, "/status/parents/0/conditions", GOOD_ROUTE).await;
    }
    server.apply(&route("last")).await;
    has_status(&routes, "last", "/status/parents/0/conditions", GOOD_ROUTE).await;
    let all = eventually("every route was written", || async {
        let counts = counts.lock().unwrap().clone();
        if counts.contains_key("last") { Ok(counts) } else { Err(counts) }
    })
    .await;
    assert_eq!(all.len(), names.len() + 1);
    assert!(all.values().all(|writes| *writes == 1), "each status is written once: {all:?}");
    assert!(frozen.program.is_running());
}

/// A ServiceEntry without an address.
fn outside(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: shop, labels: {{{labels}}}}}\nspec: \
         {{hosts: [{name}.example.com], resolution: DNS, ports: [{{name: tls, number: 443, protocol: TLS}}]}}\n"
    )
}

/// The addresses in the status of an entry.
fn addresses(entry: &DynamicObject) -> Vec<String> {
    let list = entry.data["status"]["addresses"].as_array().cloned().unwrap_or_default();
    list.iter().map(|address| address["value"].as_str().unwrap().to_owned()).collect()
}

/// Waits until an entry has an address of each family.
async fn has_addresses(entries: &Api<DynamicObject>, name: &str) -> Vec<String> {
    eventually(&format!("{name} has addresses"), || async {
        let found = addresses(&entries.get(name).await.unwrap());
        if found.len() == 2 { Ok(found) } else { Err(found) }
    })
    .await
}

/// Writes the addresses of an entry as another controller does.
async fn write_addresses(entries: &Api<DynamicObject>, name: &str, values: &[&str]) {
    let host = format!("{name}.example.com");
    let list: Vec<Value> =
        values.iter().map(|value| serde_json::json!({"host": host, "value": value})).collect();
    let patch = serde_json::json!({"status": {"addresses": list}});
    entries.patch_status(name, &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_get_addresses_of_their_own_whichever_replica_leads() {
    let Some(server) = cluster().await else { return };
    let entries = api(&server, "networking.istio.io", "ServiceEntry");
    // Another controller was here before.
    server.apply(&outside("old", "")).await;
    write_addresses(&entries, "old", &["240.240.3.7", "2001:2::3:7"]).await;
    server.apply(&outside("unwilling", "networking.istio.io/enable-autoallocate-ip: 'false'")).await;

    let mut first = Replica::start(&server).await;
    eventually("the first leads", || async { if first.leads().await { Ok(()) } else { Err(()) } }).await;
    let second = Replica::start(&server).await;
    let names: Vec<String> = (0..20).map(|n| format!("e{n}")).collect();
    for name in &names {
        server.apply(&outside(name, "")).await;
    }
    let mut given = BTreeMap::new();
    for name in &names {
        given.insert(name.clone(), has_addresses(&entries, name).await);
    }
    given.insert("old".into(), has_addresses(&entries, "old").await);
    assert_eq!(given["old"], ["240.240.3.7", "2001:2::3:7"], "what was there stays");
    assert!(
        given["e0"][0].starts_with("240.240.3.") && given["e0"][1].starts_with("2001:2::3:"),
        "{given:?}"
    );
    let distinct: std::collections::BTreeSet<&String> = given.values().flatten().collect();
    assert_eq!(distinct.len(), 2 * given.len(), "{given:?}");

    // The next leader goes on where the last one ended, and gives way to what another writer gives an older
    // entry.
    first.program.kill().await;
    server.apply(&outside("heir", "")).await;
    let heirs = has_addresses(&entries, "heir").await;
    assert!(
        second.leads().await && !distinct.contains(&heirs[0]) && !distinct.contains(&heirs[1]),
        "{heirs:?}"
    );
    for (name, before) in &given {
        assert_eq!(&addresses(&entries.get(name).await.unwrap()), before, "{name}");
    }
    write_addresses(&entries, "old", &[&heirs[0], "2001:2::3:7"]).await;
    eventually("the younger one gives way", || async {
        let now = has_addresses(&entries, "heir").await;
        if now.contains(&heirs[0]) { Err(now) } else { Ok(()) }
    })
    .await;
    assert_eq!(has_addresses(&entries, "old").await, [heirs[0].clone(), "2001:2::3:7".into()]);
    assert_eq!(addresses(&entries.get("unwilling").await.unwrap()), [""; 0]);

    // Who has an address of its own needs no other any more.
    server.apply(&outside("e0", "").replace("hosts:", "addresses: [10.1.1.1], hosts:")).await;
    eventually("the address is given up", || async {
        let now = addresses(&entries.get("e0").await.unwrap());
        if now.is_empty() { Ok(()) } else { Err(now) }
    })
    .await;
}
