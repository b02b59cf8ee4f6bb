//! Nacos, Pilotfish and a stock Envoy, as docs/registries/nacos.md has it: registered with the HTTP API,
//! reached through Envoy, and still reached when the server is gone.

#[path = "support/walk.rs"]
mod walk;

use pilotfish_testkit::real::{Backend, Envoy, EnvoyOptions, Host, Load, Pilotfish, Rnacos, free_port};
use walk::{Reached, is_failing};

const HOST: &str = "web.default-group.public.nacos";

fn query(backend: &Backend, version: &str) -> String {
    let port = backend.port();
    format!("serviceName=web&ip=127.0.0.1&port={port}&metadata=%7B%22version%22:%22{version}%22%7D")
}

#[tokio::test]
async fn an_envoy_reaches_what_is_registered_and_goes_on_without_nacos() {
    Host::alone(async {
        let Some(mut nacos) = Rnacos::start(&[]).await else { return };
        let (one, two) = (Backend::start("127.0.0.1", "one").await, Backend::start("127.0.0.1", "two").await);
        nacos.register(&query(&one, "v1")).await;
        let reached = Reached { port: free_port(), host: HOST };
        let port = reached.port;
        let registry = format!(
            "nacos=http://127.0.0.1:{}?port={port}&protocol=http&namespace=shop&refresh=1s",
            nacos.port()
        );
        let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry]);
        pilotfish.ready().await;
        let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
        reached.answers("one").await;

        let load = Load::start(port, HOST);
        nacos.program().kill().await;
        is_failing(&pilotfish, "Nacos/Kubernetes").await;
        load.answers(20).await;
        nacos.restart(false).await;
        nacos.register(&query(&two, "v2")).await;
        reached.answers("two").await;
        let tally = load.stop().await;
        assert!(tally.keys().all(|name| name == "one" || name == "two"), "nothing failed: {tally:?}");

        nacos.deregister(&query(&one, "v1")).await;
        reached.answers_alone("two").await;
        let (_, text) = pilotfish.answer("/ready").await.unwrap_or_default();
        assert!(!text.contains("cannot be read"), "{text}");
    })
    .await;
}
