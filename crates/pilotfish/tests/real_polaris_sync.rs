//! `pilotfish sync polaris`: a real API server on one side, the stand-in for Polaris on the other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use pilotfish_testkit::polaris::{Polaris, PolarisFault, PolarisOptions};
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Authorization, Program, User, eventually, fetch, free_port,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_pilotfish");

/// A running sync.
struct Sync {
    program: Program,
    admin: u16,
}

impl Sync {
    fn start(folder: &TempDir, kubeconfig: &Path, polaris: &Polaris, more: &[&str]) -> Self {
        let admin = free_port();
        let mut command = Command::new(BINARY);
        command.args(["sync", "polaris", "--cluster-name", "east", "--address"]);
        command.arg(format!("127.0.0.1:{}", polaris.http_port()));
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args(["--admin-address", &format!("127.0.0.1:{admin}")]).args(more);
        let program = Program::start(&mut command, folder.path().join(format!("sync-{admin}.log")));
        Self { program, admin }
    }

    async fn page(&self, path: &str) -> Result<String, String> {
        fetch(&format!("http://127.0.0.1:{}{path}", self.admin)).await
    }

    async fn status(&self) -> Value {
        self.page("/debug/syncz").await.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    /// Waits until a pass over everything was done.
    async fn synced(&self) {
        eventually("everything was compared", || async {
            let status = self.status().await;
            if status["synced"] == true {
                Ok(())
            } else {
                Err(format!("{status:#}\n{}", self.program.printed()))
            }
        })
        .await;
    }

    async fn metric(&self, start: &str) -> f64 {
        let text = self.page("/metrics").await.unwrap();
        let values = text.lines().filter(|line| line.starts_with(start));
        values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }
}

impl Sync {
    /// Waits for two more passes over everything.
    async fn compares_twice(&self) {
        let passes = async || self.metric("pilotfish_sync_passes_total{extent=\"all\"").await;
        let before = passes().await;
        eventually("two more passes", || async {
            let now = passes().await;
            if now >= before + 2.0 { Ok(()) } else { Err(now) }
        })
        .await;
    }
}

struct World {
    server: ApiServer,
    polaris: Polaris,
    folder: TempDir,
}

fn polaris_options() -> PolarisOptions {
    PolarisOptions::default()
}

impl World {
    async fn start() -> Option<Self> {
        let server = ApiServer::start(ApiServerOptions::default()).await?;
        let polaris = Polaris::start(polaris_options()).await;
        Some(Self { server, polaris, folder: tempfile::tempdir().unwrap() })
    }

    fn sync(&self, more: &[&str]) -> Sync {
        Sync::start(&self.folder, &self.server.kubeconfig(), &self.polaris, more)
    }

    async fn has(&self, what: &str, wanted: &[&str]) {
        has(&self.polaris, what, wanted).await;
    }

    /// Waits for Events that say all of this.
    async fn has_events(&self, says: &[&str]) {
        eventually("Events say so", || async {
            let request = http::Request::get("/api/v1/namespaces/shop/events").body(Vec::new()).unwrap();
            let events: Value =
                self.server.client().request(request).await.map_err(|error| error.to_string())?;
            let text = events["items"].to_string();
            let missing: Vec<_> = says.iter().filter(|part| !text.contains(**part)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} not in {text}")) }
        })
        .await;
    }

