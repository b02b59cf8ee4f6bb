//! Phases of the bench: cold start, additional proxies, changes, reconnects, and changes during reconnects.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::runtime::{Handle, Runtime};

use super::fleet::Fleet;
use super::folder::{Edit, Folder};
use super::results::{Everybody, Further, Memory, Results, Row, Sample};
use super::subject::Subject;
use super::world::{Pod, Sizes};
use crate::messages::Node;
use crate::server::{CpuTimes, MachineTimes};
use crate::stats::milliseconds;

/// Measurements, and their sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    #[command(flatten)]
    pub sizes: Sizes,
    /// Endpoint changes that are measured
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rounds: usize,
    /// Changes of each kind of configuration that are measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub changes: usize,
    /// Reconnects of everybody, with nothing and with what they hold
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub reconnects: usize,
    /// Proxies beyond those of the mesh, of workloads that are there and of new ones
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub further: usize,
    /// Endpoint changes while half of the proxies leave and come back
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub churn: usize,
    /// Fewer rounds of everything
    #[arg(long)]
    pub quick: bool,
}

impl Plan {
    /// Applies `quick`, which reduces the rounds.
    #[must_use]
    pub fn effective(&self) -> Self {
        let mut plan = self.clone();
        if self.quick {
            plan.rounds = self.rounds.min(5);
            plan.changes = self.changes.min(2);
            plan.reconnects = self.reconnects.min(1);
            plan.further = self.further.min(20);
            plan.churn = self.churn.min(5);
        }
        plan
    }
}

/// Receiver of progress messages.
pub trait Progress: Send + Sync {
    /// Reports the beginning of a phase.
    fn doing(&self, what: &str);
    /// A result, for display.
    fn done(&self, what: &str);
}

const SYNC_LIMIT: Duration = Duration::from_secs(300);
const CHANGE_LIMIT: Duration = Duration::from_secs(30);
/// Time without messages after which an endpoint change is complete.
const QUIET: Duration = Duration::from_millis(120);
/// Time without messages after which a configuration change is complete.
const CONFIG_QUIET: Duration = Duration::from_millis(400);
/// Interval, duration and timeout of the check that a server is idle.
const STEP: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_millis(500);
const REST_LIMIT: Duration = Duration::from_secs(30);
/// Minimum CPU time of a non-idle interval.
const BUSY: Duration = Duration::from_millis(4);
const WARM_UP: usize = 2;

/// Runs all phases. The caller fills in the floors.
///
/// # Errors
/// If the server ends a stream or exceeds a timeout.
pub async fn measure(
    plan: &Plan,
    subject: &Subject,
    folder: &Folder,
    progress: &dyn Progress,
) -> Result<Results> {
    Bench { plan: plan.effective(), folder, subject, progress, round: 0, memory: Vec::new() }.all().await
}

struct Bench<'a> {
    plan: Plan,
    folder: &'a Folder,
    subject: &'a Subject,
    progress: &'a dyn Progress,
    /// Number of the last round: each is different.
    round: usize,
    memory: Vec<Memory>,
}

