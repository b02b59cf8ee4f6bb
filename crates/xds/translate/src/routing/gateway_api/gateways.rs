//! Gateways of the Gateway API: which are Istio's, and to which Services they belong.

use super::MADE;
use super::listeners::{self, Parent};
use super::owners::{ListenerOwner, accepts_sets_of, owner_of_set, owners_of};
use crate::engine::{Cx, Query};
use crate::routing::ir::{Gateway, GatewayHeader, GatewayId, Selection};
use pilotfish_config::gateway_api::{Gateway as KubernetesGateway, GatewayClass};
use pilotfish_config::status::CONTROLLERS;
use pilotfish_model::{ClusterDomain, Hostname, Kind, Namespace, ObjectKey, Typed};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The class that is there without an object.
const BUILT_IN_CLASS: &str = "istio";
/// The annotation with another name for the Service of a Gateway.
const NAME_OVERRIDE: &str = "gateway.istio.io/name-override";

/// The gateways that are made from the Gateway API: one for each listener of Gateways and ListenerSets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiGateways;

impl Query for ApiGateways {
    type Output = BTreeMap<GatewayId, (GatewayHeader, Arc<Gateway>)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out = BTreeMap::new();
        for object in cx.objects::<KubernetesGateway>().filter(|object| is_ours(cx, object)) {
            let services = services(&object, cx.domain());
            let owners = owners_of(cx, &object);
            for (owner, name, server) in listeners::servers(cx, &owners) {
                let id = GatewayId {
                    source: owner.key().kind,
                    namespace: owner.namespace().clone(),
                    name: internal_name(cx, owner, &name).into(),
                };
                let routers = object.namespace().clone();
                let header = GatewayHeader {
                    id: id.clone(),
                    selection: Selection::Services(services.clone()),
                    routers: routers.clone(),
                    created: owner.meta().created,
                    is_managed: is_managed(&object),
                };
                let provenance = owner.provenance();
                let gateway = Gateway { id: id.clone(), servers: vec![server], routers, provenance };
                out.insert(id, (header, Arc::new(gateway)));
            }
        }
        out
    }
}

/// The name of the gateway that is made from a listener. Istiod gives the same name to listeners of a Gateway
/// and of a ListenerSet with equal names; routes of one would be served at the other.
pub(super) fn internal_name(cx: &Cx<'_>, owner: &ListenerOwner, listener: &str) -> String {
    let ObjectKey { namespace, name, .. } = owner.key();
    let namesake = owner.set.as_ref().and_then(|_| cx.object::<KubernetesGateway>(namespace, name));
    let is_taken =
        namesake.is_some_and(|gateway| gateway.spec.listeners.iter().any(|it| it.name == listener));
    let of_set = if is_taken { "~set" } else { "" };
    format!("{name}~{MADE}~{listener}{of_set}")
}

/// True if the Gateway's class is of one of our controllers.
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
pub(super) fn is_managed(object: &Typed<KubernetesGateway>) -> bool {
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
        return Hostname::parse(&domain.service(&managed_name(object), namespace)).into_iter().collect();
    }
    let named = spec.addresses.iter().filter(|address| address.r#type == "Hostname");
    named.filter_map(|address| Hostname::parse(&domain.qualify(&address.value, namespace)).ok()).collect()
}

/// The name of the Service and the Deployment of a Gateway that names no Service.
pub(super) fn managed_name(object: &Typed<KubernetesGateway>) -> String {
    match object.meta().annotations.get(NAME_OVERRIDE) {
        Some(name) => name.clone(),
        None => format!("{}-{}", object.name(), object.spec.gateway_class_name),
    }
}

/// The listeners of a Gateway or ListenerSet, as routes see them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ParentsOf(pub(super) ObjectKey);

/// A Gateway or ListenerSet, as routes see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Parents {
    /// The Gateway with the controller of its class; `None` for one that is not there or not ours.
    pub(super) gateway: Option<(ObjectKey, &'static str)>,
    /// None for a ListenerSet that its Gateway does not accept.
    pub(super) listeners: Vec<Parent>,
}

impl Query for ParentsOf {
    type Output = Parents;

    fn compute(&self, cx: &Cx<'_>) -> Parents {
        let ObjectKey { kind, namespace, name } = &self.0;
        let owner = match kind {
            Kind::ListenerSet => owner_of_set(cx, &self.0),
            _ => cx.object::<KubernetesGateway>(namespace, name).map(ListenerOwner::from),
        };
        let Some(owner) = owner else { return Parents::default() };
        let Some(controller) = controller(cx, &owner.gateway) else { return Parents::default() };
        let is_accepted = owner.set.is_none() || accepts_sets_of(cx, &owner.gateway, namespace);
        let listeners = owner.listeners().filter(|_| is_accepted);
        let listeners = listeners.map(|listener| Parent::of(cx, &owner, &listener)).collect();
        Parents { gateway: Some((owner.gateway.key().clone(), controller)), listeners }
    }
}
