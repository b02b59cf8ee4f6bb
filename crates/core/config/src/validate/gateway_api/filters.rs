//! Filters of the routes of the Gateway API.

use super::routes::backend;
use crate::gateway_api::{
    HeaderFilter, HttpHeader, PathModifier, PathModifierType, RequestMirrorFilter, RequestRedirectFilter,
    RouteFilter, RouteFilterType,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::read::metadata::is_object_name;
use crate::validate::fields::names::{self, each, is_ip, quoted, unique};
use crate::validate::fields::values::{at_most_one, header_value, one_line, percent};

/// Checks filters. Replacing a prefix is allowed only if `by_prefix`.
pub(super) fn check(filters: &[RouteFilter], by_prefix: bool, at: &Path<'_>, checker: &mut Checker) {
    each(filters, at, checker, |value, at, checker| filter(value, by_prefix, at, checker));
    let once = |filter: &&RouteFilter| {
        let repeats = matches!(filter.r#type, RouteFilterType::RequestMirror | RouteFilterType::ExtensionRef);
        !repeats && filter.r#type != RouteFilterType::Unset
    };
    let kinds: Vec<_> = filters.iter().filter(once).map(|filter| format!("{:?}", filter.r#type)).collect();
    let mut sorted = kinds.clone();
    sorted.sort();
    if let Some(pair) = sorted.windows(2).find(|pair| pair.first() == pair.last()) {
        let name = pair.first().map(String::as_str).unwrap_or_default();
        checker.error(at, format!("has two filters of type {name}, which may be there once"));
    }
    let has = |kind| filters.iter().any(|filter| filter.r#type == kind);
    if has(RouteFilterType::RequestRedirect) && has(RouteFilterType::UrlRewrite) {
        checker.error(at, "RequestRedirect and URLRewrite exclude each other");
    }
}

fn filter(filter: &RouteFilter, by_prefix: bool, at: &Path<'_>, checker: &mut Checker) {
    use RouteFilterType as Type;
    let fields = [
        (Type::RequestHeaderModifier, "requestHeaderModifier", filter.request_header_modifier.is_some()),
        (Type::ResponseHeaderModifier, "responseHeaderModifier", filter.response_header_modifier.is_some()),
        (Type::RequestMirror, "requestMirror", filter.request_mirror.is_some()),
        (Type::RequestRedirect, "requestRedirect", filter.request_redirect.is_some()),
        (Type::UrlRewrite, "urlRewrite", filter.url_rewrite.is_some()),
        (Type::Cors, "cors", filter.cors.is_some()),
        (Type::ExternalAuth, "externalAuth", filter.external_auth.is_some()),
        (Type::ExtensionRef, "extensionRef", filter.extension_ref.is_some()),
    ];
    if filter.r#type == Type::Unset {
        return checker.error(&at.field("type"), "must be set");
    }
    for (kind, field, set) in fields {
        match (kind == filter.r#type, set) {
            (true, false) => checker.error(&at.field(field), "must be set for this type"),
            (false, true) => checker.error(&at.field(field), "must not be set for this type"),
            _ => {}
        }
    }
    let modifiers = [
        ("requestHeaderModifier", &filter.request_header_modifier),
        ("responseHeaderModifier", &filter.response_header_modifier),
    ];
    for (field, modifier) in modifiers {
        if let Some(modifier) = modifier {
            headers(modifier, &at.field(field), checker);
        }
    }
    if let Some(value) = &filter.request_mirror {
        mirror(value, &at.field("requestMirror"), checker);
    }
    if let Some(value) = &filter.request_redirect {
        redirect(value, by_prefix, &at.field("requestRedirect"), checker);
    }
    if let Some(rewrite) = &filter.url_rewrite {
        let at = at.field("urlRewrite");
        hostname(rewrite.hostname.as_deref(), &at.field("hostname"), checker);
        path(rewrite.path.as_ref(), by_prefix, &at.field("path"), checker);
    }
}

fn headers(filter: &HeaderFilter, at: &Path<'_>, checker: &mut Checker) {
    for (field, list) in [("set", &filter.set), ("add", &filter.add)] {
        let at = at.field(field);
        each(list, &at, checker, |header: &HttpHeader, at, checker| {
            header_name(&header.name, &at.field("name"), checker);
            header_value(&header.value, &at.field("value"), checker);
        });
        unique(list, &at, "name", checker, |header| Some(header.name.to_ascii_lowercase()));
    }
    each(&filter.remove, &at.field("remove"), checker, |name, at, checker| header_name(name, at, checker));
}

/// Checks the name of a header: an HTTP token.
pub(super) fn header_name(name: &str, at: &Path<'_>, checker: &mut Checker) {
    let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || name.len() > 256 || !name.bytes().all(token) {
        checker.error(at, format!("{} is not the name of a header", quoted(name)));
    }
}

fn mirror(filter: &RequestMirrorFilter, at: &Path<'_>, checker: &mut Checker) {
    backend((&filter.backend_ref).into(), &at.field("backendRef"), checker);
    at_most_one(
        &[("percent", filter.percent.is_some()), ("fraction", filter.fraction.is_some())],
        at,
        checker,
    );
    if let Some(value) = filter.percent {
        percent(f64::from(value), &at.field("percent"), checker);
    }
    if let Some(fraction) = filter.fraction {
        let at = at.field("fraction");
        if fraction.denominator < 1 {
            checker.error(&at.field("denominator"), "must be at least 1");
        } else if fraction.numerator < 0 || fraction.numerator > fraction.denominator {
            checker.error(&at.field("numerator"), "must be 0 to denominator");
        }
    }
}

fn redirect(filter: &RequestRedirectFilter, by_prefix: bool, at: &Path<'_>, checker: &mut Checker) {
    if let Some(scheme) = filter.scheme.as_deref().filter(|scheme| !matches!(*scheme, "http" | "https")) {
        checker.error(&at.field("scheme"), format!("{} is not http or https", quoted(scheme)));
    }
    if let Some(code) = filter.status_code.filter(|code| !matches!(code, 301 | 302 | 303 | 307 | 308)) {
        let message = format!("{code} is not the status of a redirect, 301, 302, 303, 307 or 308");
        checker.error(&at.field("statusCode"), message);
    }
    if let Some(port) = filter.port {
        names::port(port, &at.field("port"), checker);
    }
    hostname(filter.hostname.as_deref(), &at.field("hostname"), checker);
    path(filter.path.as_ref(), by_prefix, &at.field("path"), checker);
}

fn hostname(host: Option<&str>, at: &Path<'_>, checker: &mut Checker) {
    if let Some(host) = host.filter(|host| is_ip(host) || !is_object_name(host)) {
        checker.error(at, format!("{} is not a host name in lower case", quoted(host)));
    }
}

fn path(modifier: Option<&PathModifier>, by_prefix: bool, at: &Path<'_>, checker: &mut Checker) {
    let Some(modifier) = modifier else { return };
    let full = ("replaceFullPath", modifier.replace_full_path.is_some());
    let prefix = ("replacePrefixMatch", modifier.replace_prefix_match.is_some());
    let (wanted, other) = match modifier.r#type {
        PathModifierType::ReplaceFullPath => (full, prefix),
        PathModifierType::ReplacePrefixMatch => (prefix, full),
    };
    for (field, text) in [
        ("replaceFullPath", &modifier.replace_full_path),
        ("replacePrefixMatch", &modifier.replace_prefix_match),
    ] {
        one_line(text.as_deref().unwrap_or_default(), &at.field(field), checker);
    }
    if !wanted.1 {
        checker.error(&at.field(wanted.0), "must be set for this type");
    }
    if other.1 {
        checker.error(&at.field(other.0), "must not be set for this type");
    }
    if modifier.r#type == PathModifierType::ReplacePrefixMatch && !by_prefix {
        checker.error(at, "a prefix can be replaced only beside exactly one match, by PathPrefix");
    }
}
