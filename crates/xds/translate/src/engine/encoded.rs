//! Resources in their encoded form, with the hash of the content as their version.

use bytes::Bytes;
use pilotfish_model::{ClusterId, Origin, ServiceKey, Typed};
use pilotfish_proto::{Any, any};
use prost::{Message, Name};

use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// The object as provenance. Configuration has no cluster: all clusters share one namespace of it.
#[must_use]
pub(crate) fn reference<T>(object: &Typed<T>) -> Origin {
    Origin::object(object.key().clone(), ClusterId::default())
}

/// Part of an object that is left out of the resources for proxies, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Refusal {
    pub object: Origin,
    /// The field of the object; empty for the object as a whole.
    pub field: String,
    /// Reason, and the effect on the served configuration.
    pub fault: String,
}

/// An xDS resource in encoded form.
#[derive(Clone, Debug)]
pub struct EncodedResource {
    pub name: Arc<str>,
    /// Hash of the content: equal in every process, so it serves as the resource's version.
    pub version: u64,
    /// The resource as an encoded `google.protobuf.Any`.
    pub body: Bytes,
    /// The last revision in which the content changed.
    pub changed_at: u64,
    /// True for an empty placeholder: no resource has the name.
    pub stands_in: bool,
    /// The objects that made it, sorted.
    pub provenance: Arc<[Origin]>,
    /// Parts that are left out because Envoy would reject them, or because a limit is exceeded.
    pub refused: Arc<[Refusal]>,
}

impl EncodedResource {
    #[must_use]
    pub(crate) fn new<M: Message + Name>(
        name: impl Into<Arc<str>>,
        message: &M,
        provenance: Vec<Origin>,
    ) -> Self {
        Self::of_any(name.into(), &any(message), provenance)
    }

    /// Wraps the encoded form of a message of type `M`.
    #[must_use]
    pub(crate) fn of_encoded<M: Message + Name + Default>(
        name: impl Into<Arc<str>>,
        value: Vec<u8>,
        provenance: Vec<Origin>,
    ) -> Self {
        let message = Any { value, ..any(&M::default()) };
        Self::of_any(name.into(), &message, provenance)
    }

    fn of_any(name: Arc<str>, message: &Any, mut provenance: Vec<Origin>) -> Self {
        provenance.sort();
        provenance.dedup();
        let body = message.encode_to_vec();
        Self {
            name,
            version: xxh3_64(&body),
            body: body.into(),
            changed_at: 0,
            stands_in: false,
            provenance: provenance.into(),
            refused: Arc::default(),
        }
    }

    /// Marks the resource as a stand-in for one that does not exist. The version differs from that of an
    /// equal existing resource.
    #[must_use]
    pub(crate) fn standing_in(self) -> Self {
        Self { version: !self.version, stands_in: true, ..self }
    }

    /// Adds parts that were left out.
    #[must_use]
    pub(crate) fn without(self, refused: Vec<Refusal>) -> Self {
        if refused.is_empty() {
            return self;
        }
        Self { refused: self.refused.iter().cloned().chain(refused).collect(), ..self }
    }

    /// Adds an object to the provenance.
    #[must_use]
    pub(crate) fn made_by(self, object: &Origin) -> Self {
        let Err(place) = self.provenance.binary_search(object) else { return self };
        let mut provenance = self.provenance.to_vec();
        provenance.insert(place, object.clone());
        Self { provenance: provenance.into(), ..self }
    }
}

impl PartialEq for EncodedResource {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
            && self.name == other.name
            && self.provenance == other.provenance
            && self.refused == other.refused
    }
}

/// Key of resources that are generated together. A batch is large enough to detect conflicts within it, and
/// small enough to limit the work after a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ResourceBatchKey {
    /// The resources that do not come from services.
    Static,
    /// The resources of one service.
    Service(ServiceKey),
    /// The resources for traffic out of the proxy on one port; 0 for Unix sockets.
    Port(u32),
    /// The resources for traffic to the proxy's own workload.
    Inbound,
    /// The resources that EnvoyFilters add.
    Added,
    /// The one resource of that name, for types that are subscribed by name.
    Named(Arc<str>),
}

/// Resources that are generated together, in the order in which they are sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResourceBatch {
    pub resources: Vec<EncodedResource>,
    /// Positions sorted by name; empty for few resources.
    by_name: Arc<[u32]>,
}

impl PartialEq for ResourceBatch {
    fn eq(&self, other: &Self) -> bool {
        self.resources == other.resources
    }
}

impl ResourceBatch {
    /// The resource of that name.
    #[must_use]
    pub(crate) fn find(&self, name: &str) -> Option<&EncodedResource> {
        if self.by_name.len() != self.resources.len() {
            return self.resources.iter().find(|resource| &*resource.name == name);
        }
        let at = |position: u32| self.resources.get(usize::try_from(position).ok()?);
        let before = |position: &u32| at(*position).is_some_and(|resource| &*resource.name < name);
        let place = self.by_name.partition_point(before);
        at(*self.by_name.get(place)?).filter(|resource| &*resource.name == name)
    }

    /// Sorts the positions of many resources by name, so that `find` can use a binary search.
    fn index(&mut self) {
        const FEW: usize = 8;
        if self.resources.len() > FEW {
            let mut named: Vec<(&Arc<str>, u32)> =
                self.resources.iter().map(|it| &it.name).zip(0..).collect();
            named.sort();
            self.by_name = named.into_iter().map(|(_, position)| position).collect();
        }
    }

    /// Reuses bytes and revision of resources with unchanged content, and stamps the others with the new
    /// revision.
    pub(crate) fn reconcile(old: Option<&Self>, mut new: Self, revision: u64) -> Self {
        for resource in &mut new.resources {
            match old.and_then(|old| old.find(&resource.name)) {
                Some(before) if before.version == resource.version => {
                    resource.body = before.body.clone();
                    resource.changed_at = before.changed_at;
                }
                _ => resource.changed_at = revision,
            }
        }
        new.index();
        new
    }
}

impl From<Vec<EncodedResource>> for ResourceBatch {
    fn from(resources: Vec<EncodedResource>) -> Self {
        Self { resources, by_name: Arc::default() }
    }
}
