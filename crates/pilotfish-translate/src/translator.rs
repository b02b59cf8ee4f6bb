//! The door to this crate: proxies come in, worlds come in, resources and news of what changed come out.

use crate::memo::{Current, Memo, Touched};
use crate::view::{Generate, Index, IndexOf, ViewsOf};
use crate::{Batch, Encoded, Proxy, Unit, View};
use parking_lot::{Mutex, RwLockReadGuard};
use pilotfish_model::{ChangeSet, World};
use pilotfish_proto::ResourceType;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A view, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub u32);

/// A connected proxy, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One resource of one view that differs from the world before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// The view.
    pub view: ViewId,
    /// Its resource type.
    pub resource_type: ResourceType,
    /// The resource.
    pub name: Arc<str>,
    /// Whether it is gone, rather than new or different.
    pub removed: bool,
}

/// What a new world means for connected proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The revision of [`Snapshot`]s that show the new world.
    pub revision: u64,
    /// Resources that differ, for views that somebody has.
    pub changes: Vec<Change>,
    /// Proxies that now have another view of some type.
    pub moved: Vec<ClientId>,
}

/// Translates for all connected proxies.
pub struct Translator {
    memo: Memo,
    clients: Arc<Mutex<Clients>>,
}

/// Who is connected, with which views.
#[derive(Default)]
struct Clients {
    next_client: u64,
    next_view: u32,
    ids: HashMap<Arc<View>, ViewId>,
    views: BTreeMap<ViewId, Viewed>,
    proxies: HashMap<Arc<Proxy>, Connected>,
    /// Views and proxies that nobody has any more; the translator takes them off the memo's roots.
    gone: Vec<Gone>,
}

struct Viewed {
    view: Arc<View>,
    /// How many proxies have it.
    proxies: usize,
    /// The units that are reported when they change.
    rooted: BTreeSet<Unit>,
}

struct Connected {
    clients: BTreeSet<ClientId>,
    views: BTreeMap<ResourceType, ViewId>,
}

enum Gone {
    View(Arc<View>, BTreeSet<Unit>),
    Proxy(Arc<Proxy>),
}

/// A connected proxy; dropping it says that it is gone.
pub struct Client {
    id: ClientId,
    proxy: Arc<Proxy>,
    clients: Arc<Mutex<Clients>>,
}

impl Client {
    /// The number of this connection.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// The proxy.
    #[must_use]
    pub fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.clients.lock().disconnect(&self.proxy, self.id);
    }
}

impl Clients {
    /// The number of a view, with one more proxy that has it.
    fn enter(&mut self, view: &Arc<View>) -> ViewId {
        let id = match self.ids.get(view) {
            Some(id) => *id,
            None => {
                self.next_view += 1;
                let id = ViewId(self.next_view);
                self.ids.insert(view.clone(), id);
                self.views.insert(id, Viewed { view: view.clone(), proxies: 0, rooted: BTreeSet::new() });
                id
            }
        };
        if let Some(viewed) = self.views.get_mut(&id) {
            viewed.proxies += 1;
        }
        id
    }

    fn leave(&mut self, id: ViewId) {
        let Some(viewed) = self.views.get_mut(&id) else { return };
        viewed.proxies -= 1;
        if viewed.proxies > 0 {
            return;
        }
        if let Some(viewed) = self.views.remove(&id) {
            self.ids.remove(&viewed.view);
            self.gone.push(Gone::View(viewed.view, viewed.rooted));
        }
    }

    fn enter_all(&mut self, views: &[Arc<View>]) -> BTreeMap<ResourceType, ViewId> {
        views.iter().map(|view| (view.resource_type(), self.enter(view))).collect()
    }

    fn disconnect(&mut self, proxy: &Arc<Proxy>, id: ClientId) {
        let Some(connected) = self.proxies.get_mut(proxy) else { return };
        connected.clients.remove(&id);
        if !connected.clients.is_empty() {
            return;
        }
        if let Some(connected) = self.proxies.remove(proxy) {
            for view in connected.views.into_values() {
                self.leave(view);
            }
        }
        self.gone.push(Gone::Proxy(proxy.clone()));
    }
}

impl Default for Translator {
    fn default() -> Self {
        Self::new()
    }
}

impl Translator {
    /// A translator of an empty world.
    #[must_use]
    pub fn new() -> Self {
        Self { memo: Memo::new(), clients: Arc::default() }
    }

