//! ServiceEntries: hosts, addresses, endpoints, merging.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod support;

use pilotfish_model::{ExportTo, PortId, Resolution, TargetPort, TlsMode, TrafficDistribution};
use pilotfish_registry::testing::Scene;
use support::{endpoints, endpoints_of, identity, se, se_with, service, services, step, we, world};

const PORTS: &str =
    "ports: [{number: 80, name: http, protocol: HTTP}, {number: 8080, name: http2, protocol: HTTP2}]";

#[test]
fn hosts_keep_the_capitals_that_they_were_written_with_but_are_the_same_in_small_letters() {
    let spec = format!(
        "{{hosts: [North.Lights.EXAMPLE., SOUTH.lights.example, south.lights.example, plain.lights.example], {PORTS}, resolution: DNS}}"
    );
    let world = world(&se("e", &spec));
    for (host, written) in [
        ("north.lights.example", "North.Lights.EXAMPLE"),
        // The first of an entry's hosts counts.
        ("south.lights.example", "SOUTH.lights.example"),
        ("plain.lights.example", "plain.lights.example"),
    ] {
        let found = services(&world, host);
        let names: Vec<&str> = found.iter().map(|service| &**service.written_host()).collect();
        assert_eq!(names, [written]);
        assert_eq!(endpoints(&world, host), [format!("http {written}:80"), format!("http2 {written}:8080")]);
    }
}

#[test]
fn a_wildcard_that_cannot_be_looked_up_costs_no_other_host() {
    let spec = format!("{{hosts: [bell.shoals.example, '*.shoals.example'], {PORTS}, resolution: DNS}}");
    for host in ["bell.shoals.example", "*.shoals.example"] {
        check(
            &spec,
            host,
            Resolution::DNSLB,
            &["0.0.0.0"],
            &[&format!("http {host}:80"), &format!("http2 {host}:8080")],
        );
    }
}

