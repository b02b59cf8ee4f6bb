//! Registries with a source of their own: batches, health, readiness, merging with others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod support;

use pilotfish_model::{
    Hostname, Origin, Port, Protocol, Provider, Service, ServiceKey, ShardKey, Workload, World,
};
use pilotfish_registry::{AggregateSettings, MergePolicy, RegistryBatch, RegistrySettings};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use support::mesh::Mesh;
use support::{endpoints, pod, se, services, short_key, slice, svc};

const CONSUL: Provider = Provider::new(2, "consul");

fn shard(instance: &str) -> ShardKey {
    ShardKey::new(CONSUL, "c1").with_instance(instance)
}

fn port() -> Port {
    Port { number: 80, name: "http".into(), protocol: Protocol::parse("HTTP"), target_port: None }
}

/// A service with one workload at each address, as a source would send it.
fn add(batch: &mut RegistryBatch, shard: &ShardKey, host: &str, addresses: &[&str]) {
    let origin = Origin::registered(shard.clone(), host);
    let hostname = Hostname::parse(host).unwrap();
    batch.set_service(Service::registered(shard.provider, hostname.clone(), "ns", vec![port()], origin));
    let workloads = addresses.iter().map(|address| {
        Workload::registered(shard, "ns", format!("{host}@{address}"), vec![Arc::from(*address)])
    });
    let workloads: Vec<Workload> = workloads.collect();
    let list: Vec<_> = workloads.iter().map(|workload| Arc::new(workload.endpoint(&port(), 8080))).collect();
    batch.set_endpoints(ServiceKey { hostname, namespace: "ns".into() }, list);
    workloads.into_iter().for_each(|workload| batch.set_workload(workload));
}

fn batch(mut batch: RegistryBatch, shard: &ShardKey, hosts: &[(&str, &[&str])]) -> RegistryBatch {
    hosts.iter().for_each(|(host, addresses)| add(&mut batch, shard, host, addresses));
    batch
}

fn workloads(world: &World) -> Vec<String> {
    world.workloads().map(|workload| workload.key.name.to_string()).collect()
}

#[test]
fn a_complete_batch_names_all_that_there_is_and_a_partial_one_what_differs() {
    let mut mesh = Mesh::new(&["c1"]);
    let before = mesh.world();
    let dc = shard("");
    mesh.controller.add_live(dc.clone());
    let all = batch(RegistryBatch::complete(), &dc, &[("a.com", &["1.1.1.1"]), ("b.com", &["2.2.2.2"])]);
    mesh.controller.registry_batch(&dc, all).unwrap();
    assert_eq!(endpoints(&mesh.world(), "a.com"), ["http 1.1.1.1:8080"]);
    let some = batch(RegistryBatch::partial(), &dc, &[("a.com", &["1.1.1.1", "3.3.3.3"])]);
    mesh.controller.registry_batch(&dc, some).unwrap();
    assert_eq!(endpoints(&mesh.world(), "a.com"), ["http 1.1.1.1:8080", "http 3.3.3.3:8080"]);
    assert_eq!(endpoints(&mesh.world(), "b.com"), ["http 2.2.2.2:8080"]);
    let only_b = batch(RegistryBatch::complete(), &dc, &[("b.com", &["2.2.2.2"])]);
    mesh.controller.registry_batch(&dc, only_b).unwrap();
    let world = mesh.world();
    assert!(services(&world, "a.com").is_empty() && world.endpoints_of(&short_key("a.com")).is_none());
    assert_eq!(workloads(&world), ["b.com@2.2.2.2"]);
    mesh.controller.remove_registry(&dc);
    assert!(support::same(&mesh.world(), &before), "nothing of it stays");
    assert!(mesh.controller.registry_batch(&dc, RegistryBatch::partial()).is_err());
}

