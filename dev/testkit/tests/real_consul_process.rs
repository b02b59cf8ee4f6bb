//! The registry of Consul against a process that is stopped and goes on: the stand-in, as
//! `cargo run -p pilotfish-testkit --bin consul` starts it.

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use pilotfish_consul::CONSUL;
use pilotfish_testkit::real::{LiveRegistry, Program, eventually, free_port};
use serde_json::json;
use tokio::process::Command;

/// Registers an instance of `web`.
async fn register(port: u16, address: &str) -> Result<(), String> {
    let entry = json!({
        "Node": address, "Address": address,
        "Service": {"ID": address, "Service": "web", "Port": 8080, "Meta": {"protocol": "http"}},
    });
    let url = format!("http://127.0.0.1:{port}/v1/catalog/register");
    let request =
        hyper::Request::builder().method(Method::PUT).uri(url).body(Full::<Bytes>::from(entry.to_string()));
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request.map_err(|error| error.to_string())?).await;
    match answer {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(answer.status().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_takes_nothing_away_and_is_heard_again() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_consul"));
    command.args(["--http", &format!("127.0.0.1:{port}")]);
    let mut consul = Program::start(&mut command, folder.path().join("consul.log"));
    eventually("it takes an instance", || register(port, "10.0.0.1")).await;
    // Questions wait for 2 s, and for an answer 8 s longer: a busy machine is no silent process.
    let registry = LiveRegistry::start(
        &CONSUL,
        &format!("http://127.0.0.1:{port}?exceptServices=consul&wait=2s&timeout=8s"),
    );
    registry.until("it is there", |state| state.addresses() == ["10.0.0.1:8080"]).await;
    assert_eq!(registry.failures(), 0);

    consul.freeze().await;
    eventually("the silence is noticed", || async { if registry.failures() > 0 { Ok(()) } else { Err(()) } })
        .await;
    assert_eq!(registry.state().addresses(), ["10.0.0.1:8080"], "nothing is taken away");

    consul.thaw().await;
    eventually("it takes another instance", || register(port, "10.0.0.2")).await;
    registry
        .until("it is heard again", |state| state.addresses() == ["10.0.0.1:8080", "10.0.0.2:8080"])
        .await;
}
