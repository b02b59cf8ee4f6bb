//! Servers, and the connection to the one in use.

use crate::Error;
use parking_lot::Mutex;
use pilotfish_registration_api::v1::registration_service_client::RegistrationServiceClient;
use pilotfish_runtime::{SecretFile, SecretFileError, error_chain};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};
use tonic::{Request, Status};

/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Keepalive interval and timeout: a server that does not answer pings is disconnected.
const PING: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a certificate file in bytes.
const LARGEST: u64 = 1 << 20;

/// Servers, identity and timeout of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `http://HOST:PORT`, or `https://`; the first one that answers is used until it fails.
    pub servers: Vec<String>,
    /// File with the bearer token of this client, read again for each connection.
    pub token_file: Option<PathBuf>,
    /// CAs of the servers' certificates in PEM; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// Client certificate and its key in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Timeout of a call.
    pub timeout: Duration,
}

impl ClientOptions {
    /// These servers, without a token or a certificate.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            token_file: None,
            ca_file: None,
            identity: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// The API of one server.
pub(crate) type Stub = RegistrationServiceClient<InterceptedService<Channel, Token>>;

/// Adds the token to each request.
#[derive(Clone, Debug)]
pub(crate) struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// The servers, and the connection in use.
#[derive(Debug)]
pub(crate) struct Servers {
    options: ClientOptions,
    endpoints: Vec<Uri>,
    in_use: Mutex<InUse>,
}

#[derive(Debug, Default)]
struct InUse {
    server: usize,
    stub: Option<Stub>,
}

impl Servers {
    pub(crate) fn new(options: ClientOptions) -> Result<Self, Error> {
        let parse = |text: &String| {
            let uri: Option<Uri> = text.parse().ok();
            let uri =
                uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
            uri.ok_or_else(|| {
                Error::Options(format!(
                    "server {text:?}: not a URL with http:// or https://, such as http://127.0.0.1:15016"
                ))
            })
        };
        let endpoints: Vec<Uri> = options.servers.iter().map(parse).collect::<Result<_, _>>()?;
        if endpoints.is_empty() {
            return Err(Error::Options("no server was named".to_owned()));
        }
        Ok(Self { options, endpoints, in_use: Mutex::default() })
    }

    pub(crate) async fn check_files(&self) -> Result<(), Error> {
        let options = self.options.clone();
        let files = tokio::task::spawn_blocking(move || Files::read(&options)).await;
        let files = files.map_err(|error| Error::Options(error.to_string()))?;
        files.map(drop).map_err(|error| Error::Options(error.to_string()))
    }

    /// Host and port of the server in use.
    pub(crate) fn current(&self) -> Option<(String, u16)> {
        let uri = self.endpoints.get(self.in_use.lock().server)?;
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        Some((uri.host()?.trim_matches(['[', ']']).to_owned(), port))
    }

