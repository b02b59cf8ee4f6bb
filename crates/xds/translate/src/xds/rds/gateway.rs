//! Route configurations of routers: one for the plain HTTP servers of a port, one for each HTTPS server.
//!
//! Each common host of a server and a virtual service becomes a virtual host with the routes of all virtual
//! services that have it. Virtual hosts with equal routes are merged.

use super::budget::{RouteBudget, refusal};
use super::domains::{bracketed, host_port};
use super::encode::Host;
use super::finish;
use super::routes::{RoutesOf, Rules};
use super::view::RouteView;
use crate::engine::{Cx, EncodedResource, Refusal};
use crate::routing::gateway::{MergedGatewaysOf, MergedServer};
use crate::routing::{VirtualServiceHeader, VirtualServiceId, VirtualServicesByHost, VirtualServicesFor};
use bytes::Bytes;
use pilotfish_model::{Hostname, Kind, Origin};
use pilotfish_proto::envoy::config::route::v3::virtual_host::TlsRequirementType;
use pilotfish_proto::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns the route configuration of that name; an empty one for a name that no server uses (any more).
pub(super) fn route_configuration(view: &RouteView, cx: &Cx<'_>, name: &Arc<str>) -> EncodedResource {
    let merged = cx.get(&MergedGatewaysOf(view.gateways.clone()));
    let Some(servers) = merged.by_route.get(name) else {
        return super::empty(name);
    };
    let mut building = Building {
        view,
        cx,
        rules: BTreeMap::new(),
        hosts: BTreeMap::new(),
        provenance: Vec::new(),
        refused: Vec::new(),
    };
    for server in servers {
        building.add_server(server);
    }
    let mut hosts = building.collapse();
    hosts.sort_by(|a, b| a.own.name.cmp(&b.own.name));
    if let (true, Some(first)) = (hosts.is_empty(), servers.first()) {
        hosts.push(black_hole(first.port.number).into());
    }
    let config = RouteConfiguration {
        name: name.to_string(),
        ignore_port_in_host_matching: true,
        ..Default::default()
    };
    finish(config, &hosts, building.provenance).without(building.refused)
}

/// Returns a virtual host without routes, which answers every request with 404.
fn black_hole(port: u32) -> VirtualHost {
    VirtualHost { name: format!("blackhole:{port}"), domains: vec!["*".to_owned()], ..Default::default() }
}

/// Source of routes: a virtual service behind a gateway.
type Source = (Arc<str>, VirtualServiceId);

/// Draft of a virtual host, to which servers add routes.
struct Draft {
    name: String,
    /// Sources of its routes, in order.
    sources: Vec<Source>,
    /// The Ingresses among them.
    ingresses: BTreeSet<VirtualServiceId>,
    /// True if plain HTTP requests are redirected to HTTPS.
    redirects: bool,
}

struct Building<'a, 'c> {
    view: &'a RouteView,
    cx: &'a Cx<'c>,
    rules: BTreeMap<Source, Arc<Rules>>,
    hosts: BTreeMap<Hostname, Draft>,
    provenance: Vec<Origin>,
    refused: Vec<Refusal>,
}

impl Building<'_, '_> {
    fn add_server(&mut self, server: &Arc<MergedServer>) {
        self.provenance.extend(server.provenance.iter().cloned());
        let visible = VirtualServicesFor {
            namespace: self.view.facets.scope.namespace.clone(),
            gateway: server.gateway.clone(),
        };
        let rules = self.cx.get(&VirtualServicesByHost(visible));
        for (header, hosts) in rules.meeting(&server.hosts, &server.written) {
            let Some(source) = self.source(server, header) else { continue };
            for host in hosts {
                self.add_host(&host, server, Some(source.clone()));
            }
        }
        if server.redirects() {
            for host in &server.hosts {
                self.add_host(&host.host, server, None);
            }
        }
    }

