//! Objects related to a service: proxies that see it, routes of its host and to it, policies of its clients
//! and of its workloads. They come from the queries that generate resources.

use super::Snapshot;
use crate::engine::{Cx, Query, reference};
use crate::policy::attachment::{Policy, concerns};
use crate::policy::destination_rule::DestinationRulesFor;
use crate::policy::peer_authentication::{PeerAuthenticationsOf, RootNamespace};
use crate::proxy::Proxy;
use crate::routing::{
    AllVirtualServices, HttpRule, VirtualServiceHeader, VirtualServiceIr, VirtualServiceOf,
};
use crate::scope::{Scope, ServicesOf};
use pilotfish_config::extensions::{TrafficExtension, WasmPlugin};
use pilotfish_config::networking::{Destination, VirtualService};
use pilotfish_config::security::{AuthorizationPolicy, RequestAuthentication};
use pilotfish_config::telemetry::Telemetry;
use pilotfish_model::{Hostname, Kind, Labels, Namespace, ObjectKey, Origin, Service, ServiceKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Routes of a host, or with the host as destination: of a VirtualService, an Ingress, or a route of the
/// Gateway API.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostRoutes {
    /// The objects that made them.
    pub objects: Vec<Origin>,
    /// The namespace of the first of them.
    pub namespace: Namespace,
    /// The hosts that they are for.
    pub hosts: Vec<Hostname>,
    /// The gateways: `namespace/name`, or `mesh`.
    pub gateways: Vec<Arc<str>>,
    /// Destinations: full host names, and subsets.
    pub destinations: BTreeSet<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeenBy(Arc<Proxy>);

impl Query for SeenBy {
    type Output = Vec<Arc<Service>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.get(&ServicesOf(Scope::of(cx, &self.0))).list.clone()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SidecarOf(Arc<Proxy>);

impl Query for SidecarOf {
    type Output = Option<ObjectKey>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let sidecar = Scope::of(cx, &self.0).sidecar;
        sidecar.map(|(namespace, name)| ObjectKey::new(Kind::Sidecar, namespace, name))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RoutesOf(Hostname);

impl Query for RoutesOf {
    type Output = Vec<HostRoutes>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let host = &self.0;
        // Routes are read only if a name in them may refer to this host.
        let mentions: BTreeSet<(Namespace, Arc<str>)> = cx
            .objects::<VirtualService>()
            .filter(|object| destinations_of(object).any(|named| may_mean(&named.host, host)))
            .map(|object| (object.namespace().clone(), object.key().name.clone()))
            .collect();
        let mut found = Vec::new();
        for header in cx.get(&AllVirtualServices).iter() {
            let is_host = header.hosts.iter().any(|own| own.matches(host));
            let id = &header.id;
            let may_lead = id.source != Kind::VirtualService
                || header.delegates
                || mentions.contains(&(id.namespace.clone(), id.name.clone()));
            if !is_host && !may_lead {
                continue;
            }
            let rule = cx.get(&VirtualServiceOf(id.clone()));
            let Some(rule) = &*rule else { continue };
            let routes = routes(header, rule);
            if is_host || routes.destinations.iter().any(|(to, _)| to == host.as_str()) {
                found.push(routes);
            }
        }
        found
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllRoutes;

impl Query for AllRoutes {
    type Output = Vec<HostRoutes>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let all = cx.get(&AllVirtualServices);
        let of = |header: &Arc<VirtualServiceHeader>| {
            let rule = cx.get(&VirtualServiceOf(header.id.clone()));
            Option::as_ref(&*rule).map(|rule| routes(header, rule))
        };
        all.iter().filter_map(of).collect()
    }
}

fn routes(header: &VirtualServiceHeader, rule: &VirtualServiceIr) -> HostRoutes {
    let text = |to: &Destination| (to.host.clone(), to.subset.clone());
    let http = rule.http.iter().map(HttpRule::whole).flat_map(|route| {
        let mirrors = route.mirrors.iter().filter_map(|mirror| mirror.destination.as_ref());
        let all =
            route.route.iter().filter_map(|to| to.destination.as_ref()).chain(&route.mirror).chain(mirrors);
        all.map(text).collect::<Vec<_>>()
    });
    let tls = rule.tls.iter().flat_map(|route| route.route.iter().filter_map(|to| to.destination.as_ref()));
    let tcp = rule.tcp.iter().flat_map(|route| route.route.iter().filter_map(|to| to.destination.as_ref()));
    let destinations = http.chain(tls.chain(tcp).map(text));
    HostRoutes {
        objects: rule.provenance.clone(),
        namespace: header.id.namespace.clone(),
        hosts: header.hosts.clone(),
        gateways: header.gateways.clone(),
        destinations: destinations.collect(),
    }
}

/// The destinations as they are written.
fn destinations_of(object: &VirtualService) -> impl Iterator<Item = &Destination> {
    let http = object.http.iter().flat_map(|route| {
        let mirrors = route.mirrors.iter().filter_map(|mirror| mirror.destination.as_ref());
        route.route.iter().filter_map(|to| to.destination.as_ref()).chain(&route.mirror).chain(mirrors)
    });
    let tls = object.tls.iter().flat_map(|route| route.route.iter().filter_map(|to| to.destination.as_ref()));
    let tcp = object.tcp.iter().flat_map(|route| route.route.iter().filter_map(|to| to.destination.as_ref()));
    http.chain(tls).chain(tcp)
}

/// Returns true if a name in an object may be a short form of the host.
fn may_mean(written: &str, host: &Hostname) -> bool {
    written == host.as_str() || (!written.contains('.') && host.as_str().split('.').next() == Some(written))
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PoliciesOn(Namespace, Labels);

impl Query for PoliciesOn {
    type Output = Vec<Origin>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Origin> {
        let Self(namespace, labels) = self;
        let mut found = cx.get(&PeerAuthenticationsOf(namespace.clone())).provenance_of(labels);
        self.add::<RequestAuthentication>(cx, &mut found);
        self.add::<AuthorizationPolicy>(cx, &mut found);
        self.add::<Telemetry>(cx, &mut found);
        self.add::<WasmPlugin>(cx, &mut found);
        self.add::<TrafficExtension>(cx, &mut found);
        found
    }
}

impl PoliciesOn {
    fn add<T: Policy>(&self, cx: &Cx<'_>, found: &mut Vec<Origin>) {
        let Self(namespace, labels) = self;
        let root = cx.get(&RootNamespace);
        let mut namespaces = vec![&*root];
        namespaces.extend((*root != *namespace).then_some(namespace));
        for policies in namespaces.into_iter().map(|of| cx.objects_in::<T>(of)) {
            found.extend(policies.iter().filter(|policy| concerns(policy, namespace, labels)).map(reference));
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClientPoliciesOf(Namespace, ServiceKey);

impl Query for ClientPoliciesOf {
    type Output = Vec<Origin>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Origin> {
        let rules = cx.get(&DestinationRulesFor::new(&self.0, self.1.clone()));
        rules.inbound().map(|rule| rule.provenance.clone()).unwrap_or_default()
    }
}

/// The labels of the subsets of a service, by name, for clients of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SubsetsOf(Namespace, ServiceKey);

impl Query for SubsetsOf {
    type Output = SubsetLabels;

    fn compute(&self, cx: &Cx<'_>) -> SubsetLabels {
        let rules = cx.get(&DestinationRulesFor::new(&self.0, self.1.clone()));
        let subsets = rules.inbound().into_iter().flat_map(|rule| &rule.subsets);
        subsets.map(|subset| (subset.name.clone(), subset.labels.clone())).collect()
    }
}

/// Labels that endpoints of a subset have, by the name of the subset.
pub type SubsetLabels = BTreeMap<String, BTreeMap<String, String>>;

impl Snapshot<'_> {
    /// The services that a proxy sees, one for each host.
    #[must_use]
    pub fn services_seen(&self, proxy: &Arc<Proxy>) -> Arc<Vec<Arc<Service>>> {
        self.translator.memo.get(&self.current, &SeenBy(proxy.clone())).0
    }

    /// The Sidecar that restricts a proxy's scope.
    #[must_use]
    pub fn sidecar_of(&self, proxy: &Arc<Proxy>) -> Option<ObjectKey> {
        Option::clone(&self.translator.memo.get(&self.current, &SidecarOf(proxy.clone())).0)
    }

    /// The routes for a host, and those that lead to it.
    #[must_use]
    pub fn routes_of(&self, host: &Hostname) -> Arc<Vec<HostRoutes>> {
        self.translator.memo.get(&self.current, &RoutesOf(host.clone())).0
    }

    /// All routes, in order of precedence.
    #[must_use]
    pub fn all_routes(&self) -> Arc<Vec<HostRoutes>> {
        self.translator.memo.get(&self.current, &AllRoutes).0
    }

    /// The policies on a workload with these labels: of its namespace and of the mesh.
    #[must_use]
    pub fn policies_on(&self, namespace: &Namespace, labels: &Labels) -> Arc<Vec<Origin>> {
        self.translator.memo.get(&self.current, &PoliciesOn(namespace.clone(), labels.clone())).0
    }

    /// The subsets of a service for clients of a namespace, without DestinationRules that have a workload
    /// selector.
    #[must_use]
    pub fn subsets_of(&self, client: &Namespace, service: &ServiceKey) -> Arc<SubsetLabels> {
        self.translator.memo.get(&self.current, &SubsetsOf(client.clone(), service.clone())).0
    }

    /// The DestinationRules that clients of a namespace use for a service, without those that have a workload
    /// selector.
    #[must_use]
    pub fn client_policies_of(&self, client: &Namespace, service: &ServiceKey) -> Arc<Vec<Origin>> {
        self.translator.memo.get(&self.current, &ClientPoliciesOf(client.clone(), service.clone())).0
    }
}
