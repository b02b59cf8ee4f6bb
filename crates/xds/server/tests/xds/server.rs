//! The server over a real socket, with a client that writes HTTP/2 itself.

use crate::support::{Got, Memory, decode};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::HeaderMap;
use parking_lot::Mutex;
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use pilotfish_xds::{Fanout, Limit, NoRecorder, Protocol, Recorder, Server, ServerConfig, StreamLimits};
use prost::Message;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// A running server.
struct Running {
    fanout: Arc<Fanout<Memory>>,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn start(config: ServerConfig) -> Running {
    start_with(config, Arc::new(NoRecorder))
}

fn start_with(config: ServerConfig, recorder: Arc<dyn Recorder>) -> Running {
    let fanout = crate::support::fanout_with(recorder, StreamLimits::default());
    let server = Server::new(Arc::clone(&fanout), config);
    let bound = server.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = bound.local_addr();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(bound.run(async { drop(stopped.await) }));
    Running { fanout, address, stop, task }
}

impl Running {
    fn publish(&self) {
        self.fanout.publish(&self.fanout.source().commit());
    }
}

/// Nothing takes that long, unless it hangs.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it happens in time")
}

/// A connection; windows of that size.
async fn connect(address: SocketAddr, window: u32) -> SendRequest<Bytes> {
    let io = soon(tokio::net::TcpStream::connect(address)).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(window.max(65_535));
    let (client, connection) = soon(builder.handshake(io)).await.unwrap();
    tokio::spawn(connection);
    client
}

struct Call {
    out: SendStream<Bytes>,
    body: RecvStream,
    headers: HeaderMap,
    buffer: BytesMut,
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

async fn call(client: &SendRequest<Bytes>, path: &str) -> Call {
    call_with(client, path, None).await
}

/// A call whose only request goes out before the answer begins.
async fn call_with(client: &SendRequest<Bytes>, path: &str, only: Option<&[u8]>) -> Call {
    let mut client = soon(client.clone().ready()).await.unwrap();
    let request = http::Request::post(format!("http://xds{path}")).header("content-type", "application/grpc");
    let (response, mut out) = client.send_request(request.body(()).unwrap(), false).unwrap();
    if let Some(only) = only {
        out.send_data(framed(only), true).unwrap();
    }
    let response = soon(response).await.unwrap();
    let (head, body) = response.into_parts();
    Call { out, body, headers: head.headers, buffer: BytesMut::new() }
}

impl Call {
    fn send(&mut self, message: &[u8]) {
        self.out.send_data(framed(message), false).unwrap();
    }

    fn ask(&mut self, ty: ResourceType, names: &[&str]) {
        let node = Some(Node { id: "sidecar~10.0.0.1~a.ns~ns.svc.cluster.local".into(), ..Node::default() });
        let request = DeltaDiscoveryRequest {
            node,
            type_url: ty.type_url().into(),
            resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            ..DeltaDiscoveryRequest::default()
        };
        self.send(&request.encode_to_vec());
    }

    /// The next message; `None` at the end of the body.
    async fn message(&mut self) -> Option<Bytes> {
        loop {
            if self.buffer.len() >= 5 {
                let len = u32::from_be_bytes(self.buffer[1..5].try_into().unwrap()) as usize;
                if self.buffer.len() >= 5 + len {
                    return Some(self.buffer.split_to(5 + len).freeze().slice(5..));
                }
            }
            let data = soon(self.body.data()).await?.ok()?;
            self.body.flow_control().release_capacity(data.len()).unwrap();
            self.buffer.extend_from_slice(&data);
        }
    }

    async fn got(&mut self) -> Got {
        decode(Protocol::Delta, &self.message().await.expect("a response"))
    }

