//! Which requests a watch sends, and when, to API servers that fail in the same way for ever. Time is virtual.

use super::{NoopObserver, Reader, Resource, Watch, WatchTarget, WatchUpdate};
use futures::StreamExt;
use futures::stream;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use pilotfish_model::Kind;
use pilotfish_source::Jitter;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

const LONG: Duration = Duration::from_secs(600);

/// An answer: the status, the text, and how long the stream stays open after it.
type Answer = (u16, String, Duration);

/// An API server that answers by a function, and the requests that it got.
fn server(answer: impl Fn(&str) -> Answer + Clone + Send + 'static) -> (Client, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = requests.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().to_string();
        let (status, text, open) = answer(&query);
        log.lock().unwrap().push(query);
        let rest = stream::once(async move {
            sleep(open).await;
            None
        });
        let first = stream::once(async { Some(text) });
        let frames = first.chain(rest).filter_map(async |text: Option<String>| text);
        let frames = frames.map(|text| Ok::<_, Infallible>(http_body::Frame::data(bytes::Bytes::from(text))));
        let answer = http::Response::builder().status(status).body(StreamBody::new(Box::pin(frames)));
        async move { answer }
    });
    (Client::new(service, "default"), requests)
}

fn resource(path: &str) -> Resource {
    Resource { path: path.into(), labels: String::new(), fields: String::new() }
}

fn start(
    client: Client,
    waiting: usize,
) -> (watch::Sender<Option<Resource>>, mpsc::Receiver<(Kind, WatchUpdate)>) {
    let (out, updates) = mpsc::channel(waiting);
    let (observer, jitter) = (Arc::new(NoopObserver), Jitter::seeded(0));
    let target = WatchTarget { cluster: "test".into(), kind: Kind::Service, observer, jitter };
    let (resource_sender, resource) = watch::channel(Some(resource("/api/v1/services")));
    tokio::spawn(Watch::new(client, target, Reader::Object(Kind::Service), out).run(resource));
    (resource_sender, updates)
}

/// The updates that arrive within [`LONG`], in short.
async fn collect(updates: &mut mpsc::Receiver<(Kind, WatchUpdate)>) -> Vec<String> {
    let end = Instant::now() + LONG;
    let mut collected = Vec::new();
    while let Ok(Some((_, news))) = tokio::time::timeout_at(end, updates.recv()).await {
        collected.push(match news {
            WatchUpdate::Changes(changes) => format!("{} changes", changes.len()),
            WatchUpdate::Failed(reason) => format!("failed: {reason}"),
            WatchUpdate::Listed => "listed".into(),
            WatchUpdate::Healthy => "healthy".into(),
        });
    }
    collected
}

const ADDED: &str =
    r#"{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"b","resourceVersion":"1"}}}"#;
const COMPLETE: &str = concat!(
    r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","#,
    r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#
);

fn is_list(query: &str) -> bool {
    query.contains("sendInitialEvents")
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_again_and_again_is_a_fault_and_no_loop() {
    let gone = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"message":"too old","reason":"Expired"}"#;
    let (client, requests) = server(move |query| match is_list(query) {
        true => (200, format!("{ADDED}\n{COMPLETE}\n"), Duration::ZERO),
        false => (410, gone.into(), Duration::ZERO),
    });
    let (_resource, mut updates) = start(client, 16);
    let collected = collect(&mut updates).await;
    let lists = requests.lock().unwrap().iter().filter(|query| is_list(query)).count();
    assert!((20..120).contains(&lists), "{lists} lists within 10 minutes");
    assert_eq!(collected[..2], ["1 changes", "listed"]);
    assert!(collected.iter().any(|update| update.starts_with("failed: 410")), "{collected:?}");
    assert!(
        !collected.contains(&"0 changes".to_owned())
            && collected.iter().filter(|update| *update == "listed").count() == 1
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_well_is_a_fault_and_no_loop() {
    let (client, requests) = server(|_| (200, format!("{ADDED}\n"), Duration::ZERO));
    let (_resource, mut updates) = start(client, 16);
    let collected = collect(&mut updates).await;
    let lists = requests.lock().unwrap().len();
    assert!((20..120).contains(&lists), "{lists} lists within 10 minutes");
    assert!(collected.contains(&"failed: the list ended before it was complete".to_owned()), "{collected:?}");
    assert!(!collected.contains(&"listed".to_owned()), "{collected:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_every_second_goes_on_at_once() {
    let (client, requests) = server(|query| match is_list(query) {
        true => (200, format!("{ADDED}\n{COMPLETE}\n"), Duration::ZERO),
        false => (200, String::new(), Duration::from_secs(1)),
    });
    let (_resource, mut updates) = start(client, 16);
    assert_eq!(collect(&mut updates).await, ["1 changes", "listed"], "it is no failure");
    let requests = requests.lock().unwrap();
    assert_eq!(requests.iter().filter(|query| is_list(query)).count(), 1);
    assert!(requests.len() > 500, "{} watches within 10 minutes", requests.len());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_pauses() {
    let (client, requests) = server(|query| match is_list(query) {
        true => (200, format!("{COMPLETE}\n"), Duration::ZERO),
        false => (200, String::new(), Duration::ZERO),
    });
    let (_resource, mut updates) = start(client, 16);
    collect(&mut updates).await;
    let requests = requests.lock().unwrap().len();
    assert!((600..2500).contains(&requests), "{requests} watches within 10 minutes");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_retried_with_backoff() {
    let (client, requests) = server(|_| (503, "{}".into(), Duration::ZERO));
    let (_resource, mut updates) = start(client, 16);
    collect(&mut updates).await;
    let requests = requests.lock().unwrap().len();
    assert!((40..120).contains(&requests), "{requests} requests within 10 minutes");
}

/// The list is complete, and its changes are not received yet when the kind moves to another version.
#[tokio::test(start_paused = true)]
async fn a_kind_that_moves_while_its_list_is_sent_is_still_listed() {
    let (client, _) = server(|_| (200, format!("{ADDED}\n{COMPLETE}\n"), LONG));
    let (resource_sender, mut updates) = start(client, 1);
    sleep(Duration::from_secs(1)).await;
    resource_sender.send_replace(Some(resource("/api/v2/services")));
    sleep(Duration::from_secs(1)).await;
    let collected = timeout(LONG * 2, collect(&mut updates)).await.unwrap();
    assert!(collected.contains(&"listed".to_owned()), "{collected:?}");
}
