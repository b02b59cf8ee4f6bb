//! The command line.

mod bench;
mod crds;
pub(crate) mod inject;
pub(crate) mod logging;
mod plan;
mod register;
mod registries;
mod remote_secret;
mod replay;
mod shell;
mod validate;
mod why_files;

use crate::cli::bench::Bench;
use crate::cli::crds::Crds;
use crate::cli::inject::Inject;
use crate::cli::logging::Logging;
use crate::cli::register::Register;
use crate::cli::registries::Registries;
use crate::cli::remote_secret::RemoteSecret;
use crate::cli::replay::Replay;
use crate::cli::shell::{Completion, Man};
use crate::cli::validate::Validate;
use crate::demo::{Demo, Picture};
use crate::registries::{REGISTRIES, table_with};
use crate::serve::{Addresses, Bound};
use crate::settings::ServeArgs;
use crate::sync::{self, SyncPolaris};
use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use pilotfish_cli::{Commands, PlanArgs};
use pilotfish_node::bootstrap::Bootstrap;
use pilotfish_node::interception::IstioIptables;
use pilotfish_registry::{RegistryTable, RegistryType};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Service discovery and registration for Envoy and gRPC.
#[derive(Parser, Debug)]
#[command(name = "pilotfish", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    logging: Logging,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  pilotfish demo                                see it work: sample services, an Envoy, live traffic
  pilotfish serve ./mesh                        serve a folder of Kubernetes and Istio YAML
  pilotfish serve --kubernetes                  serve a live cluster
  pilotfish register --service web --port 8001 -- ./web     run a program as a registered service
  pilotfish validate ./mesh                     check it without serving
  pilotfish bench --quick --proxies 100         measure it, with as many proxies
  pilotfish bootstrap envoy > envoy.json        connect a stock Envoy: envoy -c envoy.json
  pilotfish proxies                             who is connected, and what was refused
  pilotfish wait VirtualService/shop/catalog    until all proxies have a change
  curl localhost:15014/ready                    is it ready, and what is wrong";

#[derive(Subcommand, Debug)]
enum Command {
    /// Commands that ask a running control plane
    #[command(flatten)]
    Client(Commands),
    /// Serves what files, clusters and registries have to Envoys and gRPC clients, over xDS
    #[command(after_help = serve_help())]
    Serve(Box<ServeArgs>),
    /// Runs a program as a registered service: found as soon as it answers, gone when it ends
    #[command(after_help = REGISTER_EXAMPLES)]
    Register(Box<Register>),
    /// Shows the registries that there are, and the options of one
    #[command(after_help = REGISTRIES_EXAMPLES)]
    Registries(Registries),
    /// Shows what a change would do before it is made: which proxies, which resources, what is dangerous
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(Box<PlanArgs>),
    /// Replays what `record` wrote in a fresh control plane: does every proxy get what it got then?
    Replay(Replay),
    /// Checks files without serving them; exit code 1 when there are errors
    Validate(Validate),
    /// Tries Pilotfish with sample services, a real Envoy and live traffic
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(Demo),
    /// Measures an xDS server with a mesh in which every proxy is a Pod of its own
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Box<Bench>),
    /// Prints CustomResourceDefinitions of the kinds that are read, for clusters without Istio
    #[command(after_help = CRDS_EXAMPLES)]
    Crds(Crds),
    /// Adds an Envoy to what makes Pods, in files
    #[command(after_help = INJECT_EXAMPLES)]
    Inject(Inject),
    /// Prints the Secret with which Pilotfish reads another cluster
    #[command(after_help = REMOTE_SECRET_EXAMPLES)]
    RemoteSecret(RemoteSecret),
    /// Keeps another registry equal to a cluster
    #[command(subcommand)]
    Sync(Sync),
    /// Leads a Pod's connections to its Envoy; the init container of a sidecar runs it
    IstioIptables(Box<IstioIptables>),
    /// Prints a bootstrap that connects a client
    #[command(subcommand)]
    Bootstrap(Bootstrap),
    /// Prints a script by which a shell completes commands and options
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion(Completion),
    /// Writes manual pages into a folder
    #[command(after_help = MAN_EXAMPLES)]
    Man(Man),
}

/// The registries that can be kept equal.
#[derive(Subcommand, Debug)]
enum Sync {
    #[command(after_help = SYNC_EXAMPLES)]
    Polaris(Box<SyncPolaris>),
}

const SYNC_EXAMPLES: &str = "Examples:
  pilotfish sync polaris --address polaris:8090 --cluster-name east --dry-run      what it would do
  pilotfish sync polaris --address polaris:8090 --cluster-name east --once         one pass and a table
  pilotfish sync polaris --address polaris:8090 --cluster-name east --leader-elect

Annotations, metadata and calls are those of polaris-controller: see docs/polaris.md.";

