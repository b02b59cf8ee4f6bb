//! What holds of everything that was read, whatever was in it.

use pilotfish_config::{Limits, Problem, ReadFile, ReadObject, Rejected, spec_json, validate};

/// Tight limits, so that small inputs reach them.
pub(super) fn limits() -> Limits {
    Limits { nodes: 20_000, text_bytes: 1 << 20, depth: 40, ..Limits::default() }
}

/// A file that was read.
pub(super) fn file(file: &ReadFile) {
    for read in &file.objects {
        assert!(read.line > 0 && read.document > 0);
        object(read);
    }
    file.ignored.keys().for_each(|kind| one_line(kind));
    file.rejected.iter().for_each(rejected);
}

/// An object that was taken.
pub(super) fn object(read: &ReadObject) {
    assert!(!read.warnings.iter().any(Problem::is_error), "{:?}", read.warnings);
    read.warnings.iter().for_each(|problem| one_line(&problem.to_string()));
    // What a file may hold, any other source may deliver: both are checked alike.
    assert!(!validate(&read.object).iter().any(Problem::is_error), "{:?}", read.object);
    assert!(spec_json(&read.object).to_string().len() < 64 << 20);
    for problem in pilotfish_translate::check_object(&read.object) {
        assert!(!problem.is_error(), "{problem}");
        one_line(&problem.to_string());
    }
}

/// An object that was refused.
pub(super) fn rejected(rejected: &Rejected) {
    assert!(rejected.problems.iter().any(Problem::is_error), "{rejected:?}");
    rejected.problems.iter().for_each(|problem| one_line(&problem.to_string()));
    if let Some(key) = &rejected.key {
        one_line(&key.to_string());
    }
    // What stands in for an object has its name, and would itself be taken.
    if let Some(closed) = &rejected.closed {
        assert_eq!(Some(closed.key()), rejected.key.as_ref());
    }
}

/// Messages are of one line, not long, and without anything that drives a terminal.
pub(super) fn one_line(text: &str) {
    assert!(!text.is_empty() && text.len() < 4_000 && !text.contains(char::is_control), "one line: {text:?}");
}
