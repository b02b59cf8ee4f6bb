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
use crate::settings::{
    ConsulListener, EurekaListener, NacosListener, RegistrationSettings, Settings, StoreSettings,
};
use anyhow::{Context, Result};
use pilotfish_admin::Metrics;
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_consul_api::ConsulApi;
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::trust_domain;
use pilotfish_eureka_api::EurekaApi;
use pilotfish_identity::{Authenticator, Tls};
use pilotfish_nacos_api::{GRPC_OFFSET, NacosApi};
use pilotfish_registration::{Registrar, RegistrarDriver, RegistrarSettings, Store, StoreEvents};
use pilotfish_registration_checks::{
    CheckFeed, CheckHandle, CheckRunner, CheckSettings, checks, report_checks,
};
use pilotfish_registration_etcd::{EtcdStore, EtcdStoreSettings};
use pilotfish_registration_redb::{OpenStore, RedbStore};
use pilotfish_registration_server::{
    AccessFiles, Adapter, Bound, RegistrationServer, ServerError, ServerLimits, ServerSettings,
};
use pilotfish_registration_source::{TrustDomain, source};
use pilotfish_registry::REGISTRATION;
use std::net::SocketAddr;
use std::sync::Arc;

/// The listeners for clients of Nacos.
struct Nacos {
    http: Bound,
    grpc: Bound,
    api: NacosApi,
}

/// Registration with its bound address and open store that does not serve yet.
pub(super) struct Registration {
    bound: Bound,
    /// Listener for clients of Consul.
    consul: Option<Bound>,
    /// Listener for clients of Eureka.
    eureka: Option<Bound>,
    nacos: Option<Nacos>,
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
        jwt: &[Arc<dyn Authenticator>],
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
        let listeners = 1
            + usize::from(settings.consul.is_some())
            + usize::from(settings.eureka.is_some())
            + 2 * usize::from(settings.nacos.is_some());
        let limits = limits_of(listeners);
        let server = |address: SocketAddr, allow_plaintext: bool| ServerSettings {
            tls: tls.clone(),
            limits,
            allow_plaintext,
            access: AccessFiles { tokens: own.tokens.clone(), rules: own.rules.clone() },
            domain: domain.to_string(),
            mesh: Arc::new(PublishedMesh(shared.clone())),
            version: super::VERSION.to_owned(),
            authenticators: jwt.to_vec(),
            ..ServerSettings::new(address)
        };
        let bound =
            RegistrationServer::new(registrar.clone(), server(own.address, own.plaintext), recorder.clone());
        let bound = bound.bind().map_err(|error| bind_error(error, "--registration-address"))?;
        let adapted = |settings: ServerSettings, api: Arc<dyn Adapter>, flag: &'static str| {
            let server = RegistrationServer::new(registrar.clone(), settings, recorder.clone());
            server.with_adapter(api).bind().map_err(|error| bind_error(error, flag))
        };
        let consul = settings.consul.as_ref().map(|ConsulListener { address, plaintext, mapping }| {
            let api = Arc::new(ConsulApi::new(registrar.clone(), mapping.clone()));
            adapted(server(*address, *plaintext), api, "--consul-address")
        });
        let eureka = settings.eureka.as_ref().map(|EurekaListener { address, plaintext, mapping }| {
            let api = Arc::new(EurekaApi::new(registrar.clone(), mapping.clone()));
            adapted(server(*address, *plaintext), api, "--eureka-address")
        });
        let nacos = settings.nacos.as_ref().map(|NacosListener { address, plaintext, mapping }| {
            let api = NacosApi::new(registrar.clone(), mapping.clone());
            let bind = |address: SocketAddr| {
                adapted(server(address, *plaintext), Arc::new(api.clone()), "--nacos-address")
            };
            let http = bind(*address)?;
            let grpc = bind(above(http.local_addr())?)?;
            Ok::<_, anyhow::Error>(Nacos { http, grpc, api })
        });
        let (consul, eureka, nacos) = (consul.transpose()?, eureka.transpose()?, nacos.transpose()?);
        let checks =
            checks(CheckSettings { networks: own.check_networks.clone(), ..CheckSettings::default() });
        Ok(Some(Self { bound, consul, eureka, nacos, registrar, driver, checks, reload }))
    }

    /// Returns the bound address.
    pub(super) fn address(&self) -> SocketAddr {
        self.bound.local_addr()
    }

    /// Returns the bound address for clients of Consul.
    pub(super) fn consul_address(&self) -> Option<SocketAddr> {
        self.consul.as_ref().map(Bound::local_addr)
    }

    /// Returns the bound address for clients of Eureka.
    pub(super) fn eureka_address(&self) -> Option<SocketAddr> {
        self.eureka.as_ref().map(Bound::local_addr)
    }

    /// Returns the bound address for HTTP of clients of Nacos.
    pub(super) fn nacos_address(&self) -> Option<SocketAddr> {
        self.nacos.as_ref().map(|nacos| nacos.http.local_addr())
    }

    /// Returns the registrar, for the admin API.
    pub(super) fn registrar(&self) -> Registrar {
        self.registrar.clone()
    }

    /// Returns the subsystems of registration.
    pub(super) fn subsystems(self) -> impl Iterator<Item = Subsystem> {
        let Self { bound, consul, eureka, nacos, registrar, driver, checks: (handle, runner), reload } = self;
        let server = Subsystem::new("the registration server", StopOrder::First).task(|stop| async {
            bound.run(stop.requested()).await;
            Ok(())
        });
        let adapted = |bound: Bound, name: &'static str| {
            Subsystem::new(name, StopOrder::First).task(|stop| async {
                bound.run(stop.requested()).await;
                Ok(())
            })
        };
        let consul = consul.map(|bound| adapted(bound, "the server of clients of Consul"));
        let eureka = eureka.map(|bound| adapted(bound, "the server of clients of Eureka"));
        let nacos = nacos.map(Nacos::subsystem);
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
        let adapters = [consul, eureka, nacos].into_iter().flatten();
        [server, follower, checks].into_iter().chain(adapters).chain(reload.map(Reload::subsystem))
    }
}

