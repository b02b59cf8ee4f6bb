//! What a product has, in words of the model but as the product wrote it.

use pilotfish_model::{DubboInterface, HealthStatus, Locality, Namespace, NetworkId, Resolution, SpiffeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A service as a product describes it. Texts are the product's own: the catalog makes host names and labels of them.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogService {
    /// The product's own name for it, unique in the registry: what changes, logs and provenance refer to.
    pub id: Arc<str>,
    /// The host name, as mapped from the product's names.
    pub host: String,
    /// The namespace.
    pub namespace: Namespace,
    /// Labels of the service.
    pub labels: BTreeMap<String, String>,
    /// Ports that the service itself declares. Those of its instances are added.
    pub ports: Vec<CatalogPort>,
    /// Virtual addresses.
    pub addresses: Vec<String>,
    /// Whether it lies outside the mesh.
    pub mesh_external: bool,
    /// How clients find its endpoints. [`Resolution::ClientSideLB`] becomes DNS where an instance has a name for an address.
    pub resolution: Resolution,
    /// The interface of Dubbo that it stands for.
    pub dubbo: Option<Arc<DubboInterface>>,
    /// All of its instances.
    pub instances: Vec<CatalogInstance>,
}

/// A port that clients connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogPort {
    /// The number.
    pub number: u32,
    /// The name, where the product has one.
    pub name: Option<String>,
    /// The protocol, as the product says it: Istio's names and `dubbo` count, others are no answer. Without one it is inferred from the name,
    /// then from the number, then by the option `protocol`.
    pub protocol: Option<String>,
}

/// One instance of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogInstance {
    /// The product's own name for it, unique in its service.
    pub id: Arc<str>,
    /// IP addresses, the primary one first, or one host name.
    pub addresses: Vec<String>,
    /// Its ports. An instance without any has no endpoint.
    pub ports: Vec<InstancePort>,
    /// Labels, which subsets select by.
    pub labels: BTreeMap<String, String>,
    /// Where it runs.
    pub locality: Locality,
    /// Its network; empty for not known.
    pub network: NetworkId,
    /// Relative weight; 0 for not set.
    pub weight: u32,
    /// Whether it can be used. What is not healthy stays, marked, and is sent to nobody.
    pub health: HealthStatus,
    /// The node that it runs on; empty for not known.
    pub node: String,
    /// The name of its workload, for telemetry; empty for that of the service.
    pub workload_name: String,
    /// The name of its service account; empty for none.
    pub service_account: String,
    /// The identity that its certificate carries, where the product knows it.
    pub identity: Option<SpiffeId>,
}

/// A port of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstancePort {
    /// The port of the service that leads here. The option `port` overrides its number for the first port of each instance.
    pub service: CatalogPort,
    /// Where the instance listens.
    pub number: u32,
}

impl CatalogService {
    /// A service in the mesh without labels, ports, addresses and instances.
    pub fn new(id: impl Into<Arc<str>>, host: impl Into<String>, namespace: impl Into<Namespace>) -> Self {
        Self {
            id: id.into(),
            host: host.into(),
            namespace: namespace.into(),
            labels: BTreeMap::new(),
            ports: Vec::new(),
            addresses: Vec::new(),
            mesh_external: false,
            resolution: Resolution::ClientSideLB,
            dubbo: None,
            instances: Vec::new(),
        }
    }
}

impl CatalogInstance {
    /// A healthy instance at an address, without ports and labels.
    pub fn new(id: impl Into<Arc<str>>, address: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            addresses: vec![address.into()],
            ports: Vec::new(),
            labels: BTreeMap::new(),
            locality: Locality::default(),
            network: NetworkId::default(),
            weight: 0,
            health: HealthStatus::Healthy,
            node: String::new(),
            workload_name: String::new(),
            service_account: String::new(),
            identity: None,
        }
    }

    /// The same with one more port, which clients connect to by the number at which the instance listens.
    #[must_use]
    pub fn with_port(mut self, number: u32, protocol: Option<&str>) -> Self {
        let service = CatalogPort { number, name: None, protocol: protocol.map(str::to_owned) };
        self.ports.push(InstancePort { service, number });
        self
    }
}
