//! Limits on what objects make together, reached by objects as users write them: what is beyond is left out,
//! named, and comes back.

use super::{NETWORKING, Plane, refused, resources};
use crate::engine::{EncodedResource, Refusal};
use crate::testing::{line, service, sidecar, yaml};
use crate::translator::ahead::MOST_HELPERS;
use crate::translator::view::{BatchKeysOf, Generate};
use crate::translator::{MAX_PROXY_BYTES, MAX_PROXY_RESOURCES};
use crate::xds::cds::MAX_SERVICE_CLUSTERS_BYTES;
use crate::xds::lds::MAX_LISTENER_BYTES;
use pilotfish_model::{Port, Update};
use pilotfish_proto::envoy::config::listener::v3::Listener;
use pilotfish_proto::{Any, ResourceType};
use prost::Message;

/// The faults that are told, without those of other limits.
fn faults(plane: &Plane, limit: &str) -> Vec<Refusal> {
    let all = plane.translator.snapshot().refusals();
    all.into_iter().filter(|refusal| refusal.fault.contains(&format!("(limit {limit})"))).collect()
}

fn bytes(resources: &[EncodedResource]) -> usize {
    resources.iter().map(|resource| resource.body.len()).sum()
}

/// Hosts of the world outside, each with a cluster of one MiB.
fn large_clusters(hosts: usize) -> Vec<Update> {
    let name = "x".repeat(1 << 20);
    let tls = format!("tls: {{mode: SIMPLE, sni: example.com, subjectAltNames: [{name}]}}");
    let rule = format!("{{host: '*.example.com', trafficPolicy: {{{tls}}}}}");
    let mut all = yaml(&line(NETWORKING, "DestinationRule", "shop", "large", &rule));
    for n in 0..hosts {
        let host = format!("h{n:03}.example.com");
        all.push(
            service(&host, "shop")
                .with(|service| {
                    service.hostname = pilotfish_model::Hostname::parse(&host).unwrap();
                    crate::testing::of_service_entry(service);
                })
                .update(),
        );
    }
    all
}

