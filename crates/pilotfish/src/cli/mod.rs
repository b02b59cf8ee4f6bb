//! The command line.

mod ca;
mod certificates;
mod environment;
mod examples;
mod groups;
mod registries;
mod secure;
mod shell;

use crate::cli::ca::Ca;
use crate::cli::certificates::Certificates;
use crate::cli::registries::Registries;
use crate::cli::shell::{Completion, Man};
use crate::demo::{Demo, Picture};
use crate::registries::{REGISTRIES, table_with};
use crate::serve::{Addresses, Bound};
use crate::settings::ServeArgs;
use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use pilotfish_cli::{Commands, PlanArgs};
use pilotfish_commands::{
    Bench, Crds, Inject, Register, RemoteSecret, Replay, Validate, dial_cluster, open_proxy_cluster,
    read_istiod, why_files,
};
use pilotfish_log::{self as logging, Logging};
use pilotfish_node::bootstrap::Bootstrap;
use pilotfish_node::interception::IstioIptables;
use pilotfish_polaris_sync::{self as polaris_sync, SyncPolaris};
use pilotfish_registry::{RegistryTable, RegistryType};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Service discovery and registration for Envoy and gRPC.
#[derive(Parser, Debug)]
#[command(
    name = "pilotfish", version, max_term_width = 100, help_template = groups::template(),
    after_help = examples::PILOTFISH
)]
pub struct Cli {
    #[command(flatten)]
    logging: Logging,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Commands that ask a running control plane
    #[command(flatten)]
    Client(Commands),
    /// Run the control plane: read files, clusters and registries, serve xDS to Envoy and gRPC
    #[command(after_help = serve_help())]
    Serve(Box<ServeArgs>),
    /// Run a program as a registered service: found once it answers, gone when it ends
    #[command(after_help = examples::REGISTER)]
    Register(Box<Register>),
    /// List the types of registries and the options of one; with --status, those that run
    #[command(after_help = examples::REGISTRIES)]
    Registries(Registries),
    /// Show or rotate the certificate authority of the mesh
    #[command(subcommand, after_help = examples::CA)]
    Ca(Ca),
    /// Obtain the certificate of a workload into files, and renew it
    #[command(after_help = examples::CERTIFICATES)]
    Certificates(Box<Certificates>),
    /// Show the effect of a change before it is made: proxies, resources, dangers
    #[command(after_help = examples::PLAN)]
    Plan(Box<PlanArgs>),
    /// Replay a file of `record` in a fresh control plane, and compare what proxies get
    Replay(Replay),
    /// Check files without serving them; exit code 1 when there are errors
    Validate(Validate),
    /// Try Pilotfish with sample services, a real Envoy and live traffic
    #[command(after_help = examples::DEMO)]
    Demo(Demo),
    /// Measure an xDS server with a mesh of many proxies
    #[command(after_help = examples::BENCH)]
    Bench(Box<Bench>),
    /// Print CustomResourceDefinitions, for clusters without Istio
    #[command(after_help = examples::CRDS)]
    Crds(Crds),
    /// Inject an Envoy sidecar into Deployments, Jobs and Pods in YAML files
    #[command(after_help = examples::INJECT)]
    Inject(Inject),
    /// Print the Secret with which Pilotfish reads another cluster
    #[command(after_help = examples::REMOTE_SECRET)]
    RemoteSecret(RemoteSecret),
    /// Keep another registry equal to a cluster
    #[command(subcommand)]
    Sync(Sync),
    /// Redirect a Pod's connections to its Envoy (init container of sidecars)
    IstioIptables(Box<IstioIptables>),
    /// Print a bootstrap that connects an Envoy or a gRPC client
    #[command(subcommand)]
    Bootstrap(Bootstrap),
    /// Print the completion script of a shell
    #[command(after_help = examples::COMPLETION)]
    Completion(Completion),
    /// Write manual pages into a folder
    #[command(after_help = examples::MAN)]
    Man(Man),
    /// Print the version of Pilotfish
    Version,
}

