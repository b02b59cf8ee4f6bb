//! ServiceEntry.

use super::{gateway, workload};
use crate::networking::{Location, Resolution, ServiceEntry, ServicePort};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{
    self, each, fqdn_problem, ip_or_cidr, is_partial_wildcard, quoted, unique,
};
use crate::validate::fields::selectors;
use crate::validate::limits;
use pilotfish_model::{ObjectMeta, Protocol};
use std::collections::BTreeSet;

pub(in crate::validate) fn check(
    entry: &ServiceEntry,
    at: &Path<'_>,
    meta: &ObjectMeta,
    checker: &mut Checker,
) {
    if !limits::service_entry(entry, at, checker) {
        return;
    }
    hosts(entry, &at.field("hosts"), checker);
    addresses(entry, &at.field("addresses"), checker);
    ports(entry, &at.field("ports"), checker);
    if let Some(selector) = &entry.workload_selector {
        let at = at.field("workloadSelector");
        selectors::label_selector(selector, &at, checker);
        if !entry.endpoints.is_empty() {
            checker.error(&at, "must not be set beside endpoints");
        }
        if entry.resolution != Resolution::Static {
            checker.warning(&at, "has an effect with resolution STATIC only");
        }
    }
    resolution(entry, at, checker);
    several_hosts(entry, at, checker);
    selectors::export_to(&entry.export_to, true, meta, &at.field("exportTo"), checker);
}

fn hosts(entry: &ServiceEntry, at: &Path<'_>, checker: &mut Checker) {
    if entry.hosts.is_empty() {
        checker.error(at, "must be set");
    }
    each(&entry.hosts, at, checker, |host, at, checker| {
        if host == "*" {
            checker.error(at, "\"*\" cannot be the host of a service");
        } else if names::wildcard_host(host, at, checker)
            && is_partial_wildcard(host)
            && entry.resolution != Resolution::DynamicDns
        {
            checker.warning(at, format!("{} has a wildcard for a part of a label", quoted(host)));
        }
    });
}

fn addresses(entry: &ServiceEntry, at: &Path<'_>, checker: &mut Checker) {
    if entry.resolution == Resolution::DynamicDns && !entry.addresses.is_empty() {
        checker.warning(at, "are not needed for resolution DYNAMIC_DNS, Istio refuses the object");
    }
    let blocks = matches!(entry.resolution, Resolution::None | Resolution::Static);
    each(&entry.addresses, at, checker, |address, at, checker| {
        ip_or_cidr(address, at, checker);
        if address.contains('/') && !blocks {
            checker.error(at, "a CIDR block is only allowed for resolution NONE and STATIC");
        }
    });
}

fn ports(entry: &ServiceEntry, at: &Path<'_>, checker: &mut Checker) {
    each(&entry.ports, at, checker, |port: &ServicePort, at, checker| {
        names::port(port.number, &at.field("number"), checker);
        names::port_name(&port.name, &at.field("name"), checker);
        let protocol = Protocol::parse(&port.protocol);
        if !port.protocol.is_empty() && protocol.is_unsupported() {
            gateway::unknown_protocol(&port.protocol, &at.field("protocol"), checker);
        }
        if port.target_port != 0 {
            names::port(port.target_port, &at.field("targetPort"), checker);
        }
        let named = matches!(protocol, Protocol::Http | Protocol::Http2 | Protocol::Grpc | Protocol::Tls);
        if entry.resolution == Resolution::DynamicDns && !named {
            let message = "is not HTTP, HTTP2, GRPC or TLS, as resolution DYNAMIC_DNS needs: connections are \
                           closed, Istio refuses the object";
            checker.warning(&at.field("protocol"), message);
        }
    });
    unique(&entry.ports, at, "name", checker, |port| Some(&port.name));
    unique(&entry.ports, at, "number", checker, |port| Some(port.number));
}

fn resolution(entry: &ServiceEntry, at: &Path<'_>, checker: &mut Checker) {
    let ports: BTreeSet<&str> = entry.ports.iter().map(|port| port.name.as_str()).collect();
    let endpoints = at.field("endpoints");
    match entry.resolution {
        Resolution::None if !entry.endpoints.is_empty() => {
            checker.error(&endpoints, "must not be set for resolution NONE");
        }
        Resolution::None => {}
        Resolution::Static => each(&entry.endpoints, &endpoints, checker, |endpoint, at, checker| {
            workload::endpoint(endpoint, workload::Address::Ip, Some(&ports), at, checker);
        }),
        Resolution::Dns | Resolution::DnsRoundRobin => {
            dns(entry, at, checker);
            each(&entry.endpoints, &endpoints, checker, |endpoint, at, checker| {
                workload::endpoint(endpoint, workload::Address::Name, Some(&ports), at, checker);
            });
        }
        Resolution::DynamicDns => dynamic_dns(entry, at, checker),
    }
}

fn dns(entry: &ServiceEntry, at: &Path<'_>, checker: &mut Checker) {
    if entry.endpoints.is_empty() {
        let full = |host: &String| fqdn_problem(host).is_none();
        each(&entry.hosts, &at.field("hosts"), checker, |host, at, checker| {
            if !full(host) && host != "*" {
                let message = format!(
                    "{} cannot be looked up: nothing is reached unless endpoints are set",
                    quoted(host)
                );
                checker.warning(at, message);
            }
        });
    }
    if entry.resolution == Resolution::DnsRoundRobin && entry.endpoints.len() > 1 {
        checker.error(&at.field("endpoints"), "resolution DNS_ROUND_ROBIN allows one endpoint at most");
    }
    let tcp = entry.ports.iter().any(|port| Protocol::parse(&port.protocol).is_tcp());
    if tcp && !entry.addresses.is_empty() && entry.hosts.len() > 1 {
        let message = "several hosts with addresses cannot be told apart on a TCP port";
        checker.warning(&at.field("hosts"), message);
    }
}

fn dynamic_dns(entry: &ServiceEntry, at: &Path<'_>, checker: &mut Checker) {
    each(&entry.hosts, &at.field("hosts"), checker, |host, at, checker| {
        if !host.starts_with('*') {
            checker.error(at, "must begin with '*' for resolution DYNAMIC_DNS");
        }
    });
    if !entry.endpoints.is_empty() {
        checker.error(&at.field("endpoints"), "must not be set for resolution DYNAMIC_DNS");
    }
    if entry.location == Location::MeshInternal {
        checker.warning(&at.field("location"), "resolution DYNAMIC_DNS is for services outside of the mesh");
    }
}

/// Warns of several hosts on plain TCP ports: such connections do not carry their host.
fn several_hosts(entry: &ServiceEntry, at: &Path<'_>, checker: &mut Checker) {
    if entry.resolution == Resolution::None || entry.hosts.len() < 2 {
        return;
    }
    let indistinct = |port: &ServicePort| {
        let protocol = Protocol::parse(&port.protocol);
        !protocol.is_http() && !protocol.is_tls()
    };
    if let Some(index) = entry.ports.iter().position(indistinct) {
        let message = "several hosts cannot be told apart on a port that is neither HTTP nor TLS";
        checker.warning(&at.field("ports").index(index).field("protocol"), message);
    }
}
