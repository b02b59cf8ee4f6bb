//! Choice of a stream's next response.

use super::order::{Breaking, Probe, Warming};
use super::watch::{Known, Requested, Watch};
use super::{Response, Stream};
use crate::fanout::group::{Baseline, GroupView};
use crate::protocol::Protocol;
use crate::protocol::wire::eds_name;
use crate::recorder::Push;
use crate::resources::{Contents, EncodedResponse, Entries, set_version};
use crate::source::{Resource, ResourceSource};
use enum_map::EnumMap;
use pilotfish_proto::ResourceType;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// Maximum bytes of resources in a response that no other stream shares; the rest follows when the client has
/// read it. This bounds the memory for a client that does not read.
const MOST_UNSHARED: usize = 1 << 20;

/// Snapshot of a type's group.
struct Look {
    view: GroupView,
    /// Shared response from the stream's baseline to this state, if another stream was sent it.
    response: Option<Arc<EncodedResponse>>,
}

/// Snapshots of groups, all in one published state.
struct Looks {
    /// Revision of that state, or an earlier one.
    revision: u64,
    of: EnumMap<ResourceType, Option<Look>>,
}

/// The next response of a type.
struct Plan {
    contents: Arc<Contents>,
    /// Encoded form, if it is shared with other streams.
    response: Option<Arc<EncodedResponse>>,
    /// True if a part has to wait, so the client will not have everything.
    held: bool,
}

impl<S: ResourceSource> Stream<S> {
    /// The next response, in make-before-break order; `None` when there is nothing to send now.
    pub fn poll_response(&mut self, now: Instant) -> Option<Response> {
        if let Some(marked) = self.mark.take() {
            let waited = now.saturating_duration_since(self.fanout.started).saturating_sub(marked.since);
            self.fanout.recorder.queue_time(waited);
            self.publishing.get_or_insert(marked.since);
            self.dirty.extend(marked.types);
            if marked.view_changed {
                self.follow_views();
            }
            if marked.collections_changed {
                self.collections.changed();
            }
        }
        if self.order.expire(now, self.fanout.limits.draining) {
            self.send_endpoints_again();
        }
        if self.dirty.contains(ResourceType::Secret) {
            self.read_private();
        }
        if !self.dirty.is_empty() {
            let looks = self.look();
            for ty in ResourceType::ALL {
                if self.dirty.contains(ty)
                    && let Some(response) = self.pick(ty, &looks, now)
                {
                    return Some(response);
                }
            }
        }
        if let Some(response) = self.poll_collection() {
            return Some(response);
        }
        self.finish(now);
        None
    }

    /// Ends a round of responses. Called when nothing is left to send.
    pub(crate) fn finish(&mut self, now: Instant) {
        if self.publishing.is_some() && self.order.is_idle() {
            let since = self.publishing.take().unwrap_or_default();
            let after = now.saturating_duration_since(self.fanout.started).saturating_sub(since);
            self.fanout.recorder.converged(after);
        }
    }

    fn send_endpoints_again(&mut self) {
        if let Some(watch) = &mut self.watches[ResourceType::Endpoint] {
            watch.sent.clear();
            watch.in_step = None;
            self.dirty.add(ResourceType::Endpoint);
        }
    }

    /// Takes views of the groups with possible changes, all in one published state. They are compared and
    /// encoded later without a lock, so that publications and other streams do not wait.
    fn look(&self) -> Looks {
        let mut of = EnumMap::default();
        let is_breaking = self.dirty.contains(ResourceType::Cluster);
        let _published = self.fanout.published();
        let revision = self.fanout.revision();
        for ty in ResourceType::ALL {
            let is_waited_for = is_breaking && matches!(ty, ResourceType::Listener | ResourceType::Route);
            let watch = self.watches[ty].as_ref().filter(|_| self.dirty.contains(ty) || is_waited_for);
            of[ty] = watch.map(|watch| {
                let (mut view, response) = watch.membership.group.view(self.baseline(ty, watch));
                if self.private.is_in(ty) {
                    self.private.put_over(&mut view);
                }
                Look { view, response }
            });
        }
        Looks { revision, of }
    }

