//! Scopes: which services a proxy may see, and which one it sees where several share a host.
//!
//! A scope is chosen by Sidecar objects (or is the default one of a namespace), so all proxies of a namespace usually
//! share one.

use crate::{Cx, Proxy, ProxyKind, Query};
use pilotfish_model::{ExportTo, Hostname, Namespace, Service};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which services a proxy sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The kind of the proxy: Sidecar objects do not concern routers.
    pub kind: ProxyKind,
    /// The namespace whose configuration the proxy gets.
    pub namespace: Namespace,
    /// The Sidecar that narrows the scope, by namespace and name.
    pub sidecar: Option<(Namespace, Arc<str>)>,
}

impl Scope {
    /// The scope of a proxy.
    #[must_use]
    pub fn of(_cx: &Cx<'_>, proxy: &Proxy) -> Self {
        Self { kind: proxy.kind, namespace: proxy.namespace.clone(), sidecar: None }
    }
}

/// The services that a scope sees, one per host and address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// In order of precedence: the oldest first, then by name and namespace.
    pub list: Vec<Arc<Service>>,
    /// Positions in `list` by host.
    pub by_host: BTreeMap<Hostname, Vec<usize>>,
}

impl Services {
    /// The first service of a host.
    #[must_use]
    pub fn get(&self, hostname: &Hostname) -> Option<&Arc<Service>> {
        self.list.get(*self.by_host.get(hostname)?.first()?)
    }
}

/// The services of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicesOf(pub Scope);

impl Query for ServicesOf {
    type Output = Services;

    fn compute(&self, cx: &Cx<'_>) -> Services {
        let scope = &self.0;
        let default_export = cx.get(&DefaultServiceExport);
        // The proxy's own namespace first, then the order of precedence.
        let rank = |service: &Service| {
            (
                service.namespace != scope.namespace,
                service.created,
                service.name.clone(),
                service.namespace.clone(),
            )
        };
        let mut chosen: BTreeMap<&Hostname, &Arc<[Arc<Service>]>> = BTreeMap::new();
        for (key, services) in cx.services() {
            let Some(first) = services.first() else { continue };
            if !first.export_to.visible_to(&scope.namespace, &default_export) {
                continue;
            }
            let held = chosen.get(&key.hostname).and_then(|held| held.first());
            if held.is_none_or(|held| rank(first) < rank(held)) {
                chosen.insert(&key.hostname, services);
            }
        }
        let mut list: Vec<Arc<Service>> =
            chosen.values().flat_map(|services| services.iter().cloned()).collect();
        list.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        let mut by_host: BTreeMap<Hostname, Vec<usize>> = BTreeMap::new();
        for (index, service) in list.iter().enumerate() {
            by_host.entry(service.hostname.clone()).or_default().push(index);
        }
        Services { list, by_host }
    }
}

/// The mesh-wide default for services without `exportTo`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DefaultServiceExport;

impl Query for DefaultServiceExport {
    type Output = ExportTo;

    fn compute(&self, cx: &Cx<'_>) -> ExportTo {
        let mesh = cx.mesh();
        ExportTo::parse(mesh.default_service_export_to.iter().map(String::as_str), &Namespace::default())
    }
}
