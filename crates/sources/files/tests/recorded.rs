//! Every recorded case and every example is read and found good, but for the objects that
//! `oracle/differences.yaml` lists.

#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_config::{Limits, MeshFile, Problem, ReadFile, Rejected, read, read_mesh_file};
use pilotfish_files::{FileSourceSettings, validate_paths};
use serde::Deserialize;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Kinds of recorded objects that have no effect. istiod does not read the first one either.
const NOT_SERVED: [&str; 1] = ["gateway.networking.k8s.io/v1 UDPRoute"];
/// The field of recorded mesh configs with a value that is not served.
const NOT_SERVED_VALUE: &str = "outboundTrafficPolicy.mode";

/// The part of `oracle/differences.yaml` that says what is not taken.
#[derive(Deserialize)]
struct Known {
    #[serde(default)]
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    case: String,
    /// As `Secret edge/web: data.tls.crt`.
    object: String,
}

impl Known {
    fn has(&self, case: &Path, rejected: &Rejected) -> bool {
        let Some(key) = &rejected.key else { return false };
        let Some(error) = rejected.problems.iter().find(|problem| problem.is_error()) else { return false };
        let object = format!("{key}: {}", error.path);
        self.refused.iter().any(|known| case.ends_with(&known.case) && known.object == object)
    }
}

fn complaints(file: &Path, read: &ReadFile, known: &Known) -> Vec<String> {
    let is_known = |rejected: &&Rejected| file.parent().is_some_and(|case| known.has(case, rejected));
    let refused = read.rejected.iter().filter(|it| !is_known(it)).flat_map(|refused| {
        refused.problems.iter().filter(|problem| problem.is_error()).map(|problem| {
            format!("{}:{}: {:?}: {problem}", file.display(), problem.line.unwrap_or(0), refused.key)
        })
    });
    let ignored = read.ignored.keys().filter(|kind| !NOT_SERVED.contains(&kind.as_str()));
    let ignored = ignored.map(|kind| format!("{}: ignored {kind}", file.display()));
    refused.chain(ignored).collect()
}

#[test]
fn recorded_cases_are_read_without_errors() {
    let known = std::fs::read_to_string(repository().join("oracle/differences.yaml")).unwrap();
    let known: Known = serde_saphyr::from_str(&known).unwrap();
    let mut wrong = Vec::new();
    let mut objects = 0;
    for case in std::fs::read_dir(repository().join("oracle/cases")).unwrap() {
        let case = case.unwrap().path();
        let limits = Limits::default();
        let config = case.join("config.yaml");
        let result = read("config.yaml", &std::fs::read(&config).unwrap(), &limits);
        objects += result.objects.len();
        wrong.extend(complaints(&config, &result, &known));
        for (name, which) in [("mesh.yaml", MeshFile::Config), ("networks.yaml", MeshFile::Networks)] {
            let Ok(bytes) = std::fs::read(case.join(name)) else { continue };
            let result = read_mesh_file(which, name, &bytes, &limits);
            let warnings = result.objects.iter().flat_map(|object| &object.warnings);
            let warnings = warnings.filter(|problem| problem.path.to_string() != NOT_SERVED_VALUE);
            wrong.extend(warnings.map(|problem: &Problem| format!("{case:?} {name}: {problem}")));
            wrong.extend(complaints(&case.join(name), &result, &known));
            assert_eq!(result.objects.len(), 1, "{case:?} {name}: {wrong:?}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(objects > 1_000, "only {objects} objects were read");
}

/// The files or folders in a folder.
fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Reads what is there as one world, which has no problems. Returns how many objects it has.
fn read_without_problems(paths: Vec<PathBuf>) -> usize {
    let summary = validate_paths(&FileSourceSettings::new(paths)).unwrap();
    let reports: Vec<_> = summary.problems.reports.iter().map(ToString::to_string).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n"));
    assert!(summary.problems.ignored.is_empty(), "{:?}", summary.problems.ignored);
    summary.objects.values().sum()
}

#[test]
fn examples_have_no_problems() {
    let examples = repository().join("examples");
    // Each of the broken ones is a world of its own, and each mend belongs to one of them.
    let of_one_world = |path: &PathBuf| !["broken", "mended"].iter().any(|name| path.ends_with(name));
    let folders = entries(&examples).into_iter().filter(|path| path.is_dir()).filter(of_one_world);
    assert!(read_without_problems(folders.collect()) > 5);
    for mend in entries(&examples.join("mended")) {
        assert!(read_without_problems(vec![mend]) > 0);
    }
}
