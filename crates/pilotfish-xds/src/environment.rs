//! What a fan-out takes from the process that it runs in: the time, and numbers drawn by chance.
//!
//! Nothing else in the state machines depends on more than their inputs, so a simulation that sets these can repeat a run
//! to the byte.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Where a fan-out reads the time.
pub trait Clock: Send + Sync + 'static {
    /// Measures how long a publication takes to its streams. Streams themselves are given the time with every call.
    fn now(&self) -> Instant;

    /// The time of day, for debug pages: nothing is decided by it.
    fn wall_time(&self) -> SystemTime;
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_time(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Time and chance of one fan-out. The default is what a server needs.
#[derive(Clone)]
pub struct Environment {
    /// Read by publications and for times on debug pages.
    pub clock: Arc<dyn Clock>,
    /// Keys the hashes by which subscriptions are compared. By default it is random, so that no client can make two
    /// subscriptions collide.
    pub hash_seed: u64,
    /// The nonce of the first response; every response of the fan-out counts up.
    pub first_nonce: u64,
}

impl Default for Environment {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), hash_seed: RandomState::new().hash_one(0), first_nonce: 1 }
    }
}