    /// Calls the server in use; if it is unreachable, tries each of the others once.
    pub(crate) async fn call<T, F>(&self, call: impl Fn(Stub) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut last = None;
        for _ in 0..self.endpoints.len() {
            let error = match self.stub().await {
                Ok((server, stub)) => match tokio::time::timeout(self.options.timeout, call(stub)).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(status)) => {
                        let error = Error::from(status);
                        if !error.is_transient() {
                            return Err(error);
                        }
                        self.leave(server);
                        error
                    }
                    Err(_) => {
                        self.leave(server);
                        Error::Unavailable("no answer in time".to_owned())
                    }
                },
                Err((server, error)) => {
                    self.leave(server);
                    error
                }
            };
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| Error::Unavailable("no server".to_owned())))
    }

    /// Returns the connection in use, or opens one.
    pub(crate) async fn stub(&self) -> Result<(usize, Stub), (usize, Error)> {
        let server = {
            let in_use = self.in_use.lock();
            if let Some(stub) = &in_use.stub {
                return Ok((in_use.server, stub.clone()));
            }
            in_use.server
        };
        let stub = self.connect(server).await.map_err(|error| (server, error))?;
        let mut in_use = self.in_use.lock();
        if in_use.server == server {
            in_use.stub = Some(stub.clone());
        }
        Ok((server, stub))
    }

    /// Selects the next server after `server` failed, unless another call has done so meanwhile.
    pub(crate) fn leave(&self, server: usize) {
        let mut in_use = self.in_use.lock();
        if in_use.server == server {
            *in_use = InUse { server: (server + 1) % self.endpoints.len(), stub: None };
        }
    }

    async fn connect(&self, server: usize) -> Result<Stub, Error> {
        let Some(uri) = self.endpoints.get(server) else {
            return Err(Error::Unavailable("no server".to_owned()));
        };
        let fail =
            |error: &dyn std::error::Error| Error::Unavailable(format!("{uri}: {}", error_chain(error)));
        let options = self.options.clone();
        let files =
            tokio::task::spawn_blocking(move || Files::read(&options)).await.map_err(|error| fail(&error))?;
        let Files { token, tls } = files.map_err(|error| fail(&error))?;
        let mut endpoint = Endpoint::from(uri.clone())
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        if uri.scheme_str() == Some("https") {
            endpoint = endpoint.tls_config(tls).map_err(|error| fail(&error))?;
        }
        let channel = endpoint.connect().await.map_err(|error| fail(&error))?;
        Ok(RegistrationServiceClient::with_interceptor(channel, Token(token)))
    }
}

/// Current contents of the files in the options.
struct Files {
    token: Option<MetadataValue<Ascii>>,
    tls: ClientTlsConfig,
}

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error(transparent)]
    Read(#[from] SecretFileError),
    #[error("{0} is no token: it has characters that no header may have")]
    Token(PathBuf),
}

impl Files {
    fn read(options: &ClientOptions) -> Result<Self, FileError> {
        let token = match &options.token_file {
            None => None,
            Some(path) => {
                let mut file = SecretFile::new(path);
                file.read()?;
                let text = file.content().and_then(|content| content.as_str().map(str::to_owned));
                let value =
                    text.and_then(|text| format!("Bearer {text}").parse::<MetadataValue<Ascii>>().ok());
                let mut value = value.ok_or_else(|| FileError::Token(path.clone()))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let mut tls = ClientTlsConfig::new();
        tls = match &options.ca_file {
            Some(path) => tls.ca_certificate(Certificate::from_pem(bytes(path)?)),
            None => tls.with_native_roots(),
        };
        if let Some((certificate, key)) = &options.identity {
            tls = tls.identity(Identity::from_pem(bytes(certificate)?, bytes(key)?));
        }
        Ok(Self { token, tls })
    }
}

fn bytes(path: &Path) -> Result<Arc<[u8]>, SecretFileError> {
    let mut file = SecretFile::new(path).with_limit(LARGEST).with_line_break();
    file.read()?;
    Ok(file.content().map_or_else(Arc::default, |content| content.as_bytes().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_checked_and_taken_in_turn() {
        for wrong in [vec![], vec!["127.0.0.1:15016"], vec!["ftp://a:1"], vec!["http://a:1", "not one"]] {
            assert!(
                matches!(Servers::new(ClientOptions::new(wrong.clone())), Err(Error::Options(_))),
                "{wrong:?}"
            );
        }
        let servers = Servers::new(ClientOptions::new(["http://a:1", "https://[::1]"])).unwrap();
        assert_eq!(servers.current(), Some(("a".into(), 1)));
        servers.leave(0);
        assert_eq!(servers.current(), Some(("::1".into(), 443)));
        servers.leave(0);
        assert_eq!(servers.current(), Some(("::1".into(), 443)), "another call has left it already");
    }

    #[tokio::test]
    async fn a_file_that_is_missing_is_named() {
        let options = ClientOptions {
            token_file: Some("/nowhere/token".into()),
            ..ClientOptions::new(["http://127.0.0.1:1"])
        };
        let servers = Servers::new(options).unwrap();
        let error = servers.call(async |_stub| Ok(())).await.unwrap_err();
        assert!(error.to_string().contains("/nowhere/token"), "{error}");
    }
}
