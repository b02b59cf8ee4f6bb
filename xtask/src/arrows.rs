//! Arrows between the folders of crates: allowed dependencies, and crates that must not be reachable.
//!
//! The tables below are the design; `cargo metadata` has the actual dependencies. Dev-dependencies are not
//! checked, since they are not shipped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace;

/// Dependency rule of a folder of crates.
struct Folder {
    path: &'static str,
    /// Other folders whose crates its crates may name.
    may: &'static [&'static str],
    /// Crates of the folder that the others in it may name.
    shared: &'static [&'static str],
    /// Crates that no crate of the folder may reach, directly or indirectly.
    never: &'static [&'static str],
}

/// Dependency rule of one crate, beyond that of its folder.
struct Rule {
    name: &'static str,
    /// Crates that it must not reach, directly or indirectly.
    never: &'static [&'static str],
    /// Crates that its manifest must not name, but that it reaches through a dependency.
    never_named: &'static [&'static str],
}

/// An arrow that the table of folders forbids and that is there all the same.
struct Exception {
    from: &'static str,
    to: &'static str,
    /// Shown when the arrow is gone and the row can go too.
    reason: &'static str,
}

/// The folders in the order in which data flows: no folder may use one below it.
const FOLDERS: &[Folder] = &[
    Folder {
        path: "crates/core",
        may: &[],
        shared: &["pilotfish-config", "pilotfish-duration", "pilotfish-model"],
        never: &["axum", "envoy-types", "h2", "hyper", "kube", "tonic"],
    },
    Folder {
        path: "crates/lib",
        may: &[],
        shared: &[
            "pilotfish-access",
            "pilotfish-admission",
            "pilotfish-connect",
            "pilotfish-identity",
            "pilotfish-runtime",
        ],
        never: &["envoy-types", "k8s-openapi", "kube"],
    },
    Folder {
        path: "crates/sources",
        may: &["crates/core", "crates/lib"],
        shared: &[],
        never: &["envoy-types"],
    },
    Folder {
        path: "crates/registries",
        may: &["crates/core", "crates/lib"],
        shared: &["pilotfish-registry", "pilotfish-session"],
        never: &["envoy-types", "k8s-openapi", "kube"],
    },
    Folder {
        path: "crates/registration",
        may: &["crates/core", "crates/lib"],
        shared: &["pilotfish-registration", "pilotfish-registration-api", "pilotfish-registration-server"],
        never: &["envoy-types", "k8s-openapi", "kube"],
    },
    Folder {
        path: "crates/xds",
        may: &["crates/core", "crates/lib"],
        shared: &["pilotfish-translate"],
        never: &["k8s-openapi", "kube"],
    },
    Folder {
        path: "crates/cluster",
        may: &["crates/core", "crates/lib", "crates/sources"],
        shared: &["pilotfish-kube-writer", "pilotfish-webhook"],
        never: &["envoy-types"],
    },
    // The contract of registries, but no product: `never` of the rule below.
    Folder {
        path: "crates/control-plane",
        may: &[
            "crates/core",
            "crates/lib",
            "crates/sources",
            "crates/registries",
            "crates/xds",
            "crates/cluster",
        ],
        shared: &[],
        never: &["clap", "envoy-types", "insta", "proptest"],
    },
    Folder {
        path: "crates/operate",
        may: &[
            "crates/core",
            "crates/lib",
            "crates/sources",
            "crates/registries",
            "crates/registration",
            "crates/xds",
            "crates/cluster",
            "crates/control-plane",
        ],
        shared: &[
            "pilotfish-admin",
            "pilotfish-admin-state",
            "pilotfish-cli",
            "pilotfish-compare",
            "pilotfish-dashboard",
            "pilotfish-load",
        ],
        never: &["envoy-types"],
    },
    Folder {
        path: "crates/pilotfish",
        may: &[
            "crates/core",
            "crates/lib",
            "crates/sources",
            "crates/registries",
            "crates/registration",
            "crates/xds",
            "crates/cluster",
            "crates/control-plane",
            "crates/operate",
        ],
        shared: &[],
        never: &["insta", "proptest"],
    },
    // In no binary that ships.
    Folder {
        path: "dev",
        may: &[
            "crates/core",
            "crates/lib",
            "crates/sources",
            "crates/registries",
            "crates/registration",
            "crates/xds",
            "crates/cluster",
            "crates/operate",
        ],
        shared: &["pilotfish-bench", "pilotfish-testkit"],
        never: &[],
    },
    Folder { path: "xtask", may: &[], shared: &[], never: &["serde-saphyr", "tokio"] },
];

