//! The virtual services of sidecars: which virtual service serves which host, for one egress listener of a scope.

use super::{EgressOf, Scope};
use crate::engine::{Cx, Query};
use crate::routing::{
    MESH, RouteDialect, VirtualServiceHeader, VirtualServiceIr, VirtualServiceOf, VirtualServicesFor,
};
use pilotfish_model::Hostname;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The virtual services that an egress listener of a scope imports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeshVirtualServices {
    /// In order of precedence.
    pub list: Vec<Arc<VirtualServiceHeader>>,
    /// The first virtual service of each host, wildcards too, by position in `list`.
    by_host: BTreeMap<Hostname, usize>,
}

impl MeshVirtualServices {
    /// Rules in order of precedence.
    #[must_use]
    pub(crate) fn new(list: Vec<Arc<VirtualServiceHeader>>) -> Self {
        let mut by_host = BTreeMap::new();
        for (index, header) in list.iter().enumerate() {
            for host in &header.hosts {
                by_host.entry(host.clone()).or_insert(index);
            }
        }
        Self { list, by_host }
    }

    /// The virtual service that serves the host of a service: the first of exactly this host, else the first of the longest wildcard above it.
    #[must_use]
    pub(crate) fn serving(&self, host: &Hostname) -> Option<&Arc<VirtualServiceHeader>> {
        let exact = self.by_host.get(host);
        let index =
            exact.or_else(|| wildcards_above(host).find_map(|wildcard| self.by_host.get(&*wildcard)))?;
        self.list.get(*index)
    }
}

/// The wildcards that cover a host, the longest first.
fn wildcards_above(host: &Hostname) -> impl Iterator<Item = String> {
    let text = host.as_str();
    // Of a wildcard, the part behind the star: `*.a.b` is below `*.b`, and equal to itself, which was found before.
    let skip = usize::from(host.is_wildcard());
    let dots = text.char_indices().filter(|(_, c)| *c == '.').map(|(at, _)| at).skip(skip);
    dots.filter_map(|at| Some(format!("*{}", text.get(at..)?))).chain(std::iter::once("*".to_owned()))
}

/// The virtual services that an egress listener of a scope imports, by its position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MeshVirtualServicesOf(pub Scope, pub usize);

impl Query for MeshVirtualServicesOf {
    type Output = MeshVirtualServices;

    fn compute(&self, cx: &Cx<'_>) -> MeshVirtualServices {
        let Self(scope, index) = self;
        let visible =
            cx.get(&VirtualServicesFor { namespace: scope.namespace.clone(), gateway: MESH.into() });
        let listeners = cx.get(&EgressOf(scope.clone()));
        let Some(listener) = listeners.get(*index) else { return MeshVirtualServices::default() };
        let imported = |header: &&Arc<VirtualServiceHeader>| {
            let namespace = &header.id.namespace;
            header.hosts.iter().any(|host| match header.dialect {
                // A route of the Gateway API is imported like a service: with its whole host.
                RouteDialect::GatewayApi => listener.imports.has_service(namespace, host),
                _ => listener.imports.has_rule_host(namespace, host),
            })
        };
        MeshVirtualServices::new(visible.iter().filter(imported).cloned().collect())
    }
}

/// The virtual services with routes for TCP or TLS that concern the host of a service, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamVirtualServicesFor {
    pub scope: Scope,
    /// The position of its egress listener.
    pub listener: usize,
    /// The host of the service.
    pub host: Hostname,
}

impl Query for StreamVirtualServicesFor {
    type Output = Vec<Arc<VirtualServiceIr>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let rules = cx.get(&MeshVirtualServicesOf(self.scope.clone(), self.listener));
        let concerned = |header: &&Arc<VirtualServiceHeader>| {
            header.has_streams && header.hosts.iter().any(|host| host.matches(&self.host))
        };
        let ids = rules.list.iter().filter(concerned).map(|header| VirtualServiceOf(header.id.clone()));
        ids.filter_map(|id| Option::clone(&cx.get(&id))).collect()
    }
}

#[cfg(test)]
mod tests;
