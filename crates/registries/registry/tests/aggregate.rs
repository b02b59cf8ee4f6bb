//! The aggregate controller: several clusters, registries that come, go, fail and are replaced, namespaces,
//! networks.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod support;

use pilotfish_config::SourceEvent;
use pilotfish_model::{NetworkGateway, ShardKey, World};
use pilotfish_registry::testing::{EXTERNAL, KUBERNETES, Scene, objects};
use pilotfish_registry::{Health, KubernetesRegistry, RegistrySettings};
use std::time::{Duration, SystemTime};
use support::mesh::{Mesh, settings};
use support::{endpoints, endpoints_of, pod, same, se, service, services, short_key, slice, step, svc, we};

fn shard(cluster: &str) -> ShardKey {
    ShardKey::new(KUBERNETES, cluster)
}

fn web_at(address: &str) -> String {
    svc(
        "web",
        &format!("{{clusterIP: {address}, selector: {{app: web}}, ports: [{{name: http, port: 80}}]}}"),
    )
}

fn account(domain: &str) -> String {
    web_at("10.2.0.1").replace(
        "namespace: ns}",
        &format!("namespace: ns, annotations: {{alpha.istio.io/canonical-serviceaccounts: 'spiffe://{domain}/x'}}}}"),
    )
}

#[test]
fn services_of_two_clusters_become_one() {
    let mut mesh = Mesh::new(&["c1", "c2"]);
    mesh.apply("c2", &account("b"));
    mesh.apply("c1", &web_at("10.1.0.1"));
    let web = service(&mesh.world(), "web.ns");
    let addresses: Vec<(&str, &str)> =
        web.addresses.iter().map(|(cluster, list)| (cluster.as_str(), &*list[0])).collect();
    assert_eq!(addresses, [("c1", "10.1.0.1"), ("c2", "10.2.0.1")]);
    assert_eq!(&*web.default_address, "10.1.0.1", "the primary cluster is the base");
    assert_eq!(web.service_accounts.to_vec(), ["spiffe://b/x".into()]);
    assert_eq!(services(&mesh.world(), "web.ns").len(), 1);

    let key = support::object_key("Service ns/web");
    mesh.send("c2", SourceEvent::Delete(key.clone()));
    let web = service(&mesh.world(), "web.ns");
    assert_eq!(web.addresses.len(), 1);
    assert!(web.service_accounts.is_empty());
    mesh.apply("c2", &account("b"));
    mesh.send("c1", SourceEvent::Delete(key));
    assert_eq!(&*service(&mesh.world(), "web.ns").default_address, "10.2.0.1");
}

#[test]
fn kubernetes_comes_before_entries_whatever_their_age() {
    let mut mesh = Mesh::new(&["c1"]);
    let old = ", creationTimestamp: '2001-01-01T00:00:00Z'";
    let entry = |name: &str, metadata: &str| {
        support::se_with(
            name,
            metadata,
            "{hosts: [web.ns.svc.cluster.local], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 9.9.9.9}]}",
        )
    };
    mesh.apply("c1", &entry("young", ", creationTimestamp: '2002-01-01T00:00:00Z'"));
    mesh.apply("c1", &entry("old", old));
    mesh.apply("c1", &web_at("10.1.0.1"));
    mesh.apply("c1", &slice("web-1", "web", "[{name: http, port: 80}]", "[{addresses: [1.1.1.1]}]"));
    let world = mesh.world();
    let names: Vec<String> = services(&world, "web.ns").iter().map(|s| s.object_name.to_string()).collect();
    assert_eq!(names, ["web", "old", "young"]);
    let all = world.endpoints_of(&short_key("web.ns")).unwrap();
    let shards: Vec<String> = all.shards.keys().map(ToString::to_string).collect();
    assert_eq!(shards, ["Kubernetes/c1", "ServiceEntry/c1"]);
}

