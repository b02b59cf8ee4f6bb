//! `pilotfish services`.

use super::made_by;
use super::shown::{Listed, and_more, good};
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::table::{Cell, Table};
use clap::Args;
use pilotfish_api::v1::{Page, ServiceRow};
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish services                         all of them
  pilotfish services catalog                 those whose host contains this
  pilotfish services -n shop                 those of a namespace
  pilotfish services --without-endpoints     those that nobody answers for
  pilotfish services -o json | jq '.items[].host'";

/// Arguments of `pilotfish services`.
#[derive(Args, Clone, Debug)]
pub struct Services {
    /// A part of the host name
    host: Option<String>,
    /// Only services of a namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only services of a type of registry: Kubernetes, ServiceEntry, Consul, ...
    #[arg(long, value_name = "TYPE")]
    registry: Option<String>,
    /// Only services that have no healthy endpoint
    #[arg(long)]
    without_endpoints: bool,
    #[command(flatten)]
    list: Listed,
}

impl Services {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let mut query = Vec::new();
        query.extend(self.host.as_deref().map(|host| ("host", host)));
        query.extend(self.namespace.as_deref().map(|namespace| ("namespace", namespace)));
        query.extend(self.registry.as_deref().map(|registry| ("registry", registry)));
        query.extend(self.without_endpoints.then_some(("without_endpoints", "true")));
        self.list.run("services", &query, text, good).await
    }
}

fn text(page: &Page<ServiceRow>, screen: &Screen) -> String {
    let mut table = Table::new([
        "host",
        "namespace",
        "registry",
        "ports",
        "healthy",
        "resolution",
        "visible to",
        "made by",
    ]);
    for service in &page.items {
        let ports = service.ports.iter().map(|port| format!("{}/{}", port.number, port.protocol));
        let healthy = format!("{}/{}", service.healthy, service.endpoints);
        let visible = match service.export_to.as_slice() {
            [] => "default".to_owned(),
            [all] if all == "*" => "all".to_owned(),
            [nobody] if nobody == "~" => "nobody".to_owned(),
            namespaces => namespaces.join(","),
        };
        let colour = match (service.healthy, service.endpoints) {
            (0, _) => Colour::Bad,
            (healthy, all) if healthy < all => Colour::Doubtful,
            _ => Colour::Good,
        };
        table.row([
            service.host.as_str().into(),
            service.namespace.as_str().into(),
            service.registry.as_str().into(),
            ports.collect::<Vec<_>>().join(",").into(),
            Cell::coloured(healthy, colour),
            service.resolution.as_str().into(),
            visible.into(),
            made_by(&service.provenance).into(),
        ]);
    }
    if table.is_empty() {
        return "there is no service that matches\n".to_owned();
    }
    table.text(screen) + &and_more(page.items.len(), page.total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::Provenance;
    use pilotfish_api::v1::ServicePort;

    #[test]
    fn a_service_is_a_line() {
        let service = ServiceRow {
            host: "web.shop.svc.cluster.local".into(),
            namespace: "shop".into(),
            registry: "Kubernetes".into(),
            ports: vec![ServicePort { name: "http".into(), number: 80, protocol: "HTTP".into() }],
            resolution: "STATIC".into(),
            export_to: vec!["*".into()],
            endpoints: 2,
            healthy: 1,
            provenance: Provenance {
                kind: "Service".into(),
                namespace: "shop".into(),
                name: "web".into(),
                ..Default::default()
            },
            ..ServiceRow::default()
        };
        let page = Page { items: vec![service], total: 1, ..Page::default() };
        let text = text(&page, &Screen::plain());
        assert!(text.ends_with("80/HTTP  1/2      STATIC      all         Service shop/web\n"), "{text}");
    }
}
