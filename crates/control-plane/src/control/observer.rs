//! Observable events of the control loop. The binary records metrics of them; a simulation may record the
//! events.

use pilotfish_config::SourceEvent;
use pilotfish_model::{ChangeSet, Fact, Kind};
use pilotfish_registry::Applied;
use std::time::Instant;

/// Observer of the control loop.
pub trait ControlObserver: Send + Sync {
    /// A source sent an event.
    fn received(&self, what: Inbound);
    /// An event changed objects of a kind at its source.
    fn applied(&self, kind: Kind, what: Applied);
    /// Sets the number of refused objects.
    fn rejected_objects(&self, count: i64);
    /// Changes left the debouncer; `since` is the arrival of the oldest.
    fn debounced(&self, since: Instant);
    /// A world was published, for this reason.
    fn published(&self, why: Trigger);
    /// The effects of a world were computed; `since` is the start, by the machine's clock.
    fn computed(&self, since: Instant);
    /// Sets the number of remote clusters that are read.
    fn remote_clusters(&self, count: usize);
    /// Readiness stopped waiting for a remote cluster.
    fn remote_cluster_timed_out(&self);
    /// Sets the number of problems with names of gateways between networks.
    fn unresolved_gateways(&self, count: usize);
    /// A remote cluster was removed.
    fn remote_cluster_removed(&self, cluster: &str);
}

/// Subject of a source's event: istiod's label `type` of `pilot_inbound_updates`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Inbound {
    /// An endpoint or a workload.
    Endpoint,
    /// A service that is added or updated.
    Service,
    /// A service that is deleted.
    ServiceDeleted,
    /// Any other configuration object.
    Config,
    /// A batch of a live registry.
    Registry,
    /// The source itself: it listed everything, failed or recovered.
    Source,
}

impl Inbound {
    pub(super) fn of(event: &SourceEvent) -> Self {
        let (kind, deleted) = match event {
            SourceEvent::Apply(object) => (object.key().kind, false),
            SourceEvent::Delete(key) => (key.kind, true),
            SourceEvent::ListBegan(_)
            | SourceEvent::ListEnded(_)
            | SourceEvent::Listed
            | SourceEvent::Recovered
            | SourceEvent::Failed { .. } => return Self::Source,
        };
        match kind {
            Kind::EndpointSlice | Kind::WorkloadEntry | Kind::Pod => Self::Endpoint,
            Kind::Service | Kind::ServiceEntry if deleted => Self::ServiceDeleted,
            Kind::Service | Kind::ServiceEntry => Self::Service,
            _ => Self::Config,
        }
    }

    /// Value of the metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Endpoint => "eds",
            Self::Service => "svc",
            Self::ServiceDeleted => "svcdelete",
            Self::Config => "config",
            Self::Registry => "registry",
            Self::Source => "source",
        }
    }
}

/// The kind of object that an event is about.
pub(super) fn kind_of(event: &SourceEvent) -> Option<Kind> {
    match event {
        SourceEvent::Apply(object) => Some(object.key().kind),
        SourceEvent::Delete(key) => Some(key.kind),
        SourceEvent::ListEnded(kind) => Some(*kind),
        SourceEvent::ListBegan(_)
        | SourceEvent::Listed
        | SourceEvent::Recovered
        | SourceEvent::Failed { .. } => None,
    }
}

/// Reason of a publication, by the most significant change: istiod's label `type` of `pilot_push_triggers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trigger {
    /// Addresses of the gateways between networks.
    Networks,
    /// Objects in the world, of any kind.
    Config,
    Service,
    Endpoint,
    /// Workloads only, proxies among them.
    Proxy,
}

impl Trigger {
    pub(super) fn of(changes: &ChangeSet) -> Self {
        let of_fact = |fact: &Fact| match fact {
            Fact::NetworkGateways => Self::Networks,
            Fact::Object(_) => Self::Config,
            Fact::Service(_) => Self::Service,
            Fact::Endpoints(_) => Self::Endpoint,
            _ => Self::Proxy,
        };
        changes.facts.iter().map(of_fact).min().unwrap_or(Self::Proxy)
    }

    /// Value of the metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Networks => "networks",
            Self::Config => "config",
            Self::Service => "service",
            Self::Endpoint => "endpoint",
            Self::Proxy => "proxy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::ObjectKey;

    #[test]
    fn events_have_the_labels_of_istiod() {
        let delete = |kind| Inbound::of(&SourceEvent::Delete(ObjectKey::new(kind, "n", "a"))).as_str();
        assert_eq!(delete(Kind::Pod), "eds");
        assert_eq!(delete(Kind::EndpointSlice), "eds");
        assert_eq!(delete(Kind::ServiceEntry), "svcdelete");
        assert_eq!(delete(Kind::VirtualService), "config");
        assert_eq!(Inbound::of(&SourceEvent::Listed).as_str(), "source");
    }

    #[test]
    fn the_weightiest_change_triggers() {
        let object = Fact::Object(ObjectKey::new(Kind::VirtualService, "n", "a"));
        let of = |facts: Vec<Fact>| {
            let mut changes = ChangeSet::default();
            changes.facts.extend(facts);
            Trigger::of(&changes).as_str()
        };
        assert_eq!(of(vec![object.clone()]), "config");
        assert_eq!(of(vec![object, Fact::NetworkGateways]), "networks");
        assert_eq!(of(Vec::new()), "proxy");
    }
}
