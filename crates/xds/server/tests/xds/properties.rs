//! What must hold over any history of changes and requests.

use crate::support::{Got, Memory, Peer, body, fanout, fanout_that_knows_absent, version};
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint, Listener, Route};
use pilotfish_proto::envoy::service::discovery::v3 as discovery;
use pilotfish_xds::{ClientId, Fanout, PeerInfo, Protocol};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const TYPES: [ResourceType; 4] = [Cluster, Endpoint, Listener, Route];

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Set { place: u32, ty: usize, name: usize, content: u8 },
    Remove { place: u32, ty: usize, name: usize },
    Publish,
    Move { class: u32 },
    Ask { ty: usize, names: Vec<usize> },
    Drop { ty: usize, names: Vec<usize> },
    Poll { refuse: bool, answer: bool },
    Wait { seconds: u64 },
    Reconnect { resume: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (ty, name, class, place) = (0..TYPES.len(), 0..NAMES.len(), 0..2_u32, 0..4_u32);
    let names = proptest::collection::vec(0..NAMES.len(), 1..4);
    let step = prop_oneof![
        6 => (place.clone(), ty.clone(), name.clone(), 0..3_u8)
            .prop_map(|(place, ty, name, content)| Step::Set { place, ty, name, content }),
        2 => (place, ty.clone(), name).prop_map(|(place, ty, name)| Step::Remove { place, ty, name }),
        4 => Just(Step::Publish),
        1 => class.prop_map(|class| Step::Move { class }),
        2 => (ty.clone(), names.clone()).prop_map(|(ty, names)| Step::Ask { ty, names }),
        1 => (ty, names).prop_map(|(ty, names)| Step::Drop { ty, names }),
        6 => (any::<bool>(), any::<bool>())
            .prop_map(|(refuse, answer)| Step::Poll { refuse: refuse && answer, answer }),
        1 => (1..8_u64).prop_map(|seconds| Step::Wait { seconds }),
        1 => any::<bool>().prop_map(|resume| Step::Reconnect { resume }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What the two classes of clients see: each resources of its own, or parts, of which they share the last.
#[derive(Clone, Copy, Debug)]
enum Views {
    Alone,
    Composed,
}

impl Views {
    fn set_up(self, fanout: &Fanout<Memory>) {
        if let Self::Composed = self {
            fanout.source().compose(0, &[10, 12]);
            fanout.source().compose(1, &[11, 13, 12]);
        }
    }

    /// The class or part of the resources at a place.
    fn class(self, place: u32, ty: ResourceType) -> u32 {
        match self {
            Self::Composed if ty.is_wildcard() => 10 + place,
            _ => place % 2,
        }
    }
}

/// A client of one protocol and what it knows.
struct Model {
    fanout: Arc<Fanout<Memory>>,
    peer: Peer,
    number: u64,
    class: u32,
    /// Names subscribed to; `None` is everything.
    subscribed: BTreeMap<ResourceType, Option<BTreeSet<String>>>,
    have: BTreeMap<ResourceType, BTreeMap<String, String>>,
    nonces: BTreeMap<ResourceType, String>,
    /// What may be sent again although it did not change.
    excused: Vec<(ResourceType, String)>,
}

impl Model {
    /// With `named`, clusters are subscribed to by name, too.
    fn new(fanout: &Arc<Fanout<Memory>>, protocol: Protocol, number: u64, named: bool) -> Self {
        let mut model = Self {
            fanout: Arc::clone(fanout),
            peer: Peer::new(fanout, protocol),
            number,
            class: 0,
            subscribed: BTreeMap::new(),
            have: BTreeMap::new(),
            nonces: BTreeMap::new(),
            excused: Vec::new(),
        };
        for ty in TYPES {
            let is_named = !ty.is_wildcard() || (named && ty == Cluster);
            let names = is_named.then(|| BTreeSet::from(["a".to_owned()]));
            model.subscribed.insert(ty, names);
            model.have.insert(ty, BTreeMap::new());
        }
        model.subscribe_all(false);
        model
    }

    fn names(&self, ty: ResourceType) -> Vec<String> {
        self.subscribed[&ty].iter().flatten().cloned().collect()
    }

    fn subscribe_all(&mut self, resume: bool) {
        if resume {
            // Endpoints of a resumed client may be sent once more: its clusters may wait for them.
            self.excused.extend(NAMES.iter().map(|name| (Endpoint, (*name).to_owned())));
        }
        for ty in TYPES {
            let names = self.names(ty);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if resume {
                let have: Vec<_> = self.have[&ty].clone().into_iter().collect();
                self.peer.resume(ty, &names, &have);
            } else {
                self.have.insert(ty, BTreeMap::new());
                self.peer.ask(ty, &names);
            }
        }
    }

    fn is_delta(&self) -> bool {
        self.peer.protocol == Protocol::Delta
    }

    fn ask(&mut self, ty: ResourceType, names: &[usize], keep: bool) {
        let Some(Some(subscribed)) = self.subscribed.get_mut(&ty) else { return };
        let names: BTreeSet<String> = names.iter().map(|name| NAMES[*name].to_owned()).collect();
        let known = subscribed.clone();
        for name in &names {
            if keep {
                subscribed.insert(name.clone());
                self.excused.push((ty, name.clone()));
            } else if subscribed.len() > 1 && subscribed.remove(name) {
                self.have.get_mut(&ty).unwrap().remove(name);
            }
        }
        let subscribed = subscribed.clone();
        if self.is_delta() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if keep {
                self.peer.ask(ty, &names);
            } else {
                let gone: Vec<&str> = known.difference(&subscribed).map(String::as_str).collect();
                self.peer.unsubscribe(ty, &gone);
            }
        } else if let Some(nonce) = self.nonces.get(&ty).cloned() {
            let names = self.names(ty);
            self.peer.answer(ty, &names.iter().map(String::as_str).collect::<Vec<_>>(), &nonce);
        } else {
            // Not answered yet: the names go with the first answer.
            let names = self.names(ty);
            self.excused.extend(names.iter().map(|name| (ty, name.clone())));
            if ty == Cluster {
                // Clusters that are announced again wait for endpoints.
                self.excused.extend(NAMES.iter().map(|name| (Endpoint, (*name).to_owned())));
            }
            self.peer.ask(ty, &names.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    fn poll(&mut self, refuse: bool, answer: bool) -> Result<bool, TestCaseError> {
        let Some(got) = self.peer.next() else { return Ok(false) };
        self.take_in(&got)?;
        self.nonces.insert(got.ty, got.nonce.clone());
        let names = self.names(got.ty);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if refuse {
            self.excused.extend(got.resources.iter().map(|(name, _)| (got.ty, name.clone())));
            self.peer.nack(&got, &names, "b: is bad");
        } else if answer {
            match self.peer.protocol {
                Protocol::Delta => self.peer.ack(&got),
                Protocol::Sotw => self.peer.answer(got.ty, &names, &got.nonce),
            }
        }
        Ok(true)
    }

    fn take_in(&mut self, got: &Got) -> Result<(), TestCaseError> {
        let have = self.have.get_mut(&got.ty).unwrap();
        let whole = !self.peer.protocol.eq(&Protocol::Delta) && got.ty.is_wildcard();
        if whole {
            have.clear();
        }
        for (name, version) in &got.resources {
            let subscribed = self.subscribed[&got.ty].as_ref();
            let same = have.insert(name.clone(), version.clone()).as_ref() == Some(version);
            prop_assert!(
                !same || take(&mut self.excused, &(got.ty, name.clone())),
                "{} {name} is sent again unchanged",
                got.ty.short()
            );
            prop_assert!(subscribed.is_none_or(|names| names.contains(name)), "{name} was not subscribed");
            if got.ty == Cluster {
                self.excused.push((Endpoint, name.clone()));
            }
        }
        for name in &got.removed {
            have.remove(name);
        }
        Ok(())
    }

    fn reconnect(&mut self, resume: bool) {
        self.peer = Peer::new(&self.fanout, self.peer.protocol);
        self.class = 0;
        self.number += 2;
        self.nonces.clear();
        self.subscribe_all(resume && self.is_delta());
    }

    /// Lets the client catch up, and compares.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..8 {
            while self.poll(false, true)? {}
            // State of the world: what was requested with an old nonce is requested again.
            if !self.is_delta() {
                for ty in [Cluster, Endpoint, Route] {
                    self.ask(ty, &[], true);
                }
            }
            self.peer.later(Duration::from_secs(6));
        }
        for ty in TYPES {
            let mut expected: BTreeMap<String, String> = BTreeMap::new();
            for (name, version) in self.fanout.source().all(self.class, ty) {
                expected.insert(name, format!("{version:016x}"));
            }
            if let Some(names) = &self.subscribed[&ty] {
                expected.retain(|name, _| names.contains(name));
                for name in names.iter().filter(|_| !ty.is_wildcard()) {
                    let empty = format!("{:016x}", version(&body(ty, name, "")));
                    expected.entry(name.clone()).or_insert(empty);
                }
            }
            let mut have = self.have[&ty].clone();
            if self.is_delta() && ty == Endpoint {
                // It was told that they are absent, or it had them and has empty ones now.
                let stands_in = |name: &str, is: &str| is == format!("{:016x}", version(&body(ty, name, "")));
                have.retain(|name, is| !stands_in(name, is));
                expected.retain(|name, is| !stands_in(name, is));
            }
            prop_assert_eq!(&have, &expected, "{}", ty.short());
        }
        prop_assert!(self.peer.next().is_none());
        prop_assert!(self.peer.stream.lock().deadline().is_none());
        Ok(())
    }
}

/// Uses one excuse up.
fn take(excused: &mut Vec<(ResourceType, String)>, one: &(ResourceType, String)) -> bool {
    let at = excused.iter().position(|other| other == one);
    at.map(|at| excused.swap_remove(at)).is_some()
}

fn play(model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    match step {
        Step::Set { .. } | Step::Remove { .. } | Step::Publish => {}
        Step::Move { class } => {
            model.class = *class;
            model.fanout.source().move_client(ClientId(model.number), *class);
        }
        Step::Ask { ty, names } => model.ask(TYPES[*ty], names, true),
        Step::Drop { ty, names } => model.ask(TYPES[*ty], names, false),
        Step::Poll { refuse, answer } => drop(model.poll(*refuse, *answer)?),
        Step::Wait { seconds } => model.peer.later(Duration::from_secs(*seconds)),
        Step::Reconnect { resume } => model.reconnect(*resume),
    }
    Ok(())
}

fn change(fanout: &Fanout<Memory>, views: Views, step: &Step) {
    match step {
        Step::Set { place, ty, name, content } => {
            let class = views.class(*place, TYPES[*ty]);
            fanout.source().set(class, TYPES[*ty], NAMES[*name], &content.to_string());
        }
        Step::Remove { place, ty, name } => {
            fanout.source().remove(views.class(*place, TYPES[*ty]), TYPES[*ty], NAMES[*name]);
        }
        Step::Publish => drop(fanout.publish(&fanout.source().commit())),
        _ => {}
    }
}

/// A request that no well-behaved client would send.
#[derive(Clone, Debug)]
struct Nonsense {
    ty: usize,
    subscribe: Vec<usize>,
    unsubscribe: Vec<usize>,
    have: Vec<(usize, u8)>,
    nonce: usize,
    refused: bool,
}

fn nonsense() -> impl Strategy<Value = Nonsense> {
    let names = || proptest::collection::vec(0..=NAMES.len(), 0..4);
    let have = proptest::collection::vec((0..=NAMES.len(), 0..3_u8), 0..3);
    (0..ResourceType::ALL.len(), names(), names(), have, any::<usize>(), any::<bool>()).prop_map(
        |(ty, subscribe, unsubscribe, have, nonce, refused)| Nonsense {
            ty,
            subscribe,
            unsubscribe,
            have,
            nonce,
            refused,
        },
    )
}

impl Nonsense {
    fn names(which: &[usize]) -> Vec<String> {
        which.iter().map(|name| (*NAMES.get(*name).unwrap_or(&"*")).to_owned()).collect()
    }

    fn error(&self) -> Option<pilotfish_proto::google::rpc::Status> {
        let message = "a is bad".to_owned();
        self.refused.then(|| pilotfish_proto::google::rpc::Status { message, ..Default::default() })
    }

    fn delta(&self, response_nonce: String) -> discovery::DeltaDiscoveryRequest {
        let version = |version: u8| if version == 0 { "x".to_owned() } else { format!("{version:016x}") };
        let have = self.have.iter().map(|(name, at)| (Self::names(&[*name]).remove(0), version(*at)));
        discovery::DeltaDiscoveryRequest {
            type_url: ResourceType::ALL[self.ty].type_url().into(),
            resource_names_subscribe: Self::names(&self.subscribe),
            resource_names_unsubscribe: Self::names(&self.unsubscribe),
            initial_resource_versions: have.collect(),
            response_nonce,
            error_detail: self.error(),
            ..Default::default()
        }
    }

    fn sotw(&self, response_nonce: String) -> discovery::DiscoveryRequest {
        discovery::DiscoveryRequest {
            type_url: ResourceType::ALL[self.ty].type_url().into(),
            resource_names: Self::names(&self.subscribe),
            response_nonce,
            error_detail: self.error(),
            ..Default::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("PROPTEST_CASES").map_or(400, |cases| cases.parse().unwrap()), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn delta_accumulated_is_the_state_of_the_world_is_the_source(
        steps in steps(),
        views in prop_oneof![Just(Views::Alone), Just(Views::Composed)],
        (delta, sotw) in any::<(bool, bool)>(),
    ) {
        let fanout = fanout_that_knows_absent();
        views.set_up(&fanout);
        let mut delta = Model::new(&fanout, Protocol::Delta, 0, delta);
        let mut sotw = Model::new(&fanout, Protocol::Sotw, 1, sotw);
        for step in &steps {
            change(&fanout, views, step);
            // In this order, so that the numbers of clients are known.
            play(&mut delta, step)?;
            play(&mut sotw, step)?;
        }
        fanout.publish(&fanout.source().commit());
        delta.finish()?;
        sotw.finish()?;
        drop((delta, sotw));
        prop_assert_eq!((fanout.stream_count(), fanout.group_count()), (0, 0));
        prop_assert_eq!((fanout.part_count(), fanout.whole_count()), (0, 0));
    }

    #[test]
    fn random_bytes_as_requests_end_a_stream_or_are_passed_over(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..8),
        delta in any::<bool>(),
    ) {
        let fanout = fanout();
        let mut peer = Peer::new(&fanout, if delta { Protocol::Delta } else { Protocol::Sotw });
        peer.ask(Cluster, &[]);
        for message in messages {
            let mut stream = peer.stream.lock();
            let _ = stream.on_message(&message, peer.now);
            // Not decoded: what is answered may be of any type.
            while stream.poll_response(peer.now).is_some() {}
        }
        let stream = fanout.open(Protocol::Delta, PeerInfo::default());
        let _ = stream.lock().on_message(&[0x0a, 0x02, 0x0a, 0xff], peer.now);
    }

    #[test]
    fn well_formed_nonsense_is_answered_within_reason(
        requests in proptest::collection::vec(nonsense(), 1..40),
        delta in any::<bool>(),
    ) {
        let fanout = fanout();
        for name in NAMES {
            fanout.source().set(0, Cluster, name, "1");
        }
        let mut peer = Peer::new(&fanout, if delta { Protocol::Delta } else { Protocol::Sotw });
        let mut nonces = vec![String::new(), "ffffffffffffffff".to_owned()];
        for (i, request) in requests.iter().enumerate() {
            let nonce = nonces[request.nonce % nonces.len()].clone();
            let done = if delta {
                peer.send_delta(request.delta(nonce))
            } else {
                peer.send_sotw(request.sotw(nonce))
            };
            prop_assert!(done.is_ok());
            let got = peer.drain();
            prop_assert!(got.len() <= TYPES.len() + 1, "one request is not answered without end");
            nonces.extend(got.into_iter().map(|got| got.nonce));
            fanout.source().set(0, TYPES[i % TYPES.len()], NAMES[i % NAMES.len()], &i.to_string());
            fanout.publish(&fanout.source().commit());
            nonces.extend(peer.drain().into_iter().map(|got| got.nonce));
            peer.later(Duration::from_secs(1));
        }
        drop(peer);
        prop_assert_eq!((fanout.stream_count(), fanout.group_count()), (0, 0));
    }

    #[test]
    fn a_route_never_refers_to_a_cluster_that_is_not_warm(
        rounds in proptest::collection::vec((proptest::collection::btree_set(0..5_usize, 0..4), 0..6_usize), 1..12),
        sotw in any::<bool>(),
    ) {
        let fanout = fanout_that_knows_absent();
        let mut envoy = Envoy::new(&fanout, if sotw { Protocol::Sotw } else { Protocol::Delta });
        for (services, polls) in rounds {
            serve(&fanout, &services);
            for _ in 0..polls {
                envoy.poll()?;
            }
        }
        envoy.catch_up(&fanout)?;
    }

    #[test]
    fn a_route_never_refers_to_a_cluster_that_is_not_warm_after_reconnects_to_replicas_ahead_and_behind(
        rounds in proptest::collection::vec(round(), 1..10),
    ) {
        // Each replica learns of changes in its own time.
        let replicas = [fanout_that_knows_absent(), fanout_that_knows_absent()];
        replicas.iter().for_each(|replica| serve(replica, &BTreeSet::new()));
        let mut envoy = Envoy::new(&replicas[0], Protocol::Delta);
        let mut at = 0;
        for round in rounds {
            for (replica, _) in replicas.iter().zip(round.learns).filter(|(_, learns)| *learns) {
                serve(replica, &round.services);
            }
            for _ in 0..round.polls {
                envoy.poll()?;
            }
            if let Some(Reconnect { replica, order, polls }) = round.reconnect {
                at = replica;
                envoy.reconnect(&replicas[at], &order, polls)?;
            }
        }
        envoy.catch_up(&replicas[at])?;
    }
}

/// What happens between a client and two replicas.
#[derive(Clone, Debug)]
struct Round {
    services: BTreeSet<usize>,
    /// The replicas that have them from now on.
    learns: [bool; 2],
    polls: usize,
    reconnect: Option<Reconnect>,
}

#[derive(Clone, Debug)]
struct Reconnect {
    replica: usize,
    /// In which order the types are requested.
    order: Vec<ResourceType>,
    /// Responses that the client reads after each request.
    polls: [usize; 4],
}

fn round() -> impl Strategy<Value = Round> {
    let services = proptest::collection::btree_set(0..5_usize, 0..4);
    let order = Just(TYPES.to_vec()).prop_shuffle();
    let reconnect = (0..2_usize, order, proptest::array::uniform4(0..3_usize))
        .prop_map(|(replica, order, polls)| Reconnect { replica, order, polls });
    (services, any::<[bool; 2]>(), 0..6_usize, proptest::option::of(reconnect))
        .prop_map(|(services, learns, polls, reconnect)| Round { services, learns, polls, reconnect })
}

/// A cluster that no route refers to: no Envoy is without any.
const ALWAYS: &str = "passthrough";

/// From now on, there are these services, and a route to each.
fn serve(fanout: &Fanout<Memory>, services: &BTreeSet<usize>) {
    fanout.source().set(0, Cluster, ALWAYS, "1");
    fanout.source().set(0, Endpoint, ALWAYS, "1");
    for (i, name) in NAMES.iter().enumerate() {
        if services.contains(&i) {
            fanout.source().set(0, Cluster, name, "1");
            fanout.source().set(0, Endpoint, name, "1");
        } else {
            fanout.source().remove(0, Cluster, name);
            fanout.source().remove(0, Endpoint, name);
        }
    }
    let names: Vec<&str> = services.iter().map(|i| NAMES[*i]).collect();
    fanout.source().set(0, Listener, "l", "1");
    fanout.source().set(0, Route, "80", &names.join(","));
    fanout.publish(&fanout.source().commit());
}

/// A client that does what Envoy does: subscribes to endpoints of new clusters, and acknowledges clusters
/// when all are warm.
struct Envoy {
    peer: Peer,
    clusters: BTreeSet<String>,
    warm: BTreeSet<String>,
    subscribed: BTreeSet<String>,
    route: Vec<String>,
    unanswered: Vec<Got>,
    endpoints_nonce: String,
    /// On a new stream, it requests clusters once those that it has are warm.
    defers_clusters: bool,
    /// The versions of what it has.
    have: BTreeMap<ResourceType, BTreeMap<String, String>>,
}

impl Envoy {
    fn new(fanout: &Arc<Fanout<Memory>>, protocol: Protocol) -> Self {
        let mut peer = Peer::new(fanout, protocol);
        peer.ask(Cluster, &[]);
        peer.ask(Listener, &[]);
        peer.ask(Route, &["80"]);
        Self {
            peer,
            clusters: BTreeSet::new(),
            warm: BTreeSet::new(),
            subscribed: BTreeSet::new(),
            route: Vec::new(),
            unanswered: Vec::new(),
            endpoints_nonce: String::new(),
            defers_clusters: false,
            have: BTreeMap::new(),
        }
    }

    /// Opens another stream and requests there what it has.
    fn reconnect(
        &mut self,
        fanout: &Arc<Fanout<Memory>>,
        order: &[ResourceType],
        polls: [usize; 4],
    ) -> Result<(), TestCaseError> {
        self.peer = Peer::new(fanout, Protocol::Delta);
        self.unanswered.clear();
        // What it has nothing of yet, it requests last and in the usual order.
        let has_some = |ty: &ResourceType| self.have.get(ty).is_some_and(|have| !have.is_empty());
        let known = order.iter().filter(|ty| has_some(ty)).chain(TYPES.iter().filter(|ty| !has_some(ty)));
        let order: Vec<ResourceType> = known.copied().collect();
        self.defers_clusters = !self.clusters.is_subset(&self.warm);
        for (ty, polls) in order.iter().zip(polls) {
            if *ty != Cluster || !self.defers_clusters {
                self.request(*ty);
            }
            for _ in 0..polls {
                self.poll()?;
            }
        }
        Ok(())
    }

    /// Requests a type with what the client has of it.
    fn request(&mut self, ty: ResourceType) {
        let names: Vec<&str> = match ty {
            Endpoint => self.subscribed.iter().map(String::as_str).collect(),
            Route => vec!["80"],
            _ => Vec::new(),
        };
        let have: Vec<_> =
            self.have.get(&ty).into_iter().flatten().map(|(n, v)| (n.clone(), v.clone())).collect();
        if ty != Endpoint || !names.is_empty() {
            self.peer.resume(ty, &names, &have);
        }
    }

    /// Takes everything that comes, and compares it with what there is.
    fn catch_up(&mut self, fanout: &Fanout<Memory>) -> Result<(), TestCaseError> {
        while self.poll()? {}
        let there: BTreeSet<String> = fanout.source().all(0, Cluster).into_keys().collect();
        prop_assert_eq!(&self.clusters, &there);
        let referred: BTreeSet<_> = self.route.iter().cloned().chain([ALWAYS.to_owned()]).collect();
        prop_assert_eq!(referred, self.clusters.clone(), "and everything arrives");
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, TestCaseError> {
        let Some(got) = self.peer.next() else { return Ok(false) };
        let have = self.have.entry(got.ty).or_default();
        have.extend(got.resources.iter().cloned());
        got.removed.iter().for_each(|name| drop(have.remove(name)));
        match got.ty {
            Cluster => self.clusters_came(got)?,
            Endpoint => {
                self.warm.extend(got.names().into_iter().map(str::to_owned));
                // Envoy does not wait for what is said not to exist.
                self.warm.extend(got.removed.iter().cloned());
                self.endpoints_nonce.clone_from(&got.nonce);
                self.answer(&got);
            }
            Route => {
                if !got.resources.is_empty() {
                    self.route = contents_of_route(&got);
                }
                for name in &self.route {
                    prop_assert!(
                        self.clusters.contains(name),
                        "the route refers to {name}, which is not there"
                    );
                    prop_assert!(self.warm.contains(name), "the route refers to {name}, which is not warm");
                }
                self.answer(&got);
            }
            _ => self.answer(&got),
        }
        if self.clusters.is_subset(&self.warm) {
            for got in std::mem::take(&mut self.unanswered) {
                self.answer(&got);
            }
            if std::mem::take(&mut self.defers_clusters) {
                self.request(Cluster);
            }
        }
        Ok(true)
    }

    fn clusters_came(&mut self, got: Got) -> Result<(), TestCaseError> {
        let old = self.clusters.clone();
        if self.peer.protocol == Protocol::Sotw {
            self.clusters.clear();
        }
        self.clusters.extend(got.names().into_iter().map(str::to_owned));
        for name in &got.removed {
            self.clusters.remove(name);
        }
        for name in &self.route {
            let there = self.clusters.contains(name) || !old.contains(name);
            prop_assert!(there, "{name} is removed while the route refers to it");
        }
        self.warm.retain(|name| self.clusters.contains(name));
        self.unanswered.push(got);
        let (new, gone): (Vec<String>, Vec<String>) = (
            self.clusters.difference(&self.subscribed).cloned().collect(),
            self.subscribed.difference(&self.clusters).cloned().collect(),
        );
        self.subscribed.clone_from(&self.clusters);
        if let Some(endpoints) = self.have.get_mut(&Endpoint) {
            endpoints.retain(|name, _| self.clusters.contains(name));
        }
        if self.peer.protocol == Protocol::Sotw {
            let all: Vec<&str> = self.subscribed.iter().map(String::as_str).collect();
            if !(new.is_empty() && gone.is_empty()) {
                if self.endpoints_nonce.is_empty() {
                    self.peer.ask(Endpoint, &all);
                } else {
                    self.peer.answer(Endpoint, &all, &self.endpoints_nonce);
                }
            }
        } else {
            if !new.is_empty() {
                self.peer.ask(Endpoint, &new.iter().map(String::as_str).collect::<Vec<_>>());
            }
            if !gone.is_empty() {
                self.peer.unsubscribe(Endpoint, &gone.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
        Ok(())
    }

    fn answer(&mut self, got: &Got) {
        match (self.peer.protocol, got.ty) {
            (Protocol::Delta, _) => self.peer.ack(got),
            (Protocol::Sotw, Endpoint) => {
                let all: Vec<&str> = self.subscribed.iter().map(String::as_str).collect();
                self.peer.answer(Endpoint, &all, &got.nonce);
            }
            (Protocol::Sotw, Route) => self.peer.answer(Route, &["80"], &got.nonce),
            (Protocol::Sotw, ty) => self.peer.answer(ty, &[], &got.nonce),
        }
    }
}

/// The clusters that a route of the test refers to: found by trying all, as responses are compared by hash.
fn contents_of_route(got: &Got) -> Vec<String> {
    let version_of = |names: &[&str]| format!("{:016x}", version(&body(Route, "80", &names.join(","))));
    for choice in 0..1_u32 << NAMES.len() {
        let names: Vec<&str> =
            NAMES.iter().enumerate().filter(|(i, _)| choice & (1 << i) != 0).map(|(_, name)| *name).collect();
        if got.resources.iter().any(|(_, version)| *version == version_of(&names)) {
            return names.into_iter().map(str::to_owned).collect();
        }
    }
    Vec::new()
}
