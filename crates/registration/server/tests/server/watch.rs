//! Watches by gRPC, lines of JSON and server-sent events.

use crate::harness::{Client, Harness, deregister, eventually, instance, register};
use pilotfish_registration::testing::MemoryStore;
use pilotfish_registration::{Limits, RegistrarSettings, StoreEvent, store_events};
use pilotfish_registration_api::v1::{self, watch_event::Change};
use serde_json::Value;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tonic::{Code, Streaming};

/// The next response that tells something.
async fn next(watch: &mut Streaming<v1::WatchResponse>) -> v1::WatchResponse {
    loop {
        let response = watch.message().await.unwrap().unwrap();
        if response.snapshot || !response.events.is_empty() {
            return response;
        }
    }
}

fn told(response: &v1::WatchResponse) -> Vec<String> {
    let told = response.events.iter().map(|event| match event.change.as_ref().unwrap() {
        Change::Updated(record) => format!("+{}", record.instance.as_ref().unwrap().id),
        Change::Removed(key) => format!("-{}", key.id),
    });
    told.collect()
}

async fn watch(
    client: &mut Client,
    resume: Option<(u64, u64)>,
) -> Result<Streaming<v1::WatchResponse>, tonic::Status> {
    let request = v1::WatchRequest {
        resume_revision: resume.map(|(revision, _)| revision),
        resume_epoch: resume.map(|(_, epoch)| epoch),
        ..v1::WatchRequest::default()
    };
    client.watch(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_watch_tells_what_there_is_what_changes_and_resumes() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    client.register(register("a")).await.unwrap();
    let mut first = watch(&mut client, None).await.unwrap();
    let snapshot = next(&mut first).await;
    assert!(snapshot.snapshot && !snapshot.partial);
    assert_eq!(told(&snapshot), ["+a"]);
    client.register(register("b")).await.unwrap();
    let change = next(&mut first).await;
    assert_eq!(told(&change), ["+b"]);
    drop(first);
    client.deregister(deregister("a")).await.unwrap();
    client.register(register("c")).await.unwrap();
    let mut second = watch(&mut client, Some((change.revision, change.epoch))).await.unwrap();
    let mut missed = Vec::new();
    while missed.len() < 2 {
        let response = next(&mut second).await;
        assert!(!response.snapshot);
        missed.extend(told(&response));
    }
    assert_eq!(missed, ["-a", "+c"]);
}

#[tokio::test]
async fn a_revision_that_is_too_old_is_out_of_range() {
    let settings =
        RegistrarSettings { limits: Limits { history_events: 3, ..Limits::default() }, ..Default::default() };
    let harness = Harness::with(settings, |_| {}).await;
    let mut client = harness.grpc().await;
    let first = client.register(register("a")).await.unwrap().into_inner().revision;
    for id in 0..10 {
        client.register(register(&id.to_string())).await.unwrap();
    }
    let failed = watch(&mut client, Some((first, 0))).await.map(drop).unwrap_err();
    assert_eq!(failed.code(), Code::OutOfRange);
    let (status, answer) =
        harness.json("GET", &format!("/v1/instances:watch?resumeRevision={first}"), "").await;
    assert_eq!((status, &answer["error"]["code"]), (410, &Value::from("OUT_OF_RANGE")));
}

/// What the store never had, and what another process had.
#[tokio::test]
async fn watch_of_another_life_of_the_store_is_out_of_range() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let revision = client.register(register("a")).await.unwrap().into_inner().revision;
    let list = client.list_instances(v1::ListInstancesRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.revision, revision);
    for resume in [(revision + 1, list.epoch), (u64::MAX, list.epoch), (revision, list.epoch ^ 1)] {
        let failed = watch(&mut client, Some(resume)).await.map(drop).unwrap_err();
        assert_eq!(failed.code(), Code::OutOfRange, "{resume:?}: {failed}");
        let (revision, epoch) = resume;
        let path = format!("/v1/instances:watch?resumeRevision={revision}&resumeEpoch={epoch}");
        assert_eq!(harness.json("GET", &path, "").await.0, 410, "{resume:?}");
        // A browser cannot ask without its last id: it starts again.
        let last = format!("accept: text/event-stream\r\nlast-event-id: {revision}-{epoch}\r\n");
        let mut events = lines(&harness, "/v1/instances:watch", &last).await;
        assert!(!line(&mut events, "data: ", "\"snapshot\":true").await.is_empty(), "{resume:?}");
    }
    assert!(watch(&mut client, Some((list.revision, list.epoch))).await.is_ok());
}

/// Neither that an instance is registered nor that it is not.
#[tokio::test]
async fn reads_before_the_store_was_read_are_unavailable() {
    let (store, _) = MemoryStore::open();
    let store = Arc::new(store);
    let (sender, events) = store_events();
    let harness = Harness::unread(store.clone(), store, events, RegistrarSettings::default(), |_| {});
    let one = "/v1/namespaces/default/services/web/instances/a";
    let body = r#"{"addresses":["10.0.0.1"],"ports":[{"number":8080}]}"#;
    let calls = [
        ("GET", one, ""),
        ("GET", "/v1/instances", ""),
        ("GET", "/v1/instances?namespace=default&service=web", ""),
        ("GET", "/v1/instances:watch", ""),
        ("PUT", one, body),
    ];
    for (method, path, body) in calls {
        let answer = harness.http(method, path, &[], body).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (503, &Value::from("UNAVAILABLE")),
            "{path}"
        );
        assert!(answer.head.contains("retry-after: 1"), "{path}: {}", answer.head);
    }
    let mut client = harness.grpc().await;
    let failed = client.list_instances(v1::ListInstancesRequest::default()).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    sender.send(vec![StoreEvent::Reset { revision: 0, records: Vec::new(), lapsed: Vec::new() }]).await;
    assert!(harness.registrar.ready().await);
    assert_eq!(harness.json("GET", one, "").await.0, 404);
    assert_eq!(harness.json("GET", "/v1/instances", "").await.0, 200);
}

