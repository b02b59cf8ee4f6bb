//! Redirects to the URL that was asked for. Clients follow such a redirect until they give up.

use super::ir::RouteDialect;
use pilotfish_config::StringMatch;
use pilotfish_config::networking::{HttpMatchRequest, HttpRedirect, HttpRoute, RedirectPortSelection};
use std::collections::BTreeMap;

/// Headers that follow from the URL or from the page before, so that they differ after a redirect.
const CHANGING_HEADERS: [&str; 4] = ["forwarded", "origin", "referer", "x-forwarded-"];

/// Address on which a proxy receives requests of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    pub(crate) port: u32,
    pub(crate) tls: bool,
}

impl Arrival {
    fn scheme(self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Returns true if a condition on the port and scheme may match requests that arrive here.
    pub(crate) fn fits(self, request: &HttpMatchRequest) -> bool {
        (request.port == 0 || request.port == self.port) && matches(request.scheme.as_ref(), self.scheme())
    }
}

/// The redirect of a route, for requests that one of its conditions matches.
#[derive(Clone, Copy)]
pub(crate) struct Redirection<'a> {
    pub(crate) dialect: RouteDialect,
    pub(crate) route: &'a HttpRoute,
    pub(crate) to: &'a HttpRedirect,
    pub(crate) request: &'a HttpMatchRequest,
}

/// Path of redirected requests that match their condition again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewPath<'a> {
    Kept,
    /// The redirect's own path, whatever the request's.
    Fixed(&'a str),
    /// Begins with this, which begins with the prefix that the condition matches.
    Longer(&'a str),
}

impl Redirection<'_> {
    /// Returns true if the requests keep their scheme and port.
    pub(crate) fn keeps_address(&self, at: Arrival) -> bool {
        let scheme = match self.to.scheme.as_str() {
            "" => at.scheme(),
            scheme => scheme,
        };
        let usual = if scheme == "https" { 443 } else { 80 };
        let port = match (self.to.port, self.to.derive_port, split_port(&self.to.authority)) {
            (Some(port), ..) | (None, _, (_, Some(port))) => port,
            (None, Some(RedirectPortSelection::FromRequestPort), _) => at.port,
            // Only a change of the scheme takes the port from the host that was asked for.
            (None, _, ("", None)) => at.port,
            (None, _, (_, None)) => usual,
        };
        scheme == at.scheme() && port == at.port
    }

    /// Returns the host that the requests are redirected to; `None` if they keep theirs.
    pub(crate) fn host(&self) -> Option<&str> {
        Some(split_port(&self.to.authority).0).filter(|host| !host.is_empty())
    }

    /// Returns the path of redirected requests, if they match the condition again where they keep their
    /// address and host.
    pub(crate) fn returning(&self) -> Option<NewPath<'_>> {
        let is_api = self.dialect == RouteDialect::GatewayApi;
        let fixed = self.to.uri.split(['?', '#']).next().unwrap_or_default();
        let path = match &self.to.prefix_rewrite {
            Some(new) if is_api || !new.is_empty() => self.new_prefix(new, is_api)?,
            _ if fixed.is_empty() => NewPath::Kept,
            _ if !self.matches_path(self.request, fixed) => return None,
            _ if self.request.uri == Some(StringMatch::Exact(fixed.to_owned())) => NewPath::Kept,
            _ => NewPath::Fixed(fixed),
        };
        self.keeps_conditions().then_some(path)
    }

    fn new_prefix<'p>(&self, new: &'p str, is_api: bool) -> Option<NewPath<'p>> {
        let old = match &self.request.uri {
            None | Some(StringMatch::Unset) => "/",
            Some(StringMatch::Prefix(prefix)) => prefix,
            Some(StringMatch::Exact(_) | StringMatch::Regex(_)) => return None,
        };
        let (old, new) = match is_api {
            true => (old.trim_end_matches('/'), new.trim_end_matches('/')),
            false => (old, new),
        };
        match new.strip_prefix(old)? {
            "" => Some(NewPath::Kept),
            rest if !is_api || rest.starts_with('/') => Some(NewPath::Longer(new)),
            _ => None,
        }
    }

    /// Returns true if the conditions beside the path match the redirected request, too.
    fn keeps_conditions(&self) -> bool {
        let Self { route, to, request, .. } = self;
        let is_safe = |method: &StringMatch| matches(Some(method), "GET") || matches(Some(method), "HEAD");
        // Clients repeat a POST as GET, except after these codes.
        let keeps_method =
            matches!(to.redirect_code, 307 | 308) || request.method.as_ref().is_none_or(is_safe);
        let keeps_query = !to.uri.contains('?') || request.query_params.is_empty();
        let keeps_host = to.authority.is_empty() || matches(request.authority.as_ref(), &to.authority);
        let names = request.headers.keys().chain(request.without_headers.keys());
        keeps_method && keeps_query && keeps_host && !names.into_iter().any(|name| changes(name, route))
    }

    /// Returns true if a condition of an earlier route, which did not match the requests, may match them with
    /// their new path.
    pub(crate) fn may_take(&self, other: &HttpMatchRequest, path: NewPath<'_>) -> bool {
        match (path, &other.uri) {
            // To be certain, expressions of all routes would have to be compiled.
            (NewPath::Fixed(_), Some(StringMatch::Regex(_))) => true,
            (NewPath::Fixed(path), _) => self.matches_path(other, path),
            (NewPath::Longer(new), Some(StringMatch::Exact(path))) => path.starts_with(new),
            (NewPath::Longer(new), Some(StringMatch::Prefix(prefix))) => {
                prefix.starts_with(new) || new.starts_with(prefix.as_str())
            }
            (NewPath::Longer(_), _) => true,
            (NewPath::Kept, _) => false,
        }
    }

    fn matches_path(&self, request: &HttpMatchRequest, path: &str) -> bool {
        match &request.uri {
            Some(StringMatch::Prefix(prefix)) if self.dialect.whole_elements() => {
                let rest = path.strip_prefix(prefix.trim_end_matches('/'));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Some(StringMatch::Prefix(prefix)) if request.ignore_uri_case => {
                path.to_ascii_lowercase().starts_with(&prefix.to_ascii_lowercase())
            }
            Some(StringMatch::Exact(exact)) if request.ignore_uri_case => exact.eq_ignore_ascii_case(path),
            uri => matches(uri.as_ref(), path),
        }
    }
}

