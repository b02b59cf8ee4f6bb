//! What several clients of a listener share of something limited, such as bytes of requests that are not complete.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// So much of something, which is taken and given back. `L` names the limit.
#[derive(Debug)]
pub struct Budget<L> {
    limit: L,
    allowed: usize,
    used: AtomicUsize,
    /// What is taken of this one is taken of that one too.
    whole: Option<Arc<Self>>,
}

/// More was asked for than is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded<L> {
    /// The limit.
    pub limit: L,
    /// What would have been taken, all together.
    pub asked: usize,
    /// What is allowed.
    pub allowed: usize,
}

impl<L: Copy> Budget<L> {
    /// Nothing is taken of it.
    #[must_use]
    pub fn new(limit: L, allowed: usize) -> Arc<Self> {
        Arc::new(Self { limit, allowed, used: AtomicUsize::new(0), whole: None })
    }

    /// A share of this one with a limit of its own.
    #[must_use]
    pub fn share(self: &Arc<Self>, limit: L, allowed: usize) -> Arc<Self> {
        Arc::new(Self { limit, allowed, used: AtomicUsize::new(0), whole: Some(Arc::clone(self)) })
    }

    /// What is allowed.
    #[must_use]
    pub fn allowed(&self) -> usize {
        self.allowed
    }

    /// What is taken.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes so much.
    ///
    /// # Errors
    /// When too little is left: then nothing is taken.
    pub fn take(&self, amount: usize) -> Result<(), Exceeded<L>> {
        self.take_within(amount, |allowed| allowed)
    }

    /// Takes so much, and leaves the last quarter of this budget and of those that it is a share of to others.
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

    /// Takes so much, however little is left: for what nobody asked for and what cannot be refused.
    pub fn overdraw(&self, amount: usize) {
        self.used.fetch_add(amount, Ordering::AcqRel);
        if let Some(whole) = &self.whole {
            whole.overdraw(amount);
        }
    }

    /// Gives back what was taken.
    pub fn give(&self, amount: usize) {
        self.used.fetch_sub(amount, Ordering::AcqRel);
        if let Some(whole) = &self.whole {
            whole.give(amount);
        }
    }
}

/// Shares of a budget by key, such as an address. One is there as long as somebody has it.
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
    /// What nobody has any more is taken out when there are so many: twice as many as after the last time.
    clean_at: usize,
}

/// Shares that are not looked through.
const FEW: usize = 64;

impl<K: Eq + Hash, L: Copy> Shares<K, L> {
    /// Shares of that budget, each with that limit of its own.
    #[must_use]
    pub fn new(whole: Arc<Budget<L>>, limit: L, allowed: usize) -> Self {
        Self { whole, limit, allowed, known: Mutex::new(Known { shares: HashMap::new(), clean_at: FEW }) }
    }

    /// What all shares are of.
    #[must_use]
    pub fn whole(&self) -> &Arc<Budget<L>> {
        &self.whole
    }

    /// The share of a key.
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
