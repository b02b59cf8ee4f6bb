//! A stock gRPC client (Python's grpcio) that resolves `xds:///` names through Pilotfish.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use pilotfish_testkit::real::{Pilotfish, Tally, Tool, eventually};
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

const TARGET: &str = "xds:///echo.shop.svc.cluster.local:9000";

/// The Python peer.
struct Peer {
    _child: Child,
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
}

impl Peer {
    async fn start(python: &Path, pilotfish: &Pilotfish) -> Self {
        let bootstrap = Command::new(pilotfish.binary())
            .args(["bootstrap", "grpc", "--namespace", "shop", "--xds-address"])
            .arg(format!("127.0.0.1:{}", pilotfish.xds_port()))
            .output()
            .await
            .unwrap();
        let file = pilotfish.folder().join("grpc.json");
        std::fs::write(&file, bootstrap.stdout).unwrap();
        let mut child = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpc_peer.py"))
            .env("GRPC_XDS_BOOTSTRAP", file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let pipes = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        Self { _child: child, pipes: Mutex::new(pipes) }
    }

    async fn say(&self, line: &str) -> String {
        let mut pipes = self.pipes.lock().await;
        pipes.0.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        pipes.1.next_line().await.unwrap().expect("the peer answers")
    }

    async fn serve(&self, ip: &str, name: &str) -> u16 {
        self.say(&format!("serve {ip} {name}")).await.parse().unwrap()
    }

    async fn ask(&self, times: usize) -> Tally {
        serde_json::from_str(&self.say(&format!("ask {TARGET} {times}")).await).unwrap()
    }
}

fn service(ports: [u16; 2], weights: (u32, u32)) -> String {
    let endpoint = |n: usize| {
        format!(
            "  - {{address: 127.0.0.1{n}, labels: {{version: v{n}}}, ports: {{grpc: {}}}}}\n",
            ports[n - 1]
        )
    };
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: echo, namespace: shop}}\nspec:\n  hosts: \
         [echo.shop.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  ports: [{{name: grpc, number: 9000, \
         protocol: GRPC}}]\n  endpoints:\n{}{}---\n\
         apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: echo, namespace: shop}}\nspec:\n  hosts: \
         [echo.shop.svc.cluster.local]\n  http:\n  - route:\n    - {{destination: {{host: echo.shop.svc.cluster.local, subset: \
         v1}}, weight: {}}}\n    - {{destination: {{host: echo.shop.svc.cluster.local, subset: v2}}, weight: {}}}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: echo, namespace: shop}}\nspec:\n  host: \
         echo.shop.svc.cluster.local\n  subsets:\n  - {{name: v1, labels: {{version: v1}}}}\n  - {{name: v2, labels: {{version: \
         v2}}}}\n",
        endpoint(1),
        endpoint(2),
        weights.0,
        weights.1
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_client_resolves_balances_by_weight_and_follows_a_change() {
    let Some(python) = Tool::Python.find() else { return };
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[]).await;
    let peer = Peer::start(&python, &pilotfish).await;
    let ports = [peer.serve("127.0.0.11", "v1").await, peer.serve("127.0.0.12", "v2").await];
    pilotfish.write("echo.yaml", &service(ports, (80, 20)));
    eventually("the service is known", || async {
        let services = pilotfish.page("/debug/registryz").await?;
        if services.contains("echo.shop") { Ok(()) } else { Err(services) }
    })
    .await;
    let tally = peer.ask(500).await;
    assert_eq!(tally.values().sum::<usize>(), 500);
    assert_eq!(tally.keys().collect::<Vec<_>>(), ["v1", "v2"], "{tally:?}");
    // 100 of 500 are expected; 60 and 140 are more than four standard deviations away.
    assert!((60..=140).contains(&tally["v2"]), "{tally:?}");
    pilotfish.write("echo.yaml", &service(ports, (0, 100)));
    eventually("the client follows", || async {
        let tally = peer.ask(20).await;
        if tally == Tally::from([("v2".into(), 20)]) { Ok(()) } else { Err(tally) }
    })
    .await;
}
