use crate::engine::{EncodedResource, TranslationSettings};
use crate::proxy::Proxy;
use crate::testing::{endpoint, labels, mesh, object, service, sidecar};
use crate::translator::Translator;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::networking::{DestinationRule, OutlierDetection, TrafficPolicy};
use pilotfish_model::{
    Endpoint, HealthStatus, Locality, NetworkGateway, ServiceKey, ShardKey, Switches, TlsMode,
    TrafficDistribution, Update, WorldWriter,
};
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::{address, socket_address::PortSpecifier};
use pilotfish_proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
};
use prost::Message;
use std::sync::Arc;

/// A control plane over a world built by hand.
struct Plane {
    writer: WorldWriter,
    translator: Translator,
}

impl Plane {
    fn new(updates: impl IntoIterator<Item = Update>) -> Self {
        Self::with(Switches::default(), updates)
    }

    fn with(switches: Switches, updates: impl IntoIterator<Item = Update>) -> Self {
        let settings = TranslationSettings { switches, ..TranslationSettings::default() };
        let mut plane = Self { writer: WorldWriter::new(), translator: Translator::with_settings(settings) };
        plane.apply(updates);
        plane
    }

    /// How many load assignments changed.
    fn apply(&mut self, updates: impl IntoIterator<Item = Update>) -> usize {
        updates.into_iter().for_each(|update| self.writer.apply(update));
        self.writer
            .publish()
            .map_or(0, |(world, changes)| self.translator.publish(world, &changes).changes.len())
    }

    fn encoded(&self, proxy: &Proxy, name: &str) -> Option<EncodedResource> {
        let client = self.translator.connect(proxy.clone());
        let snapshot = self.translator.snapshot();
        snapshot.get(snapshot.view(&client, ResourceType::Endpoint)?, name)
    }

    fn groups(&self, proxy: &Proxy, name: &str) -> Vec<LocalityLbEndpoints> {
        let encoded = self.encoded(proxy, name).unwrap();
        let any = pilotfish_proto::Any::decode(encoded.body).unwrap();
        ClusterLoadAssignment::decode(&*any.value).unwrap().endpoints
    }

    /// `address:port*weight` of all endpoints.
    fn sent(&self, proxy: &Proxy, name: &str) -> Vec<String> {
        self.groups(proxy, name).iter().flat_map(|group| &group.lb_endpoints).map(show).collect()
    }
}

fn show(endpoint: &LbEndpoint) -> String {
    let Some(HostIdentifier::Endpoint(host)) = &endpoint.host_identifier else { return "-".to_owned() };
    let weight = endpoint.load_balancing_weight.unwrap_or_default();
    match host.address.as_ref().and_then(|address| address.address.as_ref()) {
        Some(address::Address::SocketAddress(at)) => match at.port_specifier {
            Some(PortSpecifier::PortValue(port)) => format!("{}:{port}*{weight}", at.address),
            _ => "-".to_owned(),
        },
        Some(address::Address::Pipe(pipe)) => format!("{}*{weight}", pipe.path),
        _ => "-".to_owned(),
    }
}

const WEB: &str = "outbound|80||web.shop.svc.cluster.local";

fn key() -> ServiceKey {
    service("web", "shop").key()
}

fn shard(endpoints: impl IntoIterator<Item = Endpoint>) -> Update {
    let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
    Update::Endpoints(key(), shard, endpoints.into_iter().map(Arc::new).collect())
}

fn at(address: &str) -> Endpoint {
    endpoint(address, 8080, "http")
}

#[test]
fn unknown_names_get_an_empty_assignment() {
    let plane = Plane::new([service("web", "shop").update()]);
    for name in
        [WEB, "outbound|81||web.shop.svc.cluster.local", "outbound|80||nobody.example.com", "nonsense"]
    {
        assert!(plane.groups(&sidecar("a", "shop"), name).is_empty(), "{name}");
    }
}

