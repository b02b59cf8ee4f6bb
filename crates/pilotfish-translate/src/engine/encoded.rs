//! Resources as they go over the wire: encoded once, known by the hash of their content.

use bytes::Bytes;
use pilotfish_model::{ClusterId, Origin, ServiceKey, Typed};
use pilotfish_proto::any;
use prost::{Message, Name};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// The object as provenance. Configuration has no cluster: all clusters share one namespace of it.
#[must_use]
pub(crate) fn reference<T>(object: &Typed<T>) -> Origin {
    Origin::object(object.key().clone(), ClusterId::default())
}

/// A patch of an EnvoyFilter that is left out because Envoy would refuse what it makes of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefusedPatch {
    /// The EnvoyFilter.
    pub object: Origin,
    /// The position of the patch in `spec.configPatches`.
    pub index: u32,
    /// What Envoy would refuse: the field of the resource, and why.
    pub fault: String,
}

/// One resource, encoded.
#[derive(Clone, Debug)]
pub struct EncodedResource {
    /// The resource's name.
    pub name: Arc<str>,
    /// Hash of the content: equal in every process, so it serves as the resource's version.
    pub version: u64,
    /// The encoded `google.protobuf.Any`.
    pub body: Bytes,
    /// The revision at which the content last became what it is.
    pub changed_at: u64,
    /// The objects that made it, sorted.
    pub provenance: Arc<[Origin]>,
    /// The patches that are not in it because Envoy would refuse it with them.
    pub refused: Arc<[RefusedPatch]>,
}

impl EncodedResource {
    /// Encodes a resource.
    #[must_use]
    pub(crate) fn new<M: Message + Name>(
        name: impl Into<Arc<str>>,
        message: &M,
        mut provenance: Vec<Origin>,
    ) -> Self {
        provenance.sort();
        provenance.dedup();
        let body = any(message).encode_to_vec();
        Self {
            name: name.into(),
            version: xxh3_64(&body),
            body: body.into(),
            changed_at: 0,
            provenance: provenance.into(),
            refused: Arc::default(),
        }
    }

    /// The same with the patches that were left out.
    #[must_use]
    pub(crate) fn without(self, refused: Vec<RefusedPatch>) -> Self {
        Self { refused: refused.into(), ..self }
    }

    /// The same with one more object that made it.
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

/// What is generated together: as large as needed to see conflicts, as small as possible to follow a change.
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
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ResourceBatch {
    /// The resources.
    pub resources: Vec<EncodedResource>,
}

impl ResourceBatch {
    /// The resource of that name.
    #[must_use]
    pub(crate) fn find(&self, name: &str) -> Option<&EncodedResource> {
        self.resources.iter().find(|resource| &*resource.name == name)
    }

    /// Takes over the age (and the very bytes) of resources whose content is as before, and dates the others.
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
        new
    }
}

impl From<Vec<EncodedResource>> for ResourceBatch {
    fn from(resources: Vec<EncodedResource>) -> Self {
        Self { resources }
    }
}
