//! Services: host names with ports, and the discovery of their endpoints. Endpoints are stored separately.

use crate::{ClusterId, Endpoint, Hostname, Labels, Namespace, Origin, Protocol, Provider, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Endpoint discovery of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Resolution {
    /// The control plane lists the endpoints (EDS).
    ClientSideLB,
    /// The proxy resolves names; all addresses are endpoints (strict DNS).
    DNSLB,
    /// The proxy resolves one name and uses one address at a time (logical DNS).
    DNSRoundRobin,
    /// The proxy connects to the client's destination (original destination).
    Passthrough,
    /// Alias of another service (`ExternalName`).
    Alias,
    /// A wildcard host that is resolved for each request (dynamic forward proxy).
    DynamicDns,
}

impl Resolution {
    /// Name in JSON views, which tools read: stays the same when a variant is renamed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientSideLB => "ClientSideLB",
            Self::DNSLB => "DNSLB",
            Self::DNSRoundRobin => "DNSRoundRobin",
            Self::Passthrough => "Passthrough",
            Self::Alias => "Alias",
            Self::DynamicDns => "DynamicDns",
        }
    }

    /// Name in `resolution` of ServiceEntries, which has none for aliases.
    #[must_use]
    pub fn istio_name(self) -> &'static str {
        match self {
            Self::ClientSideLB => "STATIC",
            Self::DNSLB => "DNS",
            Self::DNSRoundRobin => "DNS_ROUND_ROBIN",
            Self::Passthrough => "NONE",
            Self::Alias => "ALIAS",
            Self::DynamicDns => "DYNAMIC_DNS",
        }
    }
}

/// Port of a workload that a service port forwards to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum TargetPort {
    Number(u32),
    /// Name of a container port, looked up in each workload.
    Name(Arc<str>),
}

/// Identity of a port within a service: TCP and UDP ports with one number are two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct PortId {
    /// Port number that clients connect to.
    pub number: u32,
    /// TCP or UDP, by the protocol of the port.
    pub transport: Transport,
}

impl PortId {
    #[must_use]
    pub fn tcp(number: u32) -> Self {
        Self { number, transport: Transport::Tcp }
    }
}

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Port {
    /// Port number that clients connect to.
    pub number: u32,
    /// Name that endpoints refer to.
    pub name: Arc<str>,
    pub protocol: Protocol,
    /// Port on a workload; `None` for the same number.
    pub target_port: Option<TargetPort>,
}

impl Port {
    /// Identity of the port within its service.
    #[must_use]
    pub fn id(&self) -> PortId {
        PortId { number: self.number, transport: self.protocol.transport() }
    }

    /// True for ports that proxies forward.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.protocol.transport() == Transport::Tcp
    }
}

/// Addresses of a service by cluster: a service in two clusters has different addresses in each.
pub type ClusterAddresses = BTreeMap<ClusterId, Arc<[Arc<str>]>>;

/// Node ports of a service in one cluster, by its TCP port numbers.
pub type NodePorts = BTreeMap<u32, u32>;

/// Namespaces that a service or a rule is visible to (`exportTo`).
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash, serde::Serialize, serde::Deserialize)]
pub enum ExportTo {
    /// Unset: the mesh-wide default applies.
    #[default]
    Unset,
    /// All namespaces (`*`, regardless of other entries).
    Public,
    Nobody,
    /// These namespaces, shared by the hosts of an object; `.` was replaced by the object's own.
    Namespaces(Arc<BTreeSet<Namespace>>),
}

impl ExportTo {
    /// Returns the visibility in these namespaces alone.
    pub fn namespaces(namespaces: impl IntoIterator<Item = impl Into<Namespace>>) -> Self {
        Self::Namespaces(Arc::new(namespaces.into_iter().map(Into::into).collect()))
    }

    /// Parses a list. `.` means `own`; `~` wins over names, `*` over everything.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>, own: &Namespace) -> Self {
        let mut namespaces = BTreeSet::new();
        let mut nobody = false;
        for entry in entries.into_iter().map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry {
                "*" => return Self::Public,
                "~" => nobody = true,
                "." => {
                    namespaces.insert(own.clone());
                }
                other => {
                    namespaces.insert(other.into());
                }
            }
        }
        match (nobody, namespaces.is_empty()) {
            (true, _) => Self::Nobody,
            (false, true) => Self::Unset,
            (false, false) => Self::Namespaces(namespaces.into()),
        }
    }

    /// True if it is visible to `namespace`; `default` (the mesh-wide setting) applies if it is unset.
    #[must_use]
    pub fn visible_to(&self, namespace: &Namespace, default: &Self) -> bool {
        match self {
            Self::Unset if *default == Self::Unset => true,
            Self::Unset => default.visible_to(namespace, &Self::Unset),
            Self::Public => true,
            Self::Nobody => false,
            Self::Namespaces(namespaces) => namespaces.contains(namespace),
        }
    }
}

