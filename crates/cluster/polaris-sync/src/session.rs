//! Passes over a server: read, compare, read again what would be changed, write, and keep the results.

use crate::bodies::{Request, request_of};
use crate::client::Client;
use crate::codes::{Failure, FailureClass};
use crate::lingering::{Lingering, ReadServices};
use crate::metrics::SyncMetrics;
use crate::outcomes::{Outcome, execute};
use crate::reading::{self, Touched};
use crate::reconcile::{Actual, Call, Desired, Pass, Plan, ServiceKey, Text, plan};
use crate::target::PolarisTarget;
use futures::stream::{self, StreamExt};
use pilotfish_runtime::{GuardSettings, LossGuard, LossVerdict, ReadExtent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Number of consecutive failed calls after which a pass is aborted.
const FAILURES_IN_A_ROW: usize = 3;
/// Minimum delay after the server refused the token.
const DENIED: Duration = Duration::from_secs(10);
/// Interval of lists of all instances, which find our instances in any service. In between, changes of
/// desired services and of services with our instances are read with Discover.
const LIST_ALL: Duration = Duration::from_secs(3600);

/// Settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Guard against mass deletions, which wait for a second read of the cluster.
    pub guard: GuardSettings,
    /// Maximum age of reads relative to writes: the server reads from a cache.
    pub lag: Duration,
}

impl Default for SessionSettings {
    /// A lag of 3 s, since servers have 1 to 2 s.
    fn default() -> Self {
        Self { guard: GuardSettings::default(), lag: Duration::from_secs(3) }
    }
}

/// Receiver of the progress of a pass.
pub trait Progress: Send + Sync {
    /// Called when `done` of `of` elements are written.
    fn wrote(&self, done: usize, of: usize);
}

impl Progress for () {
    fn wrote(&self, _: usize, _: usize) {}
}

/// Result of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassReport {
    /// Number of successful calls and of their elements, by operation.
    pub calls: BTreeMap<&'static str, (usize, usize)>,
    /// Services with a failed write, which the next pass retries.
    pub left: BTreeSet<ServiceKey>,
    /// Number of elements that failed and are retried.
    pub failed: usize,
    /// Number of elements that the server refuses.
    pub refused: usize,
    /// Number of deletions that wait for confirmation.
    pub held: usize,
    /// Number of instances of other owners at places where ours are desired.
    pub conflicts: usize,
    /// Number of ready instances that were isolated manually.
    pub isolated: usize,
    /// Number of instances that the server returns although it acknowledged their deletion.
    pub lingering: usize,
    /// Number of desired services that were compared.
    pub services: usize,
    /// Number of their desired instances.
    pub instances: usize,
    /// Duration of the pass.
    pub took: Duration,
    /// Minimum delay before the next pass, as requested by the server.
    pub retry_after: Duration,
}

impl PassReport {
    /// The report of a pass before its first write; `held` deletions wait.
    fn of(desired: &Desired, plan: &Plan, held: usize) -> Self {
        Self {
            held,
            conflicts: plan.conflicts.len(),
            isolated: plan.isolated.len(),
            services: desired.services.len(),
            instances: desired.instances(),
            ..Self::default()
        }
    }

    /// True if the server has the desired content.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.left.is_empty() && self.failed + self.refused + self.held + self.conflicts == 0
    }

    /// Number of written elements.
    #[must_use]
    pub fn written(&self) -> usize {
        self.calls.values().map(|(_, elements)| elements).sum()
    }
}

/// Result of a dry run.
#[derive(Clone, Debug, PartialEq)]
pub struct DryRun {
    /// The requests, in order.
    pub requests: Vec<Request>,
    /// Numbers of desired services and instances, and of deletions that would wait.
    pub report: PassReport,
}

/// A sync to one server, with its known content.
pub struct Session {
    client: Client,
    target: PolarisTarget,
    settings: SessionSettings,
    guard: LossGuard,
    /// Number of deletions that the guard held back last.
    held: usize,
    /// True if the cluster was read from the start since the last full pass.
    is_confirming: bool,
    known: Actual,
    /// Revisions of the `known` instances by service, except after our own writes.
    revisions: BTreeMap<ServiceKey, Text>,
    /// Time of the last list of all instances.
    listed: Option<Instant>,
    lingering: Lingering,
    /// Recent writes, which reads may not show yet.
    recent: VecDeque<(Instant, Call)>,
    problems: BTreeMap<ServiceKey, Vec<String>>,
    metrics: Arc<SyncMetrics>,
}

