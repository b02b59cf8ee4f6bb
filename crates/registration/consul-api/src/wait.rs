//! Blocking queries.

use crate::calls::ConsulApi;
use crate::catalog::Scope;
use crate::query::{Query, with_jitter};
use pilotfish_registration_server::{AdapterClient, Failure};
use pilotfish_runtime::Jitter;

impl ConsulApi {
    /// Waits until the index of a query is no longer the one that its client has, or its time is over.
    pub(crate) async fn wait_for(
        &self,
        client: &AdapterClient,
        query: &Query,
        scope: Scope<'_>,
    ) -> Result<(), Failure> {
        let (Some(asked), wait) = (query.index()?, query.wait()?) else { return Ok(()) };
        // Before the first look, so that no change is missed.
        let mut changed = self.changed.subscribe();
        if self.catalog().index(scope) != asked {
            return Ok(());
        }
        let permit = client.wait_permit()?;
        let time = tokio::time::sleep(with_jitter(wait, Jitter::default().fraction()));
        let news = async {
            while changed.changed().await.is_ok() {
                if self.catalog().index(scope) != asked {
                    return;
                }
            }
        };
        tokio::select! {
            () = news => {}
            () = time => {}
            () = client.closing() => {}
        }
        drop(permit);
        client.check_current()
    }

    /// Wakes queries after each change.
    pub(crate) async fn follow(&self) {
        let mut changes = self.registrar.service_changes();
        loop {
            changes.next().await;
            drop(self.catalog());
        }
    }
}
