//! EndpointSlice: addresses behind a Service.

use super::{TransportProtocol, trim};
use crate::Unread;
use crate::kinds::message::{kind, message};
use pilotfish_model::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

kind!(EndpointSlice = EndpointSlice;);

message! {
/// Endpoints with common ports. The label `kubernetes.io/service-name` names the Service.
pub struct EndpointSlice {
    pub address_type: AddressType,
    pub endpoints: Vec<Endpoint>,
    pub ports: Vec<EndpointPort>,
}

pub struct Endpoint {
    pub addresses: Arc<[Arc<str>]>,
    pub conditions: EndpointConditions,
    pub target_ref: Option<ObjectReference>,
    pub hostname: Unread,
    pub node_name: Unread,
    pub zone: Unread,
    pub hints: Unread,
    pub deprecated_topology: Unread,
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

/// Object that an endpoint represents.
pub struct ObjectReference {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub api_version: Unread,
    pub uid: Unread,
    pub resource_version: Unread,
    pub field_path: Unread,
}
}

impl EndpointSlice {
    /// Drops unused fields. A reference without a namespace is one to the slice's own.
    pub(crate) fn compact(&mut self, meta: &mut ObjectMeta) {
        trim(meta);
        for endpoint in &mut self.endpoints {
            let own = endpoint.target_ref.as_mut().filter(|target| meta.key.namespace == *target.namespace);
            if let Some(target) = own {
                target.namespace = String::new();
            }
        }
        self.endpoints.shrink_to_fit();
        self.ports.shrink_to_fit();
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
