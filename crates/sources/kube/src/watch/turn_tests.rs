//! Requests of a watch, and their times, to API servers that keep failing in one way. Time is
//! virtual.

use super::{Change, NoopObserver, Reader, Resource, Watch, WatchTarget, WatchUpdate};
use futures::StreamExt;
use futures::stream;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use pilotfish_model::Kind;
use pilotfish_runtime::{GuardSettings, HeldLosses, Jitter};
use std::collections::BTreeMap;
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

/// A guarded watch, and where it shows what it holds back.
fn start_guarded(
    client: Client,
) -> (watch::Sender<Option<Resource>>, mpsc::Receiver<(Kind, WatchUpdate)>, HeldLosses) {
    let (out, updates) = mpsc::channel(64);
    let (observer, jitter, losses) = (Arc::new(NoopObserver), Jitter::seeded(0), HeldLosses::default());
    let target = WatchTarget { cluster: "test".into(), kind: Kind::Service, observer, jitter };
    let (resource_sender, resource) = watch::channel(Some(resource("/api/v1/services")));
    let watch = Watch::new(client, target, Reader::Object(Kind::Service), out);
    tokio::spawn(watch.guarded(GuardSettings::default(), &losses).run(resource));
    (resource_sender, updates, losses)
}

/// The state of an API server, changed by tests.
#[derive(Clone)]
struct World {
    services: usize,
    version: u64,
    /// The port of every service.
    port: u16,
    /// Watches from older versions get 410, and all open ones end.
    compacted: u64,
}

impl World {
    /// As an API server answers: lists in streams and pages, watches that stay silent.
    fn answer(&self, query: &str) -> Answer {
        let Self { services, version, port, .. } = self;
        let object = |n: usize| {
            format!(
                r#"{{"metadata":{metadata},"spec":{{"ports":[{{"port":{port}}}]}}}}"#,
                metadata = format_args!(r#"{{"name":"s{n}","namespace":"b","resourceVersion":"{}"}}"#, n + 1)
            )
        };
        if is_list(query) {
            let added = (0..*services).map(|n| format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", object(n)));
            let end = COMPLETE.replace("\"5\"", &format!("\"{version}\""));
            return (200, format!("{}{end}\n", added.collect::<String>()), Duration::from_secs(1));
        }
        if !query.contains("watch=true") {
            let text = format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#);
            return (200, text, Duration::ZERO);
        }
        let from = query.split("resourceVersion=").nth(1).and_then(|rest| rest.split('&').next());
        match from.and_then(|from| from.parse::<u64>().ok()) {
            Some(from) if from < self.compacted => (410, GONE.into(), Duration::ZERO),
            // Also from a version that the store does not have yet: it waits for it, in silence.
            _ => (200, String::new(), Duration::from_secs(1)),
        }
    }
}

/// Names in force, for somebody who applies all changes so far.
fn apply(updates: &mut mpsc::Receiver<(Kind, WatchUpdate)>, force: &mut BTreeMap<String, u16>) {
    while let Ok((_, update)) = updates.try_recv() {
        let WatchUpdate::Changes(changes) = update else { continue };
        for change in changes {
            match change {
                Change::Apply { object, .. } => {
                    let service = object.typed::<pilotfish_config::kubernetes::Service>().unwrap();
                    force.insert(object.key().name.to_string(), service.spec.ports[0].port);
                }
                Change::Delete(key) => drop(force.remove(&*key.name)),
                other => panic!("{other:?}"),
            }
        }
    }
}

const GONE: &str = concat!(
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"#,
    r#""message":"too old","reason":"Expired"}"#
);

/// A guarded watch of a world with 21 services.
struct Guarded {
    world: Arc<Mutex<World>>,
    resource: watch::Sender<Option<Resource>>,
    updates: mpsc::Receiver<(Kind, WatchUpdate)>,
    losses: HeldLosses,
    force: BTreeMap<String, u16>,
}

impl Guarded {
    async fn start() -> Self {
        let world = Arc::new(Mutex::new(World { services: 21, version: 1000, port: 80, compacted: 0 }));
        let answers = world.clone();
        let (client, _) = server(move |query| answers.lock().unwrap().answer(query));
        let (resource, updates, losses) = start_guarded(client);
        let mut all = Self { world, resource, updates, losses, force: BTreeMap::new() };
        assert_eq!(all.after(2).await, 21);
        all
    }

    fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock().unwrap());
    }

