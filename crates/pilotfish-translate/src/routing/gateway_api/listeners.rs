//! Listeners of a Gateway: the server that each becomes, and which routes may attach.

use super::gateways::internal_name;
use super::{ACCEPTED, REF_NOT_PERMITTED, RESOLVED_REFS, grants};
use crate::engine::Cx;
use crate::routing::ir::ServerHost;
use pilotfish_config::gateway_api::{
    FromNamespaces, FrontendTlsValidation, FrontendValidationMode, GROUP, Gateway, GrpcRoute, HttpRoute,
    Listener, ListenerTls, ObjectReference, SecretObjectReference, TcpRoute, TlsMode, TlsRoute,
};
use pilotfish_config::kubernetes::{Namespace as NamespaceObject, Secret};
use pilotfish_config::networking::{Port, Server, ServerTlsMode, ServerTlsSettings};
use pilotfish_model::{Kind, KindSpec, LabelMap, Namespace, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The reason for a certificate that cannot be used.
const BAD_CERTIFICATE: &str = "InvalidCertificateRef";
/// The option with which a listener selects another mode than SIMPLE.
const TERMINATE_MODE: &str = "gateway.istio.io/tls-terminate-mode";
/// The label of a Gateway with the network that it leads to.
const NETWORK: &str = "topology.istio.io/network";
/// The port of gateways between networks.
const CROSS_NETWORK_PORT: u16 = 15443;
/// The label that every namespace has with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A listener, as routes see it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parent {
    /// The gateway that it becomes, as `namespace/name`.
    pub(super) gateway: Arc<str>,
    pub(super) section: Arc<str>,
    pub(super) port: u16,
    pub(super) protocol: Arc<str>,
    /// Its host as written; empty for all.
    pub(super) hostname: String,
    /// Its host for each namespace whose routes may attach.
    pub(super) hosts: Vec<ServerHost>,
    /// The kinds of routes that may attach.
    pub(super) kinds: Vec<Kind>,
    /// Whether it becomes a server. Routes are attached to others too, but lead nowhere.
    pub(super) is_served: bool,
}

/// Why a listener becomes no server: the condition that does not hold, the reason and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) condition: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Fault {
    fn reference(reason: &'static str, message: String) -> Self {
        Self { condition: RESOLVED_REFS, reason, message }
    }
}

impl Parent {
    pub(super) fn of(cx: &Cx<'_>, object: &Typed<Gateway>, listener: &Listener) -> Self {
        let namespace = object.namespace();
        let hosts = hosts(cx, namespace, listener);
        let hosts = hosts.iter().filter_map(|host| ServerHost::parse(host, namespace));
        Self {
            gateway: format!("{namespace}/{}", internal_name(object.name(), &listener.name)).into(),
            section: listener.name.as_str().into(),
            port: listener.port,
            protocol: listener.protocol.as_str().into(),
            hostname: listener.hostname.clone().unwrap_or_default(),
            hosts: hosts.collect(),
            kinds: kinds(listener),
            is_served: server(cx, object, listener).is_ok(),
        }
    }
}

/// The kinds of routes that a protocol supports, of those that are allowed.
pub(super) fn kinds(listener: &Listener) -> Vec<Kind> {
    let passes = listener.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Passthrough);
    let of_protocol: &[Kind] = match listener.protocol.as_str() {
        "HTTP" | "HTTPS" => &[Kind::HttpRoute, Kind::GrpcRoute],
        "TLS" if passes => &[Kind::TlsRoute],
        "TLS" | "TCP" => &[Kind::TcpRoute],
        _ => &[],
    };
    let allowed = &listener.allowed_routes.kinds;
    let is_asked = |kind: &Kind| {
        allowed.is_empty() || allowed.iter().any(|it| it.kind == kind.name() && it.group == GROUP)
    };
    of_protocol.iter().copied().filter(is_asked).collect()
}

