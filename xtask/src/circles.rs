//! Circles of modules inside a crate that ships: none but those in the table below.
//!
//! The check is textual. A module uses another if its text has a path that leads there (`use`, or `crate::`
//! and `super::` in an expression), also through a re-export. Tests do not count. Of modules in different
//! folders, the arrow is between the folders below their common parent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace;

/// A circle that is there, with its reason.
struct Exception {
    package: &'static str,
    /// Path of the parent module; empty for the crate itself.
    parent: &'static str,
    modules: &'static [&'static str],
    reason: &'static str,
}

impl Exception {
    /// True if the circle is one of the listed modules, or of some of them.
    fn permits(&self, circle: &Circle) -> bool {
        self.parent == circle.parent
            && circle.modules.iter().all(|name| self.modules.contains(&name.as_str()))
    }
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        package: "pilotfish",
        parent: "",
        modules: &["cli", "demo", "serve", "settings"],
        reason: "settings name what they configure, and pages read what serve opens",
    },
    Exception {
        package: "pilotfish-admin-state",
        parent: "",
        modules: &["history", "operations", "plan", "unconnected", "waiting"],
        reason: "operations are the entry of the pages that they share",
    },
    Exception {
        package: "pilotfish",
        parent: "serve",
        modules: &["revision_tags", "sources"],
        reason: "the tags of a cluster come with its source",
    },
    Exception {
        package: "pilotfish",
        parent: "settings",
        modules: &["check", "parse", "tls"],
        reason: "a group of settings and its check refer to each other",
    },
    Exception {
        package: "pilotfish-eureka-api",
        parent: "",
        modules: &["catalog", "recent"],
        reason: "the newest changes of the catalog hold its entries",
    },
    Exception {
        package: "pilotfish-admin",
        parent: "",
        modules: &["access", "permissions"],
        reason: "the gate asks for permissions, which begin with where a request comes from",
    },
    Exception {
        package: "pilotfish-admin",
        parent: "",
        modules: &["profile", "readiness", "routes", "v1"],
        reason: "routes hold the state that their pages read",
    },
    Exception {
        package: "pilotfish-api",
        parent: "v1",
        modules: &["history", "wait"],
        reason: "data types that contain each other",
    },
    Exception {
        package: "pilotfish-config",
        parent: "",
        modules: &["inert", "kinds", "read", "unknown", "validate", "yaml"],
        reason: "a kind names the functions that read and check it",
    },
    Exception {
        package: "pilotfish-files",
        parent: "",
        modules: &["change_queue", "rescan", "scanner", "source", "watch", "writes"],
        reason: "one state machine in several files",
    },
    Exception {
        package: "pilotfish-config",
        parent: "validate::gateway_api",
        modules: &["filters", "routes"],
        reason: "filters contain references that routes check",
    },
    Exception {
        package: "pilotfish-config",
        parent: "validate::networking",
        modules: &["http_route", "stream_route", "virtual_service"],
        reason: "rules check the parts that they share",
    },
    Exception {
        package: "pilotfish-control-plane",
        parent: "history",
        modules: &["acknowledged", "change", "refusals"],
        reason: "a change and its acknowledgements refer to each other",
    },
    Exception {
        package: "pilotfish-etcd",
        parent: "schema",
        modules: &["dubbo", "reading"],
        reason: "a value of Dubbo is one form of a reading",
    },
    Exception {
        package: "pilotfish-explain",
        parent: "why",
        modules: &["arrival", "cluster"],
        reason: "a decision and its explanation refer to each other",
    },
    Exception {
        package: "pilotfish-explain",
        parent: "why",
        modules: &["object", "service"],
        reason: "a decision and its explanation refer to each other",
    },
    Exception {
        package: "pilotfish-identity",
        parent: "",
        modules: &["authentication", "certificate"],
        reason: "an identity contains its certificate",
    },
    Exception {
        package: "pilotfish-load",
        parent: "",
        modules: &["content", "session"],
        reason: "a session and its contents refer to each other",
    },
    Exception {
        package: "pilotfish-model",
        parent: "",
        modules: &["endpoint", "service"],
        reason: "data types that refer to each other",
    },
    Exception {
        package: "pilotfish-model",
        parent: "",
        modules: &["object", "revision"],
        reason: "data types that refer to each other",
    },
    Exception {
        package: "pilotfish-nacos",
        parent: "",
        modules: &["api", "credentials", "grpc", "http_api", "payload"],
        reason: "one client for two protocols",
    },
    Exception {
        package: "pilotfish-registration",
        parent: "registrar",
        modules: &["changes", "deregister", "register", "state", "stats", "watch"],
        reason: "operations on one shared state",
    },
    Exception {
        package: "pilotfish-registration-checks",
        parent: "",
        modules: &["handle", "runner", "schedule"],
        reason: "two ends of one channel",
    },
    Exception {
        package: "pilotfish-registration-client",
        parent: "",
        modules: &["client", "keeper", "registration", "watch"],
        reason: "a registration holds the client that made it",
    },
    Exception {
        package: "pilotfish-registry",
        parent: "",
        modules: &["catalog", "live", "objects", "report", "table"],
        reason: "the row of a registry names its settings and its source",
    },
    Exception {
        package: "pilotfish-translate",
        parent: "engine",
        modules: &["cx", "memo"],
        reason: "a query reads through the context of the memo that keeps it",
    },
    Exception {
        package: "pilotfish-translate",
        parent: "envoy_filter",
        modules: &["applied", "clusters", "filters", "judge", "listeners", "parse", "routes", "select"],
        reason: "patches nest: of listeners, their chains, their filters, and routes in those",
    },
    Exception {
        package: "pilotfish-translate",
        parent: "policy::destination_rule",
        modules: &["merge", "policy"],
        reason: "a merged rule contains its policy",
    },
    Exception {
        package: "pilotfish-translate",
        parent: "routing::gateway_api",
        modules: &["conflicts", "gateways", "listener_tls", "listeners"],
        reason: "a listener and its faults refer to each other",
    },
    Exception {
        package: "pilotfish-translate",
        parent: "routing::gateway_api",
        modules: &["parts", "redirects", "request_rules"],
        reason: "a redirect that leads back is a fault of the rule that has it",
    },
    Exception {
        package: "pilotfish-translate",
        parent: "scope",
        modules: &["destinations", "egress", "services", "virtual_services"],
        reason: "mutual queries: imports bring services, and their destinations others",
    },
    Exception {
        package: "pilotfish-translate",
        parent: "xds::eds",
        modules: &["client_locality", "service_rule"],
        reason: "a rule and the localities that it counts",
    },
    Exception {
        package: "pilotfish-translate",
        parent: "xds::eds",
        modules: &["encode", "group", "lb_endpoint"],
        reason: "one endpoint, its group and their encoding",
    },
    Exception {
        package: "pilotfish-webhook",
        parent: "",
        modules: &["inject", "review"],
        reason: "injection answers a review",
    },
];

