//! Scopes: the services that a proxy may see, and the one that it sees if several share a host.
//!
//! A scope is chosen by Sidecar objects (or is the default one of a namespace), so all proxies of a namespace
//! usually share one. A scope has egress listeners: one for all traffic, unless a Sidecar declares others.
//!
//! ```text
//! Proxy ─▶ Scope ─▶ EgressOf: listeners, imported hosts ─▶ ListenerServicesOf ─▶ ServicesOf: one per host
//! ```

mod destinations;
mod egress;
mod services;
mod virtual_services;
mod visible;

pub(crate) use egress::{Egress, EgressOf, EgressPolicy, OutboundPolicyOf, cache_of_unknown_hosts};
pub(crate) use services::{
    ListenerServicesOf, ServiceIn, ServicesOf, cluster_host, own_service_seen, service_listened_for,
    service_seen,
};
pub(crate) use virtual_services::{MeshVirtualServices, MeshVirtualServicesOf, StreamVirtualServicesFor};
pub(crate) use visible::{VisibleTo, is_visible};

use crate::engine::{Cx, Query};
use crate::proxy::{Proxy, ProxyKind, workload};
use crate::routing::VirtualServiceHeader;
use pilotfish_config::networking::Sidecar;
use pilotfish_model::{Labels, Namespace, Typed, label_subset};
use std::sync::Arc;

/// Inputs that determine the services visible to a proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Scope {
    /// The kind of the proxy: Sidecar objects do not concern routers.
    pub kind: ProxyKind,
    /// The namespace whose configuration the proxy gets.
    pub namespace: Namespace,
    /// The Sidecar that narrows the scope, by namespace and name.
    pub sidecar: Option<(Namespace, Arc<str>)>,
}

impl Scope {
    /// The scope of a proxy: the oldest Sidecar of its namespace that selects it, else the oldest of its
    /// namespace without a selector, else that of the root namespace.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Self {
        let scope = Self { kind: proxy.kind, namespace: proxy.namespace.clone(), sidecar: None };
        if proxy.kind == ProxyKind::Router {
            return scope;
        }
        let own = cx.get(&SidecarsIn(proxy.namespace.clone()));
        let root = cx.get(&SidecarsIn(cx.mesh().root_namespace.as_str().into()));
        let selected = if own.selecting.is_empty() {
            None
        } else {
            let labels = workload::labels_of(cx, proxy);
            own.selecting
                .iter()
                .find(|(selector, _)| label_subset(&**selector, &labels))
                .map(|(_, name)| name)
        };
        let in_own = selected.or(own.default.as_ref()).map(|name| (proxy.namespace.clone(), name.clone()));
        let in_root =
            || root.default.as_ref().map(|name| (cx.mesh().root_namespace.as_str().into(), name.clone()));
        Self { sidecar: in_own.or_else(in_root), ..scope }
    }

    /// The scopes of the sidecars of a namespace: with the labels of the workloads that a Sidecar selects, in
    /// order of precedence, and that of all others.
    pub(crate) fn of_namespace(cx: &Cx<'_>, namespace: &Namespace) -> (Vec<(Labels, Self)>, Self) {
        let root_namespace: Namespace = cx.mesh().root_namespace.as_str().into();
        let own = cx.get(&SidecarsIn(namespace.clone()));
        let root = cx.get(&SidecarsIn(root_namespace.clone()));
        let scope = |sidecar| Self { kind: ProxyKind::Sidecar, namespace: namespace.clone(), sidecar };
        let of_own = |name: &Arc<str>| scope(Some((namespace.clone(), name.clone())));
        let selecting = own.selecting.iter().map(|(labels, name)| (labels.clone(), of_own(name)));
        let default = match (&own.default, &root.default) {
            (Some(name), _) => of_own(name),
            (None, Some(name)) => scope(Some((root_namespace, name.clone()))),
            (None, None) => scope(None),
        };
        (selecting.collect(), default)
    }

    /// True if a Sidecar narrows the scope.
    pub(crate) fn is_narrowed(&self, cx: &Cx<'_>) -> bool {
        let imports_all = |egress: &Egress| egress.port.is_none() && egress.imports.is_everything();
        self.sidecar.is_some() && !cx.get(&EgressOf(self.clone())).iter().any(imports_all)
    }

    /// True if proxies of the scope have the routes of a virtual service that is visible to them.
    pub(crate) fn imports(&self, cx: &Cx<'_>, rule: &VirtualServiceHeader) -> bool {
        cx.get(&EgressOf(self.clone())).iter().any(|listener| virtual_services::imports(listener, rule))
    }

    /// The Sidecar object, if one narrows the scope.
    #[must_use]
    pub(crate) fn sidecar_object(&self, cx: &Cx<'_>) -> Option<Typed<Sidecar>> {
        let (namespace, name) = self.sidecar.as_ref()?;
        cx.object(namespace, name)
    }
}

/// The Sidecars of a namespace, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SidecarsIn(Namespace);

#[derive(Debug, Default, PartialEq)]
struct Sidecars {
    /// Sidecars with a selector, by their labels.
    selecting: Vec<(Labels, Arc<str>)>,
    /// The Sidecar for all other workloads.
    default: Option<Arc<str>>,
}

impl Query for SidecarsIn {
    type Output = Sidecars;

    fn compute(&self, cx: &Cx<'_>) -> Sidecars {
        let mut objects = cx.objects_in::<Sidecar>(&self.0);
        objects.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        let mut out = Sidecars::default();
        for object in objects {
            let name = object.key().name.clone();
            match &object.workload_selector {
                Some(selector) => out.selecting.push((Arc::new((&selector.labels).into()), name)),
                None => {
                    out.default.get_or_insert(name);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
