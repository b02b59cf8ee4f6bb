//! Clusters of a route: their existence and connections.

use super::arrival::Known;
use super::chain::Arriving;
use super::{Next, Walk, Way, list, step, text};
use pilotfish_api::v1::{Step, Verdict, Why};
use pilotfish_proto::ResourceType;
use pilotfish_translate::InterceptionMode;
use serde_json::Value;
use std::collections::BTreeSet;

/// Outcome for a request to an `ORIGINAL_DST` cluster on a proxy without interception.
pub(super) const NO_ORIGINAL_ADDRESS: &str = "it would go on to its original address, and nothing intercepts \
    connections for this proxy, so there is none but the proxy's own";
pub(super) const NOWHERE: &str = "503 or a closed connection: there is no address to go on to";

/// Cluster for connections to destinations without a service.
pub(super) const PASSTHROUGH: &str = "PassthroughCluster";

/// Cluster for requests to hosts without a service, which the proxy looks up.
pub(super) const ALLOW_ANY_DYNAMIC_DNS: &str = "AllowAnyDynamicDNSCluster";

/// Parts of a cluster name such as `outbound|80|v1|web.shop.svc.cluster.local`.
pub(super) struct Parts<'a> {
    pub(super) port: &'a str,
    pub(super) subset: &'a str,
    pub(super) host: &'a str,
}

impl<'a> Parts<'a> {
    pub(super) fn of(name: &'a str) -> Option<Self> {
        let parts: Vec<&str> = name.split('|').collect();
        match parts.as_slice() {
            ["outbound", port, subset, host] => Some(Self { port, subset, host }),
            _ => None,
        }
    }
}

impl Walk<'_> {
    /// Follows all clusters of a route; the request is sent to one of them.
    pub(super) fn clusters(&self, way: &Way, clusters: &[(String, u64)], answer: &mut Why) -> Next<()> {
        let mut ends = Vec::new();
        let mut reached = 0;
        for (name, weight) in clusters {
            match self.cluster(way, name, answer) {
                Next::On(()) => reached += 1,
                Next::End(outcome) if clusters.len() == 1 => return Next::End(outcome),
                Next::End(outcome) => ends.push(format!("{weight} % of requests: {outcome}")),
            }
        }
        if reached > 0 && ends.is_empty() { Next::On(()) } else { Next::End(ends.join("; ")) }
    }

    fn cluster(&self, way: &Way, name: &str, answer: &mut Why) -> Next<()> {
        match name {
            PASSTHROUGH if self.knows_no_original_address() => {
                let text = format!("not known to the mesh: {NO_ORIGINAL_ADDRESS}");
                answer.steps.push(step("cluster", Verdict::Ends, name, text));
                return Next::End(NOWHERE.to_owned());
            }
            PASSTHROUGH => {
                let text =
                    "not known to the mesh: the connection goes on to its original address, without policies";
                answer.steps.push(step("cluster", Verdict::Doubtful, name, text));
                return Next::On(());
            }
            ALLOW_ANY_DYNAMIC_DNS => {
                let text = "not known to the mesh: the proxy looks up the host of the request \
                    (ALLOW_ANY_DYNAMIC_DNS)";
                answer.steps.push(step("cluster", Verdict::Doubtful, name, text));
                return Next::On(());
            }
            "BlackHoleCluster" => {
                let text = "not known to the mesh, and only registered hosts may be reached (REGISTRY_ONLY), \
                    or the destination of the route does not exist";
                answer.steps.push(step("cluster", Verdict::Ends, name, text));
                return Next::End(
                    "502 or a closed connection: the request goes to BlackHoleCluster".to_owned(),
                );
            }
            _ => {}
        }
        let Some(cluster) = self.named(ResourceType::Cluster, name) else {
            let (at, outcome) = self.missing(name);
            answer.steps.push(at);
            return Next::End(outcome);
        };
        let mut at = step("cluster", Verdict::Ok, name, connects(&cluster.json));
        at.decided_by.clone_from(&cluster.made_by);
        answer.steps.push(at);
        self.endpoints(way, &cluster, answer)
    }

    /// True if applications connect to the proxy itself (`INTERCEPTION_MODE` is `NONE`), so that connections
    /// have no original destination. An `ORIGINAL_DST` cluster has no endpoint then.
    pub(super) fn knows_no_original_address(&self) -> bool {
        self.proxy.interception == InterceptionMode::None
    }

    /// Reason why a cluster is missing.
    fn missing(&self, name: &str) -> (Step, String) {
        let outcome = format!("503: the route sends to {name}, which is not there");
        let Some(parts) = Parts::of(name) else {
            return (step("cluster", Verdict::Ends, name, "the proxy has no such cluster"), outcome);
        };
        let names = self.names(ResourceType::Cluster);
        let of_host =
            names.iter().filter_map(|name| Parts::of(name)).filter(|other| other.host == parts.host);
        let of_host: Vec<Parts<'_>> = of_host.collect();
        let subsets: BTreeSet<&str> =
            of_host.iter().map(|other| other.subset).filter(|subset| !subset.is_empty()).collect();
        let ports: BTreeSet<&str> = of_host.iter().map(|other| other.port).collect();
        let text = if of_host.is_empty() {
            format!("no service that this proxy sees has the host {}", parts.host)
        } else if !ports.contains(parts.port) {
            let ports = ports.into_iter().collect::<Vec<_>>().join(", ");
            format!("{} has no port {}; it has {ports}", parts.host, parts.port)
        } else if subsets.is_empty() {
            format!(
                "no DestinationRule for {} that this proxy sees defines subset {}",
                parts.host, parts.subset
            )
        } else {
            let subsets = subsets.into_iter().collect::<Vec<_>>().join(", ");
            format!(
                "no DestinationRule for {} defines subset {}; defined are {subsets}",
                parts.host, parts.subset
            )
        };
        let mut at = step("cluster", Verdict::Ends, name, text);
        let base = format!("outbound|{}||{}", parts.port, parts.host);
        at.decided_by = self.named(ResourceType::Cluster, &base).map(|base| base.made_by).unwrap_or_default();
        (at, outcome)
    }
}

