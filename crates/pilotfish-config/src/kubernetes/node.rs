//! Node and Namespace: what is read of them is mostly their labels.

use crate::message::{kind, message};

kind! {
    Node = Node;
    Namespace = Namespace;
}

message! {
/// A node.
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

/// A namespace; everything that matters is in its metadata.
pub struct Namespace {}
}
