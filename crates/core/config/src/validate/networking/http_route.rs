//! HTTP routes of a VirtualService: combinations of actions, and each part.

use super::stream_route::Source;
use super::virtual_service::{destination, required_destination, weights};
use super::{http_fault, http_match};
use crate::StringMatch;
use crate::networking::{
    CorsPolicy, Delegate, Headers, HttpDirectResponse, HttpMatchRequest, HttpMirrorPolicy, HttpRedirect,
    HttpRetry, HttpRewrite, HttpRoute, HttpRouteDestination,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{self, each, is_dns_label, quoted};
use crate::validate::fields::values::{self, at_most_one, fine_percent, first_counts, is_authority, percent};

/// Properties of a VirtualService that the validation of its routes depends on.
#[derive(Clone, Copy)]
pub(super) struct Context {
    /// The VirtualService has no hosts.
    pub(super) is_delegate: bool,
    /// The VirtualService is for gateways alone.
    pub(super) for_gateways: bool,
}

pub(super) fn check(route: &HttpRoute, context: Context, at: &Path<'_>, checker: &mut Checker) {
    shape(route, context, at, checker);
    each(&route.r#match, &at.field("match"), checker, |value, at, checker| {
        http_match::check(value, context.for_gateways, at, checker);
        Source::from(value).check(at, checker);
    });
    if let Some(value) = &route.headers {
        headers(value, &at.field("headers"), checker);
    }
    destinations(&route.route, &at.field("route"), checker);
    actions(route, at, checker);
    mirrors(route, at, checker);
    if let Some(policy) = &route.cors_policy {
        cors(policy, &at.field("corsPolicy"), checker);
    }
    if let Some(fault) = &route.fault {
        http_fault::check(fault, &at.field("fault"), checker);
    }
    if let Some(retry) = &route.retries {
        retries(retry, &at.field("retries"), checker);
    }
    values::duration(route.timeout, &at.field("timeout"), checker);
}

/// Checks that there is an action, and warns of those that another one overrides.
fn shape(route: &HttpRoute, context: Context, at: &Path<'_>, checker: &mut Checker) {
    let mut delegates = route.delegate.is_some();
    if let Some(to) = &route.delegate {
        delegate(to, &at.field("delegate"), checker);
        if context.is_delegate {
            checker.warning(&at.field("delegate"), "has no effect, a delegate cannot delegate further");
            delegates = false;
        }
    }
    let (redirect, direct) = (route.redirect.is_some(), route.direct_response.is_some());
    let actions = [
        ("delegate", delegates),
        ("redirect", redirect),
        ("directResponse", direct),
        ("route", !route.route.is_empty()),
    ];
    if actions.iter().all(|(_, set)| !set) {
        checker.error(at, "one of route, redirect, directResponse and delegate must be set");
    }
    first_counts(&actions, at, checker);
    let rewrite = route.rewrite.is_some();
    first_counts(&[("redirect", redirect), ("directResponse", direct), ("rewrite", rewrite)], at, checker);
}

fn delegate(delegate: &Delegate, at: &Path<'_>, checker: &mut Checker) {
    if delegate.name.is_empty() {
        checker.error(&at.field("name"), "must be set");
    }
    if !delegate.namespace.is_empty() && !is_dns_label(&delegate.namespace) {
        let message = format!("{} is not a namespace", quoted(&delegate.namespace));
        checker.error(&at.field("namespace"), message);
    }
}

fn destinations(destinations: &[HttpRouteDestination], at: &Path<'_>, checker: &mut Checker) {
    each(destinations, at, checker, |value, at, checker| {
        required_destination(value.destination.as_ref(), &at.field("destination"), checker);
        if let Some(value) = &value.headers {
            headers(value, &at.field("headers"), checker);
        }
    });
    weights(destinations.iter().map(|value| value.weight), at, checker);
}

/// Header operations. The host can be set on requests only, other pseudo headers not at all.
fn headers(headers: &Headers, at: &Path<'_>, checker: &mut Checker) {
    for (side, operations) in [("request", &headers.request), ("response", &headers.response)] {
        let Some(operations) = operations else { continue };
        let at = at.field(side);
        for (field, map) in [("set", &operations.set), ("add", &operations.add)] {
            let at = at.field(field);
            for (name, value) in map {
                let at = at.key(name);
                changed_header(name, side == "request", &at, checker);
                values::header_value(value, &at, checker);
            }
        }
        each(&operations.remove, &at.field("remove"), checker, |name, at, checker| {
            changed_header(name, false, at, checker);
        });
    }
}