/// Preferred endpoints of a client (`spec.trafficDistribution` and Istio's annotation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash, serde::Serialize, serde::Deserialize)]
pub enum TrafficDistribution {
    #[default]
    Any,
    /// Prefers endpoints in the same zone.
    PreferSameZone,
    /// Prefers endpoints on the same node.
    PreferSameNode,
}

/// Rule by which a proxy finds the services of its workload, which determine its inbound listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum InboundBy {
    /// Its selector matches the workload's labels, in the workload's cluster and namespace. A service without
    /// selector matches if it has an endpoint at the workload's address in that cluster.
    Selector,
    /// It has an endpoint at the workload's address, in the workload's namespace.
    Address,
}

/// A Kubernetes Service in a cluster where it differs from the one that clients use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ServiceVariant {
    pub ports: Arc<[Port]>,
    /// Labels of the workloads that it selects there.
    pub selector: Labels,
}

/// Attributes of Kubernetes Services only.
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash, serde::Serialize, serde::Deserialize)]
pub struct KubernetesAttributes {
    pub service_type: Arc<str>,
    /// `spec.externalName` of a Service with [`Resolution::Alias`].
    pub external_name: Option<Arc<str>>,
    /// Load balancer addresses and `externalIPs`, by cluster; names are not resolved.
    pub external_addresses: ClusterAddresses,
    /// Node ports by cluster, if the service is reached through nodes.
    pub node_ports: BTreeMap<ClusterId, NodePorts>,
    /// `internalTrafficPolicy: Local`: only endpoints of the client's own node.
    pub node_local: bool,
    /// `spec.publishNotReadyAddresses`: endpoints that are not ready are used, too.
    pub publish_not_ready: bool,
    /// Clusters whose endpoints are sent to clients of the same cluster only: those without a ServiceExport,
    /// if these are required.
    pub confined: BTreeSet<ClusterId>,
    /// Clusters whose endpoints are confined in this way for the host below `clusterset.local`, which
    /// represents the Service in all clusters.
    pub confined_in_clusterset: BTreeSet<ClusterId>,
    /// Clusters with another selector or other ports: these apply to workloads there, not to clients.
    pub variants: BTreeMap<ClusterId, ServiceVariant>,
}

/// Dubbo interface of a service: proxies find the service of a call by it, not by address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct DubboInterface {
    /// Full name, with capitals.
    pub interface: Arc<str>,
    /// Group; empty for none.
    pub group: Arc<str>,
    /// Version; empty for none.
    pub version: Arc<str>,
}

/// A service as seen by clients.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Service {
    pub hostname: Hostname,
    /// Namespace that defines it.
    pub namespace: Namespace,
    /// Short name: that of the Kubernetes Service; for a ServiceEntry, the host as written, as in Istio.
    pub name: Arc<str>,
    /// Name of the object: differs from `name` for ServiceEntries.
    pub object_name: Arc<str>,
    /// Type of its registry: its rank decides which service of a host wins.
    pub provider: Provider,
    /// Rule by which a proxy finds that its workload serves this service.
    pub inbound: InboundBy,
    /// True if clients also know it as `NAME.NAMESPACE`: in DNS tables and in names of statistics.
    pub has_short_name: bool,
    /// True if clients connect to its endpoints directly, by their own names and addresses, and with
    /// [`Resolution::Passthrough`] the control plane knows all of them (a Kubernetes Service with `clusterIP:
    /// None`).
    pub headless: bool,
    /// True if `service_accounts` are the names in its servers' certificates for any TLS, and not only for
    /// the mesh's.
    pub names_for_tls: bool,
    /// Endpoint discovery of clients.
    pub resolution: Resolution,
    /// Ports in the order written.
    pub ports: Arc<[Port]>,
    /// Virtual addresses by cluster (`clusterIPs`); empty for ServiceEntries.
    pub addresses: ClusterAddresses,
    /// Address for clients of clusters without an own one: an IP, a CIDR, or `0.0.0.0` for none.
    pub default_address: Arc<str>,
    /// Automatically allocated addresses: IPv4 and IPv6, each empty for none.
    pub auto_addresses: [Arc<str>; 2],
    /// True if these are stored in the status of the object; false if they are computed from the name.
    pub auto_addresses_stored: bool,
    /// True if it is outside the mesh (no mTLS, no endpoints with identity).
    pub mesh_external: bool,
    pub export_to: ExportTo,
    /// Names of the ServiceEntries that it is built from, if the entries of its host have different
    /// `exportTo`; otherwise empty.
    pub entries: BTreeSet<Arc<str>>,
    pub labels: Labels,
    /// Labels of the selected workloads; an empty selector selects nothing for Kubernetes Services.
    pub selector: Labels,
    /// SPIFFE identities or other subject alternative names of its endpoints, as declared by the service
    /// itself.
    pub service_accounts: Arc<[Arc<str>]>,
    /// Preferred endpoints of clients.
    pub traffic_distribution: TrafficDistribution,
    /// DNS: connect to the first address that answers (`istio.io/connect-strategy`).
    pub race_first_tcp_connect: bool,
    /// Attributes of Dubbo services only.
    pub dubbo: Option<Arc<DubboInterface>>,
    /// Attributes of Kubernetes Services only.
    pub kubernetes: Option<Arc<KubernetesAttributes>>,
    /// Creation time in seconds since the epoch; the oldest wins conflicts.
    pub created: i64,
    pub provenance: Origin,
}

