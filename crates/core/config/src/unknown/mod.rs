//! Fields and values that this version does not know: objects of newer versions, and typing errors.
//!
//! Nothing unknown makes an object invalid. It is ignored with a warning, unless the table says otherwise:
//! ignoring a part of a structure that restricts access would widen it. A part that has no meaning without
//! the unknown one is left out, too.
//!
//! ```text
//! tree ── decode ──▶ unknown parts ── rules ──▶ ignored, replaced, left out ── decode, check ──▶ content
//!                                       └──────▶ closed form of the object (validate/closed)
//! ```
//!
//! Only the object decides: the version in force does not depend on earlier versions.

mod edits;
pub(crate) mod pattern;
mod rules;
mod stray;
mod texts;

pub(crate) use rules::checks_clients_of_unknown_protocol;
pub use rules::{About, UNKNOWN_RULES, UnknownRule};

use crate::kinds::content::{Content, Place};
use crate::path::{FieldPath, Segment};
use crate::problem::{MOST_PROBLEMS, Problem};
use crate::validate::{Refused, Trust};
use crate::yaml::{AROUND_SPEC, Decoded, MOST_UNKNOWN, Mode, Node, Unknown, UnknownPart, decode, decode_all};
use edits::Edits;
use pilotfish_model::Kind;
use rules::Effect;
use serde::de::DeserializeOwned;

/// Content of an object, and its problems. Without an error there is content.
pub(crate) struct Settled<T> {
    pub(crate) value: Option<T>,
    pub(crate) problems: Vec<Problem>,
}

/// Maximum rounds of leaving out parts that have no meaning without an unknown one: each round moves up one
/// structure.
const MOST_ROUNDS: usize = 8;

/// Reads the content of an object. `check` completes it and returns its problems.
pub(crate) fn settle<T: Content>(root: &Node, check: impl Fn(&mut T) -> Vec<Problem>) -> Settled<T> {
    let kind = T::KIND;
    let decoded = decode_content::<T>(root);
    let unknown = unknown_in::<T>(root, decoded.unknown);
    let (mut value, mut problems) = (decoded.value, decoded.problems);
    if unknown.is_empty() {
        let found = value.as_mut().map(check).unwrap_or_default();
        add_found(&mut problems, found);
        return Settled { value, problems };
    }
    let mut verdict = Verdict::of(kind, root, &unknown);
    let mut found = Vec::new();
    for _ in 0..MOST_ROUNDS {
        if verdict.is_changed {
            let decoded = decode_content::<T>(&verdict.edits.apply());
            (value, problems) = (decoded.value, decoded.problems);
        }
        found = value.as_mut().map(&check).unwrap_or_default();
        for problem in found.iter_mut().chain(&mut problems) {
            problem.path = verdict.edits.original(&problem.path);
        }
        if !verdict.leave_out_meaningless(kind, &found) {
            break;
        }
    }
    found.retain(|problem| !verdict.explains(problem));
    if unknown.len() > MOST_UNKNOWN {
        let message =
            format!("more than {MOST_UNKNOWN} fields and values are unknown (limit object-unknown)");
        problems.push(Problem::error(FieldPath::default(), message).at_line(root.line));
    }
    add_found(&mut problems, found);
    for problem in problems.iter_mut().filter(|problem| problem.is_error() && problem.hint.is_none()) {
        problem.hint =
            mistyped_within(&problem.path, &unknown).or_else(|| stray::cause(problem, &unknown, root));
    }
    let narrows = verdict.narrowed.first().map(|(reason, _)| reason.clone());
    problems.extend(verdict.problems);
    if let Some(reason) = narrows.filter(|_| !problems.iter().any(Problem::is_error)) {
        let tree = verdict.edits.apply();
        let null = Node::null(root.line);
        let spec = tree.get("spec").unwrap_or(&null);
        let narrowed: Vec<FieldPath> = verdict.narrowed.into_iter().map(|(_, path)| path).collect();
        value = T::closed(&Refused { spec, trust: Trust::Parts, reason, narrowed: &narrowed });
    }
    Settled { value, problems }
}

