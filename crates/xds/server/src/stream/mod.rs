//! One ADS stream as a state machine without IO: requests, marks and time go in, responses come out.
//!
//! The server calls [`Stream::on_message`] for each message, and [`Stream::poll_response`] until it returns
//! `None` whenever the stream's [`Mark`] was set, a message came in or [`Stream::deadline`] passed, and the
//! connection can take more.

mod collections;
mod delta;
mod order;
mod private;
mod push;
mod sotw;
mod watch;

use crate::error::StreamError;
use crate::fanout::Fanout;
use crate::fanout::group::{GroupKey, SubscriptionKey};
use crate::fanout::names::{Account, Owner, Part};
use crate::limits::{Limit, LimitExceeded, Quota, QuotaGuard};
use crate::mark::{Mark, Types};
use crate::protocol::Protocol;
use crate::protocol::nack::{Nack, shown};
use crate::protocol::node::ClientNode;
use crate::protocol::wire::{Request, error_text, node_in};
use crate::source::{ClientId, PeerInfo, ResourceSource, Snapshot, ViewId};
use crate::status::{ConnectionStatus, Progress, Rejection, ReportStatus};
use bytes::Bytes;
use collections::Collections;
use enum_map::EnumMap;
use order::Order;
use parking_lot::Mutex;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use private::Private;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use watch::{Acknowledged, Known, Requested, Watch};

/// Type URL of requests by which Istio's agent reports the health of its workload.
const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";

/// One framed response, in chunks.
#[derive(Clone, Debug)]
pub struct Response {
    /// Type of the resources; `None` for a collection.
    pub ty: Option<ResourceType>,
    /// First bytes of the gRPC frame, often all of them.
    pub head: Bytes,
    /// The rest, shared with other streams; empty when `head` is all.
    pub tail: Vec<Bytes>,
}

impl Response {
    /// Copies the frame into one buffer.
    #[must_use]
    pub fn concat(&self) -> Vec<u8> {
        let mut frame = self.head.to_vec();
        self.tail.iter().for_each(|chunk| frame.extend_from_slice(chunk));
        frame
    }
}

/// The client, known since the first request.
struct Connected<C> {
    id: String,
    client: C,
    number: ClientId,
    /// Encoded: the decoded form is several times as large, and only debug pages read it.
    node: Arc<[u8]>,
    at: SystemTime,
    /// Revision in force at that time.
    began: u64,
    /// Quota for its names.
    names: Arc<Quota>,
    /// Quota of the client's node.
    _counted: QuotaGuard,
    /// True for Envoy, which waits indefinitely for routes and filters that are sent as removed.
    envoy: bool,
    /// True for proxyless gRPC, which expects every name of a type in each state-of-the-world response.
    grpc: bool,
}

/// View of a type by a client.
struct Seen {
    view: ViewId,
    /// Parts of the view.
    parts: Arc<[ViewId]>,
    /// True while the client's access is being decided.
    is_undecided: bool,
}

/// State of one ADS stream.
pub struct Stream<S: ResourceSource> {
    fanout: Arc<Fanout<S>>,
    slot: usize,
    protocol: Protocol,
    peer: PeerInfo,
    mark: Arc<Mark>,
    connected: Option<Connected<S::Client>>,
    /// Boxed, as most clients subscribe to few of the types.
    watches: EnumMap<ResourceType, Option<Box<Watch>>>,
    /// Types of which there may be something to send.
    dirty: Types,
    /// Types that are not xDS types.
    collections: Collections,
    /// Secrets that only this client is sent.
    private: Private,
    order: Order,
    /// Time of the first publication that is not sent completely.
    publishing: Option<Duration>,
    /// Cost of the requests since [`Stream::take_cost`].
    cost: usize,
}

/// Number of names that cost as much as a request.
const NAMES_OF_ONE_COST: usize = 64;

impl<S: ResourceSource> Fanout<S> {
    pub fn open(self: &Arc<Self>, protocol: Protocol, peer: PeerInfo) -> Arc<Mutex<Stream<S>>> {
        self.enter(|slot| Arc::new(Mutex::new(Stream::new(Arc::clone(self), protocol, peer, slot))))
    }
}

impl<S: ResourceSource> ReportStatus for Mutex<Stream<S>> {
    fn report(&self) -> Option<ConnectionStatus> {
        self.lock().status()
    }

    fn progress(&self) -> Option<Progress> {
        self.lock().progress()
    }

    fn revoke(&self, is_meant: &dyn Fn(&PeerInfo) -> bool) -> bool {
        let stream = self.lock();
        let found = is_meant(&stream.peer);
        if found {
            stream.mark.revoke();
        }
        found
    }
}

