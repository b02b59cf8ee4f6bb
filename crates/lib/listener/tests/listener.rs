//! The listener over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use pilotfish_listener::{Limits, Listener};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LIMITS: Limits = Limits {
    connections: 8,
    address_connections: 8,
    idle_connections: 4,
    handshake: Duration::from_secs(600),
    idle: Duration::from_secs(600),
    request: Duration::from_secs(600),
    head_bytes: 16 << 10,
    drain: Duration::from_secs(10),
};

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    reached: Arc<Mutex<BTreeSet<&'static str>>>,
}

async fn start(limits: Limits) -> Running {
    let who = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { format!("{}\n", peer.ip()) };
    let router = Router::new()
        .route("/", get(who))
        .route("/never", get(std::future::pending::<String>))
        .route("/ticks", get(ticks));
    let reached = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&reached);
    let listener = Listener::bind("the test", ([127, 0, 0, 1], 0).into(), limits).await.unwrap();
    let listener = listener.with_on_limit(Arc::new(move |limit| {
        seen.lock().unwrap().insert(limit);
    }));
    let (address, (stop, stopped)) = (listener.address(), oneshot::channel());
    let task = tokio::spawn(listener.run(router, async { drop(stopped.await) }));
    Running { address, stop, task, reached }
}

impl Running {
    /// The limits that were reached, once all connections are gone.
    async fn reached(self) -> Vec<&'static str> {
        self.stop.send(()).unwrap();
        soon(self.task).await.unwrap();
        self.reached.lock().unwrap().iter().copied().collect()
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), what).await.expect("it happens soon")
}

/// Sends a request on a connection, and returns the first line of the answer.
async fn ask(io: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    io.write_all(request.as_bytes()).await.unwrap();
    let mut text = vec![0; 4_096];
    let read = soon(io.read(&mut text)).await.unwrap();
    String::from_utf8_lossy(&text[..read]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_request_with_several_hosts_is_refused() {
    let running = start(LIMITS).await;
    for (target, hosts, status) in [
        ("/", 1, "200"),
        ("/", 2, "400"),
        ("/", 3, "400"),
        ("http://a/", 1, "200"),
        ("http://A/", 1, "200"),
        ("http://b/", 1, "400"),
    ] {
        let mut io = connect(running.address).await;
        let request = format!("GET {target} HTTP/1.1\r\n{}\r\n", "host: a\r\n".repeat(hosts));
        io.write_all(request.as_bytes()).await.unwrap();
        let mut text = vec![0; 4_096];
        let read = soon(io.read(&mut text)).await.unwrap();
        assert_eq!(
            String::from_utf8_lossy(&text[..read]).split(' ').nth(1),
            Some(status),
            "{target}, {hosts} hosts"
        );
    }
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Waits until the other side ends the connection.
async fn ended(io: &mut TcpStream) {
    let mut rest = Vec::new();
    // Closed or reset: both are an end.
    let _ = soon(io.read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn a_silent_connection_gives_way_and_one_that_works_does_not() {
    let server = start(LIMITS).await;
    let mut silent = connect(server.address).await;
    let mut working = connect(server.address).await;
    working.write_all(b"GET /never HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut others = Vec::new();
    for _ in 0..5 {
        let mut io = connect(server.address).await;
        assert_eq!(ask(&mut io, "/").await, "HTTP/1.1 200 OK");
        others.push(io);
    }
    ended(&mut silent).await;
    let mut byte = [0];
    assert!(
        timeout(Duration::from_millis(50), working.read(&mut byte)).await.is_err(),
        "it is still answered"
    );
    assert_eq!(ask(others.last_mut().unwrap(), "/").await, "HTTP/1.1 200 OK", "the newest idle one stays");
    drop(working);
    assert_eq!(server.reached().await, ["idle-connections"]);
}

#[tokio::test]
async fn an_address_has_a_limit_of_its_own() {
    let server = start(Limits { address_connections: 1, ..LIMITS }).await;
    let mut first = connect(server.address).await;
    assert_eq!(ask(&mut first, "/").await, "HTTP/1.1 200 OK");
    ended(&mut connect(server.address).await).await;
    assert_eq!(ask(&mut first, "/").await, "HTTP/1.1 200 OK");
    assert_eq!(server.reached().await, ["address-connections"]);
}

#[tokio::test]
async fn too_large_heads_and_slow_answers_end() {
    let short = Limits { request: Duration::from_millis(20), idle: Duration::from_millis(50), ..LIMITS };
    let server = start(short).await;
    assert_eq!(ask(&mut connect(server.address).await, "/never").await, "HTTP/1.1 503 Service Unavailable");
    // A head that never ends.
    let mut slow = connect(server.address).await;
    slow.write_all(b"GET / HTTP/1.1\r\nhost: ").await.unwrap();
    ended(&mut slow).await;
    let long = format!("/{}", "a".repeat(60_000));
    let answer = ask(&mut connect(server.address).await, &long).await;
    assert!(answer.starts_with("HTTP/1.1 431") || answer.starts_with("HTTP/1.1 414"), "{answer}");
    assert_eq!(server.reached().await, ["head-bytes", "idle-time", "request-time"]);
}

#[tokio::test]
async fn a_stop_ends_idle_connections() {
    let server = start(LIMITS).await;
    let mut idle = connect(server.address).await;
    assert_eq!(ask(&mut idle, "/").await, "HTTP/1.1 200 OK");
    server.stop.send(()).unwrap();
    ended(&mut idle).await;
    soon(server.task).await.unwrap();
}

/// A part of an answer every 100 ms, without an end.
async fn ticks() -> axum::body::Body {
    let ticks =
        futures::stream::unfold(tokio::time::interval(Duration::from_millis(100)), |mut ticks| async {
            ticks.tick().await;
            Some((Ok::<_, std::io::Error>("tick\n"), ticks))
        });
    axum::body::Body::from_stream(ticks)
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_goes_on_is_not_idle() {
    let server = start(Limits { idle: Duration::from_secs(2), ..LIMITS }).await;
    let mut io = connect(server.address).await;
    assert_eq!(ask(&mut io, "/ticks").await, "HTTP/1.1 200 OK");
    let began = tokio::time::Instant::now();
    let mut text = [0; 64];
    while began.elapsed() < Duration::from_secs(20) {
        assert!(soon(io.read(&mut text)).await.unwrap() > 0, "after {:?}", began.elapsed());
    }
}
