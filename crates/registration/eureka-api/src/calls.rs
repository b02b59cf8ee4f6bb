//! Registration, heartbeats, cancellation and changes of instances.

use crate::EurekaSettings;
use crate::catalog::{Catalog, Entry, Snapshot};
use crate::path::Target;
use crate::record::{Registered, service_of};
use parking_lot::Mutex;
use pilotfish_eureka_wire::{Instance, InstanceInfo, Status};
use pilotfish_registration::{InstanceKey, InstanceView, Registrar};
use pilotfish_registration_server::{AdapterClient, Failure, encode_id};
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum number of virtual addresses of an instance.
const MAX_VIPS: usize = 64;

/// Eureka's server API on a registrar.
pub struct EurekaApi {
    pub(crate) settings: EurekaSettings,
    catalog: Mutex<Catalog>,
}

/// Result of a heartbeat.
pub(crate) enum Beat {
    Renewed,
    /// A peer knows an older state than this one.
    Older(Box<Entry>),
}

impl EurekaApi {
    /// The API on this registrar.
    #[must_use]
    pub fn new(registrar: Registrar, settings: EurekaSettings) -> Self {
        Self { catalog: Mutex::new(Catalog::new(registrar, settings.clone())), settings }
    }

    /// Returns what clients see, with the changes until now.
    pub(crate) fn catalog(&self) -> Snapshot {
        let mut catalog = self.catalog.lock();
        catalog.refresh(Instant::now());
        catalog.snapshot()
    }

    /// Returns the key of an instance; one that cannot be registered is not found.
    pub(crate) fn key(&self, client: &AdapterClient, target: &Target) -> Result<InstanceKey, Failure> {
        let service = service_of(&target.app, &self.settings);
        client.key(&self.settings.namespace, &service, &encode_id(&target.id)).map_err(|_| not_found(target))
    }

    pub(crate) async fn register(
        &self,
        client: &AdapterClient,
        app: &str,
        info: InstanceInfo,
    ) -> Result<(), Failure> {
        if !info.app.0.eq_ignore_ascii_case(app) {
            let message = format!("instance.app: {:?} is not the application of the path", info.app.0);
            return Err(Failure::invalid(message));
        }
        let id =
            info.id().ok_or_else(|| Failure::invalid("instance: it has neither instanceId nor hostName"))?;
        let (service, id) = (service_of(app, &self.settings), encode_id(id));
        let key = client.key(&self.settings.namespace, &service, &id)?;
        self.check_vips(client, &key, &info)?;
        let given = Registered::new(info);
        let build = |current: Option<&InstanceView>| {
            let known = current.and_then(|view| Registered::of_record(&view.record, &self.settings));
            newer(given.clone(), known).registration(&service, &id, &self.settings)
        };
        client.write(&key, build).await.map(|_| ())
    }

    /// Others find an instance by its virtual addresses, too: each needs the permission to register the
    /// application of that name. Nobody asks for a placeholder that the client left as it is.
    fn check_vips(
        &self,
        client: &AdapterClient,
        key: &InstanceKey,
        info: &InstanceInfo,
    ) -> Result<(), Failure> {
        let Some(instance) = Instance::read(info.clone()) else { return Ok(()) };
        let vips = instance.vips.iter().chain(&instance.secure_vips);
        if vips.clone().count() > MAX_VIPS {
            return Err(Failure::invalid(format!("instance: it has more than {MAX_VIPS} virtual addresses")));
        }
        for vip in vips.filter(|vip| !vip.contains("${")) {
            let service = service_of(vip, &self.settings);
            if *service != *key.service {
                let named = InstanceKey::new(Arc::clone(&key.namespace), service, Arc::clone(&key.id));
                client.check_registration(&named)?;
            }
        }
        Ok(())
    }

    /// Changes an instance that a client of Eureka registered.
    pub(crate) async fn change(
        &self,
        client: &AdapterClient,
        target: &Target,
        change: impl Fn(&mut Registered),
    ) -> Result<(), Failure> {
        let key = self.key(client, target)?;
        let build = |current: Option<&InstanceView>| {
            let view = current.ok_or_else(|| not_found(target))?;
            let known = Registered::of_client(&view.record, &self.settings);
            let mut registered = known.ok_or_else(|| of_another_protocol(target))?;
            change(&mut registered);
            registered.registration(&key.service, &key.id, &self.settings)
        };
        client.write(&key, build).await.map(|_| ())
    }

    /// Renews a lease. Not found asks the client to register again: the instance is unknown, or its client
    /// has changed it since.
    pub(crate) async fn heartbeat(
        &self,
        client: &AdapterClient,
        target: &Target,
        dirty: Option<u64>,
        is_peer: bool,
    ) -> Result<Beat, Failure> {
        let key = self.key(client, target)?;
        client.renew(&key).await?;
        let Some((dirty, view)) = dirty.zip(client.view(&key)) else { return Ok(Beat::Renewed) };
        let known = Registered::of_record(&view.record, &self.settings).and_then(|known| known.dirty());
        match known {
            Some(known) if dirty > known => {
                Err(Failure::not_found("the client has changed it since: register again"))
            }
            Some(known) if dirty < known && is_peer => {
                let entry = Entry::new(&view, &self.settings);
                Ok(entry.map_or(Beat::Renewed, |entry| Beat::Older(Box::new(entry))))
            }
            _ => Ok(Beat::Renewed),
        }
    }

    pub(crate) async fn cancel(&self, client: &AdapterClient, target: &Target) -> Result<(), Failure> {
        let key = self.key(client, target)?;
        if client.deregister(&key).await? { Ok(()) } else { Err(not_found(target)) }
    }

    pub(crate) async fn set_status(
        &self,
        client: &AdapterClient,
        target: &Target,
        status: Status,
    ) -> Result<(), Failure> {
        self.change(client, target, |registered| registered.overridden = status).await
    }

    /// Removes an operator's status. The instance has the given one until its client reports another.
    pub(crate) async fn remove_status(
        &self,
        client: &AdapterClient,
        target: &Target,
        status: Option<Status>,
    ) -> Result<(), Failure> {
        let change = |registered: &mut Registered| {
            registered.overridden = Status::Unknown;
            registered.own = status.unwrap_or(registered.own);
        };
        self.change(client, target, change).await
    }
}

/// Returns the registration to write: a client's, with the status of an operator that it does not know,
/// unless a later one is known.
fn newer(given: Registered, known: Option<Registered>) -> Registered {
    let Some(known) = known else { return given };
    if known.dirty().zip(given.dirty()).is_some_and(|(known, given)| given < known) {
        return known;
    }
    match given.overridden {
        Status::Unknown => Registered { overridden: known.overridden, ..given },
        _ => given,
    }
}

pub(crate) fn not_found(target: &Target) -> Failure {
    Failure::not_found(format!("{}/{} is not registered", target.app, target.id))
}

/// A change would drop what Eureka has no form for.
fn of_another_protocol(target: &Target) -> Failure {
    let Target { app, id } = target;
    Failure::invalid(format!("{app}/{id} was registered by another protocol, and is changed by that only"))
}