impl<S: ResourceSource> Stream<S> {
    fn new(fanout: Arc<Fanout<S>>, protocol: Protocol, peer: PeerInfo, slot: usize) -> Self {
        Self {
            mark: Arc::new(Mark::counted_in(fanout.due())),
            fanout,
            slot,
            protocol,
            peer,
            connected: None,
            watches: EnumMap::default(),
            dirty: Types::default(),
            collections: Collections::default(),
            private: Private::default(),
            order: Order::default(),
            publishing: None,
            cost: 0,
        }
    }

    /// Returns and resets the cost of requests: one for each, and one for each 64 names that were looked up
    /// or entered.
    pub(crate) fn take_cost(&mut self) -> usize {
        std::mem::take(&mut self.cost)
    }

    /// Adds the cost of a request's names.
    fn spend(&mut self, names: usize) {
        self.cost = self.cost.saturating_add(names / NAMES_OF_ONE_COST);
    }

    /// Mark that publications set if they concern the stream.
    pub fn mark(&self) -> &Arc<Mark> {
        &self.mark
    }

    /// Connection id; `None` before the first request.
    pub fn id(&self) -> Option<&str> {
        self.connected.as_ref().map(|connected| connected.id.as_str())
    }

    /// Truncated connection id for logs.
    pub(crate) fn shown_id(&self) -> Option<&str> {
        self.id().map(shown)
    }

    /// Handles one request. Returns true if there may be something to send; after most ACKs there is not.
    ///
    /// # Errors
    /// Status with which the stream has to end.
    pub fn on_message(&mut self, message: &[u8], now: Instant) -> Result<bool, StreamError> {
        self.fanout.recorder.received(message.len());
        self.cost = self.cost.saturating_add(1);
        let request = match self.protocol {
            Protocol::Delta => Request::delta(message)?,
            Protocol::Sotw => Request::sotw(message)?,
        };
        let ty = ResourceType::from_type_url(request.type_url);
        if self.connected.is_none() {
            // An agent reports its workload's health on the stream, possibly before the proxy's first
            // request.
            if ty.is_none() && request.node.is_none() {
                return Ok(false);
            }
            self.connect(request.node)?;
        }
        let Some(ty) = ty else {
            if request.type_url == HEALTH {
                self.report_health(&request);
                return Ok(false);
            }
            self.on_collection(&request)?;
            return Ok(self.has_pending());
        };
        self.spend(request.names.len() + request.unsubscribe.len() + request.initial.len());
        match self.protocol {
            Protocol::Delta => self.on_delta(ty, &request, now)?,
            Protocol::Sotw => self.on_sotw(ty, &request, now)?,
        }
        Ok(self.has_pending())
    }

    /// Passes on an agent's health report; its error detail has the problem.
    fn report_health(&self, request: &Request<'_>) {
        let Some(connected) = &self.connected else { return };
        let problem = request.error.map(error_text);
        self.fanout.source.reported_health(&connected.client, problem.as_deref());
    }

    /// True if [`Stream::poll_response`] has something to do.
    pub fn has_pending(&self) -> bool {
        self.mark.is_set() || !self.dirty.is_empty() || self.collections.is_dirty()
    }

    /// True if a response with all subscribed resources of a type is due, such as the first one.
    pub(crate) fn has_first(&self) -> bool {
        let is_due =
            |ty, watch: &Watch| watch.requested == Requested::All && !self.waits_for_clusters(ty, watch);
        self.watches.iter().any(|(ty, watch)| {
            self.dirty.contains(ty) && watch.as_deref().is_some_and(|watch| is_due(ty, watch))
        })
    }

    /// Accepts the client by its node, before its first request is complete.
    ///
    /// # Errors
    /// When the node is refused, or is not within the `beginning` of the request.
    pub(crate) fn on_beginning(&mut self, beginning: &[u8], allowed: usize) -> Result<(), StreamError> {
        if self.connected.is_some() || beginning.len() <= allowed {
            return Ok(());
        }
        match node_in(beginning, self.protocol) {
            Some(node) => self.connect(Some(node)),
            None => Ok(Limit::FirstBytes.check(beginning.len(), allowed)?),
        }
    }

