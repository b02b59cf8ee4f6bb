//! `pilotfish bench` in a short form: every change reaches the proxies that it concerns, and each figure is
//! there. No clock is asserted.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use pilotfish_testkit::real::Pilotfish;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Output};

const SIZES: &str =
    "--proxies 20 --services 8 --namespaces 4 --sidecars 2 --localities 3 --service-entries 4";
const ROUNDS: &str = "--rounds 2 --changes 1 --reconnects 1 --further 4 --churn 2";

fn pilotfish() -> Command {
    Command::new(env!("CARGO_BIN_EXE_pilotfish"))
}

fn bench(arguments: &[&str]) -> Output {
    pilotfish().arg("bench").args(SIZES.split(' ')).args(ROUNDS.split(' ')).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_change_reaches_the_proxies_that_it_concerns() {
    let output = bench(&["-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let changes = results["changes"].as_array().unwrap();
    let reached: BTreeMap<&str, (u64, u64)> = changes
        .iter()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().unwrap();
            (row["name"].as_str().unwrap(), (number("proxies_wanted"), number("proxies")))
        })
        .collect();
    // 20 Pods of 8 services: the first four services have three each. Two of the four namespaces have a
    // Sidecar.
    let expected = [
        ("AuthorizationPolicy of a namespace", 5),
        ("AuthorizationPolicy of a workload", 3),
        ("DestinationRule", 20),
        ("MeshConfig: all clusters", 20),
        ("MeshConfig: all listeners", 20),
        ("PeerAuthentication of a namespace", 5),
        ("Service added", 20),
        ("Service removed", 20),
        ("Sidecar of one namespace", 5),
        ("VirtualService: weights, header", 20),
        ("endpoint, seen by all", 20),
        ("endpoint, seen by some", 15),
        ("endpoint, while half of all reconnect", 10),
    ];
    let expected: BTreeMap<&str, (u64, u64)> =
        expected.iter().map(|(name, proxies)| (*name, (*proxies, *proxies))).collect();
    assert_eq!(reached, expected);
    for row in changes {
        assert!(
            row["bytes_each"].as_u64().unwrap() > 0 && row["last_median_ms"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
    all_are_there(&results);
}

/// The figures that are not of one change.
fn all_are_there(results: &Value) {
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap();
    let cold = &results["cold"];
    for (kind, bytes) in cold["sent_bytes_by_type"].as_object().unwrap() {
        assert!(bytes.as_u64().unwrap() > 0, "{kind}");
    }
    assert!(number(cold, "memory_bytes") > 0 && cold["cpu_s"].as_f64().unwrap() > 0.0);
    for again in ["reconnects", "resumes"] {
        assert_eq!(results[again].as_array().unwrap().len(), 1, "{again}");
        assert!(results[again][0]["first_change_ms"].as_f64().unwrap() > 0.0, "{again}");
    }
    let (all, resumed) =
        (number(&results["reconnects"][0], "sent_bytes"), number(&results["resumes"][0], "sent_bytes"));
    assert!(resumed * 10 < all, "who says what it holds is sent next to nothing: {resumed} of {all} bytes");
    let content = results["content"].as_array().unwrap();
    assert_eq!(content.len(), 4);
    for of in content {
        assert!(number(of, "held") >= number(of, "different") && number(of, "different") > 0, "{of}");
        assert!(number(of, "different") >= number(of, "of_one_proxy"), "{of}");
    }
    let listeners = &content[2];
    assert!(number(listeners, "of_one_proxy") >= 20, "the inbound side is of each proxy alone");
    assert!(results["memory"].as_array().unwrap().iter().all(|at| at["bytes"].as_u64().unwrap() > 0));
    assert_eq!(results["further"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_server_that_runs_already_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let written = bench(&["--folder", path, "--write-only"]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let said = text(&written.stdout);
    let arguments: Vec<&str> = said.trim().strip_prefix("pilotfish serve ").unwrap().split(' ').collect();
    let server = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &arguments);
    server.ready().await;
    let (address, pid) = (format!("127.0.0.1:{}", server.xds_port()), server.process_id().to_string());

    let output = bench(&["--address", &address, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(results["changes"].as_array().unwrap().is_empty(), "nobody said how changes reach it");
    assert!(results["cold"]["sent_bytes"].as_u64().unwrap() > 0);
    assert_eq!(results["cold"]["memory_bytes"], 0, "its process was not named");

    // Changes by commands that put the files where the server reads them.
    let own = tempfile::tempdir().unwrap();
    let target = arguments[0];
    let settings = arguments[2];
    let apply = format!(
        "cp {{}} {target}/.new && case {{}} in *mesh-config.yaml) mv {target}/.new {settings};; *) mv {target}/.new \
         {target}/$(basename {{}});; esac"
    );
    let delete = format!("rm {target}/$(basename {{}})");
    let own = own.path().to_str().unwrap();
    let by_commands =
        ["--folder", own, "--apply", &apply, "--delete", &delete, "--pid", &pid, "--address", &address];
    let output = bench(&by_commands);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in
        ["VirtualService: weights, header", "left and came with versions, 1", "of one proxy", "at the end"]
    {
        assert!(printed.contains(part), "{part:?} in {printed}");
    }
}

#[test]
fn options_that_cannot_be_meant_are_refused() {
    let output = pilotfish().args(["bench", "--namespaces", "2", "--sidecars", "2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--namespaces must be more than --sidecars"));
    let output = bench(&["--address", "nowhere"]);
    assert!(text(&output.stderr).contains("is not HOST:PORT"), "{}", text(&output.stderr));
}
