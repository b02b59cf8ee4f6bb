//! Services and instances of a product, in terms of the model but with the product's own texts.

use pilotfish_model::{DubboInterface, HealthStatus, Locality, Namespace, NetworkId, Resolution, SpiffeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Service as described by a product. Texts are the product's own; the catalog derives host names and labels
/// from them.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogService {
    /// Name in the product, unique in the registry. Changes, logs and provenance refer to it.
    pub id: Arc<str>,
    /// Host name, as mapped from the product's names.
    pub host: String,
    pub namespace: Namespace,
    /// Labels of the service.
    pub labels: BTreeMap<String, String>,
    /// Ports that the service itself declares. The ports of its instances are added.
    pub ports: Vec<CatalogPort>,
    /// Virtual IP addresses of the service.
    pub addresses: Vec<String>,
    /// True for a service outside the mesh.
    pub mesh_external: bool,
    /// Resolution of endpoints by clients. [`Resolution::ClientSideLB`] becomes DNS if an instance has a host
    /// name as address.
    pub resolution: Resolution,
    /// Dubbo interface of the service.
    pub dubbo: Option<Arc<DubboInterface>>,
    pub instances: Vec<CatalogInstance>,
}

/// Port that clients connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogPort {
    pub number: u32,
    /// Name in the product.
    pub name: Option<String>,
    /// Protocol in the product: one of Istio's names or `dubbo`; others are ignored. Without one, the
    /// protocol is inferred from the name, then from the number, then from the option `protocol`.
    pub protocol: Option<String>,
}

/// Instance of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogInstance {
    /// Name in the product, unique in the service.
    pub id: Arc<str>,
    /// IP addresses, the primary one first, or one host name.
    pub addresses: Vec<String>,
    /// Ports. An instance without any has no endpoint.
    pub ports: Vec<InstancePort>,
    /// Labels, by which subsets select.
    pub labels: BTreeMap<String, String>,
    pub locality: Locality,
    /// Network; empty if unknown.
    pub network: NetworkId,
    /// Relative weight; 0 if unset.
    pub weight: u32,
    /// Health. Unhealthy instances are kept with that state, and are not sent to proxies.
    pub health: HealthStatus,
    /// Node of the instance; empty if unknown.
    pub node: String,
    /// Name of the workload, for telemetry; empty for the id of the service.
    pub workload_name: String,
    /// Name of the service account; empty for none.
    pub service_account: String,
    /// Identity in the certificate of the instance, if the product knows it.
    pub identity: Option<SpiffeId>,
}

/// Port of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstancePort {
    /// Port of the service that is routed to this one. The option `port` overrides its number for the first
    /// port of each instance.
    pub service: CatalogPort,
    /// Port number at which the instance listens.
    pub number: u32,
}

impl CatalogService {
    /// Returns a service in the mesh without labels, ports, addresses and instances.
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
    /// Returns a healthy instance at an address, without ports and labels.
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

    /// Adds a port to which clients connect by the number at which the instance listens.
    #[must_use]
    pub fn with_port(mut self, number: u32, protocol: Option<&str>) -> Self {
        let service = CatalogPort { number, name: None, protocol: protocol.map(str::to_owned) };
        self.ports.push(InstancePort { service, number });
        self
    }
}