#[test]
fn a_failure_keeps_the_last_good_state_and_has_its_time() {
    let mut mesh = Mesh::new(&["c1"]);
    let dc = shard("");
    mesh.controller.add_live(dc.clone());
    mesh.send("c1", pilotfish_config::SourceEvent::Listed);
    mesh.settle();
    let missing =
        |mesh: &Mesh| mesh.controller.synced().err().map(|missing| missing.missing).unwrap_or_default();
    assert_eq!(missing(&mesh), ["consul/c1"]);
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    mesh.controller.registry_failed(&dc, at(1), "connection refused".into()).unwrap();
    assert_eq!(missing(&mesh), ["consul/c1 (connection refused)"]);
    mesh.controller
        .registry_batch(&dc, batch(RegistryBatch::complete(), &dc, &[("a.com", &["1.1.1.1"])]))
        .unwrap();
    mesh.controller.registry_synced(&dc).unwrap();
    mesh.settle();
    assert_eq!(mesh.controller.synced(), Ok(()));
    mesh.controller.registry_failed(&dc, at(5), "timeout".into()).unwrap();
    mesh.controller.registry_failed(&dc, at(9), "no route".into()).unwrap();
    let status = mesh.controller.status().into_iter().find(|status| status.shard == dc).unwrap();
    let failure = status.sync.failure().cloned().unwrap();
    assert_eq!((failure.since, &*failure.reason), (at(5), "no route"));
    assert!(status.sync.is_synced(), "it was in sync once, so readiness stays");
    assert_eq!(endpoints(&mesh.world(), "a.com"), ["http 1.1.1.1:8080"]);
    mesh.controller.registry_synced(&dc).unwrap();
    assert!(mesh.controller.status().iter().all(|status| !status.sync.is_failing()));
}

#[test]
fn a_registry_that_is_given_up_delays_nothing_and_counts_when_it_comes() {
    let mut mesh = Mesh::new(&["c1"]);
    let dc = shard("");
    mesh.controller.add_live(dc.clone());
    mesh.send("c1", pilotfish_config::SourceEvent::Listed);
    mesh.settle();
    assert!(mesh.controller.synced().is_err());
    assert!(mesh.controller.give_up(&dc));
    assert!(!mesh.controller.give_up(&dc), "once is enough");
    assert_eq!(mesh.controller.synced(), Ok(()));
    assert!(mesh.controller.status().iter().any(|status| status.given_up && status.shard == dc));
    mesh.controller
        .registry_batch(&dc, batch(RegistryBatch::complete(), &dc, &[("a.com", &["1.1.1.1"])]))
        .unwrap();
    mesh.controller.registry_synced(&dc).unwrap();
    assert_eq!(endpoints(&mesh.world(), "a.com"), ["http 1.1.1.1:8080"]);
    assert!(mesh.controller.status().iter().all(|status| !status.given_up));
}

#[test]
fn a_live_registry_alone_needs_no_configuration_feed() {
    let mut mesh = Mesh::new(&["c1"]);
    mesh.controller.remove_source("c1", "s");
    mesh.settle();
    assert_eq!(mesh.controller.synced(), Ok(()), "a feed without sources has nothing to wait for");
}

#[test]
fn two_data_centres_live_side_by_side() {
    let mut mesh = Mesh::new(&["c1"]);
    for (dc, address) in [("dc1", "1.1.1.1"), ("dc2", "2.2.2.2")] {
        mesh.controller.add_live(shard(dc));
        let all = batch(RegistryBatch::complete(), &shard(dc), &[("a.com", &[address])]);
        mesh.controller.registry_batch(&shard(dc), all).unwrap();
    }
    assert_eq!(endpoints(&mesh.world(), "a.com"), ["http 1.1.1.1:8080", "http 2.2.2.2:8080"]);
    mesh.controller.registry_batch(&shard("dc1"), RegistryBatch::complete()).unwrap();
    assert_eq!(endpoints(&mesh.world(), "a.com"), ["http 2.2.2.2:8080"]);
    assert_eq!(mesh.controller.conflicts().count(), 0, "registries of one type are no rivals");
}

#[test]
fn workloads_of_any_registry_are_selected_by_service_entries() {
    let mut mesh = Mesh::new(&["c1"]);
    let dc = shard("");
    mesh.controller.add_live(dc.clone());
    mesh.apply("c1", &se("db", "{hosts: [db.com], resolution: STATIC, ports: [{number: 80, name: http}], workloadSelector: {labels: {app: db}}}"));
    let mut batch = RegistryBatch::complete();
    let mut workload = Workload::registered(&dc, "ns", "db-1", vec![Arc::from("1.1.1.1")]);
    workload.labels = Arc::new([("app", "db")].into_iter().collect());
    batch.set_workload(workload);
    mesh.controller.registry_batch(&dc, batch).unwrap();
    assert_eq!(endpoints(&mesh.world(), "db.com"), ["http 1.1.1.1:80"]);
    mesh.apply("c1", &pod("other", "1.2.3.4", "{app: other}", "True"));
    mesh.controller.registry_batch(&dc, RegistryBatch::complete()).unwrap();
    assert!(endpoints(&mesh.world(), "db.com").is_empty());
}

