//! Clusters that look up the host of each request: of ServiceEntries with resolution `DYNAMIC_DNS` (rule 24
//! of Istio 1.31), and for hosts without a service (`ALLOW_ANY_DYNAMIC_DNS`, rule 22).

use super::ClusterView;
use crate::credentials::CertificateSource;
use crate::engine::{Cx, EncodedResource, Query};
use crate::proxy::{Proxy, ProxyKind};
use crate::testing::{TestService, evaluate, line, mesh, of_service_entry, service, sidecar, world, yaml};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::{Hostname, Port, Protocol, Resolution, Update, World};
use pilotfish_proto::envoy::config::cluster::v3::Cluster;
use pilotfish_proto::envoy::config::cluster::v3::cluster::ClusterDiscoveryType;
use pilotfish_proto::envoy::config::core::v3::transport_socket::ConfigType;
use pilotfish_proto::envoy::extensions::clusters::dynamic_forward_proxy::v3::{
    ClusterConfig, cluster_config::ClusterImplementationSpecifier,
};
use pilotfish_proto::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use pilotfish_proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The clusters of a proxy by name, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClustersOf(Proxy);

impl Query for ClustersOf {
    type Output = BTreeMap<String, Cluster>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let parts = ClusterView::of(cx, &self.0);
        let resources = parts.iter().flat_map(|part| {
            let keys = part.batch_keys(cx).unwrap_or_default();
            keys.into_iter().flat_map(|key| part.generate(cx, &key).resources)
        });
        resources.map(|resource| decoded(&resource)).map(|cluster| (cluster.name.clone(), cluster)).collect()
    }
}

fn decoded(resource: &EncodedResource) -> Cluster {
    let packed = pilotfish_proto::Any::decode(resource.body.clone()).unwrap();
    Cluster::decode(&*packed.value).unwrap()
}

fn clusters(world: &Arc<World>, proxy: &Proxy) -> BTreeMap<String, Cluster> {
    (*evaluate(world, &ClustersOf(proxy.clone()))).clone()
}

const HOST: &str = "*.Buckets.example";

/// A service of a ServiceEntry for a wildcard host.
fn entry(mesh_external: bool) -> TestService {
    let ports = [
        (80, Protocol::Http),
        (81, Protocol::Http2),
        (82, Protocol::Grpc),
        (443, Protocol::Tls),
        (444, Protocol::Https),
        (5432, Protocol::Tcp),
    ];
    let port =
        |(number, protocol)| Port { number, name: format!("p-{number}").into(), protocol, target_port: None };
    service("any", "shop").with(|service| {
        service.hostname = Hostname::parse(HOST).unwrap();
        service.name = HOST.into();
        of_service_entry(service);
        service.resolution = Resolution::DynamicDns;
        service.mesh_external = mesh_external;
        service.ports = ports.into_iter().map(port).collect();
    })
}

fn rule(policy: &str) -> Vec<Update> {
    let spec = format!(
        "{{host: '*.buckets.example', trafficPolicy: {policy}, subsets: [{{name: v1, labels: {{a: b}}}}]}}"
    );
    yaml(&line("networking.istio.io/v1", "DestinationRule", "shop", "buckets", &spec))
}

fn client() -> Proxy {
    Proxy { istio_filters: true, certificate_source: CertificateSource::Agent, ..sidecar("client", "shop") }
}

fn config(cluster: &Cluster) -> ClusterConfig {
    let Some(ClusterDiscoveryType::ClusterType(kind)) = &cluster.cluster_discovery_type else {
        panic!("{} has no type of its own", cluster.name);
    };
    assert_eq!(kind.name, "envoy.clusters.dynamic_forward_proxy");
    ClusterConfig::decode(&*kind.typed_config.as_ref().unwrap().value).unwrap()
}

fn cache(cluster: &Cluster) -> DnsCacheConfig {
    match config(cluster).cluster_implementation_specifier {
        Some(ClusterImplementationSpecifier::DnsCacheConfig(cache)) => cache,
        other => panic!("{other:?}"),
    }
}