    /// The requests that wrote, since this was asked last.
    fn writes(&self) -> Vec<String> {
        let seen = self.polaris.seen();
        let writes = seen.iter().filter(|seen| seen.method != "GET" && seen.path != "/v1/Discover");
        let path = |path: &str| path.trim_start_matches("/naming/v1").to_owned();
        let mut writes: Vec<String> =
            writes.map(|seen| format!("{} {} {}", seen.method, path(&seen.path), seen.elements)).collect();
        writes.sort();
        writes
    }
}

/// `namespace/service host:port`, with `-` before what is isolated.
fn instances(polaris: &Polaris) -> Vec<String> {
    let all = polaris.instances(&[("service", "*")]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |one: &Value| {
        let sign = if one["isolate"] == true { "-" } else { "" };
        format!(
            "{sign}{}/{} {}:{}",
            text(&one["namespace"]),
            text(&one["service"]),
            text(&one["host"]),
            one["port"]
        )
    };
    let mut lines: Vec<String> = all.iter().map(line).collect();
    lines.sort();
    lines
}

async fn has(polaris: &Polaris, what: &str, wanted: &[&str]) {
    let mut wanted: Vec<&str> = wanted.to_vec();
    wanted.sort_unstable();
    eventually(what, || async {
        let found = instances(polaris);
        if found == wanted { Ok(()) } else { Err(format!("{found:#?}")) }
    })
    .await;
}

fn namespace(name: &str, sync: &str) -> String {
    let annotations = if sync.is_empty() { String::new() } else { format!("polarismesh.cn/sync: '{sync}'") };
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, annotations: {{{annotations}}}}}}}\n---\n"
    )
}

fn service(namespace: &str, name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}, \
         annotations: {{{annotations}}}}}\nspec: {{selector: {{app: {name}}}, ports: [{{name: http, port: 80}}]}}\n---\n"
    )
}

fn slice(namespace: &str, service: &str, family: &str, endpoints: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}-{}, namespace: {namespace}, \
         labels: {{kubernetes.io/service-name: {service}}}}}\naddressType: {family}\nports: [{{name: http, port: 8080, \
         protocol: TCP}}]\nendpoints: [{endpoints}]\n---\n",
        family.to_lowercase()
    )
}

fn endpoint(address: &str, ready: bool, pod: &str) -> String {
    let target = if pod.is_empty() {
        String::new()
    } else {
        format!(", targetRef: {{kind: Pod, name: {pod}, namespace: shop}}")
    };
    format!("{{addresses: ['{address}'], conditions: {{ready: {ready}}}{target}}}")
}

/// A Service with one endpoint.
fn web(namespace: &str, name: &str, annotations: &str, address: &str) -> String {
    service(namespace, name, annotations) + &slice(namespace, name, "IPv4", &endpoint(address, true, ""))
}

/// Services with and without a word of their own, in namespaces with and without one; then each namespace is
/// switched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_modes_sync_what_annotations_say_also_when_a_namespace_is_switched() {
    let Some(world) = World::start().await else { return };
    let demand = Polaris::start(polaris_options()).await;
    let kubeconfig = world.server.kubeconfig();
    let mut objects = String::new();
    for (at, (name, says)) in [("none", ""), ("yes", "true"), ("no", "false")].into_iter().enumerate() {
        objects += &namespace(name, says);
        for (index, (service, says)) in
            [("plain", ""), ("in", "true"), ("out", "false")].into_iter().enumerate()
        {
            let annotation =
                if says.is_empty() { String::new() } else { format!("polarismesh.cn/sync: '{says}'") };
            objects += &web(name, service, &annotation, &format!("10.{}.0.{}", at + 1, index + 1));
        }
    }
    world.server.apply(&objects).await;
    let all = world.sync(&[]);
    let on_demand = Sync::start(&world.folder, &kubeconfig, &demand, &["--mode", "demand"]);
    all.synced().await;
    on_demand.synced().await;
    let own = ["none/in 10.1.0.2:8080", "yes/in 10.2.0.2:8080", "no/in 10.3.0.2:8080"];
    let with = |more: &[&'static str]| own.iter().copied().chain(more.iter().copied()).collect::<Vec<_>>();
    let (none, yes, no) = ("none/plain 10.1.0.1:8080", "yes/plain 10.2.0.1:8080", "no/plain 10.3.0.1:8080");
    world.has("all", &with(&[none, yes])).await;
    has(&demand, "demand", &with(&[yes])).await;
    // What an original controller waits for is here at once: no resync is near.
    world
        .server
        .apply(&(namespace("none", "true") + &namespace("yes", "false") + &namespace("no", "true")))
        .await;
    world.has("all, switched", &with(&[none, no])).await;
    has(&demand, "demand, switched", &with(&[none, no])).await;
    world.server.apply(&(namespace("none", "false") + &namespace("no", ""))).await;
    world.has("all, back", &with(&[no])).await;
    has(&demand, "demand, back", &with(&[])).await;
    // A Service changes its word, and its name.
    world.server.apply(&service("none", "in", "polarismesh.cn/sync: 'false'")).await;
    world
        .server
        .apply(&service("yes", "in", "polarismesh.cn/sync: 'true', polarismesh.cn/overideService: moved"))
        .await;
    let moved = ["yes/moved 10.2.0.2:8080", "no/in 10.3.0.2:8080", no];
    world.has("all, moved", &moved).await;
    has(&demand, "demand, moved", &moved[..2]).await;
}

