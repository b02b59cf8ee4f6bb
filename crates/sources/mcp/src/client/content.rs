//! Content of a server: the pure part of the source, which converts lists and deltas of resources to events.

use crate::kinds::McpKind;
use crate::resource::{Metadata, Resource, ResourceError, body_to_json};
use pilotfish_config::{
    Effective, Limits, MeshFile, ObjectCheck, Problem, ProblemReport, ReadObject, Rejected, Severity,
    SourceBatch, SourceEvent, SourceProblems, read_live, read_mesh_file,
};
use pilotfish_model::{Kind, ObjectKey, REVISION_LABEL};
use pilotfish_runtime::{GuardSettings, HeldLoss, LossGuard, LossVerdict, ReadExtent};
use prost_types::Any;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of errors in a NACK.
const NAMED_ERRORS: usize = 5;
/// Maximum number of stored problem reports of one source.
const MOST_REPORTS: usize = 1_000;

/// Settings for reading content.
#[derive(Clone, Debug)]
pub(crate) struct ContentSettings {
    /// Name of the source in messages.
    pub(crate) origin: Arc<str>,
    pub(crate) checks: Vec<ObjectCheck>,
    /// Revision filter: objects of other revisions are left out.
    pub(crate) revision: Option<String>,
    /// Settings of the guard against responses that lack most resources.
    pub(crate) guard: GuardSettings,
    /// Maximum number of resources of one kind; more are an error.
    pub(crate) most_resources: usize,
    pub(crate) kinds: Vec<&'static McpKind>,
}

/// One resource of a response, undecoded.
pub(crate) struct Incoming<'a> {
    /// Name outside of the envelope, as in delta; empty if there is none.
    pub(crate) name: &'a str,
    /// Version outside of the envelope, as in delta.
    pub(crate) version: &'a str,
    pub(crate) body: &'a Any,
}

/// Kind of a response.
pub(crate) enum Answer<'a> {
    /// Complete list of a kind: resources that it lacks were removed.
    All,
    /// Changed resources, and names of removed ones. The first one of a stream is compared with everything.
    Difference { removed: &'a [String], is_first: bool },
}

/// Result of applying a response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Error message for a NACK; `None` if all of it was applied.
    pub(crate) error: Option<String>,
}

/// Version of a resource in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Force {
    Good,
    Closed,
    Nothing,
}

/// State of a resource.
#[derive(Debug)]
struct Held {
    /// Version inside of the envelope that was applied last; empty without one.
    version: String,
    /// Version outside of it.
    outer: String,
    /// Key of the object that it was converted to.
    key: Option<ObjectKey>,
    /// Label `istio.io/rev` of the last version.
    revision: Option<Arc<str>>,
    force: Force,
}

#[derive(Debug)]
struct OfKind {
    /// True once there was a response.
    answered: bool,
    /// True once there was a response on this stream.
    fresh: bool,
    resources: HashMap<String, Held>,
    guard: LossGuard,
}

impl OfKind {
    fn new(guard: GuardSettings) -> Self {
        let resources = HashMap::new();
        Self { answered: false, fresh: false, resources, guard: LossGuard::new(guard) }
    }

    /// Number of resources with a version in force.
    fn in_force(&self) -> usize {
        self.resources.values().filter(|held| held.force != Force::Nothing).count()
    }
}

/// Content of all kinds, as described in the module.
pub(crate) struct Content {
    settings: ContentSettings,
    kinds: BTreeMap<Kind, OfKind>,
    events: Vec<SourceEvent>,
    problems: BTreeMap<(Kind, String), Vec<ProblemReport>>,
    problems_changed: bool,
    listed: bool,
}

/// Result of reading one resource.
enum Read {
    Good(ReadObject),
    Refused(Rejected),
    /// An object of another revision, which is ignored.
    Elsewhere,
}

impl Content {
    pub(crate) fn new(settings: ContentSettings) -> Self {
        let kinds = settings.kinds.iter().map(|entry| (entry.kind, OfKind::new(settings.guard))).collect();
        Self {
            settings,
            kinds,
            events: Vec::new(),
            problems: BTreeMap::new(),
            problems_changed: false,
            listed: false,
        }
    }

    pub(crate) fn wanted(&self) -> &[&'static McpKind] {
        &self.settings.kinds
    }

    /// Resets the state for a new stream.
    pub(crate) fn stream_began(&mut self) {
        self.kinds.values_mut().for_each(|kind| kind.fresh = false);
    }

