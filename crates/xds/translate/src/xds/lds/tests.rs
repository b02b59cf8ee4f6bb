use super::{ListenerView, OwnOutboundView};
use crate::credentials::CertificateSource;
use crate::engine::{Cx, Query};
use crate::proxy::{InterceptionMode, Proxy};
use crate::testing::{
    TestService, endpoint, evaluate, labels, line, mesh, pod, service, sidecar, world, yaml,
};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::{
    Endpoint, Hostname, Locality, Port, Protocol, Resolution, ShardKey, TargetPort, Update, World,
};
use pilotfish_proto::envoy::config::core::v3::{Address, address};
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, Listener};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The parts of a proxy's listeners, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ViewsOf(Proxy);

impl Query for ViewsOf {
    type Output = Vec<ListenerView>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<ListenerView> {
        ListenerView::of(cx, &self.0)
    }
}

fn view(world: &Arc<World>, proxy: &Proxy) -> Vec<ListenerView> {
    Vec::clone(&evaluate(world, &ViewsOf(proxy.clone())))
}

/// What a sidecar's listeners for traffic out of it depend on.
fn outbound(world: &Arc<World>, proxy: &Proxy) -> Arc<OwnOutboundView> {
    let outbound = |view| if let ListenerView::Outbound(view) = view { Some(view) } else { None };
    view(world, proxy).into_iter().find_map(outbound).unwrap()
}

/// All listeners of a proxy, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ListenersOf(Proxy);

impl Query for ListenersOf {
    type Output = BTreeMap<String, Listener>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let views = ListenerView::of(cx, &self.0);
        let keys = |view: &ListenerView| view.batch_keys(cx).unwrap();
        let batches: Vec<_> =
            views.iter().flat_map(|view| keys(view).into_iter().map(|key| view.generate(cx, &key))).collect();
        let decode = |resource: &crate::engine::EncodedResource| {
            let packed = pilotfish_proto::Any::decode(resource.body.clone()).unwrap();
            (resource.name.to_string(), Listener::decode(&*packed.value).unwrap())
        };
        batches.iter().flat_map(|batch| batch.resources.iter()).map(decode).collect()
    }
}

pub(super) fn listeners(world: &Arc<World>, proxy: &Proxy) -> Arc<BTreeMap<String, Listener>> {
    evaluate(world, &ListenersOf(proxy.clone()))
}

pub(super) fn client() -> Proxy {
    sidecar("client-0", "shop")
}

/// A proxy that differs from another of its namespace in everything that usually does not matter.
fn other(proxy: &Proxy) -> Proxy {
    Proxy {
        id: "sidecar~10.0.99.9~else-1.shop~shop.svc.cluster.local".into(),
        name: "else-1".into(),
        ips: Arc::from(["10.0.99.9".parse().unwrap()]),
        service_cluster: "else.shop".into(),
        network: "net-b".into(),
        labels: labels(&[("app", "other"), ("pod-template-hash", "1")]),
        locality: Locality::parse("eu/eu-1/a"),
        metadata: [("NODE_NAME", "node-b")].into(),
        ..proxy.clone()
    }
}

fn security(kind: &str, spec: &str) -> Vec<Update> {
    yaml(&line("security.istio.io/v1", kind, "shop", "p", spec))
}

fn telemetry(spec: &str) -> Vec<Update> {
    yaml(&line("telemetry.istio.io/v1", "Telemetry", "shop", "t", spec))
}

#[test]
fn facets_that_nothing_depends_on_do_not_count() {
    let plain = world([service("web", "shop").update()]);
    assert_eq!(view(&plain, &client()), view(&plain, &other(&client())));
    let six = Proxy { ips: Arc::from(["::1".parse().unwrap()]), ..client() };
    let stock = Proxy { istio_filters: !client().istio_filters, ..client() };
    let tproxy = Proxy { interception: InterceptionMode::Tproxy, ..client() };
    for different in [six, stock, tproxy] {
        assert_ne!(view(&plain, &client()), view(&plain, &different));
    }
}

