//! Behind TLS, as a Nacos that a proxy of its own protects: trust, and a certificate that expires.

use pilotfish_nacos::NACOS;
use pilotfish_testkit::real::{Authority, Host, LiveRegistry, RegistryState, Rnacos};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::{Arc, Mutex};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Ends TLS before a server on a port of loopback, with the certificate of the moment.
struct Front {
    port: u16,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    protocol: &'static str,
}

impl Front {
    async fn start(before: u16, protocol: &'static str, identity: &(String, String)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let config = Arc::new(Mutex::new(config(protocol, identity)));
        let current = config.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(current.lock().expect("no holder panics").clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate ends the handshake, and a server may be
                    // down.
                    let Ok(mut client) = acceptor.accept(stream).await else { return };
                    let Ok(mut server) = TcpStream::connect(("127.0.0.1", before)).await else { return };
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { port, config, protocol }
    }

    /// New connections get this certificate.
    fn certify(&self, identity: &(String, String)) {
        *self.config.lock().expect("no holder panics") = config(self.protocol, identity);
    }
}

fn config(protocol: &str, (certificate, key): &(String, String)) -> Arc<ServerConfig> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("it is a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("ring has them").with_no_client_auth();
    let mut config = builder.with_single_cert(chain.expect("they are certificates"), key).expect("they fit");
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}

#[tokio::test]
async fn a_certificate_that_expires_takes_nothing_away() {
    Host::alone(async {
        for api in ["grpc", "http"] {
            let Some(mut server) = Rnacos::start(&[]).await else { return };
            server.register("serviceName=a&ip=10.0.0.1&port=80").await;
            let (authority, other) = (Authority::new(), Authority::new());
            let http = Front::start(server.port(), "http/1.1", &authority.server()).await;
            let grpc = Front::start(server.grpc_port(), "h2", &authority.server()).await;
            let folder = tempfile::tempdir().expect("a folder can be made");
            let ca = folder.path().join("ca.pem");
            std::fs::write(&ca, other.root()).expect("it can be written");
            let address = format!(
                "https://127.0.0.1:{}?refresh=300ms&api={api}&grpcPort={}&caFile={}",
                http.port,
                grpc.port,
                ca.display()
            );
            let registry = LiveRegistry::start(&NACOS, &address);
            registry.fails("invalid peer certificate").await;
            std::fs::write(&ca, authority.root()).expect("it can be written");
            let has_one = |state: &RegistryState| {
                state.synced && state.failure.is_none() && state.addresses() == ["10.0.0.1:80"]
            };
            registry.until("it trusts the authority", has_one).await;

            for front in [&http, &grpc] {
                front.certify(&authority.expired_server());
            }
            // Connections that are open do not end with a certificate.
            server.program().kill().await;
            server.restart(false).await;
            // A server that is killed loses what it had not written yet.
            server.register("serviceName=a&ip=10.0.0.1&port=80").await;
            let state = registry.fails("expired").await;
            assert_eq!(state.addresses(), ["10.0.0.1:80"]);
            for front in [&http, &grpc] {
                front.certify(&authority.server());
            }
            registry.until("it has a good one", has_one).await;
            assert_eq!(registry.fewest_endpoints(), 1, "never fewer");
        }
    })
    .await;
}
