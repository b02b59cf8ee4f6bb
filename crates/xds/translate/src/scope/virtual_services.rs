//! Virtual services of sidecars, by host, for one egress listener of a scope.

use super::{Egress, EgressOf, Scope};
use crate::engine::{Cx, Query};
use crate::routing::{
    MESH, RouteDialect, VirtualServiceHeader, VirtualServiceIr, VirtualServiceOf, VirtualServicesFor,
};
use crate::services::host_index::HostIndex;
use pilotfish_model::Hostname;
use std::sync::Arc;

/// The virtual services that an egress listener of a scope imports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeshVirtualServices {
    /// In order of precedence.
    pub list: Vec<Arc<VirtualServiceHeader>>,
    /// The virtual services of each host, wildcards too, by position in `list`.
    by_host: HostIndex,
}

impl MeshVirtualServices {
    /// Takes virtual services in order of precedence.
    #[must_use]
    pub(crate) fn new(list: Vec<Arc<VirtualServiceHeader>>) -> Self {
        let mut by_host = HostIndex::default();
        for (index, header) in list.iter().enumerate() {
            header.hosts.iter().for_each(|host| by_host.add(host, index));
        }
        Self { list, by_host }
    }

    /// Returns the virtual service for the host of a service: the first with exactly this host, or else the
    /// first with the longest wildcard that covers it.
    #[must_use]
    pub(crate) fn serving(&self, host: &Hostname) -> Option<&Arc<VirtualServiceHeader>> {
        let (_, positions) = self.by_host.above(host).next()?;
        self.list.get(*positions.first()?)
    }

    /// The virtual services that have a host in common with this one, in order of precedence.
    fn meeting(&self, host: &Hostname) -> impl Iterator<Item = &Arc<VirtualServiceHeader>> {
        self.by_host.meeting(host).into_iter().filter_map(|position| self.list.get(position))
    }
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
        let imported = visible.iter().filter(|header| imports(listener, header));
        MeshVirtualServices::new(imported.cloned().collect())
    }
}

/// True if an egress listener imports a virtual service that is visible to its proxies.
pub(super) fn imports(listener: &Egress, header: &VirtualServiceHeader) -> bool {
    let namespace = &header.id.namespace;
    header.hosts.iter().any(|host| match header.dialect {
        // A route of the Gateway API is imported like a service: only if its host is covered.
        RouteDialect::GatewayApi => listener.imports.has_service(namespace, host),
        _ => listener.imports.has_rule_host(namespace, host),
    })
}

/// Query for the virtual services with TCP or TLS routes for the host of a service, in order of precedence.
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
        let concerned = rules.meeting(&self.host).filter(|header| header.has_streams);
        let ids = concerned.map(|header| VirtualServiceOf(header.id.clone()));
        ids.filter_map(|id| Option::clone(&cx.get(&id))).collect()
    }
}

#[cfg(test)]
mod tests;