/// Server name of TLS (`None` for plaintext), and if the host of requests is it, if the certificate must have
/// it, and if other TLS is permitted.
fn tls(cluster: &Cluster) -> (Option<String>, [bool; 3]) {
    let socket = cluster.transport_socket.as_ref().or_else(|| {
        let istio = cluster.transport_socket_matches.iter().find(|one| one.name == "tlsMode-istio")?;
        istio.transport_socket.as_ref()
    });
    let sni = socket.map(|socket| match &socket.config_type {
        Some(ConfigType::TypedConfig(any)) => UpstreamTlsContext::decode(&*any.value).unwrap().sni,
        None => panic!("{socket:?}"),
    });
    let options = cluster.typed_extension_protocol_options.values().next();
    let options = options.map(|any| HttpProtocolOptions::decode(&*any.value).unwrap()).unwrap_or_default();
    let options = options.upstream_http_protocol_options.unwrap_or_default();
    (sni, [options.auto_sni, options.auto_san_validation, config(cluster).allow_insecure_cluster_options])
}

/// Rule 24: protocols that name their host have a cluster, without subsets, for sidecars and routers.
#[test]
fn ports_of_wildcard_hosts_that_name_the_host_have_a_cluster_without_subsets() {
    let world = world([entry(true).update()].into_iter().chain(rule("{}")));
    let router = Proxy { kind: ProxyKind::Router, ..client() };
    for proxy in [client(), router] {
        let all = clusters(&world, &proxy);
        let names: Vec<&str> = all.keys().map(String::as_str).filter(|name| name.contains('|')).collect();
        let name = |port: u32| format!("outbound|{port}||{HOST}");
        assert_eq!(names, [443, 80, 81, 82].map(name), "{:?}", proxy.kind);
        for port in [80, 443] {
            let cluster = &all[&name(port)];
            assert_eq!(cache(cluster).name, format!("{HOST}_dfp_dns_cache"));
            assert_eq!(cache(cluster).max_hosts, None);
            assert!(cluster.common_lb_config.is_none() && cluster.load_assignment.is_none());
            assert_eq!(tls(cluster), (None, [false; 3]), "{port}");
        }
        // Envoy refuses HTTP options without these checks, also in plaintext.
        let with_options =
            all.values().filter(|cluster| !cluster.typed_extension_protocol_options.is_empty());
        let looked_up: Vec<_> = with_options.filter(|cluster| cluster.name.contains('|')).map(tls).collect();
        assert!(
            !looked_up.is_empty() && looked_up.iter().all(|tls| *tls == (None, [false, false, true])),
            "{looked_up:?}"
        );
    }
}

/// Rule 24: TLS takes server name and accepted names from the host of the request, unless the rule sets them.
#[test]
fn tls_of_looked_up_hosts_checks_the_host_of_the_request() {
    let of = |external: bool, policy: &str| {
        let world = world([entry(external).update()].into_iter().chain(rule(policy)));
        tls(&clusters(&world, &client())[&format!("outbound|80||{HOST}")])
    };
    let some = |sni: &str| Some(sni.to_owned());
    for (policy, want) in [
        ("{tls: {mode: DISABLE}}", (None, [false; 3])),
        ("{tls: {mode: SIMPLE}}", (some(""), [true, true, false])),
        ("{tls: {mode: SIMPLE, subjectAltNames: [a]}}", (some(""), [true, true, false])),
        ("{tls: {mode: SIMPLE, insecureSkipVerify: true}}", (some(""), [true, false, true])),
        ("{tls: {mode: SIMPLE, sni: a.b}}", (some("a.b"), [false, true, true])),
        ("{tls: {mode: SIMPLE, sni: a.b, insecureSkipVerify: true}}", (some("a.b"), [false, false, true])),
        ("{tls: {mode: MUTUAL, clientCertificate: c, privateKey: k}}", (some(""), [true, true, false])),
        ("{tls: {mode: ISTIO_MUTUAL}}", (some(""), [true, true, false])),
        ("{tls: {mode: ISTIO_MUTUAL, sni: a.b}}", (some("a.b"), [false, true, true])),
        ("{}", (None, [false; 3])),
    ] {
        assert_eq!(of(true, policy), want, "{policy}");
    }
    assert_eq!(of(false, "{}"), (some(""), [true, true, false]), "mutual TLS of the mesh");
}

