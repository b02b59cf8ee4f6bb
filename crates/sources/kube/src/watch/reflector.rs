//! Objects of one kind, and the changes that each answer of the API server makes to them: a state machine
//! without IO.

use pilotfish_config::kubernetes::Secret;
use pilotfish_config::{MeshFile, Problem, ReadObject, Rejected, Severity, read_live, read_mesh_file};
use pilotfish_model::{Kind, Object, ObjectKey, ObjectMeta};
use pilotfish_runtime::{GuardSettings, HeldLoss, LossGuard, LossVerdict, ReadExtent};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// Change to one object; changes keep the order in which the API server sent them.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object is new or differs.
    Apply {
        object: Object,
        /// Problems that do not keep the object from being used.
        warnings: Vec<Problem>,
    },
    /// The newest version of the object is refused.
    Rejected {
        key: ObjectKey,
        /// The label `istio.io/rev` of the version that is refused.
        revision: Option<Arc<str>>,
        /// Reasons for the refusal.
        problems: Vec<Problem>,
        /// True if an earlier version stays in force.
        last_good: bool,
        /// Object that takes its place if no earlier version is in force, see [`Rejected::closed`].
        closed: Option<Object>,
    },
    /// The object is new or differs, with its status: for [`Reader::Stored`].
    Stored {
        key: ObjectKey,
        /// `None` when it cannot be read.
        object: Option<Object>,
        /// Errors and warnings of the object.
        problems: Vec<Problem>,
        stored: Stored,
    },
    /// The object is new or differs: for [`Reader::Json`].
    Json {
        key: ObjectKey,
        /// The object as the API server sent it.
        json: String,
    },
    /// The object is gone.
    Delete(ObjectKey),
}

/// Fields of an object that only writers of its status need.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "StoredObject")]
pub struct Stored {
    pub version: String,
    pub generation: i64,
    /// Value of the label `istio.io/rev`; `None` without it.
    pub revision: Option<Arc<str>>,
    pub status: serde_json::Value,
}

#[derive(Deserialize)]
struct StoredObject {
    #[serde(default)]
    metadata: StoredMetadata,
    #[serde(default)]
    status: serde_json::Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredMetadata {
    resource_version: String,
    generation: i64,
    labels: Option<StoredLabels>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredLabels {
    #[serde(rename = "istio.io/rev")]
    revision: Option<Arc<str>>,
}

impl From<StoredObject> for Stored {
    fn from(StoredObject { metadata, status }: StoredObject) -> Self {
        let StoredMetadata { resource_version: version, generation, labels } = metadata;
        let revision = labels.and_then(|labels| labels.revision);
        Self { version, generation, revision, status }
    }
}

/// Type as which the objects of a watch are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Objects of that kind.
    Object(Kind),
    /// Objects of that kind together with their status.
    Stored(Kind),
    /// Objects of that kind as the API server sends them, for writers of other fields than those of the
    /// model.
    Json(Kind),
    /// ConfigMaps, one of which has the mesh-wide settings.
    ConfigMaps {
        /// Namespace of the ConfigMap with the mesh-wide settings.
        mesh_namespace: Arc<str>,
        /// Name of the ConfigMap with the mesh-wide settings.
        mesh_name: Arc<str>,
    },
    /// Secrets, reduced to the fields that proxies may be served.
    ServedSecrets {
        /// Root namespace, in which some Secrets belong to control planes.
        root_namespace: Arc<str>,
    },
}

impl Reader {
    fn is_mesh(&self, name: &Name) -> bool {
        let Self::ConfigMaps { mesh_namespace, mesh_name } = self else { return false };
        *name.namespace == **mesh_namespace && *name.name == **mesh_name
    }
}

/// The next request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextRequest {
    /// Everything there is and then every change, in one stream.
    StreamList,
    /// A page of everything there is; the first one without a token.
    List { next: Option<String> },
    /// The API server's version, before a watch is resumed: an API server that was restored from a backup
    /// would wait for the requested version without an error.
    Version,
    /// All changes since that version.
    Watch { from: String },
}

/// Failure of a request, by its effect on the next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The API server no longer has the requested version: the kind must be listed again.
    Gone,
    /// The API server does not support `sendInitialEvents`.
    NoStreams,
    /// Anything else; the same request is sent again later.
    Other,
}

/// Namespace and name of an object of the kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Name {
    namespace: Box<str>,
    name: Box<str>,
}

