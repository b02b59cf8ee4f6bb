//! Sidecar: visible services and listeners for the proxies of a namespace or of selected workloads.

use super::{ConnectionPoolSettings, Destination, LabelSelector, Port, ServerTlsSettings};
use crate::kinds::message::{enumeration, kind, message};

kind!(Sidecar = Sidecar;);

message! {
/// Scope and listeners of sidecar proxies.
pub struct Sidecar {
    pub workload_selector: Option<LabelSelector>,
    pub ingress: Vec<IstioIngressListener>,
    pub egress: Vec<IstioEgressListener>,
    pub inbound_connection_pool: Option<ConnectionPoolSettings>,
    pub outbound_traffic_policy: Option<OutboundTrafficPolicy>,
}

/// A port of the workload.
pub struct IstioIngressListener {
    pub port: Option<Port>,
    pub bind: String,
    pub capture_mode: CaptureMode,
    pub default_endpoint: String,
    pub tls: Option<ServerTlsSettings>,
    pub connection_pool: Option<ConnectionPoolSettings>,
}

/// Hosts that the workload may reach, over one port or over all.
pub struct IstioEgressListener {
    pub port: Option<Port>,
    pub bind: String,
    pub capture_mode: CaptureMode,
    pub hosts: Vec<String>,
}

/// Policy for traffic to hosts without a service.
pub struct OutboundTrafficPolicy {
    pub mode: OutboundTrafficPolicyMode,
    pub egress_proxy: Option<Destination>,
}
}

enumeration! {
/// Interception of the traffic of a listener.
pub enum CaptureMode {
    #[default]
    Default,
    Iptables,
    None,
}

/// Handling of traffic to hosts without a service.
pub enum OutboundTrafficPolicyMode {
    #[default]
    RegistryOnly,
    AllowAny,
}
}
