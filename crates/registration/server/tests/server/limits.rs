//! What a client can make the server do, and what ends it.

use crate::harness::{Harness, eventually, instance, register, renew};
use bytes::Bytes;
use futures::future::BoxFuture;
use pilotfish_registration::testing::MemoryStore;
use pilotfish_registration::{
    InstanceKey, Limits, RegistrarSettings, RenewError, Store, StoreDescription, Write, WriteError, Written,
};
use pilotfish_registration_api::{MAX_ITEMS, v1};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

/// A store that never answers.
struct Hanging(Arc<MemoryStore>);

impl Store for Hanging {
    fn write(&self, _: Vec<Write>) -> BoxFuture<'_, Vec<Result<Written, WriteError>>> {
        Box::pin(std::future::pending())
    }
    fn renew(&self, _: Vec<InstanceKey>) -> BoxFuture<'_, Vec<Result<(), RenewError>>> {
        Box::pin(std::future::pending())
    }
    fn describe(&self) -> StoreDescription {
        self.0.describe()
    }
}

const PATH: &str = "/v1/namespaces/default/services/web/instances/a";

#[tokio::test]
async fn a_body_without_end_is_cut_off() {
    let harness =
        Harness::with(RegistrarSettings::default(), |settings| settings.limits.request_bytes = 100_000).await;
    let declared = format!("PUT {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999999\r\n\r\n");
    let answer = harness.raw(declared.as_bytes()).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (413, Some("RESOURCE_EXHAUSTED")),
        "{answer:?}"
    );
    let mut endless =
        format!("PUT {PATH} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..50 {
        endless.extend(b"1000\r\n");
        endless.extend([b' '; 0x1000]);
        endless.extend(b"\r\n");
    }
    let mut io = TcpStream::connect(harness.address).await.unwrap();
    let _ = io.write_all(&endless).await;
    let mut answer = [0; 64];
    let read = io.read(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer[..read]).contains(" 413 "), "{answer:?}");
    let mut client = harness.grpc().await;
    let large = v1::Instance { metadata: [("a".to_owned(), "x".repeat(200_000))].into(), ..instance("a") };
    let status = client
        .register(v1::RegisterRequest { instance: Some(large), expected_revision: None })
        .await
        .unwrap_err();
    assert!(matches!(status.code(), Code::ResourceExhausted | Code::OutOfRange), "{status:?}");
    eventually("it is counted", || harness.limit("request-bytes") >= 2).await;
    client.register(register("a")).await.unwrap();
}

