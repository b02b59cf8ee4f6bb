//! The leases of one service.

use super::LivenessSettings;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Minimum number of lapses for self-preservation.
const LEAST: usize = 3;

/// The leases of one service.
#[derive(Debug, Default)]
pub(super) struct LeasedService {
    /// Number of instances with a lease.
    pub(super) leased: usize,
    /// Lapsed leases by instance.
    pub(super) lapsed: HashMap<Arc<str>, Lapse>,
    /// Lapsed instances under self-preservation.
    pub(super) preserved: BTreeSet<Arc<str>>,
    /// Self-preservation in progress; `None` outside of one.
    pub(super) preserving: Option<Preserving>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Lapse {
    /// Time of the lapse, or of the end of its preservation.
    pub(super) at: Duration,
    pub(super) ttl: Duration,
    /// Time from the lapse to the removal.
    pub(super) remove_after: Duration,
    pub(super) revision: u64,
    /// Its preservation has ended, and does not start again.
    pub(super) is_released: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Preserving {
    pub(super) since: Duration,
    pub(super) until: Duration,
    /// Most leases were renewed.
    pub(super) is_recovering: bool,
}

impl LeasedService {
    /// Forgets the lapse of a renewed or removed lease.
    pub(super) fn forget(&mut self, id: &str) -> bool {
        self.preserved.remove(id);
        self.lapsed.remove(id).is_some()
    }

    /// True if most leases lapsed together.
    pub(super) fn is_implausible(&self, now: Duration, settings: &LivenessSettings) -> bool {
        let is_most = |count: usize| count >= LEAST && count * 2 > self.leased;
        is_most(self.lapsed.len()) && is_most(self.recent(now, settings).count())
    }

    /// Returns the lapses that count as together with one at this time.
    pub(super) fn recent(
        &self,
        now: Duration,
        settings: &LivenessSettings,
    ) -> impl Iterator<Item = (&Arc<str>, &Lapse)> {
        let is_recent =
            move |lapse: &Lapse| !lapse.is_released && now < lapse.at + settings.window(lapse.ttl);
        self.lapsed.iter().filter(move |(_, lapse)| is_recent(lapse))
    }

    /// True if more than half of the leases have lapsed and are preserved.
    pub(super) fn is_mostly_preserved(&self) -> bool {
        self.preserved.len() * 2 > self.leased
    }

    /// Returns the longest TTL of the preserved instances.
    pub(super) fn longest_preserved(&self) -> Duration {
        let ttl = |id| self.lapsed.get(id).map(|lapse| lapse.ttl);
        self.preserved.iter().filter_map(ttl).max().unwrap_or_default()
    }
}