const SERVE_EXAMPLES: &str = "Examples:
  pilotfish serve ./mesh                               a folder of Kubernetes and Istio YAML
  pilotfish serve services.yaml routes.yaml --mesh-config mesh.yaml
  pilotfish serve ./mesh --secure-xds-address 0.0.0.0:15012 --tls-cert-file server.pem --tls-key-file server.key \\
    --ca-cert-file root-cert.pem                       proxies on other machines; see docs/identity.md
  pilotfish serve --kubernetes                         a live cluster
  pilotfish serve --registry consul=http://HOST:8500   Consul, without Kubernetes; see the registries below
  pilotfish serve --settings pilotfish.yaml

A changed object takes effect as soon as it is written; a broken one keeps its last good version. SIGHUP turns debug logs on, and off again.
On the admin address: /ready (is it ready, what is wrong), /metrics, /debug (everything else).";

const REGISTER_EXAMPLES: &str = "Examples:
  pilotfish serve --registration-address 127.0.0.1:15016                    where programs register
  pilotfish register --service web --port 8001 -- python3 -m http.server 8001
  pilotfish register --service web --port 8002 --label version=v2 --drain 5s -- ./web
  pilotfish register --service billing.example.com --port 9000 --protocol grpc --check grpc -- ./billing

The program gets our signals. At SIGTERM, SIGINT, SIGQUIT and SIGHUP it is deregistered first, and gets the signal after --drain; the exit code is
its own. A program that outlives us (kill -9) is found until --ttl has passed.";

const REGISTRIES_EXAMPLES: &str = "Examples:
  pilotfish registries                                 what there is
  pilotfish registries consul                          the options of one
  pilotfish registries -o json | jq '.[].name'
  pilotfish registries --status                        how those of a running control plane are: synced, failing, their lag";

/// The examples of `serve`, and the registries that it knows.
fn serve_help() -> String {
    let live: Vec<&RegistryType> =
        REGISTRIES.iter().copied().filter(|entry| !entry.address.is_empty()).collect();
    let lines = registries::lines(&live);
    format!(
        "{SERVE_EXAMPLES}\n\nRegistries with a source of their own, for --registry (options: pilotfish registries NAME):\n{lines}"
    )
}

const DEMO_EXAMPLES: &str = "Examples:
  pilotfish demo                                 then edit examples/shop/routes.yaml and watch
  pilotfish demo --envoy /usr/local/bin/envoy --rate 100";

const BENCH_EXAMPLES: &str = "Examples:
  pilotfish bench                                        a Pilotfish of its own, 1,000 proxies: about ten minutes
  pilotfish bench --quick --proxies 100 --services 50    a first impression
  pilotfish bench -o json > result.json

A server that runs already:
  pilotfish bench --folder world --write-only            writes the mesh, and prints the command that serves it
  pilotfish bench --address 127.0.0.1:15010 --pid $(pidof pilotfish) --folder world
  pilotfish bench --address istiod:15010 --folder world --apply 'kubectl apply -f {}' --delete 'kubectl delete -f {}'

Proxies come in, leave and come back, and Services, routes and policies change; every figure is until the last proxy that is concerned has
all of it. See docs/performance.md.";

const COMPLETION_EXAMPLES: &str = "Examples:
  source <(pilotfish completion bash)                                for this shell
  pilotfish completion bash > /etc/bash_completion.d/pilotfish       for all
  pilotfish completion zsh > \"${fpath[1]}/_pilotfish\"
  pilotfish completion fish > ~/.config/fish/completions/pilotfish.fish";

const MAN_EXAMPLES: &str = "Examples:
  pilotfish man /usr/local/share/man/man1 && man pilotfish-why";

const PLAN_EXAMPLES: &str = "Examples:
  pilotfish plan routes.yaml                            against the running control plane and its connected proxies
  pilotfish plan --delete VirtualService/shop/catalog
  kubectl kustomize overlays/prod | pilotfish plan -
  pilotfish plan --base main/mesh changed.yaml          on folders alone, for CI: these files added to the base
  pilotfish plan --base main/mesh --replace mesh        the folder in the place of the base

Exit codes: 0 nothing dangerous changes, 1 the files have errors, 2 it cannot be planned, 3 something changes (with --exit-code),
4 something dangerous changes.";

const CRDS_EXAMPLES: &str = "Examples:
  pilotfish crds | kubectl apply --server-side -f -
  pilotfish crds --group gateway.networking.k8s.io | kubectl diff -f -
  pilotfish crds -o json | jq '.items[].metadata.name'

Where Istio or the Gateway API is installed already, keep their definitions: Pilotfish reads those as well.";

const REMOTE_SECRET_EXAMPLES: &str = "Examples:
  pilotfish remote-secret --context west --name west | kubectl apply -f -
  pilotfish remote-secret --context west --name west --expires 720h --server https://west.example.com:6443