#[test]
fn only_fitting_endpoints_are_sent() {
    let with = |address: &str, change: &dyn Fn(&mut Endpoint)| {
        let mut endpoint = at(address);
        change(&mut endpoint);
        endpoint
    };
    let endpoints = [
        at("10.0.0.1"),
        with("10.0.0.2", &|e| e.service_port = "other".into()),
        with("10.0.0.3", &|e| e.health = HealthStatus::Unhealthy),
        with("10.0.0.4", &|e| e.health = HealthStatus::Terminating),
        with("10.0.0.5", &|e| e.health = HealthStatus::Draining),
        at("10.0.0.6").with_attributes(|pod| pod.labels = labels(&[("istio.io/draining", "true")])),
        with("name.example.com", &|_| {}),
        with("/run/a.sock", &|e| e.port = 0),
        with("", &|_| {}),
        at("10.0.0.7").with_attributes(|pod| pod.weight = 7),
        with("10.0.0.8", &|e| e.health = HealthStatus::Deregistering),
    ];
    let mut plane = Plane::new([service("web", "shop").update(), shard(endpoints)]);
    let proxy = sidecar("a", "shop");
    // Rule 1 of Istio 1.31: the one that is not ready is there, marked as such.
    let everybody =
        ["10.0.0.1:8080*1", "10.0.0.3:8080*1", "/run/a.sock*1", "10.0.0.7:8080*7", "10.0.0.8:8080*1"];
    assert_eq!(plane.sent(&proxy, WEB), everybody);
    let sessions = service("web", "shop").with(|service| {
        service.labels = labels(&[("istio.io/persistent-session", "session")]);
        service.traffic_distribution = TrafficDistribution::PreferSameZone;
    });
    plane.apply([sessions.update()]);
    let all = ["10.0.0.1:8080*1", "10.0.0.3:8080*1", "10.0.0.5:8080*1", "10.0.0.6:8080*1"];
    let sent = plane.sent(&proxy, WEB);
    assert_eq!((&sent[..4], sent.len()), (&all.map(str::to_owned)[..], 7));
}

#[test]
fn other_networks_are_reached_through_their_gateways() {
    let remote = |address: &str, tls_mode, weight| {
        at(address)
            .with_attributes(|pod| (pod.network, pod.tls_mode, pod.weight) = ("far".into(), tls_mode, weight))
    };
    let gateway = |address: &str| NetworkGateway {
        network: "far".into(),
        cluster: "".into(),
        address: address.into(),
        port: 15443,
        hbone_port: 0,
        service_account: "".into(),
    };
    let endpoints = [
        at("10.0.0.1"),
        remote("10.9.0.1", TlsMode::Istio, 3),
        remote("10.9.0.2", TlsMode::Disabled, 1),
        remote("", TlsMode::Istio, 1),
    ];
    let mut plane = Plane::new([service("web", "shop").update(), shard(endpoints)]);
    let near = Proxy { network: "near".into(), ..sidecar("a", "shop") };
    assert_eq!(plane.sent(&near, WEB), ["10.0.0.1:8080*1", "10.9.0.1:8080*3", "10.9.0.2:8080*1"]);
    let gateways = [gateway("192.0.2.1"), gateway("192.0.2.2")];
    plane.apply([Update::NetworkGateways(gateways.into())]);
    assert_eq!(plane.sent(&near, WEB), ["10.0.0.1:8080*2", "192.0.2.1:15443*4", "192.0.2.2:15443*4"]);
    let far = Proxy { network: "far".into(), ..sidecar("b", "shop") };
    assert_eq!(plane.sent(&far, WEB), ["10.0.0.1:8080*2", "10.9.0.1:8080*6", "10.9.0.2:8080*2"]);
    // SNI alone leads to a proxy, so such clusters have nothing that does not speak mutual TLS.
    let by_sni = "outbound_.80_._.web.shop.svc.cluster.local";
    assert_eq!(plane.sent(&far, by_sni), ["10.9.0.1:8080*6"]);
}

#[test]
fn a_facet_counts_only_where_something_depends_on_it() {
    let mut plane = Plane::new([service("web", "shop").update(), shard([at("10.0.0.1")])]);
    let view = |plane: &Plane, proxy: Proxy| {
        let client = plane.translator.connect(proxy);
        let view = plane.translator.snapshot().view(&client, ResourceType::Endpoint);
        (client, view.unwrap())
    };
    let (_one, base) = view(&plane, sidecar("a", "shop"));
    let others = || {
        let place = Locality::parse("eu/eu-1/a");
        [
            Proxy { locality: place, ..sidecar("b", "shop") },
            Proxy { network: "far".into(), ..sidecar("c", "shop") },
            Proxy { cluster: "other".into(), ..sidecar("d", "shop") },
            Proxy { labels: labels(&[("version", "v2")]), ..sidecar("e", "shop") },
            Proxy { metadata: [("NODE_NAME", "n1")].into(), ..sidecar("f", "shop") },
        ]
    };
    let clients: Vec<_> = others().into_iter().map(|proxy| view(&plane, proxy)).collect();
    assert!(clients.iter().all(|(_, id)| *id == base));
    let outlier =
        TrafficPolicy { outlier_detection: Some(OutlierDetection::default()), ..Default::default() };
    let rule =
        DestinationRule { host: "web".to_owned(), traffic_policy: Some(outlier), ..Default::default() };
    plane.apply([Update::Object(object("shop", "web", rule))]);
    let clients: Vec<_> = others().into_iter().map(|proxy| view(&plane, proxy)).collect();
    let (_one, base) = view(&plane, sidecar("a", "shop"));
    let differ: Vec<_> = clients.iter().map(|(_, id)| *id != base).collect();
    assert_eq!(differ, [true, false, false, false, false], "failover depends on the locality");
    let off = MeshConfig { locality_lb_setting: None, ..MeshConfig::default() };
    plane.apply([Update::Object(mesh(off))]);
    let (_two, here) = view(&plane, others()[0].clone());
    let (_one, base) = view(&plane, sidecar("a", "shop"));
    assert_eq!(here, base);
}

