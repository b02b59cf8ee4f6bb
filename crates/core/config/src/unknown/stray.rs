//! Fields beside `spec` that belong in it, usually because of wrong indentation.

use super::in_line;
use crate::kinds::content::{Content, Place};
use crate::path::{FieldPath, Segment};
use crate::problem::{Problem, nearest};
use crate::yaml::{AROUND_SPEC, Entry, MOST_UNKNOWN, Mode, Node, NodeValue, Unknown, UnknownPart, decode};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

const SPEC: &str = "spec";

/// The stray fields of an object: those of its `spec`, with their place there, and for Istio's kinds all
/// others, too. Where objects are decoded as a whole, that finds the others.
pub(super) fn unknown<T: Content>(root: &Node, decoded: &[Unknown]) -> Vec<Unknown> {
    let at_root: BTreeSet<&str> = decoded.iter().filter_map(name_at_root).collect();
    let is_unknown = |entry: &&Entry| match T::PLACE {
        Place::Document => false,
        Place::Object => at_root.contains(&*entry.key),
        Place::Spec | Place::Partial => *entry.key != *SPEC && !AROUND_SPEC.contains(&&*entry.key),
    };
    let strays = root.entries().iter().filter(is_unknown);
    strays.filter_map(unknown_field::<T>).take(MOST_UNKNOWN + 1).collect()
}

/// The name of an unknown field of the object itself.
fn name_at_root(unknown: &Unknown) -> Option<&str> {
    match unknown.path.segments() {
        [Segment::Field(name)] => Some(name),
        _ => None,
    }
}

/// True if an unknown field of the object is that stray one.
pub(super) fn is_same(stray: &Unknown, unknown: &Unknown) -> bool {
    matches!(stray.path.segments(), [_, Segment::Field(name)] if name_at_root(unknown) == Some(name))
}

fn unknown_field<T: Content>(entry: &Entry) -> Option<Unknown> {
    let (field, line) = (|name: &str| Segment::Field(name.into()), entry.line);
    if is_of_spec::<T>(entry) {
        let path = FieldPath::new(vec![field(SPEC), field(&entry.key)]);
        let part = UnknownPart::Stray { holds_tls: holds_tls(&entry.value) };
        return Some(Unknown { path, line, part, near: None });
    }
    let near = nearest(&entry.key, AROUND_SPEC.into_iter().chain([SPEC])).map(str::to_owned);
    let path = FieldPath::new(vec![field(&entry.key)]);
    (T::PLACE == Place::Spec).then_some(Unknown { path, line, part: UnknownPart::Field, near })
}

/// True if the `spec` of the kind has a field of this name, and the object itself has none.
fn is_of_spec<T: Content>(entry: &Entry) -> bool {
    let node = |entry: Entry| Node { line: entry.line, value: NodeValue::Mapping(vec![entry]) };
    let (field, line) = (node(entry.clone()), entry.line);
    let own = |name: &str| FieldPath::new(vec![Segment::Field(name.into())]);
    let below = FieldPath::new([SPEC, &*entry.key].map(|name| Segment::Field(name.into())).to_vec());
    if T::PLACE == Place::Spec {
        return !unknown_fields::<T>(&field, &[SPEC]).contains(&below);
    }
    let spec = node(Entry { key: SPEC.into(), line, value: field.clone() });
    let in_spec = unknown_fields::<T>(&spec, &[]);
    unknown_fields::<T>(&field, &[]).contains(&own(&entry.key))
        && !in_spec.contains(&own(SPEC))
        && !in_spec.contains(&below)
}

fn holds_tls(node: &Node) -> bool {
    node.items().iter().any(holds_tls)
        || node.entries().iter().any(|entry| &*entry.key == "tls" || holds_tls(&entry.value))
}

fn unknown_fields<T: DeserializeOwned>(node: &Node, prefix: &[&str]) -> Vec<FieldPath> {
    let unknown = decode::<T>(node, Mode::Complete, prefix).unknown;
    unknown
        .into_iter()
        .filter(|unknown| unknown.part == UnknownPart::Field)
        .map(|unknown| unknown.path)
        .collect()
}

/// The stray field that causes an error: the error is about its absence in `spec`.
pub(super) fn cause(problem: &Problem, unknown: &[Unknown], root: &Node) -> Option<String> {
    let spec = root.get(SPEC);
    let mut strays = unknown.iter().filter(|unknown| matches!(unknown.part, UnknownPart::Stray { .. }));
    let stray = strays.find(|stray| {
        let [_, Segment::Field(name)] = stray.path.segments() else { return false };
        let misses = problem.path.segments().len() <= 1 && has_word(&problem.message, name);
        let is_absent = spec.and_then(|spec| spec.get(name)).is_none_or(Node::is_null);
        is_absent && (misses || problem.path.segments().starts_with(stray.path.segments()))
    })?;
    let Some(Segment::Field(name)) = stray.path.segments().last() else { return None };
    Some(format!("{name:?}{} is outside of spec", in_line(stray.line)))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|other| other == word)
}
