//! Many services: connections, requests and time.

use crate::support::{gone, instance, registry, with_status};
use pilotfish_testkit::consul::{Consul, ConsulOptions, ConsulTls};
use pilotfish_testkit::real::{Authority, LiveRegistry, eventually};
use serde_json::json;
use std::sync::Arc;

const SERVICES: usize = 1000;

fn fill(consul: &Consul) {
    for number in 0..SERVICES {
        consul.register(&instance(&format!("s{number:04}"), number));
    }
}

async fn in_sync(registry: &LiveRegistry) {
    registry.until("all are there", |state| state.synced && state.services().len() == SERVICES).await;
}

/// Waits until a line with this text is there.
async fn seen(registry: &LiveRegistry, what: &str) {
    registry.until(what, |state| state.lines.iter().any(|line| line.contains(what))).await;
}

/// Every kind of change, with one that no list and no check tells of: the world has each of them.
async fn changes(consul: &Consul, registry: &LiveRegistry) {
    consul.register(&with_status("s0500", 500, "critical"));
    seen(registry, "10.0.1.244:8080 of http health=Unhealthy").await;
    consul.register(&with_status("s0500", 500, "warning"));
    registry
        .until("it is well", |state| !state.lines.iter().any(|line| line.contains("health=Unhealthy")))
        .await;
    let mut silent = instance("s0700", 70_000);
    silent.as_object_mut().expect("an object").remove("Check");
    consul.register(&silent);
    seen(registry, "10.1.17.112:8080").await;
    consul.register(&instance("new", 80_000));
    seen(registry, "new.service.consul").await;
    consul.register(&json!({
        "Node": "node-321", "Address": "10.0.1.65", "Check": {"CheckID": "serfHealth", "Name": "s", "Status": "critical"},
    }));
    seen(registry, "10.0.1.65:8080 of http health=Unhealthy").await;
    consul.deregister(&gone("new", 80_000));
    registry.until("it is gone", |state| state.services().len() == SERVICES).await;
}

/// Waits until the list of services was asked for once more: its last wait is over.
async fn asked_for_the_list(consul: &Consul) {
    eventually("the list of services is asked for", || async {
        let counts = consul.counts();
        if counts.requests.contains_key("GET catalog/services") { Ok(()) } else { Err(counts) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_services_over_http_1_within_the_agents_limit() {
    let consul = Consul::plain().await;
    fill(&consul);
    let registry = registry(&consul, "");
    in_sync(&registry).await;
    changes(&consul, &registry).await;
    let counts = consul.take_counts();
    assert!(counts.most_connections <= 64 && counts.refused == 0, "{counts:?}");
    assert_eq!(registry.failures(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_minute_costs_at_most_two_requests_for_each_service() {
    let consul = Consul::plain().await;
    fill(&consul);
    // A minute of six seconds: all waits are shorter in the same measure. It lasts from one wait of the list
    // to the next.
    let registry = registry(&consul, "wait=6s");
    in_sync(&registry).await;
    for _ in 0..2 {
        let _ = consul.take_counts();
        asked_for_the_list(&consul).await;
    }
    let counts = consul.take_counts();
    assert!(counts.total() <= 2 * (SERVICES as u64 + 1), "{counts:?}");
    // Connections are kept.
    assert!(counts.connections <= 64 && counts.most_connections <= 64, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_services_over_http_2_are_all_watched_on_a_few_connections() {
    let authority = Authority::new();
    let (chain, key) = authority.server();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.root()).expect("the file can be written");
    let tls = Some(ConsulTls { chain, key, client_root: None, http2: true });
    let consul = Consul::start(ConsulOptions { tls, ..ConsulOptions::default() }).await;
    fill(&consul);
    let registry = registry(&consul, &format!("caFile={}", ca.display()));
    in_sync(&registry).await;
    let blocked = eventually("all wait", || async {
        let blocked = consul.counts().blocked;
        if blocked == SERVICES + 1 { Ok(blocked) } else { Err(blocked) }
    });
    blocked.await;
    let _ = consul.take_counts();
    changes(&consul, &registry).await;
    let counts = consul.take_counts();
    assert!(counts.most_connections <= 13, "{counts:?}");
    assert!(counts.total() < 40, "one question for each change: {counts:?}");
}

#[tokio::test]
async fn one_instance_changes_one_service() {
    let consul = Consul::plain().await;
    for number in 0..50 {
        consul.register(&instance(&format!("s{number:04}"), number));
    }
    let registry = registry(&consul, "");
    registry.until("all are there", |state| state.services().len() == 50).await;
    let before = registry.world();
    consul.register(&with_status("s0007", 7, "critical"));
    registry.until("it is marked", |state| state.lines.iter().any(|line| line.contains("Unhealthy"))).await;
    let after = registry.world();
    let mut changed = Vec::new();
    for (key, _) in after.services() {
        let pair = [&before, &after].map(|world| world.endpoints_of(key));
        let same = match pair {
            [Some(before), Some(after)] => Arc::ptr_eq(before, after),
            _ => false,
        };
        if !same {
            changed.push(key.hostname.to_string());
        }
    }
    assert_eq!(changed, ["s0007.service.consul"]);
}
