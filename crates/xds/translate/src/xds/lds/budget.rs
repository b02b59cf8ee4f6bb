//! Limits on the size of the filters in a listener, over all its chains: each chain repeats the policies of
//! its workload.

use crate::engine::Refusal;
use pilotfish_model::Origin;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use prost::Message;

/// The most bytes of filters (limit `listener-bytes`). Chains beyond it close their connections.
pub(crate) const MAX_LISTENER_BYTES: usize = 64 << 20;

/// The most bytes of filters of all outbound listeners on one port (limit `port-listeners-bytes`). Services
/// beyond it have no listener of their own there.
pub(crate) const MAX_PORT_LISTENERS_BYTES: usize = 64 << 20;

/// Remaining bytes for the filters of all listeners of a port.
pub(super) struct PortBudget {
    bytes: usize,
    refused: Vec<Refusal>,
}

impl Default for PortBudget {
    fn default() -> Self {
        Self { bytes: MAX_PORT_LISTENERS_BYTES, refused: Vec::new() }
    }
}

impl PortBudget {
    /// Returns true if any bytes remain for another service; otherwise records a refusal, once.
    pub(super) fn has_room(&mut self, service: &Origin, port: u32) -> bool {
        if self.bytes == 0 && self.refused.is_empty() {
            let fault = format!(
                "the listeners of port {port} would have filters of more than {MAX_PORT_LISTENERS_BYTES} \
                 bytes (limit port-listeners-bytes): there are none for this service and for others that \
                 come later"
            );
            self.refused.push(Refusal { object: service.clone(), field: String::new(), fault });
        }
        self.bytes > 0
    }

    /// Subtracts the size of a service's filters.
    pub(super) fn take(&mut self, filters: &[Filter]) {
        self.bytes = self.bytes.saturating_sub(filters.iter().map(Message::encoded_len).sum());
    }

    pub(super) fn into_refused(self) -> Vec<Refusal> {
        self.refused
    }
}

/// Remaining bytes for the filters of a listener's chains.
pub(super) struct ListenerBudget {
    bytes: usize,
    is_over: bool,
}

impl Default for ListenerBudget {
    fn default() -> Self {
        Self { bytes: MAX_LISTENER_BYTES, is_over: false }
    }
}

impl ListenerBudget {
    /// Subtracts the filters of a chain. Returns false if they exceed the budget.
    pub(super) fn take(&mut self, filters: &[Filter]) -> bool {
        let left = self.bytes.checked_sub(filters.iter().map(Message::encoded_len).sum());
        self.bytes = left.unwrap_or(self.bytes);
        self.is_over |= left.is_none();
        left.is_some()
    }

    /// Returns refusals for the first of the objects from which the chains were made, if the limit was
    /// exceeded.
    pub(super) fn refused(&self, objects: &[Origin]) -> Vec<Refusal> {
        const NAMED: usize = 16;
        if !self.is_over {
            return Vec::new();
        }
        let fault = format!(
            "its filters, in each chain of a listener, would have more than {MAX_LISTENER_BYTES} bytes with \
             those of others (limit listener-bytes): connections of the chains beyond it are closed"
        );
        let refusal =
            |object: &Origin| Refusal { object: object.clone(), field: String::new(), fault: fault.clone() };
        objects.iter().take(NAMED).map(refusal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{ClusterId, Kind, ObjectKey};

    #[test]
    fn chains_beyond_it_are_refused_and_small_ones_after_them_are_not() {
        let filter = |bytes| [Filter { name: "x".repeat(bytes), ..Filter::default() }];
        let policy =
            [Origin::object(ObjectKey::new(Kind::AuthorizationPolicy, "a", "b"), ClusterId::default())];
        let mut budget = ListenerBudget::default();
        assert!(budget.take(&filter(MAX_LISTENER_BYTES - 100)));
        assert!(budget.refused(&policy).is_empty());
        assert!(!budget.take(&filter(200)));
        assert!(budget.take(&filter(10)));
        assert_eq!(budget.refused(&policy).len(), 1);
    }

    #[test]
    fn services_of_a_port_beyond_it_have_no_listener_and_the_first_is_named() {
        let filter = [Filter { name: "x".repeat(MAX_PORT_LISTENERS_BYTES / 2), ..Filter::default() }];
        let service = |name| Origin::object(ObjectKey::new(Kind::Service, "a", name), ClusterId::default());
        let mut budget = PortBudget::default();
        for name in ["s1", "s2"] {
            assert!(budget.has_room(&service(name), 80));
            budget.take(&filter);
        }
        assert!(!budget.has_room(&service("s3"), 80) && !budget.has_room(&service("s4"), 80));
        let refused = budget.into_refused();
        let [one] = &refused[..] else { panic!("{refused:?}") };
        assert!(one.object == service("s3") && one.fault.contains("limit port-listeners-bytes"), "{one:?}");
    }
}
