//! The control loop: the one owner of the registries and of the world.
//!
//! ```text
//! sources ─ batches ─▶ Hub ─ updates ─▶ Lanes ─ due ─▶ WorldWriter ─▶ Translator ─▶ Fanout ─▶ streams
//! ```
//!
//! It runs on a thread of its own, so that computing what a new world changes never takes a thread from the streams.

use crate::lanes::Lanes;
use crate::remote::{REMOTE_SECRETS, RemoteRegistries, cluster_source, feed_of};
use crate::resources::{Resources, publication};
use crate::shared::Shared;
use pilotfish_admin::Metrics;
use pilotfish_config::{SourceBatch, SourceEvent as Told};
use pilotfish_kube::remote::{ClusterGeneration, RemoteEvent};
use pilotfish_model::{ChangeSet, Fact, Update, WorldWriter};
use pilotfish_registry::{Hub, ObjectEvent, SourceEvent};
use pilotfish_translate::Translator;
use pilotfish_xds::Fanout;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// What reaches the loop.
pub enum Said {
    /// What a source says, under the source's name.
    Batch {
        /// The feed that the source belongs to.
        feed: Arc<str>,
        /// The source.
        source: Arc<str>,
        /// What it says.
        batch: SourceBatch,
    },
    /// What happens to remote clusters.
    Remote(RemoteEvent),
}

/// Everything that the loop owns or tells.
pub struct Control {
    /// The registries.
    pub hub: Hub,
    /// Changes that wait for their moment.
    pub lanes: Lanes,
    /// The world.
    pub writer: WorldWriter,
    /// What makes resources of it.
    pub translator: Arc<Translator>,
    /// What serves them.
    pub resources: Arc<Resources>,
    /// What brings news of them to streams.
    pub fanout: Arc<Fanout<Resources>>,
    /// What the admin API reads.
    pub shared: Arc<Shared>,
    /// What is measured.
    pub metrics: Arc<Metrics>,
    /// How remote clusters become registries.
    pub remote: RemoteRegistries,
}

