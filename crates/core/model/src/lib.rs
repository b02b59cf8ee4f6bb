//! The model of Pilotfish: services, endpoints, workloads, configuration objects, and the immutable [`World`]
//! that holds them.
//!
//! Sources and registries produce these types, translation and xDS read them. The crate does not know the
//! network, wire formats, Kubernetes clients or async runtimes; it is plain data, so every rule on it can be
//! tested by calling a function.
//!
//! ```text
//! registries ── Update ──▶ WorldWriter ── Arc<World> + ChangeSet ──▶ translation
//! ```

mod cluster_domain;
mod endpoint;
mod labels;
mod names;
mod object;
mod protocol;
mod provider;
mod revision;
mod service;
mod special_address;
mod spiffe;
mod switches;
pub mod topology;
mod workload;
mod world;

pub use cluster_domain::{CLUSTER_SET, ClusterDomain};
pub use endpoint::{Endpoint, EndpointAttributes, HealthStatus, TlsMode};
pub use labels::{LabelMap, Labels, label_subset};
pub use names::{ClusterId, Hostname, HostnameError, Locality, Namespace, NetworkId};
pub use object::{Kind, KindSpec, Object, ObjectKey, ObjectMeta, Spec, Typed};
pub use protocol::{Protocol, Transport};
pub use provider::{ObjectRef, Origin, Provider, RegisteredId, ShardKey};
pub use revision::{REVISION_LABEL, Revision, TAG_LABEL};
pub use service::{
    ClusterAddresses, DubboInterface, ExportTo, InboundBy, KubernetesAttributes, NodePorts, Port, PortId,
    Resolution, Service, ServiceKey, ServiceVariant, TargetPort, TrafficDistribution,
};
pub use special_address::{SpecialAddress, destination_of};
pub use spiffe::{SpiffeId, SpiffeIdError};
pub use switches::Switches;
pub use workload::{Workload, WorkloadKey, WorkloadKind};
pub use world::{
    ChangeSet, Fact, NetworkGateway, SecretReader, ServiceEndpoints, Update, World, WorldWriter,
};
