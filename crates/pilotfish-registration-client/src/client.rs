//! Calls: to the server that answered last, and to the next one where it does not.

use crate::error::ClientError;
use crate::registration::Registration;
use crate::settings::{ClientSettings, Token};
use pilotfish_registration_api::v1;
use pilotfish_registration_api::v1::registration_service_client::RegistrationServiceClient;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status};

/// The stubs.
pub(crate) type Stub = RegistrationServiceClient<Channel>;

/// A client of the registration API. Clones share their connections. Nothing is connected before the first call.
#[derive(Clone, Debug)]
pub struct RegistrationClient(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    servers: Vec<Server>,
    /// The server that is asked first.
    current: AtomicUsize,
    token: Option<Token>,
    timeout: Duration,
}

#[derive(Debug)]
struct Server {
    address: String,
    stub: Stub,
}

impl RegistrationClient {
    /// A client of these servers.
    ///
    /// # Errors
    /// When an address is none, or certificates cannot be used. Whether a server answers is seen at the first call.
    pub fn new(settings: ClientSettings) -> Result<Self, ClientError> {
        if settings.servers.is_empty() {
            return Err(ClientError::Settings("no server is given".to_owned()));
        }
        let servers = settings.servers.iter().map(|address| server(address, &settings));
        let servers = servers.collect::<Result<_, _>>()?;
        let (token, timeout) = (settings.token, settings.timeout);
        Ok(Self(Arc::new(Shared { servers, current: AtomicUsize::new(0), token, timeout })))
    }

    /// Registers an instance and keeps it registered until the [`Registration`] is closed or dropped. Without a `ttl` it gets one of 30 s.
    /// Waits until it is registered once; servers that cannot answer are tried again without end.
    ///
    /// # Errors
    /// When a server says that it may not, or cannot, be registered.
    pub async fn register(&self, instance: v1::Instance) -> Result<Registration, ClientError> {
        Registration::begin(self.clone(), instance).await
    }

    /// What is known of an instance; `None` when it is not registered.
    ///
    /// # Errors
    /// When no server answers, or the client may not read it.
    pub async fn get(&self, key: v1::InstanceKey) -> Result<Option<v1::Record>, ClientError> {
        let v1::InstanceKey { namespace, service, id } = key;
        let request = v1::GetInstanceRequest { namespace, service, id };
        match self.call(request, |mut stub, request| async move { stub.get_instance(request).await }).await {
            Ok(response) => Ok(response.record),
            Err(error) if error.code() == Some(tonic::Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn register_once(
        &self,
        instance: v1::Instance,
    ) -> Result<v1::RegisterResponse, ClientError> {
        let request = v1::RegisterRequest { instance: Some(instance), expected_revision: None };
        self.call(request, |mut stub, request| async move { stub.register(request).await }).await
    }

    pub(crate) async fn renew_once(
        &self,
        request: v1::RenewRequest,
    ) -> Result<v1::RenewResponse, ClientError> {
        self.call(request, |mut stub, request| async move { stub.renew(request).await }).await
    }

    pub(crate) async fn deregister_once(
        &self,
        request: v1::DeregisterRequest,
    ) -> Result<v1::DeregisterResponse, ClientError> {
        self.call(request, |mut stub, request| async move { stub.deregister(request).await }).await
    }

    pub(crate) async fn watch_once(
        &self,
        request: v1::WatchRequest,
    ) -> Result<tonic::Streaming<v1::WatchResponse>, ClientError> {
        self.call(request, |mut stub, request| async move { stub.watch(request).await }).await
    }

    /// The next call goes to the next server.
    pub(crate) fn give_up_server(&self) {
        self.0.current.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks each server once, beginning with the one that answered last.
    async fn call<Q, A, F>(&self, message: Q, ask: impl Fn(Stub, Request<Q>) -> F) -> Result<A, ClientError>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let Shared { servers, current, timeout, .. } = &*self.0;
        let first = current.load(Ordering::Relaxed);
        let mut failed = None;
        for turn in 0..servers.len() {
            let index = first.wrapping_add(turn);
            let Some(server) = servers.get(index % servers.len()) else { continue };
            let mut request = Request::new(message.clone());
            if let Some(token) = self.token().await? {
                request.metadata_mut().insert("authorization", token);
            }
            let answered = tokio::time::timeout(*timeout, ask(server.stub.clone(), request)).await;
            let answered = answered.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
            let error = match answered {
                Ok(response) => {
                    current.store(index, Ordering::Relaxed);
                    return Ok(response.into_inner());
                }
                Err(status) => ClientError::of(&status),
            };
            match error {
                ClientError::Unavailable { message, retry_after } => {
                    let message = format!("{}: {message}", server.address);
                    tracing::debug!(message, "a registration server does not answer");
                    failed = Some(ClientError::Unavailable { message, retry_after });
                }
                said => return Err(said),
            }
        }
        Err(failed.unwrap_or_else(|| ClientError::Settings("no server is given".to_owned())))
    }

    async fn token(&self) -> Result<Option<MetadataValue<Ascii>>, ClientError> {
        let text = match &self.0.token {
            None => return Ok(None),
            Some(Token::Text(text)) => text.clone(),
            Some(Token::File(path)) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || {
                    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
                });
                let read = read.await.map_err(|error| ClientError::Token(error.to_string()))?;
                read.map_err(ClientError::Token)?
            }
        };
        let value = format!("Bearer {}", text.trim()).parse::<MetadataValue<Ascii>>();
        let mut value =
            value.map_err(|_| ClientError::Token("it has characters that no header can carry".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn server(address: &str, settings: &ClientSettings) -> Result<Server, ClientError> {
    let wrong = |error: &dyn std::fmt::Display| ClientError::Settings(format!("{address}: {error}"));
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|error| wrong(&error))?;
    let uri = endpoint.uri().clone();
    let is_tls = match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) => false,
        (Some("https"), Some(_)) => true,
        _ => return Err(wrong(&"it has to be http://HOST:PORT or https://HOST:PORT")),
    };
    let mut endpoint = endpoint
        .connect_timeout(settings.timeout)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true);
    if is_tls {
        let authorities = settings
            .authorities
            .as_ref()
            .ok_or_else(|| wrong(&"https needs the authorities of the server"))?;
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities));
        if let Some((certificate, key)) = &settings.certificate {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &settings.server_name {
            tls = tls.domain_name(name);
        }
        endpoint = endpoint.tls_config(tls).map_err(|error| wrong(&error))?;
    }
    let stub = Stub::new(endpoint.connect_lazy()).max_decoding_message_size(64 << 20);
    Ok(Server { address: address.to_owned(), stub })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn impossible_settings_are_errors() {
        for (servers, part) in [
            (&[][..], "no server"),
            (&["127.0.0.1:1"][..], "127.0.0.1:1"),
            (&["ftp://a:1"], "ftp://a:1: it has to be"),
            (&["https://a:1"], "authorities"),
        ] {
            let error = RegistrationClient::new(ClientSettings::new(servers.iter().copied())).unwrap_err();
            assert!(error.to_string().contains(part), "{servers:?}: {error}");
        }
    }
}
