//! ServiceExports and ServiceImports in several clusters.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod support;

use pilotfish_model::{ClusterId, Resolution, Service, ShardKey, World};
use pilotfish_registry::testing::KUBERNETES;
use pilotfish_registry::{MultiClusterServices, RegistrySettings};
use std::sync::Arc;
use support::mesh::Mesh;
use support::{export, import, key, slice, svc};

fn mesh(mode: MultiClusterServices) -> Mesh {
    let settings = RegistrySettings { multi_cluster_services: mode, ..RegistrySettings::default() };
    Mesh::with(&["c1", "c2"], &settings)
}

fn web(address: &str) -> String {
    svc(
        "web",
        &format!("{{clusterIP: {address}, selector: {{app: web}}, ports: [{{name: http, port: 80}}]}}"),
    )
}

fn web_with_slice(address: &str, endpoint: &str) -> String {
    web(address)
        + &slice("web-1", "web", "[{name: http, port: 80}]", &format!("[{{addresses: [{endpoint}]}}]"))
}

fn of_host(world: &World, domain: &str) -> Option<Arc<Service>> {
    let services = world.services_of(&key(&format!("web.ns.svc.{domain}"), "ns"))?;
    assert_eq!(services.len(), 1);
    services.first().cloned()
}

/// The clusters whose endpoints are hidden from the others.
fn confined(service: &Service) -> Vec<&str> {
    service.kubernetes.as_ref().unwrap().confined.iter().map(ClusterId::as_str).collect()
}

fn addresses(service: &Service) -> Vec<String> {
    let text = |(cluster, list): (&ClusterId, &Arc<[Arc<str>]>)| format!("{cluster} {}", list.join(" "));
    service.addresses.iter().map(text).collect()
}

/// The shards of a host with their addresses.
fn shards(world: &World, domain: &str) -> Vec<String> {
    let Some(all) = world.endpoints_of(&key(&format!("web.ns.svc.{domain}"), "ns")) else {
        return Vec::new();
    };
    let text = |shard: &ShardKey, list: &[_]| {
        let addresses: Vec<&str> =
            list.iter().map(|endpoint: &Arc<pilotfish_model::Endpoint>| endpoint.address()).collect();
        format!("{shard} {}", addresses.join(" "))
    };
    all.shards.iter().map(|(shard, list)| text(shard, list)).collect()
}

#[test]
fn what_is_not_exported_stays_in_its_cluster() {
    use MultiClusterServices::{ClusterLocal, Discovery, Hosts, Off};
    let table = [
        (Off, &[][..], &[][..]),
        (Discovery, &["c2"][..], &[][..]),
        (Hosts, &["c2"][..], &["c2"][..]),
        (ClusterLocal, &["c1", "c2"][..], &["c2"][..]),
    ];
    for (mode, own, clusterset) in table {
        let mut mesh = mesh(mode);
        mesh.apply("c1", &(web("10.1.0.1") + &export("web") + &import("web", "[10.9.0.1]")));
        mesh.apply("c2", &web("10.2.0.1"));
        let world = mesh.world();
        assert_eq!(confined(&of_host(&world, "cluster.local").unwrap()), own, "{mode:?}");
        match of_host(&world, "clusterset.local") {
            Some(service) => assert_eq!(confined(&service), clusterset, "{mode:?}"),
            None => assert!(mode < Hosts, "{mode:?}"),
        }
        mesh.delete("c1", "ServiceExport ns/web");
        let world = mesh.world();
        let hidden = if mode == Off { 0 } else { 2 };
        assert_eq!(confined(&of_host(&world, "cluster.local").unwrap()).len(), hidden, "{mode:?}");
        assert_eq!(world.all_objects().count(), 0, "exports and imports are for the registries alone");
    }
}

