//! Dubbo's own provider and consumer around a real ZooKeeper: calls go through an Envoy that Pilotfish
//! configured.
//!
//! Dubbo registers no loopback address, so everything runs on a host of its own, whose network has another
//! one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use pilotfish_testkit::real::{
    Dialogue, Envoy, EnvoyOptions, Host, Java, Pilotfish, ZooKeeper, eventually, free_port,
};
use std::collections::BTreeMap;
use std::future::Future;

const PILOTFISH: &str = env!("CARGO_BIN_EXE_pilotfish");
/// The address of providers.
const ADDRESS: &str = "10.77.0.1";
/// Where the Envoy takes calls of Dubbo.
const DUBBO: &str = "127.0.0.1:20880";
/// The service of group `g` and version `1.0.0`, whose name requests of Triple have.
const TRIPLE: &str = "pilotfish.dubbo.greeter-g-1-0-0";

/// Runs a test on a host of its own.
fn on_a_host<F: Future<Output = Option<()>> + Send + 'static>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(host) = Host::new() else { return };
        let _ = host.run(&format!("ip address add {ADDRESS}/32 dev lo"));
        // A tool that is missing ends it early; in CI that is a failure where the tool is looked for.
        let _ = host.here(test).await;
    });
}

/// Everything but providers and consumers.
struct Mesh {
    java: Java,
    zookeeper: ZooKeeper,
    pilotfish: Pilotfish,
    envoy: Envoy,
}

impl Mesh {
    async fn start(options: &str) -> Option<Self> {
        let (java, zookeeper) = (Java::find("dubbo")?, ZooKeeper::start().await?);
        let registry = format!("zookeeper=zk://{}{options}", zookeeper.address());
        let pilotfish = Pilotfish::launch(PILOTFISH, &["--registry", &registry]);
        pilotfish.ready().await;
        let envoy = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await?;
        Some(Self { java, zookeeper, pilotfish, envoy })
    }

    async fn provider(&self, name: &str, more: &[&str]) -> Dialogue {
        let mut command = self
            .java
            .command(&[("org.slf4j.simpleLogger.defaultLogLevel", "error")], "pilotfish.dubbo.Provider");
        command.args([format!("name={name}"), format!("host={ADDRESS}")]);
        command.arg(format!("registry=zookeeper://{}", self.zookeeper.address())).args(more);
        command.env("HOME", self.zookeeper.folder());
        Dialogue::start(&mut command).await
    }

    async fn consumer(&self, url: &str, more: &[&str]) -> Dialogue {
        // Names of services lead to the Envoy.
        let hosts = self.zookeeper.folder().join("hosts");
        std::fs::write(&hosts, format!("127.0.0.1 localhost {TRIPLE}\n")).unwrap();
        let hosts = hosts.display().to_string();
        let properties =
            [("org.slf4j.simpleLogger.defaultLogLevel", "error"), ("jdk.net.hosts.file", hosts.as_str())];
        let mut command = self.java.command(&properties, "pilotfish.dubbo.Consumer");
        command.arg(format!("url={url}")).args(more).env("HOME", self.zookeeper.folder());
        Dialogue::start(&mut command).await
    }

    /// How many endpoints Pilotfish has for a host.
    async fn endpoints(&self, host: &str) -> usize {
        let page = self.pilotfish.json(&format!("/debug/endpointz?host={host}")).await;
        page.to_string().matches("\"EndpointPort\"").count()
    }
}

/// Calls until these providers answer, and no other, many times in a row.
async fn only(consumer: &mut Dialogue, providers: &[&str]) {
    let deadline = tokio::time::Instant::now() + pilotfish_testkit::real::LIMIT;
    loop {
        let mut answers: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..30 {
            *answers.entry(consumer.ask("greet you").await).or_default() += 1;
        }
        let want: Vec<String> = providers.iter().map(|name| format!("hello you from {name}")).collect();
        if answers.keys().eq(want.iter()) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "wanted {providers:?}: {answers:?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[test]
fn calls_are_routed_by_interface_and_follow_the_providers() {
    on_a_host(async {
        let mesh = Mesh::start("").await?;
        let ports = [free_port(), free_port(), free_port()];
        let first = mesh.provider("A", &[&format!("protocols=dubbo:{}", ports[0])]).await;
        let mut consumer = mesh.consumer(&format!("dubbo://{DUBBO}"), &[]).await;
        only(&mut consumer, &["A"]).await;
        assert!(mesh.envoy.stat("dubbo.outbound_dubbo.request").await > 0, "the Dubbo proxy reads the calls");
        // Registered both ways, and one endpoint.
        assert_eq!(mesh.endpoints("pilotfish.dubbo.greeter").await, 1);

        let second = mesh.provider("B", &[&format!("protocols=dubbo:{}", ports[1])]).await;
        only(&mut consumer, &["A", "B"]).await;
        drop(first);
        only(&mut consumer, &["B"]).await;

        // A group is a service of its own on the same port.
        let grouped = ["group=blue", "version=2.0.0"];
        let third = mesh
            .provider(
                "C",
                &[&format!("protocols=dubbo:{}", ports[2]), grouped[0], grouped[1], "application=other"],
            )
            .await;
        let mut blue = mesh.consumer(&format!("dubbo://{DUBBO}"), &grouped).await;
        only(&mut blue, &["C"]).await;
        only(&mut consumer, &["B"]).await;
        drop((second, third));
        Some(())
    });
}

#[test]
fn calls_go_on_while_zookeeper_is_away() {
    on_a_host(async {
        let mut mesh = Mesh::start("").await?;
        let port = format!("protocols=dubbo:{}", free_port());
        let _provider = mesh.provider("A", &[&port]).await;
        let mut consumer = mesh.consumer(&format!("dubbo://{DUBBO}"), &[]).await;
        only(&mut consumer, &["A"]).await;
        mesh.zookeeper.kill().await;
        eventually("the failure is seen", || async {
            let page = mesh.pilotfish.page("/debug/registryz?registries=true").await?;
            if page.contains("cannot connect") { Ok(()) } else { Err(page) }
        })
        .await;
        only(&mut consumer, &["A"]).await;
        mesh.zookeeper.start_again().await;
        let port = format!("protocols=dubbo:{}", free_port());
        let _second = mesh.provider("B", &[&port]).await;
        only(&mut consumer, &["A", "B"]).await;
        Some(())
    });
}

#[test]
fn applications_and_triple_are_reached_by_their_metadata() {
    on_a_host(async {
        let mesh = Mesh::start("").await?;
        let protocols = format!("protocols=dubbo:{},tri:{}", free_port(), free_port());
        let by_application =
            [protocols.as_str(), "mode=instance", "metadata=remote", "group=g", "version=1.0.0"];
        let _provider = mesh.provider("A", &by_application).await;
        let mut dubbo = mesh.consumer(&format!("dubbo://{DUBBO}"), &["group=g", "version=1.0.0"]).await;
        only(&mut dubbo, &["A"]).await;
        let mut triple = mesh.consumer(&format!("tri://{TRIPLE}:50051"), &["group=g", "version=1.0.0"]).await;
        only(&mut triple, &["A"]).await;
        Some(())
    });
}