/// A Kubernetes Service and a registry of lower rank that has its host, too.
fn rivals(merge: MergePolicy) -> (Mesh, ShardKey) {
    let settings = AggregateSettings {
        config_feed: "c1".into(),
        primary: "c1".into(),
        merge,
        ..AggregateSettings::default()
    };
    let mut mesh = Mesh::with_aggregate(settings, &["c1"], &RegistrySettings::default());
    mesh.apply("c1", &svc("web", "{clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}"));
    mesh.apply("c1", &slice("web-1", "web", "[{name: http, port: 80}]", "[{addresses: [1.2.3.4]}]"));
    let dc = shard("dc1");
    mesh.controller.add_live(dc.clone());
    let all = batch(RegistryBatch::complete(), &dc, &[("web.ns.svc.cluster.local", &["9.9.9.9"])]);
    mesh.controller.registry_batch(&dc, all).unwrap();
    (mesh, dc)
}

#[test]
fn services_of_one_host_are_merged_as_declared() {
    let own = "http 1.2.3.4:80";
    let other = "http 9.9.9.9:8080";
    for (policy, providers, want) in [
        (MergePolicy::Union, vec!["Kubernetes", "consul"], vec![own, other]),
        (MergePolicy::First, vec!["Kubernetes"], vec![own]),
        (MergePolicy::Refuse, vec!["Kubernetes"], vec![own]),
    ] {
        let (mut mesh, dc) = rivals(policy);
        let world = mesh.world();
        let names: Vec<&str> =
            services(&world, "web.ns").iter().map(|service| service.provider.name()).collect();
        assert_eq!(
            (names, endpoints(&world, "web.ns")),
            (providers, want.iter().map(ToString::to_string).collect())
        );
        let conflicts: Vec<String> = mesh.controller.conflicts().map(ToString::to_string).collect();
        let used = if policy == MergePolicy::Union { "are used, too" } else { "are not used" };
        assert_eq!(
            conflicts,
            [format!(
                "ns/web.ns.svc.cluster.local: Kubernetes/c1 wins over consul/c1/dc1: Kubernetes comes before consul in the \
                 order of registries; the endpoints of consul/c1/dc1 {used}"
            )]
        );
        // The loser takes over when the winner leaves, and gives way when it is back.
        mesh.delete("c1", "Service ns/web");
        let world = mesh.world();
        assert_eq!(services(&world, "web.ns").len(), 1);
        assert_eq!(endpoints(&world, "web.ns"), [other], "{policy:?}");
        assert_eq!(mesh.controller.conflicts().count(), 0);
        mesh.apply("c1", &svc("web", "{clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}"));
        assert_eq!(endpoints(&mesh.world(), "web.ns"), want, "{policy:?}");
        mesh.controller.remove_registry(&dc);
        assert_eq!(endpoints(&mesh.world(), "web.ns"), [own], "{policy:?}");
    }
}

#[test]
fn an_imported_host_gives_way_to_a_registry_that_comes_first() {
    let aggregate = AggregateSettings {
        config_feed: "c1".into(),
        primary: "c1".into(),
        merge: MergePolicy::First,
        ..AggregateSettings::default()
    };
    let settings = RegistrySettings {
        multi_cluster_services: pilotfish_registry::MultiClusterServices::Hosts,
        ..RegistrySettings::default()
    };
    let mut mesh = Mesh::with_aggregate(aggregate, &["c1"], &settings);
    mesh.apply("c1", &svc("web", "{clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}"));
    mesh.apply("c1", &slice("web-1", "web", "[{name: http, port: 80}]", "[{addresses: [1.2.3.4]}]"));
    mesh.apply("c1", &(support::export("web") + &support::import("web", "[10.7.0.1]")));
    let host = "web.ns.svc.clusterset.local";
    let own = ["http 1.2.3.4:80"];
    assert_eq!(endpoints(&mesh.world(), host), own);
    // It sorts before Kubernetes.
    let first = ShardKey::new(Provider::new(0, "A"), "c1");
    mesh.controller.add_live(first.clone());
    let all = batch(RegistryBatch::complete(), &first, &[(host, &["9.9.9.9"])]);
    mesh.controller.registry_batch(&first, all).unwrap();
    let world = mesh.world();
    assert_eq!(endpoints(&world, host), ["http 9.9.9.9:8080"]);
    assert_eq!(services(&world, host).len(), 1);
    assert_eq!(mesh.controller.conflicts().count(), 1);
    mesh.controller.remove_registry(&first);
    assert_eq!(endpoints(&mesh.world(), host), own);
    assert_eq!(mesh.controller.conflicts().count(), 0);
}
