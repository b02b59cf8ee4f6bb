//! Filter chains for TCP streams: routes of VirtualServices, or else the service itself.

use super::Builder;
use super::binding::ListenerBinding;
use super::chain::Chain;
use crate::envoy::dubbo::Call;
use crate::envoy::stat_name::{self, Names};
use crate::envoy::{metadata, outbound_name};
use crate::routing::{Source, VirtualServiceIr};
use crate::scope::{StreamVirtualServicesFor, cluster_host};
use crate::services::short_name;
use crate::xds::lds::stream_route::StreamRoutes;
use crate::xds::lds::tcp_proxy::{Stream, TcpDestination};
use pilotfish_config::networking::{RouteDestination, TlsMatchAttributes};
use pilotfish_model::{DubboInterface, Resolution, Service};
use pilotfish_proto::envoy::config::core::v3::Metadata;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The chains of one binding.
pub(super) fn chains(builder: &Builder<'_>, listener: usize, binding: &ListenerBinding) -> Vec<Chain> {
    let scope = builder.view.base.scope.clone();
    let host = binding.service.hostname.clone();
    let rules = builder.cx.get(&StreamVirtualServicesFor { scope, listener, host });
    let source = Source::sidecar(builder.view.base.scope.namespace.clone(), builder.view.base.labels.clone());
    if binding.port.protocol.is_tls() {
        by_sni(builder, binding, &rules, &source)
    } else {
        by_address(builder, binding, &rules, &source)
    }
}

/// Returns the chain for calls of a Dubbo interface: by the first route of VirtualServices that matches every
/// address, or else to the service itself. It is merged with those of other interfaces at the address.
pub(super) fn calls(
    builder: &Builder<'_>,
    listener: usize,
    binding: &ListenerBinding,
    interface: &Arc<DubboInterface>,
) -> Chain {
    let scope = builder.view.base.scope.clone();
    let host = binding.service.hostname.clone();
    let rules = builder.cx.get(&StreamVirtualServicesFor { scope, listener, host });
    let source = Source::sidecar(builder.view.base.scope.namespace.clone(), builder.view.base.labels.clone());
    let port = binding.port.number;
    let routes = rules.iter().flat_map(|rule| rule.tcp.iter().map(move |route| (rule, route)));
    let taken = routes.into_iter().find(|(_, route)| {
        let mut fitting = route.r#match.iter().filter(|m| source.fits_tcp(m, port));
        route.r#match.is_empty() || fitting.any(|m| m.destination_subnets.is_empty() || port == 0)
    });
    let (destination, provenance) = match taken {
        Some((rule, route)) => {
            (self::routes(builder, binding).destination(&route.route), rule.provenance.to_vec())
        }
        None => (TcpDestination::Cluster(own_cluster(builder, binding).2), Vec::new()),
    };
    Chain {
        ranges: binding.ranges.clone(),
        filters: with_policies(builder, binding, Vec::new()),
        calls: vec![Call { interface: interface.clone(), destination: destination.into() }],
        provenance,
        ..Chain::default()
    }
}

/// TLS: chains for the server names of VirtualServices, or one for the service.
fn by_sni(
    builder: &Builder<'_>,
    binding: &ListenerBinding,
    rules: &[Arc<VirtualServiceIr>],
    source: &Source,
) -> Vec<Chain> {
    let port = binding.port.number;
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for rule in rules {
        for route in &rule.tls {
            for attributes in route.r#match.iter().filter(|m| source.fits_tls(m, port)) {
                // Envoy rejects two chains with the same conditions, so the first route is used.
                if !seen.insert(conditions(attributes)) {
                    continue;
                }
                let subnets = &attributes.destination_subnets;
                let named = !subnets.is_empty() && port > 0;
                out.push(Chain {
                    server_names: attributes.sni_hosts.clone(),
                    ranges: if named { subnets.clone() } else { binding.ranges.clone() },
                    metadata: config_of(rule),
                    ..routed(builder, binding, rule, &route.route)
                });
            }
        }
    }
    if out.is_empty() {
        let names =
            if needs_name(builder, binding) { own_names(builder, &binding.service) } else { Vec::new() };
        out.push(Chain { server_names: names, ..default(builder, binding) });
    }
    out
}

/// The conditions of a TLS route that Envoy can match.
fn conditions(attributes: &TlsMatchAttributes) -> (BTreeSet<String>, BTreeSet<String>) {
    let set = |list: &[String]| list.iter().cloned().collect();
    (set(&attributes.sni_hosts), set(&attributes.destination_subnets))
}

