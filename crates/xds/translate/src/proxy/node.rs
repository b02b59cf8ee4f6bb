//! The node in the first request of a connected proxy, read once.

use super::{Metadata, SecretAccess};
use crate::credentials::CertificateSource;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::{ClusterId, Labels, Locality, Namespace, NetworkId, Transport};
use pilotfish_proto::ValueKind;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{Struct, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Kind of client, by the node id and `GENERATOR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProxyKind {
    /// An Envoy beside a workload.
    Sidecar,
    /// An Envoy that stands alone: ingress, egress, east-west.
    Router,
    /// A gRPC client or server without a proxy (`GENERATOR: grpc`).
    Grpc,
}

/// Redirection of a sidecar's traffic (`INTERCEPTION_MODE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InterceptionMode {
    /// iptables REDIRECT: source addresses are lost.
    #[default]
    Redirect,
    /// iptables TPROXY: source addresses are kept.
    Tproxy,
    /// Nothing is captured: listeners bind their ports.
    None,
}

/// A proxy as its node describes it. Immutable; what the registries know of its workload is read from the
/// world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proxy {
    /// The whole node id.
    pub id: Arc<str>,
    /// Sidecar, router or proxyless gRPC.
    pub kind: ProxyKind,
    /// Its addresses, the primary one first.
    pub ips: Arc<[IpAddr]>,
    /// The name of its pod or workload.
    pub name: Arc<str>,
    /// The cluster of the node, by which it names itself in traces.
    pub service_cluster: Arc<str>,
    /// The namespace whose configuration it gets.
    pub namespace: Namespace,
    /// The DNS domain in which short names are completed: `<namespace>.svc.cluster.local`.
    pub dns_domain: Arc<str>,
    /// Cluster of the proxy (`CLUSTER_ID`).
    pub cluster: ClusterId,
    /// Network of the proxy (`NETWORK`).
    pub network: NetworkId,
    /// Labels of the workload: `LABELS` with `STATIC_LABELS`.
    pub labels: Labels,
    /// Labels of the bootstrap alone (`STATIC_LABELS`).
    pub static_labels: Labels,
    /// Locality that the node reports.
    pub locality: Locality,
    /// Redirection of its traffic (`INTERCEPTION_MODE`).
    pub interception: InterceptionMode,
    /// True if it has the filters that only Istio's build of Envoy has.
    pub istio_filters: bool,
    /// The plugins (WasmPlugin) that it can run.
    pub wasm: WasmSupport,
    /// True if its node lists Envoy's filter for Dubbo calls.
    pub dubbo_proxy: bool,
    /// Source of its workload's certificate: the control plane, where the node asks for that
    /// ([`CERTIFICATES_KEY`]), else Istio's agent, if there is one (it sets `ISTIO_VERSION`).
    pub certificate_source: CertificateSource,
    /// True for a gRPC library, known by `user_agent_name`, that refuses clusters with `LEAST_REQUEST`:
    /// those in C and for Node.js do, the ones in Go and Java balance by open requests.
    pub refuses_least_request: bool,
    /// The metadata whose value is a text, number or bool.
    pub metadata: Metadata,
    /// Identity that its connection proved; `None` without proof.
    pub identity: Option<Identity>,
    /// Right by which it reads Secrets, if it has an identity.
    pub secret_access: SecretAccess,
    /// The mesh settings of this one proxy (`PROXY_CONFIG`), as JSON text; empty for none.
    pub proxy_config: Arc<str>,
    /// The service of its spans that its Pod's annotations name; empty for none.
    pub span_service: Arc<str>,
    /// The named ports of its Pod (`POD_PORTS`).
    pub pod_ports: Arc<[PodPort]>,
}

/// A port of a proxy's Pod, as its node has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodPort {
    /// The name, by which Services may mean it.
    pub name: Arc<str>,
    pub number: u32,
    /// Protocol in upper case: `TCP` or `UDP`.
    pub protocol: Arc<str>,
}

impl PodPort {
    /// True if a Service's port with that target port means it.
    pub(crate) fn is_for(&self, name: &str, transport: Transport) -> bool {
        let own = if &*self.protocol == "UDP" { Transport::Udp } else { Transport::Tcp };
        *self.name == *name && own == transport
    }
}

/// The workload identity of a certificate or token: `spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub trust_domain: Arc<str>,
    pub namespace: Namespace,
    pub service_account: Arc<str>,
}

