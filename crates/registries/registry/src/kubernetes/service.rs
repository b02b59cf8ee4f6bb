//! Conversion of Kubernetes Services to services of the model.

use super::exports::Confined;
use crate::labels;
use crate::settings::RegistrySettings;
use pilotfish_config::IntOrString;
use pilotfish_config::kubernetes::{self, ServicePort, ServiceType, TrafficPolicy, TransportProtocol};
use pilotfish_model::{
    ClusterAddresses, ExportTo, Hostname, HostnameError, InboundBy, KubernetesAttributes, NodePorts, Origin,
    Port, Protocol, Provider, Resolution, Service, SpiffeId, TargetPort, TrafficDistribution, Typed,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const NODE_SELECTOR: &str = "traffic.istio.io/nodeSelector";
const EXPORT_TO: &str = "networking.istio.io/exportTo";
const CANONICAL_ACCOUNTS: &str = "alpha.istio.io/canonical-serviceaccounts";
const KUBERNETES_ACCOUNTS: &str = "alpha.istio.io/kubernetes-serviceaccounts";

/// Inputs of a Service's conversion beside the Service.
pub(super) struct Context<'a> {
    pub(super) provider: Provider,
    pub(super) settings: &'a RegistrySettings,
    pub(super) trust_domain: &'a str,
    /// Traffic distribution annotation of the namespace.
    pub(super) namespace_distribution: Option<&'a str>,
    /// Hosts behind which its endpoints are hidden from other clusters.
    pub(super) confined: Confined,
}

/// Converts a Service to the model.
///
/// # Errors
/// When its name does not make a host name.
pub(super) fn convert(
    object: &Typed<kubernetes::Service>,
    context: &Context<'_>,
) -> Result<Service, HostnameError> {
    let (settings, meta, spec) = (context.settings, object.meta(), &object.spec);
    let namespace = object.namespace();
    let hostname = Hostname::of_kubernetes_service(object.name(), namespace.as_str(), &settings.domain)?;
    let alias = spec.r#type == ServiceType::ExternalName && !spec.external_name.is_empty();
    let resolution = match (spec.is_headless(), alias) {
        (true, _) => Resolution::Passthrough,
        (false, true) => Resolution::Alias,
        (false, false) => Resolution::ClientSideLB,
    };
    let addresses: Arc<[Arc<str>]> = match resolution {
        Resolution::ClientSideLB if !spec.cluster_ips.is_empty() => {
            spec.cluster_ips.iter().map(|address| address.as_str().into()).collect()
        }
        _ => Arc::from([Service::UNSPECIFIED.into()]),
    };
    let annotation = |key: &str| meta.annotations.get(key).map_or("", String::as_str);
    Ok(Service {
        hostname,
        namespace: namespace.clone(),
        name: meta.key.name.clone(),
        object_name: meta.key.name.clone(),
        provider: context.provider,
        inbound: InboundBy::Selector,
        has_short_name: true,
        headless: resolution == Resolution::Passthrough,
        names_for_tls: false,
        resolution,
        ports: ports(&spec.ports),
        default_address: addresses.first().cloned().unwrap_or_else(|| Service::UNSPECIFIED.into()),
        addresses: ClusterAddresses::from([(settings.cluster.clone(), addresses)]),
        auto_addresses: [Arc::default(), Arc::default()],
        auto_addresses_stored: false,
        dubbo: None,
        mesh_external: alias,
        export_to: ExportTo::parse(annotation(EXPORT_TO).split(','), namespace),
        entries: BTreeSet::new(),
        labels: meta.labels.clone(),
        selector: spec.selector.clone(),
        service_accounts: accounts(annotation, context.trust_domain, namespace.as_str()),
        traffic_distribution: distribution(object, context),
        race_first_tcp_connect: false,
        kubernetes: Some(Arc::new(attributes(object, context, alias))),
        created: meta.created,
        provenance: Origin::object(meta.key.clone(), settings.cluster.clone()),
    })
}

