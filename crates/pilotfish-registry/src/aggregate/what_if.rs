//! What would be if objects were others: tried on the registries as they are, and taken back.
//!
//! The result of a controller depends on the objects that there are and not on their order, so what is taken back leaves nothing. Trying
//! costs what the objects touch.

use super::AggregateController;
use pilotfish_model::{Object, ObjectKey, ObjectMeta, Update};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What follows from other objects.
#[derive(Debug, Default)]
pub struct WhatIf {
    /// What would differ in the world.
    pub updates: Vec<Update>,
    /// How many of the objects differ from those in force.
    pub objects: usize,
}

impl AggregateController {
    /// What would follow if these objects of the configuration feed were so, or (`None`) were not there. Everything that came before is
    /// settled, and nothing is changed.
    #[must_use]
    pub fn what_if(&mut self, objects: BTreeMap<ObjectKey, Option<Object>>) -> WhatIf {
        self.trying = true;
        let mut before = Vec::new();
        for (key, object) in objects {
            before.extend(self.put(&key, object).map(|old| (key, old)));
        }
        let updates = self.settle();
        let count = before.len();
        for (key, old) in before.into_iter().rev() {
            self.put(&key, old);
        }
        // The way back is the same way.
        drop(self.settle());
        self.trying = false;
        WhatIf { updates, objects: count }
    }

    /// Puts an object in the place of another one. Returns the one before; the outer `None` where they are equal.
    fn put(&mut self, key: &ObjectKey, object: Option<Object>) -> Option<Option<Object>> {
        let feed = self.settings.config_feed.clone();
        let known = self.feeds.get_mut(&feed)?;
        let current = known.object(key);
        let object = object.map(|object| aged(object, current));
        if object.as_ref() == current {
            return None;
        }
        let mut events = Vec::new();
        let before = known.replace(key, object, &mut events);
        self.route(&feed, &events);
        Some(before)
    }
}

/// An object that is applied keeps what its store gave the one before: age, id and owners.
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
