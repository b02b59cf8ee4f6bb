//! Every recorded case and every example is read and found good.

use pilotfish_config::file::{FileSourceSettings, validate_paths};
use pilotfish_config::{Limits, MeshFile, Problem, ReadFile, read, read_mesh_file};
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn complaints(file: &Path, read: &ReadFile) -> Vec<String> {
    let refused = read.rejected.iter().flat_map(|refused| {
        refused.problems.iter().filter(|problem| problem.is_error()).map(|problem| {
            format!("{}:{}: {:?}: {problem}", file.display(), problem.line.unwrap_or(0), refused.key)
        })
    });
    let ignored = read.ignored.keys().map(|kind| format!("{}: ignored {kind}", file.display()));
    refused.chain(ignored).collect()
}

#[test]
fn recorded_cases_are_read_without_errors() {
    let mut wrong = Vec::new();
    let mut objects = 0;
    for case in std::fs::read_dir(repository().join("oracle/cases")).unwrap() {
        let case = case.unwrap().path();
        let limits = Limits::default();
        let config = case.join("config.yaml");
        let result = read("config.yaml", &std::fs::read(&config).unwrap(), &limits);
        objects += result.objects.len();
        wrong.extend(complaints(&config, &result));
        for (name, which) in [("mesh.yaml", MeshFile::Config), ("networks.yaml", MeshFile::Networks)] {
            let Ok(bytes) = std::fs::read(case.join(name)) else { continue };
            let result = read_mesh_file(which, name, &bytes, &limits);
            let warnings = result.objects.iter().flat_map(|object| &object.warnings);
            wrong.extend(warnings.map(|problem: &Problem| format!("{case:?} {name}: {problem}")));
            wrong.extend(complaints(&case.join(name), &result));
            assert_eq!(result.objects.len(), 1, "{case:?} {name}: {wrong:?}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(objects > 1_000, "only {objects} objects were read");
}

#[test]
fn examples_have_no_problems() {
    let examples = repository().join("examples");
    let summary = validate_paths(&FileSourceSettings::new(vec![examples])).unwrap();
    let reports: Vec<_> = summary.problems.reports.iter().map(ToString::to_string).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n"));
    assert!(summary.problems.ignored.is_empty(), "{:?}", summary.problems.ignored);
    assert!(summary.objects.values().sum::<usize>() > 5);
}
