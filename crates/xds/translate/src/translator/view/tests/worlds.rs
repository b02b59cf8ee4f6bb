//! The worlds of the tests of views: one that makes no use of single proxies' facets, and what makes use of
//! one.

use crate::testing::{endpoint, line, mesh, pod, service, yaml};
use pilotfish_config::mesh::{
    DefaultProviders, ExtensionProvider, MeshConfig, OpenTelemetryTracingProvider,
    ServiceAttributeEnrichment, ServiceSettings, Settings,
};
use pilotfish_model::{
    ClusterAddresses, DubboInterface, Endpoint, ExportTo, NetworkGateway, Port, Protocol, Resolution,
    Service, ShardKey, TargetPort, TlsMode, Update,
};
use std::sync::Arc;

const NETWORKING: &str = "networking.istio.io/v1";

/// What is in every world: a service, a gateway with a route, rules and policies for everyone.
pub(super) fn plain() -> Vec<Update> {
    let pod = endpoint("10.0.1.1", 8080, "http").with_attributes(|pod| pod.tls_mode = TlsMode::Istio);
    let mut updates = vec![web(|_| ()), at(&[pod])];
    updates.extend(istio(
        "Gateway",
        "edge",
        "{selector: {}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}",
    ));
    updates.extend(istio(
        "VirtualService",
        "web",
        "{hosts: [web], gateways: [mesh, edge], http: [{rewrite: {uri: /a}, route: [{destination: {host: web}}]}]}",
    ));
    updates.extend(istio(
        "DestinationRule",
        "web",
        "{host: web, trafficPolicy: {connectionPool: {http: {http2MaxRequests: 7}}}}",
    ));
    updates.extend(security("AuthorizationPolicy", "{rules: [{}]}"));
    updates
}

fn istio(kind: &str, name: &str, spec: &str) -> Vec<Update> {
    yaml(&line(NETWORKING, kind, "shop", name, spec))
}

fn security(kind: &str, spec: &str) -> Vec<Update> {
    yaml(&line("security.istio.io/v1", kind, "shop", "p", spec))
}

fn addresses(cluster: &str, list: &[&str]) -> ClusterAddresses {
    [(cluster.into(), list.iter().map(|address| Arc::from(*address)).collect())].into()
}

fn web(change: impl FnOnce(&mut Service)) -> Update {
    let addressed = service("web", "shop").with(|service| {
        service.default_address = "10.96.0.1".into();
        service.addresses = addresses("Kubernetes", &["10.96.0.1"]);
        service.selector = crate::testing::labels(&[("run", "web")]);
        let port = |number, name: &str, protocol, target| Port {
            number,
            name: name.into(),
            protocol,
            target_port: Some(TargetPort::Number(target)),
        };
        service.ports =
            Arc::from([port(80, "http", Protocol::Http, 8080), port(9000, "tcp", Protocol::Tcp, 9000)]);
    });
    addressed.with(change).update()
}

fn at(endpoints: &[Endpoint]) -> Update {
    let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
    Update::Endpoints(service("web", "shop").key(), shard, endpoints.iter().cloned().map(Arc::new).collect())
}

/// A headless service with an endpoint where the varied proxy is.
pub(super) fn own_endpoint() -> Vec<Update> {
    let stream = |service: &mut Service| {
        service.resolution = Resolution::Passthrough;
        service.addresses = ClusterAddresses::new();
        service.default_address = Service::UNSPECIFIED.into();
    };
    vec![web(stream), at(&[endpoint("10.0.99.9", 9000, "tcp")])]
}

pub(super) fn headless() -> Vec<Update> {
    let of = |address: &str, network: &str| {
        endpoint(address, 8080, "http").with_attributes(|pod| pod.network = network.into())
    };
    let mut local = own_endpoint();
    local.push(at(&[of("10.0.1.1", "net-a"), of("10.0.1.2", "net-b")]));
    local
}

pub(super) fn declared_ports() -> Vec<Update> {
    let port = "{port: {number: 9000, name: http, protocol: HTTP}, defaultEndpoint: '0.0.0.0:8080'}";
    istio("Sidecar", "s", &format!("{{ingress: [{port}], egress: [{{hosts: ['*/*']}}]}}"))
}

