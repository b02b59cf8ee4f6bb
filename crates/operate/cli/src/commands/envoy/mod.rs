//! `pilotfish config PROXY --diff`: compares the resources that a proxy was sent with those on its own admin
//! port.

mod sent;

use crate::client::Client;
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::words::is_or_are;
use pilotfish_api::counted;
use pilotfish_api::v1::{ProxyConfig, Section};
use pilotfish_compare::{Held, KINDS, held, plain};
pub(super) use sent::{pages, whole};
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Context lines around each difference.
const CONTEXT: usize = 3;

/// Difference between the sent resources and those of the Envoy.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigDiff {
    pub(super) proxy: String,
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
        return Err(CliError::new(format!("{} is no admin port of an Envoy", envoy.address())).hint(
            "--envoy-admin is the address of the proxy's own admin port, 127.0.0.1:15000 with Istio's \
             bootstrap",
        ));
    }
    Ok(difference(sent, asked, &held(&dump)))
}

fn difference(
    sent: &ProxyConfig,
    asked: Asked<'_>,
    held: &BTreeMap<(&'static str, String), Held>,
) -> ConfigDiff {
    let mut answer =
        ConfigDiff { proxy: sent.proxy.clone(), revision: sent.revision, ..ConfigDiff::default() };
    let is_dumped = |section: Section| KINDS.contains(&section.as_str());
    let mut known = BTreeSet::new();
    for resource in sent.resources.iter().filter(|resource| is_dumped(resource.section)) {
        let key = (resource.section.as_str(), resource.name.clone());
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
        known.insert(key);
    }
    for (kind, name) in held.keys().filter(|key| !known.contains(*key)) {
        let Some(section) = Section::parse(kind) else { continue };
        if asked.is_meant(section, name, sent) {
            let what = "only in Envoy";
            let (error, diff) = (String::new(), String::new());
            answer.differences.push(Difference { section, name: name.clone(), what, error, diff });
        }
    }
    answer
}

/// Unified diff of two normalised resources in YAML.
fn unified(section: Section, sent: &Value, held: &Value) -> String {
    let (sent, held) = (plain(section.as_str(), sent), plain(section.as_str(), held));
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
