//! Listener bindings: the service ports of an egress listener by port, and their addresses.

use crate::engine::{Cx, Query};
use crate::proxy::InterceptionMode;
use crate::scope::{Egress, EgressOf, ListenerServicesOf, Scope};
use crate::services::client_endpoints::client_endpoints;
use crate::xds::lds::view::OutboundView;
use pilotfish_config::networking::CaptureMode;
use pilotfish_model::{ClusterId, Port, Resolution, Service, ServiceKey, ShardKey};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A service at an address and port.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListenerBinding {
    pub(super) service: Arc<Service>,
    /// The listening port: of the service, or of the egress listener.
    pub(super) port: Port,
    /// Addresses, the primary one first; empty until it is placed.
    pub(super) binds: Vec<Arc<str>>,
    /// Ranges of the service that only a filter chain can match.
    pub(super) ranges: Vec<String>,
    /// True if the listener binds the port, instead of taking redirected connections.
    pub(super) bind_to_port: bool,
    /// True if the address is that of an endpoint to which clients connect directly.
    pub(super) direct: bool,
}

impl ListenerBinding {
    pub(super) fn bind(&self) -> &str {
        self.binds.first().map_or("", |bind| bind)
    }
}

/// The service ports of one egress listener by the port that is listened on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListenerBindingsOf(pub(super) Scope, pub(super) usize);

impl Query for ListenerBindingsOf {
    type Output = BTreeMap<u32, Vec<(Arc<Service>, Port)>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let Self(scope, index) = self;
        let mut out: Self::Output = BTreeMap::new();
        let egress = cx.get(&EgressOf(scope.clone()));
        let Some(egress) = egress.get(*index) else { return out };
        let services = cx.get(&ListenerServicesOf(scope.clone(), *index));
        for service in services.iter() {
            match &egress.port {
                Some(port) => {
                    let port = Port {
                        number: port.number,
                        name: port.name.clone(),
                        protocol: port.protocol,
                        target_port: None,
                    };
                    out.entry(port.number).or_default().push((service.clone(), port));
                }
                None => {
                    for port in service.tcp_ports() {
                        out.entry(port.number).or_default().push((service.clone(), port.clone()));
                    }
                }
            }
        }
        out
    }
}

/// The service ports of one egress listener on one port: unchanged when services on other ports change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListenerBindingsOn(pub(super) Scope, pub(super) usize, pub(super) u32);

impl Query for ListenerBindingsOn {
    type Output = Vec<(Arc<Service>, Port)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.get(&ListenerBindingsOf(self.0.clone(), self.1)).get(&self.2).cloned().unwrap_or_default()
    }
}

/// Determines the addresses of a service port on an egress listener, and passes one binding for each required
/// listener to the callback.
pub(super) fn place(
    cx: &Cx<'_>,
    view: &OutboundView,
    egress: &Egress,
    (service, port): &(Arc<Service>, Port),
    mut add: impl FnMut(&ListenerBinding),
) {
    let bind_to_port = binds_port(view, egress);
    let written = written_bind(view, egress, bind_to_port);
    if !may_bind(cx, view, written.first(), port, bind_to_port) {
        return;
    }
    let mut binding = ListenerBinding {
        service: service.clone(),
        port: port.clone(),
        binds: written,
        ranges: Vec::new(),
        bind_to_port,
        direct: false,
    };
    let streams = !port.protocol.is_http();
    let passthrough = service.resolution == Resolution::Passthrough
        && &*view.addresses.primary(service) == Service::UNSPECIFIED;
    let headless_in = view.addresses.headless_in(service);
    let by_endpoints = passthrough || headless_in.is_some();
    if egress.port.is_none() && binding.binds.is_empty() && streams && by_endpoints {
        let endpoints = cx.get(&DirectAddresses {
            service: service.key(),
            port: port.name.clone(),
            cluster: headless_in.cloned(),
            entries: service.entries.clone(),
        });
        let plain_entry =
            passthrough && !service.headless && endpoints.is_empty() && service.selector.is_empty();
        if !plain_entry {
            binding.direct = true;
            for addresses in endpoints.iter() {
                binding.binds.clone_from(addresses);
                add(&binding);
            }
            return;
        }
    }
    if binding.binds.is_empty() {
        find_bind(view, &mut binding);
    }
    add(&binding);
}

