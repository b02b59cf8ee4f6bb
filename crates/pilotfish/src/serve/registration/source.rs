//! The registry `registration`: what is registered with this process, as a live source.

use super::mapping::Mapping;
use crate::control::shared::Shared;
use crate::serve::tls::trust_domain;
use pilotfish_model::ShardKey;
use pilotfish_registration::{Registrar, ServiceKey, ServicesChanged, check_host};
use pilotfish_registry::{CatalogOptions, CatalogService, GuardSettings, LiveSource};
use pilotfish_registry_client::{CatalogWriter, Product, SessionError, live};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often trouble of the store and the mesh's trust domain are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What is registered, for the world.
struct Registered {
    registrar: Registrar,
    shared: Arc<Shared>,
    domain: Arc<str>,
}

/// The source of the shard. Nothing of it is guarded against mass change: what is gone was deregistered or has expired, and
/// the registrar itself does not believe leases that lapse together.
pub(super) fn source(
    registrar: Registrar,
    shared: Arc<Shared>,
    domain: Arc<str>,
    shard: ShardKey,
) -> Box<dyn LiveSource> {
    let options = CatalogOptions { guard: GuardSettings::off(), ..CatalogOptions::default() };
    live(Registered { registrar, shared, domain }, shard, options)
}

impl Registered {
    fn mapping(&self) -> Mapping {
        let trust_domain = trust_domain(&self.shared.world()).into();
        Mapping { domain: self.domain.clone(), trust_domain }
    }

    fn service(&self, mapping: &Mapping, key: &ServiceKey) -> Option<CatalogService> {
        // An earlier version, or another one on the same store, accepted names that are another service's.
        if let Err(reason) = check_host(key, &self.domain) {
            tracing::debug!(service = %key, reason, "a registered service is not served");
            return None;
        }
        let instances = self.registrar.service(key);
        (!instances.is_empty()).then(|| mapping.service(key, &instances))
    }

    fn tell(&self, mapping: &Mapping, changed: &ServicesChanged, catalog: &mut CatalogWriter) {
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
    /// Ends only with the process: a store that cannot be reached is trouble of the session.
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let mut changes = self.registrar.service_changes();
        let mut mapping = self.mapping();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let changed = tokio::select! {
                changed = changes.next() => changed,
                _ = look.tick() => match self.look(&mut mapping, catalog) {
                    Some(changed) => changed,
                    None => continue,
                },
            };
            self.tell(&mapping, &changed, catalog);
        }
    }
}

impl Registered {
    /// Reports trouble of the store. What it has is told anew when identities have another trust domain.
    fn look(&self, mapping: &mut Mapping, catalog: &mut CatalogWriter) -> Option<ServicesChanged> {
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