    /// Baseline of a response that other streams may share: one that leads to the complete newest state.
    fn baseline(&self, ty: ResourceType, watch: &Watch) -> Option<Baseline> {
        if self.private.is_in(ty) {
            return None;
        }
        match self.protocol {
            Protocol::Sotw if self.whole(ty) => Some(Baseline::SotwAll),
            protocol => match (&watch.requested, watch.in_step, protocol) {
                (Requested::All, _, Protocol::Delta) if watch.sent.is_empty() => Some(Baseline::DeltaAll),
                (Requested::All, _, Protocol::Sotw) if watch.sent.is_empty() => Some(Baseline::SotwAll),
                (Requested::Nothing, Some(seq), Protocol::Delta) => Some(Baseline::Delta(seq)),
                (Requested::Nothing, Some(seq), Protocol::Sotw) => Some(Baseline::Sotw(seq)),
                _ => None,
            },
        }
    }

    /// Response from a baseline to the snapshot.
    fn shared(&self, ty: ResourceType, look: &Look, baseline: Baseline) -> Option<Arc<EncodedResponse>> {
        let watch = self.watches[ty].as_ref()?;
        if self.private.is_in(ty) {
            return Some(Arc::new(look.view.build(ty, baseline, &watch.sent, self.fanout.nonces.next())));
        }
        Some(look.response.clone().unwrap_or_else(|| {
            let (group, alone) = (&watch.membership.group, watch.membership.is_alone());
            group.response(&look.view, baseline, &watch.sent, alone, &self.fanout.nonces)
        }))
    }

    fn pick(&mut self, ty: ResourceType, looks: &Looks, now: Instant) -> Option<Response> {
        let (Some(watch), Some(look)) = (self.watches[ty].as_ref(), &looks.of[ty]) else {
            self.dirty.remove(ty);
            return None;
        };
        // A response without secrets would remove them, and Envoy would continue without certificates while
        // the client's access is being decided.
        if watch.is_undecided || self.private.holds(ty) {
            self.dirty.remove(ty);
            return None;
        }
        let answer = watch.requested.is_some();
        if !answer && watch.in_step == Some(look.view.seq) {
            self.dirty.remove(ty);
            return None;
        }
        if self.waits_for_clusters(ty, watch) {
            return None;
        }
        let settled = ty != ResourceType::Cluster || self.settled(looks);
        let plan = self.plan(ty, look, settled, now)?;
        let differs = if self.whole(ty) || self.protocol == Protocol::Delta {
            !plan.contents.is_empty()
        } else {
            !plan.contents.upserts.is_empty()
        };
        let response = if differs || answer { self.encode(ty, &plan, look) } else { None };
        let watch = self.watches[ty].as_mut()?;
        let before = if plan.held {
            let mut after = look.view.entries.clone();
            match (&self.order.breaking, ty) {
                // Applied in this direction, the result shares data with the group, and the next comparison
                // is fast.
                (Some(breaking), ResourceType::Cluster) => {
                    let held = breaking.clusters.iter().filter_map(|name| watch.sent.get(name));
                    held.for_each(|resource| after.insert(Arc::clone(resource)));
                }
                _ => {
                    after = watch.sent.clone();
                    after.apply(&plan.contents);
                }
            }
            watch.in_step = None;
            std::mem::replace(&mut watch.sent, after)
        } else {
            watch.in_step = Some(look.view.seq);
            watch.known = Known::default();
            watch.listed = None;
            self.dirty.remove(ty);
            std::mem::replace(&mut watch.sent, look.view.entries.clone())
        };
        let response = response?;
        let is = (&response, looks.revision);
        Some(self.respond(ty, is, &plan.contents, &before, now))
    }

