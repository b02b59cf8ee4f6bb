//! What Pilotfish sends in the recorded cases is what istiod sends, except for what `oracle/differences.yaml`
//! lists; and the documentation says so.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_testkit::cases::Case;
use pilotfish_testkit::oracle::{self, Known, Scores, Way};
use std::sync::LazyLock;

/// Writes the parts of the documentation instead of comparing them, when set.
const WRITE: &str = "PILOTFISH_WRITE_DOCS";

static KNOWN: LazyLock<Known> = LazyLock::new(|| Known::read(&oracle::known_file()).unwrap());
static SCORES: LazyLock<Scores> = LazyLock::new(|| {
    let cases = Case::all(&oracle::cases_folder()).unwrap();
    oracle::score(&cases, oracle::threads(), |case| oracle::dumps_of_files(case, false))
});

#[test]
fn exactly_the_known_differences_are_there() {
    let verdict = KNOWN.judge(&SCORES, Way::Files, true);
    let (cases, (_, resources)) = (SCORES.0.len(), SCORES.counts());
    assert!(cases >= 197 && resources > 5_000, "{cases} cases, {resources} resources");
    assert!(
        verdict.is_good(),
        "not as oracle/differences.yaml says (`cargo run -p pilotfish-testkit --bin oracle` shows more):\n{verdict}"
    );
}

#[test]
fn the_documentation_says_how_much_is_equal_and_what_differs() {
    if std::env::var_os(WRITE).is_some() {
        oracle::write_pages(&SCORES, &KNOWN).unwrap();
        return;
    }
    let stale = oracle::check_pages(&SCORES, &KNOWN).unwrap();
    assert!(stale.is_empty(), "out of date (to rewrite it: {WRITE}=1):\n{}", stale.join("\n"));
}

#[test]
fn the_list_is_written_as_it_is_read() {
    let text = std::fs::read_to_string(oracle::known_file()).unwrap();
    assert_eq!(
        KNOWN.text(),
        text,
        "`cargo run -p pilotfish-testkit --bin oracle -- --write-differences` writes it"
    );
}
