//! A server on a free port, and clients.

use parking_lot::Mutex;
use pilotfish_registration::testing::MemoryStore;
use pilotfish_registration::{Registrar, RegistrarSettings, Store, StoreEvents};
use pilotfish_registration_api::v1;
use pilotfish_registration_api::v1::registration_service_client::RegistrationServiceClient;
use pilotfish_registration_server::{Protocol, Recorder, RegistrationServer, ServerSettings};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

pub(crate) type Client = RegistrationServiceClient<Channel>;

/// What the recorder heard.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) limits: BTreeMap<String, usize>,
    pub(crate) requests: Vec<(&'static str, Protocol, &'static str)>,
    pub(crate) reloads: Vec<bool>,
    pub(crate) connections: usize,
}

struct Recording(Arc<Mutex<Heard>>);

impl Recorder for Recording {
    fn request(&self, method: &'static str, protocol: Protocol, code: &'static str, _: Duration) {
        self.0.lock().requests.push((method, protocol, code));
    }
    fn limit_exceeded(&self, limit: &str) {
        *self.0.lock().limits.entry(limit.to_owned()).or_default() += 1;
    }
    fn connected(&self) {
        self.0.lock().connections += 1;
    }
    fn disconnected(&self) {
        self.0.lock().connections -= 1;
    }
    fn handshake(&self, _: bool) {}
    fn access_reloaded(&self, succeeded: bool) {
        self.0.lock().reloads.push(succeeded);
    }
}

/// A server that ends with the test.
pub(crate) struct Harness {
    pub(crate) address: SocketAddr,
    pub(crate) registrar: Registrar,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) heard: Arc<Mutex<Heard>>,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
    driver: JoinHandle<()>,
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.driver.abort();
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

impl Harness {
    pub(crate) async fn start() -> Self {
        Self::with(RegistrarSettings::default(), |_| {}).await
    }

    pub(crate) async fn with(registrar: RegistrarSettings, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let (store, events) = MemoryStore::open();
        let store = Arc::new(store);
        Self::on(Arc::clone(&store), store, events, registrar, change).await
    }

    /// With a store that is served in place of the one in memory.
    pub(crate) async fn on(
        store: Arc<MemoryStore>,
        served: Arc<dyn Store>,
        events: StoreEvents,
        registrar: RegistrarSettings,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Self {
        let harness = Self::unread(store, served, events, registrar, change);
        assert!(harness.registrar.ready().await);
        harness
    }

    /// The same before the store was read.
    pub(crate) fn unread(
        store: Arc<MemoryStore>,
        served: Arc<dyn Store>,
        events: StoreEvents,
        registrar: RegistrarSettings,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Self {
        let (registrar, driver) = Registrar::new(served, events, registrar);
        let driver = tokio::spawn(driver.run());
        let mut settings = ServerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        settings.bookmark_interval = Duration::from_millis(100);
        settings.reload_interval = Duration::from_millis(20);
        change(&mut settings);
        let heard = Arc::new(Mutex::new(Heard::default()));
        let recorder = Arc::new(Recording(Arc::clone(&heard)));
        let bound = RegistrationServer::new(registrar.clone(), settings, recorder).bind().unwrap();
        let address = bound.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(bound.run(async {
            let _ = stopped.await;
        }));
        Self { address, registrar, store, heard, stop: Some(stop), server: Some(server), driver }
    }

    pub(crate) async fn grpc(&self) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        RegistrationServiceClient::new(endpoint.connect().await.unwrap())
    }

    /// One request on a connection of its own: status, headers and body.
    pub(crate) async fn http(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Http {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        self.raw(head.as_bytes()).await
    }

    /// These bytes on a connection of its own, and the answer up to its end.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Http {
        let mut io = TcpStream::connect(self.address).await.unwrap();
        // A server that answers early may close before it has read everything.
        let _ = io.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = io.read_to_end(&mut answer).await;
        Http::parse(&String::from_utf8_lossy(&answer))
    }

    pub(crate) async fn json(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let Http { status, body, .. } = self.http(method, path, &[], body).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    pub(crate) fn limit(&self, name: &str) -> usize {
        self.heard.lock().limits.get(name).copied().unwrap_or_default()
    }

    /// Asks the server to stop; resolves when it has.
    pub(crate) async fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(server) = self.server.take() {
            server.await.unwrap();
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Http {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

/// An instance of `web` in `default` with a lease of 10 s.
pub(crate) fn instance(id: &str) -> v1::Instance {
    v1::Instance {
        namespace: "default".into(),
        service: "web".into(),
        id: id.into(),
        addresses: vec!["10.0.0.1".into()],
        ports: vec![v1::Port { number: 8080, ..v1::Port::default() }],
        ttl: Some(prost_types::Duration { seconds: 10, nanos: 0 }),
        ..v1::Instance::default()
    }
}

pub(crate) fn register(id: &str) -> v1::RegisterRequest {
    v1::RegisterRequest { instance: Some(instance(id)), expected_revision: None }
}

pub(crate) fn renew(id: &str) -> v1::RenewRequest {
    v1::RenewRequest { namespace: "default".into(), service: "web".into(), id: id.into() }
}

pub(crate) fn deregister(id: &str) -> v1::DeregisterRequest {
    v1::DeregisterRequest {
        namespace: "default".into(),
        service: "web".into(),
        id: id.into(),
        ..v1::DeregisterRequest::default()
    }
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
