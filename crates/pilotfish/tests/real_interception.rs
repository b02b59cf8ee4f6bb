//! Interception as it happens in a Pod: the containers that `pilotfish inject` adds run as a kubelet would run them, on a host of their
//! own, and connections take the way that they are meant to take.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use pilotfish_testkit::real::{Backend, Host, Program, Tool, eventually};
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const PILOTFISH: &str = env!("CARGO_BIN_EXE_pilotfish");

const MESH: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: catalog, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80, targetPort: 8080}], selector: {app: catalog}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: catalog-1, namespace: shop, labels: {kubernetes.io/service-name: catalog}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.77.1.10], conditions: {ready: true}}]
---
apiVersion: v1
kind: Service
metadata: {name: client, namespace: shop}
spec: {clusterIP: 10.96.0.20, ports: [{name: http, port: 80, targetPort: 8080}], selector: {app: client}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: client-1, namespace: shop, labels: {kubernetes.io/service-name: client}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.77.0.2], conditions: {ready: true}, targetRef: {kind: Pod, name: client, namespace: shop}}]
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop, labels: {app: client}}
spec: {serviceAccountName: default}
status: {phase: Running, podIP: 10.77.0.2, conditions: [{type: Ready, status: 'True'}]}
";

const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: client
  namespace: shop
  labels: {app: client}
  annotations:
    sidecar.istio.io/interceptionMode: MODE
    traffic.sidecar.istio.io/excludeInboundPorts: '9000'
    traffic.sidecar.istio.io/excludeOutboundPorts: '9100'
    traffic.sidecar.istio.io/excludeOutboundIPRanges: 10.77.2.0/24
spec: {containers: [{name: app, image: app}]}
";

/// A Pod on its host, and another host with everything else.
struct World {
    pod: Host,
    node: Host,
    folder: TempDir,
    containers: Value,
    _pilotfish: Program,
    envoy: Option<Program>,
    _backends: Vec<Backend>,
}

