//! Route configurations of sidecars: one for each port, one for each sniffed port of a service, one for the
//! explicit proxy.

use super::action::is_grpc;
use super::budget::{RouteBudget, refusal};
use super::domains::{Domains, host_port};
use super::encode::Host;
use super::plan::{Plan, PlanOf, Planned};
use super::routes::{DefaultRetries, HashingOf, RoutesOf, Rules, default_route};
use super::services::{UNIX_SOCKET, is_http_proxy, listener_of};
use super::view::{RouteFacets, RouteView, mesh_gateway};
use super::{catch_all, encoded_routes, finish};
use crate::engine::{ByContent, Cx, EncodedResource, Refusal};
use crate::envoy::{outbound_name, port_number};
use crate::policy::destination_rule::AnyConsistentHash;
use crate::routing::VirtualServiceId;
use crate::scope::cluster_host;
use crate::services::alias;
use bytes::Bytes;
use pilotfish_model::{Origin, Service};
use pilotfish_proto::envoy::config::route::v3::{RetryPolicy, RouteConfiguration, VirtualHost};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The route of the explicit HTTP proxy.
const HTTP_PROXY: &str = "http_proxy";

/// The parts of the name of a route configuration.
enum Name {
    /// Requests to a port.
    Port(u32),
    /// Requests to one service port that was sniffed.
    Sniffed(u32),
    /// Requests to the explicit proxy or to a Unix socket: for all ports.
    Explicit,
}

fn parse(name: &str) -> Option<Name> {
    if name == HTTP_PROXY || name.starts_with(UNIX_SOCKET) {
        return Some(Name::Explicit);
    }
    match name.rsplit_once(':') {
        Some((_, port)) => port_number(port).map(Name::Sniffed),
        None => port_number(name).map(Name::Port),
    }
}

/// Returns true if no route configuration can have the name, in any world.
pub(super) fn is_meaningless(name: &str) -> bool {
    parse(name).is_none()
}

/// Returns the route configuration of that name; a placeholder for an invalid name or a port without hosts.
pub(super) fn route_configuration(view: &RouteView, cx: &Cx<'_>, name: &Arc<str>) -> EncodedResource {
    let mut is_there = true;
    let Hosts { hosts, provenance, refused } = match parse(name) {
        Some(Name::Port(port)) => {
            let known = virtual_hosts(view, cx, port, name);
            is_there = !known.hosts.is_empty();
            with_catch_all(view, cx, known)
        }
        Some(Name::Sniffed(port)) => sniffed(view, cx, port, name),
        Some(Name::Explicit) => with_catch_all(view, cx, virtual_hosts(view, cx, 0, name)),
        None => return super::empty(name),
    };
    let config = RouteConfiguration {
        name: name.to_string(),
        ignore_port_in_host_matching: true,
        ..Default::default()
    };
    let config = finish(config, &hosts, provenance).without(refused);
    if is_there { config } else { config.standing_in() }
}

/// Adds the virtual host for all other hosts, unless a virtual service has all hosts.
fn with_catch_all(view: &RouteView, cx: &Cx<'_>, mut all: Hosts) -> Hosts {
    if !all.hosts.iter().any(|host| host.own.domains.iter().any(|domain| domain == "*")) {
        all.hosts.push(catch_all::virtual_host(cx, view).into());
    }
    all
}

/// Returns the only virtual host of a detected port: the connection's address has selected the service, so it
/// matches every host.
fn sniffed(view: &RouteView, cx: &Cx<'_>, port: u32, name: &str) -> Hosts {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    let Some(listener) = listener_of(cx, &view.facets.scope, port, name) else { return Default::default() };
    let plan = cx.get(&PlanOf { scope: view.facets.scope.clone(), listener, port }).only(host);
    let mut all = planned_hosts(view, cx, port, &plan);
    for host in &mut all.hosts {
        host.own.domains = vec!["*".to_owned()];
    }
    all
}

