//! The example of a registry of one's own, `examples/lines.rs`, from its server to the pages of the admin
//! API.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_testkit::real::{Pilotfish, eventually, free_port};
use serde_json::{Value, json};
use std::process::Command;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The example beside this test: `cargo test` builds both.
fn example() -> String {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples/lines");
    assert!(path.exists(), "{} is missing: `cargo build -p pilotfish --example lines`", path.display());
    path.to_string_lossy().into_owned()
}

/// A server of lists. Dropped, it is gone with all its connections.
struct Server {
    list: watch::Sender<&'static str>,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens and sends this text to all that connect.
    async fn start(port: u16, text: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let (list, lists) = watch::channel(text);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(serve(client, lists.clone()));
            }
        });
        Self { list, task }
    }

    /// Sends another text on all connections.
    fn send(&self, text: &'static str) {
        self.list.send_replace(text);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut client: TcpStream, mut lists: watch::Receiver<&'static str>) {
    loop {
        let text = *lists.borrow_and_update();
        if client.write_all(text.as_bytes()).await.is_err() || lists.changed().await.is_err() {
            return;
        }
    }
}

const LIST: &str = "db.lines [2001:db8::1]:5432\nweb.lines 10.1.0.2:8081\nweb.lines 10.1.0.1:8080\nweb.lines 10.1.0.0:8079\n.\n";
const IN_FORCE: [&str; 4] = [
    "db.lines 2001:db8::1:5432",
    "web.lines 10.1.0.0:8079",
    "web.lines 10.1.0.1:8080",
    "web.lines 10.1.0.2:8081",
];

/// A Pilotfish that has nothing but the example's registry.
fn launch(port: u16, more: &[&str]) -> Pilotfish {
    let registry = format!("lines=127.0.0.1:{port}?port=80&guardWait=10s");
    Pilotfish::launch(&example(), &[&["--registry", &registry], more].concat())
}

/// Waits until readiness waits for the example's registry, and gives what it waits for.
async fn waiting_for(pilotfish: &Pilotfish, reason: &str) {
    eventually("it is not ready", || async {
        let (status, text) = pilotfish.answer("/ready").await?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let waiting = answer["waitingFor"][0].as_str().unwrap_or_default();
        let as_wanted = waiting.starts_with("lines/Kubernetes") && waiting.contains(reason);
        if (status, &answer["ready"], as_wanted) == (503, &json!(false), true) { Ok(()) } else { Err(text) }
    })
    .await;
}

/// How the registry is. Only the example's is there: no source has objects.
async fn registry(pilotfish: &Pilotfish) -> Value {
    let all = pilotfish.json("/debug/registryz?registries=true").await;
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(all[0]["name"], "lines/Kubernetes");
    all[0].clone()
}

/// Waits until the registry is as wanted.
async fn registry_is(pilotfish: &Pilotfish, what: &str, test: impl Fn(&Value) -> bool) {
    eventually(what, || async {
        let registry = registry(pilotfish).await;
        if test(&registry) { Ok(()) } else { Err(registry) }
    })
    .await;
}

/// The endpoints of all hosts as `host address:port`, sorted.
async fn endpoints(pilotfish: &Pilotfish) -> Vec<String> {
    let all = pilotfish.json("/debug/endpointz").await;
    let mut texts = Vec::new();
    for (host, namespaces) in all.as_object().unwrap() {
        for endpoint in namespaces["default"]["Shards"]["lines/Kubernetes"].as_array().into_iter().flatten() {
            let address = endpoint["Addresses"][0].as_str().unwrap();
            texts.push(format!("{host} {address}:{}", endpoint["EndpointPort"]));
        }
    }
    texts.sort();
    texts
}

