//! The few xDS messages that a load client and a broadcast server need, declared by hand. Field numbers are those of
//! `envoy/service/discovery/v3` and `envoy/config`; unknown fields are skipped.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

/// Clusters.
pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Load assignments.
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Listeners.
pub const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Route configurations.
pub const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// The HTTP filter whose configuration names a route configuration.
pub const HCM: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
/// The path of delta ADS.
pub const DELTA_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    /// The type of the value.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    /// The gRPC code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// What went wrong.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
pub struct Struct {
    /// The fields by name.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// `google.protobuf.Value`, without lists.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    /// Its kind and content.
    #[prost(oneof = "Kind", tags = "3, 5")]
    pub kind: Option<Kind>,
}

/// The kinds of [`Value`] that node metadata needs.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// A string.
    #[prost(string, tag = "3")]
    Text(String),
    /// An object.
    #[prost(message, tag = "5")]
    Struct(Struct),
}

/// `envoy.config.core.v3.Node`.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// The id, in Istio's form for sidecars.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The service of the proxy.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// The metadata that Istio's agent sends of the proxy.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<Struct>,
    /// Where the proxy runs.
    #[prost(message, optional, tag = "4")]
    pub locality: Option<Locality>,
    /// The name of the client.
    #[prost(string, tag = "6")]
    pub user_agent_name: String,
}

/// `envoy.config.core.v3.Locality`.
#[derive(Clone, PartialEq, Message)]
pub struct Locality {
    /// The region.
    #[prost(string, tag = "1")]
    pub region: String,
    /// The zone in it.
    #[prost(string, tag = "2")]
    pub zone: String,
    /// The part of the zone.
    #[prost(string, tag = "3")]
    pub sub_zone: String,
}

/// `envoy.service.discovery.v3.DeltaDiscoveryRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct DeltaRequest {
    /// The proxy; in the first request only.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// The type URL of the resources.
    #[prost(string, tag = "2")]
    pub type_url: String,
    /// Names to subscribe to.
    #[prost(string, repeated, tag = "3")]
    pub subscribe: Vec<String>,
    /// Names to unsubscribe from.
    #[prost(string, repeated, tag = "4")]
    pub unsubscribe: Vec<String>,
    /// What the client holds already: versions by name.
    #[prost(btree_map = "string, string", tag = "5")]
    pub initial_versions: BTreeMap<String, String>,
    /// The nonce of the response that is acknowledged or refused.
    #[prost(string, tag = "6")]
    pub response_nonce: String,
    /// Why the response was refused.
    #[prost(message, optional, tag = "7")]
    pub error_detail: Option<RpcStatus>,
}

/// `envoy.service.discovery.v3.Resource`.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// The version of this resource.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Its content.
    #[prost(message, optional, tag = "2")]
    pub resource: Option<Any>,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// `envoy.service.discovery.v3.DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct DeltaResponse {
    /// The version of the whole set, for people.
    #[prost(string, tag = "1")]
    pub system_version_info: String,
    /// New and changed resources.
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Resource>,
    /// Their type.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// Repeated by the ACK.
    #[prost(string, tag = "5")]
    pub nonce: String,
    /// Names of resources that are gone.
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
}

/// The cluster names of `envoy.config.cluster.v3.Cluster` that lead to a load assignment.
#[derive(Clone, PartialEq, Message)]
pub struct Cluster {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The discovery type; [`Cluster::EDS`] is the one that matters.
    #[prost(int32, tag = "2")]
    pub discovery: i32,
    /// The configuration of EDS, for clusters of that type.
    #[prost(message, optional, tag = "3")]
    pub eds: Option<EdsConfig>,
    /// The time for connecting to an endpoint.
    #[prost(message, optional, tag = "4")]
    pub connect_timeout: Option<Seconds>,
}

impl Cluster {
    /// `DiscoveryType.EDS`.
    pub const EDS: i32 = 3;
}

