//! Names of a real name server, reached by a stock Envoy that Pilotfish configures.

use pilotfish_testkit::real::{
    Backend, Envoy, EnvoyOptions, Load, NameServer, Pilotfish, eventually, free_port, get,
};

const HOST: &str = "web.example.com";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_reaches_a_name_while_its_server_comes_and_goes() {
    let (first, second) =
        (Backend::start("127.0.0.21", "v1").await, Backend::start("127.0.0.22", "v2").await);
    let zone = format!("_http._tcp.web SRV 0 0 {} n1\nn1 A 127.0.0.21\nn2 A 127.0.0.22\n", first.port());
    let Some(mut server) = NameServer::start(&zone).await else { return };
    let port = free_port();
    let registry =
        format!("dns={}?names=_http._tcp.{HOST}:{port}&family=ipv4&minTtl=200ms&maxTtl=1s", server.address());
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry]);
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    eventually("the name is reached", || async { get(port, HOST, &[]).await }).await;

    let load = Load::start(port, HOST);
    let added = format!("add _http._tcp.{HOST} 1 SRV 0 0 {} n2.example.com.", second.port());
    server.update(&[&added]).await;
    let answers = async |who: &str| {
        let answer = get(port, HOST, &[]).await?;
        if answer == who { Ok(()) } else { Err(answer) }
    };
    eventually("the second is reached", || answers("v2")).await;

    // The server is gone: traffic goes on, and it is told.
    server.kill().await;
    eventually("it is told", || async {
        let ready = pilotfish.page("/ready").await?;
        if ready.contains("last good state stays in force") { Ok(()) } else { Err(ready) }
    })
    .await;
    load.answers(50).await;
    server
        .restart(&zone.replace("n1\n", "n2\n").replace(&first.port().to_string(), &second.port().to_string()))
        .await;
    eventually("only the second is left", || async {
        let endpoints = pilotfish.page(&format!("/debug/endpointz?host={HOST}")).await?;
        if endpoints.contains("127.0.0.21") { Err(endpoints) } else { Ok(()) }
    })
    .await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|who| ["v1", "v2"].contains(&who.as_str())), "{tally:?}");
}
