//! Connections of attackers and honest proxies: plaintext or TLS, with or without a certificate.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use percent_encoding::percent_decode_str;
use pilotfish_bench::connection::Connection;
use pilotfish_bench::messages::framed;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::Target;

/// Method paths of delta and state-of-the-world ADS.
pub(crate) const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
pub(crate) const SOTW: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// Timeout of a connection, including the handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// A connected socket, with or without TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for T {}

/// Connects to a port of the control plane.
#[derive(Clone)]
pub(crate) struct Dialer {
    address: SocketAddr,
    tls: Option<TlsConnector>,
    /// Last byte of the source loopback address; 127.0.0.1 by default.
    from: Option<u8>,
}

impl Dialer {
    /// Connects without TLS, to the plaintext port of xDS.
    pub(crate) fn plaintext(target: &Target) -> Self {
        Self { address: target.plaintext_xds, tls: None, from: None }
    }

    /// Without TLS, to that address.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, tls: None, from: None }
    }

    /// Over TLS, without a client certificate.
    pub(crate) fn nameless(target: &Target) -> Result<Self> {
        Ok(Self { address: target.tls_xds, tls: Some(connector(&target.ca_certificate, None)?), from: None })
    }

    /// Over TLS, with the attacker's certificate.
    pub(crate) fn known(target: &Target) -> Result<Self> {
        Self::with_certificate(
            target.tls_xds,
            &target.ca_certificate,
            &target.client_certificate,
            &target.client_key,
        )
    }

    /// Over TLS, with that certificate.
    pub(crate) fn with_certificate(address: SocketAddr, ca: &Path, chain: &Path, key: &Path) -> Result<Self> {
        Ok(Self { address, tls: Some(connector(ca, Some((chain, key)))?), from: None })
    }

    /// Over TLS, without verifying the server and without ALPN.
    pub(crate) fn unchecked(address: SocketAddr) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth();
        Ok(Self { address, tls: Some(TlsConnector::from(Arc::new(config))), from: None })
    }

    /// Uses another source address of this machine: each has its own limits.
    pub(crate) fn from(self, last: u8) -> Self {
        Self { from: Some(last), ..self }
    }

    /// A client without TLS, one from another address, and one with an identity.
    pub(crate) fn of_each_kind(target: &Target) -> Result<[Self; 3]> {
        let plaintext = Self::plaintext(target);
        Ok([plaintext.clone(), plaintext.from(77), Self::known(target)?])
    }

    pub(crate) async fn dial(&self) -> Result<Box<dyn Io>> {
        let dialled = async {
            let socket = match self.from {
                None => TcpStream::connect(self.address).await.context("cannot connect")?,
                Some(last) => crate::attacks::from_address(last, self.address).await?,
            };
            socket.set_nodelay(true)?;
            let Some(tls) = &self.tls else { return Ok(Box::new(socket) as Box<dyn Io>) };
            let name = ServerName::from(self.address.ip());
            Ok(Box::new(tls.connect(name, socket).await.context("no TLS")?) as Box<dyn Io>)
        };
        tokio::time::timeout(CONNECT_LIMIT, dialled)
            .await
            .map_err(|_| anyhow!("no connection in {CONNECT_LIMIT:?}"))?
    }

    /// One stream on its own connection, with its first messages.
    pub(crate) async fn stream(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        first: Vec<Bytes>,
    ) -> Result<Connection> {
        let socket = self.dial().await?;
        Connection::over(socket, &self.address.to_string(), path, headers, first).await
    }

    /// A connection for many streams.
    pub(crate) async fn connect(&self) -> Result<Client> {
        self.connect_with_window(1 << 20).await
    }

    /// A connection whose streams have that receive window.
    pub(crate) async fn connect_with_window(&self, window: u32) -> Result<Client> {
        let socket = self.dial().await?;
        let (client, driver) = h2::client::Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(16 << 20)
            .enable_push(false)
            .handshake::<_, Bytes>(socket)
            .await
            .context("no HTTP/2")?;
        // Errors appear on its streams.
        let driver = tokio::spawn(async move { drop(driver.await) });
        Ok(Client { client, authority: self.address.to_string(), driver })
    }
}

/// ClientHello of a client of the TLS port.
pub(crate) fn hello(target: &Target, name: ServerName<'static>) -> Result<Vec<u8>> {
    let config = client_config(&target.ca_certificate, None)?;
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello)?;
    Ok(hello)
}