#[test]
fn labels_count_only_where_a_selector_selects_by_them() {
    let selector = "{selector: {matchLabels: {app: other}}}";
    for policies in [
        security("AuthorizationPolicy", selector),
        security("RequestAuthentication", selector),
        security("PeerAuthentication", selector),
        telemetry(selector),
        yaml(&line(
            "extensions.istio.io/v1alpha1",
            "WasmPlugin",
            "shop",
            "w",
            "{selector: {matchLabels: {app: other}}, url: a}",
        )),
    ] {
        let selecting = world(policies);
        let elsewhere = Proxy { namespace: "pay".into(), ..client() };
        let replica =
            Proxy { labels: labels(&[("app", "other"), ("pod-template-hash", "2")]), ..other(&client()) };
        assert_ne!(view(&selecting, &client()), view(&selecting, &other(&client())));
        assert_eq!(view(&selecting, &other(&client())), view(&selecting, &replica));
        assert_eq!(view(&selecting, &elsewhere), view(&selecting, &other(&elsewhere)));
        // A selector that selects neither tells nothing apart.
        let third = Proxy { labels: labels(&[("app", "third")]), ..client() };
        assert_eq!(view(&selecting, &client()), view(&selecting, &third));
    }
}

#[test]
fn who_may_come_in_does_not_concern_traffic_out_of_a_workload() {
    let selector = "{selector: {matchLabels: {app: other}}}";
    for kind in ["AuthorizationPolicy", "RequestAuthentication", "PeerAuthentication"] {
        let selecting = world(security(kind, selector));
        assert_eq!(outbound(&selecting, &client()), outbound(&selecting, &other(&client())), "{kind}");
    }
    let logged = world(telemetry(selector));
    assert_ne!(outbound(&logged, &client()), outbound(&logged, &other(&client())));
}

#[test]
fn names_count_only_where_requests_are_traced() {
    let tagged = Proxy { labels: labels(&[("service.istio.io/canonical-name", "client")]), ..client() };
    let traced = |enabled: bool| {
        world([Update::Object(mesh(MeshConfig { enable_tracing: enabled, ..MeshConfig::default() }))])
    };
    assert_eq!(view(&traced(false), &client()), view(&traced(false), &tagged));
    assert_ne!(view(&traced(true), &client()), view(&traced(true), &tagged));
}

fn shard() -> ShardKey {
    ShardKey::new(crate::testing::KUBERNETES, "Kubernetes")
}

fn at(service: &TestService, addresses: &[&str]) -> Update {
    let endpoints: Vec<Arc<Endpoint>> =
        addresses.iter().map(|address| Arc::new(endpoint(address, 9000, "http"))).collect();
    Update::Endpoints(service.key(), shard(), endpoints.into())
}

fn port(number: u32, protocol: Protocol) -> Port {
    Port { number, name: "http".into(), protocol, target_port: Some(TargetPort::Number(8080)) }
}

/// A service with a virtual address.
fn addressed(name: &str, address: &str, ports: &[Port]) -> TestService {
    service(name, "shop").with(|service| {
        service.default_address = address.into();
        service.ports = ports.into();
    })
}

fn headless(name: &str) -> TestService {
    service(name, "shop").with(|service| {
        service.resolution = Resolution::Passthrough;
        service.ports = Arc::from([port(9000, Protocol::Tcp)]);
    })
}

#[test]
fn pods_of_a_headless_service_share_the_listeners_for_others() {
    let db = headless("db");
    let world = world([db.update(), at(&db, &["10.0.0.1", "10.0.0.2"])]);
    let pod = |name: &str, address: &str| Proxy {
        ips: Arc::from([address.parse().unwrap()]),
        ..sidecar(name, "shop")
    };
    let (first, second) = (pod("db-0", "10.0.0.1"), pod("db-1", "10.0.0.2"));
    let names = |proxy: &Proxy| {
        listeners(&world, proxy).keys().filter(|name| name.ends_with("_9000")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&client()), ["10.0.0.1_9000", "10.0.0.2_9000"]);
    assert_eq!(names(&first), ["10.0.0.2_9000"]);
    assert_eq!(names(&second), ["10.0.0.1_9000"]);
    assert_eq!(outbound(&world, &first).shared, outbound(&world, &second).shared);
}

/// For each chain: `sni` and address ranges, `http` or what it is by, and the default one as `*`.
fn chains(listener: &Listener) -> Vec<String> {
    let show = |chain: &FilterChain| {
        let found = chain.filter_chain_match.clone().unwrap_or_default();
        let ranges = found.prefix_ranges.iter().map(|range| range.address_prefix.clone());
        let conditions: Vec<String> = found.server_names.iter().cloned().chain(ranges).collect();
        let filter = chain.filters.last().map(|filter| filter.name.rsplit('.').next().unwrap());
        format!(
            "{} {}{}",
            filter.unwrap_or_default(),
            conditions.join("+"),
            found.application_protocols.len()
        )
    };
    let default = listener.default_filter_chain.iter().map(|chain| format!("default {}", show(chain)));
    listener.filter_chains.iter().map(show).chain(default).collect()
}

