//! Every recorded case is read without an error.

use pilotfish_config::{Limits, MeshFile, ReadFile, read, read_mesh_file};
use std::path::{Path, PathBuf};

fn cases() -> Option<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/cases");
    cases.is_dir().then_some(cases)
}

fn complaints(file: &Path, read: &ReadFile) -> Vec<String> {
    let refused = read.refused.iter().flat_map(|refused| {
        refused.problems.iter().map(|problem| {
            format!("{}:{}: {:?}: {problem}", file.display(), problem.line.unwrap_or(0), refused.key)
        })
    });
    let ignored = read.ignored.keys().map(|kind| format!("{}: ignored {kind}", file.display()));
    refused.chain(ignored).collect()
}

#[test]
fn recorded_cases_are_read_without_errors() {
    let Some(cases) = cases() else { return };
    let mut wrong = Vec::new();
    let mut objects = 0;
    for case in std::fs::read_dir(cases).unwrap() {
        let case = case.unwrap().path();
        let limits = Limits::default();
        let config = case.join("config.yaml");
        let result = read("config.yaml", &std::fs::read(&config).unwrap(), &limits);
        objects += result.objects.len();
        wrong.extend(complaints(&config, &result));
        for (name, which) in [("mesh.yaml", MeshFile::Config), ("networks.yaml", MeshFile::Networks)] {
            let Ok(bytes) = std::fs::read(case.join(name)) else { continue };
            let result = read_mesh_file(which, name, &bytes, &limits);
            assert_eq!(result.objects.len(), 1, "{case:?} {name}");
            let warnings = result.objects.iter().flat_map(|object| &object.warnings);
            wrong.extend(warnings.map(|problem| format!("{case:?} {name}: {problem}")));
            wrong.extend(complaints(&case.join(name), &result));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(objects > 1_000, "only {objects} objects were read");
}
