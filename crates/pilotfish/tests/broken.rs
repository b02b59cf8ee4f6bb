//! The broken set-ups under examples/ are valid, and `pilotfish why` names what is wrong with each.
#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/broken")
}

fn pilotfish(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilotfish")).args(arguments).output().unwrap()
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
        let valid = pilotfish(&["validate", path]);
        assert_eq!(
            valid.status.code(),
            Some(0),
            "{path} is valid: {}",
            String::from_utf8_lossy(&valid.stdout)
        );
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        // One needs a running control plane: see `operator.rs`.
        let command = between(&readme, "$ pilotfish why ", " --files");
        if command.is_empty() {
            continue;
        }
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
