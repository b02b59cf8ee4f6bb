//! The clusters for the ports of the proxy's own workload.

use super::connection_pool;
use super::draft::{self, Draft};
use super::finish::finish;
use super::fixed::own_source;
use super::names::stat_name;
use super::view::InboundClusters;
use crate::engine::{Cx, EncodedResource};
use crate::envoy::metadata::{config_path, list, text};
use crate::envoy::stat_name::Names;
use crate::envoy::{TrafficClass, inbound_name};
use crate::policy::destination_rule::{DestinationRulesFor, MergedDestinationRule, Policy};
use crate::proxy::IpFamilies;
use crate::proxy::targets::Target;
use crate::scope::ServiceIn;
use pilotfish_config::mesh::InboundTrafficPolicyMode;
use pilotfish_config::networking::{ConnectionPoolSettings, Sidecar};
use pilotfish_model::{ClusterId, Kind, ObjectKey, Origin, Port, Protocol, ServiceKey};
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::cluster::v3::cluster::{DiscoveryType, LbPolicy};
use pilotfish_proto::envoy::config::core::v3::{Address, Pipe, SocketAddress, address, socket_address};
use pilotfish_proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Never: hosts of a cluster that sends to the original destination would be forgotten again and again. The
/// most that Envoy's clock holds.
const NEVER: Duration = Duration { seconds: 9_223_372_035, nanos: 0 };

/// Prefix of a Unix socket in `defaultEndpoint`.
const UNIX: &str = "unix://";

/// Destination of a port's inbound traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Destination {
    /// The original destination of the connection.
    Original,
    /// An address and port.
    Address(String, u32),
    /// Path of a Unix socket.
    Pipe(String),
}

/// The clusters of the workload's ports: of the Sidecar's ingress listeners, else of the services.
pub(super) fn clusters(cx: &Cx<'_>, view: &InboundClusters) -> Vec<EncodedResource> {
    let sidecar = view.facets.scope.sidecar_object(cx);
    match &sidecar {
        Some(sidecar) if !sidecar.ingress.is_empty() => of_sidecar(cx, view, sidecar),
        _ => of_targets(cx, view, sidecar.as_deref()),
    }
}

/// The order is that of the port numbers.
fn of_targets(cx: &Cx<'_>, view: &InboundClusters, sidecar: Option<&Sidecar>) -> Vec<EncodedResource> {
    let to_localhost = cx.mesh().inbound_traffic_policy.mode == InboundTrafficPolicyMode::Localhost;
    let ports: BTreeSet<u32> = view.targets.iter().map(|target| target.target_port).collect();
    let pool = sidecar.and_then(|sidecar| sidecar.inbound_connection_pool.as_ref());
    let clusters = ports.into_iter().filter_map(|number| {
        let targets: Vec<&Target> =
            view.targets.iter().filter(|target| target.target_port == number).collect();
        let destination = if to_localhost {
            Destination::Address(localhost(view.facets.proxy.families).to_owned(), number)
        } else {
            Destination::Original
        };
        let port = targets.first()?.port.clone();
        Inbound { cx, view, number, port, destination, targets, pool }.build()
    });
    clusters.collect()
}

fn of_sidecar(cx: &Cx<'_>, view: &InboundClusters, sidecar: &Sidecar) -> Vec<EncodedResource> {
    let clusters = sidecar.ingress.iter().filter_map(|listener| {
        let port = listener.port.as_ref()?;
        let destination = parse(view, &listener.default_endpoint)?;
        let targets = view.targets.iter().find(|target| target.target_port == port.number);
        let number = port.number;
        let port = Port {
            number,
            name: port.name.as_str().into(),
            protocol: Protocol::parse(&port.protocol),
            target_port: None,
        };
        let pool = listener.connection_pool.as_ref().or(sidecar.inbound_connection_pool.as_ref());
        let targets = targets.into_iter().collect();
        Inbound { cx, view, number, port, destination, targets, pool }.build()
    });
    clusters.collect()
}

/// Reads a `defaultEndpoint`. `None` for one that is malformed, which makes no cluster.
fn parse(view: &InboundClusters, written: &str) -> Option<Destination> {
    if written.is_empty() {
        return Some(Destination::Original);
    }
    if let Some(path) = written.strip_prefix(UNIX) {
        return Some(Destination::Pipe(path.to_owned()));
    }
    let (host, port) = written.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let address = match host.trim_matches(['[', ']']) {
        "0.0.0.0" | "::" => view.address.to_string(),
        "127.0.0.1" | "::1" => localhost(view.facets.proxy.families).to_owned(),
        _ => return Some(Destination::Original),
    };
    Some(Destination::Address(address, port))
}

fn localhost(families: IpFamilies) -> &'static str {
    match families {
        IpFamilies::V6 => "::1",
        IpFamilies::V4 | IpFamilies::Dual => "127.0.0.1",
    }
}

/// One cluster to be.
struct Inbound<'a> {
    cx: &'a Cx<'a>,
    view: &'a InboundClusters,
    number: u32,
    /// Served port: of the first service, or of the ingress listener.
    port: Port,
    destination: Destination,
    /// The service ports that lead there. The first decides where they disagree.
    targets: Vec<&'a Target>,
    /// Limits of the Sidecar, which replace those of rules.
    pool: Option<&'a ConnectionPoolSettings>,
}

