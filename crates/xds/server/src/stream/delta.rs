//! Delta requests.

use super::watch::{Known, Requested, Watch};
use super::{Seen, Stream};
use crate::error::StreamError;
use crate::fanout::group::{GroupKey, SubscriptionKey};
use crate::fanout::names::{Account, listed_bytes};
use crate::limits::{Limit, LimitExceeded};
use crate::protocol::wire::{Request, unhex};
use crate::source::{Resource, ResourceSource};
use bytes::Bytes;
use pilotfish_proto::ResourceType;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// Types that are ordered by make-before-break.
const ORDERED: [ResourceType; 3] = [ResourceType::Cluster, ResourceType::Listener, ResourceType::Route];

impl<S: ResourceSource> Stream<S> {
    pub(super) fn on_delta(
        &mut self,
        ty: ResourceType,
        request: &Request<'_>,
        now: Instant,
    ) -> Result<(), StreamError> {
        if self.watches[ty].is_none() {
            return self.first_delta(ty, request, now);
        }
        self.acknowledge(ty, request, now);
        // Changes of the subscription count even with an old nonce: they are not repeated.
        if request.names.is_empty() && request.unsubscribe.is_empty() {
            return Ok(());
        }
        self.change_delta(ty, request)
    }

    fn first_delta(
        &mut self,
        ty: ResourceType,
        request: &Request<'_>,
        now: Instant,
    ) -> Result<(), StreamError> {
        let Lists { subscribe, unsubscribe } = self.lists(request)?;
        let known = request.initial.read()?;
        let wildcard = if subscribe.is_empty() { ty.is_wildcard() } else { subscribe.contains(&"*") };
        let names = Lists::requested(&subscribe, &unsubscribe);
        let mut subscription = SubscriptionKey::new(wildcard && !unsubscribe.contains("*"));
        names.iter().for_each(|name| subscription.add(self.fanout.hasher, name));
        self.check_limits(ty, subscription, Known::of(&known))?;
        let Seen { view, parts, is_undecided } = self.view(ty, names.iter().copied());
        let key = GroupKey { ty, view, subscription };
        let Some(account) = self.account(subscription) else { return Ok(()) };
        let membership = self.fanout.subscribe_to(&self.mark, key, &parts, &names, &account)?;
        let mut watch = Watch::new(membership);
        watch.is_undecided = is_undecided;
        let few = self.fanout.limits.few_subscriptions;
        if ty == ResourceType::Cluster {
            self.order.resumed = !known.is_empty();
        }
        if self.trusts_initial(ty)
            && let Err(error) = watch.resume(&known, &account.of_many(known.len(), few))
        {
            self.fanout.leave(&watch.membership);
            return Err(error.into());
        }
        if ty == ResourceType::Endpoint {
            for name in std::mem::take(&mut self.order.reannounced) {
                if watch.sent.remove(&name).is_some() {
                    watch.in_step = None;
                }
            }
        }
        self.resume_order(ty, !known.is_empty(), now);
        self.watches[ty] = Some(Box::new(watch));
        self.dirty.add(ty);
        Ok(())
    }

    /// Makes clusters, listeners and routes wait for each other while a client that lists some of them may
    /// still request the others.
    fn resume_order(&mut self, ty: ResourceType, has_some: bool, now: Instant) {
        if !ORDERED.contains(&ty) {
            return;
        }
        if has_some && !self.order.resumes {
            self.order.resuming = Some(now + self.fanout.limits.draining);
            self.order.resumes = true;
        }
        if ORDERED.into_iter().all(|other| other == ty || self.watches[other].is_some()) {
            self.order.resuming = None;
        }
    }

