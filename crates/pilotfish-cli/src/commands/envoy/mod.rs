//! `pilotfish config PROXY --diff`: what a proxy was sent against what its own admin port says that it has.

use crate::client::Client;
use crate::error::CliError;
use crate::output::{Colour, Screen};
use pilotfish_api::v1::{ProxyConfig, Section};
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lines around each difference.
const CONTEXT: usize = 3;

/// What differs between what was sent and what the Envoy has.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigDiff {
    /// The proxy.
    pub(super) proxy: String,
    /// The revision that was compared.
    pub(super) revision: u64,
    /// Resources that are equal.
    pub(super) same: usize,
    /// The others.
    pub(super) differences: Vec<Difference>,
}

/// A resource that differs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Difference {
    pub(super) section: Section,
    pub(super) name: String,
    /// `not in Envoy`, `only in Envoy`, `refused` or `differs`.
    pub(super) what: &'static str,
    /// Why Envoy refuses it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) error: String,
    /// From what was sent to what Envoy has.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) diff: String,
}

/// A resource of an Envoy's dump.
#[derive(Debug, Default)]
struct Held {
    version: String,
    resource: Value,
    /// Why the newest version is refused.
    error: String,
}

/// The sections that Envoy dumps with their lists, the field of a resource in them, and the field of its state.
const DUMPED: [(Section, &str, &str); 4] = [
    (Section::Clusters, "dynamic_active_clusters", "cluster"),
    (Section::Endpoints, "dynamic_endpoint_configs", "endpoint_config"),
    (Section::Listeners, "dynamic_listeners", "listener"),
    (Section::Routes, "dynamic_route_configs", "route_config"),
];

/// Asks an Envoy what it has, and compares.
pub(super) async fn compare(sent: &ProxyConfig, envoy: &Client) -> Result<ConfigDiff, CliError> {
    let dump: Value = envoy.get_page("/config_dump?include_eds").await?;
    if dump.get("configs").is_none() {
        return Err(CliError::new(format!("{} is no admin port of an Envoy", envoy.address()))
            .hint("--envoy-admin is the address of the proxy's own admin port, 127.0.0.1:15000 with Istio's bootstrap"));
    }
    Ok(difference(sent, &held(&dump)))
}

fn difference(sent: &ProxyConfig, held: &BTreeMap<(Section, String), Held>) -> ConfigDiff {
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
                let diff = unified(&resource.resource, &held.resource);
                answer.differences.push(one("refused", &held.error, diff));
            }
            // A delta client keeps the version of each resource, which is a hash of its content.
            Some(held) if held.version == resource.version => answer.same += 1,
            Some(held) => match unified(&resource.resource, &held.resource) {
                diff if diff.is_empty() => answer.same += 1,
                diff => answer.differences.push(one("differs", "", diff)),
            },
        }
        known.insert(key, ());
    }
    let sections: Vec<Section> = sent.resources.iter().map(|resource| resource.section).collect();
    for ((section, name), _) in held.iter().filter(|(key, _)| !known.contains_key(*key)) {
        // Where only some were asked for, others are no difference.
        if sections.contains(section) && !sent.truncated {
            let what = "only in Envoy";
            let (error, diff) = (String::new(), String::new());
            answer.differences.push(Difference { section: *section, name: name.clone(), what, error, diff });
        }
    }
    answer
}

/// The dynamic resources of a dump.
fn held(dump: &Value) -> BTreeMap<(Section, String), Held> {
    let mut all = BTreeMap::new();
    let configs = dump.get("configs").and_then(Value::as_array).into_iter().flatten();
    for config in configs {
        for (section, list, field) in DUMPED {
            let entries = config.get(list).and_then(Value::as_array).into_iter().flatten();
            for entry in entries {
                let text =
                    |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
                let state =
                    if section == Section::Listeners { entry.get("active_state") } else { Some(entry) };
                let resource = state.and_then(|state| state.get(field)).cloned().unwrap_or_default();
                let name = resource.get(if section == Section::Endpoints { "cluster_name" } else { "name" });
                let name = name.or_else(|| entry.get("name"));
                let version = text(state.and_then(|state| state.get("version_info")));
                let error = text(entry.pointer("/error_state/details"));
                all.insert((section, text(name)), Held { version, resource, error });
            }
        }
    }
    all
}

/// A unified diff of two resources in YAML, without what says the same in other words.
fn unified(sent: &Value, held: &Value) -> String {
    let (mut sent, mut held) = (sent.clone(), held.clone());
    for value in [&mut sent, &mut held] {
        if let Value::Object(fields) = value {
            fields.remove("@type");
        }
        plain(value);
    }
    if sent == held {
        return String::new();
    }
    let yaml = |value: &Value| serde_saphyr::to_string(value).unwrap_or_default();
    let (sent, held) = (yaml(&sent), yaml(&held));
    TextDiff::from_lines(&sent, &held).unified_diff().context_radius(CONTEXT).to_string()
}

/// Durations without zeros at their end, and whole numbers as such.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(plain),
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::String(text) => {
            let seconds = text.strip_suffix('s').filter(|number| number.contains('.'));
            if let Some(number) = seconds.filter(|number| number.parse::<f64>().is_ok()) {
                *text = format!("{}s", number.trim_end_matches('0').trim_end_matches('.'));
            }
        }
        Value::Number(number) => {
            let whole = number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 9e15);
            if let Some(whole) = whole.filter(|_| number.is_f64()) {
                *value = Value::from(whole as i64);
            }
        }
        _ => {}
    }
}

pub(super) fn text(answer: &ConfigDiff, screen: &Screen) -> String {
    if answer.differences.is_empty() {
        let line = format!("{} has what it was sent: {} resources are equal\n", answer.proxy, answer.same);
        return screen.paint(&line, Colour::Good);
    }
    let mut out = String::new();
    let count = answer.differences.len();
    let line = format!("{}: {count} resources differ, {} are equal", answer.proxy, answer.same);
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
            ]},
            {"dynamic_listeners": [
                {"name": "l", "active_state": {"version_info": "7", "listener": {"name": "l"}}, "error_state": {"details": "no such filter"}},
            ]},
        ]});
        let resources = vec![
            sent(Section::Clusters, "same-version", cluster("same-version", "1s")),
            sent(Section::Clusters, "same-content", cluster("same-content", "0.25s")),
            sent(Section::Clusters, "other", cluster("other", "1s")),
            sent(Section::Clusters, "missing", cluster("missing", "1s")),
            sent(Section::Listeners, "l", json!({"name": "l", "address": 1})),
            sent(Section::Secrets, "ignored", Value::Null),
        ];
        let config = ProxyConfig { proxy: "web-0.shop".into(), resources, ..ProxyConfig::default() };
        let answer = difference(&config, &held(&dump));
        let found: Vec<_> = answer.differences.iter().map(|one| (one.name.as_str(), one.what)).collect();
        assert_eq!(answer.same, 2);
        assert_eq!(
            found,
            [("other", "differs"), ("missing", "not in Envoy"), ("l", "refused"), ("extra", "only in Envoy")]
        );
        let text = text(&answer, &Screen::plain());
        assert!(text.contains("-connect_timeout: 1s\n+connect_timeout: 2s\n"), "{text}");
        assert!(text.contains("listeners l: refused: no such filter\n"), "{text}");
    }
}
