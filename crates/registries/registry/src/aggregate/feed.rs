//! Feed: the objects of one cluster or store, from one or several sources, filtered by namespace and
//! revision.

use crate::pool::Pool;
use crate::registry::ObjectEvent;
use pilotfish_config::{LabelSelector, SourceEvent, takes_part};
use pilotfish_model::{Kind, LabelMap, Namespace, Object, ObjectKey, Revision};
use pilotfish_runtime::Health;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone)]
struct Source {
    name: Arc<str>,
    status: Health,
    /// Objects seen since a fresh list of a kind began.
    listing: BTreeMap<Kind, BTreeSet<ObjectKey>>,
}

/// Versions of an object in its sources, by the source's position in the feed. The first one that the
/// revision reads is in force. Nearly all objects have a single version, for which a list needs far less
/// memory than a map.
#[derive(Clone, Default)]
struct Versions(Vec<(usize, Object)>);

impl Versions {
    fn first(&self, revision: &Revision) -> Option<&(usize, Object)> {
        self.0.iter().find(|(_, object)| revision.reads(object.key().kind, object.meta.revision()))
    }

    /// The version in force.
    fn object(&self, revision: &Revision) -> Option<&Object> {
        self.first(revision).map(|(_, object)| object)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a version belongs to a revision.
    fn is_labelled(&self) -> bool {
        self.0.iter().any(|(_, object)| object.meta.revision().is_some())
    }

    fn has(&self, place: usize) -> bool {
        self.find(place).is_ok()
    }

    fn find(&self, place: usize) -> Result<usize, usize> {
        self.0.binary_search_by_key(&place, |(place, _)| *place)
    }

    fn set(&mut self, place: usize, object: Option<Object>) {
        match (self.find(place), object) {
            (Ok(at), Some(object)) => {
                if let Some(version) = self.0.get_mut(at) {
                    version.1 = object;
                }
            }
            (Err(at), Some(object)) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (place, object));
            }
            (Ok(at), None) => drop(self.0.remove(at)),
            (Err(_), None) => {}
        }
    }
}

/// Number of objects of its kind that an event of a source added, updated and deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Number of objects that the source did not have before.
    pub added: usize,
    /// Number of objects that it had in another version.
    pub updated: usize,
    /// Number of objects that it has no longer.
    pub deleted: usize,
}

/// See the module's description.
#[derive(Clone, Default)]
pub(super) struct Feed {
    sources: Vec<Option<Source>>,
    objects: BTreeMap<ObjectKey, Versions>,
    selectors: Vec<LabelSelector>,
    selected: BTreeMap<Namespace, bool>,
    labels: Pool<LabelMap>,
    revision: Revision,
    /// Objects with a revision label; true if no version of them belongs to our revision.
    of_revisions: BTreeMap<ObjectKey, bool>,
    /// Number of objects that are left to other revisions.
    left_out: usize,
}

impl Feed {
    /// A feed without sources that reads the objects of a revision.
    pub(super) fn new(revision: Revision) -> Self {
        Self { revision, ..Self::default() }
    }

    /// Adds a source after the present ones.
    pub(super) fn add_source(&mut self, name: &str) {
        if self.place(name).is_none() {
            let listing = BTreeMap::new();
            self.sources.push(Some(Source { name: name.into(), status: Health::default(), listing }));
        }
    }