pub(super) fn dual_stack() -> Vec<Update> {
    vec![web(|service| service.addresses = addresses("Kubernetes", &["10.96.0.1", "fd00::1"]))]
}

/// A service whose endpoints are names.
pub(super) fn resolved() -> Vec<Update> {
    vec![
        web(|service| service.resolution = Resolution::DNSLB),
        at(&[endpoint("a.example.com", 8080, "http")]),
    ]
}

pub(super) fn own_pod() -> Vec<Update> {
    vec![Update::Workload(Arc::new(pod("client-0", "shop", "10.0.99.1", &[("run", "web")])))]
}

pub(super) fn opentelemetry() -> Vec<Update> {
    traced_to_opentelemetry(ServiceAttributeEnrichment::IstioCanonical)
}

/// Services of spans are named after workloads. Rule 33 of Istio 1.31.
pub(super) fn spans_by_conventions() -> Vec<Update> {
    traced_to_opentelemetry(ServiceAttributeEnrichment::OtelSemanticConventions)
}

/// Headers of traces are left alone, by proxies that can.
pub(super) fn untraced_headers() -> Vec<Update> {
    let telemetry = yaml(&line(
        "telemetry.istio.io/v1",
        "Telemetry",
        "shop",
        "t",
        "{tracing: [{disableContextPropagation: true}]}",
    ));
    opentelemetry().into_iter().chain(telemetry).collect()
}

fn traced_to_opentelemetry(enrichment: ServiceAttributeEnrichment) -> Vec<Update> {
    let provider = OpenTelemetryTracingProvider {
        service: "web.shop.svc.cluster.local".into(),
        port: 80,
        service_attribute_enrichment: enrichment,
        ..OpenTelemetryTracingProvider::default()
    };
    let provider = ExtensionProvider {
        name: "otel".into(),
        opentelemetry: Some(provider),
        ..ExtensionProvider::default()
    };
    vec![Update::Object(mesh(MeshConfig {
        extension_providers: vec![provider],
        default_providers: DefaultProviders { tracing: vec!["otel".into()], ..DefaultProviders::default() },
        ..MeshConfig::default()
    }))]
}

pub(super) fn traced() -> Vec<Update> {
    vec![Update::Object(mesh(MeshConfig { enable_tracing: true, ..MeshConfig::default() }))]
}

/// All for the own namespace alone.
pub(super) fn private() -> Vec<Update> {
    let mut updates = istio(
        "VirtualService",
        "web",
        "{hosts: [web], gateways: [mesh, edge], exportTo: [.], http: [{route: [{destination: {host: web}}]}]}",
    );
    updates.push(web(|service| service.export_to = ExportTo::namespaces(["shop"])));
    updates
}

pub(super) fn plugin() -> Vec<Update> {
    yaml(&line("extensions.istio.io/v1alpha1", "WasmPlugin", "shop", "w", "{url: 'file:///w.wasm'}"))
}

pub(super) fn script() -> Vec<Update> {
    let spec =
        "{selector: {matchLabels: {app: other}}, lua: {inlineCode: 'function envoy_on_request(handle) end'}}";
    yaml(&line("extensions.istio.io/v1alpha1", "TrafficExtension", "shop", "s", spec))
}

pub(super) fn plugin_with_secret() -> Vec<Update> {
    let spec = "{url: 'oci://r/w', imagePullSecret: pull}";
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: pull, namespace: shop}, data: {.dockerconfigjson: Yw==}}";
    let mut updates = yaml(&line("extensions.istio.io/v1alpha1", "WasmPlugin", "shop", "w", spec));
    updates.extend(yaml(secret));
    updates
}

pub(super) fn secret() -> Vec<Update> {
    let rule = "{host: elsewhere.example.com, trafficPolicy: {tls: {mode: MUTUAL, credentialName: web}}}";
    let mut updates = yaml(&line("networking.istio.io/v1", "DestinationRule", "shop", "elsewhere", rule));
    updates.extend(yaml(
        "{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: shop}, data: {tls.crt: Yw==, tls.key: aw==}}",
    ));
    updates
}

pub(super) fn addresses_by_cluster() -> Vec<Update> {
    vec![web(|service| service.addresses.extend(addresses("east", &["10.97.0.1"])))]
}