/// The tree of an object with the changes that follow from unknown parts, for its closed form.
pub(crate) fn prepared<T: Content>(root: &Node) -> Node {
    let unknown = unknown_in::<T>(root, decode_content::<T>(root).unknown);
    Verdict::of(T::KIND, root, &unknown).edits.apply()
}

/// True if an unknown field or value in a part of an object requires the closed form. `at` is the part's
/// path.
pub(crate) fn narrows<T: DeserializeOwned>(kind: Kind, at: &FieldPath, part: &Node) -> bool {
    !narrowing(kind, at, part, decode::<T>(part, Mode::Complete, &[]).unknown).is_empty()
}

/// Paths, within a part of an object, of those of its unknown fields and values that require the closed form.
pub(crate) fn narrowing(kind: Kind, at: &FieldPath, part: &Node, unknown: Vec<Unknown>) -> Vec<FieldPath> {
    let requires = |unknown: &Unknown| {
        let path: Vec<Segment> = [at.segments(), unknown.path.segments()].concat();
        let within = |path: &[Segment]| part.at(path.get(at.segments().len()..)?);
        let rule = rules::find(kind, within, &Unknown { path: FieldPath::new(path), ..unknown.clone() });
        rule.is_some_and(|(rule, _)| matches!(rule.effect, Effect::Narrow))
    };
    unknown.into_iter().filter(requires).map(|unknown| unknown.path).collect()
}

/// Unknown parts that are reported: not the fields of Kubernetes' kinds that are merely not used, and strays
/// once.
fn unknown_in<T: Content>(root: &Node, mut decoded: Vec<Unknown>) -> Vec<Unknown> {
    let strays = stray::unknown::<T>(root, &decoded);
    decoded.retain(|unknown| {
        let is_stray = strays.iter().any(|stray| stray::is_same(stray, unknown));
        !is_stray && (matches!(unknown.part, UnknownPart::Value(_)) || is_told::<T>(root, unknown))
    });
    decoded.extend(texts::unknown(T::KIND, root));
    decoded.extend(strays);
    decoded
}

/// True if an unknown field is reported.
fn is_told<T: Content>(root: &Node, unknown: &Unknown) -> bool {
    match T::PLACE {
        Place::Spec | Place::Document => true,
        Place::Object if is_of_gateway_api(T::KIND) && is_content(unknown) => true,
        Place::Object | Place::Partial => rules::find(T::KIND, |path| root.at(path), unknown).is_some(),
    }
}

fn is_of_gateway_api(kind: Kind) -> bool {
    kind.group() == crate::gateway_api::GROUP
}

/// False for a part of `status` and the like.
fn is_content(unknown: &Unknown) -> bool {
    let is_around = |field: &Segment| matches!(field, Segment::Field(name) if AROUND_SPEC.contains(&&**name));
    !unknown.path.segments().first().is_some_and(is_around)
}

/// Warnings of unknown fields in a file's object of Kubernetes' own kinds. An API server stores known fields
/// alone: others there are of a newer version of Kubernetes, which may set them in each object.
pub(crate) fn warnings_in_files<T: Content>(root: &Node) -> Vec<Problem> {
    if T::PLACE != Place::Object || is_of_gateway_api(T::KIND) {
        return Vec::new();
    }
    let unknown = decode_content::<T>(root).unknown;
    let strays = stray::unknown::<T>(root, &unknown);
    let is_new = |unknown: &&Unknown| {
        unknown.part == UnknownPart::Field
            && is_content(unknown)
            && !strays.iter().any(|stray| stray::is_same(stray, unknown))
    };
    let warning = |unknown: &Unknown| {
        let problem = Problem::warning(unknown.path.clone(), "unknown to this version: it is ignored");
        problem.at_line(unknown.line).with_hint(unknown.hint())
    };
    unknown.iter().filter(is_new).take(MOST_PROBLEMS).map(warning).collect()
}

