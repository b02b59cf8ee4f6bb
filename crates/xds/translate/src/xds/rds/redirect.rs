//! Answers that the proxy gives itself: redirects and direct responses.

use super::path_prefix::PathReplacement;
use crate::routing::ir::RouteDialect;
use pilotfish_config::networking::{HttpDirectResponse, HttpRedirect, RedirectPortSelection};
use pilotfish_proto::envoy::config::core::v3::DataSource;
use pilotfish_proto::envoy::config::core::v3::data_source::Specifier;
use pilotfish_proto::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{DirectResponseAction, RedirectAction};

/// A redirect of requests whose path meets a condition; `None` for a code that is no redirect.
pub(super) fn redirect(
    to: &HttpRedirect,
    port: u32,
    tls: bool,
    dialect: RouteDialect,
    matched: Option<&PathSpecifier>,
) -> Option<Action> {
    let code = match to.redirect_code {
        0 | 301 => RedirectResponseCode::MovedPermanently,
        302 => RedirectResponseCode::Found,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => return None,
    };
    let path = match &to.prefix_rewrite {
        Some(prefix) if dialect != RouteDialect::GatewayApi && !prefix.is_empty() => {
            PathRewriteSpecifier::PrefixRewrite(prefix.clone())
        }
        Some(prefix) if dialect == RouteDialect::GatewayApi => match PathReplacement::new(matched, prefix) {
            PathReplacement::Prefix(prefix) => PathRewriteSpecifier::PrefixRewrite(prefix),
            PathReplacement::Regex(regex) => PathRewriteSpecifier::RegexRewrite(regex),
        },
        _ => PathRewriteSpecifier::PathRedirect(to.uri.clone()),
    };
    let scheme = (!to.scheme.is_empty()).then(|| SchemeRewriteSpecifier::SchemeRedirect(to.scheme.clone()));
    Some(Action::Redirect(RedirectAction {
        host_redirect: to.authority.clone(),
        port_redirect: redirect_port(to, port, tls),
        response_code: code.into(),
        scheme_rewrite_specifier: scheme,
        path_rewrite_specifier: Some(path),
        ..Default::default()
    }))
}

/// The port of a redirect; 0 for none, as for the usual port of the scheme.
fn redirect_port(to: &HttpRedirect, port: u32, tls: bool) -> u32 {
    let number = match (to.port, to.derive_port) {
        (Some(port), _) => port,
        (None, Some(RedirectPortSelection::FromRequestPort)) => port,
        (None, _) => return 0,
    };
    let scheme = match to.scheme.as_str() {
        "" if tls => "https",
        "" => "http",
        scheme => scheme,
    };
    match (number, scheme) {
        (80, "http") | (443, "https") => 0,
        (number, _) => number,
    }
}

/// A response without a destination.
pub(super) fn direct_response(response: &HttpDirectResponse) -> Action {
    let body = response.body.as_ref().and_then(|body| match (&body.string, &body.bytes) {
        (Some(text), _) => Some(Specifier::InlineString(text.clone())),
        (None, Some(bytes)) => Some(Specifier::InlineBytes(bytes.0.clone())),
        (None, None) => None,
    });
    Action::DirectResponse(DirectResponseAction {
        status: response.status,
        body: body.map(|specifier| DataSource { specifier: Some(specifier), ..Default::default() }),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_ports_are_left_out() {
        let to = |port, derive_port, scheme: &str| HttpRedirect {
            port,
            derive_port,
            scheme: scheme.to_owned(),
            ..HttpRedirect::default()
        };
        let request = Some(RedirectPortSelection::FromRequestPort);
        let default = Some(RedirectPortSelection::FromProtocolDefault);
        for (redirect, tls, want) in [
            (to(Some(80), None, ""), false, 0),
            (to(Some(80), None, ""), true, 80),
            (to(Some(443), None, "https"), false, 0),
            (to(Some(8443), None, "https"), false, 8443),
            (to(None, request, ""), false, 8080),
            (to(None, default, ""), false, 0),
            (to(None, None, "https"), false, 0),
        ] {
            assert_eq!(redirect_port(&redirect, 8080, tls), want, "{redirect:?}");
        }
    }
}