    fn connect(&mut self, node: Option<&[u8]>) -> Result<(), StreamError> {
        if !self.fanout.source.ready() {
            return Err(StreamError::Unavailable("not ready: registries are still being synced".into()));
        }
        let invalid = |text: &str| StreamError::InvalidArgument(text.into());
        let node = node.ok_or_else(|| invalid("the first request has no node"))?;
        let reads = |name: &str| self.fanout.source.reads_extension(name);
        let kept = crate::protocol::node::cut(node, &self.fanout.limits.node, reads)?;
        let node = crate::protocol::node::decode(&kept)?;
        if node.id.is_empty() {
            return Err(invalid("the node has no id"));
        }
        let client = self.fanout.source.connect(&node, &self.peer)?;
        let number = self.fanout.source.client_id(&client);
        let owner = Owner::new(self.fanout.source.identity(&client, &self.peer), &self.peer);
        let names = self.fanout.names.of(&owner);
        let bytes = kept.len() + self.fanout.source.weight(&client);
        let is_small = bytes <= self.fanout.limits.small_node;
        let counted = Account::for_few(self.fanout.nodes.of(&owner), is_small).hold(bytes)?;
        let id = format!("{}-{}", node.id, self.fanout.connection_number());
        if let Some(left_out) = self.fanout.may_log() {
            let (connection, peer, protocol) = (shown(&id), self.peer.address, self.protocol);
            tracing::info!(connection, %peer, ?protocol, left_out, "connected");
        }
        let grpc = is_grpc(&node);
        let envoy = node.user_agent_name.eq_ignore_ascii_case("envoy");
        // Before the first lookup of views: otherwise a view change published in between would be missed.
        self.fanout.register(self.slot, number, &self.mark);
        // Its first responses are of this revision or a newer one.
        let began = self.fanout.revision();
        self.mark.concerns(began);
        self.fanout.recorder.connected();
        self.connected = Some(Connected {
            id,
            client,
            number,
            node: kept,
            at: self.fanout.clock.wall_time(),
            began,
            names,
            _counted: counted,
            envoy,
            grpc,
        });
        Ok(())
    }

    /// Account for a new subscription to a type; `None` before the first request.
    fn account(&self, subscription: SubscriptionKey) -> Option<Account> {
        let is_few = subscription.count <= self.fanout.limits.few_subscriptions;
        Some(Account::for_few(Arc::clone(&self.connected.as_ref()?.names), is_few))
    }

