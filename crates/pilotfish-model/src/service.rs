//! Services: a host name with ports, and how clients find its endpoints. No endpoints inside.

use crate::{ClusterId, Endpoint, Hostname, Labels, Namespace, Origin, Protocol, Provider, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How a client finds the endpoints of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Resolution {
    /// The control plane lists the endpoints (EDS).
    ClientSideLB,
    /// The proxy resolves names, all answers are endpoints (strict DNS).
    DNSLB,
    /// The proxy resolves one name and uses one answer at a time (logical DNS).
    DNSRoundRobin,
    /// The proxy connects where the client wanted to go (original destination).
    Passthrough,
    /// The name stands for another service (`ExternalName`).
    Alias,
    /// A wildcard host that is resolved for each request (dynamic forward proxy).
    DynamicDns,
}

impl Resolution {
    /// The name in JSON views, which tools read: it stays when a variant is renamed.
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

    /// The name as in `resolution` of ServiceEntries, which has none for aliases.
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

/// The port of a workload that a service port leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum TargetPort {
    /// A number.
    Number(u32),
    /// The name of a container port, looked up in each workload.
    Name(Arc<str>),
}

/// The identity of a port within a service: TCP and UDP ports of one number are two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct PortId {
    /// The number that clients connect to.
    pub number: u32,
    /// TCP or UDP, by the protocol of the port.
    pub transport: Transport,
}

impl PortId {
    /// The TCP port of that number.
    #[must_use]
    pub fn tcp(number: u32) -> Self {
        Self { number, transport: Transport::Tcp }
    }
}

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Port {
    /// The number that clients connect to.
    pub number: u32,
    /// The name; endpoints belong to a port by its name.
    pub name: Arc<str>,
    /// The application protocol.
    pub protocol: Protocol,
    /// Where the port leads on a workload. `None` when nothing was written: the same number.
    pub target_port: Option<TargetPort>,
}

impl Port {
    /// The identity of the port within its service.
    #[must_use]
    pub fn id(&self) -> PortId {
        PortId { number: self.number, transport: self.protocol.transport() }
    }

    /// True for ports that proxies carry.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.protocol.transport() == Transport::Tcp
    }
}

/// Addresses of a service by cluster: a service that exists in two clusters has other addresses in each.
pub type ClusterAddresses = BTreeMap<ClusterId, Arc<[Arc<str>]>>;

/// The node ports of a service by the numbers of its TCP ports, for one cluster.
pub type NodePorts = BTreeMap<u32, u32>;

/// To which namespaces a service or a rule is visible (`exportTo`).
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash, serde::Serialize, serde::Deserialize)]
pub enum ExportTo {
    /// Nothing was written: the mesh-wide default decides.
    #[default]
    Unset,
    /// Everyone (`*`, whatever else is listed).
    Public,
    /// Nobody (`~`).
    Nobody,
    /// These namespaces; `.` was replaced by the object's own.
    Namespaces(BTreeSet<Namespace>),
}

impl ExportTo {
    /// Reads a list as written. `.` means `own`; `~` wins over names, `*` over everything.
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
            (false, false) => Self::Namespaces(namespaces),
        }
    }

    /// Whether `namespace` may see it, where `default` (the mesh-wide setting) decides if nothing was written.
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

/// Which endpoints a client prefers (`spec.trafficDistribution` and Istio's annotation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash, serde::Serialize, serde::Deserialize)]
pub enum TrafficDistribution {
    /// No preference.
    #[default]
    Any,
    /// Same zone first.
    PreferSameZone,
    /// Same node first.
    PreferSameNode,
}

/// How a proxy finds the services that its workload serves, which decides its inbound listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum InboundBy {
    /// Its selector matches the workload's labels, in the workload's cluster and namespace; a service without selector
    /// serves where it has an endpoint at the workload's address in that cluster.
    Selector,
    /// It has an endpoint at the workload's address, in the workload's namespace.
    Address,
}

/// A Kubernetes Service as it is in another cluster than the one that counts for clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ServiceVariant {
    /// Its ports there.
    pub ports: Arc<[Port]>,
    /// Labels of the workloads that it selects there.
    pub selector: Labels,
}

/// What only Kubernetes Services have.
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash, serde::Serialize, serde::Deserialize)]
pub struct KubernetesAttributes {
    /// `spec.type`.
    pub service_type: Arc<str>,
    /// `spec.externalName`, for [`Resolution::Alias`].
    pub external_name: Option<Arc<str>>,
    /// Load balancer addresses and `externalIPs`, by cluster; names are not resolved here.
    pub external_addresses: ClusterAddresses,
    /// Node ports by cluster, where the service is reached through nodes.
    pub node_ports: BTreeMap<ClusterId, NodePorts>,
    /// `internalTrafficPolicy: Local`: only endpoints of the client's own node.
    pub node_local: bool,
    /// `publishNotReadyAddresses`.
    pub publish_not_ready: bool,
    /// Clusters whose endpoints are sent to clients of the same cluster only: where ServiceExports count, and there is none.
    pub confined: BTreeSet<ClusterId>,
    /// The same for the host below `clusterset.local` that stands for the Service in all clusters.
    pub confined_in_clusterset: BTreeSet<ClusterId>,
    /// Clusters in which its selector or ports are others: what counts there for workloads, not for clients.
    pub variants: BTreeMap<ClusterId, ServiceVariant>,
}