pub(super) fn cluster_local() -> Vec<Update> {
    let settings = ServiceSettings {
        hosts: vec!["web.shop.svc.cluster.local".into()],
        settings: Settings { cluster_local: true },
    };
    vec![Update::Object(mesh(MeshConfig { service_settings: vec![settings], ..MeshConfig::default() }))]
}

fn gateway_of(network: &str, address: &str) -> NetworkGateway {
    NetworkGateway {
        network: network.into(),
        cluster: "Kubernetes".into(),
        address: address.into(),
        port: 15443,
        hbone_port: 0,
        service_account: "".into(),
    }
}

pub(super) fn networks() -> Vec<Update> {
    let remote = endpoint("10.0.1.1", 8080, "http")
        .with_attributes(|pod| (pod.network, pod.tls_mode) = ("net-a".into(), TlsMode::Istio));
    vec![at(&[remote])]
}

pub(super) fn gateways_between_networks() -> Vec<Update> {
    // Rule 5 of Istio 1.31: a client without a network goes through gateways.
    let remote = endpoint("10.0.1.1", 8080, "http")
        .with_attributes(|pod| (pod.network, pod.tls_mode) = ("net-b".into(), TlsMode::Istio));
    let mut updates = vec![at(&[remote])];
    updates.push(Update::NetworkGateways(Arc::from([
        gateway_of("net-a", "1.1.1.1"),
        gateway_of("net-b", "2.2.2.2"),
    ])));
    updates
}

pub(super) fn policy() -> Vec<Update> {
    security("AuthorizationPolicy", "{selector: {matchLabels: {app: other}}, rules: [{}]}")
}

/// A policy, and pods that are known without the label that it selects by.
pub(super) fn policy_for_pods() -> Vec<Update> {
    let mut updates = policy();
    updates.extend(own_pod());
    updates
}

pub(super) fn rule_for_clients() -> Vec<Update> {
    let mut updates = streams();
    updates.extend(istio(
        "DestinationRule",
        "own",
        "{host: web, workloadSelector: {matchLabels: {app: other}}, trafficPolicy: {tls: {mode: DISABLE}, \
          loadBalancer: {consistentHash: {httpHeaderName: a}}, connectionPool: {tcp: {idleTimeout: 7s}}}}",
    ));
    updates
}

pub(super) fn least_request() -> Vec<Update> {
    istio("DestinationRule", "web", "{host: web, trafficPolicy: {loadBalancer: {simple: LEAST_REQUEST}}}")
}

pub(super) fn route_by_source() -> Vec<Update> {
    istio(
        "VirtualService",
        "web",
        "{hosts: [web], gateways: [mesh, edge], http: [{match: [{sourceLabels: {app: other}}], route: [{destination: {host: b}}]}, \
          {route: [{destination: {host: web}}]}]}",
    )
}

pub(super) fn stream_by_source() -> Vec<Update> {
    let mut updates = streams();
    let route = |gateways: &str| {
        format!(
            "{{hosts: [web], gateways: [{gateways}], tcp: [{{match: [{{sourceLabels: {{app: other}}}}], \
              route: [{{destination: {{host: b}}}}]}}]}}"
        )
    };
    updates.extend(istio("VirtualService", "a", &route("mesh")));
    updates.extend(istio("VirtualService", "b", &route("tcp")));
    updates
}

pub(super) fn narrow_scope() -> Vec<Update> {
    istio("Sidecar", "s", "{workloadSelector: {labels: {app: other}}, egress: [{hosts: [pay/*]}]}")
}

pub(super) fn gateway() -> Vec<Update> {
    let mut updates = istio(
        "Gateway",
        "own",
        "{selector: {app: other}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: [a.b]}, {port: {number: 9090, name: http2, protocol: HTTP}, hosts: [a.b]}, {port: {number: 9443, name: https, protocol: HTTPS}, hosts: [a.b], tls: {mode: SIMPLE, credentialName: web}}]}",
    );
    updates.extend(yaml(
        "{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: shop}, data: {tls.crt: Yw==, tls.key: aw==}}",
    ));
    updates.extend(istio(
        "VirtualService",
        "own",
        "{hosts: [a.b], gateways: [own], http: [{route: [{destination: {host: web}}]}]}",
    ));
    updates
}