#[test]
fn an_imported_host_is_the_service_at_its_own_addresses() {
    let mut mesh = mesh(MultiClusterServices::Hosts);
    mesh.apply("c1", &import("web", "[10.9.0.2, 10.9.0.1]"));
    mesh.apply("c2", &import("web", "[10.8.0.1]"));
    assert!(of_host(&mesh.world(), "clusterset.local").is_none(), "no cluster has the Service");
    mesh.apply("c2", &web_with_slice("10.2.0.1", "2.0.0.1"));
    let world = mesh.world();
    let service = of_host(&world, "clusterset.local").unwrap();
    assert_eq!(addresses(&service), ["c1 10.9.0.1 10.9.0.2", "c2 10.8.0.1"]);
    assert_eq!((&*service.default_address, service.resolution), ("10.9.0.1", Resolution::ClientSideLB));
    assert_eq!((service.ports.len(), service.provider), (1, KUBERNETES));
    assert!(service.selector.is_empty(), "workloads are those of the Service itself");
    assert_eq!(service.provenance.to_string(), "ServiceImport ns/web");
    assert_eq!(shards(&world, "clusterset.local"), ["Kubernetes/c2 2.0.0.1"]);

    mesh.apply("c1", &web_with_slice("10.1.0.1", "1.0.0.1"));
    let world = mesh.world();
    assert_eq!(shards(&world, "clusterset.local"), ["Kubernetes/c1 1.0.0.1", "Kubernetes/c2 2.0.0.1"]);
    assert_eq!(shards(&world, "clusterset.local"), shards(&world, "cluster.local"));

    mesh.delete("c1", "ServiceImport ns/web");
    assert_eq!(addresses(&of_host(&mesh.world(), "clusterset.local").unwrap()), ["c2 10.8.0.1"]);
}

#[test]
fn an_imported_host_goes_with_its_addresses_its_service_and_its_cluster() {
    let mut mesh = mesh(MultiClusterServices::Hosts);
    let all = web_with_slice("10.1.0.1", "1.0.0.1") + &import("web", "[10.9.0.1]");
    mesh.apply("c1", &all);
    let there = |mesh: &mut Mesh| {
        let world = mesh.world();
        (of_host(&world, "clusterset.local").is_some(), shards(&world, "clusterset.local").len())
    };
    assert_eq!(there(&mut mesh), (true, 1));
    mesh.apply("c1", &import("web", "[]"));
    assert_eq!(there(&mut mesh), (false, 0), "emptied, as for a headless Service");
    mesh.apply("c1", &import("web", "[10.9.0.1]"));
    assert_eq!(there(&mut mesh), (true, 1));
    mesh.delete("c1", "Service ns/web");
    assert_eq!(there(&mut mesh), (false, 0));
    mesh.apply("c1", &all);
    assert_eq!(there(&mut mesh), (true, 1));
    mesh.controller.remove_registry(&ShardKey::new(KUBERNETES, "c1"));
    assert_eq!(there(&mut mesh), (false, 0));
}

#[test]
fn workloads_see_the_service_of_their_own_cluster() {
    let mut mesh = mesh(MultiClusterServices::Off);
    mesh.apply("c1", &web("10.1.0.1"));
    let other =
        "{clusterIP: 10.2.0.1, selector: {app: other}, ports: [{name: http, port: 80, targetPort: 8080}]}";
    mesh.apply("c2", &(svc("web", other) + &svc("only", other)));
    let world = mesh.world();
    let service = of_host(&world, "cluster.local").unwrap();
    let selector = |cluster: &str| {
        let (selector, ports) = service.in_cluster(&cluster.into())?;
        Some((selector.get("app")?.to_owned(), ports[0].target_port.clone()?))
    };
    use pilotfish_model::TargetPort::Number;
    assert_eq!(selector("c1"), Some(("web".to_owned(), Number(80))));
    assert_eq!(selector("c2"), Some(("other".to_owned(), Number(8080))));
    assert_eq!(selector("c3"), None);
    let only = world.services_of(&key("only.ns.svc.cluster.local", "ns")).unwrap()[0].clone();
    assert!(only.in_cluster(&"c1".into()).is_none() && only.in_cluster(&"c2".into()).is_some());
}
