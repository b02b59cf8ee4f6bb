//! What was measured.

use std::time::Duration;

use super::fleet::{Reached, Sent};
use crate::content::Content;

/// What a broadcast of as many bytes to as many streams cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Floor {
    /// To the last stream: the median.
    pub last: Duration,
    /// Server CPU time for each.
    pub cpu: Duration,
    /// Resident memory of the server, in bytes.
    pub memory: u64,
}

/// One kind of change.
pub struct Row {
    /// Its name in the table.
    pub name: String,
    /// How many proxies it is to reach.
    pub wanted: usize,
    /// Each time that it was made.
    pub samples: Vec<Sample>,
    /// A broadcast of as many bytes to as many streams.
    pub floor: Option<Floor>,
}

/// One change that was made.
pub struct Sample {
    /// How it reached the proxies.
    pub reached: Reached,
    /// Server CPU time.
    pub cpu: Duration,
}

/// All proxies at once.
pub struct Everybody {
    /// Until the last of them was in sync.
    pub wall: Duration,
    /// Server CPU time.
    pub cpu: Duration,
    /// CPU time of the load client meanwhile: the two share the machine.
    pub client_cpu: Duration,
    /// What was sent.
    pub sent: Sent,
    /// An endpoint change made at once then.
    pub first_change: Option<Sample>,
    /// Resident memory after it, in bytes.
    pub memory: u64,
}

/// What further proxies cost in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Further {
    /// How many there were.
    pub proxies: usize,
    /// Resident memory before they connected, in bytes.
    pub before: u64,
    /// And with them.
    pub with: u64,
}

impl Further {
    /// Bytes for each.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn each(&self) -> f64 {
        (self.with as f64 - self.before as f64) / self.proxies.max(1) as f64
    }
}

/// Resident memory at one point, in bytes.
pub struct Memory {
    /// When.
    pub when: String,
    /// How much.
    pub bytes: u64,
}

/// The results of a run.
pub struct Results {
    /// Whether CPU time and memory of the server are known.
    pub has_process: bool,
    /// From the start of the process until it was ready, where that is known.
    pub start: Option<Duration>,
    /// All proxies, from nothing.
    pub cold: Everybody,
    /// The same from a broadcast server.
    pub cold_floor: Option<Floor>,
    /// What they hold of each type.
    pub content: [Content; 4],
    /// Server CPU time in a second in which nothing happens.
    pub idle_cpu: Duration,
    /// Further proxies of workloads that are there.
    pub further_known: Further,
    /// Further workloads.
    pub further_new: Further,
    /// All kinds of changes.
    pub rows: Vec<Row>,
    /// Everybody comes back with nothing.
    pub reconnects: Vec<Everybody>,
    /// Everybody comes back with what they hold.
    pub resumes: Vec<Everybody>,
    /// Memory over time.
    pub memory: Vec<Memory>,
    /// The most that it was.
    pub memory_most: u64,
    /// The share of the machine that other processes used meanwhile, 0 to 1.
    pub foreign: f64,
}

impl Row {
    /// Bytes to each proxy that was concerned, the mean of all rounds.
    #[must_use]
    pub fn bytes_each(&self) -> u64 {
        let bytes: u64 = self.samples.iter().map(|sample| sample.reached.sent.all_bytes()).sum();
        let proxies: usize = self.samples.iter().map(|sample| sample.reached.concerned).sum();
        bytes / proxies.max(1) as u64
    }
}
