//! EndpointSlice: addresses behind a Service.

use super::TransportProtocol;
use crate::message::{kind, message};
use serde::{Deserialize, Serialize};

kind!(EndpointSlice = EndpointSlice;);

message! {
/// Some endpoints with common ports. The Service is named by the label `kubernetes.io/service-name`.
pub struct EndpointSlice {
    pub address_type: AddressType,
    pub endpoints: Vec<Endpoint>,
    pub ports: Vec<EndpointPort>,
}

/// One endpoint.
pub struct Endpoint {
    pub addresses: Vec<String>,
    pub conditions: EndpointConditions,
    pub hostname: String,
    pub node_name: String,
    pub zone: String,
    pub target_ref: Option<ObjectReference>,
}

/// The state of an endpoint; absent counts as ready and serving.
#[derive(Copy)]
pub struct EndpointConditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

/// A port of every endpoint of the slice.
pub struct EndpointPort {
    pub name: String,
    pub protocol: TransportProtocol,
    pub port: Option<u16>,
    pub app_protocol: Option<String>,
}

/// The object behind something.
pub struct ObjectReference {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}
}

/// The kind of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum AddressType {
    #[default]
    IPv4,
    IPv6,
    #[serde(rename = "FQDN")]
    Fqdn,
}
