//! Interception as it happens in a Pod: the containers that `pilotfish inject` adds run as a kubelet would
//! run them, on a host of their own, and connections take the way that they are meant to take.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use pilotfish_testkit::real::{Backend, Host, Program, Tool, eventually};
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const PILOTFISH: &str = env!("CARGO_BIN_EXE_pilotfish");

/// The addresses of one family: of the Pod, and of everything else, which is on its node.
struct Net {
    ipv6: bool,
    pod: &'static str,
    node: &'static str,
    /// The length of the prefix that both share.
    prefix: u8,
    /// Addresses of Services, which nobody has.
    catalog_service: &'static str,
    own_service: &'static str,
    /// The endpoint of the catalog.
    catalog: &'static str,
    /// A server that no Service names.
    elsewhere: &'static str,
    /// The same in a block that is excluded.
    apart: &'static str,
    excluded_block: &'static str,
    /// Every address of the family.
    every: &'static str,
    loopback: &'static str,
    /// Whose connections programs of the Pod see.
    source: &'static str,
}

const V4: Net = Net {
    ipv6: false,
    pod: "10.77.0.2",
    node: "10.77.0.1",
    prefix: 24,
    catalog_service: "10.96.0.10",
    own_service: "10.96.0.20",
    catalog: "10.77.1.10",
    elsewhere: "10.77.1.20",
    apart: "10.77.2.10",
    excluded_block: "10.77.2.0/24",
    every: "0.0.0.0",
    loopback: "127.0.0.1",
    source: "127.0.0.6",
};

const V6: Net = Net {
    ipv6: true,
    pod: "fd77::2",
    node: "fd77::1",
    prefix: 64,
    catalog_service: "fd96::10",
    own_service: "fd96::20",
    catalog: "fd77:1::10",
    elsewhere: "fd77:1::20",
    apart: "fd77:2::10",
    excluded_block: "fd77:2::/64",
    every: "::",
    loopback: "::1",
    source: "::6",
};

/// An address with a port.
fn at(address: &str, port: u16) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    }
}

impl Net {
    fn family(&self) -> &'static str {
        if self.ipv6 { "-6" } else { "-4" }
    }

    /// Gives the Pod and its node their addresses, and the node those of everything else.
    async fn lay(&self, pod: &Host, node: &Host) {
        for (host, address) in [(node, self.node), (pod, self.pod)] {
            host.give(&format!("{address}/{}", self.prefix), "eth0").await;
        }
        let _ = pod.run(&format!("ip {} route add default via {}", self.family(), self.node));
        for address in [self.catalog, self.elsewhere, self.apart] {
            node.give(address, "lo").await;
        }
    }

    /// What Pilotfish reads.
    fn mesh(&self, pod_ips: &[&str]) -> String {
        let Self { pod, catalog, catalog_service, own_service, .. } = self;
        let pod_ips: Vec<String> = pod_ips.iter().map(|ip| format!("{{ip: '{ip}'}}")).collect();
        let pod_ips = pod_ips.join(", ");
        let family = if self.ipv6 { "IPv6" } else { "IPv4" };
        format!(
            "
apiVersion: v1
kind: Namespace
metadata: {{name: shop}}
---
apiVersion: v1
kind: Service
metadata: {{name: catalog, namespace: shop}}
spec: {{clusterIP: '{catalog_service}', ports: [{{name: http, port: 80, targetPort: 8080}}], selector: {{app: catalog}}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: catalog-1, namespace: shop, labels: {{kubernetes.io/service-name: catalog}}}}
addressType: {family}
ports: [{{name: http, port: 8080}}]
endpoints: [{{addresses: ['{catalog}'], conditions: {{ready: true}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: client, namespace: shop}}
spec: {{clusterIP: '{own_service}', ports: [{{name: http, port: 80, targetPort: 8080}}], selector: {{app: client}}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: client-1, namespace: shop, labels: {{kubernetes.io/service-name: client}}}}
addressType: {family}
ports: [{{name: http, port: 8080}}]
endpoints: [{{addresses: ['{pod}'], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: client, namespace: shop}}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: client, namespace: shop, labels: {{app: client}}}}
spec: {{serviceAccountName: default}}
status: {{phase: Running, podIP: '{pod}', podIPs: [{pod_ips}], conditions: [{{type: Ready, status: 'True'}}]}}
"
        )
    }

    async fn backends(&self, pod: &Host, node: &Host) -> Vec<Backend> {
        let mut backends = Vec::new();
        for (host, address, port, name) in [
            (node, self.catalog, 8080, "catalog"),
            (node, self.elsewhere, 8080, "elsewhere"),
            (node, self.elsewhere, 9100, "excluded port"),
            (node, self.apart, 8080, "excluded block"),
            (pod, self.pod, 8080, "app"),
            (pod, self.loopback, 8080, "app"),
            (pod, self.pod, 9000, "app's other port"),
        ] {
            backends.push(host.here(async move { Backend::listen((address, port), name).await }).await);
        }
        backends
    }

    /// The Pod as its user wrote it.
    fn pod(&self, mode: &str) -> String {
        format!(
            "
apiVersion: v1
kind: Pod
metadata:
  name: client
  namespace: shop
  labels: {{app: client}}
  annotations:
    sidecar.istio.io/interceptionMode: {mode}
    traffic.sidecar.istio.io/excludeInboundPorts: '9000'
    traffic.sidecar.istio.io/excludeOutboundPorts: '9100'
    traffic.sidecar.istio.io/excludeOutboundIPRanges: '{}'
spec: {{containers: [{{name: app, image: app}}]}}
",
            self.excluded_block
        )
    }
}

