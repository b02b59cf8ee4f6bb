//! Applications of a Eureka server, reached by a stock Envoy that Pilotfish configures.

use pilotfish_testkit::real::{
    Backend, Envoy, EnvoyOptions, EurekaInstance, EurekaServer, Load, Pilotfish, eureka_application,
    eventually, free_port, get,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_reaches_an_application_while_its_server_comes_and_goes() {
    let Some(mut server) = EurekaServer::start(&[]).await else { return };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (port, first, second) = (free_port(), free_port(), free_port());
    let at = server.port;
    let application = |instance: &str, port| eureka_application(at, "Greeter", instance, port, folder.path());
    let _first = application("greeter-1", first).expect("there is a JVM");
    // The guard holds back losses of three and more.
    for number in 1..=3 {
        server.register(&EurekaInstance::up("Other", &number.to_string(), "10.0.0.9")).await;
    }
    // Longer than an application takes to register again with a server that has lost everything.
    let registry = format!("eureka={}&port={port}&guardWait=20s", server.address());
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

    // It comes back knowing nothing; applications register again with their next heartbeat, and changes
    // arrive.
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

const RULES: &str = r#"
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: greeter, namespace: default}
spec:
  host: greeter.eureka
  subsets: [{name: first, labels: {version: v1}}, {name: second, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: greeter, namespace: default}
spec:
  hosts: [greeter.eureka]
  http:
  - match: [{headers: {version: {exact: second}}}]
    route: [{destination: {host: greeter.eureka, subset: second}}]
  - route: [{destination: {host: greeter.eureka, subset: first}}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_name_an_application_and_select_by_its_metadata() {
    let Some(server) = EurekaServer::start(&[]).await else { return };
    let backends = [Backend::start("127.0.0.31", "v1").await, Backend::start("127.0.0.32", "v2").await];
    for (backend, (ip, metadata)) in
        backends.iter().zip([("127.0.0.31", r#"{"version":"v1"}"#), ("127.0.0.32", r#"{"version":"v2"}"#)])
    {
        let port = backend.port();
        server.register(&EurekaInstance { port, metadata, ..EurekaInstance::up("greeter", ip, ip) }).await;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(folder.path().join("rules.yaml"), RULES).expect("the folder can be written");
    let port = free_port();
    let registry = format!("eureka={}&port={port}", server.address());
    let files = folder.path().display().to_string();
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &[&files, "--registry", &registry]);
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("sotw")).await else { return };
    let reached = async |headers: &[(&str, &str)], who: &str| {
        let answer = get(port, "greeter.eureka", headers).await?;
        if answer == who { Ok(()) } else { Err(answer) }
    };
    eventually("the first version", || reached(&[], "v1")).await;
    eventually("the second version", || reached(&[("version", "second")], "v2")).await;
    // An operator takes the second version out.
    server.order("GREETER", "127.0.0.32", "OUT_OF_SERVICE").await;
    eventually("the second version is gone", || async {
        match get(port, "greeter.eureka", &[("version", "second")]).await {
            Err(status) if status.contains("503") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    eventually("the first version stays", || reached(&[], "v1")).await;
}
