//! VirtualService: hosts, gateways, and permitted types of routes.

use super::{http_route, stream_route};
use crate::networking::{Destination, MAX_CONDITIONS, VirtualService};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{self, HostSet, each, is_dns_label, is_ip, quoted, wildcard_problem};
use crate::validate::fields::selectors;
use crate::validate::limits;
use pilotfish_model::ObjectMeta;

/// The gateway name for sidecars.
const MESH: &str = "mesh";

pub(in crate::validate) fn check(
    service: &VirtualService,
    at: &Path<'_>,
    meta: &ObjectMeta,
    checker: &mut Checker,
) {
    let conditions = service.conditions();
    if conditions > MAX_CONDITIONS {
        let message = format!(
            "too many conditions: {conditions}, and at most {MAX_CONDITIONS} are allowed (limit \
             virtual-service-conditions)"
        );
        checker.error(&at.field("http"), message);
        return;
    }
    if !limits::virtual_service(service, at, checker) {
        return;
    }
    let is_delegate = service.hosts.is_empty();
    if is_delegate {
        delegate(service, at, checker);
    }
    gateways(&service.gateways, &at.field("gateways"), checker);
    let for_gateways = applies_to_gateways(service);
    hosts(service, for_gateways, &at.field("hosts"), checker);
    if service.http.is_empty() && service.tls.is_empty() && service.tcp.is_empty() {
        checker.error(at, "one of http, tls and tcp must be set");
    }
    let context = http_route::Context { is_delegate, for_gateways };
    each(&service.http, &at.field("http"), checker, |route, at, checker| {
        http_route::check(route, context, at, checker);
    });
    let mut covered = HostSet::default();
    for host in &service.hosts {
        covered.insert(host);
    }
    each(&service.tls, &at.field("tls"), checker, |route, at, checker| {
        stream_route::tls(route, &covered, for_gateways, at, checker);
    });
    each(&service.tcp, &at.field("tcp"), checker, stream_route::tcp);
    selectors::export_to(&service.export_to, false, meta, &at.field("exportTo"), checker);
}

/// True if the routes apply to gateways only: `gateways` is set and does not include `mesh`.
fn applies_to_gateways(service: &VirtualService) -> bool {
    !service.gateways.is_empty() && service.gateways.iter().all(|gateway| gateway != MESH)
}

fn delegate(service: &VirtualService, at: &Path<'_>, checker: &mut Checker) {
    let fields = [
        ("gateways", service.gateways.is_empty()),
        ("tls", service.tls.is_empty()),
        ("tcp", service.tcp.is_empty()),
    ];
    for (field, _) in fields.into_iter().filter(|(_, empty)| !empty) {
        let message = "must not be set in a delegate, which a VirtualService without hosts is";
        checker.error_with_hint(&at.field(field), message, "or set hosts".to_owned());
    }
}

fn hosts(service: &VirtualService, for_gateways: bool, at: &Path<'_>, checker: &mut Checker) {
    let has_sni = service.tls.iter().flat_map(|tls| &tls.r#match).any(|m| !m.sni_hosts.is_empty());
    let mut all_good = true;
    for (index, host) in service.hosts.iter().enumerate() {
        let at = at.index(index);
        if let Some(why) = host_problem(host, for_gateways && has_sni) {
            checker.error(&at, format!("{} is not a host name: {why}", quoted(host)));
            all_good = false;
        } else if host == "*" && !for_gateways {
            checker.warning(&at, "\"*\" is meant for gateways only, sidecars need the hosts");
        }
    }
    if all_good {
        overlapping(&service.hosts, at, checker);
    }
}

/// Returns why the text is no host of a VirtualService: a name with or without wildcard, or an IP address.
pub(super) fn host_problem(host: &str, for_generated_sni: bool) -> Option<String> {
    // The SNI of connections to AUTO_PASSTHROUGH gateways: `outbound_.80_._.reviews.shop.svc.cluster.local`.
    let generated = host.strip_prefix("outbound_.").and_then(|rest| rest.split_once("_."));
    if for_generated_sni && generated.is_some_and(|(port, _)| port.bytes().all(|c| c.is_ascii_digit())) {
        return None;
    }
    wildcard_problem(host).filter(|_| !is_ip(host))
}

fn overlapping(hosts: &[String], at: &Path<'_>, checker: &mut Checker) {
    let mut set = HostSet::default();
    for (index, host) in hosts.iter().enumerate() {
        if !set.insert(host) {
            checker.warning(&at.index(index), format!("{} is there twice", quoted(host)));
        }
    }
    for (index, host) in hosts.iter().enumerate() {
        if let Some(suffix) = set.wider(host) {
            let wider = format!("*{suffix}");
            checker.warning(&at.index(index), format!("{} is covered by {}", quoted(host), quoted(&wider)));
        }
    }
}

/// Checks names of gateways: `mesh`, `name` or `namespace/name`.
pub(super) fn gateways(gateways: &[String], at: &Path<'_>, checker: &mut Checker) {
    each(gateways, at, checker, |gateway, at, checker| gateway_name(gateway, at, checker));
}

fn gateway_name(gateway: &str, at: &Path<'_>, checker: &mut Checker) {
    let Some((namespace, name)) = gateway.split_once('/') else {
        if let Some((name, rest)) = gateway.split_once('.') {
            let namespace = rest.split('.').next().unwrap_or_default();
            checker.warning(
                at,
                format!("is an old form of name, write {}", quoted(&format!("{namespace}/{name}"))),
            );
        }
        return names::fqdn(gateway, at, checker);
    };
    for (part, what) in [(namespace, "namespace"), (name, "name")] {
        if !is_dns_label(part) {
            checker.error(at, format!("{} is not the {what} of a gateway", quoted(part)));
        }
    }
}

/// Checks the destination of a route.
pub(super) fn destination(destination: Option<&Destination>, at: &Path<'_>, checker: &mut Checker) {
    let Some(destination) = destination else { return };
    let host = at.field("host");
    match &*destination.host {
        "" => checker.error(&host, "must be set"),
        "*" => checker.error(&host, "\"*\" cannot be the destination of a route"),
        name => drop(names::wildcard_host(name, &host, checker)),
    }
    if !destination.subset.is_empty() {
        names::subset_name(&destination.subset, &at.field("subset"), checker);
    }
    if let Some(port) = &destination.port {
        names::port(port.number, &at.field("port").field("number"), checker);
    }
}

/// Checks a destination that is required.
pub(super) fn required_destination(value: Option<&Destination>, at: &Path<'_>, checker: &mut Checker) {
    if value.is_none() {
        checker.error(at, "must be set");
    }
    destination(value, at, checker);
}

/// Checks the weights of the destinations of one route.
pub(super) fn weights(weights: impl Iterator<Item = i32>, at: &Path<'_>, checker: &mut Checker) {
    let mut total = 0_i64;
    let mut count = 0;
    for (index, weight) in weights.enumerate() {
        if weight < 0 {
            checker.error(&at.index(index).field("weight"), format!("{weight} is negative"));
        }
        total += i64::from(weight);
        count += 1;
    }
    if count > 1 && total == 0 {
        checker.error(at, "the weights of several destinations add up to 0");
    } else if total > i64::from(u32::MAX) {
        checker.error(at, format!("the weights add up to {total}, more than proxies can count"));
    }
}
