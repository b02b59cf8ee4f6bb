//! `pilotfish ca`: the certificate authority of the mesh.

use crate::serve::ca::rotate;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use pilotfish_cli::{Connection, Shown, parse_duration, rotate_ca, show_ca_roots, show_ca_status};
use pilotfish_kube::client::{self, ClientSettings};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Commands for the certificate authority.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Ca {
    /// Show key source, rotation and certificates of a running control plane
    Status(Shown),
    /// Print the roots that a running control plane distributes, in PEM
    Roots(Shown),
    /// Replace a self-signed root: both roots are trusted until all certificates of the old one have expired
    Rotate(Rotate),
}

/// Flags for other places than a folder of this machine.
const DATA_DIR_CONFLICTS: [&str; 6] =
    ["kubernetes", "kubeconfig", "kube", "context", "pod", "pilotfish_namespace"];

/// Begins a rotation at a running control plane, or in the file or Secret of the authority, which running
/// control planes follow.
#[derive(Args, Clone, Debug)]
pub(crate) struct Rotate {
    /// The --data-dir of the control plane, with the file of the authority
    #[arg(long, value_name = "DIR", conflicts_with_all = DATA_DIR_CONFLICTS)]
    data_dir: Option<PathBuf>,
    /// The authority is in Secret istio-ca-secret of a cluster, that of --kubeconfig
    #[arg(long, conflicts_with_all = ["kube", "context", "pod", "pilotfish_namespace"])]
    kubernetes: bool,
    /// The namespace of the Secret
    #[arg(long, value_name = "NS", default_value = "istio-system")]
    root_namespace: String,
    /// Longest validity of the workload certificates that were or will be signed: the duration of each of the
    /// two stages
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = parse_duration)]
    overlap: Duration,
    /// Control plane that begins it, without --data-dir and --kubernetes.
    #[command(flatten)]
    connection: Connection,
}

impl Ca {
    /// Runs the command. `out` is the locked stdout.
    ///
    /// # Errors
    /// When the control plane does not answer, or the rotation cannot begin.
    pub(crate) async fn run(&self, mut out: impl Write) -> Result<ExitCode> {
        match self {
            Self::Status(shown) => {
                drop(out);
                Ok(show_ca_status(shown).await?)
            }
            Self::Roots(shown) => {
                drop(out);
                Ok(show_ca_roots(shown).await?)
            }
            Self::Rotate(rotate) => {
                rotate.run(&mut out).await?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl Rotate {
    /// Begins the rotation and writes its first stage to `out`.
    ///
    /// # Errors
    /// When the authority cannot be read or written, is a plug-in one, or is being rotated, or the
    /// control plane refuses.
    async fn run(&self, out: &mut impl Write) -> Result<()> {
        let now = SystemTime::now();
        let until = match &self.data_dir {
            Some(folder) => rotate::file(folder, self.overlap, now).await?,
            None if self.is_of_cluster() => {
                let kubeconfig = self.connection.address.cluster.kubeconfig.clone();
                let client = client::connect(&ClientSettings { kubeconfig }).await.context("--kubernetes")?;
                rotate::secret(client, &self.root_namespace, self.overlap, now).await?
            }
            None => rotate_ca(&self.connection, self.overlap).await?,
        };
        writeln!(
            out,
            "The new root is distributed. It signs from {until} on; the old one stays trusted for as long again.\n\
             Running control planes follow: pilotfish ca status"
        )?;
        Ok(())
    }

    /// True if the Secret is written directly. A kubeconfig alone means that, too; with another flag of
    /// clusters, a control plane in the cluster is asked.
    fn is_of_cluster(&self) -> bool {
        let cluster = &self.connection.address.cluster;
        let asks_pod = cluster.kube
            || cluster.context.is_some()
            || cluster.pod.is_some()
            || cluster.pilotfish_namespace.is_some();
        self.kubernetes || (cluster.kubeconfig.is_some() && !asks_pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use clap::error::ErrorKind;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        rotate: Rotate,
    }

    #[test]
    fn only_a_kubeconfig_alone_means_its_current_context() {
        let is_of_cluster = |flags: &str| {
            let read = Command::try_parse_from(["rotate"].into_iter().chain(flags.split_whitespace()));
            read.map(|command| command.rotate.is_of_cluster()).map_err(|error| error.kind())
        };
        for (flags, expected) in [
            ("", Ok(false)),
            ("--kubernetes", Ok(true)),
            ("--kubernetes --kubeconfig f", Ok(true)),
            ("--kubeconfig f", Ok(true)),
            ("--kubeconfig f --kube", Ok(false)),
            ("--kubeconfig f --context staging", Ok(false)),
            ("--kubeconfig f --pod a", Ok(false)),
            ("--kubeconfig f --pilotfish-namespace a", Ok(false)),
            ("--data-dir d", Ok(false)),
            ("--data-dir d --kubernetes", Err(ErrorKind::ArgumentConflict)),
            ("--data-dir d --kubeconfig f", Err(ErrorKind::ArgumentConflict)),
            ("--data-dir d --kube", Err(ErrorKind::ArgumentConflict)),
            ("--data-dir d --context staging", Err(ErrorKind::ArgumentConflict)),
            ("--data-dir d --pod a", Err(ErrorKind::ArgumentConflict)),
            ("--data-dir d --pilotfish-namespace a", Err(ErrorKind::ArgumentConflict)),
            ("--kubernetes --context staging", Err(ErrorKind::ArgumentConflict)),
            ("--kubernetes --pod a", Err(ErrorKind::ArgumentConflict)),
            ("--kubernetes --pilotfish-namespace a", Err(ErrorKind::ArgumentConflict)),
        ] {
            assert_eq!(is_of_cluster(flags), expected, "{flags}");
        }
    }
}
