//! Filter chains for streams of bytes: routed by VirtualServices, else to the service itself.

use super::Builder;
use super::chain::Chain;
use super::site::Site;
use crate::envoy::metadata;
use crate::envoy::stat_name::{self, Names};
use crate::routing::{Rule as Routes, Source, cluster_name};
use crate::scope::StreamRulesFor;
use crate::services::short_name;
use crate::xds::lds::stream_route::StreamRoutes;
use crate::xds::lds::tcp_proxy::{Stream, To};
use pilotfish_config::networking::{RouteDestination, TlsMatchAttributes};
use pilotfish_model::Service;
use pilotfish_proto::envoy::config::core::v3::Metadata;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The chains of one site.
pub(super) fn chains(builder: &Builder<'_>, listener: usize, site: &Site) -> Vec<Chain> {
    let scope = builder.view.base.scope.clone();
    let host = site.service.hostname.clone();
    let rules = builder.cx.get(&StreamRulesFor { scope, listener, host });
    let source = Source::sidecar(builder.view.base.scope.namespace.clone(), builder.view.base.labels.clone());
    if site.port.protocol.is_tls() {
        by_sni(builder, site, &rules, &source)
    } else {
        by_address(builder, site, &rules, &source)
    }
}

/// TLS: chains for the server names of VirtualServices, or one for the service.
fn by_sni(builder: &Builder<'_>, site: &Site, rules: &[Arc<Routes>], source: &Source) -> Vec<Chain> {
    let port = site.port.number;
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for rule in rules {
        for route in &rule.tls {
            for attributes in route.r#match.iter().filter(|m| source.fits_tls(m, port)) {
                // Of two with the same conditions for Envoy, the second would never be reached.
                if !seen.insert(conditions(attributes)) {
                    continue;
                }
                let subnets = &attributes.destination_subnets;
                let named = !subnets.is_empty() && port > 0;
                out.push(Chain {
                    server_names: attributes.sni_hosts.clone(),
                    ranges: if named { subnets.clone() } else { site.ranges.clone() },
                    metadata: config_of(rule),
                    ..routed(builder, site, rule, &route.route)
                });
            }
        }
    }
    if out.is_empty() {
        let names = if needs_name(builder, site) { own_names(builder, &site.service) } else { Vec::new() };
        out.push(Chain { server_names: names, ..default(builder, site) });
    }
    out
}

/// What Envoy can tell apart in the conditions of a TLS route.
fn conditions(attributes: &TlsMatchAttributes) -> (BTreeSet<String>, BTreeSet<String>) {
    let set = |list: &[String]| list.iter().cloned().collect();
    (set(&attributes.sni_hosts), set(&attributes.destination_subnets))
}

/// Other streams: chains for the address ranges of VirtualServices, up to the first route for all addresses.
fn by_address(builder: &Builder<'_>, site: &Site, rules: &[Arc<Routes>], source: &Source) -> Vec<Chain> {
    let port = site.port.number;
    let mut out = Vec::new();
    let mut own_ranges_taken = false;
    for rule in rules {
        for route in &rule.tcp {
            let fitting: Vec<_> = route.r#match.iter().filter(|m| source.fits_tcp(m, port)).collect();
            let for_all = |subnets: &[String]| subnets.is_empty() || port == 0;
            if route.r#match.is_empty() || fitting.iter().any(|m| for_all(&m.destination_subnets)) {
                let chain = routed(builder, site, rule, &route.route);
                out.push(Chain { ranges: site.ranges.clone(), metadata: config_of(rule), ..chain });
                return out;
            }
            let ranges: Vec<String> =
                fitting.iter().flat_map(|m| m.destination_subnets.iter().cloned()).collect();
            if !ranges.is_empty() {
                let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
                own_ranges_taken |= set(&ranges) == set(&site.ranges);
                out.push(Chain { ranges, ..routed(builder, site, rule, &route.route) });
            }
        }
    }
    if !own_ranges_taken {
        out.push(default(builder, site));
    }
    out
}

fn config_of(rule: &Routes) -> Option<Metadata> {
    metadata::of_config(&rule.config_key())
}

/// Whether only the name in the TLS handshake tells the service from others at the same address.
fn needs_name(builder: &Builder<'_>, site: &Site) -> bool {
    if !site.ranges.is_empty() {
        return true;
    }
    let wildcard = builder.view.base.families.wildcards().first().copied().unwrap_or_default();
    let own = builder.view.addresses.primary(&site.service);
    let unspecified = own.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    own.is_empty() || unspecified && site.bind() == wildcard
}

/// The service's host, and the names of services that are aliases of it.
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
fn default(builder: &Builder<'_>, site: &Site) -> Chain {
    let service = &site.service;
    // An egress listener may have another port than the service: then a service with one port is reached on that.
    let port = match &*service.ports {
        [only] => only.number,
        _ => site.port.number,
    };
    let cluster = cluster_name(port, "", service.hostname.as_str());
    let rule = routes(builder, site).rule_of(service);
    let names = Names {
        host: service.hostname.as_str(),
        service: Some((&service.name, &service.namespace, service.has_short_name)),
        subset: "",
        port,
        port_name: "",
        target_port: 0,
    };
    let pattern = builder.cx.mesh().outbound_cluster_stat_name.clone();
    let stream = Stream {
        stat_prefix: stat_name::of(&pattern, &cluster, &names),
        to: To::Cluster(cluster),
        protocol: site.port.protocol,
        idle_timeout: &builder.view.base.idle_timeout,
        rule: rule.as_deref(),
        subset: "",
        access_log: &builder.policies.logs.tcp,
    };
    Chain {
        ranges: site.ranges.clone(),
        filters: with_policies(builder, site, stream.filters()),
        provenance: rule.iter().flat_map(|rule| rule.provenance.iter().cloned()).collect(),
        ..Chain::default()
    }
}

/// The chain of a VirtualService's route.
fn routed(builder: &Builder<'_>, site: &Site, rule: &Routes, route: &[RouteDestination]) -> Chain {
    let (filters, provenance) = routes(builder, site).filters(rule, route);
    Chain { filters: with_policies(builder, site, filters), provenance, ..Chain::default() }
}

fn routes<'a>(builder: &'a Builder<'_>, site: &'a Site) -> StreamRoutes<'a> {
    StreamRoutes {
        cx: builder.cx,
        base: &builder.view.base,
        port: &site.port,
        idle_timeout: &builder.view.base.idle_timeout,
        access_log: &builder.policies.logs.tcp,
    }
}

fn with_policies(builder: &Builder<'_>, site: &Site, filters: Vec<Filter>) -> Vec<Filter> {
    builder.policies.tcp(site.port.number).into_iter().chain(filters).collect()
}
