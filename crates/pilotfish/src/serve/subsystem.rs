//! Subsystems of `serve`, each with a name, tasks, and a place in the stop order.
//!
//! A subsystem binds its addresses and reads its files before it is listed; listed subsystems are started
//! together. A subsystem that ends without a stop request ends the process, with its name in the error,
//! because serving stale data would be worse.

use anyhow::Result;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

/// Stop order of a subsystem. Each step waits until all subsystems of the previous one have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StopOrder {
    /// Stopped at once: listeners, and the work of leaders.
    First,
    /// Stopped when all streams have ended.
    AfterStreams,
    /// Aborted when all others have ended. Proxies keep their resources, so these subsystems have nothing to
    /// finish.
    Abort,
}

/// Stop signal of a subsystem.
#[derive(Clone)]
pub(crate) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Waits until the subsystem is asked to stop.
    pub(crate) async fn requested(mut self) {
        // An error means that the sender is gone, which counts as a stop.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Returns the receiver of the signal, for tasks that wait several times.
    pub(crate) fn into_receiver(self) -> watch::Receiver<bool> {
        self.0
    }
}

type Task = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Subsystem that is ready to run.
pub(crate) struct Subsystem {
    name: String,
    order: StopOrder,
    tasks: Vec<Box<dyn FnOnce(StopSignal) -> Task + Send>>,
}

impl Subsystem {
    /// Returns a subsystem without tasks. `name` appears in errors, such as "the xDS server".
    pub(crate) fn new(name: impl Into<String>, order: StopOrder) -> Self {
        Self { name: name.into(), order, tasks: Vec::new() }
    }

    /// Adds a task, which must end after the stop signal.
    pub(crate) fn task<F>(mut self, task: impl FnOnce(StopSignal) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.tasks.push(Box::new(|stop| Box::pin(task(stop))));
        self
    }
}

/// Subsystems of `serve` that have not been started.
#[derive(Default)]
pub(crate) struct Subsystems(Vec<Subsystem>);

impl Extend<Subsystem> for Subsystems {
    fn extend<I: IntoIterator<Item = Subsystem>>(&mut self, more: I) {
        self.0.extend(more);
    }
}

impl Subsystems {
    /// Adds a subsystem to the list.
    pub(crate) fn add(&mut self, subsystem: Subsystem) {
        self.0.push(subsystem);
    }

    /// Starts the tasks of all subsystems.
    pub(crate) fn start(self) -> Running {
        let mut running = Running {
            tasks: JoinSet::new(),
            known: HashMap::new(),
            first: watch::Sender::new(false),
            after_streams: watch::Sender::new(false),
            // Never set to true, because these tasks are aborted.
            never: watch::Sender::new(false),
        };
        for Subsystem { name, order, tasks } in self.0 {
            for task in tasks {
                let stop = StopSignal(running.sender(order).subscribe());
                let id = running.tasks.spawn(task(stop)).id();
                running.known.insert(id, (name.clone(), order));
            }
        }
        running
    }
}

/// Running subsystems. Dropping this aborts their tasks.
pub(crate) struct Running {
    tasks: JoinSet<Result<()>>,
    /// Tasks that have not ended.
    known: HashMap<Id, (String, StopOrder)>,
    first: watch::Sender<bool>,
    after_streams: watch::Sender<bool>,
    never: watch::Sender<bool>,
}

impl Running {
    fn sender(&self, order: StopOrder) -> &watch::Sender<bool> {
        match order {
            StopOrder::First => &self.first,
            StopOrder::AfterStreams => &self.after_streams,
            StopOrder::Abort => &self.never,
        }
    }

