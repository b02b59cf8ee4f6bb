//! `pilotfish endpoints`.

use super::made_by;
use super::shown::{Listed, and_more, good};
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::table::{Cell, Table};
use clap::Args;
use pilotfish_api::v1::{EndpointRow, Page};
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish endpoints                        all of them
  pilotfish endpoints web.shop.svc.cluster.local
  pilotfish endpoints web                    a short name, or a part of a host
  pilotfish endpoints --health unhealthy     those that are not ready
  pilotfish why endpoint 10.0.0.7            which services an address is in, and which kept it out";

/// Arguments of `pilotfish endpoints`.
#[derive(Args, Clone, Debug)]
pub struct Endpoints {
    /// A host, or a part of one
    host: Option<String>,
    /// Only endpoints of services of a namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only endpoints in a state: healthy, unhealthy, draining, terminating, unknown
    #[arg(long, value_name = "STATE")]
    health: Option<String>,
    /// Only endpoints of a registry: Kubernetes, Consul/east, ...
    #[arg(long, value_name = "NAME")]
    registry: Option<String>,
    #[command(flatten)]
    list: Listed,
}

impl Endpoints {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let mut query = Vec::new();
        query.extend(self.host.as_deref().map(|host| ("host", host)));
        query.extend(self.namespace.as_deref().map(|namespace| ("namespace", namespace)));
        query.extend(self.health.as_deref().map(|health| ("health", health)));
        query.extend(self.registry.as_deref().map(|registry| ("registry", registry)));
        self.list.run("endpoints", &query, text, good).await
    }
}

fn text(page: &Page<EndpointRow>, screen: &Screen) -> String {
    let mut table = Table::new([
        "host",
        "address",
        "port name",
        "health",
        "locality",
        "network",
        "weight",
        "tls",
        "registry",
        "workload",
        "made by",
    ]);
    for endpoint in &page.items {
        let colour = match endpoint.health.as_str() {
            "Healthy" => Colour::Good,
            "Unknown" | "Draining" => Colour::Doubtful,
            _ => Colour::Bad,
        };
        let weight = if endpoint.weight == 0 { String::new() } else { endpoint.weight.to_string() };
        table.row([
            endpoint.host.as_str().into(),
            address(&endpoint.address, endpoint.port).into(),
            endpoint.port_name.as_str().into(),
            Cell::coloured(endpoint.health.as_str(), colour),
            endpoint.locality.as_str().into(),
            endpoint.network.as_str().into(),
            weight.into(),
            endpoint.tls.as_str().into(),
            endpoint.registry.as_str().into(),
            endpoint.workload.as_str().into(),
            made_by(&endpoint.provenance).into(),
        ]);
    }
    if table.is_empty() {
        return "there is no endpoint that matches\n".to_owned();
    }
    table.text(screen) + &and_more(page.items.len(), page.total)
}

fn address(address: &str, port: u32) -> String {
    match (port, address.contains(':')) {
        (0, _) => address.to_owned(),
        (port, true) => format!("[{address}]:{port}"),
        (port, false) => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn addresses_of_all_families_have_their_port() {
        let all =
            [("10.0.0.1", 80), ("fd00::1", 80), ("/run/a.sock", 0)].map(|(a, port)| super::address(a, port));
        assert_eq!(all, ["10.0.0.1:80", "[fd00::1]:80", "/run/a.sock"]);
    }
}