const EXCEPTIONS: &[Exception] = &[
    Exception {
        from: "pilotfish-mcp",
        to: "pilotfish-registry",
        reason: "a source that users name with --registry implements the contract of registries",
    },
    Exception {
        from: "pilotfish-registration-source",
        to: "pilotfish-registry",
        reason: "registered services implement the contract of registries",
    },
    Exception {
        from: "pilotfish-nacos-api",
        to: "pilotfish-registry",
        reason: "a service of Nacos gets the host that the catalog of registries gives it",
    },
    Exception {
        from: "pilotfish-registration-source",
        to: "pilotfish-session",
        reason: "registered services are a session of their own",
    },
];

const NETWORK: &[&str] = &["tonic", "hyper", "h2", "axum", "kube", "tower-http", "reqwest"];

/// Rule of a crate that reaches, but does not name, some crates.
const fn rule(name: &'static str, never_named: &'static [&'static str]) -> Rule {
    Rule { name, never: &[], never_named }
}

/// Rules beyond those of folders. A crate without a row has none.
const RULES: &[Rule] = &[
    Rule { name: "pilotfish-model", never: &["notify", "prost", "serde-saphyr", "tokio"], never_named: &[] },
    Rule { name: "pilotfish-config", never: &["notify", "prost", "tokio"], never_named: &[] },
    // For `pilotfish crds` and tests only.
    Rule { name: "pilotfish-crd", never: &["notify", "prost", "tokio"], never_named: &[] },
    Rule { name: "pilotfish-proto", never: &["notify"], never_named: &["tokio"] },
    Rule { name: "pilotfish-api", never: &["prost", "tokio"], never_named: &[] },
    // Plain utilities, independent of products and of the resulting data.
    Rule {
        name: "pilotfish-runtime",
        never: &["axum", "h2", "hyper", "notify", "prost", "tonic"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-admission",
        never: &["axum", "h2", "hyper", "notify", "prost", "rustls", "serde-saphyr", "tonic"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-identity",
        never: &["axum", "h2", "hyper", "notify", "prost", "serde-saphyr", "tonic"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-ca",
        never: &["axum", "h2", "hyper", "notify", "prost", "serde-saphyr", "tonic"],
        never_named: &["tokio"],
    },
    Rule {
        name: "pilotfish-access",
        never: &["axum", "h2", "hyper", "notify", "prost", "tonic"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-grpc-framing",
        never: &["axum", "h2", "hyper", "prost", "tokio", "tonic"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-jwt",
        never: &["notify", "prost"],
        never_named: &["axum", "h2", "hyper", "tonic"],
    },
    // hyper includes HTTP/2 as soon as one crate of the workspace enables it.
    Rule {
        name: "pilotfish-listener",
        never: &["notify", "prost", "serde-saphyr", "tonic"],
        never_named: &["h2"],
    },
    // Connections of clients, whatever they speak to.
    Rule {
        name: "pilotfish-connect",
        never: &["notify", "prost", "serde-saphyr"],
        never_named: &["axum", "h2"],
    },
    Rule {
        name: "pilotfish-log",
        never: &["axum", "h2", "hyper", "notify", "prost", "tonic"],
        never_named: &["tokio"],
    },
    // Types of messages, without connections.
    Rule { name: "pilotfish-eureka-wire", never: NETWORK, never_named: &["tokio"] },
    Rule { name: "pilotfish-nacos-wire", never: NETWORK, never_named: &["tokio"] },
    rule("pilotfish-etcd-client", &["axum", "notify"]),
    rule("pilotfish-otlp", &["axum", "notify"]),
    Rule { name: "pilotfish-kube", never: &["prost", "tonic"], never_named: &[] },
    Rule { name: "pilotfish-mcp", never: &["k8s-openapi", "kube"], never_named: &["axum", "hyper", "tonic"] },
    Rule {
        name: "pilotfish-registry",
        never: &["axum", "h2", "hyper", "prost", "tonic"],
        never_named: &["notify", "tokio"],
    },
    Rule {
        name: "pilotfish-session",
        never: &[],
        never_named: &["axum", "h2", "hyper", "notify", "pilotfish-config", "tonic"],
    },
    rule("pilotfish-consul", &["axum", "notify", "pilotfish-config"]),
    rule("pilotfish-dns", &["axum", "notify", "pilotfish-config"]),
    rule("pilotfish-etcd", &["axum", "notify", "pilotfish-config", "tonic"]),
    rule("pilotfish-eureka", &["axum", "notify", "pilotfish-config"]),
    rule("pilotfish-nacos", &["axum", "notify", "pilotfish-config"]),
    rule("pilotfish-polaris", &["axum", "notify", "pilotfish-config"]),
    rule("pilotfish-zookeeper", &["axum", "hyper", "notify", "pilotfish-config", "tonic"]),
    // Core of registration: no sockets, no own store; stores and servers depend on it.
    Rule {
        name: "pilotfish-registration",
        never: &["axum", "h2", "hyper", "notify", "prost", "redb", "tonic"],
        never_named: &["pilotfish-config"],
    },
    // Definition of the API: no sockets. Tonic is needed for the types of stubs.
    Rule {
        name: "pilotfish-registration-api",
        never: &["notify"],
        never_named: &["axum", "h2", "hyper", "tokio"],
    },
    // For applications: no more than the API.
    Rule {
        name: "pilotfish-registration-client",
        never: &["notify", "pilotfish-model"],
        never_named: &["axum", "h2", "hyper"],
    },
    // Health checks of instances, without a store.
    Rule { name: "pilotfish-registration-checks", never: &["redb"], never_named: &["axum", "notify"] },
    Rule { name: "pilotfish-registration-server", never: &["notify", "redb"], never_named: &["axum", "h2"] },
    // Without servers and stores.
    Rule {
        name: "pilotfish-registration-source",
        never: &["redb"],
        never_named: &["axum", "h2", "hyper", "notify", "pilotfish-config", "tonic"],
    },
    // The APIs of other products in front of the registrar: sockets are the server's.
    Rule {
        name: "pilotfish-consul-api",
        never: &["notify", "pilotfish-consul", "redb"],
        never_named: &["axum", "h2", "hyper", "tonic"],
    },
    Rule {
        name: "pilotfish-eureka-api",
        never: &["notify", "pilotfish-eureka", "redb"],
        never_named: &["axum", "h2", "hyper", "tonic"],
    },
    Rule {
        name: "pilotfish-nacos-api",
        never: &["notify", "pilotfish-nacos", "redb"],
        never_named: &["axum", "h2", "hyper"],
    },
    Rule {
        name: "pilotfish-registration-redb",
        never: &["axum", "h2", "hyper", "notify", "tonic"],
        never_named: &[],
    },
    Rule { name: "pilotfish-registration-etcd", never: &["redb"], never_named: &["axum", "notify", "tonic"] },
    Rule {
        name: "pilotfish-translate",
        never: &["axum", "envoy-types", "h2", "hyper", "tonic"],
        never_named: &["notify", "tokio"],
    },
    // Reads the output of translation, without serving it.
    Rule {
        name: "pilotfish-explain",
        never: &["axum", "h2", "hyper", "tonic"],
        never_named: &["notify", "tokio"],
    },
    // Served from a trait: it knows neither model nor translation.
    Rule {
        name: "pilotfish-xds",
        never: &["notify", "pilotfish-model", "pilotfish-translate", "serde-saphyr"],
        never_named: &["axum"],
    },
    Rule { name: "pilotfish-kube-writer", never: &["prost", "tonic"], never_named: &[] },
    Rule { name: "pilotfish-webhook", never: &["prost", "tonic"], never_named: &[] },
    Rule { name: "pilotfish-node", never: &["prost", "tonic"], never_named: &["kube", "tokio"] },
    Rule {
        name: "pilotfish-polaris-sync",
        never: &[],
        never_named: &["hyper", "k8s-openapi", "kube", "notify", "tonic"],
    },
    // Of registries it knows the contract only, of admission webhooks nothing.
    Rule {
        name: "pilotfish-control-plane",
        never: &[
            "pilotfish-consul",
            "pilotfish-dns",
            "pilotfish-etcd",
            "pilotfish-eureka",
            "pilotfish-nacos",
            "pilotfish-polaris",
            "pilotfish-polaris-sync",
            "pilotfish-registration",
            "pilotfish-webhook",
            "pilotfish-zookeeper",
        ],
        never_named: &["axum", "h2", "hyper", "k8s-openapi", "kube", "pilotfish-session", "tonic"],
    },
    // Pages over traits: it knows neither the control plane nor its inputs.
    Rule {
        name: "pilotfish-admin",
        never: &["kube", "notify", "pilotfish-registry", "pilotfish-translate", "tonic"],
        never_named: &[],
    },
    // Reads the running control plane, without a product of registries behind it.
    rule("pilotfish-admin-state", &["h2", "hyper", "k8s-openapi", "kube", "pilotfish-session", "tonic"]),
    // A client: it knows the API and not the server.
    Rule {
        name: "pilotfish-cli",
        never: &["axum", "kube", "notify", "pilotfish-model", "prost", "tonic"],
        never_named: &["h2"],
    },
    // Knows the pieces of the control plane, without a listener or a product of registries.
    rule("pilotfish-commands", &["axum", "h2", "hyper", "k8s-openapi", "kube", "pilotfish-session", "tonic"]),
    // Compares JSON, without knowledge of its origin.
    Rule { name: "pilotfish-compare", never: NETWORK, never_named: &["prost", "tokio"] },
    // Files only, without a server for them.
    Rule {
        name: "pilotfish-dashboard",
        never: &["axum", "hyper", "pilotfish-api", "pilotfish-model", "tokio"],
        never_named: &[],
    },
    // The load client ships with `pilotfish bench`, and shares no code with the measured server.
    Rule {
        name: "pilotfish-load",
        never: &[
            "axum",
            "hyper",
            "kube",
            "notify",
            "pilotfish-translate",
            "pilotfish-xds",
            "tempfile",
            "tonic",
        ],
        never_named: &["pilotfish-proto"],
    },
    // Generates files of pilotfish-proto; no crate depends on it.
    Rule { name: "pilotfish-protogen", never: NETWORK, never_named: &["tokio"] },
    // Attackers share nothing with the attacked server except for the messages.
    Rule { name: "pilotfish-attack", never: &["envoy-types"], never_named: &["pilotfish-translate"] },
    // Neither do the broadcast servers.
    Rule { name: "pilotfish-bench", never: &["envoy-types", "kube"], never_named: &["pilotfish-proto"] },
    Rule { name: "xtask", never: &[], never_named: NETWORK },
];

/// Dependencies of the crates, without dev-dependencies.
#[derive(Default)]
struct Graph {
    /// Path of each crate's folder of crates: `crates/core` for `crates/core/model`.
    members: BTreeMap<String, String>,
    /// Dependencies in the manifest of each member.
    named: BTreeMap<String, BTreeSet<String>>,
    /// Dependencies of each package id, as resolved by Cargo.
    resolved: BTreeMap<String, BTreeSet<String>>,
    /// Crate name of each package id.
    crates: BTreeMap<String, String>,
}

/// The tables of a workspace.
struct Tables {
    folders: &'static [Folder],
    rules: &'static [Rule],
    exceptions: &'static [Exception],
}

const TABLES: Tables = Tables { folders: FOLDERS, rules: RULES, exceptions: EXCEPTIONS };

/// Checks the workspace. Returns violations of the rules, one sentence each.
///
/// # Errors
/// When `cargo metadata` fails or prints something unexpected.
pub(crate) fn check() -> Result<Vec<String>> {
    let metadata = workspace::metadata(&[])?;
    let graph = Graph::read(&metadata).context("`cargo metadata` printed an unexpected form")?;
    Ok(graph.broken(&TABLES))
}

/// Folder of crates of a crate's folder. A crate at the top, such as `crates/pilotfish`, is one of its own.
fn folder_of(folder: &Path) -> Option<String> {
    let parts: Vec<&str> = folder.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    Some(match parts[..] {
        ["crates", folder, _] => format!("crates/{folder}"),
        ["dev", _] => "dev".to_owned(),
        _ => parts.join("/"),
    })
}

impl Graph {
    fn read(metadata: &Value) -> Option<Self> {
        let mut graph = Self::default();
        let folders = workspace::folders(metadata)?;
        let member_ids: BTreeSet<&str> =
            metadata["workspace_members"].as_array()?.iter().filter_map(Value::as_str).collect();
        for package in metadata["packages"].as_array()? {
            let (id, name) = (package["id"].as_str()?, package["name"].as_str()?);
            graph.crates.insert(id.to_owned(), name.to_owned());
            if member_ids.contains(id) {
                graph.members.insert(name.to_owned(), folder_of(folders.get(name)?)?);
                let shipped = package["dependencies"].as_array()?.iter().filter(|d| d["kind"] != "dev");
                let names = shipped.filter_map(|d| d["name"].as_str()).map(str::to_owned).collect();
                graph.named.insert(name.to_owned(), names);
            }
        }
        for node in metadata["resolve"]["nodes"].as_array()? {
            let shipped = node["deps"].as_array()?.iter().filter(|dep| {
                dep["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k["kind"] != "dev"))
            });
            let ids = shipped.filter_map(|dep| dep["pkg"].as_str()).map(str::to_owned).collect();
            graph.resolved.insert(node["id"].as_str()?.to_owned(), ids);
        }
        Some(graph)
    }

    /// Violations of the rules.
    fn broken(&self, tables: &Tables) -> Vec<String> {
        let mut broken = Vec::new();
        for (member, path) in &self.members {
            let Some(folder) = tables.folders.iter().find(|folder| folder.path == path) else {
                broken.push(format!(
                    "{path} of {member} has no row in the table of folders (xtask/src/arrows.rs)"
                ));
                continue;
            };
            broken.extend(self.forbidden_arrows(member, folder, tables.exceptions));
            let rule = tables.rules.iter().find(|rule| rule.name == member);
            for name in rule.map_or(&[][..], |rule| rule.never_named) {
                if self.names(member, name) {
                    broken.push(format!("{member} must not name {name}"));
                }
            }
            for never in folder.never.iter().chain(rule.map_or(&[][..], |rule| rule.never)) {
                if let Some(path) = self.path(member, never) {
                    broken.push(format!("{member} must not reach {never}, and does: {}", path.join(" -> ")));
                }
            }
        }
        broken.extend(self.useless_rows(tables));
        broken
    }

    /// Dependencies of a crate within the workspace that its folder does not allow.
    fn forbidden_arrows(&self, member: &str, folder: &Folder, exceptions: &[Exception]) -> Vec<String> {
        let named = self.named.get(member).into_iter().flatten();
        let targets = named.filter_map(|name| Some((name, self.members.get(name)?)));
        targets
            .filter(|(name, path)| match path.as_str() == folder.path {
                true => !folder.shared.contains(&name.as_str()),
                false => !folder.may.contains(&path.as_str()),
            })
            .filter(|(name, _)| !exceptions.iter().any(|e| e.from == member && e.to == name.as_str()))
            .map(|(name, path)| format!("{member} ({}) must not depend on {name} ({path})", folder.path))
            .collect()
    }

    /// Rows of the tables that nothing needs.
    fn useless_rows(&self, tables: &Tables) -> Vec<String> {
        let gone = tables.exceptions.iter().filter(|e| !self.names(e.from, e.to)).map(|e| {
            format!("{} does not depend on {}: take the exception out ({})", e.from, e.to, e.reason)
        });
        let unknown = tables.rules.iter().filter(|rule| !self.members.contains_key(rule.name));
        gone.chain(unknown.map(|rule| format!("there is no crate {} (xtask/src/arrows.rs)", rule.name)))
            .collect()
    }

    fn names(&self, member: &str, name: &str) -> bool {
        self.named.get(member).is_some_and(|named| named.contains(name))
    }

    /// Shortest path from a member to a crate.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let start = self.crates.iter().find(|(_, name)| *name == from)?.0;
        let mut came_from: BTreeMap<&str, Option<&str>> = BTreeMap::from([(start.as_str(), None)]);
        let mut waiting = VecDeque::from([start.as_str()]);
        while let Some(id) = waiting.pop_front() {
            if id != start && self.crates.get(id).is_some_and(|name| name == to) {
                let steps = std::iter::successors(Some(id), |id| came_from.get(id).copied().flatten());
                let mut path: Vec<String> = steps.filter_map(|id| self.crates.get(id).cloned()).collect();
                path.reverse();
                return Some(path);
            }
            for next in self.resolved.get(id).into_iter().flatten() {
                came_from.entry(next).or_insert_with(|| {
                    waiting.push_back(next);
                    Some(id)
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEST: Tables = Tables {
        folders: &[
            Folder { path: "crates/low", may: &[], shared: &["base"], never: &["tokio"] },
            Folder { path: "crates/high", may: &["crates/low"], shared: &[], never: &[] },
        ],
        rules: &[Rule { name: "high", never: &[], never_named: &["tokio"] }],
        exceptions: &[Exception { from: "base", to: "high", reason: "for this test" }],
    };

    /// A workspace where each crate names what is listed; a trailing `?` makes it a dev-dependency.
    fn graph(crates: &[(&str, &[&str])]) -> Graph {
        let kind = |name: &str| if name.ends_with('?') { json!("dev") } else { Value::Null };
        let bare = |name: &str| name.trim_end_matches('?').to_owned();
        let folder = |name: &str| match name {
            "base" | "low" | "low2" => "crates/low",
            "high" | "high2" => "crates/high",
            _ => "other",
        };
        let packages: Vec<Value> = crates
            .iter()
            .map(|(name, deps)| {
                let deps: Vec<Value> =
                    deps.iter().map(|d| json!({"name": bare(d), "kind": kind(d)})).collect();
                let manifest = format!("/w/{}/{name}/Cargo.toml", folder(name));
                json!({"id": format!("id-{name}"), "name": name, "dependencies": deps, "manifest_path": manifest})
            })
            .collect();
        let nodes: Vec<Value> = crates
            .iter()
            .map(|(name, deps)| {
                let deps: Vec<Value> = deps
                    .iter()
                    .map(|d| json!({"pkg": format!("id-{}", bare(d)), "dep_kinds": [{"kind": kind(d)}]}))
                    .collect();
                json!({"id": format!("id-{name}"), "deps": deps})
            })
            .collect();
        let members: Vec<String> = ["base", "low", "low2", "high", "high2", "new"]
            .iter()
            .filter(|name| crates.iter().any(|(c, _)| c == *name))
            .map(|name| format!("id-{name}"))
            .collect();
        let metadata = json!({"workspace_root": "/w", "workspace_members": members, "packages": packages,
            "resolve": {"nodes": nodes}});
        Graph::read(&metadata).expect("the form of cargo metadata")
    }

    /// Violations in a workspace that also has what the rows of the tables need.
    fn broken(crates: &[(&str, &[&str])]) -> Vec<String> {
        let mut all = crates.to_vec();
        for (name, deps) in [("base", &["high"][..]), ("high", &[])] {
            if !crates.iter().any(|(c, _)| *c == name) {
                all.push((name, deps));
            }
        }
        graph(&all).broken(&TEST)
    }

    #[test]
    fn allowed_arrows_pass() {
        assert!(broken(&[("low", &["bytes", "base"]), ("high2", &["low"]), ("bytes", &[])]).is_empty());
    }

    #[test]
    fn an_arrow_upwards_is_named() {
        let found = broken(&[("low", &["high2"]), ("high2", &[])]);
        assert_eq!(found, ["low (crates/low) must not depend on high2 (crates/high)"]);
    }

    #[test]
    fn crates_of_a_folder_use_only_those_that_are_shared() {
        let found = broken(&[("low", &["low2"]), ("low2", &[])]);
        assert_eq!(found, ["low (crates/low) must not depend on low2 (crates/low)"]);
    }

    #[test]
    fn a_forbidden_crate_is_found_through_others_with_its_path() {
        let found = broken(&[("low", &["a"]), ("a", &["b"]), ("b", &["tokio"]), ("tokio", &[])]);
        assert_eq!(found, ["low must not reach tokio, and does: low -> a -> b -> tokio"]);
    }

    #[test]
    fn what_others_drag_in_is_forbidden_only_by_name() {
        assert!(
            broken(&[("high", &["a"]), ("a", &["tokio"]), ("tokio", &[])]).iter().all(|f| f.contains("base"))
        );
        let found = broken(&[("high", &["tokio"]), ("tokio", &[])]);
        assert!(found.contains(&"high must not name tokio".to_owned()), "{found:?}");
    }

    #[test]
    fn dev_dependencies_do_not_count() {
        assert!(broken(&[("low", &["high2?", "tokio?"]), ("high2", &[])]).is_empty());
    }

    #[test]
    fn an_exception_without_its_arrow_is_reported() {
        let found = broken(&[("base", &[])]);
        assert_eq!(found, ["base does not depend on high: take the exception out (for this test)"]);
    }

    #[test]
    fn a_rule_without_its_crate_is_reported() {
        let found = graph(&[("low", &[])]).broken(&TEST);
        assert!(found.contains(&"there is no crate high (xtask/src/arrows.rs)".to_owned()), "{found:?}");
    }

    #[test]
    fn a_crate_in_an_unknown_folder_is_reported() {
        assert_eq!(broken(&[("new", &[])]).len(), 1);
    }
}