impl Identity {
    /// Reads a SPIFFE id; `None` when it is not of that form.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        let mut parts = id.strip_prefix("spiffe://")?.split('/');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let (trust_domain, ns, namespace, sa, service_account) =
            (next()?, next()?, next()?, next()?, next()?);
        let is_form = ns == "ns" && sa == "sa" && parts.next().is_none();
        is_form.then(|| Self {
            trust_domain: trust_domain.into(),
            namespace: namespace.into(),
            service_account: service_account.into(),
        })
    }

    /// True for an identity of the mesh's trust domain or an alias of it: namespaces of another domain are
    /// others, whoever signed. An identity in node metadata has no domain.
    #[must_use]
    pub fn is_of_mesh(&self, mesh: &MeshConfig) -> bool {
        self.trust_domain.is_empty() || mesh.has_trust_domain(&self.trust_domain)
    }
}

/// Reason for which a node cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// No node, or one without id, in the first request.
    #[error("the first request has no node id")]
    NoId,
    /// The node id is not of the form `type~ip~name.namespace~domain`.
    #[error(
        "node id {0:?} is not of the form TYPE~IP~NAME.NAMESPACE~DNS-DOMAIN, as in \
         sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local"
    )]
    Format(String),
    /// A type that is not served.
    #[error("node type {0:?} is not served; known are sidecar and router")]
    Kind(String),
    /// Neither `INSTANCE_IPS` nor the id has a valid address.
    #[error("node id {0:?} has no valid IP address, and neither has INSTANCE_IPS")]
    NoAddress(String),
    /// More addresses in `INSTANCE_IPS` than [`MAX_ADDRESSES`].
    #[error("INSTANCE_IPS has {0} addresses, and at most {MAX_ADDRESSES} are allowed")]
    TooManyAddresses(usize),
    /// More `LABELS` and `STATIC_LABELS` than [`MAX_LABELS`].
    #[error("the node has {0} labels, and at most {MAX_LABELS} are allowed")]
    TooManyLabels(usize),
}

/// Metadata field of a node for the source of its workload's certificate.
pub const CERTIFICATES_KEY: &str = "WORKLOAD_CERTIFICATES";
/// Its value for certificates of the control plane, on the stream of all other resources.
pub const CERTIFICATES_OVER_ADS: &str = "ads";

/// The addresses that a node may have: each is a fact that its views depend on.
pub const MAX_ADDRESSES: usize = 64;
/// The labels that a node may have: they are a part of its views.
pub const MAX_LABELS: usize = 256;
/// The most ports of `POD_PORTS` that count.
const MAX_POD_PORTS: usize = 256;

/// A connection proved another identity than its node claims.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "node {node:?} is of namespace {namespace}, service account {service_account:?}, and its connection \
     proves {proven}"
)]
pub struct NotItsIdentity {
    /// Id of the node, as received.
    pub node: String,
    /// The namespace that it names.
    pub namespace: Namespace,
    /// The service account that it names; empty for any.
    pub service_account: String,
    /// Identities that the connection proved, joined by commas.
    pub proven: String,
}

/// Reads `INTERCEPTION_MODE` of a node.
fn interception(mode: &str) -> InterceptionMode {
    match mode {
        "TPROXY" => InterceptionMode::Tproxy,
        "NONE" => InterceptionMode::None,
        _ => InterceptionMode::Redirect,
    }
}

/// Returns the source of a proxy's certificate: the one that its node names, or the agent, which has a
/// version.
fn certificate_source(named: &str, istio_version: &str) -> CertificateSource {
    match (named, istio_version) {
        (CERTIFICATES_OVER_ADS, _) => CertificateSource::ControlPlane,
        (_, "") => CertificateSource::Nobody,
        _ => CertificateSource::Agent,
    }
}

/// A name that only Istio's build of Envoy has among its extensions.
const ISTIO_EXTENSION: &str = "istio.stats";
/// The filter that reads calls of Dubbo, in Envoy's own build.
pub(crate) const DUBBO_PROXY: &str = "envoy.filters.network.dubbo_proxy";

