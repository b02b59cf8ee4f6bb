//! Limits shared by several clients of a listener, such as the bytes of incomplete requests.

use crate::live::LiveValues;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limited amount that is taken and given back. `L` names the limit.
#[derive(Debug)]
pub struct Quota<L> {
    limit: L,
    allowed: usize,
    used: AtomicUsize,
    /// Parent quota: amounts count against both.
    whole: Option<Arc<Self>>,
}

/// A request exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded<L> {
    pub limit: L,
    /// Amount in use including the request.
    pub asked: usize,
    pub allowed: usize,
}

impl<L: Copy> Quota<L> {
    /// Creates a quota of which nothing is used.
    #[must_use]
    pub fn new(limit: L, allowed: usize) -> Arc<Self> {
        Arc::new(Self { limit, allowed, used: AtomicUsize::new(0), whole: None })
    }

    /// Returns a child quota with its own limit.
    #[must_use]
    pub fn share(self: &Arc<Self>, limit: L, allowed: usize) -> Arc<Self> {
        Arc::new(Self { limit, allowed, used: AtomicUsize::new(0), whole: Some(Arc::clone(self)) })
    }

    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes an amount until the returned guard is dropped.
    ///
    /// # Errors
    /// When too little is left: then nothing is taken.
    pub fn hold(self: &Arc<Self>, amount: usize) -> Result<QuotaGuard<L>, Exceeded<L>> {
        self.take(amount)?;
        Ok(QuotaGuard::of_taken(self, amount))
    }

    /// Takes an amount, which the caller gives back.
    ///
    /// # Errors
    /// When too little is left: then nothing is taken.
    pub fn take(&self, amount: usize) -> Result<(), Exceeded<L>> {
        self.take_within(amount, |allowed| allowed)
    }

    /// Takes an amount, but not from the last quarter of this quota and of its parents, which is reserved for
    /// others.
    ///
    /// # Errors
    /// When too little is left: then nothing is taken.
    pub fn take_leaving_a_quarter(&self, amount: usize) -> Result<(), Exceeded<L>> {
        self.take_within(amount, |allowed| allowed - allowed / 4)
    }

    fn take_within(&self, amount: usize, part: fn(usize) -> usize) -> Result<(), Exceeded<L>> {
        let asked = self.used.fetch_add(amount, Ordering::AcqRel).saturating_add(amount);
        let allowed = part(self.allowed);
        let taken = if asked <= allowed {
            self.whole.as_ref().map_or(Ok(()), |whole| whole.take_within(amount, part))
        } else {
            Err(Exceeded { limit: self.limit, asked, allowed })
        };
        if taken.is_err() {
            self.used.fetch_sub(amount, Ordering::AcqRel);
        }
        taken
    }

    /// Takes an amount even beyond the limit: for data that the server sends unasked or must accept.
    pub fn overdraw(&self, amount: usize) {
        self.used.fetch_add(amount, Ordering::AcqRel);
        if let Some(whole) = &self.whole {
            whole.overdraw(amount);
        }
    }
}

impl<L> Quota<L> {
    /// Gives an amount back.
    pub fn give(&self, amount: usize) {
        self.used.fetch_sub(amount, Ordering::AcqRel);
        if let Some(whole) = &self.whole {
            whole.give(amount);
        }
    }
}

/// Amount taken from a quota, which is given back on drop.
#[derive(Debug)]
pub struct QuotaGuard<L> {
    quota: Arc<Quota<L>>,
    amount: AtomicUsize,
}

impl<L: Copy> QuotaGuard<L> {
    /// Guard of an amount that was taken before.
    #[must_use]
    pub fn of_taken(quota: &Arc<Quota<L>>, amount: usize) -> Self {
        Self { quota: Arc::clone(quota), amount: AtomicUsize::new(amount) }
    }

    /// Guard of nothing so far.
    #[must_use]
    pub fn empty(quota: &Arc<Quota<L>>) -> Self {
        Self::of_taken(quota, 0)
    }

