//! The entry point of this crate: proxies connect, worlds are published, and each publication returns the
//! changed resources of each view.

mod absent;
mod ahead;
mod around;
mod budget;
mod clients;
mod connected;
mod explain;
mod gateways;
pub(crate) mod view;

pub use around::{HostRoutes, SubsetLabels};
pub(crate) use budget::{MAX_PROXY_BYTES, MAX_PROXY_RESOURCES};
pub use explain::{HostSeen, Unranked, Unseen};
pub use gateways::{GatewayConsidered, GatewaySelection, GatewaysConsidered};

use crate::engine::memo::{Current, Memo, Node, Touched};
use crate::engine::{EncodedResource, Refusal, ResourceBatch, ResourceBatchKey, TranslationSettings};
use crate::proxy::Proxy;
use crate::routing::{RefusedDelegate, RefusedDelegates};
use crate::services::alias::RefusedAliases;
use crate::translator::absent::{Missing, SubsetsOf};
use crate::translator::ahead::Helpers;
use crate::translator::clients::{Clients, Connected};
use crate::translator::view::{Generate, Index, IndexOf, SharedView, ViewsOf};
use parking_lot::{Mutex, RwLockReadGuard};
use pilotfish_model::{ChangeSet, World};
use pilotfish_proto::ResourceType;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of a proxy's view of one type, never reused. Several proxies may share a view. It may consist of
/// parts, which are views with numbers of their own: see [`Snapshot::parts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub u32);

/// Number of a connected proxy, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A changed resource of a view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// The view, never a composed one: views that have it as a part change with it.
    pub view: ViewId,
    pub resource_type: ResourceType,
    pub name: Arc<str>,
    /// True if the resource was removed, false if it was added or changed.
    pub removed: bool,
}

/// Effects of a new world on connected proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The revision of [`Snapshot`]s that show the new world.
    pub revision: u64,
    /// Resources that differ, for views that some proxy has.
    pub changes: Vec<Change>,
    /// Proxies that now have another view of some type.
    pub view_changed: Vec<ClientId>,
}

/// Translator for all connected proxies.
pub struct Translator {
    memo: Arc<Memo>,
    clients: Arc<Mutex<Clients>>,
    helpers: Helpers,
}

/// A connected proxy; dropping it disconnects the proxy.
pub struct Client {
    id: ClientId,
    proxy: Arc<Proxy>,
    clients: Arc<Mutex<Clients>>,
    memo: Arc<Memo>,
}

impl Client {
    /// The number of this connection.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }

    #[must_use]
    pub fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        if clients.disconnect(&self.proxy, self.id) {
            // Results for a proxy are dropped with the next sweep after it disconnects, even if no world is
            // published.
            self.memo.unroot_heavy(&ViewsOf(self.proxy.clone()), self.proxy.weight());
            drop(clients);
            self.memo.sweep_if_due();
        }
    }
}

impl Default for Translator {
    fn default() -> Self {
        Self::new()
    }
}

impl Translator {
    /// A translator of an empty world, for the domain `cluster.local`.
    #[must_use]
    pub fn new() -> Self {
        Self::with_settings(TranslationSettings::default())
    }

    /// A translator of an empty world with other settings.
    #[must_use]
    pub fn with_settings(settings: TranslationSettings) -> Self {
        Self {
            memo: Arc::new(Memo::with_settings(settings)),
            clients: Arc::default(),
            helpers: Helpers::default(),
        }
    }

