//! `pilotfish register` as its user has it: programs that know nothing of Pilotfish, an Envoy that balances over them, and what happens when
//! a program ends, is told to end or dies with its wrapper, and when Pilotfish itself dies.

use pilotfish_testkit::real::{
    Envoy, EnvoyOptions, Load, Pilotfish, Program, Tool, eventually, free_port, get,
};
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::process::Command;

const PILOTFISH: &str = env!("CARGO_BIN_EXE_pilotfish");

/// A Pilotfish with which programs register, and the port of the service `web`.
struct Scene {
    pilotfish: Pilotfish,
    python: PathBuf,
    folder: TempDir,
    server: String,
    /// Where clients of the service connect.
    port: u16,
}

impl Scene {
    /// `None` where there is no Python and it is not required.
    async fn start(more: &[&str]) -> Option<Self> {
        let python = Tool::Python.find()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let registration = format!("127.0.0.1:{}", free_port());
        let data = folder.path().join("data").to_string_lossy().into_owned();
        let arguments = ["--registration-address", &registration, "--data-dir", &data];
        let pilotfish = Pilotfish::launch(PILOTFISH, &[&arguments, more].concat());
        pilotfish.ready().await;
        let server = format!("http://{registration}");
        Some(Self { pilotfish, python, folder, server, port: free_port() })
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
    let mut one = scene.register("one", &["--ttl", "2s", "--drain", "5s"]);
    let mut two = scene.register("two", &["--ttl", "2s"]);
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
    let three = scene.register("three", &["--ttl", "2s"]);
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

    let mut command = scene.command("one", "1", &[]);
    command.args(["--", "no-such-program"]);
    let mut missing = Program::start(&mut command, scene.log("missing"));
    assert_eq!(missing.ended().await, Some(2));
    assert!(missing.printed().contains("starting no-such-program"), "{}", missing.printed());
}