#[test]
fn an_endpoint_change_computes_one_assignment_for_all_views() {
    let other = service("other", "shop");
    let mut plane = Plane::new([service("web", "shop").update(), other.update(), shard([at("10.0.0.1")])]);
    let names = [WEB, "outbound|80||other.shop.svc.cluster.local"];
    let proxies: Vec<_> = ["shop", "pay", "edge"].iter().map(|namespace| sidecar("a", namespace)).collect();
    let clients: Vec<_> = proxies.iter().map(|proxy| plane.translator.connect(proxy.clone())).collect();
    for proxy in &proxies {
        names.iter().for_each(|name| assert!(plane.encoded(proxy, name).is_some()));
    }
    let before = plane.translator.computed();
    assert_eq!(plane.apply([shard([at("10.0.0.1"), at("10.0.0.2")])]), clients.len());
    // One assignment, and for each view the batch that holds it.
    assert_eq!(plane.translator.computed() - before, 1 + clients.len() as u64);
    assert_eq!(plane.apply([Update::NetworkGateways(Arc::from([]))]), 0);
}

#[test]
fn equal_worlds_give_equal_bytes() {
    let updates = || [service("web", "shop").update(), shard([at("10.0.0.2"), at("10.0.0.1")])];
    let bytes = |plane: &Plane| plane.encoded(&sidecar("a", "shop"), WEB).unwrap().body;
    assert_eq!(bytes(&Plane::new(updates())), bytes(&Plane::new(updates())));
}

/// The switch of rule 1 of Istio 1.31.
#[test]
fn endpoints_that_are_not_ready_are_sent_where_the_switch_or_the_service_says_so() {
    let unready = || Endpoint { health: HealthStatus::Unhealthy, ..at("10.0.0.2") };
    let close = service("web", "shop")
        .with(|service| service.traffic_distribution = TrafficDistribution::PreferSameZone);
    let off = Switches { unhealthy_endpoints: false, ..Switches::default() };
    let (one, both) = (&["10.0.0.1:8080*1"][..], &["10.0.0.1:8080*1", "10.0.0.2:8080*1"][..]);
    for (switches, web, want) in [
        (Switches::default(), service("web", "shop"), both),
        (off, service("web", "shop"), one),
        (off, close, both),
    ] {
        let plane = Plane::with(switches, [web.update(), shard([at("10.0.0.1"), unready()])]);
        assert_eq!(plane.sent(&sidecar("a", "shop"), WEB), want);
    }
}

/// Rule 20 of Istio 1.31: the replicas of the proxy's own workload, of its version and region.
#[test]
fn a_proxy_that_asks_for_its_own_workload_gets_the_other_replicas() {
    let replica = |address: &str, workload: &str, hash: &str, region: &str| {
        at(address).with_attributes(|pod| {
            pod.workload_name = workload.into();
            pod.labels = labels(&[("pod-template-hash", hash)]);
            pod.locality = Locality::parse(region);
        })
    };
    let endpoints = [
        replica("10.0.99.1", "web", "1", "eu/a"),
        replica("10.0.0.2", "web", "1", "eu/b"),
        replica("10.0.0.3", "web", "2", "eu/a"),
        replica("10.0.0.4", "web", "1", "us/a"),
        replica("10.0.0.5", "api", "1", "eu/a"),
        Endpoint { service_port: "other".into(), ..replica("10.0.0.6", "web", "1", "eu/a") },
    ];
    let web = service("web", "shop").with(|service| service.selector = labels(&[("app", "web")]));
    let plane = Plane::new([web.update(), shard(endpoints)]);
    let proxy = |metadata: &[(&str, &str)]| Proxy {
        metadata: metadata.iter().copied().collect(),
        cluster: "Kubernetes".into(),
        labels: labels(&[("app", "web"), ("pod-template-hash", "1")]),
        locality: Locality::parse("eu/a"),
        ..sidecar("web-0", "shop")
    };
    let asks = proxy(&[("ENABLE_SELF_DISCOVERY", "true"), ("WORKLOAD_NAME", "web")]);
    assert_eq!(plane.sent(&asks, "local_cluster"), ["10.0.99.1:8080*1", "10.0.0.2:8080*1"]);
    assert!(plane.sent(&proxy(&[("WORKLOAD_NAME", "web")]), "local_cluster").is_empty());
}
