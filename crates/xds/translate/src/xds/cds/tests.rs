use super::*;
use crate::ProxyKind;
use crate::credentials::CertificateSource;
use crate::engine::Query;
use crate::engine::memo::Memo;
use crate::proxy::Proxy;
use crate::testing::{
    TestService, endpoint, evaluate, evaluate_with, labels, object, of_service_entry, pod, service, sidecar,
    world,
};
use pilotfish_config::WorkloadSelector;
use pilotfish_config::networking::{
    ClientTlsMode, ClientTlsSettings, DestinationRule, Subset, TrafficPolicy,
};
use pilotfish_model::{
    ChangeSet, ClusterAddresses, Endpoint, Locality, Port, Protocol, Resolution, ShardKey, SpiffeId,
    Switches, TargetPort, TlsMode, TrafficDistribution, Update, World, WorldWriter,
};
use pilotfish_proto::envoy::config::cluster::v3::Cluster;
use pilotfish_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use prost::Message;
use std::sync::Arc;

/// The parts of a proxy's clusters, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ViewsOf(Proxy);

impl Query for ViewsOf {
    type Output = Vec<ClusterView>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<ClusterView> {
        ClusterView::of(cx, &self.0)
    }
}

fn views(world: &Arc<World>, proxy: &Proxy) -> Vec<ClusterView> {
    Vec::clone(&evaluate(world, &ViewsOf(proxy.clone())))
}

/// The clusters of one batch of a proxy, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BatchOf(Proxy, ResourceBatchKey);

impl BatchOf {
    fn service(proxy: Proxy, service: &TestService) -> Self {
        Self(proxy, ResourceBatchKey::Service(service.key()))
    }
}

impl Query for BatchOf {
    type Output = ResourceBatch;

    fn compute(&self, cx: &Cx<'_>) -> ResourceBatch {
        let views = ClusterView::of(cx, &self.0);
        let has = |view: &&ClusterView| view.batch_keys(cx).is_none_or(|keys| keys.contains(&self.1));
        views.iter().find(has).map(|view| view.generate(cx, &self.1)).unwrap_or_default()
    }
}

/// A proxy that differs from another of its namespace in everything that usually does not matter.
fn other(proxy: &Proxy) -> Proxy {
    Proxy {
        id: "sidecar~10.0.99.9~else-1.shop~shop.svc.cluster.local".into(),
        name: "else-1".into(),
        ips: Arc::from(["10.0.99.9".parse().unwrap()]),
        cluster: "elsewhere".into(),
        network: "net-b".into(),
        labels: labels(&[("app", "other"), ("pod-template-hash", "1")]),
        locality: Locality::parse("eu/eu-1/a"),
        metadata: [("NODE_NAME", "node-b")].into(),
        proxy_config: "{}".into(),
        ..proxy.clone()
    }
}

fn rule(selector: Option<&[(&str, &str)]>) -> Update {
    let selector = selector.map(|pairs| WorkloadSelector { match_labels: (&*labels(pairs)).into() });
    Update::Object(object(
        "shop",
        "web",
        DestinationRule { host: "web".to_owned(), workload_selector: selector, ..DestinationRule::default() },
    ))
}

#[test]
fn facets_that_nothing_depends_on_do_not_count() {
    let proxy = sidecar("web-0", "shop");
    let plain = world([service("web", "shop").update(), rule(None)]);
    assert_eq!(views(&plain, &proxy), views(&plain, &other(&proxy)));
    let selecting = world([service("web", "shop").update(), rule(Some(&[("app", "other")]))]);
    assert_ne!(views(&selecting, &proxy), views(&selecting, &other(&proxy)));
    // Only labels by which a selector selects count.
    let replica = Proxy { labels: labels(&[("app", "other"), ("pod-template-hash", "2")]), ..other(&proxy) };
    assert_eq!(views(&selecting, &other(&proxy)), views(&selecting, &replica));
    let dual = Proxy { ips: Arc::from(["::1".parse().unwrap()]), ..proxy.clone() };
    assert_ne!(views(&plain, &proxy), views(&plain, &dual));
}

