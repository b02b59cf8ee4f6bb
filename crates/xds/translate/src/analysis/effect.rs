//! Parts of a VirtualService that apply to no traffic: hosts and lists without a matching port, conditions on
//! ports that no host has, Gateways whose proxies do not see it.

use super::Code;
use super::clients::{Client, Clients, Ports};
use super::finding::{Report, listed};
use crate::routing::VirtualServiceHeader;
use crate::services::alias;
use pilotfish_config::networking::VirtualService;
use pilotfish_model::Typed;
use std::collections::BTreeSet;

/// Reports the parts without effect.
pub(super) fn check(
    report: &mut Report<'_, '_>,
    object: &Typed<VirtualService>,
    header: &VirtualServiceHeader,
    clients: &Clients,
) {
    if !clients.left_out.is_empty() {
        let homes = listed(&clients.left_out);
        let message = format!("proxies of its Gateways in namespace {homes} do not have its routes");
        let hint = Some("export it to that namespace, too".to_owned());
        report.add_with_hint(Code::RuleWithoutEffect, "spec.exportTo", message, hint);
    }
    if !clients.hidden_by.is_empty() {
        let message = format!(
            "no sidecar has its routes: Sidecar {} imports none of its hosts",
            listed(&clients.hidden_by)
        );
        let hint = Some("add a host to egress.hosts of the Sidecar".to_owned());
        report.add_with_hint(Code::RuleWithoutEffect, "spec.hosts", message, hint);
    }
    if !clients.all_known || clients.list.is_empty() {
        return;
    }
    if !check_hosts(report, object, header, clients) {
        check_lists(report, object, clients);
    }
    check_match_ports(report, object, clients);
}

/// Returns the lists of routes of a VirtualService, with the kind of traffic that they handle.
fn lists(object: &VirtualService) -> impl Iterator<Item = (&'static str, &'static str, PortsOfList)> {
    let all: [(_, _, _, PortsOfList); 3] = [
        (!object.http.is_empty(), "http", "HTTP", |ports| &ports.http),
        (!object.tls.is_empty(), "tls", "TLS or HTTPS", |ports| &ports.tls),
        (!object.tcp.is_empty(), "tcp", "TCP", |ports| &ports.tcp),
    ];
    all.into_iter().filter(|(is_there, ..)| *is_there).map(|(_, list, name, ports)| (list, name, ports))
}

type PortsOfList = fn(&Ports) -> &BTreeSet<u32>;

/// Reports hosts without a port for any of the routes. Returns true if all hosts are such.
fn check_hosts(
    report: &mut Report<'_, '_>,
    object: &VirtualService,
    header: &VirtualServiceHeader,
    clients: &Clients,
) -> bool {
    let mut all = true;
    for (index, host) in header.hosts.iter().enumerate() {
        let of_host = || clients.list.iter().filter_map(|client: &Client| client.by_host.get(index));
        let takes = lists(object).any(|(_, _, ports)| of_host().any(|host| !ports(host).is_empty()));
        all &= !takes;
        // IST0132 is about hosts that a Gateway does not serve.
        let is_served = of_host().any(|ports| *ports != Ports::default()) || is_sidecars_only(clients);
        if !takes && is_served {
            let path = format!("spec.hosts[{index}]");
            if let Some(end) = alias::end(report.cx, host) {
                let message =
                    format!("{host} is an alias: routes are used for its full name on port 80 alone");
                let hint = Some(format!("write the rule for {end}"));
                report.add_with_hint(Code::RuleWithoutEffect, path, message, hint);
                continue;
            }
            let kinds = listed(lists(object).map(|(_, name, _)| name));
            let message = format!("{host} has no port for {kinds} traffic, so no route is used for it");
            report.add(Code::RuleWithoutEffect, path, message);
        }
    }
    all
}

fn is_sidecars_only(clients: &Clients) -> bool {
    clients.list.iter().all(|client| client.kind == crate::proxy::ProxyKind::Sidecar)
}

/// Reports lists of routes for which no host has a port.
fn check_lists(report: &mut Report<'_, '_>, object: &VirtualService, clients: &Clients) {
    for (list, name, ports) in lists(object) {
        if clients.list.iter().all(|client| ports(&client.ports).is_empty()) {
            let message = format!("no host has a port for {name} traffic, so these routes are not used");
            report.add(Code::RuleWithoutEffect, format!("spec.{list}"), message);
        }
    }
}

/// Reports conditions on ports on which no client receives traffic for the hosts.
fn check_match_ports(report: &mut Report<'_, '_>, object: &Typed<VirtualService>, clients: &Clients) {
    let own = object.namespace();
    let mut check = |list: &str,
                     at: (usize, usize),
                     port: u32,
                     fits: &dyn Fn(&Client) -> bool,
                     ports: PortsOfList| {
        if port == 0 || !report.may_compare(clients.list.len()) {
            return;
        }
        let having: Vec<&BTreeSet<u32>> =
            clients.list.iter().filter(|client| fits(client)).map(|client| ports(&client.ports)).collect();
        let is_met = having.iter().any(|ports| ports.contains(&port));
        if is_met || !report.may_compare(having.iter().map(|ports| ports.len()).sum()) {
            return;
        }
        let all: BTreeSet<u32> = having.into_iter().flatten().copied().collect();
        // Without any port, the host or the list is reported already.
        if !all.is_empty() {
            let message =
                format!("the condition is never met: no host has a port {port} for it, but {}", listed(&all));
            let path = format!("spec.{list}[{}].match[{}].port", at.0, at.1);
            report.add(Code::VirtualServiceIneffectiveMatch, path, message);
        }
    };
    for (index, route) in object.http.iter().enumerate() {
        for (which, m) in route.r#match.iter().enumerate() {
            check("http", (index, which), m.port, &|client| client.fits(m, own), |ports| &ports.http);
        }
    }
    for (index, route) in object.tls.iter().enumerate() {
        for (which, m) in route.r#match.iter().enumerate() {
            let fits = |client: &Client| client.fits_stream(&m.gateways, &m.source_namespace, own);
            check("tls", (index, which), m.port, &fits, |ports| &ports.tls);
        }
    }
    for (index, route) in object.tcp.iter().enumerate() {
        for (which, m) in route.r#match.iter().enumerate() {
            let fits = |client: &Client| client.fits_stream(&m.gateways, &m.source_namespace, own);
            check("tcp", (index, which), m.port, &fits, |ports| &ports.tcp);
        }
    }
}
