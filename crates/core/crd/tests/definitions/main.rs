//! The definitions are good ones, and agree with the reader: what it takes they take whole, and what it
//! refuses for a type, a name or an unknown field they refuse or prune.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod mutate;
#[path = "../support/schema.rs"]
mod schema;

use mutate::{Change, changes};
use pilotfish_config::{Limits, ReadFile, read};
use pilotfish_crd::{defined_kinds, definition, served_versions};
use pilotfish_model::Kind;
use schema::{Verdict, not_structural, submit};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[test]
fn every_definition_is_structural() {
    let mut wrong = Vec::new();
    for kind in defined_kinds() {
        let definition = definition(kind).unwrap();
        let versions = definition["spec"]["versions"].as_array().unwrap();
        assert_eq!(versions.len(), served_versions(kind).len(), "{kind}");
        let stored = versions.iter().filter(|version| version["storage"] == true).count();
        assert_eq!(stored, 1, "{kind}: one version is stored");
        for version in versions {
            let schema = &version["schema"]["openAPIV3Schema"];
            not_structural(schema, &format!("{kind} {}", version["name"]), &mut wrong);
        }
        assert_eq!(definition["metadata"]["name"], format!("{}.{}", kind.plural(), kind.group()));
        assert!(definition.to_string().len() < 256 << 10, "{kind} must fit into an annotation");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn kinds_that_kubernetes_has_itself_have_no_definition() {
    let defined: BTreeSet<_> = defined_kinds().into_iter().collect();
    let others: Vec<_> = Kind::ALL.iter().filter(|kind| !defined.contains(kind)).collect();
    assert!(others.iter().all(|kind| definition(**kind).is_none()));
    assert_eq!((defined.len(), others.len()), (26, 11), "{others:?}");
}

#[test]
fn every_served_version_is_read() {
    for kind in defined_kinds() {
        for version in served_versions(kind) {
            let text = format!(
                "apiVersion: {}/{version}\nkind: {}\nmetadata: {{name: a}}",
                kind.group(),
                kind.name()
            );
            let file = read("a.yaml", text.as_bytes(), &Limits::default());
            assert!(file.ignored.is_empty(), "{kind} {version}: {:?}", file.ignored);
            let problems = file.rejected.iter().flat_map(|refused| &refused.problems);
            let unknown = problems.filter(|problem| problem.to_string().contains("is not known")).count();
            assert_eq!(unknown, 0, "{kind} {version}: {:?}", file.rejected);
        }
    }
}

/// The objects of all recorded cases and examples, of kinds that have definitions.
fn recorded() -> Vec<(Kind, Value)> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut files: Vec<_> = std::fs::read_dir(repository.join("oracle/cases"))
        .unwrap()
        .map(|case| case.unwrap().path().join("config.yaml"))
        .collect();
    files.extend(
        std::fs::read_dir(repository.join("examples/shop")).unwrap().map(|file| file.unwrap().path()),
    );
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        objects.extend(
            schema::documents(&text).into_iter().filter_map(|object| Some((kind_of(&object)?, object))),
        );
    }
    objects
}

fn kind_of(object: &Value) -> Option<Kind> {
    let (group, _) = object["apiVersion"].as_str()?.split_once('/')?;
    Kind::find(group, object["kind"].as_str()?).filter(|kind| !served_versions(*kind).is_empty())
}

fn definitions() -> BTreeMap<Kind, Value> {
    defined_kinds().into_iter().map(|kind| (kind, definition(kind).unwrap())).collect()
}

fn read_one(object: &Value) -> ReadFile {
    read("a.json", object.to_string().as_bytes(), &Limits::default())
}

#[test]
fn recorded_objects_are_taken_whole() {
    let definitions = definitions();
    let objects = recorded();
    let mut wrong = Vec::new();
    for (kind, object) in &objects {
        let verdict = submit(&definitions[kind], object);
        if !verdict.is_clean() {
            wrong.push(format!("{kind} {}: {verdict:?}", object["metadata"]["name"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(objects.len() > 300, "only {} objects", objects.len());
    let kinds: BTreeSet<_> = objects.iter().map(|(kind, _)| *kind).collect();
    assert!(kinds.len() >= 18, "only {kinds:?}");
}

/// Every field of every recorded object is changed in every way once, by kind and place; reader and schema
/// must agree.
#[test]
fn reader_and_schema_agree_on_changed_objects() {
    let definitions = definitions();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    let (mut taken, mut refused, mut newer) = (0, 0, 0);
    for (kind, object) in recorded() {
        for (place, change, changed) in changes(&object) {
            if !seen.insert((kind, place.clone(), change)) {
                continue;
            }
            let file = read_one(&changed);
            let verdict = submit(&definitions[&kind], &changed);
            let accepted = file.objects.len() == 1;
            if accepted {
                taken += 1
            } else {
                refused += 1
            }
            // A newer version may have it: the reader warns of what the schema, which is of this version,
            // does not take.
            if accepted && is_newer(&file) && !verdict.is_clean() {
                newer += 1;
                continue;
            }
            if let Some(complaint) = disagreement(kind, &place, change, accepted, &verdict) {
                wrong
                    .push(format!("{kind} {place} {change:?}: {complaint}\n    reader: {:?}", file.rejected));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), seen.len(), wrong.join("\n"));
    assert!(
        taken > 300 && refused > 1_000 && newer > 200,
        "{taken} taken, {refused} refused, {newer} newer: not much was tried"
    );
}

/// True if the reader warned of something that is unknown to this version.
fn is_newer(file: &ReadFile) -> bool {
    let warnings = file.objects.iter().flat_map(|read| &read.warnings);
    warnings.into_iter().any(|warning| warning.to_string().contains("unknown to this version"))
}

fn disagreement(
    kind: Kind,
    place: &str,
    change: Change,
    accepted: bool,
    verdict: &Verdict,
) -> Option<String> {
    let by_schema = verdict.refused.is_empty();
    if accepted && !by_schema {
        // Proto JSON lets numbers be written as texts, and null as an item; an API server takes neither.
        let of_proto_json = matches!(change, Change::NumberAsText | Change::NullItem);
        return (!of_proto_json).then(|| format!("the reader takes it, the schema: {verdict:?}"));
    }
    let strict = kind.group().ends_with(".istio.io");
    if accepted && strict && !verdict.pruned.is_empty() {
        return Some(format!("the reader takes what the schema prunes: {verdict:?}"));
    }
    // What only the webhook can say: rules between fields and the meaning of texts.
    let bounded_by_envoy = change == Change::Huge && place.ends_with("minimumRingSize");
    let by_meaning =
        bounded_by_envoy || !matches!(change, Change::UnknownField | Change::OtherType | Change::Huge);
    if !accepted && !by_meaning && verdict.is_clean() {
        return Some("the reader refuses it, the schema takes it whole".to_owned());
    }
    None
}