    /// True for listeners and routes while clusters that they may refer to are not warm, or may still be
    /// requested.
    ///
    /// Responses to subscriptions do not wait, except for the first one of a resumed stream: the client keeps
    /// serving.
    pub(super) fn waits_for_clusters(&self, ty: ResourceType, watch: &Watch) -> bool {
        let refers = matches!(ty, ResourceType::Listener | ResourceType::Route);
        let may_come = self.order.resuming.is_some() && self.watches[ResourceType::Cluster].is_none();
        let can_wait = match watch.requested {
            Requested::Nothing => true,
            Requested::Names(_) => false,
            Requested::All => self.order.resumes,
        };
        refers && can_wait && (self.order.warming.is_some() || may_come)
    }

    fn is_envoy(&self) -> bool {
        self.connected.as_ref().is_some_and(|connected| connected.envoy)
    }

    /// True if a delta response lists an absent resource in `removed_resources` instead of sending its
    /// stand-in.
    ///
    /// Envoy waits without a time-out for removed routes of a listener. It keeps removed endpoints, so those
    /// that it has are replaced by an empty assignment.
    fn tells_absent(&self, ty: ResourceType, sent: &Entries, name: &str) -> bool {
        !self.is_envoy() || (ty == ResourceType::Endpoint && !sent.contains_key(name))
    }

    /// True if responses of the type always contain all of its resources.
    fn whole(&self, ty: ResourceType) -> bool {
        let grpc = self.connected.as_ref().is_some_and(|connected| connected.grpc);
        self.protocol == Protocol::Sotw && is_whole(ty, grpc)
    }

    /// Difference between the client's state and the newest one, without resources that have to wait.
    fn plan(&mut self, ty: ResourceType, look: &Look, settled: bool, now: Instant) -> Option<Plan> {
        let watch = self.watches[ty].as_ref()?;
        let keeps = self.order.breaking.as_ref().is_some_and(|breaking| !breaking.clusters.is_empty());
        let filtered = ty == ResourceType::ExtensionConfig || (ty == ResourceType::Endpoint && keeps);
        let is_envoy = self.is_envoy();
        if self.protocol == Protocol::Delta
            && !filtered
            && let Some(start) = self.baseline(ty, watch)
        {
            let response = self.shared(ty, look, start)?;
            let breaks = ty == ResourceType::Cluster && !response.contents.removed.is_empty();
            // Stand-ins are for Envoy only.
            let fits = is_envoy || !response.stands_in;
            if fits && (!breaks || start == Baseline::DeltaAll) {
                let contents = Arc::clone(&response.contents);
                return Some(Plan { contents, response: Some(response), held: false });
            }
        }
        let mut contents = watch.sent.difference(&look.view.entries);
        let mut held = false;
        match ty {
            ResourceType::Cluster => held = self.hold_removals(&mut contents, settled, now),
            ResourceType::Endpoint if keeps => {
                let clusters = self.order.breaking.as_ref().map(|breaking| &breaking.clusters);
                let all = contents.upserts.len();
                let stays = |name: &Arc<str>| clusters.is_some_and(|clusters| clusters.contains(name));
                // Resources that the client does not have are not held: its cluster may wait for them.
                contents.upserts.retain(|r| !stays(&r.name) || !watch.sent.contains_key(&r.name));
                held = contents.upserts.len() < all;
            }
            // Envoy answers every request with an error if a filter has lost its configuration.
            ResourceType::ExtensionConfig if is_envoy => contents.removed.clear(),
            _ => {}
        }
        // Other streams do not share this response, unless it is the first of its group.
        let is_first = |watch: &Watch| watch.requested == Requested::All && watch.sent.is_empty();
        let is_shared = self.watches[ty].as_deref().is_some_and(is_first);
        if !is_shared && !ty.is_wildcard() && !self.whole(ty) {
            held |= contents.cut(MOST_UNSHARED);
        }
        Some(Plan { contents: Arc::new(contents), response: None, held })
    }

