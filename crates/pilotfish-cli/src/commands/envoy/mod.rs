//! `pilotfish config PROXY --diff`: compares the resources that a proxy was sent with those on its own admin
//! port.

mod plain;
mod sent;

use crate::client::Client;
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::words::is_or_are;
use pilotfish_api::counted;
use pilotfish_api::v1::{ProxyConfig, Section};
use plain::plain;
pub(super) use sent::whole;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Context lines around each difference.
const CONTEXT: usize = 3;

/// Difference between the sent resources and those of the Envoy.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigDiff {
    pub(super) proxy: String,
    /// The compared revision.
    pub(super) revision: u64,
    /// Number of equal resources.
    pub(super) same: usize,
    pub(super) differences: Vec<Difference>,
}

/// A resource that differs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Difference {
    pub(super) section: Section,
    pub(super) name: String,
    /// `not in Envoy`, `only in Envoy`, `warming`, `refused` or `differs`.
    pub(super) what: &'static str,
    /// Reason of Envoy's refusal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) error: String,
    /// Unified diff from the sent resource to that of Envoy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) diff: String,
}

/// A resource in an Envoy's dump.
#[derive(Debug, Default)]
struct Held {
    version: String,
    resource: Value,
    /// Reason of the refusal of the newest version.
    error: String,
    /// True if it waits for referenced resources and is not in use yet.
    is_warming: bool,
}

/// Sections that Envoy dumps with their lists, the field of a resource in them, and the field of its state.
const DUMPED: [(Section, &str, &str); 4] = [
    (Section::Clusters, "dynamic_active_clusters", "cluster"),
    (Section::Endpoints, "dynamic_endpoint_configs", "endpoint_config"),
    (Section::Listeners, "dynamic_listeners", "listener"),
    (Section::Routes, "dynamic_route_configs", "route_config"),
];

/// Filter for the compared resources.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked<'a> {
    pub(super) section: Option<Section>,
    /// Exact name, or a part of the name.
    pub(super) name: Option<&'a str>,
}

impl Asked<'_> {
    /// True if the filter matches a resource that the Envoy has and was not sent.
    fn is_meant(&self, section: Section, name: &str, sent: &ProxyConfig) -> bool {
        let by_name = |part: &str| {
            // Like the control plane: the resource with that name, or else those whose names contain it.
            let is_exact = sent.resources.iter().any(|resource| resource.name == part);
            if is_exact { name == part } else { name.contains(part) }
        };
        self.section.is_none_or(|asked| asked == section) && self.name.is_none_or(by_name)
    }
}

/// Reads the dump of an Envoy, and compares it with all sent resources that the filter matches.
pub(super) async fn compare(
    sent: &ProxyConfig,
    asked: Asked<'_>,
    envoy: &Client,
) -> Result<ConfigDiff, CliError> {
    let dump: Value = envoy.get_page("/config_dump?include_eds").await?;
    if dump.get("configs").is_none() {
        return Err(CliError::new(format!("{} is no admin port of an Envoy", envoy.address()))
            .hint("--envoy-admin is the address of the proxy's own admin port, 127.0.0.1:15000 with Istio's bootstrap"));
    }
    Ok(difference(sent, asked, &held(&dump)))
}

fn difference(sent: &ProxyConfig, asked: Asked<'_>, held: &BTreeMap<(Section, String), Held>) -> ConfigDiff {
    let mut answer =
        ConfigDiff { proxy: sent.proxy.clone(), revision: sent.revision, ..ConfigDiff::default() };
    let is_dumped = |section: Section| DUMPED.iter().any(|(dumped, ..)| *dumped == section);
    let mut known = BTreeMap::new();
    for resource in sent.resources.iter().filter(|resource| is_dumped(resource.section)) {
        let key = (resource.section, resource.name.clone());
        let one = |what, error: &str, diff| Difference {
            section: resource.section,
            name: resource.name.clone(),
            what,
            error: error.to_owned(),
            diff,
        };
        match held.get(&key) {
            None => answer.differences.push(one("not in Envoy", "", String::new())),
            Some(held) if !held.error.is_empty() => {
                // Without an older version, the whole resource would be a difference.
                let is_new = held.resource.is_null();
                let diff = || unified(resource.section, &resource.resource, &held.resource);
                let diff = if is_new { String::new() } else { diff() };
                answer.differences.push(one("refused", &held.error, diff));
            }
            Some(held) if held.is_warming => answer.differences.push(one("warming", "", String::new())),
            // A delta client keeps the version of each resource, which is a hash of its content.
            Some(held) if held.version == resource.version => answer.same += 1,
            Some(held) => match unified(resource.section, &resource.resource, &held.resource) {
                diff if diff.is_empty() => answer.same += 1,
                diff => answer.differences.push(one("differs", "", diff)),
            },
        }
        known.insert(key, ());
    }
    for ((section, name), _) in held.iter().filter(|(key, _)| !known.contains_key(*key)) {
        if asked.is_meant(*section, name, sent) {
            let what = "only in Envoy";
            let (error, diff) = (String::new(), String::new());
            answer.differences.push(Difference { section: *section, name: name.clone(), what, error, diff });
        }
    }
    answer
}

