//! Requirements for honest clients during and after an attack.

use std::time::Duration;

/// Bounds; exceeding one is a failure.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum time of `/ready`.
    pub ready: Duration,
    /// Maximum time of an endpoint change to each honest proxy.
    pub push: Duration,
    /// Maximum share of changes, 0 to 1, that exceed `push`; none may exceed [`fresh`](Self::fresh).
    pub late: f64,
    /// Maximum time until a connecting proxy is in sync.
    pub fresh: Duration,
    /// Maximum time of a dashboard page, and from an edit to its effect on the list of problems.
    pub operator: Duration,
    /// Maximum increase of resident memory, in bytes.
    pub memory: u64,
    /// Maximum size of the log in bytes.
    pub log: u64,
    /// Maximum time until the original state is restored.
    pub recovery: Duration,
    /// Increase of memory that counts as restored: a share, and a number of bytes.
    pub slack: (f64, u64),
    /// True if memory is checked after each attack, false for every ten of them.
    pub memory_after_each: bool,
}

const MIB: u64 = 1 << 20;

impl Bounds {
    /// Bounds of the documentation, for optimised builds.
    pub const FULL: Self = Self {
        ready: Duration::from_secs(1),
        push: Duration::from_millis(250),
        late: 0.01,
        fresh: Duration::from_secs(5),
        operator: Duration::from_secs(5),
        memory: 256 * MIB,
        log: MIB,
        recovery: Duration::from_secs(60),
        slack: (0.2, 16 * MIB),
        memory_after_each: true,
    };

    /// Bounds for a build without optimisation on a busy machine: about four times the values of two busy
    /// processors (2026-11: `/ready` 1.0 s, a change 2.0 s, a new proxy 2.5 s, a page or an edit 10 s, memory
    /// 92 MiB more during attacks and 77 MiB after all). Memory is checked after every ten attacks: the
    /// allocator keeps freed memory for a while, which only the full form accounts for.
    pub const SHORT: Self = Self {
        ready: Duration::from_secs(5),
        push: Duration::from_secs(8),
        fresh: Duration::from_secs(12),
        operator: Duration::from_secs(40),
        slack: (0.2, 192 * MIB),
        memory_after_each: false,
        ..Self::FULL
    };

    /// True if memory is restored.
    pub(crate) fn is_back(&self, before: u64, now: u64) -> bool {
        let (share, bytes) = self.slack;
        #[allow(clippy::cast_precision_loss, reason = "memory is below 2^53 bytes")]
        let most = before as f64 * (1.0 + share);
        #[allow(clippy::cast_precision_loss, reason = "memory is below 2^53 bytes")]
        let now = now.saturating_sub(bytes) as f64;
        now <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_back_within_a_fifth_and_some_slack() {
        let bounds = Bounds::FULL;
        assert!(bounds.is_back(100 * MIB, 100 * MIB) && bounds.is_back(100 * MIB, 135 * MIB));
        assert!(!bounds.is_back(100 * MIB, 137 * MIB));
    }
}
