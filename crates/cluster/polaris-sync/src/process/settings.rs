//! The settings of `pilotfish sync polaris`.

use crate::reconcile::{ClusterSettings, Mode, ScheduleSettings};
use crate::{ClientSettings, Credentials, PolarisTarget, SessionSettings, TlsOptions, TokenSource};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use pilotfish_duration::parse_above_zero;
use pilotfish_kube_writer::lease::LeaseSettings;
use pilotfish_runtime::GuardSettings;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Environment variable with the token, unless a file has it.
const TOKEN: &str = "POLARIS_TOKEN";

/// Keeps a Polaris server equal to a cluster, in the place of polaris-controller
#[derive(Args, Clone, Debug)]
pub struct SyncPolaris {
    /// The HTTP API of Polaris: HOST[:8090], http://HOST:PORT or https://HOST:PORT; several with commas
    #[arg(long, value_name = "ADDRESS")]
    address: String,
    /// Name of this cluster in Polaris; instances with it are managed by this sync
    #[arg(long, value_name = "NAME")]
    cluster_name: String,
    /// Default for Services without the annotation polarismesh.cn/sync, on them or on their namespace
    #[arg(long, value_enum, default_value_t = ModeArg::All)]
    mode: ModeArg,
    /// A namespace to leave out, beside those of the system; may be repeated
    #[arg(long, value_name = "NS")]
    ignore_namespace: Vec<String>,
    /// The kubeconfig of the cluster [default: the Pod's service account, or $KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A file with the token of Polaris, which may be replaced [default: the variable POLARIS_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The id of a user of Polaris whose token is asked for with the token
    #[arg(long, value_name = "ID")]
    operator: Option<String>,
    /// Certificates that sign the server's, in PEM, for https [default: those of the system]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Timeout of a request to Polaris
    #[arg(long, value_name = "DURATION", value_parser = parse_above_zero, default_value = "10s")]
    timeout: Duration,
    /// Interval of complete comparisons
    #[arg(long, value_name = "DURATION", value_parser = parse_above_zero, default_value = "60s")]
    resync: Duration,
    /// Share of all managed instances, in percent, that may be deleted at once; more, and at least 3, wait
    /// for a second read of the cluster. `off` deletes at once
    #[arg(long, value_name = GuardSettings::SHARE, default_value = "50")]
    guard: String,
    /// Time until that second read
    #[arg(long, value_name = "DURATION", value_parser = parse_above_zero, default_value = "10s")]
    guard_wait: Duration,
    /// Take isolation of our instances as that of polaris-controller, which leaves no mark: for the first run
    /// after it
    #[arg(long)]
    take_over_isolation: bool,
    /// Print the calls, and make none
    #[arg(long)]
    dry_run: bool,
    /// One pass and a table, instead of running on; exit code 1 when something is left to do
    #[arg(long)]
    once: bool,
    /// Format of the output of --once and --dry-run
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Let one of several replicas write, by a Lease
    #[arg(long)]
    leader_elect: bool,
    /// The namespace of the Lease
    #[arg(long, value_name = "NS", default_value = "polaris-system")]
    lease_namespace: String,
    /// The Lease; by default that of polaris-controller, so that only one of the two writes
    #[arg(long, value_name = "NAME", default_value = "polaris-controller")]
    lease_name: String,
    /// Listen address of /healthz, /ready, /metrics and /debug/syncz
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15018")]
    admin_address: SocketAddr,
}

/// Value of `--mode`, see [`Mode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeArg {
    /// All, but where an annotation says no
    All,
    /// None, but where an annotation says yes
    Demand,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A table for people
    Table,
    /// JSON, for use by programs
    Json,
}

/// Settings of the sync after their check.
pub(super) struct Checked {
    pub(super) cluster: ClusterSettings,
    pub(super) client: ClientSettings,
    pub(super) lease: Option<LeaseSettings>,
    pub(super) admin: SocketAddr,
    pub(super) schedule: ScheduleSettings,
    pub(super) session: SessionSettings,
    pub(super) target: PolarisTarget,
    pub(super) once: bool,
    pub(super) dry_run: bool,
    pub(super) output: Output,
    pub(super) kubeconfig: Option<PathBuf>,
}

impl SyncPolaris {
    /// Checks the settings that clap cannot check.
    pub(super) fn check(self) -> Result<Checked> {
        let target = match PolarisTarget::new(&self.cluster_name) {
            Ok(target) => target.with_taken_isolation(self.take_over_isolation),
            Err(error) => bail!("--cluster-name: {error}"),
        };
        let address = match ClientSettings::parse_address(&self.address) {
            Ok(address) => address,
            Err(error) => bail!("--address {:?}: {error}", self.address),
        };
        if self.ca_file.is_some() && !address.scheme.is_tls {
            bail!("--ca-file needs TLS: begin --address with https://");
        }
        let share = match GuardSettings::parse_share(&self.guard) {
            Ok(share) => share,
            Err(error) => bail!("--guard {:?}: {error}", self.guard),
        };
        let variable = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
        let token = match (self.token_file, variable) {
            (Some(file), _) => TokenSource::File(file),
            (None, Some(token)) => TokenSource::Text(token.into()),
            (None, None) => TokenSource::None,
        };
        let tls = address.scheme.is_tls.then(|| TlsOptions::new(self.ca_file, None, None));
        let guard = GuardSettings { share, wait: self.guard_wait, ..GuardSettings::default() };
        let mode = match self.mode {
            ModeArg::All => Mode::All,
            ModeArg::Demand => Mode::Demand,
        };
        let ignored = self.ignore_namespace.iter().map(|name| name.as_str().into()).collect();
        let lease = self.leader_elect.then(|| LeaseSettings::new(self.lease_namespace, self.lease_name));
        Ok(Checked {
            cluster: ClusterSettings { mode, ignored },
            client: ClientSettings {
                address,
                tls,
                credentials: Credentials::new(token, self.operator),
                timeout: self.timeout,
            },
            lease,
            admin: self.admin_address,
            schedule: ScheduleSettings { resync: self.resync, ..ScheduleSettings::default() },
            session: SessionSettings { guard, ..SessionSettings::default() },
            target,
            once: self.once,
            dry_run: self.dry_run,
            output: self.output,
            kubeconfig: self.kubeconfig,
        })
    }
}
