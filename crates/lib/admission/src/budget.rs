//! Limits shared by several clients of a listener, such as the bytes of incomplete requests.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// A limited amount that is taken and given back. `L` names the limit.
#[derive(Debug)]
pub struct Budget<L> {
    limit: L,
    allowed: usize,
    used: AtomicUsize,
    /// Parent budget: amounts count against both.
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

impl<L: Copy> Budget<L> {
    /// Creates a budget of which nothing is used.
    #[must_use]
    pub fn new(limit: L, allowed: usize) -> Arc<Self> {
        Arc::new(Self { limit, allowed, used: AtomicUsize::new(0), whole: None })
    }

    /// Returns a child budget with its own limit.
    #[must_use]
    pub fn share(self: &Arc<Self>, limit: L, allowed: usize) -> Arc<Self> {
        Arc::new(Self { limit, allowed, used: AtomicUsize::new(0), whole: Some(Arc::clone(self)) })
    }

    #[must_use]
    pub fn allowed(&self) -> usize {
        self.allowed
    }

    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes an amount.
    ///
    /// # Errors
    /// When too little is left: then nothing is taken.
    pub fn take(&self, amount: usize) -> Result<(), Exceeded<L>> {
        self.take_within(amount, |allowed| allowed)
    }

    /// Takes an amount, but not from the last quarter of this budget and of its parents, which is reserved
    /// for others.
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

    /// Gives an amount back.
    pub fn give(&self, amount: usize) {
        self.used.fetch_sub(amount, Ordering::AcqRel);
        if let Some(whole) = &self.whole {
            whole.give(amount);
        }
    }
}

/// Child budgets by key, such as an address. Each exists as long as it is in use.
#[derive(Debug)]
pub struct Shares<K: Eq + Hash, L> {
    whole: Arc<Budget<L>>,
    limit: L,
    allowed: usize,
    known: Mutex<Known<K, L>>,
}

#[derive(Debug)]
struct Known<K: Eq + Hash, L> {
    shares: HashMap<K, Weak<Budget<L>>>,
    /// Number of entries at which unused ones are removed: twice the number that remained last time.
    clean_at: usize,
}

/// Number of entries below which none are removed.
const FEW: usize = 64;

impl<K: Eq + Hash, L: Copy> Shares<K, L> {
    /// Child budgets of `whole`, each with its own limit.
    #[must_use]
    pub fn new(whole: Arc<Budget<L>>, limit: L, allowed: usize) -> Self {
        Self { whole, limit, allowed, known: Mutex::new(Known { shares: HashMap::new(), clean_at: FEW }) }
    }

    /// The parent of all shares.
    #[must_use]
    pub fn whole(&self) -> &Arc<Budget<L>> {
        &self.whole
    }

    /// Returns the share of a key.
    pub fn of(&self, key: K) -> Arc<Budget<L>> {
        let Known { shares, clean_at } = &mut *self.known.lock();
        if let Some(known) = shares.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        if shares.len() >= *clean_at {
            shares.retain(|_, share| share.strong_count() > 0);
            *clean_at = (2 * shares.len()).max(FEW);
        }
        let share = self.whole.share(self.limit, self.allowed);
        shares.insert(key, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_share_as_long_as_somebody_has_it() {
        let shares = Shares::new(Budget::new("whole", 10), "share", 4);
        let (one, same, other) = (shares.of(1), shares.of(1), shares.of(2));
        one.take(3).unwrap();
        assert_eq!(same.take(2).map_err(|error| error.limit), Err("share"));
        other.take(4).unwrap();
        drop((one, same, other));
        for key in 3..1_000 {
            drop(shares.of(key));
            assert!(shares.known.lock().shares.len() <= FEW, "those that nobody has go");
        }
    }

    #[test]
    fn a_share_is_limited_by_itself_and_by_the_whole() {
        let whole = Budget::new("whole", 10);
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
        let whole = Budget::new("whole", 16);
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
}