    /// The number of services in force so much later.
    async fn after(&mut self, seconds: u64) -> usize {
        sleep(Duration::from_secs(seconds)).await;
        apply(&mut self.updates, &mut self.force);
        self.force.len()
    }
}

#[tokio::test(start_paused = true)]
async fn gone_and_then_an_empty_list_keeps_the_services_until_a_second_list() {
    let mut guarded = Guarded::start().await;
    guarded.change(|world| *world = World { services: 0, version: 2000, compacted: 2000, ..world.clone() });
    assert_eq!(guarded.after(9).await, 21);
    let held = guarded.losses.held().unwrap();
    assert_eq!((&*held.scope, held.before, held.after), ("services", 21, 0));
    // It was a fault: the second list has everything.
    guarded.change(|world| world.services = 21);
    assert_eq!(guarded.after(10).await, 21);
    assert_eq!(guarded.losses.held(), None);
    // And now it is not.
    guarded.change(|world| *world = World { services: 0, version: 3000, compacted: 3000, ..world.clone() });
    assert_eq!(guarded.after(5).await, 21);
    assert_eq!(guarded.after(10).await, 0);
    assert_eq!((guarded.losses.held(), guarded.losses.holds()), (None, 2));
}

#[tokio::test(start_paused = true)]
async fn accepted_loss_takes_effect_with_a_list_at_once() {
    let mut guarded = Guarded::start().await;
    guarded.change(|world| *world = World { services: 1, version: 2000, compacted: 2000, ..world.clone() });
    assert_eq!(guarded.after(4).await, 21);
    assert_eq!(guarded.losses.accept(), 1);
    assert_eq!(guarded.after(1).await, 1);
}

#[tokio::test(start_paused = true)]
async fn restored_store_is_read_anew_behind_the_guard() {
    let mut guarded = Guarded::start().await;
    // Watches from version 1000 are accepted and silent; contents differ under versions that were seen.
    guarded.change(|world| *world = World { services: 3, version: 500, port: 81, ..world.clone() });
    assert_eq!(guarded.after(8).await, 21, "most are missing");
    assert_eq!(guarded.force.values().filter(|port| **port == 81).count(), 3, "{:?}", guarded.force);
    assert_eq!(guarded.after(10).await, 3);
    guarded.change(|world| *world = World { services: 4, version: 501, compacted: 501, ..world.clone() });
    assert_eq!(guarded.after(5).await, 4, "it follows the new world");
}

#[tokio::test(start_paused = true)]
async fn kind_that_is_no_longer_served_waits_for_a_second_look() {
    let mut guarded = Guarded::start().await;
    guarded.resource.send_replace(None);
    assert_eq!(guarded.after(9).await, 21);
    guarded.resource.send_replace(Some(resource("/api/v1/services")));
    assert_eq!(guarded.after(5).await, 21, "it is served again");
    assert_eq!(guarded.losses.held(), None);
    guarded.resource.send_replace(None);
    assert_eq!(guarded.after(11).await, 0);
    guarded.resource.send_replace(Some(resource("/api/v1/services")));
    assert_eq!(guarded.after(2).await, 21);
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
    let (client, requests) = server(move |query| match is_list(query) {
        true => (200, format!("{ADDED}\n{COMPLETE}\n"), Duration::ZERO),
        false => (410, GONE.into(), Duration::ZERO),
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
