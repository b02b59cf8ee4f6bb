//! Validation of regular expressions: any text, and expressions made of meaningful pieces.

use super::checks::one_line;
use crate::input::Input;
use pilotfish_config::{is_regex, refused_by_re2};

/// Pieces with the same meaning in RE2 and the crate `regex`.
const COMMON: &[&str] = &[
    "a", "b", "0", "-", " ", ".", "^", "$", "|", "(", ")", "(?:", "[a-z]", "[^0-9]", "[", "]", "*", "+", "?",
    "{2}", "{1,3}", "\\.", "\\(", "\\[", "\\n", "\\x41",
];
/// Pieces with different meanings.
const OWN: &[&str] = &[
    "(?i)",
    "\\d",
    "\\pL",
    "\\p{Greek}",
    "\\P{^Lu}",
    "\\Q",
    "\\E",
    "\\b",
    "\\z",
    "\\C",
    "\\1",
    "(?P<n>",
    "(?<n>",
    "(?=",
    "(?-s:",
    "[[:alpha:]]",
    "[]a]",
    "{",
    "}",
    "{,2}",
    "{1000}",
    "{1001}",
    "\\x{1F600}",
    "\\",
    "\u{e9}",
    "**",
    "[z-a]",
    "\\012",
];

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(3) {
        0 => check(&String::from_utf8_lossy(input.all())),
        1 => {
            let expression = pieces(&mut input, COMMON);
            check(&expression);
            compare(&expression);
        }
        _ => {
            let all = [COMMON, OWN].concat();
            check(&pieces(&mut input, &all));
        }
    }
}

fn pieces(input: &mut Input<'_>, of: &[&str]) -> String {
    let mut made = String::new();
    while !input.is_empty() {
        made.push_str(input.pick(of).unwrap_or_default());
    }
    made
}

fn check(expression: &str) {
    let taken = is_regex(expression);
    match refused_by_re2(expression) {
        Some(why) => {
            assert!(!taken, "{expression:?} is taken, and refused: {why}");
            one_line(&why);
        }
        None => assert!(taken, "{expression:?} is refused without a reason"),
    }
    // A quoted text is always a valid expression.
    let quoted = regex::escape(expression);
    assert!(is_regex(&quoted), "{quoted:?}");
    // A valid expression is valid in a group, unless that is one level too many.
    if taken && expression.len() < 900 && !expression.contains("(?") && !expression.contains("\\Q") {
        assert!(is_regex(&format!("(?:{expression})")), "{expression:?} in a group");
    }
}

/// Expressions with a syntax error for the crate `regex` must be refused. The reverse does not hold: RE2
/// refuses repetitions of repetitions.
fn compare(expression: &str) {
    // Character classes have other rules in the crate; long expressions are slow.
    if expression.len() > 200 || expression.contains('[') || !is_regex(expression) {
        return;
    }
    let theirs = regex::RegexBuilder::new(expression).size_limit(1 << 20).nest_limit(2_000).build();
    assert!(!matches!(theirs, Err(regex::Error::Syntax(_))), "{expression:?} is refused by the crate regex");
}