#[test]
fn workloads_cross_clusters_where_istio_lets_them() {
    let mut mesh = Mesh::new(&["c1", "c2"]);
    let entry = "{hosts: [e.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: web}}}";
    mesh.apply("c1", &(se("e", entry) + &web_at("10.1.0.1")));
    mesh.apply(
        "c2",
        &(pod("p", "1.2.3.4", "{app: web}", "True") + &we("vm", "{address: 2.3.4.5, labels: {app: web}}")),
    );
    mesh.apply("c2", &(web_at("10.2.0.1") + &se("ignored", &entry.replace("e.com", "f.com"))));
    let world = mesh.world();
    assert_eq!(endpoints(&world, "e.com"), ["http 1.2.3.4:80", "http 2.3.4.5:80"]);
    let shards = |world: &World| -> Vec<(String, usize)> {
        let all = world.endpoints_of(&short_key("web.ns")).unwrap();
        all.shards.iter().map(|(shard, list)| (shard.to_string(), list.len())).collect()
    };
    let want = [("Kubernetes/c1".to_owned(), 0), ("Kubernetes/c2".to_owned(), 1)];
    assert_eq!(shards(&world), want, "a Service selects entries of its own cluster");
    assert!(services(&world, "f.com").is_empty(), "ServiceEntries of other clusters do not count");
}

#[test]
fn a_registry_leaves_with_all_that_it_had_and_may_return() {
    let mut mesh = Mesh::new(&["c1", "c2"]);
    let entry = "{hosts: [e.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: web}}}";
    mesh.apply("c1", &(web_at("10.1.0.1") + &se("e", entry)));
    mesh.apply("c2", &(web_at("10.2.0.1") + &svc("only", "{clusterIP: 10.2.0.2, ports: [{port: 1}]}")));
    mesh.apply("c2", &slice("web-1", "web", "[{name: http, port: 80}]", "[{addresses: [1.2.3.4]}]"));
    mesh.apply("c2", &pod("p", "1.2.3.4", "{app: web}", "True"));
    let before = mesh.world();
    assert_eq!(endpoints(&before, "e.com"), ["http 1.2.3.4:80"]);
    mesh.controller.remove_registry(&shard("c2"));
    let world = mesh.world();
    assert_eq!(service(&world, "web.ns").addresses.len(), 1);
    assert!(services(&world, "only.ns").is_empty());
    assert!(endpoints(&world, "web.ns").is_empty());
    assert!(endpoints(&world, "e.com").is_empty());
    assert_eq!(world.workloads().count(), 0);
    mesh.controller.add_registry(Box::new(KubernetesRegistry::new(KUBERNETES, settings("c2"))), "c2");
    assert!(same(&mesh.world(), &before));
}

/// Whether two worlds hold the same services, endpoints and workloads.
#[test]
fn a_replacement_takes_over_without_a_gap() {
    let mut mesh = Mesh::new(&["c1", "c2"]);
    mesh.apply("c2", &(web_at("10.2.0.1") + &svc("gone", "{clusterIP: 10.2.0.2, ports: [{port: 1}]}")));
    mesh.apply("c2", &slice("web-1", "web", "[{name: http, port: 80}]", "[{addresses: [1.2.3.4]}]"));
    for feed in ["c1", "c2"] {
        mesh.send(feed, SourceEvent::Listed);
    }
    mesh.settle();
    mesh.controller.add_source("c2 again", "s");
    mesh.controller
        .replace_registry(Box::new(KubernetesRegistry::new(KUBERNETES, settings("c2"))), "c2 again");
    assert!(mesh.settle().is_empty(), "the old one serves on");
    assert!(mesh.controller.status().iter().any(|status| status.replacing));
    assert_eq!(mesh.controller.synced(), Ok(()));
    mesh.apply("c2 again", &web_at("10.2.0.1"));
    mesh.apply("c2 again", &slice("web-1", "web", "[{name: http, port: 80}]", "[{addresses: [1.2.3.4]}]"));
    assert!(mesh.settle().is_empty(), "not yet complete");
    mesh.send("c2 again", SourceEvent::Listed);
    let changes = mesh.settle();
    let touched = |host: &str| {
        let fact = pilotfish_model::Fact::Service(short_key(host));
        changes.facts.contains(&fact)
    };
    assert!(touched("gone.ns"));
    assert!(!touched("web.ns"), "what is equal was not even touched");
    assert!(services(&mesh.world(), "gone.ns").is_empty());
    mesh.apply("c2 again", &slice("web-1", "web", "[{name: http, port: 80}]", "[{addresses: [1.2.3.5]}]"));
    assert_eq!(endpoints(&mesh.world(), "web.ns"), ["http 1.2.3.5:80"]);
    let counts = |mesh: &Mesh| -> Vec<_> {
        mesh.controller.status().iter().map(|status| (status.services, status.endpoints)).collect()
    };
    assert_eq!(counts(&mesh), [(0, 0), (1, 1), (0, 0), (0, 0)]);
    assert!(mesh.controller.status().iter().all(|status| !status.replacing));
}

