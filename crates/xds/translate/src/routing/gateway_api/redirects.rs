//! Redirects of HTTPRoutes to the URL that was asked for.

use super::attachment::Attachment;
use super::parts::served;
use crate::engine::{Cx, Query};
use crate::routing::ir::RouteDialect;
use crate::routing::redirect_loop::{Arrival, NewPath, Redirection};
use pilotfish_config::StringMatch;
use pilotfish_config::gateway_api::{HttpRoute as Route, PathMatchType};
use pilotfish_config::networking::{HttpMatchRequest, HttpRoute};
use pilotfish_model::Hostname;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Places at which a redirect leads back to itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Loop {
    /// Every request that it answers ends in the loop.
    Everywhere,
    /// Requests at these listeners do, or for these hosts.
    At(BTreeSet<String>),
}

/// Returns the places at which the redirect of a rule leads back to itself, for one of its conditions.
pub(super) fn find(
    cx: &Cx<'_>,
    route: &HttpRoute,
    requests: &[HttpMatchRequest],
    hostnames: &[String],
    attachments: &[Attachment],
) -> Option<Loop> {
    let to = route.redirect.as_ref()?;
    let any = [HttpMatchRequest::default()];
    let requests = if requests.is_empty() { &any } else { requests };
    let mut partly = BTreeSet::new();
    for request in requests {
        let of = Redirection { dialect: RouteDialect::GatewayApi, route, to, request };
        let Some(path) = of.returning() else { continue };
        let places: Vec<Place> =
            attachments.iter().flat_map(|attachment| Place::all(cx, &of, attachment, hostnames)).collect();
        let loops = |place: &&Place| place.is_same && !is_taken(cx, request, path, &place.hosts);
        let looping: Vec<&Place> = places.iter().filter(loops).collect();
        if !looping.is_empty() && looping.len() == places.len() && looping.iter().all(|place| place.is_all) {
            return Some(Loop::Everywhere);
        }
        partly.extend(looping.into_iter().map(|place| place.name.clone()));
    }
    (!partly.is_empty()).then_some(Loop::At(partly))
}

/// Address at which requests of a route arrive.
struct Place {
    name: String,
    /// Hosts that requests are redirected to.
    hosts: Vec<String>,
    /// True if redirected requests arrive here again.
    is_same: bool,
    /// True if all requests are for `hosts`.
    is_all: bool,
}

impl Place {
    fn all(cx: &Cx<'_>, of: &Redirection<'_>, attachment: &Attachment, hostnames: &[String]) -> Vec<Self> {
        let hosts = attachment.cut(served(attachment, hostnames));
        if hosts.is_empty() {
            return Vec::new();
        }
        let namespace = attachment.service.as_ref().map(|service| &service.namespace);
        let (kept, all) = match of.host() {
            None => (hosts, true),
            Some(host) => {
                let full = namespace.map_or(host.into(), |namespace| cx.domain().qualify(host, namespace));
                let is_own = |own: &String| own.eq_ignore_ascii_case(&full);
                let (kept, others): (Vec<String>, Vec<String>) = hosts.into_iter().partition(is_own);
                (kept, others.is_empty())
            }
        };
        let at = |arrival: Arrival| Self {
            name: match &attachment.service {
                None if all => format!("listener {}", attachment.listener),
                None => format!("host {} of listener {}", kept.join(", "), attachment.listener),
                Some(_) => format!("port {} of {}", arrival.port, kept.join(", ")),
            },
            is_same: !kept.is_empty() && of.keeps_address(arrival),
            hosts: kept.clone(),
            is_all: all,
        };
        attachment.arrivals.iter().copied().map(at).collect()
    }
}

/// Returns true if a condition of some HTTPRoute that comes before this one may match the redirected
/// requests.
fn is_taken(cx: &Cx<'_>, request: &HttpMatchRequest, path: NewPath<'_>, hosts: &[String]) -> bool {
    let (new, is_open) = match path {
        NewPath::Kept => return false,
        NewPath::Fixed(path) => (path, false),
        NewPath::Longer(prefix) => (prefix, true),
    };
    let shortest = match &request.uri {
        Some(StringMatch::Prefix(prefix)) => prefix.len() + 1,
        Some(StringMatch::Regex(_)) => 0,
        _ => 2,
    };
    let all = cx.get(&ConditionsByPath);
    let takes = |condition: &Condition| hosts.iter().any(|host| condition.is_for(host));
    let above = ancestors(new).filter(|prefix| prefix.len() >= shortest);
    let above = above.filter_map(|prefix| all.get(prefix)).flatten().filter(|condition| !condition.is_exact);
    let same = all.get(new).into_iter().flatten().filter(|condition| condition.is_exact);
    if above.chain(same).any(takes) {
        return true;
    }
    let start = format!("{}/", new.trim_end_matches('/'));
    let below = all.range(start.clone()..).take_while(|(path, _)| path.starts_with(&start));
    is_open && below.flat_map(|(_, conditions)| conditions).any(takes)
}

/// The path and the shorter ones that consist of its first elements.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let path = path.trim_end_matches('/');
    let slashes = path.match_indices('/').map(|(at, _)| at);
    let shorter = slashes.filter_map(|at| path.get(..at)).filter(|path| !path.is_empty());
    [path, "/"].into_iter().filter(|path| !path.is_empty()).chain(shorter)
}

/// Query for the conditions of all HTTPRoutes, by their path. Regular expressions are omitted: they come
/// after all others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ConditionsByPath;

/// Condition on a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    is_exact: bool,
    /// Hosts of its route; none for all.
    hosts: Arc<[Hostname]>,
}

impl Condition {
    fn is_for(&self, host: &str) -> bool {
        let Ok(host) = Hostname::parse(host) else { return true };
        self.hosts.is_empty() || self.hosts.iter().any(|own| own.matches(&host))
    }
}

impl Query for ConditionsByPath {
    type Output = BTreeMap<String, Vec<Condition>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out: Self::Output = BTreeMap::new();
        for object in cx.objects::<Route>() {
            let hosts = object.spec.hostnames.iter();
            let hosts: Arc<[Hostname]> = hosts.filter_map(|host| Hostname::parse(host).ok()).collect();
            for path in
                object.spec.rules.iter().flat_map(|rule| &rule.matches).map(|condition| &condition.path)
            {
                let (is_exact, value) = match path.r#type {
                    PathMatchType::Exact => (true, path.value.as_str()),
                    PathMatchType::PathPrefix => (false, path.value.trim_end_matches('/')),
                    PathMatchType::RegularExpression => continue,
                };
                let value = if value.is_empty() { "/" } else { value };
                out.entry(value.to_owned()).or_default().push(Condition { is_exact, hosts: hosts.clone() });
            }
        }
        out
    }
}
