//! Copies of the control loop's state, for dry runs on other threads.

use super::gateway_names::GatewayNames;
use pilotfish_model::{ChangeSet, Object, ObjectKey, Update, World, WorldWriter};
use pilotfish_registry::{AggregateController, WhatIf};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Registries and world at one moment. A copy costs the loop pointers, not content.
pub struct Fork {
    pub(super) controller: AggregateController,
    pub(super) writer: WorldWriter,
    pub(super) names: GatewayNames,
}

/// Result of a dry run: the present world and the supposed one.
pub struct Supposed {
    /// The world before the change.
    pub before: Arc<World>,
    /// The world after the change.
    pub after: Arc<World>,
    /// The difference between them.
    pub changes: ChangeSet,
    /// Number of objects that differ.
    pub objects: usize,
}

impl Fork {
    /// Computes the world with other objects, or (`None`) without them. Updates that wait to be published are
    /// in neither world.
    #[must_use]
    pub fn suppose(self, objects: BTreeMap<ObjectKey, Option<Object>>) -> Supposed {
        let Self { controller, mut writer, names } = self;
        let WhatIf { updates, objects } = controller.what_if(objects);
        let before = Arc::new(writer.world().clone());
        for update in updates {
            writer.apply(match update {
                Update::NetworkGateways(gateways) => Update::NetworkGateways(names.resolve(&gateways)),
                other => other,
            });
        }
        let (after, changes) = writer.publish().unwrap_or_else(|| (before.clone(), ChangeSet::default()));
        Supposed { before, after, changes, objects }
    }
}