/// Path of a module below the crate: `["routing", "index"]`.
type Module = Vec<String>;

/// Checks all crates of the workspace. Returns circles that are not in the table, one sentence each.
///
/// # Errors
/// When `cargo metadata` fails or a file cannot be read.
pub(crate) fn check() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let shipped = workspace::packages()?.into_iter().filter(|(_, folder)| folder.starts_with("crates"));
    for (package, folder) in shipped {
        let sources = workspace::root().join(folder).join("src");
        let mut modules = Modules::default();
        if sources.exists() {
            modules.read(&sources, &mut Vec::new())?;
        }
        found.extend(findings(&package, &modules.circles(), EXCEPTIONS));
    }
    Ok(found)
}

fn findings(package: &str, circles: &[Circle], exceptions: &[Exception]) -> Vec<String> {
    let of_package: Vec<&Exception> = exceptions.iter().filter(|e| e.package == package).collect();
    let is_listed = |circle: &&Circle| of_package.iter().any(|exception| exception.permits(circle));
    let new = circles.iter().filter(|circle| !is_listed(circle)).map(|circle| {
        let parent = if circle.parent.is_empty() { "the crate" } else { &circle.parent };
        format!("{package}: modules of {parent} use each other: {}", circle.arrows.join(", "))
    });
    let gone = of_package.iter().filter(|exception| !circles.iter().any(|circle| exception.permits(circle)));
    let gone = gone.map(|e| {
        format!(
            "{package}: there is no circle of {:?} in {:?} any more: \
             take it out of xtask/src/circles.rs ({})",
            e.modules, e.parent, e.reason
        )
    });
    new.chain(gone).collect()
}

/// Modules that reach each other.
#[derive(Debug, PartialEq, Eq)]
struct Circle {
    parent: String,
    modules: Vec<String>,
    /// Arrows between them, as `a -> b`.
    arrows: Vec<String>,
}

/// Modules of a crate with the paths in their texts.
#[derive(Default)]
struct Modules {
    paths: BTreeMap<Module, Vec<UsePath>>,
}

/// A path in the text of a module.
#[derive(Debug, PartialEq, Eq)]
struct UsePath {
    segments: Vec<String>,
    /// True for `pub use` and `pub(...) use`.
    is_exported: bool,
}

