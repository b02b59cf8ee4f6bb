//! What checks may cost.

use crate::Networks;

/// What checks may cost, and whom they may ask. docs/limits.md, "Of registration".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// `checks`: in all. Those of instances that come later are not run until others go.
    pub checks: usize,
    /// `address-checks`: of one address.
    pub address_checks: usize,
    /// `checks-at-once`: that run at a time. What is due meanwhile waits.
    pub at_once: usize,
    /// Which addresses may be asked.
    pub networks: Networks,
}

impl Default for CheckSettings {
    fn default() -> Self {
        Self { checks: 100_000, address_checks: 256, at_once: 512, networks: Networks::default() }
    }
}
