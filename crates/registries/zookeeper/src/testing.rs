//! Test helper: registrations from a few nodes, read like from a server.

use crate::mirror::{Layout, Mirror, Registrations, Watches};
use crate::wire::{Body, Refusal, Request};
use std::collections::BTreeMap;

/// Returns the registrations of a tree of nodes with data.
pub(crate) fn registrations(nodes: &[(&str, &str)]) -> Registrations {
    let mut tree = BTreeMap::new();
    for (path, data) in nodes {
        path.match_indices('/').skip(1).for_each(|(at, _)| {
            tree.entry(&path[..at]).or_insert("");
        });
        tree.insert(path, data);
    }
    let layout = Layout { dubbo: Some("/dubbo".into()), services: Some("/services".into()) };
    let mut mirror = Mirror::new(layout, Watches::Below, Registrations::default());
    while let Some(request) = mirror.next_request() {
        let below = format!("{}/", request.path());
        let answer = match (&request, tree.get(request.path())) {
            (Request::WatchBelow { .. }, _) => Ok(Body::Done),
            (_, None) => Err(Refusal::NoNode),
            (Request::Data { .. }, Some(data)) => Ok(Body::Data(data.as_bytes().to_vec())),
            _ => {
                let names = tree.keys().filter_map(|path| path.strip_prefix(&below));
                Ok(Body::Children(names.filter(|name| !name.contains('/')).map(str::to_owned).collect()))
            }
        };
        mirror.answer(&request, answer).expect("the roots can be read");
    }
    mirror.registrations().clone()
}
