//! WorkloadEntry, WorkloadGroup, and ProxyConfig.

use crate::networking::{ProxyConfig, ReadinessProbe, WorkloadEntry, WorkloadGroup};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{self, UNIX, each, fqdn_problem, is_ip, quoted};
use crate::validate::fields::selectors;
use crate::validate::fields::values::{at_most_one, header_name, not_negative};
use pilotfish_model::ObjectMeta;
use std::collections::BTreeSet;

/// Address types that a workload may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    /// An IP address or a Unix domain socket.
    Ip,
    /// An IP address or a DNS name.
    Name,
    /// Any of these types.
    Any,
}

pub(in crate::validate) fn check_entry(
    entry: &WorkloadEntry,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    endpoint(entry, Address::Any, None, at, checker);
}

/// Checks a workload. `ports` are the port names of its service, if the service is known.
pub(super) fn endpoint(
    entry: &WorkloadEntry,
    allowed: Address,
    ports: Option<&BTreeSet<&str>>,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    address(entry, allowed, ports, at, checker);
    let numbers = at.field("ports");
    for (name, number) in &entry.ports {
        let at = numbers.key(name);
        if ports.is_some_and(|ports| !ports.contains(name.as_str())) {
            checker.warning(&at, "has no effect, the ServiceEntry has no port of this name");
        }
        names::port_name(name, &at, checker);
        names::port(*number, &at, checker);
    }
    names::labels(&entry.labels, &at.field("labels"), checker);
}

fn address(
    entry: &WorkloadEntry,
    allowed: Address,
    ports: Option<&BTreeSet<&str>>,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    let (text, field) = (&entry.address, at.field("address"));
    if text.is_empty() {
        match entry.network.is_empty() {
            true => checker.error(&field, "must be set, or network for one behind a gateway"),
            false => checker.warning(&field, "is not set, the gateway of the network is used"),
        }
    } else if let Some(path) = text.strip_prefix(UNIX).filter(|_| allowed != Address::Name) {
        names::socket_path(path, &field, checker);
        if !entry.ports.is_empty() {
            checker.error(&at.field("ports"), "must not be set for a Unix domain socket");
        }
        if ports.is_some_and(|ports| ports.len() != 1) {
            checker.warning(&field, "a Unix domain socket is meant for a ServiceEntry with one port");
        }
    } else if allowed == Address::Ip && !is_ip(text) {
        checker.error(&field, format!("{} is not an IP address, as resolution STATIC needs", quoted(text)));
    } else if !is_ip(text) && fqdn_problem(text).is_some() {
        checker.error(&field, format!("{} is not an IP address or a host name", quoted(text)));
    }
}

pub(in crate::validate) fn check_group(
    group: &WorkloadGroup,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    match &group.template {
        None => checker.error(&at.field("template"), "must be set"),
        Some(template) => {
            let at = at.field("template");
            names::labels(&template.labels, &at.field("labels"), checker);
            let ports = at.field("ports");
            for (name, number) in &template.ports {
                names::port_name(name, &ports.key(name), checker);
                names::port(*number, &ports.key(name), checker);
            }
        }
    }
    if let Some(metadata) = &group.metadata {
        names::labels(&metadata.labels, &at.field("metadata").field("labels"), checker);
    }
    if let Some(value) = &group.probe {
        probe(value, &at.field("probe"), checker);
    }
}

fn probe(probe: &ReadinessProbe, at: &Path<'_>, checker: &mut Checker) {
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (field, value) in numbers {
        not_negative(value, &at.field(field), checker);
    }
    let methods = [
        ("httpGet", probe.http_get.is_some()),
        ("tcpSocket", probe.tcp_socket.is_some()),
        ("exec", probe.exec.is_some()),
        ("grpc", probe.grpc.is_some()),
    ];
    at_most_one(&methods, at, checker);
    if methods.iter().all(|(_, set)| !set) {
        checker.error(at, "one of httpGet, tcpSocket, exec and grpc must be set");
    }
    if let Some(http) = &probe.http_get {
        let at = at.field("httpGet");
        names::port(http.port, &at.field("port"), checker);
        if !matches!(&*http.scheme, "" | "HTTP" | "HTTPS") {
            checker.error(&at.field("scheme"), format!("{} is not HTTP or HTTPS", quoted(&http.scheme)));
        }
        each(&http.http_headers, &at.field("httpHeaders"), checker, |header, at, checker| {
            header_name(&header.name, &at.field("name"), checker);
        });
    }
    if let Some(tcp) = &probe.tcp_socket {
        names::port(tcp.port, &at.field("tcpSocket").field("port"), checker);
    }
    if let Some(grpc) = &probe.grpc {
        names::port(grpc.port, &at.field("grpc").field("port"), checker);
    }
    if probe.exec.as_ref().is_some_and(|exec| exec.command.is_empty()) {
        checker.error(&at.field("exec").field("command"), "must be set");
    }
}

pub(in crate::validate) fn check_proxy_config(
    config: &ProxyConfig,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    if let Some(selector) = &config.selector {
        selectors::workload_selector(selector, &at.field("selector"), checker);
    }
    not_negative(config.concurrency.unwrap_or_default(), &at.field("concurrency"), checker);
}
