//! Warnings of parts of nodes that cannot be read.

use parking_lot::Mutex;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate::Proxy;
use std::collections::BTreeSet;

/// Maximum number of causes that are logged: nodes are written by clients.
const MOST: usize = 32;

/// Log of unreadable `POD_PORTS`: one line for each cause, however many proxies have it.
#[derive(Default)]
pub(super) struct UnreadPodPorts(Mutex<BTreeSet<String>>);

impl UnreadPodPorts {
    /// Logs the cause, unless it was logged before.
    pub(super) fn log(&self, node: &Node) {
        let Some(error) = Proxy::pod_ports_error(node) else { return };
        let mut logged = self.0.lock();
        if logged.len() < MOST && logged.insert(error.clone()) {
            tracing::warn!(
                proxy = %node.id, error,
                "cannot read POD_PORTS of a node; the names of its ports are unknown, and further nodes with \
                 this error are not logged"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::{Struct, Value, ValueKind};

    fn node(pod_ports: &str) -> Node {
        let value = Value { kind: Some(ValueKind::StringValue(pod_ports.to_owned())) };
        let metadata = Struct { fields: [("POD_PORTS".to_owned(), value)].into() };
        Node { metadata: Some(metadata), ..Node::default() }
    }

    #[test]
    fn each_cause_is_logged_once_and_their_number_is_bounded() {
        let log = UnreadPodPorts::default();
        let count = |texts: &[&str]| {
            texts.iter().for_each(|text| log.log(&node(text)));
            log.0.lock().len()
        };
        assert_eq!(count(&["", "[]", r#"[{"name": "http", "containerPort": 80}]"#]), 0);
        assert_eq!(count(&["[", "[", "{}", "["]), 2);
        for length in 0..2 * MOST {
            log.log(&node(&format!("{}x", " ".repeat(length))));
        }
        assert_eq!(log.0.lock().len(), MOST);
    }
}
