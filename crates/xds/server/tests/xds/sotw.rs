//! State of the world, rule by rule.

use crate::support::{Got, Memory, Peer, fanout};
use pilotfish_proto::ResourceType::{Cluster, Endpoint, Listener, Route};
use pilotfish_xds::Fanout;
use std::sync::Arc;

fn publish(fanout: &Arc<Fanout<Memory>>) {
    fanout.publish(&fanout.source().commit());
}

fn one(mut got: Vec<Got>) -> Got {
    assert_eq!(got.len(), 1, "{got:?}");
    got.remove(0)
}

#[test]
fn clusters_are_complete_and_endpoints_are_not() {
    let fanout = fanout();
    for name in ["a", "b"] {
        fanout.source().set(0, Cluster, name, "1");
    }
    let mut peer = Peer::sotw(&fanout);
    peer.ask(Cluster, &[]);
    let got = one(peer.drain());
    assert_eq!(got.names(), ["a", "b"]);
    peer.answer(Cluster, &[], &got.nonce);
    peer.ask(Endpoint, &["a", "b"]);
    let got = one(peer.drain());
    assert_eq!(got.names(), ["a", "b"]);
    peer.answer(Endpoint, &["a", "b"], &got.nonce);
    assert!(peer.next().is_none());

    fanout.source().set(0, Endpoint, "b", "2");
    publish(&fanout);
    let got = one(peer.drain());
    assert_eq!((got.ty, got.names()), (Endpoint, vec!["b"]));

    let version = fanout.connections()[0].types[&Cluster].sent_nonce.clone();
    fanout.source().remove(0, Cluster, "a");
    publish(&fanout);
    let got = one(peer.drain());
    assert_eq!((got.ty, got.names()), (Cluster, vec!["b"]));
    assert_ne!(Some(got.nonce), version);
}

#[test]
fn added_names_are_answered_and_removed_ones_are_not() {
    let fanout = fanout();
    let mut peer = Peer::sotw(&fanout);
    peer.ask(Endpoint, &["a", "b"]);
    let got = one(peer.drain());
    peer.answer(Endpoint, &["a", "b", "c"], &got.nonce);
    let got = one(peer.drain());
    assert_eq!(got.names(), ["c"]);
    peer.answer(Endpoint, &["c"], &got.nonce);
    assert!(peer.next().is_none());
    for name in ["a", "c"] {
        fanout.source().set(0, Endpoint, name, "2");
    }
    publish(&fanout);
    assert_eq!(one(peer.drain()).names(), ["c"]);
}

#[test]
fn no_names_of_a_named_type_end_the_watch() {
    let fanout = fanout();
    let mut peer = Peer::sotw(&fanout);
    peer.ask(Endpoint, &[]);
    assert!(peer.next().is_none());
    peer.ask(Endpoint, &["a"]);
    let got = one(peer.drain());
    peer.answer(Endpoint, &[], &got.nonce);
    fanout.source().set(0, Endpoint, "a", "2");
    publish(&fanout);
    assert!(peer.next().is_none());
    assert!(fanout.connections()[0].types.is_empty());
}

#[test]
fn an_old_nonce_changes_nothing_and_no_nonce_starts_again() {
    let fanout = fanout();
    let mut peer = Peer::sotw(&fanout);
    // A nonce of an earlier stream.
    peer.answer(Endpoint, &["a"], "00000000000000ff");
    let first = one(peer.drain());
    fanout.source().set(0, Endpoint, "a", "2");
    publish(&fanout);
    let second = one(peer.drain());
    peer.answer(Endpoint, &["a", "b"], &first.nonce);
    assert!(peer.next().is_none(), "the names of an old request are old");
    peer.answer(Endpoint, &["a", "b"], &second.nonce);
    assert_eq!(one(peer.drain()).names(), ["b"]);
    // No nonce: the client starts again.
    peer.ask(Endpoint, &["a"]);
    assert_eq!(one(peer.drain()).names(), ["a"]);
}

#[test]
fn a_refusal_is_silent_and_the_old_names_stay() {
    let fanout = fanout();
    fanout.source().set(0, Listener, "l", "1");
    let mut peer = Peer::sotw(&fanout);
    peer.ask(Listener, &[]);
    let got = one(peer.drain());
    peer.nack(&got, &[], "no such filter");
    assert!(peer.next().is_none());
    let connection = &fanout.connections()[0];
    assert_eq!(connection.types[&Listener].rejection.as_ref().unwrap().error, "no such filter");
    fanout.source().set(0, Listener, "l", "2");
    publish(&fanout);
    assert_eq!(one(peer.drain()).names(), ["l"]);
}

