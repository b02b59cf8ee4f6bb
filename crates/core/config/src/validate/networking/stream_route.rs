//! Routes of TCP and TLS connections in a VirtualService.

use super::virtual_service::{gateways, host_problem, required_destination, weights};
use crate::networking::{
    HttpMatchRequest, L4MatchAttributes, RouteDestination, TcpRoute, TlsMatchAttributes, TlsRoute,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{self, HostSet, each, is_dns_label, is_ip, quoted};
use std::collections::BTreeMap;

pub(super) fn tcp(route: &TcpRoute, at: &Path<'_>, checker: &mut Checker) {
    each(&route.r#match, &at.field("match"), checker, |value: &L4MatchAttributes, at, checker| {
        each(&value.destination_subnets, &at.field("destinationSubnets"), checker, |subnet, at, checker| {
            names::ip_or_cidr(subnet, at, checker);
        });
        if !value.source_subnet.is_empty() {
            names::ip_or_cidr(&value.source_subnet, &at.field("sourceSubnet"), checker);
        }
        Source::from(value).check(at, checker);
    });
    destinations(&route.route, &at.field("route"), checker);
}

pub(super) fn tls(
    route: &TlsRoute,
    hosts: &HostSet<'_>,
    for_gateways: bool,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    if route.r#match.is_empty() {
        checker.error(&at.field("match"), "a route of TLS connections needs a match with sniHosts");
    }
    each(&route.r#match, &at.field("match"), checker, |value: &TlsMatchAttributes, at, checker| {
        let sni_hosts = at.field("sniHosts");
        if value.sni_hosts.is_empty() {
            checker.error(&sni_hosts, "must be set");
        }
        each(&value.sni_hosts, &sni_hosts, checker, |host, at, checker| {
            sni_host(host, hosts, for_gateways, at, checker);
        });
        each(&value.destination_subnets, &at.field("destinationSubnets"), checker, |subnet, at, checker| {
            names::ip_or_cidr(subnet, at, checker);
        });
        Source::from(value).check(at, checker);
    });
    destinations(&route.route, &at.field("route"), checker);
}

/// Checks an SNI host: one of the hosts, or a name that one of their wildcards covers.
fn sni_host(host: &str, hosts: &HostSet<'_>, for_gateways: bool, at: &Path<'_>, checker: &mut Checker) {
    if is_ip(host) {
        checker.warning(at, "is an IP address, which few clients send as SNI");
    } else if let Some(why) = host_problem(host, for_gateways) {
        checker.error(at, format!("{} is not a host name: {why}", quoted(host)));
    } else if !hosts.covers(host) {
        let message = format!("{} is not covered by the hosts of the VirtualService", quoted(host));
        checker.warning(at, message);
    }
}

/// Match fields on the source of a connection or request, common to all route types.
pub(super) struct Source<'a> {
    port: u32,
    labels: &'a BTreeMap<String, String>,
    namespace: &'a str,
    gateways: &'a [String],
}

macro_rules! source_of {
    ($($attributes:ty),*) => {$(
        impl<'a> From<&'a $attributes> for Source<'a> {
            fn from(attributes: &'a $attributes) -> Self {
                Self {
                    port: attributes.port,
                    labels: &attributes.source_labels,
                    namespace: &attributes.source_namespace,
                    gateways: &attributes.gateways,
                }
            }
        }
    )*};
}

source_of!(HttpMatchRequest, L4MatchAttributes, TlsMatchAttributes);

impl Source<'_> {
    pub(super) fn check(&self, at: &Path<'_>, checker: &mut Checker) {
        if self.port != 0 {
            names::port(self.port, &at.field("port"), checker);
        }
        names::labels(self.labels, &at.field("sourceLabels"), checker);
        if !self.namespace.is_empty() && !is_dns_label(self.namespace) {
            let message = format!("{} is not a namespace", quoted(self.namespace));
            checker.error(&at.field("sourceNamespace"), message);
        }
        gateways(self.gateways, &at.field("gateways"), checker);
    }
}

fn destinations(destinations: &[RouteDestination], at: &Path<'_>, checker: &mut Checker) {
    if destinations.is_empty() {
        checker.error(at, "must be set");
    }
    each(destinations, at, checker, |value, at, checker| {
        required_destination(value.destination.as_ref(), &at.field("destination"), checker);
    });
    weights(destinations.iter().map(|value| value.weight), at, checker);
}
