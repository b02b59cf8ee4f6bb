//! xDS messages for a load client and a broadcast server, declared by hand. Field numbers are those of
//! `envoy/service/discovery/v3` and `envoy/config`; unknown fields are skipped.

use std::collections::BTreeMap;

use bytes::Bytes;
use pilotfish_grpc_framing::Prefix;
use prost::Message;

/// Type URL of clusters.
pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Type URL of load assignments.
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Type URL of listeners.
pub const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Type URL of route configurations.
pub const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// Type URL of the HTTP filter whose configuration names a route configuration.
pub const HCM: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
/// Method path of delta ADS.
pub const DELTA_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// Message `google.protobuf.Any`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    /// Type URL of the value.
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// Message `google.rpc.Status`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Message `google.protobuf.Struct`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// Message `google.protobuf.Value`, without lists.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(oneof = "Kind", tags = "3, 5")]
    pub kind: Option<Kind>,
}

/// Kinds of [`Value`] in node metadata.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(message, tag = "5")]
    Struct(Struct),
}

/// Message `envoy.config.core.v3.Node`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Node id, in Istio's format for sidecars.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Service of the proxy.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// Metadata as sent by Istio's agent.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<Struct>,
    #[prost(message, optional, tag = "4")]
    pub locality: Option<Locality>,
    #[prost(string, tag = "6")]
    pub user_agent_name: String,
}

/// Message `envoy.config.core.v3.Locality`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct Locality {
    #[prost(string, tag = "1")]
    pub region: String,
    #[prost(string, tag = "2")]
    pub zone: String,
    #[prost(string, tag = "3")]
    pub sub_zone: String,
}

/// Message `envoy.service.discovery.v3.DeltaDiscoveryRequest`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct DeltaRequest {
    /// The proxy; in the first request only.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// Type URL of the resources.
    #[prost(string, tag = "2")]
    pub type_url: String,
    /// Names to subscribe to.
    #[prost(string, repeated, tag = "3")]
    pub subscribe: Vec<String>,
    /// Names to unsubscribe from.
    #[prost(string, repeated, tag = "4")]
    pub unsubscribe: Vec<String>,
    /// Versions of known resources, by name.
    #[prost(btree_map = "string, string", tag = "5")]
    pub initial_versions: BTreeMap<String, String>,
    /// Nonce of the acknowledged or refused response.
    #[prost(string, tag = "6")]
    pub response_nonce: String,
    /// Reason of a refusal.
    #[prost(message, optional, tag = "7")]
    pub error_detail: Option<RpcStatus>,
}

/// Message `envoy.service.discovery.v3.Resource`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(string, tag = "1")]
    pub version: String,
    /// Content of the resource.
    #[prost(message, optional, tag = "2")]
    pub resource: Option<Any>,
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Message `envoy.service.discovery.v3.DeltaDiscoveryResponse`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct DeltaResponse {
    /// Version of the whole set, for display.
    #[prost(string, tag = "1")]
    pub system_version_info: String,
    /// New and changed resources.
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Resource>,
    /// Type URL of the resources.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// Nonce for the ACK.
    #[prost(string, tag = "5")]
    pub nonce: String,
    /// Names of removed resources.
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
}

/// Fields of `envoy.config.cluster.v3.Cluster` that refer to a load assignment.
#[derive(Clone, PartialEq, Message)]
pub struct Cluster {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Discovery type; only [`Cluster::EDS`] is used.
    #[prost(int32, tag = "2")]
    pub discovery: i32,
    /// Configuration of EDS, for clusters of that type.
    #[prost(message, optional, tag = "3")]
    pub eds: Option<EdsConfig>,
    /// Timeout of connections to endpoints.
    #[prost(message, optional, tag = "4")]
    pub connect_timeout: Option<Seconds>,
}

impl Cluster {
    /// Value `EDS` of `Cluster.DiscoveryType`.
    pub const EDS: i32 = 3;
}

