//! Labels with the location of workloads and endpoints.

/// Region of a locality.
pub const REGION: &str = "topology.kubernetes.io/region";
/// Zone of a locality, within its region.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Sub-zone of a locality, within its zone; only Istio has it.
pub const SUB_ZONE: &str = "topology.istio.io/subzone";
/// Network id; endpoints of other networks are reached through gateways.
pub const NETWORK: &str = "topology.istio.io/network";
/// Id of the cluster that an endpoint is in.
pub const CLUSTER: &str = "topology.istio.io/cluster";
/// Host name of the node, which is its name in most clusters.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