impl Inbound<'_> {
    fn build(&self) -> Option<EncodedResource> {
        let mesh = self.cx.mesh();
        let assignment = self.assignment();
        let kind = if assignment.is_some() { DiscoveryType::Static } else { DiscoveryType::OriginalDst };
        let mut draft = Draft::new(inbound_name(self.number), kind);
        draft.cluster.load_assignment = assignment;
        draft.set_protocol(self.port.protocol, true, self.view.facets.proxy.preserve_case);
        let rule = self.rule();
        let policy = rule.as_ref().map_or_else(Policy::default, |rule| rule.policy(self.port.number));
        let of_mesh =
            mesh.default_traffic_policy.as_ref().and_then(|default| default.connection_pool.as_ref());
        let pool = self.pool.or(policy.connection_pool).or(of_mesh);
        connection_pool::apply(&mut draft, &mesh, pool, policy.retry_budget);
        if kind == DiscoveryType::OriginalDst {
            draft.cluster.lb_policy = LbPolicy::ClusterProvided as i32;
            draft.cluster.cleanup_interval = Some(NEVER);
        }
        let local = localhost(self.view.facets.proxy.families);
        if !matches!(&self.destination, Destination::Address(address, _) if address == local) {
            // Traffic from this address is not captured again.
            draft.cluster.upstream_bind_config = Some(own_source(self.view));
        }
        self.describe(&mut draft, rule.as_deref(), &mesh.inbound_cluster_stat_name);
        let hosts: Vec<&str> = self.targets.iter().map(|target| target.service.hostname.as_str()).collect();
        let provenance = self.provenance(rule.as_deref());
        finish(self.cx, &self.view.facets.proxy, TrafficClass::Inbound, draft.build(), &hosts, provenance)
    }

    /// The rule for the first service, as far as the workload sees its own service.
    fn rule(&self) -> Option<Arc<MergedDestinationRule>> {
        let key = &self.targets.first()?.service;
        let scope = &self.view.facets.scope;
        let seen = self.cx.get(&ServiceIn(scope.clone(), key.hostname.clone()));
        let namespace = Option::as_ref(&seen)?.namespace.clone();
        let key = ServiceKey { hostname: key.hostname.clone(), namespace };
        self.cx.get(&DestinationRulesFor::new(&scope.namespace, key)).inbound().cloned()
    }

    fn assignment(&self) -> Option<ClusterLoadAssignment> {
        let address = match &self.destination {
            Destination::Original => return None,
            Destination::Pipe(path) => address::Address::Pipe(Pipe { path: path.clone(), ..Pipe::default() }),
            Destination::Address(address, port) => address::Address::SocketAddress(SocketAddress {
                address: address.clone(),
                port_specifier: Some(socket_address::PortSpecifier::PortValue(*port)),
                ..SocketAddress::default()
            }),
        };
        let endpoint = Endpoint { address: Some(Address { address: Some(address) }), ..Endpoint::default() };
        let endpoint =
            LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() };
        let endpoints =
            vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..LocalityLbEndpoints::default() }];
        let cluster_name = inbound_name(self.number);
        Some(ClusterLoadAssignment { cluster_name, endpoints, ..ClusterLoadAssignment::default() })
    }

    fn describe(&self, draft: &mut Draft, rule: Option<&MergedDestinationRule>, template: &str) {
        if let (Some(first), false) = (self.targets.first(), template.is_empty()) {
            let names = Names {
                host: &first.written_host,
                service: Some((&first.name, &first.service.namespace, first.has_short_name)),
                subset: "",
                port: self.port.number,
                port_name: &self.port.name,
                target_port: self.number,
            };
            draft.cluster.alt_stat_name = stat_name(&crate::envoy::stat_name::of(template, "", &names));
        }
        // The first service decides on the whole port: for one outside the mesh, there is no telemetry
        // metadata.
        if self.targets.first().is_none_or(|first| first.mesh_external) {
            return;
        }
        draft.set_istio("services", list(self.services()));
        if let Some(rule) = rule.filter(|rule| rule.policy.is_some()) {
            let key = ObjectKey::new(Kind::DestinationRule, rule.namespace.clone(), rule.name.clone());
            draft.set_istio("config", text(&config_path(&key)));
        }
    }

    /// The services of this port, those on another number of a service port than the first left out.
    fn services(&self) -> Vec<pilotfish_proto::Value> {
        let Some(first) = self.targets.first() else { return Vec::new() };
        let mut seen = BTreeSet::new();
        let same_port = self.targets.iter().filter(|target| target.port.number == first.port.number);
        let fresh = same_port.filter(|target| seen.insert(&target.service.hostname));
        let described = fresh.map(|target| {
            let key = &target.service;
            draft::service_metadata(&target.written_host, &target.name, key.namespace.as_str())
        });
        described.collect()
    }

    fn provenance(&self, rule: Option<&MergedDestinationRule>) -> Vec<Origin> {
        let services = self.targets.iter().map(|target| target.object.clone());
        let sidecar = self.view.facets.scope.sidecar.as_ref().map(|(namespace, name)| {
            Origin::object(
                ObjectKey::new(Kind::Sidecar, namespace.clone(), name.clone()),
                ClusterId::default(),
            )
        });
        let rule = rule.into_iter().flat_map(|rule| rule.provenance.iter().cloned());
        services.chain(sidecar).chain(rule).collect()
    }
}