/// Dynamic resources of a dump.
fn held(dump: &Value) -> BTreeMap<(Section, String), Held> {
    let configs = || dump.get("configs").and_then(Value::as_array).into_iter().flatten();
    let entries = |list: &'static str| {
        configs().flat_map(move |config| config.get(list).and_then(Value::as_array).into_iter().flatten())
    };
    let mut all = BTreeMap::new();
    for entry in entries("dynamic_warming_clusters") {
        let (name, held) = one(Section::Clusters, "cluster", entry);
        all.insert((Section::Clusters, name), Held { is_warming: true, ..held });
    }
    let mut by_eds = BTreeSet::new();
    for (section, list, field) in DUMPED {
        for entry in entries(list) {
            let (name, held) = one(section, field, entry);
            // A listener that is only draining counts as removed.
            if held.resource.is_null() && held.error.is_empty() {
                continue;
            }
            if held.resource.get("type").is_some_and(|discovery| discovery == "EDS") {
                by_eds.insert(name.clone());
            }
            // Endpoints of other clusters are part of their clusters, and are not sent.
            if section == Section::Endpoints && !by_eds.contains(&name) {
                continue;
            }
            match all.entry((section, name)) {
                Entry::Occupied(mut before) if held.resource.is_null() => before.get_mut().error = held.error,
                Entry::Occupied(mut before) => drop(before.insert(held)),
                Entry::Vacant(place) => drop(place.insert(held)),
            }
        }
    }
    all
}

/// One resource of a dump, with its name.
fn one(section: Section, field: &str, entry: &Value) -> (String, Held) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let active = if section == Section::Listeners { entry.get("active_state") } else { Some(entry) };
    let state = active.or_else(|| entry.get("warming_state"));
    let resource = state.and_then(|state| state.get(field)).cloned().unwrap_or_default();
    let name = resource.get(if section == Section::Endpoints { "cluster_name" } else { "name" });
    // A refused resource may have a second entry without a name.
    let refused = || entry.pointer("/error_state/failed_configuration/name");
    let name = text(name.or_else(|| entry.get("name")).or_else(refused));
    let version = text(state.and_then(|state| state.get("version_info")));
    let error = text(entry.pointer("/error_state/details"));
    (name, Held { version, resource, error, is_warming: active.is_none() })
}

/// Unified diff of two normalised resources in YAML.
fn unified(section: Section, sent: &Value, held: &Value) -> String {
    let (sent, held) = (plain(section, sent), plain(section, held));
    if sent == held {
        return String::new();
    }
    let yaml = |value: &Value| serde_saphyr::to_string(value).unwrap_or_default();
    let (sent, held) = (yaml(&sent), yaml(&held));
    TextDiff::from_lines(&sent, &held).unified_diff().context_radius(CONTEXT).to_string()
}