impl Control {
    /// Runs until every source has ended.
    pub async fn run(mut self, mut said: mpsc::Receiver<Said>) {
        self.shared.set_registries(&self.hub);
        loop {
            let next = self.lanes.next_due().filter(|_| self.resources.is_ready());
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                message = said.recv() => match message {
                    Some(message) => self.take(message, Instant::now()),
                    None => return,
                },
                () = due => {}
            }
            self.publish(Instant::now());
        }
    }

    /// Takes in what a source says.
    fn take(&mut self, said: Said, now: Instant) {
        match said {
            Said::Batch { feed, source, batch } => {
                self.take_problems(&source, &batch);
                self.take_batch(&feed, &source, batch);
            }
            Said::Remote(event) => self.take_remote(event),
        }
        let updates = self.hub.settle();
        self.lanes.push(updates, now);
        self.shared.set_registries(&self.hub);
    }

    /// Takes in what is wrong with objects, under the name of whoever read them.
    fn take_problems(&self, reader: &str, batch: &SourceBatch) {
        if let Some(problems) = &batch.problems {
            self.shared.set_problems(reader, problems);
            self.metrics.rejected_configs.set(self.shared.rejected());
        }
    }

    fn forget_problems(&self, reading: &ClusterGeneration) {
        self.shared.remove_problems(&feed_of(reading));
        self.metrics.rejected_configs.set(self.shared.rejected());
    }

    fn take_batch(&mut self, feed: &str, source: &str, batch: SourceBatch) {
        for event in batch.events {
            self.metrics.inbound_updates.with_label_values(&[inbound(&event)]).inc();
            if let Told::Failed { reason, .. } = &event {
                tracing::warn!(source, %reason, "the source cannot be read; what it said before stays in force");
            }
            if let Err(error) = self.hub.source_event(feed, source, heard(event)) {
                tracing::error!(%error, "a source without a feed");
            }
        }
    }

    fn take_remote(&mut self, event: RemoteEvent) {
        match event {
            RemoteEvent::Secrets(batch) => {
                let feed = self.remote.config_feed.clone();
                self.take_problems(REMOTE_SECRETS, &batch);
                self.take_batch(&feed, REMOTE_SECRETS, batch);
            }
            RemoteEvent::Batch(reading, batch) => {
                // Two readings of a cluster know of different problems, and those of one go with it.
                self.take_problems(&feed_of(&reading), &batch);
                self.take_batch(&feed_of(&reading), &cluster_source(&reading.cluster), batch);
            }
            RemoteEvent::Opened(reading) => self.remote.open(&mut self.hub, &reading),
            RemoteEvent::GivenUp(reading, reason) => {
                self.metrics.kube.remote_timeouts.inc();
                self.remote.give_up(&mut self.hub, &reading, &reason);
            }
            RemoteEvent::Closed(reading) => {
                self.hub.remove_feed(&feed_of(&reading));
                self.forget_problems(&reading);
            }
            RemoteEvent::Removed(cluster, readings) => {
                self.remote.remove(&mut self.hub, &cluster, &readings);
                readings.iter().for_each(|reading| self.forget_problems(reading));
                self.metrics.kube.forget_cluster(&cluster);
            }
        }
        self.metrics.kube.remote_clusters.set(i64::try_from(self.remote.count()).unwrap_or(i64::MAX));
    }

    /// Publishes what is due; before the first lists are complete, nothing is.
    fn publish(&mut self, now: Instant) {
        if !self.resources.is_ready() {
            if self.hub.synced().is_err() {
                return;
            }
            let updates = self.lanes.take_all();
            self.put_in_force(updates, now);
            self.resources.set_ready();
            let world = self.writer.world();
            tracing::info!(
                services = world.service_count(),
                "all registries are in sync, proxies are served"
            );
            self.shared.set_registries(&self.hub);
        } else if let Some((updates, oldest)) = self.lanes.take_due(now) {
            self.metrics.debounce.observe(now.saturating_duration_since(oldest).as_secs_f64());
            self.put_in_force(updates, now);
        }
    }

    fn put_in_force(&mut self, updates: Vec<Update>, now: Instant) {
        for update in updates {
            self.writer.apply(update);
        }
        let Some((world, changes)) = self.writer.publish() else { return };
        self.metrics.push_triggers.with_label_values(&[trigger(&changes)]).inc();
        let revision = world.revision();
        self.shared.set_world(world.clone(), &changes);
        if let Some(gate) = self.resources.gate() {
            gate.published(&world, &changes);
        }
        let changes = publication(self.translator.publish(world, &changes));
        let (resources, moved) = (changes.changes.len(), changes.moved.len());
        self.fanout.publish(&changes);
        self.metrics.publish.observe(now.elapsed().as_secs_f64());
        self.forget_unwanted(revision);
        tracing::debug!(revision, resources, moved, took = ?now.elapsed(), "published");
    }

    /// Now and then, drops resources that nobody subscribes to any more.
    fn forget_unwanted(&self, revision: u64) {
        const EVERY: u64 = 256;
        if revision.is_multiple_of(EVERY) {
            let wanted = |view: pilotfish_translate::ViewId, ty, name: &str| {
                self.fanout.is_subscribed(pilotfish_xds::ViewId(view.0), ty, name)
            };
            self.translator.retain_named(wanted);
        }
    }
}

/// A source's words in the words of the hub.
fn heard(event: Told) -> SourceEvent {
    match event {
        Told::Apply(object) => SourceEvent::Object(ObjectEvent::Applied(object)),
        Told::Delete(key) => SourceEvent::Object(ObjectEvent::Deleted(key)),
        Told::Listed | Told::Recovered => SourceEvent::Synced,
        Told::Failed { at, reason } => SourceEvent::Failed { at, reason },
    }
}

/// The label of `pilot_inbound_updates`.
fn inbound(event: &Told) -> &'static str {
    use pilotfish_model::Kind;
    let kind = match event {
        Told::Apply(object) => object.key().kind,
        Told::Delete(key) => key.kind,
        Told::Listed | Told::Recovered | Told::Failed { .. } => return "source",
    };
    match (kind, event) {
        (Kind::EndpointSlice | Kind::WorkloadEntry | Kind::Pod, _) => "eds",
        (Kind::Service | Kind::ServiceEntry, Told::Delete(_)) => "svcdelete",
        (Kind::Service | Kind::ServiceEntry, _) => "svc",
        _ => "config",
    }
}

/// The label of `pilot_push_triggers`: the weightiest of what changed.
fn trigger(changes: &ChangeSet) -> &'static str {
    let any = |test: fn(&Fact) -> bool| changes.facts.iter().any(test);
    if any(|fact| matches!(fact, Fact::NetworkGateways)) {
        "networks"
    } else if any(|fact| matches!(fact, Fact::Object(_))) {
        "config"
    } else if any(|fact| matches!(fact, Fact::Service(_))) {
        "service"
    } else if any(|fact| matches!(fact, Fact::Endpoints(_))) {
        "endpoint"
    } else {
        "proxy"
    }
}
