//! Resources of proxies before and after a change.

use super::Planned;
use super::references::{endpoints_of, routes_of};
use crate::subject::Subject;
use pilotfish_model::ChangeSet;
use pilotfish_proto::ResourceType;
use pilotfish_translate::{Client, EncodedResource, Snapshot, Translator, ViewId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub(crate) type Resources = BTreeMap<Arc<str>, EncodedResource>;

/// Resources of one proxy. Proxies with equal views and subscriptions share them.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Resources by type and name.
    pub of: BTreeMap<ResourceType, Arc<BTreeMap<Arc<str>, EncodedResource>>>,
}

impl Held {
    /// Addresses of its resources in memory, by type: equal for proxies that share them.
    pub(crate) fn addresses(&self) -> Vec<usize> {
        let address = |ty| self.of.get(&ty).map_or(0, |resources| Arc::as_ptr(resources).addr());
        ResourceType::ALL.into_iter().map(address).collect()
    }
}

/// Resources of proxies in the world of a translator, in the order of the subjects.
#[must_use]
pub fn held(translator: &Translator, subjects: &[Subject]) -> Vec<Held> {
    held_until(translator, subjects, &|| false).unwrap_or_default()
}

/// Variant of [`held`] that returns `None` once `is_cancelled` returns true, which is checked for each
/// resource.
#[must_use]
pub fn held_until(
    translator: &Translator,
    subjects: &[Subject],
    is_cancelled: &dyn Fn() -> bool,
) -> Option<Vec<Held>> {
    let clients: Vec<Client> =
        subjects.iter().map(|subject| translator.connect(subject.proxy.clone())).collect();
    read_all(translator, &clients, subjects, None, is_cancelled)
}

/// Resources of all proxies, in the order of the subjects.
pub(super) struct Scene {
    pub(super) held: Vec<(Held, Held)>,
}

impl Scene {
    /// Reads all proxies in both worlds; `None` if cancelled.
    pub(super) fn open(
        empty: &Translator,
        planned: &Planned,
        subjects: &[Subject],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let translator = empty.scratch();
        translator.publish(planned.before.clone(), &ChangeSet::default());
        let clients: Vec<Client> =
            subjects.iter().map(|subject| translator.connect(subject.proxy.clone())).collect();
        let before = read_all(&translator, &clients, subjects, None, is_cancelled)?;
        translator.publish(planned.after.clone(), &planned.changes);
        let after = read_all(&translator, &clients, subjects, Some(&before), is_cancelled)?;
        Some(Self { held: before.into_iter().zip(after).collect() })
    }
}

fn read_all(
    translator: &Translator,
    clients: &[Client],
    subjects: &[Subject],
    before: Option<&[Held]>,
    is_cancelled: &dyn Fn() -> bool,
) -> Option<Vec<Held>> {
    let snapshot = translator.snapshot();
    let mut reader = Reader {
        snapshot,
        is_cancelled,
        whole: HashMap::new(),
        named: HashMap::new(),
        referred: HashMap::new(),
    };
    let held = |(place, (client, subject))| {
        let before: Option<&Held> = before.and_then(|before: &[Held]| before.get(place));
        let held = reader.read(client, subject, before);
        (!is_cancelled()).then_some(held)
    };
    clients.iter().zip(subjects).enumerate().map(held).collect()
}

struct Reader<'a> {
    snapshot: Snapshot<'a>,
    /// Once it returns true, resources are left out: the result is discarded.
    is_cancelled: &'a dyn Fn() -> bool,
    /// All resources of a view, for types without subscriptions by name.
    whole: HashMap<ViewId, Arc<Resources>>,
    named: HashMap<(ViewId, BTreeSet<Arc<str>>), Arc<Resources>>,
    /// References of a set of clusters or listeners, by the set's address in memory.
    referred: HashMap<(ResourceType, usize), Arc<BTreeSet<Arc<str>>>>,
}

impl Reader<'_> {
    fn read(&mut self, client: &Client, subject: &Subject, before: Option<&Held>) -> Held {
        let mut held = Held::default();
        for ty in [ResourceType::Cluster, ResourceType::Listener, ResourceType::NameTable] {
            let Some(view) = self.snapshot.view(client, ty) else { continue };
            let resources = match subject.names.get(&ty) {
                // A client of gRPC subscribes to the listeners and clusters that it uses.
                Some(names) => self.named(view, names.clone()),
                None => self.whole(view),
            };
            held.of.insert(ty, resources);
        }
        for (ty, of) in
            [(ResourceType::Endpoint, ResourceType::Cluster), (ResourceType::Route, ResourceType::Listener)]
        {
            let Some(view) = self.snapshot.view(client, ty) else { continue };
            let now = self.referred(ty, held.of.get(&of));
            let names = match subject.names.get(&ty) {
                None => BTreeSet::clone(&now),
                Some(names) => {
                    // The proxy subscribes to new references and unsubscribes from those that are gone.
                    let then = self.referred(ty, before.and_then(|before| before.of.get(&of)));
                    let then = if before.is_some() { then } else { now.clone() };
                    let stays = names.iter().filter(|name| now.contains(*name) || !then.contains(*name));
                    stays.chain(now.iter().filter(|name| !then.contains(*name))).cloned().collect()
                }
            };
            held.of.insert(ty, self.named(view, names));
        }
        for ty in [ResourceType::Secret, ResourceType::ExtensionConfig] {
            if let (Some(view), Some(names)) = (self.snapshot.view(client, ty), subject.names.get(&ty)) {
                held.of.insert(ty, self.named(view, names.clone()));
            }
        }
        held
    }

    fn whole(&mut self, view: ViewId) -> Arc<Resources> {
        let (snapshot, is_cancelled) = (&self.snapshot, self.is_cancelled);
        let read = || {
            let names = snapshot.names(view);
            let wanted = names.iter().take_while(|_| !is_cancelled());
            let found = wanted.filter_map(|name| Some((name.clone(), snapshot.get(view, name)?)));
            Arc::new(found.collect())
        };
        self.whole.entry(view).or_insert_with(read).clone()
    }

    fn named(&mut self, view: ViewId, names: BTreeSet<Arc<str>>) -> Arc<Resources> {
        let (snapshot, is_cancelled) = (&self.snapshot, self.is_cancelled);
        let read = |names: &BTreeSet<Arc<str>>| {
            let wanted = names.iter().take_while(|_| !is_cancelled());
            let found = wanted.filter_map(|name| Some((name.clone(), snapshot.get(view, name)?)));
            Arc::<Resources>::new(found.collect())
        };
        let found = self.named.get(&(view, names.clone())).cloned();
        found.unwrap_or_else(|| {
            let resources = read(&names);
            self.named.insert((view, names), resources.clone());
            resources
        })
    }

    fn referred(&mut self, ty: ResourceType, of: Option<&Arc<Resources>>) -> Arc<BTreeSet<Arc<str>>> {
        let Some(of) = of else { return Arc::default() };
        let key = (ty, Arc::as_ptr(of).addr());
        let read = || {
            let bodies = of.values().map(|resource| &resource.body[..]);
            Arc::new(if ty == ResourceType::Endpoint { endpoints_of(bodies) } else { routes_of(bodies) })
        };
        self.referred.entry(key).or_insert_with(read).clone()
    }
}