fn connector(ca: &Path, client: Option<(&Path, &Path)>) -> Result<TlsConnector> {
    Ok(TlsConnector::from(Arc::new(client_config(ca, client)?)))
}

fn client_config(ca: &Path, client: Option<(&Path, &Path)>) -> Result<ClientConfig> {
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>> {
        Ok(CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?)
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(ca)?);
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match client {
        Some((chain, key)) => {
            builder.with_client_auth_cert(certificates(chain)?, PrivateKeyDer::from_pem_file(key)?)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Certificate verifier that accepts every server.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection with many streams; closed on drop.
pub(crate) struct Client {
    client: SendRequest<Bytes>,
    authority: String,
    driver: JoinHandle<()>,
}

impl Client {
    /// Opens a stream; waits while the server allows no more. Its content type is that of gRPC unless the
    /// headers have another one.
    pub(crate) async fn open(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<Stream> {
        let mut client = self.client.clone().ready().await.context("the connection ended")?;
        let request = headers
            .iter()
            .fold(http::Request::builder(), |request, (name, value)| request.header(*name, *value))
            .method(http::Method::POST)
            .uri(format!("http://{}{path}", self.authority))
            .version(http::Version::HTTP_2)
            .header("te", "trailers");
        let has_type = headers.iter().any(|(name, _)| *name == "content-type");
        let kind = (!has_type).then_some(("content-type", "application/grpc"));
        let request = kind.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let request = request.body(())?;
        let (response, requests) = client.send_request(request, false).context("cannot open a stream")?;
        Ok(Stream { requests, response: Some(response), body: None })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// One stream of a [`Client`].
pub(crate) struct Stream {
    requests: SendStream<Bytes>,
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
}

impl Stream {
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_raw(framed(message))
    }

    /// Sends raw bytes, buffering those that the server does not accept yet.
    pub(crate) fn send_raw(&mut self, bytes: Bytes) -> Result<()> {
        self.requests.send_data(bytes, false).context("cannot send")
    }

    /// Sends a message as fast as the server accepts it.
    pub(crate) async fn send_flowing(&mut self, message: &Bytes) -> Result<()> {
        self.send_raw_flowing(&framed(message)).await
    }

    /// Sends raw bytes as fast as the server accepts them.
    pub(crate) async fn send_raw_flowing(&mut self, bytes: &Bytes) -> Result<()> {
        let mut rest = bytes.clone();
        while !rest.is_empty() {
            self.requests.reserve_capacity(rest.len());
            let room = std::future::poll_fn(|cx| self.requests.poll_capacity(cx)).await;
            let room = room.context("the stream was ended")?.context("cannot send")?;
            self.requests.send_data(rest.split_to(room.min(rest.len())), false).context("cannot send")?;
        }
        Ok(())
    }

    /// Waits for the response headers.
    pub(crate) async fn headers(&mut self) -> Result<(), String> {
        let Some(response) = &mut self.response else { return Ok(()) };
        let answer = response.await.map_err(|error| error.to_string())?;
        self.response = None;
        status(answer.headers())?;
        self.body = Some(answer.into_body());
        Ok(())
    }

    /// Closes the sending side.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.requests.send_data(Bytes::new(), true).context("cannot send")
    }

    /// Next bytes of the server; an error has the message with which it ended the stream.
    pub(crate) async fn next(&mut self) -> Result<Bytes, String> {
        self.headers().await?;
        let Some(body) = &mut self.body else { return Err("the stream has ended".to_owned()) };
        match body.data().await {
            Some(Ok(chunk)) => {
                let _ = body.flow_control().release_capacity(chunk.len());
                Ok(chunk)
            }
            Some(Err(error)) => Err(error.to_string()),
            None => {
                let trailers = body.trailers().await.map_err(|error| error.to_string())?;
                trailers.map_or(Ok(()), |trailers| status(&trailers))?;
                Err("ended well".to_owned())
            }
        }
    }

    /// Reads until the server ends the stream, and returns its message.
    pub(crate) async fn end(&mut self) -> String {
        loop {
            if let Err(words) = self.next().await {
                return words;
            }
        }
    }
}

fn status(headers: &http::HeaderMap) -> Result<(), String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "" | "0" => Ok(()),
        // Servers may write its characters raw or percent-encoded.
        code => {
            let message = percent_decode_str(text("grpc-message")).decode_utf8_lossy();
            Err(format!("grpc-status {code}: {message}"))
        }
    }
}