#[test]
fn readiness_names_what_is_missing() {
    let mut mesh = Mesh::new(&["c1", "c2"]);
    let missing =
        |mesh: &Mesh| mesh.controller.synced().err().map(|missing| missing.missing).unwrap_or_default();
    mesh.settle();
    let all = ["configuration", "Kubernetes/c1", "Kubernetes/c2", "ServiceEntry/c1", "ServiceEntry/c2"];
    assert_eq!(missing(&mesh), all);
    mesh.send("c1", SourceEvent::Listed);
    assert_eq!(missing(&mesh), ["Kubernetes/c2", "ServiceEntry/c2"]);
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    mesh.send("c2", SourceEvent::Failed { at, reason: "connection refused".into() });
    let names = ["Kubernetes/c2 (connection refused)", "ServiceEntry/c2 (connection refused)"];
    assert_eq!(missing(&mesh), names);
    mesh.send("c2", SourceEvent::Listed);
    assert_eq!(mesh.controller.synced(), Ok(()));
    mesh.apply("c2", &web_at("10.2.0.1"));
    assert_eq!(missing(&mesh), ["Kubernetes/c2"], "what arrived is not settled");
    mesh.settle();
    assert_eq!(mesh.controller.synced(), Ok(()));
}

#[test]
fn readiness_goes_on_without_what_was_given_up() {
    let mut mesh = Mesh::new(&["c1", "c2"]);
    mesh.send("c1", SourceEvent::Listed);
    mesh.settle();
    assert!(mesh.controller.synced().is_err());
    for provider in [KUBERNETES, EXTERNAL] {
        assert!(mesh.controller.give_up(&ShardKey::new(provider, "c2")));
    }
    assert_eq!(mesh.controller.synced(), Ok(()));
    let given_up = |mesh: &Mesh| -> Vec<String> {
        let status = mesh.controller.status();
        let all = status.iter().filter(|status| status.given_up && !status.sync.is_synced());
        all.map(|status| status.shard.to_string()).collect()
    };
    assert_eq!(given_up(&mesh), ["Kubernetes/c2", "ServiceEntry/c2"]);
    mesh.apply("c2", &web_at("10.2.0.1"));
    mesh.send("c2", SourceEvent::Listed);
    assert_eq!(services(&mesh.world(), "web.ns").len(), 1, "what comes late counts");
    assert!(given_up(&mesh).is_empty());
}

#[test]
fn a_feed_that_is_read_stays() {
    let mut mesh = Mesh::new(&["c1", "c2"]);
    mesh.apply("c2", &web_at("10.2.0.1"));
    mesh.controller.remove_feed("c2");
    assert_eq!(services(&mesh.world(), "web.ns").len(), 1);
    assert!(mesh.controller.source_event("c2", "s", SourceEvent::Listed).is_ok());
    for provider in [KUBERNETES, EXTERNAL] {
        mesh.controller.remove_registry(&ShardKey::new(provider, "c2"));
    }
    assert!(services(&mesh.world(), "web.ns").is_empty());
    assert!(
        mesh.controller.source_event("c2", "s", SourceEvent::Listed).is_err(),
        "it goes with its last registry"
    );
}

