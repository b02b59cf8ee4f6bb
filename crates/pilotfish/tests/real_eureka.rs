//! Applications of a Eureka server, reached by a stock Envoy that Pilotfish configures.

use pilotfish_testkit::real::{
    Envoy, EnvoyOptions, EurekaServer, Load, Pilotfish, eureka_application, eventually, free_port, get,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_reaches_an_application_while_its_server_comes_and_goes() {
    let Some(mut server) = EurekaServer::start(&[]).await else { return };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (port, first, second) = (free_port(), free_port(), free_port());
    let at = server.port;
    let application = |instance: &str, port| eureka_application(at, "Greeter", instance, port, folder.path());
    let _first = application("greeter-1", first).expect("there is a JVM");
    let registry = format!("eureka={}&port={port}&guardWait=2s", server.address());
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry]);
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    let answers = async || get(port, "greeter.eureka", &[]).await;
    eventually("the application is reached", || async {
        let answer = answers().await?;
        if answer.contains("greeter-1") { Ok(()) } else { Err(answer) }
    })
    .await;

    // The server is gone: traffic goes on, and it is told.
    let load = Load::start(port, "greeter.eureka");
    server.kill().await;
    eventually("it is told", || async {
        let ready = pilotfish.page("/ready").await?;
        if ready.contains("last good state stays in force") { Ok(()) } else { Err(ready) }
    })
    .await;
    load.answers(50).await;

    // It comes back knowing nothing; applications register again with their next heartbeat, and changes arrive.
    server.restart().await;
    let _second = application("greeter-2", second).expect("there is a JVM");
    eventually("the second instance is reached", || async {
        let answer = answers().await?;
        if answer.contains("greeter-2") { Ok(()) } else { Err(answer) }
    })
    .await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|who| who.contains("greeter-")), "{tally:?}");
}
