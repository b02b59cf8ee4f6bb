//! Registration, reports of checks, maintenance and deregistration.

use crate::ConsulSettings;
use crate::catalog::{Catalog, Entry};
use crate::checks::Status;
use crate::fields::Fields;
use crate::record::{Registered, id_of, service_of};
use crate::service::Service;
use parking_lot::{Mutex, MutexGuard};
use pilotfish_registration::{Health, InstanceKey, InstanceView, Registrar};
use pilotfish_registration_server::{AdapterClient, Failure};
use std::sync::Arc;
use tokio::sync::watch;

/// Consul's HTTP API on a registrar.
pub struct ConsulApi {
    pub(crate) settings: ConsulSettings,
    pub(crate) registrar: Registrar,
    catalog: Mutex<Catalog>,
    /// Index of the last change, for queries that wait.
    pub(crate) changed: watch::Sender<u64>,
}

impl ConsulApi {
    /// The API on this registrar.
    #[must_use]
    pub fn new(registrar: Registrar, settings: ConsulSettings) -> Self {
        let catalog = Mutex::new(Catalog::new(registrar.clone(), settings.clone()));
        Self { settings, registrar, catalog, changed: watch::Sender::new(0) }
    }

    /// Returns the catalog with the changes until now. Wakes the queries that wait for one.
    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        let mut catalog = self.catalog.lock();
        let last = catalog.refresh();
        self.changed.send_if_modified(|known| std::mem::replace(known, last) != last);
        catalog
    }

    pub(crate) async fn register(&self, client: &AdapterClient, body: &[u8]) -> Result<(), Failure> {
        let node = node_of(client);
        let service = Service::read(body, &node)?;
        let key =
            client.key(&self.settings.namespace, &service_of(&service.name), &id_of(&service.id, &node))?;
        // An agent has one service of an id: one of another name is replaced.
        let former = self.catalog().of_agent(&node, &service.id).filter(|former| former.key != key);
        if let Some(former) = &former {
            client.check_deregistration(&former.key)?;
        }
        let build = |current: Option<&InstanceView>| {
            Registered::new(service.clone(), current, &self.settings).registration(&self.settings)
        };
        client.write(&key, build).await?;
        if let Some(former) = former {
            client.deregister(&former.key).await?;
        }
        Ok(())
    }

    pub(crate) async fn deregister(&self, client: &AdapterClient, id: &str) -> Result<(), Failure> {
        let key = self.of_agent(client, id)?.key.clone();
        if client.deregister(&key).await? { Ok(()) } else { Err(unknown_service(id)) }
    }

    /// Reports the status of a check with a TTL, which renews the lease.
    pub(crate) async fn report(
        &self,
        client: &AdapterClient,
        check: &str,
        status: Status,
        output: &str,
    ) -> Result<(), Failure> {
        client.check_ready()?;
        let entry = self.catalog().of_check(&node_of(client), check);
        let entry = entry.ok_or_else(|| unknown_check(check))?;
        if entry.registered.service.ttl_check().is_none_or(|own| own.id != check) {
            return Err(Failure::invalid(format!("CheckID {check:?} has no TTL: Pilotfish runs it")));
        }
        // A write renews the lease, too; one for each beat would be too much for the store.
        if entry.registered.status == status {
            return client.renew(&entry.key).await.map_err(|failure| match failure.http_status() {
                404 => unknown_check(check),
                _ => failure,
            });
        }
        let missing = || unknown_check(check);
        self.change(client, &entry.key, missing, |registered| registered.report(status, output)).await
    }

    /// Reports the status of a check by the body of a request.
    pub(crate) async fn update(
        &self,
        client: &AdapterClient,
        check: &str,
        body: &[u8],
    ) -> Result<(), Failure> {
        let mut fields = Fields::of_body(body)?;
        let (status, output) = (fields.text("Status")?, fields.text("Output")?);
        let status = Some(&*status).filter(|text| ["passing", "warning", "critical"].contains(text));
        let status = status.and_then(Status::parse).ok_or_else(|| {
            fields.wrong("Status", "it is none of \"passing\", \"warning\" and \"critical\"")
        })?;
        self.report(client, check, status, &output).await
    }

    /// Begins maintenance for a reason, or ends it.
    pub(crate) async fn maintain(
        &self,
        client: &AdapterClient,
        id: &str,
        reason: Option<&str>,
    ) -> Result<(), Failure> {
        let entry = self.of_agent(client, id)?;
        let missing = || unknown_service(id);
        self.change(client, &entry.key, missing, |registered| registered.maintain(reason)).await
    }

    /// Returns a service that the client registered.
    pub(crate) fn of_agent(&self, client: &AdapterClient, id: &str) -> Result<Arc<Entry>, Failure> {
        client.check_ready()?;
        self.catalog().of_agent(&node_of(client), id).ok_or_else(|| unknown_service(id))
    }

    /// Changes a service that a client of Consul registered.
    async fn change(
        &self,
        client: &AdapterClient,
        key: &InstanceKey,
        missing: impl Fn() -> Failure,
        change: impl Fn(&mut Registered),
    ) -> Result<(), Failure> {
        let build = |current: Option<&InstanceView>| {
            let serving = current.filter(|view| view.health != Health::Draining);
            let known = serving.and_then(|view| Registered::of_client(&view.record, &self.settings));
            let mut registered = known.ok_or_else(&missing)?;
            change(&mut registered);
            registered.registration(&self.settings)
        };
        client.write(key, build).await.map(|_| ())
    }
}

/// Returns the agent of a client: its address.
pub(crate) fn node_of(client: &AdapterClient) -> String {
    client.address().to_string()
}

fn unknown_service(id: &str) -> Failure {
    Failure::not_found(format!(
        "Unknown service ID {id:?}: no service of this id was registered from the client's address"
    ))
}

fn unknown_check(id: &str) -> Failure {
    Failure::not_found(format!(
        "Unknown check ID {id:?}: no service with this check was registered from the client's address"
    ))
}
