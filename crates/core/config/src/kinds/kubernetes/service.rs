//! Service: a name, an address and ports for some pods.

use super::no_annotations;
use crate::kinds::message::{kind, message};
use crate::{IntOrString, Unread};
use pilotfish_model::{Labels, ObjectMeta};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

kind!(Service = Service;);

message! {
pub struct Service {
    pub spec: ServiceSpec,
    pub status: ServiceStatus,
}

/// `status` of a Service or an Ingress.
pub struct ServiceStatus {
    pub load_balancer: LoadBalancerStatus,
}

/// The addresses that a load balancer got.
pub struct LoadBalancerStatus {
    pub ingress: Vec<LoadBalancerIngress>,
}

/// One such address: an IP or a host name.
pub struct LoadBalancerIngress {
    pub ip: String,
    pub hostname: String,
}
}

/// `spec` of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    pub r#type: ServiceType,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// Begins with `cluster_ip` when that is set.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<String>,
    pub external_name: String,
    pub ports: Vec<ServicePort>,
    pub selector: Labels,
    pub internal_traffic_policy: TrafficPolicy,
    pub external_traffic_policy: TrafficPolicy,
    pub publish_not_ready_addresses: bool,
    /// As written: other values than the known ones are skipped by the registry.
    pub traffic_distribution: Option<String>,
    pub ip_families: Vec<String>,
    pub ip_family_policy: String,
    pub session_affinity: Unread,
    pub session_affinity_config: Unread,
    #[serde(rename = "loadBalancerIP")]
    pub load_balancer_ip: Unread,
    pub load_balancer_source_ranges: Unread,
    pub load_balancer_class: Unread,
    pub allocate_load_balancer_node_ports: Unread,
    pub health_check_node_port: Unread,
}

/// True if an annotation of a Service is read: those of Istio are, and those of the sync with
/// Polaris.
fn is_read(key: &str) -> bool {
    key.split('/').next().is_some_and(|domain| domain.ends_with("istio.io") || domain == "polarismesh.cn")
}

impl ServiceSpec {
    /// True for a headless service (`clusterIP: None`).
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.cluster_ip == "None"
    }
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    pub name: String,
    pub protocol: TransportProtocol,
    pub port: u16,
    /// The API server fills in `port` where nothing is written; `complete` does the same.
    pub target_port: IntOrString,
    pub node_port: u16,
    /// `Some("")` is different from absent.
    pub app_protocol: Option<String>,
}

impl Default for ServicePort {
    fn default() -> Self {
        Self {
            name: String::new(),
            protocol: TransportProtocol::Tcp,
            port: 0,
            target_port: IntOrString::Int(0),
            node_port: 0,
            app_protocol: None,
        }
    }
}

/// The kind of Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum ServiceType {
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

impl ServiceType {
    /// The type as written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
            Self::ExternalName => "ExternalName",
        }
    }
}

/// Scope of a Service's endpoints: the whole cluster, or the client's node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum TrafficPolicy {
    #[default]
    Cluster,
    Local,
}

/// TCP, UDP or SCTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TransportProtocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

impl Service {
    /// Drops unused fields: annotations of others (tools keep whole objects there), IP families.
    pub(crate) fn compact(&mut self, meta: &mut ObjectMeta) {
        if meta.annotations.keys().any(|key| !is_read(key)) {
            let read = meta.annotations.iter().filter(|(key, _)| is_read(key));
            let read: BTreeMap<_, _> = read.map(|(key, value)| (key.clone(), value.clone())).collect();
            meta.annotations = Arc::new(read);
        }
        if meta.annotations.is_empty() {
            meta.annotations = no_annotations();
        }
        meta.uid = Arc::default();
        let spec = &mut self.spec;
        (spec.ip_families, spec.ip_family_policy) = (Vec::new(), String::new());
        spec.ports.shrink_to_fit();
        spec.cluster_ips.shrink_to_fit();
    }

    /// Applies the API server's defaults that depend on other fields.
    pub(crate) fn complete(&mut self) {
        let spec = &mut self.spec;
        if spec.cluster_ip.is_empty() {
            if let Some(first) = spec.cluster_ips.first() {
                spec.cluster_ip.clone_from(first);
            }
        } else if spec.cluster_ips.is_empty() {
            spec.cluster_ips.push(spec.cluster_ip.clone());
        }
        for port in &mut spec.ports {
            let unset = match &port.target_port {
                IntOrString::Int(number) => *number == 0,
                IntOrString::String(name) => name.is_empty(),
            };
            if unset {
                port.target_port = IntOrString::Int(i32::from(port.port));
            }
        }
    }
}