/// What a ServiceEntry of some spec gives: resolution, addresses of the host's services, endpoints.
fn check(spec: &str, host: &str, resolution: Resolution, addresses: &[&str], want: &[&str]) {
    let world = world(&se("e", spec));
    let found = services(&world, host);
    let got: Vec<&str> = found.iter().map(|service| &*service.default_address).collect();
    assert_eq!(got, addresses, "{spec}");
    assert!(found.iter().all(|service| service.resolution == resolution), "{spec}");
    assert_eq!(endpoints(&world, host), want, "{spec}");
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn hosts_addresses_and_endpoints() {
    use Resolution::{ClientSideLB, DNSLB, DNSRoundRobin, Passthrough};
    let p = PORTS;
    check(&format!("{{hosts: ['*.google.com'], {p}}}"), "*.google.com", Passthrough, &["0.0.0.0"], &[]);
    let tcp = "ports: [{number: 444, name: tcp, protocol: TCP}]";
    check(
        &format!("{{hosts: [tcpnone.com], addresses: [172.217.0.0/16], {tcp}, resolution: NONE}}"),
        "tcpnone.com",
        Passthrough,
        &["172.217.0.0/16"],
        &[],
    );
    check(
        &format!(
            "{{hosts: ['*.google.com'], {p}, resolution: STATIC, endpoints: [{{address: 2.2.2.2, ports: {{http: 7080, http2: 18080}}}}, \
             {{address: 3.3.3.3, ports: {{http: 1080}}}}, {{address: 4.4.4.4}}]}}"
        ),
        "*.google.com",
        ClientSideLB,
        &["0.0.0.0"],
        &[
            "http 2.2.2.2:7080",
            "http 3.3.3.3:1080",
            "http 4.4.4.4:80",
            "http2 2.2.2.2:18080",
            "http2 3.3.3.3:8080",
            "http2 4.4.4.4:8080",
        ],
    );
    let hosts = format!("{{hosts: [google.com, www.wikipedia.org], {p}, resolution: DNS}}");
    check(&hosts, "google.com", DNSLB, &["0.0.0.0"], &["http google.com:80", "http2 google.com:8080"]);
    check(
        &hosts,
        "www.wikipedia.org",
        DNSLB,
        &["0.0.0.0"],
        &["http www.wikipedia.org:80", "http2 www.wikipedia.org:8080"],
    );
    check(
        &format!("{{hosts: [api.istio.io], {p}, resolution: DNS_ROUND_ROBIN}}"),
        "api.istio.io",
        DNSRoundRobin,
        &["0.0.0.0"],
        &["http api.istio.io:80", "http2 api.istio.io:8080"],
    );
    check(
        "{hosts: [google.com], ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], resolution: DNS}",
        "google.com",
        DNSLB,
        &["0.0.0.0"],
        &["http google.com:8080"],
    );
    check(
        &format!(
            "{{hosts: ['*.google.com'], {p}, resolution: DNS, endpoints: [{{address: us.google.com, ports: {{http: 7080}}}}, {{address: de.google.com}}]}}"
        ),
        "*.google.com",
        DNSLB,
        &["0.0.0.0"],
        &[
            "http de.google.com:80",
            "http us.google.com:7080",
            "http2 de.google.com:8080",
            "http2 us.google.com:8080",
        ],
    );
    check(
        &format!(
            "{{hosts: [tcpstatic.com], addresses: [172.217.0.1], {tcp}, resolution: STATIC, endpoints: [{{address: 1.1.1.1}}, {{address: 2.2.2.2}}]}}"
        ),
        "tcpstatic.com",
        ClientSideLB,
        &["172.217.0.1"],
        &["tcp 1.1.1.1:444", "tcp 2.2.2.2:444"],
    );
    check(
        &format!(
            "{{hosts: [tcp1.com, tcp2.com], addresses: [1.1.1.0/16, 2.2.2.2/32], {tcp}, resolution: NONE}}"
        ),
        "tcp2.com",
        Passthrough,
        &["1.1.1.0/16", "2.2.2.2"],
        &[],
    );
    check(
        "{hosts: [uds.example.com], ports: [{number: 6553, name: grpc, protocol: GRPC}], resolution: STATIC, endpoints: [{address: 'unix:///test/sock'}]}",
        "uds.example.com",
        ClientSideLB,
        &["0.0.0.0"],
        &["grpc /test/sock:0"],
    );
    check(
        &format!(
            "{{hosts: [selector.com], {tcp}, resolution: DNS, workloadSelector: {{labels: {{app: wle}}}}}}"
        ),
        "selector.com",
        DNSLB,
        &["0.0.0.0"],
        &[],
    );
}

#[test]
fn every_address_brings_the_endpoints_once_more() {
    let spec = "{hosts: [a.com], addresses: [10.1.0.1, 10.1.0.2], ports: [{number: 80, name: http, protocol: HTTP}], \
                resolution: STATIC, endpoints: [{address: 1.1.1.1}]}";
    check(
        spec,
        "a.com",
        Resolution::ClientSideLB,
        &["10.1.0.1", "10.1.0.2"],
        &["http 1.1.1.1:80", "http 1.1.1.1:80"],
    );
}

#[test]
fn fields_of_the_service() {
    let spec = "{hosts: [a.com], ports: [{number: 3306, name: db}, {number: 80, name: http, protocol: HTTP, targetPort: 8080}], \
                exportTo: ['.', other], subjectAltNames: [spiffe://x], resolution: STATIC, location: MESH_INTERNAL, \
                workloadSelector: {labels: {app: a}}}";
    let annotations = ", annotations: {networking.istio.io/traffic-distribution: PreferClose, \
                       istio.io/connect-strategy: RACE_FIRST_TCP_CONNECT}, labels: {l: v}, creationTimestamp: '1970-01-01T00:00:05Z'";
    let world = world(&se_with("e", annotations, spec));
    let found = service(&world, "a.com");
    assert_eq!((&*found.name, &*found.object_name, found.created), ("a.com", "e", 5));
    assert_eq!(found.export_to, ExportTo::namespaces(["ns", "other"]));
    assert_eq!(found.service_accounts.to_vec(), ["spiffe://x".into()]);
    assert_eq!(found.traffic_distribution, TrafficDistribution::PreferSameZone);
    assert!(found.race_first_tcp_connect);
    assert!(!found.mesh_external);
    assert_eq!(found.selector.get("app"), Some("a"));
    assert_eq!(found.labels.get("l"), Some("v"));
    assert!(found.ports[0].protocol.is_unsupported(), "neither number nor name count");
    assert_eq!(found.ports[0].target_port, None);
    assert_eq!(found.ports[1].target_port, Some(TargetPort::Number(8080)));
    let external = "{hosts: [b.com], ports: [{number: 80, name: http, protocol: HTTP}]}";
    assert!(service(&support::world(&se("e", external)), "b.com").mesh_external);
}

#[test]
fn fields_of_inline_endpoints() {
    let spec = "{hosts: [a.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [\
                {address: 1.1.1.1, weight: 5, serviceAccount: sa, locality: r/z/s, network: n2, labels: {app: a}}, \
                {address: 1.1.1.2, serviceAccount: sa, labels: {security.istio.io/tlsMode: disabled, istio-locality: lr.lz}}, \
                {address: 1.1.1.3, labels: {security.istio.io/tlsMode: istio}}]}";
    let all = endpoints_of(&world(&se("e", spec)), "a.com");
    let (first, second, third) = (&all[0], &all[1], &all[2]);
    assert_eq!((first.attributes.weight, first.attributes.locality.to_string().as_str()), (5, "r/z/s"));
    assert_eq!(identity(first), "spiffe://cluster.local/ns/ns/sa/sa");
    assert_eq!(first.attributes.network, "n2");
    assert_eq!(first.service_port_id, Some(PortId::tcp(80)));
    let label = |key: &str| first.attributes.labels.get(key);
    assert_eq!(label("topology.kubernetes.io/region"), Some("r"));
    assert_eq!(label("topology.istio.io/network"), Some("n2"));
    // Rule 44 of Istio 1.31.
    let workload =
        |n: usize| (all[n].attributes.workload_name.to_string(), all[n].attributes.namespace.clone());
    assert_eq!([workload(0), workload(2)], [("e-0".into(), "ns".into()), ("e-2".into(), "ns".into())]);
    assert_eq!(first.attributes.tls_mode, TlsMode::Istio);
    assert_eq!(second.attributes.tls_mode, TlsMode::Disabled);
    assert_eq!(second.attributes.locality.to_string(), "lr/lz");
    assert_eq!(third.attributes.tls_mode, TlsMode::Istio);
    assert_eq!(identity(third), "");
}

#[test]
fn addresses_of_the_status_and_of_the_name() {
    let port = "ports: [{number: 80, name: http, protocol: HTTP}]";
    let auto = |scene: &mut Scene, host: &str| service(&scene.world(), host).auto_addresses.to_vec();
    let mut scene = Scene::new();
    scene
        .apply(&se("a", &format!("{{hosts: [a.example.com, '*.b.com'], {port}, resolution: STATIC}}")))
        .unwrap();
    scene.apply(&se("c", &format!("{{hosts: [c.com], {port}, resolution: NONE}}"))).unwrap();
    assert!(auto(&mut scene, "a.example.com")[0].starts_with("240.240."));
    assert_eq!(auto(&mut scene, "*.b.com"), ["".into(), "".into()]);
    assert_eq!(auto(&mut scene, "c.com"), ["".into(), "".into()]);
    let with_status = se("a", &format!("{{hosts: [a.example.com, '*.b.com'], {port}, resolution: STATIC}}"))
        .replace("---\n", "status: {addresses: [{host: a.example.com, value: 240.240.0.7}, {host: a.example.com, value: '2001:2::7'}]}\n---\n");
    scene.apply(&with_status).unwrap();
    assert_eq!(auto(&mut scene, "a.example.com"), ["240.240.0.7".into(), "2001:2::7".into()]);
    scene.apply(&with_status.replace("hosts:", "addresses: [10.0.0.9], hosts:")).unwrap();
    assert_eq!(auto(&mut scene, "a.example.com"), ["".into(), "".into()]);
}

fn one(name: &str, address: &str, created: &str) -> String {
    se_with(
        name,
        &format!(", creationTimestamp: '{created}'"),
        &format!(
            "{{hosts: [a.com], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{{address: {address}}}]}}"
        ),
    )
}

#[test]
fn entries_of_one_host_come_together_oldest_first() {
    let mut scene = Scene::new();
    scene.apply(&one("a", "1.1.1.1", "2024-01-02T00:00:00Z")).unwrap();
    scene.apply(&one("b", "2.2.2.2", "2024-01-01T00:00:00Z")).unwrap();
    scene.apply(&one("c", "3.3.3.3", "2024-01-02T00:00:00Z")).unwrap();
    let world = scene.world();
    let names: Vec<String> = services(&world, "a.com").iter().map(|s| s.object_name.to_string()).collect();
    assert_eq!(names, ["b", "a", "c"]);
    let addresses: Vec<String> =
        endpoints_of(&world, "a.com").iter().map(|e| e.address().to_owned()).collect();
    assert_eq!(addresses, ["2.2.2.2", "1.1.1.1", "3.3.3.3"]);
    step(&mut scene, "- ServiceEntry ns/b");
    assert_eq!(endpoints(&scene.world(), "a.com"), ["http 1.1.1.1:80", "http 3.3.3.3:80"]);
    step(&mut scene, "- ServiceEntry ns/a");
    step(&mut scene, "- ServiceEntry ns/c");
    let world = scene.world();
    assert!(services(&world, "a.com").is_empty());
    assert!(world.endpoints_of(&support::short_key("a.com")).is_none());
}

#[test]
fn a_proxy_that_takes_one_answer_has_one_endpoint_for_each_port() {
    let rr = |name: &str, ports: &str| {
        se(
            name,
            &format!(
                "{{hosts: [a.com], ports: [{ports}], resolution: DNS_ROUND_ROBIN, endpoints: [{{address: {name}.a.com}}]}}"
            ),
        )
    };
    let (p445, p446) = ("{number: 445, name: a, protocol: HTTP}", "{number: 446, name: b, protocol: HTTP}");
    let text = rr("first", &format!("{p445}, {p446}")) + &rr("second", p445);
    assert_eq!(endpoints(&world(&text), "a.com"), ["a first.a.com:445", "b first.a.com:446"]);
}

#[test]
fn a_host_is_replaced_by_another() {
    let entry = |host: &str| {
        se(
            "e",
            &format!(
                "{{hosts: [{host}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{{address: 1.1.1.1}}]}}"
            ),
        )
    };
    let mut scene = Scene::new();
    scene.apply(&entry("a.com")).unwrap();
    scene.settle();
    scene.apply(&entry("b.com")).unwrap();
    let world = scene.world();
    assert!(services(&world, "a.com").is_empty());
    assert!(world.endpoints_of(&support::short_key("a.com")).is_none());
    assert_eq!(endpoints(&world, "b.com"), ["http 1.1.1.1:80"]);
    scene.apply(&entry("b.com")).unwrap();
    assert!(scene.settle().is_empty(), "the same again is no change");
}

#[test]
fn workload_entries_become_workloads() {
    let text = support::we_with(
        "vm",
        ", labels: {app: meta, m: '1'}, annotations: {istio.io/autoRegistrationGroup: group}",
        "{address: 1.2.3.4, labels: {app: spec, s: '2'}, serviceAccount: sa, locality: r/z/s, network: n1, weight: 3, ports: {http: 8080}}",
    );
    let world = world(&text);
    let vm = world.workloads().next().unwrap();
    let label = |key: &str| vm.labels.get(key);
    assert_eq!((label("app"), label("m"), label("s")), (Some("meta"), Some("1"), Some("2")));
    assert_eq!(label("topology.istio.io/network"), Some("n1"));
    assert_eq!((&*vm.workload_name, vm.tls_mode, vm.weight), ("group", TlsMode::Istio, 3));
    assert_eq!(vm.ports.get("http"), Some(&8080));
    assert_eq!(vm.locality.to_string(), "r/z/s");
    let plain = support::world(&we("vm", "{address: a.example.com}"));
    let plain = plain.workloads().next().unwrap();
    assert!(plain.is_dns_only());
    assert_eq!((&*plain.workload_name, plain.tls_mode), ("vm", TlsMode::Disabled));
}

#[test]
fn the_older_entry_of_a_collision_of_names_keeps_the_address() {
    let entry = |name: &str, host: &str, created: &str| {
        se_with(
            name,
            &format!(", creationTimestamp: '{created}'"),
            &format!(
                "{{hosts: [{host}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC}}"
            ),
        )
        .replace("namespace: ns", "namespace: n")
    };
    // Two hosts of the namespace `n` whose names fall on one place.
    let (first, second) = ("h78.com", "h841.com");
    let mut scene = Scene::new();
    let address = |scene: &mut Scene, host: &str| {
        let world = scene.world();
        let services = world.services_of(&support::key(host, "n")).unwrap().clone();
        services[0].auto_addresses[0].to_string()
    };
    scene.apply(&entry("young", second, "2024-01-02T00:00:00Z")).unwrap();
    let before = address(&mut scene, second);
    scene.apply(&entry("old", first, "2024-01-01T00:00:00Z")).unwrap();
    assert_eq!(address(&mut scene, first), before, "the older one has the place");
    assert_ne!(address(&mut scene, second), before);
    step(&mut scene, "- ServiceEntry n/old");
    assert_eq!(address(&mut scene, second), before);
}

#[test]
fn an_entry_that_multiplies_beyond_reason_costs_itself_alone() {
    let list = |count: usize, item: &dyn Fn(usize) -> String| -> String {
        (0..count).map(item).collect::<Vec<_>>().join(", ")
    };
    // Each of these by itself is within what validation allows: it does not multiply addresses by endpoints.
    let hosts = list(10, &|index| format!("h{index}.com"));
    let addresses = list(200, &|index| format!("10.0.0.{index}"));
    let ports = list(10, &|index| format!("{{number: {}, name: p{index}, protocol: TCP}}", index + 1));
    let endpoints = list(200, &|index| format!("{{address: 1.1.1.{index}}}"));
    let bomb = format!(
        "{{hosts: [{hosts}], addresses: [{addresses}], ports: [{ports}], resolution: STATIC, endpoints: [{endpoints}]}}"
    );
    let good = "{hosts: [good.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}";
    let world = world(&(se("bomb", &bomb) + &se("good", good)));
    assert_eq!(world.service_count(), 1);
    assert_eq!(support::endpoints(&world, "good.com"), ["http good.com:80"]);
}

fn multiplied(name: &str, hosts: usize, ports: usize, endpoints: usize) -> String {
    let list =
        |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(", ");
    let hosts = list(hosts, &|n| format!("h{n}.{name}.example.com"));
    let ports = list(ports, &|n| format!("{{number: {}, name: tcp-{n}, protocol: TCP}}", n + 1));
    let endpoints = list(endpoints, &|n| format!("{{address: 10.0.{}.{}}}", n / 250, n % 250));
    se(name, &format!("{{hosts: [{hosts}], resolution: STATIC, ports: [{ports}], endpoints: [{endpoints}]}}"))
}

#[test]
fn hosts_of_an_entry_share_one_list_of_endpoints() {
    let mut scene = Scene::new();
    for (text, count) in [(multiplied("e", 30, 4, 5), 20), (multiplied("e", 30, 4, 6), 24)] {
        scene.apply(&text).unwrap();
        let world = scene.world();
        let list = |n: usize| {
            let shards =
                &world.endpoints_of(&support::short_key(&format!("h{n}.e.example.com"))).unwrap().shards;
            shards.values().next().unwrap().clone()
        };
        let first = list(0);
        assert_eq!(first.len(), count);
        assert!((0..30).all(|n| std::sync::Arc::ptr_eq(&list(n), &first)));
        // What another entry adds to one host leaves the others as they are.
        scene
            .apply(&se("f", &format!("{{hosts: [h3.e.example.com], {PORTS}, resolution: STATIC}}")))
            .unwrap();
        let world = scene.world();
        assert_eq!(endpoints_of(&world, "h3.e.example.com").len(), count);
        scene.delete(pilotfish_model::ObjectKey::new(pilotfish_model::Kind::ServiceEntry, "ns", "f"));
    }
}

/// The entries in force and the figures of the others follow from the objects, not from their order.
#[test]
fn entries_beyond_the_bound_of_their_namespace_are_not_in_force_and_named() {
    let big = |name: &str| multiplied(name, 40, 50, 95);
    let names = |scene: &Scene| -> Vec<String> {
        let refused = scene.controller.refused_objects();
        refused.iter().flat_map(|all| all.iter()).map(|refused| refused.key.name.to_string()).collect()
    };
    let hosts = |scene: &mut Scene| scene.world().service_count();
    let mut scene = Scene::new();
    for name in ["d", "b", "f", "a", "e", "c"] {
        scene.apply(&big(name)).unwrap();
        scene.world();
    }
    assert_eq!((names(&scene), hosts(&mut scene)), (vec!["f".to_owned()], 200));
    let message = scene.controller.refused_objects()[0][0].message.clone();
    assert!(message.contains("multiply to 190000, beside 950000 of older"), "{message}");
    // One that is small fits.
    scene.apply(&multiplied("g", 1, 1, 1)).unwrap();
    assert_eq!((hosts(&mut scene), names(&scene)), (201, vec!["f".to_owned()]));
    scene.apply(&multiplied("a", 40, 50, 10)).unwrap();
    assert_eq!((hosts(&mut scene), names(&scene).len()), (241, 0), "room for all of them");
    scene.apply(&big("a")).unwrap();
    let world = scene.world();
    let mut fresh = Scene::new();
    let texts = ["a", "b", "c", "d", "e", "f"].map(big).into_iter().chain([multiplied("g", 1, 1, 1)]);
    texts.for_each(|text| fresh.apply(&text).unwrap());
    let all = |world: &pilotfish_model::World| format!("{:?}", world.services().collect::<Vec<_>>());
    assert_eq!(all(&world), all(&fresh.world()));
    assert_eq!(names(&scene), names(&fresh));
}

#[test]
fn namespaces_of_export_to_count_for_the_bound() {
    let names = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>().join(", ");
    let hosts =
        |name: &str| (0..400).map(|n| format!("h{n}.{name}.example.com")).collect::<Vec<_>>().join(", ");
    let mut scene = Scene::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let spec =
            format!("{{hosts: [{}], exportTo: [{}], {PORTS}, resolution: DNS}}", hosts(name), names(500));
        scene.apply(&se(name, &spec)).unwrap();
    }
    assert_eq!(scene.world().service_count(), 2_000);
    let refused = scene.controller.refused_objects()[0].clone();
    assert_eq!(refused.iter().map(|refused| &*refused.key.name).collect::<Vec<_>>(), ["f"]);
    assert!(refused[0].message.contains("multiply to 200000, beside 1000000 of older"), "{refused:?}");
}

