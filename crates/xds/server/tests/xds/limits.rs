//! What a client may make the server keep or do, rule by rule.

use crate::support::{Memory, Peer, fanout, fanout_with};
use parking_lot::Mutex;
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint, Listener};
use pilotfish_proto::envoy::config::core::v3::Extension;
use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use pilotfish_proto::google::rpc::Status;
use pilotfish_xds::{
    Fanout, Limit, LimitExceeded, Nack, NoRecorder, NodeLimits, Protocol, Recorder, StreamError, StreamLimits,
};
use std::sync::Arc;

fn limited(change: impl FnOnce(&mut StreamLimits)) -> Arc<Fanout<Memory>> {
    let mut limits = StreamLimits::default();
    change(&mut limits);
    fanout_with(Arc::new(NoRecorder), limits)
}

fn request(ty: ResourceType, subscribe: Vec<String>, unsubscribe: Vec<String>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: ty.type_url().into(),
        resource_names_subscribe: subscribe,
        resource_names_unsubscribe: unsubscribe,
        ..Default::default()
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}")).collect()
}

fn exceeded(result: Result<(), StreamError>) -> Option<LimitExceeded> {
    match result {
        Ok(()) => None,
        Err(StreamError::ResourceExhausted(error)) => Some(error),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_request_with_more_names_than_a_stream_may_have_is_refused_unread() {
    let fanout = fanout();
    let exceed = |asked| Some(LimitExceeded { limit: Limit::Subscriptions, asked, allowed: 100_001 });
    for wildcard_first in [false, true] {
        for (subscribe, unsubscribe, expected) in [
            (vec!["a".to_owned(); 150_000], vec![String::new(); 150_000], exceed(150_000)),
            (Vec::new(), vec![String::new(); 150_000], exceed(150_000)),
        ] {
            let mut peer = Peer::delta(&fanout);
            if wildcard_first {
                peer.ask(Cluster, &[]);
            }
            let got = peer.send_delta(request(Cluster, subscribe, unsubscribe));
            assert_eq!(exceeded(got), expected);
        }
    }
}

/// With lists searched for each name, this takes minutes.
#[test]
fn many_names_are_unsubscribed_from_in_one_pass() {
    let fanout = fanout();
    let mut peer = Peer::delta(&fanout);
    let all = names("n", 50_000);
    peer.send_delta(request(Endpoint, all.clone(), names("x", 50_000))).unwrap();
    assert_eq!(peer.next().unwrap().resources.len(), 50_000);
    peer.send_delta(request(Endpoint, names("m", 500), all)).unwrap();
    assert_eq!(peer.next().unwrap().resources.len(), 500);
}

#[test]
fn what_a_client_says_it_has_counts_until_it_is_answered() {
    let fanout = limited(|limits| limits.subscriptions = 10);
    let known = |ty, count| {
        let have = names("n", count).into_iter().map(|name| (name, "1".to_owned())).collect();
        DeltaDiscoveryRequest { initial_resource_versions: have, ..request(ty, Vec::new(), Vec::new()) }
    };
    let mut peer = Peer::delta(&fanout);
    let many = exceeded(peer.send_delta(known(Cluster, 20)));
    assert_eq!(many.map(|error| (error.limit, error.asked)), Some((Limit::Subscriptions, 20)));
    let mut peer = Peer::delta(&fanout);
    peer.send_delta(known(Cluster, 8)).unwrap();
    let more = exceeded(peer.send_delta(known(Listener, 8)));
    assert_eq!(more.map(|error| error.asked), Some(16), "all types together");
    let mut peer = Peer::delta(&fanout);
    peer.send_delta(known(Cluster, 8)).unwrap();
    peer.settle();
    peer.later(std::time::Duration::from_secs(5));
    assert_eq!(peer.settle()[0].removed.len(), 8);
    peer.send_delta(known(Listener, 8)).unwrap();
}

#[test]
fn what_clients_say_they_have_counts_for_all_of_an_address() {
    let listed = 8 * (192 + 2);
    let fanout = limited(|limits| limits.address_subscription_bytes = listed + 100);
    let known = || {
        let have = names("n", 8).into_iter().map(|name| (name, "1".to_owned())).collect();
        DeltaDiscoveryRequest { initial_resource_versions: have, ..request(Cluster, Vec::new(), Vec::new()) }
    };
    let mut one = Peer::delta(&fanout);
    one.send_delta(known()).unwrap();
    assert_eq!(fanout.subscription_bytes(), listed);
    let mut other = Peer::delta(&fanout);
    let refused = exceeded(other.send_delta(known()));
    assert_eq!(refused.map(|error| error.limit), Some(Limit::AddressSubscriptionBytes));
    drop(other);
    one.settle();
    one.later(std::time::Duration::from_secs(5));
    assert_eq!(one.settle()[0].removed.len(), 8);
    assert_eq!(fanout.subscription_bytes(), 0, "it is answered");
    let mut other = Peer::delta(&fanout);
    other.send_delta(known()).unwrap();
    drop((one, other));
    assert_eq!((fanout.subscription_bytes(), fanout.group_count()), (0, 0));
}

#[test]
fn many_names_that_are_asked_for_again_count_until_they_are_answered() {
    let fanout = limited(|limits| limits.few_subscriptions = 3);
    let mut peer = Peer::delta(&fanout);
    peer.send_delta(request(Endpoint, names("n", 8), Vec::new())).unwrap();
    peer.settle();
    let before = fanout.subscription_bytes();
    for _ in 0..3 {
        peer.send_delta(request(Endpoint, names("n", 8), Vec::new())).unwrap();
        assert_eq!(fanout.subscription_bytes(), before + 8 * 64, "however often");
    }
    peer.settle();
    assert_eq!(fanout.subscription_bytes(), before);
    peer.send_delta(request(Endpoint, names("n", 3), Vec::new())).unwrap();
    assert_eq!(fanout.subscription_bytes(), before, "few do not");
}

#[test]
fn large_nodes_count_for_all_of_an_address_and_leave_room_for_small_ones() {
    let fanout = limited(|limits| (limits.address_node_bytes, limits.small_node) = (3_000, 500));
    let connect = |id: String| {
        let mut peer = Peer::delta(&fanout);
        peer.node.id = id;
        let got = exceeded(peer.send_delta(request(Cluster, Vec::new(), Vec::new())));
        (peer, got.map(|error| error.limit))
    };
    let large = [connect("x".repeat(1_000)), connect("y".repeat(1_000))];
    assert!(large.iter().all(|(_, refused)| refused.is_none()));
    assert!((2_000..2_100).contains(&fanout.node_bytes()), "{} bytes", fanout.node_bytes());
    let third = connect("z".repeat(1_000));
    assert_eq!(third.1, Some(Limit::AddressNodeBytes));
    let small = connect("z".into());
    assert_eq!(small.1, None);
    drop((large, third, small));
    assert_eq!(fanout.node_bytes(), 0);
}

/// What a name of two letters counts as: in the index, and in its subscription.
const NAME: usize = 512 + 4 * 2;
const SUBSCRIBED: usize = 96;

#[test]
fn one_stream_cannot_take_all_names_from_those_that_ask_for_few() {
    let whole = 12 * (NAME + SUBSCRIBED);
    let fanout = limited(|limits| (limits.address_subscription_bytes, limits.few_subscriptions) = (whole, 3));
    let ask = |names: Vec<String>| {
        let mut peer = Peer::delta(&fanout);
        let got = exceeded(peer.send_delta(request(Endpoint, names, Vec::new())));
        (peer, got.map(|error| (error.limit, error.asked)))
    };
    let (large, refused) = ask(names("a", 8));
    assert_eq!(refused, None);
    let (_, refused) = ask(names("b", 4));
    let asked = 12 * (NAME + SUBSCRIBED);
    assert_eq!(refused, Some((Limit::AddressSubscriptionBytes, asked)), "a quarter is for others");
    let (same, refused) = ask(names("a", 8));
    assert_eq!(refused, None, "a subscription that is there costs nothing");
    let (few, refused) = ask(names("c", 3));
    assert_eq!(refused, None);
    let (_, refused) = ask(names("d", 3));
    assert_eq!(refused.map(|error| error.0), Some(Limit::AddressSubscriptionBytes), "few are limited too");
    drop((large, few));
    let (_, refused) = ask(names("b", 4));
    assert_eq!(refused.map(|error| error.0), Some(Limit::AddressSubscriptionBytes), "the names are there");
    drop(same);
    assert_eq!(fanout.subscription_bytes(), 0, "what nobody has does not count");
    let (_, refused) = ask(names("b", 4));
    assert_eq!(refused, None);
}

#[test]
fn the_same_names_in_many_subscriptions_count_in_each() {
    let fanout = limited(|limits| limits.address_subscription_bytes = 10 * NAME + 30 * SUBSCRIBED);
    let mut peers = Vec::new();
    for left_out in 0..3 {
        let mut names = names("a", 10);
        names.remove(left_out);
        let mut peer = Peer::delta(&fanout);
        peer.send_delta(request(Endpoint, names, Vec::new())).unwrap();
        peers.push(peer);
    }
    assert_eq!(fanout.subscription_bytes(), 10 * NAME + 27 * SUBSCRIBED);
    let mut peer = Peer::delta(&fanout);
    let refused = exceeded(peer.send_delta(request(Endpoint, names("a", 7), Vec::new())));
    assert_eq!(refused.map(|error| error.limit), Some(Limit::AddressSubscriptionBytes));
    drop(peer);
    // Less of a subscription is never too much.
    peers[0].send_delta(request(Endpoint, Vec::new(), names("a", 9))).unwrap();
    assert_eq!(fanout.subscription_bytes(), 10 * NAME + 19 * SUBSCRIBED);
    peers.clear();
    assert_eq!(fanout.subscription_bytes(), 0);
}

#[test]
fn names_that_are_too_many_in_the_middle_of_a_request_are_given_back() {
    let fanout = limited(|limits| limits.address_subscription_bytes = 8_000 * 700);
    for protocol in [Protocol::Delta, Protocol::Sotw] {
        let mut peer = Peer::new(&fanout, protocol);
        peer.ask(Endpoint, &["a"]);
        let sent = peer.next();
        let refused = match protocol {
            Protocol::Delta => peer.send_delta(request(Endpoint, names("n", 9_000), Vec::new())),
            Protocol::Sotw => peer.send_sotw(DiscoveryRequest {
                type_url: Endpoint.type_url().into(),
                resource_names: names("n", 9_000),
                response_nonce: sent.unwrap().nonce,
                ..Default::default()
            }),
        };
        assert_eq!(exceeded(refused).map(|error| error.limit), Some(Limit::AddressSubscriptionBytes));
        drop(peer);
        assert_eq!((fanout.subscription_bytes(), fanout.group_count()), (0, 0));
    }
}

#[test]
fn what_a_client_never_acknowledges_is_not_kept_when_it_unsubscribes() {
    let fanout = fanout();
    fanout.publish(&fanout.source().commit());
    let mut peer = Peer::delta(&fanout);
    let all = names("n", 2_000);
    for name in &all {
        fanout.source().set(0, Endpoint, name, "1");
    }
    fanout.publish(&fanout.source().commit());
    peer.send_delta(request(Endpoint, all.clone(), Vec::new())).unwrap();
    let first = peer.next().unwrap();
    peer.send_delta(request(Endpoint, vec!["n1".into()], all)).unwrap();
    peer.settle();
    let refused = DeltaDiscoveryRequest {
        response_nonce: first.nonce,
        error_detail: Some(Status { message: "no".into(), ..Default::default() }),
        ..request(Endpoint, Vec::new(), Vec::new())
    };
    peer.send_delta(refused).unwrap();
    let rejection = peer.stream.lock().rejection(Endpoint).cloned().unwrap();
    assert!(rejection.names.is_empty(), "{} names", rejection.names.len());
}

#[test]
fn the_source_hears_of_names_that_nobody_has_any_more() {
    let fanout = fanout();
    let (mut one, mut two) = (Peer::delta(&fanout), Peer::delta(&fanout));
    one.ask(Endpoint, &["a", "b"]);
    two.ask(Endpoint, &["b", "c"]);
    let free = || std::mem::take(&mut *fanout.source().free.lock());
    one.unsubscribe(Endpoint, &["b"]);
    assert!(free().is_empty(), "another stream has it");
    two.unsubscribe(Endpoint, &["b", "c"]);
    assert_eq!(free(), ["b", "c"]);
    drop(one);
    assert_eq!(free(), ["a"]);
    let mut state_of_the_world = Peer::sotw(&fanout);
    state_of_the_world.ask(Endpoint, &["d", "e"]);
    let nonce = state_of_the_world.next().unwrap().nonce;
    state_of_the_world.answer(Endpoint, &["e"], &nonce);
    assert_eq!(free(), ["d"]);
}

#[test]
fn names_that_are_asked_for_again_and_again_are_answered_once() {
    let fanout = fanout();
    fanout.source().set(0, Cluster, "a", "1");
    fanout.publish(&fanout.source().commit());
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &["a", "b"]);
    peer.next().unwrap();
    for _ in 0..100 {
        peer.ask(Cluster, &["a", "b", "c"]);
    }
    peer.unsubscribe(Cluster, &["c"]);
    let got = peer.next().unwrap();
    assert_eq!((got.names(), &got.removed[..]), (vec!["a"], &["b".to_owned()][..]));
    assert!(peer.next().is_none());
}

#[test]
fn a_large_answer_for_one_stream_comes_in_parts() {
    let fanout = fanout();
    let all = names("n", 30);
    for name in &all {
        fanout.source().set(0, Endpoint, name, &"x".repeat(100 << 10));
    }
    fanout.publish(&fanout.source().commit());
    for protocol in [Protocol::Delta, Protocol::Sotw] {
        let mut peer = Peer::new(&fanout, protocol);
        peer.ask(Endpoint, &["n0"]);
        let nonce = peer.next().unwrap().nonce;
        match protocol {
            Protocol::Delta => peer.send_delta(request(Endpoint, all.clone(), Vec::new())),
            Protocol::Sotw => peer.send_sotw(DiscoveryRequest {
                type_url: Endpoint.type_url().into(),
                resource_names: all.clone(),
                response_nonce: nonce,
                ..Default::default()
            }),
        }
        .unwrap();
        let parts: Vec<usize> =
            std::iter::from_fn(|| peer.next()).map(|response| response.resources.len()).collect();
        let asked = if protocol == Protocol::Delta { 30 } else { 29 };
        assert_eq!((parts.len(), parts.iter().sum::<usize>()), (3, asked), "{parts:?}");
    }
}

#[test]
fn a_node_that_holds_too_much_is_refused() {
    let fanout = limited(|limits| limits.node = NodeLimits { id_bytes: 10, ..NodeLimits::default() });
    let mut peer = Peer::delta(&fanout);
    peer.node.id = "x".repeat(11);
    let refused = exceeded(peer.send_delta(request(Cluster, Vec::new(), Vec::new())));
    assert_eq!(refused.map(|error| error.limit), Some(Limit::NodeIdBytes));
    let mut peer = Peer::delta(&fanout);
    peer.node.id = "x".into();
    peer.node.extensions = vec![Extension::default(); 2_000];
    peer.send_delta(request(Cluster, Vec::new(), Vec::new())).unwrap();
    assert_eq!(fanout.connections()[0].node.extensions.len(), 1, "nobody reads the others");
}

/// Remembers how long the ids of connections in refusals are.
#[derive(Default)]
struct Refusals(Mutex<Vec<(usize, usize)>>);

impl Recorder for Refusals {
    fn rejected(&self, nack: &Nack<'_>) {
        self.0.lock().push((nack.connection.len(), nack.reason().len()));
    }
}

#[test]
fn a_refusal_of_nothing_costs_a_short_line() {
    let refusals = Arc::new(Refusals::default());
    let fanout = fanout_with(Arc::clone(&refusals) as Arc<dyn Recorder>, StreamLimits::default());
    let mut peer = Peer::delta(&fanout);
    peer.node.id = "x".repeat(1_000);
    peer.ask(Cluster, &[]);
    let error_detail = Some(Status { message: "y".repeat(100_000), ..Default::default() });
    peer.send_delta(DeltaDiscoveryRequest { error_detail, ..request(Cluster, Vec::new(), Vec::new()) })
        .unwrap();
    assert_eq!(*refusals.0.lock(), [(256, 605)]);
}
