//! Limits of health checks.

use crate::Networks;

/// Limits of health checks and the networks that they may connect to. docs/limits.md, "Of registration".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// `checks`: maximum number of checks. Checks of later instances do not run until others are removed.
    pub checks: usize,
    /// `address-checks`: maximum number of checks of one address.
    pub address_checks: usize,
    /// `checks-at-once`: maximum number of concurrent probes. Due probes wait above it.
    pub at_once: usize,
    /// Networks that checks may connect to.
    pub networks: Networks,
}

impl Default for CheckSettings {
    fn default() -> Self {
        Self { checks: 100_000, address_checks: 256, at_once: 512, networks: Networks::default() }
    }
}
