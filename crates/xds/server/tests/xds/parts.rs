//! Views that are made of parts: of a client's own and of what clients share.

use crate::support::{Got, Memory, Peer, body, fanout, version};
use pilotfish_proto::ResourceType::{Cluster, Endpoint, Listener};
use pilotfish_xds::{ClientId, Fanout, Protocol, Response};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Fan = Arc<Fanout<Memory>>;

/// Parts by the class that their resources are set in. Classes 1 and 2 see a part of their own over what they
/// share.
const OWN: u32 = 11;
const OTHER: u32 = 12;
const SELECTIVE: u32 = 13;
const SHARED: u32 = 14;

/// The clusters `a` and `b` shared, `in-1` and `in-2` of one class each.
fn composed() -> Fan {
    let fanout = fanout();
    let source = fanout.source();
    source.compose(0, &[OWN, SHARED]);
    source.compose(1, &[OWN, SHARED]);
    source.compose(2, &[OTHER, SELECTIVE, SHARED]);
    for (part, name) in [(OWN, "in-1"), (OTHER, "in-2"), (SHARED, "a"), (SHARED, "b")] {
        source.set(part, Cluster, name, "1");
    }
    publish(&fanout);
    fanout
}

fn publish(fanout: &Fan) {
    fanout.publish(&fanout.source().commit());
}

/// A client of a class; the first of a fan-out has the number 0.
fn client(fanout: &Fan, number: u64, class: u32) -> Peer {
    fanout.source().move_client(ClientId(number), class);
    publish(fanout);
    Peer::delta(fanout)
}

fn version_of(name: &str, content: &str) -> String {
    format!("{:016x}", version(&body(Cluster, name, content)))
}

/// What one response says: names and contents, and what is gone.
fn one(got: Vec<Got>) -> (Vec<(String, String)>, Vec<String>) {
    assert_eq!(got.len(), 1, "{got:?}");
    let got = got.into_iter().next().unwrap();
    (got.resources, got.removed)
}

fn is(names: &[(&str, &str)], removed: &[&str]) -> (Vec<(String, String)>, Vec<String>) {
    let resources = names.iter().map(|(name, content)| ((*name).to_owned(), version_of(name, content)));
    (resources.collect(), removed.iter().map(|name| (*name).to_owned()).collect())
}

fn reads(fanout: &Fan) -> u64 {
    fanout.source().reads.load(Ordering::SeqCst)
}

#[test]
fn a_client_sees_all_parts_and_follows_each() {
    let fanout = composed();
    let mut peers = [client(&fanout, 0, 1), client(&fanout, 1, 2)];
    for (peer, own) in peers.iter_mut().zip(["in-1", "in-2"]) {
        peer.ask(Cluster, &[]);
        assert_eq!(one(peer.settle()), is(&[(own, "1"), ("a", "1"), ("b", "1")], &[]));
    }
    // What they share.
    fanout.source().set(SHARED, Cluster, "a", "2");
    fanout.source().remove(SHARED, Cluster, "b");
    publish(&fanout);
    for peer in &mut peers {
        assert_eq!(one(peer.settle()), is(&[("a", "2")], &["b"]));
    }
    // One's own.
    fanout.source().set(OWN, Cluster, "in-1", "2");
    publish(&fanout);
    let [first, second] = &mut peers;
    assert_eq!(one(first.settle()), is(&[("in-1", "2")], &[]));
    assert!(second.settle().is_empty());
    // Both at once, and a part between them.
    fanout.source().set(OTHER, Cluster, "in-2", "2");
    fanout.source().set(SELECTIVE, Cluster, "dns", "1");
    fanout.source().set(SHARED, Cluster, "b", "2");
    publish(&fanout);
    assert_eq!(one(first.settle()), is(&[("b", "2")], &[]));
    assert_eq!(one(second.settle()), is(&[("b", "2"), ("dns", "1"), ("in-2", "2")], &[]));
}

