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
    /// Views that are made of several: by their parts, and the other way round.
    composed_ids: HashMap<Arc<[ViewId]>, ViewId>,
    composed: HashMap<ViewId, Composed>,
    pub(crate) proxies: HashMap<Arc<Proxy>, Connected>,
    /// Views that perhaps no proxy has any more.
    gone_views: Vec<ViewId>,
    /// Views that proxies had until the last world. They are read until all streams of these proxies have switched: a
    /// view that is missing would seem to have no resources.
    replaced_views: Vec<ViewId>,
}

/// A view that some proxy has, alone or as a part of what it has of a type.
pub(crate) struct Viewed {
    pub(crate) view: SharedView,
    /// How many proxies and composed views have it.
    users: usize,
    /// Whether its names were read.
    pub(crate) listed: bool,
    /// The batches that are reported when they change.
    pub(crate) rooted: BTreeSet<ResourceBatchKey>,
    /// Names that no resource has yet, and that are reported when one may.
    pub(super) absent: Absent,
}

/// What proxies have of a type where that is made of several views.
struct Composed {
    parts: Arc<[ViewId]>,
    /// How many proxies have it.
    users: usize,
}

/// The connections of equal proxies.
pub(crate) struct Connected {
    pub(crate) clients: BTreeSet<ClientId>,
    pub(crate) views: BTreeMap<ResourceType, ViewId>,
}

impl Clients {
    /// The numbers of views by type, each with one more proxy that has it.
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

    /// The number of a view that is not made of others.
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

    /// The views that one is made of: itself, where it is not made of others.
    pub(crate) fn parts(&self, id: ViewId) -> Arc<[ViewId]> {
        self.composed.get(&id).map_or_else(|| Arc::from([id]), |composed| composed.parts.clone())
    }

    /// One proxy less has the view; returns whether it was the last.
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

    /// The proxy as it is connected already, where an equal one is: each is kept once, however many connections it has.
    pub(crate) fn shared(&self, proxy: Arc<Proxy>) -> Arc<Proxy> {
        self.proxies.get_key_value(&proxy).map_or(proxy, |(known, _)| known.clone())
    }

    /// A proxy has other views now. Returns its connections.
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

    /// Returns whether it was the last connection of the proxy.
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

    /// All streams have switched to the views of the last world.
    pub(crate) fn retire(&mut self) {
        self.gone_views.append(&mut self.replaced_views);
    }

    /// How many views wait to be forgotten.
    pub(crate) fn gone(&self) -> usize {
        self.gone_views.len()
    }

    /// Takes out the views that no proxy has any more.
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