/// Key of a service: several namespaces may define one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ServiceKey {
    pub hostname: Hostname,
    /// Namespace that defines it.
    pub namespace: Namespace,
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.hostname)
    }
}

impl Service {
    /// Key of the service in a world.
    #[must_use]
    pub fn key(&self) -> ServiceKey {
        ServiceKey { hostname: self.hostname.clone(), namespace: self.namespace.clone() }
    }

    /// A service of a registry without objects, with common defaults: the control plane lists its endpoints,
    /// it has no address of its own, is part of the mesh and visible to all, and proxies find it by the
    /// addresses of its endpoints. A registry with more data sets the fields.
    #[must_use]
    pub fn registered(
        provider: Provider,
        hostname: Hostname,
        namespace: impl Into<Namespace>,
        ports: impl Into<Arc<[Port]>>,
        provenance: Origin,
    ) -> Self {
        Self {
            name: hostname.text(),
            object_name: hostname.text(),
            hostname,
            namespace: namespace.into(),
            provider,
            inbound: InboundBy::Address,
            has_short_name: false,
            headless: false,
            names_for_tls: false,
            resolution: Resolution::ClientSideLB,
            ports: ports.into(),
            addresses: ClusterAddresses::new(),
            default_address: Self::UNSPECIFIED.into(),
            auto_addresses: [Arc::default(), Arc::default()],
            auto_addresses_stored: false,
            dubbo: None,
            mesh_external: false,
            export_to: ExportTo::Unset,
            entries: BTreeSet::new(),
            labels: Labels::default(),
            selector: Labels::default(),
            service_accounts: Arc::default(),
            traffic_distribution: TrafficDistribution::Any,
            race_first_tcp_connect: false,
            kubernetes: None,
            created: 0,
            provenance,
        }
    }

    /// Address that means "no address of its own".
    pub const UNSPECIFIED: &'static str = "0.0.0.0";

    /// Host as written, which is part of its clusters' names, as in Istio: hosts of ServiceEntries may have
    /// capitals. Names of clusters use this text of the one service that the client sees; everything else
    /// compares hosts in lower case.
    #[must_use]
    pub fn written_host(&self) -> &Arc<str> {
        let is_host = self.name.eq_ignore_ascii_case(self.hostname.as_str());
        if is_host { &self.name } else { self.hostname.shared() }
    }

    /// Port with that number and transport protocol.
    #[must_use]
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.iter().find(|port| port.id() == id)
    }

    /// Ports that proxies forward, in the order written.
    pub fn tcp_ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| port.is_tcp())
    }

    /// The only TCP port; `None` if there are none or several.
    #[must_use]
    pub fn only_tcp_port(&self) -> Option<&Port> {
        let mut ports = self.tcp_ports();
        ports.next().filter(|_| ports.next().is_none())
    }

    #[must_use]
    pub fn port_named(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| &*port.name == name)
    }

    /// False for endpoints of ServiceEntries of its host that it is not built from.
    #[must_use]
    pub fn has_endpoint(&self, endpoint: &Endpoint) -> bool {
        endpoint.is_of(&self.entries)
    }

    /// Selector and ports of the service in a cluster; `None` if it has no addresses there.
    #[must_use]
    pub fn in_cluster(&self, cluster: &ClusterId) -> Option<(&Labels, &Arc<[Port]>)> {
        if !self.addresses.contains_key(cluster) {
            return None;
        }
        let variant = self.kubernetes.as_ref().and_then(|kubernetes| kubernetes.variants.get(cluster));
        Some(match variant {
            Some(variant) => (&variant.selector, &variant.ports),
            None => (&self.selector, &self.ports),
        })
    }

    /// Order of precedence, the first one wins: age, then short name, then namespace.
    #[must_use]
    pub fn precedence(&self) -> (i64, &str, &str) {
        (self.created, &self.name, self.namespace.as_str())
    }
}