/// The registries that can be kept equal.
#[derive(Subcommand, Debug)]
enum Sync {
    #[command(after_help = examples::SYNC)]
    Polaris(Box<SyncPolaris>),
}

/// Returns the examples of `serve`, and the available registries.
fn serve_help() -> String {
    let live: Vec<&RegistryType> =
        REGISTRIES.iter().copied().filter(|entry| !entry.address.is_empty()).collect();
    let lines = registries::lines(&live);
    format!(
        "{}\n\nRegistries with a source of their own, for --registry (options: pilotfish registries NAME):\n\
         {lines}",
        examples::SERVE
    )
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// With advice for correcting the mistake.
    pub fn run(self) -> Result<ExitCode> {
        self.run_with(&[])
    }

    /// Runs the command as `main`, with additional registries for `serve`. An error is printed and results in
    /// the exit code 2.
    #[must_use]
    pub fn run_to_end(self, more: &[&'static RegistryType]) -> ExitCode {
        self.run_with(more).unwrap_or_else(|error| {
            let text = format!("error: {}", logging::with_causes(error.as_ref()));
            logging::print(&pilotfish_cli::cleaned(&text, false));
            logging::flush();
            ExitCode::from(2)
        })
    }

    /// Runs the command, with additional registries for `serve`.
    ///
    /// # Errors
    /// With advice for correcting the mistake.
    pub fn run_with(self, more: &[&'static RegistryType]) -> Result<ExitCode> {
        pilotfish_cli::reach_clusters_by(dial_cluster);
        pilotfish_cli::dial_tls_by(secure::dial);
        pilotfish_cli::read_istiod_by(read_istiod);
        pilotfish_cli::open_proxy_clusters_by(open_proxy_cluster);
        let done = self.execute(table_with(more));
        logging::flush();
        match done {
            // As in `pilotfish crds | head -1`: the reader needs no more.
            Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
            done => done,
        }
    }

    fn execute(self, table: RegistryTable) -> Result<ExitCode> {
        environment::warn();
        let mut out = std::io::stdout().lock();
        match self.command {
            Command::Version => {
                good(writeln!(out, "pilotfish {}", env!("CARGO_PKG_VERSION")).map_err(Into::into))
            }
            Command::Bootstrap(bootstrap) => good(print(&bootstrap, &mut out)),
            Command::Bench(bench) => bench.run(&mut out),
            Command::Client(command) => {
                drop(out);
                ask(command)
            }
            Command::Completion(completion) => good(completion.run(&mut Cli::command(), &mut out)),
            Command::Man(man) => good(man.run(Cli::command())),
            Command::Crds(crds) => good(crds.run(&mut out)),
            Command::Inject(inject) => good(inject.run(&mut out)),
            Command::Plan(plan) => {
                drop(out);
                run_to(async { pilotfish_commands::plan(&plan).await })
            }
            Command::Register(register) => {
                self.logging.start(std::io::stderr())?;
                drop(out);
                run_to(async { Box::pin(register.run()).await })
            }
            Command::Registries(registries) if registries.status => {
                drop(out);
                run_to(async { Ok(registries.show_status().await?) })
            }
            Command::Registries(registries) => good(registries.run(&table, &mut out)),
            Command::Ca(ca) => run_to(async { ca.run(out).await }),
            Command::Certificates(certificates) => keep(*certificates, &self.logging, out),
            Command::RemoteSecret(secret) => run(async { secret.run(&mut out).await }),
            Command::Replay(replay) => replay.run(),
            Command::IstioIptables(iptables) => good(iptables.run(&mut out)),
            Command::Validate(validate) => {
                drop(out);
                let ok = validate.run()?;
                Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Command::Serve(args) => {
                self.logging.start(std::io::stderr())?;
                drop(out);
                run(serve(*args, table))
            }
            Command::Sync(Sync::Polaris(args)) => {
                self.logging.start(std::io::stderr())?;
                drop(out);
                run_to(async {
                    let good = Box::pin(polaris_sync::run(*args, stop_signal()?)).await?;
                    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
                })
            }
            Command::Demo(demo) => {
                let picture = Arc::new(Picture::default());
                self.logging.start(Beside(picture.clone()))?;
                drop(out);
                run(async { Box::pin(demo.run(picture, stop_signal()?)).await })
            }
        }
    }
}

/// Keeps certificates until a signal. `out` is the locked stdout.
fn keep(certificates: Certificates, logging: &Logging, out: impl Write) -> Result<ExitCode> {
    logging.start(std::io::stderr())?;
    drop(out);
    run_to(async { Box::pin(certificates.run(stop_signal()?)).await })
}

/// Prints a bootstrap, and its warnings to stderr.
fn print(bootstrap: &Bootstrap, out: &mut impl Write) -> Result<()> {
    for warning in bootstrap.warnings() {
        // A closed stderr is ignored.
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    Ok(writeln!(out, "{:#}", bootstrap.json()?)?)
}

/// Runs a command on a running control plane, or on files in its place.
fn ask(command: Commands) -> Result<ExitCode> {
    match command {
        Commands::Why(why) if why.files.is_some() => why_files(&why),
        command => run_to(async { Ok(Box::pin(command.run()).await?) }),
    }
}

/// Returns the exit code of a command that only succeeds or fails.
fn good(done: Result<()>) -> Result<ExitCode> {
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a future to its end on a multi-threaded runtime.
fn run(work: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    run_to(async { work.await.map(|()| ExitCode::SUCCESS) })
}

/// Runs a future to its end on a multi-threaded runtime, and returns its exit code.
fn run_to(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Publications wake connections from their own thread, through the global queue: it is polled every
    // second time, so that new connections do not delay publications. IO events of registries are polled
    // often, too: a first push takes milliseconds, so after the default of 61 tasks a watch would have waited
    // for a third of a second.
    let runtime = runtime.global_queue_interval(2).event_interval(8).enable_all().build()?;
    let result = runtime.block_on(work);
    // The remaining tasks have exceeded their deadline.
    runtime.shutdown_background();
    result
}

/// Writer of logs above the demo's picture.
struct Beside(Arc<Picture>);

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.suspend(|| std::io::stderr().write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// True if a command failed because its output was closed.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let of_io = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    error.chain().any(of_io)
}

async fn serve(args: ServeArgs, table: RegistryTable) -> Result<()> {
    let args = args.with_file()?;
    wait_for(args.sources.awaited()).await;
    let bound = Box::pin(Bound::bind(args.check(table)?)).await?;
    let Addresses { xds, secure_xds, admin, secure_admin, webhooks, registration, consul, eureka, nacos } =
        bound.addresses();
    let [secure_xds, secure_admin, webhooks, registration, consul, eureka, nacos] =
        [secure_xds, secure_admin, webhooks, registration, consul, eureka, nacos]
            .map(|address| address.map(tracing::field::display));
    tracing::info!(
        %xds, secure_xds, %admin, secure_admin, webhooks, registration, consul, eureka, nacos, "listening"
    );
    let mut hangup = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if let Some(control) = logging::control() {
                control.toggle();
            }
        }
    });
    bound.run(stop_signal()?).await
}

/// Waits until all paths exist, such as a volume that another container fills. Signals end the process
/// meanwhile, because no handlers are installed yet.
async fn wait_for(paths: &[PathBuf]) {
    const PAUSE: Duration = Duration::from_millis(200);
    for path in paths {
        // Other errors of the path are reported by the check of settings.
        let is_absent =
            || std::fs::metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        if is_absent() {
            tracing::info!(path = %path.display(), "waiting for a path that does not exist yet");
        }
        while is_absent() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Returns a future that resolves at the first SIGTERM or SIGINT. The second signal ends the process at once.
fn stop_signal() -> Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let (first, done) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut first = Some(first);
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            match first.take() {
                // A closed channel means that the process is ending.
                Some(first) => drop(first.send(())),
                None => std::process::exit(130),
            }
        }
    });
    Ok(async {
        // An error means that the listening task is gone, which only happens when the runtime ends.
        let _ = done.await;
    })
}