/// Other streams: chains for the address ranges of VirtualServices, up to the first route for all addresses.
fn by_address(
    builder: &Builder<'_>,
    binding: &ListenerBinding,
    rules: &[Arc<VirtualServiceIr>],
    source: &Source,
) -> Vec<Chain> {
    let port = binding.port.number;
    let mut out = Vec::new();
    let mut own_ranges_taken = false;
    for rule in rules {
        for route in &rule.tcp {
            let fitting: Vec<_> = route.r#match.iter().filter(|m| source.fits_tcp(m, port)).collect();
            let for_all = |subnets: &[String]| subnets.is_empty() || port == 0;
            if route.r#match.is_empty() || fitting.iter().any(|m| for_all(&m.destination_subnets)) {
                let chain = routed(builder, binding, rule, &route.route);
                out.push(Chain { ranges: binding.ranges.clone(), metadata: config_of(rule), ..chain });
                return out;
            }
            let ranges: Vec<String> =
                fitting.iter().flat_map(|m| m.destination_subnets.iter().cloned()).collect();
            if !ranges.is_empty() {
                let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
                own_ranges_taken |= set(&ranges) == set(&binding.ranges);
                out.push(Chain { ranges, ..routed(builder, binding, rule, &route.route) });
            }
        }
    }
    if !own_ranges_taken {
        out.push(default(builder, binding));
    }
    out
}

fn config_of(rule: &VirtualServiceIr) -> Option<Metadata> {
    metadata::of_config(&rule.config_key())
}

/// Returns true if only the SNI distinguishes the service from others at the same address, or if it is looked
/// up.
fn needs_name(builder: &Builder<'_>, binding: &ListenerBinding) -> bool {
    if !binding.ranges.is_empty() || binding.service.resolution == Resolution::DynamicDns {
        return true;
    }
    let wildcard = builder.view.base.families.wildcards().first().copied().unwrap_or_default();
    let own = builder.view.addresses.primary(&binding.service);
    let unspecified = own.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    own.is_empty() || unspecified && binding.bind() == wildcard
}

/// Returns the service's host, and the names of its aliases.
fn own_names(builder: &Builder<'_>, service: &Service) -> Vec<String> {
    let domain = builder.cx.domain().of_namespace(&builder.view.base.scope.namespace);
    let mut names = vec![service.hostname.to_string()];
    for alias in crate::services::alias::names(builder.cx, &service.hostname).iter() {
        names.extend([alias.to_string(), format!("{alias}.")]);
        names.extend(short_name::forms(alias.as_str(), &domain));
    }
    names
}

/// The chain to the service itself.
fn default(builder: &Builder<'_>, binding: &ListenerBinding) -> Chain {
    let service = &binding.service;
    let (port, host, cluster) = own_cluster(builder, binding);
    let rule = routes(builder, binding).rule_of(service);
    let names = Names {
        host: &host,
        service: Some((&service.name, &service.namespace, service.has_short_name)),
        subset: "",
        port,
        port_name: "",
        target_port: 0,
    };
    let pattern = builder.cx.mesh().outbound_cluster_stat_name.clone();
    let stream = Stream {
        stat_prefix: stat_name::of(&pattern, &cluster, &names),
        destination: TcpDestination::Cluster(cluster),
        protocol: binding.port.protocol,
        idle_timeout: &builder.view.base.idle_timeout,
        rule: rule.as_deref(),
        subset: "",
        access_log: &builder.policies.logs.tcp,
    };
    let lookup = builder.cache_of(service).map(|cache| cache.sni_filter(port));
    Chain {
        ranges: binding.ranges.clone(),
        looks_up_sni: lookup.is_some(),
        filters: with_policies(builder, binding, lookup.into_iter().chain(stream.filters()).collect()),
        provenance: rule.iter().flat_map(|rule| rule.provenance.iter().cloned()).collect(),
        ..Chain::default()
    }
}

/// The service's own port, host and cluster.
fn own_cluster(builder: &Builder<'_>, binding: &ListenerBinding) -> (u32, Arc<str>, String) {
    let service = &binding.service;
    // The port of an egress listener may differ from the service's: then a service with a single port is
    // reached on that.
    let port = service.only_tcp_port().map_or(binding.port.number, |only| only.number);
    let host = cluster_host(builder.cx, &builder.view.base.scope, service.hostname.as_str());
    let cluster = outbound_name(port, "", &host);
    (port, host, cluster)
}

/// The chain of a VirtualService's route.
fn routed(
    builder: &Builder<'_>,
    binding: &ListenerBinding,
    rule: &VirtualServiceIr,
    route: &[RouteDestination],
) -> Chain {
    let (filters, provenance) = routes(builder, binding).filters(rule, route);
    Chain { filters: with_policies(builder, binding, filters), provenance, ..Chain::default() }
}

fn routes<'a>(builder: &'a Builder<'_>, binding: &'a ListenerBinding) -> StreamRoutes<'a> {
    StreamRoutes {
        cx: builder.cx,
        base: &builder.view.base,
        port: &binding.port,
        idle_timeout: &builder.view.base.idle_timeout,
        access_log: &builder.policies.logs.tcp,
    }
}

fn with_policies(builder: &Builder<'_>, binding: &ListenerBinding, filters: Vec<Filter>) -> Vec<Filter> {
    builder.policies.tcp(binding.port.number).into_iter().chain(filters).collect()
}
