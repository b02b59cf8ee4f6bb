//! Registration of services by their clients: the store, the registrar, its listener, and the live registry.
//!
//! ```text
//! clients ─▶ RegistrationServer ─▶ Registrar ─▶ Store ─ events ─▶ Registrar ─▶ registry ─▶ control loop
//! ```

mod mesh;

use self::mesh::PublishedMesh;
use super::descriptors;
use super::registries::Registries;
use super::subsystem::{StopOrder, Subsystem, with_flag};
use super::tls::{self, Files, Reload};
use crate::settings::{RegistrationSettings, Settings, StoreSettings};
use anyhow::{Context, Result};
use pilotfish_admin::Metrics;
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::trust_domain;
use pilotfish_identity::Tls;
use pilotfish_registration::{Registrar, RegistrarDriver, RegistrarSettings, Store, StoreEvents};
use pilotfish_registration_checks::{
    CheckFeed, CheckHandle, CheckRunner, CheckSettings, checks, report_checks,
};
use pilotfish_registration_etcd::{EtcdStore, EtcdStoreSettings};
use pilotfish_registration_redb::{OpenStore, RedbStore};
use pilotfish_registration_server::{
    AccessFiles, Bound, RegistrationServer, ServerError, ServerLimits, ServerSettings,
};
use pilotfish_registration_source::{TrustDomain, source};
use pilotfish_registry::REGISTRATION;
use std::net::SocketAddr;
use std::sync::Arc;

/// Registration with its bound address and open store that does not serve yet.
pub(super) struct Registration {
    bound: Bound,
    registrar: Registrar,
    driver: RegistrarDriver,
    checks: (CheckHandle, CheckRunner),
    reload: Option<Reload>,
}

impl Registration {
    /// Opens the store and binds the address; `None` if registration is disabled.
    ///
    /// # Errors
    /// When the store cannot be opened, a file cannot be used, or the address is taken.
    pub(super) async fn open(
        settings: &Settings,
        registries: &mut Registries,
        shared: &Arc<Shared>,
        recorder: &Arc<PrometheusRecorder>,
    ) -> Result<Option<Self>> {
        let Some(own) = &settings.registration else { return Ok(None) };
        let (store, events) = open_store(&own.store).await?;
        let liveness = RegistrarSettings { liveness: own.liveness, ..RegistrarSettings::default() };
        let (registrar, driver) = Registrar::new(store, events, liveness);
        let domain = settings.registries.settings.domain.clone();
        registries.add(&settings.registries, REGISTRATION.name, |shard| {
            source(registrar.clone(), trust_domain_of(shared), domain.clone(), shard)
        })?;
        let (tls, reload) = tls_of(own, recorder.metrics())?.unzip();
        let limits = ServerLimits::default();
        // One of three ports beside both of xDS: registering clients must not use up the open files of
        // proxies.
        let connections = descriptors::connections(None, limits.connections, 3);
        let limits = ServerLimits {
            connections,
            address_connections: limits.address_connections.min((connections / 4).max(1)),
            ..limits
        };
        let server = ServerSettings {
            tls,
            limits,
            allow_plaintext: own.plaintext,
            access: AccessFiles { tokens: own.tokens.clone(), rules: own.rules.clone() },
            domain: domain.to_string(),
            mesh: Arc::new(PublishedMesh(shared.clone())),
            version: super::VERSION.to_owned(),
            ..ServerSettings::new(own.address)
        };
        let server = RegistrationServer::new(registrar.clone(), server, recorder.clone());
        let bound = server.bind().map_err(bind_error)?;
        let checks =
            checks(CheckSettings { networks: own.check_networks.clone(), ..CheckSettings::default() });
        Ok(Some(Self { bound, registrar, driver, checks, reload }))
    }

    /// Returns the bound address.
    pub(super) fn address(&self) -> SocketAddr {
        self.bound.local_addr()
    }

    /// Returns the registrar, for the admin API.
    pub(super) fn registrar(&self) -> Registrar {
        self.registrar.clone()
    }

    /// Returns the subsystems of registration.
    pub(super) fn subsystems(self) -> impl Iterator<Item = Subsystem> {
        let Self { bound, registrar, driver, checks: (handle, runner), reload } = self;
        let server = Subsystem::new("the registration server", StopOrder::First).task(|stop| async {
            bound.run(stop.requested()).await;
            Ok(())
        });
        // The driver runs until all registrars are dropped.
        let follower = Subsystem::new("the registrar", StopOrder::Abort).task(|_| async {
            driver.run().await;
            Ok(())
        });
        let feed = CheckFeed::new(registrar.clone(), handle);
        let checks = Subsystem::new("checks of registered instances", StopOrder::Abort)
            .task(|_| async {
                feed.run().await;
                Ok(())
            })
            .task(|_| async move {
                report_checks(runner, registrar).await;
                Ok(())
            });
        [server, follower, checks].into_iter().chain(reload.map(Reload::subsystem))
    }
}

/// Returns the present trust domain of the newest published world.
fn trust_domain_of(shared: &Arc<Shared>) -> TrustDomain {
    let shared = shared.clone();
    Arc::new(move || trust_domain(&shared.world()).into())
}

async fn open_store(settings: &StoreSettings) -> Result<(Arc<dyn Store>, StoreEvents)> {
    match settings {
        StoreSettings::File(folder) => {
            let folder = folder.clone();
            // Opening reads the whole file, which blocks.
            let opened = tokio::task::spawn_blocking(move || RedbStore::open(&folder)).await?;
            let OpenStore { store, events } = opened.context("--data-dir")?;
            Ok((Arc::new(store), events))
        }
        StoreSettings::Etcd(text) => {
            let settings = EtcdStoreSettings::parse(text).context("--registration-store")?;
            let (store, events) = EtcdStore::open(settings);
            Ok((Arc::new(store), events))
        }
    }
}

/// Names the flag of the address where the address is at fault; other errors name their file.
fn bind_error(error: ServerError) -> anyhow::Error {
    match &error {
        ServerError::Bind { .. } | ServerError::Plaintext { .. } => {
            with_flag(error, "--registration-address")
        }
        ServerError::Access(_) | ServerError::Reflection(_) => error.into(),
    }
}

fn tls_of(settings: &RegistrationSettings, metrics: &Arc<Metrics>) -> Result<Option<(Arc<Tls>, Reload)>> {
    let Some(own) = &settings.tls else { return Ok(None) };
    let files = Files::of(&own.certificate, &own.authorities);
    let refused = metrics.registration_api.files_refused.clone();
    tls::of_files("registration", files, None, pilotfish_registration_server::ALPN, refused).map(Some)
}
