//! Protection against requests from web pages. The API has no use for them, and a page must not reach a
//! listener on its visitor's loopback address.

use crate::failure::Failure;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use pilotfish_registration_api::v1::error::Code;
use std::net::IpAddr;

/// Refuses requests with several hosts or from pages of other origins, and on loopback those for other host
/// names.
pub(crate) fn check(parts: &Parts, is_loopback: bool) -> Result<(), Failure> {
    // RFC 9112, 3.2: a proxy on the way may have used another Host header than the one checked here.
    if parts.headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(Failure::new(Code::InvalidArgument, "the request has several Host headers"));
    }
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    if authority.zip(text(HOST.as_str())).is_some_and(|(own, host)| !own.eq_ignore_ascii_case(host)) {
        return Err(Failure::new(Code::InvalidArgument, "the request has several hosts"));
    }
    let host = authority.or_else(|| text(HOST.as_str())).unwrap_or_default();
    let is_elsewhere = match (text("sec-fetch-site"), text(ORIGIN.as_str())) {
        (Some(site), _) => !matches!(site, "none" | "same-origin"),
        (None, Some(origin)) => origin.split_once("://").is_none_or(|(_, origin)| origin != host),
        (None, None) => false,
    };
    if is_elsewhere {
        return Err(Failure::new(
            Code::PermissionDenied,
            "requests of web pages from elsewhere are not answered",
        ));
    }
    if is_loopback && !is_own_name(host) {
        let message = "this address is called by a name that is not its own: use localhost or the IP address";
        return Err(Failure::new(Code::PermissionDenied, message));
    }
    Ok(())
}

/// True if `host[:port]` is an IP address or localhost.
fn is_own_name(host: &str) -> bool {
    let bare = |host: &str| {
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
            .parse::<IpAddr>()
            .is_ok()
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    name.is_empty() || name == "localhost" || name.ends_with(".localhost") || bare(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(headers: &[(&str, &str)], is_loopback: bool) -> bool {
        let mut request = http::Request::builder().uri("/v1/instances");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0, is_loopback).is_ok()
    }

    #[test]
    fn pages_of_elsewhere_and_several_hosts_are_refused() {
        for (headers, expected) in [
            (&[("host", "127.0.0.1:15017")][..], true),
            (&[("host", "127.0.0.1:1"), ("origin", "http://127.0.0.1:1")], true),
            (&[("host", "127.0.0.1:1"), ("origin", "https://evil.example")], false),
            (&[("host", "127.0.0.1:1"), ("origin", "null")], false),
            (&[("host", "127.0.0.1:1"), ("sec-fetch-site", "cross-site")], false),
            (&[("host", "127.0.0.1:1"), ("sec-fetch-site", "none")], true),
            (&[("host", "127.0.0.1:1"), ("host", "evil.example")], false),
            (&[("host", "127.0.0.1:1"), ("host", "127.0.0.1:1")], false),
        ] {
            assert_eq!(allowed(headers, true), expected, "{headers:?}");
        }
    }

    #[test]
    fn target_with_another_host_than_the_header_is_refused() {
        for (host, expected) in [("127.0.0.1:1", true), ("evil.example", false)] {
            let request =
                http::Request::builder().uri("http://127.0.0.1:1/v1/instances").header("host", host);
            let parts = request.body(()).unwrap().into_parts().0;
            assert_eq!(check(&parts, true).is_ok(), expected, "{host}");
        }
    }

    #[test]
    fn names_on_loopback_are_our_own() {
        for (host, expected) in [
            ("localhost", true),
            ("localhost:80", true),
            ("[::1]:80", true),
            ("10.0.0.1", true),
            ("rebound.example:80", false),
            ("localhost.example", false),
        ] {
            assert_eq!(allowed(&[("host", host)], true), expected, "{host}");
            assert!(allowed(&[("host", host)], false), "{host}");
        }
    }
}
