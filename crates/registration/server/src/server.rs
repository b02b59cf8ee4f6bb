//! The listener: bound first, run later.

use crate::access::{Access, AccessError, Surroundings};
use crate::adapter::Adapter;
use crate::answer::{Requests, handler};
use crate::api::{Api, closed};
use crate::connection;
use crate::grpc::Grpc;
use crate::limits::{Limit, ServerLimits, of_addresses};
use crate::recorder::Recorder;
use crate::settings::ServerSettings;
use pilotfish_access::TokenAuthenticator;
use pilotfish_admission::{
    HalfOpen, KeyedSemaphore, LogLimit, RefusalLimit, TokenBucket, TokenBuckets, network_of,
};
use pilotfish_identity::{Authentication, Authenticator, TlsContext};
use pilotfish_registration::Registrar;
use pilotfish_registration_api::v1::registration_service_server::RegistrationServiceServer;
use pilotfish_registration_api::{DESCRIPTORS, Routes, SERVICE, openapi, page};
use pilotfish_runtime::FileReader;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// ALPN protocols that a [`Tls`](pilotfish_identity::Tls) of this server must offer.
pub const ALPN: &[&str] = &["h2", "http/1.1"];

/// Error of starting the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is in use or not one of this machine.
    #[error("cannot listen on {address} for registrations")]
    Bind {
        /// The address as configured.
        address: SocketAddr,
        source: io::Error,
    },
    /// Other machines could reach it without TLS.
    #[error(
        "{address} is reached by other machines: registrations need TLS there, or the setting that allows \
         plaintext"
    )]
    Plaintext {
        /// The address as configured.
        address: SocketAddr,
    },
    /// The files of tokens or rules are invalid.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The reflection descriptors are invalid.
    #[error("no gRPC reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A server that is not bound yet.
pub struct RegistrationServer {
    registrar: Registrar,
    settings: ServerSettings,
    recorder: Arc<dyn Recorder>,
    adapter: Option<Arc<dyn Adapter>>,
}

/// A bound server that does not serve yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    requests: Arc<Requests>,
    tls: Option<Arc<TlsContext>>,
    health: HealthReporter,
    close: watch::Sender<bool>,
    reload_interval: Duration,
    addresses: KeyedSemaphore<IpAddr>,
    log: LogLimit,
}

impl RegistrationServer {
    /// A server for this registrar, whose driver runs elsewhere.
    #[must_use]
    pub fn new(registrar: Registrar, settings: ServerSettings, recorder: Arc<dyn Recorder>) -> Self {
        Self { registrar, settings, recorder, adapter: None }
    }

    /// Serves the protocol of another product instead of the API.
    #[must_use]
    pub fn with_adapter(self, adapter: Arc<dyn Adapter>) -> Self {
        Self { adapter: Some(adapter), ..self }
    }

    /// Binds the address and reads tokens and rules.
    ///
    /// # Errors
    /// When the address cannot be bound or requires TLS, or a file is invalid.
    pub fn bind(self) -> Result<Bound, ServerError> {
        let Self { registrar, settings, recorder, adapter } = self;
        let address = settings.address;
        if settings.tls.is_none() && !address.ip().is_loopback() && !settings.allow_plaintext {
            return Err(ServerError::Plaintext { address });
        }
        let is_loopback = address.ip().is_loopback();
        let around = Surroundings { mesh: settings.mesh, domain: settings.domain, is_loopback };
        let access = Arc::new(Access::load(settings.access, around)?);
        let anonymous = settings.tls.is_none() && settings.authenticators.is_empty() && !access.has_tokens();
        let mut authenticators: Vec<Arc<dyn Authenticator>> = Vec::new();
        if access.has_tokens() {
            let access = Arc::clone(&access);
            authenticators.push(Arc::new(TokenAuthenticator(move |digest: &_| access.identity(digest))));
        }
        authenticators.extend(settings.authenticators);
        let limits = settings.limits;
        let authentication =
            || Authentication::new("registration", authenticators, limits.authentication_timeout);
        let (tls, authentication) = match settings.tls {
            Some(tls) => {
                let tls = Arc::new(TlsContext::new(tls, authentication()));
                let authentication = Arc::clone(tls.authentication());
                (Some(tls), authentication)
            }
            None => (None, Arc::new(authentication())),
        };
        let (close, closing) = watch::channel(false);
        let api = Arc::new(Api {
            registrar,
            access,
            limits,
            bookmark_interval: settings.bookmark_interval,
            rate: TokenBuckets::new(TokenBucket::per_second(
                limits.requests_per_second,
                limits.requests_per_second.saturating_mul(2),
            )),
            owner_streams: KeyedSemaphore::new(limits.owner_streams),
            recorder,
            closing,
        });
        let (health, requests) = requests(api, authentication, &settings.version, anonymous, is_loopback)?;
        let requests = Requests { adapter, ..requests };
        let (listener, local) = listen(address).map_err(|source| ServerError::Bind { address, source })?;
        Ok(Bound {
            listener,
            address: local,
            requests: Arc::new(requests),
            tls,
            health,
            close,
            reload_interval: settings.reload_interval,
            addresses: KeyedSemaphore::new(limits.address_connections),
            log: LogLimit::of_limits(),
        })
    }
}