/// Returns true if listeners bind their ports, because no traffic is redirected to them.
fn binds_port(view: &OutboundView, egress: &Egress) -> bool {
    view.base.interception == InterceptionMode::None
        || egress.capture == CaptureMode::None
        || egress.bind.starts_with("unix://")
}

/// Returns the bind address in the Sidecar, or loopback if ports are bound.
fn written_bind(view: &OutboundView, egress: &Egress, bind_to_port: bool) -> Vec<Arc<str>> {
    if !egress.bind.is_empty() {
        return vec![egress.bind.clone()];
    }
    let loopbacks = if bind_to_port { view.base.families.loopbacks() } else { &[] };
    loopbacks.iter().map(|address| Arc::from(*address)).collect()
}

/// The service's own address for streams, the wildcard address for HTTP and for address ranges.
fn find_bind(view: &OutboundView, binding: &mut ListenerBinding) {
    let wildcards = || view.base.families.wildcards().iter().map(|w| Arc::from(*w)).collect();
    if binding.port.protocol.is_http() {
        binding.binds = wildcards();
        return;
    }
    let primary = view.addresses.primary(&binding.service);
    let extra = view.addresses.extra(&binding.service);
    if primary.contains('/') {
        binding.ranges = std::iter::once(&primary).chain(&extra).map(ToString::to_string).collect();
        binding.binds = wildcards();
    } else if &*primary == Service::UNSPECIFIED && !binding.service.headless {
        binding.binds = wildcards();
    } else {
        binding.binds = std::iter::once(primary).chain(extra).collect();
    }
}

/// Returns true if the proxy can bind the port, and the port is not reserved on the wildcard address.
fn may_bind(
    cx: &Cx<'_>,
    view: &OutboundView,
    bind: Option<&Arc<str>>,
    port: &Port,
    bind_to_port: bool,
) -> bool {
    if bind_to_port && view.unprivileged && (1..1024).contains(&port.number) {
        return false;
    }
    let on_wildcard = match bind {
        Some(bind) => view.base.families.wildcards().first().is_some_and(|wildcard| **bind == **wildcard),
        None => port.protocol.is_http(),
    };
    let mesh = cx.mesh();
    let own = [mesh.proxy_listen_port, mesh.proxy_inbound_listen_port];
    !on_wildcard
        || !(view.reserved.contains(&port.number)
            || own.iter().any(|own| u32::try_from(*own) == Ok(port.number)))
}

/// Query for the addresses of the endpoints of a service port to which clients connect directly, sorted,
/// regardless of health. With a cluster, only those of its shards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DirectAddresses {
    service: ServiceKey,
    /// The name of the port.
    port: Arc<str>,
    cluster: Option<ClusterId>,
    /// The ServiceEntries whose endpoints are included, if not all are.
    entries: BTreeSet<Arc<str>>,
}

impl Query for DirectAddresses {
    type Output = Vec<Vec<Arc<str>>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let Some(endpoints) = client_endpoints(cx, &self.service) else { return Vec::new() };
        let counts = |shard: &ShardKey| self.cluster.as_ref().is_none_or(|cluster| shard.cluster == *cluster);
        let shards = endpoints.shards.iter().filter(|(shard, _)| counts(shard));
        let on_port = shards
            .flat_map(|(_, list)| list.iter())
            .filter(|endpoint| endpoint.service_port == self.port && endpoint.is_of(&self.entries));
        // A listener needs an IP address; endpoints of ServiceEntries may have host names.
        let valid = on_port.filter(|endpoint| endpoint.address().parse::<IpAddr>().is_ok());
        let set: BTreeSet<Vec<Arc<str>>> = valid.map(|endpoint| endpoint.addresses.to_vec()).collect();
        set.into_iter().collect()
    }
}
