//! Which virtual services there are, by who sees them behind which gateway.

use super::ir::{VirtualServiceHeader, VirtualServiceId, VirtualServiceIr};
use super::virtual_service;
use crate::engine::{Cx, Query};
use crate::routing::gateway_api::ApiVirtualServices;
use crate::routing::ingress::IngressVirtualServices;
use pilotfish_config::networking::VirtualService;
use pilotfish_model::{ExportTo, Kind, Namespace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All virtual services, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllVirtualServices;

impl Query for AllVirtualServices {
    type Output = Vec<Arc<VirtualServiceHeader>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut headers: Vec<Arc<VirtualServiceHeader>> = cx
            .objects::<VirtualService>()
            .filter_map(|object| virtual_service::header(&object, cx.domain()))
            .map(Arc::new)
            .collect();
        headers.extend(cx.get(&IngressVirtualServices).values().map(|(header, _)| header.clone()));
        headers.extend(cx.get(&ApiVirtualServices).values().map(|(header, _)| header.clone()));
        headers.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        headers
    }
}

/// Rules by gateway and by who sees them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VirtualServiceIndex;

/// Rules of each gateway.
type ByGateway = BTreeMap<Arc<str>, Vec<Arc<VirtualServiceHeader>>>;

#[derive(Debug, Default, PartialEq)]
struct Index {
    /// Rules for their own namespace.
    private: BTreeMap<Namespace, ByGateway>,
    /// Rules exported to a namespace by name.
    exported: BTreeMap<Namespace, ByGateway>,
    public: ByGateway,
}

impl Query for VirtualServiceIndex {
    type Output = Index;

    fn compute(&self, cx: &Cx<'_>) -> Index {
        let mesh = cx.mesh();
        let default = mesh.default_virtual_service_export_to.iter().map(String::as_str);
        let default = ExportTo::parse(default, &".".into());
        let mut index = Index::default();
        for header in cx.get(&AllVirtualServices).iter() {
            let own = &header.id.namespace;
            let export_to = if header.export_to == ExportTo::Unset { &default } else { &header.export_to };
            match export_to {
                ExportTo::Unset | ExportTo::Public => add(&mut index.public, header),
                ExportTo::Nobody => {}
                ExportTo::Namespaces(namespaces) => {
                    for namespace in namespaces {
                        let is_own = namespace == own || namespace.as_str() == ".";
                        let (map, to) =
                            if is_own { (&mut index.private, own) } else { (&mut index.exported, namespace) };
                        add(map.entry(to.clone()).or_default(), header);
                    }
                }
            }
        }
        index
    }
}

fn add(rules: &mut ByGateway, header: &Arc<VirtualServiceHeader>) {
    for gateway in &header.gateways {
        let list = rules.entry(gateway.clone()).or_default();
        if list.last().is_none_or(|last| last.id != header.id) {
            list.push(header.clone());
        }
    }
}

/// The virtual services behind a gateway that a namespace sees: its own private ones, then those exported to it, then the public
/// ones, each in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VirtualServicesFor {
    /// The client.
    pub namespace: Namespace,
    /// The gateway as `namespace/name`, or [`MESH`](super::ir::MESH).
    pub gateway: Arc<str>,
}

impl Query for VirtualServicesFor {
    type Output = Arc<[Arc<VirtualServiceHeader>]>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let index = cx.get(&VirtualServiceIndex);
        let of = |map: &BTreeMap<Namespace, ByGateway>| {
            map.get(&self.namespace).and_then(|rules| rules.get(&self.gateway)).cloned().unwrap_or_default()
        };
        let public = index.public.get(&self.gateway).cloned().unwrap_or_default();
        of(&index.private).into_iter().chain(of(&index.exported)).chain(public).collect()
    }
}

/// A virtual service by its id; `None` when it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VirtualServiceOf(pub VirtualServiceId);

impl Query for VirtualServiceOf {
    type Output = Option<Arc<VirtualServiceIr>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        match self.0.source {
            Kind::HttpRoute | Kind::TcpRoute | Kind::TlsRoute => {
                cx.get(&ApiVirtualServices).get(&self.0).map(|(_, rule)| rule.clone())
            }
            Kind::Ingress => cx.get(&IngressVirtualServices).get(&self.0).map(|(_, rule)| rule.clone()),
            _ => {
                let object = cx.object::<VirtualService>(&self.0.namespace, &self.0.name)?;
                Some(Arc::new(virtual_service::read(cx, &object)))
            }
        }
    }
}