/// Builds the shared state of requests, and the health reporter.
fn requests(
    api: Arc<Api>,
    authentication: Arc<Authentication>,
    version: &str,
    anonymous: bool,
    is_loopback: bool,
) -> Result<(HealthReporter, Requests), ServerError> {
    let limits = api.limits;
    let (health, services) = services()?;
    let routes = Routes::new();
    let registration = RegistrationServiceServer::new(Grpc(Arc::clone(&api)));
    let requests = Requests {
        openapi: openapi(&routes, version).to_string().into(),
        page: page(&routes).into(),
        routes,
        registration: registration.max_decoding_message_size(limits.request_bytes),
        services,
        authentication,
        refusals: RefusalLimit::new(
            limits.refusals_per_second,
            limits.refusals_per_second.saturating_mul(10),
        ),
        budgets: of_addresses(&limits),
        unused: HalfOpen::new(limits.unused_connections),
        anonymous,
        is_loopback,
        adapter: None,
        api,
    };
    Ok((health, requests))
}

type Services = Vec<(String, crate::answer::Handler)>;

/// Builds the health and reflection services.
fn services() -> Result<(HealthReporter, Services), ServerError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let services = vec![handler(health), handler(builder().build_v1()?), handler(builder().build_v1alpha()?)];
    Ok((reporter, services))
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(4096)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Bound {
    /// The bound address, with the assigned port in place of 0.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` resolves, then drains: no new connections, streams end with `UNAVAILABLE`, and
    /// requests still open after [`ServerLimits::drain_timeout`] are cut off.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let limits = self.requests.api.limits;
        let mut connections = JoinSet::new();
        let mut background = JoinSet::new();
        background.spawn(reload(Arc::clone(&self.requests.api), self.reload_interval));
        if let Some(adapter) = self.requests.adapter.clone() {
            background.spawn(refresh(Arc::clone(&adapter)));
            background.spawn(async move { adapter.run().await });
        }
        background.spawn(report_ready(self.requests.api.registrar.clone(), self.health.clone()));
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a connection's task ended early");
                    }
                }
                accepted = self.listener.accept() => match accepted {
                    Ok((io, peer)) => self.admit(&mut connections, &limits, io, peer),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a registration connection");
                        // Usually the process is out of file descriptors: other connections must end first.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(self.listener);
        for service in ["", SERVICE] {
            self.health.set_service_status(service, ServingStatus::NotServing).await;
        }
        self.close.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain_timeout, all).await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "closing registration connections that are still open after the drain timeout"
            );
        }
        connections.shutdown().await;
        background.shutdown().await;
    }

    fn admit(&self, connections: &mut JoinSet<()>, limits: &ServerLimits, io: TcpStream, peer: SocketAddr) {
        let recorder = &self.requests.api.recorder;
        let slot = self.addresses.try_acquire(network_of(peer.ip()));
        let exceeded = match &slot {
            _ if connections.len() >= limits.connections => Limit::Connections,
            None => Limit::AddressConnections,
            Some(_) => {
                let (requests, tls) = (Arc::clone(&self.requests), self.tls.clone());
                let open = OpenConnection::new(recorder);
                connections.spawn(async move {
                    connection::serve(requests, tls, io, peer).await;
                    drop((slot, open));
                });
                return;
            }
        };
        recorder.limit_exceeded(exceeded.as_str());
        if let Some(left_out) = self.log.allow(Instant::now()) {
            tracing::warn!(
                %peer,
                limit = exceeded.as_str(),
                left_out,
                "closing a registration connection: limit reached"
            );
        }
    }
}

/// An open connection in the metrics, until it is dropped.
struct OpenConnection(Arc<dyn Recorder>);

impl OpenConnection {
    fn new(recorder: &Arc<dyn Recorder>) -> Self {
        recorder.connected();
        Self(Arc::clone(recorder))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

/// Refreshes an adapter every second.
async fn refresh(adapter: Arc<dyn Adapter>) {
    let mut every = tokio::time::interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        adapter.refresh();
    }
}

/// Reads tokens and rules again when they change, until shutdown.
async fn reload(api: Arc<Api>, interval: Duration) {
    if !api.access.has_files() {
        return;
    }
    let mut closing = api.closing.clone();
    let (mut is_broken, reader) = (false, FileReader::default());
    loop {
        tokio::select! {
            () = closed(&mut closing) => return,
            () = tokio::time::sleep(interval) => {}
        }
        let access = Arc::clone(&api.access);
        let reloaded = reader.run(move || access.reload()).await.unwrap_or_else(|error| Err(error.into()));
        match reloaded {
            Ok(changed) if changed || is_broken => {
                tracing::info!("reloaded the registration tokens and rules");
                api.recorder.access_reloaded(true);
                is_broken = false;
            }
            Err(error) if !is_broken => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    error,
                    "cannot reload the registration tokens and rules; the previous ones stay in force"
                );
                api.recorder.access_reloaded(false);
                is_broken = true;
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Reports in gRPC health once the store was read.
async fn report_ready(registrar: Registrar, health: HealthReporter) {
    for service in ["", SERVICE] {
        health.set_service_status(service, ServingStatus::NotServing).await;
    }
    if registrar.ready().await {
        for service in ["", SERVICE] {
            health.set_service_status(service, ServingStatus::Serving).await;
        }
    }
}
