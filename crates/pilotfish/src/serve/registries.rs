//! Selected registries: those that read objects of the configuration feed, and those with a source of their
//! own.

use super::subsystem::{StopOrder, Subsystem};
use crate::settings::{RegistriesSettings, Settings};
use anyhow::Result;
use pilotfish_control_plane::control::ControlMessage;
use pilotfish_control_plane::control::Shared;
use pilotfish_model::ShardKey;
use pilotfish_registry::{
    AggregateController, AggregateSettings, Input, LiveSource, RegistryReceiver, RegistrySender, channel,
};
use pilotfish_runtime::Heartbeat;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Controller with all registries, and the sources of live ones.
pub(crate) struct Registries {
    pub(super) controller: AggregateController,
    /// Feed of the cluster that holds the configuration.
    pub(super) feed: Arc<str>,
    /// Sources, each with the time after which readiness continues without its first answer.
    live: Vec<(ShardKey, Box<dyn LiveSource>, Option<Duration>)>,
}

impl Registries {
    /// Makes the registries; no source runs yet. Without a source of objects, registries that read objects
    /// are omitted, because they would be empty.
    ///
    /// # Errors
    /// When the settings of a live registry are wrong.
    pub(super) fn open(settings: &Settings) -> Result<Self> {
        let (reads_objects, revision) = (settings.has_objects(), settings.sources.revision.clone());
        let settings = &settings.registries;
        let cluster = settings.settings.cluster.clone();
        let feed: Arc<str> = cluster.clone().into();
        let mut controller = AggregateController::new(AggregateSettings {
            config_feed: feed.clone(),
            primary: cluster,
            merge: settings.merge,
            revision,
        });
        for (provider, registry) in settings.table.select(&settings.names)? {
            if let (Input::Objects(new), true) = (registry.input, reads_objects) {
                controller.add_registry(new(provider, settings.settings.clone()), &feed);
            }
        }
        let (mut live, timeout) = (Vec::new(), settings.timeout);
        for registry in &settings.live {
            let Input::Live(new) = registry.input else { continue };
            let settings = registry.with(&settings.settings);
            let shard = settings.shard.clone();
            controller.add_live(shard.clone());
            live.push((shard, new(settings)?, Some(timeout)));
        }
        Ok(Self { controller, feed, live })
    }

    /// Adds a registry that is part of this process. `open` makes its source for its shard. Readiness always
    /// waits for it, because without its store its services would appear to be gone.
    ///
    /// # Errors
    /// When the table has no registry of that name.
    pub(super) fn add(
        &mut self,
        settings: &RegistriesSettings,
        name: &str,
        open: impl FnOnce(ShardKey) -> Box<dyn LiveSource>,
    ) -> Result<()> {
        let (provider, _) = settings.table.find(name)?;
        let shard = ShardKey::new(provider, settings.settings.cluster.clone());
        let source = open(shard.clone());
        self.controller.add_live(shard.clone());
        self.live.push((shard, source, None));
        Ok(())
    }

    /// Returns the controller, the feed, and a subsystem for each live registry. Its content and health are
    /// sent to `messages`, and its report is added to `shared`.
    pub(super) fn into_parts(
        self,
        messages: &mpsc::Sender<ControlMessage>,
        shared: &Shared,
    ) -> (AggregateController, Arc<str>, Vec<Subsystem>) {
        let live = self.live.into_iter();
        let subsystems = live.map(|(shard, source, timeout)| {
            let (sender, receiver) = channel();
            shared.add_report(&shard, receiver.report().clone());
            let alive = Heartbeat::default();
            shared.add_heartbeat(&shard.to_string(), alive.clone());
            subsystem(shard, (source, alive), (sender, receiver), timeout, messages.clone())
        });
        let subsystems = subsystems.collect();
        (self.controller, self.feed, subsystems)
    }
}

/// Returns the subsystem that runs a source, forwards its input, and lets readiness continue without it after
/// a timeout. A source has nothing to finish when the process stops.
fn subsystem(
    shard: ShardKey,
    (source, alive): (Box<dyn LiveSource>, Heartbeat),
    (sender, receiver): (RegistrySender, RegistryReceiver),
    timeout: Option<Duration>,
    messages: mpsc::Sender<ControlMessage>,
) -> Subsystem {
    let waiting = (shard.clone(), messages.clone());
    Subsystem::new(format!("the source of the registry {shard}"), StopOrder::Abort)
        .task(|_| async move {
            alive.accompany(source.run(sender)).await;
            Ok(())
        })
        .task(|_| forward(shard, receiver, messages))
        .task(move |_| async move {
            let Some(timeout) = timeout else { return std::future::pending().await };
            tokio::time::sleep(timeout).await;
            let (shard, messages) = waiting;
            // A closed channel means that the process is ending.
            let _ = messages.send(ControlMessage::RegistryTimeout(shard)).await;
            std::future::pending().await
        })
}

/// Forwards the input of a source. While the control loop is busy, the channel of the source merges further
/// input.
async fn forward(
    shard: ShardKey,
    mut receiver: RegistryReceiver,
    messages: mpsc::Sender<ControlMessage>,
) -> Result<()> {
    while receiver.wait().await {
        // A place in the loop's queue is reserved first: until then, later batches are merged into this one.
        let Ok(place) = messages.reserve().await else { return Ok(()) };
        if let Some(input) = receiver.take() {
            place.send(ControlMessage::Registry { shard: shard.clone(), input });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::Provider;
    use pilotfish_registry::RegistryBatch;
    use std::future::Future;
    use std::pin::Pin;

    struct Failing;

    impl LiveSource for Failing {
        fn run(self: Box<Self>, sender: RegistrySender) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(async move {
                sender.send(RegistryBatch::partial());
                sender.failed("connection refused");
                std::future::pending().await
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn content_health_and_timeout_reach_the_control_loop() {
        let (messages, mut inbox) = mpsc::channel(8);
        let shard = ShardKey::new(Provider::new(2, "test"), "c");
        let mut subsystems = crate::serve::Subsystems::default();
        subsystems.add(subsystem(
            shard.clone(),
            (Box::new(Failing), Heartbeat::default()),
            channel(),
            Some(Duration::from_secs(30)),
            messages,
        ));
        let _running = subsystems.start();
        let Some(ControlMessage::Registry { shard: of, input }) = inbox.recv().await else {
            unreachable!("the source sends first")
        };
        assert_eq!((of, input.failure.as_deref()), (shard.clone(), Some("connection refused")));
        let began = tokio::time::Instant::now();
        let Some(ControlMessage::RegistryTimeout(of)) = inbox.recv().await else {
            unreachable!("nothing else is sent")
        };
        assert_eq!((of, began.elapsed().as_secs()), (shard, 30));
    }

    #[tokio::test(start_paused = true)]
    async fn registry_of_this_process_is_never_given_up() {
        let (messages, mut inbox) = mpsc::channel(8);
        let shard = ShardKey::new(Provider::new(2, "test"), "c");
        let mut subsystems = crate::serve::Subsystems::default();
        subsystems.add(subsystem(
            shard,
            (Box::new(Failing), Heartbeat::default()),
            channel(),
            None,
            messages,
        ));
        let _running = subsystems.start();
        assert!(matches!(inbox.recv().await, Some(ControlMessage::Registry { .. })));
        let later = tokio::time::timeout(Duration::from_secs(86_400), inbox.recv()).await;
        assert!(later.is_err(), "nothing else is sent in a day");
    }
}
