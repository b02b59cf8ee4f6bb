//! Which objects changed a resource, and which patches were left out.

use super::parse::Patch;
use crate::engine::RefusedPatch;
use pilotfish_model::Origin;
use pilotfish_proto::rules::Fault;

/// Collects the objects whose patches changed something, and the patches that were left out.
#[derive(Debug, Default)]
pub(crate) struct Patched {
    objects: Vec<Origin>,
    refused: Vec<RefusedPatch>,
}

impl Patched {
    pub(super) fn by(&mut self, object: &Origin) {
        if !self.objects.contains(object) {
            self.objects.push(object.clone());
        }
    }

    pub(super) fn without(&mut self, patch: &Patch, fault: &Fault) {
        let fault = fault.to_string();
        self.refused.push(RefusedPatch { object: patch.object.clone(), index: patch.index, fault });
    }

    pub(super) fn join(&mut self, other: Self) {
        other.objects.iter().for_each(|object| self.by(object));
        self.refused.extend(other.refused);
    }

    /// Whether nothing was changed or left out.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.refused.is_empty()
    }

    /// The patches that were left out.
    pub(crate) fn take_refused(&mut self) -> Vec<RefusedPatch> {
        std::mem::take(&mut self.refused)
    }

    /// The objects.
    #[must_use]
    pub(crate) fn into_objects(self) -> Vec<Origin> {
        self.objects
    }
}
