//! The connected clients and their views.

use crate::engine::ResourceBatchKey;
use crate::proxy::Proxy;
use crate::translator::absent::Absent;
use crate::translator::view::SharedView;
use crate::translator::{ClientId, ViewId};
use pilotfish_proto::ResourceType;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The connected clients and their views.
#[derive(Default)]
pub(crate) struct Clients {
    pub(crate) next_client: u64,
    next_view: u32,
    pub(crate) ids: HashMap<SharedView, ViewId>,
    pub(crate) views: BTreeMap<ViewId, Viewed>,
    /// Views that consist of several, by their parts and by number.
    composed_ids: HashMap<Arc<[ViewId]>, ViewId>,
    composed: HashMap<ViewId, Composed>,
    pub(crate) proxies: HashMap<Arc<Proxy>, Connected>,
    /// Views that may have no proxy left.
    gone_views: Vec<ViewId>,
    /// Views that proxies had in the previous world. They are kept until all streams of these proxies have
    /// switched, because a missing view would look like one without resources.
    replaced_views: Vec<ViewId>,
}

/// A view of some proxy, alone or as a part of a composed view.
pub(crate) struct Viewed {
    pub(crate) view: SharedView,
    /// Number of proxies and composed views that use it.
    users: usize,
    /// True once the names of the view were read.
    pub(crate) listed: bool,
    /// The batches that are reported when they change.
    pub(crate) rooted: BTreeSet<ResourceBatchKey>,
    /// Names without a resource, reported when one may exist.
    pub(super) absent: Absent,
}

/// A view that consists of several views, for proxies.
struct Composed {
    parts: Arc<[ViewId]>,
    /// Number of proxies that use it.
    users: usize,
}

/// The connections of equal proxies.
pub(crate) struct Connected {
    pub(crate) clients: BTreeSet<ClientId>,
    pub(crate) views: BTreeMap<ResourceType, ViewId>,
}

impl Clients {
    /// Adds a user to the views. Returns their numbers by type.
    pub(crate) fn enter_all(&mut self, views: &[SharedView]) -> BTreeMap<ResourceType, ViewId> {
        let mut by_type: BTreeMap<ResourceType, Vec<&SharedView>> = BTreeMap::new();
        for view in views {
            by_type.entry(view.resource_type()).or_default().push(view);
        }
        by_type.into_iter().map(|(ty, parts)| (ty, self.enter(&parts))).collect()
    }

    fn enter(&mut self, parts: &[&SharedView]) -> ViewId {
        if let [view] = parts {
            return self.enter_part(view);
        }
        let ids: Arc<[ViewId]> = parts.iter().map(|view| self.number(view)).collect();
        let id = match self.composed_ids.get(&ids) {
            Some(id) => *id,
            None => {
                let id = self.next_id();
                ids.iter().for_each(|part| self.use_part(*part));
                self.composed_ids.insert(ids.clone(), id);
                self.composed.insert(id, Composed { parts: ids, users: 0 });
                id
            }
        };
        if let Some(composed) = self.composed.get_mut(&id) {
            composed.users += 1;
        }
        id
    }

    fn enter_part(&mut self, view: &SharedView) -> ViewId {
        let id = self.number(view);
        self.use_part(id);
        id
    }

    fn use_part(&mut self, id: ViewId) {
        if let Some(viewed) = self.views.get_mut(&id) {
            viewed.users += 1;
        }
    }

    fn next_id(&mut self) -> ViewId {
        self.next_view += 1;
        ViewId(self.next_view)
    }

    /// Returns the number of a view that is not composed.
    fn number(&mut self, view: &SharedView) -> ViewId {
        if let Some(id) = self.ids.get(view) {
            return *id;
        }
        let id = self.next_id();
        self.ids.insert(view.clone(), id);
        let viewed = Viewed {
            view: view.clone(),
            users: 0,
            listed: false,
            rooted: BTreeSet::new(),
            absent: Absent::default(),
        };
        self.views.insert(id, viewed);
        id
    }

    /// Returns the parts of a view; a view that is not composed is its own part.
    pub(crate) fn parts(&self, id: ViewId) -> Arc<[ViewId]> {
        self.composed.get(&id).map_or_else(|| Arc::from([id]), |composed| composed.parts.clone())
    }

    /// Removes a user of the view. Returns true if it was the last.
    fn leave(&mut self, id: ViewId) -> bool {
        let users = match self.composed.get_mut(&id) {
            Some(composed) => &mut composed.users,
            None => match self.views.get_mut(&id) {
                Some(viewed) => &mut viewed.users,
                None => return false,
            },
        };
        *users = users.saturating_sub(1);
        *users == 0
    }

    /// Returns the connected proxy that is equal to this one, if any: each is stored once, however many
    /// connections it has.
    pub(crate) fn shared(&self, proxy: Arc<Proxy>) -> Arc<Proxy> {
        self.proxies.get_key_value(&proxy).map_or(proxy, |(known, _)| known.clone())
    }

    /// Replaces the views of a proxy. Returns its connections.
    pub(crate) fn change_views(&mut self, proxy: &Arc<Proxy>, views: &[SharedView]) -> Vec<ClientId> {
        if !self.proxies.contains_key(proxy) {
            return Vec::new();
        }
        let entered = self.enter_all(views);
        let Some(connected) = self.proxies.get_mut(proxy) else { return Vec::new() };
        let clients = connected.clients.iter().copied().collect();
        let before = std::mem::replace(&mut connected.views, entered);
        for view in before.into_values() {
            if self.leave(view) {
                self.replaced_views.push(view);
            }
        }
        clients
    }

    /// Returns true if it was the last connection of the proxy.
    pub(crate) fn disconnect(&mut self, proxy: &Arc<Proxy>, id: ClientId) -> bool {
        let Some(connected) = self.proxies.get_mut(proxy) else { return false };
        connected.clients.remove(&id);
        if !connected.clients.is_empty() {
            return false;
        }
        if let Some(connected) = self.proxies.remove(proxy) {
            for view in connected.views.into_values() {
                if self.leave(view) {
                    self.gone_views.push(view);
                }
            }
        }
        true
    }

    /// Marks the views of the previous world as unused, after all streams have switched.
    pub(crate) fn retire(&mut self) {
        self.gone_views.append(&mut self.replaced_views);
    }

    /// Number of unused views that are not dropped yet.
    pub(crate) fn gone(&self) -> usize {
        self.gone_views.len()
    }

    /// Removes and returns the views without users.
    pub(crate) fn take_gone_views(&mut self) -> Vec<Viewed> {
        let mut gone = std::mem::take(&mut self.gone_views);
        let mut taken = Vec::new();
        while let Some(id) = gone.pop() {
            if self.composed.get(&id).is_some_and(|composed| composed.users == 0) {
                let parts = self.composed.remove(&id).map(|composed| composed.parts).unwrap_or_default();
                self.composed_ids.remove(&parts);
                gone.extend(parts.iter().copied().filter(|part| self.leave(*part)));
            }
            if self.views.get(&id).is_some_and(|viewed| viewed.users == 0)
                && let Some(viewed) = self.views.remove(&id)
            {
                self.ids.remove(&viewed.view);
                taken.push(viewed);
            }
        }
        taken
    }
}
