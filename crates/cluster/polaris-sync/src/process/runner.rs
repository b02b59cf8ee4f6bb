//! Main loop of the sync: schedules passes, confirms deletions and handles failures.

use crate::process::events::Events;
use crate::process::feed::Feed;
use crate::process::pages::State;
use crate::process::report::{Bar, Once, table};
use crate::reconcile::{Next, ObjectName, Pass, Problem, Schedule, ScheduleSettings};
use crate::{Failure, PassReport, Session};
use anyhow::{Context, Result};
use pilotfish_kube_writer::lease::Leadership;
use pilotfish_runtime::Jitter;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time limit for finishing a pass after a stop.
const GRACE: Duration = Duration::from_secs(10);
/// Timeout for reading the cluster with `--once`.
const LISTED_WITHIN: Duration = Duration::from_secs(60);

/// Runs a single pass over everything.
///
/// # Errors
/// When the cluster or Polaris cannot be read.
pub(super) async fn once(mut feed: Feed, mut session: Session, dry_run: bool) -> Result<Once> {
    let listed = tokio::time::timeout(LISTED_WITHIN, async {
        while !feed.is_listed() {
            feed.next().await?;
        }
        Ok(())
    });
    let listed: Result<Result<()>, _> = listed.await;
    let failure = feed.failure().unwrap_or_else(|| "not everything was listed".to_owned());
    listed.with_context(|| format!("the cluster cannot be read: {failure}"))??;
    let desired = feed.cluster().desired(None);
    let (report, dry) = if dry_run {
        let dry = session.dry_run(&desired).await.context("Polaris")?;
        (dry.report, Some(dry.requests))
    } else {
        let bar = Bar::new();
        (session.pass(&desired, &Pass::All, &bar).await.context("Polaris")?, None)
    };
    let problems = problems(&mut feed, &session);
    let line = |(service, lines): (ObjectName, Vec<String>)| {
        lines
            .into_iter()
            .map(move |message| Problem { service: service.clone(), message })
            .collect::<Vec<_>>()
    };
    Ok(Once { report, dry, problems: problems.into_iter().flat_map(line).collect() })
}

/// Main loop of the sync.
pub(super) struct Runner {
    feed: Feed,
    /// Second feed that reads the cluster from the start, to confirm deletions.
    confirming: Option<Feed>,
    new_session: Box<dyn Fn() -> Session + Send>,
    settings: ScheduleSettings,
    state: Arc<State>,
    events: Events,
    /// Set while this replica leads.
    term: Option<Term>,
}

/// State of a term of leadership.
struct Term {
    session: Session,
    schedule: Schedule,
    is_first: bool,
    failing: bool,
}

impl Runner {
    pub(super) fn new(
        feed: Feed,
        new_session: Box<dyn Fn() -> Session + Send>,
        settings: ScheduleSettings,
        state: Arc<State>,
        events: Events,
    ) -> Self {
        Self { feed, confirming: None, new_session, settings, state, events, term: None }
    }

    /// Runs until `stop`. A pass in progress is finished within the time limit.
    pub(super) async fn run(mut self, leadership: Leadership, stop: impl Future<Output = ()>) -> Result<()> {
        let mut stop = std::pin::pin!(stop);
        loop {
            self.lead(leadership.leads());
            let at = match self.next() {
                Next::Wait(at) => at,
                Next::Pass(pass) => {
                    let mut ending = leadership.clone();
                    let stopped = tokio::select! {
                        // Calls that were sent may still arrive, but not after the next holder of the Lease
                        // starts.
                        () = ending.lost() => false,
                        done = self.pass(pass, stop.as_mut()) => done?,
                    };
                    if stopped {
                        return Ok(());
                    }
                    continue;
                }
            };
            let leads = self.term.is_some();
            let (mut losing, mut gaining) = (leadership.clone(), leadership.clone());
            tokio::select! {
                () = &mut stop => return Ok(()),
                result = self.feed.next() => { result?; self.take_in(); }
                result = confirming(&mut self.confirming) => { result?; self.confirm(); }
                () = losing.lost(), if leads => {}
                () = gaining.gained(), if !leads => {}
                () = tokio::time::sleep_until(Instant::from_std(at)) => {}
            }
        }
    }

    fn lead(&mut self, leads: bool) {
        if leads == self.term.is_some() {
            return;
        }
        self.state.metrics.leader.set(i64::from(leads));
        self.state.update(|status| (status.leading, status.synced) = (leads, false));
        self.confirming = None;
        self.term = leads.then(|| Term {
            session: (self.new_session)(),
            schedule: Schedule::new(self.settings, Jitter::default(), now()),
            is_first: true,
            failing: false,
        });
    }

