//! WorkloadEntries of workloads that connect.

use super::check::Check;
use super::parse;
use clap::Args;
use pilotfish_kube_writer::auto_registration::{AddressRule, RegistrationFeatures};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Auto-registration")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AutoRegistrationArgs {
    /// Rights of connected workloads on WorkloadEntries: all, auto-registration (create their own from a
    /// WorkloadGroup), health-checks (report their health to existing ones), off [default: all]
    #[arg(long, env = "PILOTFISH_WORKLOAD_ENTRIES", value_name = "MODE")]
    pub(crate) workload_entries: Option<String>,
    /// Time that such a WorkloadEntry is kept after its workload disconnected [default: 10s]
    #[arg(long, env = "PILOTFISH_WORKLOAD_ENTRY_GRACE_PERIOD", value_name = "DURATION")]
    pub(crate) workload_entry_grace_period: Option<String>,
    /// Address of a registered workload: claimed (the first of its node, if it can be a workload's
    /// own), peer (only the one that it connects from) [default: claimed]
    #[arg(long, env = "PILOTFISH_WORKLOAD_ENTRY_ADDRESS", value_name = "RULE")]
    pub(crate) workload_entry_address: Option<String>,
}

/// Changes of WorkloadEntries for workloads that connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AutoRegistrationSettings {
    pub(crate) wanted: RegistrationFeatures,
    /// Time that the entry of a disconnected workload is kept.
    pub(crate) grace_period: Duration,
}

impl AutoRegistrationArgs {
    pub(super) fn check(self, check: &mut Check) -> Option<AutoRegistrationSettings> {
        const GRACE: &str = "--workload-entry-grace-period";
        let grace = check.parse(GRACE, self.workload_entry_grace_period.as_deref(), parse::duration);
        let mode = self.workload_entries.as_deref().unwrap_or("all");
        let rule = self.workload_entry_address.as_deref();
        let address = check.parse("--workload-entry-address", rule, address).unwrap_or_default();
        let wanted = check.parse("--workload-entries", Some(mode), wanted).flatten()?;
        let wanted = RegistrationFeatures { address, ..wanted };
        Some(AutoRegistrationSettings { wanted, grace_period: grace.unwrap_or(Duration::from_secs(10)) })
    }
}

fn wanted(mode: &str) -> Result<Option<RegistrationFeatures>, String> {
    let of = |registration, health_checks| {
        Ok(Some(RegistrationFeatures { registration, health_checks, address: AddressRule::default() }))
    };
    match mode {
        "all" => of(true, true),
        "auto-registration" => of(true, false),
        "health-checks" => of(false, true),
        "off" => Ok(None),
        _ => Err("not one of auto-registration, health-checks, all and off".into()),
    }
}

fn address(rule: &str) -> Result<AddressRule, String> {
    match rule {
        "claimed" => Ok(AddressRule::Claimed),
        "peer" => Ok(AddressRule::Peer),
        _ => Err("not one of claimed and peer".into()),
    }
}