fn endpoints(service: &TestService, endpoints: Vec<Endpoint>) -> Update {
    let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
    Update::Endpoints(service.key(), shard, endpoints.into_iter().map(Arc::new).collect())
}

/// The clusters of a service, for a sidecar with an agent.
fn clusters(world: &Arc<World>, service: &TestService) -> Vec<Cluster> {
    let client = Proxy { certificate_source: CertificateSource::Agent, ..sidecar("client-0", "shop") };
    let batch = evaluate(world, &BatchOf::service(client, service));
    let decode = |resource: &crate::engine::EncodedResource| {
        let packed = pilotfish_proto::Any::decode(resource.body.clone()).unwrap();
        Cluster::decode(&*packed.value).unwrap()
    };
    batch.resources.iter().map(decode).collect()
}

#[test]
fn endpoints_do_not_concern_clusters_but_their_identities_do() {
    let web = service("web", "shop");
    let mut writer = WorldWriter::new();
    writer.apply(web.update());
    writer.apply(endpoints(&web, vec![endpoint("10.0.0.1", 8080, "http")]));
    let memo = Memo::new();
    let (world, _) = writer.publish().unwrap();
    let query = BatchOf::service(sidecar("client-0", "shop"), &web);
    let count = |writer: &mut WorldWriter| {
        let (world, changes) = writer.publish().map_or((world.clone(), ChangeSet::default()), |new| new);
        let (current, _) = memo.advance(world, &changes);
        let before = memo.computed();
        memo.get(&current, &query);
        memo.computed() - before
    };
    assert!(count(&mut writer) > 0);
    writer.apply(endpoints(&web, vec![endpoint("10.0.0.2", 8080, "http")]));
    assert_eq!(count(&mut writer), 0);
    let known = endpoint("10.0.0.2", 8080, "http")
        .with_attributes(|pod| pod.identity = Some(SpiffeId::new("cluster.local", "shop", "web")));
    writer.apply(endpoints(&web, vec![known]));
    assert_eq!(count(&mut writer), 1);
}

#[test]
fn the_kind_follows_resolution_and_rule() {
    let kinds = |resolution: Resolution| {
        let web = service("web", "shop").with(|service| service.resolution = resolution);
        let world = world([web.update(), endpoints(&web, vec![endpoint("10.0.0.1", 80, "http")])]);
        let kind = |cluster: &Cluster| match cluster.cluster_discovery_type {
            Some(ClusterDiscoveryType::Type(kind)) => DiscoveryType::try_from(kind).unwrap(),
            _ => panic!("{:?}", cluster.cluster_discovery_type),
        };
        clusters(&world, &web).iter().map(kind).collect::<Vec<_>>()
    };
    for (resolution, want) in [
        (Resolution::ClientSideLB, vec![DiscoveryType::Eds]),
        (Resolution::DNSLB, vec![DiscoveryType::StrictDns]),
        (Resolution::DNSRoundRobin, vec![DiscoveryType::LogicalDns]),
        (Resolution::Passthrough, vec![DiscoveryType::OriginalDst]),
        (Resolution::Alias, vec![]),
    ] {
        assert_eq!(kinds(resolution), want, "{resolution:?}");
    }
}

#[test]
fn only_services_outside_of_a_cluster_network_override_the_port_of_passed_on_connections() {
    let overridden = |addresses: ClusterAddresses| {
        let service = service("web", "shop").with(|service| {
            service.addresses = addresses;
            service.ports = Arc::from([Port {
                number: 80,
                name: "http".into(),
                protocol: Protocol::Http,
                target_port: Some(TargetPort::Number(8080)),
            }]);
        });
        super::draft::port_override(&service.0, &service.0.ports[0]).is_some()
    };
    let address: Arc<[Arc<str>]> = Arc::from(["10.1.0.1".into()]);
    assert!(!overridden(ClusterAddresses::from([("Kubernetes".into(), address)])));
    assert!(overridden(ClusterAddresses::new()), "a ServiceEntry has no addresses in clusters");
}