    /// Takes in a proxy: finds its views, which stay up to date until the client is dropped.
    pub fn connect(&self, proxy: Proxy) -> Client {
        let proxy = Arc::new(proxy);
        let current = self.memo.read();
        let views = self.memo.root(&current, &ViewsOf(proxy.clone()));
        let mut clients = self.clients.lock();
        clients.next_client += 1;
        let id = ClientId(clients.next_client);
        if !clients.proxies.contains_key(&proxy) {
            let views = clients.enter_all(&views);
            clients.proxies.insert(proxy.clone(), Connected { clients: BTreeSet::new(), views });
        }
        if let Some(connected) = clients.proxies.get_mut(&proxy) {
            connected.clients.insert(id);
        }
        Client { id, proxy, clients: self.clients.clone() }
    }

    /// Makes a world current and tells what it changes for connected proxies. One caller at a time.
    pub fn publish(&self, world: Arc<World>, changes: &ChangeSet) -> Changes {
        self.forget_gone();
        self.memo.sweep_if_due();
        let (current, touched) = self.memo.advance(world, changes);
        let mut out = Changes { revision: current.revision, ..Changes::default() };
        for root in &touched {
            self.report_proxy(&current, root, &mut out);
        }
        for root in &touched {
            self.report_index(&current, root, &mut out);
            self.report_unit(&current, root, &mut out);
        }
        out.changes.sort();
        out.changes.dedup();
        out
    }

    /// One consistent world with everything that proxies get from it. Holds a lock that keeps the next world waiting: take
    /// what is needed and let go, never across an await.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { translator: self, current: self.memo.read() }
    }

    /// How many results were computed since the start.
    #[must_use]
    pub fn computed(&self) -> u64 {
        self.memo.computed()
    }

    /// How many results are kept.
    #[must_use]
    pub fn results(&self) -> usize {
        self.memo.len()
    }

    /// Drops named resources that nobody subscribes to any more, as `is_wanted` tells. To be called by the one who
    /// publishes. A resource is let go first and then looked at again: whoever subscribes meanwhile either is seen by the
    /// second look or reads the resource afterwards, and both keep it.
    pub fn retain_named(&self, is_wanted: impl Fn(ViewId, ResourceType, &str) -> bool) {
        let named: Vec<(ViewId, Arc<View>, Arc<str>)> = {
            let clients = self.clients.lock();
            let units = clients.views.iter().flat_map(|(id, viewed)| {
                viewed.rooted.iter().filter_map(move |unit| match unit {
                    Unit::Named(name) => Some((*id, viewed.view.clone(), name.clone())),
                    _ => None,
                })
            });
            units.collect()
        };
        for (id, view, name) in named {
            if is_wanted(id, view.resource_type(), &name) {
                continue;
            }
            let unit = Unit::Named(name.clone());
            if let Some(viewed) = self.clients.lock().views.get_mut(&id) {
                viewed.rooted.remove(&unit);
            }
            self.memo.unroot(&Generate { view: view.clone(), unit });
            if is_wanted(id, view.resource_type(), &name) {
                // Reading it makes it a root again.
                drop(self.snapshot().get(id, &name));
            }
        }
    }

    /// A proxy whose own facts changed may have other views now.
    fn report_proxy(&self, current: &Current, root: &Touched, out: &mut Changes) {
        let Some(query) = root.query::<ViewsOf>() else { return };
        let (views, _) = self.memo.get(current, query);
        if root.before::<ViewsOf>().is_some_and(|before| before == views) {
            return;
        }
        let mut clients = self.clients.lock();
        let entered = clients.enter_all(&views);
        let Some(connected) = clients.proxies.get_mut(&query.0) else { return };
        let before = std::mem::replace(&mut connected.views, entered);
        out.moved.extend(connected.clients.iter().copied());
        for view in before.into_values() {
            clients.leave(view);
        }
    }

    /// The names of a view that is taken as a whole: what came and what went.
    fn report_index(&self, current: &Current, root: &Touched, out: &mut Changes) {
        let Some(query) = root.query::<IndexOf>() else { return };
        let Some(id) = self.clients.lock().ids.get(&query.0).copied() else { return };
        let (index, _) = self.memo.get(current, query);
        let (Some(before), Some(index)) = (root.before::<IndexOf>(), &*index) else { return };
        let Some(before) = &*before else { return };
        if before == index {
            return;
        }
        let change = |name: &Arc<str>, removed| Change {
            view: id,
            resource_type: query.0.resource_type(),
            name: name.clone(),
            removed,
        };
        let come = index.unit_of.iter().filter(|(name, unit)| before.unit_of.get(*name) != Some(unit));
        out.changes.extend(come.map(|(name, _)| change(name, false)));
        let gone = before.unit_of.keys().filter(|name| !index.unit_of.contains_key(*name));
        out.changes.extend(gone.map(|name| change(name, true)));
        self.root_units(current, id, &query.0, index);
    }

    /// The resources of one unit: what differs.
    fn report_unit(&self, current: &Current, root: &Touched, out: &mut Changes) {
        let Some(query) = root.query::<Generate>() else { return };
        let Some(id) = self.clients.lock().ids.get(&query.view).copied() else { return };
        let (batch, _) = self.memo.get(current, query);
        let Some(before) = root.before::<Generate>() else { return };
        let change = |resource: &Encoded, removed| Change {
            view: id,
            resource_type: query.view.resource_type(),
            name: resource.name.clone(),
            removed,
        };
        let (index, _) = self.memo.get(current, &IndexOf(query.view.clone()));
        let owned = |resource: &&Encoded| {
            index.as_ref().as_ref().is_none_or(|index| index.unit_of.get(&resource.name) == Some(&query.unit))
        };
        let changed = |resource: &&Encoded| resource.changed_at == current.revision;
        out.changes.extend(batch.resources.iter().filter(changed).filter(owned).map(|r| change(r, false)));
        if index.is_none() {
            let gone = |resource: &&Encoded| batch.find(&resource.name).is_none();
            out.changes.extend(before.resources.iter().filter(gone).map(|r| change(r, true)));
        }
    }

    /// From now on the units of this index, and no others of the view, are reported when they change.
    fn root_units(&self, current: &Current, id: ViewId, view: &Arc<View>, index: &Index) {
        let new: BTreeSet<Unit> = index.units.iter().cloned().collect();
        let mut clients = self.clients.lock();
        let Some(viewed) = clients.views.get_mut(&id) else { return };
        let query = |unit: &Unit| Generate { view: view.clone(), unit: unit.clone() };
        for unit in viewed.rooted.difference(&new) {
            self.memo.unroot(&query(unit));
        }
        for unit in new.difference(&viewed.rooted) {
            self.memo.root(current, &query(unit));
        }
        viewed.rooted = new;
    }

    /// Takes views and proxies that nobody has any more off the roots.
    fn forget_gone(&self) {
        let mut clients = self.clients.lock();
        for gone in std::mem::take(&mut clients.gone) {
            match gone {
                // It may have come back in the meantime, then its roots are in use again.
                Gone::View(view, _) if clients.ids.contains_key(&view) => {}
                Gone::Proxy(proxy) if clients.proxies.contains_key(&proxy) => {}
                Gone::Proxy(proxy) => self.memo.unroot(&ViewsOf(proxy)),
                Gone::View(view, units) => {
                    for unit in units {
                        self.memo.unroot(&Generate { view: view.clone(), unit });
                    }
                    self.memo.unroot(&IndexOf(view));
                }
            }
        }
    }
}