#[test]
fn a_cluster_may_have_a_trust_domain_of_its_own() {
    let mut mesh = Mesh::new(&["c1", "c2"]);
    let identities = |mesh: &mut Mesh| -> Vec<String> {
        mesh.world()
            .workloads()
            .map(|workload| workload.identity.as_ref().map(ToString::to_string).unwrap_or_default())
            .collect()
    };
    let of = |domains: [&str; 2]| domains.map(|domain| format!("spiffe://{domain}/ns/ns/sa/sa")).to_vec();
    let set = |mesh: &mut Mesh, feed: &str, domain: Option<&str>| {
        let config = mesh_config(domain.unwrap_or_default());
        let event = match domain {
            Some(_) => SourceEvent::Apply(config),
            None => SourceEvent::Delete(config.key().clone()),
        };
        mesh.send(feed, event);
    };
    mesh.apply("c1", &pod("p1", "1.1.1.1", "{app: web}", "True"));
    mesh.apply("c2", &pod("p2", "1.1.1.2", "{app: web}", "True"));
    set(&mut mesh, "c1", Some("one"));
    assert_eq!(identities(&mut mesh), of(["one", "one"]), "one without accounts has those of the others");
    set(&mut mesh, "c2", Some("two"));
    assert_eq!(identities(&mut mesh), of(["one", "two"]));
    set(&mut mesh, "c1", Some("three"));
    assert_eq!(identities(&mut mesh), of(["three", "two"]));
    mesh.controller.replace_registry(Box::new(KubernetesRegistry::new(KUBERNETES, settings("c2"))), "c2");
    assert_eq!(identities(&mut mesh), of(["three", "two"]), "a later client gets it");
    set(&mut mesh, "c2", Some(""));
    assert_eq!(identities(&mut mesh), of(["three", "cluster.local"]));
    set(&mut mesh, "c2", None);
    assert_eq!(identities(&mut mesh), of(["three", "three"]));
}

fn mesh_config(domain: &str) -> pilotfish_model::Object {
    use pilotfish_config::mesh::MeshConfig;
    use pilotfish_model::{KindSpec, Object, ObjectKey, ObjectMeta};
    let config = MeshConfig { trust_domain: domain.into(), ..MeshConfig::default() };
    Object::new(ObjectMeta::of(ObjectKey::new(MeshConfig::KIND, "istio-system", "default")), config)
}

#[test]
fn clusters_that_come_and_go_leave_nothing() {
    let mut mesh = Mesh::new(&["c1"]);
    mesh.apply("c1", &web_at("10.1.0.1"));
    let before = mesh.world();
    for round in 0..50 {
        for reading in 0..2 {
            let feed = format!("c2#{round}.{reading}");
            mesh.controller.add_source(&feed, "s");
            mesh.controller
                .replace_registry(Box::new(KubernetesRegistry::new(KUBERNETES, settings("c2"))), &feed);
            mesh.apply(&feed, &web_at("10.2.0.1"));
            mesh.apply(&feed, &slice("web-1", "web", "[{name: http, port: 80}]", "[{addresses: [1.2.3.4]}]"));
            mesh.apply(&feed, &pod("p", "1.2.3.4", "{app: web}", "True"));
            mesh.send(&feed, SourceEvent::Listed);
            assert_eq!(endpoints(&mesh.world(), "web.ns"), ["http 1.2.3.4:80"]);
        }
        mesh.controller.remove_feed(&format!("c2#{round}.0"));
        mesh.controller.remove_registry(&shard("c2"));
        mesh.controller.remove_feed(&format!("c2#{round}.1"));
        let world = mesh.world();
        assert!(same(&world, &before) && world.endpoints().all(|(_, all)| all.shards.len() <= 1));
        for reading in 0..2 {
            let feed = format!("c2#{round}.{reading}");
            assert!(
                mesh.controller.source_event(&feed, "s", SourceEvent::Listed).is_err(),
                "{feed} is still there"
            );
        }
    }
    assert_eq!(mesh.controller.status().len(), 2);
}

