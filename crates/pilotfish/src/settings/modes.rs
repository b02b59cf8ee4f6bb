//! Settings that are one of a few words.

use super::Check;
use pilotfish_kube_writer::auto_registration::RegistrationFeatures;
use pilotfish_registry::MultiClusterServices;

impl Check {
    pub(super) fn workload_entries(&mut self, text: Option<&str>) -> Option<RegistrationFeatures> {
        let (registration, health_checks) = match text.unwrap_or("all") {
            "all" => (true, true),
            "auto-registration" => (true, false),
            "health-checks" => (false, true),
            "off" => return None,
            other => {
                let known = "not one of auto-registration, health-checks, all and off";
                self.wrong("--workload-entries", other, known);
                return None;
            }
        };
        Some(RegistrationFeatures { registration, health_checks })
    }

    pub(super) fn multi_cluster_services(&mut self, text: Option<String>) -> MultiClusterServices {
        let Some(text) = text else { return MultiClusterServices::default() };
        MultiClusterServices::parse(&text).unwrap_or_else(|| {
            self.wrong(
                "--multi-cluster-services",
                &text,
                "not one of off, discovery, hosts and cluster-local",
            );
            MultiClusterServices::default()
        })
    }
}
