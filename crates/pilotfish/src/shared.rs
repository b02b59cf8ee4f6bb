//! What the control loop lets others read: always the newest, never blocking it.

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pilotfish_api as api;
use pilotfish_config::{InForce, ProblemReport, Severity, SourceProblems};
use pilotfish_model::World;
use pilotfish_registry::Hub;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// The newest state of the control loop.
#[derive(Default)]
pub struct Shared {
    world: ArcSwap<World>,
    registries: ArcSwap<Vec<api::Registry>>,
    waiting_for: ArcSwap<Vec<String>>,
    problems: Mutex<BTreeMap<String, Arc<SourceProblems>>>,
    draining: AtomicBool,
}

impl Shared {
    /// The newest world.
    #[must_use]
    pub fn world(&self) -> Arc<World> {
        self.world.load_full()
    }

    pub(crate) fn set_world(&self, world: Arc<World>) {
        self.world.store(world);
    }

    /// The registries.
    #[must_use]
    pub fn registries(&self) -> Arc<Vec<api::Registry>> {
        self.registries.load_full()
    }

    /// The registries that are not in sync, by name.
    #[must_use]
    pub fn waiting_for(&self) -> Arc<Vec<String>> {
        self.waiting_for.load_full()
    }

    pub(crate) fn set_registries(&self, hub: &Hub) {
        let registries = hub.status().into_iter().map(|status| api::Registry {
            name: status.shard.to_string(),
            synced: status.sync.synced,
            failure: status.sync.failure.as_ref().map(|failure| failure.reason.to_string()),
            failing_since: status.sync.failure.as_ref().map(|failure| time(failure.since)),
            given_up: status.given_up,
            replacing: status.replacing,
            services: status.services,
            endpoints: status.endpoints,
            workloads: status.workloads,
        });
        self.registries.store(Arc::new(registries.collect()));
        let missing = hub.synced().err().map(|error| error.missing).unwrap_or_default();
        self.waiting_for.store(Arc::new(missing));
    }

    /// Everything that is wrong with the content of sources, by source.
    #[must_use]
    pub fn problems(&self) -> Vec<ProblemReport> {
        self.problems.lock().values().flat_map(|problems| problems.reports.iter().cloned()).collect()
    }

    /// How many objects' newest versions are refused.
    #[must_use]
    pub fn rejected(&self) -> i64 {
        let count: usize = self.problems.lock().values().map(|problems| problems.errors()).sum();
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    /// Forgets what was wrong with a source that is gone.
    pub(crate) fn remove_problems(&self, source: &str) {
        self.problems.lock().remove(source);
    }

    /// Takes over what is wrong now, and logs what is new and what is mended.
    pub(crate) fn set_problems(&self, source: &str, problems: &Arc<SourceProblems>) {
        let before = self.problems.lock().insert(source.to_owned(), problems.clone()).unwrap_or_default();
        for report in problems.reports.iter().filter(|report| !before.reports.contains(report)) {
            match report.severity {
                Severity::Error => tracing::error!("{report}"),
                Severity::Warning => tracing::warn!("{report}"),
            }
        }
        if before.errors() > 0 && problems.errors() == 0 {
            tracing::info!(source, "all objects are in force as written");
        }
        for (kind, count) in &problems.ignored {
            if !before.ignored.contains_key(kind) {
                tracing::info!(kind, count, "objects of a kind that is not read are ignored");
            }
        }
    }

    /// From now on the process is not ready: it drains.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether the process drains.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

/// A time as RFC 3339.
#[must_use]
pub fn time(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    pilotfish_admin::time(i64::try_from(since.as_secs()).unwrap_or(0))
}

/// What is in force, as the admin API says it.
#[must_use]
pub fn in_force(what: InForce) -> &'static str {
    match what {
        InForce::Written => "newest",
        InForce::LastGood => "last-good",
        InForce::Dropped => "dropped",
    }
}