#[test]
fn a_failing_source_takes_nothing_away() {
    let mut mesh = Mesh::new(&["c1"]);
    mesh.apply("c1", &web_at("10.1.0.1"));
    mesh.send("c1", SourceEvent::Listed);
    let before = mesh.world();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    mesh.send("c1", SourceEvent::Failed { at: at(7), reason: "gone".into() });
    mesh.send("c1", SourceEvent::Failed { at: at(9), reason: "still gone".into() });
    assert!(mesh.settle().is_empty());
    assert_eq!(mesh.controller.synced(), Ok(()), "the last good state serves on");
    let failure = mesh.controller.status()[0].sync.failure().cloned().unwrap();
    assert_eq!((failure.since, &*failure.reason), (at(7), "still gone"));

    // It comes back with a fresh list, in which one Service is missing.
    mesh.apply("c1", &svc("other", "{clusterIP: 10.1.0.2, ports: [{port: 1}]}"));
    mesh.settle();
    mesh.send("c1", SourceEvent::ListBegan(pilotfish_model::Kind::Service));
    assert!(mesh.settle().is_empty());
    mesh.apply("c1", &web_at("10.1.0.1"));
    mesh.send("c1", SourceEvent::ListEnded(pilotfish_model::Kind::Service));
    mesh.send("c1", SourceEvent::Listed);
    assert!(same(&mesh.world(), &before));
    assert_eq!(mesh.controller.status()[0].sync, Health::in_sync());
}

#[test]
fn the_first_source_of_a_feed_wins() {
    let mut mesh = Mesh::new(&["c1"]);
    mesh.controller.add_source("c1", "second");
    let apply = |mesh: &mut Mesh, source: &str, text: &str| {
        for object in objects(text).unwrap() {
            mesh.controller.source_event("c1", source, SourceEvent::Apply(object)).unwrap();
        }
    };
    let address = |mesh: &mut Mesh| service(&mesh.world(), "web.ns").default_address.to_string();
    apply(&mut mesh, "second", &web_at("10.0.0.2"));
    assert_eq!(address(&mut mesh), "10.0.0.2");
    apply(&mut mesh, "s", &web_at("10.0.0.1"));
    assert_eq!(address(&mut mesh), "10.0.0.1");
    apply(&mut mesh, "second", &web_at("10.0.0.3"));
    assert_eq!(address(&mut mesh), "10.0.0.1");
    mesh.controller.remove_source("c1", "s");
    assert_eq!(address(&mut mesh), "10.0.0.3");
    assert!(mesh.controller.source_event("c1", "s", SourceEvent::Listed).is_err());
}

#[test]
fn configuration_comes_from_the_configuration_feed_alone() {
    let mut mesh = Mesh::new(&["c1", "c2"]);
    let rule = |name: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: {name}, namespace: ns}}\nspec: {{host: a.com}}"
        )
    };
    mesh.apply("c1", &rule("a"));
    mesh.apply("c2", &rule("b"));
    mesh.apply("c1", &web_at("10.0.0.1"));
    let kinds: Vec<String> = mesh.world().all_objects().map(|object| object.key().to_string()).collect();
    assert_eq!(kinds, ["DestinationRule ns/a"], "Services are in the world as services");
}

