//! Gateways of the Gateway API: which are Istio's, and to which Services they belong.

use super::MADE;
use super::listeners::{self, Parent};
use crate::engine::{Cx, Query, reference};
use crate::routing::ir::{Gateway, GatewayHeader, GatewayId, Selection};
use pilotfish_config::gateway_api::{Gateway as KubernetesGateway, GatewayClass};
use pilotfish_config::status::CONTROLLERS;
use pilotfish_model::ClusterDomain;
use pilotfish_model::{Hostname, Kind, Namespace, Typed};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The class that is there without an object.
const BUILT_IN_CLASS: &str = "istio";
/// The annotation with another name for the Service of a Gateway.
const NAME_OVERRIDE: &str = "gateway.istio.io/name-override";

/// The gateways that are made from the Gateway API: one for each listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiGateways;

impl Query for ApiGateways {
    type Output = BTreeMap<GatewayId, (GatewayHeader, Arc<Gateway>)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out = BTreeMap::new();
        for object in cx.objects::<KubernetesGateway>().filter(|object| is_ours(cx, object)) {
            let services = services(&object, cx.domain());
            for listener in &object.spec.listeners {
                let server = listeners::outcome(cx, &object, listener).server;
                let Some(server) = server.or_else(|| listeners::refusing(cx, &object, listener)) else {
                    continue;
                };
                let id = GatewayId {
                    source: Kind::KubernetesGateway,
                    namespace: object.namespace().clone(),
                    name: internal_name(object.name(), &listener.name).into(),
                };
                let header = GatewayHeader {
                    id: id.clone(),
                    selection: Selection::Services(services.clone()),
                    created: object.meta().created,
                    is_managed: is_managed(&object),
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

/// Whether the Gateway's class is ours.
fn is_ours(cx: &Cx<'_>, object: &Typed<KubernetesGateway>) -> bool {
    controller(cx, object).is_some()
}

/// The controller of the Gateway's class, if that is us.
pub(super) fn controller(cx: &Cx<'_>, object: &Typed<KubernetesGateway>) -> Option<&'static str> {
    let class = &object.spec.gateway_class_name;
    match cx.object::<GatewayClass>(&Namespace::default(), class) {
        Some(found) => class_controller(&found),
        None => (class == BUILT_IN_CLASS).then_some(CONTROLLERS[0]),
    }
}

/// The controller of a class, if that is us.
pub(super) fn class_controller(class: &GatewayClass) -> Option<&'static str> {
    CONTROLLERS.into_iter().find(|ours| class.spec.controller_name == *ours)
}

/// True for a Gateway whose routers its controller makes: one that names no Service.
fn is_managed(object: &Typed<KubernetesGateway>) -> bool {
    match object.spec.addresses.as_slice() {
        [] => true,
        [only] => only.r#type == "IPAddress",
        _ => false,
    }
}

/// The Services of a Gateway: those that it names, else one called after it and its class.
pub(super) fn services(object: &Typed<KubernetesGateway>, domain: &ClusterDomain) -> Vec<Hostname> {
    let spec = &object.spec;
    let namespace = object.namespace();
    if is_managed(object) {
        let name = match object.meta().annotations.get(NAME_OVERRIDE) {
            Some(name) => name.clone(),
            None => format!("{}-{}", object.name(), spec.gateway_class_name),
        };
        return Hostname::parse(&domain.service(&name, namespace)).into_iter().collect();
    }
    let named = spec.addresses.iter().filter(|address| address.r#type == "Hostname");
    named.filter_map(|address| Hostname::parse(&domain.qualify(&address.value, namespace)).ok()).collect()
}

/// The listeners of a Gateway, as routes see them; none for a Gateway that is not there or not ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ParentsOf {
    pub(super) namespace: Namespace,
    pub(super) name: Arc<str>,
}

/// A Gateway, as routes see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Parents {
    /// The controller of its class; `None` for a Gateway that is not there or not ours.
    pub(super) controller: Option<&'static str>,
    pub(super) listeners: Vec<Parent>,
}

impl Query for ParentsOf {
    type Output = Parents;

    fn compute(&self, cx: &Cx<'_>) -> Parents {
        let Some(object) = cx.object::<KubernetesGateway>(&self.namespace, &self.name) else {
            return Parents::default();
        };
        let Some(controller) = controller(cx, &object) else { return Parents::default() };
        let listeners = object.spec.listeners.iter();
        let listeners = listeners.map(|listener| Parent::of(cx, &object, listener)).collect();
        Parents { controller: Some(controller), listeners }
    }
}
