//! The connected clients and their views.

use crate::engine::ResourceBatchKey;
use crate::proxy::Proxy;
use crate::translator::absent::Absent;
use crate::translator::view::View;
use crate::translator::{ClientId, ViewId};
use pilotfish_proto::ResourceType;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The connected clients and their views.
#[derive(Default)]
pub(crate) struct Clients {
    pub(crate) next_client: u64,
    next_view: u32,
    pub(crate) ids: HashMap<Arc<View>, ViewId>,
    pub(crate) views: BTreeMap<ViewId, Viewed>,
    pub(crate) proxies: HashMap<Arc<Proxy>, Connected>,
    /// Views that perhaps no proxy has any more.
    gone_views: Vec<ViewId>,
    /// Views that proxies had until the last world. They are read until all streams of these proxies have switched: a
    /// view that is missing would seem to have no resources.
    replaced_views: Vec<ViewId>,
}

/// A view that some proxy has.
pub(crate) struct Viewed {
    pub(crate) view: Arc<View>,
    /// How many proxies have it.
    proxies: usize,
    /// Whether its names were read.
    pub(crate) listed: bool,
    /// The batches that are reported when they change.
    pub(crate) rooted: BTreeSet<ResourceBatchKey>,
    /// Names that no resource has yet, and that are reported when one may.
    pub(super) absent: Absent,
}

/// The connections of equal proxies.
pub(crate) struct Connected {
    pub(crate) clients: BTreeSet<ClientId>,
    pub(crate) views: BTreeMap<ResourceType, ViewId>,
}

impl Clients {
    /// The numbers of views, each with one more proxy that has it.
    pub(crate) fn enter_all(&mut self, views: &[Arc<View>]) -> BTreeMap<ResourceType, ViewId> {
        views.iter().map(|view| (view.resource_type(), self.enter(view))).collect()
    }

    fn enter(&mut self, view: &Arc<View>) -> ViewId {
        let id = match self.ids.get(view) {
            Some(id) => *id,
            None => {
                self.next_view += 1;
                let id = ViewId(self.next_view);
                self.ids.insert(view.clone(), id);
                let viewed = Viewed {
                    view: view.clone(),
                    proxies: 0,
                    listed: false,
                    rooted: BTreeSet::new(),
                    absent: Absent::default(),
                };
                self.views.insert(id, viewed);
                id
            }
        };
        if let Some(viewed) = self.views.get_mut(&id) {
            viewed.proxies += 1;
        }
        id
    }

    /// One proxy less has the view; returns whether it was the last.
    fn leave(&mut self, id: ViewId) -> bool {
        let Some(viewed) = self.views.get_mut(&id) else { return false };
        viewed.proxies = viewed.proxies.saturating_sub(1);
        viewed.proxies == 0
    }

    /// A proxy has other views now. Returns its connections.
    pub(crate) fn change_views(&mut self, proxy: &Arc<Proxy>, views: &[Arc<View>]) -> Vec<ClientId> {
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
        let gone = std::mem::take(&mut self.gone_views);
        let is_free = |id: &ViewId| self.views.get(id).is_some_and(|viewed| viewed.proxies == 0);
        let free: Vec<ViewId> = gone.into_iter().filter(is_free).collect();
        let taken = free.into_iter().filter_map(|id| self.views.remove(&id)).inspect(|viewed| {
            self.ids.remove(&viewed.view);
        });
        taken.collect()
    }
}
