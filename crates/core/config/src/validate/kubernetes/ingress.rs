//! Ingress of Kubernetes.

use crate::kubernetes::{HttpIngressPath, Ingress, IngressBackend, PathType};
use crate::path::Path;
use crate::problem::Checker;
use crate::read::metadata::is_object_name;
use crate::validate::fields::names::{self, each, quoted};
use crate::validate::fields::values::at_most_one;
use crate::validate::gateway_api::gateway::forbidden_in_path;
use pilotfish_model::ObjectMeta;

pub(in crate::validate) fn check(ingress: &Ingress, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    let at = at.field("spec");
    let spec = &ingress.spec;
    if spec.rules.is_empty() && spec.default_backend.is_none() {
        checker.error(&at, "one of defaultBackend and rules must be set");
    }
    if let Some(value) = &spec.default_backend {
        backend(value, &at.field("defaultBackend"), checker);
    }
    each(&spec.tls, &at.field("tls"), checker, |tls, at, checker| {
        each(&tls.hosts, &at.field("hosts"), checker, |name, at, checker| host(name, at, checker));
    });
    each(&spec.rules, &at.field("rules"), checker, |rule, at, checker| {
        if !rule.host.is_empty() {
            host(&rule.host, &at.field("host"), checker);
        }
        let Some(http) = &rule.http else { return };
        let at = at.field("http");
        let paths = at.field("paths");
        if http.paths.is_empty() {
            checker.error(&paths, "must be set");
        }
        each(&http.paths, &paths, checker, path);
    });
}

fn host(host: &str, at: &Path<'_>, checker: &mut Checker) {
    if !is_object_name(host.strip_prefix("*.").unwrap_or(host)) {
        checker.error(at, format!("{} is not a host name in lower case", quoted(host)));
    }
}

fn path(path: &HttpIngressPath, at: &Path<'_>, checker: &mut Checker) {
    let text = path.path.as_str();
    let plain = path.path_type == PathType::ImplementationSpecific;
    let absolute = text.starts_with('/') || (plain && text.is_empty());
    if !absolute {
        checker.error(&at.field("path"), format!("{} must begin with '/'", quoted(text)));
    } else if !plain && let Some(part) = forbidden_in_path(text) {
        checker.error(&at.field("path"), format!("{} must not contain {part:?}", quoted(text)));
    } else if path.path_type == PathType::Prefix && text.contains('?') {
        checker.error(&at.field("path"), format!("{} is a path, \"?\" begins a query", quoted(text)));
    }
    backend(&path.backend, &at.field("backend"), checker);
}

fn backend(backend: &IngressBackend, at: &Path<'_>, checker: &mut Checker) {
    let set = [("service", backend.service.is_some()), ("resource", backend.resource.is_some())];
    at_most_one(&set, at, checker);
    if set.iter().all(|(_, set)| !set) {
        checker.error(at, "one of service and resource must be set");
    }
    if backend.resource.is_some() {
        checker.warning(&at.field("resource"), "has no effect: only backends of kind Service are served");
    }
    let Some(service) = &backend.service else { return };
    let at = at.field("service");
    if service.name.is_empty() {
        checker.error(&at.field("name"), "must be set");
    }
    let (port, at) = (&service.port, at.field("port"));
    match (port.name.is_empty(), port.number) {
        (true, number) => names::port(number, &at.field("number"), checker),
        (false, 0) => {}
        (false, _) => checker.error(&at, "only one of name, number may be set"),
    }
}