/// The virtual hosts of a port, by name; of all ports for 0.
pub(super) fn virtual_hosts(view: &RouteView, cx: &Cx<'_>, port: u32, route: &str) -> Hosts {
    let Some(listener) = listener_of(cx, &view.facets.scope, port, route) else { return Default::default() };
    // A listener that is an explicit HTTP proxy receives requests for hosts of any port.
    let port = if is_http_proxy(cx, &view.facets.scope, listener) { 0 } else { port };
    let plan = cx.get(&PlanOf { scope: view.facets.scope.clone(), listener, port });
    planned_hosts(view, cx, port, &plan)
}

fn planned_hosts(view: &RouteView, cx: &Cx<'_>, port: u32, plan: &Plan) -> Hosts {
    let mut building = Building::new(view, cx, port);
    // Services of virtual services are collected first, so that a short form of one host never hides the full
    // name of another.
    let planned: Vec<(&Planned, Arc<Rules>)> =
        plan.ruled.iter().filter_map(|planned| Some((planned, building.routes(planned)?))).collect();
    let served: BTreeSet<_> =
        planned.iter().flat_map(|(planned, _)| planned.services.iter().map(|s| &s.hostname)).collect();
    let others: Vec<_> =
        plan.services.iter().filter(|(_, service)| !served.contains(&service.hostname)).collect();
    for (planned, _) in &planned {
        planned.services.iter().for_each(|service| building.domains.know(service, planned.port));
    }
    others.iter().for_each(|(port, service)| building.domains.know(service, *port));
    building.domains.settle();
    for (planned, rules) in &planned {
        building.add_ruled(planned, rules);
    }
    for (port, service) in others {
        building.add_default(*port, service);
    }
    building.finish()
}

/// Virtual hosts, with the objects that they come from and the parts that are left out.
#[derive(Default)]
pub(super) struct Hosts {
    pub(super) hosts: Vec<Host>,
    pub(super) provenance: Vec<Origin>,
    pub(super) refused: Vec<Refusal>,
}

/// The routes of a virtual host.
enum Routes<'r> {
    /// Routes of a virtual service.
    Of(&'r VirtualServiceId, &'r Arc<Rules>),
    /// The one route of a service without a virtual service, encoded.
    Default(Bytes),
}

struct Building<'a, 'c> {
    view: &'a RouteView,
    /// Interned facets of the view.
    facets: ByContent<RouteFacets>,
    cx: &'a Cx<'c>,
    /// The port that is listened on; 0 for all.
    port: u32,
    /// True if any rule has a hash policy.
    hashes: bool,
    retries: Arc<Option<RetryPolicy>>,
    domains: Domains<'a>,
    names: BTreeSet<String>,
    budget: RouteBudget,
    hosts: Vec<(u32, Host)>,
    provenance: Vec<Origin>,
}

impl<'a, 'c> Building<'a, 'c> {
    fn new(view: &'a RouteView, cx: &'a Cx<'c>, port: u32) -> Self {
        Self {
            view,
            facets: cx.shared().by_content(view.facets.clone()),
            cx,
            port,
            hashes: *cx.get(&AnyConsistentHash),
            retries: cx.get(&DefaultRetries),
            domains: Domains::new(view, port != 0 && !is_grpc(&view.facets)),
            names: BTreeSet::new(),
            budget: RouteBudget::new(),
            hosts: Vec::new(),
            provenance: Vec::new(),
        }
    }

    /// Returns the routes of a virtual service; `None` if none applies to this proxy, so that the virtual
    /// service is ignored.
    fn routes(&self, planned: &Planned) -> Option<Arc<Rules>> {
        let rules = self.cx.get(&RoutesOf {
            rule: planned.rule.clone(),
            facets: self.view.facets.clone(),
            gateways: mesh_gateway(),
            port: self.port,
            tls: false,
        });
        (rules.routes.count() > 0).then_some(rules)
    }

