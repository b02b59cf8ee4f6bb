//! Addresses of a Gateway or ListenerSet: its services, their ports and their external addresses.

use crate::engine::{Cx, Query};
use crate::routing::gateway_api::gateways;
use crate::routing::gateway_api::owners::{ListenerOwner, owner_of_set};
use pilotfish_config::gateway_api::{Gateway, GatewayAddress};
use pilotfish_model::{ClusterId, Hostname, Kind, Namespace, ObjectKey, PortId, Service, ServiceKey};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Query for the addresses of a Gateway or ListenerSet. Separate, because it reads endpoints, with which its
/// result rarely changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReachOf {
    pub(super) owner: ObjectKey,
    pub(super) cluster: ClusterId,
}

/// Services and addresses of a Gateway, for the ports of the listeners.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reach {
    /// `HOST:PORT` of the services that have endpoints.
    pub(super) serving: Vec<String>,
    /// External addresses of the services, or else their hosts.
    pub(super) addresses: Vec<GatewayAddress>,
    /// Messages about missing services, endpoints and addresses.
    pub(super) missing: Vec<String>,
    /// True if nothing is missing except external addresses that may still be assigned.
    pub(super) is_pending: bool,
}

impl Query for ReachOf {
    type Output = Reach;

    fn compute(&self, cx: &Cx<'_>) -> Reach {
        let ObjectKey { kind, namespace, name } = &self.owner;
        let owner = match kind {
            Kind::ListenerSet => owner_of_set(cx, &self.owner),
            _ => cx.object::<Gateway>(namespace, name).map(ListenerOwner::from),
        };
        let Some(owner) = owner else { return Reach::default() };
        // Listeners of other protocols have a condition of their own.
        let is_stream = |protocol: &str| matches!(protocol, "HTTP" | "HTTPS" | "TLS" | "TCP");
        let served = owner.listeners().filter(|listener| is_stream(&listener.protocol));
        let ports: BTreeSet<u16> = served.map(|listener| listener.port).collect();
        let mut reach = Reach::default();
        let mut outside = BTreeSet::new();
        let mut inside = BTreeSet::new();
        let mut is_broken = false;
        for host in gateways::services(&owner.gateway, cx.domain()) {
            let Some((key, service)) = service(cx, owner.gateway.namespace(), &host) else {
                reach.missing.push(format!("there is no service {host}"));
                is_broken = true;
                continue;
            };
            let broken = serve(cx, &key, &service, &ports, &mut reach);
            is_broken |= broken;
            inside.insert(host.to_string());
            let attributes = service.kubernetes.as_ref();
            let found = attributes.and_then(|attributes| attributes.external_addresses.get(&self.cluster));
            outside.extend(found.iter().flat_map(|found| found.iter()).map(ToString::to_string));
            let balances = attributes.is_some_and(|attributes| &*attributes.service_type == "LoadBalancer");
            if balances && found.is_none_or(|found| found.is_empty()) {
                reach.missing.push(format!("service {host} has no address outside yet"));
            }
        }
        let addresses = if outside.is_empty() { inside } else { outside };
        reach.addresses = addresses.into_iter().map(address).collect();
        reach.is_pending = !is_broken && !reach.missing.is_empty();
        reach
    }
}

/// Returns the service of a host: of the Gateway's own namespace, or else of any.
fn service(cx: &Cx<'_>, own: &Namespace, host: &Hostname) -> Option<(ServiceKey, Arc<Service>)> {
    let others = cx.namespaces_of(host);
    let namespaces = std::iter::once(own).chain(others.iter());
    namespaces
        .map(|namespace| ServiceKey { hostname: host.clone(), namespace: namespace.clone() })
        .find_map(|key| Some((key.clone(), cx.services_of(&key)?.first()?.clone())))
}

/// Adds the ports of a service that have endpoints. Returns true if a port is missing.
fn serve(cx: &Cx<'_>, key: &ServiceKey, service: &Service, ports: &BTreeSet<u16>, reach: &mut Reach) -> bool {
    let host = &key.hostname;
    let mut is_broken = false;
    let endpoints = cx.endpoints_of(key);
    for number in ports {
        let Some(port) = service.port(PortId::tcp((*number).into())) else {
            let known: Vec<String> = service.tcp_ports().map(|port| port.number.to_string()).collect();
            let known = known.join(", ");
            reach.missing.push(format!(
                "service {host} has no port {number} (hint: listeners name ports of the service, which are \
                 {known})"
            ));
            is_broken = true;
            continue;
        };
        let has_endpoint = endpoints
            .as_ref()
            .is_some_and(|all| all.iter().any(|endpoint| endpoint.service_port == port.name));
        if has_endpoint {
            reach.serving.push(format!("{host}:{number}"));
        } else {
            reach.missing.push(format!("port {number} of service {host} has no endpoints"));
            is_broken = true;
        }
    }
    is_broken
}

fn address(value: String) -> GatewayAddress {
    let is_ip = value.parse::<IpAddr>().is_ok();
    GatewayAddress { r#type: if is_ip { "IPAddress" } else { "Hostname" }.to_owned(), value }
}
