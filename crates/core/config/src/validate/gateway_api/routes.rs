//! Routes of the Gateway API.

use super::filters;
use super::gateway::{forbidden_in_path, hostnames, namespace, parents};
use crate::gateway_api::{
    Backend, BackendRef, GrpcMethodMatch, GrpcRoute, HttpBackendRef, HttpRoute, HttpRouteMatch,
    HttpRouteRule, MatchType, PathMatchType, RouteFilterType, StreamRouteRule, TcpRoute, TlsRoute,
    ValueMatch,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{self, each, quoted, unique};
use crate::validate::fields::regex;
use crate::validate::fields::values;
use pilotfish_model::ObjectMeta;

/// Maximum weight of a backend.
const HEAVIEST: u32 = 1_000_000;

pub(in crate::validate) fn http(route: &HttpRoute, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    let at = at.field("spec");
    parents(&route.spec.parent_refs, &at.field("parentRefs"), checker);
    hostnames(&route.spec.hostnames, &at.field("hostnames"), checker);
    each(&route.spec.rules, &at.field("rules"), checker, http_rule);
}

fn http_rule(rule: &HttpRouteRule, at: &Path<'_>, checker: &mut Checker) {
    each(&rule.matches, &at.field("matches"), checker, http_match);
    let prefix = matches!(&rule.matches[..], [only] if only.path.r#type == PathMatchType::PathPrefix);
    filters::check(&rule.filters, prefix, &at.field("filters"), checker);
    backends(&rule.backend_refs, &at.field("backendRefs"), checker);
    let redirects = rule.filters.iter().any(|filter| filter.r#type == RouteFilterType::RequestRedirect);
    if redirects && !rule.backend_refs.is_empty() {
        checker.error(&at.field("backendRefs"), "must not be set beside a RequestRedirect filter");
    }
    if let Some(timeouts) = &rule.timeouts {
        let at = at.field("timeouts");
        let limited = timeouts.request.filter(|timeout| *timeout != crate::Duration::ZERO);
        if timeouts.backend_request.zip(limited).is_some_and(|(part, whole)| part > whole) {
            checker.error(&at.field("backendRequest"), "must not be longer than request");
        }
    }
    if let Some(retry) = &rule.retry {
        let at = at.field("retry");
        values::not_negative(retry.attempts.unwrap_or_default(), &at.field("attempts"), checker);
        each(&retry.codes, &at.field("codes"), checker, |code, at, checker| {
            if !(400..=599).contains(code) {
                checker.error(at, format!("{code} is not the status of an error, 400 to 599"));
            }
        });
    }
}

/// HTTP methods that a match may have.
pub(crate) const HTTP_METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

fn http_match(value: &HttpRouteMatch, at: &Path<'_>, checker: &mut Checker) {
    const LONGEST: usize = 1_024;
    let (path, path_at) = (value.path.value.as_str(), at.field("path"));
    let path_at = path_at.field("value");
    if path.len() > LONGEST {
        checker.error(&path_at, format!("has more than {LONGEST} characters"));
    } else if value.path.r#type == PathMatchType::RegularExpression {
        expression(path, &path_at, checker);
    } else if !path.starts_with('/') {
        checker.error(&path_at, format!("{} must begin with '/'", quoted(path)));
    } else if let Some(part) = forbidden_in_path(path) {
        checker.error(&path_at, format!("{} must not contain {part:?}", quoted(path)));
    } else if path.contains('?') {
        checker.error(&path_at, format!("{} is a path, \"?\" begins a query", quoted(path)));
    }
    headers(&value.headers, &at.field("headers"), checker);
    let parameters = at.field("queryParams");
    each(&value.query_params, &parameters, checker, |parameter, at, checker| {
        if parameter.name.is_empty() {
            checker.error(&at.field("name"), "must be set");
        }
        value_match(parameter, at, checker);
    });
    unique(&value.query_params, &parameters, "name", checker, |parameter| Some(&parameter.name));
    if let Some(method) = value.method.as_deref().filter(|method| !HTTP_METHODS.contains(method)) {
        let message = format!("{} is not a method of HTTP, {}", quoted(method), HTTP_METHODS.join(", "));
        checker.error(&at.field("method"), message);
    }
}

fn headers(headers: &[ValueMatch], at: &Path<'_>, checker: &mut Checker) {
    each(headers, at, checker, |header, at, checker| {
        filters::header_name(&header.name, &at.field("name"), checker);
        value_match(header, at, checker);
    });
    unique(headers, at, "name", checker, |header| Some(header.name.to_ascii_lowercase()));
}

fn value_match(value: &ValueMatch, at: &Path<'_>, checker: &mut Checker) {
    let at = at.field("value");
    match value.r#type {
        MatchType::RegularExpression => expression(&value.value, &at, checker),
        MatchType::Exact if value.value.is_empty() => checker.error(&at, "must be set"),
        MatchType::Exact => {}
    }
}

fn expression(text: &str, at: &Path<'_>, checker: &mut Checker) {
    if let Some(why) = regex::refusal(text) {
        checker.error(at, format!("{} is not a regular expression of RE2: {why}", quoted(text)));
    }
}

fn backends(backends: &[HttpBackendRef], at: &Path<'_>, checker: &mut Checker) {
    each(backends, at, checker, |backend, at, checker| {
        weighted(backend.into(), backend.weight, at, checker);
        filters::check(&backend.filters, true, &at.field("filters"), checker);
    });
}

fn stream_backend(backend: &BackendRef, at: &Path<'_>, checker: &mut Checker) {
    weighted(backend.into(), backend.weight, at, checker);
}

fn weighted(to: Backend<'_>, weight: u32, at: &Path<'_>, checker: &mut Checker) {
    backend(to, at, checker);
    if weight > HEAVIEST {
        checker.error(&at.field("weight"), format!("{weight} is above {HEAVIEST}"));
    }
}

/// Checks the backend of a route.
pub(super) fn backend(backend: Backend<'_>, at: &Path<'_>, checker: &mut Checker) {
    if backend.name.is_empty() {
        checker.error(&at.field("name"), "must be set");
    }
    match backend.port {
        Some(port) => names::port(port, &at.field("port"), checker),
        None if backend.group.is_empty() && backend.kind == "Service" => {
            // Istio serves the rest of such a route, and reports it in the status.
            checker.warning(&at.field("port"), "is not set, a Service needs it");
        }
        None => {}
    }
    namespace(backend.namespace, &at.field("namespace"), checker);
}

pub(in crate::validate) fn grpc(route: &GrpcRoute, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    let at = at.field("spec");
    parents(&route.spec.parent_refs, &at.field("parentRefs"), checker);
    hostnames(&route.spec.hostnames, &at.field("hostnames"), checker);
    each(&route.spec.rules, &at.field("rules"), checker, |rule, at, checker| {
        each(&rule.matches, &at.field("matches"), checker, |value, at, checker| {
            if let Some(method) = &value.method {
                grpc_method(method, &at.field("method"), checker);
            }
            headers(&value.headers, &at.field("headers"), checker);
        });
        filters::check(&rule.filters, true, &at.field("filters"), checker);
        backends(&rule.backend_refs, &at.field("backendRefs"), checker);
    });
}

fn grpc_method(value: &GrpcMethodMatch, at: &Path<'_>, checker: &mut Checker) {
    let parts = [("service", value.service.as_deref()), ("method", value.method.as_deref())];
    if parts.iter().all(|(_, part)| part.is_none_or(str::is_empty)) {
        checker.error(at, "one of service and method must be set");
    }
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    for (field, part) in parts {
        let Some(part) = part.filter(|part| !part.is_empty()) else { continue };
        let at = at.field(field);
        let good = part.chars().all(known) && !part.starts_with(|c: char| c.is_ascii_digit());
        match value.r#type {
            MatchType::RegularExpression => expression(part, &at, checker),
            MatchType::Exact if !good || (field == "method" && part.contains('.')) => {
                checker.error(&at, format!("{} is not the name of a {field} of gRPC", quoted(part)));
            }
            MatchType::Exact => {}
        }
    }
}

pub(in crate::validate) fn tcp(route: &TcpRoute, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    let at = at.field("spec");
    parents(&route.spec.parent_refs, &at.field("parentRefs"), checker);
    stream_rules(&route.spec.rules, &at.field("rules"), checker);
}

pub(in crate::validate) fn tls(route: &TlsRoute, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    let at = at.field("spec");
    parents(&route.spec.parent_refs, &at.field("parentRefs"), checker);
    hostnames(&route.spec.hostnames, &at.field("hostnames"), checker);
    stream_rules(&route.spec.rules, &at.field("rules"), checker);
}

fn stream_rules(rules: &[StreamRouteRule], at: &Path<'_>, checker: &mut Checker) {
    if rules.is_empty() {
        checker.error(at, "must be set");
    }
    each(rules, at, checker, |rule, at, checker| {
        each(&rule.backend_refs, &at.field("backendRefs"), checker, stream_backend);
    });
}
