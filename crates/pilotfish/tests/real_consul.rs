//! Consul, Pilotfish and a stock Envoy, as docs/registries/consul.md has it: registered at the agent, reached
//! through Envoy, and still reached when Consul is gone.

use pilotfish_testkit::consul::Consul;
use pilotfish_testkit::real::{Backend, Envoy, EnvoyOptions, Load, Pilotfish, eventually, free_port, get};
use serde_json::{Value, json};

const HOST: &str = "web.service.consul";

fn instance(backend: &Backend, id: &str, status: &str) -> Value {
    json!({
        "Node": "agent-1", "Address": "127.0.0.1",
        "Service": {"Service": "web", "ID": id, "Port": backend.port(), "Meta": {"protocol": "http"}, "Tags": ["version|v1"]},
        "Check": {"CheckID": id, "Name": "alive", "ServiceID": id, "Status": status},
    })
}

/// Only this one answers.
async fn only(port: u16, name: &str) {
    eventually(&format!("only {name} is reached"), || async {
        for _ in 0..10 {
            let answer = get(port, HOST, &[]).await?;
            if answer != name {
                return Err(answer);
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_reaches_what_consul_has_and_goes_on_without_it() {
    let mut consul = Consul::plain().await;
    let (one, two) = (Backend::start("127.0.0.1", "one").await, Backend::start("127.0.0.1", "two").await);
    consul.register(&instance(&one, "web-1", "passing"));
    let port = free_port();
    let registry = format!("consul={}?port={port}&namespace=shop&exceptServices=consul", consul.url());
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry]);
    pilotfish.ready().await;
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    only(port, "one").await;

    let load = Load::start(port, HOST);
    consul.kill().await;
    eventually("the failure is told", || async {
        let (_, text) = pilotfish.answer("/ready").await?;
        if text.contains("Consul/Kubernetes: cannot be read since") { Ok(()) } else { Err(text) }
    })
    .await;
    load.answers(20).await;
    consul.resume().await;
    consul.register(&instance(&two, "web-2", "passing"));
    eventually("the second instance is reached", || async {
        let answer = get(port, HOST, &[]).await?;
        if answer == "two" { Ok(()) } else { Err(answer) }
    })
    .await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|name| name == "one" || name == "two"), "nothing failed: {tally:?}");

    consul.register(&instance(&one, "web-1", "critical"));
    only(port, "two").await;
    consul.register(&instance(&one, "web-1", "passing"));
    consul.deregister(&json!({"Node": "agent-1", "ServiceID": "web-2"}));
    only(port, "one").await;
    let (_, text) = pilotfish.answer("/ready").await.unwrap_or_default();
    assert!(!text.contains("cannot be read"), "{text}");
}