    /// Returns the next step.
    fn next(&mut self) -> Next {
        let later = Next::Wait(now() + Duration::from_secs(3600));
        if !self.feed.is_listed() {
            return later;
        }
        let Some(term) = &mut self.term else { return later };
        self.state.metrics.queue.set(i64::try_from(term.schedule.waiting()).unwrap_or(i64::MAX));
        let next = term.schedule.next(now());
        // Held deletions are confirmed by a second read of the cluster.
        match (&next, term.session.held()) {
            (Next::Wait(_), Some((count, until))) if self.confirming.is_none() && until <= Instant::now() => {
                tracing::info!(deletions = count, "reading the cluster again, to confirm deletions");
                self.confirming = Some(self.feed.again());
                next
            }
            (Next::Wait(at), Some((_, until))) if self.confirming.is_none() => {
                Next::Wait((*at).min(until.into_std()))
            }
            _ => next,
        }
    }

    /// Applies changes of the cluster to the schedule.
    fn take_in(&mut self) {
        let (changed, has_new_namespace) = self.feed.cluster().take_changed();
        let (listed, failure) = (self.feed.is_listed(), self.feed.failure());
        self.state.update(|status| (status.cluster_listed, status.cluster_failure) = (listed, failure));
        if let Some(term) = &mut self.term {
            term.schedule.changed(changed, now());
            if has_new_namespace {
                term.schedule.nudge(now());
            }
        }
    }

    /// Confirms held deletions once the second read of the cluster is complete.
    fn confirm(&mut self) {
        if self.confirming.as_ref().is_some_and(Feed::is_listed)
            && let Some(fresh) = self.confirming.take()
        {
            self.feed = fresh;
            if let Some(term) = &mut self.term {
                term.session.confirm_deletions();
                term.schedule.compare_all_by(now());
            }
            self.take_in();
        }
    }

    /// Runs a pass. Returns true if the loop must stop.
    async fn pass(
        &mut self,
        pass: Pass,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<bool> {
        let scope = match &pass {
            Pass::All => None,
            Pass::Services(services) => Some(services),
        };
        let desired = self.feed.cluster().desired(scope);
        let Some(term) = &mut self.term else { return Ok(false) };
        let bar = Bar::new();
        let mut work = Box::pin(async {
            if term.failing {
                term.session.ping().await?;
            }
            term.session.pass(&desired, &pass, &bar).await
        });
        let (result, stopped) = tokio::select! {
            result = &mut work => (result, false),
            () = &mut stop => match tokio::time::timeout(GRACE, &mut work).await {
                Ok(result) => (result, true),
                Err(_) => {
                    tracing::warn!("stopped in the middle of a pass; the next one finishes it");
                    return Ok(true);
                }
            },
        };
        drop(work);
        drop(bar);
        match result {
            Ok(report) => self.passed(&pass, &report),
            Err(failure) => self.failed(&failure),
        }
        Ok(stopped)
    }

    fn passed(&mut self, pass: &Pass, report: &PassReport) {
        let Some(term) = &mut self.term else { return };
        if std::mem::take(&mut term.failing) {
            tracing::info!("Polaris answers again");
        }
        term.schedule.passed(pass, report.left.clone(), now());
        if std::mem::take(&mut term.is_first) {
            table(report).iter().for_each(|line| tracing::info!("{line}"));
        } else if report.written() > 0 {
            tracing::debug!(written = report.written(), took = ?report.took, "synced");
        }
        let problems = problems(&mut self.feed, &term.session);
        let is_all = *pass == Pass::All;
        let held = term.session.held().map_or(0, |(count, _)| count);
        self.state.update(|status| {
            status.polaris_failure = None;
            status.held_deletions = held;
            if is_all {
                status.synced = true;
                (status.services, status.instances) = (report.services, report.instances);
                status.isolated_by_others = report.isolated;
            }
            let shown = problems.iter().map(|(service, lines)| (service.to_string(), lines.clone()));
            status.problems = shown.collect();
        });
        self.events.tell(&problems);
    }

    fn failed(&mut self, failure: &Failure) {
        let Some(term) = &mut self.term else { return };
        let wait = term.schedule.failed(failure.retry_after, now());
        if !std::mem::replace(&mut term.failing, true) {
            tracing::warn!(
                reason = %failure, ?wait,
                "a sync with Polaris failed; it is retried until it succeeds"
            );
        }
        self.state.update(|status| status.polaris_failure = Some(failure.to_string()));
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

async fn confirming(feed: &mut Option<Feed>) -> Result<()> {
    match feed {
        Some(feed) => feed.next().await,
        None => std::future::pending().await,
    }
}

/// Returns all problems by Service: of its annotations and Pods, and errors of Polaris.
fn problems(feed: &mut Feed, session: &Session) -> BTreeMap<ObjectName, Vec<String>> {
    let mut all: BTreeMap<ObjectName, Vec<String>> = BTreeMap::new();
    for Problem { service, message } in feed.cluster().problems() {
        all.entry(service).or_default().push(message);
    }
    for (key, lines) in session.problems() {
        for service in feed.cluster().sources(key) {
            all.entry(service.clone()).or_default().extend(lines.iter().cloned());
        }
    }
    all
}
