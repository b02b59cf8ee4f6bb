//! Envoy's choice of a virtual host and route for a request.

use super::listener::clusters_of;
use super::{Found, Next, Walk, Way, dropped, list, matches, number, object_in, step, text};
use pilotfish_api::v1::{Dropped, Step, Verdict};
use pilotfish_config::StringMatch;
use pilotfish_config::networking::{HttpMatchRequest, HttpRoute, VirtualService};
use serde_json::Value;

impl Walk<'_> {
    /// Finds the route that takes a request. Returns its clusters, and the request as it is forwarded.
    pub(super) fn route(
        &self,
        way: &Way,
        routes: &Found,
        steps: &mut Vec<Step>,
    ) -> Next<(Vec<(String, u64)>, Way)> {
        let authority = way.authority();
        let Some(host) = virtual_host(&routes.json, &authority) else {
            let text = format!("routes {} have no virtual host for {authority}", routes.name);
            steps.push(step("virtual host", Verdict::Ends, "", text));
            return Next::End("404: no virtual host takes the request".to_owned());
        };
        let name = text(host, "/name").to_owned();
        let is_fallback = list(host, "/domains").any(|domain| domain == "*");
        let mut at = step("virtual host", Verdict::Ok, name.clone(), format!("of routes {}", routes.name));
        if is_fallback && !self.is_router() {
            at.verdict = Verdict::Doubtful;
            at.text = format!(
                "of routes {}: none is for {authority}, so it takes the way of unknown hosts",
                routes.name
            );
        }
        steps.push(at);
        let all: Vec<&Value> = list(host, "/routes").collect();
        let mut others: Vec<Dropped> = Vec::new();
        let mut chosen: Option<(usize, &Value)> = None;
        for (place, route) in all.iter().copied().enumerate() {
            match (matches::of_route(&route["match"], way), chosen) {
                (Ok(()), None) => chosen = Some((place, route)),
                (Ok(()), Some((first, _))) => {
                    let why = format!("it matches too, and stands behind rule {}", first + 1);
                    others.push(dropped(words(place, route), why));
                }
                (Err(why), _) => others.push(dropped(words(place, route), why)),
            }
        }
        let Some((place, route)) = chosen else {
            let mut ends =
                step("route", Verdict::Ends, "", format!("none of {} routes of {name} matches", all.len()));
            ends.decided_by = objects(&all);
            ends.others = others;
            steps.push(ends);
            return Next::End("404: no route matches the request".to_owned());
        };
        others.extend(self.never_reached(route));
        let mut at = step("route", Verdict::Ok, words(place, route), "");
        at.decided_by = object_in(route.get("metadata")).into_iter().collect();
        at.others = others;
        let result = action(route, &mut at);
        steps.push(at);
        match result {
            Next::On(clusters) => Next::On((clusters, sent_on(way, &[&routes.json, host, route], route))),
            Next::End(outcome) => Next::End(outcome),
        }
    }
}

impl Walk<'_> {
    /// Rules of the route's VirtualService after one that takes every request: translation leaves them out.
    fn never_reached(&self, route: &Value) -> Vec<Dropped> {
        let by = object_in(route.get("metadata")).unwrap_or_default();
        let Some((namespace, name)) = by.strip_prefix("VirtualService ").and_then(|key| key.split_once('/'))
        else {
            return Vec::new();
        };
        let Some(object) = self.world().typed::<VirtualService>(&namespace.into(), name) else {
            return Vec::new();
        };
        let Some(first) = object.http.iter().position(takes_everything) else { return Vec::new() };
        let behind = object.http.iter().enumerate().skip(first + 1);
        behind
            .map(|(place, http)| {
                let what = format!("rule {}{} of {by}", place + 1, conditions(http));
                dropped(what, format!("rule {} takes every request, so it is never reached", first + 1))
            })
            .collect()
    }
}

