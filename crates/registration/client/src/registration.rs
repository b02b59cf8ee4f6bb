//! A registered instance and the task that renews it.

use crate::client::{Client, Registered};
use crate::keeper::{Keeper, Step};
use crate::{Error, Instance};
use pilotfish_runtime::Jitter;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// State of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Registration is in progress. With an error it failed and is retried; an earlier registration stays
    /// until its lease ends.
    Registering {
        /// Error of the last attempt; `None` before it ends.
        error: Option<Error>,
    },
    /// The instance is registered.
    Registered {
        /// Store revision of the record's last change.
        revision: u64,
    },
    /// The server refuses the instance. Registration is retried every 30 s, as rules may change.
    Refused { error: Error },
}

/// A registered instance. When dropped, its lease expires; [`Registration::deregister`] removes it at once.
#[derive(Debug)]
pub struct Registration {
    client: Client,
    instance: watch::Sender<Arc<Instance>>,
    state: watch::Receiver<State>,
    stop: watch::Sender<bool>,
    /// `None` once it has stopped.
    task: Option<JoinHandle<()>>,
}

impl Registration {
    pub(crate) fn start(client: Client, instance: Instance, registered: Option<Registered>) -> Self {
        let (instance, instances) = watch::channel(Arc::new(instance));
        let keeper = Keeper::new(Jitter::default());
        let (states, state) = watch::channel(keeper.state().clone());
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(keep(client.clone(), keeper, (instances, stopped), states, registered));
        Self { client, instance, state, stop, task: Some(task) }
    }

    /// Returns the current state and its later changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Updates the instance, such as its health, labels or weight. Namespace, service and id must not change.
    ///
    /// # Errors
    /// [`Error::Options`] if one of them differs.
    pub fn update(&self, instance: Instance) -> Result<(), Error> {
        let known = self.instance.borrow().clone();
        let name = |of: &Instance| (of.namespace.clone(), of.service.clone(), of.id.clone());
        if name(&known) != name(&instance) {
            return Err(Error::Options("an instance with another name is another instance".to_owned()));
        }
        self.instance.send_replace(Arc::new(instance));
        Ok(())
    }

    /// Deregisters the instance, at once or after its drain time, which is returned. `drain` overrides the
    /// drain time of the instance. Retrying after an error is safe; otherwise the lease expires.
    ///
    /// # Errors
    /// When the server refuses, or none answers.
    pub async fn deregister(&mut self, drain: Option<Duration>) -> Result<Duration, Error> {
        // A registration in flight must not arrive after the deregistration.
        self.stop.send_replace(true);
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::warn!(%error, "the background task of a registration ended early");
        }
        let instance = self.instance.borrow().clone();
        self.client.deregister_once(&instance, drain).await
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Registers and renews until it is stopped or aborted.
async fn keep(
    client: Client,
    mut keeper: Keeper,
    (mut instances, mut stopped): (watch::Receiver<Arc<Instance>>, watch::Receiver<bool>),
    states: watch::Sender<State>,
    registered: Option<Registered>,
) {
    let mut wait = registered.map_or(Duration::ZERO, |registered| keeper.registered(Ok(registered)));
    loop {
        // Renewals do not change the state: waiters stay asleep.
        states.send_if_modified(|known| {
            let differs = known != keeper.state();
            known.clone_from(keeper.state());
            differs
        });
        let due = Instant::now() + wait;
        tokio::select! {
            () = sleep_until(due) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
            changed = instances.changed() => match changed {
                Ok(()) => keeper.changed(),
                Err(_) => return,
            },
        }
        let instance = instances.borrow_and_update().clone();
        wait = match keeper.next() {
            Step::Register => keeper.registered(client.register_once(&instance).await),
            Step::Renew => keeper.renewed(client.renew_once(&instance).await),
        };
    }
}
