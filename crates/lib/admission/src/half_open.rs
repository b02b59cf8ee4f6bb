//! Connections during their handshake (TLS, then the start of the protocol), or before their client is
//! identified.
//!
//! They have a limit of their own, apart from established connections. A stalled handshake looks like a slow
//! one, so new ones are not refused: above the limit, the oldest handshake is closed. If the new connection's
//! address already has a large share of all handshakes, its own oldest one is closed.

use crate::network::network_of;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// An address with more than one `PART`th of the limit displaces its own oldest handshake.
const PART: usize = 4;

/// Handshakes in progress, by age.
#[derive(Debug)]
pub struct HalfOpen {
    allowed: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

/// One handshake; it ends when this is dropped.
#[derive(Debug)]
pub struct Handshake {
    all: Arc<HalfOpen>,
    address: IpAddr,
    age: AtomicU64,
    over: Arc<Notify>,
}

impl HalfOpen {
    /// `allowed` is the maximum number of handshakes.
    #[must_use]
    pub fn new(allowed: usize) -> Arc<Self> {
        Arc::new(Self { allowed, open: Mutex::default() })
    }

    /// Registers a handshake of this address; the oldest one may be displaced.
    #[must_use = "it is over when it is dropped"]
    pub fn begin(self: &Arc<Self>, address: IpAddr) -> Handshake {
        let address = network_of(address);
        let over = Arc::new(Notify::new());
        let age = AtomicU64::new(self.enter(address, &over));
        Handshake { all: Arc::clone(self), address, age, over }
    }

    fn enter(&self, address: IpAddr, over: &Arc<Notify>) -> u64 {
        let mut open = self.open.lock();
        if open.by_age.len() >= self.allowed {
            let oldest = open.oldest_to_end(address, self.allowed / PART);
            if let Some((_, over)) = oldest.and_then(|age| open.by_age.remove(&age)) {
                over.notify_one();
            }
        }
        let age = open.next;
        open.next += 1;
        open.by_age.insert(age, (address, Arc::clone(over)));
        age
    }
}

impl Open {
    fn oldest_to_end(&self, address: IpAddr, part: usize) -> Option<u64> {
        let own = || self.by_age.iter().filter(|(_, (other, _))| *other == address);
        let oldest = if own().count() > part { own().next() } else { self.by_age.iter().next() };
        oldest.map(|(age, _)| *age)
    }
}

impl Handshake {
    /// Waits until the handshake is displaced by another one.
    pub async fn gave_way(&self) {
        self.over.notified().await;
    }

    /// Returns the future of [`Self::gave_way`] without a borrow.
    pub fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let over = Arc::clone(&self.over);
        async move { over.notified().await }
    }

    /// Completes the handshake: it is not displaced any more.
    pub fn done(&self) {
        self.all.open.lock().by_age.remove(&self.age.load(Ordering::Relaxed));
    }

    /// Registers the connection again, as the newest.
    pub fn again(&self) {
        self.done();
        self.age.store(self.all.enter(self.address, &self.over), Ordering::Relaxed);
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn gave_way(handshake: &Handshake) -> bool {
        std::pin::pin!(handshake.gave_way()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_gives_way_and_what_is_over_makes_room() {
        let all = HalfOpen::new(3);
        let (a, b, c) = (all.begin(address(1)), all.begin(address(2)), all.begin(address(3)));
        assert!(!gave_way(&a));
        let d = all.begin(address(4));
        assert!(gave_way(&a) && !gave_way(&b) && !gave_way(&c));
        drop(b);
        let _e = all.begin(address(5));
        assert!(!gave_way(&c) && !gave_way(&d), "there was room");
    }

    #[test]
    fn one_that_waits_again_is_the_youngest() {
        let all = HalfOpen::new(2);
        let (a, b) = (all.begin(address(1)), all.begin(address(2)));
        a.done();
        a.again();
        let _c = all.begin(address(3));
        assert!(gave_way(&b) && !gave_way(&a));
        drop(a);
        assert_eq!(all.open.lock().by_age.len(), 1);
    }

    #[test]
    fn an_address_with_a_large_part_gives_way_to_itself() {
        let all = HalfOpen::new(8);
        let other = all.begin(address(1));
        let many: Vec<_> = (0..7).map(|_| all.begin(address(2))).collect();
        let _more = all.begin(address(2));
        assert!(gave_way(&many[0]) && !gave_way(&other));
        let _new = all.begin(address(3));
        assert!(gave_way(&other), "one that has little takes the place of the oldest");
    }
}