async fn endpoints_are(pilotfish: &Pilotfish, wanted: &[&str]) {
    eventually("the list is in force", || async {
        let found = endpoints(pilotfish).await;
        if found == wanted { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_alone_is_followed_through_lists_and_failures() {
    let port = free_port();
    let pilotfish = launch(port, &[]);
    waiting_for(&pilotfish, "refused").await;

    // A list that is not complete yet is none.
    let server = Server::start(port, "web.lines 10.1.0.1:8080\n").await;
    assert_eq!(pilotfish.answer("/ready").await.unwrap().0, 503);
    server.send(LIST);
    pilotfish.ready().await;
    let all = IN_FORCE;
    endpoints_are(&pilotfish, &all).await;
    let shards = pilotfish.json("/debug/endpointz?host=web.lines").await;
    let provenance = &shards["web.lines"]["default"]["Shards"]["lines/Kubernetes"][0]["Provenance"];
    assert_eq!(
        (&provenance["registry"], &provenance["id"], &provenance["kind"]),
        (&json!("lines/Kubernetes"), &json!("web.lines/10.1.0.0:8079"), &json!("")),
    );
    let registry = registry(&pilotfish).await;
    assert_eq!((&registry["services"], &registry["endpoints"]), (&json!(2), &json!(4)));

    // A list that lacks three of four endpoints is believed when the next connection gives it, too.
    server.send("web.lines 10.1.0.2:8081\n.\n");
    registry_is(&pilotfish, "the answer is held back", |registry| {
        let held = &registry["source"]["held"];
        (&held["endpoints"], &held["wouldLeave"]) == (&json!(4), &json!(1)) && held["until"].is_string()
    })
    .await;
    assert_eq!(endpoints(&pilotfish).await, all);
    endpoints_are(&pilotfish, &all[3..]).await;
    registry_is(&pilotfish, "it is decided", |registry| {
        let source = &registry["source"];
        source["held"].is_null()
            && source["holds"] == 1
            && source["sessions"].as_u64() > Some(1)
            && source["lagSeconds"].is_number()
    })
    .await;

    // A line that is wrong takes nothing away.
    let failing = |reason: &'static str| {
        move |registry: &Value| {
            let failure = registry["failure"].as_str().unwrap_or_default();
            failure.contains(reason) && registry["failingSince"].is_string() && registry["synced"] == true
        }
    };
    for (text, line) in
        [("web.lines 10.1.0.1:8080\nweb.lines nowhere\n.\n", "nowhere"), ("a b c 1.1.1.1:1\n.\n", "a b c")]
    {
        server.send(text);
        registry_is(&pilotfish, "the wrong line is reported", failing(line)).await;
        assert_eq!(endpoints(&pilotfish).await, all[3..]);
    }
    server.send("web.lines 10.1.0.2:8081\n.\n");
    registry_is(&pilotfish, "the failure is over", |registry| registry["failure"].is_null()).await;

    // The server dies: what it sent stays, and so does readiness.
    drop(server);
    registry_is(&pilotfish, "the failure is reported", failing("refused")).await;
    assert_eq!(endpoints(&pilotfish).await, all[3..]);
    assert_eq!(pilotfish.answer("/ready").await.unwrap().0, 200);
    let server = Server::start(port, "db.lines 10.2.0.1:5432\n.\n").await;
    endpoints_are(&pilotfish, &["db.lines 10.2.0.1:5432"]).await;
    registry_is(&pilotfish, "the failure is over", |registry| {
        registry["failure"].is_null() && registry["failingSince"].is_null()
    })
    .await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_delays_readiness_no_longer_than_the_timeout() {
    let port = free_port();
    let server = Server::start(port, "").await;
    let pilotfish = launch(port, &["--registry-timeout", "200ms"]);
    pilotfish.ready().await;
    registry_is(&pilotfish, "it is given up", |registry| {
        registry["givenUp"] == true && registry["synced"] == false
    })
    .await;
    assert!(endpoints(&pilotfish).await.is_empty());
    server.send("web.lines 10.1.0.1:8080\n.\n");
    endpoints_are(&pilotfish, &["web.lines 10.1.0.1:8080"]).await;
    registry_is(&pilotfish, "it counts", |registry| {
        registry["givenUp"].is_null() && registry["synced"] == true
    })
    .await;
}

#[test]
fn names_that_nothing_has_are_refused_with_those_that_there_are() {
    for (registry, reason) in [
        ("nope=x", r#"there is no registry "nope"; known are Kubernetes, ServiceEntry, "#),
        (
            "lines=127.0.0.1:1?nme=x",
            r#"there is no option "nme"; known are namespace, port, protocol, guard, guardWait"#,
        ),
    ] {
        let output = Command::new(example()).args(["serve", "--registry", registry]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(reason), "{reason:?} in {text}");
    }
}
