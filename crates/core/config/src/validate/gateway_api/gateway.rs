//! Gateways, ListenerSets and references of the Gateway API.

use crate::LabelSelector;
use crate::gateway_api::{
    CIPHER_SUITES_OPTION, FromNamespaces, FrontendTls, FrontendTlsSettings, FrontendTlsValidation,
    FrontendValidationMode, Gateway, GatewayClass, Listener, ListenerSet, ListenerTls, ParentReference,
    ReferenceGrant, TERMINATE_MODE, TERMINATE_MODES, TlsMode,
};
use crate::networking::CIPHER_SUITES;
use crate::path::{Path, printable};
use crate::problem::Checker;
use crate::read::metadata::{is_label_name, is_object_name};
use crate::validate::fields::names::{self, each, is_ip, quoted, unique};
use crate::validate::fields::selectors;
use pilotfish_model::ObjectMeta;

/// Maximum number of listeners of a Gateway or ListenerSet.
const MOST_LISTENERS: usize = 64;

pub(in crate::validate) fn class(class: &GatewayClass, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    let name = &class.spec.controller_name;
    let good = name.split_once('/').is_some_and(|(domain, path)| is_object_name(domain) && !path.is_empty());
    if !good {
        let message =
            format!("{} is not the name of a controller, like istio.io/gateway-controller", quoted(name));
        checker.error(&at.field("spec").field("controllerName"), message);
    }
}

