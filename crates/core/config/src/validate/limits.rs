//! Limits of single objects. Products (hosts by ports by endpoints, rules by values) are counted here, before
//! anything is allocated for them. Products of several objects are counted where they are computed.

use crate::kubernetes::EndpointSlice;
use crate::networking::{EnvoyFilter, Gateway, ServiceEntry, Sidecar, VirtualService};
use crate::path::Path;
use crate::problem::Checker;
use crate::security::{AuthorizationPolicy, Operation, Rule, Source};

/// A limit on one object, by its name in docs/limits.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLimit {
    pub name: &'static str,
    /// Maximum count per object.
    pub most: usize,
}

const fn limit(name: &'static str, most: usize) -> ObjectLimit {
    ObjectLimit { name, most }
}

const VIRTUAL_SERVICE_HOSTS: ObjectLimit = limit("virtual-service-hosts", 32_768);
const VIRTUAL_SERVICE_STREAMS: ObjectLimit = limit("virtual-service-streams", 32_768);
const VIRTUAL_SERVICE_EXPORTS: ObjectLimit = limit("virtual-service-exports", 32_768);
const GATEWAY_HOSTS: ObjectLimit = limit("gateway-hosts", 16_384);
const SERVICE_ENTRY_ENDPOINTS: ObjectLimit = limit("service-entry-endpoints", 200_000);
const SERVICE_ENTRY_EXPORTS: ObjectLimit = limit("service-entry-exports", 200_000);
const ENDPOINT_SLICE_ENDPOINTS: ObjectLimit = limit("endpoint-slice-endpoints", 200_000);
const SIDECAR_LISTENERS: ObjectLimit = limit("sidecar-listeners", 512);
const SIDECAR_HOSTS: ObjectLimit = limit("sidecar-hosts", 16_384);
const ENVOY_FILTER_PATCHES: ObjectLimit = limit("envoy-filter-patches", 1_024);
const AUTHORIZATION_POLICY_VALUES: ObjectLimit = limit("authorization-policy-values", 16_384);

/// The limits on single objects, beside that on a VirtualService's conditions.
pub const OBJECT_LIMITS: [ObjectLimit; 11] = [
    VIRTUAL_SERVICE_HOSTS,
    VIRTUAL_SERVICE_STREAMS,
    VIRTUAL_SERVICE_EXPORTS,
    GATEWAY_HOSTS,
    SERVICE_ENTRY_ENDPOINTS,
    SERVICE_ENTRY_EXPORTS,
    ENDPOINT_SLICE_ENDPOINTS,
    SIDECAR_LISTENERS,
    SIDECAR_HOSTS,
    ENVOY_FILTER_PATCHES,
    AUTHORIZATION_POLICY_VALUES,
];

impl ObjectLimit {
    /// True if `count` is within the limit; otherwise reports an error, so that the object is refused.
    fn keeps(self, count: usize, what: &str, at: &Path<'_>, checker: &mut Checker) -> bool {
        let Self { name, most } = self;
        if count > most {
            checker.error(
                at,
                format!("too many {what}: {count}, and at most {most} are allowed (limit {name})"),
            );
        }
        count <= most
    }
}

pub(in crate::validate) fn virtual_service(
    service: &VirtualService,
    at: &Path<'_>,
    checker: &mut Checker,
) -> bool {
    // Each condition has all destinations of its route again.
    let tls = service.tls.iter().map(|route| {
        let conditions = route.r#match.iter().map(|m| times(m.sni_hosts.len(), m.destination_subnets.len()));
        times(conditions.fold(0, usize::saturating_add), route.route.len())
    });
    let tcp = service.tcp.iter().map(|route| {
        let ranges = route.r#match.iter().map(|m| m.destination_subnets.len().max(1));
        times(ranges.sum(), route.route.len())
    });
    let streams = tls.chain(tcp).fold(0, usize::saturating_add);
    let exports = times(service.gateways.len(), service.export_to.len());
    VIRTUAL_SERVICE_HOSTS.keeps(service.hosts.len(), "hosts", &at.field("hosts"), checker)
        && VIRTUAL_SERVICE_EXPORTS.keeps(
            exports,
            "gateways, each for every namespace",
            &at.field("exportTo"),
            checker,
        )
        && VIRTUAL_SERVICE_STREAMS.keeps(
            streams,
            "server names and address ranges, each with all destinations",
            at,
            checker,
        )
}

pub(in crate::validate) fn gateway(gateway: &Gateway, at: &Path<'_>, checker: &mut Checker) -> bool {
    GATEWAY_HOSTS.keeps(gateway_hosts(gateway), "hosts of servers", &at.field("servers"), checker)
}

