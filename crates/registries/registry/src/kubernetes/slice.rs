//! Conversion of EndpointSlices to endpoints of the model.

use super::pod::Context;
use crate::labels;
use crate::links::Name;
use crate::pool::Pool;
use pilotfish_config::kubernetes::{self, AddressType, EndpointConditions, EndpointSlice};
use pilotfish_model::{
    Endpoint, EndpointAttributes, HealthStatus, LabelMap, Labels, Locality, Namespace, NetworkId, Origin,
    Service, Typed, Workload,
};
use std::cmp::Reverse;
use std::sync::Arc;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MULTICLUSTER_SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";

/// Returns the Service of a slice; `None` for slices that are ignored: without a Service, managed by an
/// implementation of multi-cluster services, or with names instead of addresses.
pub(super) fn owner(object: &Typed<EndpointSlice>) -> Option<Name> {
    let labels = &object.meta().labels;
    let counts = object.address_type != AddressType::Fqdn && !labels.contains_key(MULTICLUSTER_SERVICE_NAME);
    let name = labels.get(SERVICE_NAME).filter(|name| counts && !name.is_empty())?;
    Some(Name::new(object.namespace().clone(), name))
}

/// Reference of a slice's endpoint to its Pod.
pub(super) enum PodLink {
    /// Name of the Pod.
    Name(Name),
    /// No reference: the Pod in the slice's namespace with this address counts.
    Address(Name),
    /// Reference to an object other than a Pod.
    Nothing,
}

/// Returns the reference of a slice's endpoint to its Pod.
pub(super) fn pod_link(endpoint: &kubernetes::Endpoint, namespace: &Namespace) -> PodLink {
    match (&endpoint.target_ref, endpoint.addresses.first()) {
        (Some(target), _) if target.kind == "Pod" => {
            let in_namespace = if target.namespace.is_empty() {
                namespace.clone()
            } else {
                target.namespace.as_str().into()
            };
            PodLink::Name(Name::new(in_namespace, target.name.as_str()))
        }
        (None, Some(address)) => PodLink::Address(Name::new(namespace.clone(), address.clone())),
        _ => PodLink::Nothing,
    }
}

/// Finds the Pod of a reference. `Err` if a named Pod does not exist (yet): its endpoint waits for it.
pub(super) type FindPod<'a> = dyn Fn(&PodLink) -> Result<Option<Arc<Workload>>, ()> + 'a;

/// Values that endpoints of slices share with others.
pub(super) struct Shared<'a> {
    /// Previous endpoints of the slice.
    pub(super) before: &'a [Candidate],
    /// Pool of workloads' labels.
    pub(super) labels: &'a mut Pool<LabelMap>,
}

/// Endpoint of a slice, with its precedence among endpoints with the same address and port.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) endpoint: Arc<Endpoint>,
    pod: Option<Arc<Workload>>,
    terminating: bool,
}

impl Candidate {
    /// Returns the place of the endpoint in the Service: first address, and name of the service port.
    pub(super) fn place(&self) -> (&str, &Arc<str>) {
        (self.endpoint.address(), &self.endpoint.service_port)
    }

    /// Returns the sort key among the candidates of one place, of which the first is used. It is total except
    /// for equal endpoints, so the result does not depend on the order of slices and of endpoints in them. A
    /// reused address belongs to the newest Pod.
    fn precedence(&self) -> impl Ord + '_ {
        let health = match self.endpoint.health {
            HealthStatus::Healthy | HealthStatus::Unknown => 0,
            HealthStatus::Draining | HealthStatus::Deregistering => 1,
            HealthStatus::Unhealthy => 2,
            HealthStatus::Terminating => 3,
        };
        let pod = self.pod.as_ref().map(|pod| (Reverse(pod.created), &pod.key.name));
        (health, self.terminating, pod.is_none(), pod, &self.endpoint.attributes.provenance)
    }

    /// Returns the candidate with precedence.
    pub(super) fn better<'a>(&'a self, other: &'a Self) -> &'a Self {
        if other.precedence() < self.precedence() { other } else { self }
    }
}