    /// Handles a resumption: a server need not respond if the client has everything.
    pub(crate) fn resumed(&mut self, kind: Kind) {
        if let Some(of) = self.kinds.get_mut(&kind) {
            of.fresh = of.answered;
        }
    }

    /// Kinds without a response on this stream, except for mesh config, which not every server has.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let missing = self.kinds.iter().filter(|(kind, of)| !of.fresh && **kind != Kind::MeshConfig);
        missing.map(|(kind, _)| kind.name()).collect()
    }

    /// True once every kind had a response.
    pub(crate) fn is_listed(&self) -> bool {
        self.kinds.iter().all(|(kind, of)| of.answered || *kind == Kind::MeshConfig)
    }

    /// Resources of a kind with their versions from a delta server; `None` if it sent one without, since it
    /// cannot compute the difference then.
    pub(crate) fn versions(&self, kind: Kind) -> Option<BTreeMap<String, String>> {
        // The second read of held back data has to list everything.
        let of = self.kinds.get(&kind).filter(|of| of.guard.held().is_none())?;
        let all = of
            .resources
            .iter()
            .map(|(name, held)| (!held.outer.is_empty()).then(|| (name.clone(), held.outer.clone())));
        all.collect()
    }

    /// Kinds, with the loss that the guard holds back of each.
    pub(crate) fn held(&self) -> impl Iterator<Item = (Kind, Option<HeldLoss>)> {
        self.kinds.iter().map(|(kind, of)| (*kind, of.guard.held()))
    }

    /// Kinds with a loss that the guard holds back.
    pub(crate) fn held_kinds(&self) -> Vec<&'static McpKind> {
        let is_held = |entry: &&&'static McpKind| {
            self.kinds.get(&entry.kind).is_some_and(|of| of.guard.held().is_some())
        };
        self.settings.kinds.iter().filter(is_held).copied().collect()
    }

    /// Makes the next response of each kind count as its second read.
    pub(crate) fn accept(&mut self, now: Instant) {
        self.kinds.values_mut().for_each(|of| of.guard.accept(now));
    }

    #[cfg(test)]
    pub(crate) fn names(&self, kind: Kind) -> std::collections::BTreeSet<String> {
        self.kinds.get(&kind).into_iter().flat_map(|of| of.resources.keys().cloned()).collect()
    }

    /// Number of resources of these kinds.
    pub(crate) fn count_of(&self, kinds: &[Kind]) -> usize {
        kinds.iter().filter_map(|kind| self.kinds.get(kind)).map(|of| of.resources.len()).sum()
    }

    pub(crate) fn count(&self) -> usize {
        self.kinds.values().map(|of| of.resources.len()).sum()
    }

    /// Events that were not sent yet.
    pub(crate) fn batch(&mut self) -> SourceBatch {
        let mut batch = SourceBatch { events: std::mem::take(&mut self.events), problems: None };
        if std::mem::take(&mut self.problems_changed) {
            let reports = self.problems.values().flatten().take(MOST_REPORTS).cloned().collect();
            batch.problems = Some(Arc::new(SourceProblems { reports, ignored: BTreeMap::new() }));
        }
        if !self.listed && self.is_listed() {
            self.listed = true;
            batch.events.push(SourceEvent::Listed);
        }
        batch
    }

    /// Applies a response for a kind.
    pub(crate) fn answer(
        &mut self,
        entry: &McpKind,
        incoming: &[Incoming<'_>],
        answer: &Answer<'_>,
        now: Instant,
    ) -> Taken {
        let mut errors = Errors::default();
        let held = self.kinds.get(&entry.kind).map_or(0, |of| of.resources.len());
        let most = self.settings.most_resources;
        let known = if matches!(answer, Answer::All) { 0 } else { held };
        if incoming.len().saturating_add(known) > most {
            let all = incoming.len().saturating_add(known);
            return Taken { error: Some(format!("{all} resources of one kind, {most} are taken")) };
        }
        let mut before = self.kinds.get(&entry.kind).map_or(0, OfKind::in_force);
        let mut named = HashSet::new();
        // The last one of several resources with one name wins.
        let mut last: BTreeMap<String, (&Incoming<'_>, Result<Resource, ResourceError>)> = BTreeMap::new();
        for resource in incoming {
            match self.open(entry, resource) {
                Ok((name, opened)) => {
                    named.insert(name.clone());
                    last.insert(name, (resource, opened));
                }
                Err(error) => errors.unnamed(&error),
            }
        }
        let mut elsewhere = Vec::new();
        for (name, (resource, opened)) in last {
            let error = self.take(entry, &name, resource.version, opened);
            match error {
                Ok(true) => {}
                Ok(false) => elsewhere.push(name),
                Err(error) => errors.named(&name, &error),
            }
        }
        // The server lists these as objects of another revision.
        for name in &elsewhere {
            named.remove(name);
            before = before.saturating_sub(self.remove_named(entry.kind, name));
        }
        match answer {
            // Removals are explicit.
            Answer::Difference { removed, is_first: false } => {
                for name in removed.iter() {
                    self.remove_named(entry.kind, name);
                }
            }
            Answer::Difference { removed, is_first: true } => {
                self.remove_guarded(entry.kind, removed, before, now);
            }
            // A resource without a name could be any of the missing ones.
            Answer::All if errors.is_unnamed() => {}
            Answer::All => {
                let of = self.kinds.get(&entry.kind);
                let known = of.into_iter().flat_map(|of| of.resources.keys());
                let missing: Vec<String> = known.filter(|name| !named.contains(*name)).cloned().collect();
                self.remove_guarded(entry.kind, &missing, before, now);
            }
        }
        if let Some(of) = self.kinds.get_mut(&entry.kind) {
            (of.answered, of.fresh) = (true, true);
        }
        Taken { error: errors.into_text() }
    }

    /// Name and envelope of a resource. Mesh config has no envelope, and a fixed name.
    #[allow(clippy::type_complexity, reason = "a name with what may have failed after it was known")]
    fn open(
        &self,
        entry: &McpKind,
        incoming: &Incoming<'_>,
    ) -> Result<(String, Result<Resource, ResourceError>), ResourceError> {
        let opened = Resource::open(incoming.body);
        if entry.kind == Kind::MeshConfig {
            let bare = |_| Resource { metadata: None, body: Some(incoming.body.clone()) };
            return Ok((String::new(), Ok(opened.unwrap_or_else(bare))));
        }
        let inside = opened.as_ref().ok().and_then(|opened| opened.metadata.as_ref());
        let name = match inside {
            Some(metadata) if !metadata.name.is_empty() => metadata.name.clone(),
            _ => incoming.name.to_owned(),
        };
        match (name.is_empty(), opened) {
            (false, opened) => Ok((name, opened)),
            (true, Err(error)) => Err(error),
            (true, Ok(_)) => {
                Err(ResourceError::Malformed { part: "envelope", reason: "it has no name".into() })
            }
        }
    }

    /// Applies one resource. Returns false if it is of another revision.
    fn take(
        &mut self,
        entry: &McpKind,
        name: &str,
        outer: &str,
        opened: Result<Resource, ResourceError>,
    ) -> Result<bool, String> {
        let held = self.kinds.get(&entry.kind).and_then(|of| of.resources.get(name));
        let version = opened.as_ref().ok().and_then(|resource| resource.metadata.as_ref());
        let version = version.map(|metadata| metadata.version.clone()).unwrap_or_default();
        let same = held.is_some_and(|held| !version.is_empty() && held.version == version);
        if same && held.is_some_and(|held| held.force == Force::Good) {
            self.set_outer(entry.kind, name, outer);
            return Ok(true);
        }
        match self.read(entry, name, opened) {
            Read::Elsewhere => Ok(false),
            Read::Good(ReadObject { object, mut warnings, .. }) => {
                warnings.extend(self.settings.checks.iter().flat_map(|check| check(&object)));
                let key = object.key().clone();
                let revision: Option<Arc<str>> = object.meta.revision().map(Arc::from);
                let named = (Some(&key), revision.as_ref());
                self.report(entry.kind, name, named, &warnings, Effective::Written);
                let (outer, force) = (outer.to_owned(), Force::Good);
                let held = Held { version, outer, key: Some(key), revision, force };
                self.hold(entry.kind, name, held);
                self.events.push(SourceEvent::Apply(object));
                Ok(true)
            }
            Read::Refused(rejected) => Err(self.refuse(entry.kind, name, rejected)),
        }
    }

    /// Keeps the last good version of a resource whose newest version is refused, or a substitute.
    fn refuse(&mut self, kind: Kind, name: &str, rejected: Rejected) -> String {
        let Rejected { key, revision, problems, closed, .. } = rejected;
        let error = problems.iter().find(|problem| problem.is_error());
        let error = error.map_or_else(|| "is refused".to_owned(), ToString::to_string);
        let held = self.kinds.get(&kind).and_then(|of| of.resources.get(name));
        let good = held.filter(|held| held.force == Force::Good);
        // An earlier version for another revision is not a version of the current object.
        let last_good = good.is_some_and(|held| held.revision == revision);
        let given_up = good.filter(|_| !last_good).and_then(|held| held.key.clone());
        let effective = Effective::of_refused(last_good, closed.is_some());
        self.report(kind, name, (key.as_ref(), revision.as_ref()), &problems, effective);
        if !last_good {
            let force = if closed.is_some() { Force::Closed } else { Force::Nothing };
            let given_up = given_up.filter(|_| closed.is_none());
            self.events.extend(given_up.map(SourceEvent::Delete));
            let held = Held { version: String::new(), outer: String::new(), key, revision, force };
            self.hold(kind, name, held);
            self.events.extend(closed.map(SourceEvent::Apply));
        } else if let Some(held) = self.kinds.get_mut(&kind).and_then(|of| of.resources.get_mut(name)) {
            // The version belongs to the object in force, so good content with the same version must be
            // applied; the outer version would tell the server that the client has the refused content.
            held.outer = format!("{}!", held.outer.trim_end_matches('!'));
        }
        error
    }

    fn read(&self, entry: &McpKind, name: &str, opened: Result<Resource, ResourceError>) -> Read {
        let metadata =
            opened.as_ref().ok().and_then(|resource| resource.metadata.clone()).unwrap_or_default();
        let of_other =
            |wanted: &String| metadata.labels.get(REVISION_LABEL).is_some_and(|label| label != wanted);
        if self.settings.revision.as_ref().is_some_and(of_other) {
            return Read::Elsewhere;
        }
        let body = opened.and_then(|resource| resource.body.ok_or(ResourceError::NoBody));
        let spec = body.and_then(|body| body_to_json(entry, &body));
        if entry.kind == Kind::MeshConfig {
            return self.read_mesh(spec);
        }
        let Some((namespace, object_name)) = name
            .split_once('/')
            .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
        else {
            return refused(None, "its name is not NAMESPACE/NAME".to_owned(), None);
        };
        let metadata = object_metadata(namespace, object_name, &metadata);
        let (spec, broken) = match spec {
            Ok(spec) => (spec, None),
            // A string is invalid content for any kind, so traffic that the object protects is closed.
            Err(error) => (json!(error.to_string()), Some(error.to_string())),
        };
        let object = json!({ "metadata": metadata, "spec": spec }).to_string();
        match (read_live(entry.kind, &self.settings.origin, object.as_bytes()), broken) {
            (Ok(read), None) => Read::Good(read),
            (Err(rejected), None) => Read::Refused(rejected),
            (Err(rejected), Some(error)) => {
                let problem = Problem { severity: Severity::Error, ..Problem::doubt("", error) };
                Read::Refused(Rejected { problems: vec![problem], ..rejected })
            }
            (Ok(_), Some(error)) => refused(None, error, None),
        }
    }

    fn read_mesh(&self, spec: Result<Value, ResourceError>) -> Read {
        let key = Some(MeshFile::Config.key());
        let spec = match spec {
            Ok(spec) => spec.to_string(),
            Err(error) => return refused(key, error.to_string(), None),
        };
        let mut read =
            read_mesh_file(MeshFile::Config, &self.settings.origin, spec.as_bytes(), &Limits::default());
        match (read.objects.pop(), read.rejected.pop()) {
            (Some(object), _) => Read::Good(object),
            (None, Some(rejected)) => Read::Refused(rejected),
            (None, None) => refused(key, "it holds nothing".to_owned(), None),
        }
    }

    /// Removes a resource that the server lists as removed. Returns the number of resources that were in
    /// force.
    fn remove_named(&mut self, kind: Kind, name: &str) -> usize {
        let Some(of) = self.kinds.get_mut(&kind) else { return 0 };
        let count = of.resources.get(name).filter(|held| held.force != Force::Nothing).map_or(0, |_| 1);
        of.guard.named(count);
        self.remove(kind, name);
        count
    }

    /// Removes resources that a complete list lacks, unless the guard holds that back. `before` resources
    /// were in force; new ones do not compensate for removed ones.
    fn remove_guarded(&mut self, kind: Kind, missing: &[String], before: usize, now: Instant) {
        let Some(of) = self.kinds.get_mut(&kind) else { return };
        let in_force = |held: &&Held| held.force != Force::Nothing;
        let lost = missing.iter().filter_map(|name| of.resources.get(name)).filter(in_force).count();
        let after = before.saturating_sub(lost);
        if of.guard.judge(before, after, now, ReadExtent::Full) == LossVerdict::Believe {
            missing.iter().for_each(|name| self.remove(kind, name));
        }
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        let Some(of) = self.kinds.get_mut(&kind) else { return };
        let Some(held) = of.resources.remove(name) else { return };
        if let (Some(key), true) = (held.key, held.force != Force::Nothing) {
            self.events.push(SourceEvent::Delete(key));
        }
        self.problems_changed |= self.problems.remove(&(kind, name.to_owned())).is_some();
    }

    fn hold(&mut self, kind: Kind, name: &str, held: Held) {
        let Some(of) = self.kinds.get_mut(&kind) else { return };
        of.resources.insert(name.to_owned(), held);
    }

    fn set_outer(&mut self, kind: Kind, name: &str, outer: &str) {
        let held = self.kinds.get_mut(&kind).and_then(|of| of.resources.get_mut(name));
        if let Some(held) = held.filter(|held| held.outer != outer) {
            outer.clone_into(&mut held.outer);
        }
    }

    fn report(
        &mut self,
        kind: Kind,
        name: &str,
        (object, revision): (Option<&ObjectKey>, Option<&Arc<str>>),
        problems: &[Problem],
        effective: Effective,
    ) {
        let place = (kind, name.to_owned());
        if problems.is_empty() {
            self.problems_changed |= self.problems.remove(&place).is_some();
            return;
        }
        let reports: Vec<ProblemReport> = problems
            .iter()
            .map(|problem| ProblemReport {
                severity: problem.severity,
                file: self.settings.origin.clone(),
                document: 0,
                line: 0,
                object: object.cloned(),
                revision: revision.cloned(),
                path: problem.path.to_string(),
                message: problem.message.clone(),
                count: None,
                hint: problem.hint.clone(),
                effective: if problem.severity == Severity::Error { effective } else { Effective::Written },
            })
            .collect();
        if self.problems.get(&place) != Some(&reports) {
            self.problems.insert(place, reports);
            self.problems_changed = true;
        }
    }
}

fn refused(key: Option<ObjectKey>, reason: String, closed: Option<pilotfish_model::Object>) -> Read {
    let problem = Problem { severity: Severity::Error, ..Problem::doubt("", reason) };
    Read::Refused(Rejected { key, revision: None, document: 0, line: 0, problems: vec![problem], closed })
}

/// Metadata in the form of an API server.
fn object_metadata(namespace: &str, name: &str, metadata: &Metadata) -> Value {
    let mut object = json!({
        "namespace": namespace, "name": name, "labels": metadata.labels, "annotations": metadata.annotations,
    });
    if let (Some(created), Value::Object(fields)) = (&metadata.create_time, &mut object) {
        // Drops nanoseconds, which API servers do not have.
        let created = prost_types::Timestamp { nanos: 0, ..*created };
        fields.insert("creationTimestamp".to_owned(), Value::String(created.to_string()));
    }
    object
}

/// Errors of one response.
#[derive(Default)]
struct Errors {
    texts: Vec<String>,
    count: usize,
    unnamed: usize,
}

impl Errors {
    fn add(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.texts.len() < NAMED_ERRORS {
            self.texts.push(text());
        }
    }

    fn named(&mut self, name: &str, error: &str) {
        self.add(|| format!("{name}: {error}"));
    }

    fn unnamed(&mut self, error: &ResourceError) {
        self.unnamed += 1;
        self.add(|| format!("a resource {error}"));
    }

    fn is_unnamed(&self) -> bool {
        self.unnamed > 0
    }

    fn into_text(self) -> Option<String> {
        let more = self.count.saturating_sub(self.texts.len());
        let text = self.texts.join("; ");
        match (self.count, more) {
            (0, _) => None,
            (_, 0) => Some(text),
            (_, more) => Some(format!("{text}; and {more} more")),
        }
    }
}
