//! Rendering of the objects of a gateway.

use crate::merge::merge;
use crate::object::{ManagedKind, Manifest, ObjectId};
use minijinja::context;
use pilotfish_config::gateway_api::{ManagedGateway, ManagedPort};
use pilotfish_config::is_object_name;
use pilotfish_model::{Kind, ObjectKey, Revision};
use pilotfish_webhook::inject::{STATUS_PORT, Workload};
use pilotfish_webhook::{YamlTemplate, YamlTemplateError};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Template of the objects of a gateway, unless another one is configured.
pub const DEFAULT_TEMPLATE: &str = include_str!("gateway.yaml.j2");

/// Label with the name of the Gateway, by which its Pods are selected.
pub(crate) const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
const GATEWAY_CLASS: &str = "gateway.networking.k8s.io/gateway-class-name";
/// Label with the controller that made the object.
pub(crate) const MANAGED: &str = "gateway.istio.io/managed";
/// Maximum length of the name of a Service or a port.
const LABEL_LENGTH: usize = 63;

/// Function that builds the bootstrap of a gateway's Envoy; `None` as long as the authorities in it are
/// unknown.
pub type GatewayBootstrap = Arc<dyn Fn(&Workload<'_>) -> Option<Value> + Send + Sync>;

/// Reason why the objects of a gateway cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The template or its output is invalid.
    #[error("the template of gateways: {0}")]
    Template(#[from] YamlTemplateError),
    /// The template makes something other than the objects of a gateway.
    #[error("the template of gateways: {0}")]
    Object(String),
    /// A value is not used by the template.
    #[error("the template of gateways has no value {0:?}")]
    UnknownValue(String),
    /// The parameters of the Gateway are invalid.
    #[error("{0}")]
    Parameters(String),
    /// A name is none that an object can have.
    #[error("{0:?} is no name of a Service: at most 63 of a-z, 0-9 and '-'")]
    Name(String),
    /// The Gateway is not from an API server.
    #[error("the Gateway has no uid, so that nothing can be owned by it")]
    NoOwner,
    /// The authorities for the connection to Pilotfish are not known yet.
    #[error("the authorities of the control plane's certificate are not known yet")]
    NoAuthorities,
}

/// Port of the Service, for the template.
#[derive(Serialize)]
struct ServicePort<'a> {
    name: String,
    port: u16,
    protocol: &'a str,
}

/// Template of the objects of a gateway, with its values.
pub struct GatewayTemplate {
    template: YamlTemplate,
    values: BTreeMap<String, String>,
    bootstrap: GatewayBootstrap,
    revision: String,
}

impl GatewayTemplate {
    /// Creates a template, and tests it on a Gateway without parameters. A template that does not use the
    /// value `tokenAudience` is valid.
    ///
    /// # Errors
    /// If the template fails.
    pub fn new(
        text: &str,
        values: BTreeMap<String, String>,
        bootstrap: GatewayBootstrap,
        revision: &Revision,
    ) -> Result<Self, RenderError> {
        let template = YamlTemplate::new(text)?;
        let is_unused = |name: &&String| *name != "tokenAudience" && !template.mentions(name);
        if let Some(unknown) = values.keys().find(is_unused) {
            return Err(RenderError::UnknownValue(unknown.clone()));
        }
        let this = Self { template, values, bootstrap, revision: revision.label().to_owned() };
        this.objects(&example(), &json!({}))?;
        Ok(this)
    }

    /// Renders the objects of a gateway, in the order in which they are applied.
    ///
    /// # Errors
    /// If the template or the parameters of the Gateway are invalid.
    pub fn render(&self, gateway: &ManagedGateway) -> Result<Vec<Manifest>, RenderError> {
        self.objects(gateway, &self.bootstrap_of(gateway)?)
    }

    /// Builds the bootstrap of a gateway's Envoy.
    ///
    /// # Errors
    /// If the Gateway can have no objects, or the authorities are not known yet.
    pub(crate) fn bootstrap_of(&self, gateway: &ManagedGateway) -> Result<Value, RenderError> {
        if gateway.uid.is_empty() {
            return Err(RenderError::NoOwner);
        }
        for name in [Some(&gateway.name), gateway.service_account.as_ref()].into_iter().flatten() {
            if name.len() > LABEL_LENGTH || name.contains('.') || !is_object_name(name) {
                return Err(RenderError::Name(name.clone()));
            }
        }
        let labels = pod_labels(gateway);
        let of_workload = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let workload = Workload {
            labels: &of_workload,
            name: &gateway.name,
            interception: "NONE",
            status_port: STATUS_PORT,
            probes: &[],
        };
        (self.bootstrap)(&workload).ok_or(RenderError::NoAuthorities)
    }

