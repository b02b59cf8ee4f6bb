//! Gateways whose Deployment and Service are made for them, and the ConfigMaps with their parameters.

use super::conflicts;
use super::gateways::{controller, is_managed, managed_name};
use super::owners::owners_of;
use crate::engine::{Cx, Query};
use pilotfish_config::gateway_api::{
    DEFAULTS_FOR_CLASS, Gateway, GatewayClass, ManagedGateway, ManagedPort, Overlays, read_overlays,
};
use pilotfish_config::kubernetes::ConfigMap;
use pilotfish_config::status::Controllers;
use pilotfish_model::{Namespace, ObjectKey, Typed};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotation with the type of the Service of a Gateway.
const SERVICE_TYPE: &str = "networking.istio.io/service-type";
/// Annotation with the name of the ServiceAccount of a Gateway.
const SERVICE_ACCOUNT: &str = "gateway.istio.io/service-account";
/// Annotation of a Gateway or its class with the proxy of Pods that an istiod made.
const PROXY: &str = "gateway.pilotfish.io/proxy";
/// Prefixes of annotations that are about the Gateway itself.
const OWN_ANNOTATIONS: [&str; 5] = [
    "kubectl.kubernetes.io/",
    "gateway.istio.io/",
    "gateway.pilotfish.io/",
    "networking.istio.io/service-type",
    "internal.istio.io/",
];
/// Ports of Envoy itself, for health checks and statistics: no listener is served there.
const OWN_PORTS: [u16; 2] = [15021, 15090];

/// Query for all Gateways of these controllers whose Deployment and Service are made for them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ManagedGateways {
    pub(crate) controllers: Controllers,
}

impl Query for ManagedGateways {
    type Output = BTreeMap<ObjectKey, Arc<ManagedGateway>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let is_ours = |object: &Typed<Gateway>| {
            is_managed(object)
                && controller(cx, object).is_some_and(|name| self.controllers.names().contains(&name))
        };
        let keys = cx.objects::<Gateway>().filter(is_ours).map(|object| object.key().clone());
        let managed = |key: ObjectKey| Some((key.clone(), cx.get(&Managed(key)).as_ref().clone()?));
        keys.filter_map(managed).collect()
    }
}

/// Query for one of these Gateways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Managed(ObjectKey);

impl Query for Managed {
    type Output = Option<Arc<ManagedGateway>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let object = cx.object::<Gateway>(&self.0.namespace, &self.0.name)?;
        let meta = object.meta();
        let written = object.spec.infrastructure.as_ref();
        // As in istiod: the Gateway's own labels and annotations stand in for those that are not written.
        let labels = written.map(|it| it.labels.clone()).filter(|labels| !labels.is_empty());
        let annotations = written.map(|it| it.annotations.clone()).filter(|found| !found.is_empty());
        let is_own = |name: &str| OWN_ANNOTATIONS.iter().any(|prefix| name.starts_with(prefix));
        let pair = |(name, value): (&String, &String)| (name.clone(), value.clone());
        let all = || meta.annotations.iter().filter(|(name, _)| !is_own(name)).map(pair).collect();
        let own_labels =
            || meta.labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let annotation = |name: &str| meta.annotations.get(name).filter(|value| !value.is_empty()).cloned();
        let address = object.spec.addresses.first().map(|address| address.value.clone());
        Some(Arc::new(ManagedGateway {
            key: self.0.clone(),
            uid: meta.uid.clone(),
            class: object.spec.gateway_class_name.clone(),
            controller: controller(cx, &object)?,
            name: managed_name(&object),
            ports: ports(cx, &object),
            labels: labels.unwrap_or_else(own_labels),
            annotations: annotations.unwrap_or_else(all),
            service_type: annotation(SERVICE_TYPE),
            service_account: annotation(SERVICE_ACCOUNT),
            address: address.filter(|address| !address.is_empty()),
            replaces_proxy: replaces_proxy(cx, &object).unwrap_or_default(),
            overlays: parameters(cx, &object),
        }))
    }
}

