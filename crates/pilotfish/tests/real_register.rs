//! `pilotfish register` as its user has it: programs that know nothing of Pilotfish, an Envoy that balances
//! over them, and what happens when a program ends, is told to end or dies with its wrapper, and when
//! Pilotfish itself dies.

use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_registration_client::{Client, ClientOptions, Instance, Port};
use pilotfish_testkit::real::{
    Backend, Envoy, EnvoyOptions, Etcd, Load, Pilotfish, Program, Tool, eventually, free_port, get,
};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

const PILOTFISH: &str = env!("CARGO_BIN_EXE_pilotfish");

/// A Pilotfish with which programs register, and the port of the service `web`.
struct Scene {
    pilotfish: Pilotfish,
    python: PathBuf,
    folder: TempDir,
    /// The folder of the embedded store.
    data: Option<TempDir>,
    server: String,
    /// Where clients of the service connect.
    port: u16,
}

impl Scene {
    /// `None` where there is no Python and it is not required.
    async fn start(more: &[&str]) -> Option<Self> {
        let data = tempfile::tempdir().expect("a temporary folder");
        let place = data.path().to_string_lossy().into_owned();
        let mut scene = Self::start_with(&[&["--data-dir", &place], more].concat()).await?;
        scene.data = Some(data);
        Some(scene)
    }

    async fn start_with(more: &[&str]) -> Option<Self> {
        let python = Tool::Python.find()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let registration = format!("127.0.0.1:{}", free_port());
        let arguments = ["--registration-address", &registration];
        let pilotfish = Pilotfish::launch(PILOTFISH, &[&arguments, more].concat());
        pilotfish.ready().await;
        let server = format!("http://{registration}");
        Some(Self { pilotfish, python, folder, data: None, server, port: free_port() })
    }

    /// Registers a web server that answers its name.
    fn register(&self, name: &str, more: &[&str]) -> Program {
        let content = self.folder.path().join(name);
        std::fs::create_dir_all(&content).expect("the folder can be written");
        std::fs::write(content.join("index.html"), name).expect("the folder can be written");
        let port = free_port().to_string();
        let mut command = self.command(name, &port, more);
        command.arg("--").arg(&self.python).args([
            "-m",
            "http.server",
            &port,
            "--bind",
            "127.0.0.1",
            "--directory",
        ]);
        command.arg(content);
        Program::start(&mut command, self.log(name))
    }