impl Session {
    /// Reads nothing yet: the first pass must be [`Pass::All`].
    #[must_use]
    pub fn new(
        client: Client,
        target: PolarisTarget,
        settings: SessionSettings,
        metrics: Arc<SyncMetrics>,
    ) -> Self {
        Self {
            client,
            target,
            settings,
            guard: LossGuard::new(settings.guard),
            held: 0,
            is_confirming: false,
            known: Actual::default(),
            revisions: BTreeMap::new(),
            listed: None,
            lingering: Lingering::default(),
            recent: VecDeque::new(),
            problems: BTreeMap::new(),
            metrics,
        }
    }

    /// Returns the problems of each Polaris service, one line each.
    #[must_use]
    pub fn problems(&self) -> &BTreeMap<ServiceKey, Vec<String>> {
        &self.problems
    }

    /// Checks that the server answers, before a pass is started.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), Failure> {
        self.client.ping().await
    }

    /// Returns the number of held deletions, and the earliest time of their confirmation.
    #[must_use]
    pub fn held(&self) -> Option<(usize, Instant)> {
        self.guard.held().map(|held| (self.held, Instant::from_std(held.until)))
    }

    /// Records that the cluster was read from the start: held deletions that have waited long enough are
    /// confirmed.
    pub fn confirm_deletions(&mut self) {
        self.is_confirming = true;
    }

    /// Makes the server equal to the desired content, as far as possible: that of the whole cluster for
    /// [`Pass::All`], else that of the pass's services.
    ///
    /// # Errors
    /// When the server cannot be read or does not answer. Earlier writes of the pass stay; the next pass must
    /// be [`Pass::All`].
    pub async fn pass(
        &mut self,
        desired: &Desired,
        pass: &Pass,
        progress: &dyn Progress,
    ) -> Result<PassReport, Failure> {
        let extent = if *pass == Pass::All { "all" } else { "services" };
        let result = self.run(desired, pass, progress).await;
        let word = match &result {
            Ok(report) if report.is_equal() => "equal",
            Ok(_) => "unequal",
            Err(failure) => failure.class.as_str(),
        };
        self.metrics.passes.with_label_values(&[extent, word]).inc();
        result
    }

    async fn run(
        &mut self,
        desired: &Desired,
        pass: &Pass,
        progress: &dyn Progress,
    ) -> Result<PassReport, Failure> {
        let began = Instant::now();
        let scope = scope(pass);
        let draft = self.compare(desired, pass).await?;
        let (plan, held) = self.guarded(draft, pass);
        let mut report = PassReport::of(desired, &plan, held);
        self.forget_problems(scope);
        self.note_conflicts(&plan);
        self.write(&plan, &mut report, progress).await?;
        self.note_lingering();
        report.lingering = self.lingering.instances().len();
        report.took = began.elapsed();
        if *pass == Pass::All {
            self.count(&report);
            if report.is_equal() {
                self.metrics.succeeded();
            }
        }
        Ok(report)
    }

    /// Returns the requests of a full pass, without sending them.
    ///
    /// # Errors
    /// When the server cannot be read.
    pub async fn dry_run(&mut self, desired: &Desired) -> Result<DryRun, Failure> {
        let draft = self.compare(desired, &Pass::All).await?;
        let (plan, held) = self.guarded(draft, &Pass::All);
        let requests = plan.calls().map(|call| request_of(call, &self.target)).collect();
        let report = PassReport::of(desired, &plan, held);
        Ok(DryRun { requests, report })
    }

    /// Compares, then reads the objects to change again: they may have got another owner meanwhile.
    async fn compare(&mut self, desired: &Desired, pass: &Pass) -> Result<Plan, Failure> {
        let scope = scope(pass);
        if *pass == Pass::All {
            self.read(desired).await?;
        }
        let draft = plan(&self.target, desired, &self.known, scope);
        if draft.is_empty() {
            return Ok(draft);
        }
        let touched = match pass {
            Pass::All => Touched::new_instances(&draft),
            Pass::Services(_) => Touched::all(&draft),
        };
        touched.refresh(&self.client, &self.target, &mut self.known).await?;
        self.remember();
        Ok(plan(&self.target, desired, &self.known, scope))
    }

    /// Reads the server's content.
    async fn read(&mut self, desired: &Desired) -> Result<(), Failure> {
        let began = Instant::now();
        let aliases = desired.services.values().flat_map(|service| &service.aliases);
        let names = desired.services.keys().chain(aliases.map(|alias| &alias.0));
        let namespaces = names.map(|key| key.namespace.clone()).collect();
        let read = match self.listed.filter(|at| at.elapsed() < LIST_ALL) {
            Some(_) => self.read_changed(desired, &namespaces).await?,
            None => None,
        };
        let read = match read {
            Some(services) => ReadServices::Some(services),
            None => {
                self.known =
                    reading::everything(&self.client, &self.target, &namespaces, &self.known).await?;
                self.revisions.clear();
                self.listed = Some(began);
                ReadServices::All
            }
        };
        let lag = self.settings.lag;
        let new = self.lingering.compare(&self.known, &self.target, &read, began, lag);
        if let Some(first) = new.first() {
            tracing::warn!(
                instances = new.len(),
                %first,
                "Polaris acknowledged deletions, and shows the instances as before; they are not deleted \
                 again"
            );
        }
        self.remember();
        Ok(())
    }

    /// Reads the instances of changed services. Returns these services; `None` if the server does not allow
    /// Discover.
    async fn read_changed(
        &mut self,
        desired: &Desired,
        namespaces: &BTreeSet<Text>,
    ) -> Result<Option<BTreeSet<ServiceKey>>, Failure> {
        let fresh = reading::without_instances(&self.client, &self.target, namespaces).await?;
        let lingering = self.lingering.instances().map(|key| &key.service);
        let services = desired.services.keys().chain(self.known.instances.keys()).chain(lingering);
        let services = services.cloned().collect();
        self.known = Actual { instances: std::mem::take(&mut self.known.instances), ..fresh };
        let read = reading::discover(&self.client, services, &mut self.revisions, &mut self.known).await;
        match read {
            Ok(read) => Ok(Some(read)),
            Err(failure) if failure.class == FailureClass::Denied => {
                tracing::debug!(reason = %failure, "Discover is refused; all instances are listed instead");
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Applies recent writes over what was read. The revision of such a service is dropped, because it is
    /// older than the known content: the service is read in full until reads include the writes.
    fn remember(&mut self) {
        let lag = self.settings.lag;
        self.recent.retain(|(at, _)| at.elapsed() < lag);
        for (_, call) in &self.recent {
            self.known.apply(call);
            for service in (0..call.len()).filter_map(|at| call.service(at)) {
                self.revisions.remove(service);
            }
        }
        self.lingering.hide(&mut self.known);
    }

    /// Removes deletions that have to wait. Returns their number.
    fn guarded(&mut self, plan: Plan, pass: &Pass) -> (Plan, usize) {
        let is_all = *pass == Pass::All;
        let is_confirming = is_all && std::mem::take(&mut self.is_confirming);
        let deletions = plan.deletions().count();
        if deletions == 0 {
            if is_all {
                self.guard.release();
            }
            return (plan, 0);
        }
        // A wrong cluster creates instances, too, so in full passes creations do not make up for deletions.
        let replaced = if is_all { 0 } else { plan.creations() };
        let owned = self.known.owned(&self.target);
        let after = (owned.saturating_sub(deletions) + replaced).min(owned);
        let extent = if is_confirming { ReadExtent::Full } else { ReadExtent::Partial };
        match self.guard.judge(owned, after, now(), extent) {
            LossVerdict::Believe => (plan, 0),
            LossVerdict::Hold(_) => {
                self.held = deletions;
                tracing::warn!(
                    deletions,
                    owned,
                    "holding back deletions until a second read of the cluster confirms them: they exceed \
                     the guard"
                );
                (plan.without_deletions(), deletions)
            }
        }
    }

    /// Executes the phases in order.
    async fn write(
        &mut self,
        plan: &Plan,
        report: &mut PassReport,
        progress: &dyn Progress,
    ) -> Result<(), Failure> {
        let of = plan.calls().map(Call::len).sum();
        let (mut done, mut failures) = (0, 0);
        for phase in &plan.phases {
            let (client, target) = (self.client.clone(), self.target.clone());
            let (client, target) = (&client, &target);
            let calls = phase.iter().map(|call| async move { (call, execute(client, target, call).await) });
            let mut calls = stream::iter(calls).buffer_unordered(Client::CONCURRENCY);
            while let Some((call, result)) = calls.next().await {
                done += call.len();
                match result {
                    Ok(outcomes) => {
                        failures = 0;
                        self.handle(call, outcomes, report);
                    }
                    Err(failure) => {
                        failures += 1;
                        self.abort_on(&failure, failures)?;
                        report.retry_after = report.retry_after.max(failure.retry_after);
                        let outcomes = vec![Outcome::Failed(failure); call.len()];
                        self.handle(call, outcomes, report);
                    }
                }
                progress.wrote(done, of);
            }
        }
        Ok(())
    }

    /// Refusals do not end the pass, up to a number in a row; a missing answer or a refused token does.
    fn abort_on(&self, failure: &Failure, in_a_row: usize) -> Result<(), Failure> {
        let is_over = failure.code.is_none() || failure.class == FailureClass::Denied;
        if is_over || in_a_row >= FAILURES_IN_A_ROW { Err(with_patience(failure.clone())) } else { Ok(()) }
    }

    /// Records successes and failures.
    fn handle(&mut self, call: &Call, outcomes: Vec<Outcome>, report: &mut PassReport) {
        let operation = call.operation();
        let is_done = |at: usize| matches!(outcomes.get(at), Some(Outcome::Done));
        let done = call.only(is_done);
        let is_single = matches!(call, Call::CreateAlias(..) | Call::UpdateAlias(..));
        if !done.is_empty() && (!is_single || is_done(0)) {
            self.known.apply(&done);
            self.lingering.wrote(&done, Instant::now());
            let counts = report.calls.entry(operation).or_default();
            *counts = (counts.0 + 1, counts.1 + done.len());
            self.metrics.elements.with_label_values(&[operation, "done"]).inc_by(done.len() as u64);
            self.recent.push_back((Instant::now(), done));
        }
        for (at, outcome) in outcomes.into_iter().enumerate() {
            let service = call.service(at);
            // The next full pass reads the service in full.
            service.map(|service| self.revisions.remove(service));
            let failure = match outcome {
                Outcome::Done => continue,
                // It exists; the next pass compares its content.
                Outcome::Exists => {
                    report.left.extend(service.cloned());
                    continue;
                }
                Outcome::Failed(failure) => failure,
            };
            self.metrics.elements.with_label_values(&[operation, failure.class.as_str()]).inc();
            if failure.class == FailureClass::Refused {
                report.refused += 1;
                tracing::warn!(
                    operation,
                    element = %element(call, at),
                    reason = %failure,
                    "Polaris refused an element of a write; not retrying"
                );
            } else {
                report.failed += 1;
                report.left.extend(service.cloned());
                tracing::debug!(
                    operation,
                    element = %element(call, at),
                    reason = %failure,
                    "a write to Polaris failed; retrying"
                );
            }
            if let Some(service) = service {
                self.problem(service, format!("{}: {operation}: {failure}", element(call, at)));
            }
        }
    }

    fn problem(&mut self, service: &ServiceKey, text: String) {
        let problems = self.problems.entry(service.clone()).or_default();
        if problems.len() < 10 {
            problems.push(text);
        }
    }

    fn forget_problems(&mut self, scope: Option<&BTreeSet<ServiceKey>>) {
        self.problems.retain(|key, _| scope.is_some_and(|scope| !scope.contains(key)));
    }

    fn note_conflicts(&mut self, plan: &Plan) {
        for key in &plan.conflicts {
            self.problem(
                &key.service,
                format!("{}: an instance of somebody else is there; it is not touched", key.place),
            );
        }
        for alias in &plan.taken_aliases {
            let service = alias.0.clone();
            self.problem(&service, format!("alias {alias}: the name is taken; it is not touched"));
        }
    }

    fn note_lingering(&mut self) {
        let keys: Vec<_> = self.lingering.instances().cloned().collect();
        for key in keys {
            let text = format!("{}: Polaris acknowledged its deletion, and shows it as before", key.place);
            self.problem(&key.service, text);
        }
    }

    fn count(&self, report: &PassReport) {
        let states = [
            ("desired_services", report.services),
            ("desired_instances", report.instances),
            ("owned_instances", self.known.owned(&self.target)),
            ("conflicting", report.conflicts),
            ("isolated_by_others", report.isolated),
            ("lingering", report.lingering),
            ("held", report.held),
            ("refused", report.refused),
            ("failed", report.failed),
        ];
        for (state, count) in states {
            self.metrics.objects.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn scope(pass: &Pass) -> Option<&BTreeSet<ServiceKey>> {
    match pass {
        Pass::All => None,
        Pass::Services(services) => Some(services),
    }
}

fn with_patience(mut failure: Failure) -> Failure {
    if failure.class == FailureClass::Denied {
        failure.retry_after = failure.retry_after.max(DENIED);
    }
    failure
}

/// Describes an element of a call for messages.
fn element(call: &Call, at: usize) -> String {
    match call {
        Call::CreateNamespaces(names) => names.get(at).map(ToString::to_string),
        Call::CreateServices(writes) | Call::UpdateServices(writes) => {
            writes.get(at).map(|write| write.key.to_string())
        }
        Call::CreateAlias(alias, _) | Call::UpdateAlias(alias, _) => Some(alias.to_string()),
        Call::CreateInstances(writes) | Call::UpdateInstances(writes) => {
            writes.get(at).map(|write| write.key.to_string())
        }
        Call::RetireInstances(all) => all.get(at).map(|one| one.key.to_string()),
        Call::DeleteInstances(keys) => keys.get(at).map(ToString::to_string),
        Call::DeleteAliases(aliases) => aliases.get(at).map(ToString::to_string),
    }
    .unwrap_or_default()
}
