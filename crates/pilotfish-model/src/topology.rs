//! Labels in which workloads and endpoints carry where they are.

/// The region of a locality.
pub const REGION: &str = "topology.kubernetes.io/region";
/// The zone of a locality, within its region.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The sub-zone of a locality, within its zone; only Istio has it.
pub const SUB_ZONE: &str = "topology.istio.io/subzone";
/// The id of the network; endpoints of other networks are reached through gateways.
pub const NETWORK: &str = "topology.istio.io/network";
/// The id of the cluster.
pub const CLUSTER: &str = "topology.istio.io/cluster";
/// The node's host name, which is the node's name in most clusters.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
