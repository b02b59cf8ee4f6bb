//! Node and Namespace, mostly for their labels.

use super::trim;
use crate::kinds::message::{kind, message};
use pilotfish_model::ObjectMeta;

kind! {
    Node = Node;
    Namespace = Namespace;
}

message! {
pub struct Node {
    pub status: NodeStatus,
}

/// `status` of a Node.
pub struct NodeStatus {
    pub addresses: Vec<NodeAddress>,
}

/// One address; `type` is for example `ExternalIP`.
pub struct NodeAddress {
    pub r#type: String,
    pub address: String,
}

/// A namespace; all fields that are read are in its metadata.
pub struct Namespace {}
}

impl Node {
    /// Drops unused fields: all addresses but external ones.
    pub(crate) fn compact(&mut self, meta: &mut ObjectMeta) {
        trim(meta);
        self.status.addresses.retain(|address| address.r#type == "ExternalIP");
        self.status.addresses.shrink_to_fit();
    }
}