#[test]
fn the_first_part_that_has_a_name_wins() {
    let fanout = composed();
    let mut peer = client(&fanout, 0, 1);
    peer.ask(Cluster, &[]);
    peer.settle();

    fanout.source().set(OWN, Cluster, "a", "own");
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[("a", "own")], &[]));
    // What is hidden may change, and go and come back.
    for content in ["2", "3"] {
        fanout.source().set(SHARED, Cluster, "a", content);
        publish(&fanout);
        fanout.source().remove(SHARED, Cluster, "a");
        publish(&fanout);
        fanout.source().set(SHARED, Cluster, "a", content);
        publish(&fanout);
        assert!(peer.settle().is_empty());
    }
    // A newcomer is sent each name once.
    let mut late = client(&fanout, 1, 1);
    late.ask(Cluster, &[]);
    assert_eq!(one(late.settle()), is(&[("a", "own"), ("in-1", "1"), ("b", "1")], &[]));
    for peer in [&mut peer, &mut late] {
        assert!(peer.settle().is_empty());
    }

    fanout.source().remove(OWN, Cluster, "a");
    publish(&fanout);
    for peer in [&mut peer, &mut late] {
        assert_eq!(one(peer.settle()), is(&[("a", "3")], &[]));
    }
    // The same content in both is one resource, whichever part it comes from.
    fanout.source().set(OWN, Cluster, "a", "3");
    publish(&fanout);
    fanout.source().remove(SHARED, Cluster, "a");
    publish(&fanout);
    assert!(peer.settle().is_empty());
    fanout.source().remove(OWN, Cluster, "a");
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[], &["a"]));
}

#[test]
fn a_change_of_view_sends_what_the_parts_differ_in() {
    let fanout = composed();
    fanout.source().set(SELECTIVE, Cluster, "b", "selective");
    let mut peer = client(&fanout, 0, 1);
    peer.ask(Cluster, &[]);
    peer.settle();
    for (class, resources, removed) in
        [(2, vec![("b", "selective"), ("in-2", "1")], "in-1"), (1, vec![("b", "1"), ("in-1", "1")], "in-2")]
    {
        fanout.source().move_client(ClientId(0), class);
        publish(&fanout);
        assert_eq!(one(peer.settle()), is(&resources, &[removed]));
    }
    // Another class with the same parts.
    fanout.source().move_client(ClientId(0), 0);
    publish(&fanout);
    assert!(peer.settle().is_empty());
    // To a view without parts, and back.
    fanout.source().set(3, Cluster, "a", "1");
    fanout.source().move_client(ClientId(0), 3);
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[], &["b", "in-1"]));
    fanout.source().move_client(ClientId(0), 1);
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[("b", "1"), ("in-1", "1")], &[]));
}

#[test]
fn streams_that_join_around_a_publication_miss_nothing() {
    let fanout = composed();
    let mut early = client(&fanout, 0, 1);
    early.ask(Cluster, &[]);
    early.settle();
    // The source is ahead of what was published: of a part that is known, of one that is not, and of both.
    fanout.source().set(SHARED, Cluster, "a", "2");
    fanout.source().set(OTHER, Cluster, "in-2", "2");
    fanout.source().move_client(ClientId(1), 2);
    let publication = fanout.source().commit();
    let mut joins = Peer::delta(&fanout);
    joins.ask(Cluster, &[]);
    joins.settle();
    fanout.publish(&publication);
    joins.settle();
    let all = |peer: &Peer| {
        let status = peer.stream.lock().status().unwrap();
        status.types[&Cluster].resources
    };
    assert_eq!((all(&joins), one(early.settle())), (3, is(&[("a", "2")], &[])));
    let mut late = client(&fanout, 2, 2);
    late.ask(Cluster, &[]);
    let (resources, _) = one(late.settle());
    assert_eq!(resources, is(&[("in-2", "2"), ("a", "2"), ("b", "1")], &[]).0);
    // Who says to have all of that is sent nothing but an answer.
    let mut again = client(&fanout, 3, 2);
    again.resume(Cluster, &[], &resources);
    assert_eq!(one(again.settle()), is(&[], &[]));
}

#[test]
fn a_resource_that_moves_between_parts_is_never_gone() {
    let fanout = composed();
    fanout.source().set(SELECTIVE, Cluster, "moves", "1");
    let mut early = client(&fanout, 0, 1);
    early.ask(Cluster, &[]);
    early.settle();
    // The shared part is read, and the source is ahead: of the selective one only what it will be can be
    // read.
    fanout.source().remove(SELECTIVE, Cluster, "moves");
    fanout.source().set(SHARED, Cluster, "moves", "1");
    fanout.source().move_client(ClientId(1), 2);
    let first = fanout.source().commit();
    fanout.source().set(OTHER, Cluster, "in-2", "2");
    let second = fanout.source().commit();
    let mut joins = Peer::delta(&fanout);
    let have = is(&[("a", "1"), ("b", "1"), ("in-2", "2"), ("moves", "1")], &[]).0;
    joins.resume(Cluster, &[], &have);
    assert_eq!(one(joins.settle()), is(&[], &[]), "it has all of it");
    let mut fresh = Peer::delta(&fanout);
    fanout.source().move_client(ClientId(2), 2);
    fresh.ask(Cluster, &[]);
    assert_eq!(one(fresh.settle()).0.len(), 4);
    for publication in [first, second] {
        fanout.publish(&publication);
        assert!(joins.settle().is_empty() && fresh.settle().is_empty());
    }
    assert_eq!(one(early.settle()), is(&[("moves", "1")], &[]));
    publish(&fanout);
    // It has no listeners, for which removals would wait.
    joins.later(std::time::Duration::from_secs(5));
    assert!(joins.settle().is_empty());
    fanout.source().remove(SHARED, Cluster, "moves");
    publish(&fanout);
    for peer in [&mut early, &mut joins, &mut fresh] {
        assert_eq!(one(peer.settle()), is(&[], &["moves"]));
    }
}

