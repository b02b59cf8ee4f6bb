//! GatewayClass, Gateway and ListenerSet.

use super::{ObjectReference, SecretObjectReference};
use crate::kinds::message::{kind, message};
use crate::{LabelSelector, Unread};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

kind! {
    GatewayClass = GatewayClass;
    Gateway = KubernetesGateway;
    ListenerSet = ListenerSet;
}

message! {
/// A class of Gateways.
pub struct GatewayClass {
    pub spec: GatewayClassSpec,
}

/// `spec` of a GatewayClass.
pub struct GatewayClassSpec {
    pub controller_name: String,
    pub parameters_ref: Option<ObjectReference>,
    pub description: Unread,
}

/// Listeners, and the routes that they accept.
pub struct Gateway {
    pub spec: GatewaySpec,
    pub status: GatewayStatus,
}

/// `spec` of a Gateway.
pub struct GatewaySpec {
    pub gateway_class_name: String,
    pub listeners: Vec<Listener>,
    pub addresses: Vec<GatewayAddress>,
    pub infrastructure: Option<GatewayInfrastructure>,
    pub tls: Option<GatewayTls>,
    pub allowed_listeners: Option<AllowedListeners>,
    pub default_scope: Unread,
    /// Deprecated form of `tls.backend`.
    #[serde(rename = "backendTLS")]
    pub backend_tls: Unread,
}

/// TLS of the Gateway as a whole.
pub struct GatewayTls {
    pub backend: Option<GatewayBackendTls>,
    pub frontend: Option<FrontendTls>,
}

/// Client certificate of the Gateway towards backends.
pub struct GatewayBackendTls {
    pub client_certificate_ref: Option<SecretObjectReference>,
}

/// Validation of client certificates: default, and overrides by port.
pub struct FrontendTls {
    pub default: Option<FrontendTlsSettings>,
    pub per_port: Vec<FrontendTlsPort>,
}

/// Validation of client certificates on one port.
pub struct FrontendTlsPort {
    pub port: u16,
    pub tls: Option<FrontendTlsSettings>,
}

/// Validation of client certificates; `None` requests no certificate.
pub struct FrontendTlsSettings {
    pub validation: Option<FrontendTlsValidation>,
}

/// Authorities that client certificates are checked against.
pub struct FrontendTlsValidation {
    pub ca_certificate_refs: Vec<ObjectReference>,
    pub mode: FrontendValidationMode,
}

/// ListenerSets that a Gateway accepts.
pub struct AllowedListeners {
    pub namespaces: ListenerNamespaces,
}

/// Labels and annotations of the resources that are created for the Gateway.
pub struct GatewayInfrastructure {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub parameters_ref: Option<ObjectReference>,
}

/// `status` of a Gateway.
pub struct GatewayStatus {
    pub addresses: Vec<GatewayAddress>,
}

/// Further listeners of a Gateway.
pub struct ListenerSet {
    pub spec: ListenerSetSpec,
}

/// `spec` of a ListenerSet.
pub struct ListenerSetSpec {
    pub parent_ref: ParentGatewayReference,
    pub listeners: Vec<Listener>,
}

/// A port, a protocol and a host.
pub struct Listener {
    pub name: String,
    pub hostname: Option<String>,
    pub port: u16,
    pub protocol: String,
    pub tls: Option<ListenerTls>,
    pub allowed_routes: AllowedRoutes,
}

/// TLS of a listener.
pub struct ListenerTls {
    pub mode: TlsMode,
    pub certificate_refs: Vec<SecretObjectReference>,
    pub frontend_validation: Option<FrontendTlsValidation>,
    pub options: BTreeMap<String, String>,
}

/// Namespaces and kinds of routes that may attach to a listener.
pub struct AllowedRoutes {
    pub namespaces: RouteNamespaces,
    pub kinds: Vec<RouteGroupKind>,
}

/// Namespaces whose routes may attach; `selector` counts with `from: Selector`.
pub struct RouteNamespaces {
    pub from: FromNamespaces,
    pub selector: Option<LabelSelector>,
}
}

/// Namespaces whose ListenerSets are accepted; none by default.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ListenerNamespaces {
    pub from: FromNamespaces,
    pub selector: Option<LabelSelector>,
}

impl Default for ListenerNamespaces {
    fn default() -> Self {
        Self { from: FromNamespaces::None, selector: None }
    }
}

/// The Gateway of a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ParentGatewayReference {
    pub group: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

impl Default for ParentGatewayReference {
    fn default() -> Self {
        let (group, kind) = (super::GROUP.to_owned(), "Gateway".to_owned());
        Self { group, kind, namespace: None, name: String::new() }
    }
}

/// A kind of routes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RouteGroupKind {
    pub group: String,
    pub kind: String,
}

impl Default for RouteGroupKind {
    fn default() -> Self {
        Self { group: super::GROUP.to_owned(), kind: String::new() }
    }
}

/// Address of a Gateway; `type` defaults to `IPAddress`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct GatewayAddress {
    pub r#type: String,
    pub value: String,
}

impl Default for GatewayAddress {
    fn default() -> Self {
        Self { r#type: "IPAddress".to_owned(), value: String::new() }
    }
}

/// TLS mode of a listener: decryption, or forwarding by SNI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum TlsMode {
    #[default]
    Terminate,
    Passthrough,
}

/// Handling of clients without a valid certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum FrontendValidationMode {
    #[default]
    AllowValidOnly,
    AllowInsecureFallback,
}

/// Namespaces of accepted routes or ListenerSets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum FromNamespaces {
    All,
    Selector,
    #[default]
    Same,
    None,
}

impl ListenerSet {
    /// Port of a listener, defaulting to 80 or 443 for HTTP and HTTPS; 0 for none.
    #[must_use]
    pub fn port_of(listener: &Listener) -> u16 {
        match (listener.port, listener.protocol.as_str()) {
            (0, "HTTP") => 80,
            (0, "HTTPS") => 443,
            (port, _) => port,
        }
    }
}