    /// Renders the objects of a gateway with that bootstrap.
    ///
    /// # Errors
    /// If the template or the parameters of the Gateway are invalid.
    pub(crate) fn objects(
        &self,
        gateway: &ManagedGateway,
        bootstrap: &Value,
    ) -> Result<Vec<Manifest>, RenderError> {
        let overlays = gateway.overlays.as_ref().map_err(|why| RenderError::Parameters(why.clone()))?;
        let context = context! {
            name => gateway.name,
            gateway => &*gateway.key.name,
            namespace => gateway.key.namespace.as_str(),
            serviceAccount => account(gateway),
            serviceType => gateway.service_type.as_deref().unwrap_or("LoadBalancer"),
            address => gateway.address,
            ports => ports(&gateway.ports),
            podLabels => pod_labels(gateway),
            annotations => gateway.annotations,
            bootstrap,
            revision => self.revision,
            values => self.values,
        };
        let documents: Vec<Option<Map<String, Value>>> = self.template.render_all(&context)?;
        let mut manifests: BTreeMap<ManagedKind, Manifest> = BTreeMap::new();
        for mut object in documents.into_iter().flatten() {
            let name = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            let Some(kind) = ManagedKind::find(name) else {
                return Err(RenderError::Object(format!("makes an object of kind {name:?}")));
            };
            let overlays: Vec<_> = overlays.iter().filter_map(|all| all.get(kind.overlay_key())).collect();
            if kind.is_optional() && overlays.is_empty() {
                continue;
            }
            metadata(gateway, &mut object);
            overlays.into_iter().for_each(|overlay| merge(&mut object, overlay));
            let manifest = identified(gateway, kind, object)?;
            if manifests.insert(kind, manifest).is_some() {
                return Err(RenderError::Object(format!("makes more than one {}", kind.name())));
            }
        }
        if manifests.contains_key(&ManagedKind::HorizontalPodAutoscaler)
            && let Some(deployment) = manifests.get_mut(&ManagedKind::Deployment)
            && let Some(spec) = deployment.body.get_mut("spec").and_then(Value::as_object_mut)
        {
            // The number of replicas is the autoscaler's.
            spec.remove("replicas");
        }
        Ok(manifests.into_values().collect())
    }
}

/// Adds the labels and annotations of all objects. Overlays may change them.
fn metadata(gateway: &ManagedGateway, object: &mut Map<String, Value>) {
    let mut metadata = Map::new();
    metadata.insert("labels".into(), json!(labels(gateway)));
    if !gateway.annotations.is_empty() {
        metadata.insert("annotations".into(), json!(gateway.annotations));
    }
    let metadata = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
    merge(object, &metadata);
}

/// Adds the fields by which the object is found, which overlays cannot change.
fn identified(
    gateway: &ManagedGateway,
    kind: ManagedKind,
    mut object: Map<String, Value>,
) -> Result<Manifest, RenderError> {
    let name = match kind {
        ManagedKind::ServiceAccount => account(gateway),
        _ => &gateway.name,
    };
    let namespace = gateway.key.namespace.as_str();
    let fixed = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.name(),
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": fixed_labels(gateway),
            "ownerReferences": [{
                "$patch": "replace",
            }, {
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "Gateway",
                "name": &*gateway.key.name,
                "uid": &*gateway.uid,
            }],
        },
    });
    let Value::Object(fixed) = fixed else { return Err(RenderError::Object("no fields".into())) };
    object.remove("status");
    merge(&mut object, &fixed);
    let id = ObjectId { kind, namespace: namespace.into(), name: name.into() };
    Ok(Manifest { id, body: Value::Object(object) })
}

/// Returns the name of the ServiceAccount.
fn account(gateway: &ManagedGateway) -> &str {
    gateway.service_account.as_deref().unwrap_or(&gateway.name)
}

/// Returns the labels by which objects are found.
fn fixed_labels(gateway: &ManagedGateway) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (GATEWAY_NAME, gateway.key.name.to_string()),
        (GATEWAY_CLASS, gateway.class.clone()),
        (MANAGED, gateway.controller.replace('/', "-")),
    ])
}

fn labels(gateway: &ManagedGateway) -> BTreeMap<String, String> {
    let fixed = fixed_labels(gateway).into_iter().map(|(name, value)| (name.to_owned(), value));
    gateway.labels.clone().into_iter().chain(fixed).collect()
}

/// Returns the labels of Pods. Those of the Gateway win over canonical names.
fn pod_labels(gateway: &ManagedGateway) -> BTreeMap<String, String> {
    let defaults = [
        ("service.istio.io/canonical-name", gateway.name.as_str()),
        ("service.istio.io/canonical-revision", "latest"),
    ];
    let defaults = defaults.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let inject = ("sidecar.istio.io/inject".to_owned(), "false".to_owned());
    defaults.chain(labels(gateway)).chain([inject]).collect()
}

/// Returns the ports of the Service, each with a name of its own.
fn ports(ports: &[ManagedPort]) -> Vec<ServicePort<'_>> {
    let mut out: Vec<ServicePort<'_>> = Vec::with_capacity(ports.len());
    for ManagedPort { listener, port, protocol } in ports {
        let name: String = listener.replace('.', "-").chars().take(LABEL_LENGTH).collect();
        let name = name.trim_matches('-');
        let is_free = |name: &str| name != "status-port" && out.iter().all(|other| other.name != name);
        // Names that the API server does not take, and duplicates, give way to protocol and number.
        let is_usable = !name.is_empty() && is_object_name(name) && is_free(name);
        let mut name = match is_usable {
            true => name.to_owned(),
            false => format!("{}-{port}", protocol.to_ascii_lowercase()),
        };
        let mut number = 1_u32;
        while !is_free(&name) {
            number += 1;
            name = format!("{}-{port}-{number}", protocol.to_ascii_lowercase());
        }
        out.push(ServicePort { name, port: *port, protocol });
    }
    out
}

/// Gateway that tests a template.
pub(crate) fn example() -> ManagedGateway {
    ManagedGateway {
        key: ObjectKey::new(Kind::KubernetesGateway, "default", "example"),
        uid: "0".into(),
        class: "pilotfish".into(),
        controller: "pilotfish.io/gateway-controller",
        name: "example-pilotfish".into(),
        ports: vec![ManagedPort { listener: "http".into(), port: 80, protocol: "HTTP".into() }],
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        service_type: None,
        service_account: None,
        address: None,
        replaces_proxy: false,
        overlays: Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