fn changed_header(name: &str, may_be_host: bool, at: &Path<'_>, checker: &mut Checker) {
    if name.is_empty() {
        checker.error(at, "the name of a header is empty");
    } else if is_authority(name) {
        if !may_be_host {
            checker.warning(at, "has no effect, the host can only be set, and on requests only");
        }
    } else if name.starts_with(':') {
        checker.warning(at, format!("has no effect, {} is a pseudo header", quoted(name)));
    }
}

fn actions(route: &HttpRoute, at: &Path<'_>, checker: &mut Checker) {
    if let Some(value) = &route.redirect {
        redirect(value, route, &at.field("redirect"), checker);
    }
    if let Some(value) = &route.direct_response {
        direct_response(value, &at.field("directResponse"), checker);
    }
    if let Some(value) = &route.rewrite {
        rewrite(value, &at.field("rewrite"), checker);
    }
    let authority = route.rewrite.as_ref().is_some_and(|rewrite| !rewrite.authority.is_empty());
    let request = route.headers.as_ref().and_then(|headers| headers.request.as_ref());
    let changed = request.map_or(0, |operations| {
        operations.set.keys().chain(operations.add.keys()).filter(|name| is_authority(name)).count()
    });
    if changed + usize::from(authority) > 1 {
        checker.warning(at, "the host is changed more than once, by rewrite.authority or by headers");
    }
}

fn redirect(redirect: &HttpRedirect, route: &HttpRoute, at: &Path<'_>, checker: &mut Checker) {
    let port = redirect.port.is_some() || redirect.derive_port.is_some();
    let rewrites = redirect.prefix_rewrite.as_ref().is_some_and(|prefix| !prefix.is_empty());
    if rewrites {
        prefix_rewrite(redirect, route, &at.field("prefixRewrite"), checker);
    }
    if !rewrites
        && redirect.uri.is_empty()
        && redirect.authority.is_empty()
        && redirect.scheme.is_empty()
        && !port
    {
        checker.warning(
            at,
            "changes nothing, set one of uri, prefixRewrite, authority, scheme, port and derivePort",
        );
    }
    values::one_line(&redirect.uri, &at.field("uri"), checker);
    values::one_line(&redirect.authority, &at.field("authority"), checker);
    let code = redirect.redirect_code;
    if code != 0 && !(300..=399).contains(&code) {
        checker
            .error(&at.field("redirectCode"), format!("{code} is not the status of a redirect, 300 to 399"));
    }
    if !matches!(&*redirect.scheme, "" | "http" | "https") {
        checker.error(&at.field("scheme"), format!("{} is not http or https", quoted(&redirect.scheme)));
    }
    if let Some(port) = redirect.port {
        names::port(port, &at.field("port"), checker);
    }
    let ports = [("port", redirect.port.is_some()), ("derivePort", redirect.derive_port.is_some())];
    at_most_one(&ports, at, checker);
}

fn prefix_rewrite(redirect: &HttpRedirect, route: &HttpRoute, at: &Path<'_>, checker: &mut Checker) {
    values::one_line(redirect.prefix_rewrite.as_deref().unwrap_or_default(), at, checker);
    if !redirect.uri.is_empty() {
        checker.warning(at, "uri has no effect beside it");
    }
    let is_prefix = |request: &HttpMatchRequest| matches!(request.uri, None | Some(StringMatch::Prefix(_)));
    if !route.r#match.iter().all(is_prefix) {
        checker.error(at, "needs matches of the path by prefix");
    }
}

fn direct_response(response: &HttpDirectResponse, at: &Path<'_>, checker: &mut Checker) {
    const LARGE: usize = 100 << 10;
    const TOO_LARGE: usize = 1 << 20;
    values::http_status(i64::from(response.status), &at.field("status"), checker);
    let Some(body) = &response.body else { return };
    let at = at.field("body");
    at_most_one(&[("string", body.string.is_some()), ("bytes", body.bytes.is_some())], &at, checker);
    let string = body.string.as_ref().map_or(0, String::len);
    let size = string + body.bytes.as_ref().map_or(0, |bytes| bytes.0.len());
    if size > TOO_LARGE {
        checker.error(&at, format!("has {} KB, at most 1024 are allowed", size >> 10));
    } else if size > LARGE {
        checker.warning(&at, format!("has {} KB, which every proxy with this route holds", size >> 10));
    }
}

