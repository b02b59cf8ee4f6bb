//! Gateways of the Gateway API: which are Istio's, and to which Services they belong.

use super::MADE;
use super::listeners::{self, Parent};
use crate::gateway::{Gateway, GatewayId, Header, Selection};
use crate::short_name::Domain;
use crate::{Cx, Query, reference};
use pilotfish_config::gateway_api::{Gateway as KubernetesGateway, GatewayClass};
use pilotfish_model::{Hostname, Kind, Namespace, Typed};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The controller of a GatewayClass whose Gateways count.
const CONTROLLER: &str = "istio.io/gateway-controller";
/// The class that is there without an object.
const BUILT_IN_CLASS: &str = "istio";
/// The annotation with another name for the Service of a Gateway.
const NAME_OVERRIDE: &str = "gateway.istio.io/name-override";

/// The gateways that are made from the Gateway API: one for each listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiGateways;

impl Query for ApiGateways {
    type Output = BTreeMap<GatewayId, (Header, Arc<Gateway>)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out = BTreeMap::new();
        for object in cx.objects::<KubernetesGateway>().filter(|object| is_ours(cx, object)) {
            let services = services(&object, cx.domain());
            for listener in &object.spec.listeners {
                let Some(server) = listeners::server(cx, &object, listener) else { continue };
                let id = GatewayId {
                    source: Kind::KubernetesGateway,
                    namespace: object.namespace().clone(),
                    name: internal_name(object.name(), &listener.name).into(),
                };
                let header = Header {
                    id: id.clone(),
                    selection: Selection::Services(services.clone()),
                    created: object.meta().created,
                };
                let gateway =
                    Gateway { id: id.clone(), servers: vec![server], provenance: vec![reference(&object)] };
                out.insert(id, (header, Arc::new(gateway)));
            }
        }
        out
    }
}

/// The name of the gateway that is made from a listener.
pub(super) fn internal_name(gateway: &str, listener: &str) -> String {
    format!("{gateway}~{MADE}~{listener}")
}

/// Whether the Gateway's class is Istio's.
fn is_ours(cx: &Cx<'_>, object: &Typed<KubernetesGateway>) -> bool {
    let class = &object.spec.gateway_class_name;
    match cx.object::<GatewayClass>(&Namespace::default(), class) {
        Some(found) => found.spec.controller_name == CONTROLLER,
        None => class == BUILT_IN_CLASS,
    }
}

/// The Services of a Gateway: those that it names, else one called after it and its class.
fn services(object: &Typed<KubernetesGateway>, domain: &Domain) -> Vec<Hostname> {
    let spec = &object.spec;
    let namespace = object.namespace();
    let is_managed = match spec.addresses.as_slice() {
        [] => true,
        [only] => only.r#type == "IPAddress",
        _ => false,
    };
    if is_managed {
        let name = match object.meta().annotations.get(NAME_OVERRIDE) {
            Some(name) => name.clone(),
            None => format!("{}-{}", object.name(), spec.gateway_class_name),
        };
        return Hostname::parse(&domain.service(&name, namespace)).into_iter().collect();
    }
    let named = spec.addresses.iter().filter(|address| address.r#type == "Hostname");
    named.filter_map(|address| Hostname::parse(&domain.qualify(&address.value, namespace)).ok()).collect()
}

/// The listeners of a Gateway, as routes see them; none for a Gateway that is not there or not Istio's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ParentsOf {
    pub(super) namespace: Namespace,
    pub(super) name: Arc<str>,
}

impl Query for ParentsOf {
    type Output = Vec<Parent>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Parent> {
        let object = cx.object::<KubernetesGateway>(&self.namespace, &self.name);
        let Some(object) = object.filter(|object| is_ours(cx, object)) else { return Vec::new() };
        let listeners = object.spec.listeners.iter();
        listeners.filter_map(|listener| Parent::of(cx, &object, listener)).collect()
    }
}
