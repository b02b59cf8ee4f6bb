//! Proxies that have the routes of a VirtualService: their namespaces, and the ports on which they receive
//! traffic for its hosts.

use super::finding::Report;
use super::hosts::{self, Lookup, services_of};
use super::workloads::{LabelsIn, Selected};
use super::{Known, namespaces::Namespaces};
use crate::engine::{Cx, Query};
use crate::proxy::ProxyKind;
use crate::routing::gateway::ServerRoutes;
use crate::routing::ir::{MESH, ServerHost, WrittenHosts};
use crate::routing::{VirtualServiceHeader, gateway_name};
use crate::scope::{Scope, ServiceIn, service_listened_for, service_seen};
use pilotfish_config::networking::{Gateway, HttpMatchRequest, VirtualService};
use pilotfish_model::{ExportTo, Hostname, Namespace, Protocol, Resolution, Service, Typed, label_subset};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The port on which hosts without a service are routed.
const PLAIN_HTTP: u32 = 80;

/// Ports by the list of routes that handles their traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ports {
    pub(super) http: BTreeSet<u32>,
    /// The ports of `http` on which requests arrive over TLS.
    pub(super) https: BTreeSet<u32>,
    pub(super) tls: BTreeSet<u32>,
    pub(super) tcp: BTreeSet<u32>,
}

impl Ports {
    /// Adds a port of a service, for sidecars. A port whose protocol is detected uses two lists.
    fn add(&mut self, number: u32, protocol: Protocol) {
        let is_http = protocol.is_http() || protocol.is_unsupported();
        if is_http {
            self.http.insert(number);
        }
        if protocol.is_tls() {
            self.tls.insert(number);
        } else if !is_http || protocol.is_unsupported() {
            self.tcp.insert(number);
        }
    }

    fn extend(&mut self, other: &Self) {
        self.http.extend(&other.http);
        self.https.extend(&other.https);
        self.tls.extend(&other.tls);
        self.tcp.extend(&other.tcp);
    }
}

/// Proxies of one namespace with the routes behind one gateway.
pub(super) struct Client {
    pub(super) kind: ProxyKind,
    pub(super) namespace: Namespace,
    /// The gateway as `namespace/name`, or `mesh`.
    pub(super) gateway: Arc<str>,
    /// The namespace of the VirtualService whose hosts it serves.
    pub(super) rule: Namespace,
    /// The ports of each host, in the order of the hosts.
    pub(super) by_host: Vec<Ports>,
    /// The ports of all hosts.
    pub(super) ports: Ports,
    /// False if the ports are unknown.
    pub(super) knows_ports: bool,
    /// The scope, if a Sidecar narrows it.
    pub(super) scope: Option<Scope>,
    /// True if it is one of several that may have the routes, but nothing says that they are used there.
    pub(super) is_guess: bool,
}

impl Client {
    fn new(kind: ProxyKind, namespace: Namespace, gateway: Arc<str>, rule: Namespace) -> Self {
        let (by_host, ports) = (Vec::new(), Ports::default());
        let (scope, is_guess) = (None, false);
        Self { kind, namespace, gateway, rule, by_host, ports, knows_ports: true, scope, is_guess }
    }

    /// Returns a client with unknown ports, which sees the services of a namespace.
    pub(super) fn unknown(namespace: &Namespace) -> Self {
        let client = Self::new(ProxyKind::Router, namespace.clone(), "".into(), namespace.clone());
        Self { knows_ports: false, ..client }
    }

    fn with_ports(mut self, by_host: Vec<Ports>) -> Self {
        by_host.iter().for_each(|ports| self.ports.extend(ports));
        self.by_host = by_host;
        self
    }

    /// The service that the proxies see for a host.
    pub(super) fn service(&self, cx: &Cx<'_>, host: &Hostname) -> Option<Arc<Service>> {
        match &self.scope {
            Some(scope) => Option::clone(&cx.get(&ServiceIn(scope.clone(), host.clone()))),
            None => service_seen(cx, self.kind, &self.namespace, host),
        }
    }

    /// Returns true if requests of these proxies can match the condition, regardless of its port.
    pub(super) fn fits(&self, request: &HttpMatchRequest, own: &Namespace) -> bool {
        self.is_any(&request.gateways, own)
            && (!request.gateways.is_empty() || self.is_from(&request.source_namespace))
    }

