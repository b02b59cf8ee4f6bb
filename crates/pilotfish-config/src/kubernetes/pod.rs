//! Pod: a workload in a cluster.

use super::{TransportProtocol, no_annotations};
use crate::message::{kind, message};
use pilotfish_model::ObjectMeta;
use serde::{Deserialize, Serialize};

kind!(Pod = Pod;);

message! {
/// A pod.
pub struct Pod {
    pub spec: PodSpec,
    pub status: PodStatus,
    /// Whether `metadata.deletionTimestamp` is set.
    #[serde(skip)]
    pub deleting: bool,
}

/// `spec` of a Pod.
pub struct PodSpec {
    pub node_name: String,
    /// Empty when nothing is written; in a cluster an admission plugin then writes `default`.
    pub service_account_name: String,
    pub hostname: String,
    pub subdomain: String,
    pub host_network: bool,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
}

/// A container and its ports.
pub struct Container {
    pub name: String,
    pub ports: Vec<ContainerPort>,
    /// `Always` makes an init container a sidecar that keeps running.
    pub restart_policy: String,
}

/// A port of a container.
pub struct ContainerPort {
    pub name: String,
    pub container_port: u16,
    pub protocol: TransportProtocol,
}

/// `status` of a Pod.
pub struct PodStatus {
    pub phase: PodPhase,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// Begins with `pod_ip` when that is set.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    pub conditions: Vec<PodCondition>,
}

/// An address of a Pod.
pub struct PodIp {
    pub ip: String,
}

/// One condition, for example `Ready`.
pub struct PodCondition {
    pub r#type: String,
    pub status: String,
}
}

/// How far a Pod has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum PodPhase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Pod {
    /// Applies the API server's defaults that depend on other fields.
    pub(crate) fn complete(&mut self) {
        let status = &mut self.status;
        if status.pod_ip.is_empty() {
            if let Some(first) = status.pod_ips.first() {
                status.pod_ip.clone_from(&first.ip);
            }
        } else if status.pod_ips.is_empty() {
            status.pod_ips.push(PodIp { ip: status.pod_ip.clone() });
        }
    }

    /// Drops what nothing looks at: containers and ports without a name that a Service could mean, conditions but `Ready`.
    pub(crate) fn compact(&mut self, meta: &mut ObjectMeta) {
        meta.annotations = no_annotations();
        self.spec.init_containers.retain(|container| container.restart_policy == "Always");
        for containers in [&mut self.spec.containers, &mut self.spec.init_containers] {
            for container in containers.iter_mut() {
                container.name = String::new();
                container.ports.retain(|port| !port.name.is_empty());
                container.ports.shrink_to_fit();
            }
            containers.retain(|container| !container.ports.is_empty());
            containers.shrink_to_fit();
        }
        self.status.host_ip = String::new();
        self.status.pod_ips.shrink_to_fit();
        self.status.conditions.retain(|condition| condition.r#type == "Ready");
        self.status.conditions.shrink_to_fit();
    }

    /// Whether condition `name` is `True`.
    #[must_use]
    pub fn has_condition(&self, name: &str) -> bool {
        self.status.conditions.iter().any(|c| c.r#type == name && c.status == "True")
    }
}