fn pod(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{{labels}}}}}\nspec: {{containers: \
         [{{name: app, image: x}}]}}\n---\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_pods_and_endpoints_are_registered_as_far_as_they_can_be() {
    let Some(world) = World::start().await else { return };
    let many: Vec<String> = (0..70).map(|n| format!("label-{n:02}: x")).collect();
    let long = format!("{}.example.com/{}: x", "a".repeat(60), "k".repeat(63));
    let longer = format!("{0}.{0}.example.com/{1}: x", "a".repeat(60), "k".repeat(63));
    let objects = [
        namespace("shop", ""),
        service("shop", "web", "polarismesh.cn/weight: heavy"),
        pod("evil", "app: web, clusterName: evil, source: sdk, version: v7"),
        pod("labelled", &format!("{}, {long}, {longer}", many.join(", "))),
        slice(
            "shop",
            "web",
            "IPv4",
            &[
                endpoint("10.0.0.1", true, "evil"),
                endpoint("10.0.0.2", true, "labelled"),
                endpoint("10.0.0.3", false, ""),
            ]
            .join(", "),
        ),
        slice("shop", "web", "IPv6", &endpoint("2001:db8::1", true, "")),
    ];
    world.server.apply(&objects.concat()).await;
    let sync = world.sync(&["--resync", "1s"]);
    let four = [
        "shop/web 10.0.0.1:8080",
        "shop/web 10.0.0.2:8080",
        "-shop/web 10.0.0.3:8080",
        "shop/web 2001:db8::1:8080",
    ];
    world.has("all four", &four).await;
    let evil = world.polaris.instances(&[("host", "10.0.0.1")]).remove(0);
    // Polaris does not show the label version, which is a field of its own.
    let metadata = json!({"app": "web", "source": "polaris-controller", "clusterName": "east"});
    assert_eq!((&evil["metadata"], &evil["version"]), (&metadata, &json!("v7")));
    let labelled = world.polaris.instances(&[("host", "10.0.0.2")]).remove(0);
    assert_eq!(labelled["metadata"].as_object().unwrap().len(), 63);
    assert_eq!(labelled["metadata"]["clusterName"], "east");
    // What could not be is told on the Service, and the passes after it write nothing.
    let says = ["PolarisRegister", "heavy", "clusterName", "entries more than fit", "has a name of"];
    world.has_events(&says).await;
    world.writes();
    sync.compares_twice().await;
    assert_eq!(world.writes(), Vec::<String>::new());
    // It becomes ready, and a label changes: one call each.
    world
        .server
        .apply(&slice(
            "shop",
            "web",
            "IPv4",
            &[endpoint("10.0.0.1", true, "evil"), endpoint("10.0.0.3", true, "")].join(", "),
        ))
        .await;
    world.has("one gone, one ready", &[four[0], "shop/web 10.0.0.3:8080", four[3]]).await;
    // One is isolated before it is deleted.
    assert_eq!(world.writes(), ["POST /instances/delete 1", "PUT /instances 1", "PUT /instances 1"]);
    world.server.apply(&pod("evil", "app: web, version: v8")).await;
    eventually("the version follows", || async {
        let found = world.polaris.instances(&[("host", "10.0.0.1")]).remove(0);
        if found["version"] == "v8" { Ok(()) } else { Err(found) }
    })
    .await;
}