The cluster has to have the service account first: kubectl --context west apply -f deploy/remote-cluster/rbac.yaml";

const INJECT_EXAMPLES: &str = "Examples:
  pilotfish inject -f shop.yaml | kubectl apply -f -
  kubectl get deployment -n shop -o yaml | pilotfish inject | kubectl apply -f -
  pilotfish inject --print-template > sidecar.yaml.j2      # change it, then:
  pilotfish inject -f shop.yaml --template sidecar.yaml.j2 --set cpu=50m";

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// With what a person needs to know to fix it.
    pub fn run(self) -> Result<ExitCode> {
        self.run_with(&[])
    }

    /// Runs the command as a program does: `serve` knows these registries, too, and an error is printed and ends in the exit code 2.
    #[must_use]
    pub fn run_to_end(self, more: &[&'static RegistryType]) -> ExitCode {
        self.run_with(more).unwrap_or_else(|error| {
            // There is nobody left to tell when stderr is closed.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        })
    }

    /// Runs the command; `serve` knows these registries, too.
    ///
    /// # Errors
    /// With what a person needs to know to fix it.
    pub fn run_with(self, more: &[&'static RegistryType]) -> Result<ExitCode> {
        match self.execute(table_with(more)) {
            // As in `pilotfish crds | head -1`: the reader has what it wants.
            Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
            done => done,
        }
    }

    fn execute(self, table: RegistryTable) -> Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        match self.command {
            Command::Bootstrap(bootstrap) => {
                for warning in bootstrap.warnings() {
                    // A warning is lost when stderr is closed.
                    let _ = writeln!(std::io::stderr(), "warning: {warning}");
                }
                writeln!(out, "{:#}", bootstrap.json()?)?;
                Ok(ExitCode::SUCCESS)
            }
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
                run_to(async { plan::run(&plan).await })
            }
            Command::Register(register) => {
                self.logging.start(std::io::stderr)?;
                drop(out);
                run_to(async { Box::pin(register.run()).await })
            }
            Command::Registries(registries) if registries.status => {
                drop(out);
                run_to(async { Ok(registries.show_status().await?) })
            }
            Command::Registries(registries) => good(registries.run(&table, &mut out)),
            Command::RemoteSecret(secret) => run(async { secret.run(&mut out).await }),
            Command::Replay(replay) => replay.run(),
            Command::IstioIptables(iptables) => good(iptables.run(&mut out)),
            Command::Validate(validate) => {
                let ok = validate.run(&mut out)?;
                Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Command::Serve(args) => {
                self.logging.start(std::io::stderr)?;
                drop(out);
                run(serve(*args, table))
            }
            Command::Sync(Sync::Polaris(args)) => {
                self.logging.start(std::io::stderr)?;
                drop(out);
                run_to(async {
                    let good = Box::pin(sync::run(*args, stop_signal()?)).await?;
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

/// Asks a running control plane, or files in its place.
fn ask(command: Commands) -> Result<ExitCode> {
    match command {
        Commands::Why(why) if why.files.is_some() => why_files::run(&why),
        command => run_to(async { Ok(Box::pin(command.run()).await?) }),
    }
}

/// The exit code of what has just two.
fn good(done: Result<()>) -> Result<ExitCode> {
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs to the end on all processors.
fn run(work: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    run_to(async { work.await.map(|()| ExitCode::SUCCESS) })
}

/// The same, with an exit code of its own.
fn run_to(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Publications wake connections from a thread of their own, which is the global queue: every second turn is theirs, however much
    // new connections have to do.
    let runtime = runtime.global_queue_interval(2).enable_all().build()?;
    let result = runtime.block_on(work);
    // Whatever still runs has had its deadline.
    runtime.shutdown_background();
    result
}

/// Writes logs above the demo's picture.
#[derive(Clone)]
struct Beside(Arc<Picture>);

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.suspend(|| std::io::stderr().write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Beside {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Whether a command failed because its output was closed.
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
    let Addresses { xds, secure_xds, admin, webhooks, registration } = bound.addresses();
    let registration = registration.map(tracing::field::display);
    let (secure_xds, webhooks) =
        (secure_xds.map(tracing::field::display), webhooks.map(tracing::field::display));
    tracing::info!(%xds, secure_xds, %admin, webhooks, registration, "listening");
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

/// Waits until all of these are there, such as a volume that is filled by another container. A signal ends the process meanwhile: nothing
/// listens yet.
async fn wait_for(paths: &[PathBuf]) {
    const PAUSE: Duration = Duration::from_millis(200);
    for path in paths {
        // Whatever else is wrong with it is for the check of settings to say.
        let is_absent =
            || std::fs::metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        if is_absent() {
            tracing::info!(path = %path.display(), "waiting for a path that is not there yet");
        }
        while is_absent() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Done at the first SIGTERM or SIGINT; the second ends the process at once.
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
                // Nobody waits any more only when the process ends anyway.
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