    /// Returns true if connections of these proxies can match a condition on gateways and on the source's
    /// namespace.
    pub(super) fn fits_stream(&self, gateways: &[String], source: &str, own: &Namespace) -> bool {
        self.is_any(gateways, own) && (self.kind == ProxyKind::Router || self.is_from(source))
    }

    fn is_any(&self, gateways: &[String], own: &Namespace) -> bool {
        gateways.is_empty() || gateways.iter().any(|gateway| gateway_name(gateway, own) == self.gateway)
    }

    fn is_from(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.namespace == namespace
    }
}

/// The clients of a VirtualService.
#[derive(Default)]
pub(super) struct Clients {
    pub(super) list: Vec<Client>,
    /// False if a gateway does not exist, or there are too many clients to examine, so that some ports are
    /// unknown.
    pub(super) all_known: bool,
    /// Namespaces whose proxies would have the routes if the object were exported there.
    pub(super) left_out: BTreeSet<Namespace>,
    /// The Sidecars that keep the routes from all sidecars that it is exported to; empty if some have them.
    pub(super) hidden_by: BTreeSet<String>,
}

impl Clients {
    /// The clients of a VirtualService with hosts.
    pub(super) fn of(
        report: &mut Report<'_, '_>,
        known: Known,
        object: &Typed<VirtualService>,
        header: &VirtualServiceHeader,
    ) -> Self {
        let mut clients = Self { all_known: true, ..Self::default() };
        for gateway in &header.gateways {
            match gateway.split_once('/') {
                None if **gateway == *MESH => clients.add_sidecars(report, known, object, header),
                Some((namespace, name)) => clients.add_routers(report, header, gateway, namespace, name),
                None => clients.all_known = false,
            }
        }
        if clients.list.is_empty() && !clients.all_known {
            clients.list.push(Client::unknown(&header.id.namespace));
        }
        clients
    }

    fn add_sidecars(
        &mut self,
        report: &mut Report<'_, '_>,
        known: Known,
        object: &Typed<VirtualService>,
        header: &VirtualServiceHeader,
    ) {
        let cx = report.cx;
        let is_known = header.hosts.iter().all(|host| {
            !services_of(cx, host).is_empty() || !matches!(hosts::look_up(cx, known, host), Lookup::Unknown)
        });
        self.all_known &= is_known;
        let mut hidden_by = BTreeSet::new();
        let named = named_namespaces(cx, object, header);
        let mut find = |namespaces: BTreeSet<Namespace>, is_guess: bool| {
            let before = self.list.len();
            for namespace in namespaces {
                for scope in scopes(cx, &namespace) {
                    if scope.as_ref().is_some_and(|scope| !scope.imports(cx, header)) {
                        hidden_by.extend(
                            scope.and_then(|scope| scope.sidecar).map(|(of, name)| format!("{of}/{name}")),
                        );
                        continue;
                    }
                    if !report.may_compare(header.hosts.len()) {
                        self.all_known = false;
                        return true;
                    }
                    let client = sidecar(cx, header, namespace.clone(), scope);
                    self.list.push(Client { knows_ports: is_known, is_guess, ..client });
                }
            }
            self.list.len() > before
        };
        if find(with_workloads(cx, &named), false) {
            return;
        }
        let (others, are_all) = other_namespaces(cx, header, &named);
        if !find(others, true) && are_all {
            self.hidden_by = hidden_by;
        }
        if self.list.is_empty() && self.hidden_by.is_empty() {
            for namespace in named {
                self.list.push(Client { knows_ports: is_known, ..sidecar(cx, header, namespace, None) });
            }
        }
    }

    fn add_routers(
        &mut self,
        report: &mut Report<'_, '_>,
        header: &VirtualServiceHeader,
        gateway: &Arc<str>,
        namespace: &str,
        name: &str,
    ) {
        let cx = report.cx;
        let Some(object) = cx.object::<Gateway>(&namespace.into(), name) else {
            self.all_known = false;
            return;
        };
        let selected = cx.get(&Selected::new(None, &object.selector));
        let homes = match &*selected {
            Some(homes) if !homes.is_empty() && !object.selector.is_empty() => homes.clone(),
            _ => BTreeSet::from([object.namespace().clone()]),
        };
        let served: usize = object.servers.iter().map(|server| server.hosts.len()).sum();
        if !report.may_compare(header.hosts.len().saturating_mul(served)) {
            self.all_known = false;
            return;
        }
        let by_host: Vec<Ports> =
            header.hosts.iter().map(|host| router_ports(&object, header, host)).collect();
        for home in homes {
            if !is_exported(cx, header, &home) {
                self.left_out.insert(home);
                continue;
            }
            if !report.may_compare(header.hosts.len()) {
                self.all_known = false;
                return;
            }
            let client = Client::new(ProxyKind::Router, home, gateway.clone(), header.id.namespace.clone());
            self.list.push(client.with_ports(by_host.clone()));
        }
    }
}