/// Returns the ports of a Service. Port 443 of SCTP is treated as TCP, as in Istio, unless there is port 443
/// of TCP.
fn ports(written: &[ServicePort]) -> Arc<[Port]> {
    let is_tcp = |other: &ServicePort| other.protocol == TransportProtocol::Tcp;
    let hidden = |port: &ServicePort| {
        port.protocol == TransportProtocol::Sctp
            && written.iter().any(|other| is_tcp(other) && other.port == port.port)
    };
    written.iter().filter(|port| !hidden(port)).map(port).collect()
}

fn port(port: &ServicePort) -> Port {
    let transport = match port.protocol {
        TransportProtocol::Tcp => "TCP",
        TransportProtocol::Udp => "UDP",
        TransportProtocol::Sctp => "SCTP",
    };
    let number = u32::from(port.port);
    let app_protocol = port.app_protocol.as_deref();
    Port {
        number,
        name: port.name.as_str().into(),
        protocol: Protocol::of_kubernetes_port(number, &port.name, transport, app_protocol),
        target_port: match &port.target_port {
            IntOrString::Int(number) => {
                u32::try_from(*number).ok().filter(|number| *number > 0).map(TargetPort::Number)
            }
            IntOrString::String(name) if name.is_empty() => None,
            IntOrString::String(name) => Some(TargetPort::Name(name.as_str().into())),
        },
    }
}

fn accounts<'a>(
    annotation: impl Fn(&str) -> &'a str,
    trust_domain: &str,
    namespace: &str,
) -> Arc<[Arc<str>]> {
    let listed = |key: &str| annotation(key).split(',').filter(|entry| !entry.is_empty());
    let canonical = listed(CANONICAL_ACCOUNTS).map(Arc::from);
    let kubernetes = listed(KUBERNETES_ACCOUNTS)
        .map(|name| SpiffeId::new(trust_domain, namespace, name.trim()).shared().clone());
    canonical.chain(kubernetes).collect()
}

fn distribution(object: &Typed<kubernetes::Service>, context: &Context<'_>) -> TrafficDistribution {
    match object.spec.traffic_distribution.as_deref() {
        Some("PreferClose" | "PreferSameZone") => TrafficDistribution::PreferSameZone,
        Some("PreferSameNode") => TrafficDistribution::PreferSameNode,
        _ => labels::traffic_distribution(&object.meta().annotations, context.namespace_distribution),
    }
}

fn attributes(
    object: &Typed<kubernetes::Service>,
    context: &Context<'_>,
    alias: bool,
) -> KubernetesAttributes {
    let (spec, settings) = (&object.spec, context.settings);
    let mut external: Vec<Arc<str>> = Vec::new();
    if spec.r#type == ServiceType::LoadBalancer {
        let ingress = object.status.load_balancer.ingress.iter();
        let addresses = ingress.map(|entry| if entry.ip.is_empty() { &entry.hostname } else { &entry.ip });
        external
            .extend(addresses.filter(|address| !address.is_empty()).map(|address| address.as_str().into()));
    }
    external.extend(spec.external_ips.iter().map(|address| address.as_str().into()));
    let through_nodes =
        spec.r#type == ServiceType::NodePort && object.meta().annotations.contains_key(NODE_SELECTOR);
    let node_ports: NodePorts = spec
        .ports
        .iter()
        .filter(|port| through_nodes && port.node_port > 0 && port.protocol == TransportProtocol::Tcp)
        .map(|port| (u32::from(port.port), u32::from(port.node_port)))
        .collect();
    let by_cluster = |empty: bool| (!empty).then(|| settings.cluster.clone());
    KubernetesAttributes {
        service_type: spec.r#type.as_str().into(),
        external_name: alias.then(|| spec.external_name.as_str().into()),
        external_addresses: by_cluster(external.is_empty())
            .map(|cluster| BTreeMap::from([(cluster, external.into())]))
            .unwrap_or_default(),
        node_ports: by_cluster(node_ports.is_empty())
            .map(|cluster| BTreeMap::from([(cluster, node_ports)]))
            .unwrap_or_default(),
        node_local: spec.internal_traffic_policy == TrafficPolicy::Local,
        publish_not_ready: spec.publish_not_ready_addresses,
        confined: context.confined.own.then(|| settings.cluster.clone()).into_iter().collect(),
        confined_in_clusterset: context
            .confined
            .clusterset
            .then(|| settings.cluster.clone())
            .into_iter()
            .collect(),
        variants: BTreeMap::new(),
    }
}
