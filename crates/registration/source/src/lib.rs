//! Live source of the registry `registration`: services registered with this process.

mod mapping;

use mapping::Mapping;
use pilotfish_model::ShardKey;
use pilotfish_registration::{Registrar, ServiceKey, ServicesChanged, check_host};
use pilotfish_registry::{CatalogOptions, CatalogService, GuardSettings, LiveSource};
use pilotfish_session::{CatalogWriter, Product, SessionError, live};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Polling interval for failures of the store and the mesh's trust domain.
const POLL: Duration = Duration::from_secs(1);

/// Function that returns the present trust domain of the mesh, for identities.
pub type TrustDomain = Arc<dyn Fn() -> Arc<str> + Send + Sync>;

/// Live source of registered services.
struct Registered {
    registrar: Registrar,
    trust_domain: TrustDomain,
    domain: Arc<str>,
}

/// Returns the source of the shard; hosts of short names are below `domain`. It has no guard against mass
/// loss: removed instances were deregistered or have expired, and the registrar itself guards against leases
/// that expire together.
#[must_use]
pub fn source(
    registrar: Registrar,
    trust_domain: TrustDomain,
    domain: Arc<str>,
    shard: ShardKey,
) -> Box<dyn LiveSource> {
    let options = CatalogOptions { guard: GuardSettings::off(), ..CatalogOptions::default() };
    live(Registered { registrar, trust_domain, domain }, shard, options)
}

impl Registered {
    fn mapping(&self) -> Mapping {
        Mapping { domain: self.domain.clone(), trust_domain: (self.trust_domain)() }
    }

    fn service(&self, mapping: &Mapping, key: &ServiceKey) -> Option<CatalogService> {
        // Another version on the same store may have accepted names that belong to other services.
        if let Err(reason) = check_host(key, &self.domain) {
            tracing::debug!(service = %key, reason, "a registered service is not served");
            return None;
        }
        let instances = self.registrar.service(key);
        (!instances.is_empty()).then(|| mapping.service(key, &instances))
    }

    fn update(&self, mapping: &Mapping, changed: &ServicesChanged, catalog: &mut CatalogWriter) {
        match changed {
            ServicesChanged::All => {
                let all = self.registrar.services();
                catalog.replace(all.iter().filter_map(|key| self.service(mapping, key)).collect());
            }
            ServicesChanged::Some(keys) => {
                let (mut set, mut removed) = (Vec::new(), Vec::new());
                for key in keys {
                    match self.service(mapping, key) {
                        Some(service) => set.push(service),
                        None => removed.push(key.to_string().into()),
                    }
                }
                catalog.apply(set, removed);
            }
        }
    }
}

impl Product for Registered {
    /// Runs until the process ends. Failures of the store are reported within the session.
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let mut changes = self.registrar.service_changes();
        let mut mapping = self.mapping();
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let changed = tokio::select! {
                changed = changes.next() => changed,
                _ = poll.tick() => match self.poll(&mut mapping, catalog) {
                    Some(changed) => changed,
                    None => continue,
                },
            };
            self.update(&mapping, &changed, catalog);
        }
    }
}

impl Registered {
    /// Reports failures of the store. Returns all services if the trust domain of identities has changed.
    fn poll(&self, mapping: &mut Mapping, catalog: &mut CatalogWriter) -> Option<ServicesChanged> {
        match self.registrar.store().trouble {
            Some(trouble) => catalog.failing(SessionError::new(trouble)),
            None if self.registrar.is_ready() => {
                catalog.recovered();
                catalog.answered();
            }
            None => {}
        }
        let now = self.mapping();
        if now == *mapping || !self.registrar.is_ready() {
            return None;
        }
        *mapping = now;
        Some(ServicesChanged::All)
    }
}