/// State that is kept for each object.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Hash of `metadata.resourceVersion`: an object with an equal one need not be read again.
    version: u64,
    /// True if a version of the object is in force.
    good: bool,
    /// Hash of the label `istio.io/rev` of the version in force.
    revision: u64,
}

/// State machine of lists and watches of one kind.
pub(crate) struct Reflector {
    reader: Reader,
    origin: Arc<str>,
    known: HashMap<Name, Known>,
    /// Objects in the pages read so far of the list that is being read; `None` outside of lists.
    seen: Option<HashSet<Name>>,
    /// Token of the next page of the list that is being read.
    next: Option<String>,
    /// Number of objects known when the list began.
    before_list: usize,
    /// Version up to which all changes are known; `None` while a list is needed.
    at: Option<String>,
    /// True if `at` need not be compared with the API server's version before the next watch: after a list,
    /// or after that comparison.
    checked: bool,
    /// Highest version of an object of the kind so far.
    newest: Option<u64>,
    /// Version of the whole store at the last comparison: events of the kind up to it may still arrive.
    looked: Option<u64>,
    /// Reason for listing the kind again after the API server's version went back, until it is taken.
    went_back: Option<String>,
    streams: bool,
    guard: LossGuard,
}

/// Hash for an object that must be read again whatever its version is.
const NO_VERSION: u64 = 0;
/// Hash for an object without the label `istio.io/rev`.
const NO_REVISION: u64 = 0;

/// Part of an object that is read first, to find out whether the object has changed.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: HeadMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMetadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

/// A page of a list.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    resource_version: String,
    r#continue: String,
}

/// One line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Content of a line of a watch.
#[derive(Debug, PartialEq)]
pub(crate) enum LineContent {
    /// Changes; `listed` is true if they complete the list.
    Changes { changes: Vec<Change>, listed: bool },
    /// An error with its code and text.
    Error { code: u16, message: String },
}

/// Annotation of the bookmark that ends the list of a stream.
const LIST_ENDS: &str = "k8s.io/initial-events-end";

impl Reflector {
    pub(crate) fn new(reader: Reader, origin: Arc<str>) -> Self {
        Self {
            reader,
            origin,
            known: HashMap::new(),
            seen: None,
            next: None,
            before_list: 0,
            at: None,
            checked: false,
            newest: None,
            looked: None,
            went_back: None,
            streams: true,
            guard: LossGuard::new(GuardSettings::off()),
        }
    }

    /// Holds back lists that lack most objects.
    pub(crate) fn set_guard(&mut self, settings: GuardSettings) {
        self.guard = LossGuard::new(settings);
    }

    /// The next request to send.
    pub(crate) fn next_request(&self) -> NextRequest {
        match (&self.at, &self.next) {
            (Some(from), _) if self.checked => NextRequest::Watch { from: from.clone() },
            (Some(_), _) => NextRequest::Version,
            (None, Some(next)) => NextRequest::List { next: Some(next.clone()) },
            (None, None) if self.streams => NextRequest::StreamList,
            (None, None) => NextRequest::List { next: None },
        }
    }

    /// Notes the start of a list. Objects that it lacks are removed only at its end.
    pub(crate) fn list_started(&mut self) {
        self.seen = Some(HashSet::new());
        self.next = None;
        self.before_list = self.known.len();
    }

    /// Handles the answer to [`NextRequest::Version`].
    ///
    /// # Errors
    /// When the text is no list.
    pub(crate) fn version(&mut self, text: &str) -> Result<(), serde_json::Error> {
        self.checked = true;
        let page: Page<'_> = serde_json::from_str(text)?;
        let version = page.metadata.resource_version;
        let seen = self.newest;
        self.newest = self.newest.max(self.looked);
        if !self.fell_back(&version) {
            self.newest = seen;
            self.looked = version.parse().ok().or(self.looked);
        }
        Ok(())
    }

    /// Notes the end of a watch, with or without an error.
    pub(crate) fn watch_ended(&mut self) {
        self.checked = false;
    }

    /// Takes the reason for listing the kind again after the API server's version went back below one that
    /// was seen.
    pub(crate) fn went_back(&mut self) -> Option<String> {
        self.went_back.take()
    }

    /// Returns the loss that the guard holds back.
    pub(crate) fn held(&self) -> Option<HeldLoss> {
        self.guard.held()
    }