fn chains_of(services: &[TestService], name: &str) -> Vec<String> {
    let world = world(services.iter().map(TestService::update));
    let listeners = listeners(&world, &client());
    let found = listeners.get(name);
    chains(found.unwrap_or_else(|| panic!("{name} is not in {:?}", listeners.keys())))
}

#[test]
fn requests_of_all_services_share_a_listener_and_streams_have_their_own() {
    let (http, tcp) = (Protocol::Http, Protocol::Tcp);
    let services = [
        addressed("a", "10.96.0.1", &[port(80, http), port(90, tcp)]),
        addressed("b", "10.96.0.2", &[port(80, http), port(90, tcp)]),
    ];
    let world = world(services.iter().map(TestService::update));
    let names: Vec<String> = listeners(&world, &client()).keys().cloned().collect();
    assert_eq!(names, ["0.0.0.0_80", "10.96.0.1_90", "10.96.0.2_90", "virtualInbound", "virtualOutbound"]);
    assert_eq!(chains_of(&services, "0.0.0.0_80"), ["http_connection_manager 2", "default tcp_proxy 0"],);
    assert_eq!(chains_of(&services, "10.96.0.1_90"), ["tcp_proxy 0"]);
}

#[test]
fn redirected_connections_of_both_families_arrive_where_a_proxy_asks_for_it() {
    let bound = |ips: &[&str], metadata: &[(&str, &str)]| {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        let metadata = metadata.iter().copied().collect();
        let listeners = listeners(&world([]), &Proxy { ips, metadata, ..client() });
        ["virtualInbound", "virtualOutbound"].map(|name| {
            let listener = &listeners[name];
            let more = listener.additional_addresses.iter().filter_map(|more| more.address.as_ref());
            let show = |address: &Address| match &address.address {
                Some(address::Address::SocketAddress(socket)) => socket.address.clone(),
                _ => String::new(),
            };
            listener.address.iter().chain(more).map(show).collect::<Vec<_>>()
        })
    };
    let (both, asks) = (["10.0.99.1", "fd00::1"], [("DUAL_STACK", "true")]);
    assert_eq!(bound(&both, &asks), [["0.0.0.0", "::"], ["0.0.0.0", "::"]]);
    assert_eq!(bound(&both, &[]), [["0.0.0.0"], ["0.0.0.0"]]);
    assert_eq!(bound(&["10.0.99.1"], &asks), [["0.0.0.0"], ["0.0.0.0"]]);
    assert_eq!(bound(&["fd00::1"], &asks), [["::"], ["::"]]);
}

/// A service of a ServiceEntry without an address: on the wildcard address for every protocol.
fn without_address(name: &str, created: i64, protocol: Protocol) -> TestService {
    service(name, "shop").with(|service| {
        service.hostname = Hostname::parse(&format!("{name}.com")).unwrap();
        crate::testing::of_service_entry(service);
        service.resolution = Resolution::DNSLB;
        service.created = created;
        service.ports = Arc::from([port(80, protocol)]);
    })
}

#[test]
fn on_one_address_requests_join_and_streams_must_be_distinguishable() {
    use Protocol::{Http, Tcp, Tls};
    let of = |first: Protocol, second: Protocol| {
        chains_of(&[without_address("a", 1, first), without_address("b", 2, second)], "0.0.0.0_80")
    };
    let http = "http_connection_manager 2";
    assert_eq!(of(Http, Http), [http, "default tcp_proxy 0"]);
    assert_eq!(of(Http, Tcp), [http, "default tcp_proxy 0"]);
    assert_eq!(of(Tcp, Http), [http, "default tcp_proxy 0"]);
    // The first has the connections that nothing distinguishes.
    assert_eq!(of(Tcp, Tcp), ["tcp_proxy 0"]);
    assert_eq!(of(Tls, Tls), ["tcp_proxy a.com0", "tcp_proxy b.com0", "default tcp_proxy 0"]);
    assert_eq!(of(Http, Tls), ["tcp_proxy b.com0", http, "default tcp_proxy 0"]);
    assert_eq!(of(Tls, Tcp), ["tcp_proxy a.com0", "default tcp_proxy 0"]);
}

#[test]
fn an_unknown_protocol_is_found_out() {
    let services = [addressed("a", "10.96.0.1", &[port(80, Protocol::Unsupported)])];
    let found = chains_of(&services, "10.96.0.1_80");
    assert_eq!(found, ["http_connection_manager 2", "default tcp_proxy 0"]);
}

