//! Owners of listeners: Gateways, and the ListenerSets that they accept.

use crate::engine::{Cx, Query};
use crate::services::labels_of_namespace;
use pilotfish_config::gateway_api::{FromNamespaces, GROUP, Gateway, Listener, ListenerSet};
use pilotfish_model::{Kind, Namespace, ObjectKey, ObjectMeta, Origin, Typed};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The object that a listener is written in: a Gateway, or one of its ListenerSets.
pub(super) struct ListenerOwner {
    pub(super) gateway: Typed<Gateway>,
    pub(super) set: Option<Typed<ListenerSet>>,
}

impl ListenerOwner {
    pub(super) fn meta(&self) -> &Arc<ObjectMeta> {
        self.set.as_ref().map_or_else(|| self.gateway.meta(), Typed::meta)
    }

    pub(super) fn key(&self) -> &ObjectKey {
        &self.meta().key
    }

    pub(super) fn namespace(&self) -> &Namespace {
        &self.meta().key.namespace
    }

    /// The objects that its listeners come from.
    pub(super) fn provenance(&self) -> Vec<Origin> {
        let set = self.set.as_ref().map(crate::engine::reference);
        set.into_iter().chain([crate::engine::reference(&self.gateway)]).collect()
    }

    /// Its listeners, with the ports that a ListenerSet may leave out.
    pub(super) fn listeners(&self) -> impl Iterator<Item = Cow<'_, Listener>> {
        let written = self.set.as_ref().map_or(&self.gateway.spec.listeners, |set| &set.spec.listeners);
        let is_set = self.set.is_some();
        written.iter().map(move |listener| match ListenerSet::port_of(listener) {
            port if is_set && port != listener.port => Cow::Owned(Listener { port, ..listener.clone() }),
            _ => Cow::Borrowed(listener),
        })
    }
}

impl From<Typed<Gateway>> for ListenerOwner {
    fn from(gateway: Typed<Gateway>) -> Self {
        Self { gateway, set: None }
    }
}

/// Returns a Gateway and the ListenerSets that it accepts, those in order of precedence.
pub(super) fn owners_of(cx: &Cx<'_>, gateway: &Typed<Gateway>) -> Vec<ListenerOwner> {
    let sets = cx.get(&AcceptedSets(gateway.key().clone()));
    let sets = sets.iter().filter_map(|key| cx.object::<ListenerSet>(&key.namespace, &key.name));
    let of_sets = sets.map(|set| ListenerOwner { gateway: gateway.clone(), set: Some(set) });
    std::iter::once(gateway.clone().into()).chain(of_sets).collect()
}

/// Returns a ListenerSet with its Gateway, which may not accept it.
pub(super) fn owner_of_set(cx: &Cx<'_>, key: &ObjectKey) -> Option<ListenerOwner> {
    let set = cx.object::<ListenerSet>(&key.namespace, &key.name)?;
    let parent = parent_of(&set)?;
    let gateway = cx.object::<Gateway>(&parent.namespace, &parent.name)?;
    Some(ListenerOwner { gateway, set: Some(set) })
}

/// The Gateway that a ListenerSet names; `None` for a parent of another kind.
fn parent_of(set: &Typed<ListenerSet>) -> Option<ObjectKey> {
    let parent = &set.spec.parent_ref;
    let namespace = parent.namespace.as_deref().map_or_else(|| set.namespace().clone(), Namespace::from);
    let is_gateway = parent.group == GROUP && parent.kind == "Gateway";
    is_gateway.then(|| ObjectKey::new(Kind::KubernetesGateway, namespace, parent.name.as_str()))
}

/// Returns true if a Gateway accepts ListenerSets of a namespace; by default it accepts none.
pub(super) fn accepts_sets_of(cx: &Cx<'_>, gateway: &Typed<Gateway>, namespace: &Namespace) -> bool {
    let Some(allowed) = &gateway.spec.allowed_listeners else { return false };
    match (allowed.namespaces.from, &allowed.namespaces.selector) {
        (FromNamespaces::All, _) => true,
        (FromNamespaces::Same, _) => namespace == gateway.namespace(),
        // Validation refuses a selector that is missing; without one, no namespace is accepted.
        (FromNamespaces::None, _) | (FromNamespaces::Selector, None) => false,
        (FromNamespaces::Selector, Some(selector)) => selector.matches(&labels_of_namespace(cx, namespace)),
    }
}

/// The ListenerSets that name a Gateway, by Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SetsByGateway;

impl Query for SetsByGateway {
    type Output = BTreeMap<ObjectKey, Vec<ObjectKey>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut sets: Vec<Typed<ListenerSet>> = cx.objects().collect();
        sets.sort_by_cached_key(|set| (set.meta().created, format!("{}/{}", set.namespace(), set.name())));
        let mut out: Self::Output = BTreeMap::new();
        for set in sets {
            if let Some(gateway) = parent_of(&set) {
                out.entry(gateway).or_default().push(set.key().clone());
            }
        }
        out
    }
}

/// The ListenerSets that a Gateway accepts: the oldest first, then by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AcceptedSets(ObjectKey);

impl Query for AcceptedSets {
    type Output = Vec<ObjectKey>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let Some(gateway) = cx.object::<Gateway>(&self.0.namespace, &self.0.name) else { return Vec::new() };
        if gateway.spec.allowed_listeners.is_none() {
            return Vec::new();
        }
        let sets = cx.get(&SetsByGateway);
        let sets = sets.get(&self.0).into_iter().flatten();
        sets.filter(|set| accepts_sets_of(cx, &gateway, &set.namespace)).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
