//! The secure listener over real sockets: who gets a stream, and that no client delays others.

use crate::support::Memory;
use bytes::Bytes;
use h2::client::SendRequest;
use http::HeaderMap;
use pilotfish_identity::{Authenticator, Authorities, Call, Pem, Proof, ServerCertificate, Tls, Unproven};
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use pilotfish_xds::{ALPN, Fanout, Server, ServerConfig, TlsListenerConfig, UnaryMethod};
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
pub(crate) const WEB: &str = "spiffe://cluster.local/ns/ns/sa/web";

/// Nothing takes that long, unless it hangs.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it happens in time")
}

/// Knows passwords: `ok` is good, `never` is thought about for ever.
struct Passwords;

impl Authenticator for Passwords {
    fn name(&self) -> &'static str {
        "password"
    }

    fn authenticate<'a>(
        &'a self,
        call: &'a Call,
    ) -> Pin<Box<dyn Future<Output = Result<Proof, Unproven>> + Send + 'a>> {
        Box::pin(async move {
            match call.metadata("authorization") {
                Some("ok") => Ok(vec![WEB.to_owned()].into()),
                Some("brief") => {
                    let until = Some(SystemTime::now() + Duration::from_millis(100));
                    Ok(Proof { identities: vec![WEB.to_owned()], cluster: None, until })
                }
                Some(cluster @ ("east" | "west")) => {
                    let cluster = Some(cluster.into());
                    Ok(Proof { identities: vec![WEB.to_owned()], cluster, until: None })
                }
                Some("never") => std::future::pending().await,
                Some(_) => Err("it is wrong".into()),
                None => Err("there is none".into()),
            }
        })
    }
}

pub(crate) struct Running {
    fanout: Arc<Fanout<Memory>>,
    pub(crate) address: SocketAddr,
    secure: SocketAddr,
    root: CertificateDer<'static>,
    issuer: CertifiedIssuer<'static, KeyPair>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

fn start(config: ServerConfig) -> Running {
    start_with(config, Vec::new())
}

/// Starts a server that serves these methods as well.
pub(crate) fn start_with(config: ServerConfig, methods: Vec<Arc<dyn UnaryMethod>>) -> Running {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let (chain, key, roots) = (server.pem(), key.serialize_pem(), issuer.pem());
    let pem = |text: &'static str, bytes| Pem { origin: text, text: bytes };
    let certificate =
        ServerCertificate::from_pem(pem("chain", chain.as_bytes()), pem("key", key.as_bytes())).unwrap();
    let authorities = Authorities::from_pem(&[pem("roots", roots.as_bytes())]).unwrap();
    let tls = Arc::new(Tls::new(certificate, authorities, ALPN).unwrap());
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let secure = TlsListenerConfig { address: any, tls, authenticators: vec![Arc::new(Passwords)], methods };
    let fanout = crate::support::fanout();
    let bound = Server::new(Arc::clone(&fanout), config).with_secure(Some(secure)).bind(any).unwrap();
    let (address, secure) = (bound.local_addr(), bound.secure_addr().unwrap());
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(bound.run(async { drop(stopped.await) }));
    Running { fanout, address, secure, root: issuer.der().clone(), issuer, stop, task }
}

impl Running {
    /// A TLS connection with a client's certificate of this identity.
    async fn tls(&self, identity: Option<&str>, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(identity) => {
                let key = KeyPair::generate().unwrap();
                let mut params = CertificateParams::default();
                params.subject_alt_names = vec![SanType::URI(identity.try_into().unwrap())];
                let certificate = params.signed_by(&key, &self.issuer).unwrap();
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let io = TcpStream::connect(self.secure).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), io).await
    }

    pub(crate) async fn client(&self, identity: Option<&str>) -> SendRequest<Bytes> {
        self.client_with_window(identity, 65_535).await
    }

