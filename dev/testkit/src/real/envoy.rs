//! A stock Envoy, connected by the bootstrap that `pilotfish bootstrap envoy` prints.

use super::{Pilotfish, Program, Tool, eventually, free_port, load};
use serde_json::Value;
use std::path::PathBuf;
use tokio::process::Command;

/// Options of an Envoy's connection.
#[derive(Clone, Debug)]
pub struct EnvoyOptions {
    /// `delta` or `sotw`.
    pub protocol: &'static str,
    /// Additional arguments of `pilotfish bootstrap envoy`.
    pub arguments: Vec<String>,
    /// xDS port; `None` for the plaintext one.
    pub xds_port: Option<u16>,
}

impl EnvoyOptions {
    /// A sidecar in the namespace `shop` whose listeners bind their ports.
    #[must_use]
    pub fn sidecar(protocol: &'static str) -> Self {
        let arguments = ["--name", "client", "--namespace", "shop", "--label", "app=client"];
        Self { protocol, arguments: arguments.map(str::to_owned).to_vec(), xds_port: None }
    }
}

pub struct Envoy {
    admin: u16,
    program: Program,
}

impl Envoy {
    /// Starts an Envoy and waits until its admin page responds. `None` where there is no Envoy and it is not
    /// required.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start(pilotfish: &Pilotfish, options: &EnvoyOptions) -> Option<Self> {
        let envoy = Tool::Envoy.find()?;
        let admin = free_port();
        let bootstrap = bootstrap(pilotfish, options, admin).await;
        let mut command = Command::new(envoy);
        command.arg("-c").arg(&bootstrap).args([
            "--use-dynamic-base-id",
            "--concurrency",
            "1",
            "--log-level",
            "warn",
            // Tests read access logs soon.
            "--file-flush-interval-msec",
            "50",
        ]);
        let program = Program::start(&mut command, bootstrap.with_extension("log"));
        let this = Self { admin, program };
        eventually("Envoy's admin page answers", || async {
            this.page("/ready").await.map_err(|error| format!("{error}\n{}", this.program.printed()))
        })
        .await;
        Some(this)
    }

    /// Port of its admin API on loopback.
    #[must_use]
    pub fn admin_port(&self) -> u16 {
        self.admin
    }

    /// A page of Envoy's admin API.
    ///
    /// # Errors
    /// The status, or another error.
    pub async fn page(&self, path: &str) -> Result<String, String> {
        load::fetch(&format!("http://127.0.0.1:{}{path}", self.admin)).await
    }

    /// Value of a counter or gauge; 0 when it does not exist.
    ///
    /// # Panics
    /// When Envoy does not respond.
    pub async fn stat(&self, name: &str) -> u64 {
        let text = self.page(&format!("/stats?format=json&filter=^{}$", name.replace('.', "%5C."))).await;
        let json: Value = serde_json::from_str(&text.expect("Envoy answers")).expect("JSON");
        let stats = json["stats"].as_array().cloned().unwrap_or_default();
        stats.iter().find(|stat| stat["name"] == name).and_then(|stat| stat["value"].as_u64()).unwrap_or(0)
    }

    /// Output so far.
    #[must_use]
    pub fn printed(&self) -> String {
        self.program.printed()
    }
}

async fn bootstrap(pilotfish: &Pilotfish, options: &EnvoyOptions, admin: u16) -> PathBuf {
    let xds = format!("127.0.0.1:{}", options.xds_port.unwrap_or(pilotfish.xds_port()));
    let mut command = Command::new(pilotfish.binary());
    command.args(["bootstrap", "envoy", "--xds-address", &xds, "--protocol", options.protocol]);
    command.args(["--envoy-admin-address", &format!("127.0.0.1:{admin}")]).args(&options.arguments);
    let output = command.output().await.expect("pilotfish runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = pilotfish.folder().join(format!("envoy-{admin}.json"));
    std::fs::write(&path, output.stdout).expect("the folder can be written");
    path
}
