//! What runs beside requests: pushes of changed services, and the leases of instances of connections.

use crate::calls::{Core, NacosApi};
use crate::connections::{Due, Gone};
use crate::record::Given;
use futures::{StreamExt, stream};
use pilotfish_registration::InstanceView;
use pilotfish_registration_server::Failure;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, interval};

/// Number of renewals and removals at a time.
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

    async fn keep_instances(&self) {
        let mut look = interval(LOOK);
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = self.connections.wake.notified() => {}
            }
            let gone = stream::iter(self.connections.take_gone());
            gone.for_each_concurrent(AT_A_TIME, |gone| async move {
                if let Err(failure) = self.remove(&gone).await {
                    // Its lease lapses, too.
                    tracing::debug!(
                        key = %gone.key,
                        error = failure.message(),
                        "cannot remove an instance whose connection has ended; its lease will lapse"
                    );
                }
            })
            .await;
            let due = stream::iter(self.connections.due(Instant::now()));
            due.for_each_concurrent(AT_A_TIME, |due| async move {
                if let Err(failure) = self.renew(&due).await {
                    tracing::debug!(
                        key = %due.key,
                        error = failure.message(),
                        "cannot renew the lease of an instance of a connection; trying again"
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

    /// Renews the lease of an instance. One that is not there is registered again; one that another
    /// connection or a client of HTTP has registered since is theirs.
    async fn renew(&self, due: &Due) -> Result<(), Failure> {
        due.client.check_current()?;
        match due.client.view(&due.key) {
            Some(view) if !is_kept_by(&view, &due.id) => {
                self.connections.forget(due.number, &due.key);
                return Ok(());
            }
            Some(_) => match due.client.renew(&due.key).await {
                Err(failure) if failure.http_status() == 404 => {}
                result => return result,
            },
            None => {}
        }
        if !self.connections.is_kept(due.number, &due.key) {
            return Ok(());
        }
        self.register(&due.client, &due.service, &due.given).await.map(|_| ())
    }
}

fn is_kept_by(view: &InstanceView, id: &Arc<str>) -> bool {
    Given::of_record(&view.record).is_some_and(|given| given.connection.as_ref() == Some(id))
}