pub(in crate::validate) fn gateway(gateway: &Gateway, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    let at = at.field("spec");
    let spec = &gateway.spec;
    if spec.gateway_class_name.is_empty() {
        checker.error(&at.field("gatewayClassName"), "must be set");
    }
    listeners(&spec.listeners, &at.field("listeners"), checker, |listener| listener.port);
    if let Some(allowed) = &spec.allowed_listeners {
        let at = at.field("allowedListeners");
        let (from, selector) = (allowed.namespaces.from, allowed.namespaces.selector.as_ref());
        namespaces(from, selector, &at.field("namespaces"), checker);
    }
    if let Some(settings) = spec.tls.as_ref().and_then(|tls| tls.frontend.as_ref()) {
        frontend(settings, &at.field("tls").field("frontend"), checker);
    }
    each(&spec.addresses, &at.field("addresses"), checker, |address, at, checker| {
        let wrong = match address.r#type.as_str() {
            "IPAddress" => !address.value.is_empty() && !is_ip(&address.value),
            "Hostname" => !is_object_name(address.value.strip_prefix("*.").unwrap_or(&address.value)),
            _ => false,
        };
        if wrong {
            let message = format!("{} is not of type {}", quoted(&address.value), printable(&address.r#type));
            checker.error(&at.field("value"), message);
        }
    });
}

pub(in crate::validate) fn listener_set(
    set: &ListenerSet,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    let at = at.field("spec");
    let (parent, parent_at) = (&set.spec.parent_ref, at.field("parentRef"));
    if parent.name.is_empty() {
        checker.error(&parent_at.field("name"), "must be set");
    }
    namespace(parent.namespace.as_deref(), &parent_at.field("namespace"), checker);
    listeners(&set.spec.listeners, &at.field("listeners"), checker, ListenerSet::port_of);
}

/// Checks the listeners of a Gateway or ListenerSet, whose ports `port_of` returns.
fn listeners(list: &[Listener], at: &Path<'_>, checker: &mut Checker, port_of: fn(&Listener) -> u16) {
    match list.len() {
        0 => checker.error(at, "must be set"),
        count if count > MOST_LISTENERS => {
            checker.error(at, format!("has {count} items, at most {MOST_LISTENERS} are allowed"));
        }
        _ => {}
    }
    each(list, at, checker, |one, at, checker| {
        names::port(port_of(one), &at.field("port"), checker);
        listener(one, at, checker);
    });
    unique(list, at, "name", checker, |listener| Some(&listener.name));
    unique(list, at, "", checker, |listener| {
        Some((port_of(listener), &listener.protocol, listener.hostname.as_deref().unwrap_or_default()))
    });
}

fn listener(listener: &Listener, at: &Path<'_>, checker: &mut Checker) {
    section_name(&listener.name, &at.field("name"), checker);
    if let Some(host) = listener.hostname.as_deref().filter(|host| !host.is_empty()) {
        hostname(host, &at.field("hostname"), checker);
        if matches!(listener.protocol.as_str(), "TCP" | "UDP") {
            checker.error(&at.field("hostname"), "must not be set for the protocols TCP and UDP");
        }
    }
    let tls = at.field("tls");
    match (listener.protocol.as_str(), &listener.tls) {
        ("", _) => checker.error(&at.field("protocol"), "must be set"),
        ("HTTP" | "TCP" | "UDP", Some(_)) => {
            checker.error(&tls, format!("must not be set for the protocol {}", listener.protocol));
        }
        ("HTTPS", Some(settings)) if settings.mode != TlsMode::Terminate => {
            checker.error(&tls.field("mode"), "must be Terminate for the protocol HTTPS");
        }
        (_, Some(settings)) => listener_tls(settings, &tls, checker),
        ("HTTPS" | "TLS", None) => {
            checker.warning(&tls, "is not set, so the listener is not served");
        }
        _ => {}
    }
    let allowed = &listener.allowed_routes.namespaces;
    let at = at.field("allowedRoutes");
    namespaces(allowed.from, allowed.selector.as_ref(), &at.field("namespaces"), checker);
}

/// Checks the namespaces of accepted routes or ListenerSets.
fn namespaces(from: FromNamespaces, selector: Option<&LabelSelector>, at: &Path<'_>, checker: &mut Checker) {
    if let Some(selector) = selector {
        selectors::kubernetes_selector(selector, &at.field("selector"), checker);
    } else if from == FromNamespaces::Selector {
        checker.error(&at.field("selector"), "must be set for from: Selector");
    }
}

fn listener_tls(tls: &ListenerTls, at: &Path<'_>, checker: &mut Checker) {
    if tls.mode == TlsMode::Terminate && tls.certificate_refs.is_empty() && tls.options.is_empty() {
        checker.error(&at.field("certificateRefs"), "must be set for mode Terminate");
    }
    each(&tls.certificate_refs, &at.field("certificateRefs"), checker, |secret, at, checker| {
        if secret.name.is_empty() {
            checker.error(&at.field("name"), "must be set");
        }
    });
    if let Some(validation) = &tls.frontend_validation {
        client_validation(validation, &at.field("frontendValidation"), checker);
    }
    let options = at.field("options");
    if let Some(mode) =
        tls.options.get(TERMINATE_MODE).filter(|mode| !TERMINATE_MODES.contains(&mode.as_str()))
    {
        let message = format!("{} is none of {}, SIMPLE is taken", quoted(mode), TERMINATE_MODES.join(", "));
        checker.warning(&options.key(TERMINATE_MODE), message);
    }
    for suite in tls.cipher_suites().iter().filter(|suite| !CIPHER_SUITES.contains(&suite.as_str())) {
        let message = format!("{} is not a cipher that Envoy knows, it is ignored", quoted(suite));
        checker.warning(&options.key(CIPHER_SUITES_OPTION), message);
    }
}

/// Checks the validation of client certificates, for all ports and for single ones.
fn frontend(frontend: &FrontendTls, at: &Path<'_>, checker: &mut Checker) {
    let settings = |settings: Option<&FrontendTlsSettings>, at: &Path<'_>, checker: &mut Checker| {
        if let Some(validation) = settings.and_then(|settings| settings.validation.as_ref()) {
            client_validation(validation, &at.field("validation"), checker);
        }
    };
    settings(frontend.default.as_ref(), &at.field("default"), checker);
    let ports = at.field("perPort");
    each(&frontend.per_port, &ports, checker, |port, at, checker| {
        names::port(port.port, &at.field("port"), checker);
        settings(port.tls.as_ref(), &at.field("tls"), checker);
    });
    unique(&frontend.per_port, &ports, "port", checker, |port| Some(port.port));
}