/// Patches for the proxies of a selector, or on a condition.
fn patches(selector: &str, conditions: &str) -> Vec<Update> {
    let patch = |apply: &str, value: &str| {
        format!(
            "{{applyTo: {apply}, match: {{proxy: {{{conditions}}}}}, patch: {{operation: MERGE, value: {value}}}}}"
        )
    };
    let patches = [
        patch("CLUSTER", "{connect_timeout: 7s}"),
        patch("LISTENER", "{stat_prefix: a}"),
        patch("ROUTE_CONFIGURATION", "{internal_only_headers: [a]}"),
    ];
    let spec = format!("{{workloadSelector: {selector}, configPatches: [{}]}}", patches.join(", "));
    yaml(&line("networking.istio.io/v1alpha3", "EnvoyFilter", "shop", "f", &spec))
}

pub(super) fn patch_by_version() -> Vec<Update> {
    patches("null", "proxyVersion: '^1[.]29.*'")
}

pub(super) fn patch_by_metadata() -> Vec<Update> {
    patches("null", "metadata: {ANYTHING: else}")
}

pub(super) fn patch_by_label() -> Vec<Update> {
    patches("{labels: {app: other}}", "")
}

pub(super) fn distribute() -> Vec<Update> {
    let mut updates = istio(
        "DestinationRule",
        "web",
        "{host: web, trafficPolicy: {loadBalancer: {localityLbSetting: {distribute: [{from: eu/*, to: {'eu/*': 60, 'us/*': 40}}]}}}}",
    );
    let in_region = |address: &str, region: &str| {
        endpoint(address, 8080, "http")
            .with_attributes(|pod| pod.locality = pilotfish_model::Locality::parse(region))
    };
    updates.push(at(&[in_region("10.0.1.1", "eu/1/a"), in_region("10.0.1.2", "us/1/a")]));
    updates
}

pub(super) fn node_local() -> Vec<Update> {
    let local = pilotfish_model::KubernetesAttributes { node_local: true, ..Default::default() };
    let on = |address: &str, node: &str| {
        endpoint(address, 8080, "http").with_attributes(|pod| pod.node = node.into())
    };
    vec![
        web(|service| service.kubernetes = Some(Arc::new(local))),
        at(&[on("10.0.1.1", "node-a"), on("10.0.1.2", "node-b")]),
    ]
}

/// A service that only has addresses that Istio allocated.
pub(super) fn allocated() -> Vec<Update> {
    vec![web(|service| {
        crate::testing::of_service_entry(service);
        service.addresses = ClusterAddresses::new();
        service.default_address = Service::UNSPECIFIED.into();
        service.auto_addresses = ["240.240.0.1".into(), "".into()];
    })]
}

/// An interface of Dubbo.
pub(super) fn calls_of_dubbo() -> Vec<Update> {
    let port = Port { number: 20880, name: "dubbo".into(), protocol: Protocol::Dubbo, target_port: None };
    let [interface, group, version] = ["org.A", "", ""].map(Arc::from);
    let calls = service("calls", "shop").with(|service| {
        service.ports = Arc::from([port]);
        service.dubbo = Some(Arc::new(DubboInterface { interface, group, version }));
    });
    vec![calls.update()]
}

/// TCP, from clients and through gateways.
pub(super) fn streams() -> Vec<Update> {
    let mut updates = istio(
        "Gateway",
        "tcp",
        "{selector: {}, servers: [{port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}]}",
    );
    updates.extend(istio(
        "VirtualService",
        "tcp",
        "{hosts: ['*'], gateways: [tcp], tcp: [{route: [{destination: {host: web, port: {number: 80}}}]}]}",
    ));
    updates
}

/// Ports below 1024 that are bound.
pub(super) fn low_ports() -> Vec<Update> {
    let mut updates = istio(
        "Sidecar",
        "s",
        "{egress: [{port: {number: 80, name: http, protocol: HTTP}, bind: 127.0.0.1, captureMode: NONE, hosts: ['*/*']}]}",
    );
    updates.extend(istio(
        "Gateway",
        "low",
        "{selector: {}, servers: [{port: {number: 90, name: http, protocol: HTTP}, hosts: ['*']}]}",
    ));
    updates
}

pub(super) fn mutual_tls() -> Vec<Update> {
    istio("DestinationRule", "web", "{host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}")
}
