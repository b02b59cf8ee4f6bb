//! A server with a store in memory, and clients of it.

use pilotfish_nacos_api::{NacosApi, NacosSettings};
use pilotfish_nacos_wire::Payload;
use pilotfish_registration::testing::MemoryStore;
use pilotfish_registration::{Registrar, RegistrarSettings};
use pilotfish_registration_server::{RegistrationServer, ServerSettings, Silent};
use serde_json::Value;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) registrar: Registrar,
    stop: Option<oneshot::Sender<()>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Status and body of a response.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect(&self.body)
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ServerSettings)) -> Self {
        let (store, events) = MemoryStore::open();
        let (registrar, driver) = Registrar::new(Arc::new(store), events, RegistrarSettings::default());
        let driver = tokio::spawn(driver.run());
        assert!(registrar.ready().await);
        let mut settings = ServerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        change(&mut settings);
        let api = NacosApi::new(registrar.clone(), NacosSettings::default());
        let server = RegistrationServer::new(registrar.clone(), settings, Arc::new(Silent));
        let bound = server.with_adapter(Arc::new(api.clone())).bind().unwrap();
        let address = bound.local_addr();
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(bound.run(async {
            let _ = stopped.await;
        }));
        let keeper = tokio::spawn(async move { api.run().await });
        Self { address, registrar, stop: Some(stop), tasks: vec![driver, server, keeper] }
    }

    /// Begins to shut down.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut head = format!("{method} /nacos{path} HTTP/1.0\r\nhost: {}\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        let mut io = TcpStream::connect(self.address).await.unwrap();
        // A server that answers early may close before it has read everything.
        let _ = io.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = io.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("it has a head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) async fn call(&self, method: &str, path: &str) -> Answer {
        self.send(method, path, &[], "").await
    }

    /// Returns addresses of the instances of a service, `!` before unhealthy ones.
    pub(crate) async fn instances(&self, query: &str) -> Vec<String> {
        let answer = self.call("GET", &format!("/v1/ns/instance/list?{query}")).await.json();
        hosts(&answer)
    }

    pub(crate) async fn connect(&self) -> Client {
        let channel = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        Client { channel: channel.connect().await.unwrap(), token: None }
    }
}

/// Returns addresses of a list of instances, `!` before unhealthy ones.
pub(crate) fn hosts(info: &Value) -> Vec<String> {
    let hosts = info["hosts"].as_array().expect("it has hosts");
    let mut hosts: Vec<String> = hosts
        .iter()
        .map(|host| {
            let mark = if host["healthy"] == true { "" } else { "!" };
            format!("{mark}{}:{}", host["ip"].as_str().unwrap(), host["port"])
        })
        .collect();
    hosts.sort();
    hosts
}

/// A connection of a gRPC client.
pub(crate) struct Client {
    channel: Channel,
    pub(crate) token: Option<&'static str>,
}

/// The stream of a connection.
pub(crate) struct Stream {
    pub(crate) sender: mpsc::Sender<Payload>,
    pushes: Streaming<Payload>,
}

impl Client {
    /// Sends a request and returns type and content of the answer.
    pub(crate) async fn ask(&self, kind: &str, content: &Value) -> (String, Value) {
        let payload = Payload::new(kind, content, self.token).unwrap();
        let answer = self.unary("/Request/request", payload).await.unwrap();
        (answer.kind().to_owned(), answer.content().unwrap())
    }

    pub(crate) async fn unary(&self, path: &'static str, payload: Payload) -> Result<Payload, Status> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let codec = ProstCodec::<Payload, Payload>::default();
        let answer = grpc.unary(Request::new(payload), PathAndQuery::from_static(path), codec).await;
        answer.map(tonic::Response::into_inner)
    }

    /// Opens the stream with this first message.
    pub(crate) async fn stream(&self, first: Payload) -> Stream {
        let (sender, messages) = mpsc::channel(16);
        sender.send(first).await.unwrap();
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/BiRequestStream/requestBiStream");
        let codec = ProstCodec::<Payload, Payload>::default();
        let answer = grpc.streaming(Request::new(ReceiverStream::new(messages)), path, codec).await;
        Stream { sender, pushes: answer.unwrap().into_inner() }
    }

    /// Opens the stream and waits until the server knows the connection.
    pub(crate) async fn set_up(&self) -> Stream {
        let setup = serde_json::json!({"clientVersion": "Test", "tenant": "public", "labels": {}});
        let stream = self.stream(Payload::new("ConnectionSetupRequest", &setup, None).unwrap()).await;
        eventually("it is set up", async || {
            let (kind, answer) = self.ask("HealthCheckRequest", &serde_json::json!({})).await;
            if kind == "HealthCheckResponse" { Ok(()) } else { Err(answer) }
        })
        .await;
        stream
    }
}

impl Stream {
    /// Returns the next message.
    pub(crate) async fn next(&mut self) -> Result<Option<(String, Value)>, Status> {
        let message = self.pushes.message().await?;
        Ok(message.map(|message| (message.kind().to_owned(), message.content().unwrap())))
    }

    /// Waits until a push has these instances.
    pub(crate) async fn until(&mut self, expected: &[&str]) -> Value {
        loop {
            let pushed = tokio::time::timeout(Duration::from_secs(60), self.next()).await;
            let (kind, push) = pushed.expect("a push comes").unwrap().expect("the stream is open");
            assert_eq!(kind, "NotifySubscriberRequest");
            if hosts(&push["serviceInfo"]) == expected {
                return push;
            }
        }
    }
}

/// Waits until a check succeeds.
pub(crate) async fn eventually<E: Debug>(what: &str, check: impl AsyncFn() -> Result<(), E>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = check().await {
        assert!(Instant::now() < deadline, "{what}: {error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