    /// A client whose streams have that receive window.
    pub(crate) async fn client_with_window(&self, identity: Option<&str>, window: u32) -> SendRequest<Bytes> {
        let io = soon(self.tls(identity, b"h2")).await.unwrap();
        let mut builder = h2::client::Builder::new();
        let (client, connection) = soon(builder.initial_window_size(window).handshake(io)).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// The head of the answer to a stream that subscribes to clusters, or its status.
async fn ask(client: &SendRequest<Bytes>, password: Option<&str>) -> HeaderMap {
    let mut client = soon(client.clone().ready()).await.unwrap();
    let mut request =
        http::Request::post(format!("https://xds{DELTA}")).header("content-type", "application/grpc");
    if let Some(password) = password {
        request = request.header("authorization", password);
    }
    let (response, mut out) = client.send_request(request.body(()).unwrap(), false).unwrap();
    let node = Some(Node { id: "sidecar~10.0.0.1~a.ns~ns.svc.cluster.local".into(), ..Node::default() });
    let type_url = ResourceType::Cluster.type_url().to_owned();
    let message =
        DeltaDiscoveryRequest { node, type_url, ..DeltaDiscoveryRequest::default() }.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    out.send_data(frame.into(), false).unwrap();
    let (head, mut body) = soon(response).await.unwrap().into_parts();
    if !head.headers.contains_key("grpc-status") {
        // Until something came, it is not known that the stream was opened.
        soon(body.data()).await.unwrap().unwrap();
        // The stream stays open.
        tokio::spawn(async move {
            let _out = out;
            while body.data().await.is_some() {}
        });
    }
    head.headers
}

pub(crate) fn status(headers: &HeaderMap) -> (&str, &str) {
    let text = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
    (text("grpc-status"), text("grpc-message"))
}

#[tokio::test]
async fn a_client_is_identified_by_its_certificate_or_else_by_an_authenticator() {
    let server = start(ServerConfig::default());
    let identities =
        || server.fanout.connections().iter().map(|c| c.peer.identities.clone()).collect::<Vec<_>>();
    let certified = server.client(Some(WEB)).await;
    assert_eq!(status(&ask(&certified, None).await).0, "");
    assert_eq!(identities(), [[WEB]]);
    drop(certified);
    let plain = server.client(None).await;
    assert_eq!(status(&ask(&plain, Some("ok")).await).0, "");
    assert!(identities().contains(&vec![WEB.to_owned()]));

    let none = "the client proves no identity: certificate: none was presented; password: there is none";
    assert_eq!(status(&ask(&plain, None).await), ("16", none));
    let (code, reason) = (ask(&plain, Some("x")).await, "password: it is wrong");
    assert!(status(&code).1.ends_with(reason), "{code:?}");
    let nameless = server.client(Some("https://web.test")).await;
    let refused = ask(&nameless, None).await;
    assert!(status(&refused).1.contains("certificate: its URI name is no SPIFFE id"), "{refused:?}");
    assert_eq!(status(&ask(&nameless, Some("ok")).await).0, "", "the next proof counts");
}

#[tokio::test]
async fn an_authenticator_that_is_silent_costs_one_stream_its_time() {
    let authentication_timeout = Duration::from_millis(20);
    let server = start(ServerConfig { authentication_timeout, ..ServerConfig::default() });
    let client = server.client(None).await;
    let refused = ask(&client, Some("never")).await;
    assert!(status(&refused).1.ends_with("password: no answer in time"), "{refused:?}");
    assert_eq!(status(&ask(&client, Some("ok")).await).0, "");
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_pending_authentication() {
    let server = start(ServerConfig::default());
    let client = server.client(None).await;
    let waiting = tokio::spawn(async move {
        let mut client = client.ready().await.unwrap();
        let request = http::Request::post(format!("https://xds{DELTA}"))
            .header("content-type", "application/grpc")
            .header("authorization", "never");
        let (response, out) = client.send_request(request.body(()).unwrap(), false).unwrap();
        let answer = response.await;
        drop((client, out));
        answer.is_err()
    });
    // Another stream of its own connection shows that the server runs.
    assert_eq!(status(&ask(&server.client(None).await, None).await).0, "16");
    server.stop.send(()).unwrap();
    soon(server.task).await.unwrap();
    assert!(soon(waiting).await.unwrap(), "the stream is reset");
}

#[tokio::test]
async fn clients_that_send_nothing_delay_no_others() {
    let server = start(ServerConfig {
        max_handshakes: 1,
        handshake_timeout: Duration::from_secs(15),
        ..ServerConfig::default()
    });
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(server.secure).await.unwrap());
    }
    let client = server.client(Some(WEB)).await;
    assert_eq!(status(&ask(&client, None).await).0, "");
    // The plaintext listener is as it was: no identity is needed.
    let io = TcpStream::connect(server.address).await.unwrap();
    let (plain, connection) = soon(h2::client::handshake(io)).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(status(&ask(&plain, None).await).0, "");
}

#[tokio::test]
async fn what_is_no_tls_or_no_http2_is_ended() {
    let server =
        start(ServerConfig { handshake_timeout: Duration::from_millis(50), ..ServerConfig::default() });
    assert!(soon(server.tls(Some(WEB), b"http/1.1")).await.is_err(), "there is no such protocol");
    for first in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"", &[0x16, 3, 1, 0xff, 0xff]] {
        let mut io = TcpStream::connect(server.secure).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut io, first).await.unwrap();
        let mut rest = Vec::new();
        // Closed or reset: both are an end.
        let _ = soon(io.read_to_end(&mut rest)).await;
    }
}