/// Message `google.protobuf.Duration`, in whole seconds.
#[derive(Clone, PartialEq, Message)]
pub struct Seconds {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

/// Message `Cluster.EdsClusterConfig`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct EdsConfig {
    /// Source; ADS in the messages of the broadcast servers.
    #[prost(message, optional, tag = "1")]
    pub source: Option<ConfigSource>,
    /// Name of the load assignment, if it is not the cluster's.
    #[prost(string, tag = "2")]
    pub service_name: String,
}

/// Message `envoy.config.core.v3.ConfigSource`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigSource {
    #[prost(message, optional, tag = "3")]
    pub ads: Option<Empty>,
    /// API version; 2 is v3.
    #[prost(int32, tag = "6")]
    pub resource_api_version: i32,
}

/// A message without fields.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// Fields of `envoy.config.listener.v3.Listener` that refer to route configurations.
#[derive(Clone, PartialEq, Message)]
pub struct Listener {
    #[prost(message, repeated, tag = "3")]
    pub chains: Vec<FilterChain>,
    /// Filter chain for connections that match no other.
    #[prost(message, optional, tag = "25")]
    pub default_chain: Option<FilterChain>,
}

/// Message `envoy.config.listener.v3.FilterChain`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct FilterChain {
    #[prost(message, repeated, tag = "3")]
    pub filters: Vec<Filter>,
}

/// Message `envoy.config.listener.v3.Filter`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct Filter {
    #[prost(message, optional, tag = "4")]
    pub config: Option<Any>,
}

/// Field of an HTTP connection manager that names its routes.
#[derive(Clone, PartialEq, Message)]
pub struct Hcm {
    #[prost(message, optional, tag = "3")]
    pub rds: Option<Rds>,
}

/// `Rds` of an HTTP connection manager.
#[derive(Clone, PartialEq, Message)]
pub struct Rds {
    /// Name of the route configuration.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// Message `envoy.config.endpoint.v3.ClusterLoadAssignment`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct LoadAssignment {
    #[prost(string, tag = "1")]
    pub cluster: String,
    #[prost(message, repeated, tag = "2")]
    pub localities: Vec<LocalityEndpoints>,
}

/// Message `envoy.config.endpoint.v3.LocalityLbEndpoints`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct LocalityEndpoints {
    #[prost(message, repeated, tag = "2")]
    pub endpoints: Vec<LbEndpoint>,
}

/// Message `envoy.config.endpoint.v3.LbEndpoint`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    pub endpoint: Option<Endpoint>,
}

/// Message `envoy.config.endpoint.v3.Endpoint`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct Endpoint {
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
}

/// Message `envoy.config.core.v3.Address`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct Address {
    /// IP address and port.
    #[prost(message, optional, tag = "1")]
    pub socket: Option<SocketAddress>,
}

/// Message `envoy.config.core.v3.SocketAddress`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub struct SocketAddress {
    #[prost(string, tag = "2")]
    pub address: String,
    #[prost(uint32, tag = "3")]
    pub port: u32,
}

/// Frames a message for gRPC: uncompressed, with its length.
#[must_use]
pub fn framed(message: &[u8]) -> Bytes {
    [&Prefix::uncompressed(message.len())[..], message].concat().into()
}

/// Iterates over the length-delimited fields of a message as (field number, bytes), without copying or
/// decoding. Ends at an error: the scanned messages have only such fields.
pub fn fields(mut message: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        if message.is_empty() {
            return None;
        }
        let key = prost::encoding::decode_varint(&mut message).ok()?;
        let length = usize::try_from(prost::encoding::decode_varint(&mut message).ok()?).ok()?;
        if key & 7 != 2 {
            return None;
        }
        let (field, rest) = message.split_at_checked(length)?;
        message = rest;
        Some((u32::try_from(key >> 3).ok()?, field))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_without_decoding() {
        let request = DeltaRequest {
            type_url: "t".into(),
            subscribe: vec!["a".into(), "b".into()],
            response_nonce: "n".into(),
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        let found: Vec<(u32, &[u8])> = fields(&bytes).collect();
        assert_eq!(found, [(2, &b"t"[..]), (3, b"a"), (3, b"b"), (6, b"n")]);
    }

    #[test]
    fn a_truncated_message_ends_the_scan() {
        assert_eq!(fields(&[0x12, 9, b'x']).count(), 0);
    }
}