    fn add_ruled(&mut self, planned: &Planned, rules: &Arc<Rules>) {
        let mut used = false;
        for host in &planned.other_hosts {
            let domains = self.domains.of_host(host, planned.port);
            used |= self.add(host.as_str(), planned.port, domains, Routes::Of(&planned.rule, rules));
        }
        for service in &planned.services {
            let domains = self.domains_of(service, planned.port);
            if self.add(service.hostname.as_str(), planned.port, domains, Routes::Of(&planned.rule, rules)) {
                self.provenance.push(service.provenance.clone());
                used = true;
            }
        }
        if used {
            self.provenance.extend(rules.provenance.iter().cloned());
        }
    }

    fn add_default(&mut self, port: u32, service: &Arc<Service>) {
        let domains = self.domains_of(service, port);
        let hashing = if self.hashes {
            self.cx.get(&HashingOf { facets: self.facets.clone(), host: service.hostname.clone(), port })
        } else {
            Arc::default()
        };
        let host = cluster_host(self.cx, &self.view.facets.scope, service.hostname.as_str());
        let cluster = outbound_name(port, "", &host);
        let retries = self.retries.as_ref().as_ref();
        let route = default_route(&service.hostname, port, cluster, &hashing, retries);
        if self.add(service.hostname.as_str(), port, domains, Routes::Default(encoded_routes::one(&route))) {
            self.provenance.push(service.provenance.clone());
            self.provenance.extend(hashing.provenance.iter().cloned());
        }
    }

    fn domains_of(&mut self, service: &Service, port: u32) -> Vec<String> {
        let aliases = alias::names(self.cx, &service.hostname);
        self.domains.of_service(service, &aliases, port)
    }

    /// Adds a virtual host, unless its name or all its domains are taken. Returns true if it was added.
    fn add(&mut self, host: &str, port: u32, domains: Vec<String>, routes: Routes<'_>) -> bool {
        let name = host_port(host, port);
        if !self.names.insert(name.clone()) {
            return false;
        }
        let domains = self.domains.take(domains);
        if domains.is_empty() {
            return false;
        }
        let rule = if let Routes::Of(rule, _) = &routes { Some(*rule) } else { None };
        if !self.budget.take_host(name.len() + domains.iter().map(String::len).sum::<usize>(), rule) {
            return false;
        }
        let (routes, shared) = match routes {
            Routes::Of(rule, rules) if self.budget.take(rules.routes.count(), rules.routes.bytes(), rule) => {
                (Vec::new(), vec![rules.routes.all()])
            }
            Routes::Of(rule, _) => (vec![refusal(rule)], Vec::new()),
            Routes::Default(route) => (Vec::new(), vec![route]),
        };
        let own = VirtualHost {
            name,
            domains,
            routes,
            include_request_attempt_count: self.view.attempt_count,
            ..Default::default()
        };
        self.hosts.push((port, Host { own, shared }));
        true
    }

    fn finish(mut self) -> Hosts {
        if self.port == 0 {
            only_with_port(&mut self.hosts);
        }
        let mut hosts: Vec<Host> = self.hosts.into_iter().map(|(_, host)| host).collect();
        hosts.sort_by(|a, b| a.own.name.cmp(&b.own.name));
        let has_all = hosts.iter().any(|host| host.own.domains.iter().any(|domain| domain == "*"));
        hosts.extend(self.budget.instead_of_missing().filter(|_| !has_all).map(Host::from));
        Hosts { hosts, provenance: self.provenance, refused: self.budget.into_refused() }
    }
}

/// Removes domains without a port from hosts of other ports than 80: if one route configuration serves all
/// ports, a host without a port means port 80.
fn only_with_port(hosts: &mut Vec<(u32, Host)>) {
    for (port, host) in hosts.iter_mut() {
        if *port != 80 {
            host.own.domains.retain(|domain| domain.contains(':'));
        }
    }
    hosts.retain(|(_, host)| !host.own.domains.is_empty());
}