/// Returns the ports of the listeners that Envoys can serve, those of ListenerSets after those of the
/// Gateway.
fn ports(cx: &Cx<'_>, gateway: &Typed<Gateway>) -> Vec<ManagedPort> {
    let mut ports: Vec<ManagedPort> = Vec::new();
    for owner in owners_of(cx, gateway) {
        for listener in owner.listeners() {
            let is_served = matches!(listener.protocol.as_str(), "HTTP" | "HTTPS" | "TLS" | "TCP");
            let is_known = ports.iter().any(|known| known.port == listener.port);
            let is_free = listener.port != 0 && !OWN_PORTS.contains(&listener.port);
            if !is_served || is_known || !is_free || conflicts::of(cx, &owner, &listener).is_some() {
                continue;
            }
            let (listener, port, protocol) =
                (listener.name.clone(), listener.port, listener.protocol.clone());
            ports.push(ManagedPort { listener, port, protocol });
        }
    }
    ports
}

/// Returns true if the Gateway, or else its class, asks for the template's Envoy in Pods that an istiod made.
///
/// # Errors
/// If the annotation has another value.
fn replaces_proxy(cx: &Cx<'_>, gateway: &Typed<Gateway>) -> Result<bool, String> {
    let class = cx.object::<GatewayClass>(&Namespace::default(), &gateway.spec.gateway_class_name);
    let own = gateway.meta().annotations.get(PROXY);
    match own.or_else(|| class.as_ref()?.meta().annotations.get(PROXY)).map(String::as_str) {
        None => Ok(false),
        Some("envoy") => Ok(true),
        Some(other) => Err(format!("annotation {PROXY}: {other:?} is not \"envoy\"")),
    }
}

/// Returns the overlays of a Gateway: the defaults of its class, the parameters of the class, then its own.
///
/// # Errors
/// If a reference is invalid, or a ConfigMap cannot be used.
pub(super) fn parameters(cx: &Cx<'_>, gateway: &Typed<Gateway>) -> Result<Vec<Overlays>, String> {
    replaces_proxy(cx, gateway)?;
    let class = &gateway.spec.gateway_class_name;
    let mut all = Vec::new();
    if let Some(defaults) = class_defaults(cx, class) {
        all.push(overlays(&defaults)?);
    }
    if let Some(class) = cx.object::<GatewayClass>(&Namespace::default(), class) {
        all.extend(parameters_of_class(cx, &class)?);
    }
    let infrastructure = gateway.spec.infrastructure.as_ref();
    if let Some(reference) = infrastructure.and_then(|it| it.parameters_ref.as_ref()) {
        let place = "infrastructure.parametersRef";
        all.push(referenced(
            cx,
            (&reference.group, &reference.kind, &reference.name),
            gateway.namespace(),
            place,
        )?);
    }
    Ok(all)
}

/// Returns the overlays that a class refers to.
///
/// # Errors
/// If the reference is invalid, or the ConfigMap cannot be used.
pub(super) fn parameters_of_class(
    cx: &Cx<'_>,
    class: &Typed<GatewayClass>,
) -> Result<Option<Overlays>, String> {
    let Some(reference) = &class.spec.parameters_ref else { return Ok(None) };
    let place = format!("GatewayClass {}: parametersRef", class.name());
    let Some(namespace) = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty()) else {
        return Err(format!("{place}: a ConfigMap needs a namespace"));
    };
    let namespace = Namespace::from(namespace);
    referenced(cx, (&reference.group, &reference.kind, &reference.name), &namespace, &place).map(Some)
}

/// Reads the ConfigMap of a reference: group, kind and name.
fn referenced(
    cx: &Cx<'_>,
    (group, kind, name): (&str, &str, &str),
    namespace: &Namespace,
    place: &str,
) -> Result<Overlays, String> {
    if (group, kind) != ("", "ConfigMap") {
        return Err(format!("{place}: {kind:?} is no ConfigMap of the core group"));
    }
    let map = cx.object::<ConfigMap>(namespace, name);
    overlays(
        &map.ok_or_else(|| format!("{place}: there is no ConfigMap {namespace}/{name} that can be read"))?,
    )
}

fn overlays(map: &Typed<ConfigMap>) -> Result<Overlays, String> {
    read_overlays(&map.data).map_err(|why| format!("{}: {why}", map.key()))
}

