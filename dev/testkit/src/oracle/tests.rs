//! The list is held in both directions, field by field.

use super::known::Known;
use super::{CaseScore, Scores, Way};
use pilotfish_compare::Comparison;
use serde_json::{Value, json};

/// A score of the case `a-case` with one proxy, `web`, to which `got` is sent.
fn score(want: &Value, got: &Value) -> Scores {
    let found = Comparison::of(want, got);
    Scores(vec![CaseScore {
        case: "a-case".into(),
        proxies: vec![("web".into(), found)],
        error: None,
        refused: Vec::new(),
    }])
}

fn recorded() -> Value {
    json!({"clusters": {"a": {"name": "A", "port": 1}, "b": {}}, "listeners": {"l": {"filters": [{"x": 1}, {"y": 2}]}}})
}

fn sent() -> Value {
    json!({"clusters": {"a": {"name": "a", "port": 1}, "c": {}}, "listeners": {"l": {"filters": [{"x": 1}, {"y": {"z": 3}}]}}})
}

const LIST: &str = r#"
kept:
- reason: small letters
  differs:
    a-case/web:
      clusters a:
        name: {istiod: A, pilotfish: a}
open:
- reason: the others
  differs:
    a-case/web:
      clusters b: missing
      clusters c: extra 35f2bdeb
      listeners l:
        filters[1].y: {istiod: 2, pilotfish: "object 0"}
"#;

/// The list as it is written for [`sent`], with the reasons of [`LIST`].
fn list() -> Known {
    let mut known = Known::parse(LIST).unwrap();
    known.update(&score(&recorded(), &sent()), true);
    known
}

fn wrong(known: &Known, got: &Value) -> Vec<String> {
    known.judge(&score(&recorded(), got), Way::Files, true).0
}

#[test]
fn what_is_written_is_what_is_accepted_and_reasons_stay() {
    let known = list();
    assert_eq!(wrong(&known, &sent()), Vec::<String>::new());
    assert_eq!(known.kept[0].reason, "small letters");
    assert_eq!(known.open[0].reason, "the others");
    let read_again = Known::parse(&known.text()).unwrap();
    assert_eq!(wrong(&read_again, &sent()), Vec::<String>::new());
    assert_eq!(read_again.text(), known.text());
}

#[test]
fn a_further_difference_in_a_listed_resource_fails() {
    let mut more = sent();
    more["clusters"]["a"]["port"] = json!(2);
    assert_eq!(
        wrong(&list(), &more),
        ["a-case/web clusters a: port: differs and is not listed: istiod 1, Pilotfish 2"]
    );
}

#[test]
fn another_value_of_a_listed_field_fails_also_deep_inside_and_in_an_extra_resource() {
    for (pointer, value) in [
        ("/clusters/a/name", json!("other")),
        ("/listeners/l/filters/1/y/z", json!(4)),
        ("/clusters/c", json!({"x": 1})),
    ] {
        let mut other = sent();
        *other.pointer_mut(pointer).unwrap() = value;
        let wrong = wrong(&list(), &other);
        assert_eq!(wrong.len(), 1, "{pointer}: {wrong:?}");
        assert!(wrong[0].contains("listed as"), "{wrong:?}");
    }
}

#[test]
fn what_no_longer_differs_must_leave_the_list() {
    let mended = wrong(&list(), &recorded());
    assert_eq!(mended.len(), 4, "{mended:?}");
    assert!(mended.iter().all(|line| line.contains("must leave the list")), "{mended:?}");
    let mut known = list();
    known.update(&score(&recorded(), &recorded()), true);
    assert!(wrong(&known, &recorded()).is_empty());
    assert!(known.kept.is_empty() && known.open.is_empty());
}

#[test]
fn a_case_that_differs_in_another_way_keeps_the_reason_that_is_open() {
    let open = "open: [{reason: half done, differs: {a-case/web: {clusters b: missing}}}]";
    let mut known = Known::parse(open).unwrap();
    let mut got = recorded();
    got["clusters"]["a"]["port"] = json!(7);
    known.update(&score(&recorded(), &got), true);
    assert_eq!(wrong(&known, &got), Vec::<String>::new());
    assert_eq!((known.open.len(), &*known.open[0].reason), (1, "half done"));
}

#[test]
fn a_case_that_was_not_compared_keeps_its_entries_and_one_that_is_gone_fails() {
    let mut known = list();
    let nothing = Scores(Vec::new());
    assert!(known.judge(&nothing, Way::Files, false).is_good());
    assert_eq!(known.judge(&nothing, Way::Files, true).0.len(), 4);
    let before = known.text();
    known.update(&nothing, false);
    assert_eq!(known.text(), before);
}

#[test]
fn a_case_that_cannot_be_compared_fails() {
    let mut scores = score(&recorded(), &sent());
    scores.0[0].error = Some("no answer".into());
    assert_eq!(list().judge(&scores, Way::Wire, true).0, ["a-case: no answer"]);
}

#[test]
fn a_new_difference_needs_a_reason() {
    let mut known = Known::default();
    known.update(&score(&recorded(), &sent()), true);
    let wrong = wrong(&known, &sent());
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert!(wrong[0].contains("no reason"), "{wrong:?}");
}

#[test]
fn what_shows_one_way_is_expected_that_way_only() {
    let known =
        Known::parse("kept: [{reason: r, only: [live], differs: {a-case/web: {clusters b: missing}}}]")
            .unwrap();
    let mut got = recorded();
    got["clusters"].as_object_mut().unwrap().remove("b");
    let judge = |way, got: &Value| known.judge(&score(&recorded(), got), way, true).is_good();
    assert!(judge(Way::Live, &got) && !judge(Way::Wire, &got));
    assert!(judge(Way::Wire, &recorded()) && !judge(Way::Live, &recorded()));
}

#[test]
fn a_difference_is_in_the_list_once() {
    let twice = "kept: [{reason: r, differs: {a/p: {clusters b: missing}}}]\n\
                 open: [{reason: s, differs: {a/p: {clusters b: missing}}}]";
    assert!(Known::parse(twice).unwrap_err().to_string().contains("twice"));
}

#[test]
fn refused_objects_are_listed_both_ways() {
    let mut scores = score(&recorded(), &recorded());
    scores.0[0].refused = vec!["Secret edge/web: data.tls.crt".into()];
    let empty = Known::default().judge(&scores, Way::Files, true).0;
    assert_eq!(empty, ["a-case: Secret edge/web: data.tls.crt is refused and is not listed"]);
    let listed = "refused: [{case: a-case, object: 'Secret edge/web: data.tls.crt', reason: no PEM}]";
    let listed = Known::parse(listed).unwrap();
    assert!(listed.judge(&scores, Way::Files, true).is_good());
    let none = score(&recorded(), &recorded());
    assert_eq!(listed.judge(&none, Way::Files, true).0.len(), 1);
}
