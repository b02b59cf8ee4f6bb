//! The facts in a kind's definition besides its schema: versions, scope, names and columns, as upstream's
//! definitions have them, so that objects, scripts and habits carry over.

use pilotfish_model::Kind;

/// Facts about a kind that has a definition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The versions that are served, the one that objects are stored in first.
    pub(super) versions: &'static [&'static str],
    /// Short names for `kubectl get`.
    pub(super) short_names: &'static [&'static str],
    /// Columns of `kubectl get`, besides name and age.
    pub(super) columns: &'static [Column],
    /// One sentence for `kubectl explain`.
    pub(super) description: &'static str,
}

/// A column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    pub(super) description: &'static str,
}

const fn column(name: &'static str, path: &'static str, description: &'static str) -> Column {
    Column { name, path, description }
}

const V1_AND_OLDER: &[&str] = &["v1", "v1beta1", "v1alpha3"];
const V1_AND_BETA: &[&str] = &["v1", "v1beta1"];

/// The facts about a kind; `None` for kinds that Kubernetes itself has, or that are no objects of an API
/// server.
pub(super) fn facts(kind: Kind) -> Option<Facts> {
    match kind.group() {
        "networking.istio.io" => networking(kind),
        "security.istio.io" | "telemetry.istio.io" | "extensions.istio.io" => policies(kind),
        "gateway.networking.k8s.io" => gateway_api(kind),
        "multicluster.x-k8s.io" => multicluster(kind),
        _ => None,
    }
}

const fn plain(
    versions: &'static [&'static str],
    short_names: &'static [&'static str],
    description: &'static str,
) -> Facts {
    Facts { versions, short_names, columns: &[], description }
}

fn networking(kind: Kind) -> Option<Facts> {
    const HOSTS: Column = column("Hosts", ".spec.hosts", "The hosts that it is about");
    const VIRTUAL_SERVICE: &[Column] =
        &[column("Gateways", ".spec.gateways", "The gateways and sidecars that apply the routes"), HOSTS];
    const SERVICE_ENTRY: &[Column] = &[
        HOSTS,
        column("Location", ".spec.location", "Whether the service is part of the mesh"),
        column("Resolution", ".spec.resolution", "How proxies find the endpoints"),
    ];
    const DESTINATION_RULE: &[Column] = &[column("Host", ".spec.host", "The host that the policy is for")];
    const WORKLOAD_ENTRY: &[Column] = &[column("Address", ".spec.address", "The address of the workload")];
    let facts = match kind {
        Kind::VirtualService => {
            let facts = plain(V1_AND_OLDER, &["vs"], "How requests to some hosts are routed.");
            Facts { columns: VIRTUAL_SERVICE, ..facts }
        }
        Kind::DestinationRule => {
            let facts = plain(V1_AND_OLDER, &["dr"], "How clients connect to a host, and its subsets.");
            Facts { columns: DESTINATION_RULE, ..facts }
        }
        Kind::Gateway => plain(V1_AND_OLDER, &["gw"], "What gateway workloads listen on."),
        Kind::ServiceEntry => {
            let facts = plain(V1_AND_OLDER, &["se"], "A service that no other registry knows.");
            Facts { columns: SERVICE_ENTRY, ..facts }
        }
        Kind::WorkloadEntry => {
            let facts = plain(V1_AND_OLDER, &["we"], "One workload outside of Kubernetes.");
            Facts { columns: WORKLOAD_ENTRY, ..facts }
        }
        Kind::WorkloadGroup => {
            plain(V1_AND_OLDER, &["wg"], "The pattern by which workloads register themselves.")
        }
        Kind::Sidecar => plain(V1_AND_OLDER, &[], "What the proxies of a namespace see and listen on."),
        Kind::EnvoyFilter => plain(&["v1alpha3"], &[], "Patches on the resources that proxies get."),
        Kind::ProxyConfig => plain(&["v1beta1"], &[], "Settings of proxies that are fixed when they start."),
        _ => return None,
    };
    Some(facts)
}

