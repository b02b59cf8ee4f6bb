//! What Pilotfish sends in the recorded cases is what istiod sends, except for what `oracle/differences.yaml`
//! lists; and the documentation says so.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_compare::without_numbers;
use pilotfish_compare::{
    Difference, Held, KINDS, KnownDifferences, Names, Resources, Sent, compare, held, references, to_dump,
};
use pilotfish_load::connection::Way as Connect;
use pilotfish_load::messages::{Any, CDS, EDS, LDS, RDS};
use pilotfish_load::reader::{self, Question, ReadLimits};
use pilotfish_proto::to_json;
use pilotfish_testkit::cases::Case;
use pilotfish_testkit::istiod::{Istiod, ServedProxy};
use pilotfish_testkit::oracle::{self, Known, Scores, Way};
use prost::Message;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

/// Writes the parts of the documentation instead of comparing them, when set.
const WRITE: &str = "PILOTFISH_WRITE_DOCS";

static KNOWN: LazyLock<Known> = LazyLock::new(|| Known::read(&oracle::known_file()).unwrap());
/// Differences by `CASE/PROXY`: of dumps, and of what a stand-in for istiod serves.
type ByProxy = BTreeMap<String, [Vec<Difference>; 2]>;

static SCORES: LazyLock<(Scores, ByProxy)> = LazyLock::new(|| {
    let cases = Case::all(&oracle::cases_folder()).unwrap();
    let by_proxy = Mutex::new(ByProxy::new());
    let scores = oracle::score(&cases, oracle::threads(), |case| {
        let found = oracle::dumps_of_files(case, false)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let read = runtime.block_on(read_as_proxies(case))?;
        for (proxy, read) in case.proxies.iter().zip(read) {
            let sent = sent(&found.dumps[&proxy.name]);
            let differences = [
                compare(&held(&dump(&case.golden(proxy)?)), &sent).differences,
                compare(&read, &sent).differences,
            ];
            by_proxy.lock().unwrap().insert(format!("{}/{}", case.name, proxy.name), differences);
        }
        Ok(found)
    });
    (scores, by_proxy.into_inner().unwrap())
});

/// Resources of all proxies of a case, read from a stand-in for istiod.
async fn read_as_proxies(case: &Case) -> anyhow::Result<Vec<Resources<Held>>> {
    let served = case.proxies.iter().map(|proxy| ServedProxy::of(case, proxy)).collect::<Result<_, _>>()?;
    let istiod = Istiod::start(served, &[]).await?;
    let mut all = Vec::new();
    for proxy in &case.proxies {
        let first = match &proxy.listeners {
            Some(names) => [(LDS.to_owned(), names.iter().cloned().collect())].into(),
            None => [(CDS.to_owned(), BTreeSet::new()), (LDS.to_owned(), BTreeSet::new())].into(),
        };
        let node = proxy.node().encode_to_vec().into();
        let question = Question { node, first, optional: BTreeSet::new() };
        let limits =
            ReadLimits { bytes: 64 << 20, time: Duration::from_secs(600), quiet: Duration::from_secs(600) };
        let is_grpc = proxy.listeners.is_some();
        let mut refers = |ty: &str, resource: &Any| {
            let kind = kind(ty).filter(|kind| *kind != "endpoints" && (*kind != "routes" || is_grpc));
            let Some(kind) = kind else { return Vec::new() };
            let json = to_json(&resource.type_url, &resource.value).unwrap_or_default();
            let url = |(kind, name): (&str, String)| Some((type_url(kind)?.to_owned(), name));
            references(kind, &json).into_iter().filter_map(url).collect()
        };
        let reading = reader::read(&Connect::plain(istiod.xds), question, &mut refers, &limits).await?;
        let held = |((ty, name), resource): ((String, String), Any)| {
            let resource = to_json(&resource.type_url, &resource.value).ok()?;
            Some(((kind(&ty)?, name), Held { resource, ..Held::default() }))
        };
        all.push(reading.resources.into_iter().filter_map(held).collect());
    }
    Ok(all)
}

const TYPES: [(&str, &str); 4] = [("clusters", CDS), ("endpoints", EDS), ("listeners", LDS), ("routes", RDS)];

fn kind(type_url: &str) -> Option<&'static str> {
    TYPES.into_iter().find(|(_, url)| *url == type_url).map(|(kind, _)| kind)
}

fn type_url(kind: &str) -> Option<&'static str> {
    TYPES.into_iter().find(|(its, _)| *its == kind).map(|(_, url)| url)
}

/// Resources of a recording, by kind and name.
fn recorded(golden: &Value) -> Resources<Value> {
    let of_kind = |kind: &'static str| {
        let resources = golden[kind].as_object().cloned().unwrap_or_default();
        resources.into_iter().map(move |(name, resource)| ((kind, name), resource))
    };
    KINDS.into_iter().flat_map(of_kind).collect()
}

/// Dump of an Envoy that has the recorded resources.
fn dump(golden: &Value) -> Value {
    let recorded = recorded(golden);
    let resources = recorded.iter().map(|((kind, name), resource)| (*kind, name.as_str(), resource.clone()));
    to_dump(&Value::Null, &Names::new(), resources)
}

fn sent(found: &Value) -> Resources<Sent> {
    let sent = |resource| Sent { resource, made_by: Vec::new() };
    recorded(found).into_iter().map(|(key, resource)| (key, sent(resource))).collect()
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

fn check_all(way: usize) {
    let (scores, by_proxy) = &*SCORES;
    let mut proxies = 0;
    for case in &scores.0 {
        for (proxy, comparison) in &case.proxies {
            let place = format!("{}/{proxy}", case.case);
            assert_eq!(places(&by_proxy[&place][way]), places(&comparison.differences), "{place}");
            proxies += 1;
        }
    }
    assert!(proxies >= 400, "{proxies} proxies");
}

#[test]
fn dumps_of_envoys_show_exactly_the_known_differences() {
    check_all(0);
}

#[test]
fn proxies_of_a_stand_in_for_istiod_show_exactly_the_known_differences() {
    check_all(1);
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