#[test]
fn after_new_clusters_the_next_request_for_endpoints_is_answered_even_if_it_looks_like_an_ack() {
    let fanout = fanout();
    fanout.source().set(0, Cluster, "a", "1");
    let mut peer = Peer::sotw(&fanout);
    peer.ask(Endpoint, &["a"]);
    let endpoints = one(peer.drain());
    peer.answer(Endpoint, &["a"], &endpoints.nonce);
    peer.ask(Cluster, &[]);
    let clusters = one(peer.drain());
    peer.answer(Cluster, &[], &clusters.nonce);
    peer.answer(Endpoint, &["a"], &endpoints.nonce);
    let got = one(peer.drain());
    assert_eq!((got.ty, got.names()), (Endpoint, vec!["a"]));
    peer.answer(Endpoint, &["a"], &got.nonce);
    assert!(peer.next().is_none());
}

#[test]
fn endpoints_of_a_changed_cluster_follow_it() {
    let fanout = fanout();
    fanout.source().set(0, Cluster, "a", "1");
    fanout.source().set(0, Cluster, "b", "1");
    let mut peer = Peer::sotw(&fanout);
    peer.ask(Cluster, &[]);
    peer.ask(Endpoint, &["a", "b"]);
    peer.drain();
    fanout.source().set(0, Cluster, "a", "2");
    publish(&fanout);
    let got = peer.drain();
    assert_eq!((got[0].ty, got[0].names()), (Cluster, vec!["a", "b"]));
    assert_eq!((got[1].ty, got[1].names()), (Endpoint, vec!["a"]));
}

#[test]
fn grpc_clients_get_every_name_each_time() {
    let fanout = fanout();
    for ty in [Cluster, Endpoint] {
        fanout.source().set(0, ty, "a", "1");
        fanout.source().set(0, ty, "b", "1");
    }
    let mut peer = Peer::sotw(&fanout);
    peer.node.user_agent_name = "gRPC Go".into();
    peer.ask(Cluster, &["a"]);
    let got = one(peer.drain());
    assert_eq!(got.names(), ["a"], "by name, not everything");
    peer.answer(Cluster, &["a", "b"], &got.nonce);
    assert_eq!(one(peer.drain()).names(), ["a", "b"]);
    peer.ask(Endpoint, &["a", "b"]);
    let got = one(peer.drain());
    fanout.source().set(0, Endpoint, "b", "2");
    publish(&fanout);
    assert_eq!(one(peer.drain()).names(), ["a", "b"]);
    // Names that are given up are answered for types that are complete: what is missing is gone.
    let nonce = fanout.connections()[0].types[&Cluster].sent_nonce.clone().unwrap();
    peer.answer(Cluster, &["b"], &nonce);
    assert_eq!(one(peer.drain()).names(), ["b"]);
    drop(got);
}

#[test]
fn names_given_up_by_a_named_client_do_not_mean_everything() {
    let fanout = fanout();
    fanout.source().set(0, Cluster, "a", "1");
    let mut peer = Peer::sotw(&fanout);
    peer.ask(Cluster, &["a"]);
    let got = one(peer.drain());
    peer.answer(Cluster, &[], &got.nonce);
    assert_eq!(one(peer.drain()).names(), Vec::<&str>::new());
}

#[test]
fn set_versions_are_hashes_of_the_content() {
    let version = |contents: [&str; 2]| {
        let fanout = fanout();
        let mut peer = Peer::sotw(&fanout);
        peer.ask(Route, &["80", "90"]);
        peer.drain();
        for (name, content) in ["80", "90"].into_iter().zip(contents) {
            fanout.source().set(0, Route, name, content);
        }
        publish(&fanout);
        one(peer.drain()).version
    };
    assert_eq!(version(["a", "b"]), version(["a", "b"]), "two replicas");
    assert_ne!(version(["a", "b"]), version(["b", "a"]));
}

#[test]
fn the_empty_name_is_no_resource_and_not_everything() {
    for ty in [Cluster, Endpoint, Listener, Route] {
        let fanout = fanout();
        fanout.source().set(0, ty, "a", "1");
        let mut peer = Peer::sotw(&fanout);
        peer.ask(ty, &[""]);
        let got = one(peer.drain());
        assert_eq!(got.names(), Vec::<&str>::new(), "{}", ty.short());
        peer.answer(ty, &["", "a"], &got.nonce);
        assert_eq!(one(peer.drain()).names(), ["a"]);
    }
}