fn times(a: usize, b: usize) -> usize {
    a.max(1).saturating_mul(b.max(1))
}

fn gateway_hosts(gateway: &Gateway) -> usize {
    gateway.servers.iter().map(|server| server.hosts.len().max(1)).sum()
}

/// Cuts a Gateway to the servers that the limit allows.
pub(in crate::validate) fn cut_gateway(gateway: &mut Gateway) {
    let mut hosts = 0;
    gateway.servers.retain(|server| {
        hosts += server.hosts.len().max(1);
        hosts <= GATEWAY_HOSTS.most
    });
}

/// Each host has the endpoints, at each port, is found at each address, and is listed for each namespace.
pub(in crate::validate) fn service_entry(entry: &ServiceEntry, at: &Path<'_>, checker: &mut Checker) -> bool {
    let places = entry.endpoints.len().max(entry.addresses.len()).max(1);
    let count = entry.hosts.len().saturating_mul(entry.ports.len().max(1)).saturating_mul(places);
    let exports = times(entry.hosts.len(), entry.export_to.len());
    SERVICE_ENTRY_ENDPOINTS.keeps(count, "endpoints, each for every host and port", at, checker)
        && SERVICE_ENTRY_EXPORTS.keeps(
            exports,
            "hosts, each for every namespace",
            &at.field("exportTo"),
            checker,
        )
}

/// Each endpoint is there for every port.
pub(in crate::validate) fn endpoint_slice(
    slice: &EndpointSlice,
    at: &Path<'_>,
    checker: &mut Checker,
) -> bool {
    let count = times(slice.endpoints.len(), slice.ports.len());
    ENDPOINT_SLICE_ENDPOINTS.keeps(count, "endpoints, each for every port", at, checker)
}

pub(in crate::validate) fn sidecar(sidecar: &Sidecar, at: &Path<'_>, checker: &mut Checker) -> bool {
    let listeners = sidecar.egress.len() + sidecar.ingress.len();
    let hosts = sidecar.egress.iter().map(|listener| listener.hosts.len()).sum();
    SIDECAR_LISTENERS.keeps(listeners, "listeners", at, checker)
        && SIDECAR_HOSTS.keeps(hosts, "hosts", &at.field("egress"), checker)
}

pub(in crate::validate) fn envoy_filter(filter: &EnvoyFilter, at: &Path<'_>, checker: &mut Checker) -> bool {
    ENVOY_FILTER_PATCHES.keeps(filter.config_patches.len(), "patches", &at.field("configPatches"), checker)
}

pub(in crate::validate) fn authorization_policy(
    policy: &AuthorizationPolicy,
    at: &Path<'_>,
    checker: &mut Checker,
) -> bool {
    AUTHORIZATION_POLICY_VALUES.keeps(values(&policy.rules), "values", &at.field("rules"), checker)
}

/// True if the rules exceed the limit of an AuthorizationPolicy.
pub(in crate::validate) fn has_too_many_values(rules: &[Rule]) -> bool {
    values(rules) > AUTHORIZATION_POLICY_VALUES.most
}

/// The values of rules; a rule, a source, an operation or a condition without any counts as one.
fn values(rules: &[Rule]) -> usize {
    let of_rule = |rule: &Rule| {
        let from =
            rule.from.iter().map(|from| from.source.as_ref().map_or(1, |source| sources(source).max(1)));
        let to = rule.to.iter().map(|to| to.operation.as_ref().map_or(1, |to| operations(to).max(1)));
        let when = rule.when.iter().map(|when| (when.values.len() + when.not_values.len()).max(1));
        1 + from.sum::<usize>() + to.sum::<usize>() + when.sum::<usize>()
    };
    rules.iter().map(of_rule).sum()
}

fn sources(source: &Source) -> usize {
    let lists = [
        &source.principals,
        &source.not_principals,
        &source.request_principals,
        &source.not_request_principals,
        &source.namespaces,
        &source.not_namespaces,
        &source.trust_domains,
        &source.not_trust_domains,
        &source.service_accounts,
        &source.not_service_accounts,
        &source.ip_blocks,
        &source.not_ip_blocks,
        &source.remote_ip_blocks,
        &source.not_remote_ip_blocks,
    ];
    lists.iter().map(|list| list.len()).sum()
}

fn operations(to: &Operation) -> usize {
    let lists = [
        &to.hosts,
        &to.not_hosts,
        &to.ports,
        &to.not_ports,
        &to.methods,
        &to.not_methods,
        &to.paths,
        &to.not_paths,
    ];
    lists.iter().map(|list| list.len()).sum()
}