impl Proxy {
    /// Reads a node.
    ///
    /// # Errors
    /// When the id is missing or malformed, or no valid address is given.
    pub fn from_node(node: &Node) -> Result<Self, NodeError> {
        if node.id.is_empty() {
            return Err(NodeError::NoId);
        }
        let mut parts = node.id.split('~');
        let (Some(kind), Some(ip), Some(id), Some(domain), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NodeError::Format(node.id.clone()));
        };
        let metadata = scalars(node.metadata.as_ref());
        let text = |key: &str| metadata.get(key).map_or("", String::as_str);
        let kind = match (kind, text("GENERATOR")) {
            ("sidecar" | "router", "grpc") => ProxyKind::Grpc,
            // Clients of configuration (MCP) call themselves so where an istiod then sends them more. They
            // have no listeners.
            ("sidecar", _) | ("waypoint", "api") => ProxyKind::Sidecar,
            ("router", _) => ProxyKind::Router,
            (other, _) => return Err(NodeError::Kind(other.to_owned())),
        };
        let ips =
            addresses(text("INSTANCE_IPS"), ip)?.ok_or_else(|| NodeError::NoAddress(node.id.clone()))?;
        let (name, id_namespace) = id.rsplit_once('.').unwrap_or((id, ""));
        let namespace = match text("NAMESPACE") {
            "" if id_namespace.is_empty() => domain.split('.').next().unwrap_or(""),
            "" => id_namespace,
            namespace => namespace,
        };
        let cluster = match text("CLUSTER_ID") {
            "" => "Kubernetes",
            id => id,
        };
        let (labels, static_labels) = labels(node.metadata.as_ref())?;
        Ok(Self {
            id: node.id.as_str().into(),
            kind,
            ips: ips.into(),
            name: name.into(),
            service_cluster: node.cluster.as_str().into(),
            namespace: namespace.into(),
            dns_domain: domain.into(),
            cluster: cluster.into(),
            network: text("NETWORK").into(),
            labels: Arc::new((&labels).into()),
            static_labels: Arc::new((&static_labels).into()),
            locality: locality(node),
            interception: interception(text("INTERCEPTION_MODE")),
            istio_filters: has_istio_filters(node, &metadata),
            wasm: WasmSupport::of(node, &metadata),
            dubbo_proxy: node.extensions.iter().any(|extension| extension.name == DUBBO_PROXY),
            identity: None,
            secret_access: SecretAccess::default(),
            certificate_source: certificate_source(text(CERTIFICATES_KEY), text("ISTIO_VERSION")),
            refuses_least_request: refuses_least_request(&node.user_agent_name),
            proxy_config: proxy_config(node.metadata.as_ref()),
            span_service: span_service(node.metadata.as_ref()),
            pod_ports: pod_ports(text("POD_PORTS")),
            metadata: metadata.into_iter().collect(),
        })
    }

    /// Returns the reason why `POD_PORTS` of a node cannot be read; the names of its ports are unknown then.
    #[must_use]
    pub fn pod_ports_error(node: &Node) -> Option<String> {
        let value = node.metadata.as_ref().and_then(|metadata| metadata.fields.get("POD_PORTS"));
        let text = value.and_then(scalar).unwrap_or_default();
        read_pod_ports(&text).err().map(|error| error.to_string())
    }

    /// The proxy with what its connection proved: the first of these SPIFFE ids that is a workload's of the
    /// proxy's namespace and, where its node names one (`SERVICE_ACCOUNT`), of its service account.
    ///
    /// # Errors
    /// When there are ids and none is.
    pub fn with_identities<'a>(
        mut self,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, NotItsIdentity> {
        let mut others = Vec::new();
        for id in ids {
            match Identity::parse(id) {
                Some(identity) if self.may_be(&identity) => {
                    self.identity = Some(identity);
                    return Ok(self);
                }
                _ => others.push(id.to_owned()),
            }
        }
        if others.is_empty() {
            return Ok(self);
        }
        let (namespace, service_account) = (self.namespace.clone(), self.meta("SERVICE_ACCOUNT").to_owned());
        Err(NotItsIdentity {
            node: self.id.to_string(),
            namespace,
            service_account,
            proven: others.join(", "),
        })
    }

    fn may_be(&self, identity: &Identity) -> bool {
        let claimed = self.meta("SERVICE_ACCOUNT");
        identity.namespace == self.namespace && (claimed.is_empty() || *identity.service_account == *claimed)
    }

    /// The identity that its node claims.
    #[must_use]
    pub fn claimed_identity(&self) -> Identity {
        Identity {
            trust_domain: "".into(),
            namespace: self.namespace.clone(),
            service_account: self.meta("SERVICE_ACCOUNT").into(),
        }
    }

    /// A metadata value as text; empty when it is not there. Kept are the keys that [`Metadata`] lists.
    #[must_use]
    pub fn meta(&self, key: &str) -> &str {
        self.metadata.get(key)
    }

    /// True if a metadata value, of whatever key, is that text. An absent value is empty.
    #[must_use]
    pub fn has_meta(&self, key: &str, value: &str) -> bool {
        self.metadata.has(key, value)
    }

    /// True if a metadata value reads as true (`true` or `1`).
    #[must_use]
    pub fn meta_flag(&self, key: &str) -> bool {
        matches!(self.meta(key), "true" | "1")
    }

    /// True if an SDS server listens at a socket beside it.
    #[must_use]
    pub(crate) fn has_credential_socket(&self) -> bool {
        self.meta("credential") == "true"
    }

    /// Estimated memory in bytes, with that of its views.
    #[must_use]
    pub fn weight(&self) -> usize {
        const ENTRY: usize = 64;
        /// Values of the metadata are in the proxy and in views of it.
        const COPIES: usize = 2;
        let labels = ENTRY * (self.labels.len() + self.static_labels.len() + self.ips.len());
        let texts = self.id.len() + self.proxy_config.len() + COPIES * self.metadata.weight();
        size_of::<Self>() + labels + texts
    }

    /// True if an extension of a node is read; others need not be kept.
    #[must_use]
    pub fn reads_extension(name: &str) -> bool {
        name == ISTIO_EXTENSION || name == DUBBO_PROXY
    }

    /// True for a proxy of that version of Istio or a newer one, and for one whose version is unknown.
    #[must_use]
    pub fn is_since(&self, version: (u32, u32)) -> bool {
        let mut parts = self.meta("ISTIO_VERSION").split('.').map(|part| part.parse::<u32>().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(major), Some(minor)) => (major, minor) >= version,
            _ => true,
        }
    }

    /// True if it has an IPv4 address.
    #[must_use]
    pub fn ipv4(&self) -> bool {
        self.ips.iter().any(IpAddr::is_ipv4)
    }

    /// True if it has an IPv6 address.
    #[must_use]
    pub fn ipv6(&self) -> bool {
        self.ips.iter().any(IpAddr::is_ipv6)
    }
}

