//! Delta requests.

use super::watch::{Requested, Watch};
use super::{Stream, StreamError};
use crate::entries::Entries;
use crate::group::{GroupKey, SubscriptionKey};
use crate::source::{Resource, ResourceSource};
use crate::wire::{Request, unhex};
use bytes::Bytes;
use pilotfish_proto::ResourceType;
use std::sync::Arc;
use std::time::Instant;

impl<S: ResourceSource> Stream<S> {
    pub(super) fn on_delta(
        &mut self,
        ty: ResourceType,
        request: &Request<'_>,
        now: Instant,
    ) -> Result<(), StreamError> {
        if self.watches[ty].is_none() {
            return self.first_delta(ty, request);
        }
        self.acknowledge(ty, request, now);
        // Changes of the subscription count even if the nonce is an old one: they are not repeated.
        if request.names.is_empty() && request.unsubscribe.is_empty() {
            return Ok(());
        }
        self.change_delta(ty, request)
    }

    fn first_delta(&mut self, ty: ResourceType, request: &Request<'_>) -> Result<(), StreamError> {
        let subscribe = request.names.read()?;
        let unsubscribe = request.unsubscribe.read()?;
        let star = |names: &[&str]| names.contains(&"*");
        let wildcard = if subscribe.is_empty() { ty.is_wildcard() } else { star(&subscribe) };
        let mut names: Vec<_> =
            subscribe.into_iter().filter(|name| *name != "*" && !unsubscribe.contains(name)).collect();
        names.sort_unstable();
        names.dedup();
        let mut subscription = SubscriptionKey::new(wildcard && !star(&unsubscribe));
        names.iter().for_each(|name| subscription.add(self.fanout.hasher, name));
        self.check_limits(ty, subscription.count, subscription.bytes)?;
        let key = GroupKey { ty, view: self.view(ty), subscription };
        let membership = self.fanout.subscribe(&self.mark, key, names.iter());
        let mut watch = Watch::new(membership);
        if ty == ResourceType::Cluster {
            self.order.resumed = !request.initial.is_empty();
        }
        if self.trusts_initial(ty) {
            watch.resume(request);
        }
        if ty == ResourceType::Endpoint {
            for name in std::mem::take(&mut self.order.reannounced) {
                if watch.sent.remove(&name).is_some() {
                    watch.in_step = None;
                }
            }
        }
        self.watches[ty] = Some(watch);
        self.dirty.add(ty);
        Ok(())
    }

    /// Whether resources may be left out because the request lists them as known.
    ///
    /// A cluster that Envoy is just replacing waits for endpoints that Envoy has already, and it does not ask for them. It
    /// does hold back its request for clusters meanwhile. So only a client that has resumed its clusters on this stream is known to have
    /// every cluster's endpoints where they belong.
    fn trusts_initial(&self, ty: ResourceType) -> bool {
        ty != ResourceType::Endpoint || (self.watches[ResourceType::Cluster].is_some() && self.order.resumed)
    }

    fn change_delta(&mut self, ty: ResourceType, request: &Request<'_>) -> Result<(), StreamError> {
        let subscribe = request.names.read()?;
        let unsubscribe = request.unsubscribe.read()?;
        let Some(watch) = &self.watches[ty] else { return Ok(()) };
        let mut subscription = watch.membership.key.subscription;
        let state = watch.membership.group.lock();
        let mut requested: Vec<&str> =
            subscribe.iter().copied().filter(|name| *name != "*" && !unsubscribe.contains(name)).collect();
        requested.sort_unstable();
        requested.dedup();
        let added: Vec<&str> =
            requested.iter().copied().filter(|name| !state.names.contains(*name)).collect();
        let mut removed: Vec<&str> =
            unsubscribe.iter().copied().filter(|name| state.names.contains(*name)).collect();
        removed.sort_unstable();
        removed.dedup();
        drop(state);
        added.iter().for_each(|name| subscription.add(self.fanout.hasher, name));
        removed.iter().for_each(|name| subscription.remove(self.fanout.hasher, name));
        let was_wildcard = subscription.wildcard;
        subscription.wildcard = (was_wildcard || subscribe.contains(&"*")) && !unsubscribe.contains(&"*");
        self.check_limits(ty, subscription.count, subscription.bytes)?;
        self.dirty.add(ty);
        let Some(watch) = &mut self.watches[ty] else { return Ok(()) };
        if subscription != watch.membership.key.subscription {
            watch.membership =
                self.fanout.resubscribe(&self.mark, &watch.membership, subscription, &added, &removed);
            watch.in_step = None;
        }
        watch.forget(&removed, was_wildcard && !subscription.wildcard);
        // What is requested is sent even if the client had it: it may have dropped it in between.
        if !requested.is_empty() || subscription.wildcard != was_wildcard && subscription.wildcard {
            for name in &requested {
                watch.sent.remove(*name);
            }
            watch.in_step = None;
            watch.requested.add(requested.iter().map(|name| Arc::from(*name)));
        }
        Ok(())
    }
}

impl Watch {
    /// Counts the resources as sent that the request lists as known.
    fn resume(&mut self, request: &Request<'_>) {
        let state = self.membership.group.lock();
        let version = |text: &str| unhex(text).unwrap_or(0);
        let same = |(name, text): &(&str, &str)| {
            state.entries.get(*name).is_some_and(|resource| resource.version == version(text))
        };
        if request.initial.len() == state.entries.len() && request.initial.iter().all(same) {
            self.sent = state.entries.clone();
            drop(state);
            self.in_step = Some(self.membership.group.seq());
            return;
        }
        let relevant = |name: &str| state.wildcard || state.names.contains(name);
        let known = request.initial.iter().filter(|(name, _)| relevant(name)).map(|(name, text)| {
            let name: Arc<str> = Arc::from(*name);
            let resource = Resource {
                name: Arc::clone(&name),
                version: version(text),
                body: Bytes::new(),
                changed_at: 0,
            };
            (name, Arc::new(resource))
        });
        let known: Entries = known.collect();
        drop(state);
        self.sent = known;
        self.requested = Requested::All;
    }

    /// Forgets resources that the client unsubscribed from.
    fn forget(&mut self, removed: &[&str], wildcard_ended: bool) {
        let state = self.membership.group.lock();
        if wildcard_ended {
            let gone: Vec<_> =
                self.sent.keys().filter(|name| !state.names.contains(*name)).cloned().collect();
            gone.iter().for_each(|name| drop(self.sent.remove(name)));
        } else if !state.wildcard {
            removed.iter().for_each(|name| drop(self.sent.remove(*name)));
        }
    }
}
