//! Request of a `why` query.

use pilotfish_api::v1::{Failure, FailureKind};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Host as the application names it.
    pub host: String,
    /// Port; `None` for the service's own.
    pub port: Option<u32>,
    /// Path of the request, with its query.
    pub path: String,
    pub method: String,
    /// Headers, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// True for TLS, from the scheme: `https` and `tls`, or `http`. `None` without a scheme.
    pub tls: Option<bool>,
}

impl Request {
    /// Parses `HOST[:PORT]` and headers `NAME=VALUE`. A scheme (`http`, `https` or `tls`) and a path after
    /// the host are accepted as well.
    ///
    /// # Errors
    /// If one of them is malformed.
    pub fn parse(to: &str, path: &str, method: &str, headers: &[String]) -> Result<Self, Failure> {
        let invalid = |error: String| Failure::new(FailureKind::Invalid, error);
        let (scheme, rest) = to.split_once("://").unwrap_or(("", to));
        let (authority, own_path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') && (!host.contains(':') || host.ends_with(']')) => {
                let port = port.parse::<u16>().ok().filter(|port| *port > 0);
                let port = port.ok_or_else(|| invalid(format!("{to:?}: the port is none")))?;
                (host, Some(u32::from(port)))
            }
            _ => (authority, None),
        };
        let (own_port, tls) = match scheme {
            "http" => (Some(80), Some(false)),
            "https" => (Some(443), Some(true)),
            "tls" => (None, Some(true)),
            _ => (None, None),
        };
        let port = port.or(own_port);
        if host.is_empty() {
            return Err(invalid(format!("{to:?} has no host")).hint("--to catalog:80"));
        }
        let header = |header: &String| {
            let (name, value) =
                header.split_once('=').or_else(|| header.split_once(':')).ok_or_else(|| {
                    invalid(format!("the header {header:?} has no value")).hint("--header NAME=VALUE")
                })?;
            Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        };
        let path = if own_path.is_empty() { path } else { own_path };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase(),
            port,
            path,
            method: method.to_ascii_uppercase(),
            headers: headers.iter().map(header).collect::<Result<_, Failure>>()?,
            tls,
        })
    }

    pub(super) fn path_only(&self) -> &str {
        self.path.split(['?', '#']).next().unwrap_or_default()
    }

    /// Value of a query parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_host_with_or_without_port_scheme_and_path() {
        let parse = |to: &str| Request::parse(to, "/", "get", &["X-User=tester".to_owned()]).unwrap();
        let request = parse("Catalog:8080");
        assert_eq!(
            (request.host.as_str(), request.port, request.method.as_str()),
            ("catalog", Some(8_080), "GET")
        );
        assert_eq!(request.headers, [("x-user".to_owned(), "tester".to_owned())]);
        let request = parse("https://a.example.com/v1?x=1");
        assert_eq!(
            (request.port, request.path_only(), request.parameter("x")),
            (Some(443), "/v1", Some("1"))
        );
        assert_eq!(
            ["web", "http://web", "https://web", "tls://web:5432"].map(|to| parse(to).tls),
            [None, Some(false), Some(true), Some(true)]
        );
        assert_eq!((parse("[fd00::1]:80").host.as_str(), parse("fd00::1").port), ("fd00::1", None));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for (to, headers) in [("", &[][..]), ("web:0", &[]), ("web:x", &[]), ("web", &["x"])] {
            let headers: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
            assert!(Request::parse(to, "/", "GET", &headers).is_err(), "{to} {headers:?}");
        }
    }
}
