//! State of registries: `pilotfish registries` for a running control plane.

use super::shown::{Shown, good};
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::table::{Cell, Table};
use crate::time::about;
use pilotfish_api::Registry;
use pilotfish_api::counted;
use pilotfish_api::v1::{GuardAcceptance, Page};
use std::fmt::Write;
use std::process::ExitCode;

/// Shows the registries of a running control plane, once or repeatedly. First makes the source named `accept`
/// accept the data that its guard holds back.
///
/// # Errors
/// If the request fails, or that source holds nothing back.
pub async fn show(shown: &Shown, accept: Option<&str>) -> Result<ExitCode, CliError> {
    if let Some(source) = accept {
        let question = GuardAcceptance { source: source.to_owned() };
        let _: GuardAcceptance = shown.client().post("guard", &question).await?;
    }
    shown.list("registries", &[], usize::MAX, text, good).await
}

fn text(page: &Page<Registry>, screen: &Screen) -> String {
    let mut table = Table::new(["registry", "state", "services", "endpoints", "workloads", "lag", "since"]);
    for registry in &page.items {
        let (state, colour) = match (&registry.failure, registry.synced) {
            (Some(_), true) => ("failing", Colour::Bad),
            (Some(_), false) => ("unreadable", Colour::Bad),
            (None, true) if unusable(registry) > 0 => ("incomplete", Colour::Doubtful),
            (None, true) => ("synced", Colour::Good),
            (None, false) => ("pending", Colour::Doubtful),
        };
        let lag = registry.source.as_ref().and_then(|source| source.lag_seconds);
        table.row([
            registry.name.as_str().into(),
            Cell::coloured(state, colour),
            registry.services.to_string().into(),
            registry.endpoints.to_string().into(),
            registry.workloads.to_string().into(),
            lag.map(about).unwrap_or_default().into(),
            registry.failing_since.clone().unwrap_or_default().into(),
        ]);
    }
    let mut out = table.text(screen);
    for registry in &page.items {
        if let Some(failure) = &registry.failure {
            let line = format!("{} cannot be read: {failure}", registry.name);
            let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
        }
        if let Some(held) = registry.source.as_ref().and_then(|source| source.held.as_ref()) {
            let line = format!("{}: {held}", registry.name);
            let _ = writeln!(out, "{}", screen.paint(&line, Colour::Doubtful));
        }
        if let Some(source) = registry.source.as_ref().filter(|source| source.problem_count > 0) {
            let first = source.problems.first().map(|first| format!(", such as {first}")).unwrap_or_default();
            let entries = counted(source.problem_count, "entry");
            let line = format!("{}: {entries} cannot be used{first}", registry.name);
            let _ = writeln!(out, "{}", screen.paint(&line, Colour::Doubtful));
        }
        if !registry.losers.is_empty() {
            let _ = writeln!(
                out,
                "{} loses {} to other registries",
                registry.name,
                counted(registry.losers.len(), "service")
            );
        }
    }
    out
}

/// Number of entries that cannot be used.
fn unusable(registry: &Registry) -> usize {
    registry.source.as_ref().map_or(0, |source| source.problem_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_with_unusable_entries_is_incomplete_and_names_the_first() {
        let source = pilotfish_api::RegistrySource {
            problem_count: 2,
            problems: vec!["/a: no JSON".into(), "/b: no port".into()],
            ..Default::default()
        };
        let registry =
            Registry { name: "Etcd/east".into(), synced: true, source: Some(source), ..Registry::default() };
        let page = Page { items: vec![registry], total: 1, ..Page::default() };
        let text = text(&page, &Screen::plain());
        assert!(text.contains("Etcd/east  incomplete  0"), "{text}");
        assert!(text.ends_with("Etcd/east: 2 entries cannot be used, such as /a: no JSON\n"), "{text}");
    }

    #[test]
    fn a_failing_registry_says_why() {
        let registry = Registry {
            name: "Consul/east".into(),
            synced: true,
            failure: Some("connection refused".into()),
            services: 3,
            ..Registry::default()
        };
        let page = Page { items: vec![registry], total: 1, ..Page::default() };
        let text = text(&page, &Screen::plain());
        assert!(text.contains("Consul/east  failing  3"), "{text}");
        assert!(text.ends_with("Consul/east cannot be read: connection refused\n"), "{text}");
    }
}