#[test]
fn discovery_selectors_choose_namespaces() {
    let mut scene = Scene::new();
    let namespace = |name: &str, labels: &str| {
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {labels}}}\n---\n")
    };
    let in_namespace = |name: &str| {
        svc("web", "{clusterIP: 10.0.0.1, ports: [{port: 80}]}")
            .replace("namespace: ns}", &format!("namespace: {name}}}"))
    };
    for (name, labels) in [("a", "{app: foo}"), ("b", "{app: bar}")] {
        scene.apply(&(namespace(name, labels) + &in_namespace(name))).unwrap();
    }
    scene.apply(&in_namespace("c")).unwrap();
    scene.apply("apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: r, namespace: b}\nspec: {host: a.com}").unwrap();
    let mut check = |step_text: &str, want: &[&str]| {
        match step_text.strip_prefix("mesh ") {
            Some(text) => scene.set_mesh(text).unwrap(),
            None => step(&mut scene, step_text),
        }
        let world = scene.world();
        let got: Vec<&str> = world.services().map(|(key, _)| key.namespace.as_str()).collect();
        assert_eq!(got, want, "{step_text}");
        let rules = world.objects(pilotfish_model::Kind::DestinationRule).count();
        assert_eq!(rules, usize::from(want.contains(&"b")), "{step_text}");
    };
    check("mesh {}", &["a", "b", "c"]);
    check("mesh {discoverySelectors: [{matchLabels: {app: foo}}]}", &["a"]);
    check("mesh {discoverySelectors: [{matchLabels: {app: bar}}]}", &["b"]);
    check(
        "mesh {discoverySelectors: [{matchExpressions: [{key: app, operator: In, values: [foo, bar]}]}]}",
        &["a", "b"],
    );
    check(&namespace("c", "{app: foo}"), &["a", "b", "c"]);
    check(&namespace("b", "{}"), &["a", "c"]);
    check("- Namespace c", &["a"]);
    check("mesh {discoverySelectors: [{matchLabels: {kubernetes.io/metadata.name: c}}]}", &["c"]);
    check("mesh {}", &["a", "b", "c"]);
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn networks_of_endpoints_and_their_gateways() {
    let mut scene = Scene::new();
    let gateway = |labels: &str| {
        svc("gw", "{type: LoadBalancer, clusterIP: 10.0.0.9, ports: [{name: tls, port: 15443}, {name: alt, port: 443}]}")
            .replace("namespace: ns}", &format!("namespace: ns, labels: {labels}}}"))
            .replace("---\n", "status: {loadBalancer: {ingress: [{ip: 5.5.5.5}]}}\n---\n")
    };
    let mut check = |text: &str, gateways: &[&str], network: &str| {
        match text.split_once(' ') {
            Some(("networks", text)) => scene.set_networks(text).unwrap(),
            _ => step(&mut scene, text),
        }
        let world = scene.world();
        let print = |g: &NetworkGateway| {
            format!("{} {}/{} {}:{}", g.network, g.cluster, g.hbone_port, g.address, g.port)
        };
        let got: Vec<String> = world.network_gateways().iter().map(print).collect();
        assert_eq!(got, gateways, "{text}");
        let networks: Vec<String> = world.workloads().map(|workload| workload.network.to_string()).collect();
        assert!(networks.iter().all(|got| got == network), "{text}: {networks:?}");
        for endpoint in endpoints_of(&world, "web.ns") {
            assert_eq!(endpoint.attributes.network, network, "{text}");
        }
    };
    check(&web_at("10.0.0.1"), &[], "");
    check(&pod("p", "1.2.3.4", "{app: web}", "True"), &[], "");
    check(
        &slice(
            "web-1",
            "web",
            "[{name: http, port: 80}]",
            "[{addresses: [1.2.3.4], targetRef: {kind: Pod, name: p, namespace: ns}}]",
        ),
        &[],
        "",
    );
    check(&gateway("{}"), &[], "");
    check(
        "networks {networks: {n1: {endpoints: [{fromCidr: 1.2.0.0/16}], gateways: [{address: 7.7.7.7, port: 1}]}}}",
        &["n1 /0 7.7.7.7:1"],
        "n1",
    );
    check(
        "networks {networks: {n1: {endpoints: [{fromCidr: 1.2.0.0/16}]}, n2: {endpoints: [{fromRegistry: Kubernetes}], gateways: [{registryServiceName: gw.ns.svc.cluster.local, port: 443}]}}}",
        &["n2 Kubernetes/0 5.5.5.5:443"],
        "n2",
    );
    check(&gateway("{topology.istio.io/network: n3}"), &["n3 Kubernetes/0 5.5.5.5:15443"], "n2");
    check(
        &gateway("{topology.istio.io/network: n3, networking.istio.io/gatewayPort: '443'}"),
        &["n3 Kubernetes/0 5.5.5.5:443"],
        "n2",
    );
    check(&gateway("{topology.istio.io/network: n3, networking.istio.io/gatewayPort: '444'}"), &[], "n2");
    check("networks {}", &[], "");
    check(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system, labels: {topology.istio.io/network: sys}}",
        &[],
        "sys",
    );
    check(&pod("p", "1.2.3.4", "{app: web, topology.istio.io/network: own}", "True"), &[], "own");
    check("- Namespace istio-system", &[], "own");
    check(&pod("p", "1.2.3.4", "{app: web}", "True"), &[], "");
}

