//! Server and client in sequence, for tests of the result.

use crate::client::relay;
use crate::server::Catalogue;
use pilotfish_model::{ChangeSet, Object, World};

/// Objects of a Pilotfish that reads all its configuration from one with this world.
///
/// # Panics
/// If one side refuses the output of the other.
#[must_use]
pub fn relayed(world: &World) -> Vec<Object> {
    relay(&Catalogue::default().update(world, &ChangeSet::default()))
}
