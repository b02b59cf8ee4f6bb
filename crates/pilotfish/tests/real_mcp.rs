//! MCP over xDS in real processes: the adapter of docs/registries/adapter.md, as it stands there, feeds a
//! Pilotfish, and so does another Pilotfish. The adapter needs the Python of the tools.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "real_mcp_parts/faults.rs"]
mod faults;

use pilotfish_testkit::real::{Authority, Pilotfish, Program, Tool, eventually, free_port};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio::process::Command;

const PAGE: &str = include_str!("../../../docs/registries/adapter.md");

/// The program of the page.
fn adapter() -> String {
    let page = PAGE.split_once("<!-- adapter.py -->\n```python\n").unwrap().1;
    let text = page.split_once("```\n<!-- end of adapter.py -->").unwrap().0;
    assert!(text.lines().count() < 100, "the page says that it is short");
    text.to_owned()
}

struct Scene {
    folder: tempfile::TempDir,
    python: PathBuf,
    port: u16,
}

impl Scene {
    /// `None` without the tools.
    fn new() -> Option<Self> {
        let python = Tool::Python.find()?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("adapter.py"), adapter()).unwrap();
        Some(Self { folder, python, port: free_port() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the file of services, in one step.
    fn services(&self, services: &Value) {
        let (new, path) = (self.path("new.json"), self.path("services.json"));
        std::fs::write(&new, services.to_string()).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    fn start(&self) -> Program {
        let mut command = Command::new(&self.python);
        command.arg(self.path("adapter.py")).arg(self.path("services.json")).arg(self.port.to_string());
        Program::start(&mut command, self.path("adapter.log"))
    }

    fn printed(&self) -> String {
        std::fs::read_to_string(self.path("adapter.log")).unwrap_or_default()
    }
}

fn service(name: &str, instances: &[&str]) -> Value {
    let host = format!("{name}.cf.internal");
    json!({"name": name, "namespace": "apps", "host": host, "port": 8080, "instances": instances})
}

/// The endpoints of a service as `ADDRESS:PORT`, from whichever registry.
async fn endpoints(pilotfish: &Pilotfish, host: &str) -> Vec<String> {
    let page = pilotfish.json(&format!("/debug/endpointz?host={host}")).await;
    let shards = page[host]["apps"]["Shards"].as_object().cloned().unwrap_or_default();
    let all = shards.values().filter_map(Value::as_array).flatten();
    let text = |value: &Value| value.to_string().trim_matches('"').to_owned();
    let mut found: Vec<String> = all
        .map(|endpoint| format!("{}:{}", text(&endpoint["Addresses"][0]), text(&endpoint["EndpointPort"])))
        .collect();
    found.sort();
    found
}

async fn becomes(pilotfish: &Pilotfish, host: &str, wanted: &[&str]) {
    eventually(&format!("{host} has {wanted:?}"), || async {
        let found = endpoints(pilotfish, host).await;
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test]
async fn the_adapter_of_the_page_feeds_services_and_may_go_away() {
    let Some(scene) = Scene::new() else { return };
    let (web, shop) = ("web.cf.internal", "shop.cf.internal");
    scene.services(&json!([service("web", &["127.0.0.1:8001"])]));
    let adapter = scene.start();
    let address = format!("mcp=xds://127.0.0.1:{}", scene.port);
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &address]);
    pilotfish.ready().await;
    becomes(&pilotfish, web, &["127.0.0.1:8001"]).await;

    let two = ["127.0.0.1:8001", "127.0.0.2:8002"];
    let depot = service("depot", &["127.0.0.1:9002"]);
    scene.services(&json!([service("web", &two), service("shop", &["127.0.0.1:9001"]), depot]));
    becomes(&pilotfish, web, &two).await;
    becomes(&pilotfish, shop, &["127.0.0.1:9001"]).await;

    // One that is wrong costs itself, and the adapter learns why.
    let mut wrong = service("shop", &["127.0.0.1:9001"]);
    wrong["host"] = json!("no host!");
    scene.services(&json!([service("web", &two[..1]), wrong, depot]));
    becomes(&pilotfish, web, &two[..1]).await;
    becomes(&pilotfish, shop, &["127.0.0.1:9001"]).await;
    eventually("the refusal is with the adapter", || async {
        let printed = scene.printed();
        if printed.contains("refused: apps/shop: spec.hosts[0]") { Ok(()) } else { Err(printed) }
    })
    .await;

    // Gone, then back without services: all three stay until that was said twice.
    drop(adapter);
    eventually("the failure is seen", || async {
        let ready = pilotfish.page("/ready").await?;
        if ready.contains("cannot be read since") { Ok(()) } else { Err(ready) }
    })
    .await;
    assert_eq!(endpoints(&pilotfish, web).await, two[..1]);
    scene.services(&json!([]));
    let _adapter = scene.start();
    becomes(&pilotfish, web, &[]).await;
    assert!(pilotfish.printed().contains("keeping them until a second read confirms the loss"));
    eventually("the failure is over", || async {
        let ready = pilotfish.page("/ready").await?;
        if ready.contains("cannot be read since") { Err(ready) } else { Ok(()) }
    })
    .await;
}

fn mesh(timeout: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: apps}}
spec: {{clusterIP: 10.96.0.1, selector: {{app: web}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, namespace: apps, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: http, port: 8080}}]
endpoints: [{{addresses: [10.0.0.1], conditions: {{ready: true}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: web, namespace: apps}}
spec: {{hosts: [web], http: [{{timeout: {timeout}, route: [{{destination: {{host: web}}}}]}}]}}
"
    )
}

/// What `/debug/registryz` has of the source.
async fn source(pilotfish: &Pilotfish) -> Value {
    let all = pilotfish.json("/debug/registryz?registries=true").await;
    let mut registries = all.as_array().cloned().unwrap_or_default().into_iter();
    registries.find(|registry| registry["name"] == "mcp").unwrap_or_default()
}

async fn has_timeout(pilotfish: &Pilotfish, timeout: &str) {
    eventually(&format!("the timeout is {timeout}"), || async {
        let page = pilotfish.page("/debug/configz").await?;
        if page.contains(&format!("\"timeout\":\"{timeout}\"")) { Ok(()) } else { Err(page) }
    })
    .await;
}

#[tokio::test]
async fn one_pilotfish_has_everything_from_another_and_outlives_it() {
    let binary = env!("CARGO_BIN_EXE_pilotfish");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mesh.yaml");
    std::fs::write(&file, mesh("5s")).unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    let mut first = Pilotfish::launch(binary, &[&path, "--serve-configuration", "anyone"]);
    first.ready().await;
    let address = format!("mcp=xds://127.0.0.1:{}", first.xds_port());
    let lists = format!("{address}?protocol=sotw");
    let delta = Pilotfish::launch(binary, &["--registry", &address]);
    let sotw = Pilotfish::launch(binary, &["--registry", &lists]);
    let host = "web.apps.svc.cluster.local";
    for second in [&delta, &sotw] {
        second.ready().await;
        becomes(second, host, &["10.0.0.1:8080"]).await;
        has_timeout(second, "5s").await;
    }
    for second in [&delta, &sotw] {
        let source = source(second).await;
        assert!(source["synced"] == true && source.get("failure").is_none(), "{source}");
        // A VirtualService, and a ServiceEntry for the Service.
        assert_eq!((&source["source"]["objects"], &source["source"]["sessions"]), (&json!(2), &json!(1)));
        assert!(source["source"]["lagSeconds"].as_f64().is_some_and(|lag| lag < 60.0), "{source}");
    }
    std::fs::write(&file, mesh("7s").replace("10.0.0.1", "10.0.0.2")).unwrap();
    for second in [&delta, &sotw] {
        becomes(second, host, &["10.0.0.2:8080"]).await;
        has_timeout(second, "7s").await;
    }
    first.kill().await;
    for second in [&delta, &sotw] {
        eventually("the failure is seen", || async {
            let ready = second.page("/ready").await?;
            if ready.contains("cannot be read since") { Ok(()) } else { Err(ready) }
        })
        .await;
        assert_eq!(endpoints(second, host).await, ["10.0.0.2:8080"]);
        let source = source(second).await;
        assert!(source["failure"].as_str().is_some_and(|reason| reason.starts_with("mcp: ")), "{source}");
        assert!(source["source"]["failures"].as_u64().is_some_and(|failures| failures > 0), "{source}");
        let failing = second.metric_of("pilotfish_registry_failing", "registry=\"mcp\"").await;
        assert!((failing - 1.0).abs() < f64::EPSILON);
    }
    std::fs::write(&file, mesh("9s")).unwrap();
    first.restart().await;
    first.ready().await;
    for second in [&delta, &sotw] {
        has_timeout(second, "9s").await;
        becomes(second, host, &["10.0.0.1:8080"]).await;
    }
}

#[tokio::test]
async fn configuration_needs_an_identity_of_the_root_namespace() {
    let binary = env!("CARGO_BIN_EXE_pilotfish");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::create_dir(at("mesh")).unwrap();
    std::fs::write(folder.path().join("mesh/mesh.yaml"), mesh("5s")).unwrap();
    let authority = Authority::new();
    authority.write(authority.server(), &folder.path().join("server"));
    for (name, namespace) in [("root", "istio-system"), ("other", "apps")] {
        let identity = format!("spiffe://cluster.local/ns/{namespace}/sa/pilotfish");
        authority.write(authority.workload(&identity), &folder.path().join(name));
    }
    let port = free_port();
    let arguments = [
        at("mesh"),
        "--secure-xds-address".to_owned(),
        format!("127.0.0.1:{port}"),
        "--tls-cert-file".to_owned(),
        at("server/cert-chain.pem"),
        "--tls-key-file".to_owned(),
        at("server/key.pem"),
        "--ca-cert-file".to_owned(),
        at("server/root-cert.pem"),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let first = Pilotfish::launch(binary, &arguments);
    first.ready().await;
    let with = |name: &str| {
        let file = |file: &str| at(&format!("{name}/{file}"));
        format!(
            "mcp=xds+tls://127.0.0.1:{port}?caFile={}&certFile={}&keyFile={}",
            file("root-cert.pem"),
            file("cert-chain.pem"),
            file("key.pem")
        )
    };
    let refused = |address: String, reason: &'static str| async move {
        let second = Pilotfish::launch(binary, &["--registry", &address]);
        eventually(&format!("{address}: {reason}"), || async {
            let ready = second.answer("/ready").await?.1;
            if ready.contains(reason) { Ok(()) } else { Err(format!("{ready} {}", second.printed())) }
        })
        .await;
    };
    refused(format!("mcp=xds://127.0.0.1:{}", first.xds_port()), "status 16").await;
    refused(with("other"), "status 7").await;
    let second = Pilotfish::launch(binary, &["--registry", &with("root")]);
    second.ready().await;
    has_timeout(&second, "5s").await;
}

#[tokio::test]
async fn a_server_that_falls_silent_is_noticed_and_takes_nothing_away() {
    let binary = env!("CARGO_BIN_EXE_pilotfish");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mesh.yaml"), mesh("5s")).unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    let mut first = Pilotfish::launch(binary, &[&path, "--serve-configuration", "anyone"]);
    first.ready().await;
    let address = format!("mcp=xds://127.0.0.1:{}", first.xds_port());
    let second = Pilotfish::launch(binary, &["--registry", &address]);
    second.ready().await;
    first.program().freeze().await;
    eventually("the silence is noticed", || async {
        let ready = second.page("/ready").await?;
        if ready.contains("the server is silent") { Ok(()) } else { Err(ready) }
    })
    .await;
    assert_eq!(endpoints(&second, "web.apps.svc.cluster.local").await, ["10.0.0.1:8080"]);
    first.program().thaw().await;
    eventually("the server is heard again", || async {
        let ready = second.page("/ready").await?;
        if ready.contains("cannot be read since") { Err(ready) } else { Ok(()) }
    })
    .await;
    assert_eq!(endpoints(&second, "web.apps.svc.cluster.local").await, ["10.0.0.1:8080"]);
}

#[test]
fn the_page_names_its_program() {
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/registries/adapter.md").exists());
    assert!(adapter().contains("def read_services(path):"));
}