#[test]
fn streams_that_come_and_go_beside_publications_end_with_what_there_is() {
    const ROUNDS: usize = 100;
    let fanout = composed();
    let source = fanout.source();
    let mut peers: Vec<(Peer, BTreeMap<String, String>)> = Vec::new();
    let settle = |(peer, have): &mut (Peer, BTreeMap<String, String>)| {
        for got in peer.settle() {
            have.extend(got.resources);
            got.removed.iter().for_each(|name| drop(have.remove(name)));
        }
    };
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            for round in 0..ROUNDS {
                let content = round.to_string();
                source.set(SHARED, Cluster, "a", &content);
                source.set([OWN, OTHER, SELECTIVE][round % 3], Cluster, "b", &content);
                source.remove([OWN, OTHER, SELECTIVE][(round + 1) % 3], Cluster, "b");
                publish(&fanout);
            }
        });
        let mut number = 0;
        while !publishing.is_finished() || number < 50 {
            source.move_client(ClientId(number), 1 + u32::try_from(number % 2).unwrap());
            number += 1;
            let mut peer = Peer::delta(&fanout);
            peer.ask(Cluster, &[]);
            peers.push((peer, BTreeMap::new()));
            // Some stay, and at times nobody does.
            match number % 7 {
                0 => peers.clear(),
                n => drop(peers.drain(..peers.len().saturating_sub(n as usize))),
            }
            peers.iter_mut().for_each(settle);
        }
    });
    publish(&fanout);
    peers.iter_mut().for_each(settle);
    for (peer, have) in &peers {
        let number = peer.stream.lock().status().unwrap().client.0;
        let class = 1 + u32::try_from(number % 2).unwrap();
        let all = source.all(class, Cluster).into_iter();
        let all: BTreeMap<_, _> = all.map(|(name, version)| (name, format!("{version:016x}"))).collect();
        assert_eq!(*have, all, "client {number}");
    }
    drop(peers);
    assert_eq!((fanout.part_count(), fanout.whole_count(), fanout.group_count()), (0, 0, 0));
}

#[test]
fn names_are_subscribed_to_across_all_parts() {
    let fanout = composed();
    let mut peer = client(&fanout, 0, 1);
    peer.ask(Cluster, &["a", "in-1", "none"]);
    assert_eq!(one(peer.settle()), is(&[("a", "1"), ("in-1", "1")], &["none"]));
    assert_eq!((fanout.part_count(), fanout.whole_count()), (0, 0), "nothing is kept as a whole");

    fanout.source().set(SHARED, Cluster, "a", "2");
    fanout.source().set(SHARED, Cluster, "b", "2");
    fanout.source().set(OWN, Cluster, "none", "1");
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[("a", "2"), ("none", "1")], &[]));
    fanout.source().set(OWN, Cluster, "a", "own");
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[("a", "own")], &[]));
    fanout.source().set(SHARED, Cluster, "a", "3");
    publish(&fanout);
    assert!(peer.settle().is_empty(), "it is hidden");
    fanout.source().remove(OWN, Cluster, "a");
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[("a", "3")], &[]));

    // Everything besides, and no longer.
    peer.ask(Cluster, &["*"]);
    assert_eq!(one(peer.settle()).0, is(&[("b", "2")], &[]).0);
    fanout.source().set(SHARED, Cluster, "a", "4");
    fanout.source().set(SHARED, Cluster, "b", "4");
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[("a", "4"), ("b", "4")], &[]));
    peer.unsubscribe(Cluster, &["a"]);
    peer.settle();
    fanout.source().set(SHARED, Cluster, "a", "5");
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[("a", "5")], &[]), "the wildcard has it");
    peer.unsubscribe(Cluster, &["*"]);
    peer.settle();
    assert_eq!((fanout.part_count(), fanout.whole_count()), (0, 0));
    fanout.source().set(SHARED, Cluster, "a", "6");
    fanout.source().set(SHARED, Cluster, "none", "2");
    fanout.source().set(OWN, Cluster, "in-1", "2");
    publish(&fanout);
    assert_eq!(one(peer.settle()), is(&[("in-1", "2")], &[]));
}

