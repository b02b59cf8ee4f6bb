//! The stand-in for Polaris, Pilotfish and a stock Envoy, as docs/registries/polaris.md has it: registered by the HTTP API, reached through
//! Envoy, and still reached when Polaris is gone.

use pilotfish_testkit::polaris::{Polaris, PolarisOptions};
use pilotfish_testkit::real::{
    Backend, Envoy, EnvoyOptions, Fault, FaultProxy, Load, Pilotfish, eventually, free_port, get,
};
use serde_json::json;

const HOST: &str = "web.shop.polaris";
const INSTANCES: &str = "/naming/v1/instances";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_reaches_what_was_registered_and_goes_on_without_polaris() {
    let polaris = Polaris::start(PolarisOptions::default()).await;
    let proxy = FaultProxy::before(polaris.grpc_port()).await;
    let (one, two) = (Backend::start("127.0.0.1", "one").await, Backend::start("127.0.0.1", "two").await);
    let instance = |backend: &Backend| json!([{"service": "web", "namespace": "shop", "host": "127.0.0.1", "port": backend.port(), "protocol": "http"}]);
    polaris.write("POST", INSTANCES, &instance(&one));
    let port = free_port();
    let registry = format!("polaris=grpc://{}?namespaces=shop&port={port}&interval=200ms", proxy.address());
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry]);
    pilotfish.ready().await;
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    eventually("the instance is reached", || async {
        let answer = get(port, HOST, &[]).await?;
        if answer == "one" { Ok(()) } else { Err(answer) }
    })
    .await;

    let load = Load::start(port, HOST);
    proxy.set(Fault::Refuse).await;
    eventually("the failure is told", || async {
        let (_, text) = pilotfish.answer("/ready").await?;
        if text.contains("Polaris/Kubernetes: cannot be read since") { Ok(()) } else { Err(text) }
    })
    .await;
    load.answers(20).await;
    proxy.set(Fault::None).await;
    polaris.write("POST", INSTANCES, &instance(&two));
    eventually("the second instance is reached", || async {
        let answer = get(port, HOST, &[]).await?;
        if answer == "two" { Ok(()) } else { Err(answer) }
    })
    .await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|name| name == "one" || name == "two"), "nothing failed: {tally:?}");

    polaris.write("POST", "/naming/v1/instances/delete", &instance(&one));
    eventually("only the second one is reached", || async {
        for _ in 0..10 {
            let answer = get(port, HOST, &[]).await?;
            if answer != "two" {
                return Err(answer);
            }
        }
        Ok(())
    })
    .await;
}