#[tokio::test]
async fn slow_clients_are_ended() {
    let harness = Harness::with(RegistrarSettings::default(), |settings| {
        settings.limits.first_request_timeout = Duration::from_millis(100);
        settings.limits.request_timeout = Duration::from_millis(300);
        settings.limits.idle_timeout = Duration::from_millis(300);
    })
    .await;
    let begin = Instant::now();
    for silent in ["", "P", "PUT / HTTP/1.1\r\nhost: lo", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let answer = harness.raw(silent.as_bytes()).await;
        assert!(matches!(answer.status, 0 | 400 | 408), "{silent:?}: {answer:?}");
    }
    let body = format!("PUT {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{{");
    let answer = harness.raw(body.as_bytes()).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (408, Some("DEADLINE_EXCEEDED")),
        "{answer:?}"
    );
    let idle = harness.raw(format!("GET {PATH} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await;
    assert_eq!(idle.status, 404, "a connection that was used and then is idle is closed");
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    eventually("all are gone", || harness.heard.lock().connections == 0).await;
}

#[tokio::test]
async fn a_client_that_registers_a_million_instances_meets_its_limit() {
    let limits = Limits { owner_instances: 2_500, ..Limits::default() };
    let harness = Harness::with(RegistrarSettings { limits, ..Default::default() }, |_| {}).await;
    let mut client = harness.grpc().await;
    let (mut good, mut refused) = (0, 0);
    for batch in 0..5 {
        let requests = (0..MAX_ITEMS).map(|id| register(&format!("{batch}-{id}"))).collect();
        let results =
            client.batch_register(v1::BatchRegisterRequest { requests }).await.unwrap().into_inner().results;
        for result in results {
            match result.result.unwrap() {
                v1::register_result::Result::Response(_) => good += 1,
                v1::register_result::Result::Error(error) => {
                    assert_eq!(error.code(), v1::error::Code::ResourceExhausted);
                    assert!(error.message.contains("owner-instances"), "{}", error.message);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((good, refused), (2_500, 2_500));
    assert_eq!(harness.limit("owner-instances"), 2_500);
    client.renew(renew("0-0")).await.unwrap();
}

#[tokio::test]
async fn batches_are_bounded_before_they_are_decoded() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let many = v1::BatchRenewRequest { requests: vec![v1::RenewRequest::default(); 200_000] };
    let status = client.batch_renew(many).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("batch-items"), "{status:?}");
    let body = format!("{{\"requests\":[{}{{}}]}}", "{},".repeat(MAX_ITEMS));
    let (status, answer) = harness.json("POST", "/v1/instances:batchRenew", &body).await;
    assert_eq!(status, 429);
    assert!(answer["error"]["message"].as_str().unwrap().contains("batch-items"), "{answer}");
    eventually("both are counted", || harness.limit("batch-items") == 2).await;
}

#[tokio::test]
async fn requests_connections_and_streams_are_counted() {
    let harness = Harness::with(RegistrarSettings::default(), |settings| {
        settings.limits.requests_per_second = 50;
        settings.limits.address_connections = 2;
        settings.limits.connection_streams = 2;
    })
    .await;
    let mut client = harness.grpc().await;
    let _streams = [
        client.watch(v1::WatchRequest::default()).await.unwrap(),
        client.watch(v1::WatchRequest::default()).await.unwrap(),
    ];
    let third = client.watch(v1::WatchRequest::default()).await.map(drop).unwrap_err();
    assert_eq!(third.code(), Code::ResourceExhausted);
    let _second = harness.grpc().await;
    assert_eq!(harness.raw(b"GET / HTTP/1.1\r\n\r\n").await.status, 0, "a third connection is closed");
    assert_eq!(harness.limit("address-connections"), 1);
    let mut limited = false;
    for _ in 0..2_000 {
        if let Err(status) = client.renew(renew("a")).await
            && status.code() == Code::ResourceExhausted
        {
            assert!(status.message().contains("requests-per-second"), "{status:?}");
            limited = true;
            break;
        }
    }
    assert!(limited);
    eventually("all are counted", || {
        harness.limit("connection-streams") == 1 && harness.limit("requests-per-second") == 1
    })
    .await;
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_its_heartbeat_stream() {
    let harness =
        Harness::with(RegistrarSettings::default(), |settings| settings.limits.request_bytes = 50_000).await;
    let mut client = harness.grpc().await;
    let long = v1::RenewRequest { id: "x".repeat(60_000), ..renew("a") };
    let requests = futures::stream::iter([v1::HeartbeatRequest { renewals: vec![long] }]);
    let mut responses = client.heartbeat(requests).await.unwrap().into_inner();
    let status = responses.message().await.unwrap_err();
    assert!(matches!(status.code(), Code::ResourceExhausted | Code::OutOfRange), "{status:?}");
    client.register(register("a")).await.unwrap();
}

#[tokio::test]
async fn heads_are_bounded() {
    let harness = Harness::start().await;
    let long = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(100_000));
    assert_eq!(harness.raw(long.as_bytes()).await.status, 431);
    let many = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(100));
    assert_eq!(harness.raw(many.as_bytes()).await.status, 431);
    let bytes = Bytes::from_static(&[0xff; 4_000]);
    assert!(matches!(harness.raw(&bytes).await.status, 0 | 400));
    assert_eq!(harness.json("GET", "/v1/instances", "").await.0, 200);
}

#[tokio::test]
async fn requests_that_do_not_end_fill_their_own_connection_only() {
    let harness = Harness::with(RegistrarSettings::default(), |settings| {
        settings.limits.request_bytes = 100_000;
        settings.limits.connection_request_bytes = 250_000;
    })
    .await;
    let io = TcpStream::connect(harness.address).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut open = Vec::new();
    for _ in 0..3 {
        let request = http::Request::put(format!("http://{}{PATH}", harness.address)).body(()).unwrap();
        sender = sender.ready().await.unwrap();
        let (response, mut body) = sender.send_request(request, false).unwrap();
        body.send_data(Bytes::from(vec![b' '; 90_000]), false).unwrap();
        open.push((response, body));
    }
    let (refused, _) = open.remove(2);
    let (refused, mut body) = refused.await.unwrap().into_parts();
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["pilotfish-limit"], "connection-request-bytes");
    let text = body.data().await.unwrap().unwrap();
    assert!(text.starts_with(br#"{"error":{"code":"RESOURCE_EXHAUSTED""#), "{text:?}");
    harness.grpc().await.register(register("a")).await.unwrap();
    // What ends is given back.
    drop(open);
    let request = http::Request::get(format!("http://{}/v1/instances", harness.address)).body(()).unwrap();
    let (response, _) = sender.ready().await.unwrap().send_request(request, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    connection.abort();
}

#[tokio::test]
async fn silent_strangers_give_way() {
    let harness =
        Harness::with(RegistrarSettings::default(), |settings| settings.limits.unused_connections = 4).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(harness.address).await.unwrap());
    }
    eventually("all are there", || harness.heard.lock().connections == 4).await;
    let mut client = harness.grpc().await;
    client.register(register("a")).await.unwrap();
    let mut end = [0];
    assert_eq!(silent[0].read(&mut end).await.unwrap(), 0, "the one that has waited longest is closed");
    client.register(register("b")).await.unwrap();
}

#[tokio::test]
async fn a_store_that_does_not_answer_holds_nobody() {
    let (store, events) = MemoryStore::open();
    let store = Arc::new(store);
    let hanging = Arc::new(Hanging(Arc::clone(&store)));
    let harness = Harness::on(store, hanging, events, RegistrarSettings::default(), |settings| {
        settings.limits.request_timeout = Duration::from_millis(200);
    })
    .await;
    let mut client = harness.grpc().await;
    assert_eq!(client.register(register("a")).await.unwrap_err().code(), Code::DeadlineExceeded);
    let requests = futures::stream::iter([v1::HeartbeatRequest { renewals: vec![renew("a")] }]);
    let mut responses = client.heartbeat(requests).await.unwrap().into_inner();
    assert_eq!(responses.message().await.unwrap_err().code(), Code::DeadlineExceeded);
    let (status, answer) =
        harness.json("PUT", PATH, r#"{"addresses":["10.0.0.1"],"ports":[{"number":80}]}"#).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (504, Some("DEADLINE_EXCEEDED")));
}

#[tokio::test]
async fn streams_end_when_they_are_old() {
    let harness = Harness::with(RegistrarSettings::default(), |settings| {
        settings.limits.stream_age = Duration::from_millis(300);
    })
    .await;
    let mut client = harness.grpc().await;
    let mut watch = client.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    let status = loop {
        match watch.message().await {
            Ok(response) => assert!(response.is_some(), "it ends with a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("resume"), "{status:?}");
    let silent = futures::stream::pending::<v1::HeartbeatRequest>();
    let mut silent = client.heartbeat(silent).await.unwrap().into_inner();
    assert_eq!(silent.message().await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_connection_with_very_many_frames_is_read_at_a_rate() {
    let harness =
        Harness::with(RegistrarSettings::default(), |settings| settings.limits.frames_per_second = 100).await;
    let mut io = TcpStream::connect(harness.address).await.unwrap();
    io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    io.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    // Empty data on no stream would end the connection; pings are answered.
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[7; 8]].concat();
    io.write_all(&ping.repeat(1_500)).await.unwrap();
    eventually("it waits", || harness.limit("frames-per-second") > 0).await;
    // Others do not wait for it.
    let mut client = harness.grpc().await;
    client.register(register("a")).await.unwrap();
}