    /// Returns the routes of a virtual service behind the server's gateway; `None` if none of them applies.
    fn source(&mut self, server: &MergedServer, header: &VirtualServiceHeader) -> Option<Source> {
        let source = (server.gateway.clone(), header.id.clone());
        if !self.rules.contains_key(&source) {
            let rules = self.cx.get(&RoutesOf {
                rule: header.id.clone(),
                facets: self.view.facets.clone(),
                gateways: Arc::from([server.gateway.clone()]),
                port: server.port.number,
                tls: server.spec.tls.is_some(),
            });
            self.provenance.extend(rules.provenance.iter().cloned());
            self.rules.insert(source.clone(), rules);
        }
        let rules = self.rules.get(&source)?;
        (rules.routes.count() > 0).then_some(source)
    }

    fn add_host(&mut self, host: &Hostname, server: &MergedServer, source: Option<Source>) {
        let name = || host_port(host.as_str(), server.port.number);
        let draft = self.hosts.entry(host.clone()).or_insert_with(|| Draft {
            name: name(),
            sources: Vec::new(),
            ingresses: BTreeSet::new(),
            redirects: false,
        });
        // The gateways of several Ingresses share a virtual service for each host, which must be added once.
        let mut is_new =
            |(_, rule): &Source| rule.source != Kind::Ingress || draft.ingresses.insert(rule.clone());
        if let Some(source) = source.filter(|source| is_new(source)) {
            draft.sources.push(source);
        }
        draft.redirects |= server.redirects();
    }

    /// Returns the virtual hosts. Those with equal routes are merged, under the name of the most specific
    /// host.
    fn collapse(&mut self) -> Vec<Host> {
        let mut drafts: Vec<(Hostname, Draft)> = std::mem::take(&mut self.hosts).into_iter().collect();
        drafts.sort_by_key(|(host, _)| {
            (host.is_wildcard(), std::cmp::Reverse(host.as_str().len()), host.clone())
        });
        let mut kept: Vec<(Draft, Vec<String>)> = Vec::new();
        let mut places: BTreeMap<(Vec<Source>, bool), usize> = BTreeMap::new();
        for (host, draft) in drafts {
            let domain = bracketed(host.as_str()).into_owned();
            let same = (draft.sources.clone(), draft.redirects);
            match places.get(&same).and_then(|place| kept.get_mut(*place)) {
                Some((_, domains)) => domains.push(domain),
                None => {
                    places.insert(same, kept.len());
                    kept.push((draft, vec![domain]));
                }
            }
        }
        let mut budget = RouteBudget::new();
        let mut hosts = Vec::with_capacity(kept.len());
        for (draft, domains) in kept {
            let bytes = draft.name.len() + domains.iter().map(String::len).sum::<usize>();
            if budget.take_host(bytes, draft.sources.first().map(|(_, rule)| rule)) {
                hosts.push(self.virtual_host(draft, domains, &mut budget));
            }
        }
        let has_all = hosts.iter().any(|host: &Host| host.own.domains.iter().any(|domain| domain == "*"));
        hosts.extend(budget.instead_of_missing().filter(|_| !has_all).map(Host::from));
        self.refused = budget.into_refused();
        hosts
    }

    fn virtual_host(&self, draft: Draft, domains: Vec<String>, budget: &mut RouteBudget) -> Host {
        let (routes, shared) = self.routes(&draft, budget);
        let mut own = VirtualHost {
            domains,
            routes,
            name: draft.name,
            include_request_attempt_count: self.view.attempt_count,
            ..Default::default()
        };
        if draft.redirects {
            own.set_require_tls(TlsRequirementType::All);
        }
        Host { own, shared }
    }

    /// The routes of a virtual host: its own, or those of virtual services.
    fn routes(&self, draft: &Draft, budget: &mut RouteBudget) -> (Vec<Route>, Vec<Bytes>) {
        let rules = || draft.sources.iter().filter_map(|source| self.rules.get(source));
        let Some((_, rule)) = draft.sources.first() else { return Default::default() };
        let (routes, bytes) = rules().fold((0_usize, 0_usize), |(routes, bytes), rules| {
            (routes.saturating_add(rules.routes.count()), bytes.saturating_add(rules.routes.bytes()))
        });
        if !budget.take(routes, bytes, rule) {
            return (vec![refusal(rule)], Vec::new());
        }
        // Routes that match every request come last, so that they do not hide routes of other virtual
        // services.
        let (first, last): (Vec<Bytes>, Vec<Bytes>) = rules().map(|rules| rules.routes.split()).unzip();
        (Vec::new(), first.into_iter().chain(last).collect())
    }
}
