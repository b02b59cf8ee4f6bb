//! The registry on the stand-in for Polaris, which is written to by the HTTP API: what is there, what
//! changes, and faults.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_polaris::POLARIS;
use pilotfish_testkit::polaris::{Polaris, PolarisOptions};
use pilotfish_testkit::real::{Fault, FaultProxy, LiveRegistry, RegistryState};
use serde_json::{Value, json};
use std::time::Duration;

const CLUSTER: &str = "labels=topology.istio.io/cluster=Kubernetes";

/// A stand-in that shows what was written soon, so that tests need not wait.
async fn server(token: Option<&str>) -> Polaris {
    let options = PolarisOptions {
        tick: Some(Duration::from_millis(20)),
        token: token.map(str::to_owned),
        clients_need_token: token.is_some(),
        ..PolarisOptions::default()
    };
    Polaris::start(options).await
}

fn instance(service: &str, n: usize) -> Value {
    json!({"service": service, "namespace": "shop", "host": format!("10.0.0.{n}"), "port": 80})
}

fn put_web(polaris: &Polaris, count: usize) {
    let all: Vec<Value> = (1..=count).map(|n| instance("web", n)).collect();
    polaris.write("POST", "/naming/v1/instances", &json!(all));
}

fn start(proxy: &FaultProxy, options: &str) -> LiveRegistry {
    LiveRegistry::start(
        &POLARIS,
        &format!("grpc://{}?namespaces=shop&interval=100ms{options}", proxy.address()),
    )
}

async fn has_addresses(registry: &LiveRegistry, addresses: &[&str]) {
    let wanted =
        |state: &RegistryState| state.synced && state.failure.is_none() && state.addresses() == addresses;
    registry.until(&format!("the addresses are {addresses:?}"), wanted).await;
}

const WEB: [&str; 3] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"];

#[tokio::test]
async fn services_and_instances_are_read_and_changes_arrive() {
    let polaris = server(None).await;
    let full = json!({
        "service": "web", "namespace": "shop", "host": "10.0.0.1", "port": 8080, "protocol": "http/TCP", "version": "v1",
        "weight": 7, "metadata": {"a": "1"}, "location": {"region": "r", "zone": "z", "campus": "c"},
    });
    let others = [
        json!({"service": "web", "namespace": "shop", "host": "10.0.0.2", "port": 8080, "protocol": "http/TCP", "healthy": false}),
        json!({"service": "web", "namespace": "shop", "host": "10.0.0.3", "port": 8080, "isolate": true}),
        json!({"service": "web", "namespace": "shop", "host": "10.0.0.4", "port": 8080, "weight": 0}),
        json!({"service": "other", "namespace": "elsewhere", "host": "10.0.0.5", "port": 80}),
    ];
    polaris.write("POST", "/naming/v1/instances", &json!([[full].as_slice(), &others].concat()));
    let proxy = FaultProxy::before(polaris.grpc_port()).await;
    let registry = start(&proxy, "");
    let labels = "labels=a=1,campus=c,region=r,topology.istio.io/cluster=Kubernetes,topology.istio.io/subzone=c,topology.kubernetes.io/region=r,topology.kubernetes.io/zone=z,version=v1,zone=z";
    let first = format!("- 10.0.0.1:8080 of http weight=7 locality=r/z/c {labels}");
    let second = format!("- 10.0.0.2:8080 of http health=Unhealthy weight=100 {CLUSTER}");
    registry.has(&["web.shop.polaris in shop: 8080 http Http", &first, &second]).await;

    let change =
        json!([{"service": "web", "namespace": "shop", "host": "10.0.0.2", "port": 8080, "healthy": true}]);
    polaris.write("PUT", "/naming/v1/instances", &change);
    polaris.write(
        "POST",
        "/naming/v1/instances",
        &json!([{"service": "db", "namespace": "shop", "host": "10.0.0.6", "port": 5432}]),
    );
    let second = second.replace(" health=Unhealthy", "");
    let db = format!("- 10.0.0.6:5432 of default weight=100 {CLUSTER}");
    registry
        .has(&[
            "db.shop.polaris in shop: 5432 default Unsupported",
            &db,
            "web.shop.polaris in shop: 8080 http Http",
            &first,
            &second,
        ])
        .await;
    // A service without instances is still one; a service that is deleted is gone.
    polaris.write(
        "POST",
        "/naming/v1/instances/delete",
        &json!([{"service": "db", "namespace": "shop", "host": "10.0.0.6", "port": 5432}]),
    );
    let state = registry.until("its instance is gone", |state| !state.lines.contains(&db)).await;
    assert_eq!(state.services().len(), 2);
    polaris.write("POST", "/naming/v1/services/delete", &json!([{"name": "db", "namespace": "shop"}]));
    registry.has(&["web.shop.polaris in shop: 8080 http Http", &first, &second]).await;
    assert_eq!(registry.failures(), 0);
}

