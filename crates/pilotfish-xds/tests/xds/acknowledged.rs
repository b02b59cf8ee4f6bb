//! Which revision a client has acknowledged.

use crate::support::{Memory, Peer, fanout};
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint};
use pilotfish_xds::{Fanout, Protocol};
use std::sync::Arc;

fn publish(fanout: &Arc<Fanout<Memory>>) -> u64 {
    let publication = fanout.source().commit();
    fanout.publish(&publication);
    publication.revision
}

/// The types of which the only client has not acknowledged a revision.
fn missing(fanout: &Arc<Fanout<Memory>>, revision: u64) -> Vec<ResourceType> {
    let (current, clients) = fanout.acknowledgements();
    assert!(revision <= current);
    clients.iter().flat_map(|client| client.missing(revision).map(|(ty, _)| ty)).collect()
}

#[test]
fn a_revision_is_acknowledged_with_its_last_response() {
    for protocol in [Protocol::Delta, Protocol::Sotw] {
        let fanout = fanout();
        fanout.source().set(0, Cluster, "a", "1");
        fanout.source().set(0, Endpoint, "a", "1");
        let first = publish(&fanout);
        let mut peer = Peer::new(&fanout, protocol);
        peer.ask(Cluster, &[]);
        assert_eq!(missing(&fanout, first), [Cluster], "not answered yet");
        let clusters = peer.next().unwrap();
        assert_eq!(missing(&fanout, first), [Cluster], "not acknowledged yet");
        accept(&mut peer, Cluster, &[], &clusters.nonce);
        assert_eq!(missing(&fanout, first), []);

        peer.ask(Endpoint, &["a"]);
        let endpoints = peer.next().unwrap();
        accept(&mut peer, Endpoint, &["a"], &endpoints.nonce);
        fanout.source().set(0, Endpoint, "a", "2");
        let second = publish(&fanout);
        assert_eq!(missing(&fanout, second), [Endpoint]);
        assert_eq!(missing(&fanout, first), [], "it had that before");
        let newer = peer.next().unwrap();
        fanout.source().set(0, Endpoint, "a", "3");
        let third = publish(&fanout);
        accept(&mut peer, Endpoint, &["a"], &newer.nonce);
        assert_eq!(missing(&fanout, second), [], "an ACK of the second, while the third is not sent");
        assert_eq!(missing(&fanout, third), [Endpoint]);
    }
}

#[test]
fn a_publication_that_does_not_concern_a_client_is_acknowledged_without_a_word() {
    let fanout = fanout();
    fanout.source().set(0, Cluster, "a", "1");
    publish(&fanout);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    peer.settle();
    fanout.source().set(1, Cluster, "other", "1");
    let other = publish(&fanout);
    assert_eq!((fanout.revision(), missing(&fanout, other)), (other, vec![]));
}

#[test]
fn a_refusal_stands_against_its_own_revision_only() {
    let fanout = fanout();
    fanout.source().set(0, Cluster, "a", "1");
    let good = publish(&fanout);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    peer.settle();
    fanout.source().set(0, Cluster, "a", "bad");
    let bad = publish(&fanout);
    let got = peer.next().unwrap();
    peer.nack(&got, &[], "no");
    assert_eq!(missing(&fanout, good), []);
    assert_eq!(missing(&fanout, bad), [Cluster]);
    fanout.source().set(1, Cluster, "other", "1");
    let other = publish(&fanout);
    assert_eq!(missing(&fanout, other), [], "a change that does not concern it");
    fanout.source().set(0, Cluster, "a", "mended");
    let mended = publish(&fanout);
    peer.settle();
    assert_eq!((missing(&fanout, bad), missing(&fanout, mended)), (vec![], vec![]));
}

#[test]
fn a_client_that_refuses_what_it_gets_first_has_not_acknowledged_it() {
    let fanout = fanout();
    fanout.source().set(0, Cluster, "a", "bad");
    let revision = publish(&fanout);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    let got = peer.next().unwrap();
    peer.nack(&got, &[], "no");
    assert_eq!(missing(&fanout, revision), [Cluster]);
}

fn accept(peer: &mut Peer, ty: ResourceType, names: &[&str], nonce: &str) {
    match peer.protocol {
        Protocol::Sotw => peer.answer(ty, names, nonce),
        Protocol::Delta => peer.ack(&crate::support::Got {
            ty,
            nonce: nonce.into(),
            version: String::new(),
            resources: vec![],
            removed: vec![],
        }),
    }
}
