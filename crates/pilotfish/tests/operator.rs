//! The client commands against a running Pilotfish with connected proxies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

#[path = "operator/compare.rs"]
mod compare;
#[path = "support/forwarding.rs"]
mod forwarding;
#[path = "operator/in_force.rs"]
mod in_force;
#[path = "support/refusing.rs"]
mod refusing;

use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_testkit::real::{LIMIT, Pilotfish, eventually};
use refusing::refusing;
use serde_json::Value;
use std::net::SocketAddr;
use std::process::{Command, Output};

const SHOP: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: n0}\nspec: {clusterIP: 10.1.0.1, selector: {app: web}, \
                    ports: [{name: http, port: 80}]}\n---\n\
                    apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: n0, labels: \
                    {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\n\
                    endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}, {addresses: [10.0.0.2], conditions: {ready: false, serving: false, terminating: false}}]\n";

const ROUTE: &str = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: n0}\nspec:\n  hosts: [web]\n  \
                     http: [{timeout: 3s, route: [{destination: {host: web}}]}]\n";

/// A client of one Pilotfish.
struct Operator(String);

impl Operator {
    fn of(pilotfish: &Pilotfish) -> Self {
        Self(format!("127.0.0.1:{}", pilotfish.admin_port()))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilotfish"));
        command.args(arguments).env("PILOTFISH_ADMIN_ADDRESS", &self.0).output().unwrap()
    }

    /// The exit code and what was printed.
    fn ask(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(arguments);
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["-o", "json"]].concat();
        let output = self.run(&arguments);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr))
        })
    }
}

async fn with_proxies(count: usize) -> (Pilotfish, Fleet, Operator) {
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("shop.yaml", SHOP)]).await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let fleet = Fleet::start(target, (0..count).map(|index| node(index, "n0")).collect());
    fleet.synced(LIMIT).await.unwrap();
    let operator = Operator::of(&pilotfish);
    (pilotfish, fleet, operator)
}

