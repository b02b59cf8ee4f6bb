//! Nodes: the localities of Pods, and the external addresses of node ports.

use crate::labels;
use pilotfish_config::kubernetes::Node;
use pilotfish_model::{Labels, Locality, Typed, label_subset};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
struct NodeState {
    labels: Labels,
    locality: Locality,
    external: Arc<[Arc<str>]>,
}

/// Nodes of a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes(BTreeMap<Arc<str>, NodeState>);

/// Consequences of a change of a node.
pub(super) struct NodeChange {
    /// Pods on the node have another locality or other external addresses.
    pub(super) pods: bool,
    /// Gateways through node ports may have other addresses.
    pub(super) addresses: bool,
}

impl Nodes {
    /// Sets or removes a node.
    pub(super) fn set(&mut self, name: &Arc<str>, node: Option<&Typed<Node>>) -> NodeChange {
        let new = node.map(|node| NodeState {
            labels: node.meta().labels.clone(),
            locality: labels::node_locality(&node.meta().labels),
            external: node
                .status
                .addresses
                .iter()
                .filter(|address| address.r#type == "ExternalIP" && !address.address.is_empty())
                .map(|address| address.address.as_str().into())
                .collect(),
        });
        let old = self.0.get(name);
        let of_pods = |state: Option<&NodeState>| {
            state.map(|state| (state.locality.clone(), state.external.clone())).unwrap_or_default()
        };
        let external = |state: Option<&NodeState>| state.is_some_and(|state| !state.external.is_empty());
        let change = NodeChange {
            pods: of_pods(old) != of_pods(new.as_ref()),
            addresses: (external(old) || external(new.as_ref())) && old != new.as_ref(),
        };
        match new {
            Some(new) => self.0.insert(name.clone(), new),
            None => self.0.remove(name),
        };
        change
    }

    /// Returns the locality of a node; `None` if the node is unknown or has no topology labels.
    pub(super) fn locality_of(&self, name: &str) -> Option<Locality> {
        self.0.get(name).map(|node| node.locality.clone())
    }

    /// Returns the external addresses of a node.
    pub(super) fn external_addresses(&self, name: &str) -> Arc<[Arc<str>]> {
        self.0.get(name).map(|node| node.external.clone()).unwrap_or_default()
    }

    /// Returns the name of a node, shared with the known node, because many Pods have it.
    pub(super) fn shared_name(&self, name: &str) -> Arc<str> {
        self.0.get_key_value(name).map_or_else(|| labels::text(name), |(name, _)| name.clone())
    }

    /// Returns the external addresses of the nodes that a selector (a JSON object of labels) matches, in the
    /// order of the nodes' names. A selector that cannot be read matches all nodes.
    pub(super) fn addresses(&self, selector: &str) -> Vec<Arc<str>> {
        let selector: BTreeMap<String, String> = match serde_json::from_str(selector) {
            Ok(selector) => selector,
            Err(error) => {
                tracing::warn!(
                    %selector, %error,
                    "the node selector is not a JSON object of labels; it selects every node"
                );
                BTreeMap::new()
            }
        };
        let nodes = self.0.values().filter(|node| label_subset(&selector, &node.labels));
        nodes.filter_map(|node| node.external.first().cloned()).collect()
    }
}
