//! Inputs that a fan-out takes from its process: the clock and random numbers.
//!
//! The state machines depend on nothing else besides their inputs, so a simulation that sets these can repeat
//! a run byte for byte.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Clock of a fan-out.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic time, to measure the latency of publications. Streams receive the time with every call.
    fn now(&self) -> Instant;

    /// Time of day, for debug pages only.
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

/// Clock and random seeds of one fan-out. The default is meant for servers.
#[derive(Clone)]
pub struct Environment {
    /// Clock for publications and for times on debug pages.
    pub clock: Arc<dyn Clock>,
    /// Key of the hashes by which subscriptions are compared. Random by default, so that no client can make
    /// two subscriptions collide.
    pub hash_seed: u64,
    /// Nonce of the first response; each response of the fan-out adds one.
    pub first_nonce: u64,
}

impl Default for Environment {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), hash_seed: RandomState::new().hash_one(0), first_nonce: 1 }
    }
}
