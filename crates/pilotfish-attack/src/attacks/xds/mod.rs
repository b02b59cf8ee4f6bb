//! Attacks by xDS requests.

use crate::Attack;

pub(super) const ATTACKS: &[Attack] = &[];
