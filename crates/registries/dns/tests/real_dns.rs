//! With a real name server, BIND's: what its zones have, how they change, and what is not there.

use pilotfish_dns::DNS;
use pilotfish_testkit::real::{LiveRegistry, NameServer, RegistryState};
use std::fmt::Write;

const ZONE: &str = "
_http._tcp.web SRV 10 30 8080 n1
_http._tcp.web SRV 10 10 8081 n2
_http._tcp.web SRV 20 0 8080 backup
_grpc._tcp.web SRV 0 0 9000 n1
n1 A 10.0.0.1
n2 A 10.0.0.2
n2 AAAA fd00::2
backup A 10.0.0.9
db CNAME store
store A 10.0.1.1
";

/// Answers hold for no longer than the zone says, a second.
fn start(server: &NameServer, names: &str, options: &str) -> LiveRegistry {
    LiveRegistry::start(&DNS, &format!("{}?names={names}&minTtl=200ms&maxTtl=1s{options}", server.address()))
}

fn addresses<'a>(list: &'a [&'a str]) -> impl Fn(&RegistryState) -> bool + 'a {
    move |state| state.synced && state.failure.is_none() && state.addresses() == list
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_become_services_and_follow_the_zone() {
    let Some(server) = NameServer::start(ZONE).await else { return };
    let names = "_http._tcp.web.example.com:80,_grpc._tcp.web.example.com,db.example.com:5432";
    let registry = start(&server, names, "&guard=off");
    registry
        .has(&[
            "db.example.com in default: 5432 default Unsupported",
            "- 10.0.1.1:5432 of default labels=topology.istio.io/cluster=Kubernetes",
            "web.example.com in default: 80 http Http, 9000 grpc Grpc",
            "- 10.0.0.1:8080 of http weight=6 labels=srv-priority=10,topology.istio.io/cluster=Kubernetes",
            "- 10.0.0.1:9000 of grpc labels=srv-priority=0,topology.istio.io/cluster=Kubernetes",
            "- 10.0.0.2:8081 of http weight=1 labels=srv-priority=10,topology.istio.io/cluster=Kubernetes",
            "- fd00::2:8081 of http weight=1 labels=srv-priority=10,topology.istio.io/cluster=Kubernetes",
        ])
        .await;

    server.update(&["delete n2.example.com AAAA", "add n1.example.com 1 A 10.0.0.3"]).await;
    let list = [
        "10.0.1.1:5432",
        "10.0.0.1:8080",
        "10.0.0.1:9000",
        "10.0.0.2:8081",
        "10.0.0.3:8080",
        "10.0.0.3:9000",
    ];
    registry.until("addresses changed", addresses(&list)).await;

    // The best priority ends, and the next one is used.
    server
        .update(&[
            "delete _http._tcp.web.example.com SRV 10 30 8080 n1.example.com.",
            "delete _http._tcp.web.example.com SRV 10 10 8081 n2.example.com.",
        ])
        .await;
    registry
        .until(
            "the next priority",
            addresses(&["10.0.1.1:5432", "10.0.0.1:9000", "10.0.0.3:9000", "10.0.0.9:8080"]),
        )
        .await;

    // A name that does not exist any more has no endpoints; its service stays, because it is asked for.
    server.update(&["delete store.example.com A"]).await;
    let state =
        registry.until("it is gone", addresses(&["10.0.0.1:9000", "10.0.0.3:9000", "10.0.0.9:8080"])).await;
    assert_eq!(state.services().len(), 2, "{state:?}");
    server.update(&["add store.example.com 1 A 10.0.1.2"]).await;
    registry.until("it is back", |state| state.addresses().contains(&"10.0.1.2:5432")).await;
    assert_eq!((registry.failures(), registry.report().sessions), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_fit_no_datagram_come_by_tcp() {
    let mut zone = String::new();
    for n in 0..90 {
        let _ = writeln!(
            zone,
            "many A 10.0.{}.{}\n_x._tcp.many SRV 0 0 80 n{n}\nn{n} A 10.1.0.{n}",
            n / 100,
            n % 100 + 1
        );
    }
    let Some(server) = NameServer::start(&zone).await else { return };
    let registry = start(&server, "many.example.com:80,_x._tcp.many.example.com:81", "&family=ipv4");
    let state = registry.until("all of them", |state| state.synced && state.addresses().len() == 180).await;
    assert_eq!(state.services(), ["many.example.com in default: 80 default Unsupported, 81 x Tcp"]);
    assert_eq!(registry.failures(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn priorities_and_families_are_chosen_by_options() {
    let Some(server) = NameServer::start(ZONE).await else { return };
    let registry = start(&server, "_http._tcp.web.example.com", "&priorities=all&family=ipv6");
    registry.until("IPv6", addresses(&["fd00::2:8081"])).await;
    let registry = start(&server, "_http._tcp.web.example.com", "&priorities=all&family=ipv4");
    let list = ["10.0.0.1:8080", "10.0.0.2:8081", "10.0.0.9:8080"];
    let state = registry.until("all priorities", addresses(&list)).await;
    assert_eq!(state.services(), ["web.example.com in default: 8080 http Http"], "the lowest port");
    let labels: Vec<_> = ["srv-priority=10", "srv-priority=20"]
        .map(|label| state.endpoints().iter().filter(|line| line.contains(label)).count())
        .into();
    assert_eq!(labels, [2, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_that_fails_costs_that_name() {
    let Some(server) = NameServer::start(ZONE).await else { return };
    let names = "store.example.com:80,web.broken.example.org:80,web.elsewhere.example.net:80";
    let registry = start(&server, names, "&family=ipv4");
    let state = registry.fails("A web.broken.example.org: 127.0.0.1").await;
    assert!(
        state.failure.as_deref().is_some_and(|failure| failure.ends_with("the server answered SERVFAIL")),
        "{state:?}"
    );
    let state = registry.until("the other one", |state| state.addresses() == ["10.0.1.1:80"]).await;
    assert!(state.synced, "{state:?}");
    server.update(&["add store.example.com 1 A 10.0.1.2"]).await;
    registry.until("changes arrive", |state| state.addresses() == ["10.0.1.1:80", "10.0.1.2:80"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_answers_for_one_that_does_not() {
    let Some(mut first) = NameServer::start(ZONE).await else { return };
    let Some(second) = NameServer::start(ZONE).await else { return };
    let address =
        format!("{},{}?names=store.example.com:80&minTtl=200ms&maxTtl=1s", first.address(), second.address());
    let registry = LiveRegistry::start(&DNS, &address);
    registry.until("it is found", addresses(&["10.0.1.1:80"])).await;
    first.kill().await;
    second.update(&["add store.example.com 1 A 10.0.1.2"]).await;
    registry.until("it is found at the second", addresses(&["10.0.1.1:80", "10.0.1.2:80"])).await;
    assert_eq!(registry.failures(), 0);
}
