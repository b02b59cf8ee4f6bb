//! Dry runs: the effect of other objects, computed in a copy of the registries without side effects.

use super::AggregateController;
use pilotfish_model::{Object, ObjectKey, ObjectMeta, Update};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Result of a dry run with other objects.
#[derive(Debug, Default)]
pub struct WhatIf {
    /// Changes that the world would receive.
    pub updates: Vec<Update>,
    /// Number of objects that differ from those in force.
    pub objects: usize,
}

impl AggregateController {
    /// Settles with these objects of the configuration feed, or (`None`) without them. Consumes a copy of a
    /// settled controller.
    #[must_use]
    pub fn what_if(mut self, objects: BTreeMap<ObjectKey, Option<Object>>) -> WhatIf {
        self.trying = true;
        let mut count = 0;
        for (key, object) in objects {
            count += usize::from(self.put(&key, object));
        }
        WhatIf { updates: self.settle(), objects: count }
    }

    /// Replaces an object. Returns false if both are equal.
    fn put(&mut self, key: &ObjectKey, object: Option<Object>) -> bool {
        let feed = self.settings.config_feed.clone();
        let Some(known) = self.feeds.get_mut(&feed) else { return false };
        let current = known.object(key);
        // As for a written object: one of another revision is not ours.
        let revision = &self.settings.revision;
        let object = object.filter(|object| revision.reads(key.kind, object.meta.revision()));
        let object = object.map(|object| aged(object, current));
        if object.as_ref() == current {
            return false;
        }
        let mut events = Vec::new();
        known.replace(key, object, &mut events);
        self.route(&feed, &events);
        true
    }
}

/// Returns an applied object with the fields that its store gave the previous one: age, id and owners.
fn aged(object: Object, before: Option<&Object>) -> Object {
    let Some(before) = before else { return object };
    let (new, old) = (&object.meta, &before.meta);
    let meta = ObjectMeta {
        created: if new.created == 0 { old.created } else { new.created },
        uid: if new.uid.is_empty() { old.uid.clone() } else { new.uid.clone() },
        owners: if new.owners.is_empty() { old.owners.clone() } else { new.owners.clone() },
        ..ObjectMeta::clone(new)
    };
    Object { meta: Arc::new(meta), spec: object.spec }
}
