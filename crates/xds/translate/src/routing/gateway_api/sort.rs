//! The order of precedence of the Gateway API among the routes of a host.

use pilotfish_config::StringMatch;
use pilotfish_config::networking::{HttpMatchRequest, HttpRoute};
use std::cmp::{Ordering, Reverse};

/// Sorts routes: exact paths, then prefixes, then regular expressions; longer ones first; then those with a
/// method, with more headers, with more query parameters. Otherwise the order of objects and rules is kept. A
/// route without conditions is last.
pub(super) fn sort(routes: &mut [HttpRoute]) {
    routes.sort_by(|a, b| match (a.r#match.first(), b.r#match.first()) {
        (Some(a), Some(b)) => rank(a).cmp(&rank(b)),
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (None, None) => Ordering::Equal,
    });
}

type Rank = (Reverse<(u8, usize)>, bool, Reverse<usize>, Reverse<usize>);

fn rank(request: &HttpMatchRequest) -> Rank {
    let path = match &request.uri {
        Some(StringMatch::Exact(path)) => (3, path.len()),
        Some(StringMatch::Prefix(path)) => (2, path.len()),
        Some(StringMatch::Regex(path)) => (1, path.len()),
        None | Some(StringMatch::Unset) => (0, 0),
    };
    let (headers, parameters) = (request.headers.len(), request.query_params.len());
    (Reverse(path), request.method.is_none(), Reverse(headers), Reverse(parameters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_route_comes_first() {
        let route = |name: &str, uri: Option<StringMatch>, method: bool| HttpRoute {
            name: name.to_owned(),
            r#match: vec![HttpMatchRequest {
                uri,
                method: method.then(|| StringMatch::Exact("GET".to_owned())),
                ..HttpMatchRequest::default()
            }],
            ..HttpRoute::default()
        };
        let prefix = |path: &str| Some(StringMatch::Prefix(path.to_owned()));
        let mut routes = vec![
            HttpRoute { name: "all".into(), ..HttpRoute::default() },
            route("regex", Some(StringMatch::Regex("/long/long/.*".into())), false),
            route("short", prefix("/a"), false),
            route("long", prefix("/a/b"), false),
            route("short-get", prefix("/a"), true),
            route("exact", Some(StringMatch::Exact("/".into())), false),
        ];
        sort(&mut routes);
        let names: Vec<&str> = routes.iter().map(|route| route.name.as_str()).collect();
        assert_eq!(names, ["exact", "long", "short-get", "short", "regex", "all"]);
    }
}
