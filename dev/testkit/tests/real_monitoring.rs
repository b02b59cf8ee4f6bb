//! The rules of deploy/prometheus and the dashboard of deploy/grafana: Prometheus reads them, and they ask
//! for metrics that exist.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use pilotfish_testkit::real::Tool;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// Runs promtool, and panics with what it says where it finds a mistake.
fn promtool(arguments: &[&str]) -> Option<()> {
    let mut promtool = Command::new(Tool::Promtool.find()?);
    let output = promtool.args(arguments).current_dir(root().join("deploy/prometheus")).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(())
}

/// The names of series that docs/metrics.md has, which a test holds against the program.
fn series() -> BTreeSet<String> {
    let page = read("docs/metrics.md");
    let ours = page.split("## What Istio").next().unwrap();
    let mut names = BTreeSet::new();
    for row in ours.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let name = cells[0].trim_matches('`');
        match cells[1] {
            "histogram" => names.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}"))),
            _ => drop(names.insert(name.to_owned())),
        }
    }
    names
}

/// The names of metrics in a query: words with a line in them that are neither labels nor functions, and
/// recordings with a colon.
fn metrics(query: &str) -> BTreeSet<String> {
    const OTHERS: [&str; 5] =
        ["histogram_quantile", "label_values", "max_over_time", "__rate_interval", "group_left"];
    let mut names = BTreeSet::new();
    // What stands in braces, brackets or quotes is no metric.
    let mut depth = 0_usize;
    let mut plain = String::new();
    for c in query.chars() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for word in plain.split(|c| !is_word(c)) {
        let is_metric = word.contains('_') || word.contains(':');
        if is_metric && word.starts_with(|c: char| c.is_ascii_lowercase()) && !OTHERS.contains(&word) {
            names.insert(word.to_owned());
        }
    }
    names
}

#[test]
fn the_rules_are_valid_and_do_what_their_tests_say() {
    if promtool(&["check", "rules", "rules.yaml"]).is_some() {
        promtool(&["test", "rules", "rules_test.yaml"]);
    }
}

#[test]
fn each_alert_is_tested_and_listed() {
    let rules: Value = serde_saphyr::from_str(&read("deploy/prometheus/rules.yaml")).unwrap();
    let (tests, page) = (read("deploy/prometheus/rules_test.yaml"), read("deploy/prometheus/README.md"));
    let (mut recorded, mut asked) = (series(), BTreeSet::new());
    for rule in
        rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap())
    {
        asked.extend(metrics(rule["expr"].as_str().unwrap()));
        if let Some(record) = rule["record"].as_str() {
            recorded.insert(record.to_owned());
        }
        if let Some(alert) = rule["alert"].as_str() {
            assert!(tests.contains(alert), "no test of {alert}");
            let row = format!("| `{alert}` | {} |", rule["labels"]["severity"].as_str().unwrap());
            assert!(page.contains(&row), "no row {row:?}");
        }
    }
    assert_eq!(
        asked.difference(&recorded).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "metrics that do not exist"
    );
}

#[test]
fn each_query_of_the_dashboard_is_valid_and_asks_for_what_exists() {
    let board: Value = serde_json::from_str(&read("deploy/grafana/pilotfish.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 30, "{}", queries.len());
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    let (known, mut asked) = (series(), BTreeSet::new());
    queries.iter().for_each(|query| asked.extend(metrics(query)));
    assert_eq!(
        asked.difference(&known).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "metrics that do not exist"
    );
    let rules = queries.iter().enumerate().map(|(number, query)| {
        let query = query.replace("$__rate_interval", "1m").replace("$instance", ".*");
        serde_json::json!({"record": format!("q{number}"), "expr": query})
    });
    let rules = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules.collect::<Vec<_>>()}]});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rules.to_string()).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()]);
}
