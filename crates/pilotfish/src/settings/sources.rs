//! Files and clusters that objects are read from.

use super::check::Check;
use super::parse;
use clap::Args;
use pilotfish_kube::client::ClientSettings;
use pilotfish_model::Revision;
use pilotfish_registry::RegistrySettings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Sources")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SourceArgs {
    /// Folders and files with Kubernetes and Istio YAML; reloaded on change
    #[arg(value_name = "PATH", help_heading = None::<&str>)]
    pub(crate) paths: Vec<PathBuf>,
    /// Waits until every PATH exists; by default a missing PATH is an error
    #[arg(long, env = "PILOTFISH_WAIT_FOR_PATHS")]
    pub(crate) wait_for_paths: bool,
    /// Reads a live Kubernetes cluster, alone or beside files
    #[arg(long, env = "PILOTFISH_KUBERNETES")]
    pub(crate) kubernetes: bool,
    /// The kubeconfig of that cluster; implies --kubernetes
    /// [default: the Pod's service account, else $KUBECONFIG or ~/.kube/config]
    #[arg(long, env = "PILOTFISH_KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The namespace of mesh-wide settings: ConfigMap `istio`, Secrets of remote clusters, Leases
    /// [default: istio-system]
    #[arg(long, env = "PILOTFISH_ROOT_NAMESPACE", value_name = "NS")]
    pub(crate) root_namespace: Option<String>,
    /// The revision of this control plane, beside others in a cluster: reads Istio's objects and routes that
    /// are labelled istio.io/rev with it, with a tag of it, or not at all [default: reads all]
    #[arg(long, env = "PILOTFISH_REVISION", value_name = "NAME")]
    pub(crate) revision: Option<String>,
    /// Istio's MeshConfig: a file with the settings themselves, or a ConfigMap with the key `mesh`; reloaded
    /// on change
    #[arg(long, env = "PILOTFISH_MESH_CONFIG", value_name = "FILE")]
    pub(crate) mesh_config: Option<PathBuf>,
    /// Istio's MeshNetworks: a file with the settings themselves, or a ConfigMap with the key `meshNetworks`
    #[arg(long, env = "PILOTFISH_MESH_NETWORKS", value_name = "FILE")]
    pub(crate) mesh_networks: Option<PathBuf>,
}

/// Files and clusters that objects are read from.
#[derive(Clone, Debug)]
pub(crate) struct SourceSettings {
    /// Folders and files with objects.
    pub(crate) paths: Vec<PathBuf>,
    /// The live cluster; `None` where none is read.
    pub(crate) kubernetes: Option<ClientSettings>,
    pub(crate) root_namespace: String,
    /// Without its tags, which a cluster has.
    pub(crate) revision: Revision,
    pub(crate) mesh_config: Option<PathBuf>,
    pub(crate) mesh_networks: Option<PathBuf>,
}

impl SourceSettings {
    /// True if files are read.
    pub(crate) fn has_files(&self) -> bool {
        !self.paths.is_empty() || self.mesh_config.is_some() || self.mesh_networks.is_some()
    }

    /// True if there is any source of objects.
    pub(crate) fn has_any(&self) -> bool {
        self.has_files() || self.kubernetes.is_some()
    }
}

impl SourceArgs {
    /// The paths that are to be waited for.
    pub(crate) fn awaited(&self) -> &[PathBuf] {
        if self.wait_for_paths { &self.paths } else { &[] }
    }

    pub(super) fn check(self, has_live: bool, check: &mut Check) -> SourceSettings {
        let kubernetes = self.kubernetes || self.kubeconfig.is_some();
        if self.paths.is_empty() && !kubernetes && !has_live {
            check.mistake(
                "PATH: name at least one folder or file with YAML, as in `pilotfish serve ./mesh`, a cluster \
                 with --kubernetes, a registry with --registry, or services that register themselves with \
                 --registration-address",
            );
        }
        let files = [
            ("--mesh-config", &self.mesh_config),
            ("--mesh-networks", &self.mesh_networks),
            ("--kubeconfig", &self.kubeconfig),
        ];
        let files = files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
        for (flag, path) in files.chain(self.paths.iter().map(|path| ("PATH", path))) {
            check.exists(flag, path);
        }
        let root_namespace =
            check.parse("--root-namespace", self.root_namespace.as_deref(), parse::namespace);
        let revision = check.parse("--revision", self.revision.as_deref(), parse::revision);
        let revision = revision.map(Revision::named).unwrap_or_default();
        SourceSettings {
            // Only a cluster has tags.
            revision: if kubernetes { revision } else { revision.with_tags(BTreeSet::new()) },
            kubernetes: kubernetes.then_some(ClientSettings { kubeconfig: self.kubeconfig }),
            root_namespace: root_namespace
                .unwrap_or_else(|| RegistrySettings::default().system_namespace.to_string()),
            paths: self.paths,
            mesh_config: self.mesh_config,
            mesh_networks: self.mesh_networks,
        }
    }
}