    /// Looks up the view of a type for a subscription to these names.
    fn view<'a>(&self, ty: ResourceType, names: impl IntoIterator<Item = &'a str>) -> Seen {
        let nothing =
            |is_undecided| Seen { view: ViewId::NONE, parts: Arc::from([ViewId::NONE]), is_undecided };
        if self.is_private(ty, names) {
            return nothing(false);
        }
        let Some(connected) = &self.connected else { return nothing(false) };
        let snapshot = self.fanout.source.snapshot();
        match snapshot.view(&connected.client, ty) {
            Some(view) => Seen { view, parts: snapshot.parts(view), is_undecided: false },
            None => nothing(snapshot.is_undecided(&connected.client, ty)),
        }
    }

    /// Looks up the views again and moves subscriptions to the groups of the new ones.
    fn follow_views(&mut self) {
        let Some(connected) = &self.connected else { return };
        // The client did not ask for the change, so no limit applies.
        let account = Account { budget: Arc::clone(&connected.names), part: Part::Beyond };
        for ty in ResourceType::ALL {
            let Some(watch) = &self.watches[ty] else { continue };
            let names = watch.membership.group.lock().names.clone();
            let Seen { view, parts, is_undecided } = self.view(ty, names.iter().map(|name| &**name));
            let Some(watch) = &mut self.watches[ty] else { continue };
            if std::mem::replace(&mut watch.is_undecided, is_undecided) != is_undecided {
                self.dirty.add(ty);
            }
            let old = &watch.membership;
            if old.key.view == view {
                continue;
            }
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            let key = GroupKey { view, ..old.key };
            let joined = self.fanout.subscribe_to(&self.mark, key, &parts, &names, &account);
            let Ok(joined) = joined else { continue };
            self.fanout.leave(old);
            watch.membership = joined;
            watch.in_step = None;
            self.dirty.add(ty);
        }
    }

    /// Handles a request's nonce and error detail: ACK, NACK or neither.
    fn acknowledge(&mut self, ty: ResourceType, request: &Request<'_>, now: Instant) -> Acknowledged {
        let Some(watch) = &mut self.watches[ty] else { return Acknowledged::Nothing };
        let recorder = &self.fanout.recorder;
        let outcome = watch.find(request.nonce);
        let count = outcome.count();
        if let Some(error) = request.error {
            let error = error_text(error);
            let times = (now, self.fanout.clock.wall_time());
            let (view, after) = (watch.membership.key.view, watch.acked_revision());
            let rejection = watch.reject(outcome, &error, self.fanout.revision(), times);
            let (connection, client) = self
                .connected
                .as_ref()
                .map_or(("", ClientId(0)), |connected| (&connected.id, connected.number));
            let nack = Nack::new(ty, connection, &rejection.names, &error);
            recorder.rejected(&nack.of(client, view, after, rejection.revision));
            self.dirty.add(ty);
        } else if let Some(response) = watch.in_flight.get(count.wrapping_sub(1)) {
            recorder.acknowledged(ty, now.saturating_duration_since(response.sent));
            watch.accept(count, self.fanout.clock.wall_time());
        }
        if matches!(outcome, Acknowledged::Unknown | Acknowledged::Older(_)) {
            recorder.expired_nonce(ty);
        }
        self.order.answered(ty, watch.in_flight.range(..count));
        watch.answered(count);
        outcome
    }

    /// Checks the stream's limits against a new subscription to the type, including resources that the client
    /// lists as `known`.
    fn check_limits(
        &self,
        ty: ResourceType,
        subscription: SubscriptionKey,
        known: Known,
    ) -> Result<(), LimitExceeded> {
        let larger = |subscription: &SubscriptionKey, known: Known| {
            (subscription.count.max(known.count), subscription.bytes.max(known.bytes))
        };
        let (mut count, mut bytes) = larger(&subscription, known);
        for (_, watch) in self.watches.iter().filter(|(other, _)| *other != ty) {
            let Some(watch) = watch else { continue };
            let (more, more_bytes) = larger(&watch.membership.key.subscription, watch.known);
            count += more;
            bytes += more_bytes;
        }
        let limits = &self.fanout.limits;
        Limit::Subscriptions.check(count, limits.subscriptions)?;
        Limit::SubscriptionBytes.check(bytes, limits.subscription_bytes)
    }

    /// Time at which [`Stream::poll_response`] has to be called even without an event.
    pub fn deadline(&self) -> Option<Instant> {
        self.order.deadline()
    }

    /// Status for debug pages; `None` before the first request.
    pub fn status(&self) -> Option<ConnectionStatus> {
        let connected = self.connected.as_ref()?;
        let status = |ty, watch: &Watch| watch.status(self.mark.says(ty));
        let types = self.watches.iter().filter_map(|(ty, watch)| Some((ty, status(ty, watch.as_ref()?))));
        Some(ConnectionStatus {
            id: connected.id.clone(),
            client: connected.number,
            node: ClientNode::new(&connected.node),
            peer: self.peer.clone(),
            certificate: self.fanout.source.workload_certificate(&connected.client),
            connected_at: connected.at,
            protocol: self.protocol,
            types: types.collect(),
            began: connected.began,
            concerned: self.mark.revision(),
        })
    }

    /// Acknowledgement progress; `None` before the first request.
    fn progress(&self) -> Option<Progress> {
        let connected = self.connected.as_ref()?;
        let watches = || self.watches.iter().filter_map(|(ty, watch)| Some((ty, watch.as_ref()?)));
        let lacking = |ty| self.watches[ty].as_ref()?.lacking(self.mark.says(ty));
        Some(Progress {
            client: connected.number,
            lacking: EnumMap::from_fn(lacking),
            acked_at: watches().filter_map(|(_, watch)| watch.acked_at()).max(),
            refuses: watches().any(|(_, watch)| watch.rejection.is_some()),
        })
    }

    /// The last refusal of a type.
    pub fn rejection(&self, ty: ResourceType) -> Option<&Rejection> {
        self.watches[ty].as_ref()?.rejection.as_ref().map(|(_, rejection)| rejection)
    }
}

impl<S: ResourceSource> Drop for Stream<S> {
    fn drop(&mut self) {
        for (_, watch) in &self.watches {
            if let Some(watch) = watch {
                self.fanout.leave(&watch.membership);
            }
        }
        self.fanout.closed(self.slot);
        if let Some(connected) = &self.connected {
            self.fanout.unregister(connected.number, &self.mark);
            self.fanout.recorder.disconnected();
            if let Some(left_out) = self.fanout.may_log() {
                tracing::info!(connection = shown(&connected.id), left_out, "disconnected");
            }
        }
    }
}

/// True if the client is a gRPC library and not a proxy.
fn is_grpc(node: &Node) -> bool {
    use prost_types::value::Kind;
    let generator = node.metadata.as_ref().and_then(|metadata| metadata.fields.get("GENERATOR"));
    let says_so =
        |value: &prost_types::Value| matches!(&value.kind, Some(Kind::StringValue(kind)) if kind == "grpc");
    generator.is_some_and(says_so) || node.user_agent_name.to_ascii_lowercase().starts_with("grpc")
}