    /// Reads the name lists of a request, unless one exceeds the subscription limit: reading costs more than
    /// sending.
    fn lists<'a>(&self, request: &Request<'a>) -> Result<Lists<'a>, StreamError> {
        // One more for the wildcard.
        let allowed = self.fanout.limits.subscriptions.saturating_add(1);
        for count in [request.names.len(), request.unsubscribe.len(), request.initial.len()] {
            Limit::Subscriptions.check(count, allowed)?;
        }
        let unsubscribe = request.unsubscribe.read()?.into_iter().collect();
        Ok(Lists { subscribe: request.names.read()?, unsubscribe })
    }

    /// True if resources may be left out because the request lists them as known.
    ///
    /// A cluster that Envoy is just replacing waits for endpoints that Envoy already has, and Envoy does not
    /// ask for them. It does delay its request for clusters meanwhile. So only for a client that has resumed
    /// its clusters on this stream, the endpoints of every cluster are known to be in place.
    fn trusts_initial(&self, ty: ResourceType) -> bool {
        ty != ResourceType::Endpoint || (self.watches[ResourceType::Cluster].is_some() && self.order.resumed)
    }

    fn change_delta(&mut self, ty: ResourceType, request: &Request<'_>) -> Result<(), StreamError> {
        let Lists { subscribe, unsubscribe } = self.lists(request)?;
        let Some(watch) = &self.watches[ty] else { return Ok(()) };
        let mut subscription = watch.membership.key.subscription;
        let requested = Lists::requested(&subscribe, &unsubscribe);
        // A copy shares all data, so publications do not wait while it is searched. It is dropped before the
        // group changes.
        let old = watch.membership.group.lock().names.clone();
        let added: Vec<&str> = requested.iter().copied().filter(|name| !old.contains(*name)).collect();
        let removed: Vec<&str> = unsubscribe.iter().copied().filter(|name| old.contains(*name)).collect();
        drop(old);
        added.iter().for_each(|name| subscription.add(self.fanout.hasher, name));
        removed.iter().for_each(|name| subscription.remove(self.fanout.hasher, name));
        let was_wildcard = subscription.wildcard;
        subscription.wildcard = (was_wildcard || subscribe.contains(&"*")) && !unsubscribe.contains("*");
        self.check_limits(ty, subscription, watch.known)?;
        let Some(account) = self.account(subscription) else { return Ok(()) };
        self.dirty.add(ty);
        let Some(watch) = &mut self.watches[ty] else { return Ok(()) };
        if subscription != watch.membership.key.subscription {
            let names = watch.membership.names_to_enter();
            let change = (&added[..], &removed[..]);
            self.fanout.resubscribe_to(&self.mark, &mut watch.membership, subscription, change, &account)?;
            watch.in_step = None;
            self.spend(names);
        }
        let Some(watch) = &mut self.watches[ty] else { return Ok(()) };
        watch.forget(&removed, was_wildcard && !subscription.wildcard);
        watch.count_asked(requested.len(), &account, self.fanout.limits.few_subscriptions)?;
        // Requested resources are sent even if the client had them: it may have dropped them in between.
        if !requested.is_empty() || subscription.wildcard != was_wildcard && subscription.wildcard {
            for name in &requested {
                watch.sent.remove(name);
            }
            watch.in_step = None;
            let subscribed = watch.membership.group.lock().names.clone();
            watch.requested.add(requested.iter().copied(), &subscribed);
        }
        self.follow_names(ty);
        Ok(())
    }
}

/// Names that a request subscribes to and unsubscribes from.
struct Lists<'a> {
    subscribe: Vec<&'a str>,
    unsubscribe: BTreeSet<&'a str>,
}

impl<'a> Lists<'a> {
    /// Names of `subscribe` in order, each once, without the wildcard and names that the request also
    /// unsubscribes from.
    fn requested(subscribe: &[&'a str], unsubscribe: &BTreeSet<&'a str>) -> Vec<&'a str> {
        let mut names: Vec<_> =
            subscribe.iter().copied().filter(|name| *name != "*" && !unsubscribe.contains(name)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Watch {
    /// Records resources that the client lists as known as sent.
    ///
    /// # Errors
    /// If `account` cannot pay for keeping them until the first response.
    fn resume(&mut self, known: &[(&str, &str)], account: &Account) -> Result<(), LimitExceeded> {
        // Copies share all data: publications do not wait while the client's list is compared.
        let (entries, names, wildcard, seq) = {
            let state = self.membership.group.lock();
            (state.entries.clone(), state.names.clone(), state.wildcard, self.membership.group.seq())
        };
        let version = |text: &str| unhex(text).unwrap_or(0);
        let same = |(name, text): &(&str, &str)| {
            entries.get(name).is_some_and(|resource| resource.version == version(text))
        };
        if known.len() == entries.len() && known.iter().all(same) {
            self.sent = entries;
            self.in_step = Some(seq);
            return Ok(());
        }
        let listed = Known::of(known);
        self.listed = Some(account.hold(listed_bytes(listed.count, listed.bytes))?);
        let relevant = |name: &str| wildcard || names.contains(name);
        let sent = known.iter().filter(|(name, _)| relevant(name)).map(|(name, text)| {
            let is = entries.get(name);
            if let Some(same) = is.filter(|is| is.version == version(text)) {
                return (Arc::clone(&same.name), Arc::clone(same));
            }
            let name = is.map_or_else(|| Arc::from(*name), |is| Arc::clone(&is.name));
            let resource = Resource {
                name: Arc::clone(&name),
                version: version(text),
                body: Bytes::new(),
                changed_at: 0,
                stands_in: false,
            };
            (name, Arc::new(resource))
        });
        self.sent = sent.collect();
        self.known = listed;
        self.requested = Requested::All;
        Ok(())
    }

    /// Removes unsubscribed resources from the sent ones.
    fn forget(&mut self, removed: &[&str], wildcard_ended: bool) {
        self.requested.remove(removed);
        let (names, wildcard) = {
            let state = self.membership.group.lock();
            (state.names.clone(), state.wildcard)
        };
        if !wildcard {
            self.forget_in_flight(removed.len(), &names);
        }
        if wildcard_ended {
            let named = self.sent.values().filter(|resource| names.contains(&resource.name));
            self.sent = named.map(|resource| (Arc::clone(&resource.name), Arc::clone(resource))).collect();
        } else if !wildcard {
            removed.iter().for_each(|name| drop(self.sent.remove(name)));
        }
    }
}