/// One world, as proxies see it.
pub struct Snapshot<'a> {
    translator: &'a Translator,
    current: RwLockReadGuard<'a, Current>,
}

impl Snapshot<'_> {
    /// Counts up with every published world.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.current.revision
    }

    /// The world itself.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.current.world
    }

    /// The client's view of a type; `None` when the type is not served to it.
    #[must_use]
    pub fn view(&self, client: &Client, resource_type: ResourceType) -> Option<ViewId> {
        self.translator.clients.lock().proxies.get(&client.proxy)?.views.get(&resource_type).copied()
    }

    /// The names of all resources of a view, in the order in which they are sent; empty for views that are asked by name.
    #[must_use]
    pub fn names(&self, id: ViewId) -> Arc<[Arc<str>]> {
        self.names_of(id).unwrap_or_default()
    }

    /// A resource of a view.
    #[must_use]
    pub fn get(&self, id: ViewId, name: &str) -> Option<Encoded> {
        let view = self.translator.clients.lock().views.get(&id)?.view.clone();
        let memo = &self.translator.memo;
        let (index, _) = memo.get(&self.current, &IndexOf(view.clone()));
        let batch: Arc<Batch> = match &*index {
            Some(index) => {
                let unit = index.unit_of.get(name)?.clone();
                memo.get(&self.current, &Generate { view, unit }).0
            }
            None => {
                let unit = Unit::Named(name.into());
                let batch = memo.root(&self.current, &Generate { view, unit: unit.clone() });
                if let Some(viewed) = self.translator.clients.lock().views.get_mut(&id) {
                    viewed.rooted.insert(unit);
                }
                batch
            }
        };
        batch.find(name).cloned()
    }

    fn names_of(&self, id: ViewId) -> Option<Arc<[Arc<str>]>> {
        let (view, rooted) = {
            let clients = self.translator.clients.lock();
            let viewed = clients.views.get(&id)?;
            (viewed.view.clone(), !viewed.rooted.is_empty())
        };
        let index = self.translator.memo.root(&self.current, &IndexOf(view.clone()));
        let index = Option::as_ref(&index)?;
        if !rooted {
            self.translator.root_units(&self.current, id, &view, index);
        }
        Some(index.names.clone())
    }
}
