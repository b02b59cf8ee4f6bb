//! Table of the registries for `--registries` and `--registry`. A new registry is one more line here.

use pilotfish_consul::CONSUL;
use pilotfish_dns::DNS;
use pilotfish_etcd::ETCD;
use pilotfish_eureka::EUREKA;
use pilotfish_mcp::MCP;
use pilotfish_nacos::NACOS;
use pilotfish_polaris::POLARIS;
use pilotfish_registry::{KUBERNETES, REGISTRATION, RegistryTable, RegistryType, SERVICE_ENTRY};
use pilotfish_zookeeper::ZOOKEEPER;

/// Registries in order of precedence, if two have a service with the same host.
pub(crate) const REGISTRIES: &[&RegistryType] = &[
    &KUBERNETES,
    &SERVICE_ENTRY,
    &REGISTRATION,
    &CONSUL,
    &DNS,
    &ETCD,
    &EUREKA,
    &MCP,
    &NACOS,
    &POLARIS,
    &ZOOKEEPER,
];

/// Returns the table with additional registries at its end, for programs with their own.
#[must_use]
pub(crate) fn table_with(more: &[&'static RegistryType]) -> RegistryTable {
    RegistryTable::new(REGISTRIES.iter().chain(more).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registry::OptionSpec;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    /// What each page tells, in this order.
    const HEADINGS: [&str; 5] =
        ["## Start it", "## What maps to what", "## Settings", "## When it goes away", "## Limits"];
    /// Pages that are about no single registry.
    const OTHERS: [&str; 1] = ["adapter.md"];

    fn docs() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"))
    }

    /// Registries that have a page: those that are named with an address.
    fn described() -> impl Iterator<Item = (&'static RegistryType, String)> {
        let with_address = REGISTRIES.iter().copied().filter(|entry| !entry.address.is_empty());
        with_address.map(|entry| (entry, format!("{}.md", entry.name.to_ascii_lowercase())))
    }

    /// The rows of the table below a heading, without its head.
    fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
        let below = page.split_once(heading).map_or("", |(_, below)| below);
        let section = below.split("\n## ").next().unwrap_or_default();
        let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
        lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
    }

    #[test]
    fn every_registry_has_a_page_and_every_page_a_registry() {
        let pages: BTreeSet<String> = fs::read_dir(docs().join("registries"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        let expected =
            described().map(|(_, page)| page).chain(OTHERS.map(str::to_owned)).collect::<BTreeSet<_>>();
        let others: BTreeSet<String> = OTHERS.map(str::to_owned).into();
        assert_eq!(&pages | &others, expected);
        let overview = fs::read_to_string(docs().join("registries.md")).unwrap();
        for (entry, page) in described() {
            assert!(
                overview.contains(&format!("(registries/{page})")),
                "docs/registries.md does not lead to {page}"
            );
            assert!(
                overview.contains(&format!("`{}={}`", entry.name.to_ascii_lowercase(), entry.address)),
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn pages_have_the_same_headings_and_the_options_of_the_code() {
        for (entry, page) in described() {
            let text = fs::read_to_string(docs().join("registries").join(&page)).unwrap();
            let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
            assert_eq!(headings, HEADINGS, "{page}");
            let written: BTreeSet<(String, String)> = rows(&text, "## Settings")
                .iter()
                .map(|row| {
                    (row[0].trim_matches('`').to_owned(), row[1].trim_matches('`').replace("\\|", "|"))
                })
                .collect();
            let known: BTreeSet<(String, String)> = entry.all_options().map(as_written).collect();
            assert_eq!(written, known, "{page}");
            let count = entry.all_options().count();
            assert_eq!(known.len(), count, "{} has an option twice", entry.name);
        }
    }

    fn as_written(option: &OptionSpec) -> (String, String) {
        (option.name.to_owned(), option.value.to_owned())
    }

    #[test]
    fn help_names_every_registry() {
        let mut command = <crate::cli::Cli as clap::CommandFactory>::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_long_help().to_string();
        for (entry, _) in described() {
            let name = format!("  {}={}", entry.name.to_ascii_lowercase(), entry.address);
            let line = help.lines().find(|line| line.starts_with(&name));
            assert!(line.is_some_and(|line| line.contains(entry.about)), "{name} in {help}");
        }
    }
}
