//! `pilotfish bench`: measures an xDS server with a mesh in which every proxy differs.

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use pilotfish_connect::{Connector, Server as Address, TlsOptions};
use pilotfish_load::connection::{Dial, Dialing, Socket, Way};
use pilotfish_load::mesh::folder::Folder;
use pilotfish_load::mesh::measure::{Plan, Progress, measure};
use pilotfish_load::mesh::report;
use pilotfish_load::mesh::subject::{Edits, Subject};
use pilotfish_load::server::Server;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Options of `pilotfish bench`.
#[derive(clap::Args, Debug)]
pub struct Bench {
    #[command(flatten)]
    plan: Plan,
    /// The xDS server, which has the mesh already; by default the bench starts a Pilotfish with the mesh
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// The process of that server, on this machine, to measure its CPU time and memory
    #[arg(long, value_name = "PID", requires = "address")]
    pid: Option<u32>,
    /// The folder of the mesh's files; with --address the server reads it, or --apply brings it the changes
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The command that brings a new or changed file to the server; {} is the file
    #[arg(long, value_name = "COMMAND", requires_all = ["address", "delete"])]
    apply: Option<String>,
    /// The command that removes the objects of a file from the server; {} is the file
    #[arg(long, value_name = "COMMAND", requires = "apply")]
    delete: Option<String>,
    /// Write the files of the mesh into --folder, and measure nothing
    #[arg(long, requires = "folder", conflicts_with = "address")]
    write_only: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Threads of the proxies; they share the processors with a server on this machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// A file for the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Connection to a server other than the one that the command starts.
#[derive(clap::Args, Debug)]
struct ServerArgs {
    /// The server speaks TLS
    #[arg(long, requires = "address")]
    tls: bool,
    /// CAs of the server's certificate in PEM [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca_file: Option<PathBuf>,
    /// The proxies' certificate in PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key_file"])]
    cert_file: Option<PathBuf>,
    /// Its key in PEM
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    key_file: Option<PathBuf>,
    /// The name in the server's certificate [default: the host of the address]
    #[arg(long, value_name = "NAME", requires = "tls")]
    server_name: Option<String>,
    /// A file with the token that each proxy sends
    #[arg(long, value_name = "FILE", requires = "address")]
    token_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Result of the command.
enum Done {
    /// The mesh was written; the command that serves it.
    Written(String),
    /// Result of a measurement.
    Measured { table: String, json: serde_json::Value },
}

impl Bench {
    /// Measures, and prints the result.
    ///
    /// # Errors
    /// When the server cannot be started or reached, loses a proxy or takes too long.
    pub fn run(self, out: &mut impl Write) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.threads.max(1))
            .enable_all()
            .build()?;
        let output = self.output;
        // Spawned, because this thread is not a worker: all tasks then run where the sockets are.
        let done =
            runtime.block_on(async { tokio::spawn(self.measured()).await.context("the bench panicked")? });
        runtime.shutdown_background();
        match (done?, output) {
            (Done::Written(command), _) => writeln!(out, "{command}")?,
            (Done::Measured { table, .. }, Output::Table) => writeln!(out, "{table}")?,
            (Done::Measured { json, .. }, Output::Json) => writeln!(out, "{json:#}")?,
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn measured(self) -> Result<Done> {
        let temporary = Temporary::new()?;
        let base = self.folder.clone().unwrap_or_else(|| temporary.0.clone());
        let (mesh, settings) = (base.join("mesh"), base.join("mesh-config.yaml"));
        let folder = Folder::create(&mesh, &settings, self.plan.sizes)?;
        if self.write_only {
            let command = format!("pilotfish serve {} --mesh-config {}", mesh.display(), settings.display());
            return Ok(Done::Written(command));
        }
        let (subject, server) = match &self.address {
            Some(address) => (self.running(address).await?, None),
            None => own(&mesh, &settings, &base.join("log")).await?,
        };
        let progress = Bar::new();
        let results = measure(&self.plan, &subject, &folder, &progress).await?;
        drop(progress);
        if let Some(server) = server {
            server.stop().await?;
        }
        let json = report::json(&results, &self.plan.sizes);
        if let Some(path) = &self.json {
            std::fs::write(path, format!("{json:#}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Done::Measured { table: report::text(&results, &self.plan.sizes), json })
    }

    /// Returns the subject for a server that runs already.
    async fn running(&self, address: &str) -> Result<Subject> {
        let edits = match (&self.apply, &self.delete, &self.folder) {
            (Some(apply), Some(delete), _) => {
                Edits::Commands { apply: apply.clone(), delete: delete.clone() }
            }
            (.., Some(_)) => Edits::Files,
            _ => Edits::None,
        };
        let way = self.server.way(address).await?;
        Ok(Subject { way, pid: self.pid, start: None, edits })
    }
}

impl ServerArgs {
    async fn way(&self, address: &str) -> Result<Way> {
        let headers = match &self.token_file {
            Some(path) => {
                let token = std::fs::read_to_string(path)
                    .with_context(|| format!("--token-file: cannot read {}", path.display()))?;
                vec![("authorization".to_owned(), format!("Bearer {}", token.trim()))]
            }
            None => Vec::new(),
        };
        let tls = self.tls.then(|| {
            let identity = self.cert_file.clone().zip(self.key_file.clone());
            TlsOptions::new(self.ca_file.clone(), identity, self.server_name.clone()).with_alpn(&["h2"])
        });
        way(address, tls, headers).with_context(|| format!("--address {address:?}"))
    }
}

/// Way to a server at `HOST:PORT`, over TLS if options for it are given.
pub(crate) fn way(address: &str, tls: Option<TlsOptions>, headers: Vec<(String, String)>) -> Result<Way> {
    let Some((host, port)) = address.rsplit_once(':') else {
        bail!("it is not HOST:PORT");
    };
    let port = port.parse().context("it has no port")?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let dial = Dialer { connector: Connector::new(tls), server: Address { host, port } };
    Ok(Way::new(Arc::new(dial), address.to_owned(), headers))
}

/// Dialer that connects as the registries do.
struct Dialer {
    connector: Connector,
    server: Address,
}

impl Dial for Dialer {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(async move {
            let socket: Box<dyn Socket> = Box::new(self.connector.connect(&self.server).await?);
            Ok(socket)
        })
    }
}

/// Starts this program as a separate server process, so that its CPU time and memory exclude those of the
/// proxies.
async fn own(mesh: &Path, settings: &Path, log: &Path) -> Result<(Subject, Option<Server>)> {
    let program = std::env::current_exe().context("cannot find the running executable")?;
    let arguments = ["--mesh-config".into(), settings.as_os_str().to_owned()];
    let server = Server::pilotfish(&program, mesh, &arguments, log.to_owned()).await?;
    let subject = Subject {
        way: Way::plain(server.xds),
        pid: Some(server.pid()),
        start: Some(server.start),
        edits: Edits::Files,
    };
    Ok((subject, Some(server)))
}

/// Temporary folder that is deleted at the end of the command.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pilotfish-bench-{}", std::process::id()));
        // New, and private to this user, because the folder for temporary files is shared.
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Remains stay in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Progress of the measurements: the current one on a transient line of the terminal, finished ones above it.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }
}

impl Progress for Bar {
    fn doing(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn done(&self, what: &str) {
        self.0.suspend(|| {
            // A closed stderr is ignored.
            let _ = writeln!(std::io::stderr(), "{what}");
        });
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
