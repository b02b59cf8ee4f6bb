//! Subsystem of auto-registration.

use super::sources::Sources;
use super::subsystem::{StopOrder, Subsystem};
use crate::settings::Settings;
use pilotfish_control_plane::control::{Follower, Shared};
use pilotfish_control_plane::resources::ProxyRegistrar;
use pilotfish_kube_writer::auto_registration::{
    EntryObserver, RegistrationSettings, Registrations, WorldNow, registrations,
};
use pilotfish_kube_writer::lease;
use std::sync::Arc;

/// Auto-registration that is ready to run.
pub(crate) struct AutoRegistration {
    registrar: Arc<ProxyRegistrar>,
    entries: Registrations,
}

impl AutoRegistration {
    /// Opens auto-registration; `None` if no cluster is read, or writing WorkloadEntries is disabled.
    pub(crate) fn open(
        settings: &Settings,
        sources: &Sources,
        shared: &Arc<Shared>,
        observer: Arc<dyn EntryObserver>,
    ) -> Option<Self> {
        let ((client, _), wanted) = sources.clients().zip(settings.auto_registration)?;
        let shared = shared.clone();
        let world: WorldNow = Arc::new(move || shared.world());
        let settings = RegistrationSettings {
            replica: lease::identity(),
            features: wanted.wanted,
            grace: wanted.grace_period,
            observer,
        };
        let (registrar, entries) = registrations(client, settings, world.clone());
        Some(Self { registrar: Arc::new(ProxyRegistrar::new(registrar, world)), entries })
    }

    /// Returns the registrar for connecting proxies.
    pub(crate) fn registrar(&self) -> Arc<ProxyRegistrar> {
        self.registrar.clone()
    }

    /// Returns the subsystem that writes entries. It runs until all streams have ended, so that the
    /// disconnections are written, too.
    pub(crate) fn subsystem(self, shared: &Arc<Shared>) -> Subsystem {
        let (registrar, entries, follower) = (self.registrar, self.entries, shared.follow());
        Subsystem::new("writing WorkloadEntries", StopOrder::AfterStreams)
            .task(|stop| async move {
                entries.run(stop.requested()).await;
                Ok(())
            })
            .task(|stop| async move {
                tokio::select! {
                    () = follow(&registrar, follower) => {}
                    () = stop.requested() => {}
                }
                Ok(())
            })
    }
}

/// Updates entries as worlds change. Does not return.
async fn follow(registrar: &ProxyRegistrar, mut follower: Follower) {
    loop {
        let (world, changes) = follower.next().await;
        registrar.published(&world, &changes);
    }
}
