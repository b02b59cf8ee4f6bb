//! Routes of a VirtualService that no request can reach: warned about, never refused.

use crate::StringMatch;
use crate::networking::{HttpMatchRequest, HttpRoute, VirtualService};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::quoted;

/// Matches that are compared with each other; beyond, the work would grow with the square of their number.
const MOST_COMPARED: usize = 1_000;

pub(super) fn check(service: &VirtualService, at: &Path<'_>, checker: &mut Checker) {
    http(&service.http, &at.field("http"), checker);
    let tcp: Vec<_> = service.tcp.iter().map(|route| route.r#match.as_slice()).collect();
    equal(&tcp, &at.field("tcp"), checker);
    let tls: Vec<_> = service.tls.iter().map(|route| route.r#match.as_slice()).collect();
    equal(&tls, &at.field("tls"), checker);
}

fn http(routes: &[HttpRoute], at: &Path<'_>, checker: &mut Checker) {
    // Names have no part in what is matched.
    let nameless = |value: &HttpMatchRequest| HttpMatchRequest {
        name: String::new(),
        stat_prefix: String::new(),
        ..value.clone()
    };
    let matches: Vec<Vec<_>> =
        routes.iter().map(|route| route.r#match.iter().map(nameless).collect()).collect();
    equal(&matches.iter().map(Vec::as_slice).collect::<Vec<_>>(), at, checker);
    let mut prefixes: Vec<(usize, String, HttpMatchRequest)> = Vec::new();
    for (index, matches) in matches.into_iter().enumerate() {
        for (number, mut value) in matches.into_iter().enumerate() {
            let Some(StringMatch::Prefix(prefix)) = value.uri.take() else { continue };
            let earlier = prefixes
                .iter()
                .find(|(_, wide, other)| prefix.starts_with(wide) && prefix != *wide && *other == value);
            if let Some((earlier, wide, _)) = earlier {
                let message =
                    format!("is not used, route {earlier} takes the prefix {} before it", quoted(wide));
                checker.warning(&at.index(index).field("match").index(number), message);
            } else if prefixes.len() < MOST_COMPARED {
                prefixes.push((index, prefix, value));
            }
        }
    }
}

/// Warns of a match that an earlier route has too, and of a second route without a match.
fn equal<M: PartialEq>(routes: &[&[M]], at: &Path<'_>, checker: &mut Checker) {
    let mut seen: Vec<(usize, &M)> = Vec::new();
    let mut matches_all = None;
    for (index, matches) in routes.iter().enumerate() {
        let route = at.index(index);
        match matches_all {
            Some(earlier) => {
                checker.warning(&route, format!("is not used, route {earlier} before it matches everything"));
            }
            None if matches.is_empty() => matches_all = Some(index),
            None => {}
        }
        for (number, value) in matches.iter().enumerate() {
            match seen.iter().find(|(_, other)| *other == value) {
                Some((earlier, _)) if *earlier != index => {
                    let message = format!("is not used, route {earlier} has the same match");
                    checker.warning(&route.field("match").index(number), message);
                }
                Some(_) => {}
                None if seen.len() < MOST_COMPARED => seen.push((index, value)),
                None => {}
            }
        }
    }
}