    /// Waits until a task ends without a request to stop.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match self.next_end().await {
            None => std::future::pending().await,
            Some((name, Ok(()))) => anyhow::anyhow!("{name} ended unexpectedly"),
            Some((name, Err(error))) => error.context(name),
        }
    }

    /// Stops all subsystems in their order, and aborts the tasks that have not ended at the deadline.
    pub(crate) async fn stop(mut self, deadline: Duration) {
        let in_order = async {
            for order in [StopOrder::First, StopOrder::AfterStreams] {
                self.sender(order).send_replace(true);
                while self.known.values().any(|(_, of)| *of == order) {
                    if let Some((name, Err(error))) = self.next_end().await {
                        tracing::warn!(error = %format!("{error:#}"), "{name}");
                    }
                }
            }
        };
        if tokio::time::timeout(deadline, in_order).await.is_err() {
            tracing::warn!("some tasks have not ended before the deadline; they are aborted");
        }
    }

    /// Waits for the next task to end, and returns the name of its subsystem; `None` if all have ended.
    async fn next_end(&mut self) -> Option<(String, Result<()>)> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(crashed(&error))),
        };
        let (name, _) = self.known.remove(&id)?;
        Some((name, result))
    }
}

fn crashed(error: &JoinError) -> anyhow::Error {
    anyhow::anyhow!("ended unexpectedly: {error}")
}

/// Adds a hint with the flag of the address to an error.
pub(crate) fn with_flag(error: impl Into<anyhow::Error>, flag: &str) -> anyhow::Error {
    anyhow::anyhow!("{:#}\nhint: {flag} names another address", error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// Notes its name when it was asked to stop, so many turns of the runtime later.
    fn noting(name: &str, order: StopOrder, turns: usize, notes: &Arc<Mutex<Vec<String>>>) -> Subsystem {
        let (own, notes) = (name.to_owned(), notes.clone());
        Subsystem::new(name, order).task(move |stop| async move {
            stop.requested().await;
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            notes.lock().push(own);
            Ok(())
        })
    }

    #[tokio::test]
    async fn subsystems_stop_in_the_declared_order() {
        let notes = Arc::default();
        let mut subsystems = Subsystems::default();
        subsystems.add(noting("entries", StopOrder::AfterStreams, 0, &notes));
        subsystems.add(noting("slow streams", StopOrder::First, 50, &notes));
        subsystems.add(noting("streams", StopOrder::First, 1, &notes));
        subsystems.add(noting("sources", StopOrder::Abort, 0, &notes));
        subsystems.start().stop(Duration::from_secs(60)).await;
        assert_eq!(*notes.lock(), ["streams", "slow streams", "entries"]);
    }

    #[tokio::test]
    async fn a_deadline_ends_what_hangs() {
        let notes = Arc::default();
        let mut subsystems = Subsystems::default();
        subsystems.add(noting("streams", StopOrder::First, usize::MAX, &notes));
        subsystems.add(noting("entries", StopOrder::AfterStreams, 0, &notes));
        subsystems.start().stop(Duration::from_millis(20)).await;
        assert!(notes.lock().is_empty());
    }

    #[tokio::test]
    async fn one_that_ends_by_itself_is_named() {
        let end = |result: fn() -> Result<()>| {
            let mut subsystems = Subsystems::default();
            subsystems.add(Subsystem::new("the sleeper", StopOrder::First).task(|stop| async {
                stop.requested().await;
                Ok(())
            }));
            subsystems
                .add(Subsystem::new("the clock", StopOrder::Abort).task(move |_| async move { result() }));
            async move { format!("{:#}", subsystems.start().ended().await) }
        };
        assert_eq!(end(|| Ok(())).await, "the clock ended unexpectedly");
        assert_eq!(end(|| anyhow::bail!("no battery")).await, "the clock: no battery");
        #[allow(clippy::panic, reason = "this is what is tried")]
        let crashed = end(|| panic!("dropped")).await;
        assert!(crashed.starts_with("the clock: ended unexpectedly"), "{crashed}");
    }

    #[tokio::test]
    async fn nothing_ends_where_nothing_runs() {
        let mut running = Subsystems::default().start();
        let ended = tokio::time::timeout(Duration::from_millis(20), running.ended()).await;
        assert!(ended.is_err());
    }
}