fn decode_content<T: Content>(root: &Node) -> Decoded<T> {
    let null = Node::null(root.line);
    match T::PLACE {
        Place::Document => decode_all(root, Mode::Mesh, &[]),
        Place::Object => decode_all(root, Mode::Object, &[]),
        Place::Partial => decode_all(root, Mode::Partial, &[]),
        Place::Spec => decode_all(root.get("spec").unwrap_or(&null), Mode::Complete, &["spec"]),
    }
}

/// Adds problems that a check found, except those that only follow from an unreadable field and would hide
/// the mistake.
fn add_found(problems: &mut Vec<Problem>, mut found: Vec<Problem>) {
    let unreadable: Vec<FieldPath> =
        problems.iter().filter(|problem| problem.is_error()).map(|problem| problem.path.clone()).collect();
    found.retain(|problem| !unreadable.iter().any(|field| problem.path.may_follow_from(field)));
    problems.extend(found);
}

/// Finds the mistyped field that probably caused an error: one within the same structure, or one close to the
/// missing field.
fn mistyped_within(path: &FieldPath, unknown: &[Unknown]) -> Option<String> {
    let place = path.segments();
    unknown.iter().find_map(|unknown| {
        let is_field = matches!(unknown.part, UnknownPart::Field | UnknownPart::Choice);
        let near = unknown.near.as_deref().filter(|_| is_field)?;
        let (Segment::Field(written), home) = unknown.path.segments().split_last()? else { return None };
        let is_missing = |(last, around): (&Segment, &[Segment])| {
            around == home && matches!(last, Segment::Field(name) if **name == *near)
        };
        let is_cause = home.starts_with(place) || place.split_last().is_some_and(is_missing);
        let hint = unknown.hint().filter(|_| is_cause)?;
        Some(format!("{written:?}{} is unknown: {hint}", in_line(unknown.line)))
    })
}

/// The line of a field, for a hint; empty for objects of an API server.
fn in_line(line: u32) -> String {
    if line > 0 { format!(" in line {line}") } else { String::new() }
}

/// Consequences of the unknown parts of an object.
struct Verdict {
    problems: Vec<Problem>,
    edits: Edits,
    is_changed: bool,
    /// Unknown parts that require the closed form.
    narrowed: Vec<(String, FieldPath)>,
    /// Other unknown parts, and the parts that were left out because of them.
    ignored: Vec<FieldPath>,
}

impl Verdict {
    fn of(kind: Kind, root: &Node, unknown: &[Unknown]) -> Self {
        let mut verdict = Self {
            problems: Vec::new(),
            edits: Edits::of(root),
            is_changed: false,
            narrowed: Vec::new(),
            ignored: Vec::new(),
        };
        for part in unknown {
            verdict.add(kind, root, part);
        }
        verdict
    }