/// True for the line of the registry of Services with its state, however wide the columns are.
fn is_synced(line: &str) -> bool {
    line.split_whitespace().take(2).eq(["Kubernetes/Kubernetes", "synced"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_tables_and_json_and_unknown_names_are_answered_with_near_ones() {
    let (_pilotfish, _fleet, operator) = with_proxies(2).await;
    let (code, text) = operator.ask(&["services"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("web.n0.svc.cluster.local") && text.contains("1/2"), "{text}");
    let endpoints = operator.json(&["endpoints", "web", "--health", "unhealthy"]);
    assert_eq!((&endpoints["total"], &endpoints["items"][0]["address"]), (&1.into(), &"10.0.0.2".into()));
    let proxies = operator.json(&["proxies"]);
    let states: Vec<&Value> =
        proxies["items"].as_array().unwrap().iter().map(|proxy| &proxy["state"]).collect();
    assert_eq!(states, ["synced", "synced"], "{proxies:#}");
    assert!(operator.ask(&["registries", "--status"]).1.lines().any(is_synced));
    assert_eq!(operator.ask(&["problems"]), (Some(0), "no problems\n".to_owned()));
    for (arguments, message) in [
        (
            &["proxies", "client-7.n0"][..],
            "no proxy is named \"client-7.n0\"\nhint: the nearest are\n  client-",
        ),
        (
            &["proxies", "client"],
            "2 proxies are named \"client\"\nhint: these have it; name one of them\n  client-0.n0\n  client-1.n0",
        ),
        (&["endpoints", "wbe"], "no host is named \"wbe\""),
        (&["wait", "--revision", "99"], "revision 99 is not known"),
        (&["config", "client-0.n0", "things"], "known are clusters"),
    ] {
        let (code, text) = operator.ask(arguments);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{message:?} in {text}");
    }
    let one = operator.json(&["proxies", "client-0.n0"]);
    assert!(one["types"][0]["view"].is_u64() && one["types"][0]["sharedWith"] == 1, "{one:#}");
    let yaml = operator.ask(&["proxies", "client-0.n0", "-o", "yaml"]).1;
    assert!(yaml.contains("name: client-0.n0"), "{yaml}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_is_shown_with_the_objects_that_made_it() {
    let (_pilotfish, _fleet, operator) = with_proxies(1).await;
    let (_, names) = operator.ask(&["config", "client-0.n0"]);
    assert!(
        names.contains("outbound|80||web.n0.svc.cluster.local") && names.contains("Service n0/web"),
        "{names}"
    );
    let (code, yaml) =
        operator.ask(&["config", "client-0.n0", "cluster", "outbound|80||web.n0.svc.cluster.local"]);
    assert_eq!(code, Some(0));
    assert!(yaml.starts_with("# clusters outbound|80||web.n0.svc.cluster.local, version "), "{yaml}");
    assert!(yaml.contains("# made by Service n0/web\n") && yaml.contains("type: EDS"), "{yaml}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_what_then_happens_and_wait_returns_when_it_has() {
    let (pilotfish, _fleet, operator) = with_proxies(2).await;
    let file = pilotfish.folder().join("../route.yaml");
    std::fs::write(&file, ROUTE).unwrap();
    let path = file.to_str().unwrap();
    let plan = operator.json(&["plan", path]);
    assert_eq!(
        (&plan["severity"], &plan["proxiesChanged"], &plan["objects"]),
        (&"changes".into(), &2.into(), &1.into()),
        "{plan:#}"
    );
    let (code, text) = operator.ask(&["plan", path, "--exit-code"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.starts_with("2 of 2 proxies get 1 changed resource from 1 object; nothing is dangerous\n"),
        "{text}"
    );
    let before = operator.json(&["wait"])["revision"].as_u64().unwrap();

    pilotfish.write("route.yaml", ROUTE);
    eventually("the object is in force", || async {
        let text = operator.ask(&["wait", "VirtualService/n0/web"]).1;
        if text.contains("is in force") { Ok(()) } else { Err(text) }
    })
    .await;
    let after = operator.json(&["wait"])["revision"].as_u64().unwrap();
    assert!(after > before);
    assert_eq!(operator.json(&["wait", "VirtualService/n0/web"])["revision"], after);
    assert!(operator.json(&["wait"])["replica"].as_str().is_some_and(|replica| !replica.is_empty()));
    let resource = operator.json(&["config", "client-0.n0", "routes", "80"]);
    assert_eq!(
        resource["resources"][0]["version"], plan["changes"][0]["after"],
        "what was planned is what is sent"
    );
    assert_eq!(operator.json(&["plan", path])["severity"], "nothing");

    let (code, text) = operator.ask(&["plan", "--delete", "EndpointSlice/n0/web-1"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("DANGER web.n0.svc.cluster.local:80 loses its last endpoint"), "{text}");
    std::fs::write(&file, ROUTE.replace("3s", "soon")).unwrap();
    let (code, text) = operator.ask(&["plan", path]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("soon"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_follows_a_request_of_a_connected_proxy() {
    let (_pilotfish, _fleet, operator) = with_proxies(1).await;
    let (code, text) = operator.ask(&["why", "client-0.n0", "--to", "web"]);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "it reaches 1 endpoint",
        "10.0.0.1:8080",
        "not 10.0.0.2:8080 (EndpointSlice n0/web-1): it is not ready",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let (code, text) = operator.ask(&["why", "endpoint", "10.0.0.2"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("web.n0.svc.cluster.local") && text.contains("it is not ready"), "{text}");
}

/// As `examples/broken/dead-registry` has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_missing_because_of_its_registry_is_explained_by_that() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shop.yaml"), SHOP).unwrap();
    let arguments = [
        folder.path().to_str().unwrap(),
        "--registry",
        "consul=http://127.0.0.1:1",
        "--registry-timeout",
        "1s",
    ];
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &arguments);
    pilotfish.ready().await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let fleet = Fleet::start(target, vec![node(0, "n0")]);
    fleet.synced(LIMIT).await.unwrap();
    let operator = Operator::of(&pilotfish);
    let (_, text) = operator.ask(&["why", "client-0.n0", "--to", "payments.service.consul"]);
    let readme = include_str!("../../../examples/broken/dead-registry/README.md");
    let line = readme.split_once("says so: `").and_then(|(_, rest)| rest.split_once('`')).unwrap().0;
    assert!(text.contains(line), "{line:?} in {text}");
    let (_, registries) = operator.ask(&["registries", "--status"]);
    assert!(registries.contains("unreadable"), "{registries}");
}

#[test]
fn shells_are_told_of_the_commands_and_manuals_are_written() {
    let nobody = Operator("127.0.0.1:1".to_owned());
    for shell in ["bash", "zsh", "fish"] {
        let (code, script) = nobody.ask(&["completion", shell]);
        assert_eq!(code, Some(0), "{shell}");
        assert!(script.contains("proxies") && script.contains("plan"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = nobody.ask(&["man", folder.path().to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    let page = std::fs::read_to_string(folder.path().join("pilotfish-why.1")).unwrap();
    assert!(page.contains("\\-\\-to"), "{page}");
    let (code, text) = nobody.ask(&["proxies"]);
    assert_eq!(code, Some(2));
    assert!(
        text.starts_with("error: cannot connect to 127.0.0.1:1: ")
            && text.contains("\nhint: is `pilotfish serve` running there?"),
        "{text}"
    );
}

#[test]
fn a_hint_follows_each_error() {
    let nobody = Operator("127.0.0.1:1".to_owned());
    let missing = "/nowhere/missing.yaml";
    let asking =
        ["proxies", "services", "endpoints", "problems", "history", "memory", "profile", "log", "wait"];
    let asking = asking.iter().map(|command| vec![*command]);
    let files = ["replay", "validate", "plan", "serve", "man"].iter().map(|command| match *command {
        "man" => vec!["man", "/proc/nowhere"],
        command => vec![command, missing],
    });
    let others = [
        &["config", "web"][..],
        &["why", "web", "--to", "x"],
        &["why", "endpoint", "10.0.0.1"],
        &["why", "no", "config", "VirtualService/a/b"],
        &["why", "web", "--to", "x", "--files", missing],
        &["plan", "--base", missing, missing],
        &["record", "/nowhere/record"],
        &["registries", "zoo"],
        &["registries", "--status"],
        &["inject", "-f", missing],
        &["crds", "--group", "x"],
        &["remote-secret", "--name", "a", "--kubeconfig", missing],
        &["serve", "--xds-address", "x", "--debounce", "x"],
        &["sync", "polaris", "--address", "x", "--cluster-name", ""],
        &["bench", "--address", "x"],
        &["demo", missing],
        &["top"],
    ];
    for arguments in asking.chain(files).chain(others.iter().map(|arguments| arguments.to_vec())) {
        let output = nobody.run(&arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        let is_told = error.starts_with("error: ") && error.trim_end().len() > "error: ".len();
        assert!(output.status.code() == Some(2) && is_told, "{arguments:?}: {error}");
        // Hints name what to change; a page of help is none.
        let hints = error.lines().filter(|line| line.starts_with("hint: "));
        assert!(hints.into_iter().all(|hint| !hint.ends_with("--help")), "{arguments:?}: {error}");
        assert!(error.matches("(os error 2)").count() < 2, "{arguments:?}: {error}");
    }
}

#[test]
fn a_plan_on_folders_alone_needs_no_control_plane() {
    let (base, change) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(base.path().join("shop.yaml"), SHOP).unwrap();
    std::fs::write(change.path().join("route.yaml"), ROUTE).unwrap();
    let nobody = Operator("127.0.0.1:1".to_owned());
    let (base, change) = (base.path().to_str().unwrap(), change.path().to_str().unwrap());
    let (code, text) = nobody.ask(&["plan", "--base", base, change]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("1 of 1 proxy gets 1 changed resource from 1 object; nothing is dangerous"),
        "{text}"
    );
    // What cannot be read is no part of a plan that goes on without it.
    let link = std::path::Path::new(change).join("loop.yaml");
    std::os::unix::fs::symlink("loop.yaml", &link).unwrap();
    let (code, text) = nobody.ask(&["plan", "--base", base, change]);
    assert!(code == Some(2) && text.contains("loop.yaml: ") && text.contains("\nhint: "), "{text}");
    std::fs::remove_file(link).unwrap();
    let (code, text) = nobody.ask(&["plan", "--base", base, "--replace", change]);
    assert_eq!(code, Some(4), "the Service and its endpoints go: {text}");
    assert!(text.contains("web.n0.svc.cluster.local:80 is not known any more"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_kept_with_who_has_it_and_what_was_before() {
    let (pilotfish, _fleet, operator) = with_proxies(2).await;
    pilotfish.write("route.yaml", ROUTE);
    let first = eventually("the route is read", || async {
        let history = operator.json(&["history", "VirtualService/n0/web"]);
        if history["total"] == 1 { Ok(history) } else { Err(history) }
    })
    .await;
    let revision = first["items"][0]["revision"].as_u64().unwrap();
    pilotfish.write("route.yaml", &ROUTE.replace("3s", "7s"));
    eventually("the change is in force at both", || async {
        let history = operator.json(&["history", "client-0.n0"]);
        let newest = &history["items"][0];
        let is_in_force = newest["outcome"] == "in-force" && newest["proxies"] == 2;
        let is_newer = newest["revision"].as_u64() > Some(revision);
        if is_in_force && is_newer { Ok(()) } else { Err(history) }
    })
    .await;
    let history = operator.json(&["history", "VirtualService/n0/web"]);
    let newest = &history["items"][0];
    assert_eq!(history["total"], 2, "{history:#}");
    assert!(newest["inForceSeconds"].as_f64().unwrap() < 5.0, "{newest:#}");
    assert_eq!(newest["summary"], "VirtualService n0/web changed", "{newest:#}");
    assert!(newest["changes"][0]["source"].as_str().unwrap().contains("route.yaml:1"), "{newest:#}");
    let number = newest["revision"].to_string();
    let one = operator.ask(&["history", "--revision", &number]).1;
    assert!(
        one.contains("-  - timeout: 3s\n+  - timeout: 7s\n") || (one.contains("3s") && one.contains("7s")),
        "{one}"
    );

    // What was sent then, and where a request would have gone.
    let before = revision.to_string();
    let then = operator.ask(&["config", "client-0.n0", "routes", "80", "--at", &before]);
    let now = operator.ask(&["config", "client-0.n0", "routes", "80"]);
    assert_eq!((then.0, now.0), (Some(0), Some(0)), "{then:?}");
    assert!(then.1.contains("timeout: 3s") && now.1.contains("timeout: 7s"), "{}\n{}", then.1, now.1);
    let why = operator.json(&["why", "client-0.n0", "--to", "web", "--at", "1"]);
    assert_eq!(why["reaches"], true, "{why:#}");
    assert!(!why.to_string().contains("VirtualService"), "{why:#}");
    for (arguments, message) in [
        (&["config", "client-0.n0", "--at", "99"][..], "revision 99 is not known"),
        (&["history", "VirtualService/n0/wbe"], "no object is named"),
        (&["history", "nobody"], "no proxy is named \"nobody\""),
        (&["history", "--revision", "99"], "revision 99 is not known"),
    ] {
        let (code, text) = operator.ask(arguments);
        assert!(code == Some(2) && text.contains(message), "{arguments:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_tells_of_its_memory_and_threads_and_changes_its_log() {
    let (_pilotfish, _fleet, operator) = with_proxies(1).await;
    let memory = operator.json(&["memory"]);
    assert!(memory["resident"].as_u64() > Some(1 << 20), "{memory:#}");
    let encoded = &memory["kinds"][0];
    assert!(encoded["kind"] == "encoded resources" && encoded["bytes"].as_u64() > Some(100), "{encoded:#}");
    let profile = operator.json(&["profile", "--for", "200ms"]);
    assert!(profile["seconds"].as_f64() >= Some(0.2), "{profile:#}");
    assert_eq!(operator.ask(&["profile", "--for", "2m"]).0, Some(2));
    assert_eq!(operator.json(&["log"])["filter"], operator.json(&["log"])["configured"]);
    assert_eq!(operator.json(&["log", "debug,h2=warn"])["filter"], "debug,h2=warn");
    let (code, text) = operator.ask(&["log", "verbose"]);
    assert!(code == Some(2) && text.contains("\"verbose\" is not a level"), "{text}");
    assert_eq!(operator.json(&["log"])["filter"], "debug,h2=warn");
    let back = operator.json(&["log", "--reset"]);
    assert_eq!(back["filter"], back["configured"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_what_was_kept_is_replayed_elsewhere() {
    let (pilotfish, _fleet, operator) = with_proxies(2).await;
    pilotfish.write("route.yaml", ROUTE);
    eventually("the route is in force", || async {
        let reached = operator.ask(&["why", "no", "config", "VirtualService/n0/web"]);
        if reached.0 == Some(0) { Ok(()) } else { Err(reached) }
    })
    .await;
    let (code, text) = operator.ask(&["why", "no", "config", "VirtualService/n0/web"]);
    assert_eq!(code, Some(0));
    assert!(
        text.starts_with(
            "VirtualService n0/web reaches 2 of 2 connected proxies\n-> client-0.n0: routes 80\n"
        ),
        "{text}"
    );
    let (code, text) = operator.ask(&["why", "no", "config", "VirtualService/n0/wbe"]);
    assert!(code == Some(2) && text.contains("no object is named"), "{text}");

    let file = pilotfish.folder().join("../defect.jsonl");
    let path = file.to_str().unwrap();
    let (code, text) = operator.ask(&["record", path]);
    assert!(code == Some(0) && text.contains("KiB, without Secrets"), "{text}");
    let replayed = operator.json(&["replay", path]);
    assert_eq!((&replayed["same"], &replayed["proxies"]), (&true.into(), &2.into()), "{replayed:#}");
    assert!(replayed["to"].as_u64() > replayed["from"].as_u64(), "{replayed:#}");
    let (code, text) = operator.ask(&["replay", path]);
    assert!(code == Some(0) && text.ends_with("every proxy gets what it got then\n"), "{text}");
    let (code, text) = operator.ask(&["record", path, "--from", "99"]);
    assert!(code == Some(2) && text.contains("revision 99 is not known"), "{text}");
    let (code, text) = operator.ask(&["top"]);
    assert!(code == Some(2) && text.contains("stdout is no terminal\nhint: "), "{text}");
}

/// Answers as the admin port of an Envoy that has these clusters.
async fn envoy(clusters: Value) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let body = serde_json::json!({"configs": [{"dynamic_active_clusters": clusters}]}).to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4_096]).await;
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_is_compared_with_what_an_envoy_has() {
    let (_pilotfish, _fleet, operator) = with_proxies(1).await;
    let sent = operator.json(&["config", "client-0.n0", "clusters"]);
    let held = |resource: &Value| serde_json::json!({"version_info": resource["version"], "cluster": resource["resource"]});
    let mut clusters: Vec<Value> = sent["resources"].as_array().unwrap().iter().map(held).collect();
    let same = envoy(clusters.clone().into()).await;
    let (code, text) = operator.ask(&["config", "client-0.n0", "clusters", "--diff", "--envoy-admin", &same]);
    assert!(code == Some(0) && text.starts_with("client-0.n0 has what it was sent"), "{text}");
    clusters[0]["version_info"] = "old".into();
    clusters[0]["cluster"]["connect_timeout"] = "77s".into();
    let other = envoy(clusters.into()).await;
    let (code, text) =
        operator.ask(&["config", "client-0.n0", "clusters", "--diff", "--envoy-admin", &other]);
    assert!(code == Some(1) && text.contains("+connect_timeout: 77s"), "{text}");
    let nobody = operator.ask(&["config", "client-0.n0", "--diff", "--envoy-admin", "127.0.0.1:1"]);
    assert!(nobody.0 == Some(2) && nobody.1.contains("cannot connect to 127.0.0.1:1"), "{}", nobody.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registries_are_shown_again_and_again() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let (_pilotfish, _fleet, operator) = with_proxies(0).await;
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pilotfish"));
    command.args(["registries", "--status", "--watch=100ms"]).env("PILOTFISH_ADMIN_ADDRESS", &operator.0);
    let mut child = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut times = 0;
    while times < 3 {
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await.expect("it goes on").unwrap();
        times += usize::from(is_synced(&line.expect("it goes on")));
    }
    // One of those that there are does not change.
    assert_eq!(operator.ask(&["registries", "consul", "--watch"]).0, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_proxy_refuses_is_in_ready_with_the_object_and_changes_are_lines_of_the_log() {
    let (pilotfish, _fleet, operator) = with_proxies(1).await;
    let _refuser = refusing(&pilotfish, "n0", "outbound|80||web.n0.svc.cluster.local is bad").await;
    let ready = eventually("the refusal is told", || async {
        let ready = pilotfish.json("/ready").await;
        if ready["problems"].as_array().is_some_and(|problems| !problems.is_empty()) {
            Ok(ready)
        } else {
            Err(ready)
        }
    })
    .await;
    let line = ready["problems"][0].as_str().unwrap();
    assert!(
        line.starts_with("refuser.n0 refuses clusters: ") && line.contains("made by Service n0/web"),
        "{line}"
    );
    assert_eq!(ready["ready"], true, "{ready:#}");

    // One line tells of each change: whom it reached, and when it was in force.
    pilotfish.write("route.yaml", ROUTE);
    eventually("the change is in the log", || async {
        let printed = pilotfish.printed();
        let line =
            printed.lines().find(|line| line.contains("VirtualService n0/web added")).map(str::to_owned);
        line.filter(|line| line.contains("INFO") && line.contains("in force") && line.contains("proxies=1"))
            .ok_or(printed)
    })
    .await;
    assert!(pilotfish.metric("pilotfish_revision").await >= 2.0);
    // The cluster changes, which the one refuses still: the line names it.
    pilotfish.write("shop.yaml", &SHOP.replace("port: 80}", "port: 81}"));
    eventually("the one that has not acknowledged is named", || async {
        let history = operator.json(&["history", "Service/n0/web"]);
        let newest = &history["items"][0];
        if newest["outcome"] == "late" && newest["missing"] == 1 { Ok(()) } else { Err(history) }
    })
    .await;
    let printed = pilotfish.printed();
    assert!(
        printed.contains("some proxies have not acknowledged a change") && printed.contains("refuser.n0"),
        "{printed}"
    );

    // A SIGHUP turns debug logs on.
    let id = rustix::process::Pid::from_raw(pilotfish.process_id() as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::HUP).unwrap();
    eventually("the log level changes", || async {
        let log = operator.json(&["log"]);
        if log["filter"] == "debug" { Ok(()) } else { Err(log) }
    })
    .await;
}