fn client_validation(validation: &FrontendTlsValidation, at: &Path<'_>, checker: &mut Checker) {
    let refs = at.field("caCertificateRefs");
    let count = validation.ca_certificate_refs.len();
    if count != 1 {
        checker.warning(&refs, format!("has {count} items, listeners are served with one"));
    }
    if validation.mode == FrontendValidationMode::AllowInsecureFallback {
        let message = "AllowInsecureFallback has no effect, clients without a valid certificate are rejected";
        checker.warning(&at.field("mode"), message);
    }
}

/// Checks references to the Gateways or Services that a route attaches to.
pub(super) fn parents(parents: &[ParentReference], at: &Path<'_>, checker: &mut Checker) {
    const MOST: usize = 32;
    if parents.len() > MOST {
        checker.error(at, format!("has {} items, at most {MOST} are allowed", parents.len()));
    }
    each(parents, at, checker, |parent, at, checker| {
        if parent.name.is_empty() {
            checker.error(&at.field("name"), "must be set");
        }
        if let Some(name) = parent.section_name.as_deref().filter(|name| !name.is_empty()) {
            section_name(name, &at.field("sectionName"), checker);
        }
        if let Some(port) = parent.port {
            names::port(port, &at.field("port"), checker);
        }
        namespace(parent.namespace.as_deref(), &at.field("namespace"), checker);
    });
    unique(parents, at, "", checker, |parent| {
        let place = (&parent.namespace, &parent.section_name, parent.port);
        Some((&parent.group, &parent.kind, &parent.name, place))
    });
}

/// Checks the namespace in a reference.
pub(super) fn namespace(name: Option<&str>, at: &Path<'_>, checker: &mut Checker) {
    if let Some(name) = name.filter(|name| !is_label_name(name)) {
        checker.error(at, format!("{} is not a namespace", quoted(name)));
    }
}

/// Checks the host names of a route.
pub(super) fn hostnames(hosts: &[String], at: &Path<'_>, checker: &mut Checker) {
    each(hosts, at, checker, |host, at, checker| hostname(host, at, checker));
}

pub(super) fn hostname(host: &str, at: &Path<'_>, checker: &mut Checker) {
    if is_ip(host) {
        checker.error(at, format!("{} is an IP address, a host name is needed", quoted(host)));
    } else if !is_object_name(host.strip_prefix("*.").unwrap_or(host)) {
        checker.error(at, format!("{} is not a host name in lower case", quoted(host)));
    }
}

pub(super) fn section_name(name: &str, at: &Path<'_>, checker: &mut Checker) {
    if name.is_empty() {
        checker.error(at, "must be set");
    } else if !is_object_name(name) {
        checker.error(at, format!("{} is not a name, up to 253 of a-z, 0-9, '-' and '.'", quoted(name)));
    }
}

pub(in crate::validate) fn reference_grant(
    grant: &ReferenceGrant,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    let at = at.field("spec");
    let (from, to) = (at.field("from"), at.field("to"));
    for (list_at, empty) in [(&from, grant.spec.from.is_empty()), (&to, grant.spec.to.is_empty())] {
        if empty {
            checker.error(list_at, "must be set");
        }
    }
    each(&grant.spec.from, &from, checker, |source, at, checker| {
        if source.kind.is_empty() {
            checker.error(&at.field("kind"), "must be set");
        }
        namespace(Some(&source.namespace), &at.field("namespace"), checker);
    });
    each(&grant.spec.to, &to, checker, |target, at, checker| {
        if target.kind.is_empty() {
            checker.error(&at.field("kind"), "must be set");
        }
    });
}

/// Returns the part that is not allowed in a plain path, since proxies would rewrite it.
pub(in crate::validate) fn forbidden_in_path(path: &str) -> Option<&'static str> {
    let inside = ["//", "/./", "/../", "%2f", "%2F", "#"].into_iter().find(|part| path.contains(part));
    inside.or_else(|| ["/..", "/."].into_iter().find(|end| path.ends_with(end)))
}
