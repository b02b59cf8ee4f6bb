//! The leases of one service.

use super::LivenessSettings;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How many lapses together are at least needed to disbelieve them.
const LEAST: usize = 3;

/// The leases of one service.
#[derive(Debug, Default)]
pub(super) struct LeasedService {
    /// Instances that have a lease.
    pub(super) leased: usize,
    /// Those whose lease has lapsed.
    pub(super) lapsed: HashMap<Arc<str>, Lapse>,
    /// Those among them of which it is not believed.
    pub(super) preserved: BTreeSet<Arc<str>>,
    /// Since when and until when lapses are not believed.
    pub(super) preserving: Option<Preserving>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Lapse {
    /// When it lapsed, or was believed to have.
    pub(super) at: Duration,
    pub(super) ttl: Duration,
    pub(super) revision: u64,
    /// It was disbelieved once, and is not again.
    pub(super) is_released: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Preserving {
    pub(super) since: Duration,
    pub(super) until: Duration,
    /// Most have come back.
    pub(super) is_recovering: bool,
}

impl LeasedService {
    /// Its lease is there again, or gone.
    pub(super) fn forget(&mut self, id: &str) -> bool {
        self.preserved.remove(id);
        self.lapsed.remove(id).is_some()
    }

    /// Whether most leases lapsed together.
    pub(super) fn is_implausible(&self, now: Duration, settings: &LivenessSettings) -> bool {
        let is_most = |count: usize| count >= LEAST && count * 2 > self.leased;
        is_most(self.lapsed.len()) && is_most(self.recent(now, settings).count())
    }

    /// Those that lapsed together with one that lapses now.
    pub(super) fn recent(
        &self,
        now: Duration,
        settings: &LivenessSettings,
    ) -> impl Iterator<Item = (&Arc<str>, &Lapse)> {
        let is_recent =
            move |lapse: &Lapse| !lapse.is_released && now < lapse.at + settings.window(lapse.ttl);
        self.lapsed.iter().filter(move |(_, lapse)| is_recent(lapse))
    }

    /// Whether more than half of the leases have lapsed and are not believed.
    pub(super) fn is_mostly_preserved(&self) -> bool {
        self.preserved.len() * 2 > self.leased
    }

    /// The longest lease of those that are not believed to have lapsed.
    pub(super) fn longest_preserved(&self) -> Duration {
        let ttl = |id| self.lapsed.get(id).map(|lapse| lapse.ttl);
        self.preserved.iter().filter_map(ttl).max().unwrap_or_default()
    }
}
