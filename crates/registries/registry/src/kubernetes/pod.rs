//! Pod to workload of the model.

use super::node::Nodes;
use crate::labels;
use crate::networks::Networks;
use crate::settings::RegistrySettings;
use pilotfish_config::kubernetes::{Pod, PodPhase, TransportProtocol};
use pilotfish_model::{
    LabelMap, Locality, NetworkId, ObjectMeta, Origin, SpiffeId, TlsMode, Typed, Workload, WorkloadKey,
    WorkloadKind,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Inputs of a Pod's conversion beside the Pod.
pub(super) struct Context<'a> {
    pub(super) settings: &'a RegistrySettings,
    pub(super) trust_domain: &'a str,
    pub(super) nodes: &'a Nodes,
    pub(super) networks: &'a Networks,
    /// Network of the whole cluster, by the label of the system namespace.
    pub(super) cluster_network: &'a NetworkId,
}

impl Context<'_> {
    /// Returns the network of an address: by the workload's label, else by the system namespace, else by
    /// MeshNetworks.
    pub(super) fn network_of(&self, address: &str, labels: &LabelMap) -> NetworkId {
        match labels.get(labels::NETWORK) {
            Some(network) if !network.is_empty() => network.into(),
            _ if !self.cluster_network.is_empty() => self.cluster_network.clone(),
            _ => self.networks.network_of(address),
        }
    }

    fn locality_of(&self, object: &Typed<Pod>) -> Locality {
        labels::locality(&object.meta().labels)
            .or_else(|| self.nodes.locality_of(&object.spec.node_name))
            .unwrap_or_default()
    }
}

/// True if endpoints may refer to the Pod. A failed Pod counts as deleted, as in Istio.
pub(super) fn exists(pod: &Pod) -> bool {
    pod.status.phase != PodPhase::Failed
}

pub(super) fn convert(object: &Typed<Pod>, context: &Context<'_>) -> Workload {
    let (meta, settings) = (object.meta(), context.settings);
    let addresses: Arc<[Arc<str>]> = object.status.pod_ips.iter().map(|ip| ip.ip.clone()).collect();
    let address = addresses.first().cloned().unwrap_or_default();
    let locality = context.locality_of(object);
    let network = context.network_of(&address, &meta.labels);
    let node: Arc<str> = context.nodes.shared_name(&object.spec.node_name);
    let node_addresses = context.nodes.external_addresses(&node);
    let ended = matches!(object.status.phase, PodPhase::Succeeded | PodPhase::Failed);
    // DNS has the host name of a Pod only below a sub-domain.
    let hostname: Arc<str> = match (object.spec.subdomain.is_empty(), object.spec.hostname.is_empty()) {
        (true, _) => Arc::default(),
        (false, true) => meta.key.name.clone(),
        (false, false) => object.spec.hostname.as_str().into(),
    };
    let account = object.spec.service_account_name.as_str();
    Workload {
        key: WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: meta.key.namespace.clone(),
            name: meta.key.name.clone(),
            cluster: settings.cluster.clone(),
        },
        addresses,
        ports: Arc::new(named_ports(object)),
        labels: labels::augment(&meta.labels, &settings.cluster, &locality, &node, &network),
        locality,
        network,
        weight: 0,
        service_account: labels::text(account),
        identity: Some(SpiffeId::new(context.trust_domain, meta.key.namespace.as_str(), account)),
        tls_mode: labels::tls_mode(&meta.labels).unwrap_or(TlsMode::Disabled),
        node,
        node_addresses,
        workload_name: workload_name(meta),
        hostname,
        sub_domain: labels::text(&object.spec.subdomain),
        host_network: object.spec.host_network,
        ready: !address.is_empty() && !ended && !object.deleting && object.ready,
        terminating: object.deleting,
        created: meta.created,
        provenance: Origin::object(meta.key.clone(), settings.cluster.clone()),
    }
}

/// Returns the named TCP ports of containers and sidecars; of two ports with one name the first counts.
fn named_ports(pod: &Pod) -> BTreeMap<Arc<str>, u32> {
    let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
    let mut ports = BTreeMap::new();
    for port in pod.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports) {
        if !port.name.is_empty() && port.protocol == TransportProtocol::Tcp {
            ports.entry(port.name.as_str().into()).or_insert_with(|| u32::from(port.container_port));
        }
    }
    ports
}

/// Returns the workload name of a Pod for telemetry: from a label, else derived from its owner.
fn workload_name(meta: &ObjectMeta) -> Arc<str> {
    if let Some(written) = meta.labels.get(labels::WORKLOAD_NAME).filter(|name| !name.is_empty()) {
        return written.into();
    }
    let Some((kind, owner)) = meta.owners.first() else { return meta.key.name.clone() };
    let label = |key: &str| meta.labels.get(key).filter(|value| !value.is_empty());
    let name = match kind.as_str() {
        // A Deployment's ReplicaSet is named after it, with a hash that the Pod carries too.
        "ReplicaSet" => label("pod-template-hash")
            .and_then(|hash| owner.strip_suffix(hash)?.strip_suffix('-'))
            .unwrap_or(owner),
        "ReplicationController" => label("deploymentconfig").unwrap_or(owner),
        "Job" => cron_job(owner).unwrap_or(owner),
        _ => owner,
    };
    name.into()
}

/// Returns the CronJob of a Job, whose name is that of the CronJob, a dash, and a time of 8 to 10 digits.
fn cron_job(job: &str) -> Option<&str> {
    let (name, time) = job.rsplit_once('-')?;
    let is_time = (8..=10).contains(&time.len()) && time.bytes().all(|c| c.is_ascii_digit());
    (is_time && !name.is_empty()).then_some(name)
}