    /// Connects a proxy and determines its views, which stay up to date until the client is dropped.
    pub fn connect(&self, proxy: Proxy) -> Client {
        const MANY: usize = 256;
        if self.clients.lock().gone() >= MANY {
            self.tidy();
        }
        let proxy = self.clients.lock().shared(Arc::new(proxy));
        let current = self.memo.read();
        let (views, node) = self.memo.get(&current, &ViewsOf(proxy.clone()));
        let mut clients = self.clients.lock();
        // An equal proxy may have connected in the meantime.
        let proxy = clients.shared(proxy);
        // Here and below, roots and clients change together, under the lock of the clients.
        self.memo.set_root(node);
        clients.next_client += 1;
        let id = ClientId(clients.next_client);
        if !clients.proxies.contains_key(&proxy) {
            let views = clients.enter_all(&views);
            clients.proxies.insert(proxy.clone(), Connected { clients: BTreeSet::new(), views });
        }
        if let Some(connected) = clients.proxies.get_mut(&proxy) {
            connected.clients.insert(id);
        }
        Client { id, proxy, clients: self.clients.clone(), memo: self.memo.clone() }
    }

    /// Makes a world current and returns the changes for connected proxies. There must be one caller at a
    /// time, which calls [`Self::tidy`] after it has forwarded the changes.
    pub fn publish(&self, world: Arc<World>, changes: &ChangeSet) -> Changes {
        self.clients.lock().retire();
        self.forget_gone();
        let (current, touched) = self.memo.advance(world, changes);
        let mut out = Changes { revision: current.revision, ..Changes::default() };
        for root in &touched {
            self.report_proxy(&current, root, &mut out);
        }
        self.report_absent(&current, changes, &touched, &mut out);
        // Old values are dropped one by one: all of them beside all new ones would double the memory.
        for root in touched {
            self.report_index(&current, &root, &mut out);
            self.report_unit(&current, &root, &mut out);
        }
        out.changes.sort();
        out.changes.dedup();
        out
    }

