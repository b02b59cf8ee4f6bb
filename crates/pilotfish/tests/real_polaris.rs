//! The stand-in for Polaris, Pilotfish and a stock Envoy, as docs/registries/polaris.md has it: registered by
//! the HTTP API, reached through Envoy, and still reached when Polaris is gone.

#[path = "support/walk.rs"]
mod walk;

use pilotfish_testkit::polaris::{Polaris, PolarisOptions};
use pilotfish_testkit::real::{Backend, Envoy, EnvoyOptions, Fault, FaultProxy, Load, Pilotfish, free_port};
use serde_json::json;
use walk::{Reached, is_failing};

const HOST: &str = "web.shop.polaris";
const INSTANCES: &str = "/naming/v1/instances";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_reaches_what_was_registered_and_goes_on_without_polaris() {
    let polaris = Polaris::start(PolarisOptions::default()).await;
    let proxy = FaultProxy::before(polaris.grpc_port()).await;
    let (one, two) = (Backend::start("127.0.0.1", "one").await, Backend::start("127.0.0.1", "two").await);
    let instance = |backend: &Backend| json!([{"service": "web", "namespace": "shop", "host": "127.0.0.1", "port": backend.port(), "protocol": "http"}]);
    polaris.write("POST", INSTANCES, &instance(&one));
    let reached = Reached { port: free_port(), host: HOST };
    let port = reached.port;
    let registry = format!("polaris=grpc://{}?namespaces=shop&port={port}&interval=200ms", proxy.address());
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry]);
    pilotfish.ready().await;
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    reached.answers("one").await;

    let load = Load::start(port, HOST);
    proxy.set(Fault::Refuse).await;
    is_failing(&pilotfish, "Polaris/Kubernetes").await;
    load.answers(20).await;
    proxy.set(Fault::None).await;
    polaris.write("POST", INSTANCES, &instance(&two));
    reached.answers("two").await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|name| name == "one" || name == "two"), "nothing failed: {tally:?}");

    polaris.write("POST", "/naming/v1/instances/delete", &instance(&one));
    reached.answers_alone("two").await;
}