/// All of `INSTANCE_IPS` if every entry is valid, else the id's address.
fn addresses(instance_ips: &str, id_ip: &str) -> Result<Option<Vec<IpAddr>>, NodeError> {
    let count = instance_ips.split(',').count();
    if count > MAX_ADDRESSES {
        return Err(NodeError::TooManyAddresses(count));
    }
    let listed: Result<Vec<IpAddr>, _> =
        instance_ips.split(',').filter(|ip| !ip.is_empty()).map(|ip| ip.trim().parse()).collect();
    Ok(match listed {
        Ok(ips) if !ips.is_empty() => Some(ips),
        _ => id_ip.parse().ok().map(|ip| vec![ip]),
    })
}

type Texts = BTreeMap<String, String>;

/// `LABELS` with `STATIC_LABELS`, and `STATIC_LABELS` alone.
fn labels(metadata: Option<&Struct>) -> Result<(Texts, Texts), NodeError> {
    let mut labels = strings(metadata, "LABELS");
    let static_labels = strings(metadata, "STATIC_LABELS");
    labels.extend(static_labels.clone());
    if labels.len() > MAX_LABELS {
        return Err(NodeError::TooManyLabels(labels.len()));
    }
    Ok((labels, static_labels))
}

fn locality(node: &Node) -> Locality {
    node.locality.as_ref().map_or_else(Locality::default, |locality| Locality {
        region: locality.region.as_str().into(),
        zone: locality.zone.as_str().into(),
        sub_zone: locality.sub_zone.as_str().into(),
    })
}

/// A library that does not say what it is gets what istiod would send it.
fn refuses_least_request(user_agent: &str) -> bool {
    ["gRPC C-core", "gRPC Node"].iter().any(|library| user_agent.starts_with(library))
}

/// The plugins that a proxy can run, by what its node lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WasmSupport {
    /// True if it runs plugins of type HTTP.
    pub http: bool,
    /// True if it runs plugins of type NETWORK.
    pub network: bool,
}

impl WasmSupport {
    /// The filter and the runtime are needed. A node that lists no extensions has both if its metadata is
    /// Istio's.
    fn of(node: &Node, metadata: &BTreeMap<String, String>) -> Self {
        let lists = |name: &str| node.extensions.iter().any(|extension| extension.name == name);
        if node.extensions.is_empty() || lists(ISTIO_EXTENSION) {
            let all = has_istio_filters(node, metadata);
            return Self { http: all, network: all };
        }
        let has_runtime = lists("envoy.wasm.runtime.v8");
        Self {
            http: has_runtime && lists("envoy.filters.http.wasm"),
            network: has_runtime && lists("envoy.filters.network.wasm"),
        }
    }
}

