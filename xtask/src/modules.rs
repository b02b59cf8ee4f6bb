//! Public modules of each library crate.
//!
//! A public module is a promise to every other crate, so a new one needs a line here and a reviewer. Prefer a
//! private module and `pub use` of its public items.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::workspace;

/// Allowed `pub mod`s in a crate's `lib.rs`.
type Table = &'static [(&'static str, &'static [&'static str])];

const PUBLIC: Table = &[
    ("pilotfish", &["cli"]),
    ("pilotfish-access", &[]),
    ("pilotfish-admin", &[]),
    ("pilotfish-admin-state", &["istioctl"]),
    ("pilotfish-admission", &[]),
    ("pilotfish-api", &["v1"]),
    ("pilotfish-attack", &[]),
    (
        "pilotfish-bench",
        &["broadcast", "certificates", "compare", "fleet", "mesh", "report", "scale", "server", "world"],
    ),
    ("pilotfish-ca", &[]),
    ("pilotfish-cli", &[]),
    ("pilotfish-commands", &[]),
    ("pilotfish-compare", &[]),
    ("pilotfish-config", &["status"]),
    ("pilotfish-connect", &[]),
    ("pilotfish-control-plane", &["control", "followers", "history", "likely_causes", "record", "resources"]),
    ("pilotfish-consul", &[]),
    ("pilotfish-consul-api", &[]),
    ("pilotfish-crd", &[]),
    ("pilotfish-dashboard", &[]),
    ("pilotfish-dns", &[]),
    ("pilotfish-duration", &[]),
    ("pilotfish-etcd", &[]),
    ("pilotfish-etcd-client", &["proto"]),
    ("pilotfish-eureka", &[]),
    ("pilotfish-eureka-api", &[]),
    ("pilotfish-eureka-wire", &[]),
    ("pilotfish-explain", &[]),
    ("pilotfish-files", &[]),
    ("pilotfish-fuzz", &[]),
    ("pilotfish-gateway-deployer", &[]),
    ("pilotfish-grpc-framing", &[]),
    ("pilotfish-identity", &[]),
    ("pilotfish-jwt", &[]),
    ("pilotfish-kube", &["access_review", "client", "remote", "request", "token_review", "watch"]),
    (
        "pilotfish-kube-writer",
        &[
            "auto_registration",
            "ca_roots",
            "ca_secret",
            "events",
            "lease",
            "service_exports",
            "signing_requests",
            "status",
        ],
    ),
    ("pilotfish-listener", &[]),
    (
        "pilotfish-load",
        &["connection", "content", "mesh", "messages", "reader", "server", "session", "stats"],
    ),
    ("pilotfish-log", &[]),
    ("pilotfish-mcp", &["testing"]),
    ("pilotfish-model", &["topology"]),
    ("pilotfish-nacos", &[]),
    ("pilotfish-nacos-api", &[]),
    ("pilotfish-nacos-wire", &[]),
    ("pilotfish-node", &["bootstrap", "injection", "interception"]),
    ("pilotfish-otlp", &["message"]),
    ("pilotfish-polaris", &[]),
    ("pilotfish-polaris-sync", &["reconcile"]),
    ("pilotfish-proto", &["istio", "istio_api", "rules"]),
    ("pilotfish-protogen", &["istio"]),
    ("pilotfish-registration", &["limits", "testing"]),
    ("pilotfish-registration-api", &["v1"]),
    ("pilotfish-registration-checks", &[]),
    ("pilotfish-registration-client", &[]),
    ("pilotfish-registration-etcd", &[]),
    ("pilotfish-registration-redb", &[]),
    ("pilotfish-registration-server", &[]),
    ("pilotfish-registration-source", &[]),
    ("pilotfish-registry", &["testing"]),
    ("pilotfish-runtime", &[]),
    ("pilotfish-session", &[]),
    (
        "pilotfish-testkit",
        &["cases", "consul", "dump", "istiod", "istioctl", "live", "oracle", "polaris", "real"],
    ),
    ("pilotfish-translate", &[]),
    ("pilotfish-webhook", &["inject"]),
    ("pilotfish-xds", &[]),
    ("pilotfish-zookeeper", &[]),
];

/// Checks the library crates of the workspace. Returns differences from the table, one sentence each.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn check() -> Result<Vec<String>> {
    Ok(findings(PUBLIC, &libraries(&workspace::packages()?)?))
}

/// Text of each `lib.rs`, by the name of the crate.
fn libraries(packages: &BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, String>> {
    let mut libraries = BTreeMap::new();
    for (name, folder) in packages {
        let path = workspace::root().join(folder).join("src").join("lib.rs");
        if path.exists() {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            libraries.insert(name.clone(), text);
        }
    }
    Ok(libraries)
}

fn findings(table: Table, libraries: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in libraries {
        let Some((_, listed)) = table.iter().find(|row| row.0 == name) else {
            found.push(format!("{name} has no row in the table of public modules (xtask/src/modules.rs)"));
            continue;
        };
        let public = public_modules(text);
        let new = public.iter().filter(|module| !listed.contains(module));
        found.extend(new.map(|module| {
            format!(
                "{name} has a new `pub mod {module}`: make it private, or list it in xtask/src/modules.rs"
            )
        }));
        let gone = listed.iter().filter(|module| !public.contains(module));
        found.extend(gone.map(|module| {
            format!("{name} has no `pub mod {module}` any more: take it out of xtask/src/modules.rs")
        }));
    }
    let without_crate = table.iter().filter(|row| !libraries.contains_key(row.0));
    found.extend(without_crate.map(|row| format!("there is no crate {} (xtask/src/modules.rs)", row.0)));
    found
}

/// Public modules at the top level of a `lib.rs`. Modules within an inline module are indented.
fn public_modules(text: &str) -> Vec<&str> {
    let declared = text.lines().filter_map(|line| line.strip_prefix("pub mod "));
    declared.filter_map(|rest| rest.split([';', ' ', '{']).next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table = &[("fish", &["fins", "gills"])];

    fn of(crates: &[(&str, &str)]) -> Vec<String> {
        let libraries = crates.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        findings(TABLE, &libraries)
    }

    #[test]
    fn listed_modules_pass_whatever_else_the_file_holds() {
        let text = "//! pub mod x;\nmod bones;\npub mod fins;\npub mod gills {\n    pub mod left {}\n}\npub(crate) mod tail;\n\
                    pub use bones::Bone;\n";
        assert!(of(&[("fish", text)]).is_empty());
    }

    #[test]
    fn a_new_public_module_is_found() {
        let found = of(&[("fish", "pub mod fins;\npub mod gills;\npub mod tail;\n")]);
        assert_eq!(
            found,
            ["fish has a new `pub mod tail`: make it private, or list it in xtask/src/modules.rs"]
        );
    }

    #[test]
    fn a_listed_module_that_is_not_public_any_more_is_found() {
        let found = of(&[("fish", "pub mod fins;\nmod gills;\n")]);
        assert_eq!(found, ["fish has no `pub mod gills` any more: take it out of xtask/src/modules.rs"]);
    }

    #[test]
    fn crates_and_rows_must_match() {
        let found = of(&[("bird", "pub mod wings;\n")]);
        assert_eq!(
            found,
            [
                "bird has no row in the table of public modules (xtask/src/modules.rs)",
                "there is no crate fish (xtask/src/modules.rs)"
            ]
        );
    }
}