impl Nacos {
    fn subsystem(self) -> Subsystem {
        let Self { http, grpc, api } = self;
        Subsystem::new("the server of clients of Nacos", StopOrder::First)
            .task(|stop| async move {
                http.run(stop.requested()).await;
                Ok(())
            })
            .task(|stop| async move {
                // Renewals continue until connections are drained.
                tokio::select! {
                    () = grpc.run(stop.requested()) => {}
                    () = api.run() => {}
                }
                Ok(())
            })
    }
}

/// Returns the address for gRPC of clients of Nacos.
fn above(http: SocketAddr) -> Result<SocketAddr> {
    let port = http.port().checked_add(GRPC_OFFSET);
    let port =
        port.with_context(|| format!("--nacos-address: {http} has no port above it by {GRPC_OFFSET}"))?;
    Ok(SocketAddr::new(http.ip(), port))
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

/// Returns the limits of each of these listeners. Together they have the open files of one of three ports,
/// beside both of xDS: registering clients must not use up those of proxies.
fn limits_of(listeners: usize) -> ServerLimits {
    let limits = ServerLimits::default();
    let connections = (descriptors::connections(None, limits.connections, 3) / listeners).max(1);
    let address_connections = limits.address_connections.min((connections / 4).max(1));
    ServerLimits { connections, address_connections, ..limits }
}

/// Names the flag of the address where the address is at fault; other errors name their file.
fn bind_error(error: ServerError, flag: &'static str) -> anyhow::Error {
    match &error {
        ServerError::Bind { .. } | ServerError::Plaintext { .. } => with_flag(error, flag),
        ServerError::Access(_) | ServerError::Reflection(_) => error.into(),
    }
}

fn tls_of(settings: &RegistrationSettings, metrics: &Arc<Metrics>) -> Result<Option<(Arc<Tls>, Reload)>> {
    let Some(own) = &settings.tls else { return Ok(None) };
    let files = Files::of(&own.certificate, &own.authorities);
    let refused = metrics.registration_api.files_refused.clone();
    tls::of_files("registration", files, None, pilotfish_registration_server::ALPN, refused).map(Some)
}
