//! Closed forms of policies that cannot be used in full and have no last good version.
//!
//! Leaving such an object out would admit requests that it was meant to refuse. So every part that cannot be
//! used is replaced by one that admits no more than any valid text in its place could: a rule that allows is
//! left out, a rule that denies loses the condition that narrows it, a selector selects all workloads that it
//! could. Valid parts stay as they are written, so that a mistake in one rule costs that rule.
//!
//! ```text
//! tree ─▶ parts, each decoded and checked alone ─▶ the valid ones, and closed forms of the others
//! ```

mod authentication;
mod authorization;
mod destination_rule;
mod gateway;

use crate::kinds::content::{closed, prepared};
use crate::path::{FieldPath, Path};
use crate::problem::{Checker, Problem};
use crate::read::metadata::{ReadMetadata, read_metadata};
use crate::validate::annotations;
use crate::validate::fields::selectors::{Targets, targets};
use crate::yaml::{Mode, Node, decode};
use crate::{PolicyTargetReference, WorkloadSelector};
use pilotfish_model::{Kind, Object, ObjectMeta};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Parts of a rejected object that its closed form can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The valid parts can be used.
    Parts,
    /// The object as a whole has an error (in its version or an annotation), so nothing that it allows is
    /// used.
    Scope,
}

/// A rejected object, or one with an unknown part that must not be ignored.
pub(crate) struct Refused<'a> {
    pub(crate) spec: &'a Node,
    pub(crate) trust: Trust,
    /// The first error of the object.
    pub(crate) reason: String,
    /// Paths of the unknown parts that must not be ignored, if the object is valid otherwise.
    pub(crate) narrowed: &'a [FieldPath],
}

/// Returns the closed form of a rejected object; `None` if leaving it out opens nothing, or if even its name
/// and namespace cannot be read. `known_version` is true if its `apiVersion` is one that is read.
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
    closed(kind, &Refused { spec, trust, reason, narrowed: &[] }, meta)
}

fn has_good_annotations(meta: &ObjectMeta) -> bool {
    let mut checker = Checker::default();
    annotations(meta, true, &mut checker);
    is_sound(&checker.into_problems())
}

fn is_sound(problems: &[Problem]) -> bool {
    !problems.iter().any(Problem::is_error)
}

/// A part as it is written, or its default if absent; `None` if it cannot be used, or has something unknown.
fn part<T: DeserializeOwned + Default>(
    node: Option<&Node>,
    check: impl FnOnce(&T, &Path<'_>, &mut Checker),
) -> Option<T> {
    known_part(node, check).filter(|part| part.is_whole).map(|part| part.value)
}

/// The known content of a part, or its default if absent; `None` if it cannot be used.
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
    /// True if no part of it is unknown.
    is_whole: bool,
}

/// As [`part`], for parts without checks beyond their type.
fn plain<T: DeserializeOwned + Default>(node: Option<&Node>) -> Option<T> {
    part(node, |_, _, _| {})
}

/// Items of a list; `None` if the node is no list.
fn items(node: Option<&Node>) -> Option<&[Node]> {
    match node {
        Some(node) if !node.is_list() && !node.is_null() => None,
        node => Some(node.map(Node::items).unwrap_or_default()),
    }
}

/// True if the node has no fields other than these.
fn has_only(node: &Node, fields: &[&str]) -> bool {
    node.is_null()
        || node.is_mapping()
            && node.entries().iter().all(|entry| entry.value.is_null() || fields.contains(&&*entry.key))
}

/// Workloads that a policy applies to, in the three ways of writing it.
#[derive(Default)]
struct Scope {
    selector: Option<WorkloadSelector>,
    target_ref: Option<PolicyTargetReference>,
    target_refs: Vec<PolicyTargetReference>,
    /// True if no part of it is unknown. Otherwise the policy applies to some of these workloads only.
    is_whole: bool,
}

impl Scope {
    /// The fields that define the scope.
    const FIELDS: [&'static str; 3] = ["selector", "targetRef", "targetRefs"];

    /// Reads the scope. `None` if it cannot be decided: the policy may apply to any workload in its reach.
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