/// The first message of a TLS handshake.
fn client_hello() -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut hello = Vec::new();
    rustls::ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn handshakes_that_stop_in_the_middle_give_way_to_others() {
    let server = start(ServerConfig {
        max_handshakes: 4,
        handshake_timeout: Duration::from_secs(600),
        ..ServerConfig::default()
    });
    let mut halves = Vec::new();
    for _ in 0..20 {
        let mut io = TcpStream::connect(server.secure).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut io, &client_hello()).await.unwrap();
        halves.push(io);
    }
    let client = server.client(Some(WEB)).await;
    assert_eq!(status(&ask(&client, None).await).0, "");
    let mut rest = Vec::new();
    // Closed or reset: both are an end.
    let _ = soon(halves[0].read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn a_client_proves_again_who_it_is_after_a_while() {
    let max_identity_age = Duration::from_millis(100);
    let server = start(ServerConfig { max_identity_age, ..ServerConfig::default() });
    let mut client = server.client(Some(WEB)).await;
    let request =
        http::Request::post(format!("https://xds{DELTA}")).header("content-type", "application/grpc");
    let (response, _out) = client.send_request(request.body(()).unwrap(), false).unwrap();
    let mut body = soon(response).await.unwrap().into_body();
    let trailers = soon(body.trailers()).await.unwrap().unwrap();
    let (code, message) = status(&trailers);
    assert_eq!((code, message.contains("authenticate again")), ("14", true), "{message}");
    // The connection ends with its streams; another one is as good as the first.
    assert_eq!(status(&ask(&server.client(Some(WEB)).await, None).await).0, "");
}

#[tokio::test]
async fn a_stream_ends_with_what_its_client_proved() {
    let server = start(ServerConfig::default());
    let mut client = server.client(None).await;
    let request = http::Request::post(format!("https://xds{DELTA}"))
        .header("content-type", "application/grpc")
        .header("authorization", "brief");
    let (response, _out) = client.send_request(request.body(()).unwrap(), false).unwrap();
    let mut body = soon(response).await.unwrap().into_body();
    let trailers = soon(body.trailers()).await.unwrap().unwrap();
    let (code, message) = status(&trailers);
    assert_eq!((code, message.contains("authenticate again")), ("14", true), "{message}");
}

#[tokio::test]
async fn a_stream_ends_when_its_proof_counts_no_longer() {
    let server = start(ServerConfig::default());
    let clusters = || {
        let all = server.fanout.connections();
        all.iter().map(|client| client.peer.cluster.as_deref().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (west, east) = (server.client(None).await, server.client(None).await);
    assert_eq!(status(&ask(&east, Some("east")).await).0, "");
    let mut west = soon(west.ready()).await.unwrap();
    let request = http::Request::post(format!("https://xds{DELTA}"))
        .header("content-type", "application/grpc")
        .header("authorization", "west");
    let (response, _out) = west.send_request(request.body(()).unwrap(), false).unwrap();
    // Its first request has not come yet.
    let mut body = soon(response).await.unwrap().into_body();
    assert_eq!(server.fanout.revoke(|peer| peer.cluster.as_deref() == Some("west")), 1);
    let trailers = soon(body.trailers()).await.unwrap().unwrap();
    let (code, message) = status(&trailers);
    assert_eq!((code, message.contains("authenticate again")), ("14", true), "{message}");
    assert_eq!(clusters(), ["east"]);
    assert_eq!(server.fanout.revoke(|peer| peer.cluster.as_deref() == Some("west")), 0, "it is gone");
}

#[tokio::test]
async fn strangers_on_one_port_take_no_place_on_the_other() {
    let server = start(ServerConfig { max_connections: 1, ..ServerConfig::default() });
    let _plain = TcpStream::connect(server.address).await.unwrap();
    let client = server.client(Some(WEB)).await;
    assert_eq!(status(&ask(&client, None).await).0, "");
    let mut second = TcpStream::connect(server.secure).await.unwrap();
    let mut rest = Vec::new();
    // Closed or reset: both are an end.
    let _ = soon(second.read_to_end(&mut rest)).await;
    assert!(rest.is_empty());
}

#[tokio::test]
async fn streams_that_wait_for_authentication_are_limited() {
    let server = start(ServerConfig { max_unidentified: 1, ..ServerConfig::default() });
    let mut client = server.client(None).await;
    let mut begin = || {
        let request = http::Request::post(format!("https://xds{DELTA}"))
            .header("content-type", "application/grpc")
            .header("authorization", "never");
        client.send_request(request.body(()).unwrap(), false).unwrap()
    };
    let (_first, (second, _out)) = (begin(), begin());
    let refused = soon(second).await.unwrap();
    assert_eq!(status(refused.headers()).0, "8");
    assert!(status(refused.headers()).1.ends_with("(limit unidentified-streams)"));
}

#[tokio::test]
async fn headers_of_streams_that_wait_for_authentication_are_limited() {
    let server = start(ServerConfig { unidentified_bytes: 5_000, ..ServerConfig::default() });
    let mut client = server.client(None).await;
    let mut begin = |bytes: usize| {
        let request = http::Request::post(format!("https://xds{DELTA}"))
            .header("content-type", "application/grpc")
            .header("authorization", "never")
            .header("x-more", "a".repeat(bytes));
        client.send_request(request.body(()).unwrap(), false).unwrap()
    };
    let (_first, (second, _out), _third) = (begin(3_000), begin(3_000), begin(100));
    let refused = soon(second).await.unwrap();
    assert!(status(refused.headers()).1.ends_with("(limit unidentified-bytes)"), "{refused:?}");
}
