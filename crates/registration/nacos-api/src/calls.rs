//! Registration, beats, changes and reads, of both HTTP and gRPC.

use crate::NacosSettings;
use crate::catalog::{Catalog, Page};
use crate::connections::Connections;
use crate::record::{Given, host, id, service_of};
use crate::service::{Scope, ServiceId, Wanted};
use parking_lot::Mutex;
use pilotfish_nacos_wire::ServiceInfo;
use pilotfish_registration::{InstanceKey, InstanceView, Registrar};
use pilotfish_registration_server::{AdapterClient, Failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of names on a page of a list.
const MAX_PAGE: usize = 1_000;
/// Time in milliseconds after which a client without pushes asks again.
const CACHE_MILLIS: u64 = 10_000;

/// State that all requests share.
pub(crate) struct Core {
    pub(crate) settings: NacosSettings,
    pub(crate) registrar: Registrar,
    pub(crate) connections: Connections,
    catalog: Mutex<Catalog>,
    /// Time of the last answer in milliseconds. Clients refuse older answers than they have.
    answered: AtomicI64,
}

/// Nacos's server API of naming on a registrar.
#[derive(Clone)]
pub struct NacosApi(pub(crate) Arc<Core>);

impl NacosApi {
    /// The API on this registrar. [`Self::run`] must run as long as it is served.
    #[must_use]
    pub fn new(registrar: Registrar, settings: NacosSettings) -> Self {
        Self(Arc::new(Core::new(registrar, settings)))
    }
}

impl Core {
    pub(crate) fn new(registrar: Registrar, settings: NacosSettings) -> Self {
        let catalog = Mutex::new(Catalog::new(registrar.clone(), settings.clone()));
        let connections = Connections::default();
        Self { settings, registrar, connections, catalog, answered: AtomicI64::new(0) }
    }

    pub(crate) fn refresh(&self) {
        self.catalog.lock().refresh();
    }

    /// Returns the key of an instance.
    pub(crate) fn key(
        &self,
        client: &AdapterClient,
        service: &ServiceId,
        (ip, port, cluster): (&str, u32, &str),
    ) -> Result<InstanceKey, Failure> {
        let key = service.key(&self.settings)?;
        client.key(&key.namespace, &key.service, &id(ip, port, cluster)?)
    }

    pub(crate) async fn register(
        &self,
        client: &AdapterClient,
        service: &ServiceId,
        given: &Given,
    ) -> Result<InstanceKey, Failure> {
        let key = self.key(client, service, (&given.ip, given.port, &given.cluster))?;
        let build = |current: Option<&InstanceView>| {
            check_service(current, service)?;
            given.registration(service, &key.service, &self.settings)
        };
        client.write(&key, build).await?;
        Ok(key)
    }

    /// Removes an instance; one that is not there, or is another service's, is no error, as in Nacos.
    pub(crate) async fn deregister(
        &self,
        client: &AdapterClient,
        service: &ServiceId,
        place: (&str, u32, &str),
    ) -> Result<InstanceKey, Failure> {
        let key = self.key(client, service, place)?;
        if client.view(&key).is_some_and(|view| !is_of(&view, service)) {
            client.check_deregistration(&key)?;
        } else {
            client.deregister(&key).await?;
        }
        Ok(key)
    }

    /// Changes an instance that a client of Nacos registered.
    pub(crate) async fn change(
        &self,
        client: &AdapterClient,
        service: &ServiceId,
        place: (&str, u32, &str),
        change: impl Fn(&mut Given),
    ) -> Result<(), Failure> {
        let key = self.key(client, service, place)?;
        let build = |current: Option<&InstanceView>| {
            let view = current.ok_or_else(|| not_found(&key))?;
            check_service(current, service)?;
            let mut given = Given::of_record(&view.record).ok_or_else(|| of_another_protocol(&key))?;
            change(&mut given);
            given.registration(service, &key.service, &self.settings)
        };
        client.write(&key, build).await.map(|_| ())
    }

    /// Renews a lease, or registers the instance that is given if there is none. Returns false if the client
    /// has to register.
    pub(crate) async fn beat(
        &self,
        client: &AdapterClient,
        service: &ServiceId,
        place: (&str, u32, &str),
        given: Option<&Given>,
    ) -> Result<bool, Failure> {
        let key = self.key(client, service, place)?;
        let view = client.view(&key);
        if view.as_ref().is_some_and(|view| !is_of(view, service)) {
            client.check_registration(&key)?;
            return Ok(false);
        }
        match (client.renew(&key).await, given) {
            (Ok(()), _) => Ok(true),
            (Err(failure), _) if failure.http_status() != 404 => Err(failure),
            (Err(_), Some(given)) if view.is_none() => {
                self.register(client, service, given).await.map(|_| true)
            }
            (Err(_), _) => Ok(false),
        }
    }

    /// Returns the instances of a service for a client that may read it.
    pub(crate) fn instances(
        &self,
        client: &AdapterClient,
        service: &ServiceId,
        wanted: &Wanted,
    ) -> Result<ServiceInfo, Failure> {
        client.check_ready()?;
        let key = service.key(&self.settings)?;
        let any = client.key(&key.namespace, &key.service, "any")?;
        client.get(&any)?;
        Ok(self.info(service, wanted))
    }

    /// Returns the enabled instances of a service.
    pub(crate) fn info(&self, service: &ServiceId, wanted: &Wanted) -> ServiceInfo {
        let views = service.key(&self.settings).map(|key| self.registrar.service(&key)).unwrap_or_default();
        let text = service.to_string();
        let is_own = |view: &&InstanceView| service_of(&view.record).is_none_or(|known| **known == *text);
        let clusters: Vec<&str> =
            wanted.clusters.split(',').map(str::trim).filter(|text| !text.is_empty()).collect();
        let hosts = views.iter().filter(is_own).filter_map(|view| host(view, service)).filter(|host| {
            let is_chosen = clusters.is_empty() || clusters.contains(&&*host.cluster_name);
            host.enabled && is_chosen && (host.healthy || !wanted.healthy_only)
        });
        ServiceInfo {
            name: service.name.to_string(),
            group_name: service.scope.group.to_string(),
            hosts: hosts.collect(),
            last_ref_time: self.time(),
            clusters: wanted.clusters.clone(),
            cache_millis: CACHE_MILLIS,
            valid: true,
            ..ServiceInfo::default()
        }
    }

    /// Returns a page of the names of services.
    pub(crate) fn services(
        &self,
        client: &AdapterClient,
        scope: &Scope,
        page: usize,
        size: usize,
    ) -> Result<Page, Failure> {
        client.check_ready()?;
        let mut catalog = self.catalog.lock();
        catalog.refresh();
        Ok(catalog.page(scope, page, size.min(MAX_PAGE), |key| client.may_read(key)))
    }

    /// Returns the present time in milliseconds, never less than before.
    fn time(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        self.answered.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

/// Two services of Nacos whose hosts are one must not take each other's instances.
fn check_service(current: Option<&InstanceView>, service: &ServiceId) -> Result<(), Failure> {
    let known = current.and_then(|view| service_of(&view.record));
    match known.filter(|known| ***known != *service.to_string()) {
        None => Ok(()),
        Some(known) => {
            Err(Failure::invalid(format!("{service} has the host of {known}, which has this instance")))
        }
    }
}

/// False for an instance of another service of Nacos that has the same host.
pub(crate) fn is_of(view: &InstanceView, service: &ServiceId) -> bool {
    service_of(&view.record).is_none_or(|known| **known == *service.to_string())
}

pub(crate) fn not_found(key: &InstanceKey) -> Failure {
    Failure::not_found(format!("no matched ip found: {key} is not registered"))
}

/// A change would drop what Nacos has no form for.
fn of_another_protocol(key: &InstanceKey) -> Failure {
    Failure::invalid(format!("{key} was registered by another protocol, and is changed by that only"))
}
