//! Which registries run, and for what.

use super::check::Check;
use clap::Args;
use pilotfish_registry::RegistrySettings;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Registries")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RegistriesArgs {
    /// Registries to run, by name [default: Kubernetes,ServiceEntry]
    #[arg(long, env = "PILOTFISH_REGISTRIES", value_name = "NAME", value_delimiter = ',')]
    pub(crate) registries: Vec<String>,
    /// The id of the cluster that the files describe: the CLUSTER_ID of its proxies [default: Kubernetes]
    #[arg(long, env = "PILOTFISH_CLUSTER_ID", value_name = "ID")]
    pub(crate) cluster_id: Option<String>,
    /// The domain of Kubernetes Services' host names [default: cluster.local]
    #[arg(long, env = "PILOTFISH_DOMAIN", value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
}

/// Which registries run, and for what.
#[derive(Clone, Debug)]
pub(crate) struct RegistriesSettings {
    /// Names of the table of registries.
    pub(crate) names: Vec<String>,
    /// What each of them gets.
    pub(crate) settings: RegistrySettings,
}

impl RegistriesArgs {
    pub(super) fn check(self, check: &mut Check) -> RegistriesSettings {
        let defaults = RegistrySettings::default();
        let domain = check.parse("--domain", self.domain.as_deref(), |text| {
            let parsed = pilotfish_model::Hostname::parse(text);
            parsed.map(|_| Arc::from(text)).map_err(|error| error.to_string())
        });
        let settings = RegistrySettings {
            cluster: self.cluster_id.map_or(defaults.cluster, Into::into),
            domain: domain.unwrap_or_else(|| "cluster.local".into()),
            ..RegistrySettings::default()
        };
        RegistriesSettings { names: names(self.registries, check), settings }
    }
}

fn names(names: Vec<String>, check: &mut Check) -> Vec<String> {
    let names = if names.is_empty() { vec!["Kubernetes".into(), "ServiceEntry".into()] } else { names };
    if let Err(error) = pilotfish_registry::select(&names) {
        check.mistake(format!("--registries: {error}"));
    }
    names
}