    /// Locks one consistent world for reading. The next world waits for it: read the needed resources and
    /// drop it, and never hold it across an await.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { translator: self, current: self.memo.read() }
    }

    /// The refused delegates in the current world; the same `Arc` while they are unchanged.
    pub fn refused_delegates(&self) -> Arc<Vec<RefusedDelegate>> {
        let current = self.memo.read();
        let (refused, node) = self.memo.get(&current, &RefusedDelegates);
        // A root is not swept.
        self.memo.set_root(node);
        refused
    }

    /// Number of computed results since the start.
    #[must_use]
    pub fn computed(&self) -> u64 {
        self.memo.computed()
    }

    /// Number of results in the memo.
    #[must_use]
    pub fn results(&self) -> usize {
        self.memo.len()
    }

    /// Number of different encoded resources, and their total size in bytes.
    #[must_use]
    pub fn encoded(&self) -> (usize, usize) {
        self.memo.shared().bodies()
    }

    /// Drops resources of a view that have no subscribers. A stream that subscribes concurrently is either
    /// seen by `is_wanted`, which is called afterwards, or reads the resource afterwards; both keep it.
    pub fn unsubscribed(&self, id: ViewId, names: &[Arc<str>], is_wanted: &dyn Fn(&str) -> bool) {
        for name in names {
            self.drop_named(id, name);
            if is_wanted(name) {
                // Reading it makes it a root again.
                drop(self.snapshot().get(id, name));
            }
        }
        self.memo.sweep_if_due();
    }

    fn drop_named(&self, id: ViewId, name: &Arc<str>) {
        let batch_key = ResourceBatchKey::Named(name.clone());
        let mut clients = self.clients.lock();
        let Some(viewed) = clients.views.get_mut(&id) else { return };
        if let Some(host) = viewed.absent.remove(name) {
            self.memo.unroot(&SubsetsOf { view: viewed.view.clone(), host });
        }
        if viewed.rooted.remove(&batch_key) {
            self.memo.unroot(&Generate { view: viewed.view.clone(), batch_key });
        }
    }

    /// Drops named resources for which `is_wanted` is false, because no stream subscribes to them. Must be
    /// called by the task that publishes. A resource is dropped first and then checked again: a stream that
    /// subscribes concurrently is either seen by the second check or reads the resource afterwards, and both
    /// keep it.
    pub fn retain_named(&self, is_wanted: impl Fn(ViewId, ResourceType, &str) -> bool) {
        let named: Vec<(ViewId, SharedView, Arc<str>)> = {
            let clients = self.clients.lock();
            let batch_keys = clients.views.iter().flat_map(|(id, viewed)| {
                let rooted = viewed.rooted.iter().filter_map(|batch_key| match batch_key {
                    ResourceBatchKey::Named(name) => Some(name),
                    _ => None,
                });
                let names = rooted.chain(viewed.absent.names());
                names.map(move |name| (*id, viewed.view.clone(), name.clone()))
            });
            batch_keys.collect()
        };
        for (id, view, name) in named {
            if is_wanted(id, view.resource_type(), &name) {
                continue;
            }
            self.drop_named(id, &name);
            if is_wanted(id, view.resource_type(), &name) {
                // Reading it makes it a root again.
                drop(self.snapshot().get(id, &name));
            }
        }
    }

    /// Reports proxies that have other views because their own facts changed.
    fn report_proxy(&self, current: &Current, root: &Touched, out: &mut Changes) {
        let Some(query) = root.query::<ViewsOf>() else { return };
        let views = self.memo.value::<ViewsOf>(current, &root.node, None);
        if root.before::<ViewsOf>().is_some_and(|before| before == views) {
            return;
        }
        out.view_changed.extend(self.clients.lock().change_views(&query.0, &views));
    }

    /// Reports added and removed names of a view that is subscribed as a whole.
    fn report_index(&self, current: &Current, root: &Touched, out: &mut Changes) {
        let Some(query) = root.query::<IndexOf>() else { return };
        let Some(id) = self.clients.lock().ids.get(&query.0).copied() else { return };
        let index = self.memo.value::<IndexOf>(current, &root.node, None);
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
        let come =
            index.batch_of.iter().filter(|(name, batch_key)| before.batch_of.get(*name) != Some(batch_key));
        out.changes.extend(come.map(|(name, _)| change(name, false)));
        let gone = before.batch_of.keys().filter(|name| !index.batch_of.contains_key(*name));
        out.changes.extend(gone.map(|name| change(name, true)));
        self.root_batches(current, id, &query.0, index);
    }

    /// Reports the changed resources of a batch.
    fn report_unit(&self, current: &Current, root: &Touched, out: &mut Changes) {
        let Some(query) = root.query::<Generate>() else { return };
        let Some(id) = self.clients.lock().ids.get(&query.view).copied() else { return };
        let batch = self.memo.value::<Generate>(current, &root.node, None);
        let Some(before) = root.before::<Generate>() else { return };
        let change = |resource: &EncodedResource, removed| Change {
            view: id,
            resource_type: query.view.resource_type(),
            name: resource.name.clone(),
            removed,
        };
        let (index, _) = self.memo.get(current, &IndexOf(query.view.clone()));
        let owned = |resource: &&EncodedResource| {
            index
                .as_ref()
                .as_ref()
                .is_none_or(|index| index.batch_of.get(&resource.name) == Some(&query.batch_key))
        };
        let changed = |resource: &&EncodedResource| resource.changed_at == current.revision;
        out.changes.extend(batch.resources.iter().filter(changed).filter(owned).map(|r| change(r, false)));
        if index.is_none() {
            let gone = |resource: &&EncodedResource| batch.find(&resource.name).is_none();
            out.changes.extend(before.resources.iter().filter(gone).map(|r| change(r, true)));
        }
    }

    /// Makes the batches of the index roots, and no others of the view.
    fn root_batches(&self, current: &Current, id: ViewId, view: &SharedView, index: &Index) {
        let new: BTreeSet<ResourceBatchKey> = index.batch_keys.iter().cloned().collect();
        let mut clients = self.clients.lock();
        let Some(viewed) = clients.views.get_mut(&id) else { return };
        let query =
            |batch_key: &ResourceBatchKey| Generate { view: view.clone(), batch_key: batch_key.clone() };
        for batch_key in viewed.rooted.difference(&new) {
            self.memo.unroot(&query(batch_key));
        }
        for batch_key in new.difference(&viewed.rooted) {
            // The index read it, so this computes nothing.
            let (_, node) = self.memo.get(current, &query(batch_key));
            self.memo.set_root(node);
        }
        viewed.rooted = new;
    }

    /// Drops results of disconnected proxies and of earlier worlds. Must be called after each publication,
    /// and periodically for times without publications.
    pub fn tidy(&self) {
        self.forget_gone();
        self.memo.sweep_if_due();
    }

    /// Drops everything that no connected proxy uses, and all results of earlier worlds. Results that are
    /// needed again are recomputed, so call it while nothing is published.
    pub fn tidy_all(&self) {
        self.clients.lock().retire();
        self.forget_gone();
        self.memo.sweep_leftovers();
    }

    /// Removes the views that no connected proxy has any more from the roots.
    fn forget_gone(&self) {
        let mut clients = self.clients.lock();
        for viewed in clients.take_gone_views() {
            for batch_key in viewed.rooted {
                self.memo.unroot(&Generate { view: viewed.view.clone(), batch_key });
            }
            for host in viewed.absent.watched() {
                self.memo.unroot(&SubsetsOf { view: viewed.view.clone(), host });
            }
            self.memo.unroot(&IndexOf(viewed.view));
        }
    }
}

