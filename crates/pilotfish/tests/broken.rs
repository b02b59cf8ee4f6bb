//! The broken set-ups under examples/ are valid, `pilotfish why` names what is wrong with each, `plan` shows
//! what its mend changes, and once `wait` has returned the request arrives.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_testkit::real::{LIMIT, Pilotfish, eventually};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/broken")
}

fn pilotfish(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilotfish")).args(arguments).output().unwrap()
}

/// A client command against a running control plane, with its exit code and what it printed.
fn ask(pilotfish: &Pilotfish, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilotfish"));
    let address = format!("127.0.0.1:{}", pilotfish.admin_port());
    let output = command.args(arguments).env("PILOTFISH_ADMIN_ADDRESS", address).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

/// The objects of a YAML text of the examples, by kind, namespace and name.
fn objects(text: &str) -> BTreeMap<(String, String, String), String> {
    let word = |text: &str, before: &str| {
        let rest = text.split_once(before).map_or("", |(_, rest)| rest);
        rest.split([',', '}', '\n']).next().unwrap_or_default().trim().to_owned()
    };
    let documents = text.split("\n---\n").map(|document| {
        let meta = document.lines().find(|line| line.starts_with("metadata:")).unwrap_or_default();
        let key = (word(document, "kind: "), word(meta, "namespace: "), word(meta, "{name: "));
        (key, document.trim_end().to_owned())
    });
    documents.collect()
}

/// The folders that have a mend.
fn mended() -> Vec<(PathBuf, String)> {
    let mends = std::fs::read_dir(examples().join("../mended")).unwrap();
    let mut all: Vec<(PathBuf, String)> = mends
        .map(|entry| {
            let mend = entry.unwrap().path();
            let folder = examples().join(mend.file_stem().unwrap());
            (folder, mend.to_str().unwrap().to_owned())
        })
        .collect();
    all.sort();
    assert!(all.len() >= 10, "{all:?}");
    all
}

/// What stands in a README between two texts.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).and_then(|(_, rest)| rest.split_once(after)).map_or("", |(found, _)| found)
}

#[test]
fn each_set_up_is_explained_by_one_why_in_one_screen() {
    let folders: Vec<PathBuf> = std::fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert!(folders.len() >= 10, "{folders:?}");
    for folder in folders {
        let path = folder.to_str().unwrap();
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        // One has no files and needs a running control plane: see `operator.rs`.
        let command = between(&readme, "$ pilotfish why ", " --files");
        if command.is_empty() {
            continue;
        }
        let valid = pilotfish(&["validate", path]);
        assert_eq!(
            valid.status.code(),
            Some(0),
            "{path} is valid: {}",
            String::from_utf8_lossy(&valid.stdout)
        );
        let line = between(&readme, "says so: `", "`");
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.insert(0, "why");
        arguments.extend(["--files", path]);
        let output = pilotfish(&arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!line.is_empty() && text.contains(line), "{path}: {line:?} in\n{text}{errors}");
        assert!(text.lines().count() <= 40, "{path} needs more than a screen:\n{text}");
    }
}

#[test]
fn each_set_up_is_listed() {
    let list = std::fs::read_to_string(examples().join("README.md")).unwrap();
    for entry in std::fs::read_dir(examples()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || list.contains(&format!("({name}/README.md)")), "{name} is not listed");
    }
}

#[test]
fn each_mend_is_planned_with_the_resource_that_it_changes() {
    for (folder, mend) in mended() {
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let command = format!("$ pilotfish plan --base examples/broken/{name} examples/mended/{name}.yaml\n");
        assert!(readme.contains(&command), "{name}: {command:?} in\n{readme}");
        let change = between(&readme, "shows what that changes: `", "`");
        let output = pilotfish(&["plan", "--base", folder.to_str().unwrap(), &mend]);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        // A mend may take something away, which is marked as dangerous.
        assert!(matches!(output.status.code(), Some(0 | 4)), "{name}: {:?}\n{text}{errors}", output.status);
        assert!(
            !change.is_empty() && text.contains(&format!("\n{change}, for ")),
            "{name}: {change:?} in\n{text}"
        );
    }
}

/// The proxies of the Pods of a set-up.
fn proxies(objects: &BTreeMap<(String, String, String), String>, target: SocketAddr) -> Fleet {
    let pods = objects.keys().filter(|(kind, ..)| kind == "Pod").enumerate();
    let nodes = pods.map(|(index, (_, namespace, name))| {
        let kind = if name == "gateway" { "router" } else { "sidecar" };
        let mut node = node(index, namespace);
        node.id = format!("{kind}~10.0.0.{index}~{name}.{namespace}~{namespace}.svc.cluster.local");
        node
    });
    Fleet::start(target, nodes.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_a_mend_is_in_force_the_request_arrives() {
    for (folder, mend) in mended() {
        let name = folder.display();
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let command = format!("why {}", between(&readme, "$ pilotfish why ", " --files"));
        let why: Vec<&str> = command.split(' ').collect();
        let line = between(&readme, "says so: `", "`");
        let broken = std::fs::read_to_string(folder.join("mesh.yaml")).unwrap();
        let mut all = objects(&broken);
        let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("mesh.yaml", &broken)]).await;
        let fleet = proxies(&all, SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port())));
        fleet.synced(LIMIT).await.unwrap();
        let (_, before) = ask(&pilotfish, &why);
        assert!(before.contains(line), "{name}: {line:?} in\n{before}");

        let mends = objects(&std::fs::read_to_string(&mend).unwrap());
        let names: Vec<String> =
            mends.keys().map(|(kind, namespace, name)| format!("{kind}/{namespace}/{name}")).collect();
        for (key, text) in mends {
            assert!(all.insert(key.clone(), text).is_some(), "{name}: {key:?} is no object of it");
        }
        let texts: Vec<&str> = all.values().map(String::as_str).collect();
        let revision = revision(&pilotfish);
        pilotfish.write("mesh.yaml", &(texts.join("\n---\n") + "\n"));
        eventually("the mend is read", || async {
            let now = self::revision(&pilotfish);
            if now > revision { Ok(()) } else { Err(now) }
        })
        .await;
        for name in &names {
            let (code, text) = ask(&pilotfish, &["wait", name]);
            assert!(code == Some(0) && text.contains("is in force"), "{name}: {code:?} {text}");
        }
        let (code, after) = ask(&pilotfish, &why);
        assert!(code == Some(0) && after.contains("it reaches"), "{name}: {code:?}\n{after}");
        assert!(!after.contains(line), "{name}: {line:?} still in\n{after}");
    }
}

/// The newest revision, once all proxies have acknowledged it.
fn revision(pilotfish: &Pilotfish) -> u64 {
    let (_, text) = ask(pilotfish, &["wait", "-o", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    answer["revision"].as_u64().unwrap_or_else(|| panic!("no revision in {text}"))
}