/// Returns true if a VirtualService is visible to proxies of a namespace.
fn is_exported(cx: &Cx<'_>, header: &VirtualServiceHeader, to: &Namespace) -> bool {
    let mesh = cx.mesh();
    let default = mesh.default_virtual_service_export_to.iter().map(String::as_str);
    header.export_to.visible_to(to, &ExportTo::parse(default, &header.id.namespace))
}

/// Returns the sidecars of a scope, or of a namespace without a Sidecar.
fn sidecar(cx: &Cx<'_>, header: &VirtualServiceHeader, namespace: Namespace, scope: Option<Scope>) -> Client {
    let ports = |host| sidecar_ports(cx, &namespace, scope.as_ref(), host);
    let by_host = header.hosts.iter().map(ports).collect();
    let client = Client::new(ProxyKind::Sidecar, namespace, MESH.into(), header.id.namespace.clone());
    Client { scope, ..client.with_ports(by_host) }
}

/// Returns the scopes of the sidecars of a namespace; `None` for one that is not narrowed. Scopes without
/// workloads are left out if others have some.
pub(super) fn scopes(cx: &Cx<'_>, namespace: &Namespace) -> Vec<Option<Scope>> {
    let (selecting, default) = Scope::of_namespace(cx, namespace);
    let mut workloads = BTreeSet::clone(&cx.get(&LabelsIn(namespace.clone())));
    let any = !workloads.is_empty();
    let mut out = Vec::new();
    for (selector, scope) in selecting {
        let before = workloads.len();
        workloads.retain(|labels| !label_subset(&*selector, labels));
        if workloads.len() < before || !any {
            out.push(scope);
        }
    }
    if !workloads.is_empty() || !any {
        out.push(default);
    }
    out.into_iter().map(|scope| scope.is_narrowed(cx).then_some(scope)).collect()
}

