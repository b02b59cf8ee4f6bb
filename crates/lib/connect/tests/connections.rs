//! Connections, HTTP, TLS and secrets against servers on loopback.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_connect::{
    ConnectError, Connector, HttpClient, HttpError, HttpRequest, SecretOption, Server, TlsOptions,
};
use pilotfish_runtime::OptionValues;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

fn values(files: &[(&str, &Path)]) -> OptionValues {
    files.iter().map(|(name, path)| ((*name).to_owned(), path.display().to_string())).collect()
}

async fn listen() -> (TcpListener, Server) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, Server { host: "127.0.0.1".into(), port })
}

/// Reads one request; `false` at the end of the connection.
async fn request(stream: &mut TcpStream) -> bool {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => seen.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Answers every request of every connection with this text, and counts connections.
async fn serve(answer: &'static [u8], close: bool) -> (Server, Arc<AtomicUsize>) {
    let (listener, server) = listen().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                while request(&mut stream).await {
                    stream.write_all(answer).await.unwrap();
                    if close {
                        return;
                    }
                }
            });
        }
    });
    (server, connections)
}

#[tokio::test]
async fn requests_share_few_connections() {
    let (server, connections) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false).await;
    let client = HttpClient::new(Connector::default(), 4);
    let ask = || async { client.send(&server, HttpRequest::get("/x?y=1")).await.unwrap() };
    let answers = futures::future::join_all((0..100).map(|_| ask())).await;
    assert!(answers.iter().all(|answer| answer.status == 200 && &answer.body[..] == b"ok"));
    let used = connections.load(Ordering::SeqCst);
    assert!(used <= 4, "{used} connections for 100 requests, 4 at a time");
    // What hyper began for requests that found another connection has ended with them: a task for each
    // connection is left, on both sides, the server, and the timer of the pool.
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while tasks() > 2 * used + 2 {
        assert!(tokio::time::Instant::now() < deadline, "{} tasks are left", tasks());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn idle_connections_to_one_server_take_no_place_of_another() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (one, two) = (serve(answer, false).await, serve(answer, false).await);
    let client = HttpClient::new(Connector::default(), 2);
    for (server, connections) in [&one, &two, &one] {
        let ask = || async { client.send(server, HttpRequest::get("/")).await.unwrap().status };
        let answers = futures::future::join_all((0..10).map(|_| ask())).await;
        assert!(answers.iter().all(|status| *status == 200));
        assert!(connections.load(Ordering::SeqCst) <= 2);
    }
}

#[tokio::test]
async fn a_request_that_is_given_up_leaves_its_place() {
    let (listener, silent) = listen().await;
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (open.clone(), most.clone());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (open, most) = (counts.0.clone(), counts.1.clone());
            most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::spawn(async move {
                while request(&mut stream).await {}
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    let client = HttpClient::new(Connector::default(), 3);
    let soon = || HttpRequest { timeout: Duration::from_millis(20), ..HttpRequest::get("/") };
    for _ in 0..5 {
        let answers = futures::future::join_all((0..6).map(|_| client.send(&silent, soon()))).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(HttpError::Timeout { .. }))));
    }
    // The server sees the end of a connection after its place is free.
    assert!((1..=6).contains(&most.load(Ordering::SeqCst)), "{most:?} connections at a time");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while open.load(Ordering::SeqCst) > 0 {
        assert!(tokio::time::Instant::now() < deadline, "{open:?} are open");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn answers_have_limits() {
    let client = HttpClient::new(Connector::default(), 4);
    let (server, _) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", false).await;
    let small = HttpRequest { limit: 9, ..HttpRequest::get("/") };
    let error = client.send(&server, small).await.unwrap_err();
    assert!(matches!(error, HttpError::TooLarge { limit: 9, .. }), "{error:?}");

    let (server, _) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123", true).await;
    let error = client.send(&server, HttpRequest::get("/")).await.unwrap_err();
    assert!(matches!(error, HttpError::Body { .. }), "a truncated answer is none: {error:?}");

    let (server, _) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123", false).await;
    let soon = HttpRequest { timeout: Duration::from_millis(50), ..HttpRequest::get("/") };
    let error = client.send(&server, soon).await.unwrap_err();
    assert!(matches!(error, HttpError::Timeout { .. }), "{error:?}");

    let (server, _) = serve(b"\x00\x01 garbage\r\n\r\n", true).await;
    let error = client.send(&server, HttpRequest::get("/")).await.unwrap_err();
    assert!(matches!(error, HttpError::Connection { .. }) && !error.is_connect(), "{error:?}");

    let (listener, server) = listen().await;
    drop(listener);
    let error = client.send(&server, HttpRequest::get("/")).await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    let error = client.send(&server, HttpRequest::get("/a b")).await.unwrap_err();
    assert!(matches!(error, HttpError::Request(..)), "{error:?}");
}

/// An authority in `folder/ca.pem`, which signs.
fn authority(folder: &Path) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca.pem"), authority.as_ref().pem()).unwrap();
    authority
}