impl Modules {
    fn read(&mut self, folder: &Path, parent: &mut Module) -> Result<()> {
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name == "tests" || name == "testing" || name.ends_with("_tests") || name == "bin" {
                continue;
            }
            let is_child = !["mod", "lib", "main"].contains(&&*name);
            if is_child {
                parent.push(name);
            }
            if path.is_dir() {
                self.read(&path, parent)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                self.paths.entry(parent.clone()).or_default().extend(paths(without_tests(&text)));
            }
            if is_child {
                parent.pop();
            }
        }
        Ok(())
    }

    fn circles(&self) -> Vec<Circle> {
        let mut siblings: BTreeMap<Module, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
        for (from, paths) in &self.paths {
            for to in paths.iter().filter_map(|path| self.target(from, &path.segments, 8)) {
                let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
                if let (Some(from_child), Some(to_child)) = (from.get(common), to.get(common)) {
                    let arrows = siblings.entry(from[..common].to_vec()).or_default();
                    arrows.entry(from_child).or_default().insert(to_child);
                }
            }
        }
        siblings.iter().flat_map(|(parent, arrows)| circles(parent, arrows)).collect()
    }

    /// Module of the item that a path leads to, through at most so many re-exports.
    fn target(&self, from: &Module, path: &[String], steps: usize) -> Option<&Module> {
        let absolute = self.absolute(from, path)?;
        let (module, depth) = (0..=absolute.len())
            .rev()
            .find_map(|depth| Some((self.paths.get_key_value(&absolute[..depth])?.0, depth)))?;
        let Some(item) = absolute.get(depth) else { return Some(module) };
        let exports = self.paths.get(module)?.iter().filter(|path| path.is_exported);
        let mut exported = exports.filter(|path| path.segments.last() == Some(item));
        match exported.next().filter(|_| steps > 0) {
            Some(export) => self.target(module, &export.segments, steps - 1).or(Some(module)),
            None => Some(module),
        }
    }

    /// A path from the root of the crate; `None` for one that leads elsewhere.
    fn absolute(&self, from: &Module, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([from, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                Some([&from[..from.len().checked_sub(ups)?], &path[ups..]].concat())
            }
            _ => {
                let child = [&from[..], std::slice::from_ref(first)].concat();
                self.paths.contains_key(&child).then(|| [&child[..], rest].concat())
            }
        }
    }
}

/// Sets of siblings that reach each other.
fn circles(parent: &Module, arrows: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Circle> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|from| (*from, reachable(from, arrows))).collect();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut circles = Vec::new();
    for (module, reaches) in &reached {
        if !reaches.contains(module) || done.contains(module) {
            continue;
        }
        let with = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(module));
        let members: BTreeSet<&str> = reaches.iter().filter(with).copied().collect();
        done.extend(&members);
        let inner = |from: &str| {
            let targets = arrows.get(from).into_iter().flatten();
            targets.filter(|to| members.contains(*to)).map(|to| format!("{from} -> {to}")).collect::<Vec<_>>()
        };
        circles.push(Circle {
            parent: parent.join("::"),
            arrows: members.iter().flat_map(|from| inner(from)).collect(),
            modules: members.into_iter().map(str::to_owned).collect(),
        });
    }
    circles
}

fn reachable<'a>(from: &str, arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&str> = arrows.get(from).into_iter().flatten().copied().collect();
    while let Some(next) = waiting.pop() {
        if reached.insert(next) {
            waiting.extend(arrows.get(next).into_iter().flatten());
        }
    }
    reached
}

/// Text up to the module of tests at its end.
fn without_tests(text: &str) -> &str {
    let mut start = 0;
    while let Some(at) = text[start..].find("#[cfg(test)]\n") {
        let after = &text[start + at + "#[cfg(test)]\n".len()..];
        let line = after.lines().next().unwrap_or_default();
        if line.contains("mod ") && line.ends_with('{') {
            return &text[..start + at];
        }
        start += at + 1;
    }
    text
}

