//! Resources that a proxy would be sent which is not connected here.

use super::config_page::ConfigPage;
use super::plan::{left, turn};
use super::{AdminState, history};
use parking_lot::Mutex;
use pilotfish_admin::{Abandoned, ConfigAsked};
use pilotfish_api::v1::{Failure, FailureKind, NodeRequest, ProxyConfig};
use pilotfish_explain::{Held, Subject, held_until, section};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{ResourceType, from_json};
use pilotfish_translate::Proxy;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Computes the resources of a node, for as long as the client waits. A separate translator leaves streams
/// alone; nothing is registered or written.
pub(super) fn of_node(
    state: &AdminState,
    request: &NodeRequest,
    abandoned: &Abandoned,
) -> Result<ProxyConfig, Failure> {
    let invalid = |error: String| Failure::new(FailureKind::Invalid, format!("the node: {error}"));
    let node: Node = from_json(&request.node).map_err(|error| invalid(error.to_string()))?;
    let proxy = Proxy::from_node(&node).map_err(|error| invalid(error.to_string()))?;
    let is_abandoned = || abandoned.is_abandoned();
    let _turn = turn(state, abandoned)?;
    let name = format!("{}.{}", proxy.name, proxy.namespace);
    let revision = state.fanout.revision();
    let held = match state.last_node.take(request, revision) {
        Some(held) => held,
        None => {
            let translator = history::translator_of(state, state.shared.world());
            let subject = Subject { name: name.clone(), proxy, names: subscriptions(request) };
            held_until(&translator, &[subject], &is_abandoned).ok_or_else(left)?
        }
    };
    let asked =
        ConfigAsked { full: true, offset: request.offset, limit: usize::MAX, ..ConfigAsked::default() };
    let mut page = ConfigPage::new(name, revision, &asked);
    for (ty, resources) in held.iter().flat_map(|held| &held.of) {
        page.add(section(*ty), resources.values());
    }
    let page = page.finish();
    if page.truncated {
        state.last_node.keep(request, revision, Instant::now(), held);
    }
    Ok(page)
}

/// Time for which the resources of a node are kept for the request of its next page.
const KEPT: Duration = Duration::from_secs(30);

/// Resources of the last node whose answer has further pages, so that they are not computed for each page.
/// They are dropped if the next page is not requested in time.
#[derive(Debug)]
pub struct LastNode<T = Vec<Held>>(Mutex<Option<KeptNode<T>>>);

#[derive(Debug)]
struct KeptNode<T> {
    request: NodeRequest,
    revision: u64,
    since: Instant,
    resources: T,
}

impl<T> Default for LastNode<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> LastNode<T> {
    /// Takes the resources for a further page of the same node and revision.
    fn take(&self, request: &NodeRequest, revision: u64) -> Option<T> {
        let kept = self.0.lock().take()?;
        let is_same = kept.request.node == request.node && kept.request.names == request.names;
        (request.offset > 0 && kept.revision == revision && is_same).then_some(kept.resources)
    }

    fn keep(&self, request: &NodeRequest, revision: u64, now: Instant, resources: T) {
        *self.0.lock() = Some(KeptNode { request: request.clone(), revision, since: now, resources });
    }

    /// Drops resources whose next page was not requested in time.
    pub(super) fn drop_old(&self, now: Instant) {
        let is_old = |kept: &mut KeptNode<T>| now.saturating_duration_since(kept.since) >= KEPT;
        // Dropped after the lock is released.
        let _old = self.0.lock().take_if(is_old);
    }
}

/// Subscriptions by name of a request.
fn subscriptions(request: &NodeRequest) -> BTreeMap<ResourceType, BTreeSet<Arc<str>>> {
    let names = |ty: ResourceType| {
        let names = request.names.get(&section(ty))?;
        Some((ty, names.iter().map(|name| name.as_str().into()).collect()))
    };
    ResourceType::ALL.into_iter().filter_map(names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_pages_of_a_node_are_not_computed_again() {
        let request = |id: &str, offset| NodeRequest {
            node: serde_json::json!({ "id": id }),
            offset,
            ..NodeRequest::default()
        };
        let last = LastNode::default();
        let start = Instant::now();
        last.keep(&request("a", 0), 7, start, "of a");
        last.drop_old(start + KEPT / 2);
        assert_eq!(last.take(&request("a", 10), 7), Some("of a"));
        for (other, revision) in [(request("a", 10), 8), (request("b", 10), 7), (request("a", 0), 7)] {
            last.keep(&request("a", 0), 7, start, "of a");
            assert_eq!(last.take(&other, revision), None, "{other:?} at {revision}");
        }
        last.keep(&request("a", 0), 7, start, "of a");
        last.drop_old(start + KEPT);
        assert!(last.0.lock().is_none(), "nobody requested the next page in time");
    }
}
