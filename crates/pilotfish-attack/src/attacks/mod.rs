//! All attacks.

mod xds;

use crate::Attack;

/// All attacks, in the order in which they run.
#[must_use]
pub fn all() -> Vec<Attack> {
    [xds::ATTACKS].concat()
}