/// Returns the namespaces of sidecars that represent all with the routes: those in `exportTo` (or else the
/// object's own) and in conditions.
fn named_namespaces(
    cx: &Cx<'_>,
    object: &Typed<VirtualService>,
    header: &VirtualServiceHeader,
) -> BTreeSet<Namespace> {
    let own = &header.id.namespace;
    let mut named: BTreeSet<Namespace> = match &header.export_to {
        ExportTo::Namespaces(namespaces) => BTreeSet::clone(namespaces),
        ExportTo::Unset | ExportTo::Public | ExportTo::Nobody => BTreeSet::from([own.clone()]),
    };
    let http = object.http.iter().flat_map(|route| &route.r#match).map(|m| &m.source_namespace);
    let tls = object.tls.iter().flat_map(|route| &route.r#match).map(|m| &m.source_namespace);
    let tcp = object.tcp.iter().flat_map(|route| &route.r#match).map(|m| &m.source_namespace);
    let sources: BTreeSet<&str> = http.chain(tls).chain(tcp).map(String::as_str).collect();
    named.extend(sources.into_iter().filter(|name| !name.is_empty()).map(Namespace::from));
    named.retain(|namespace| is_exported(cx, header, namespace));
    named
}

/// Returns other namespaces with workloads that may have the routes, those of the hosts first; and whether
/// these are all.
fn other_namespaces(
    cx: &Cx<'_>,
    header: &VirtualServiceHeader,
    named: &BTreeSet<Namespace>,
) -> (BTreeSet<Namespace>, bool) {
    /// Each costs a look at every destination that is not found.
    const MOST: usize = 50;
    let homes = header.hosts.iter().flat_map(|host| cx.namespaces_of(host));
    let known = cx.get(&Namespaces);
    let is_any_known = *cx.get(&AnyWorkload);
    let fits = |namespace: &Namespace| {
        !named.contains(namespace)
            && is_exported(cx, header, namespace)
            && (!is_any_known || !cx.get(&LabelsIn(namespace.clone())).is_empty())
    };
    let mut out = BTreeSet::new();
    for namespace in homes.chain(known.all.iter().cloned()).filter(fits) {
        if out.len() == MOST {
            return (out, false);
        }
        out.insert(namespace);
    }
    (out, true)
}

/// Returns the namespaces with workloads; all of them if no workload is known at all.
fn with_workloads(cx: &Cx<'_>, namespaces: &BTreeSet<Namespace>) -> BTreeSet<Namespace> {
    if !*cx.get(&AnyWorkload) {
        return namespaces.clone();
    }
    namespaces
        .iter()
        .filter(|namespace| !cx.get(&LabelsIn((*namespace).clone())).is_empty())
        .cloned()
        .collect()
}

/// True if any workload is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AnyWorkload;

impl Query for AnyWorkload {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let namespaces = cx.get(&Namespaces);
        namespaces.all.iter().any(|namespace| !cx.get(&LabelsIn(namespace.clone())).is_empty())
    }
}

/// The ports on which sidecars of a namespace route traffic for a host of a VirtualService.
fn sidecar_ports(cx: &Cx<'_>, namespace: &Namespace, scope: Option<&Scope>, host: &Hostname) -> Ports {
    let mut ports = Ports::default();
    if host.is_wildcard() {
        for (number, protocol) in cx.get(&PortsMeeting(host.clone())).iter() {
            ports.add(*number, *protocol);
        }
        if ports == Ports::default() {
            ports.http.insert(PLAIN_HTTP);
        }
        return ports;
    }
    let service = match scope {
        Some(scope) => Option::clone(&cx.get(&ServiceIn(scope.clone(), host.clone()))),
        None => service_listened_for(cx, namespace, host),
    };
    for port in service.iter().flat_map(|service| service.tcp_ports()) {
        ports.add(port.number, port.protocol);
    }
    match service {
        // Connections to an alias are those to the service at its end.
        Some(service) if service.resolution == Resolution::Alias => {
            (ports.tls, ports.tcp) = (BTreeSet::new(), BTreeSet::new());
        }
        Some(_) => {}
        None => {
            ports.http.insert(PLAIN_HTTP);
        }
    }
    // Connections to a wildcard host are also routed by the VirtualServices of the hosts that it covers.
    for service in hosts::wildcards_above(host).flat_map(|wildcard| services_of(cx, &wildcard)) {
        for port in service.tcp_ports() {
            let mut streams = Ports::default();
            streams.add(port.number, port.protocol);
            ports.extend(&Ports { http: BTreeSet::new(), ..streams });
        }
    }
    ports
}

/// Query for the ports of the services whose hosts overlap with a wildcard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PortsMeeting(Hostname);

impl Query for PortsMeeting {
    type Output = BTreeSet<(u32, Protocol)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let services = cx.services().filter(|(key, _)| key.hostname.matches(&self.0));
        let services = services.flat_map(|(_, services)| services.iter());
        services.flat_map(|service| service.tcp_ports().map(|port| (port.number, port.protocol))).collect()
    }
}

/// Returns the ports on which routers accept traffic for a host of a VirtualService.
fn router_ports(gateway: &Typed<Gateway>, header: &VirtualServiceHeader, host: &Hostname) -> Ports {
    let mut ports = Ports::default();
    for server in &gateway.servers {
        let hosts = server.hosts.iter().filter_map(|host| ServerHost::parse(host, gateway.namespace()));
        let written = WrittenHosts::of(&server.hosts);
        let mut met = hosts.filter(|server| {
            server.is_for(&header.id.namespace)
                && server.host.matches(host)
                && written.agree(&server.host, &header.written, host)
        });
        let Some(port) = server.port.as_ref().filter(|_| met.next().is_some()) else { continue };
        match ServerRoutes::of(port, server.tls.as_ref()) {
            Some(ServerRoutes::Http) => {
                if server.tls.is_some() && !Protocol::parse(&port.protocol).is_http() {
                    ports.https.insert(port.number);
                }
                ports.http.insert(port.number)
            }
            Some(ServerRoutes::Tls) => ports.tls.insert(port.number),
            Some(ServerRoutes::Tcp) => ports.tcp.insert(port.number),
            None => continue,
        };
    }
    ports
}