    fn command(&self, name: &str, port: &str, more: &[&str]) -> Command {
        let service_port = self.port.to_string();
        let mut command = Command::new(PILOTFISH);
        command.args(["register", "--service", "web", "--namespace", "shop", "--server", &self.server]);
        command.args(["--id", name, "--port", port, "--service-port", &service_port]).args(more);
        command
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    async fn get(&self) -> Result<String, String> {
        get(self.port, "web", &[]).await
    }

    /// Waits until all of these answer, and nobody else.
    async fn only(&self, names: &[&str]) {
        eventually(&format!("{names:?} answer"), || async {
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..20 {
                seen.insert(self.get().await?);
            }
            let wanted: std::collections::BTreeSet<String> =
                names.iter().map(|&name| name.to_owned()).collect();
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }

    async fn instances(&self) -> Value {
        self.pilotfish.json("/debug/registrationz").await["instances"].clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_balances_over_programs_that_register_and_drops_those_that_end() {
    let Some(mut scene) = Scene::start(&[]).await else { return };
    let mut one = scene.register("one", &["--ttl", "10s", "--drain", "20s"]);
    let mut two = scene.register("two", &["--ttl", "10s"]);
    let Some(envoy) = Envoy::start(&scene.pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    scene.only(&["one", "two"]).await;

    // Told to end, it drains first: not one request fails.
    let load = Load::start(scene.port, "web");
    load.answers(20).await;
    one.terminate().await;
    eventually("Envoy sees it drain", || async {
        let clusters = envoy.page("/clusters").await?;
        if clusters.contains("eds_status_draining") { Ok(()) } else { Err(clusters) }
    })
    .await;
    assert_eq!(one.ended().await, Some(143), "as a shell tells SIGTERM: {}", one.printed());
    let tally = load.stop().await;
    assert!(tally.keys().all(|name| name == "one" || name == "two"), "{tally:?}");
    scene.only(&["two"]).await;

    // Pilotfish dies and comes back: what was registered is there, and the lease goes on.
    scene.pilotfish.kill().await;
    assert_eq!(scene.get().await.as_deref(), Ok("two"), "proxies keep what they have");
    scene.pilotfish.restart().await;
    assert_eq!(scene.instances().await["healthy"], 1);
    let three = scene.register("three", &["--ttl", "10s"]);
    scene.only(&["two", "three"]).await;

    // The wrapper is killed, and says nothing: the lease ends.
    two.kill().await;
    scene.only(&["three"]).await;
    eventually("it is removed", || async {
        let instances = scene.instances().await;
        if instances["lapsed"] == 0 && instances["healthy"] == 1 {
            Ok(())
        } else {
            Err(instances.to_string())
        }
    })
    .await;
    drop(three);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ends_is_gone_at_once_and_its_exit_code_is_ours() {
    let Some(scene) = Scene::start(&[]).await else { return };
    // It would drain for a minute where it is asked to end, but it is not there any more.
    let script = "import http.server, os, sys\n\
         class Handler(http.server.BaseHTTPRequestHandler):\n    \
             def do_GET(self):\n        os._exit(7)\n\
         http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Handler).serve_forever()\n";
    let port = free_port();
    let mut command = scene.command("one", &port.to_string(), &["--drain", "60s"]);
    command.arg("--").arg(&scene.python).args(["-c", script]);
    let mut one = Program::start(&mut command, scene.log("one"));
    eventually("it is registered", || async {
        let instances = scene.instances().await;
        if instances["healthy"] == 1 { Ok(()) } else { Err(format!("{instances} {}", one.printed())) }
    })
    .await;
    assert!(get(port, "web", &[]).await.is_err(), "it exits in place of an answer");
    assert_eq!(one.ended().await, Some(7), "{}", one.printed());
    let instances = scene.instances().await;
    let left: u64 = instances.as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(left, 0, "{instances}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_told_and_ends_the_program() {
    let Some(scene) = Scene::start(&[]).await else { return };
    let run = async |more: &[&str]| {
        let mut command = scene.command("one", &free_port().to_string(), more);
        command.arg("--").arg(&scene.python).args(["-c", "import http.server, os; http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), http.server.BaseHTTPRequestHandler).serve_forever()"]);
        let mut program = Program::start(&mut command, scene.log("one"));
        (program.ended().await, program.printed())
    };
    let (code, printed) = run(&["--label", "a key=x"]).await;
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("labels"), "the field is named: {printed}");

    // The port is never opened.
    let mut command = scene.command("silent", &free_port().to_string(), &[]);
    let over = scene.folder.path().join("over");
    let script = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)";
    command.arg("--").arg(&scene.python).args(["-c", script]).arg(&over);
    let mut silent = Program::start(&mut command, scene.log("silent"));
    silent.until_printed("the program's port does not accept connections yet").await;
    std::fs::write(over, "").expect("the folder can be written");
    assert_eq!(silent.ended().await, Some(1), "{}", silent.printed());
    assert!(silent.printed().contains("was never registered"), "{}", silent.printed());

    let mut command = scene.command("one", "1", &[]);
    command.args(["--", "no-such-program"]);
    let mut missing = Program::start(&mut command, scene.log("missing"));
    assert_eq!(missing.ended().await, Some(2));
    assert!(missing.printed().contains("starting no-such-program"), "{}", missing.printed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_pilotfishes_on_one_etcd_serve_what_registered_with_any_of_them() {
    let Some(etcd) = Etcd::start_with(3, None, &[]).await else { return };
    let members: Vec<String> =
        (0..3).map(|member| format!("http://127.0.0.1:{}", etcd.port(member))).collect();
    let store = format!("etcd={}", members.join(","));
    let arguments = ["--registration-store", &store];
    let Some(mut first) = Scene::start_with(&arguments).await else { return };
    let (Some(second), Some(mut third)) =
        (Scene::start_with(&arguments).await, Scene::start_with(&arguments).await)
    else {
        return;
    };
    third.port = first.port;
    // The Envoy is connected to the third, the programs register with the first and the second.
    let Some(_envoy) = Envoy::start(&third.pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    let all = [&*first.server, &*second.server, &*third.server].join(",");
    let one = first.register("one", &["--ttl", "10s", "--server", &all]);
    let mut two = third.register("two", &["--ttl", "10s"]);
    first.only(&["one", "two"]).await;

    // The first one dies: what it was told is known, and its client renews elsewhere.
    let load = Load::start(first.port, "web");
    first.pilotfish.kill().await;
    load.answers(300).await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|name| name == "one" || name == "two"), "{tally:?}");
    eventually("it is renewed with another one", || async {
        let status = second.pilotfish.json("/debug/registrationz").await;
        let renewals = |result: &str| {
            let all = status["requests"].as_array().into_iter().flatten();
            let mut own = all.filter(|count| count["operation"] == "renew" && count["result"] == result);
            own.next().and_then(|count| count["count"].as_u64())
        };
        let goes_on = status["instances"]["healthy"] == 2 && renewals("ok") > Some(2);
        if goes_on { Ok(()) } else { Err(format!("{status} {}", one.printed())) }
    })
    .await;

    // One program ends, and the Pilotfish that never heard of it says so.
    two.terminate().await;
    first.only(&["one"]).await;
}

const SHOP: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.1
  ports: [{name: http, port: PORT, targetPort: http}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: POD}]
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: only-get, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  action: DENY
  rules: [{to: [{operation: {paths: [/denied]}}]}]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_registered_is_merged_with_kubernetes_and_is_a_workload_like_a_pod() {
    let (port, pod) = (free_port(), Backend::start("127.0.0.1", "pod").await);
    let mesh = tempfile::tempdir().expect("a temporary folder");
    let file = mesh.path().join("shop.yaml");
    let text = SHOP.replace("PORT", &port.to_string()).replace("POD", &pod.port().to_string());
    std::fs::write(&file, text).expect("the folder can be written");
    let Some(mut scene) = Scene::start(&[&file.to_string_lossy()]).await else { return };
    scene.port = port;
    let program = scene.register("one", &["--label", "app=web", "--service-account", "web"]);
    let Some(_client) = Envoy::start(&scene.pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    let host = format!("web.shop.svc.cluster.local:{port}");
    eventually("both answer", || async {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            seen.insert(get(port, &host, &[]).await?);
        }
        if seen.len() == 2 { Ok(()) } else { Err(format!("{seen:?} {}", program.printed())) }
    })
    .await;

    let shards = scene.pilotfish.json("/debug/endpointz?host=web.shop").await;
    let shards = shards["web.shop.svc.cluster.local"]["shop"]["Shards"].clone();
    let names: Vec<&String> = shards.as_object().into_iter().flatten().map(|(name, _)| name).collect();
    assert_eq!(names, ["Kubernetes/Kubernetes", "registration/Kubernetes"], "{shards}");
    let registered = &shards["registration/Kubernetes"][0];
    assert_eq!(registered["Provenance"]["id"], "shop/web/one", "{registered}");
    assert_eq!(registered["ServiceAccount"], "spiffe://cluster.local/ns/shop/sa/web", "{registered}");

    // A sidecar at the address of another instance gets its inbound side, with the policy that the instance's
    // labels select.
    let client = Client::new(ClientOptions::new([&*scene.server])).expect("a good address");
    let beside = Instance {
        namespace: "shop".into(),
        service: "web".into(),
        id: "two".into(),
        addresses: vec!["172.16.0.1".into()],
        ports: vec![Port {
            number: 9080,
            service_port: port.into(),
            protocol: "http".into(),
            ..Port::default()
        }],
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ..Instance::default()
    };
    let mut registration = client.register(beside).await.expect("it is registered");
    let xds = SocketAddr::from(([127, 0, 0, 1], scene.pilotfish.xds_port()));
    let _sidecar = Fleet::start(xds, vec![node(0, "shop")]);
    let dump = async || scene.pilotfish.page("/debug/config_dump?proxyID=client-0.shop").await;
    eventually("its inbound side has the policy", || async {
        let dump = dump().await?;
        let has = |text: &str| dump.contains(text);
        if has("inbound|9080||") && has("ns[shop]-policy[only-get]-rule[0]") { Ok(()) } else { Err(dump) }
    })
    .await;
    registration.deregister(None).await.expect("it is deregistered");
    eventually("and has not any more", || async {
        let dump = dump().await?;
        if dump.contains("inbound|9080||") { Err(dump) } else { Ok(()) }
    })
    .await;
    drop(program);
}

/// One request on a connection of its own: its status and body; `None` where nobody listens yet, or the
/// process ends.
async fn ask(address: &str, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut io = TcpStream::connect(address).await.ok()?;
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    io.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.ok()?;
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

/// Reads from the first connection on after each kill: 503 until the store was read, never an instance
/// missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_right_after_a_kill_are_whole_or_unavailable() {
    const INSTANCES: &str = "/v1/namespaces/shop/services/web/instances";
    let data = tempfile::tempdir().expect("a temporary folder");
    let address = format!("127.0.0.1:{}", free_port());
    let place = data.path().to_string_lossy().into_owned();
    let mut pilotfish =
        Pilotfish::launch(PILOTFISH, &["--data-dir", &place, "--registration-address", &address]);
    pilotfish.ready().await;
    let (mut acknowledged, mut reads, mut early) = (Vec::new(), 0, 0);
    for round in 0..8 {
        // Enough of them that reading the file takes a moment.
        for n in 0..50 {
            let path = format!("{INSTANCES}/i{round}-{n}");
            let body = r#"{"addresses":["127.0.0.1"],"ports":[{"number":8080}],"ttl":"600s"}"#;
            let answer = ask(&address, "PUT", &path, body).await;
            assert!(matches!(answer, Some((200, _))), "{answer:?}");
            acknowledged.push(path);
        }
        pilotfish.kill().await;
        pilotfish.restart().await;
        let mut until = None;
        while until.is_none_or(|until| Instant::now() < until) {
            let path = &acknowledged[reads % acknowledged.len()];
            let (one, list) = tokio::join!(
                ask(&address, "GET", path, ""),
                ask(&address, "GET", "/v1/instances?pageSize=1000", "")
            );
            for (what, answer) in [(path.as_str(), one), ("the list", list)] {
                let Some((status, body)) = answer else { continue };
                reads += 1;
                until.get_or_insert_with(|| Instant::now() + Duration::from_millis(50));
                match status {
                    503 => early += 1,
                    200 if what == "the list" => {
                        let list: Value = serde_json::from_str(&body).expect("JSON");
                        assert_eq!(
                            list["records"].as_array().map(Vec::len),
                            Some(acknowledged.len()),
                            "round {round}"
                        );
                    }
                    status => assert_eq!(status, 200, "round {round}: {what}: {body}"),
                }
            }
        }
        pilotfish.ready().await;
    }
    println!("{reads} reads, {early} before the store was read");
}

/// An etcd that cannot be reached at the start: the registry is not taken for empty, and readiness says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_without_its_store_is_neither_read_nor_given_up() {
    let address = format!("127.0.0.1:{}", free_port());
    let store = format!("etcd=http://127.0.0.1:{}", free_port());
    let pilotfish = Pilotfish::launch(
        PILOTFISH,
        &["--registration-store", &store, "--registration-address", &address, "--registry-timeout", "100ms"],
    );
    eventually("the registry fails", || async {
        match pilotfish.answer("/ready").await {
            Ok((503, page)) if page.contains("registration/Kubernetes: cannot be read since") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    for _ in 0..20 {
        assert!(pilotfish.page("/ready").await.is_err(), "given up");
        for path in ["/v1/instances", "/v1/namespaces/shop/services/web/instances/a"] {
            let answer = ask(&address, "GET", path, "").await;
            assert!(matches!(answer, Some((503, _))), "{path}: {answer:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
