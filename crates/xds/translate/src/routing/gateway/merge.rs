//! The servers of a router's gateways, merged.

use super::{AllGateways, GatewayOf, MergedServer, RouterGateways};
use crate::engine::{Cx, Query};
use crate::routing::ir::{Gateway, GatewayHeader, GatewayId, Selection, ServerHost, WrittenHosts};
use pilotfish_config::networking::Server;
use pilotfish_model::{Kind, Protocol, ServiceKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The servers of a router.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MergedGateways {
    /// By port, protocol and address, in the order of precedence.
    pub ports: Vec<PortServers>,
    /// Servers that route requests, by the name of their route configuration.
    pub by_route: BTreeMap<Arc<str>, Vec<Arc<MergedServer>>>,
}

/// The servers that share a port, a protocol and an address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortServers {
    /// The port of the router.
    pub port: u32,
    /// The protocol as written.
    pub protocol: Arc<str>,
    /// The address; empty for all.
    pub bind: Arc<str>,
    /// The route configuration that plain HTTP servers share; empty for others.
    pub route: Arc<str>,
    /// In the order of precedence.
    pub servers: Vec<Arc<MergedServer>>,
}

impl PortServers {
    #[must_use]
    pub(crate) fn protocol(&self) -> Protocol {
        Protocol::parse(&self.protocol)
    }
}

/// The merged servers of a router.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MergedGatewaysOf(pub RouterGateways);

impl Query for MergedGatewaysOf {
    type Output = MergedGateways;

    fn compute(&self, cx: &Cx<'_>) -> MergedGateways {
        let headers = cx.get(&AllGateways);
        let headers: BTreeMap<&GatewayId, &GatewayHeader> =
            headers.iter().rev().map(|header| (&header.id, header)).collect();
        let mut merging = Merging::default();
        for id in self.0.gateways.iter() {
            let header = headers.get(id).copied();
            let gateway = cx.get(&GatewayOf(id.clone()));
            if let (Some(gateway), Some(header)) = (&*gateway, header) {
                merging.add_gateway(gateway, header, &self.0);
            }
        }
        merging.out
    }
}

#[derive(Default)]
struct Merging {
    out: MergedGateways,
    /// Positions in `out.ports` by port, protocol and address.
    places: BTreeMap<(u32, String, Arc<str>), usize>,
    /// Ports with a server.
    taken: BTreeSet<u32>,
    /// Position of the first server of a port, if it is plain.
    plain: BTreeMap<u32, usize>,
    /// The addresses of a port that has TLS servers, of all servers but its first.
    tls_binds: BTreeMap<u32, BTreeSet<Arc<str>>>,
    /// The hosts with TLS settings of each port, with their address.
    tls_hosts: BTreeMap<u32, BTreeMap<ServerHost, Arc<str>>>,
}

impl Merging {
    fn add_gateway(&mut self, gateway: &Gateway, header: &GatewayHeader, bound: &RouterGateways) {
        let services: Option<Vec<ServiceKey>> = match &header.selection {
            Selection::Labels(_) => None,
            Selection::Services(hosts) => Some(hosts.iter().map(|host| service_of(header, host)).collect()),
        };
        for spec in &gateway.servers {
            let Some(port) = &spec.port else { continue };
            for number in bound.ports(port.number, services.as_deref()) {
                let server = MergedServer {
                    gateway: gateway.id.reference(),
                    namespace: gateway.id.namespace.clone(),
                    hosts: hosts_of(spec, gateway),
                    written: written_hosts(spec, gateway),
                    port: port.clone(),
                    route: "".into(),
                    provenance: gateway.provenance.as_slice().into(),
                    spec: spec.clone(),
                };
                let route = route_name(&server, number, gateway);
                self.add(number, MergedServer { route, ..server });
            }
        }
    }

    /// Adds a server, unless it conflicts with an older one.
    fn add(&mut self, port: u32, server: MergedServer) {
        let bind: Arc<str> = server.spec.bind.as_str().into();
        if server.spec.tls.is_some() && self.has_tls_host(port, &bind, &server.hosts) {
            return;
        }
        let server = Arc::new(server);
        if self.taken.insert(port) {
            self.add_first(port, &bind, &server);
        } else if let Some(&first) = self.plain.get(&port) {
            self.add_to_plain(first, port, &bind, &server);
        } else {
            self.add_to_tls(port, &bind, &server);
        }
    }

