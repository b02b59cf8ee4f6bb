//! State-of-the-world requests.

use super::watch::{Acknowledged, Known, Requested, Watch};
use super::{Seen, Stream};
use crate::error::StreamError;
use crate::fanout::group::{GroupKey, SubscriptionKey};
use crate::limits::Limit;
use crate::protocol::wire::Request;
use crate::source::ResourceSource;
use pilotfish_proto::ResourceType;
use std::sync::Arc;
use std::time::Instant;

impl<S: ResourceSource> Stream<S> {
    pub(super) fn on_sotw(
        &mut self,
        ty: ResourceType,
        request: &Request<'_>,
        now: Instant,
    ) -> Result<(), StreamError> {
        let known = self.watches[ty].is_some();
        if request.error.is_some() {
            self.acknowledge(ty, request, now);
            return Ok(());
        }
        if request.names.is_empty() && !ty.is_wildcard() {
            if let Some(watch) = self.watches[ty].take() {
                self.fanout.leave(&watch.membership);
            }
            return Ok(());
        }
        if request.nonce.is_empty() || !known {
            return self.first_sotw(ty, request);
        }
        match self.acknowledge(ty, request, now) {
            Acknowledged::Current(_) | Acknowledged::Again => self.change_sotw(ty, request),
            // The request answers an older response; one for the last, with newer names, follows.
            _ => Ok(()),
        }
    }

    fn first_sotw(&mut self, ty: ResourceType, request: &Request<'_>) -> Result<(), StreamError> {
        let named = self.watches[ty].as_ref().is_some_and(|watch| watch.named);
        let (subscription, names) = self.sotw_subscription(ty, request, named)?;
        if let Some(old) = self.watches[ty].take() {
            self.fanout.leave(&old.membership);
        }
        let Seen { view, parts, is_undecided } = self.view(ty, names.iter().copied());
        let key = GroupKey { ty, view, subscription };
        let Some(account) = self.account(subscription) else { return Ok(()) };
        let mut watch = Watch::new(self.fanout.subscribe_to(&self.mark, key, &parts, &names, &account)?);
        watch.fingerprint = request.names.fingerprint();
        watch.is_undecided = is_undecided;
        watch.named = named || !request.names.is_empty();
        self.watches[ty] = Some(Box::new(watch));
        self.dirty.add(ty);
        if let (ResourceType::Cluster, Some(endpoints)) = (ty, &mut self.watches[ResourceType::Endpoint]) {
            // Clusters that are sent again wait for endpoints, and Envoy's request for them looks like an
            // ACK.
            endpoints.always_respond = true;
        }
        Ok(())
    }

    fn change_sotw(&mut self, ty: ResourceType, request: &Request<'_>) -> Result<(), StreamError> {
        let Some(watch) = &mut self.watches[ty] else { return Ok(()) };
        if std::mem::take(&mut watch.always_respond) {
            watch.sent.clear();
            watch.in_step = None;
            watch.requested = Requested::All;
            self.dirty.add(ty);
        }
        let fingerprint = request.names.fingerprint();
        if fingerprint == watch.fingerprint {
            return Ok(());
        }
        let named = watch.named;
        let (subscription, names) = self.sotw_subscription(ty, request, named)?;
        let Some(account) = self.account(subscription) else { return Ok(()) };
        let Some(watch) = &mut self.watches[ty] else { return Ok(()) };
        watch.fingerprint = fingerprint;
        watch.named |= !request.names.is_empty();
        if subscription == watch.membership.key.subscription {
            return Ok(());
        }
        self.dirty.add(ty);
        let old = watch.membership.group.lock().names.clone();
        let added: Vec<&str> = names.iter().copied().filter(|name| !old.contains(*name)).collect();
        let removed: Vec<Arc<str>> =
            old.iter().filter(|name| names.binary_search(&&***name).is_err()).cloned().collect();
        let removed: Vec<&str> = removed.iter().map(|name| &**name).collect();
        drop(old);
        let change = (&added[..], &removed[..]);
        self.fanout.resubscribe_to(&self.mark, &mut watch.membership, subscription, change, &account)?;
        watch.in_step = None;
        if !subscription.wildcard {
            removed.iter().for_each(|name| drop(watch.sent.remove(name)));
            let names = watch.membership.group.lock().names.clone();
            watch.forget_in_flight(removed.len(), &names);
        }
        watch.requested.remove(&removed);
        // The client removes resources that a complete response lacks, so for such types every change is
        // answered.
        if !added.is_empty() || ty.is_wildcard() {
            watch.count_asked(added.len(), &account, self.fanout.limits.few_subscriptions)?;
            let subscribed = watch.membership.group.lock().names.clone();
            watch.requested.add(added.iter().copied(), &subscribed);
        }
        self.follow_names(ty);
        Ok(())
    }

    /// Subscription of a request, within the limits, and its names in order.
    fn sotw_subscription<'a>(
        &self,
        ty: ResourceType,
        request: &Request<'a>,
        named: bool,
    ) -> Result<(SubscriptionKey, Vec<&'a str>), StreamError> {
        // Reading costs more than sending. One more name for the wildcard.
        Limit::Subscriptions
            .check(request.names.len(), self.fanout.limits.subscriptions.saturating_add(1))?;
        let mut names = request.names.read()?;
        names.sort_unstable();
        names.dedup();
        let star = names.contains(&"*");
        // No resource has the empty name, and no response could report that.
        names.retain(|name| *name != "*" && !name.is_empty());
        // No names mean the wildcard, unless the client has subscribed by name before.
        let wildcard = star || (request.names.is_empty() && ty.is_wildcard() && !named);
        let mut subscription = SubscriptionKey::new(wildcard);
        names.iter().for_each(|name| subscription.add(self.fanout.hasher, name));
        self.check_limits(ty, subscription, Known::default())?;
        Ok((subscription, names))
    }
}