/// Istio's filters are there if the node lists one of them, or, where it lists no extensions, if its metadata
/// is Istio's.
fn has_istio_filters(node: &Node, metadata: &BTreeMap<String, String>) -> bool {
    if node.extensions.is_empty() {
        return metadata.get("ISTIO_VERSION").is_some_and(|version| !version.is_empty());
    }
    node.extensions.iter().any(|extension| extension.name == ISTIO_EXTENSION)
}

fn scalars(metadata: Option<&Struct>) -> BTreeMap<String, String> {
    let fields = metadata.into_iter().flat_map(|metadata| &metadata.fields);
    fields.filter_map(|(key, value)| Some((key.clone(), scalar(value)?))).collect()
}

fn scalar(value: &Value) -> Option<String> {
    match value.kind.as_ref()? {
        ValueKind::StringValue(text) => Some(text.clone()),
        ValueKind::NumberValue(number) => Some(number.to_string()),
        ValueKind::BoolValue(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// The texts of a nested object, such as `LABELS`.
fn strings(metadata: Option<&Struct>, key: &str) -> BTreeMap<String, String> {
    let value = metadata.and_then(|metadata| metadata.fields.get(key)).and_then(|value| value.kind.as_ref());
    match value {
        Some(ValueKind::StructValue(inner)) => scalars(Some(inner)),
        _ => BTreeMap::new(),
    }
}

/// The service of its spans that an annotation of its Pod names (`ANNOTATIONS`).
fn span_service(metadata: Option<&Struct>) -> Arc<str> {
    let annotations = strings(metadata, "ANNOTATIONS");
    annotations.get("resource.opentelemetry.io/service.name").map(String::as_str).unwrap_or_default().into()
}

/// Returns the ports of a proxy's Pod from `POD_PORTS`. Unreadable text counts as none.
fn pod_ports(json: &str) -> Arc<[PodPort]> {
    let ports = read_pod_ports(json).unwrap_or_default();
    let port = |port: &serde_json::Value| {
        let text = |field: &str| port.get(field).and_then(|value| value.as_str()).unwrap_or_default();
        let number = u32::try_from(port.get("containerPort")?.as_u64()?).ok()?;
        Some(PodPort { name: text("name").into(), number, protocol: text("protocol").into() })
    };
    ports.iter().filter_map(port).take(MAX_POD_PORTS).collect()
}

fn read_pod_ports(json: &str) -> Result<Vec<serde_json::Value>, serde_json::Error> {
    if json.is_empty() { Ok(Vec::new()) } else { serde_json::from_str(json) }
}

fn proxy_config(metadata: Option<&Struct>) -> Arc<str> {
    let value = metadata.and_then(|metadata| metadata.fields.get("PROXY_CONFIG"));
    value.map_or_else(|| "".into(), |value| json(value).to_string().into())
}

/// A protobuf value as JSON.
fn json(value: &Value) -> serde_json::Value {
    match &value.kind {
        Some(ValueKind::StringValue(text)) => text.as_str().into(),
        Some(ValueKind::NumberValue(number)) => number_json(*number),
        Some(ValueKind::BoolValue(flag)) => (*flag).into(),
        Some(ValueKind::ListValue(list)) => list.values.iter().map(json).collect(),
        Some(ValueKind::StructValue(inner)) => {
            inner.fields.iter().map(|(key, value)| (key.clone(), json(value))).collect()
        }
        Some(ValueKind::NullValue(_)) | None => serde_json::Value::Null,
    }
}

/// Protobuf values have floating numbers only: whole ones are written as integers, for fields that are.
fn number_json(number: f64) -> serde_json::Value {
    #[allow(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
    let whole = (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64);
    whole.map_or_else(|| number.into(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_of_one_form() {
        let identity = Identity::parse("spiffe://cluster.local/ns/shop/sa/web").unwrap();
        assert_eq!((identity.namespace.as_str(), &*identity.service_account), ("shop", "web"));
        for wrong in
            ["", "spiffe://a/ns/b/sa/", "spiffe://a/ns/b/sa/c/d", "https://a/ns/b/sa/c", "spiffe://a/b/c/d/e"]
        {
            assert_eq!(Identity::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn one_identity_must_be_the_nodes() {
        let mut proxy =
            Proxy::from_node(&node("sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local")).unwrap();
        let (web, other) = ("spiffe://td/ns/shop/sa/web", "spiffe://td/ns/other/sa/web");
        let proven = |proxy: &Proxy, ids: &[&str]| {
            let proxy = proxy.clone().with_identities(ids.iter().copied()).map_err(|error| error.to_string());
            proxy.map(|proxy| proxy.identity.map(|identity| identity.service_account.to_string()))
        };
        assert_eq!(proven(&proxy, &[]), Ok(None), "a connection that proves nothing has no identity");
        assert_eq!(proven(&proxy, &["nobody", other, web]), Ok(Some("web".to_owned())));
        for wrong in [&["nobody"][..], &[other], &["spiffe://td/shop/web"]] {
            assert!(proven(&proxy, wrong).unwrap_err().contains(wrong[0]), "{wrong:?}");
        }
        proxy.metadata = Metadata::from([("SERVICE_ACCOUNT", "cart")]);
        assert!(proven(&proxy, &[web]).unwrap_err().contains("service account \"cart\""));
        assert_eq!(proven(&proxy, &[web, "spiffe://td/ns/shop/sa/cart"]), Ok(Some("cart".to_owned())));
    }

    fn node(id: &str) -> Node {
        Node { id: id.into(), ..Default::default() }
    }

    #[test]
    fn node_names_the_source_of_its_certificate() {
        let source = |metadata: &[(&str, &str)]| {
            let text = |text: &str| Value { kind: Some(ValueKind::StringValue(text.into())) };
            let fields = metadata.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect();
            let metadata = Some(Struct { fields });
            let node = Node { metadata, ..node("sidecar~10.0.0.1~a.b~c") };
            Proxy::from_node(&node).unwrap().certificate_source
        };
        let (agent, own) = (("ISTIO_VERSION", "1.31.0"), (CERTIFICATES_KEY, CERTIFICATES_OVER_ADS));
        assert_eq!(source(&[]), CertificateSource::Nobody);
        assert_eq!(source(&[agent]), CertificateSource::Agent);
        assert_eq!(source(&[own]), CertificateSource::ControlPlane);
        assert_eq!(source(&[agent, own]), CertificateSource::ControlPlane);
        assert_eq!(source(&[(CERTIFICATES_KEY, "files")]), CertificateSource::Nobody);
    }

    #[test]
    fn a_node_id_has_four_parts() {
        let proxy = Proxy::from_node(&node("sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local")).unwrap();
        assert_eq!(
            (proxy.kind, &*proxy.name, proxy.namespace.as_str()),
            (ProxyKind::Sidecar, "web-0", "shop")
        );
        assert!(!proxy.istio_filters && proxy.ipv4() && !proxy.ipv6());
        assert_eq!(Proxy::from_node(&node("")), Err(NodeError::NoId));
        assert!(matches!(Proxy::from_node(&node("a~b")), Err(NodeError::Format(_))));
        assert!(matches!(Proxy::from_node(&node("ztunnel~10.0.0.1~a.b~c")), Err(NodeError::Kind(_))));
        assert!(matches!(Proxy::from_node(&node("sidecar~x~a.b~c")), Err(NodeError::NoAddress(_))));
    }

    #[test]
    fn addresses_and_labels_are_limited() {
        let text = |text: String| Value { kind: Some(ValueKind::StringValue(text)) };
        let read = |addresses: usize, labels: usize| {
            let ips: Vec<_> = (0..addresses).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
            let labels = (0..labels).map(|n| (n.to_string(), text("x".into()))).collect();
            let labels = Value { kind: Some(ValueKind::StructValue(Struct { fields: labels })) };
            let fields =
                [("INSTANCE_IPS".to_owned(), text(ips.join(","))), ("LABELS".to_owned(), labels)].into();
            let metadata = Some(Struct { fields });
            Proxy::from_node(&Node { metadata, ..node("sidecar~10.0.0.1~a.b~c") })
                .map(|proxy| proxy.ips.len())
        };
        assert_eq!(read(MAX_ADDRESSES, MAX_LABELS), Ok(MAX_ADDRESSES));
        assert_eq!(read(MAX_ADDRESSES + 1, 0), Err(NodeError::TooManyAddresses(MAX_ADDRESSES + 1)));
        assert_eq!(read(1, MAX_LABELS + 1), Err(NodeError::TooManyLabels(MAX_LABELS + 1)));
    }
}