fn rewrite(rewrite: &HttpRewrite, at: &Path<'_>, checker: &mut Checker) {
    let by_regex = rewrite.uri_regex_rewrite.as_ref();
    first_counts(&[("uriRegexRewrite", by_regex.is_some()), ("uri", !rewrite.uri.is_empty())], at, checker);
    if rewrite.uri.is_empty() && rewrite.authority.is_empty() && by_regex.is_none() {
        checker.warning(at, "changes nothing, set one of uri, authority and uriRegexRewrite");
    }
    values::one_line(&rewrite.uri, &at.field("uri"), checker);
    values::one_line(&rewrite.authority, &at.field("authority"), checker);
    let Some(by_regex) = by_regex else { return };
    let at = at.field("uriRegexRewrite");
    if by_regex.rewrite.is_empty() {
        checker.warning(&at.field("rewrite"), "is not set, so what matches is removed");
    }
    values::regular_expression(&by_regex.r#match, &at.field("match"), checker);
}

fn mirrors(route: &HttpRoute, at: &Path<'_>, checker: &mut Checker) {
    first_counts(&[("mirrors", !route.mirrors.is_empty()), ("mirror", route.mirror.is_some())], at, checker);
    destination(route.mirror.as_ref(), &at.field("mirror"), checker);
    each(&route.mirrors, &at.field("mirrors"), checker, |mirror: &HttpMirrorPolicy, at, checker| {
        required_destination(mirror.destination.as_ref(), &at.field("destination"), checker);
        if let Some(value) = mirror.percentage {
            fine_percent(value.value, &at.field("percentage").field("value"), checker);
        }
    });
    if let Some(value) = route.mirror_percent {
        let at = at.field("mirrorPercent");
        checker.warning(&at, "is deprecated, use mirrorPercentage");
        percent(f64::from(value), &at, checker);
    }
    if let Some(value) = route.mirror_percentage {
        percent(value.value, &at.field("mirrorPercentage").field("value"), checker);
    }
}

fn cors(policy: &CorsPolicy, at: &Path<'_>, checker: &mut Checker) {
    const METHODS: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"];
    each(&policy.allow_origins, &at.field("allowOrigins"), checker, |origin, at, checker| match origin {
        StringMatch::Unset => checker.error(at, "one of exact, prefix and regex must be set"),
        StringMatch::Exact(text) | StringMatch::Prefix(text) | StringMatch::Regex(text)
            if text.is_empty() =>
        {
            checker.error(at, "an origin must not be empty");
        }
        origin => values::string_match(origin, at, checker),
    });
    each(&policy.allow_methods, &at.field("allowMethods"), checker, |method, at, checker| {
        if method != "*" && !METHODS.contains(&method.as_str()) {
            checker
                .warning(at, format!("{} is not a method of HTTP, {}", quoted(method), METHODS.join(", ")));
        }
    });
    for (field, headers) in
        [("allowHeaders", &policy.allow_headers), ("exposeHeaders", &policy.expose_headers)]
    {
        each(headers, &at.field(field), checker, |name, at, checker| {
            if name != "*" {
                values::header_name(name, at, checker);
            }
        });
    }
    values::duration(policy.max_age, &at.field("maxAge"), checker);
    if policy.max_age.is_some_and(|age| age.0.subsec_nanos() > 0) {
        checker.warning(&at.field("maxAge"), "has parts of a second, browsers count whole seconds");
    }
}

/// Checks a retry policy, of a route or of the mesh config.
pub(in crate::validate) fn retries(retry: &HttpRetry, at: &Path<'_>, checker: &mut Checker) {
    values::not_negative(retry.attempts, &at.field("attempts"), checker);
    let set = retry.per_try_timeout.is_some()
        || !retry.retry_on.is_empty()
        || retry.retry_remote_localities.is_some();
    if retry.attempts == 0 && set {
        checker
            .warning(&at.field("attempts"), "is 0, so nothing is retried and other settings have no effect");
    }
    values::duration(retry.per_try_timeout, &at.field("perTryTimeout"), checker);
    values::duration(retry.backoff, &at.field("backoff"), checker);
    if retry.retry_on.is_empty() {
        return;
    }
    for condition in retry.retry_on.split(',').map(str::trim) {
        let status = condition.parse::<u16>().is_ok_and(|code| (100..=599).contains(&code));
        if !status && !RETRY_ON.contains(&condition) {
            let hint = crate::problem::did_you_mean(condition, RETRY_ON.into_iter());
            let message = format!("{} is not a condition that Envoy retries on", quoted(condition));
            checker.warning_with_hint(&at.field("retryOn"), message, hint);
        }
    }
}

/// Envoy's conditions for HTTP and for gRPC.
const RETRY_ON: [&str; 16] = [
    "5xx",
    "gateway-error",
    "reset",
    "reset-before-request",
    "connect-failure",
    "retriable-4xx",
    "refused-stream",
    "retriable-status-codes",
    "retriable-headers",
    "envoy-ratelimited",
    "http3-post-connect-failure",
    "cancelled",
    "deadline-exceeded",
    "internal",
    "resource-exhausted",
    "unavailable",
];
