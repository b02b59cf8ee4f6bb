//! Nacos, Pilotfish and a stock Envoy, as docs/registries/nacos.md has it: registered with the HTTP API, reached through Envoy, and still
//! reached when the server is gone.

use pilotfish_testkit::real::{
    Backend, Envoy, EnvoyOptions, Host, Load, Pilotfish, Rnacos, eventually, free_port, get,
};

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
        let port = free_port();
        let registry = format!(
            "nacos=http://127.0.0.1:{}?port={port}&protocol=http&namespace=shop&refresh=1s",
            nacos.port()
        );
        let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry]);
        pilotfish.ready().await;
        let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
        eventually("the instance is reached", || async {
            let answer = get(port, HOST, &[]).await?;
            if answer == "one" { Ok(()) } else { Err(answer) }
        })
        .await;

        let load = Load::start(port, HOST);
        nacos.program().kill().await;
        eventually("the failure is told", || async {
            let (_, text) = pilotfish.answer("/ready").await?;
            if text.contains("Nacos/Kubernetes: cannot be read since") { Ok(()) } else { Err(text) }
        })
        .await;
        load.answers(20).await;
        nacos.restart(false).await;
        nacos.register(&query(&two, "v2")).await;
        eventually("the second instance is reached", || async {
            let answer = get(port, HOST, &[]).await?;
            if answer == "two" { Ok(()) } else { Err(answer) }
        })
        .await;
        let tally = load.stop().await;
        assert!(tally.keys().all(|name| name == "one" || name == "two"), "nothing failed: {tally:?}");

        nacos.deregister(&query(&one, "v1")).await;
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
        let (_, text) = pilotfish.answer("/ready").await.unwrap_or_default();
        assert!(!text.contains("cannot be read"), "{text}");
    })
    .await;
}