#[test]
fn passed_on_connections_use_mutual_tls_if_all_endpoints_can() {
    let headless = service("web", "shop").with(|service| service.resolution = Resolution::Passthrough);
    let with_tls = |modes: &[TlsMode]| {
        let with =
            |mode: &TlsMode| endpoint("10.0.0.1", 80, "http").with_attributes(|pod| pod.tls_mode = *mode);
        let list = modes.iter().map(with);
        let world = world([headless.update(), endpoints(&headless, list.collect())]);
        let clusters = clusters(&world, &headless);
        let cluster = clusters.first().unwrap();
        assert!(cluster.transport_socket_matches.is_empty());
        cluster.transport_socket.is_some()
    };
    assert!(with_tls(&[TlsMode::Istio, TlsMode::Istio]));
    assert!(!with_tls(&[TlsMode::Istio, TlsMode::Disabled]));
    assert!(!with_tls(&[]));
}

#[test]
fn credentials_are_for_selected_workloads_only() {
    let sockets = |selector: Option<&[(&str, &str)]>| {
        let tls = ClientTlsSettings {
            mode: ClientTlsMode::Simple,
            credential_name: "bank".to_owned(),
            ..ClientTlsSettings::default()
        };
        let policy = TrafficPolicy { tls: Some(tls), ..TrafficPolicy::default() };
        let rule = DestinationRule {
            host: "web".to_owned(),
            traffic_policy: Some(policy),
            subsets: vec![Subset { name: "v1".to_owned(), ..Subset::default() }],
            workload_selector: selector
                .map(|pairs| WorkloadSelector { match_labels: (&*labels(pairs)).into() }),
            ..DestinationRule::default()
        };
        let web = service("web", "shop");
        let world = world([web.update(), Update::Object(object("shop", "web", rule))]);
        clusters(&world, &web).iter().map(|cluster| cluster.transport_socket.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(sockets(None), [false, false]);
    assert_eq!(sockets(Some(&[])), [true, true]);
}

/// A field of Istio 1.32.
#[test]
fn authorities_by_name_are_for_routers_and_selected_workloads() {
    use pilotfish_proto::Any;
    use pilotfish_proto::envoy::config::core::v3::transport_socket::ConfigType;
    use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
    let web = service("web", "shop");
    let named = |kind: ProxyKind, selector: &str, tls: &str| {
        let spec = format!("{{host: web, {selector} trafficPolicy: {{tls: {{{tls}}}}}}}");
        let rule = crate::testing::line("networking.istio.io/v1", "DestinationRule", "shop", "web", &spec);
        let world = world([web.update()].into_iter().chain(crate::testing::yaml(&rule)));
        let client = Proxy { kind, ..sidecar("client", "shop") };
        let batch = evaluate(&world, &BatchOf::service(client, &web));
        let cluster = Cluster::decode(&*Any::decode(&*batch.resources[0].body).unwrap().value).unwrap();
        let Some(ConfigType::TypedConfig(config)) = cluster.transport_socket?.config_type else {
            return None;
        };
        let context = UpstreamTlsContext::decode(&*config.value).unwrap().common_tls_context.unwrap();
        let text = format!("{:?}", context.validation_context_type);
        text.split("name: \"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned)
    };
    let selected = "workloadSelector: {matchLabels: {}},";
    let (simple, mutual) = (
        "mode: SIMPLE, caCertCredentialName: roots",
        "mode: MUTUAL, credentialName: pair, caCertCredentialName: roots",
    );
    for (kind, selector, tls, want) in [
        (ProxyKind::Router, "", simple, Some("kubernetes://roots-cacert")),
        (ProxyKind::Router, "", mutual, Some("kubernetes://roots-cacert")),
        (ProxyKind::Sidecar, selected, simple, Some("kubernetes://roots-cacert")),
        (ProxyKind::Sidecar, "", simple, Some("file-root:system")),
        (
            ProxyKind::Sidecar,
            "",
            "mode: SIMPLE, caCertificates: /ca, caCertCredentialName: roots",
            Some("file-root:/ca"),
        ),
        (
            ProxyKind::Sidecar,
            "",
            "mode: SIMPLE, caCertCredentialName: 'configmap://shop/roots-cacert'",
            Some("configmap://shop/roots-cacert"),
        ),
        (ProxyKind::Router, "", "mode: SIMPLE, credentialName: pair", Some("kubernetes://pair-cacert")),
        (ProxyKind::Router, "", "mode: SIMPLE, caCertCredentialName: roots, insecureSkipVerify: true", None),
    ] {
        assert_eq!(named(kind, selector, tls).as_deref(), want, "{kind:?} {selector} {tls}");
    }
}

#[test]
fn a_policy_that_ends_mutual_tls_is_among_the_origins_of_a_cluster() {
    let web = service("web", "shop");
    let origins = |mode: &str| -> Vec<String> {
        let policy = crate::testing::line(
            "security.istio.io/v1",
            "PeerAuthentication",
            "shop",
            "p",
            &format!("{{mtls: {{mode: {mode}}}}}"),
        );
        let world = world([web.update()].into_iter().chain(crate::testing::yaml(&policy)));
        let batch = evaluate(&world, &BatchOf::service(sidecar("client", "shop"), &web));
        let origins = batch.resources[0].provenance.iter();
        origins
            .map(|origin| {
                origin.as_object().map_or_else(String::new, |origin| origin.object.name.to_string())
            })
            .collect()
    };
    assert_eq!(origins("DISABLE"), ["web", "p"]);
    assert_eq!(origins("STRICT"), ["web"]);
}

/// A policy by which TLS with a Service is required, whose authorities cannot be used.
const CLOSED: &str = "
{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: {name: web, namespace: shop},
 spec: {targetRefs: [{kind: Service, name: web}], validation: {hostname: a.b, caCertificateRefs: [{kind: ConfigMap, name: none}]}}}
";

#[test]
fn without_usable_authorities_nothing_is_sent_in_plaintext() {
    use pilotfish_proto::envoy::config::core::v3::transport_socket::ConfigType;
    use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
    let web = service("web", "shop").with(|service| service.kubernetes = Some(Arc::default()));
    let world = world(crate::testing::yaml(CLOSED).into_iter().chain([web.update()]));
    for kind in [ProxyKind::Sidecar, ProxyKind::Router] {
        let client = Proxy { kind, ..sidecar("client-0", "shop") };
        let batch = evaluate(&world, &BatchOf::service(client, &web));
        let [resource] = &*batch.resources else { panic!("{kind:?}: one port, one cluster") };
        let packed = pilotfish_proto::Any::decode(resource.body.clone()).unwrap();
        let cluster = Cluster::decode(&*packed.value).unwrap();
        assert!(cluster.transport_socket_matches.is_empty(), "{kind:?}");
        let socket = cluster.transport_socket.expect("not plaintext");
        let Some(ConfigType::TypedConfig(config)) = socket.config_type else {
            panic!("{kind:?}: no settings")
        };
        let context = UpstreamTlsContext::decode(&*config.value).unwrap();
        let text = format!("{context:?}");
        assert!(text.contains("invalid://"), "{kind:?}: {text}");
    }
    let client = Proxy { kind: ProxyKind::Grpc, ..sidecar("client-0", "shop") };
    let name = "outbound|80||web.shop.svc.cluster.local";
    let named = BatchOf(client, ResourceBatchKey::Named(name.into()));
    // gRPC takes no authorities from xDS, so its cluster has no endpoints.
    assert_eq!(endpoints_of_grpc(&evaluate(&world, &named)), NOWHERE_ON_80);
    let open = crate::testing::world([web.update()]);
    assert_eq!(endpoints_of_grpc(&evaluate(&open, &named)), name);
}

const NOWHERE_ON_80: &str = "outbound|80||nowhere.invalid";

/// The name of the endpoints of the only cluster.
fn endpoints_of_grpc(batch: &ResourceBatch) -> String {
    let [resource] = &*batch.resources else { panic!("one cluster") };
    let packed = pilotfish_proto::Any::decode(resource.body.clone()).unwrap();
    Cluster::decode(&*packed.value).unwrap().eds_cluster_config.unwrap().service_name
}

#[test]
fn grpc_clusters_that_routes_may_name_in_vain_are_there_without_endpoints() {
    let world = crate::testing::world([service("web", "shop").update()]);
    let client = Proxy { kind: ProxyKind::Grpc, ..sidecar("client-0", "shop") };
    for name in [
        "outbound|80|missing|web.shop.svc.cluster.local",
        "outbound|81||web.shop.svc.cluster.local",
        "outbound|80||absent.shop.svc.cluster.local",
        "outbound|80|v1|absent.shop.svc.cluster.local",
    ] {
        let named = BatchOf(client.clone(), ResourceBatchKey::Named(name.into()));
        assert!(endpoints_of_grpc(&evaluate(&world, &named)).ends_with("||nowhere.invalid"), "{name}");
    }
}

/// The hosts that the inbound clusters of a Pod name in their metadata, and whether they name a rule; `None`
/// without metadata.
fn inbound(world: &Arc<World>) -> Vec<Option<(Vec<String>, bool)>> {
    let proxy = Proxy { cluster: "Kubernetes".into(), ..sidecar("web-0", "shop") };
    let batch = evaluate(world, &BatchOf(proxy, ResourceBatchKey::Inbound));
    let of = |resource: &crate::engine::EncodedResource| {
        let packed = pilotfish_proto::Any::decode(resource.body.clone()).unwrap();
        let metadata = Cluster::decode(&*packed.value).unwrap().metadata?;
        let istio = metadata.filter_metadata.get("istio")?.clone();
        let text = format!("{:?}", istio.fields.get("services"));
        let hosts = ["web.shop.svc", "old.shop.svc", "inside.com", "outside.com"];
        let named = hosts.into_iter().filter(|host| text.contains(&format!("\"{host}")));
        Some((named.map(str::to_owned).collect(), istio.fields.contains_key("config")))
    };
    batch.resources.iter().map(of).collect()
}

/// A service of a ServiceEntry with an endpoint at the Pod.
fn entry(host: &str, created: i64, mesh_external: bool) -> Vec<Update> {
    let service = service("any", "shop").with(|service| {
        service.hostname = pilotfish_model::Hostname::parse(host).unwrap();
        service.name = host.into();
        of_service_entry(service);
        service.mesh_external = mesh_external;
        service.created = created;
    });
    let shard = ShardKey::new(crate::testing::EXTERNAL, "Kubernetes");
    let at = Arc::new(endpoint("10.0.99.1", 80, "http"));
    vec![service.update(), Update::Endpoints(service.key(), shard, Arc::from([at]))]
}

#[test]
fn the_first_service_of_a_port_decides_whether_an_inbound_cluster_has_metadata() {
    let kubernetes = |name: &str, created: i64| {
        let service = service(name, "shop").with(|service| {
            service.selector = labels(&[("app", "web")]);
            service.created = created;
        });
        vec![service.update()]
    };
    let rule = |host: &str| {
        let policy = TrafficPolicy::default();
        let rule = DestinationRule {
            host: host.to_owned(),
            traffic_policy: Some(policy),
            ..DestinationRule::default()
        };
        vec![Update::Object(object("shop", "rule", rule))]
    };
    let named = |hosts: &[&str], rule: bool| {
        vec![Some((hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>(), rule))]
    };
    for (name, updates, expected) in [
        ("outside", vec![entry("outside.com", 1, true)], vec![None]),
        ("outside with a rule", vec![entry("outside.com", 1, true), rule("outside.com")], vec![None]),
        ("inside", vec![entry("inside.com", 1, false)], named(&["inside.com"], false)),
        (
            "inside with a rule",
            vec![entry("inside.com", 1, false), rule("inside.com")],
            named(&["inside.com"], true),
        ),
        (
            "the older one is outside",
            vec![entry("outside.com", 1, true), entry("inside.com", 2, false)],
            vec![None],
        ),
        (
            "the older one is inside",
            vec![entry("outside.com", 2, true), entry("inside.com", 1, false)],
            named(&["inside.com", "outside.com"], false),
        ),
        (
            "a Service that is older",
            vec![kubernetes("web", 1), entry("outside.com", 2, true)],
            named(&["web.shop.svc", "outside.com"], false),
        ),
        ("a Service that is younger", vec![kubernetes("web", 3), entry("outside.com", 2, true)], vec![None]),
    ] {
        let pod = Update::Workload(Arc::new(pod("web-0", "shop", "10.0.99.1", &[("app", "web")])));
        let world = world(updates.into_iter().flatten().chain([pod]));
        assert_eq!(inbound(&world), expected, "{name}");
    }
}

#[test]
fn what_the_client_is_counts_for_few_clusters_only() {
    let web = service("web", "shop");
    let remote = service("remote", "shop").with(|service| service.resolution = Resolution::DNSLB);
    let world =
        world([web.update(), remote.update(), endpoints(&remote, vec![endpoint("a.com", 80, "http")])]);
    let near = sidecar("client-0", "shop");
    let views = views(&world, &near);
    let key = |service: &TestService| ResourceBatchKey::Service(service.key());
    let keys = |view: &ClusterView| evaluate(&world, &KeysOf(view.clone()));
    let [ClusterView::Inbound(_), client @ ClusterView::Client(_), outbound @ ClusterView::Outbound(_)] =
        &views[..]
    else {
        panic!("{views:?}")
    };
    assert_eq!(*keys(client), [key(&remote)]);
    assert!(keys(outbound).contains(&key(&web)) && !keys(outbound).contains(&key(&remote)));
    // Namespaces that see a service and its rule alike share what is made of them.
    let memo = Memo::new();
    let (current, _) = memo.advance(world.clone(), &ChangeSet::default());
    let made = |proxy: Proxy| {
        let (batch, _) = memo.get(&current, &BatchOf::service(proxy, &web));
        batch.resources[0].body.as_ptr()
    };
    assert_eq!(made(near), made(sidecar("client-0", "pay")));
}

/// The batches of a part, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KeysOf(ClusterView);

impl Query for KeysOf {
    type Output = Vec<ResourceBatchKey>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        self.0.batch_keys(cx).unwrap_or_default()
    }
}

/// The switch of rule 1 of Istio 1.31.
#[test]
fn clusters_never_panic_where_endpoints_that_are_not_ready_are_sent() {
    let off = Switches { unhealthy_endpoints: false, ..Switches::default() };
    for (switches, distribution, want) in [
        (Switches::default(), TrafficDistribution::Any, Some(0.0)),
        (off, TrafficDistribution::Any, None),
        (off, TrafficDistribution::PreferSameZone, Some(0.0)),
    ] {
        let web = service("web", "shop").with(|service| service.traffic_distribution = distribution);
        let query = BatchOf::service(sidecar("a", "shop"), &web);
        let batch = evaluate_with(switches, &world([web.update()]), &query);
        let packed = pilotfish_proto::Any::decode(batch.resources[0].body.clone()).unwrap();
        let cluster = Cluster::decode(&*packed.value).unwrap();
        let threshold = cluster.common_lb_config.and_then(|common| common.healthy_panic_threshold);
        assert_eq!(threshold.map(|percent| percent.value), want, "{distribution:?}");
    }
}

/// Rule 31 of Istio 1.31: the cluster of the SDS server beside a router.
#[test]
fn a_router_with_a_credential_socket_has_the_cluster_of_its_server() {
    let has = |kind: ProxyKind, metadata: &[(&str, &str)]| {
        let metadata = metadata.iter().copied().collect();
        let proxy = Proxy { kind, metadata, ..sidecar("edge", "shop") };
        let batch = evaluate(&world([]), &BatchOf(proxy, ResourceBatchKey::Static));
        let packed = batch.resources.iter().find(|resource| &*resource.name == "sds-external")?.body.clone();
        let packed = pilotfish_proto::Any::decode(packed).unwrap();
        Some(Cluster::decode(&*packed.value).unwrap())
    };
    let cluster = has(ProxyKind::Router, &[("credential", "true")]).unwrap();
    assert!(format!("{:?}", cluster.load_assignment).contains("./var/run/secrets/credential-uds/socket"));
    assert_eq!(has(ProxyKind::Router, &[]), None);
    assert_eq!(has(ProxyKind::Sidecar, &[("credential", "true")]), None);
}
