//! Checks against servers on loopback: good ones, broken ones, and ones that mean harm.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use parking_lot::Mutex;
use pilotfish_registration::{
    Record, RecordState, Registration, RegistrationCheck, RegistrationCheckKind, RegistrationPort,
};
use pilotfish_registration_checks::{CheckHandle, CheckSettings, Networks, Refusal, Verdict, checks};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Serves every connection until dropped.
struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<F: Future<Output = ()> + Send + 'static>(
    answer: impl Fn(TcpStream) -> F + Send + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    Server { address, task }
}

/// Reads a request and answers with this text. The requests are kept.
async fn serve_text(text: &'static str) -> (Server, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let requests = seen.clone();
    let server = serve(move |mut stream| {
        let requests = requests.clone();
        async move {
            let mut request = vec![0; 4096];
            let Ok(length) = stream.read(&mut request).await else { return };
            requests.lock().push(String::from_utf8_lossy(&request[..length]).into_owned());
            stream.write_all(text.as_bytes()).await.ok();
        }
    });
    (server.await, seen)
}

fn instance(address: SocketAddr, kind: RegistrationCheckKind) -> Arc<Record> {
    let mut given = Registration::new("default", "web", "a");
    given.addresses = vec![address.ip().to_string()];
    given.ports = vec![RegistrationPort { number: u32::from(address.port()), ..Default::default() }];
    let second = Duration::from_secs(1);
    let check = RegistrationCheck {
        kind: Some(kind),
        interval: second,
        timeout: second,
        unhealthy_threshold: 1,
        ..Default::default()
    };
    given.checks = vec![check];
    let instance = Arc::new(given.validate("cluster.local").unwrap());
    Arc::new(Record { instance, owner: "me".into(), revision: 1, created: 1, state: RecordState::Serving })
}

struct Running {
    handle: CheckHandle,
    told: Arc<Mutex<Vec<Verdict>>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn run(networks: Networks) -> Running {
    let (handle, runner) = checks(CheckSettings { networks, ..CheckSettings::default() });
    let told: Arc<Mutex<Vec<Verdict>>> = Arc::default();
    let sink = told.clone();
    let task = tokio::spawn(runner.run(move |verdict| sink.lock().push(verdict)));
    Running { handle, told, task }
}

impl Running {
    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what}: {:?} {:?}", self.handle.report(), self.told.lock());
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn last_failure(&self) -> Option<String> {
        self.told.lock().last().and_then(|verdict| Some(verdict.failure.as_ref()?.to_string()))
    }
}

/// What one probe says: passed, or why not.
async fn said(address: SocketAddr, kind: RegistrationCheckKind) -> String {
    let running = run(Networks::with_loopback());
    running.handle.set(instance(address, kind));
    let done = |running: &Running| running.handle.report().passed + running.handle.report().failed > 0;
    running.until("a probe is done", done).await;
    running.last_failure().unwrap_or_else(|| "passed".to_owned())
}

fn http(path: &str, host: &str) -> RegistrationCheckKind {
    RegistrationCheckKind::Http { path: path.to_owned(), host: host.to_owned() }
}

#[tokio::test]
async fn http_checks_ask_for_their_path_and_take_good_statuses() {
    let (server, seen) = serve_text("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(said(server.address, http("/healthz?full=1", "web.example.com")).await, "passed");
    let request = seen.lock()[0].to_ascii_lowercase();
    assert!(request.starts_with("get /healthz?full=1 http/1.1\r\nhost: web.example.com\r\n"), "{request}");
    assert!(
        request.contains("user-agent: pilotfish-check\r\n") && request.contains("connection: close\r\n"),
        "{request}"
    );
    assert_eq!(said(server.address, http("/", "")).await, "passed");
    let host = format!("\r\nhost: {}\r\n", server.address);
    assert!(seen.lock()[1].to_ascii_lowercase().contains(&host));
    let (server, _) = serve_text("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n").await;
    assert_eq!(said(server.address, http("/", "")).await, "passed", "and it is not followed");
}

#[tokio::test]
async fn bad_answers_fail_and_nothing_of_them_is_told() {
    for (text, wanted) in [
        ("HTTP/1.1 503 Secret\r\nContent-Length: 6\r\n\r\nsecret", "HTTP check: status 503"),
        ("HTTP/1.1 101 Switching\r\n\r\n", "HTTP check: status 101"),
        ("SSH-2.0-secret\r\n", "HTTP check: the answer is no HTTP"),
        ("", "HTTP check: the connection ended before an answer"),
    ] {
        let (server, _) = serve_text(text).await;
        assert_eq!(said(server.address, http("/", "")).await, wanted, "{text:?}");
    }
}

#[tokio::test]
async fn endless_and_silent_answers_have_limits() {
    let endless = serve(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.ok();
        while stream.write_all(b"X-More: and more\r\n").await.is_ok() {}
    })
    .await;
    let told = said(endless.address, http("/", "")).await;
    assert!(told.contains("has more than 16384 bytes") || told.contains("is no HTTP"), "{told}");
    let silent = serve(|stream| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(said(silent.address, http("/", "")).await, "HTTP check: no answer within 1s");
    assert_eq!(said(silent.address, RegistrationCheckKind::Tcp).await, "passed");
    let grpc = RegistrationCheckKind::Grpc { service: String::new() };
    assert!(said(silent.address, grpc.clone()).await.starts_with("gRPC check: no answer"));
    let (text, _) = serve_text("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let told = said(text.address, grpc).await;
    assert!(told.starts_with("gRPC check: "), "{told}");
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert_eq!(said(closed, RegistrationCheckKind::Tcp).await, "TCP check: the connection was refused");
}

#[tokio::test]
async fn grpc_checks_ask_for_their_service() {
    let (reporter, service) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    reporter.set_service_status("shop", tonic_health::ServingStatus::NotServing).await;
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let server =
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    let ask = |service: &str| said(address, RegistrationCheckKind::Grpc { service: service.to_owned() });
    assert_eq!(ask("").await, "passed");
    assert_eq!(ask("shop").await, "gRPC check: NOT_SERVING");
    assert_eq!(ask("other").await, "gRPC check: the server does not know the service");
    server.abort();
}

#[tokio::test]
async fn an_instance_that_recovers_is_told_once() {
    let (good, _) = serve_text("HTTP/1.1 200 OK\r\n\r\n").await;
    let running = run(Networks::with_loopback());
    let address = good.address;
    drop(good);
    running.handle.set(instance(address, RegistrationCheckKind::Tcp));
    running.until("it fails", |running| running.last_failure().is_some()).await;
    running.until("counts follow", |running| running.handle.report().failing == 1).await;
    let listener = TcpListener::bind(address).await.unwrap();
    running.until("it is well again", |running| running.told.lock().len() == 2).await;
    assert_eq!(running.last_failure(), None);
    running.until("it passes on", |running| running.handle.report().passed > 2).await;
    assert_eq!(running.told.lock().len(), 2);
    running.handle.remove(&instance(address, RegistrationCheckKind::Tcp).instance.key);
    running.until("nothing is checked", |running| running.handle.report().checks == 0).await;
    drop(listener);
}

#[tokio::test]
async fn loopback_is_not_asked_by_default() {
    let (server, seen) = serve_text("HTTP/1.1 200 OK\r\n\r\n").await;
    let running = run(Networks::default());
    running.handle.set(instance(server.address, http("/", "")));
    running
        .until("it is refused", |running| running.handle.report().refused.get(&Refusal::Address) == Some(&1))
        .await;
    assert_eq!((running.handle.report().checks, seen.lock().len()), (0, 0));
}