/// True if a rule has no condition, or only conditions that every request fulfils.
fn takes_everything(http: &HttpRoute) -> bool {
    let every = |request: &HttpMatchRequest| {
        let path = match &request.uri {
            None | Some(StringMatch::Unset) => true,
            Some(StringMatch::Prefix(prefix)) => prefix == "/",
            Some(StringMatch::Regex(regex)) => regex == ".*",
            Some(_) => false,
        };
        let conditions = [&request.scheme, &request.method, &request.authority];
        path && conditions.iter().all(|condition| condition.is_none())
            && request.headers.is_empty()
            && request.without_headers.is_empty()
            && request.query_params.is_empty()
            && request.source_labels.is_empty()
            && request.source_namespace.is_empty()
            && request.gateways.is_empty()
            && request.port == 0
    };
    http.r#match.is_empty() || http.r#match.iter().any(every)
}

/// Paths in a rule's conditions.
fn conditions(http: &HttpRoute) -> String {
    let path = |request: &HttpMatchRequest| {
        Some(match request.uri.as_ref()? {
            StringMatch::Prefix(prefix) => format!("prefix {prefix}"),
            StringMatch::Exact(path) => format!("path {path}"),
            StringMatch::Regex(regex) => format!("regex {regex}"),
            StringMatch::Unset => return None,
        })
    };
    let paths: Vec<String> = http.r#match.iter().filter_map(path).collect();
    if paths.is_empty() { String::new() } else { format!(" ({})", paths.join(", ")) }
}

/// Action of a route.
fn action(route: &Value, at: &mut Step) -> Next<Vec<(String, u64)>> {
    if let Some(direct) = route.get("direct_response") {
        let status = number(direct, "/status");
        at.verdict = Verdict::Ends;
        at.text = format!("answers {status} itself");
        return Next::End(format!("{status}: the proxy answers itself"));
    }
    if let Some(redirect) = route.get("redirect") {
        at.verdict = Verdict::Ends;
        at.text =
            format!("redirects to {}{}", text(redirect, "/host_redirect"), text(redirect, "/path_redirect"));
        return Next::End("3xx: the proxy redirects".to_owned());
    }
    let Some(action) = route.get("route") else {
        at.verdict = Verdict::Ends;
        at.text = "has no destination".to_owned();
        return Next::End("404: the route has no destination".to_owned());
    };
    let clusters = clusters_of(action);
    let mut notes: Vec<String> = Vec::new();
    for (what, pointer) in [
        ("timeout", "/timeout"),
        ("rewrites the path to", "/prefix_rewrite"),
        ("host becomes", "/host_rewrite_literal"),
    ] {
        match text(action, pointer) {
            "" | "0s" => {}
            value => notes.push(format!("{what} {value}")),
        }
    }
    if let Some(abort) = route.pointer("/typed_per_filter_config/envoy.filters.http.fault/abort") {
        let percent = percent(&abort["percentage"]);
        if percent >= 100.0 {
            at.verdict = Verdict::Ends;
            at.text = "a fault is injected: every request is aborted".to_owned();
            return Next::End(format!("{}: the route aborts every request", abort_status(abort)));
        }
        if percent > 0.0 {
            at.verdict = Verdict::Doubtful;
            notes.push(format!("a fault is injected: {percent} % of requests are aborted"));
        }
    }
    at.text = clusters
        .iter()
        .map(
            |(name, weight)| {
                if clusters.len() == 1 { format!("to {name}") } else { format!("{weight} % to {name}") }
            },
        )
        .chain(notes)
        .collect::<Vec<_>>()
        .join(", ");
    if clusters.is_empty() {
        at.verdict = Verdict::Ends;
        at.text = "sends to no cluster".to_owned();
        return Next::End("503: the route sends to no cluster".to_owned());
    }
    Next::On(clusters)
}

