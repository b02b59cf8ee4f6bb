//! Objects whose patches changed a resource, and patches that were left out.

use super::parse::Patch;
use crate::engine::Refusal;
use pilotfish_model::Origin;
use pilotfish_proto::rules::Fault;
use std::collections::HashSet;

/// Collects the objects with effective patches, and the patches that were left out.
#[derive(Debug, Default)]
pub(crate) struct Patched {
    objects: Vec<Origin>,
    known: HashSet<Origin>,
    refused: Vec<Refusal>,
}

impl Patched {
    pub(super) fn by(&mut self, object: &Origin) {
        if !self.known.contains(object) {
            self.known.insert(object.clone());
            self.objects.push(object.clone());
        }
    }

    pub(super) fn without(&mut self, patch: &Patch, fault: &Fault) {
        let fault = format!("makes what Envoy refuses, it is left out there: {fault}");
        self.refused.push(Refusal { object: patch.object.clone(), field: patch.field(), fault });
    }

    /// Leaves out a patch without trying it, because too many before it were refused.
    pub(super) fn untried(&mut self, patch: &Patch, refused: usize) {
        let fault = format!("is left out there: {refused} patches before it make what Envoy refuses");
        self.refused.push(Refusal { object: patch.object.clone(), field: patch.field(), fault });
    }

    pub(super) fn join(&mut self, other: Self) {
        other.objects.iter().for_each(|object| self.by(object));
        self.refused.extend(other.refused);
    }

    /// Returns true if no patch was applied or left out.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.refused.is_empty()
    }

    /// The patches that were left out.
    pub(crate) fn take_refused(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.refused)
    }

    #[must_use]
    pub(crate) fn into_objects(self) -> Vec<Origin> {
        self.objects
    }
}