/// The interface of Dubbo that a service stands for: by it, and not by address, proxies find the service that a call is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct DubboInterface {
    /// The full name, with its capitals.
    pub interface: Arc<str>,
    /// The group; empty for none.
    pub group: Arc<str>,
    /// The version; empty for none.
    pub version: Arc<str>,
}

/// A service as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Service {
    /// The host name.
    pub hostname: Hostname,
    /// The namespace that it belongs to.
    pub namespace: Namespace,
    /// The short name: of the Kubernetes Service; of a ServiceEntry, the host itself as Istio has it, with the capitals that it was
    /// written with.
    pub name: Arc<str>,
    /// The object's name: differs from `name` for ServiceEntries.
    pub object_name: Arc<str>,
    /// The type of registry that it comes from: its rank decides which service of a host wins.
    pub provider: Provider,
    /// How a proxy finds out that its workload serves this service.
    pub inbound: InboundBy,
    /// Whether clients know it as `NAME.NAMESPACE` too: in DNS tables and in names of statistics.
    pub has_short_name: bool,
    /// Whether clients connect to its endpoints themselves, by the endpoints' own names and addresses, and with
    /// [`Resolution::Passthrough`] the control plane knows all of them (a Kubernetes Service with `clusterIP: None`).
    pub headless: bool,
    /// Whether `service_accounts` are the names in its servers' certificates for any TLS, and not only for the mesh's.
    pub names_for_tls: bool,
    /// How clients find its endpoints.
    pub resolution: Resolution,
    /// The ports, in the order written.
    pub ports: Arc<[Port]>,
    /// Virtual addresses by cluster (`clusterIPs`); empty for ServiceEntries.
    pub addresses: ClusterAddresses,
    /// The address for clients of clusters without an own one: an IP, a CIDR, or `0.0.0.0` for none.
    pub default_address: Arc<str>,
    /// Addresses that were allocated automatically: IPv4 and IPv6, each empty for none.
    pub auto_addresses: [Arc<str>; 2],
    /// Whether these are in the status of the object, for all to see, rather than computed here from the name.
    pub auto_addresses_stored: bool,
    /// Whether it lies outside the mesh (no mTLS, no endpoints with identity).
    pub mesh_external: bool,
    /// The namespaces that it is visible to.
    pub export_to: ExportTo,
    /// The names of the ServiceEntries that it is made of, where the entries of its host are not exported
    /// alike; else empty.
    pub entries: BTreeSet<Arc<str>>,
    /// Labels of the object.
    pub labels: Labels,
    /// Labels of the workloads that it selects; empty selects nothing for Kubernetes Services.
    pub selector: Labels,
    /// SPIFFE identities or other subject alternative names that its endpoints may have, as declared on the service itself.
    pub service_accounts: Arc<[Arc<str>]>,
    /// Which endpoints clients prefer.
    pub traffic_distribution: TrafficDistribution,
    /// DNS: connect to the first address that answers (`istio.io/connect-strategy`).
    pub race_first_tcp_connect: bool,
    /// What only services of Dubbo have.
    pub dubbo: Option<Arc<DubboInterface>>,
    /// What only Kubernetes Services have.
    pub kubernetes: Option<Arc<KubernetesAttributes>>,
    /// Creation time in seconds since the epoch; the oldest wins conflicts.
    pub created: i64,
    /// What made it.
    pub provenance: Origin,
}

impl Service {
    /// A service of a registry that has no objects, as most of them are: the control plane lists its endpoints, it has no address
    /// of its own, is part of the mesh and visible to all, and proxies find it by the addresses of its endpoints. A registry
    /// that knows more sets the fields.
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

    /// The text that stands for "no address of its own".
    pub const UNSPECIFIED: &'static str = "0.0.0.0";

    /// The host as it was written, which is what its clusters are called by, as in Istio: hosts of ServiceEntries may have capitals.
    /// Whoever names a cluster takes this text of the one service that the client sees; everything else compares hosts in small letters.
    #[must_use]
    pub fn written_host(&self) -> &Arc<str> {
        let is_host = self.name.eq_ignore_ascii_case(self.hostname.as_str());
        if is_host { &self.name } else { self.hostname.shared() }
    }

    /// The port of that number and transport protocol.
    #[must_use]
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.iter().find(|port| port.id() == id)
    }

    /// The ports that proxies carry, in the order written.
    pub fn tcp_ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| port.is_tcp())
    }

    /// The only TCP port; `None` when there are none or several.
    #[must_use]
    pub fn only_tcp_port(&self) -> Option<&Port> {
        let mut ports = self.tcp_ports();
        ports.next().filter(|_| ports.next().is_none())
    }

    /// The port of that name.
    #[must_use]
    pub fn port_named(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| &*port.name == name)
    }

    /// False for endpoints of ServiceEntries of its host that it is not made of.
    #[must_use]
    pub fn has_endpoint(&self, endpoint: &Endpoint) -> bool {
        endpoint.is_of(&self.entries)
    }

    /// The labels of the workloads that it selects in a cluster, and its ports there; `None` when it has no addresses in that
    /// cluster.
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

    /// The order in which the first one wins: age, then short name, then namespace.
    #[must_use]
    pub fn precedence(&self) -> (i64, &str, &str) {
        (self.created, &self.name, self.namespace.as_str())
    }
}
