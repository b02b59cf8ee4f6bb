//! A file beyond the limit costs no memory. Alone in its process, whose peak is measured.
#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_files::{FileSourceSettings, validate_paths};

/// The most memory that the process had at once, in KB.
#[cfg(target_os = "linux")]
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Elsewhere only the message is compared.
#[cfg(not(target_os = "linux"))]
fn peak() -> u64 {
    0
}

#[test]
fn a_huge_file_is_refused_without_reading_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("huge.yaml")).unwrap();
    file.set_len(100 << 20).unwrap();
    let before = peak();
    let summary = validate_paths(&FileSourceSettings::new(vec![dir.path().to_owned()])).unwrap();
    let grown = peak() - before;
    let report = summary.problems.reports[0].to_string();
    assert!(
        report.ends_with("cannot be read: it has 100 MB, more than the limit of 64 MB; it is not applied"),
        "{report}"
    );
    assert!(grown < 16 << 10, "{grown} KB more for a file that is not read");
}
