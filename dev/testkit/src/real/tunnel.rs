//! A loopback port that forwards to a TLS server, for clients without TLS.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// A tunnel; ends on drop.
pub struct Tunnel {
    port: u16,
    errors: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Tunnel {
    /// Starts a tunnel to the TLS server on that port of loopback, which must have a certificate of the
    /// authority `root`. `client` has the client certificate chain and key.
    ///
    /// # Panics
    /// When the certificates are invalid.
    pub async fn start(server: u16, root: &str, client: Option<&(String, String)>) -> Self {
        Self::with_protocol(server, config(root, client), "h2").await
    }

    /// Starts a tunnel for clients that use HTTP/1.1.
    ///
    /// # Panics
    /// When the certificates are invalid.
    pub async fn of_http1(server: u16, root: &str) -> Self {
        Self::with_protocol(server, config(root, None), "http/1.1").await
    }

    async fn with_protocol(server: u16, mut config: ClientConfig, protocol: &str) -> Self {
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let errors: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = errors.clone();
        let task = tokio::spawn(async move {
            // The connections end with this task.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((plain, _)) = listener.accept().await {
                let (connector, log) = (connector.clone(), log.clone());
                connections.spawn(async move {
                    if let Err(error) = carry(plain, server, &connector).await {
                        log.lock().expect("no holder panics").push(error.to_string());
                    }
                });
            }
        });
        Self { port, errors, task }
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Errors of connections so far.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        self.errors.lock().expect("no holder panics").clone()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut plain: TcpStream, server: u16, connector: &TlsConnector) -> io::Result<()> {
    let socket = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server))).await?;
    socket.set_nodelay(true)?;
    plain.set_nodelay(true)?;
    let name = ServerName::from(std::net::Ipv4Addr::LOCALHOST);
    let mut secret = connector.connect(name, socket).await?;
    tokio::io::copy_bidirectional(&mut plain, &mut secret).await.map(|_| ())
}

/// ClientHello of a client for a host.
///
/// # Panics
/// When it is not a host name.
#[must_use]
pub fn client_hello(host: &str) -> Vec<u8> {
    let name = ServerName::try_from(host.to_owned()).expect("it is a name");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), name).expect("the name is one");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("memory takes it");
    hello
}

fn config(root: &str, client: Option<&(String, String)>) -> ClientConfig {
    let certificates = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().expect("it is PEM")
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(root));
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots);
    match client {
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("it is a key");
            builder.with_client_auth_cert(certificates(chain), key).expect("they belong together")
        }
        None => builder.with_no_client_auth(),
    }
}
