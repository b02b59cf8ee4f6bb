//! Other clusters: how they are found and read, and which Services cross them.

use super::check::Check;
use super::parse;
use clap::Args;
use pilotfish_kube::remote::{InsecureOptions, KubeconfigsIn};
use pilotfish_registry::MultiClusterServices;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Multi-cluster")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MultiClusterArgs {
    /// Time that readiness waits for the first list of a remote cluster [default: 30s]
    #[arg(long, env = "PILOTFISH_REMOTE_CLUSTER_TIMEOUT", value_name = "DURATION")]
    pub(crate) remote_cluster_timeout: Option<String>,
    /// A folder with kubeconfigs of remote clusters, ID.yaml or ID.yml each, instead of Secrets with the
    /// label istio/multiCluster; reloaded on change
    #[arg(long, env = "PILOTFISH_REMOTE_KUBECONFIGS", value_name = "FOLDER")]
    pub(crate) remote_kubeconfigs: Option<PathBuf>,
    /// Dangerous options that kubeconfigs of remote clusters may have: exec, clientKey, clientCertificate,
    /// tokenFile, certificateAuthority, insecureSkipTLSVerify, gcp, azure, openstack [default: none]
    #[arg(long, env = "PILOTFISH_INSECURE_KUBECONFIG_OPTIONS", value_name = "OPTION", value_delimiter = ',')]
    pub(crate) insecure_kubeconfig_options: Vec<String>,
    /// Effect of ServiceExports and ServiceImports: off (nothing), discovery (endpoints of Services that are
    /// not exported stay in their cluster), hosts (also: imported Services have a host below
    /// clusterset.local), cluster-local (also: only that host crosses clusters) [default: off]
    #[arg(long, env = "PILOTFISH_MULTI_CLUSTER_SERVICES", value_name = "MODE")]
    pub(crate) multi_cluster_services: Option<String>,
    /// Creates a ServiceExport for every Service that is not local to its cluster; one replica writes them
    #[arg(long, env = "PILOTFISH_EXPORT_SERVICES")]
    pub(crate) export_services: bool,
}

/// Credentials and limits of remote clusters.
#[derive(Clone, Debug)]
pub(crate) struct RemoteClusterSettings {
    /// Time that readiness waits for the first list of a remote cluster.
    pub(crate) timeout: Duration,
    pub(crate) kubeconfigs: KubeconfigsIn,
    /// Insecure options that kubeconfigs of remote clusters may have.
    pub(crate) insecure_options: InsecureOptions,
}

/// Settings of the group, validated.
pub(super) struct MultiCluster {
    pub(super) remote: RemoteClusterSettings,
    pub(super) services: MultiClusterServices,
    pub(super) export_services: bool,
}

impl MultiClusterArgs {
    pub(super) fn check(self, reads_cluster: bool, check: &mut Check) -> MultiCluster {
        const TIMEOUT: &str = "--remote-cluster-timeout";
        let timeout = check.parse(TIMEOUT, self.remote_cluster_timeout.as_deref(), parse::duration);
        let services =
            check.parse("--multi-cluster-services", self.multi_cluster_services.as_deref(), |text| {
                MultiClusterServices::parse(text)
                    .ok_or_else(|| "not one of off, discovery, hosts and cluster-local".into())
            });
        let off = self.multi_cluster_services.as_deref().is_none_or(|mode| mode == "off");
        if self.export_services && off {
            check.mistake(
                "--export-services: needs a mode of --multi-cluster-services in which exports count",
            );
        }
        if self.export_services && !reads_cluster {
            check.mistake("--export-services: there is no cluster to write to without --kubernetes");
        }
        let insecure_options =
            InsecureOptions::of(&self.insecure_kubeconfig_options).unwrap_or_else(|error| {
                check.mistake(format!("--insecure-kubeconfig-options: {error}"));
                InsecureOptions::default()
            });
        MultiCluster {
            remote: RemoteClusterSettings {
                timeout: timeout.unwrap_or(Duration::from_secs(30)),
                kubeconfigs: kubeconfigs(self.remote_kubeconfigs, reads_cluster, check),
                insecure_options,
            },
            services: services.unwrap_or_default(),
            export_services: self.export_services,
        }
    }
}

fn kubeconfigs(folder: Option<PathBuf>, reads_cluster: bool, check: &mut Check) -> KubeconfigsIn {
    const FLAG: &str = "--remote-kubeconfigs";
    let Some(folder) = folder else { return KubeconfigsIn::Secrets };
    check.exists(FLAG, &folder);
    if !reads_cluster {
        check.wrong(FLAG, &folder.to_string_lossy(), "no cluster is remote without --kubernetes");
    }
    KubeconfigsIn::Folder(folder)
}