/// Returns the ConfigMap with the defaults of a class; the oldest one, if there are several.
fn class_defaults(cx: &Cx<'_>, class: &str) -> Option<Typed<ConfigMap>> {
    let defaults = cx.get(&DefaultsByClass);
    let name = defaults.get(class)?;
    cx.object::<ConfigMap>(&Namespace::from(cx.mesh().root_namespace.as_str()), name)
}

/// Names of the ConfigMaps of the root namespace that have the defaults of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DefaultsByClass;

impl Query for DefaultsByClass {
    type Output = BTreeMap<String, Arc<str>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let root = Namespace::from(cx.mesh().root_namespace.as_str());
        let of_root = cx.objects::<ConfigMap>().filter(|map| *map.namespace() == root);
        let mut found: Vec<(String, Typed<ConfigMap>)> = of_root
            .filter_map(|map| Some((map.meta().labels.get(DEFAULTS_FOR_CLASS)?.to_string(), map.clone())))
            .collect();
        found.sort_by(|(_, one), (_, other)| one.meta().precedence().cmp(&other.meta().precedence()));
        let mut out = BTreeMap::new();
        for (class, map) in found {
            out.entry(class).or_insert_with(|| map.key().name.clone());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{evaluate, line, yaml_world};

    const API: &str = "gateway.networking.k8s.io/v1";

    fn managed(text: &str) -> Vec<Arc<ManagedGateway>> {
        let query = ManagedGateways { controllers: Controllers::Both };
        evaluate(&yaml_world(text), &query).values().cloned().collect()
    }

    fn gateway(more: &str) -> String {
        let listeners = "{name: http, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP, \
                         hostname: b.org}, {name: dns, port: 53, protocol: UDP}";
        let spec = format!("{{gatewayClassName: istio, listeners: [{listeners}]{more}}}");
        line(API, "Gateway", "shop", "gw", &spec)
    }

    #[test]
    fn ports_of_served_listeners_are_listed_once() {
        let set = line(
            API,
            "ListenerSet",
            "shop",
            "more",
            "{parentRef: {name: gw}, listeners: [{name: tcp, port: 90, protocol: TCP}, {name: a, protocol: HTTP}, \
             {name: health, port: 15021, protocol: HTTP}, {name: stats, port: 15090, protocol: TCP}]}",
        );
        let ports = |text: &str| -> Vec<String> {
            let gateways = managed(text);
            gateways[0].ports.iter().map(|port| format!("{} {}", port.listener, port.port)).collect()
        };
        assert_eq!(ports(&(gateway("") + &set)), ["http 80"]);
        let allowed = ", allowedListeners: {namespaces: {from: Same}}";
        assert_eq!(ports(&(gateway(allowed) + &set)), ["http 80", "tcp 90"]);
    }

    #[test]
    fn gateways_that_name_a_service_are_not_managed() {
        assert!(managed(&gateway(", addresses: [{type: Hostname, value: front}]")).is_empty());
        let found = managed(&gateway(", addresses: [{type: IPAddress, value: 192.0.2.1}]"));
        assert_eq!(found[0].address.as_deref(), Some("192.0.2.1"));
        assert_eq!(found[0].name, "gw-istio");
    }

    fn map(namespace: &str, name: &str, label: &str, data: &str) -> String {
        format!(
            "---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}, labels: \
             {{{label}}}}}, data: {{{data}}}}}\n"
        )
    }

    #[test]
    fn parameters_come_from_the_class_and_from_the_gateway() {
        let label = "gateway.istio.io/defaults-for-class: istio";
        let parameters = ", infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: p}}";
        let class = map("istio-system", "d", label, "service: 'spec: {type: NodePort}'");
        let own = map("shop", "p", "", "deployment: 'spec: {replicas: 2}'");
        let elsewhere = map("far", "d", label, "deployment: '[]'");
        let found = managed(&[gateway(parameters), class.clone(), own, elsewhere].concat());
        let overlays = found[0].overlays.as_ref().unwrap();
        let keys: Vec<Vec<&str>> = overlays.iter().map(|it| it.keys().copied().collect()).collect();
        assert_eq!(keys, [vec!["service"], vec!["deployment"]]);
        let other = ", infrastructure: {parametersRef: {group: x, kind: Parameters, name: p}}";
        for (text, expected) in [
            (gateway(parameters), "there is no ConfigMap shop/p"),
            (gateway(other), "is no ConfigMap"),
            (
                gateway(parameters) + &map("shop", "p", "", "deployment: '[]'"),
                "ConfigMap shop/p: data[deployment]: ",
            ),
        ] {
            let why = managed(&text)[0].overlays.clone().unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    fn class(annotations: &str, parameters: &str) -> String {
        format!(
            "---\n{{apiVersion: {API}, kind: GatewayClass, metadata: {{name: istio, annotations: {annotations}}}, \
             spec: {{controllerName: istio.io/gateway-controller, parametersRef: {parameters}}}}}\n"
        )
    }

    #[test]
    fn parameters_of_a_class_come_between_its_defaults_and_the_gateway() {
        let reference = "{group: '', kind: ConfigMap, name: c, namespace: far}";
        let label = "gateway.istio.io/defaults-for-class: istio";
        let defaults = map("istio-system", "d", label, "service: 'spec: {type: NodePort}'");
        let of_class = map("far", "c", "", "serviceAccount: '{}'");
        let own = map("shop", "p", "", "deployment: 'spec: {replicas: 2}'");
        let with_own = gateway(", infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: p}}");
        let found = managed(&[with_own, class("{}", reference), defaults, of_class, own].concat());
        let overlays = found[0].overlays.as_ref().unwrap();
        let keys: Vec<Vec<&str>> = overlays.iter().map(|it| it.keys().copied().collect()).collect();
        assert_eq!(keys, [vec!["service"], vec!["serviceAccount"], vec!["deployment"]]);
        for (reference, expected) in [
            (reference, "GatewayClass istio: parametersRef: there is no ConfigMap far/c"),
            ("{group: '', kind: ConfigMap, name: c}", "GatewayClass istio: parametersRef: a ConfigMap needs"),
            ("{group: x, kind: Parameters, name: c, namespace: far}", "is no ConfigMap"),
        ] {
            let why = managed(&(gateway("") + &class("{}", reference)))[0].overlays.clone().unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn the_gateway_or_its_class_asks_for_another_proxy() {
        let own = |value: &str| {
            let annotations =
                format!("namespace: shop, annotations: {{gateway.pilotfish.io/proxy: {value}}}}}");
            gateway("").replace("namespace: shop}", &annotations)
        };
        let of_class = class("{gateway.pilotfish.io/proxy: envoy}", "null");
        for (text, expected) in [(gateway(""), false), (own("envoy"), true), (gateway("") + &of_class, true)]
        {
            let found = managed(&text);
            assert_eq!((found[0].replaces_proxy, found[0].annotations.len()), (expected, 0), "{text}");
        }
        let why = managed(&(own("nginx") + &of_class))[0].overlays.clone().unwrap_err();
        assert_eq!(why, "annotation gateway.pilotfish.io/proxy: \"nginx\" is not \"envoy\"");
    }

    #[test]
    fn labels_of_the_infrastructure_replace_those_of_the_gateway() {
        let found = managed(&gateway(", infrastructure: {labels: {team: a}, annotations: {note: b}}"));
        assert_eq!(found[0].labels, BTreeMap::from([("team".to_owned(), "a".to_owned())]));
        assert_eq!(found[0].annotations, BTreeMap::from([("note".to_owned(), "b".to_owned())]));
        let text = gateway("").replace(
            "namespace: shop}",
            "namespace: shop, labels: {x: y}, annotations: {networking.istio.io/service-type: NodePort, c: d}}",
        );
        let found = managed(&text);
        assert_eq!(found[0].labels, BTreeMap::from([("x".to_owned(), "y".to_owned())]));
        assert_eq!(found[0].annotations, BTreeMap::from([("c".to_owned(), "d".to_owned())]));
        assert_eq!(found[0].service_type.as_deref(), Some("NodePort"));
    }
}
