//! Properties of all parsed input, regardless of its content.

use pilotfish_config::{Limits, Problem, ReadFile, ReadObject, Rejected, spec_json, validate};

/// Tight limits, so that small inputs reach them.
pub(super) fn limits() -> Limits {
    Limits { nodes: 20_000, text_bytes: 1 << 20, depth: 40, ..Limits::default() }
}

/// Checks a parsed file.
pub(super) fn file(file: &ReadFile) {
    for read in &file.objects {
        assert!(read.line > 0 && read.document > 0);
        object(read);
    }
    file.ignored.keys().for_each(|kind| one_line(kind));
    file.rejected.iter().for_each(rejected);
}

/// Checks an accepted object.
pub(super) fn object(read: &ReadObject) {
    assert!(!read.warnings.iter().any(Problem::is_error), "{:?}", read.warnings);
    read.warnings.iter().for_each(|problem| one_line(&problem.to_string()));
    // Any other source may deliver the content of a file: both are validated equally.
    assert!(!validate(&read.object).iter().any(Problem::is_error), "{:?}", read.object);
    assert!(spec_json(&read.object).to_string().len() < 64 << 20);
    for problem in pilotfish_translate::check_object(&read.object) {
        assert!(!problem.is_error(), "{problem}");
        one_line(&problem.to_string());
    }
}

/// Checks a refused object.
pub(super) fn rejected(rejected: &Rejected) {
    assert!(rejected.problems.iter().any(Problem::is_error), "{rejected:?}");
    rejected.problems.iter().for_each(|problem| one_line(&problem.to_string()));
    if let Some(key) = &rejected.key {
        one_line(&key.to_string());
    }
    // The replacement of an object has its name, and is valid itself.
    if let Some(closed) = &rejected.closed {
        assert_eq!(Some(closed.key()), rejected.key.as_ref());
    }
}

/// Checks that a message is a short line without control characters.
pub(super) fn one_line(text: &str) {
    assert!(!text.is_empty() && text.len() < 4_000 && !text.contains(char::is_control), "one line: {text:?}");
}
