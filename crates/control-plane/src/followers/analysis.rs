//! Background analysis of the newest world, which finds valid objects that refer to missing ones.
//!
//! ```text
//! control loop ── worlds ─▶ (a pause) ─▶ Analyzer ── Findings ─▶ log, status, /ready, /debug/problemz,
//!                                           ▲                    /api/v1/problems
//!                        webhook ── an object that is not stored yet
//! ```

use crate::control::{Findings, Follower, Shared};
use anyhow::{Context, Result};
use parking_lot::Mutex;
use pilotfish_model::{ChangeSet, Object, World};
use pilotfish_translate::{Analyzer, Completeness, Finding, Known};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between a publication and its analysis, so that proxies get their resources first.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum pause between analyses.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Factor between the duration of an analysis and the next pause, to limit the processor time.
const SHARE: u32 = 20;
/// Timeout of a webhook review that waits for the analysis of a world.
const PATIENCE: Duration = Duration::from_millis(500);

/// Analyser of the newest world.
pub struct Analysis {
    state: Mutex<State>,
    shared: Arc<Shared>,
    reads_cluster: bool,
}

struct State {
    analyzer: Analyzer,
    world: Arc<World>,
}

impl Analysis {
    /// Returns an analysis of the worlds of `shared`. `reads_cluster` is true if the Secrets of a cluster
    /// are read, some of which may not be readable.
    #[must_use]
    pub fn new(analyzer: Analyzer, reads_cluster: bool, shared: &Arc<Shared>) -> Arc<Self> {
        let state = Mutex::new(State { analyzer, world: Arc::default() });
        Arc::new(Self { state, shared: shared.clone(), reads_cluster })
    }

    /// Analyses each new world. Does not return unless an analysis fails.
    ///
    /// # Errors
    /// When an analysis panics.
    pub fn run(self: &Arc<Self>) -> impl Future<Output = Result<()>> + Send + use<> {
        self.clone().follow(self.shared.follow())
    }

    async fn follow(self: Arc<Self>, mut follower: Follower) -> Result<()> {
        let mut pause = PAUSE;
        loop {
            let (world, changes) = follower.next_after(pause).await;
            let this = self.clone();
            let work = tokio::task::spawn_blocking(move || this.analyse(world, &changes));
            let took = work.await.context("analysing a world")?;
            pause = (took * SHARE).clamp(PAUSE, LONGEST_PAUSE);
        }
    }

    /// Analyses a world; returns the duration.
    fn analyse(&self, world: Arc<World>, changes: &ChangeSet) -> Duration {
        // Measured only for the length of the next pause.
        let started = Instant::now();
        let mut state = self.state.lock();
        let State { analyzer, world: newest } = &mut *state;
        analyzer.set_known(self.known());
        if analyzer.advance(&world, changes) {
            self.shared.set_findings(Findings::new(analyzer.findings(), &world));
        }
        *newest = world;
        started.elapsed()
    }

    /// Returns the kinds of content that are complete, so that absent entries count as missing. Services are
    /// incomplete while a registry has not answered, Secrets if they may not be readable.
    fn known(&self) -> Known {
        let waits = self.shared.registry_states().iter().any(|registry| !registry.synced);
        let partly_if = |partly| if partly { Completeness::Partly } else { Completeness::Whole };
        Known { services: partly_if(waits), secrets: partly_if(self.reads_cluster) }
    }

    /// Returns the findings that an object would have if it were created. Empty if the analysis is busy, so
    /// that warnings delay no API request.
    pub fn of_object(&self, object: &Object) -> Vec<Finding> {
        let Some(mut state) = self.state.try_lock_for(PATIENCE) else { return Vec::new() };
        let State { analyzer, world } = &mut *state;
        if world.revision() == 0 {
            return Vec::new();
        }
        analyzer.findings_of(world, object.clone())
    }
}