    /// Takes more.
    ///
    /// # Errors
    /// When too little is left: then nothing is taken.
    pub fn add(&self, amount: usize) -> Result<(), Exceeded<L>> {
        self.quota.take(amount)?;
        self.amount.fetch_add(amount, Ordering::AcqRel);
        Ok(())
    }
}

impl<L> QuotaGuard<L> {
    /// Gives back what exceeds `amount`.
    pub fn reduce_to(&self, amount: usize) {
        let before = self.amount.fetch_min(amount, Ordering::AcqRel);
        self.quota.give(before.saturating_sub(amount));
    }
}

impl<L> Drop for QuotaGuard<L> {
    fn drop(&mut self) {
        self.reduce_to(0);
    }
}

/// Child quotas by key, such as an address. Each exists as long as it is in use.
#[derive(Debug)]
pub struct Quotas<K, L> {
    whole: Arc<Quota<L>>,
    limit: L,
    allowed: usize,
    live: LiveValues<K, Quota<L>>,
}

impl<K: Eq + Hash, L: Copy> Quotas<K, L> {
    /// Child quotas of `whole`, each with its own limit.
    #[must_use]
    pub fn new(whole: Arc<Quota<L>>, limit: L, allowed: usize) -> Self {
        Self { whole, limit, allowed, live: LiveValues::default() }
    }

    /// The parent of all.
    #[must_use]
    pub fn whole(&self) -> &Arc<Quota<L>> {
        &self.whole
    }

    /// Returns the quota of a key.
    pub fn of(&self, key: K) -> Arc<Quota<L>> {
        self.live.of(key, || self.whole.share(self.limit, self.allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_has_one_quota_as_long_as_it_is_held() {
        let quotas = Quotas::new(Quota::new("whole", 10), "share", 4);
        let (one, same, other) = (quotas.of(1), quotas.of(1), quotas.of(2));
        one.take(3).unwrap();
        assert_eq!(same.take(2).map_err(|error| error.limit), Err("share"));
        other.take(4).unwrap();
    }

    #[test]
    fn child_is_limited_by_itself_and_by_the_whole() {
        let whole = Quota::new("whole", 10);
        let (a, b) = (whole.share("share", 8), whole.share("share", 8));
        assert_eq!(a.take(9), Err(Exceeded { limit: "share", asked: 9, allowed: 8 }));
        a.take(8).unwrap();
        assert_eq!(b.take(3).map_err(|error| error.limit), Err("whole"));
        b.take(2).unwrap();
        a.give(8);
        b.take(6).unwrap();
        assert_eq!((whole.used(), a.used(), b.used()), (8, 0, 8));
    }

    #[test]
    fn a_quarter_is_left_at_each_level_and_an_overdraft_counts() {
        let whole = Quota::new("whole", 16);
        let (a, b) = (whole.share("share", 12), whole.share("share", 12));
        assert_eq!(a.take_leaving_a_quarter(10), Err(Exceeded { limit: "share", asked: 10, allowed: 9 }));
        a.take_leaving_a_quarter(9).unwrap();
        assert_eq!(b.take_leaving_a_quarter(4), Err(Exceeded { limit: "whole", asked: 13, allowed: 12 }));
        b.take(7).unwrap();
        b.overdraw(2);
        assert_eq!((whole.used(), b.used()), (18, 9));
        b.give(9);
        assert_eq!((whole.used(), b.used()), (9, 0));
    }

    #[test]
    fn guard_gives_back_what_it_holds() {
        let quota = Quota::new("whole", 10);
        let guard = quota.hold(4).unwrap();
        assert_eq!(quota.hold(7).map(drop), Err(Exceeded { limit: "whole", asked: 11, allowed: 10 }));
        guard.add(5).unwrap();
        assert!(guard.add(2).is_err());
        guard.reduce_to(9);
        assert_eq!(quota.used(), 9);
        guard.reduce_to(3);
        assert_eq!(quota.used(), 3);
        drop(guard);
        assert_eq!(quota.used(), 0);
    }
}
