//! What stands in for a policy that cannot be used in full and has no last good version.
//!
//! Leaving such an object out would admit what it was to keep away. So every part of it that cannot be used is replaced by
//! one that admits nothing more than any usable text in its place would have, whatever was meant: a rule that allows is
//! left out, a rule that denies loses the condition that narrows it, a selector selects all that it could. What can be used
//! stays as it is written, so that a mistake in one rule costs that rule.
//!
//! ```text
//! tree of the object ─▶ parts, each decoded and checked for itself ─▶ the usable ones, and for others what closes
//! ```

mod authentication;
mod authorization;
mod destination_rule;
mod gateway;

use crate::kinds::content::{closed, prepared};
use crate::path::Path;
use crate::problem::{Checker, Problem};
use crate::read::metadata::{ReadMetadata, read_metadata};
use crate::validate::annotations;
use crate::validate::fields::selectors::{Targets, targets};
use crate::yaml::{Mode, Node, decode};
use crate::{PolicyTargetReference, WorkloadSelector};
use pilotfish_model::{Kind, Object, ObjectMeta};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// How far an object can be trusted to say in its parts what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// A part that can be used means what it says.
    Parts,
    /// Something about the object as a whole is wrong (its version, an annotation): nothing that it allows counts.
    Scope,
}

/// An object that was refused, or has something unknown where that must not be ignored.
pub(crate) struct Refused<'a> {
    pub(crate) spec: &'a Node,
    pub(crate) trust: Trust,
    /// The first thing that is wrong with it.
    pub(crate) reason: String,
}

/// The closed form of an object that was refused; `None` where leaving it out opens nothing, or where not even its name and
/// namespace can be read. `known_version` is whether its `apiVersion` is one that is read.
pub(crate) fn closed_object(
    kind: Kind,
    root: &Node,
    origin: &Arc<str>,
    known_version: bool,
    problems: &[Problem],
) -> Option<Object> {
    let ReadMetadata { key, meta, .. } = read_metadata(kind, root, origin.clone());
    let trust = match &meta {
        Some(meta) if known_version && has_good_annotations(meta) => Trust::Parts,
        _ => Trust::Scope,
    };
    let meta = match meta {
        Some(meta) => meta,
        None => ObjectMeta { origin: origin.clone(), ..ObjectMeta::of(key?) },
    };
    let tree = prepared(kind, root);
    let null = Node::null(root.line);
    let spec = tree.get("spec").unwrap_or(&null);
    let reason =
        problems.iter().find(|problem| problem.is_error()).map(Problem::to_string).unwrap_or_default();
    closed(kind, &Refused { spec, trust, reason }, meta)
}

fn has_good_annotations(meta: &ObjectMeta) -> bool {
    let mut checker = Checker::default();
    annotations(meta, true, &mut checker);
    is_sound(&checker.into_problems())
}

fn is_sound(problems: &[Problem]) -> bool {
    !problems.iter().any(Problem::is_error)
}

/// A part as it is written, or its default where nothing is; `None` when it cannot be used, or has something unknown.
fn part<T: DeserializeOwned + Default>(
    node: Option<&Node>,
    check: impl FnOnce(&T, &Path<'_>, &mut Checker),
) -> Option<T> {
    known_part(node, check).filter(|part| part.is_whole).map(|part| part.value)
}

/// The known content of a part, or its default where nothing is written; `None` when it cannot be used.
fn known_part<T: DeserializeOwned + Default>(
    node: Option<&Node>,
    check: impl FnOnce(&T, &Path<'_>, &mut Checker),
) -> Option<Known<T>> {
    let known = match node.filter(|node| !node.is_null()) {
        None => Known { value: T::default(), is_whole: true },
        Some(node) => {
            let decoded = decode::<T>(node, Mode::Complete, &[]);
            let value = decoded.value.filter(|_| is_sound(&decoded.problems))?;
            Known { value, is_whole: decoded.unknown.is_empty() }
        }
    };
    let mut checker = Checker::default();
    check(&known.value, &Path::ROOT, &mut checker);
    is_sound(&checker.into_problems()).then_some(known)
}

/// The known content of a part.
#[derive(Default)]
struct Known<T> {
    value: T,
    /// Nothing of it is unknown.
    is_whole: bool,
}

/// As [`part`], for parts that only their type can be wrong of.
fn plain<T: DeserializeOwned + Default>(node: Option<&Node>) -> Option<T> {
    part(node, |_, _, _| {})
}

/// The items of a list; `None` when what is written is no list.
fn items(node: Option<&Node>) -> Option<&[Node]> {
    match node {
        Some(node) if !node.is_list() && !node.is_null() => None,
        node => Some(node.map(Node::items).unwrap_or_default()),
    }
}

/// Whether the node has these fields and no other.
fn has_only(node: &Node, fields: &[&str]) -> bool {
    node.is_null()
        || node.is_mapping()
            && node.entries().iter().all(|entry| entry.value.is_null() || fields.contains(&&*entry.key))
}

/// What a policy is for, in the three ways of writing it.
#[derive(Default)]
struct Scope {
    selector: Option<WorkloadSelector>,
    target_ref: Option<PolicyTargetReference>,
    target_refs: Vec<PolicyTargetReference>,
    /// Nothing of it is unknown: else the policy is for some of these workloads only.
    is_whole: bool,
}

impl Scope {
    /// The fields that it is read from.
    const FIELDS: [&'static str; 3] = ["selector", "targetRef", "targetRefs"];

    /// `None` when it cannot be told: the policy may be for any workload that it could be for.
    fn of(spec: &Node) -> Option<Self> {
        let selector: Known<Option<WorkloadSelector>> = known_part(spec.get("selector"), |_, _, _| {})?;
        let target_ref = known_part(spec.get("targetRef"), |_, _, _| {})?;
        let target_refs = known_part(spec.get("targetRefs"), |_, _, _| {})?;
        let scope = Self {
            is_whole: selector.is_whole && target_ref.is_whole && target_refs.is_whole,
            selector: selector.value,
            target_ref: target_ref.value,
            target_refs: target_refs.value,
        };
        let mut checker = Checker::default();
        let written = Targets {
            selector: scope.selector.as_ref(),
            target_ref: scope.target_ref.as_ref(),
            target_refs: &scope.target_refs,
        };
        targets(&written, &Path::ROOT, &mut checker);
        is_sound(&checker.into_problems()).then_some(scope)
    }
}