/// Two hundred and fifty endpoints, a server that goes in the middle of them, and what happens while nobody
/// runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_comes_through_failures_and_downtime() {
    let Some(world) = World::start().await else { return };
    let all: Vec<String> = (1..=250).map(|n| endpoint(&format!("10.0.0.{n}"), true, "")).collect();
    let objects = [
        namespace("shop", ""),
        service("shop", "web", ""),
        slice("shop", "web", "IPv4", &all.join(", ")),
        web("shop", "api", "", "10.1.0.1"),
    ];
    world.server.apply(&objects.concat()).await;
    // The first batch is done and not answered, the second is limited.
    world.polaris.fail("POST", "/instances", PolarisFault::ClosedAfter);
    world.polaris.fail("POST", "/instances", PolarisFault::Code(429_001));
    let mut sync = world.sync(&["--resync", "2s"]);
    eventually("all of them are there", || async {
        let count = instances(&world.polaris).len();
        if count == 251 { Ok(()) } else { Err(format!("{count}: {}", sync.program.printed())) }
    })
    .await;
    let foreign = json!([{"namespace": "shop", "service": "web", "host": "10.9.0.1", "port": 1}]);
    world.polaris.write("POST", "/naming/v1/instances", &foreign);
    // Deleted by hand: back within the period.
    let by_hand = json!([{"namespace": "shop", "service": "api", "host": "10.1.0.1", "port": 8080}]);
    world.polaris.write("POST", "/naming/v1/instances/delete", &by_hand);
    eventually("it is back", || async {
        let count = world.polaris.instances(&[("service", "api")]).len();
        if count == 1 { Ok(()) } else { Err(format!("{count}: {}", sync.program.printed())) }
    })
    .await;
    // The server is away, and what changes meanwhile is made up for.
    world.polaris.fail("", "", PolarisFault::Down);
    eventually("it says so", || async {
        let status = sync.status().await;
        if status["polaris_failure"].is_string() { Ok(()) } else { Err(status) }
    })
    .await;
    world.server.apply(&slice("shop", "api", "IPv4", &endpoint("10.1.0.2", true, ""))).await;
    world.polaris.recover();
    eventually("the other one is there", || async {
        let found = world.polaris.instances(&[("service", "api")]);
        if found.len() == 1 && found[0]["host"] == "10.1.0.2" { Ok(()) } else { Err(found) }
    })
    .await;
    // Nobody runs, and a Service goes.
    sync.program.terminate().await;
    assert_eq!(sync.program.ended().await, Some(0), "{}", sync.program.printed());
    world.server.delete(&web("shop", "api", "", "10.1.0.2")).await;
    world.writes();
    let sync = world.sync(&[]);
    eventually("the orphan is gone", || async {
        let count = world.polaris.instances(&[("service", "api")]).len();
        if count == 0 { Ok(()) } else { Err(format!("{count}: {}", sync.program.printed())) }
    })
    .await;
    assert_eq!(world.writes(), ["POST /instances/delete 1", "PUT /instances 1"]);
    assert_eq!(instances(&world.polaris).len(), 251, "with the one of somebody else");
}

