//! The client: one for a process, for all its instances.

use crate::connection::{ClientOptions, Servers};
use crate::registration::Registration;
use crate::watch::Watch;
use crate::{DEFAULT_TTL, Error};
use pilotfish_registration_api::v1::{
    DeregisterRequest, Instance, ListInstancesRequest, Record, RegisterRequest, RenewRequest,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UdpSocket, lookup_host};

/// Client of Pilotfish's registration API. Clones share one connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) servers: Arc<Servers>,
}

impl Client {
    /// A client, which connects at its first call.
    ///
    /// # Errors
    /// [`Error::Options`] if there is no server, or an invalid one.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        Ok(Self { servers: Arc::new(Servers::new(options)?) })
    }

    /// Reads the token and the certificates once, as each connection does, so that a wrong path is reported
    /// before anything starts.
    ///
    /// # Errors
    /// [`Error::Options`] with the file that cannot be used.
    pub async fn check_files(&self) -> Result<(), Error> {
        self.servers.check_files().await
    }

    /// Registers an instance, and keeps it registered as long as the [`Registration`] lives. One without a
    /// TTL gets [`DEFAULT_TTL`].
    ///
    /// # Errors
    /// When the server refuses the instance or none answers. [`Client::keep_registered`] retries instead.
    pub async fn register(&self, instance: Instance) -> Result<Registration, Error> {
        let instance = with_lease(instance);
        let registered = self.register_once(&instance).await?;
        Ok(Registration::start(self.clone(), instance, Some(registered)))
    }

    /// Like [`Client::register`], but returns at once and retries until it succeeds; [`Registration::state`]
    /// shows the progress.
    #[must_use]
    pub fn keep_registered(&self, instance: Instance) -> Registration {
        Registration::start(self.clone(), with_lease(instance), None)
    }

    /// Returns all instances of a service; of the namespace if `service` is empty; of all namespaces if both
    /// are empty.
    ///
    /// # Errors
    /// When the server refuses, or none answers.
    pub async fn instances(&self, namespace: &str, service: &str) -> Result<Vec<Record>, Error> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListInstancesRequest {
                namespace: namespace.to_owned(),
                service: service.to_owned(),
                page_size: 1_000,
                page_token,
            };
            let page = self
                .servers
                .call(async |mut stub| Ok(stub.list_instances(request.clone()).await?.into_inner()));
            let page = page.await?;
            all.extend(page.records);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            page_token = page.next_page_token;
        }
    }

    /// Watches the instances of a service; of the namespace if `service` is empty; of all namespaces if both
    /// are empty.
    #[must_use]
    pub fn watch(&self, namespace: &str, service: &str) -> Watch {
        Watch::new(self.clone(), namespace.to_owned(), service.to_owned())
    }

    /// Returns the local address on the route to the server in use, for registering services of this machine.
    ///
    /// # Errors
    /// When the server's name cannot be resolved, or there is no route to it.
    pub async fn own_address(&self) -> Result<IpAddr, Error> {
        let fail = |error: std::io::Error| Error::Unavailable(format!("finding our own address: {error}"));
        let Some((host, port)) = self.servers.current() else {
            return Err(Error::Options("no server was named".to_owned()));
        };
        let server = lookup_host((host.as_str(), port)).await.map_err(fail)?.next();
        let Some(server) = server else { return Err(Error::Unavailable(format!("{host} has no address"))) };
        let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        // Connecting a UDP socket sends nothing; it only selects the route.
        let socket = UdpSocket::bind(any).await.map_err(fail)?;
        socket.connect(server).await.map_err(fail)?;
        Ok(socket.local_addr().map_err(fail)?.ip())
    }

    pub(crate) async fn register_once(&self, instance: &Instance) -> Result<Registered, Error> {
        let answer = self.servers.call(async |mut stub| {
            let request = RegisterRequest { instance: Some(instance.clone()), expected_revision: None };
            Ok(stub.register(request).await?.into_inner())
        });
        let answer = answer.await?;
        let ttl = answer.ttl.and_then(|ttl| Duration::try_from(ttl).ok()).filter(|ttl| !ttl.is_zero());
        Ok(Registered { revision: answer.revision, ttl: ttl.unwrap_or(DEFAULT_TTL) })
    }

    pub(crate) async fn renew_once(&self, instance: &Instance) -> Result<(), Error> {
        let renewed = self.servers.call(async |mut stub| {
            let request = RenewRequest {
                namespace: instance.namespace.clone(),
                service: instance.service.clone(),
                id: instance.id.clone(),
            };
            stub.renew(request).await.map(drop)
        });
        renewed.await
    }

    pub(crate) async fn deregister_once(
        &self,
        instance: &Instance,
        drain: Option<Duration>,
    ) -> Result<Duration, Error> {
        let drain = drain.map(prost_duration).transpose()?;
        let answer = self.servers.call(async |mut stub| {
            let request = DeregisterRequest {
                namespace: instance.namespace.clone(),
                service: instance.service.clone(),
                id: instance.id.clone(),
                expected_revision: None,
                drain,
            };
            Ok(stub.deregister(request).await?.into_inner())
        });
        let drain = answer.await?.drain;
        Ok(drain.and_then(|drain| Duration::try_from(drain).ok()).unwrap_or_default())
    }
}

/// A server's response to a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) revision: u64,
    pub(crate) ttl: Duration,
}

fn with_lease(mut instance: Instance) -> Instance {
    instance
        .ttl
        .get_or_insert(prost_types::Duration { seconds: DEFAULT_TTL.as_secs().cast_signed(), nanos: 0 });
    instance
}

fn prost_duration(duration: Duration) -> Result<prost_types::Duration, Error> {
    duration.try_into().map_err(|_| Error::Options(format!("{duration:?} is too long")))
}
