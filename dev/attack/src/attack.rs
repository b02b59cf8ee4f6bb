//! Attacks, and their reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use crate::Target;

/// One kind of attack on a control plane.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Name on the command line and in the table, in kebab-case.
    pub name: &'static str,
    /// Description in one line.
    pub what: &'static str,
    /// Runs until the deadline, and releases all of its resources when it returns or is dropped.
    pub run: fn(Arc<Target>, Deadline) -> BoxFuture<'static, Result<Tally>>,
}

/// End time of an attack.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// Deadline after this time.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// True if it has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        Instant::now() >= self.0
    }

    #[must_use]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Waits until it has passed.
    pub async fn reached(self) {
        tokio::time::sleep_until(self.0).await;
    }

    /// Runs a future until its end or until the deadline. `None` if it was cancelled.
    pub async fn cut<T>(self, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.0, work).await.ok()
    }
}

/// Counters of an attack. One without answers and refusals never reached the server, which the runner reports
/// as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Number of sent requests, messages, connections or frames: the units of the attack.
    pub sent: u64,
    /// Number of sent bytes.
    pub bytes: u64,
    /// Number of responses, or of accepted connections.
    pub answered: u64,
    /// Number of refusals: errors, resets, closed connections.
    pub refused: u64,
    /// Messages of the refusals, with their numbers.
    pub refusals: BTreeMap<String, u64>,
    /// Reason why the attack was skipped.
    pub skipped: Option<String>,
}

impl Tally {
    /// Result of an attack that cannot run here.
    #[must_use]
    pub fn skipped(why: impl Into<String>) -> Self {
        Self { skipped: Some(why.into()), ..Self::default() }
    }

    /// Adds the counters of another part of the attack.
    pub fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.bytes += other.bytes;
        self.answered += other.answered;
        self.refused += other.refused;
        for (words, count) in other.refusals {
            *self.refusals.entry(words).or_default() += count;
        }
    }

    /// True if the server has noticed the attack.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.sent > 0 && self.answered + self.refused > 0
    }
}

/// Counters that the tasks of an attack share, so that cancelled tasks count as well.
#[derive(Default)]
pub struct Counts {
    sent: AtomicU64,
    bytes: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    refusals: Mutex<BTreeMap<String, u64>>,
}

/// Maximum number of distinct refusal messages; further ones are counted together.
const MOST_REFUSALS: usize = 20;
/// Maximum length of a refusal message in bytes.
const LONGEST_REFUSAL: usize = 160;

impl Counts {
    /// Creates counters at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Counts a sent unit of that many bytes.
    pub fn sent(&self, bytes: usize) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts `count` sent units of together that many bytes.
    pub fn sent_many(&self, count: usize, bytes: usize) {
        self.sent.fetch_add(count as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a response, or an accepted connection.
    pub fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal with its message.
    pub fn refused(&self, why: impl std::fmt::Display) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let why: String = why.to_string().chars().take(LONGEST_REFUSAL).collect();
        let mut refusals = self.refusals.lock();
        let known = refusals.len() < MOST_REFUSALS || refusals.contains_key(&why);
        *refusals.entry(if known { why } else { "other".to_owned() }).or_default() += 1;
    }

    /// Counts an HTTP response; any status but 200 is a refusal.
    pub fn status(&self, status: u16) {
        if status == 200 { self.answered() } else { self.refused(status) }
    }

    /// Returns the current counters.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Tally {
            sent: count(&self.sent),
            bytes: count(&self.bytes),
            answered: count(&self.answered),
            refused: count(&self.refused),
            refusals: self.refusals.lock().clone(),
            skipped: None,
        }
    }
}
