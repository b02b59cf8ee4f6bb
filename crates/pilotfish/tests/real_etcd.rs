//! etcd, Pilotfish and a stock Envoy, as docs/registries/etcd.md has it: registered with etcdctl, reached
//! through Envoy, and still reached when etcd is gone.

#[path = "support/walk.rs"]
mod walk;

use pilotfish_testkit::real::{Backend, Envoy, EnvoyOptions, Etcd, Load, Pilotfish, free_port};
use walk::{Reached, is_failing};

const HOST: &str = "web.etcd";

fn value(backend: &Backend, version: &str) -> String {
    format!(r#"{{"address": "127.0.0.1:{}", "labels": {{"version": "{version}"}}}}"#, backend.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_reaches_what_etcdctl_registered_and_goes_on_without_etcd() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let (one, two) = (Backend::start("127.0.0.1", "one").await, Backend::start("127.0.0.1", "two").await);
    etcd.put("/services/web/1", &value(&one, "v1")).await;
    let reached = Reached { port: free_port(), host: HOST };
    let port = reached.port;
    let registry = format!("etcd=http://127.0.0.1:{}?port={port}&protocol=http&namespace=shop", etcd.port(0));
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry]);
    pilotfish.ready().await;
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    reached.answers("one").await;

    let load = Load::start(port, HOST);
    etcd.program(0).kill().await;
    is_failing(&pilotfish, "etcd/Kubernetes").await;
    load.answers(20).await;
    etcd.restart(0);
    etcd.answers().await;
    etcd.put("/services/web/2", &value(&two, "v2")).await;
    reached.answers("two").await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|name| name == "one" || name == "two"), "nothing failed: {tally:?}");

    etcd.delete("/services/web/1").await;
    reached.answers_alone("two").await;
    let (_, text) = pilotfish.answer("/ready").await.unwrap_or_default();
    assert!(!text.contains("cannot be read"), "{text}");
}