#[test]
fn gateways_of_the_gateway_api_count_by_label_and_listener() {
    let gateway = |class: &str, label: &str, listeners: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: gw, namespace: ns, labels: {label}}}\n\
             spec: {{gatewayClassName: {class}, addresses: [{{type: IPAddress, value: 1.1.1.1}}, {{type: Hostname, value: gw.example.com}}], \
             listeners: [{listeners}]}}\n---\n"
        )
    };
    let tls = "{name: a, port: 15443, protocol: TLS, tls: {mode: Passthrough}}";
    let option = "{name: b, port: 443, protocol: TLS, tls: {mode: Passthrough, options: {gateway.istio.io/listener-protocol: auto-passthrough}}}";
    let hbone = "{name: c, port: 15008, protocol: HBONE}";
    let plain = "{name: d, port: 80, protocol: HTTP}";
    let network = "{topology.istio.io/network: n}";
    let run = |remote_gateways: bool, text: &str| -> Vec<String> {
        let mut scene = Scene::with(&RegistrySettings { remote_gateways, ..RegistrySettings::default() });
        scene.apply(text).unwrap();
        let world = scene.world();
        let print =
            |g: &NetworkGateway| format!("{}:{}/{} {}", g.address, g.port, g.hbone_port, g.service_account);
        world.network_gateways().iter().map(print).collect()
    };
    let all = run(false, &gateway("istio", network, &format!("{tls}, {hbone}, {plain}")));
    let want = [
        "1.1.1.1:15008/15008 ns/gw",
        "1.1.1.1:15443/0 ns/gw",
        "gw.example.com:15008/15008 ns/gw",
        "gw.example.com:15443/0 ns/gw",
    ];
    assert_eq!(all, want);
    assert_eq!(
        run(false, &gateway("istio", network, option)),
        ["1.1.1.1:443/0 ns/gw", "gw.example.com:443/0 ns/gw"]
    );
    let other = "{topology.istio.io/network: n, networking.istio.io/gatewayPort: '443'}";
    assert_eq!(run(false, &gateway("istio", other, tls)), [] as [&str; 0]);
    let https = "{name: e, port: 443, protocol: TLS, tls: {mode: Passthrough}}";
    assert_eq!(
        run(false, &gateway("istio", other, &format!("{tls}, {https}"))),
        ["1.1.1.1:443/0 ns/gw", "gw.example.com:443/0 ns/gw"]
    );
    assert_eq!(run(false, &gateway("istio", "{}", option)), [] as [&str; 0]);
    assert_eq!(run(false, &gateway("istio", "{}", tls)), [] as [&str; 0]);
    assert_eq!(run(false, &gateway("istio-remote", network, tls)), [] as [&str; 0]);
    assert_eq!(run(true, &gateway("istio-remote", network, tls))[0], "1.1.1.1:15443/0 ns/gw-istio-remote");
}

#[test]
fn node_ports_are_gateways_at_the_nodes_addresses() {
    let mut scene = Scene::new();
    let node = |name: &str, ip: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{role: {name}}}}}\nstatus: {{addresses: [{{type: InternalIP, address: 10.8.0.1}}, {{type: ExternalIP, address: {ip}}}]}}\n---\n"
        )
    };
    let gateway = |selector: &str| {
        svc("gw", "{type: NodePort, clusterIP: 10.0.0.9, ports: [{name: tls, port: 15443, nodePort: 30999}]}")
            .replace("namespace: ns}", &format!("namespace: ns, labels: {{topology.istio.io/network: n}}, annotations: {{traffic.istio.io/nodeSelector: '{selector}'}}}}"))
    };
    let mut check = |text: &str, want: &[&str]| {
        step(&mut scene, text);
        let got: Vec<String> =
            scene.world().network_gateways().iter().map(|g| format!("{}:{}", g.address, g.port)).collect();
        assert_eq!(got, want, "{text}");
    };
    check(&node("a", "1.1.1.1"), &[]);
    check(&gateway(r#"{"role":"a"}"#), &["1.1.1.1:30999"]);
    check(&node("b", "2.2.2.2"), &["1.1.1.1:30999"]);
    check(&gateway("{}"), &["1.1.1.1:30999", "2.2.2.2:30999"]);
    check(&node("a", "3.3.3.3"), &["2.2.2.2:30999", "3.3.3.3:30999"]);
    check("- Node b", &["3.3.3.3:30999"]);
    check("- Service ns/gw", &[]);
}