impl Bench<'_> {
    async fn all(mut self) -> Result<Results> {
        let machine = MachineTimes::now()?;
        let (cpu, client_cpu) = (self.subject.cpu()?, CpuTimes::own()?);
        self.note_memory("ready, no proxies")?;
        let (fleet, cold) = self.cold().await?;
        let content = fleet.content();
        let idle_cpu = self.idle().await?;
        let changes = self.subject.edits.reach();
        let (mut further_known, mut further_new, mut rows) = Default::default();
        if changes {
            further_known = self.further(&fleet, false).await?;
            further_new = self.further(&fleet, true).await?;
            self.note_memory("after further proxies left")?;
            rows = self.endpoint_rows(&fleet).await?;
            rows.extend(self.config_rows(&fleet).await?);
            self.note_memory("after all changes")?;
        }
        let reconnects = self.reconnects(&fleet, false).await?;
        let resumes = self.reconnects(&fleet, true).await?;
        drop(fleet);
        if changes && self.plan.churn > 0 {
            rows.push(self.churn().await?);
        }
        self.note_memory("at the end")?;
        let known = self.subject.cpu()?.since(&cpu) + CpuTimes::own()?.since(&client_cpu);
        let foreign = MachineTimes::now()?.foreign_since(&machine, known);
        let (_, memory_most) = self.subject.memory()?;
        Ok(Results {
            has_process: self.subject.pid.is_some(),
            start: self.subject.start,
            cold,
            cold_floor: None,
            content,
            idle_cpu,
            further_known,
            further_new,
            rows,
            reconnects,
            resumes,
            memory: self.memory,
            memory_most,
            foreign,
        })
    }

    fn nodes(&self, pods: impl Iterator<Item = Pod>) -> Vec<Node> {
        pods.map(|pod| self.plan.sizes.proxy(&pod)).collect()
    }

    /// Connects all proxies without resources.
    async fn cold(&mut self) -> Result<(Fleet, Everybody)> {
        let sizes = self.plan.sizes;
        let nodes = self.nodes((0..sizes.pods).map(|index| sizes.pod(index)));
        self.progress.doing("all proxies connect");
        let (cpu, client) = (self.subject.cpu()?, CpuTimes::own()?);
        let fleet = Fleet::start(&self.subject.way, nodes);
        let wall = fleet.synced(SYNC_LIMIT).await?;
        let (cpu, client_cpu) = (self.subject.cpu()?.since(&cpu), CpuTimes::own()?.since(&client));
        let sent = fleet.sent();
        self.rest(&fleet).await?;
        let memory = self.note_memory("all cold proxies in sync")?;
        self.progress.done(&format!(
            "{} proxies in sync after {:.2} s, server CPU {:.2} s",
            sizes.pods,
            wall.as_secs_f64(),
            cpu.as_secs_f64()
        ));
        Ok((fleet, Everybody { wall, cpu, client_cpu, sent, first_change: None, memory }))
    }

    async fn idle(&self) -> Result<Duration> {
        let before = self.subject.cpu()?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(self.subject.cpu()?.since(&before))
    }

    /// Waits until the server is idle and sends nothing; returns the time at which that began.
    async fn rest(&self, fleet: &Fleet) -> Result<Instant> {
        let began = Instant::now();
        let mut busy = fleet.last_message();
        let mut before = self.subject.cpu()?;
        while began.elapsed() < REST_LIMIT && busy.elapsed().min(began.elapsed()) < REST {
            tokio::time::sleep(STEP).await;
            let now = self.subject.cpu()?;
            if now.since(&before) > BUSY {
                busy = Instant::now();
            }
            busy = busy.max(fleet.last_message());
            before = now;
        }
        fleet.check()?;
        Ok(busy)
    }

    fn note_memory(&mut self, when: &str) -> Result<u64> {
        let (bytes, _) = self.subject.memory()?;
        if bytes > 0 {
            self.progress.done(&format!("{when}: {:.1} MB resident", bytes_as_megabytes(bytes)));
        }
        self.memory.push(Memory { when: when.to_owned(), bytes });
        Ok(bytes)
    }

    /// Measures additional proxies. Their Pods are added before; the proxies disconnect afterwards.
    async fn further(&mut self, fleet: &Fleet, new: bool) -> Result<Further> {
        let (sizes, count) = (self.plan.sizes, self.plan.further.min(further_limit(&self.plan.sizes)));
        let pods: Vec<Pod> = (0..count).map(|index| sizes.further_pod(index, new)).collect();
        let file = if new { "further-new.yaml" } else { "further-known.yaml" };
        let prepared = self.folder.further(file, &pods)?;
        self.subject.edits.make(prepared).await?;
        self.progress.doing(if new { "further workloads" } else { "further proxies" });
        // Gives the server time to detect the change.
        tokio::time::sleep(REST).await;
        self.rest(fleet).await?;
        let (before, _) = self.subject.memory()?;
        let more = Fleet::start(&self.subject.way, self.nodes(pods.into_iter()));
        more.synced(SYNC_LIMIT).await?;
        self.rest(&more).await?;
        let (with, _) = self.subject.memory()?;
        drop(more);
        self.subject.edits.make(self.folder.without(file)).await?;
        tokio::time::sleep(REST).await;
        self.rest(fleet).await?;
        let further = Further { proxies: count, before, with };
        let what = if new { "workload" } else { "proxy" };
        self.progress.done(&format!("a further {what}: {:.1} KB", further.each() / 1e3));
        Ok(further)
    }

    /// Makes one change, until the last affected proxy has it.
    async fn change(&mut self, fleet: &Fleet, edit: Edit, wanted: usize, quiet: Duration) -> Result<Sample> {
        // The service is removed with the number of its addition.
        if edit != Edit::ServiceRemoved {
            self.round += 1;
        }
        let prepared = self.folder.prepare(edit, self.round)?;
        let before = self.subject.cpu()?;
        let round = fleet.round(wanted);
        self.subject.edits.make(prepared).await?;
        let reached = round.reached(CHANGE_LIMIT, quiet).await?;
        Ok(Sample { reached, cpu: self.subject.cpu()?.since(&before) })
    }

    /// Makes an endpoint change that all of these proxies see.
    async fn endpoint(&mut self, fleet: &Fleet) -> Result<Sample> {
        self.change(fleet, Edit::EndpointOfAll, fleet.size(), QUIET).await
    }

    async fn row(
        &mut self,
        fleet: &Fleet,
        edits: &[Edit],
        rounds: usize,
        quiet: Duration,
    ) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = edits
            .iter()
            .map(|edit| Row {
                name: edit.name().to_owned(),
                wanted: self.folder.concerned(*edit),
                samples: Vec::new(),
                floor: None,
            })
            .collect();
        for number in 0..WARM_UP.min(rounds) + rounds {
            self.progress.doing(&format!("{}, {number}", edits.first().map_or("", |edit| edit.name())));
            for (edit, row) in edits.iter().zip(&mut rows) {
                let sample =
                    self.change(fleet, *edit, row.wanted, quiet).await.with_context(|| row.name.clone())?;
                if number >= WARM_UP.min(rounds) {
                    row.samples.push(sample);
                }
            }
        }
        for row in &rows {
            self.progress.done(&super::report::line(row));
        }
        Ok(rows)
    }

    async fn endpoint_rows(&mut self, fleet: &Fleet) -> Result<Vec<Row>> {
        let mut rows = self.row(fleet, &[Edit::EndpointOfAll], self.plan.rounds, QUIET).await?;
        rows.extend(self.row(fleet, &[Edit::EndpointOfSome], self.plan.rounds, QUIET).await?);
        Ok(rows)
    }

    async fn config_rows(&mut self, fleet: &Fleet) -> Result<Vec<Row>> {
        let kinds: [&[Edit]; 9] = [
            &[Edit::Routes],
            &[Edit::DestinationRule],
            &[Edit::Sidecar],
            &[Edit::ServiceAdded, Edit::ServiceRemoved],
            &[Edit::WorkloadPolicy],
            &[Edit::NamespacePolicy],
            &[Edit::PeerAuthentication],
            &[Edit::MeshAccessLog],
            &[Edit::MeshConnectTimeout],
        ];
        let mut rows = Vec::new();
        for edits in kinds {
            rows.extend(self.row(fleet, edits, self.plan.changes, CONFIG_QUIET).await?);
            self.rest(fleet).await?;
        }
        Ok(rows)
    }

    /// Reconnects all proxies, and changes an endpoint right afterwards.
    async fn reconnects(&mut self, fleet: &Fleet, keep: bool) -> Result<Vec<Everybody>> {
        let mut all = Vec::new();
        for number in 1..=self.plan.reconnects {
            self.progress.doing(if keep {
                "all proxies come back with what they hold"
            } else {
                "all proxies come back"
            });
            let (cpu, client, sent) = (self.subject.cpu()?, CpuTimes::own()?, fleet.sent());
            let began = Instant::now();
            fleet.reconnect(keep);
            let mut wall =
                if keep { fleet.opened(SYNC_LIMIT).await? } else { fleet.synced(SYNC_LIMIT).await? };
            if keep {
                // A server may send nothing to up-to-date proxies: it is done when it is idle.
                wall = wall.max(self.rest(fleet).await?.saturating_duration_since(began));
            }
            let (cpu, client_cpu) = (self.subject.cpu()?.since(&cpu), CpuTimes::own()?.since(&client));
            let sent = fleet.sent().since(&sent);
            let first_change = if self.subject.edits.reach() {
                Some(self.endpoint(fleet).await.context("after a reconnect")?)
            } else {
                None
            };
            self.rest(fleet).await?;
            let how = if keep { "resumed" } else { "reconnected" };
            let memory = self.note_memory(&format!("everybody {how}, {number}"))?;
            let first = first_change.as_ref().map_or(Duration::ZERO, |first| first.reached.last);
            self.progress.done(&format!(
                "everybody {how} within {:.2} s, server CPU {:.2} s, {:.2} MB; an endpoint change then {:.1} \
                 ms",
                wall.as_secs_f64(),
                cpu.as_secs_f64(),
                bytes_as_megabytes(sent.all_bytes()),
                milliseconds(first)
            ));
            all.push(Everybody { wall, cpu, client_cpu, sent, first_change, memory });
        }
        Ok(all)
    }

    /// Makes endpoint changes for one half of the proxies, while the others reconnect repeatedly.
    async fn churn(&mut self) -> Result<Row> {
        let sizes = self.plan.sizes;
        let half = |turn: usize| (turn..sizes.pods).step_by(2).map(move |index| sizes.pod(index));
        // Separate threads, so that one half does not wait for the traffic of the other.
        let (own, others) = (Thread::start()?, Thread::start()?);
        let stay = Fleet::start_on(&own.handle, &self.subject.way, self.nodes(half(0)));
        stay.synced(SYNC_LIMIT).await?;
        let come = Fleet::start_on(&others.handle, &self.subject.way, self.nodes(half(1)));
        let mut row = Row {
            name: "endpoint, while half of all reconnect".into(),
            wanted: stay.size(),
            samples: Vec::new(),
            floor: None,
        };
        let coming = async {
            loop {
                come.synced(SYNC_LIMIT).await?;
                come.reconnect(false);
            }
        };
        let changing = async {
            for number in 0..self.plan.churn {
                self.progress.doing(&format!("endpoint changes while others reconnect, {number}"));
                let sample = self.endpoint(&stay).await?;
                row.samples.push(sample);
            }
            Ok::<_, anyhow::Error>(())
        };
        tokio::select! {
            ended = coming => ended,
            done = changing => done,
        }
        .context("while others reconnect")?;
        self.progress.done(&super::report::line(&row));
        Ok(row)
    }
}

/// A runtime with its own thread.
struct Thread {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Thread {
    fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.context("cannot start a thread for proxies")?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // A task must not wait for the shutdown of a runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Number of addresses for additional Pods.
fn further_limit(sizes: &Sizes) -> usize {
    (sizes.services * 4).min(2_000)
}

#[allow(clippy::cast_precision_loss)]
fn bytes_as_megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