/// A TLS server for the name `registry.test` that answers `ok` and closes, until dropped.
async fn tls_server(authority: &CertifiedIssuer<'static, KeyPair>, days: i64) -> Server {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["registry.test".to_owned()]).unwrap();
    params.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(10);
    params.not_after = time::OffsetDateTime::now_utc() + time::Duration::days(days);
    let certificate = params.signed_by(&key, authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, server) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust the server ends the handshake.
            if let Ok(mut stream) = acceptor.accept(stream).await {
                stream.write_all(b"ok").await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    });
    server
}

fn tls(options: &[(&str, &Path)]) -> Connector {
    let mut mistakes = Vec::new();
    let options = TlsOptions::take(&mut values(options), true, &mut mistakes);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    Connector::new(options)
}

#[tokio::test]
async fn servers_are_trusted_by_their_authority_name_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let issuer = authority(folder.path());
    let name = ("serverName", Path::new("registry.test"));
    let good = tls_server(&issuer, 1).await;
    let mut text = String::new();
    tls(&[("caFile", &ca), name]).connect(&good).await.unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "ok");

    let fails = |connector: Connector, server: Server| async move {
        match connector.connect(&server).await.unwrap_err() {
            ConnectError::Handshake { source, .. } => source.to_string(),
            other => format!("not the handshake: {other:?}"),
        }
    };
    let wrong = fails(tls(&[("caFile", &ca)]), good.clone()).await;
    assert!(wrong.contains("not valid for name"), "the address is no name of it: {wrong}");
    let expired = fails(tls(&[("caFile", &ca), name]), tls_server(&issuer, -1).await).await;
    assert!(expired.contains("expired"), "{expired}");
    let other = tempfile::tempdir().unwrap();
    authority(other.path());
    let unknown = fails(tls(&[("caFile", &other.path().join("ca.pem")), name]), good.clone()).await;
    assert!(unknown.contains("UnknownIssuer") || unknown.contains("BadSignature"), "{unknown}");
    let missing = tls(&[("caFile", Path::new("/nowhere.pem"))]).connect(&good).await.unwrap_err();
    assert!(missing.to_string().contains("/nowhere.pem cannot be read"), "{missing}");
}

#[test]
fn options_of_tls_go_with_its_scheme() {
    let mut mistakes = Vec::new();
    let path = Path::new("x");
    assert!(TlsOptions::take(&mut values(&[("caFile", path)]), false, &mut mistakes).is_none());
    assert!(TlsOptions::take(&mut values(&[("keyFile", path)]), true, &mut mistakes).is_some());
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_secret_follows_its_file_and_survives_its_loss() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let secret = SecretOption::take(&mut values(&[("tokenFile", &path)]), "token", None);
    assert!(secret.is_set() && secret.read().await.is_err());
    let reads = |want: &'static str| {
        let secret = secret.clone();
        async move {
            tokio::time::advance(Duration::from_secs(6)).await;
            assert_eq!(secret.read().await.unwrap().as_deref(), Some(want));
        }
    };
    std::fs::write(&path, "one\n").unwrap();
    reads("one").await;
    std::fs::write(&path, "two").unwrap();
    assert_eq!(secret.read().await.unwrap().as_deref(), Some("one"), "not read for every request");
    reads("two").await;
    std::fs::remove_file(&path).unwrap();
    reads("two").await;
    std::fs::write(&path, "a\r\nx: y").unwrap();
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(secret.read().await.is_err(), "no header could carry it");
    let none = SecretOption::take(&mut OptionValues::default(), "token", None);
    assert!(!none.is_set() && none.read().await.unwrap().is_none());
}
