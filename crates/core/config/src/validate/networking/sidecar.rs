//! Sidecar.

use super::{destination_rule, gateway, tls, virtual_service};
use crate::networking::{
    CaptureMode, IstioEgressListener, IstioIngressListener, OutboundTrafficPolicy, OutboundTrafficPolicyMode,
    Port, ServerTlsMode, ServerTlsSettings, Sidecar,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{
    self, UNIX, each, is_dns_label, is_port, quoted, split_host_port, warn_duplicates,
};
use crate::validate::fields::selectors;
use crate::validate::limits;
use pilotfish_model::{ObjectMeta, Protocol};
use std::collections::{BTreeMap, BTreeSet};

pub(in crate::validate) fn check(sidecar: &Sidecar, at: &Path<'_>, meta: &ObjectMeta, checker: &mut Checker) {
    if !limits::sidecar(sidecar, at, checker) {
        return;
    }
    if let Some(selector) = &sidecar.workload_selector {
        selectors::label_selector(selector, &at.field("workloadSelector"), checker);
    }
    let empty = sidecar.egress.is_empty()
        && sidecar.ingress.is_empty()
        && sidecar.outbound_traffic_policy.is_none()
        && sidecar.inbound_connection_pool.is_none();
    if empty {
        checker.warning(at, "is empty, set ingress, egress, outboundTrafficPolicy or inboundConnectionPool");
    }
    let listeners = at.field("ingress");
    each(&sidecar.ingress, &listeners, checker, ingress);
    warn_duplicates(&sidecar.ingress, &listeners, ["port", "number"], checker, |listener| {
        listener.port.as_ref().map(|port| port.number)
    });
    if let Some(pool) = &sidecar.inbound_connection_pool {
        destination_rule::connection_pool(pool, &at.field("inboundConnectionPool"), checker);
    }
    egress_listeners(&sidecar.egress, meta, &at.field("egress"), checker);
    if let Some(policy) = &sidecar.outbound_traffic_policy {
        outbound_policy(policy, &at.field("outboundTrafficPolicy"), checker);
    }
}

fn ingress(listener: &IstioIngressListener, at: &Path<'_>, checker: &mut Checker) {
    let Some(port) = &listener.port else { return checker.error(&at.field("port"), "must be set") };
    let port_at = at.field("port");
    common_port(port, &port_at, checker);
    names::port(port.number, &port_at.field("number"), checker);
    if !listener.bind.is_empty() {
        names::ip(&listener.bind, &at.field("bind"), checker);
    }
    default_endpoint(&listener.default_endpoint, &at.field("defaultEndpoint"), checker);
    if let Some(settings) = &listener.tls {
        ingress_tls(settings, &at.field("tls"), checker);
    }
    if let Some(pool) = &listener.connection_pool {
        let at = at.field("connectionPool");
        destination_rule::connection_pool(pool, &at, checker);
        if pool.http.is_some() && !Protocol::parse(&port.protocol).is_http() {
            checker.warning(&at.field("http"), "has no effect, the protocol of the port is not HTTP");
        }
    }
}

fn common_port(port: &Port, at: &Path<'_>, checker: &mut Checker) {
    if !port.name.is_empty() {
        names::port_name(&port.name, &at.field("name"), checker);
    }
    if !port.protocol.is_empty() && Protocol::parse(&port.protocol).is_unsupported() {
        gateway::unknown_protocol(&port.protocol, &at.field("protocol"), checker);
    }
    if port.target_port != 0 {
        checker.warning(&at.field("targetPort"), "has no effect on sidecars");
    }
}

/// Checks the target of inbound traffic: a port of the workload itself, or a Unix domain socket.
fn default_endpoint(endpoint: &str, at: &Path<'_>, checker: &mut Checker) {
    if endpoint.is_empty() {
        return;
    }
    if let Some(path) = endpoint.strip_prefix(UNIX) {
        return names::socket_path(path, at, checker);
    }
    let good = split_host_port(endpoint).is_some_and(|(host, port)| {
        matches!(host, "" | "127.0.0.1" | "0.0.0.0" | "::1" | "::") && port.parse().is_ok_and(is_port)
    });
    if !good {
        let message = format!("{} is not an endpoint of the workload", quoted(endpoint));
        checker.error_with_hint(
            at,
            message,
            "127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT or unix:///PATH".to_owned(),
        );
    }
}

fn ingress_tls(settings: &ServerTlsSettings, at: &Path<'_>, checker: &mut Checker) {
    let unsupported = [
        ("subjectAltNames", !settings.subject_alt_names.is_empty()),
        ("httpsRedirect", settings.https_redirect),
        ("credentialName", !settings.credential_name.is_empty()),
        ("credentialNames", !settings.credential_names.is_empty()),
    ];
    for (field, _) in unsupported.into_iter().filter(|(_, set)| *set) {
        checker.warning(&at.field(field), "has no effect on sidecars");
    }
    if matches!(settings.mode, ServerTlsMode::IstioMutual | ServerTlsMode::AutoPassthrough) {
        checker.warning(&at.field("mode"), "ISTIO_MUTUAL and AUTO_PASSTHROUGH are not meant for sidecars");
    }
    tls::server(settings, at, checker);
}

fn egress_listeners(
    listeners: &[IstioEgressListener],
    meta: &ObjectMeta,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    for (index, listener) in listeners.iter().enumerate() {
        let at = at.index(index);
        match &listener.port {
            None if index + 1 < listeners.len() => {
                let message = "is not set, which is meant for the last listener, as it takes all traffic";
                checker.warning(&at.field("port"), message);
            }
            None => {}
            Some(port) => egress_port(listener, port, &at, checker),
        }
        let hosts = at.field("hosts");
        if listener.hosts.is_empty() {
            checker.error(&hosts, "must be set");
        }
        each(&listener.hosts, &hosts, checker, |host, at, checker| egress_host(host, at, checker));
        duplicate_hosts(&listener.hosts, meta.key.namespace.as_str(), &hosts, checker);
    }
    warn_duplicates(listeners, at, ["port", "number"], checker, |listener| {
        listener.port.as_ref().map(|port| port.number).filter(|number| *number != 0)
    });
    warn_duplicates(listeners, at, ["bind", ""], checker, |listener| {
        listener.port.as_ref().filter(|port| port.number == 0).map(|_| listener.bind.clone())
    });
}

fn egress_port(listener: &IstioEgressListener, port: &Port, at: &Path<'_>, checker: &mut Checker) {
    common_port(port, &at.field("port"), checker);
    let bind = at.field("bind");
    if port.number != 0 {
        names::port(port.number, &at.field("port").field("number"), checker);
        if !listener.bind.is_empty() {
            names::ip(&listener.bind, &bind, checker);
        }
        return;
    }
    match listener.bind.strip_prefix(UNIX) {
        None => {
            checker.error(&at.field("port").field("number"), "must be set, unless bind is a unix:// socket")
        }
        Some(path) => names::socket_path(path, &bind, checker),
    }
    if listener.capture_mode == CaptureMode::Iptables {
        checker.error(&at.field("captureMode"), "IPTABLES is not possible for a Unix domain socket");
    }
}

/// Checks `namespace/host`; the namespace may be `*`, `.` or `~`. After `~`, the host's namespace is
/// excluded.
fn egress_host(host: &str, at: &Path<'_>, checker: &mut Checker) {
    let Some((written, name)) = host.split_once('/') else {
        let message = format!("{} is not of the form namespace/host", quoted(host));
        return checker.error_with_hint(at, message, format!("for example {}", quoted(&format!("*/{host}"))));
    };
    let namespace = written.strip_prefix('~').unwrap_or(written);
    let is_known = matches!(namespace, "" | "*" | ".") && !written.is_empty() || is_dns_label(namespace);
    if !is_known && written.starts_with(|c: char| c.is_ascii_punctuation()) {
        // As the name of a namespace it selects nothing.
        checker.warning(at, format!("{} is unknown to this version: it is ignored", quoted(host)));
    } else if !is_known {
        checker.error(at, format!("{} is not a namespace, \"*\", \".\" or \"~\"", quoted(written)));
    }
    gateway::host_part(name, false, at, checker);
}

fn duplicate_hosts(hosts: &[String], own: &str, at: &Path<'_>, checker: &mut Checker) {
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (index, host) in hosts.iter().enumerate() {
        let Some((namespace, name)) = host.split_once('/').filter(|_| !host.starts_with('~')) else {
            continue;
        };
        let names = seen.entry(if namespace == "." { own } else { namespace }).or_default();
        let covered = names.contains("*") || (name == "*" && !names.is_empty());
        if !names.insert(name) || covered {
            checker.warning(&at.index(index), format!("{} is covered by another host", quoted(host)));
        }
    }
    let everything = seen.get("*").is_some_and(|names| names.contains("*"));
    if everything && seen.len() > 1 {
        checker.warning(at, "\"*/*\" selects everything, other hosts have no effect");
    }
}

fn outbound_policy(policy: &OutboundTrafficPolicy, at: &Path<'_>, checker: &mut Checker) {
    let Some(proxy) = &policy.egress_proxy else { return };
    let at = at.field("egressProxy");
    if policy.mode != OutboundTrafficPolicyMode::AllowAny {
        return checker.warning(&at, "has no effect, mode is not ALLOW_ANY");
    }
    if proxy.port.is_none() {
        checker.error(&at.field("port"), "must be set");
    }
    if proxy.host.contains('*') {
        names::fqdn(&proxy.host, &at.field("host"), checker);
    } else {
        virtual_service::destination(Some(proxy), &at, checker);
    }
}