fn policies(kind: Kind) -> Option<Facts> {
    const AUTHORIZATION: &[Column] =
        &[column("Action", ".spec.action", "What happens to a request that matches")];
    const PEER: &[Column] = &[column("Mode", ".spec.mtls.mode", "The mode of mutual TLS")];
    let facts = match kind {
        Kind::AuthorizationPolicy => {
            let facts = plain(V1_AND_BETA, &["ap"], "Which requests are allowed.");
            Facts { columns: AUTHORIZATION, ..facts }
        }
        Kind::PeerAuthentication => {
            let facts = plain(V1_AND_BETA, &["pa"], "Whether workloads ask for mutual TLS.");
            Facts { columns: PEER, ..facts }
        }
        Kind::RequestAuthentication => plain(V1_AND_BETA, &["ra"], "Which JSON web tokens are accepted."),
        Kind::Telemetry => {
            plain(&["v1", "v1alpha1"], &["telemetry"], "Access logs, metrics and traces of workloads.")
        }
        Kind::WasmPlugin => {
            plain(&["v1alpha1"], &[], "A WebAssembly plugin in the filter chain of workloads.")
        }
        Kind::TrafficExtension => {
            plain(&["v1alpha1"], &["tex"], "A Wasm plugin or Lua script in the filter chain of workloads.")
        }
        _ => return None,
    };
    Some(facts)
}

const CLASS: &[Column] = &[
    column("Controller", ".spec.controllerName", "The controller that serves Gateways of the class"),
    column(
        "Accepted",
        ".status.conditions[?(@.type==\"Accepted\")].status",
        "Whether the controller serves it",
    ),
];
const GATEWAY: &[Column] = &[
    column("Class", ".spec.gatewayClassName", "The class of the Gateway"),
    column("Address", ".status.addresses[*].value", "The addresses that clients use"),
    column("Programmed", ".status.conditions[?(@.type==\"Programmed\")].status", "Whether proxies serve it"),
];
const LISTENER_SET: &[Column] = &[
    column(
        "Accepted",
        ".status.conditions[?(@.type==\"Accepted\")].status",
        "Whether its Gateway accepts it",
    ),
    column("Programmed", ".status.conditions[?(@.type==\"Programmed\")].status", "Whether proxies serve it"),
];

fn gateway_api(kind: Kind) -> Option<Facts> {
    const HOSTNAMES: &[Column] = &[column("Hostnames", ".spec.hostnames", "The hosts that are routed")];
    let facts = match kind {
        Kind::GatewayClass => {
            let facts = plain(V1_AND_BETA, &["gc"], "A class of Gateways.");
            Facts { columns: CLASS, ..facts }
        }
        Kind::KubernetesGateway => {
            let facts = plain(V1_AND_BETA, &["gtw"], "Listeners, and the routes that they accept.");
            Facts { columns: GATEWAY, ..facts }
        }
        Kind::ListenerSet => {
            Facts { columns: LISTENER_SET, ..plain(&["v1"], &["lset"], "Further listeners of a Gateway.") }
        }
        Kind::HttpRoute => {
            let facts = plain(V1_AND_BETA, &[], "HTTP routes of Gateways or Services.");
            Facts { columns: HOSTNAMES, ..facts }
        }
        Kind::GrpcRoute => {
            Facts { columns: HOSTNAMES, ..plain(&["v1"], &[], "gRPC routes of Gateways or Services.") }
        }
        Kind::TcpRoute => plain(&["v1alpha2", "v1"], &[], "Routes of TCP connections."),
        Kind::TlsRoute => Facts {
            columns: HOSTNAMES,
            ..plain(&["v1alpha3", "v1", "v1alpha2"], &[], "Routes of TLS connections, by server name.")
        },
        Kind::ReferenceGrant => plain(
            &["v1beta1", "v1"],
            &["refgrant"],
            "Allows objects of other namespaces to refer to objects of this one.",
        ),
        Kind::BackendTlsPolicy => {
            plain(&["v1", "v1alpha3"], &["btlspolicy"], "TLS to the endpoints of Services.")
        }
        _ => return None,
    };
    Some(facts)
}

fn multicluster(kind: Kind) -> Option<Facts> {
    const VERSIONS: &[&str] = &["v1alpha1", "v1beta1"];
    const IMPORT: &[Column] = &[
        column("Type", ".spec.type", "Whether the imported Service has an address of its own"),
        column("IP", ".spec.ips", "The addresses of the imported Service"),
    ];
    match kind {
        Kind::ServiceExport => Some(plain(
            VERSIONS,
            &["svcex"],
            "Says that the Service of the same name is known in every cluster.",
        )),
        Kind::ServiceImport => Some(Facts {
            columns: IMPORT,
            ..plain(VERSIONS, &["svcim"], "A Service that other clusters export.")
        }),
        _ => None,
    }
}