/// Returns true if the value of a header is another one in redirected requests.
fn changes(name: &str, route: &HttpRoute) -> bool {
    let name = name.to_ascii_lowercase();
    let response = route.headers.as_ref().and_then(|headers| headers.response.as_ref());
    let sets_cookie = response.is_some_and(|operations| {
        let is_cookie = |header: &String| header.eq_ignore_ascii_case("set-cookie");
        let has = |map: &BTreeMap<String, String>| map.keys().any(is_cookie);
        has(&operations.set) || has(&operations.add)
    });
    CHANGING_HEADERS.iter().any(|changing| name.starts_with(changing)) || name == "cookie" && sets_cookie
}

/// Splits `HOST:PORT`. The port is `None` if there is none.
fn split_port(authority: &str) -> (&str, Option<u32>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (authority, None),
        },
        _ => (authority, None),
    }
}

fn matches(pattern: Option<&StringMatch>, text: &str) -> bool {
    match pattern {
        None | Some(StringMatch::Unset) => true,
        Some(StringMatch::Exact(exact)) => exact == text,
        Some(StringMatch::Prefix(prefix)) => text.starts_with(prefix.as_str()),
        Some(StringMatch::Regex(pattern)) => matches_whole(pattern, text),
    }
}

/// Returns true if an expression matches the whole text. An expression that RE2
/// accepts and this library does not matches nothing.
fn matches_whole(pattern: &str, text: &str) -> bool {
    const MOST_BYTES: usize = 1 << 20;
    let whole = regex::RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(MOST_BYTES).build();
    whole.is_ok_and(|whole| whole.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(change: impl FnOnce(&mut HttpRedirect)) -> HttpRedirect {
        let mut to = HttpRedirect::default();
        change(&mut to);
        to
    }

    #[test]
    fn address_is_kept_if_scheme_and_port_lead_to_the_listener() {
        let (http, https) = (Arrival { port: 80, tls: false }, Arrival { port: 443, tls: true });
        let (high, high_tls) = (Arrival { port: 8080, tls: false }, Arrival { port: 8443, tls: true });
        let request = Some(RedirectPortSelection::FromRequestPort);
        let none = redirect(|_| {});
        let to_https = redirect(|to| to.scheme = "https".into());
        let to_443 = redirect(|to| (to.scheme, to.port) = ("https".into(), Some(443)));
        let other_host = redirect(|to| to.authority = "a.com".into());
        let with_port = redirect(|to| to.authority = "a.com:8080".into());
        let from_request = redirect(|to| (to.authority, to.derive_port) = ("a.com".into(), request));
        for (to, kept) in [
            (none, [true, true, true, true]),
            (to_https, [false, true, false, true]),
            (to_443, [false, true, false, false]),
            (other_host, [true, true, false, false]),
            (with_port, [false, false, true, false]),
            (from_request, [true, true, true, true]),
        ] {
            let (route, any) = (HttpRoute::default(), HttpMatchRequest::default());
            let of =
                Redirection { dialect: RouteDialect::VirtualService, route: &route, to: &to, request: &any };
            let found = [http, https, high, high_tls].map(|at| of.keeps_address(at));
            assert_eq!(found, kept, "{to:?}");
        }
    }

    fn prefix(path: &str) -> HttpMatchRequest {
        HttpMatchRequest { uri: Some(StringMatch::Prefix(path.into())), ..HttpMatchRequest::default() }
    }

    fn exact(path: &str) -> HttpMatchRequest {
        HttpMatchRequest { uri: Some(StringMatch::Exact(path.into())), ..HttpMatchRequest::default() }
    }

    fn returns(
        dialect: RouteDialect,
        to: &HttpRedirect,
        request: &HttpMatchRequest,
        earlier: &[HttpMatchRequest],
    ) -> bool {
        let route = HttpRoute::default();
        let of = Redirection { dialect, route: &route, to, request };
        of.returning().is_some_and(|path| !earlier.iter().any(|other| of.may_take(other, path)))
    }

    #[test]
    fn path_returns_if_the_condition_matches_it_again_and_no_earlier_one_does() {
        let (api, istio) = (RouteDialect::GatewayApi, RouteDialect::VirtualService);
        let full = |uri: &str| redirect(|to| to.uri = uri.into());
        let replaced = |new: &str| redirect(|to| to.prefix_rewrite = Some(new.into()));
        let regex = HttpMatchRequest { uri: Some(StringMatch::Regex("/a/.*".into())), ..prefix("") };
        for (dialect, to, request, earlier, wanted) in [
            (api, full("/a"), prefix("/a"), None, true),
            (api, full("/a"), prefix("/a"), Some(exact("/a")), false),
            (api, full("/a"), prefix("/a"), Some(exact("/b")), true),
            (api, full("/a/b"), prefix("/a"), None, true),
            (api, full("/a/b"), prefix("/"), Some(prefix("/a")), false),
            (api, full("/ab"), prefix("/a"), None, false),
            (istio, full("/ab"), prefix("/a"), None, true),
            (istio, full("/a?b"), prefix("/a"), None, true),
            (api, full("/a"), exact("/a"), None, true),
            (api, full("/a"), exact("/a/"), None, false),
            (api, full("/a/b"), regex.clone(), None, true),
            (api, full("/b"), regex, None, false),
            (api, replaced("/a/"), prefix("/a"), None, true),
            (api, replaced("/b"), prefix("/a"), None, false),
            (api, replaced("/a/b"), prefix("/a"), None, true),
            (api, replaced("/a/b"), prefix("/a"), Some(prefix("/a/b")), false),
            (api, replaced("/app"), prefix("/"), Some(prefix("/app")), false),
            (api, replaced("/"), prefix("/a"), None, false),
            (api, replaced(""), prefix("/"), None, true),
            (istio, replaced("/a"), prefix("/a"), None, true),
            (istio, replaced("/b"), prefix("/a"), None, false),
        ] {
            let earlier: Vec<_> = earlier.into_iter().collect();
            assert_eq!(returns(dialect, &to, &request, &earlier), wanted, "{to:?} {request:?} {earlier:?}");
        }
    }

    #[test]
    fn conditions_that_a_redirect_changes_match_once() {
        let method = |name: &str| HttpMatchRequest {
            method: Some(StringMatch::Exact(name.into())),
            ..HttpMatchRequest::default()
        };
        let header = |name: &str| HttpMatchRequest {
            headers: BTreeMap::from([(name.to_owned(), StringMatch::Exact("a".into()))]),
            ..HttpMatchRequest::default()
        };
        let with_code = |code: u32| redirect(|to| to.redirect_code = code);
        let (found, kept) = (with_code(302), with_code(307));
        for (to, request, wanted) in [
            (&found, method("GET"), true),
            (&found, method("POST"), false),
            (&kept, method("POST"), true),
            (&found, header("x-forwarded-proto"), false),
            (&found, header("x-user"), true),
            (&found, header("cookie"), true),
        ] {
            assert_eq!(
                returns(RouteDialect::VirtualService, to, &request, &[]),
                wanted,
                "{to:?} {request:?}"
            );
        }
    }

    #[test]
    fn a_redirect_that_sets_the_cookie_it_asks_for_ends() {
        let text = StringMatch::Regex(".*seen.*".into());
        let request = HttpMatchRequest {
            without_headers: BTreeMap::from([("cookie".to_owned(), text)]),
            ..HttpMatchRequest::default()
        };
        let mut route = HttpRoute::default();
        let operations = route.headers.get_or_insert_default().response.get_or_insert_default();
        operations.add.insert("Set-Cookie".to_owned(), "seen=1".to_owned());
        let to = HttpRedirect::default();
        let of =
            Redirection { dialect: RouteDialect::VirtualService, route: &route, to: &to, request: &request };
        assert_eq!(of.returning(), None);
    }
}