/// What has not changed is not sent again: an answer with a known revision has no instances in it.
#[tokio::test]
async fn a_quiet_round_asks_once_for_each_service_and_moves_few_bytes() {
    let polaris = server(None).await;
    for service in 0..20 {
        let name = format!("s{service:02}");
        let all: Vec<Value> = (1..=50).map(|n| instance(&name, n)).collect();
        polaris.write("POST", "/naming/v1/instances", &json!(all));
    }
    polaris.refresh();
    let proxy = FaultProxy::before(polaris.grpc_port()).await;
    let registry = start(&proxy, "");
    registry.until("all are there", |state| state.endpoints().len() == 1_000).await;
    let full = proxy.bytes().1;
    let (asked, answered) = (registry.report().requests, proxy.bytes().1);
    registry.until("ten rounds", |_| registry.report().requests >= asked + 10 * 21).await;
    let rounds = (registry.report().requests - asked).div_ceil(21);
    let quiet = (proxy.bytes().1 - answered) / rounds;
    assert!(quiet * 10 < full, "{quiet} bytes in a quiet round, {full} in the first");
    assert_eq!((proxy.connections(), registry.report().sessions), (1, 1));
}

#[tokio::test]
async fn a_dead_or_silent_polaris_takes_nothing_away() {
    let polaris = server(None).await;
    put_web(&polaris, 2);
    polaris.refresh();
    let proxy = FaultProxy::before(polaris.grpc_port()).await;
    let registry = start(&proxy, "");
    has_addresses(&registry, &WEB[..2]).await;
    for fault in [Fault::Refuse, Fault::Close, Fault::Hang, Fault::Truncate(60), Fault::Garble(30)] {
        let before = registry.report().failures;
        proxy.set(fault).await;
        registry.until(&format!("{fault:?} is noticed"), |_| registry.report().failures > before).await;
        proxy.set(Fault::None).await;
        proxy.cut();
        has_addresses(&registry, &WEB[..2]).await;
        assert_eq!(registry.fewest_endpoints(), 2, "{fault:?}");
    }
    proxy.set(Fault::Delay(Duration::from_secs(2))).await;
    put_web(&polaris, 3);
    has_addresses(&registry, &WEB).await;
    assert_eq!(registry.fewest_endpoints(), 2, "late answers are answers");
}

/// A server that lost its store answers 200000 without services, as for a namespace that never was.
#[tokio::test]
async fn a_polaris_that_lost_its_data_is_believed_the_second_time() {
    let polaris = server(None).await;
    put_web(&polaris, 3);
    polaris.refresh();
    let proxy = FaultProxy::before(polaris.grpc_port()).await;
    // The first registry holds the loss for longer than the test runs, the second one believes it soon.
    let (patient, quick) = (start(&proxy, "&guardWait=1h"), start(&proxy, "&guardWait=2s"));
    has_addresses(&patient, &WEB).await;
    has_addresses(&quick, &WEB).await;
    polaris.lose_everything();
    patient.until("the answer is held back", |_| patient.report().held.is_some()).await;
    has_addresses(&quick, &[]).await;
    assert_eq!((quick.report().held, quick.report().holds), (None, 1));
    assert_eq!((patient.state().addresses(), patient.fewest_endpoints()), (WEB.to_vec(), 3));
    put_web(&polaris, 3);
    has_addresses(&quick, &WEB).await;
}

#[tokio::test]
async fn another_server_takes_over() {
    let polaris = server(None).await;
    put_web(&polaris, 2);
    polaris.refresh();
    let proxies =
        [FaultProxy::before(polaris.grpc_port()).await, FaultProxy::before(polaris.grpc_port()).await];
    let url =
        format!("grpc://{},{}?namespaces=shop&interval=100ms", proxies[0].address(), proxies[1].address());
    let registry = LiveRegistry::start(&POLARIS, &url);
    has_addresses(&registry, &WEB[..2]).await;
    let first = proxies.iter().position(|proxy| proxy.open() > 0).unwrap();
    proxies[first].set(Fault::Refuse).await;
    registry.until("the other one is asked", |_| proxies[1 - first].open() > 0).await;
    put_web(&polaris, 3);
    has_addresses(&registry, &WEB).await;
}

#[tokio::test]
async fn a_token_comes_from_a_file_that_is_read_again() {
    let polaris = server(Some("right")).await;
    put_web(&polaris, 2);
    polaris.refresh();
    let proxy = FaultProxy::before(polaris.grpc_port()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "wrong\n").unwrap();
    let nobody = start(&proxy, "");
    nobody.fails("Polaris answered 401001 (access is not approved)").await;
    let registry = start(&proxy, &format!("&tokenFile={}", file.display()));
    let failure = registry.fails("401001").await.failure.unwrap();
    assert!(!failure.contains("wrong"), "{failure}");
    std::fs::write(&file, "right\n").unwrap();
    has_addresses(&registry, &WEB[..2]).await;
}