/// Description of a cluster's endpoint discovery and TLS.
fn connects(cluster: &Value) -> String {
    let kind = match text(cluster, "/type") {
        _ if looks_up_hosts(cluster) => "the host that the request names, by DNS",
        "EDS" => "endpoints from the control plane",
        "STRICT_DNS" | "LOGICAL_DNS" => "endpoints by DNS",
        "ORIGINAL_DST" => "the address that the application connects to",
        "STATIC" | "" => "fixed endpoints",
        other => other,
    };
    format!("{kind}, {}", tls_of(cluster).words())
}

/// True if the proxy looks up the host that a request names.
pub(super) fn looks_up_hosts(cluster: &Value) -> bool {
    text(cluster, "/cluster_type/name") == "envoy.clusters.dynamic_forward_proxy"
}

/// TLS mode of a cluster's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientTls {
    /// Plaintext to all endpoints.
    Never,
    /// Mutual TLS to endpoints that support it, plaintext to the others.
    WhereItIs,
    /// TLS to all endpoints.
    Always,
}

impl ClientTls {
    fn words(self) -> &'static str {
        match self {
            Self::Never => "in plaintext",
            Self::WhereItIs => "with mutual TLS where the endpoint has it",
            Self::Always => "with TLS",
        }
    }
}

fn tls_of(cluster: &Value) -> ClientTls {
    let is_tls = |socket: &Value| text(socket, "/name").contains("tls");
    if cluster.get("transport_socket").is_some_and(is_tls) {
        ClientTls::Always
    } else if list(cluster, "/transport_socket_matches")
        .filter_map(|one| one.get("transport_socket"))
        .any(is_tls)
    {
        ClientTls::WhereItIs
    } else {
        ClientTls::Never
    }
}

/// ALPN that Istio's filter offers for HTTP, overriding that of the cluster.
const HTTP_OF_MESH: [&str; 2] = ["istio-http/1.1", "istio-h2"];
/// Protocol that Envoy detects in plaintext HTTP.
const HTTP: &str = "http/1.1";

/// Connection of a cluster to an endpoint, with the properties that the destination sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) tls: bool,
    /// Application protocols, in order.
    pub(super) alpn: Vec<String>,
    /// True if the client's certificate is from the mesh; `None` without a certificate.
    pub(super) is_of_mesh: Option<bool>,
    /// SNI of the connection; empty without TLS.
    pub(super) server_name: Known<String>,
}

impl Connection {
    /// Creates the connection to an endpoint. `mtls` is true if it supports mutual TLS of the mesh, `http`
    /// for HTTP requests.
    pub(super) fn of(cluster: &Value, mtls: bool, http: bool, istio_filters: bool) -> Self {
        let is_tls = |socket: &&Value| text(socket, "/name").contains("tls");
        let matches =
            list(cluster, "/transport_socket_matches").filter_map(|one| one.get("transport_socket"));
        let of_match = || matches.into_iter().find(is_tls).filter(|_| mtls);
        let Some(socket) = cluster.get("transport_socket").filter(is_tls).or_else(of_match) else {
            let alpn = if http { vec![HTTP.to_owned()] } else { Vec::new() };
            return Self { tls: false, alpn, is_of_mesh: None, server_name: Ok(String::new()) };
        };
        let context = &socket["typed_config"]["common_tls_context"];
        let alpn = list(context, "/alpn_protocols").filter_map(Value::as_str);
        let first = HTTP_OF_MESH.into_iter().filter(|_| http && istio_filters);
        let secrets = list(context, "/tls_certificate_sds_secret_configs");
        let mut names = secrets.map(|secret| text(secret, "/name")).peekable();
        let has_other = context.get("tls_certificates").is_some();
        let is_of_mesh =
            (has_other || names.peek().is_some()).then(|| !has_other && names.all(|name| name == "default"));
        let server_name = match text(&socket["typed_config"], "/sni") {
            "" => Err("the server name of TLS"),
            name => Ok(name.to_owned()),
        };
        Self { tls: true, alpn: first.chain(alpn).map(str::to_owned).collect(), is_of_mesh, server_name }
    }
    /// Properties that the listener of an endpoint matches on.
    pub(super) fn arriving<'a>(&'a self, address: &str, port: u64) -> Arriving<'a> {
        Arriving {
            port,
            addresses: address.parse().into_iter().collect(),
            tls: self.tls,
            server_names: self.server_name.iter().map(String::as_str).collect(),
            alpn: self.alpn.iter().map(String::as_str).collect(),
        }
    }
}