/// A Pod on its host, and another host with everything else.
struct World {
    /// Of the Pod's first address.
    net: &'static Net,
    pod_ips: String,
    pod: Host,
    node: Host,
    folder: TempDir,
    containers: Value,
    _pilotfish: Program,
    envoy: Option<Program>,
    _backends: Vec<Backend>,
}

impl World {
    /// A Pod with addresses of these families.
    async fn new(mode: &str, nets: &[&'static Net]) -> Option<Self> {
        let (pod, node) = (Host::new()?, Host::new()?);
        Tool::Envoy.find()?;
        if nets.iter().any(|net| net.ipv6) && !pod.has_ipv6() {
            return None;
        }
        node.connect(&pod);
        for net in nets {
            net.lay(&pod, &node).await;
        }
        let net = nets[0];
        let pod_ips: Vec<&str> = nets.iter().map(|net| net.pod).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mesh = folder.path().join("mesh.yaml");
        std::fs::write(&mesh, net.mesh(&pod_ips)).unwrap();
        let (xds, admin) = (at(net.node, 15010), at(net.node, 15014));
        let serve = ["serve", mesh.to_str().unwrap(), "--xds-address", &xds, "--admin-address", &admin];
        // Other network namespaces are other machines.
        let serve = serve.into_iter().chain(["--allow-plaintext-xds", "--allow-remote-debug"]);
        let pilotfish = node.start(
            PILOTFISH,
            &serve.map(str::to_owned).collect::<Vec<_>>(),
            folder.path().join("pilotfish.log"),
        );
        let mut backends = Vec::new();
        for net in nets {
            backends.extend(net.backends(&pod, &node).await);
        }
        let injected = inject(&net.pod(mode), &xds);
        let containers = injected["spec"]["initContainers"].clone();
        let pod_ips = pod_ips.join(",");
        Some(Self {
            net,
            pod_ips,
            pod,
            node,
            folder,
            containers,
            _pilotfish: pilotfish,
            envoy: None,
            _backends: backends,
        })
    }

    /// Runs the container that writes the rules to its end.
    fn write_rules(&self) {
        let output = as_kubelet(self, &self.containers[0], Path::new(PILOTFISH)).output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{stdout}{stderr}");
    }

    /// The rules of the Pod without their counters, its addresses, and the routes that are not the system's.
    fn rules(&self) -> String {
        let run = |line: &str| self.pod.run(line);
        let family = self.net.family();
        let rules = run(if self.net.ipv6 { "ip6tables-save" } else { "iptables-save" });
        let routes = run(&format!("ip {family} route show table all"));
        let addresses = run(&format!("ip {family} -brief address show dev lo"));
        let rules = rules.lines().filter(|line| !line.starts_with(['#', ':']));
        let routes = routes.lines().filter(|line| line.contains("table 133"));
        let more = run(&format!("ip {family} rule"));
        rules.chain(routes).chain(more.lines()).chain(addresses.lines()).collect::<Vec<_>>().join("\n")
    }

    /// The answer of a server to a program of the Pod that runs as that user and group.
    fn ask_as(&self, (user, group): (u32, u32), address: &str, port: u16) -> Result<String, String> {
        let script = format!(
            "exec 3<>/dev/tcp/{address}/{port} && printf 'GET / HTTP/1.1\\r\\nhost: a\\r\\nconnection: close\\r\\n\\r\\n' >&3 && cat <&3"
        );
        let mut command = self.pod.command("setpriv");
        command.args(["--reuid", &user.to_string(), "--regid", &group.to_string(), "--clear-groups"]);
        let output = command.args(["timeout", "60", "bash", "-c", &script]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Starts the sidecar and waits until a kubelet, which is on the node, finds it ready.
    async fn start_envoy(&mut self) {
        // Its user may not be allowed to enter the folder in which tools are.
        let envoy = self.folder.path().join("envoy");
        std::fs::copy(Tool::Envoy.find().unwrap(), &envoy).unwrap();
        let mut command = as_kubelet(self, &self.containers[1], &envoy).into();
        let envoy = Program::start(&mut command, self.folder.path().join("envoy.log"));
        eventually("the sidecar is ready", || async {
            let answer = self.node.ask(&at(self.net.pod, 15021), "/healthz/ready").await?;
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

fn inject(pod: &str, xds: &str) -> Value {
    let mut command = Command::new(PILOTFISH);
    command.args(["inject", "--xds-address", xds]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(pod.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_saphyr::from_str(std::str::from_utf8(&output.stdout).unwrap()).unwrap()
}

/// A container as a kubelet runs it: with its arguments filled in, its user and group, and no capability but
/// its own. `entry` is what its image runs.
fn as_kubelet(world: &World, container: &Value, entry: &Path) -> Command {
    let context = &container["securityContext"];
    assert_eq!(context["capabilities"]["drop"][0], "ALL");
    let added = context["capabilities"]["add"].as_array().into_iter().flatten();
    let kept: String = added.map(|name| format!(",+{}", name.as_str().unwrap().to_lowercase())).collect();
    let mut command = world.pod.command("setpriv");
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
        command.arg(filled(argument.as_str().unwrap(), container, world));
    }
    command
}

fn filled(argument: &str, container: &Value, world: &World) -> String {
    let names =
        container["env"].as_array().into_iter().flatten().map(|variable| variable["name"].as_str().unwrap());
    names.fold(argument.to_owned(), |text, name| {
        let value = match name {
            "POD_NAME" => "client",
            "POD_NAMESPACE" => "shop",
            "POD_IP" => world.net.pod,
            "POD_IPS" => &world.pod_ips,
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

/// In REDIRECT, programs see Envoy's own address.
async fn are_redirected(net: &'static Net) {
    let Some(mut world) = World::new("REDIRECT", &[net]).await else { return };
    world.write_rules();
    let rules = world.rules();
    world.write_rules();
    assert_eq!(world.rules(), rules, "a container that runs again writes the same");
    // Envoy is not there yet: nothing gets past it.
    assert!(world.pod.ask(&at(net.catalog, 8080), "/").await.is_err());
    assert!(world.node.ask(&at(net.pod, 8080), "/").await.is_err());
    world.start_envoy().await;
    out_of_the_pod(&world).await;
    let answer = into_the_pod(&world).await;
    assert_eq!(header(&answer, "x-peer"), Some(net.source), "{answer}");
}

/// In TPROXY, they see their clients'.
async fn keep_their_address(net: &'static Net) {
    let Some(mut world) = World::new("TPROXY", &[net]).await else { return };
    world.write_rules();
    let rules = world.rules();
    world.write_rules();
    assert_eq!(world.rules(), rules, "a container that runs again writes the same");
    world.start_envoy().await;
    out_of_the_pod(&world).await;
    let answer = into_the_pod(&world).await;
    assert_eq!(header(&answer, "x-peer"), Some(net.node), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_redirected_to_envoy() {
    are_redirected(&V4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_redirected_to_envoy_over_ipv6() {
    are_redirected(&V6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transparent_connections_keep_the_address_of_the_client() {
    keep_their_address(&V4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transparent_connections_keep_the_address_of_the_client_over_ipv6() {
    keep_their_address(&V6).await;
}

/// A Pod with addresses of both families is reached by both, and none gets past its Envoy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_families_are_redirected_to_envoy() {
    let Some(mut world) = World::new("REDIRECT", &[&V4, &V6]).await else { return };
    world.write_rules();
    assert!(world.node.ask(&at(V6.pod, 8080), "/").await.is_err());
    world.start_envoy().await;
    out_of_the_pod(&world).await;
    assert_eq!(header(&into_the_pod(&world).await, "x-peer"), Some(V4.source));
    let passed = world.stat("cluster.PassthroughCluster.*upstream_cx_total").await;
    is_from(&world.pod.ask(&at(V6.elsewhere, 8080), "/").await, "elsewhere", false);
    assert_eq!(world.stat("cluster.PassthroughCluster.*upstream_cx_total").await, passed + 1);
    let app = world.node.ask(&at(V6.pod, 8080), "/").await;
    is_from(&app, "app", true);
    assert_eq!(header(&app.unwrap(), "x-peer"), Some(V6.source));
    is_from(&world.node.ask(&at(V6.pod, 9000), "/").await, "app's other port", false);
}

/// What the programs of the Pod connect to.
async fn out_of_the_pod(world: &World) {
    let net = world.net;
    let ask = async |address: &str, port: u16| world.pod.ask(&at(address, port), "/").await;
    // Nobody has the Service's address; Envoy knows the endpoint.
    let catalog = ask(net.catalog_service, 80).await;
    is_from(&catalog, "catalog", true);
    assert_eq!(header(catalog.as_ref().unwrap(), "x-peer"), Some(net.pod));
    // Nobody's Service: Envoy passes it on.
    let passed = world.stat("cluster.PassthroughCluster.*upstream_cx_total").await;
    is_from(&ask(net.elsewhere, 8080).await, "elsewhere", false);
    assert_eq!(world.stat("cluster.PassthroughCluster.*upstream_cx_total").await, passed + 1);
    is_from(&world.ask_as((4321, 4321), net.elsewhere, 8080), "elsewhere", false);
    assert_eq!(world.stat("cluster.PassthroughCluster.*upstream_cx_total").await, passed + 2);
    // Not even passed on: what is excluded, and what Envoy's user and group connect to.
    for (address, port, name) in [
        (net.apart, 8080, "excluded block"),
        (net.elsewhere, 9100, "excluded port"),
        (net.loopback, 8080, "app"),
    ] {
        is_from(&ask(address, port).await, name, false);
    }
    for owner in [(1337, 4321), (4321, 1337)] {
        // In TPROXY Envoy is root, and its user counts no less.
        is_from(&world.ask_as(owner, net.elsewhere, 8080), "elsewhere", false);
    }
    assert_eq!(world.stat("cluster.PassthroughCluster.*upstream_cx_total").await, passed + 2);
    // The Pod's own Service: out of Envoy, and in again.
    let inbound = world.stat("cluster.inbound.8080.*upstream_rq_total").await;
    is_from(&ask(net.own_service, 80).await, "app", true);
    assert_eq!(world.stat("cluster.inbound.8080.*upstream_rq_total").await, inbound + 1);
    names_are_resolved_as_before(world).await;
}

async fn names_are_resolved_as_before(world: &World) {
    let (server, client) = (at(world.net.catalog, 53), at(world.net.every, 0));
    let echo = world.node.here(tokio::net::UdpSocket::bind(server.clone())).await.unwrap();
    let answers = world.pod.here(async move {
        let socket = tokio::net::UdpSocket::bind(client).await?;
        socket.send_to(b"name", server).await
    });
    assert_eq!(answers.await.unwrap(), 4);
    let (read, from) = world.node.here(async move { echo.recv_from(&mut [0; 16]).await }).await.unwrap();
    assert_eq!((read, from.ip().to_string().as_str()), (4, world.net.pod));
}

/// What connects to the Pod. Gives the answer of the program.
async fn into_the_pod(world: &World) -> String {
    let ask = async |port: u16, path: &str| world.node.ask(&at(world.net.pod, port), path).await;
    let app = ask(8080, "/").await;
    is_from(&app, "app", true);
    is_from(&ask(9000, "/").await, "app's other port", false);
    let stats = ask(15090, "/stats/prometheus").await.unwrap();
    assert!(stats.contains("envoy_server_live"), "{stats}");
    // Envoy's admin page is the Pod's alone.
    let admin = ask(15000, "/").await;
    assert!(!admin.as_ref().is_ok_and(|answer| answer.contains("200 OK")), "{admin:?}");
    app.unwrap()
}
