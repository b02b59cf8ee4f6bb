//! Both sides one after the other, for tests of what comes of it.

use crate::client::relay;
use crate::server::Catalogue;
use pilotfish_model::{ChangeSet, Object, World};

/// The objects that a Pilotfish has which reads all its configuration from one that has this world.
///
/// # Panics
/// When one side does not take what the other one says.
#[must_use]
pub fn relayed(world: &World) -> Vec<Object> {
    relay(&Catalogue::default().update(world, &ChangeSet::default()))
}