/// Rules 24 and E1: load balancing has no meaning; limits and ejection have, which istiod 1.31.0 cannot do.
#[test]
fn a_rule_limits_looked_up_hosts_and_ejects_them() {
    let policy = "{connectionPool: {tcp: {maxConnections: 9}}, outlierDetection: {minHealthPercent: 30}, \
                  loadBalancer: {simple: PASSTHROUGH}}";
    let world = world([entry(true).update()].into_iter().chain(rule(policy)));
    let cluster = &clusters(&world, &client())[&format!("outbound|80||{HOST}")];
    assert_eq!(cache(cluster).name, format!("{HOST}_dfp_dns_cache"));
    let limits = &cluster.circuit_breakers.as_ref().unwrap().thresholds[0];
    assert_eq!(limits.max_connections, Some(9));
    assert!(cluster.outlier_detection.is_some());
    let threshold = cluster.common_lb_config.as_ref().unwrap().healthy_panic_threshold.unwrap().value;
    assert!((threshold - 30.0).abs() < f64::EPSILON);
}

fn mesh_of(settings: &str) -> Update {
    let config: MeshConfig = serde_json::from_str(settings).unwrap();
    Update::Object(mesh(config))
}

/// Rule 22: the cluster is there for sidecars whose policy is the mesh's.
#[test]
fn only_sidecars_with_the_policy_of_the_mesh_look_up_unknown_hosts() {
    let own_policy = |mode: &str| {
        let spec = format!("{{outboundTrafficPolicy: {{mode: {mode}}}, egress: [{{hosts: ['*/*']}}]}}");
        yaml(&line("networking.istio.io/v1", "Sidecar", "shop", "default", &spec))
    };
    let has = |mode: &str, more: Vec<Update>, proxy: &Proxy| {
        let policy = format!(r#"{{"outboundTrafficPolicy": {{"mode": "{mode}"}}}}"#);
        let world = world([mesh_of(&policy)].into_iter().chain(more));
        clusters(&world, proxy).contains_key("AllowAnyDynamicDNSCluster")
    };
    let router = Proxy { kind: ProxyKind::Router, ..client() };
    assert!(has("ALLOW_ANY_DYNAMIC_DNS", vec![], &client()));
    assert!(!has("ALLOW_ANY_DYNAMIC_DNS", vec![], &router));
    assert!(!has("ALLOW_ANY", vec![], &client()) && !has("REGISTRY_ONLY", vec![], &client()));
    assert!(!has("ALLOW_ANY_DYNAMIC_DNS", own_policy("ALLOW_ANY"), &client()));
    assert!(!has("ALLOW_ANY_DYNAMIC_DNS", own_policy("REGISTRY_ONLY"), &client()));
}

/// Rule 22: TLS towards unknown hosts follows rule 24; without it, Envoy needs the permission.
#[test]
fn tls_towards_unknown_hosts_checks_the_host_of_the_request() {
    let some = |sni: &str| Some(sni.to_owned());
    for (settings, want) in [
        ("", (None, [false, false, true])),
        (r#", "tls": {"mode": "DISABLE"}"#, (None, [false, false, true])),
        (r#", "tls": {"mode": "SIMPLE"}"#, (some(""), [true, true, false])),
        (r#", "tls": {"mode": "SIMPLE", "insecureSkipVerify": true}"#, (some(""), [true, false, true])),
        (r#", "tls": {"mode": "SIMPLE", "sni": "a.b"}"#, (some("a.b"), [false, true, true])),
        (r#", "tls": {"mode": "ISTIO_MUTUAL"}"#, (some(""), [true, true, false])),
    ] {
        let policy = format!(
            r#"{{"outboundTrafficPolicy": {{"mode": "ALLOW_ANY_DYNAMIC_DNS"{settings}}},
                "defaultTrafficPolicy": {{"connectionPool": {{"tcp": {{"maxConnections": 9}}}}}}}}"#
        );
        let all = clusters(&world([mesh_of(&policy)]), &client());
        let cluster = &all["AllowAnyDynamicDNSCluster"];
        assert_eq!(tls(cluster), want, "{settings}");
        assert_eq!(
            (cache(cluster).name.as_str(), cache(cluster).max_hosts),
            ("allow_any_dfp_dns_cache", Some(1024))
        );
        let limits = &cluster.circuit_breakers.as_ref().unwrap().thresholds[0];
        assert_eq!(limits.max_connections, Some(u32::MAX), "the mesh's default policy is not for it");
    }
}