pub(super) fn text(answer: &ConfigDiff, screen: &Screen) -> String {
    if answer.differences.is_empty() {
        let line = format!(
            "{} has what it was sent: {} {} equal",
            answer.proxy,
            counted(answer.same, "resource"),
            is_or_are(answer.same)
        );
        return screen.paint(&line, Colour::Good) + "\n";
    }
    let mut out = String::new();
    let count = answer.differences.len();
    let (differ, same) = (if count == 1 { "differs" } else { "differ" }, answer.same);
    let resources = counted(count, "resource");
    let line = format!("{}: {resources} {differ}, {same} {} equal", answer.proxy, is_or_are(same));
    let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
    for Difference { section, name, what, error, diff } in &answer.differences {
        let error = if error.is_empty() { String::new() } else { format!(": {}", error.replace('\n', " ")) };
        let _ = writeln!(out, "\n{section} {name}: {what}{error}");
        for line in diff.lines() {
            let colour = match line.as_bytes().first() {
                Some(b'+') => Colour::Good,
                Some(b'-') => Colour::Bad,
                _ => Colour::Faint,
            };
            let _ = writeln!(out, "{}", screen.paint(line, colour));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::ConfigResource;
    use serde_json::json;

    fn sent(section: Section, name: &str, resource: Value) -> ConfigResource {
        {
            let (made_by, left_out) = (Vec::new(), Vec::new());
            ConfigResource { section, name: name.into(), version: "0a".into(), made_by, left_out, resource }
        }
    }

    #[test]
    fn what_an_envoy_has_is_compared_by_version_and_then_by_content() {
        let cluster =
            |name: &str, timeout: &str| json!({"@type": "x", "name": name, "connect_timeout": timeout});
        let dump = json!({"configs": [
            {"dynamic_active_clusters": [
                {"version_info": "0a", "cluster": cluster("same-version", "9s")},
                {"version_info": "7", "cluster": cluster("same-content", "0.250s")},
                {"version_info": "7", "cluster": cluster("other", "2s")},
                {"version_info": "7", "cluster": cluster("extra", "2s")},
            ], "dynamic_warming_clusters": [
                {"version_info": "0a", "cluster": cluster("slow", "1s")},
            ]},
            {"dynamic_listeners": [
                {"name": "l", "active_state": {"version_info": "7", "listener": {"name": "l"}}, "error_state": {"details": "no such filter"}},
                {"error_state": {"details": "no such filter", "failed_configuration": {"name": "l"}}},
            ]},
        ]});
        let resources = vec![
            sent(Section::Clusters, "same-version", cluster("same-version", "1s")),
            sent(Section::Clusters, "same-content", cluster("same-content", "0.25s")),
            sent(Section::Clusters, "other", cluster("other", "1s")),
            sent(Section::Clusters, "missing", cluster("missing", "1s")),
            sent(Section::Clusters, "slow", cluster("slow", "1s")),
            sent(Section::Listeners, "l", json!({"name": "l", "address": 1})),
            sent(Section::Secrets, "ignored", Value::Null),
        ];
        let config = ProxyConfig { proxy: "web-0.shop".into(), resources, ..ProxyConfig::default() };
        let answer = difference(&config, Asked::default(), &held(&dump));
        let found: Vec<_> = answer.differences.iter().map(|one| (one.name.as_str(), one.what)).collect();
        assert_eq!(answer.same, 2);
        assert_eq!(
            found,
            [
                ("other", "differs"),
                ("missing", "not in Envoy"),
                ("slow", "warming"),
                ("l", "refused"),
                ("extra", "only in Envoy")
            ]
        );
        let text = text(&answer, &Screen::plain());
        assert!(text.contains("-connect_timeout: 1s\n+connect_timeout: 2s\n"), "{text}");
        assert!(text.contains("listeners l: refused: no such filter\n"), "{text}");
    }

    #[test]
    fn what_is_only_in_envoy_is_told_of_what_was_asked_for() {
        let route = |name: &str| json!({"version_info": "7", "route_config": {"name": name}});
        let cluster = |name: &str| json!({"version_info": "7", "cluster": {"name": name}});
        let dump = json!({"configs": [
            {"dynamic_route_configs": [route("80"), route("8080")]}, {"dynamic_active_clusters": [cluster("c80")]},
        ]});
        let found = |resources: Vec<ConfigResource>, section, name| {
            let config = ProxyConfig { resources, ..ProxyConfig::default() };
            let answer = difference(&config, Asked { section, name }, &held(&dump));
            answer.differences.into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        let sent = || vec![sent(Section::Routes, "80", json!({"name": "80"}))];
        assert_eq!(found(vec![], None, None), ["c80", "80", "8080"], "nothing was sent");
        assert_eq!(found(vec![], Some(Section::Routes), None), ["80", "8080"]);
        assert_eq!(found(vec![], Some(Section::Routes), Some("808")), ["8080"]);
        assert_eq!(
            found(sent(), Some(Section::Routes), Some("80")),
            Vec::<String>::new(),
            "the one is equal"
        );
        assert_eq!(found(sent(), None, None), ["c80", "8080"]);
    }
}