/// Paths in a text: those of `use`, and those that begin with `crate` or `super` anywhere else.
fn paths(text: &str) -> Vec<UsePath> {
    let words = words(text);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "use" => {
                let is_exported = at > 0 && (words[at - 1] == "pub" || words[at - 1] == ")");
                let tree = &words[at + 1..];
                let length = tree.iter().position(|word| word == ";").unwrap_or(tree.len());
                let segments = expanded(&tree[..length]);
                found.extend(segments.into_iter().map(|segments| UsePath { segments, is_exported }));
                at += length + 1;
            }
            "crate" | "super" => {
                let mut segments = vec![word.clone()];
                while words.get(at + 1).is_some_and(|word| word == "::") && words.get(at + 2).is_some() {
                    segments.push(words[at + 2].clone());
                    at += 2;
                }
                found.push(UsePath { segments, is_exported: false });
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Paths of a tree such as `a::{b, c::d}`.
fn expanded(tree: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for at in 0..=tree.len() {
        match tree.get(at).map(String::as_str) {
            Some("{") => depth += 1,
            Some("}") => depth -= 1,
            Some(",") | None if depth == 0 => {
                paths.extend(branch(&tree[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    paths
}

fn branch(tree: &[String]) -> Vec<Vec<String>> {
    let is_name = |word: &&String| !matches!(word.as_str(), "::" | "*");
    match tree.iter().position(|word| word == "{") {
        Some(open) => {
            let head: Vec<String> = tree[..open].iter().filter(is_name).cloned().collect();
            let inner = &tree[open + 1..tree.len().max(open + 2) - 1];
            expanded(inner).into_iter().map(|rest| [&head[..], &rest].concat()).collect()
        }
        None => {
            let path = tree.split(|word| word == "as").next().unwrap_or_default();
            let path: Vec<String> = path.iter().filter(is_name).cloned().collect();
            if path.is_empty() { Vec::new() } else { vec![path] }
        }
    }
}

/// Identifiers, `::` and single punctuation marks of a text, without comments and literals.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            literal(rest)
        } else if first.is_alphanumeric() || first == '_' {
            let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            words.push(rest[..length].to_owned());
            length
        } else if rest.starts_with("::") {
            words.push("::".to_owned());
            2
        } else {
            if "{},;*()".contains(first) {
                words.push(first.to_string());
            }
            // The character literal of a quotation mark would begin a string.
            if rest.starts_with("'\"'") { 3 } else { first.len_utf8() }
        };
        rest = &rest[length..];
    }
    words
}

/// Length of the string literal at the start of a text.
fn literal(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(texts: &[(&str, &str)]) -> Vec<Circle> {
        let mut modules = Modules::default();
        for (module, text) in texts {
            let module = module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            modules.paths.insert(module, paths(without_tests(text)));
        }
        modules.circles()
    }

    fn arrows(texts: &[(&str, &str)]) -> Vec<String> {
        modules(texts).into_iter().flat_map(|circle| circle.arrows).collect()
    }

    #[test]
    fn modules_in_one_direction_are_no_circle() {
        assert!(
            arrows(&[("a", "use crate::b::{self, X, c::Y};"), ("b", ""), ("b::c", "use super::X;")])
                .is_empty()
        );
    }

    #[test]
    fn two_modules_that_use_each_other_are_found_in_every_form() {
        for back in [
            "use crate::a::X;",
            "use crate::{other::Z, a::{X, Y}};",
            "fn f() -> crate::a::X {}",
            "use super::a::X as Z;",
        ] {
            assert_eq!(arrows(&[("a", "use crate::b::X;"), ("b", back)]), ["a -> b", "b -> a"], "{back}");
        }
    }

    #[test]
    fn re_exports_lead_to_the_module_of_the_item() {
        let texts =
            [("", "pub(crate) use a::X;\nuse a::Y;"), ("a", "use crate::b::Z;"), ("b", "use crate::X;")];
        assert_eq!(arrows(&texts), ["a -> b", "b -> a"]);
        assert!(arrows(&[("", "use a::Y;"), ("a", "use crate::b::Z;"), ("b", "use crate::Y;")]).is_empty());
    }

    #[test]
    fn arrows_into_folders_are_arrows_between_the_folders() {
        let found =
            modules(&[("x::a", "use crate::y::b::B;"), ("y::b", ""), ("y::c", "use crate::x::a::A;")]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].modules, ["x", "y"]);
        let found = modules(&[("x::a", "use super::b::B;"), ("x::b", "use super::a::A;")]);
        assert_eq!(found[0].parent, "x");
    }

    #[test]
    fn comments_texts_and_tests_do_not_count() {
        for text in [
            "// use crate::a::X;",
            "const T: &str = \"crate::a::X\";",
            "const Q: char = '\"'; const T: &str = \"crate::a::X\";",
            "#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n",
        ] {
            assert!(arrows(&[("a", "use crate::b::X;"), ("b", text)]).is_empty(), "{text}");
        }
    }

    #[test]
    fn listed_circles_pass_and_rows_without_a_circle_are_reported() {
        let exceptions =
            [Exception { package: "p", parent: "", modules: &["a", "b"], reason: "for this test" }];
        let circles = modules(&[("a", "use crate::b::X;"), ("b", "use crate::a::X;")]);
        assert!(findings("p", &circles, &exceptions).is_empty());
        assert_eq!(findings("q", &circles, &exceptions).len(), 1);
        assert_eq!(findings("p", &[], &exceptions).len(), 1);
    }
}