#[test]
fn an_endpoint_change_concerns_only_listeners_of_its_port() {
    use crate::engine::memo::Memo;
    use pilotfish_model::{ChangeSet, WorldWriter};
    let db = headless("db");
    let mut writer = WorldWriter::new();
    writer.apply(db.update());
    writer.apply(at(&db, &["10.0.0.1"]));
    writer.apply(addressed("a", "10.96.0.1", &[port(80, Protocol::Http), port(90, Protocol::Tcp)]).update());
    let (mut current_world, _) = writer.publish().unwrap();
    let memo = Memo::new();
    let view = outbound(&current_world, &client());
    let mut computed = |writer: &mut WorldWriter, ports: &[u32]| {
        let changes = match writer.publish() {
            Some((world, changes)) => {
                current_world = world;
                changes
            }
            None => ChangeSet::default(),
        };
        let (current, _) = memo.advance(current_world.clone(), &changes);
        let before = memo.computed();
        for port in ports {
            memo.get(&current, &Listeners(view.clone(), *port));
        }
        memo.computed() - before
    };
    assert!(computed(&mut writer, &[80, 90, 9000]) > 0);
    assert_eq!(computed(&mut writer, &[80, 90, 9000]), 0);
    writer.apply(at(&db, &["10.0.0.1", "10.0.0.2"]));
    assert_eq!(computed(&mut writer, &[80, 90]), 0);
    assert!(computed(&mut writer, &[9000]) > 0);
}

/// The outbound listeners on a port, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Listeners(Arc<OwnOutboundView>, u32);

impl Query for Listeners {
    type Output = Vec<crate::engine::EncodedResource>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        super::outbound::listeners(cx, &self.0.shared, self.0.own_endpoint, self.1)
    }
}

/// The inbound chains of a pod `web-0` with a service on 80 (HTTP) and 90 (TCP), both at 8080 or as given.
fn inbound(policies: Vec<Update>, certificate_source: CertificateSource) -> Vec<String> {
    let target = |number: u32, protocol: Protocol| Port {
        number,
        name: format!("p{number}").into(),
        protocol,
        target_port: Some(TargetPort::Number(number + 8000)),
    };
    let web = service("web", "shop").with(|service| {
        service.selector = labels(&[("app", "web")]);
        service.ports = Arc::from([target(80, Protocol::Http), target(90, Protocol::Tcp)]);
    });
    let pod = Update::Workload(Arc::new(pod("web-0", "shop", "10.0.99.1", &[("app", "web")])));
    let world = world([web.update(), pod].into_iter().chain(policies));
    let proxy = Proxy { cluster: "Kubernetes".into(), certificate_source, ..sidecar("web-0", "shop") };
    let listeners = listeners(&world, &proxy);
    let show = |chain: &FilterChain| {
        let found = chain.filter_chain_match.clone().unwrap_or_default();
        let tls = if chain.transport_socket.is_some() { " mtls" } else { "" };
        format!("{} {}{tls}", found.destination_port.unwrap_or(0), found.transport_protocol)
    };
    let all = listeners.get("virtualInbound").unwrap();
    let of_ports = |chain: &&FilterChain| {
        let port = chain.filter_chain_match.as_ref().and_then(|found| found.destination_port);
        matches!(port, Some(8080 | 8090))
    };
    all.filter_chains.iter().filter(of_ports).map(show).collect()
}

#[test]
fn chains_of_a_workload_follow_the_mode_of_each_port() {
    let mode = |spec: &str| security("PeerAuthentication", spec);
    let permissive = ["8080 tls mtls", "8080 raw_buffer", "8090 tls mtls", "8090 tls", "8090 raw_buffer"];
    assert_eq!(inbound(Vec::new(), CertificateSource::Agent), permissive);
    assert_eq!(
        inbound(mode("{mtls: {mode: STRICT}}"), CertificateSource::Agent),
        ["8080 tls mtls", "8090 tls mtls"]
    );
    assert_eq!(
        inbound(mode("{mtls: {mode: DISABLE}}"), CertificateSource::Agent),
        ["8080 raw_buffer", "8090 raw_buffer"]
    );
    let by_port =
        "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8090: {mode: DISABLE}}}";
    assert_eq!(inbound(mode(by_port), CertificateSource::Agent), ["8080 tls mtls", "8090 raw_buffer"]);
    assert_eq!(inbound(Vec::new(), CertificateSource::ControlPlane), permissive);
    // Without a source there are no certificates.
    assert_eq!(inbound(Vec::new(), CertificateSource::Nobody), ["8080 raw_buffer", "8090 raw_buffer"]);
}