impl World {
    async fn new(mode: &str) -> Option<Self> {
        let (pod, node) = (Host::new()?, Host::new()?);
        Tool::Envoy.find()?;
        node.connect("10.77.0.1/24", &pod, "10.77.0.2/24");
        let _ = pod.run("ip route add default via 10.77.0.1");
        for address in ["10.77.1.10", "10.77.1.20", "10.77.2.10"] {
            let _ = node.run(&format!("ip address add {address}/32 dev lo"));
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mesh = folder.path().join("mesh.yaml");
        std::fs::write(&mesh, MESH).unwrap();
        let serve = [
            "serve",
            mesh.to_str().unwrap(),
            "--xds-address",
            "10.77.0.1:15010",
            "--admin-address",
            "10.77.0.1:15014",
        ];
        let pilotfish = node.start(PILOTFISH, &serve.map(str::to_owned), folder.path().join("pilotfish.log"));
        let mut backends = Vec::new();
        for (host, address, port, name) in [
            (&node, "10.77.1.10", 8080, "catalog"),
            (&node, "10.77.1.20", 8080, "elsewhere"),
            (&node, "10.77.1.20", 9100, "excluded port"),
            (&node, "10.77.2.10", 8080, "excluded block"),
            (&pod, "0.0.0.0", 8080, "app"),
            (&pod, "0.0.0.0", 9000, "app's other port"),
        ] {
            backends.push(host.here(async move { Backend::listen((address, port), name).await }).await);
        }
        let injected = inject(&POD.replace("MODE", mode));
        let containers = injected["spec"]["initContainers"].clone();
        Some(Self { pod, node, folder, containers, _pilotfish: pilotfish, envoy: None, _backends: backends })
    }

    /// Runs the container that writes the rules to its end.
    fn write_rules(&self) {
        let output = as_kubelet(&self.pod, &self.containers[0], Path::new(PILOTFISH)).output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{stdout}{stderr}");
    }

    /// The rules of the Pod without their counters, and its routes.
    fn rules(&self) -> String {
        let rules =
            ["iptables-save", "ip -4 rule", "ip -4 route show table all"].map(|line| self.pod.run(line));
        rules
            .concat()
            .lines()
            .filter(|line| !line.starts_with('#') && !line.starts_with(':'))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Starts the sidecar and waits until a kubelet, which is on the node, finds it ready.
    async fn start_envoy(&mut self) {
        // Its user may not be allowed to enter the folder in which tools are.
        let envoy = self.folder.path().join("envoy");
        std::fs::copy(Tool::Envoy.find().unwrap(), &envoy).unwrap();
        let mut command = as_kubelet(&self.pod, &self.containers[1], &envoy).into();
        let envoy = Program::start(&mut command, self.folder.path().join("envoy.log"));
        eventually("the sidecar is ready", || async {
            let answer = self.node.ask("10.77.0.2:15021", "/healthz/ready").await?;
            if answer.starts_with("HTTP/1.1 200") {
                Ok(())
            } else {
                Err(format!("{answer}\n{}", envoy.printed()))
            }
        })
        .await;
        self.envoy = Some(envoy);
    }

    /// The sum of Envoy's counters of these names.
    async fn stat(&self, name: &str) -> u64 {
        let stats = self.pod.ask("127.0.0.1:15000", &format!("/stats?filter={name}")).await.unwrap();
        stats.lines().filter_map(|line| line.rsplit_once(": ")?.1.parse::<u64>().ok()).sum()
    }
}

fn inject(pod: &str) -> Value {
    let mut command = Command::new(PILOTFISH);
    command.args(["inject", "--xds-address", "10.77.0.1:15010"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(pod.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_saphyr::from_str(std::str::from_utf8(&output.stdout).unwrap()).unwrap()
}

/// A container as a kubelet runs it: with its arguments filled in, its user and group, and no capability but its own. `entry` is what its
/// image runs.
fn as_kubelet(pod: &Host, container: &Value, entry: &Path) -> Command {
    let context = &container["securityContext"];
    assert_eq!(context["capabilities"]["drop"][0], "ALL");
    let added = context["capabilities"]["add"].as_array().into_iter().flatten();
    let kept: String = added.map(|name| format!(",+{}", name.as_str().unwrap().to_lowercase())).collect();
    let mut command = pod.command("setpriv");
    command.args([
        "--reuid",
        &context["runAsUser"].to_string(),
        "--regid",
        &context["runAsGroup"].to_string(),
    ]);
    command
        .args(["--clear-groups", "--inh-caps=-all", "--no-new-privs"])
        .arg(format!("--bounding-set=-all{kept}"));
    command.arg(entry);
    for argument in container["args"].as_array().unwrap() {
        command.arg(filled(argument.as_str().unwrap(), container));
    }
    command
}

fn filled(argument: &str, container: &Value) -> String {
    let names =
        container["env"].as_array().into_iter().flatten().map(|variable| variable["name"].as_str().unwrap());
    names.fold(argument.to_owned(), |text, name| {
        let value = match name {
            "POD_NAME" => "client",
            "POD_NAMESPACE" => "shop",
            "POD_IP" | "POD_IPS" => "10.77.0.2",
            _ => "default",
        };
        text.replace(&format!("$({name})"), value)
    })
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Asserts that an answer is that server's, and whether an Envoy had it in its hands as HTTP.
#[track_caller]
fn is_from(answer: &Result<String, String>, name: &str, through_envoy: bool) {
    let answer = answer.as_ref().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(name), "{name}: {answer}");
    assert_eq!(header(answer, "x-envoy-upstream-service-time").is_some(), through_envoy, "{name}: {answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_redirected_to_envoy() {
    let Some(mut world) = World::new("REDIRECT").await else { return };
    world.write_rules();
    let rules = world.rules();
    world.write_rules();
    assert_eq!(world.rules(), rules, "a container that runs again writes the same");
    // Envoy is not there yet: nothing gets past it.
    assert!(world.pod.ask("10.77.1.10:8080", "/").await.is_err());
    assert!(world.node.ask("10.77.0.2:8080", "/").await.is_err());
    world.start_envoy().await;
    out_of_the_pod(&world).await;
    let answer = into_the_pod(&world).await;
    assert_eq!(header(&answer, "x-peer"), Some("127.0.0.6"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transparent_connections_keep_the_address_of_the_client() {
    let Some(mut world) = World::new("TPROXY").await else { return };
    world.write_rules();
    let rules = world.rules();
    world.write_rules();
    assert_eq!(world.rules(), rules, "a container that runs again writes the same");
    world.start_envoy().await;
    out_of_the_pod(&world).await;
    let answer = into_the_pod(&world).await;
    assert_eq!(header(&answer, "x-peer"), Some("10.77.0.1"), "{answer}");
}

/// What the programs of the Pod connect to.
async fn out_of_the_pod(world: &World) {
    // Nobody has the Service's address; Envoy knows the endpoint.
    let ask = async |address: &str| world.pod.ask(address, "/").await;
    let catalog = ask("10.96.0.10:80").await;
    is_from(&catalog, "catalog", true);
    assert_eq!(header(catalog.as_ref().unwrap(), "x-peer"), Some("10.77.0.2"));
    // Nobody's Service: Envoy passes it on.
    let passed = world.stat("cluster.PassthroughCluster.*upstream_cx_total").await;
    is_from(&ask("10.77.1.20:8080").await, "elsewhere", false);
    assert_eq!(world.stat("cluster.PassthroughCluster.*upstream_cx_total").await, passed + 1);
    // Not even passed on.
    for (address, name) in [("10.77.2.10:8080", "excluded block"), ("10.77.1.20:9100", "excluded port")] {
        is_from(&ask(address).await, name, false);
    }
    is_from(&ask("127.0.0.1:8080").await, "app", false);
    assert_eq!(world.stat("cluster.PassthroughCluster.*upstream_cx_total").await, passed + 1);
    // The Pod's own Service: out of Envoy, and in again.
    let inbound = world.stat("cluster.inbound.8080.*upstream_rq_total").await;
    is_from(&ask("10.96.0.20:80").await, "app", true);
    assert_eq!(world.stat("cluster.inbound.8080.*upstream_rq_total").await, inbound + 1);
    // Names are resolved as before.
    let echo = world.node.here(tokio::net::UdpSocket::bind("10.77.1.10:53")).await.unwrap();
    let answers = world.pod.here(async {
        let socket = tokio::net::UdpSocket::bind("0.0.0.0:0").await?;
        socket.send_to(b"name", "10.77.1.10:53").await
    });
    assert_eq!(answers.await.unwrap(), 4);
    let (read, from) = world.node.here(async move { echo.recv_from(&mut [0; 16]).await }).await.unwrap();
    assert_eq!((read, from.ip().to_string().as_str()), (4, "10.77.0.2"));
}

/// What connects to the Pod. Gives the answer of the program.
async fn into_the_pod(world: &World) -> String {
    let app = world.node.ask("10.77.0.2:8080", "/").await;
    is_from(&app, "app", true);
    is_from(&world.node.ask("10.77.0.2:9000", "/").await, "app's other port", false);
    let stats = world.node.ask("10.77.0.2:15090", "/stats/prometheus").await.unwrap();
    assert!(stats.contains("envoy_server_live"), "{stats}");
    // Envoy's admin page is the Pod's alone.
    let admin = world.node.ask("10.77.0.2:15000", "/").await;
    assert!(!admin.as_ref().is_ok_and(|answer| answer.contains("200 OK")), "{admin:?}");
    app.unwrap()
}