/// Envoy's FractionalPercent in percent. Without a numerator it is 0.
fn percent(value: &Value) -> f64 {
    let hundredth = match text(value, "/denominator") {
        "TEN_THOUSAND" => 100.0,
        "MILLION" => 10_000.0,
        _ => 1.0,
    };
    value.get("numerator").and_then(Value::as_f64).unwrap_or_default() / hundredth
}

/// The status that clients get from an injected abort.
fn abort_status(abort: &Value) -> String {
    match abort.get("grpc_status") {
        Some(status) => format!("gRPC status {status}"),
        None => number(abort, "/http_status").to_string(),
    }
}

/// A request as a route sends it on. `levels`: what may change headers.
fn sent_on(way: &Way, levels: &[&Value], route: &Value) -> Way {
    let mut sent = Way { as_http: true, ..way.clone() };
    let action = &route["route"];
    let is_set = |field: &str| action.get(field).is_some_and(|value| *value != Value::Bool(false));
    match text(action, "/host_rewrite_literal") {
        "" if ["auto_host_rewrite", "host_rewrite_header", "host_rewrite_path_regex"]
            .into_iter()
            .any(is_set) =>
        {
            sent.unsure.insert(":authority".to_owned());
        }
        "" => {}
        host => sent.rewritten_host = Some(host.to_owned()),
    }
    let prefix = text(action, "/prefix_rewrite");
    if is_set("regex_rewrite") || is_set("path_rewrite_policy") {
        sent.unsure.insert(":path".to_owned());
    } else if !prefix.is_empty() {
        match rewritten(&way.request.path, &route["match"], prefix) {
            Some(path) => sent.request.path = path,
            None => drop(sent.unsure.insert(":path".to_owned())),
        }
    }
    let clusters: Vec<&Value> = list(action, "/weighted_clusters/clusters").collect();
    for level in levels.iter().copied().chain(clusters) {
        let added = list(level, "/request_headers_to_add").map(|header| text(header, "/header/key"));
        let removed = list(level, "/request_headers_to_remove").filter_map(Value::as_str);
        sent.unsure.extend(added.chain(removed).map(str::to_ascii_lowercase));
    }
    sent
}

/// Replaces the matched part of a path; `None` if that part is unknown.
fn rewritten(path: &str, wanted: &Value, by: &str) -> Option<String> {
    if wanted.get("case_sensitive").and_then(Value::as_bool) == Some(false) {
        return None;
    }
    let matched =
        ["prefix", "path", "path_separated_prefix"].iter().find_map(|kind| wanted.get(*kind)?.as_str())?;
    Some(format!("{by}{}", path.strip_prefix(matched)?))
}

/// Objects of routes, without duplicates.
fn objects(routes: &[&Value]) -> Vec<String> {
    let mut all: Vec<String> = routes.iter().filter_map(|route| object_in(route.get("metadata"))).collect();
    all.sort();
    all.dedup();
    all
}

/// Readable form of a route: its index and match.
fn words(place: usize, route: &Value) -> String {
    let wanted = &route["match"];
    let path = ["prefix", "path", "path_separated_prefix"]
        .iter()
        .find_map(|kind| {
            Some(format!("{} {}", kind.replace("path_separated_", ""), wanted.get(*kind)?.as_str()?))
        })
        .or_else(|| Some(format!("regex {}", wanted.pointer("/safe_regex/regex")?.as_str()?)))
        .unwrap_or_else(|| "any path".to_owned());
    let headers: Vec<&str> = list(wanted, "/headers").map(|header| text(header, "/name")).collect();
    let headers = if headers.is_empty() { String::new() } else { format!(" with {}", headers.join(", ")) };
    let name = match text(route, "/name") {
        "" | "default" => String::new(),
        name => format!(" {name:?}"),
    };
    let by = object_in(route.get("metadata")).map(|object| format!(" of {object}")).unwrap_or_default();
    format!("rule {}{name} ({path}{headers}){by}", place + 1)
}