    /// Returns the time of the list that is to confirm a held loss; `None` while a list is read.
    pub(crate) fn second_list_due(&self) -> Option<Instant> {
        self.guard.held().filter(|_| self.seen.is_none()).map(|held| held.until)
    }

    /// Starts the list that is to confirm the held loss.
    pub(crate) fn second_list(&mut self, now: Instant) {
        self.guard.accept(now);
        self.failed(&Failure::Gone);
    }

    /// Handles a page of the list; returns the differences and whether the list is complete.
    ///
    /// # Errors
    /// When the text is no list.
    pub(crate) fn page(
        &mut self,
        text: &str,
        now: Instant,
    ) -> Result<(Vec<Change>, bool), serde_json::Error> {
        let page: Page<'_> = serde_json::from_str(text)?;
        let mut changes = Vec::new();
        for item in page.items.unwrap_or_default() {
            self.applied(item.get(), &mut changes)?;
        }
        if page.metadata.r#continue.is_empty() {
            let is_complete = self.list_ended(page.metadata.resource_version, &mut changes, now);
            return Ok((changes, is_complete));
        }
        self.next = Some(page.metadata.r#continue);
        Ok((changes, false))
    }

    /// Handles a line of a watch.
    ///
    /// # Errors
    /// When the text is no event.
    pub(crate) fn line(&mut self, text: &str, now: Instant) -> Result<LineContent, serde_json::Error> {
        let line: Line<'_> = serde_json::from_str(text)?;
        let object = line.object.get();
        let mut changes = Vec::new();
        let mut listed = false;
        match line.r#type {
            "ADDED" | "MODIFIED" => {
                let version = self.applied(object, &mut changes)?;
                self.move_to(version);
            }
            "DELETED" => {
                let head: Head<'_> = serde_json::from_str(object)?;
                // A deletion by name is certain, unlike an object that a list lacks.
                self.guard.named(1);
                self.deleted(&name_of(&head.metadata), &mut changes);
                // Some API servers send the object's last version, which is older than its deletion.
                if !self.is_older(&head.metadata.resource_version) {
                    self.move_to(head.metadata.resource_version.into_owned());
                }
            }
            "BOOKMARK" => {
                let head: Head<'_> = serde_json::from_str(object)?;
                let ends = head.metadata.annotations.is_some_and(|all| all.contains_key(LIST_ENDS));
                let version = head.metadata.resource_version.into_owned();
                if ends && self.seen.is_some() {
                    listed = self.list_ended(version, &mut changes, now);
                } else {
                    self.move_to(version);
                }
            }
            "ERROR" => {
                let status: ErrorStatus = serde_json::from_str(object)?;
                return Ok(LineContent::Error { code: status.code, message: status.message });
            }
            // Unknown event types are ignored: a list has every object, so nothing is lost.
            _ => {}
        }
        Ok(LineContent::Changes { changes, listed })
    }

    /// Chooses the next request after a failure.
    pub(crate) fn failed(&mut self, failure: &Failure) {
        match failure {
            Failure::Gone => {
                self.at = None;
                self.next = None;
            }
            Failure::NoStreams => self.streams = false,
            Failure::Other => {}
        }
    }

    /// Starts over with a list that reports every object again, because the kind is served in another version
    /// or because earlier changes may not have been delivered.
    pub(crate) fn start_over(&mut self) {
        self.failed(&Failure::Gone);
        self.seen = None;
        for known in self.known.values_mut() {
            known.version = NO_VERSION;
        }
    }

    /// Removes all objects, because the API server no longer serves the kind; `None` while the guard holds
    /// that back.
    pub(crate) fn kind_removed(&mut self, now: Instant) -> Option<Vec<Change>> {
        if let LossVerdict::Hold(_) = self.guard.judge(self.known.len(), 0, now, ReadExtent::Full) {
            return None;
        }
        let mut changes = Vec::new();
        let names: BTreeSet<Name> = self.known.keys().cloned().collect();
        for name in &names {
            self.deleted(name, &mut changes);
        }
        self.start_over();
        Some(changes)
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Advances the version from which the watch resumes. An incomplete list has no such version.
    fn move_to(&mut self, version: String) {
        if self.seen.is_none() && !version.is_empty() && self.moved_on(&version) {
            self.at = Some(version);
        }
    }

    /// True for a version below the highest one so far. Versions of a kind grow for the lifetime of its store
    /// (KEP-5504).
    fn is_older(&self, version: &str) -> bool {
        version.parse::<u64>().is_ok_and(|version| self.newest.is_some_and(|newest| version < newest))
    }

    /// True for a version of the API server below the highest one so far: the store was restored from a
    /// backup, so versions name other contents than before and the kind is listed again.
    fn fell_back(&mut self, version: &str) -> bool {
        if !self.is_older(version) {
            return false;
        }
        let newest = self.newest.take().unwrap_or_default();
        self.looked = None;
        self.went_back = Some(format!(
            "the API server is at version {version}, and was at {newest}: its store was restored; everything \
             is read again"
        ));
        self.start_over();
        true
    }

    /// Notes a version up to which everything is known, unless the API server fell back.
    fn moved_on(&mut self, version: &str) -> bool {
        if self.fell_back(version) {
            return false;
        }
        self.newest = version.parse().ok().or(self.newest);
        true
    }

    /// Takes away what the list did not name, unless the guard holds that back. Returns true if the list
    /// counts.
    fn list_ended(&mut self, version: String, changes: &mut Vec<Change>, now: Instant) -> bool {
        let seen = self.seen.take().unwrap_or_default();
        self.next = None;
        // Objects with a known version were not read.
        if !self.moved_on(&version) {
            return false;
        }
        let gone: BTreeSet<Name> = self.known.keys().filter(|name| !seen.contains(*name)).cloned().collect();
        // Others in their place are no better: the list may be that of another cluster's backup.
        let kept = self.before_list.saturating_sub(gone.len());
        let verdict = self.guard.judge(self.before_list, kept, now, ReadExtent::Full);
        if verdict == LossVerdict::Believe {
            for name in &gone {
                self.deleted(name, changes);
            }
        }
        self.at = Some(version);
        self.checked = true;
        true
    }

    /// Handles the current state of an object; returns its version.
    fn applied(&mut self, json: &str, changes: &mut Vec<Change>) -> Result<String, serde_json::Error> {
        let head: Head<'_> = serde_json::from_str(json)?;
        let name = name_of(&head.metadata);
        let text = head.metadata.resource_version.into_owned();
        let version = xxh3_64(text.as_bytes());
        if let Some(seen) = &mut self.seen {
            seen.insert(name.clone());
        }
        let before = self.known.get(&name).copied();
        // Without a version there is nothing to compare.
        if !text.is_empty() && before.is_some_and(|known| known.version == version) {
            return Ok(text);
        }
        let good = before.filter(|known| known.good).map(|known| known.revision);
        let good = match self.reader {
            Reader::Object(kind) => self.read_object(kind, &name, json, good, changes),
            Reader::Stored(kind) => self.read_stored(kind, &name, json, changes)?.then_some(NO_REVISION),
            Reader::Json(kind) => {
                let key = ObjectKey::new(kind, &*name.namespace, &*name.name);
                changes.push(Change::Json { key, json: json.to_owned() });
                Some(NO_REVISION)
            }
            Reader::ConfigMaps { .. } if self.reader.is_mesh(&name) => {
                self.read_mesh(json, good.is_some(), changes).then_some(NO_REVISION)
            }
            Reader::ConfigMaps { .. } => self.read_object(Kind::ConfigMap, &name, json, good, changes),
            Reader::ServedSecrets { .. } => self.read_object(Kind::Secret, &name, json, good, changes),
        };
        let revision = good.unwrap_or(NO_REVISION);
        self.known.insert(name, Known { version, good: good.is_some(), revision });
        Ok(text)
    }

    /// Reads an object. `good` is the revision of the version in force; returns that of the version in force
    /// afterwards.
    fn read_object(
        &self,
        kind: Kind,
        name: &Name,
        json: &str,
        good: Option<u64>,
        changes: &mut Vec<Change>,
    ) -> Option<u64> {
        match read_live(kind, &self.origin, json.as_bytes()) {
            Ok(ReadObject { object, warnings, .. }) => {
                let revision = revision_hash(object.meta.revision());
                changes.push(Change::Apply { object: self.served(object), warnings });
                Some(revision)
            }
            Err(Rejected { revision, problems, closed, .. }) => {
                let key = ObjectKey::new(kind, &*name.namespace, &*name.name);
                // A version with another `istio.io/rev` belongs to another control plane, so it is no last
                // good version here.
                let last_good = good.filter(|good| *good == revision_hash(revision.as_deref()));
                let closed = closed.filter(|_| last_good.is_none());
                if good.is_some() && last_good.is_none() && closed.is_none() {
                    changes.push(Change::Delete(key.clone()));
                }
                let last_good_holds = last_good.is_some();
                changes.push(Change::Rejected {
                    key,
                    revision,
                    problems,
                    last_good: last_good_holds,
                    closed,
                });
                last_good
            }
        }
    }

    /// Returns the object without the fields of a Secret that proxies are not served.
    fn served(&self, object: Object) -> Object {
        let Self { reader: Reader::ServedSecrets { root_namespace }, .. } = self else { return object };
        let Some(secret) = object.typed::<Secret>() else { return object };
        let (mut secret, mut meta) = (Secret::clone(&secret), ObjectMeta::clone(secret.meta()));
        secret.keep_served(&mut meta, root_namespace);
        Object::new(meta, secret)
    }

    /// Reads an object with its status.
    fn read_stored(
        &self,
        kind: Kind,
        name: &Name,
        json: &str,
        changes: &mut Vec<Change>,
    ) -> Result<bool, serde_json::Error> {
        let stored: Stored = serde_json::from_str(json)?;
        let (object, problems) = match read_live(kind, &self.origin, json.as_bytes()) {
            Ok(ReadObject { object, warnings, .. }) => (Some(object), warnings),
            Err(Rejected { problems, closed, .. }) => (closed, problems),
        };
        let key = ObjectKey::new(kind, &*name.namespace, &*name.name);
        changes.push(Change::Stored { key, object, problems, stored });
        Ok(true)
    }

    /// Reads the mesh-wide settings from their ConfigMap.
    fn read_mesh(&self, json: &str, had: bool, changes: &mut Vec<Change>) -> bool {
        let mut good = false;
        let mut data = match mesh_data(json) {
            Ok(data) => data,
            // Neither file can be read, so the versions in force stay.
            Err(error) => {
                let message = format!("its ConfigMap cannot be read: {error}");
                let problem = Problem { severity: Severity::Error, ..Problem::doubt("", message) };
                changes.extend([MeshFile::Config, MeshFile::Networks].map(|which| Change::Rejected {
                    key: which.key(),
                    revision: None,
                    problems: vec![problem.clone()],
                    last_good: had,
                    closed: None,
                }));
                return had;
            }
        };
        for which in [MeshFile::Config, MeshFile::Networks] {
            let Some(text) = data.remove(which.config_map_key()) else {
                changes.push(Change::Delete(which.key()));
                continue;
            };
            let read = read_mesh_file(which, &self.origin, text.as_bytes(), &Default::default());
            for ReadObject { object, warnings, .. } in read.objects {
                good = true;
                changes.push(Change::Apply { object, warnings });
            }
            for Rejected { problems, .. } in read.rejected {
                good |= had;
                let (key, revision) = (which.key(), None);
                changes.push(Change::Rejected { key, revision, problems, last_good: had, closed: None });
            }
        }
        good
    }

    fn deleted(&mut self, name: &Name, changes: &mut Vec<Change>) {
        if self.known.remove(name).is_none() {
            return;
        }
        let kind = match self.reader {
            Reader::Object(kind) | Reader::Stored(kind) | Reader::Json(kind) => kind,
            Reader::ConfigMaps { .. } if self.reader.is_mesh(name) => {
                changes
                    .extend([MeshFile::Config, MeshFile::Networks].map(|which| Change::Delete(which.key())));
                return;
            }
            Reader::ConfigMaps { .. } => Kind::ConfigMap,
            Reader::ServedSecrets { .. } => Kind::Secret,
        };
        changes.push(Change::Delete(ObjectKey::new(kind, &*name.namespace, &*name.name)));
    }
}

/// Status object of an `ERROR` event.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ErrorStatus {
    code: u16,
    message: String,
}

/// Returns the `data` of a ConfigMap.
fn mesh_data(json: &str) -> Result<HashMap<String, String>, serde_json::Error> {
    #[derive(Deserialize)]
    struct ConfigMap {
        data: Option<HashMap<String, String>>,
    }
    let map: ConfigMap = serde_json::from_str(json)?;
    Ok(map.data.unwrap_or_default())
}

fn revision_hash(label: Option<&str>) -> u64 {
    label.map_or(NO_REVISION, |label| xxh3_64(label.as_bytes()))
}

fn name_of(metadata: &HeadMetadata<'_>) -> Name {
    Name { namespace: metadata.namespace.as_ref().into(), name: metadata.name.as_ref().into() }
}