#[test]
fn services_whose_clusters_would_be_too_large_together_are_left_out_and_the_first_is_named() {
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    plane.apply(large_clusters(300));
    let clusters = resources(&plane, &client, ResourceType::Cluster, &[]);
    let size = bytes(&clusters);
    assert!((MAX_PROXY_BYTES - (2 << 20)..=MAX_PROXY_BYTES).contains(&size), "{size} bytes");
    let has = |name: &str| clusters.iter().any(|cluster| cluster.name.contains(name));
    assert!(has("BlackHoleCluster") && has("h000.example.com") && !has("h299.example.com"));
    let told = faults(&plane, "proxy-bytes");
    let [Refusal { object, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(object.to_string(), "Service shop/h255.example.com");
}

#[test]
fn what_a_proxy_cannot_have_is_not_computed_ahead_either() {
    const HOSTS: usize = 320;
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    plane.apply(large_clusters(HOSTS));
    let snapshot = plane.translator.snapshot();
    let id = snapshot.view(&client, ResourceType::Cluster).unwrap();
    assert!(snapshot.prepare(id));
    let (memo, current) = (&plane.translator.memo, &*snapshot.current);
    let mut left = 0;
    for part in &*snapshot.parts(id) {
        let view = plane.translator.clients.lock().views[part].view.clone();
        let (batch_keys, _) = memo.get(current, &BatchKeysOf(view.clone()));
        for batch_key in Option::as_ref(&batch_keys).unwrap().iter() {
            let before = memo.computed();
            drop(memo.get(current, &Generate { view: view.clone(), batch_key: batch_key.clone() }));
            left += usize::from(memo.computed() > before);
        }
    }
    // Each thread may have begun with one more when the bound was reached.
    let least = HOSTS - (MAX_PROXY_BYTES >> 20) - 1 - MOST_HELPERS;
    assert!(left >= least, "{left} of {HOSTS} clusters are not computed, at least {least} are not sent");
}

/// A service with so many ports.
fn with_ports(name: &str, ports: u32) -> Update {
    let many = service(name, "shop").with(|service| {
        let port = |number| Port { number, name: format!("p{number}").into(), ..service.ports[0].clone() };
        service.ports = (1_000..1_000 + ports).map(port).collect();
    });
    many.update()
}

#[test]
fn services_that_would_make_too_many_clusters_are_left_out_and_the_first_is_named() {
    const EACH: usize = 10_000;
    let subsets: Vec<String> = (0..99).map(|n| format!("{{name: s{n}, labels: {{v: v{n}}}}}")).collect();
    let rule = format!("{{host: '*.shop.svc.cluster.local', subsets: [{}]}}", subsets.join(", "));
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    plane.apply(yaml(&line(NETWORKING, "DestinationRule", "shop", "rule", &rule)));
    plane.apply((0..=MAX_PROXY_RESOURCES / EACH).map(|n| with_ports(&format!("many-{n:02}"), 100)));
    let snapshot = plane.translator.snapshot();
    let view = snapshot.view(&client, ResourceType::Cluster).unwrap();
    let names = snapshot.names(view);
    drop(snapshot);
    // What the proxy has of its own counts first, so that the last of twenty services does not fit.
    assert!((1..10).contains(&(names.len() + EACH - MAX_PROXY_RESOURCES)), "{}", names.len());
    assert_eq!(faults(&plane, "proxy-resources").len(), 1, "{:?}", refused(&plane));
}

#[test]
fn clusters_of_one_service_that_would_be_too_large_are_cut_and_their_objects_named() {
    let name = "x".repeat(1 << 20);
    let subsets: Vec<String> = (0..80).map(|n| format!("{{name: s{n}, labels: {{v: v{n}}}}}")).collect();
    let rule = |subsets: &[String]| {
        let tls = format!("tls: {{mode: SIMPLE, sni: example.com, subjectAltNames: [{name}]}}");
        let spec = format!("{{host: web, trafficPolicy: {{{tls}}}, subsets: [{}]}}", subsets.join(", "));
        yaml(&line(NETWORKING, "DestinationRule", "shop", "rule", &spec))
    };
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    plane.apply(rule(&subsets));
    let clusters = resources(&plane, &client, ResourceType::Cluster, &[]);
    let size = bytes(&clusters);
    assert!((60 << 20..MAX_SERVICE_CLUSTERS_BYTES + (2 << 20)).contains(&size), "{size} bytes");
    assert!(
        clusters.iter().any(|cluster| &*cluster.name == super::WEB),
        "the one for all endpoints is there"
    );
    assert_eq!(faults(&plane, "service-clusters-bytes").len(), 2);
    assert_eq!(refused(&plane), ["DestinationRule shop/rule", "Service shop/web"]);
    plane.apply(rule(&subsets[..20]));
    assert!(refused(&plane).is_empty());
}

fn listener(resources: &[EncodedResource], name: &str) -> Listener {
    let resource = resources.iter().find(|resource| &*resource.name == name).unwrap();
    Listener::decode(&*Any::decode(&*resource.body).unwrap().value).unwrap()
}

#[test]
fn policies_in_too_many_chains_close_the_chains_beyond() {
    let principals: Vec<String> =
        (0..8_000).map(|n| format!("cluster.local/ns/{}/sa/s{n}", "n".repeat(60))).collect();
    let rules = format!("{{rules: [{{from: [{{source: {{principals: [{}]}}}}]}}]}}", principals.join(", "));
    let policy = line("security.istio.io/v1", "AuthorizationPolicy", "shop", "large", &rules);
    let ports = |count: u32| {
        let ingress: Vec<String> = (0..count)
            .map(|n| {
                let number = 7_000 + n;
                format!("{{port: {{number: {number}, name: http-{n}, protocol: HTTP}}, defaultEndpoint: '127.0.0.1:{number}'}}")
            })
            .collect();
        yaml(&line(
            NETWORKING,
            "Sidecar",
            "shop",
            "default",
            &format!("{{ingress: [{}]}}", ingress.join(", ")),
        ))
    };
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    plane.apply(yaml(&policy));
    plane.apply(ports(100));
    let listeners = resources(&plane, &client, ResourceType::Listener, &[]);
    let inbound = listener(&listeners, "virtualInbound");
    let size = inbound.encoded_len();
    assert!((50 << 20..MAX_LISTENER_BYTES + (1 << 20)).contains(&size), "{size} bytes");
    let chains = inbound.filter_chains.iter().filter(|chain| {
        chain
            .filter_chain_match
            .as_ref()
            .is_some_and(|m| m.destination_port.is_some_and(|port| (7_000..8_000).contains(&port)))
    });
    let closed = chains.clone().filter(|chain| chain.encoded_len() < 1 << 10).count();
    assert!(closed > 0 && closed < chains.count(), "{closed} closed");
    assert_eq!(faults(&plane, "listener-bytes").len(), 1);
    assert_eq!(refused(&plane), ["AuthorizationPolicy shop/large"]);
    plane.apply(ports(5));
    assert!(refused(&plane).is_empty());
}

#[test]
fn a_chain_with_too_many_conditions_names_what_it_comes_from() {
    let rule = |hosts: usize| {
        let names: Vec<String> = (0..hosts).map(|n| format!("h{n}.example.com")).collect();
        let condition = format!("match: [{{port: 443, sniHosts: [{}]}}]", names.join(", "));
        let to = "route: [{destination: {host: wide.example.com}}]";
        let spec = format!("{{hosts: ['*.example.com', wide.example.com], tls: [{{{condition}, {to}}}]}}");
        yaml(&line(NETWORKING, "VirtualService", "shop", "rule", &spec))
    };
    let wide = service("wide", "shop").with(|service| {
        service.hostname = pilotfish_model::Hostname::parse("wide.example.com").unwrap();
        crate::testing::of_service_entry(service);
        service.default_address = "10.0.0.0/24".into();
        let ranges: Vec<std::sync::Arc<str>> = (0..20).map(|n| format!("10.0.{n}.0/24").into()).collect();
        service.addresses = pilotfish_model::ClusterAddresses::from([("Kubernetes".into(), ranges.into())]);
        let port = Port {
            number: 443,
            name: "tls".into(),
            protocol: pilotfish_model::Protocol::Tls,
            ..service.ports[0].clone()
        };
        service.ports = std::sync::Arc::from([port]);
    });
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    plane.apply([wide.update()]);
    plane.apply(rule(10_000));
    let listeners = resources(&plane, &client, ResourceType::Listener, &[]);
    assert!(bytes(&listeners) < 1 << 20);
    assert_eq!(faults(&plane, "chain-conditions").len(), 1, "{:?}", refused(&plane));
    assert_eq!(refused(&plane), ["VirtualService shop/rule"]);
    plane.apply(rule(100));
    assert!(bytes(&resources(&plane, &client, ResourceType::Listener, &[])) > 0);
    assert!(refused(&plane).is_empty());
}