#[tokio::test]
async fn a_watch_is_filtered_and_its_bookmarks_go_on() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let request = v1::WatchRequest { namespace: "shop".into(), ..v1::WatchRequest::default() };
    let mut shop = client.watch(request).await.unwrap().into_inner();
    assert_eq!(told(&next(&mut shop).await), Vec::<String>::new());
    let revision = client.register(register("a")).await.unwrap().into_inner().revision;
    loop {
        let bookmark = shop.message().await.unwrap().unwrap();
        assert!(bookmark.events.is_empty(), "{bookmark:?}");
        if bookmark.revision >= revision {
            break;
        }
    }
    let other = v1::Instance { namespace: "shop".into(), ..instance("x") };
    client.register(v1::RegisterRequest { instance: Some(other), expected_revision: None }).await.unwrap();
    assert_eq!(told(&next(&mut shop).await), ["+x"]);
}

async fn lines(harness: &Harness, path: &str, headers: &str) -> Lines<BufReader<TcpStream>> {
    let mut io = TcpStream::connect(harness.address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", harness.address);
    io.write_all(head.as_bytes()).await.unwrap();
    BufReader::new(io).lines()
}

/// The next line that begins like this, without chunk sizes and bookmarks.
async fn line(lines: &mut Lines<BufReader<TcpStream>>, begin: &str, part: &str) -> String {
    loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if line.starts_with(begin) && line.contains(part) {
            return line;
        }
    }
}

#[tokio::test]
async fn lines_of_json_and_events() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    client.register(register("a")).await.unwrap();
    let mut json = lines(&harness, "/v1/instances:watch?service=web", "").await;
    let first: Value = serde_json::from_str(&line(&mut json, "{", "\"snapshot\"").await).unwrap();
    assert_eq!(first["events"][0]["updated"]["instance"]["id"], "a");
    let mut events = lines(&harness, "/v1/instances:watch", "accept: text/event-stream\r\n").await;
    let id = line(&mut events, "id: ", "-").await;
    line(&mut events, "data: {", "\"snapshot\"").await;
    drop(events);
    client.register(register("b")).await.unwrap();
    let change: Value = serde_json::from_str(&line(&mut json, "{", "\"events\"").await).unwrap();
    assert_eq!(change["events"][0]["updated"]["instance"]["id"], "b");
    let resume = format!("accept: text/event-stream\r\nlast-event-{id}\r\n");
    let mut events = lines(&harness, "/v1/instances:watch", &resume).await;
    let data = line(&mut events, "data: {", "events").await;
    assert!(data.contains("\"b\"") && !data.contains("\"a\"") && !data.contains("snapshot"), "{data}");
}

#[tokio::test]
async fn watches_of_gone_clients_are_forgotten() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let streams = [watch(&mut client, None).await.unwrap(), watch(&mut client, None).await.unwrap()];
    let json = lines(&harness, "/v1/instances:watch", "").await;
    eventually("all are open", || harness.registrar.stats().watches == 3).await;
    drop((streams, json));
    eventually("all are gone", || harness.registrar.stats().watches == 0).await;
}

#[tokio::test]
async fn lists_and_watches_come_in_parts_that_clients_take() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let large = |id: usize| {
        let metadata = [("note".to_owned(), "x".repeat(15_000))].into();
        let instance = v1::Instance { metadata, ..instance(&format!("{id:03}")) };
        v1::RegisterRequest { instance: Some(instance), expected_revision: None }
    };
    for batch in 0..4 {
        let requests = (batch * 100..(batch + 1) * 100).map(large).collect();
        client.batch_register(v1::BatchRegisterRequest { requests }).await.unwrap();
    }
    let mut page = v1::ListInstancesRequest { page_size: 1_000, ..Default::default() };
    let mut listed = Vec::new();
    loop {
        let answer = client.list_instances(page.clone()).await.unwrap().into_inner();
        listed.extend(answer.records.into_iter().map(|record| record.instance.unwrap().id));
        page.page_token = answer.next_page_token;
        if page.page_token.is_empty() {
            break;
        }
    }
    let expected: Vec<_> = (0..400).map(|id| format!("{id:03}")).collect();
    assert_eq!(listed, expected);
    let mut watch = watch(&mut client, None).await.unwrap();
    let (mut seen, mut parts) = (Vec::new(), 0);
    loop {
        let response = next(&mut watch).await;
        assert!(response.snapshot);
        seen.extend(told(&response));
        parts += 1;
        if !response.partial {
            break;
        }
    }
    assert!(parts > 4, "{parts}");
    assert_eq!(seen, expected.iter().map(|id| format!("+{id}")).collect::<Vec<_>>());
}
