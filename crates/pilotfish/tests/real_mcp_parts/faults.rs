//! Faults between two Pilotfishes, and an Envoy behind the adapter of the page.

use super::{Scene, becomes, endpoints, has_timeout, mesh, service, source};
use pilotfish_testkit::real::{
    Authority, Backend, Envoy, EnvoyOptions, Fault, FaultProxy, Load, Pilotfish, eventually, free_port, get,
};
use serde_json::json;
use std::time::Duration;

const HOST: &str = "web.apps.svc.cluster.local";

/// Waits until the source fails, or does not.
async fn fails(pilotfish: &Pilotfish, wanted: bool) {
    eventually(&format!("failing: {wanted}"), || async {
        let source = source(pilotfish).await;
        if source.get("failure").is_some() == wanted { Ok(()) } else { Err(source.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn faults_of_the_network_take_nothing_away_and_are_overcome() {
    let binary = env!("CARGO_BIN_EXE_pilotfish");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mesh.yaml");
    std::fs::write(&file, mesh("5s")).unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    let first = Pilotfish::launch(binary, &[&path, "--serve-configuration", "anyone"]);
    first.ready().await;
    for protocol in ["delta", "sotw"] {
        let proxy = FaultProxy::before(first.xds_port()).await;
        let address = format!("mcp=xds://{}?protocol={protocol}", proxy.address());
        let second = Pilotfish::launch(binary, &["--registry", &address]);
        second.ready().await;
        let faults = [
            Fault::Refuse,
            Fault::Close,
            Fault::Truncate(100),
            Fault::Garble(20),
            Fault::Delay(Duration::from_secs(2)),
        ];
        for (number, fault) in faults.into_iter().enumerate() {
            let timeout = format!("{}s", 10 + number);
            proxy.set(fault).await;
            std::fs::write(&file, mesh(&timeout)).unwrap();
            // One that is slow is no failure: its changes come late.
            if !matches!(fault, Fault::Delay(_)) {
                fails(&second, true).await;
                assert_eq!(endpoints(&second, HOST).await, ["10.0.0.1:8080"], "{fault:?} {protocol}");
                proxy.set(Fault::None).await;
                // What was cut or garbled on the way does not stay.
                proxy.cut();
            }
            has_timeout(&second, &timeout).await;
            fails(&second, false).await;
        }
        assert_eq!(endpoints(&second, HOST).await, ["10.0.0.1:8080"]);
    }
}

#[tokio::test]
async fn an_expired_certificate_is_told_and_a_new_one_is_enough() {
    let binary = env!("CARGO_BIN_EXE_pilotfish");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::create_dir(at("mesh")).unwrap();
    std::fs::write(folder.path().join("mesh/mesh.yaml"), mesh("5s")).unwrap();
    let authority = Authority::new();
    authority.write(authority.expired_server(), &folder.path().join("server"));
    authority.issue("spiffe://cluster.local/ns/istio-system/sa/pilotfish", &folder.path().join("client"));
    let port = free_port();
    let (mesh, address) = (at("mesh"), format!("127.0.0.1:{port}"));
    let (chain, key, root) = (at("server/cert-chain.pem"), at("server/key.pem"), at("server/root-cert.pem"));
    let arguments = [
        &*mesh,
        "--secure-xds-address",
        &address,
        "--tls-cert-file",
        &chain,
        "--tls-key-file",
        &key,
        "--ca-cert-file",
        &root,
    ];
    let first = Pilotfish::launch(binary, &arguments);
    first.ready().await;
    let client = |name: &str| at(&format!("client/{name}"));
    let registry = format!(
        "mcp=xds+tls://{address}?caFile={}&certFile={}&keyFile={}",
        client("root-cert.pem"),
        client("cert-chain.pem"),
        client("key.pem")
    );
    let second = Pilotfish::launch(binary, &["--registry", &registry]);
    eventually("it listens", || async { second.answer("/ready").await }).await;
    eventually("the reason is told", || async {
        let source = source(&second).await;
        let failure = source["failure"].as_str().unwrap_or_default();
        if failure.contains("expired") && source["synced"] == false {
            Ok(())
        } else {
            Err(source.to_string())
        }
    })
    .await;
    authority.write(authority.server(), &folder.path().join("server"));
    second.ready().await;
    has_timeout(&second, "5s").await;
    fails(&second, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_reaches_what_the_adapter_feeds_and_goes_on_without_it() {
    let Some(scene) = Scene::new() else { return };
    let (one, two) = (Backend::start("127.0.0.31", "one").await, Backend::start("127.0.0.32", "two").await);
    let port = free_port();
    let services = |backends: &[&Backend], ips: &[&str]| {
        let at = backends.iter().zip(ips).map(|(backend, ip)| format!("{ip}:{}", backend.port()));
        let at: Vec<String> = at.collect();
        let mut web = service("web", &at.iter().map(String::as_str).collect::<Vec<_>>());
        web["port"] = json!(port);
        json!([web])
    };
    scene.services(&services(&[&one], &["127.0.0.31"]));
    let adapter = scene.start();
    let address = format!("mcp=xds://127.0.0.1:{}", scene.port);
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &address]);
    pilotfish.ready().await;
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    let host = "web.cf.internal";
    let reached = |name: &'static str| {
        eventually("it is reached", move || async move {
            let answer = get(port, host, &[]).await?;
            if answer == name { Ok(()) } else { Err(answer) }
        })
    };
    reached("one").await;
    let load = Load::start(port, host);
    drop(adapter);
    fails(&pilotfish, true).await;
    load.answers(30).await;
    let _adapter = scene.start();
    scene.services(&services(&[&one, &two], &["127.0.0.31", "127.0.0.32"]));
    becomes(
        &pilotfish,
        host,
        &[&format!("127.0.0.31:{}", one.port()), &format!("127.0.0.32:{}", two.port())],
    )
    .await;
    reached("two").await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|name| ["one", "two"].contains(&name.as_str())), "nothing failed: {tally:?}");
}