    /// The status at the end of the stream.
    async fn status(&mut self) -> (String, String) {
        let in_headers = self.headers.contains_key("grpc-status");
        let trailers = if in_headers {
            self.headers.clone()
        } else {
            while self.message().await.is_some() {}
            soon(self.body.trailers()).await.unwrap().expect("a status")
        };
        let text = |name: &str| trailers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        (text("grpc-status"), text("grpc-message"))
    }
}

#[tokio::test]
async fn a_client_subscribes_and_is_sent_changes() {
    let server = start(ServerConfig::default());
    server.fanout.source().set(0, Cluster, "a", "1");
    let client = connect(server.address, 65_535).await;
    let mut stream = call(&client, DELTA).await;
    stream.ask(Cluster, &[]);
    assert_eq!(stream.got().await.names(), ["a"]);
    server.fanout.source().set(0, Cluster, "b", "1");
    server.publish();
    assert_eq!(stream.got().await.names(), ["b"]);
    let peer = server.fanout.connections()[0].peer.clone();
    assert!(peer.address.ip().is_loopback());
}

#[tokio::test]
async fn a_bad_message_ends_its_stream_and_no_other() {
    let server = start(ServerConfig { max_message: 1000, ..ServerConfig::default() });
    let client = connect(server.address, 65_535).await;
    let mut good = call(&client, DELTA).await;
    good.ask(Cluster, &[]);
    good.got().await;
    let mut malformed = call(&client, DELTA).await;
    malformed.send(&[0xff; 30]);
    let (code, message) = malformed.status().await;
    assert_eq!(code, "3");
    assert!(message.contains("malformed request"), "{message}");
    let mut long = call(&client, DELTA).await;
    long.out.send_data(Bytes::from_static(&[0, 0, 0, 4, 0]), false).unwrap();
    let (code, message) = long.status().await;
    assert_eq!(code, "8");
    assert!(message.contains("too many bytes in a request: 1024, and at most 1000"), "{message}");
    let mut compressed = call(&client, DELTA).await;
    compressed.out.send_data(Bytes::from_static(&[1, 0, 0, 0, 0]), false).unwrap();
    assert_eq!(compressed.status().await.0, "12");
    server.fanout.source().set(0, Cluster, "a", "1");
    server.publish();
    assert_eq!(good.got().await.names(), ["a"]);
}

#[tokio::test]
async fn what_is_no_ads_stream_is_refused_with_a_status() {
    let server = start(ServerConfig::default());
    let client = connect(server.address, 65_535).await;
    assert_eq!(call(&client, "/some.Service/Method").await.status().await.0, "12");
    server.fanout.source().not_ready.store(true, Ordering::SeqCst);
    let (code, message) = call(&client, DELTA).await.status().await;
    assert_eq!(code, "14");
    assert!(message.contains("not ready"), "{message}");
    // Bytes that are no HTTP/2 end their connection.
    let mut io = tokio::net::TcpStream::connect(server.address).await.unwrap();
    io.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    // Closed or reset: both are an end.
    let _ = soon(io.read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn health_follows_readiness_and_reflection_lists_ads() {
    use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
    let server = start(ServerConfig::default());
    let client = connect(server.address, 65_535).await;
    let check = HealthCheckRequest { service: String::new() }.encode_to_vec();
    soon(async {
        loop {
            let mut health = call_with(&client, "/grpc.health.v1.Health/Check", Some(&check)).await;
            let answer = HealthCheckResponse::decode(health.message().await.unwrap()).unwrap();
            if answer.status == 1 {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    // ServerReflectionRequest { list_services: "*" }
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let mut reflection = call_with(&client, path, Some(&[0x3a, 1, b'*'])).await;
    let answer = reflection.message().await.unwrap();
    let ads = b"envoy.service.discovery.v3.AggregatedDiscoveryService";
    assert!(answer.windows(ads.len()).any(|part| part == ads));
}

#[tokio::test]
async fn a_slow_reader_gets_one_merged_push_when_it_reads_again() {
    let server = start(ServerConfig { send_buffer: 1000, ..ServerConfig::default() });
    let long = |i: usize| format!("{i}").repeat(3000);
    server.fanout.source().set(0, Cluster, "a", &long(1));
    let client = connect(server.address, 1000).await;
    let mut slow = call(&client, DELTA).await;
    slow.ask(Cluster, &[]);
    // The first bytes are there, and the window is full.
    let first = soon(slow.body.data()).await.unwrap().unwrap();
    let other = connect(server.address, 65_535).await;
    let mut quick = call(&other, DELTA).await;
    quick.ask(Cluster, &[]);
    quick.got().await;
    for i in 2..6 {
        server.fanout.source().set(0, Cluster, "a", &long(i));
        server.publish();
        assert_eq!(quick.got().await.names(), ["a"], "others are not held up");
    }
    slow.body.flow_control().release_capacity(first.len()).unwrap();
    slow.buffer.extend_from_slice(&first);
    assert_eq!(slow.got().await.names(), ["a"]);
    let newest = slow.got().await;
    assert_eq!(newest.resources, server.fanout_versions(), "the newest, and nothing in between");
}

impl Running {
    fn fanout_versions(&self) -> Vec<(String, String)> {
        let all = self.fanout.source().all(0, Cluster);
        all.into_iter().map(|(name, version)| (name, format!("{version:016x}"))).collect()
    }
}

#[tokio::test]
async fn a_shutdown_ends_streams_with_a_status_and_then_the_server() {
    let server = start(ServerConfig::default());
    let client = connect(server.address, 65_535).await;
    let mut stream = call(&client, DELTA).await;
    stream.ask(Endpoint, &["x"]);
    stream.got().await;
    server.stop.send(()).unwrap();
    let (code, message) = stream.status().await;
    assert_eq!((code.as_str(), message.as_str()), ("14", "the server is shutting down"));
    drop((client, stream));
    soon(server.task).await.unwrap();
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err());
    assert_eq!(server.fanout.stream_count(), 0);
}

#[tokio::test]
async fn a_client_that_stays_is_cut_off_after_the_deadline() {
    let drain_timeout = Duration::from_millis(200);
    let server = start(ServerConfig { drain_timeout, ..ServerConfig::default() });
    let mut idle = tokio::net::TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut first = [0; 9];
    soon(idle.read_exact(&mut first)).await.unwrap();
    let mut settings = vec![0; usize::from(u16::from_be_bytes([first[1], first[2]]))];
    soon(idle.read_exact(&mut settings)).await.unwrap();
    let stopped = Instant::now();
    server.stop.send(()).unwrap();
    // The client reads on and answers nothing. A reset is an end as well as a close.
    let reading = tokio::spawn(async move {
        let mut rest = Vec::new();
        let _ = idle.read_to_end(&mut rest).await;
        (rest, stopped.elapsed())
    });
    soon(server.task).await.unwrap();
    let (rest, waited) = soon(reading).await.unwrap();
    assert!(has_goaway(&rest), "the client is asked to leave first: {rest:?}");
    assert!(waited >= drain_timeout, "it was cut off after {waited:?}");
    // Without the deadline, keepalive would end the connection after 40 s.
    assert!(waited < Duration::from_secs(15), "it was cut off after {waited:?}");
}

/// Whether one of these HTTP/2 frames is a GOAWAY.
fn has_goaway(mut frames: &[u8]) -> bool {
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = frames {
        if *kind == 7 {
            return true;
        }
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        frames = rest.get(len..).unwrap_or_default();
    }
    false
}

#[tokio::test]
async fn a_stream_without_a_request_ends_with_deadline_exceeded() {
    let first_request_timeout = Duration::from_millis(20);
    let server = start(ServerConfig { first_request_timeout, ..ServerConfig::default() });
    let client = connect(server.address, 65_535).await;
    let (code, _) = call(&client, DELTA).await.status().await;
    assert_eq!(code, "4");
}

#[tokio::test]
async fn connections_whose_clients_are_not_known_give_way() {
    let server = start(ServerConfig { max_handshakes: 4, ..ServerConfig::default() });
    let known = connect(server.address, 65_535).await;
    let mut served = call(&known, DELTA).await;
    served.ask(Cluster, &[]);
    served.got().await;
    // These say nothing of themselves, though they speak HTTP/2.
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(connect(server.address, 65_535).await);
    }
    let mut first = Some(silent.remove(0));
    soon(async {
        while let Some(client) = first.take() {
            first = client.ready().await.ok();
            tokio::task::yield_now().await;
        }
    })
    .await;
    served.ask(Endpoint, &["a"]);
    served.got().await;
}

#[tokio::test]
async fn requests_without_end_are_read_at_a_rate() {
    let seen = Arc::new(Seen::default());
    let config = ServerConfig { requests_per_second: 1, ..ServerConfig::default() };
    let server = start_with(config, Arc::clone(&seen) as Arc<dyn Recorder>);
    let client = connect(server.address, 65_535).await;
    let mut stream = call(&client, DELTA).await;
    for n in 0..100 {
        stream.ask(Endpoint, &[&format!("r{n}")]);
    }
    soon(async {
        while seen.limits.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(*seen.limits.lock(), [Limit::RequestsPerSecond]);
    assert!(seen.requests.load(Ordering::SeqCst) < 100, "some wait");
    // Others are not held up.
    let mut other = call(&client, DELTA).await;
    other.ask(Cluster, &[]);
    other.got().await;
}

#[tokio::test]
async fn a_gone_client_is_forgotten() {
    let server = start(ServerConfig::default());
    let client = connect(server.address, 65_535).await;
    let mut stream = call(&client, DELTA).await;
    stream.ask(Cluster, &[]);
    stream.got().await;
    assert_eq!(server.fanout.stream_count(), 1);
    drop((client, stream));
    soon(async {
        while server.fanout.stream_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.fanout.group_count(), 0);
}

/// Counts what reaches streams, and remembers limits that were exceeded.
#[derive(Default)]
struct Seen {
    requests: AtomicUsize,
    limits: Mutex<Vec<Limit>>,
}

impl Recorder for Seen {
    fn received(&self, _: usize) {
        self.requests.fetch_add(1, Ordering::SeqCst);
    }

    fn limit_exceeded(&self, limit: Limit) {
        self.limits.lock().push(limit);
    }
}

/// The first bytes of a message of 100,000 bytes.
fn begun(bytes: &[u8]) -> Bytes {
    [&[0, 0, 1, 0x86, 0xa0], bytes].concat().into()
}

#[tokio::test]
async fn requests_that_never_end_share_a_budget_and_a_deadline() {
    let seen = Arc::new(Seen::default());
    let config = ServerConfig { incomplete_bytes: 1_000, ..ServerConfig::default() };
    let server = start_with(config, Arc::clone(&seen) as Arc<dyn Recorder>);
    let client = connect(server.address, 65_535).await;
    let (mut one, mut two) = (call(&client, DELTA).await, call(&client, DELTA).await);
    one.out.send_data(begun(&[0; 600]), false).unwrap();
    two.out.send_data(begun(&[0; 600]), false).unwrap();
    let (code, message) = two.status().await;
    assert_eq!(code, "8");
    assert!(message.ends_with("1210, and at most 1000 are allowed (limit incomplete-bytes)"), "{message}");
    assert_eq!(*seen.limits.lock(), [Limit::IncompleteBytes]);

    let request_timeout = Duration::from_millis(20);
    let server = start(ServerConfig { request_timeout, ..ServerConfig::default() });
    let client = connect(server.address, 65_535).await;
    let mut stream = call(&client, DELTA).await;
    stream.ask(Cluster, &[]);
    stream.got().await;
    stream.out.send_data(begun(&[]), false).unwrap();
    assert_eq!(stream.status().await.0, "4", "also after the first request");
}

#[tokio::test]
async fn a_long_first_request_begins_with_the_node() {
    let server = start(ServerConfig { first_bytes: 1_000, ..ServerConfig::default() });
    let client = connect(server.address, 65_535).await;
    let mut stream = call(&client, DELTA).await;
    let node = Some(Node { id: "a".into(), ..Node::default() });
    let resource_names_subscribe = (0..1_000).map(|n| n.to_string()).collect();
    let type_url = Endpoint.type_url().to_owned();
    let request = DeltaDiscoveryRequest {
        node,
        type_url,
        resource_names_subscribe,
        ..DeltaDiscoveryRequest::default()
    };
    let frame = framed(&request.encode_to_vec());
    stream.out.send_data(frame.slice(..1_100), false).unwrap();
    soon(async {
        while server.fanout.connections().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stream.out.send_data(frame.slice(1_100..), false).unwrap();
    assert_eq!(stream.got().await.resources.len(), 1_000);

    let mut nameless = call(&client, DELTA).await;
    // A field that nobody knows, and that does not end.
    nameless.out.send_data(begun(&[&[0x7a, 0x90, 0x8d, 6][..], &[0; 1_000]].concat()), false).unwrap();
    let (code, message) = nameless.status().await;
    assert_eq!(code, "8");
    assert!(message.ends_with("(limit first-bytes)"), "{message}");
}

#[tokio::test]
async fn calls_that_need_no_identity_are_limited() {
    const CHECK: &str = "/grpc.health.v1.Health/Check";
    fn begin(client: &mut SendRequest<Bytes>) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        let request = http::Request::post(format!("http://xds{CHECK}"));
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        client.send_request(request, false).unwrap()
    }
    let status = |response: http::Response<RecvStream>| response.headers()["grpc-status"].clone();
    let seen = Arc::new(Seen::default());
    let config = ServerConfig { max_calls: 2, call_bytes: 100, ..ServerConfig::default() };
    let server = start_with(config, Arc::clone(&seen) as Arc<dyn Recorder>);
    let mut client = connect(server.address, 65_535).await;
    let _silent = begin(&mut client);
    let ((long, mut out), (third, _third)) = (begin(&mut client), begin(&mut client));
    assert_eq!(status(soon(third).await.unwrap()), "8");
    // It says that 100,000 bytes will come, for which room would be made.
    out.send_data(begun(&[]), false).unwrap();
    assert_eq!(status(soon(long).await.unwrap()), "8");
    assert_eq!(*seen.limits.lock(), [Limit::Calls, Limit::CallBytes]);

    let request_timeout = Duration::from_millis(20);
    let server = start(ServerConfig { request_timeout, ..ServerConfig::default() });
    let (silent, _out) = begin(&mut connect(server.address, 65_535).await);
    assert_eq!(status(soon(silent).await.unwrap()), "4");
}

/// A client that opens and ends streams without end is read at its pace, and others are not.
#[tokio::test]
async fn a_connection_that_opens_streams_without_end_waits() {
    let seen = Arc::new(Seen::default());
    let config = ServerConfig { frames_per_second: 100, ..ServerConfig::default() };
    let server = start_with(config, Arc::clone(&seen) as Arc<dyn Recorder>);
    let client = connect(server.address, 65_535).await;
    let flood = tokio::spawn(async move {
        for _ in 0..200 {
            drop(call(&client, DELTA).await);
        }
    });
    soon(async {
        while !seen.limits.lock().contains(&Limit::FramesPerSecond) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!flood.is_finished(), "it waits");
    let honest = connect(server.address, 65_535).await;
    let mut stream = call(&honest, DELTA).await;
    stream.ask(Cluster, &[]);
    server.fanout.source().set(0, Cluster, "a", "1");
    server.publish();
    stream.got().await;
    flood.abort();
}

#[tokio::test]
async fn a_client_that_takes_no_responses_is_not_read_without_end() {
    let seen = Arc::new(Seen::default());
    let config = ServerConfig { send_buffer: 1_000, ..ServerConfig::default() };
    let server = start_with(config, Arc::clone(&seen) as Arc<dyn Recorder>);
    server.fanout.source().set(0, Endpoint, "x", &"x".repeat(5_000));
    let client = connect(server.address, 1_000).await;
    let (mut slow, mut quick) = (call(&client, DELTA).await, call(&client, DELTA).await);
    slow.ask(Endpoint, &["x"]);
    let first = soon(slow.body.data()).await.unwrap().unwrap();
    slow.ask(Endpoint, &["y"]);
    // Frames of one connection are read in order.
    quick.ask(Endpoint, &["q"]);
    quick.got().await;
    let before = seen.requests.load(Ordering::SeqCst);
    assert_eq!(before, 3);
    for n in 0..700 {
        slow.ask(Endpoint, &[&n.to_string()]);
    }
    // Frames of two streams are sent in turns, so by then all of the slow one's are there.
    for n in 0..700 {
        quick.ask(Endpoint, &[&format!("q{n}")]);
        quick.got().await;
    }
    let read = seen.requests.load(Ordering::SeqCst) - before - 700;
    assert!((200..300).contains(&read), "{read} of 700 requests were read");
    slow.body.flow_control().release_capacity(first.len()).unwrap();
    slow.buffer.extend_from_slice(&first);
    assert_eq!(slow.got().await.names(), ["x"]);
    let mut names = 0;
    while names < 701 {
        names += slow.got().await.resources.len();
    }
}