/// Builds the endpoints of one slice: one for each endpoint and port.
pub(super) fn endpoints(
    object: &Typed<EndpointSlice>,
    service: &Service,
    context: &Context<'_>,
    find_pod: &FindPod<'_>,
    shared: Shared<'_>,
) -> Vec<Candidate> {
    let Shared { before, labels } = shared;
    let provenance = Origin::object(object.key().clone(), context.settings.cluster.clone());
    let sessions = &context.settings.persistent_session_labels;
    let persistent =
        sessions.iter().any(|label| service.labels.get(label).is_some_and(|value| !value.is_empty()));
    let two_families = context.settings.dual_stack
        && service.addresses.values().next().is_some_and(|addresses| addresses.len() > 1);
    // A port without a number stands for all ports, which no endpoint can have.
    let numbered =
        object.ports.iter().filter_map(|port| Some((port.name.as_str().into(), port.port?.into())));
    let ports: Vec<(Arc<str>, u32)> = numbered.collect();
    let mut built = Vec::with_capacity(object.endpoints.len() * ports.len());
    // Without Pods, all endpoints of a slice have equal backends.
    let mut last = before.first().map(|candidate| candidate.endpoint.attributes.clone());
    for endpoint in &object.endpoints {
        let Ok(pod) = find_pod(&pod_link(endpoint, object.namespace())) else { continue };
        let all: Arc<[Arc<str>]> = match &pod {
            Some(pod) if two_families && pod.addresses.len() > 1 => pod.addresses.clone(),
            _ => addresses(endpoint, pod.as_deref()),
        };
        let Some(first) = all.first() else { continue };
        let mut new = attributes(pod.as_deref(), first, &provenance, context);
        labels.share(&mut new.labels);
        let attributes = last.take().filter(|last| **last == new).unwrap_or_else(|| Arc::new(new));
        last = Some(attributes.clone());
        let health = labels::health(&attributes.labels, health(endpoint.conditions, persistent));
        let terminating =
            endpoint.conditions.terminating == Some(true) || pod.as_ref().is_some_and(|pod| pod.terminating);
        for (name, port) in &ports {
            let endpoint = Arc::new(Endpoint {
                addresses: all.clone(),
                port: *port,
                service_port: name.clone(),
                service_port_id: None,
                health,
                attributes: attributes.clone(),
            });
            built.push(Candidate { endpoint, pod: pod.clone(), terminating });
        }
    }
    built
}

/// Returns the addresses of an endpoint as written in its slice, shared with the Pod if they are equal.
fn addresses(endpoint: &kubernetes::Endpoint, pod: Option<&Workload>) -> Arc<[Arc<str>]> {
    match pod {
        Some(pod) if pod.addresses == endpoint.addresses => pod.addresses.clone(),
        _ => endpoint.addresses.clone(),
    }
}

/// Returns the attributes of a slice's endpoint, from its Pod if there is one.
fn attributes(
    pod: Option<&Workload>,
    address: &str,
    provenance: &Origin,
    context: &Context<'_>,
) -> EndpointAttributes {
    let cluster = &context.settings.cluster;
    if let Some(pod) = pod {
        return EndpointAttributes {
            network: network_of(pod, address, context),
            cluster: cluster.clone(),
            weight: 0,
            provenance: provenance.clone(),
            ..pod.endpoint_attributes()
        };
    }
    let network = context.network_of(address, &LabelMap::default());
    let labels =
        labels::augment(&Labels::default(), cluster, &Locality::default(), &Arc::default(), &network);
    EndpointAttributes { labels, network, ..EndpointAttributes::of(cluster.clone(), provenance.clone()) }
}

/// Returns the network of an endpoint of a Pod. A slice may list an address of a Pod other than its first,
/// which may be in another range of MeshNetworks.
fn network_of(pod: &Workload, address: &str, context: &Context<'_>) -> NetworkId {
    let by_range = pod.address() != address
        && context.cluster_network.is_empty()
        && context.networks.network_of(pod.address()) == pod.network;
    if by_range { context.networks.network_of(address) } else { pod.network.clone() }
}

/// Returns the health by the slice's conditions. A missing condition counts as true.
fn health(conditions: EndpointConditions, persistent_session: bool) -> HealthStatus {
    let yes = |condition: Option<bool>| condition.unwrap_or(true);
    match (yes(conditions.ready), yes(conditions.serving), yes(conditions.terminating)) {
        (true, _, _) => HealthStatus::Healthy,
        (false, true, true) if persistent_session => HealthStatus::Draining,
        (false, _, true) => HealthStatus::Terminating,
        (false, _, false) => HealthStatus::Unhealthy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_follows_the_conditions() {
        use HealthStatus::{Draining, Healthy, Terminating, Unhealthy};
        let (yes, no) = (Some(true), Some(false));
        let table = [
            (None, None, None, Healthy, Healthy),
            (yes, no, yes, Healthy, Healthy),
            (no, yes, yes, Terminating, Draining),
            (no, None, None, Terminating, Draining),
            (no, no, yes, Terminating, Terminating),
            (no, no, None, Terminating, Terminating),
            (no, yes, no, Unhealthy, Unhealthy),
            (no, no, no, Unhealthy, Unhealthy),
        ];
        for (ready, serving, terminating, plain, persistent) in table {
            let conditions = EndpointConditions { ready, serving, terminating };
            assert_eq!(health(conditions, false), plain, "{conditions:?}");
            assert_eq!(health(conditions, true), persistent, "{conditions:?}");
        }
    }
}