/// The server of a listener.
///
/// # Errors
/// For a protocol or a certificate that cannot be served.
pub(super) fn server(cx: &Cx<'_>, object: &Typed<Gateway>, listener: &Listener) -> Result<Server, Fault> {
    if !matches!(listener.protocol.as_str(), "HTTP" | "HTTPS" | "TLS" | "TCP") {
        let message = format!("protocol {:?} is none of HTTP, HTTPS, TLS and TCP", listener.protocol);
        return Err(Fault { condition: ACCEPTED, reason: "UnsupportedProtocol", message });
    }
    let tls = match &listener.tls {
        Some(settings) => Some(server_tls(cx, object, listener, settings)?),
        None => None,
    };
    Ok(Server {
        port: Some(Port {
            number: listener.port.into(),
            protocol: listener.protocol.clone(),
            name: "default".to_owned(),
            ..Port::default()
        }),
        hosts: hosts(cx, object.namespace(), listener),
        tls,
        ..Server::default()
    })
}

/// The host of a listener for each namespace whose routes may attach.
fn hosts(cx: &Cx<'_>, own: &Namespace, listener: &Listener) -> Vec<String> {
    let host = listener.hostname.as_deref().unwrap_or("*");
    match namespaces(cx, own, listener).as_slice() {
        // No namespace is called so: nothing may attach.
        [] => vec![format!("~/{host}")],
        names => names.iter().map(|namespace| format!("{namespace}/{host}")).collect(),
    }
}

/// The namespaces whose routes may attach; `*` for all.
fn namespaces(cx: &Cx<'_>, own: &Namespace, listener: &Listener) -> Vec<String> {
    let allowed = &listener.allowed_routes.namespaces;
    match (allowed.from, &allowed.selector) {
        (FromNamespaces::All, _) | (FromNamespaces::Selector, None) => vec!["*".to_owned()],
        (FromNamespaces::Same, _) => vec![own.to_string()],
        (FromNamespaces::None, _) => Vec::new(),
        (FromNamespaces::Selector, Some(selector)) => {
            let known = labels_of_namespaces(cx).into_iter();
            known.filter(|(_, labels)| selector.matches(labels)).map(|(name, _)| name).collect()
        }
    }
}

/// The labels of all namespaces that have an object, or routes.
fn labels_of_namespaces(cx: &Cx<'_>) -> BTreeMap<String, LabelMap> {
    let mut out: BTreeMap<String, LabelMap> = BTreeMap::new();
    for object in cx.objects::<NamespaceObject>() {
        out.insert(object.name().to_owned(), LabelMap::clone(&object.meta().labels));
    }
    let routes = names_of::<HttpRoute>(cx)
        .chain(names_of::<GrpcRoute>(cx))
        .chain(names_of::<TcpRoute>(cx))
        .chain(names_of::<TlsRoute>(cx))
        .collect::<BTreeSet<_>>();
    for namespace in routes {
        out.entry(namespace.to_string()).or_default();
    }
    for (name, labels) in &mut out {
        *labels = labels.with([(NAME_LABEL.into(), name.as_str().into())]);
    }
    out
}

fn names_of<'a, T: KindSpec>(cx: &'a Cx<'_>) -> impl Iterator<Item = Namespace> + 'a {
    cx.objects::<T>().map(|object| object.namespace().clone())
}

/// How the listener ends TLS, or passes it through.
fn server_tls(
    cx: &Cx<'_>,
    object: &Typed<Gateway>,
    listener: &Listener,
    settings: &ListenerTls,
) -> Result<ServerTlsSettings, Fault> {
    let mut out = ServerTlsSettings::default();
    if settings.mode == TlsMode::Passthrough {
        let between_networks =
            object.meta().labels.contains_key(NETWORK) && listener.port == CROSS_NETWORK_PORT;
        out.mode = if between_networks { ServerTlsMode::AutoPassthrough } else { ServerTlsMode::Passthrough };
        return Ok(out);
    }
    out.mode = match settings.options.get(TERMINATE_MODE).map(String::as_str) {
        Some("MUTUAL") => ServerTlsMode::Mutual,
        Some("ISTIO_MUTUAL") => ServerTlsMode::IstioMutual,
        _ => ServerTlsMode::Simple,
    };
    if out.mode == ServerTlsMode::IstioMutual {
        return Ok(out);
    }
    let credentials: Result<Vec<String>, Fault> =
        settings.certificate_refs.iter().map(|secret| credential(cx, object, secret)).collect();
    match credentials?.as_slice() {
        [] => {
            let message = "tls.certificateRefs names no certificate".to_owned();
            return Err(Fault::reference(BAD_CERTIFICATE, message));
        }
        [only] => out.credential_name.clone_from(only),
        several => out.credential_names = several.to_vec(),
    }
    if let Some(validation) = client_validation(object, listener, settings) {
        out.mode = match validation.mode {
            FrontendValidationMode::AllowValidOnly => ServerTlsMode::Mutual,
            FrontendValidationMode::AllowInsecureFallback => ServerTlsMode::OptionalMutual,
        };
        let Some(first) = validation.ca_certificate_refs.first() else {
            let message = "the validation of clients names no authority".to_owned();
            return Err(Fault::reference("InvalidCACertificateRef", message));
        };
        out.ca_cert_credential_name = authority(cx, object, first)?;
    }
    Ok(out)
}