#[test]
fn what_nobody_needs_any_more_is_gone() {
    let fanout = composed();
    fanout.source().set(OWN, Listener, "in", "1");
    let mut first = client(&fanout, 0, 1);
    let mut second = client(&fanout, 1, 2);
    let counts = || (fanout.part_count(), fanout.whole_count(), fanout.group_count());
    first.ask(Cluster, &[]);
    assert_eq!(counts(), (2, 2, 1));
    second.ask(Cluster, &[]);
    assert_eq!(counts(), (4, 4, 2), "they have the last part in common");
    second.ask(Listener, &[]);
    second.ask(Endpoint, &["a"]);
    assert_eq!(counts(), (7, 7, 4), "parts are of one type");
    drop(second);
    assert_eq!(counts(), (2, 2, 1));
    let mut third = client(&fanout, 2, 0);
    third.ask(Cluster, &[]);
    assert_eq!(counts(), (2, 2, 2), "the same parts are the same whole, whichever view they make");
    drop(first);
    assert_eq!(counts(), (2, 2, 1));
    fanout.source().move_client(ClientId(2), 3);
    publish(&fanout);
    third.settle();
    assert_eq!(counts(), (1, 1, 1));
    drop(third);
    assert_eq!(counts(), (0, 0, 0));
    // A subscription by name to a view of several parts leaves nothing either.
    let before = reads(&fanout);
    let mut named = client(&fanout, 3, 1);
    named.ask(Cluster, &["a"]);
    drop(named);
    fanout.source().set(SHARED, Cluster, "a", "9");
    publish(&fanout);
    assert_eq!(reads(&fanout), before + 1);
}

/// A client's next response, acknowledged.
fn response(peer: &mut Peer) -> Response {
    let response = peer.stream.lock().poll_response(peer.now).expect("a response");
    let got = crate::support::decode(Protocol::Delta, &response.concat()[5..]);
    peer.ack(&got);
    response
}

#[test]
fn a_thousand_clients_share_what_they_have_in_common() {
    const MANY: u32 = 1_000;
    let fanout = fanout();
    let source = fanout.source();
    let name = |n: u32| format!("outbound|80||s{n}.ns.svc.cluster.local");
    for n in 0..MANY {
        source.compose(1_000 + n, &[10_000 + n, SHARED]);
        source.set(10_000 + n, Cluster, "inbound|80", &n.to_string());
        source.set(SHARED, Cluster, &name(n), "1");
        source.move_client(ClientId(u64::from(n)), 1_000 + n);
    }
    publish(&fanout);

    let mut peers: Vec<Peer> = (0..MANY).map(|_| Peer::delta(&fanout)).collect();
    peers.iter_mut().for_each(|peer| peer.ask(Cluster, &[]));
    // A resource that is read is one allocation, however many see it.
    assert_eq!(reads(&fanout), 2 * u64::from(MANY));
    assert_eq!((fanout.part_count(), fanout.whole_count()), (MANY as usize + 1, MANY as usize + 1));

    // Their first responses end in the same bytes, and have few of their own.
    let sent: Vec<Response> = peers
        .iter_mut()
        .map(|peer| peer.stream.lock().poll_response(peer.now).expect("a response"))
        .collect();
    let shared: BTreeMap<*const u8, usize> =
        sent.iter().flat_map(|response| &response.tail).map(|chunk| (chunk.as_ptr(), chunk.len())).collect();
    assert_eq!(shared.len(), 1);
    assert!(shared.into_values().all(|len| len > 100_000));
    assert!(sent.iter().all(|response| response.head.len() < 500));
    for (peer, response) in peers.iter_mut().zip(&sent) {
        let got = crate::support::decode(Protocol::Delta, &response.concat()[5..]);
        assert_eq!(got.resources.len(), MANY as usize + 1);
        peer.ack(&got);
        assert!(peer.settle().is_empty());
    }

    // What all see is read once when it changes, and what one sees is sent to that one.
    let before = reads(&fanout);
    fanout.source().set(SHARED, Cluster, &name(7), "2");
    publish(&fanout);
    assert_eq!(reads(&fanout), before + 1);
    for peer in &mut peers {
        assert!(response(peer).concat().len() < 500);
        assert!(peer.settle().is_empty());
    }
    fanout.source().set(10_007, Cluster, "inbound|80", "new");
    publish(&fanout);
    assert_eq!(reads(&fanout), before + 2);
    let told = peers.iter_mut().filter_map(|peer| peer.settle().pop());
    assert_eq!(told.count(), 1);
}
