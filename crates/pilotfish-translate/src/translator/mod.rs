//! The entry point of this crate: proxies connect, worlds are published, and each publication returns which resources changed in which views.

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
use crate::engine::{EncodedResource, Refusal, ResourceBatch, ResourceBatchKey};
use crate::proxy::Proxy;
use crate::routing::{RefusedDelegate, RefusedDelegates};
use crate::services::alias::RefusedAliases;
use crate::translator::absent::{Missing, SubsetsOf};
use crate::translator::ahead::Helpers;
use crate::translator::clients::{Clients, Connected};
use crate::translator::view::{Generate, Index, IndexOf, SharedView, ViewsOf};
use parking_lot::{Mutex, RwLockReadGuard};
use pilotfish_model::ClusterDomain;
use pilotfish_model::{ChangeSet, World};
use pilotfish_proto::ResourceType;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a proxy has of one type, by a number that is never used again. Several proxies may have it, and it may be made of parts, which
/// are views with numbers of their own: see [`Snapshot::parts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub u32);

/// A connected proxy, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One resource of one view that differs from the world before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// The view, which is not made of others: every view that has it as a part changes with it.
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
    /// Resources that differ, for views that some proxy has.
    pub changes: Vec<Change>,
    /// Proxies that now have another view of some type.
    pub view_changed: Vec<ClientId>,
}

/// Translates for all connected proxies.
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

    /// The proxy.
    #[must_use]
    pub fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        if clients.disconnect(&self.proxy, self.id) {
            // Nothing of a proxy outlives its connection by more than the next sweep, also when no world is published.
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
        Self::with_domain(ClusterDomain::default())
    }

    /// A translator of an empty world whose Kubernetes Services are below another domain.
    #[must_use]
    pub fn with_domain(domain: ClusterDomain) -> Self {
        Self {
            memo: Arc::new(Memo::with_domain(domain)),
            clients: Arc::default(),
            helpers: Helpers::default(),
        }
    }

    /// Takes in a proxy: finds its views, which stay up to date until the client is dropped.
    pub fn connect(&self, proxy: Proxy) -> Client {
        const MANY: usize = 256;
        if self.clients.lock().gone() >= MANY {
            self.tidy();
        }
        let proxy = self.clients.lock().shared(Arc::new(proxy));
        let current = self.memo.read();
        let (views, node) = self.memo.get(&current, &ViewsOf(proxy.clone()));
        let mut clients = self.clients.lock();
        // Equal ones may have come meanwhile.
        let proxy = clients.shared(proxy);
        // Here and below: what is a root and who is connected change together, under the lock of the clients.
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

    /// Makes a world current and returns what it changes for connected proxies. One caller at a time, who calls [`Self::tidy`] once the
    /// changes are on their way.
    pub fn publish(&self, world: Arc<World>, changes: &ChangeSet) -> Changes {
        self.clients.lock().retire();
        self.forget_gone();
        let (current, touched) = self.memo.advance(world, changes);
        let mut out = Changes { revision: current.revision, ..Changes::default() };
        for root in &touched {
            self.report_proxy(&current, root, &mut out);
        }
        self.report_absent(&current, changes, &touched, &mut out);
        // What they were is let go one by one: all of it beside all that comes would be twice as much.
        for root in touched {
            self.report_index(&current, &root, &mut out);
            self.report_unit(&current, &root, &mut out);
        }
        out.changes.sort();
        out.changes.dedup();
        out
    }

    /// One consistent world with everything that proxies get from it. Holds a lock that blocks the next world: read
    /// what is needed and drop it, never across an await.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { translator: self, current: self.memo.read() }
    }

    /// The delegates that are refused in the newest world; the same `Arc` as long as they are the same.
    pub fn refused_delegates(&self) -> Arc<Vec<RefusedDelegate>> {
        let current = self.memo.read();
        let (refused, node) = self.memo.get(&current, &RefusedDelegates);
        // Keeps it when the rest is swept away.
        self.memo.set_root(node);
        refused
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

    /// How many different encoded resources results have, and their bytes.
    #[must_use]
    pub fn encoded(&self) -> (usize, usize) {
        self.memo.shared().bodies()
    }

    /// Drops resources of a view that no stream subscribes to any more. A stream that subscribes meanwhile either is seen by `is_wanted`,
    /// which is asked afterwards, or reads the resource afterwards: both keep it.
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

    /// Drops named resources that no stream subscribes to, for whatever reason they were read: those for which `is_wanted` is false. To be called by the task that
    /// publishes. A resource is dropped first and then checked again: a stream that subscribes meanwhile either is seen by the
    /// second check or reads the resource afterwards, and both keep it.
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

    /// A proxy whose own facts changed may have other views now.
    fn report_proxy(&self, current: &Current, root: &Touched, out: &mut Changes) {
        let Some(query) = root.query::<ViewsOf>() else { return };
        let views = self.memo.value::<ViewsOf>(current, &root.node, None);
        if root.before::<ViewsOf>().is_some_and(|before| before == views) {
            return;
        }
        out.view_changed.extend(self.clients.lock().change_views(&query.0, &views));
    }

    /// The names of a view that is taken as a whole: what came and what went.
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

    /// The resources of one batch: what differs.
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

    /// From now on the batches of this index, and no others of the view, are reported when they change.
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

    /// Drops what disconnected proxies left behind, and results of earlier worlds. To be called after each publication, and now and then: where no
    /// world changes, nothing else does it.
    pub fn tidy(&self) {
        self.forget_gone();
        self.memo.sweep_if_due();
    }

    /// Drops all that no connected proxy has any more, and all results of earlier worlds. What comes back meanwhile is computed again, so it is
    /// for times in which nothing is published.
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

    /// Whether the next world waits until nobody has a snapshot of this one. Whoever still needs much gives it back and takes another.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.translator.memo.is_waited_for()
    }

    /// The views that a view is made of; itself alone where it is not made of others. The first one that has a name decides. The first one
    /// is what few proxies have, and the last one what most have.
    #[must_use]
    pub fn parts(&self, id: ViewId) -> Arc<[ViewId]> {
        self.translator.clients.lock().parts(id)
    }

    /// The names of all resources of a view, those of its last part first and of each in the order in which they are sent; empty for views
    /// that are subscribed by name.
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

    /// A resource of a view. Once it was read, whether it exists or not, its changes are reported for as long as some proxy has the view.
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

    /// What is left out of what connected proxies have, because Envoy would refuse it or because it would be too much.
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

    /// A view with its index, if it has one. From the first time on, changes of the index and of all its batches are reported.
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

/// What there is of a name in a view.
enum Read {
    /// No resource has it.
    Missing(Missing),
    /// The batch that it would be in.
    Batch(ResourceBatchKey, Arc<ResourceBatch>, Arc<Node>),
}

/// Reads a name of a view, which is in that batch, if it is in any.
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
