//! The stand-in for Consul satisfies clients that others wrote, and answers in the shape of HashiCorp's own
//! double.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use pilotfish_testkit::consul::{Consul, ConsulOptions};
use pilotfish_testkit::real::{Program, Tool, eventually, fetch, free_port};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokio::process::Command;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consul_clients").join(name)
}

async fn ends_well(command: &mut Command) {
    let output = command.output().await.expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.trim() == "done", "{out}{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn py_consul_registers_blocks_and_locks() {
    let Some(python) = Tool::Python.find() else { return };
    let consul = Consul::plain().await;
    ends_well(Command::new(python).arg(script("client.py")).arg(consul.address().to_string())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_npm_package_consul_registers_watches_and_locks() {
    let Some(packages) = Tool::NodePackages.find() else { return };
    let consul = Consul::plain().await;
    let mut node = Command::new("node");
    node.env("NODE_PATH", packages).arg(script("client.js")).arg(consul.address().to_string());
    ends_well(&mut node).await;
}

/// What differs in shape, and why.
const KNOWN: [(&str, &str); 3] = [
    ("Service/ProxyDestination", "a field of Consul 1.2 that later versions do not have"),
    ("Service/Proxy/", "only proxies have it; the double makes one up"),
    ("web/", "the double's agent/services is of Consul 1.2"),
];

/// The paths of a JSON value with their types; lists are looked into by their first element.
fn shape(value: &Value, path: &str, into: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    into.insert(path.to_owned(), kind);
    match value {
        Value::Array(list) => list.first().into_iter().for_each(|first| shape(first, path, into)),
        // The keys of these are the user's.
        Value::Object(_) if path.ends_with("Meta") || path.ends_with("TaggedAddresses") => {}
        Value::Object(map) => {
            for (key, value) in map {
                shape(value, &format!("{path}/{key}"), into);
            }
        }
        _ => {}
    }
}

async fn shape_of(port: u16, path: &str) -> BTreeMap<String, &'static str> {
    let body = fetch(&format!("http://127.0.0.1:{port}{path}"))
        .await
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    let value: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
    let mut paths = BTreeMap::new();
    shape(&value, "", &mut paths);
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_have_the_shape_of_hashicorps_double() {
    let Some(packages) = Tool::NodePackages.find() else { return };
    let consul = Consul::start(ConsulOptions { node: "node-0".to_owned(), ..ConsulOptions::default() }).await;
    consul.register(&json!({
        "Node": "node-1", "Address": "10.0.0.1", "TaggedAddresses": {"lan": "10.0.0.1", "wan": "10.0.0.1"}, "NodeMeta": {"a": "b"},
        "Service": {"Service": "service-0", "ID": "service-0-with-id", "Port": 80, "Tags": ["a"], "Meta": {"a": "b"}, "Address": "10.0.0.1"},
        "Check": {"Name": "alive", "CheckID": "alive", "ServiceID": "service-0-with-id", "Status": "passing", "Type": "ttl"},
    }));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let port = free_port();
    let mut double = Command::new("node");
    double.arg(packages.join("@hashicorp/api-double/bin/index.js")).args(["--seed", "1", "--port"]);
    double.arg(port.to_string()).arg("--dir").arg(packages.join("@hashicorp/consul-api-double"));
    double.env("CONSUL_NODE_COUNT", "1").env("CONSUL_CHECK_COUNT", "3");
    let double = Program::start(&mut double, folder.path().join("log"));
    eventually("the double listens", || async {
        let printed = double.printed();
        if printed.contains("Listening") { Ok(()) } else { Err(printed) }
    })
    .await;

    let mut compared = 0;
    for path in ["health/service/service-0", "catalog/datacenters", "status/leader"] {
        let theirs = shape_of(port, &format!("/v1/{path}")).await;
        let ours = shape_of(consul.address().port(), &format!("/v1/{path}")).await;
        for (place, kind) in theirs {
            let known = KNOWN.iter().any(|(prefix, _)| place.trim_start_matches('/').starts_with(prefix));
            if !known {
                assert_eq!(ours.get(&place), Some(&kind), "{path}: {place}: {ours:#?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 30, "only {compared} places were compared");
}
