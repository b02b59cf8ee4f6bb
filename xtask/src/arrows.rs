//! Arrows between the crates: allowed dependencies, and crates that must not be reachable.
//!
//! The table below is the design; `cargo metadata` has the actual dependencies. Dev-dependencies are not
//! checked, since they are not shipped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace;

/// Dependency rule of one crate in the workspace.
struct Rule {
    name: &'static str,
    /// Workspace crates that its manifest may name.
    may: &'static [&'static str],
    /// Crates that it must not reach, directly or indirectly.
    never: &'static [&'static str],
    /// Crates that its manifest must not name, but that it reaches through a dependency: the file source of
    /// `pilotfish-config` runs on tokio and notify.
    never_named: &'static [&'static str],
}

const NETWORK: &[&str] = &["tonic", "hyper", "h2", "axum", "kube", "tower-http", "reqwest"];

/// Rule of a registry with its own source.
const fn registry(name: &'static str) -> Rule {
    Rule {
        name,
        may: &["pilotfish-model", "pilotfish-registry", "pilotfish-registry-client", "pilotfish-source"],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate"],
        never_named: &["axum", "notify", "pilotfish-config"],
    }
}

const RULES: &[Rule] = &[
    Rule {
        name: "pilotfish-model",
        may: &[],
        never: &[
            "tokio",
            "prost",
            "tonic",
            "kube",
            "hyper",
            "h2",
            "axum",
            "notify",
            "envoy-types",
            "serde-saphyr",
        ],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-config",
        may: &["pilotfish-model", "pilotfish-source"],
        never: &["tonic", "prost", "envoy-types", "kube", "hyper", "h2", "axum"],
        never_named: &[],
    },
    // For `pilotfish crds` and tests only: the server must not reach it.
    Rule {
        name: "pilotfish-crd",
        may: &["pilotfish-model", "pilotfish-config"],
        never: &["tonic", "prost", "envoy-types", "kube", "hyper", "h2", "axum"],
        never_named: &["tokio", "notify"],
    },
    Rule {
        name: "pilotfish-registry",
        may: &["pilotfish-model", "pilotfish-config", "pilotfish-source"],
        never: &["tonic", "prost", "envoy-types", "kube", "hyper", "h2", "axum"],
        never_named: &["tokio", "notify"],
    },
    // Core of registration: no sockets, no own store; stores and servers depend on it.
    Rule {
        name: "pilotfish-registration",
        may: &["pilotfish-model"],
        never: &["tonic", "prost", "hyper", "h2", "axum", "kube", "notify", "redb", "envoy-types"],
        never_named: &[],
    },
    // Health checks of instances, without a store.
    Rule {
        name: "pilotfish-registration-checks",
        may: &["pilotfish-registration", "pilotfish-source"],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate", "redb"],
        never_named: &["axum", "notify", "pilotfish-model"],
    },
    // Definition of the API: no sockets. Tonic is needed for the types of stubs.
    Rule {
        name: "pilotfish-registration-api",
        may: &[],
        never: &["kube", "notify", "envoy-types"],
        never_named: &["axum", "hyper", "h2", "tokio"],
    },
    // For applications: no more than the API.
    Rule {
        name: "pilotfish-registration-client",
        may: &["pilotfish-registration-api", "pilotfish-source"],
        never: &["kube", "notify", "envoy-types", "pilotfish-model"],
        never_named: &["axum", "hyper", "h2"],
    },
    Rule {
        name: "pilotfish-registration-redb",
        may: &["pilotfish-model", "pilotfish-registration"],
        never: &["tonic", "hyper", "h2", "axum", "kube", "notify", "envoy-types"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-registration-etcd",
        may: &[
            "pilotfish-etcd-client",
            "pilotfish-model",
            "pilotfish-registration",
            "pilotfish-registry",
            "pilotfish-registry-client",
            "pilotfish-source",
        ],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate", "redb"],
        never_named: &["axum", "notify", "tonic"],
    },
    Rule {
        name: "pilotfish-registration-server",
        may: &[
            "pilotfish-identity",
            "pilotfish-registration",
            "pilotfish-registration-api",
            "pilotfish-source",
        ],
        never: &["kube", "notify", "envoy-types", "redb", "pilotfish-xds", "pilotfish-translate"],
        never_named: &["axum", "h2", "pilotfish-model"],
    },
    // Shared utilities of registries with their own source; each of them may use it, and none another
    // registry. Axum comes with the servers of tonic, which other crates enable.
    Rule {
        name: "pilotfish-registry-client",
        may: &["pilotfish-model", "pilotfish-registry", "pilotfish-source"],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate"],
        never_named: &["axum", "notify", "pilotfish-config"],
    },
    registry("pilotfish-consul"),
    registry("pilotfish-dns"),
    registry("pilotfish-eureka"),
    Rule {
        name: "pilotfish-etcd",
        may: &[
            "pilotfish-etcd-client",
            "pilotfish-model",
            "pilotfish-registry",
            "pilotfish-registry-client",
            "pilotfish-source",
        ],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate"],
        never_named: &["axum", "notify", "pilotfish-config", "tonic"],
    },
    // Shared by the etcd registry and the etcd store of registrations, without other dependencies.
    Rule {
        name: "pilotfish-etcd-client",
        may: &["pilotfish-registry", "pilotfish-registry-client", "pilotfish-source"],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate"],
        never_named: &["axum", "notify", "pilotfish-config", "pilotfish-model"],
    },
    registry("pilotfish-nacos"),
    registry("pilotfish-polaris"),
    Rule {
        name: "pilotfish-zookeeper",
        may: &["pilotfish-model", "pilotfish-registry", "pilotfish-registry-client"],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate"],
        never_named: &["axum", "notify", "pilotfish-config", "hyper", "tonic"],
    },
    // Plain utilities for sources of all products, independent of products and of the resulting data.
    Rule {
        name: "pilotfish-source",
        may: &[],
        never: &["kube", "k8s-openapi", "tonic", "prost", "hyper", "h2", "axum", "notify", "envoy-types"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-kube",
        may: &["pilotfish-config", "pilotfish-identity", "pilotfish-model", "pilotfish-source"],
        never: &["tonic", "prost", "envoy-types", "pilotfish-xds", "pilotfish-translate", "pilotfish-proto"],
        never_named: &["pilotfish-registry"],
    },
    Rule {
        name: "pilotfish-kube-writer",
        may: &["pilotfish-model", "pilotfish-config", "pilotfish-source", "pilotfish-kube"],
        never: &["tonic", "prost", "envoy-types", "pilotfish-xds", "pilotfish-translate", "pilotfish-proto"],
        never_named: &["pilotfish-registry"],
    },
    Rule {
        name: "pilotfish-polaris-sync",
        may: &["pilotfish-registry-client", "pilotfish-source", "pilotfish-sync"],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate"],
        never_named: &["axum", "notify", "hyper", "tonic", "pilotfish-config"],
    },
    Rule {
        name: "pilotfish-sync",
        may: &["pilotfish-model", "pilotfish-config", "pilotfish-source"],
        never: &["tonic", "prost", "envoy-types", "kube", "k8s-openapi", "hyper", "h2", "axum"],
        never_named: &["tokio", "notify", "pilotfish-registry"],
    },
    Rule {
        name: "pilotfish-listener",
        may: &["pilotfish-identity"],
        never: &["tonic", "prost", "kube", "notify", "serde-saphyr"],
        // hyper includes HTTP/2 as soon as one crate of the workspace enables it.
        never_named: &["h2", "pilotfish-model"],
    },
    Rule {
        name: "pilotfish-webhook",
        may: &[
            "pilotfish-config",
            "pilotfish-identity",
            "pilotfish-kube",
            "pilotfish-listener",
            "pilotfish-model",
            "pilotfish-source",
        ],
        never: &["tonic", "prost", "envoy-types", "pilotfish-xds", "pilotfish-translate", "pilotfish-proto"],
        never_named: &["pilotfish-registry"],
    },
    Rule {
        name: "pilotfish-proto",
        may: &[],
        never: &["kube", "notify", "axum", "envoy-types"],
        never_named: &["tokio", "hyper"],
    },
    // Generates a file of pilotfish-proto; no crate depends on it.
    Rule { name: "pilotfish-protogen", may: &[], never: NETWORK, never_named: &["tokio"] },
    Rule {
        name: "pilotfish-translate",
        may: &["pilotfish-model", "pilotfish-config", "pilotfish-proto"],
        never: &["kube", "k8s-openapi", "tonic", "hyper", "h2", "axum", "envoy-types"],
        never_named: &["tokio", "notify"],
    },
    Rule {
        name: "pilotfish-mcp",
        may: &[
            "pilotfish-config",
            "pilotfish-model",
            "pilotfish-proto",
            "pilotfish-registry",
            "pilotfish-registry-client",
            "pilotfish-source",
        ],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate"],
        never_named: &["axum", "tonic", "hyper", "notify"],
    },
    Rule {
        name: "pilotfish-identity",
        may: &[],
        never: &["tonic", "prost", "kube", "hyper", "h2", "axum", "notify", "serde-saphyr"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-xds",
        may: &["pilotfish-identity", "pilotfish-proto"],
        never: &["kube", "k8s-openapi", "notify", "serde-saphyr"],
        never_named: &["axum"],
    },
    Rule {
        name: "pilotfish-api",
        may: &[],
        never: &["tokio", "prost", "tonic", "hyper", "h2", "axum", "kube", "envoy-types"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-admin",
        may: &[
            "pilotfish-api",
            "pilotfish-dashboard",
            "pilotfish-identity",
            "pilotfish-listener",
            "pilotfish-model",
        ],
        never: &["tonic", "kube", "envoy-types", "notify"],
        never_named: &[],
    },
    // Files only, without a server for them.
    Rule {
        name: "pilotfish-dashboard",
        may: &[],
        never: &["tokio", "hyper", "axum", "pilotfish-api", "pilotfish-model"],
        never_named: &[],
    },
    // Compares JSON, without knowledge of its origin.
    Rule { name: "pilotfish-compare", may: &[], never: NETWORK, never_named: &["tokio", "prost"] },
    // A client: it knows the API and not the server.
    Rule {
        name: "pilotfish-cli",
        may: &["pilotfish-api", "pilotfish-compare"],
        never: &["axum", "tonic", "prost", "kube", "notify", "envoy-types", "pilotfish-model"],
        never_named: &["h2"],
    },
    // Reads the output of translation, without serving it.
    Rule {
        name: "pilotfish-explain",
        may: &[
            "pilotfish-api",
            "pilotfish-config",
            "pilotfish-model",
            "pilotfish-proto",
            "pilotfish-translate",
        ],
        never: &["tonic", "hyper", "h2", "axum", "kube", "pilotfish-xds", "pilotfish-registry"],
        never_named: &["tokio", "notify"],
    },
    // Traces for collectors, independent of their subject.
    Rule {
        name: "pilotfish-otlp",
        may: &["pilotfish-registry-client", "pilotfish-source"],
        never: &["kube", "k8s-openapi", "envoy-types", "pilotfish-xds", "pilotfish-translate"],
        never_named: &["axum", "notify", "pilotfish-model"],
    },
    Rule {
        name: "pilotfish-node",
        may: &["pilotfish-webhook"],
        never: &["tonic", "prost", "envoy-types", "pilotfish-xds", "pilotfish-translate", "pilotfish-proto"],
        never_named: &["tokio", "kube"],
    },
    Rule {
        name: "pilotfish",
        may: &[
            "pilotfish-admin",
            "pilotfish-api",
            "pilotfish-cli",
            "pilotfish-config",
            "pilotfish-crd",
            "pilotfish-consul",
            "pilotfish-dns",
            "pilotfish-etcd",
            "pilotfish-eureka",
            "pilotfish-explain",
            "pilotfish-identity",
            "pilotfish-kube",
            "pilotfish-kube-writer",
            "pilotfish-load",
            "pilotfish-mcp",
            "pilotfish-model",
            "pilotfish-nacos",
            "pilotfish-node",
            "pilotfish-otlp",
            "pilotfish-polaris",
            "pilotfish-polaris-sync",
            "pilotfish-proto",
            "pilotfish-registration",
            "pilotfish-registration-checks",
            "pilotfish-registration-client",
            "pilotfish-registration-etcd",
            "pilotfish-registration-redb",
            "pilotfish-registration-server",
            "pilotfish-registry",
            "pilotfish-registry-client",
            "pilotfish-source",
            "pilotfish-sync",
            "pilotfish-translate",
            "pilotfish-webhook",
            "pilotfish-xds",
            "pilotfish-zookeeper",
        ],
        never: &["proptest", "insta"],
        never_named: &[],
    },
    Rule {
        name: "pilotfish-testkit",
        may: &[
            "pilotfish-api",
            "pilotfish-compare",
            "pilotfish-config",
            "pilotfish-crd",
            "pilotfish-kube",
            "pilotfish-model",
            "pilotfish-proto",
            "pilotfish-registry",
            "pilotfish-translate",
            "pilotfish-xds",
        ],
        never: &[],
        never_named: &[],
    },
    // Attackers share nothing with the attacked server except for the messages.
    Rule {
        name: "pilotfish-attack",
        may: &["pilotfish-bench", "pilotfish-proto", "pilotfish-testkit"],
        never: &["envoy-types"],
        never_named: &[],
    },
    // Reaches all parsers; no crate reaches it.
    Rule {
        name: "pilotfish-fuzz",
        may: &[
            "pilotfish-config",
            "pilotfish-crd",
            "pilotfish-kube",
            "pilotfish-model",
            "pilotfish-proto",
            "pilotfish-registration-api",
            "pilotfish-registration-server",
            "pilotfish-registry",
            "pilotfish-translate",
            "pilotfish-webhook",
            "pilotfish-xds",
        ],
        never: &[],
        never_named: &[],
    },
    // The load client ships with `pilotfish bench`, and shares no code with the measured server.
    Rule {
        name: "pilotfish-load",
        may: &[],
        never: &["kube", "envoy-types", "tonic", "hyper", "axum", "tempfile"],
        never_named: &[],
    },
    // Neither do the broadcast servers.
    Rule {
        name: "pilotfish-bench",
        may: &["pilotfish-load"],
        never: &["kube", "envoy-types"],
        never_named: &[],
    },
    Rule { name: "xtask", may: &[], never: &["tokio", "serde-saphyr"], never_named: NETWORK },
];

/// Dependencies of the crates, without dev-dependencies.
#[derive(Default)]
struct Graph {
    /// Crates of the workspace.
    members: BTreeSet<String>,
    /// Dependencies in the manifest of each member.
    named: BTreeMap<String, BTreeSet<String>>,
    /// Dependencies of each package id, as resolved by Cargo.
    resolved: BTreeMap<String, BTreeSet<String>>,
    /// Crate name of each package id.
    names: BTreeMap<String, String>,
}

/// Checks the workspace. Returns violations of the rules, one sentence each.
///
/// # Errors
/// When `cargo metadata` fails or prints something unexpected.
pub(crate) fn check() -> Result<Vec<String>> {
    let metadata = workspace::metadata(&[])?;
    Ok(Graph::read(&metadata).context("`cargo metadata` printed an unexpected form")?.broken(RULES))
}

impl Graph {
    fn read(metadata: &Value) -> Option<Self> {
        let mut graph = Self::default();
        let member_ids: BTreeSet<&str> =
            metadata["workspace_members"].as_array()?.iter().filter_map(Value::as_str).collect();
        for package in metadata["packages"].as_array()? {
            let (id, name) = (package["id"].as_str()?, package["name"].as_str()?);
            graph.names.insert(id.to_owned(), name.to_owned());
            if member_ids.contains(id) {
                graph.members.insert(name.to_owned());
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
    fn broken(&self, rules: &[Rule]) -> Vec<String> {
        let mut broken = Vec::new();
        for member in &self.members {
            let Some(rule) = rules.iter().find(|rule| rule.name == member) else {
                broken.push(format!("{member} has no row in the table of arrows (xtask/src/arrows.rs)"));
                continue;
            };
            let named = self.named.get(member).cloned().unwrap_or_default();
            for name in &named {
                if self.members.contains(name) && !rule.may.contains(&name.as_str()) {
                    broken.push(format!("{member} must not depend on {name}"));
                }
                if rule.never_named.contains(&name.as_str()) {
                    broken.push(format!("{member} must not name {name}"));
                }
            }
            for never in rule.never {
                if let Some(path) = self.path(member, never) {
                    broken.push(format!("{member} must not reach {never}, and does: {}", path.join(" -> ")));
                }
            }
        }
        broken
    }

    /// Shortest path from a member to a crate.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let start = self.names.iter().find(|(_, name)| *name == from)?.0;
        let mut came_from: BTreeMap<&str, Option<&str>> = BTreeMap::from([(start.as_str(), None)]);
        let mut waiting = VecDeque::from([start.as_str()]);
        while let Some(id) = waiting.pop_front() {
            if id != start && self.names.get(id).is_some_and(|name| name == to) {
                let steps = std::iter::successors(Some(id), |id| came_from.get(id).copied().flatten());
                let mut path: Vec<String> = steps.filter_map(|id| self.names.get(id).cloned()).collect();
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

    const TEST_RULES: &[Rule] = &[
        Rule { name: "low", may: &[], never: &["tokio"], never_named: &["tonic"] },
        Rule { name: "high", may: &["low"], never: &[], never_named: &["tokio"] },
    ];

    /// A workspace where each crate names what is listed; a trailing `?` makes it a dev-dependency.
    fn graph(crates: &[(&str, &[&str])]) -> Graph {
        let kind = |name: &str| if name.ends_with('?') { json!("dev") } else { Value::Null };
        let bare = |name: &str| name.trim_end_matches('?').to_owned();
        let packages: Vec<Value> = crates
            .iter()
            .map(|(name, deps)| {
                let deps: Vec<Value> =
                    deps.iter().map(|d| json!({"name": bare(d), "kind": kind(d)})).collect();
                json!({"id": format!("id-{name}"), "name": name, "dependencies": deps})
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
        let members: Vec<String> = ["low", "high", "new"]
            .iter()
            .filter(|name| crates.iter().any(|(c, _)| c == *name))
            .map(|name| format!("id-{name}"))
            .collect();
        let metadata =
            json!({"workspace_members": members, "packages": packages, "resolve": {"nodes": nodes}});
        Graph::read(&metadata).expect("the form of cargo metadata")
    }

    fn broken(crates: &[(&str, &[&str])]) -> Vec<String> {
        graph(crates).broken(TEST_RULES)
    }

    #[test]
    fn allowed_arrows_pass() {
        assert!(broken(&[("low", &["bytes"]), ("high", &["low"]), ("bytes", &[])]).is_empty());
    }

    #[test]
    fn an_arrow_upwards_is_named() {
        assert_eq!(broken(&[("low", &["high"]), ("high", &[])]), ["low must not depend on high"]);
    }

    #[test]
    fn a_forbidden_crate_is_found_through_others_with_its_path() {
        let found = broken(&[("low", &["a"]), ("a", &["b"]), ("b", &["tokio"]), ("tokio", &[])]);
        assert_eq!(found, ["low must not reach tokio, and does: low -> a -> b -> tokio"]);
    }

    #[test]
    fn what_others_drag_in_is_forbidden_only_by_name() {
        assert!(broken(&[("high", &["a"]), ("a", &["tokio"]), ("tokio", &[])]).is_empty());
        assert_eq!(broken(&[("high", &["tokio"]), ("tokio", &[])]), ["high must not name tokio"]);
    }

    #[test]
    fn dev_dependencies_do_not_count() {
        assert!(broken(&[("low", &["high?", "tokio?"]), ("high", &[]), ("tokio", &[])]).is_empty());
    }

    #[test]
    fn a_crate_without_a_row_is_reported() {
        assert_eq!(broken(&[("new", &[])]).len(), 1);
    }
}