#[test]
fn hosts_of_an_entry_share_one_list_of_namespaces() {
    let mut scene = Scene::new();
    scene
        .apply(&se("a", &format!("{{hosts: [a.com, b.com], exportTo: [x, y], {PORTS}, resolution: DNS}}")))
        .unwrap();
    let world = scene.world();
    let to = |host: &str| match service(&world, host).export_to.clone() {
        ExportTo::Namespaces(namespaces) => namespaces,
        other => panic!("{other:?}"),
    };
    assert!(std::sync::Arc::ptr_eq(&to("a.com"), &to("b.com")));
}

#[test]
fn selected_workloads_count_for_the_bound() {
    let mut scene = Scene::new();
    let ports: Vec<String> =
        (1..=100).map(|n| format!("{{number: {n}, name: tcp-{n}, protocol: TCP}}")).collect();
    let hosts: Vec<String> = (0..600).map(|n| format!("h{n}.example.com")).collect();
    let spec = format!(
        "{{hosts: [{}], resolution: STATIC, workloadSelector: {{labels: {{app: a}}}}, ports: [{}]}}",
        hosts.join(", "),
        ports.join(", ")
    );
    scene.apply(&se("e", &spec)).unwrap();
    for n in 0..20 {
        let entry = we(&format!("w{n}"), &format!("{{address: 10.0.0.{n}, labels: {{app: a}}}}"));
        scene.apply(&entry).unwrap();
        let is_in_force = scene.world().service_count() > 0;
        assert_eq!(is_in_force, (n + 1) * 60_000 <= 1_000_000, "{n}");
    }
    scene.delete(pilotfish_model::ObjectKey::new(pilotfish_model::Kind::WorkloadEntry, "ns", "w3"));
    assert_eq!(scene.world().service_count(), 0);
    for n in 4..8 {
        let key = format!("w{n}");
        scene.delete(pilotfish_model::ObjectKey::new(pilotfish_model::Kind::WorkloadEntry, "ns", &*key));
    }
    let world = scene.world();
    assert_eq!((world.service_count(), endpoints_of(&world, "h1.example.com").len()), (600, 1_500));
}