    fn add(&mut self, kind: Kind, root: &Node, part: &Unknown) {
        let found = rules::find(kind, |path| root.at(path), part);
        let (effect, says) = match found {
            Some((rule, _)) => (rule.effect, rule.says),
            None if matches!(part.part, UnknownPart::Value(_)) => (Effect::Ignore, "it counts as not set"),
            None => (Effect::Ignore, "it is ignored"),
        };
        let path = part.path.segments();
        let structure = found.and_then(|(_, length)| path.get(..length)).unwrap_or(path);
        let home = structure.split_last().map_or(structure, |(_, home)| home);
        let text = match &part.part {
            UnknownPart::Value(value) => format!("{value:?} is unknown to this version: {says}"),
            UnknownPart::Field | UnknownPart::Choice => format!("unknown to this version: {says}"),
            UnknownPart::Stray { .. } => format!("is outside of spec: {says}"),
        };
        let shown = match part.part {
            UnknownPart::Stray { .. } => FieldPath::new(path.last().cloned().into_iter().collect()),
            _ => part.path.clone(),
        };
        let problem = match effect {
            Effect::Refuse => Problem::error(shown.clone(), text),
            _ => Problem::warning(shown.clone(), text),
        };
        if problem.is_error() || self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem.at_line(part.line).with_hint(part.hint()));
        }
        match effect {
            Effect::Ignore if matches!(part.part, UnknownPart::Value(_)) => self.edits.leave_out(path),
            Effect::Ignore | Effect::Refuse => {}
            Effect::Narrow => {
                if let (UnknownPart::Stray { .. }, Some(Segment::Field(name))) = (&part.part, path.last()) {
                    self.edits.add_unknown_to_spec(name);
                }
                return self.narrowed.push((shown.to_string(), part.path.clone()));
            }
            Effect::Remove => self.edits.leave_out(structure),
            Effect::RemoveWithLast => {
                self.edits.leave_out(structure);
                if self.edits.is_emptied(home) {
                    self.edits.leave_out(home.split_last().map_or(home, |(_, around)| around));
                }
            }
            Effect::Replace(with) => self.edits.replace(structure, |node| with(node, part)),
            Effect::ReplaceParent(with) => self.edits.replace(home, with),
        }
        self.is_changed |=
            !matches!(effect, Effect::Ignore | Effect::Refuse) || matches!(part.part, UnknownPart::Value(_));
        // If a part is missing, an unknown field with a similar name is a typing error.
        let is_typing_error = part.near.is_some() && part.part == UnknownPart::Field;
        if !is_typing_error && !matches!(part.part, UnknownPart::Stray { .. }) {
            self.ignored.push(part.path.clone());
        }
    }

    /// Leaves out parts that are incomplete because something in them is unknown. Returns true if there was
    /// one.
    fn leave_out_meaningless(&mut self, kind: Kind, found: &[Problem]) -> bool {
        let mut meaningless: Vec<FieldPath> = Vec::new();
        for problem in found.iter().filter(|problem| problem.is_error() && problem.is_about_presence()) {
            let unknown = self.ignored.iter().filter(|unknown| problem.path.may_follow_from(unknown));
            let mut parts = unknown.map(|unknown| incomplete(&problem.path, unknown));
            meaningless.extend(parts.find(|part| is_optional(part) && !self.ignored.contains(part)));
        }
        meaningless.sort();
        meaningless.dedup();
        for part in &meaningless {
            let path = part.segments();
            let is_route =
                kind == Kind::VirtualService && pattern::matched("spec.http[*]", path) == Some(path.len());
            let says = if is_route {
                self.edits.replace(path, rules::answering_500);
                "answers with 500: what it does is unknown to this version"
            } else {
                self.edits.leave_out(path);
                "is left out: a part that it needs is unknown to this version"
            };
            self.problems.push(Problem::warning(part.clone(), says));
            self.ignored.push(part.clone());
        }
        self.is_changed |= !meaningless.is_empty();
        !meaningless.is_empty()
    }

    /// True for a problem that only follows from an unknown part.
    fn explains(&self, problem: &Problem) -> bool {
        let by_narrowed = self.narrowed.iter().any(|(_, unknown)| {
            problem.path == *unknown || problem.is_about_presence() && problem.path.may_follow_from(unknown)
        });
        let is_around = |unknown: &FieldPath| unknown.segments().starts_with(problem.path.segments());
        by_narrowed || !problem.is_error() && self.ignored.iter().any(is_around)
    }
}

/// The smallest structure that lacks something because a part of it is unknown.
fn incomplete(lacking: &FieldPath, unknown: &FieldPath) -> FieldPath {
    let (lacking, unknown) = (lacking.segments(), unknown.segments());
    let home = unknown.split_last().map_or(unknown, |(_, home)| home);
    let part = if home.starts_with(lacking) { lacking } else { home };
    FieldPath::new(part.to_vec())
}

/// False for the object as a whole and its `spec`.
fn is_optional(part: &FieldPath) -> bool {
    match part.segments() {
        [] => false,
        [Segment::Field(only)] => **only != *"spec",
        _ => true,
    }
}
