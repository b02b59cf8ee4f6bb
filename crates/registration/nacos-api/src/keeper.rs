//! Work beside requests: pushes of changed services, and renewals of the leases of connections.

use crate::calls::{Core, NacosApi};
use crate::connections::{Due, Gone};
use crate::record::Given;
use futures::{StreamExt, stream};
use pilotfish_registration::{InstanceView, RecordState};
use pilotfish_registration_server::Failure;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, interval};

/// Number of renewals, removals and registrations at a time.
const AT_A_TIME: usize = 64;
/// Interval of looking for renewals that are due.
const LOOK: Duration = Duration::from_secs(1);
/// Number of attempts to remove an instance that changes meanwhile.
const ROUNDS: usize = 4;

impl NacosApi {
    /// Pushes changes to subscribers, and keeps the instances of connections, until it is dropped.
    pub async fn run(&self) {
        tokio::join!(self.0.push_changes(), self.0.keep_instances());
    }
}

impl Core {
    async fn push_changes(&self) {
        let mut changes = self.registrar.service_changes();
        loop {
            let changed = changes.next().await;
            self.connections.mark(&changed);
        }
    }

    /// Each on its own, so that none waits for the others.
    async fn keep_instances(&self) {
        tokio::join!(self.remove_gone(), self.renew_due(), self.register_lost());
    }

    async fn remove_gone(&self) {
        loop {
            self.connections.wake.notified().await;
            let gone = stream::iter(self.connections.take_gone());
            gone.for_each_concurrent(AT_A_TIME, |gone| async move {
                if let Err(failure) = gone.client.in_time(self.remove(&gone)).await {
                    // Its lease lapses, too. Meanwhile its client may come back.
                    tracing::debug!(
                        key = %gone.key,
                        error = failure.message(),
                        "cannot remove an instance whose connection has ended; its lease will lapse"
                    );
                }
            })
            .await;
        }
    }

    async fn renew_due(&self) {
        let mut look = interval(LOOK);
        loop {
            look.tick().await;
            let due = stream::iter(self.connections.due(Instant::now()));
            due.for_each_concurrent(AT_A_TIME, |due| async move {
                let renewed = due.client.in_time(self.renew(&due)).await;
                match renewed {
                    Ok(true) => {}
                    Ok(false) => self.connections.lose(due),
                    Err(failure) => tracing::debug!(
                        key = %due.key,
                        error = failure.message(),
                        "cannot renew the lease of an instance of a connection; trying again"
                    ),
                }
            })
            .await;
        }
    }

    async fn register_lost(&self) {
        loop {
            self.connections.wake_lost.notified().await;
            let lost = stream::iter(self.connections.take_lost());
            lost.for_each_concurrent(AT_A_TIME, |due| async move {
                if let Err(failure) = due.client.in_time(self.register_again(&due)).await {
                    tracing::debug!(
                        key = %due.key,
                        error = failure.message(),
                        "cannot register an instance of a connection again; trying again"
                    );
                }
            })
            .await;
        }
    }

    /// Removes an instance, unless another connection has registered it since.
    async fn remove(&self, gone: &Gone) -> Result<(), Failure> {
        for round in 1.. {
            let Some(view) = gone.client.view(&gone.key).filter(|view| is_kept_by(view, &gone.id)) else {
                break;
            };
            match gone.client.withdraw(&gone.key, view.record.revision).await {
                Err(failure) if failure.http_status() == 409 && round < ROUNDS => {}
                result => return result.map(|_| ()),
            }
        }
        Ok(())
    }

    /// Renews the lease of an instance. Returns false if there is none. An instance that another connection
    /// or a client of HTTP has registered since is theirs, and one that drains is left alone.
    async fn renew(&self, due: &Due) -> Result<bool, Failure> {
        due.client.check_current()?;
        match due.client.view(&due.key) {
            None => return Ok(false),
            Some(view) if !is_kept_by(&view, &due.id) => {
                self.connections.forget(due.number, &due.key, &due.service);
            }
            Some(view) if is_draining(&view) => {}
            Some(_) => match due.client.renew(&due.key).await {
                Err(failure) if failure.http_status() == 404 => return Ok(false),
                renewed => renewed?,
            },
        }
        Ok(true)
    }

    /// Registers an instance that has no lease any more. The next renewal sees whose it is then.
    async fn register_again(&self, due: &Due) -> Result<(), Failure> {
        let build = |current: Option<&InstanceView>| {
            if !self.connections.is_kept(due.number, &due.key)
                || current.is_some_and(|view| !is_kept_by(view, &due.id) || is_draining(view))
            {
                return Err(Failure::gone("the connection does not keep it any more, or it drains"));
            }
            due.given.registration(&due.service, &due.key.service, &self.settings)
        };
        due.client.write(&due.key, build).await.map(|_| ())
    }
}

fn is_draining(view: &InstanceView) -> bool {
    view.record.state == RecordState::Draining
}

fn is_kept_by(view: &InstanceView, id: &Arc<str>) -> bool {
    Given::of_record(&view.record).is_some_and(|given| given.connection.as_ref() == Some(id))
}