    /// Returns true if some of the hosts already has a TLS server at the port and address; otherwise records
    /// the hosts.
    fn has_tls_host(&mut self, port: u32, bind: &Arc<str>, hosts: &[ServerHost]) -> bool {
        let known = self.tls_hosts.entry(port).or_default();
        let duplicate = hosts.iter().any(|host| known.get(host) == Some(bind));
        if !duplicate {
            known.extend(hosts.iter().map(|host| (host.clone(), bind.clone())));
        }
        duplicate
    }

    fn add_first(&mut self, port: u32, bind: &Arc<str>, server: &Arc<MergedServer>) {
        if !server.is_tls() {
            self.plain.insert(port, self.out.ports.len());
        }
        if server.is_http() {
            self.out.by_route.entry(server.route.clone()).or_default().push(server.clone());
        }
        self.push(port, bind, server);
    }

    /// Adds a server to a port that starts with a plain one: plain HTTP beside plain HTTP, or another
    /// address.
    fn add_to_plain(&mut self, first: usize, port: u32, bind: &Arc<str>, server: &Arc<MergedServer>) {
        let Some(current) = self.out.ports.get_mut(first) else { return };
        if current.bind == *bind {
            let (new, old) = (server.protocol(), current.protocol());
            let can_share = old.is_http() && (new.is_http() || new == old);
            if !can_share || server.route.is_empty() {
                return;
            }
            current.servers.push(server.clone());
        } else {
            self.push(port, bind, server);
        }
        self.out.by_route.entry(server.route.clone()).or_default().push(server.clone());
    }

    /// Adds a server to a port that starts with a TLS one: TLS servers that SNI distinguishes, one plain
    /// server for traffic without TLS, or another address.
    fn add_to_tls(&mut self, port: u32, bind: &Arc<str>, server: &Arc<MergedServer>) {
        let binds = self.tls_binds.entry(port).or_default();
        if server.spec.tls.is_none() && binds.contains(bind) {
            return;
        }
        if server.is_http() {
            if server.route.is_empty() || self.out.by_route.contains_key(&server.route) {
                return;
            }
            self.out.by_route.insert(server.route.clone(), vec![server.clone()]);
        }
        binds.insert(bind.clone());
        self.push(port, bind, server);
    }

    fn push(&mut self, port: u32, bind: &Arc<str>, server: &Arc<MergedServer>) {
        let place = (port, server.port.protocol.clone(), bind.clone());
        let place = *self.places.entry(place).or_insert(self.out.ports.len());
        match self.out.ports.get_mut(place) {
            Some(held) => held.servers.push(server.clone()),
            None => self.out.ports.push(PortServers {
                port,
                protocol: server.port.protocol.as_str().into(),
                bind: bind.clone(),
                route: server.route.clone(),
                servers: vec![server.clone()],
            }),
        }
    }
}

fn service_of(header: &GatewayHeader, host: &pilotfish_model::Hostname) -> ServiceKey {
    ServiceKey { hostname: host.clone(), namespace: header.routers.clone() }
}

fn hosts_of(spec: &Server, gateway: &Gateway) -> Vec<ServerHost> {
    spec.hosts.iter().filter_map(|host| ServerHost::parse(host, &gateway.id.namespace)).collect()
}

fn written_hosts(spec: &Server, gateway: &Gateway) -> WrittenHosts {
    match gateway.id.source {
        Kind::Gateway => WrittenHosts::of(&spec.hosts),
        _ => WrittenHosts::default(),
    }
}

/// Plain HTTP servers of a port and address share a route configuration; each HTTPS server has its own.
fn route_name(server: &MergedServer, port: u32, gateway: &Gateway) -> Arc<str> {
    let bind = match server.spec.bind.as_str() {
        "" => String::new(),
        bind => format!(".{bind}"),
    };
    let protocol = server.protocol();
    if protocol.is_http() {
        return format!("http.{port}{bind}").into();
    }
    if server.is_http() {
        let (number, name) = (server.port.number, &server.port.name);
        return format!("https.{number}.{name}.{}.{}{bind}", gateway.id.name, gateway.id.namespace).into();
    }
    "".into()
}
