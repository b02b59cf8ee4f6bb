//! One VirtualService, read into the common form.

use super::delegate::{Allowance, weight};
use super::names::{complete_route, complete_tcp, complete_tls, gateway_name};
use crate::engine::{Cx, Query, reference};
use crate::routing::ir::{
    MESH, RouteDialect, VirtualServiceHeader, VirtualServiceId, VirtualServiceIr, WrittenHosts,
};
use pilotfish_config::networking::{Delegate, HttpRoute, VirtualService};
use pilotfish_model::ClusterDomain;
use pilotfish_model::{ExportTo, Hostname, Kind, Namespace, ObjectKey, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns the header of a VirtualService; `None` for one without hosts, which is a delegate.
pub(crate) fn header(object: &Typed<VirtualService>, domain: &ClusterDomain) -> Option<VirtualServiceHeader> {
    let namespace = object.namespace();
    if object.hosts.is_empty() {
        return None;
    }
    let written: Vec<_> = object.hosts.iter().map(|host| domain.qualify(host, namespace)).collect();
    let hosts = written.iter().filter_map(|host| Hostname::parse(host).ok());
    let gateways = match object.gateways.as_slice() {
        [] => vec![MESH.into()],
        names => names.iter().map(|name| gateway_name(name, namespace)).collect(),
    };
    Some(VirtualServiceHeader {
        id: VirtualServiceId {
            source: Kind::VirtualService,
            namespace: namespace.clone(),
            name: object.key().name.clone(),
        },
        hosts: hosts.collect(),
        written: WrittenHosts::of(&written),
        gateways,
        export_to: ExportTo::parse(object.export_to.iter().map(String::as_str), namespace),
        delegates: object.http.iter().any(|route| route.delegate.is_some()),
        has_streams: !object.tls.is_empty() || !object.tcp.is_empty(),
        created: object.meta().created,
        dialect: RouteDialect::VirtualService,
    })
}

/// Converts a VirtualService. Routes to a missing, hidden or contradicting delegate are left out. If the
/// routes of a delegate exceed a limit, requests are answered with 503.
pub(crate) fn read(cx: &Cx<'_>, object: &Typed<VirtualService>) -> VirtualServiceIr {
    let (namespace, domain) = (object.namespace(), cx.domain());
    let mut provenance = vec![reference(object)];
    let mut http = Vec::with_capacity(object.http.len());
    let mut refused = BTreeSet::new();
    let mut allowance = Allowance::new();
    // A delegate may be under many routes.
    let mut leaves: BTreeMap<ObjectKey, Vec<(Arc<HttpRoute>, usize)>> = BTreeMap::new();
    for route in object.http.iter().map(|route| complete_route(route, namespace, domain)) {
        let Some(delegate) = &route.delegate else {
            allowance.count_own(&route);
            http.push(route.into());
            continue;
        };
        let Some(found) = delegate_of(cx, delegate, namespace) else { continue };
        let leaves = leaves.entry(found.key().clone()).or_insert_with(|| {
            provenance.push(reference(&found));
            let complete = |leaf| Arc::new(complete_route(leaf, found.namespace(), domain));
            found.http.iter().map(|leaf| (complete(leaf), weight(leaf))).collect()
        });
        let route = Arc::new(route);
        match allowance.merge(&route, leaves.iter().cloned()) {
            Some(routes) => http.extend(routes),
            None => {
                http.push(allowance.refusal(&route).into());
                refused.insert(found.key().clone());
            }
        }
    }
    VirtualServiceIr {
        id: VirtualServiceId {
            source: Kind::VirtualService,
            namespace: namespace.clone(),
            name: object.key().name.clone(),
        },
        dialect: RouteDialect::VirtualService,
        http,
        tls: object.tls.iter().map(|route| complete_tls(route, namespace, domain)).collect(),
        tcp: object.tcp.iter().map(|route| complete_tcp(route, namespace, domain)).collect(),
        provenance,
        refused: refused.into_iter().collect(),
    }
}

/// Query for delegates that are refused because their routes exceed a limit, with the VirtualServices that
/// use them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RefusedDelegates;

impl Query for RefusedDelegates {
    type Output = Vec<RefusedDelegate>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let roots = cx.objects::<VirtualService>();
        let roots = roots.filter(|object| object.http.iter().any(|route| route.delegate.is_some()));
        let of_root = |object: Typed<VirtualService>| {
            let refused = cx.get(&RefusedBy(object.key().clone()));
            let of = |delegate: &ObjectKey| RefusedDelegate {
                root: object.key().clone(),
                delegate: delegate.clone(),
            };
            refused.iter().map(of).collect::<Vec<_>>()
        };
        roots.flat_map(of_root).collect()
    }
}

/// Query for the refused delegates of one VirtualService, which does not keep its routes in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RefusedBy(ObjectKey);

impl Query for RefusedBy {
    type Output = Vec<ObjectKey>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let object = cx.object::<VirtualService>(&self.0.namespace, &self.0.name);
        object.map_or_else(Vec::new, |object| read(cx, &object).refused)
    }
}

/// A delegate whose routes would be too many under those of a VirtualService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedDelegate {
    /// The VirtualService with hosts.
    pub root: ObjectKey,
    pub delegate: ObjectKey,
}

/// The VirtualService that a route of a root's namespace delegates to.
pub(crate) fn delegate_key(delegate: &Delegate, root: &Namespace) -> ObjectKey {
    let namespace = match delegate.namespace.as_str() {
        "" => root.clone(),
        namespace => namespace.into(),
    };
    ObjectKey::new(Kind::VirtualService, namespace, delegate.name.as_str())
}

/// The delegate, if there is one that the root's namespace may see. A VirtualService with hosts is none.
fn delegate_of(cx: &Cx<'_>, delegate: &Delegate, root: &Namespace) -> Option<Typed<VirtualService>> {
    let key = delegate_key(delegate, root);
    let object = cx.object::<VirtualService>(&key.namespace, &key.name)?;
    let export_to = ExportTo::parse(object.export_to.iter().map(String::as_str), &key.namespace);
    let mesh = cx.mesh();
    let default = mesh.default_virtual_service_export_to.iter().map(String::as_str);
    let visible = export_to.visible_to(root, &ExportTo::parse(default, &key.namespace));
    (object.hosts.is_empty() && visible).then_some(object)
}
