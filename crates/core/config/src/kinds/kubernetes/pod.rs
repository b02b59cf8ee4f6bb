//! Pod: a workload in a cluster.

use super::{TransportProtocol, trim};
use crate::kinds::message::{kind, message};
use pilotfish_model::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

kind!(Pod = Pod;);

message! {
pub struct Pod {
    pub spec: PodSpec,
    pub status: PodStatus,
    /// True if `metadata.deletionTimestamp` is set.
    #[serde(skip)]
    pub deleting: bool,
    /// True if condition `Ready` is `True`.
    #[serde(skip)]
    pub ready: bool,
}

/// `spec` of a Pod.
pub struct PodSpec {
    pub node_name: String,
    /// Service account; empty if not set, although an admission plugin of the cluster writes `default`.
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
    /// `Always` makes an init container a sidecar, which runs beside the others.
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
    /// Begins with `pod_ip` if that is set.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    pub conditions: Vec<PodCondition>,
}

/// An address of a Pod.
pub struct PodIp {
    pub ip: Arc<str>,
}

/// One condition, for example `Ready`.
pub struct PodCondition {
    pub r#type: String,
    pub status: String,
}
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum PodPhase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Container {
    /// True for an init container that runs beside the others (`restartPolicy: Always`).
    #[must_use]
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

impl Pod {
    /// Applies the API server's defaults that depend on other fields.
    pub(crate) fn complete(&mut self) {
        let status = &mut self.status;
        if status.pod_ip.is_empty() {
            if let Some(first) = status.pod_ips.first() {
                status.pod_ip = first.ip.to_string();
            }
        } else if status.pod_ips.is_empty() {
            status.pod_ips.push(PodIp { ip: status.pod_ip.as_str().into() });
        }
        self.ready = self.status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True");
    }

    /// Drops fields that are no longer needed: containers, except for named ports that a Service could refer
    /// to. The ports of all containers are merged into one container.
    pub(crate) fn compact(&mut self, meta: &mut ObjectMeta) {
        trim(meta);
        let spec = &mut self.spec;
        let containers = std::mem::take(&mut spec.containers).into_iter();
        let sidecars = std::mem::take(&mut spec.init_containers).into_iter().filter(Container::is_sidecar);
        let all = containers.chain(sidecars).flat_map(|container| container.ports);
        let ports: Vec<ContainerPort> = all.filter(|port| !port.name.is_empty()).collect();
        if !ports.is_empty() {
            let ports = ports.into_boxed_slice().into_vec();
            spec.containers = vec![Container { ports, ..Container::default() }];
        }
        let status = &mut self.status;
        (status.host_ip, status.pod_ip, status.conditions) = (String::new(), String::new(), Vec::new());
        status.pod_ips.shrink_to_fit();
    }
}
