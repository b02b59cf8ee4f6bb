//! A feed: the objects of one cluster or store, from one or several sources, behind the namespace filter.

use crate::pool::Pool;
use crate::registry::ObjectEvent;
use pilotfish_config::{LabelSelector, SourceEvent, takes_part};
use pilotfish_model::{Kind, LabelMap, Namespace, Object, ObjectKey};
use pilotfish_source::Health;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone)]
struct Source {
    name: Arc<str>,
    status: Health,
    /// Objects seen since a fresh list of a kind began.
    listing: BTreeMap<Kind, BTreeSet<ObjectKey>>,
}

/// An object as its sources have it: by the place of the source in the feed, in order. The first one counts. Nearly all have
/// just one, for which a list needs far less memory than a map.
#[derive(Clone, Default)]
struct Versions(Vec<(usize, Object)>);

impl Versions {
    fn first(&self) -> Option<&(usize, Object)> {
        self.0.first()
    }

    /// The version that counts.
    fn object(&self) -> Option<&Object> {
        self.first().map(|(_, object)| object)
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

/// How many objects of its kind an event of a source added, updated or deleted there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Objects that the source did not have.
    pub added: usize,
    /// Objects that it had in another version.
    pub updated: usize,
    /// Objects that it has no longer.
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
}

impl Feed {
    /// Adds a source after those that are there.
    pub(super) fn add_source(&mut self, name: &str) {
        if self.place(name).is_none() {
            let listing = BTreeMap::new();
            self.sources.push(Some(Source { name: name.into(), status: Health::default(), listing }));
        }
    }

    /// Takes a source away, with what only it had.
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

    /// Whether every source is in sync, and the failure that lasts longest. Without sources there is nothing to wait for.
    pub(super) fn status(&self) -> Health {
        let sources = self.sources.iter().flatten().map(|source| source.status.clone());
        sources.fold(Health::in_sync(), Health::and)
    }

    /// How a source is.
    pub(super) fn source_status(&self, name: &str) -> Option<&Health> {
        let source = self.sources.get(self.place(name)?)?.as_ref();
        source.map(|source| &source.status)
    }

    /// Applies an event of a source. Returns what it did to the objects of that source, and `None` when there is no such source.
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
                // Where the source keeps none itself, equal labels of its objects are kept once.
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

    /// Puts another version in the place of the one that counts, or takes that away, whatever lists are
    /// under way.
    pub(super) fn replace(&mut self, key: &ObjectKey, object: Option<Object>, out: &mut Vec<ObjectEvent>) {
        let place = self.objects.get(key).and_then(Versions::first).map_or(0, |(place, _)| *place);
        self.change(place, key.clone(), object, out);
    }

    /// The version of an object that counts.
    pub(super) fn object(&self, key: &ObjectKey) -> Option<&Object> {
        self.objects.get(key).and_then(Versions::object)
    }

    /// The objects of a kind, of one namespace or of all.
    pub(super) fn keys<'a>(
        &'a self,
        kind: Kind,
        namespace: Option<&Namespace>,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.range(kind, namespace.map_or("", Namespace::as_str), namespace).map(|(key, _)| key)
    }

    /// All visible objects of some kinds: for a registry that comes later.
    pub(super) fn visible<'a>(&'a self, kinds: &'a [Kind]) -> impl Iterator<Item = &'a Object> {
        kinds
            .iter()
            .flat_map(|kind| self.range(*kind, "", None))
            .filter(|(key, _)| self.is_visible(key))
            .filter_map(|(_, versions)| versions.object())
    }

    /// Sets which namespaces take part; no selectors stand for all of them. What enters or leaves becomes events.
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

    /// Sets or removes an object of a source. Returns whether the source had it.
    fn change(
        &mut self,
        place: usize,
        key: ObjectKey,
        object: Option<Object>,
        out: &mut Vec<ObjectEvent>,
    ) -> bool {
        let versions = self.objects.entry(key.clone()).or_default();
        let had = versions.has(place);
        let before = versions.first().cloned();
        versions.set(place, object);
        let after = versions.object().cloned();
        if after.is_none() {
            self.objects.remove(&key);
        }
        let unaffected = before.as_ref().is_some_and(|(first, _)| *first < place);
        if unaffected || (before.is_none() && after.is_none()) {
            return had;
        }
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
        had
    }

    /// Forgets a namespace of which nothing is left: there is no end to namespaces that come and go.
    fn forget_if_empty(&mut self, namespace: &Namespace) {
        if self.objects.contains_key(&ObjectKey::new(Kind::Namespace, "", namespace.as_str())) {
            return;
        }
        let has = |kind: &Kind| self.range(*kind, namespace.as_str(), Some(namespace)).next().is_some();
        if !Kind::ALL.iter().any(has) {
            self.selected.remove(namespace);
        }
    }

    /// Decides again whether a namespace takes part; when that changed, all of its objects become events.
    fn reselect(&mut self, namespace: &Namespace, out: &mut Vec<ObjectEvent>) {
        let is = self.evaluate(namespace);
        // A namespace without objects has no entry.
        if self.selected.get(namespace).is_none_or(|was| *was == is) {
            return;
        }
        self.selected.insert(namespace.clone(), is);
        for kind in Kind::ALL {
            for (key, versions) in self.range(*kind, namespace.as_str(), Some(namespace)) {
                let Some(object) = versions.object() else { continue };
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
        let object = self.objects.get(&object).and_then(Versions::object);
        takes_part(&self.selectors, namespace.as_str(), object.map(|object| &*object.meta.labels))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails this way")]
mod tests {
    use super::*;
    use crate::testing::objects;

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