/// Virtual host of an authority: by the full name, then the longest suffix, then the longest prefix, then
/// `*`.
fn virtual_host<'a>(routes: &'a Value, authority: &str) -> Option<&'a Value> {
    let bare = authority.split(':').next().unwrap_or_default();
    let ignores_port =
        routes.get("ignore_port_in_host_matching").and_then(Value::as_bool).unwrap_or_default();
    let own = if ignores_port { bare } else { authority };
    let score = |domain: &str| {
        if domain.eq_ignore_ascii_case(own) {
            Some((3, domain.len()))
        } else if domain == "*" {
            Some((0, 0))
        } else if let Some(suffix) = domain.strip_prefix('*') {
            own.ends_with(suffix).then_some((2, domain.len()))
        } else if let Some(prefix) = domain.strip_suffix('*') {
            own.starts_with(prefix).then_some((1, domain.len()))
        } else {
            None
        }
    };
    let hosts = list(routes, "/virtual_hosts");
    let scored = hosts.filter_map(|host| {
        let best = list(host, "/domains").filter_map(Value::as_str).filter_map(score).max()?;
        Some((best, host))
    });
    scored.max_by_key(|(best, _)| *best).map(|(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_is_sent_on_as_the_route_rewrites_it() {
        let request = crate::why::Request::parse("web", "/a/b?x=1", "GET", &[]).unwrap();
        let way = Way { request, port: 80, ..Way::default() };
        let unsure = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        for (route, path, host, names) in [
            (json!({"match": {"prefix": "/a"}, "route": {}}), "/a/b?x=1", "web", unsure(&[])),
            (
                json!({"match": {"prefix": "/a"}, "route": {"prefix_rewrite": "/"}}),
                "//b?x=1",
                "web",
                unsure(&[]),
            ),
            (
                json!({"match": {"path": "/a/b"}, "route": {"prefix_rewrite": "/c"}}),
                "/c?x=1",
                "web",
                unsure(&[]),
            ),
            (
                json!({"match": {"prefix": "/A", "case_sensitive": false}, "route": {"prefix_rewrite": "/"}}),
                "/a/b?x=1",
                "web",
                unsure(&[":path"]),
            ),
            (json!({"match": {}, "route": {"regex_rewrite": {}}}), "/a/b?x=1", "web", unsure(&[":path"])),
            (
                json!({"match": {}, "route": {"host_rewrite_literal": "other"}}),
                "/a/b?x=1",
                "other",
                unsure(&[]),
            ),
            (
                json!({"match": {}, "route": {"auto_host_rewrite": true}}),
                "/a/b?x=1",
                "web",
                unsure(&[":authority"]),
            ),
            (
                json!({"match": {}, "route": {}, "request_headers_to_add": [{"header": {"key": "X-A"}}], "request_headers_to_remove": ["x-b"]}),
                "/a/b?x=1",
                "web",
                unsure(&["x-a", "x-b"]),
            ),
        ] {
            let sent = sent_on(&way, &[&route], &route);
            assert!(sent.as_http);
            assert_eq!((sent.request.path.as_str(), sent.authority().as_str()), (path, host), "{route}");
            assert_eq!(sent.unsure.into_iter().collect::<Vec<_>>(), names, "{route}");
        }
    }

    #[test]
    fn the_most_specific_virtual_host_takes_a_request() {
        let host = |name: &str, domains: &[&str]| json!({"name": name, "domains": domains});
        let routes = json!({"virtual_hosts": [
            host("all", &["*"]), host("suffix", &["*.example.com"]), host("exact", &["a.example.com", "a.example.com:80"]),
            host("prefix", &["b.*"]),
        ]});
        for (authority, name) in
            [("a.example.com", "exact"), ("c.example.com", "suffix"), ("b.other", "prefix"), ("x", "all")]
        {
            assert_eq!(text(virtual_host(&routes, authority).unwrap(), "/name"), name, "{authority}");
        }
    }
}
