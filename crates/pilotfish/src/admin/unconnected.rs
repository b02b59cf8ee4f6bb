//! Resources that a proxy would be sent which is not connected here.

use super::config_page::ConfigPage;
use super::plan::{left, turn};
use super::{AdminState, history};
use pilotfish_admin::{Abandoned, ConfigAsked};
use pilotfish_api::v1::{Failure, FailureKind, NodeRequest, ProxyConfig};
use pilotfish_explain::{Subject, held_until, section};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::from_json;
use pilotfish_translate::Proxy;
use std::collections::BTreeMap;

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
    let translator = history::translator_of(state, state.shared.world());
    let subject = Subject { name: name.clone(), proxy, names: BTreeMap::new() };
    let held = held_until(&translator, &[subject], &is_abandoned).ok_or_else(left)?;
    let asked =
        ConfigAsked { full: true, offset: request.offset, limit: usize::MAX, ..ConfigAsked::default() };
    let mut page = ConfigPage::new(name, revision, &asked);
    for (ty, resources) in held.iter().flat_map(|held| &held.of) {
        page.add(section(*ty), resources.values());
    }
    Ok(page.finish())
}
