//! What an attack is, and what it says it did.

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

/// One way to hurt a control plane.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Its name on the command line and in the table, in kebab-case.
    pub name: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// Goes on until the deadline has passed, and lets go of everything that it holds when it returns or is dropped.
    pub run: fn(Arc<Target>, Deadline) -> BoxFuture<'static, Result<Tally>>,
}

/// When an attack ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// After this time.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Whether it has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        Instant::now() >= self.0
    }

    /// The time that is left.
    #[must_use]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Waits until it has passed.
    pub async fn reached(self) {
        tokio::time::sleep_until(self.0).await;
    }

    /// Runs something until its end or until the deadline, whatever comes first. `None` when it was cut.
    pub async fn cut<T>(self, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.0, work).await.ok()
    }
}

/// What an attack did. One that was neither answered nor refused never reached the server, which the runner takes for an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Requests, messages, connections or frames that were sent: what the attack is made of.
    pub sent: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// How often the server answered, or took a connection.
    pub answered: u64,
    /// How often it said no: an error, a reset, a closed connection.
    pub refused: u64,
    /// The server's words for that, and how often each of them.
    pub refusals: BTreeMap<String, u64>,
    /// Why the attack was not tried here.
    pub skipped: Option<String>,
}

impl Tally {
    /// Of an attack that cannot be tried here.
    #[must_use]
    pub fn skipped(why: impl Into<String>) -> Self {
        Self { skipped: Some(why.into()), ..Self::default() }
    }

    /// Adds what another part of the attack did.
    pub fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.bytes += other.bytes;
        self.answered += other.answered;
        self.refused += other.refused;
        for (words, count) in other.refusals {
            *self.refusals.entry(words).or_default() += count;
        }
    }

    /// Whether the server has noticed.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.sent > 0 && self.answered + self.refused > 0
    }
}

/// A tally that the tasks of an attack share, so that what a task did counts also when it is cut.
#[derive(Default)]
pub struct Counts {
    sent: AtomicU64,
    bytes: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    refusals: Mutex<BTreeMap<String, u64>>,
}

/// Different words that are told; the rest is counted together.
const MOST_REFUSALS: usize = 20;
/// Bytes of one that are told.
const LONGEST_REFUSAL: usize = 160;

impl Counts {
    /// All zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Something of so many bytes was sent.
    pub fn sent(&self, bytes: usize) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many of together so many bytes were sent.
    pub fn sent_many(&self, count: usize, bytes: usize) {
        self.sent.fetch_add(count as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The server answered, or took a connection.
    pub fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// The server said no, in these words.
    pub fn refused(&self, why: impl std::fmt::Display) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let why: String = why.to_string().chars().take(LONGEST_REFUSAL).collect();
        let mut refusals = self.refusals.lock();
        let known = refusals.len() < MOST_REFUSALS || refusals.contains_key(&why);
        *refusals.entry(if known { why } else { "other".to_owned() }).or_default() += 1;
    }

    /// The server answered with a status of HTTP; any but 200 is a no.
    pub fn status(&self, status: u16) {
        if status == 200 { self.answered() } else { self.refused(status) }
    }

    /// What was counted so far.
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