/// One world from the perspective of proxies.
pub struct Snapshot<'a> {
    translator: &'a Translator,
    current: RwLockReadGuard<'a, Current>,
}

impl Snapshot<'_> {
    /// Increases with every published world.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.current.revision
    }

    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.current.world
    }

    /// Returns the client's view of a type; `None` if the client is not served the type.
    #[must_use]
    pub fn view(&self, client: &Client, resource_type: ResourceType) -> Option<ViewId> {
        self.translator.clients.lock().proxies.get(&client.proxy)?.views.get(&resource_type).copied()
    }

    /// Returns true while a new world waits until all snapshots of this one are dropped. A caller with much
    /// left to read drops its snapshot and takes a new one.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.translator.memo.is_waited_for()
    }

    /// Returns the parts of a view; a view without parts is its own part. If several parts have a name, the
    /// first one takes precedence. The first part is specific to few proxies, the last one is shared by most.
    #[must_use]
    pub fn parts(&self, id: ViewId) -> Arc<[ViewId]> {
        self.translator.clients.lock().parts(id)
    }

    /// Returns the names of all resources of a view, starting with its last part, each part in sending order;
    /// empty for views that are subscribed by name.
    #[must_use]
    pub fn names(&self, id: ViewId) -> Arc<[Arc<str>]> {
        let parts = self.parts(id);
        if let [part] = &*parts {
            return self.names_of(*part).unwrap_or_default();
        }
        let mut seen = BTreeSet::new();
        let names: Vec<_> = parts.iter().rev().filter_map(|part| self.names_of(*part)).collect();
        let names = names.iter().flat_map(|names| names.iter());
        names.filter(|name| seen.insert(Arc::clone(name))).cloned().collect()
    }

    /// Returns a resource of a view. From then on, its changes are reported while any proxy has the view,
    /// even if it does not exist yet.
    #[must_use]
    pub fn get(&self, id: ViewId, name: &str) -> Option<EncodedResource> {
        self.parts(id).iter().find_map(|part| self.get_of(*part, name))
    }

    fn get_of(&self, id: ViewId, name: &str) -> Option<EncodedResource> {
        let (view, index) = self.index_of(id)?;
        let memo = &self.translator.memo;
        let batch_key = match &*index {
            Some(index) => index.batch_of.get(name).cloned(),
            None => Some(ResourceBatchKey::Named(name.into())),
        };
        match read(memo, &self.current, &view, name, batch_key)? {
            Read::Missing(missing) => {
                let mut clients = self.translator.clients.lock();
                if let Some(subsets) = clients.views.get_mut(&id)?.absent.asked(&missing) {
                    memo.set_root(subsets);
                }
                Some(missing.answer)
            }
            Read::Batch(batch_key, batch, node) => {
                if index.is_none() {
                    let mut clients = self.translator.clients.lock();
                    if let Some(viewed) = clients.views.get_mut(&id) {
                        viewed.rooted.insert(batch_key);
                        memo.set_root(node);
                    }
                }
                batch.find(name).cloned()
            }
        }
    }

    /// Returns the parts of objects that are left out of the resources of connected proxies, because Envoy
    /// would reject them or because a limit is exceeded.
    #[must_use]
    pub fn refusals(&self) -> BTreeSet<Refusal> {
        let memo = &self.translator.memo;
        let (rooted, listed) = {
            let clients = self.translator.clients.lock();
            let query = |view: &SharedView, key: &ResourceBatchKey| Generate {
                view: view.clone(),
                batch_key: key.clone(),
            };
            let views = clients.views.values();
            let rooted: Vec<Generate> =
                views.flat_map(|viewed| viewed.rooted.iter().map(|key| query(&viewed.view, key))).collect();
            let listed = clients.views.values().filter(|viewed| viewed.listed);
            (rooted, listed.map(|viewed| IndexOf(viewed.view.clone())).collect::<Vec<_>>())
        };
        let mut refused: BTreeSet<Refusal> =
            memo.get(&self.current, &RefusedAliases).0.iter().cloned().collect();
        for query in &rooted {
            let (batch, _) = memo.get(&self.current, query);
            refused.extend(batch.resources.iter().flat_map(|resource| resource.refused.iter().cloned()));
        }
        for query in &listed {
            let (index, _) = memo.get(&self.current, query);
            refused.extend(index.iter().flat_map(|index| index.refused.iter().cloned()));
        }
        refused
    }

    fn names_of(&self, id: ViewId) -> Option<Arc<[Arc<str>]>> {
        let (_, index) = self.index_of(id)?;
        Some(Option::as_ref(&index)?.names.clone())
    }

    /// Returns a view with its index, if it has one. From the first call on, changes of the index and of all
    /// its batches are reported.
    fn index_of(&self, id: ViewId) -> Option<(SharedView, Arc<Option<Index>>)> {
        let (view, is_listed) = {
            let clients = self.translator.clients.lock();
            let viewed = clients.views.get(&id)?;
            (viewed.view.clone(), viewed.listed)
        };
        let (index, node) = self.translator.memo.get(&self.current, &IndexOf(view.clone()));
        if let (false, Some(listed)) = (is_listed, &*index) {
            let first = {
                let mut clients = self.translator.clients.lock();
                let viewed = clients.views.get_mut(&id)?;
                self.translator.memo.set_root(node);
                !std::mem::replace(&mut viewed.listed, true)
            };
            if first {
                self.translator.root_batches(&self.current, id, &view, listed);
            }
        }
        Some((view, index))
    }
}

/// Result of reading a name in a view.
enum Read {
    /// The name has no resource.
    Missing(Missing),
    /// The batch that would contain the name.
    Batch(ResourceBatchKey, Arc<ResourceBatch>, Arc<Node>),
}

/// Reads a name of a view. `batch_key` is the batch that would contain it.
fn read(
    memo: &Memo,
    current: &Current,
    view: &SharedView,
    name: &str,
    batch_key: Option<ResourceBatchKey>,
) -> Option<Read> {
    if let Some(missing) = absent::of(memo, current, view, name) {
        return Some(Read::Missing(missing));
    }
    let batch_key = batch_key?;
    let query = Generate { view: view.clone(), batch_key };
    let (batch, node) = memo.get(current, &query);
    Some(Read::Batch(query.batch_key, batch, node))
}

#[cfg(test)]
mod tests;
