//! Gateway of Istio.

use super::tls;
use crate::networking::{Gateway, Port, Server, ServerTlsMode};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{
    self, UNIX, each, is_dns_label, is_ip, is_partial_wildcard, quoted, warn_duplicates, wildcard_problem,
};
use crate::validate::limits;
use pilotfish_model::{ObjectMeta, Protocol};

pub(in crate::validate) fn check(gateway: &Gateway, at: &Path<'_>, meta: &ObjectMeta, checker: &mut Checker) {
    if !is_dns_label(&meta.key.name) {
        let at = Path::ROOT.field("metadata");
        let message =
            format!("{} is not the name of a gateway: {}", quoted(&meta.key.name), names::LABEL_RULE);
        checker.warning(&at.field("name"), message);
    }
    if !limits::gateway(gateway, at, checker) {
        return;
    }
    let servers = at.field("servers");
    if gateway.servers.is_empty() {
        checker.error(&servers, "must be set");
    }
    each(&gateway.servers, &servers, checker, server);
    let name = |server: &Server| server.port.as_ref().map(|port| port.name.clone());
    warn_duplicates(&gateway.servers, &servers, ["port", "name"], checker, name);
}

pub(in crate::validate) fn server(server: &Server, at: &Path<'_>, checker: &mut Checker) {
    place(server, at, checker);
    if let Some(settings) = &server.tls {
        tls::server(settings, &at.field("tls"), checker);
    }
    if let Some(port) = &server.port {
        protocol(server, Protocol::parse(&port.protocol), at, checker);
    }
}

/// Checks hosts, bind address and port of the server, which decide the connections that it receives.
pub(in crate::validate) fn place(server: &Server, at: &Path<'_>, checker: &mut Checker) {
    let hosts = at.field("hosts");
    if server.hosts.is_empty() {
        checker.error(&hosts, "must be set");
    }
    each(&server.hosts, &hosts, checker, |host, at, checker| gateway_host(host, at, checker));
    bind(server, at, checker);
    match &server.port {
        None => checker.error(&at.field("port"), "must be set"),
        Some(port) => server_port(port, &server.bind, &at.field("port"), checker),
    }
}

fn server_port(port: &Port, bind: &str, at: &Path<'_>, checker: &mut Checker) {
    if Protocol::parse(&port.protocol).is_unsupported() {
        unknown_protocol(&port.protocol, &at.field("protocol"), checker);
    }
    if port.number != 0 || !bind.starts_with(UNIX) {
        names::port(port.number, &at.field("number"), checker);
    }
    if port.target_port != 0 {
        checker.warning(&at.field("targetPort"), "has no effect on gateways");
    }
    if port.name.is_empty() {
        checker.error(&at.field("name"), "must be set");
    }
}

/// Reports an unknown protocol.
pub(super) fn unknown_protocol(protocol: &str, at: &Path<'_>, checker: &mut Checker) {
    const KNOWN: &str = "HTTP, HTTPS, HTTP2, GRPC, GRPC-WEB, TCP, TLS, MONGO, REDIS, MYSQL, UDP";
    let message = match protocol {
        "" => format!("must be set to one of {KNOWN}"),
        _ => format!("{} is not a protocol, {KNOWN}", quoted(protocol)),
    };
    checker.error(at, message);
}

fn bind(server: &Server, at: &Path<'_>, checker: &mut Checker) {
    let bind = at.field("bind");
    if let Some(path) = server.bind.strip_prefix(UNIX) {
        names::socket_path(path, &bind, checker);
        if server.port.as_ref().is_some_and(|port| port.number != 0) {
            checker.error(&at.field("port").field("number"), "must be 0 for a Unix domain socket");
        }
    } else if !server.bind.is_empty() {
        names::ip(&server.bind, &bind, checker);
    }
}

/// Checks the TLS settings that the protocol requires.
fn protocol(server: &Server, protocol: Protocol, at: &Path<'_>, checker: &mut Checker) {
    let at = at.field("tls");
    let Some(tls) = &server.tls else {
        if protocol.is_tls() {
            checker.error(&at, "must be set for the protocols HTTPS and TLS");
        }
        return;
    };
    if protocol.is_http() {
        let files = !tls.ca_certificates.is_empty()
            || !tls.private_key.is_empty()
            || !tls.server_certificate.is_empty();
        let passthrough = matches!(tls.mode, ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough);
        if files || !passthrough {
            checker.warning(&at, "has no effect for plain HTTP, but for httpsRedirect");
        }
    } else if !protocol.is_tls() && !protocol.is_unsupported() {
        checker.warning(&at, "is not meant for other protocols than HTTPS and TLS");
    }
    if tls.https_redirect && !protocol.is_http() {
        checker.warning(&at.field("httpsRedirect"), "has an effect on plain HTTP only");
    }
}

/// Checks a host of a gateway: `host`, or `namespace/host` with `*` or `.` as possible namespaces.
fn gateway_host(host: &str, at: &Path<'_>, checker: &mut Checker) {
    let Some((namespace, name)) = host.split_once('/') else { return host_part(host, true, at, checker) };
    if !matches!(namespace, "*" | ".") && !is_dns_label(namespace) {
        checker.error(at, format!("{} is not a namespace, \"*\" or \".\"", quoted(namespace)));
    }
    host_part(name, true, at, checker);
}

/// Checks the host in `namespace/host` of gateways and sidecars: no short names, no partial wildcards.
pub(super) fn host_part(host: &str, may_be_ip: bool, at: &Path<'_>, checker: &mut Checker) {
    if may_be_ip && is_ip(host) {
        return;
    }
    if let Some(why) = wildcard_problem(host) {
        checker.error(at, format!("{} is not a host name: {why}", quoted(host)));
    } else if host != "*" && !host.contains('.') {
        checker.warning(at, format!("{} is a short name, the full name is needed here", quoted(host)));
    } else if is_partial_wildcard(host) {
        checker.warning(at, format!("{} has a wildcard for a part of a label", quoted(host)));
    }
}