/// More than half of everything: it waits, and goes when the cluster still says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mass_deletion_waits_until_the_cluster_was_read_again() {
    let Some(world) = World::start().await else { return };
    let all: Vec<String> = (1..=40).map(|n| endpoint(&format!("10.0.0.{n}"), true, "")).collect();
    let many = service("shop", "web", "") + &slice("shop", "web", "IPv4", &all.join(", "));
    world.server.apply(&(namespace("shop", "") + &many + &web("shop", "api", "", "10.1.0.1"))).await;
    let mut patient = world.sync(&["--guard-wait", "1h"]);
    patient.synced().await;
    world.server.delete(&many).await;
    eventually("the deletions are held", || async {
        let status = patient.status().await;
        if status["held_deletions"] == 40 { Ok(()) } else { Err(status) }
    })
    .await;
    assert_eq!(instances(&world.polaris).len(), 41);
    // The next process holds them as well, and its wait is over soon.
    patient.program.terminate().await;
    assert_eq!(patient.program.ended().await, Some(0));
    let sync = world.sync(&["--guard-wait", "3s"]);
    world.has("confirmed", &["shop/api 10.1.0.1:8080"]).await;
    assert!(sync.program.printed().contains("reading the cluster again"), "{}", sync.program.printed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_replicas_one_writes_and_the_other_takes_over() {
    let Some(world) = World::start().await else { return };
    world
        .server
        .apply(
            &(namespace("shop", "") + &namespace("polaris-system", "") + &web("shop", "web", "", "10.0.0.1")),
        )
        .await;
    let mut first = world.sync(&["--leader-elect"]);
    first.synced().await;
    let second = world.sync(&["--leader-elect"]);
    eventually("the second one is ready", || async { second.page("/ready").await }).await;
    assert_eq!(
        (first.metric("pilotfish_sync_leader").await, second.metric("pilotfish_sync_leader").await),
        (1.0, 0.0)
    );
    assert_eq!(second.metric("pilotfish_sync_request_seconds_count").await, 0.0, "it asks nothing");
    world.writes();
    first.program.terminate().await;
    assert_eq!(first.program.ended().await, Some(0));
    second.synced().await;
    assert_eq!(world.writes(), Vec::<String>::new(), "there is nothing to do for the next one");
    world.server.apply(&web("shop", "web", "", "10.0.0.2")).await;
    world.has("the second one writes", &["shop/web 10.0.0.2:8080"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pass_and_a_dry_run_print_what_they_do() {
    let Some(world) = World::start().await else { return };
    world.server.apply(&(namespace("shop", "") + &web("shop", "web", "", "10.0.0.1"))).await;
    let run = async |more: &[&str]| {
        let address = format!("127.0.0.1:{}", world.polaris.http_port());
        let kubeconfig = world.server.kubeconfig();
        let mut command = Command::new(BINARY);
        command.args(["sync", "polaris", "--cluster-name", "east", "--address", &address, "--kubeconfig"]);
        let output = command.arg(kubeconfig).args(more).output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = run(&["--dry-run", "-o", "json"]).await;
    let dry: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &dry["instances"], &dry["equal"]), (Some(1), &json!(1), &json!(false)), "{text}");
    let last = dry["dryRun"].as_array().unwrap().last().unwrap();
    let metadata = json!({"source": "polaris-controller", "clusterName": "east"});
    let body = json!([{
        "namespace": "shop", "service": "web", "host": "10.0.0.1", "port": 8080, "protocol": "http/TCP", "version": "",
        "weight": 100, "healthy": true, "enableHealthCheck": false, "metadata": metadata,
    }]);
    assert_eq!(*last, json!({"method": "POST", "path": "/naming/v1/instances", "body": body}));
    let (code, text) = run(&["--dry-run"]).await;
    assert!(code == Some(1) && text.contains("POST /naming/v1/instances ["), "{text}");
    assert_eq!(instances(&world.polaris), Vec::<String>::new());
    let (code, text) = run(&["--once"]).await;
    assert!(code == Some(0) && text.contains("create instances            1 in 1 call"), "{text}");
    let (code, text) = run(&["--dry-run", "-o", "json"]).await;
    let dry: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &dry["dryRun"]), (Some(0), &json!([])));
}

const ACCOUNT: &str = "system:serviceaccount:polaris-system:pilotfish-polaris-sync";
const TOKEN: &str = "pilotfishtoken";
const AUDIT: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ['system:serviceaccount:polaris-system:pilotfish-polaris-sync']
- level: None
";

fn manifest(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/polaris-sync").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Started as the Deployment starts it, as its service account.
fn as_deployed(server: &ApiServer, polaris: &Polaris, folder: &TempDir) -> Sync {
    let (kubeconfig, token) = (folder.path().join("kubeconfig"), folder.path().join("token"));
    std::fs::write(&kubeconfig, server.kubeconfig_of(TOKEN)).unwrap();
    std::fs::write(&token, "secret\n").unwrap();
    let documents = manifest("deployment.yaml");
    let deployment: Value = serde_saphyr::from_str(documents.split("\n---\n").nth(1).unwrap()).unwrap();
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let admin = free_port();
    let mut command = Command::new(BINARY);
    for argument in arguments.as_array().unwrap().iter().filter_map(Value::as_str) {
        command.arg(match argument.split_once('=') {
            Some(("--address", _)) => format!("--address=127.0.0.1:{}", polaris.http_port()),
            Some(("--token-file", _)) => format!("--token-file={}", token.display()),
            Some(("--admin-address", _)) => format!("--admin-address=127.0.0.1:{admin}"),
            _ => argument.to_owned(),
        });
    }
    command.arg("--kubeconfig").arg(&kubeconfig);
    Sync { program: Program::start(&mut command, folder.path().join("sync.log")), admin }
}

/// The rights that were used, and what was refused.
fn audited(log: &Path) -> (BTreeSet<String>, Vec<Value>) {
    let (mut used, mut refused) = (BTreeSet::new(), Vec::new());
    let text = std::fs::read_to_string(log).unwrap();
    // The last line may not be written to its end yet.
    let lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        if event["responseStatus"]["code"] == 403 {
            refused.push(event.clone());
        }
        let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        used.insert(format!("{} {}", of(&event["verb"]), of(&event["objectRef"]["resource"])));
    }
    (used, refused)
}

/// The arguments of the Deployment, on an API server that enforces its rights: nothing is refused, and every
/// right is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manifests_give_the_rights_that_are_used_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    std::fs::write(&policy, AUDIT).unwrap();
    let options = ApiServerOptions {
        authorization: Authorization::Rbac,
        users: vec![User {
            token: TOKEN.into(),
            name: ACCOUNT.into(),
            groups: ["", ":polaris-system"].map(|of| format!("system:serviceaccounts{of}")).to_vec(),
        }],
        flags: vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
            "--audit-log-mode=blocking".into(),
            // Lists in pages need the right to list.
            "--feature-gates=WatchList=false".into(),
        ],
    };
    let Some(server) = ApiServer::start(options).await else { return };
    server.apply(&(manifest("rbac.yaml") + "---\n" + &manifest("deployment.yaml"))).await;
    server
        .apply(&(namespace("shop", "") + &web("shop", "web", "polarismesh.cn/weight: heavy", "10.0.0.1")))
        .await;
    let secured = PolarisOptions { token: Some("secret".to_owned()), ..polaris_options() };
    let polaris = Polaris::start(secured).await;
    let mut sync = as_deployed(&server, &polaris, &folder);
    has(&polaris, "it is registered", &["shop/web 10.0.0.1:8080"]).await;
    let granted = [
        "create events",
        "create leases",
        "get leases",
        "list endpointslices",
        "list namespaces",
        "list pods",
        "list services",
        "update leases",
        "watch endpointslices",
        "watch namespaces",
        "watch pods",
        "watch services",
    ];
    let granted: BTreeSet<String> = granted.map(str::to_owned).into();
    eventually("every right was used", || async {
        let (used, _) = audited(&log);
        if used.is_superset(&granted) { Ok(()) } else { Err(format!("{used:?} {}", sync.program.printed())) }
    })
    .await;
    sync.program.terminate().await;
    assert_eq!(sync.program.ended().await, Some(0));
    let (used, refused) = audited(&log);
    assert!(refused.is_empty(), "{refused:#?}");
    assert_eq!(used, granted);
}
