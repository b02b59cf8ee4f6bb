//! A gRPC peer in another language, driven by lines; `peers/peer.py` documents the commands.

use pilotfish_testkit::real::{Pilotfish, Tally, Tool, eventually};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

/// The libraries that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Python,
    Node,
}

impl Library {
    /// The command of its peer. `None` when the library is missing and is not required.
    fn command(self) -> Option<Command> {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_grpc/peers");
        match self {
            Self::Python => {
                let mut command = Command::new(Tool::Python.find()?);
                command.arg(peers.join("peer.py"));
                Some(command)
            }
            Self::Node => {
                let mut command = Command::new("node");
                // Without it the library refuses every listener with authorization.
                command
                    .env("NODE_PATH", Tool::NodePackages.find()?)
                    .env("GRPC_XDS_EXPERIMENTAL_RBAC", "true");
                command.arg(peers.join("peer.js"));
                Some(command)
            }
        }
    }
}

/// Where a connection's or a server's security comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Credentials {
    Plain,
    /// From Pilotfish; plain text without its settings.
    Xds,
}

impl Credentials {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Xds => "xds",
        }
    }
}

/// A running peer.
pub(crate) struct Peer {
    _child: Child,
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
}

impl Peer {
    /// Starts one that connects by what `pilotfish bootstrap grpc` prints with these further arguments.
    /// `None` when the library is missing and is not required.
    pub(crate) async fn start(
        library: Library,
        pilotfish: &Pilotfish,
        name: &str,
        arguments: &[&str],
    ) -> Option<Self> {
        let mut command = library.command()?;
        let mut bootstrap = Command::new(pilotfish.binary());
        bootstrap.args(["bootstrap", "grpc", "--name", name, "--namespace", "shop"]).args(arguments);
        if !arguments.contains(&"--xds-address") {
            bootstrap.arg("--xds-address").arg(format!("127.0.0.1:{}", pilotfish.xds_port()));
        }
        let bootstrap = bootstrap.output().await.unwrap();
        assert!(bootstrap.status.success(), "{}", String::from_utf8_lossy(&bootstrap.stderr));
        let file = pilotfish.folder().join(format!("{name}.json"));
        std::fs::write(&file, bootstrap.stdout).unwrap();
        let mut child = command
            .env("GRPC_XDS_BOOTSTRAP", file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let pipes = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        Some(Self { _child: child, pipes: Mutex::new(pipes) })
    }

    async fn say(&self, command: Value) -> Value {
        let mut pipes = self.pipes.lock().await;
        pipes.0.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let line = pipes.1.next_line().await.unwrap().expect("the peer answers");
        serde_json::from_str(&line).unwrap()
    }

    /// Starts a server that answers with its name, and gives its port.
    pub(crate) async fn serve(&self, address: &str, name: &str, credentials: Credentials) -> u16 {
        let port = self.say(json!(["serve", address, name, credentials.name()])).await;
        serde_json::from_value(port).unwrap()
    }

    /// Sends requests one after the other. The header `:path` selects another method.
    pub(crate) async fn ask(
        &self,
        target: &str,
        credentials: Credentials,
        times: usize,
        headers: &[(&str, &str)],
    ) -> Tally {
        let headers: serde_json::Map<_, _> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let tally = self.say(json!(["ask", target, credentials.name(), times, headers])).await;
        serde_json::from_value(tally).unwrap()
    }

    /// Sends one request and gives who answered, or the error.
    pub(crate) async fn ask_once(&self, target: &str, credentials: Credentials, path: &str) -> String {
        let tally = self.ask(target, credentials, 1, &[(":path", path)]).await;
        tally.into_keys().next().expect("one answer")
    }

    /// Sends until [`Self::stop`].
    pub(crate) async fn load(&self, target: &str, credentials: Credentials) {
        self.say(json!(["load", target, credentials.name()])).await;
    }

    /// Waits until the load had this many more answers.
    pub(crate) async fn answers(&self, more: u64) {
        let sent = async || self.say(json!(["sent"])).await.as_u64().unwrap();
        let enough = sent().await + more;
        eventually("the load goes on", || async {
            let now = sent().await;
            if now >= enough { Ok(()) } else { Err(now) }
        })
        .await;
    }

    /// Ends the load and gives who answered.
    pub(crate) async fn stop(&self) -> Tally {
        serde_json::from_value(self.say(json!(["stop"])).await).unwrap()
    }
}