/// How clients' certificates are checked: by the listener, else by the Gateway for its port, else for all ports.
fn client_validation<'a>(
    object: &'a Typed<Gateway>,
    listener: &Listener,
    settings: &'a ListenerTls,
) -> Option<&'a FrontendTlsValidation> {
    let frontend = || object.spec.tls.as_ref()?.frontend.as_ref();
    let of_port = || {
        let found = frontend()?.per_port.iter().find(|port| port.port == listener.port)?;
        found.tls.as_ref()?.validation.as_ref()
    };
    let default = || frontend()?.default.as_ref()?.validation.as_ref();
    settings.frontend_validation.as_ref().or_else(of_port).or_else(default)
}

/// The name of a certificate's secret, if it is there and the Gateway may use it.
fn credential(cx: &Cx<'_>, object: &Typed<Gateway>, secret: &SecretObjectReference) -> Result<String, Fault> {
    let own = object.namespace();
    let namespace = secret.namespace.as_deref().map_or_else(|| own.clone(), Namespace::from);
    let name = format!("{namespace}/{}", secret.name);
    if secret.kind != "Secret" || !secret.group.is_empty() {
        let message =
            format!("a certificate is a Secret, {name} is a {:?} of group {:?}", secret.kind, secret.group);
        return Err(Fault::reference(BAD_CERTIFICATE, message));
    }
    let target = ("", "Secret", &namespace, secret.name.as_str());
    if !grants::allows(cx, ("Gateway", own), target) {
        return Err(not_granted("Secret", &name));
    }
    let Some(found) = cx.object::<Secret>(&namespace, &secret.name) else {
        return Err(Fault::reference(BAD_CERTIFICATE, format!("there is no Secret {name}")));
    };
    let has = |key: &str| found.value(key).is_some_and(|value| !value.is_empty());
    if has("tls.crt") && has("tls.key") || has("cert") && has("key") {
        return Ok(format!("kubernetes-gateway://{name}"));
    }
    Err(Fault::reference(
        BAD_CERTIFICATE,
        format!("Secret {name} has no tls.crt with tls.key, and no cert with key"),
    ))
}

/// The name of the authorities' certificates, if the Gateway may use them.
fn authority(cx: &Cx<'_>, object: &Typed<Gateway>, named: &ObjectReference) -> Result<String, Fault> {
    let own = object.namespace();
    let namespace = named.namespace.as_deref().map_or_else(|| own.clone(), Namespace::from);
    let name = format!("{namespace}/{}", named.name);
    let scheme = match named.kind.as_str() {
        "ConfigMap" => "configmap",
        "Secret" => "kubernetes-gateway",
        kind => {
            let message = format!("authorities are a ConfigMap or a Secret, {name} is a {kind:?}");
            return Err(Fault::reference("InvalidCACertificateKind", message));
        }
    };
    let target = ("", named.kind.as_str(), &namespace, named.name.as_str());
    if !grants::allows(cx, ("Gateway", own), target) {
        return Err(not_granted(&named.kind, &name));
    }
    Ok(format!("{scheme}://{name}"))
}

fn not_granted(kind: &str, name: &str) -> Fault {
    Fault::reference(REF_NOT_PERMITTED, format!("no ReferenceGrant lets this Gateway use the {kind} {name}"))
}
