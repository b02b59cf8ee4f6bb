//! What Pilotfish sends in the recorded cases is what istiod sends, except for what `oracle/differences.yaml`
//! lists; and the documentation says so.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_compare::without_numbers;
use pilotfish_compare::{Difference, Held, KINDS, KnownDifferences, Resources, Sent, compare, held, to_dump};
use pilotfish_testkit::cases::Case;
use pilotfish_testkit::oracle::{self, Known, Scores, Way};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

/// Writes the parts of the documentation instead of comparing them, when set.
const WRITE: &str = "PILOTFISH_WRITE_DOCS";

static KNOWN: LazyLock<Known> = LazyLock::new(|| Known::read(&oracle::known_file()).unwrap());
/// Differences of dumps by `CASE/PROXY`.
type OfDumps = BTreeMap<String, Vec<Difference>>;

static SCORES: LazyLock<(Scores, OfDumps)> = LazyLock::new(|| {
    let cases = Case::all(&oracle::cases_folder()).unwrap();
    let of_dumps = Mutex::new(OfDumps::new());
    let scores = oracle::score(&cases, oracle::threads(), |case| {
        let found = oracle::dumps_of_files(case, false)?;
        for proxy in &case.proxies {
            let differences = of_dump(&case.golden(proxy)?, &found.dumps[&proxy.name]);
            of_dumps.lock().unwrap().insert(format!("{}/{}", case.name, proxy.name), differences);
        }
        Ok(found)
    });
    (scores, of_dumps.into_inner().unwrap())
});

/// Differences between the dump of an Envoy that has the recorded resources, and what it would be sent.
fn of_dump(golden: &Value, found: &Value) -> Vec<Difference> {
    let of_kind = |dump: &Value, kind: &'static str| {
        let resources = dump[kind].as_object().cloned().unwrap_or_default();
        resources.into_iter().map(move |(name, resource)| ((kind, name), resource))
    };
    let recorded: Resources<Value> = KINDS.into_iter().flat_map(|kind| of_kind(golden, kind)).collect();
    let dump = to_dump(
        &Value::Null,
        recorded.iter().map(|((kind, name), resource)| (*kind, name.as_str(), resource.clone())),
    );
    let sent = |resource| Sent { resource, made_by: Vec::new() };
    let sent: Resources<Sent> =
        KINDS.into_iter().flat_map(|kind| of_kind(found, kind)).map(|(key, it)| (key, sent(it))).collect();
    let held: Resources<Held> = held(&dump);
    compare(&held, &sent).differences
}

/// Kind, resource and field without indexes, which are other ones where endpoints are sorted.
fn places<'a>(differences: impl IntoIterator<Item = &'a Difference>) -> Vec<(&'static str, &'a str, String)> {
    let place = |it: &'a Difference| (it.kind, it.resource.as_str(), without_numbers(&it.field));
    let mut places: Vec<_> = differences.into_iter().map(place).collect();
    places.sort();
    places
}

#[test]
fn exactly_the_known_differences_are_there() {
    let verdict = KNOWN.judge(&SCORES.0, Way::Files, true);
    let (cases, (_, resources)) = (SCORES.0.0.len(), SCORES.0.counts());
    assert!(cases >= 197 && resources > 5_000, "{cases} cases, {resources} resources");
    assert!(
        verdict.is_good(),
        "not as oracle/differences.yaml says (`cargo run -p pilotfish-testkit --bin oracle` shows more):\n{verdict}"
    );
}

#[test]
fn the_documentation_says_how_much_is_equal_and_what_differs() {
    if std::env::var_os(WRITE).is_some() {
        oracle::write_pages(&SCORES.0, &KNOWN).unwrap();
        return;
    }
    let stale = oracle::check_pages(&SCORES.0, &KNOWN).unwrap();
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

#[test]
fn dumps_of_envoys_show_exactly_the_known_differences() {
    let (scores, of_dumps) = &*SCORES;
    let mut proxies = 0;
    for case in &scores.0 {
        for (proxy, comparison) in &case.proxies {
            let place = format!("{}/{proxy}", case.case);
            assert_eq!(places(&of_dumps[&place]), places(&comparison.differences), "{place}");
            proxies += 1;
        }
    }
    assert!(proxies >= 400, "{proxies} proxies");
}

#[test]
fn differences_are_recognised_by_the_reason_that_the_list_gives_them() {
    let mut recognised = 0;
    for (place, difference) in SCORES.0.differences() {
        let case = SCORES.0.0.iter().find(|case| place.starts_with(&format!("{}/", case.case))).unwrap();
        let (_, comparison) =
            case.proxies.iter().find(|(name, _)| place.ends_with(&format!("/{name}"))).unwrap();
        let of_resource =
            |it: &&Difference| (it.kind, &it.resource) == (difference.kind, &difference.resource);
        let resource: Vec<&Difference> = comparison.differences.iter().filter(of_resource).collect();
        if let Some(reason) = KnownDifferences::of_this_version().reason(difference, &resource, &[]) {
            assert_eq!(KNOWN.reason(&place, difference, Way::Files), Some(reason), "{place} {difference:?}");
            recognised += 1;
        }
    }
    assert!(recognised > 0, "no entry of the list has signs that are in its cases");
}