/// `google.protobuf.Duration`, whole seconds.
#[derive(Clone, PartialEq, Message)]
pub struct Seconds {
    /// Seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

/// `Cluster.EdsClusterConfig`.
#[derive(Clone, PartialEq, Message)]
pub struct EdsConfig {
    /// The source; ADS in what the broadcast servers send.
    #[prost(message, optional, tag = "1")]
    pub source: Option<ConfigSource>,
    /// The name of the load assignment, where it is not the cluster's.
    #[prost(string, tag = "2")]
    pub service_name: String,
}

/// `envoy.config.core.v3.ConfigSource`.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigSource {
    /// ADS.
    #[prost(message, optional, tag = "3")]
    pub ads: Option<Empty>,
    /// The API version; 2 is v3.
    #[prost(int32, tag = "6")]
    pub resource_api_version: i32,
}

/// A message without fields.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// The parts of `envoy.config.listener.v3.Listener` that lead to route configurations.
#[derive(Clone, PartialEq, Message)]
pub struct Listener {
    /// The filter chains.
    #[prost(message, repeated, tag = "3")]
    pub chains: Vec<FilterChain>,
    /// The filter chain of what matches none.
    #[prost(message, optional, tag = "25")]
    pub default_chain: Option<FilterChain>,
}

/// `envoy.config.listener.v3.FilterChain`.
#[derive(Clone, PartialEq, Message)]
pub struct FilterChain {
    /// Network filters.
    #[prost(message, repeated, tag = "3")]
    pub filters: Vec<Filter>,
}

/// `envoy.config.listener.v3.Filter`.
#[derive(Clone, PartialEq, Message)]
pub struct Filter {
    /// The configuration.
    #[prost(message, optional, tag = "4")]
    pub config: Option<Any>,
}

/// The part of an HTTP connection manager that names its routes.
#[derive(Clone, PartialEq, Message)]
pub struct Hcm {
    /// Routes from RDS.
    #[prost(message, optional, tag = "3")]
    pub rds: Option<Rds>,
}

/// `Rds` of an HTTP connection manager.
#[derive(Clone, PartialEq, Message)]
pub struct Rds {
    /// The name of the route configuration.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// `envoy.config.endpoint.v3.ClusterLoadAssignment`.
#[derive(Clone, PartialEq, Message)]
pub struct LoadAssignment {
    /// The name.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// Endpoints by locality.
    #[prost(message, repeated, tag = "2")]
    pub localities: Vec<LocalityEndpoints>,
}

/// `envoy.config.endpoint.v3.LocalityLbEndpoints`.
#[derive(Clone, PartialEq, Message)]
pub struct LocalityEndpoints {
    /// The endpoints.
    #[prost(message, repeated, tag = "2")]
    pub endpoints: Vec<LbEndpoint>,
}

/// `envoy.config.endpoint.v3.LbEndpoint`.
#[derive(Clone, PartialEq, Message)]
pub struct LbEndpoint {
    /// The endpoint.
    #[prost(message, optional, tag = "1")]
    pub endpoint: Option<Endpoint>,
}

/// `envoy.config.endpoint.v3.Endpoint`.
#[derive(Clone, PartialEq, Message)]
pub struct Endpoint {
    /// Its address.
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
}

/// `envoy.config.core.v3.Address`.
#[derive(Clone, PartialEq, Message)]
pub struct Address {
    /// An IP address and port.
    #[prost(message, optional, tag = "1")]
    pub socket: Option<SocketAddress>,
}

/// `envoy.config.core.v3.SocketAddress`.
#[derive(Clone, PartialEq, Message)]
pub struct SocketAddress {
    /// The IP address.
    #[prost(string, tag = "2")]
    pub address: String,
    /// The port.
    #[prost(uint32, tag = "3")]
    pub port: u32,
}

/// A message as a gRPC frame: uncompressed, with its length.
///
/// # Panics
/// Never: messages here are far below 4 GiB.
#[must_use]
pub fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a message is below 4 GiB");
    let mut frame = Vec::with_capacity(message.len() + 5);
    frame.push(0);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    frame.into()
}

/// The length-delimited fields of a message, as (field number, bytes), without copies or decoding. An error ends it:
/// the messages that are scanned have only such fields.
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