    /// Takes removed clusters out of a response while listeners or routes may refer to them.
    fn hold_removals(&mut self, contents: &mut Contents, settled: bool, now: Instant) -> bool {
        let over = self.order.breaking.as_ref().is_some_and(|breaking| breaking.over);
        if contents.removed.is_empty() || settled || over {
            self.order.breaking = None;
            return false;
        }
        let until = now + self.fanout.limits.draining;
        let clusters: BTreeSet<_> = contents.removed.drain(..).collect();
        match &mut self.order.breaking {
            Some(breaking) => {
                breaking.clusters = clusters;
                if self.order.warming.is_some() {
                    breaking.until = until;
                }
            }
            None => self.order.breaking = Some(Breaking { since: now, until, over: false, clusters }),
        }
        true
    }

    /// True if the client has acknowledged the newest listeners and routes, and is not about to resume some.
    fn settled(&mut self, looks: &Looks) -> bool {
        let since = self.order.breaking.as_ref().map(|breaking| breaking.since);
        [ResourceType::Listener, ResourceType::Route].into_iter().all(|ty| {
            let whole = self.whole(ty) || self.protocol == Protocol::Delta;
            let (Some(watch), Some(look)) = (&mut self.watches[ty], &looks.of[ty]) else {
                return self.order.resuming.is_none();
            };
            let refused = match (&watch.rejection, since) {
                (Some((at, _)), Some(since)) => *at >= since,
                _ => false,
            };
            if watch.requested.is_some() || !watch.in_flight.is_empty() || refused {
                return false;
            }
            if watch.in_step == Some(look.view.seq) {
                return true;
            }
            let difference = watch.sent.difference(&look.view.entries);
            let equal = difference.upserts.is_empty() && (!whole || difference.removed.is_empty());
            if equal {
                watch.sent = look.view.entries.clone();
                watch.in_step = Some(look.view.seq);
            }
            equal
        })
    }

    /// Encodes a plan, sharing the result with streams that have the same plan.
    fn encode(&self, ty: ResourceType, plan: &Plan, look: &Look) -> Option<Arc<EncodedResponse>> {
        if let Some(response) = &plan.response {
            return Some(Arc::clone(response));
        }
        let watch = self.watches[ty].as_ref()?;
        let (nonces, version) = (&self.fanout.nonces, look.view.version);
        if self.protocol == Protocol::Delta {
            let mut contents = Contents::clone(&plan.contents);
            contents.tell_absent(|resource| self.tells_absent(ty, &watch.sent, &resource.name));
            if ty != ResourceType::ExtensionConfig || !self.is_envoy() {
                add_absent(&mut contents, watch, &look.view);
            }
            return Some(Arc::new(EncodedResponse::delta(ty, version, contents, nonces.next())));
        }
        if self.whole(ty) {
            if !plan.held {
                return self.shared(ty, look, Baseline::SotwAll);
            }
            let mut all = watch.sent.clone();
            all.apply(&plan.contents);
            let contents = Entries::new().difference(&all);
            let version = set_version(contents.upserts.iter());
            return Some(Arc::new(EncodedResponse::sotw(ty, version, contents, nonces.next())));
        }
        if let Some(baseline) = self.baseline(ty, watch).filter(|_| !plan.held) {
            return self.shared(ty, look, baseline);
        }
        let contents = Contents::clone(&plan.contents);
        Some(Arc::new(EncodedResponse::sotw(ty, version, contents, nonces.next())))
    }

