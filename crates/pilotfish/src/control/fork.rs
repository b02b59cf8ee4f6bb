//! A copy of the control loop's state, for those who ask what would be: they compute on their own threads.

use super::gateway_names::GatewayNames;
use pilotfish_model::{ChangeSet, Object, ObjectKey, Update, World, WorldWriter};
use pilotfish_registry::{AggregateController, WhatIf};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The registries and the world at one moment. Taking it costs the loop pointers, not content.
pub struct Fork {
    pub(super) controller: AggregateController,
    pub(super) writer: WorldWriter,
    pub(super) names: GatewayNames,
}

/// A world that is not, beside the one that is.
pub struct Supposed {
    /// The world as it is.
    pub before: Arc<World>,
    /// The world as it would be.
    pub after: Arc<World>,
    /// The difference between them.
    pub changes: ChangeSet,
    /// Number of objects that differ.
    pub objects: usize,
}

impl Fork {
    /// The world as it would be with other objects, or (`None`) without them. Neither has updates that wait
    /// to be published.
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
