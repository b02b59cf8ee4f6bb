//! Names in statistics, by the templates of the mesh config.

use pilotfish_model::{Port, Provider};

/// What the template of a statistic's name speaks of.
#[derive(Clone, Copy, Debug)]
pub struct StatName<'a> {
    /// The host.
    pub host: &'a str,
    /// The service's short name.
    pub name: &'a str,
    /// The service's namespace.
    pub namespace: &'a str,
    /// The registry of the service.
    pub provider: Provider,
    /// The subset; empty for none.
    pub subset: &'a str,
    /// The service port.
    pub port: &'a Port,
    /// The workload port; 0 for none.
    pub target_port: u32,
}

impl StatName<'_> {
    /// The template filled in.
    #[must_use]
    pub fn fill(&self, template: &str) -> String {
        let short = match self.provider {
            Provider::Kubernetes => format!("{}.{}", self.name, self.namespace),
            _ => self.host.to_owned(),
        };
        template
            .replace("%SERVICE%", &short)
            .replace("%SERVICE_NAME%", self.name)
            .replace("%SERVICE_FQDN%", self.host)
            .replace("%SUBSET_NAME%", self.subset)
            .replace("%TARGET_PORT%", &self.target_port.to_string())
            .replace("%SERVICE_PORT%", &self.port.number.to_string())
            .replace("%SERVICE_PORT_NAME%", &self.port.name)
    }
}