    fn respond(
        &mut self,
        ty: ResourceType,
        (response, revision): (&Arc<EncodedResponse>, u64),
        changed: &Arc<Contents>,
        before: &Entries,
        now: Instant,
    ) -> Response {
        let push = Push {
            ty,
            bytes: response.frame.len(),
            resources: response.contents.upserts.len(),
            removed: response.contents.removed.len(),
        };
        let mut nonce = response.nonce;
        let (mut head, mut tail) = response.frame.whole();
        if let Some(watch) = &mut self.watches[ty] {
            if watch.knows_nonce(nonce) {
                nonce = self.fanout.nonces.next();
                (head, tail) = response.frame.with_nonce(nonce);
            }
            let times = (now, self.fanout.clock.wall_time());
            watch.sent_response(nonce, changed, response, revision, times);
        }
        self.fanout.recorder.pushed(push);
        if ty == ResourceType::Cluster {
            self.announce(nonce, changed, before, now);
        }
        Response { ty: Some(ty), head, tail }
    }

    /// Updates the order for clusters that were sent.
    fn announce(&mut self, nonce: u64, sent: &Contents, before: &Entries, now: Instant) {
        if self.order.resumed && !std::mem::replace(&mut self.order.probed, true) {
            self.order.probe = Some(Probe { nonce, until: now + self.fanout.limits.resume_probe });
        }
        if let Some(warming) = &mut self.order.warming {
            for name in &sent.removed {
                warming.endpoints.remove(name);
            }
        }
        let referring = self.order.resuming.is_some()
            || [ResourceType::Listener, ResourceType::Route].iter().any(|ty| self.watches[*ty].is_some());
        if before.is_empty() && !referring {
            return;
        }
        let (changed, added): (Vec<_>, Vec<_>) =
            sent.upserts.iter().partition(|resource| before.contains_key(&resource.name));
        self.resend_endpoints(&changed);
        if referring && !added.is_empty() {
            self.warm(nonce, &added, now);
        }
    }

    /// Sends endpoints of changed clusters again: such a cluster waits for endpoints as a new one does, but
    /// Envoy does not ask for them.
    fn resend_endpoints(&mut self, changed: &[&Arc<Resource>]) {
        for name in changed.iter().filter_map(|resource| eds_name(&resource.body)) {
            match &mut self.watches[ResourceType::Endpoint] {
                Some(watch) => {
                    if watch.sent.remove(name).is_some() {
                        watch.in_step = None;
                        self.dirty.add(ResourceType::Endpoint);
                    }
                }
                None => {
                    self.order.reannounced.insert(Arc::from(name));
                }
            }
        }
    }

    fn warm(&mut self, nonce: u64, added: &[&Arc<Resource>], now: Instant) {
        let until = now + self.fanout.limits.warming;
        let warming = self.order.warming.get_or_insert_with(|| Warming {
            nonce,
            answered: false,
            endpoints: BTreeSet::new(),
            until,
        });
        warming.nonce = nonce;
        warming.answered = false;
        if let Some(watch) = &self.watches[ResourceType::Endpoint] {
            let names = added.iter().filter_map(|resource| eds_name(&resource.body));
            warming.endpoints.extend(names.filter(|name| !watch.sent.contains_key(name)).map(Arc::from));
        }
    }
}

/// True if a state-of-the-world response of the type has to have all of its resources, since the client
/// removes those that it lacks.
fn is_whole(ty: ResourceType, grpc: bool) -> bool {
    ty.is_wildcard() || grpc
}

/// Adds requested names that do not exist.
fn add_absent(contents: &mut Contents, watch: &Watch, view: &GroupView) {
    let absent: Vec<Arc<str>> = match &watch.requested {
        Requested::Nothing => return,
        Requested::All => view.absent(),
        Requested::Names(names) => {
            names.iter().filter(|name| !view.entries.contains_key(name)).cloned().collect()
        }
    };
    let mut removed: BTreeSet<_> = contents.removed.drain(..).collect();
    // Resources that the client keeps for now are sent as removed when they have to go.
    removed.extend(absent.into_iter().filter(|name| !watch.sent.contains_key(name)));
    contents.removed = removed.into_iter().collect();
}
