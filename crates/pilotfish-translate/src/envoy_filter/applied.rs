//! Which objects changed a resource.

use pilotfish_model::Origin;

/// Collects the objects whose patches changed something.
#[derive(Debug, Default)]
pub(crate) struct Patched {
    objects: Vec<Origin>,
}

impl Patched {
    pub(super) fn by(&mut self, object: &Origin) {
        if !self.objects.contains(object) {
            self.objects.push(object.clone());
        }
    }

    /// Whether nothing was changed.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The objects.
    #[must_use]
    pub(crate) fn into_objects(self) -> Vec<Origin> {
        self.objects
    }
}
