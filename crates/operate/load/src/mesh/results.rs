use std::time::Duration;

use super::fleet::{Reached, Sent};
use crate::content::Content;

/// Cost of a broadcast of the same bytes to the same number of streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Floor {
    /// Median time to the last stream.
    pub last: Duration,
    /// CPU time of the server for each.
    pub cpu: Duration,
    /// Resident memory of the server, in bytes.
    pub memory: u64,
}

/// Results of one kind of change.
pub struct Row {
    /// Name in the table.
    pub name: String,
    /// Number of proxies that it concerns.
    pub wanted: usize,
    /// Results of each round.
    pub samples: Vec<Sample>,
    /// Cost of a broadcast of the same bytes to the same number of streams.
    pub floor: Option<Floor>,
}

/// Result of one change.
pub struct Sample {
    /// Propagation to the proxies.
    pub reached: Reached,
    /// CPU time of the server.
    pub cpu: Duration,
}

/// Result of a phase with all proxies.
pub struct Everybody {
    /// Time until the last of them was in sync.
    pub wall: Duration,
    /// CPU time of the server.
    pub cpu: Duration,
    /// CPU time of the load client at the same time, on the same machine.
    pub client_cpu: Duration,
    /// Traffic of the phase.
    pub sent: Sent,
    /// An endpoint change right afterwards.
    pub first_change: Option<Sample>,
    /// Resident memory afterwards, in bytes.
    pub memory: u64,
}

/// Memory of additional proxies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Further {
    pub proxies: usize,
    /// Resident memory before they connected, in bytes.
    pub before: u64,
    /// Resident memory with them, in bytes.
    pub with: u64,
}

impl Further {
    /// Bytes for each proxy.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn each(&self) -> f64 {
        (self.with as f64 - self.before as f64) / self.proxies.max(1) as f64
    }
}

/// Resident memory at one point, in bytes.
pub struct Memory {
    pub when: String,
    pub bytes: u64,
}

/// Results of a run.
pub struct Results {
    /// True if CPU time and memory of the server are known.
    pub has_process: bool,
    /// Time from the start of the process until it was ready, if known.
    pub start: Option<Duration>,
    /// All proxies without resources.
    pub cold: Everybody,
    /// Cold start with a broadcast server.
    pub cold_floor: Option<Floor>,
    /// Resources of each type.
    pub content: [Content; 4],
    /// CPU time of the server in an idle second.
    pub idle_cpu: Duration,
    /// Additional proxies of existing workloads.
    pub further_known: Further,
    /// Additional proxies, each of a new workload.
    pub further_new: Further,
    /// Results of all kinds of changes.
    pub rows: Vec<Row>,
    /// Reconnects of all proxies without resources.
    pub reconnects: Vec<Everybody>,
    /// Reconnects of all proxies with their resources.
    pub resumes: Vec<Everybody>,
    pub memory: Vec<Memory>,
    /// Peak of the memory.
    pub memory_most: u64,
    /// Share of the machine used by other processes during the run, 0 to 1.
    pub foreign: f64,
}

impl Row {
    /// Mean bytes to each affected proxy over all rounds.
    #[must_use]
    pub fn bytes_each(&self) -> u64 {
        let bytes: u64 = self.samples.iter().map(|sample| sample.reached.sent.all_bytes()).sum();
        let proxies: usize = self.samples.iter().map(|sample| sample.reached.concerned).sum();
        bytes / proxies.max(1) as u64
    }
}