    /// Removes a source, with the objects that only it had.
    pub(super) fn remove_source(&mut self, name: &str, out: &mut Vec<ObjectEvent>) {
        let Some(place) = self.place(name) else { return };
        let keys: Vec<ObjectKey> = self
            .objects
            .iter()
            .filter(|(_, versions)| versions.has(place))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.change(place, key, None, out);
        }
        // The place stays empty, so that those of the other sources do not move.
        if let Some(source) = self.sources.get_mut(place) {
            *source = None;
        }
    }

    /// Sync state of all sources, with the oldest failure. In sync if there are no sources.
    pub(super) fn status(&self) -> Health {
        let sources = self.sources.iter().flatten().map(|source| source.status.clone());
        // Objects left out may have a tag of our revision. A policy must not be missing until that is known.
        let decided = if self.left_out > 0 && self.revision.is_undecided() {
            Health::default()
        } else {
            Health::in_sync()
        };
        sources.fold(decided, Health::and)
    }

    /// The number of objects that are left to other revisions.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Reads the objects of another revision, or with other tags. Objects that enter or leave become events.
    pub(super) fn set_revision(&mut self, revision: &Revision, out: &mut Vec<ObjectEvent>) {
        let before = std::mem::replace(&mut self.revision, revision.clone());
        for key in self.of_revisions.keys().cloned().collect::<Vec<_>>() {
            let counted = self.objects.get(&key).and_then(|versions| versions.first(&before)).cloned();
            self.counted(key, counted.as_ref(), out);
        }
    }

    /// Sync state of a source; `None` for an unknown one.
    pub(super) fn source_status(&self, name: &str) -> Option<&Health> {
        let source = self.sources.get(self.place(name)?)?.as_ref();
        source.map(|source| &source.status)
    }

    /// Applies an event of a source. Returns the effect on the objects of that source; `None` if there is no
    /// such source.
    pub(super) fn apply(
        &mut self,
        source: &str,
        event: SourceEvent,
        out: &mut Vec<ObjectEvent>,
    ) -> Option<Applied> {
        let place = self.place(source)?;
        let source = self.sources.get_mut(place)?.as_mut()?;
        let mut applied = Applied::default();
        match event {
            SourceEvent::Apply(mut object) => {
                // Equal labels are shared between objects, unless the source already shares them.
                if let Some(meta) = Arc::get_mut(&mut object.meta) {
                    self.labels.share(&mut meta.labels);
                }
                if let Some(seen) = source.listing.get_mut(&object.key().kind) {
                    seen.insert(object.key().clone());
                }
                let had = self.change(place, object.key().clone(), Some(object), out);
                applied = Applied { added: usize::from(!had), updated: usize::from(had), deleted: 0 };
            }
            SourceEvent::Delete(key) => {
                applied.deleted += usize::from(self.change(place, key, None, out));
            }
            SourceEvent::ListBegan(kind) => {
                source.listing.insert(kind, BTreeSet::new());
            }
            SourceEvent::ListEnded(kind) => {
                let Some(seen) = source.listing.remove(&kind) else { return Some(applied) };
                for key in self.unseen(place, kind, &seen) {
                    applied.deleted += usize::from(self.change(place, key, None, out));
                }
            }
            SourceEvent::Listed | SourceEvent::Recovered => source.status = Health::in_sync(),
            SourceEvent::Failed { at, reason } => {
                source.status.failed(reason, at);
            }
        }
        Some(applied)
    }

    fn unseen(&self, place: usize, kind: Kind, seen: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
        self.range(kind, "", None)
            .filter(|(key, versions)| versions.has(place) && !seen.contains(*key))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Replaces or removes the version in force, independent of lists in progress.
    pub(super) fn replace(&mut self, key: &ObjectKey, object: Option<Object>, out: &mut Vec<ObjectEvent>) {
        let versions = self.objects.get(key);
        let place =
            versions.and_then(|versions| versions.first(&self.revision)).map_or(0, |(place, _)| *place);
        self.change(place, key.clone(), object, out);
    }

    /// The version of an object in force.
    pub(super) fn object(&self, key: &ObjectKey) -> Option<&Object> {
        self.objects.get(key).and_then(|versions| versions.object(&self.revision))
    }

    /// The objects of a kind, of one namespace or of all.
    pub(super) fn keys<'a>(
        &'a self,
        kind: Kind,
        namespace: Option<&Namespace>,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.range(kind, namespace.map_or("", Namespace::as_str), namespace)
            .filter(|(_, versions)| versions.first(&self.revision).is_some())
            .map(|(key, _)| key)
    }

    /// All visible objects of some kinds, for a registry that is added later.
    pub(super) fn visible<'a>(&'a self, kinds: &'a [Kind]) -> impl Iterator<Item = &'a Object> {
        kinds
            .iter()
            .flat_map(|kind| self.range(*kind, "", None))
            .filter(|(key, _)| self.is_visible(key))
            .filter_map(|(_, versions)| versions.object(&self.revision))
    }

    /// Sets the selectors of namespaces that are read; without selectors, all are. Adds an event for each
    /// object that enters or leaves.
    pub(super) fn select(&mut self, selectors: &[LabelSelector], out: &mut Vec<ObjectEvent>) {
        if self.selectors == selectors {
            return;
        }
        self.selectors = selectors.to_vec();
        let namespaces: Vec<Namespace> = self.selected.keys().cloned().collect();
        for namespace in namespaces {
            self.reselect(&namespace, out);
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.sources.iter().position(|source| source.as_ref().is_some_and(|source| &*source.name == name))
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        namespace: &str,
        only: Option<&Namespace>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Versions)> + use<'a> {
        let only = only.cloned();
        self.objects.range(ObjectKey::new(kind, namespace, "")..).take_while(move |(key, _)| {
            key.kind == kind && only.as_ref().is_none_or(|only| key.namespace == *only)
        })
    }

    /// Sets or removes an object of a source. Returns true if the source had it.
    fn change(
        &mut self,
        place: usize,
        key: ObjectKey,
        object: Option<Object>,
        out: &mut Vec<ObjectEvent>,
    ) -> bool {
        let versions = self.objects.entry(key.clone()).or_default();
        let had = versions.has(place);
        let before = versions.first(&self.revision).cloned();
        versions.set(place, object);
        if versions.is_empty() {
            self.objects.remove(&key);
        }
        self.counted(key, before.as_ref(), out);
        had
    }

    /// Emits an event if the version of an object in force has changed.
    fn counted(&mut self, key: ObjectKey, before: Option<&(usize, Object)>, out: &mut Vec<ObjectEvent>) {
        self.note_revision(&key);
        let after = self.objects.get(&key).and_then(|versions| versions.first(&self.revision)).cloned();
        let is_same = |(before, after): (&(usize, Object), &(usize, Object))| {
            before.0 == after.0 && Arc::ptr_eq(&before.1.meta, &after.1.meta) && before.1 == after.1
        };
        if before.is_none() && after.is_none() {
            if Revision::divides(key.kind) {
                self.forget_if_empty(&key.namespace);
            }
            return;
        }
        if before.zip(after.as_ref()).is_some_and(is_same) {
            return;
        }
        let after = after.map(|(_, object)| object);
        let namespace = (key.kind == Kind::Namespace).then(|| Namespace::from(&*key.name));
        if !key.namespace.is_empty() && !self.selected.contains_key(&key.namespace) {
            self.selected.insert(key.namespace.clone(), self.evaluate(&key.namespace));
        }
        let left = after.is_none().then(|| namespace.clone().unwrap_or_else(|| key.namespace.clone()));
        if self.is_visible(&key) {
            out.push(after.map_or(ObjectEvent::Deleted(key), ObjectEvent::Applied));
        }
        if let Some(namespace) = namespace {
            self.reselect(&namespace, out);
        }
        if let Some(left) = left {
            self.forget_if_empty(&left);
        }
    }

    /// Updates the state of an object that may be left to other revisions.
    fn note_revision(&mut self, key: &ObjectKey) {
        if !Revision::divides(key.kind) {
            return;
        }
        let versions = self.objects.get(key).filter(|versions| versions.is_labelled());
        let is_left_out = versions.map(|versions| versions.first(&self.revision).is_none());
        let was_left_out = match is_left_out {
            Some(is_left_out) => self.of_revisions.insert(key.clone(), is_left_out),
            None => self.of_revisions.remove(key),
        };
        self.left_out -= usize::from(was_left_out == Some(true));
        self.left_out += usize::from(is_left_out == Some(true));
    }

    /// Removes the state of a namespace without objects, so that short-lived namespaces do not accumulate.
    fn forget_if_empty(&mut self, namespace: &Namespace) {
        if self.objects.contains_key(&ObjectKey::new(Kind::Namespace, "", namespace.as_str())) {
            return;
        }
        let has = |kind: &Kind| self.range(*kind, namespace.as_str(), Some(namespace)).next().is_some();
        if !Kind::ALL.iter().any(has) {
            self.selected.remove(namespace);
        }
    }

    /// Evaluates the selectors for a namespace again. If the result changed, all of its objects become
    /// events.
    fn reselect(&mut self, namespace: &Namespace, out: &mut Vec<ObjectEvent>) {
        let is = self.evaluate(namespace);
        // A namespace without objects has no entry.
        if self.selected.get(namespace).is_none_or(|was| *was == is) {
            return;
        }
        self.selected.insert(namespace.clone(), is);
        for kind in Kind::ALL {
            for (key, versions) in self.range(*kind, namespace.as_str(), Some(namespace)) {
                let Some(object) = versions.object(&self.revision) else { continue };
                out.push(if is {
                    ObjectEvent::Applied(object.clone())
                } else {
                    ObjectEvent::Deleted(key.clone())
                });
            }
        }
    }

    fn is_visible(&self, key: &ObjectKey) -> bool {
        key.namespace.is_empty() || self.is_selected(&key.namespace)
    }

    fn is_selected(&self, namespace: &Namespace) -> bool {
        match self.selected.get(namespace) {
            Some(known) => *known,
            None => self.evaluate(namespace),
        }
    }

    fn evaluate(&self, namespace: &Namespace) -> bool {
        if self.selectors.is_empty() {
            return true;
        }
        let object = ObjectKey::new(Kind::Namespace, "", namespace.as_str());
        let object = self.object(&object);
        takes_part(&self.selectors, namespace.as_str(), object.map(|object| &*object.meta.labels))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails this way")]
mod tests {
    use super::*;
    use crate::testing::objects;

    /// A VirtualService or a Gateway of the Gateway API with that label `istio.io/rev`.
    fn object(kind: &str, name: &str, label: Option<&str>) -> Object {
        let labels = label.map(|label| format!(", labels: {{istio.io/rev: '{label}'}}")).unwrap_or_default();
        let (version, spec) = match kind {
            "VirtualService" => {
                ("networking.istio.io/v1", "{hosts: [a], http: [{route: [{destination: {host: a}}]}]}")
            }
            "HTTPRoute" => {
                ("gateway.networking.k8s.io/v1", "{rules: [{backendRefs: [{name: a, port: 80}]}]}")
            }
            _ => (
                "gateway.networking.k8s.io/v1",
                "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTP}]}",
            ),
        };
        let text = format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: n{labels}}}\nspec: {spec}\n"
        );
        objects(&text).unwrap().remove(0)
    }

    /// What a reader of the events of a feed has.
    #[derive(Default)]
    struct Reader(BTreeMap<ObjectKey, Object>);

    impl Reader {
        fn read(&mut self, events: Vec<ObjectEvent>) {
            for event in events {
                match event {
                    ObjectEvent::Applied(object) => drop(self.0.insert(object.key().clone(), object)),
                    ObjectEvent::Deleted(key) => {
                        assert!(self.0.remove(&key).is_some(), "{key} was never told of");
                    }
                }
            }
        }
    }

    fn canary(tags: &[&str]) -> Revision {
        Revision::named("canary").with_tags(tags.iter().map(|tag| Arc::from(*tag)).collect())
    }

    #[test]
    fn label_moves_object_into_and_out_of_force() {
        let mut feed = Feed::new(canary(&[]));
        feed.add_source("s");
        let apply = |feed: &mut Feed, label| {
            let mut out = Vec::new();
            feed.apply("s", SourceEvent::Apply(object("VirtualService", "a", label)), &mut out);
            let words = out.iter().map(|event| match event {
                ObjectEvent::Applied(_) => '+',
                ObjectEvent::Deleted(_) => '-',
            });
            (words.collect::<String>(), feed.left_out())
        };
        assert_eq!(apply(&mut feed, Some("canary")), ("+".to_owned(), 0));
        assert_eq!(apply(&mut feed, Some("stable")), ("-".to_owned(), 1));
        assert_eq!(apply(&mut feed, Some("other")), (String::new(), 1));
        assert_eq!(apply(&mut feed, None), ("+".to_owned(), 0));
        assert_eq!(apply(&mut feed, Some("stable")), ("-".to_owned(), 1));
        let key = ObjectKey::new(Kind::VirtualService, "n", "a");
        assert!(feed.object(&key).is_none());
        assert_eq!(feed.keys(Kind::VirtualService, None).count(), 0);
        feed.apply("s", SourceEvent::Delete(key), &mut Vec::new());
        assert_eq!(feed.left_out(), 0);
        assert!(feed.selected.is_empty() && feed.objects.is_empty() && feed.of_revisions.is_empty());
    }

    #[test]
    fn source_with_an_object_of_another_revision_hides_no_other_source() {
        let mut feed = Feed::new(canary(&[]));
        feed.add_source("files");
        feed.add_source("cluster");
        let mut reader = Reader::default();
        let mut apply = |feed: &mut Feed, source: &str, label| {
            let mut out = Vec::new();
            feed.apply(source, SourceEvent::Apply(object("HTTPRoute", "a", label)), &mut out);
            reader.read(out);
            reader.0.values().next().map(|object| object.meta.revision().map(str::to_owned))
        };
        assert_eq!(apply(&mut feed, "files", Some("stable")), None);
        assert_eq!(apply(&mut feed, "cluster", Some("canary")), Some(Some("canary".into())));
        assert_eq!(apply(&mut feed, "files", None), Some(None));
        assert_eq!(apply(&mut feed, "files", Some("stable")), Some(Some("canary".into())));
    }

    #[test]
    fn objects_that_may_have_an_unread_tag_delay_the_first_world() {
        let mut feed = Feed::new(Revision::named("canary"));
        feed.add_source("s");
        let mut out = Vec::new();
        feed.apply("s", SourceEvent::Apply(object("VirtualService", "a", None)), &mut out);
        feed.apply("s", SourceEvent::Listed, &mut out);
        assert!(feed.status().is_synced(), "nothing depends on tags");
        feed.apply("s", SourceEvent::Apply(object("VirtualService", "b", Some("prod"))), &mut out);
        assert!(!feed.status().is_synced());
        feed.set_revision(&canary(&["prod"]), &mut out);
        assert!(feed.status().is_synced());
        assert_eq!(out.len(), 2);
    }

    mod random {
        use super::*;
        use proptest::prelude::*;

        #[derive(Clone, Debug)]
        enum Step {
            Apply(usize, &'static str, &'static str, Option<&'static str>),
            Delete(usize, &'static str, &'static str),
            Tags(Vec<&'static str>),
        }

        fn kind() -> impl Strategy<Value = &'static str> {
            prop_oneof![Just("VirtualService"), Just("HTTPRoute"), Just("Gateway")]
        }

        fn label() -> impl Strategy<Value = Option<&'static str>> {
            prop_oneof![Just(None), Just(Some("canary")), Just(Some("stable")), Just(Some("prod"))]
        }

        fn step() -> impl Strategy<Value = Step> {
            let name = || prop_oneof![Just("a"), Just("b")];
            prop_oneof![
                4 => (0_usize..2, kind(), name(), label())
                    .prop_map(|(source, kind, name, label)| Step::Apply(source, kind, name, label)),
                2 => (0_usize..2, kind(), name()).prop_map(|(source, kind, name)| Step::Delete(source, kind, name)),
                1 => prop_oneof![Just(vec![]), Just(vec!["prod"]), Just(vec!["stable"])].prop_map(Step::Tags),
            ]
        }

        const SOURCES: [&str; 2] = ["files", "cluster"];

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(128))]

            /// Readers have, after any history of labels and tags, the first version of each object that the
            /// revision reads.
            #[test]
            fn readers_have_what_the_revision_reads(steps in prop::collection::vec(step(), 1..30)) {
                let (mut feed, mut reader, mut revision) = (Feed::new(canary(&[])), Reader::default(), canary(&[]));
                let mut has: BTreeMap<(ObjectKey, usize), Object> = BTreeMap::new();
                SOURCES.iter().for_each(|source| feed.add_source(source));
                for step in steps {
                    let mut out = Vec::new();
                    match step {
                        Step::Apply(source, kind, name, label) => {
                            let object = object(kind, name, label);
                            has.insert((object.key().clone(), source), object.clone());
                            feed.apply(SOURCES[source], SourceEvent::Apply(object), &mut out);
                        }
                        Step::Delete(source, kind, name) => {
                            let key = object(kind, name, None).key().clone();
                            has.remove(&(key.clone(), source));
                            feed.apply(SOURCES[source], SourceEvent::Delete(key), &mut out);
                        }
                        Step::Tags(tags) => {
                            revision = canary(&tags);
                            feed.set_revision(&revision, &mut out);
                        }
                    }
                    reader.read(out);
                    let is_ours = |object: &Object| revision.reads(object.key().kind, object.meta.revision());
                    let mut expected: BTreeMap<ObjectKey, Object> = BTreeMap::new();
                    for ((key, _), object) in has.iter().filter(|(_, object)| is_ours(object)) {
                        expected.entry(key.clone()).or_insert_with(|| object.clone());
                    }
                    let all: BTreeSet<&ObjectKey> = has.keys().map(|(key, _)| key).collect();
                    prop_assert_eq!(feed.left_out(), all.len() - expected.len());
                    prop_assert_eq!(&reader.0, &expected);
                }
            }
        }
    }

    #[test]
    fn namespaces_that_come_and_go_leave_nothing() {
        let mut feed = Feed::default();
        feed.add_source("s");
        let mut out = Vec::new();
        for round in 0..10 {
            let text = format!(
                "apiVersion: v1\nkind: Namespace\nmetadata: {{name: n{round}}}\n---\n\
                 apiVersion: v1\nkind: Service\nmetadata: {{name: a, namespace: n{round}}}\nspec: {{ports: [{{port: 80}}]}}\n---\n\
                 apiVersion: v1\nkind: Service\nmetadata: {{name: b, namespace: n{round}}}\nspec: {{ports: [{{port: 80}}]}}\n"
            );
            let mut keys = Vec::new();
            for object in objects(&text).unwrap() {
                keys.push(object.key().clone());
                feed.apply("s", SourceEvent::Apply(object), &mut out);
            }
            // What is in a namespace may be seen to go before it or after it.
            keys.rotate_left(round % 3);
            for key in keys {
                feed.apply("s", SourceEvent::Delete(key), &mut out);
            }
            assert!(feed.selected.is_empty() && feed.objects.is_empty(), "round {round}");
        }
        assert_eq!(out.len(), 60);
    }
}
