//! Which revision a client has acknowledged.

use crate::support::{Memory, Peer, WITHOUT_SECRETS, fanout};
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};
use pilotfish_xds::{ClientId, Concerned, Fanout, Lacking, Protocol, Types};
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
    clients.iter().flat_map(|client| client.missing(revision, Types::ALL).map(|(ty, _)| ty)).collect()
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

/// The types by which a revision concerns whom, as the publication says.
fn concerned(fanout: &Arc<Fanout<Memory>>) -> (u64, Vec<Concerned>) {
    let publication = fanout.source().commit();
    (publication.revision, fanout.publish(&publication))
}

#[test]
fn a_publication_tells_whom_it_concerns_by_which_types() {
    let fanout = fanout();
    let mut peers: Vec<Peer> = (0..3).map(|_| Peer::delta(&fanout)).collect();
    for (peer, routes) in peers.iter_mut().zip([["80"], ["80"], ["443"]]) {
        peer.ask(Listener, &[]);
        peer.ask(Route, &routes);
        peer.settle();
    }
    fanout.source().set(0, Route, "80", "1");
    let of = |client, types: &[ResourceType]| Concerned {
        client: ClientId(client),
        types: types.iter().copied().collect(),
    };
    assert_eq!(concerned(&fanout).1, [of(0, &[Route]), of(1, &[Route])]);
    // None of them has looked yet.
    fanout.source().set(0, Listener, "in", "1");
    fanout.source().set(0, Route, "443", "1");
    let mut both = concerned(&fanout).1;
    both.sort_by_key(|concerned| concerned.client);
    assert_eq!(both, [of(0, &[Listener]), of(1, &[Listener]), of(2, &[Listener, Route])]);
    fanout.source().move_client(ClientId(1), 1);
    assert_eq!(concerned(&fanout).1, [Concerned { client: ClientId(1), types: Types::ALL }]);
}

#[test]
fn how_far_some_clients_are_is_told_of_no_others() {
    let fanout = fanout();
    publish(&fanout);
    let mut peers: Vec<Peer> = (0..3).map(|_| Peer::delta(&fanout)).collect();
    let of = |clients: &[u64]| {
        let clients: Vec<ClientId> = clients.iter().copied().map(ClientId).collect();
        let progress = fanout.progress_of(&clients);
        progress.iter().map(|progress| progress.client.0).collect::<Vec<_>>()
    };
    assert!(of(&[0, 1, 2]).is_empty(), "nobody has said who it is");
    peers.iter_mut().for_each(|peer| peer.ask(Route, &["80"]));
    assert_eq!(of(&[0, 2, 9]), [0, 2]);
    peers.truncate(1);
    assert_eq!((of(&[0, 1, 2]), of(&[])), (vec![0], vec![]));
}

#[test]
fn a_standing_refusal_of_listeners_says_nothing_of_later_changes_of_routes() {
    for protocol in [Protocol::Delta, Protocol::Sotw] {
        let fanout = fanout();
        fanout.source().set(0, Listener, "in", "1");
        publish(&fanout);
        let mut peer = Peer::new(&fanout, protocol);
        peer.ask(Listener, &[]);
        peer.ask(Route, &["80"]);
        settle(&mut peer);
        fanout.source().set(0, Listener, "in", "bad");
        let bad = publish(&fanout);
        let got = peer.next().unwrap();
        peer.nack(&got, &[], "no");
        let progress = || fanout.progress().remove(0);
        assert_eq!(missing(&fanout, bad), [Listener]);
        assert_eq!(progress().lacks(bad, Listener.into()).map(|lacking| lacking.refused), Some(true));

        fanout.source().set(0, Route, "80", "2");
        let routes = publish(&fanout);
        assert_eq!(missing(&fanout, routes), [Route], "not sent yet");
        let got = peer.next().unwrap();
        accept(&mut peer, Route, &["80"], &got.nonce);
        assert_eq!(missing(&fanout, routes), [], "{protocol:?}");
        assert_eq!(progress().lacks(routes, Types::ALL), None);
        assert_eq!(missing(&fanout, bad), [Listener], "that stands");
        let everything: Vec<ResourceType> =
            fanout.acknowledgements().1[0].missing_up_to(routes).map(|(ty, _)| ty).collect();
        assert_eq!(everything, [Listener], "it does not have all that is in force");

        // A change that makes its views others, and sends it nothing of listeners.
        fanout.source().set(1, Listener, "in", "bad");
        fanout.source().move_client(ClientId(0), 1);
        let moved = publish(&fanout);
        assert!(!missing(&fanout, moved).is_empty(), "it has not looked");
        settle(&mut peer);
        assert_eq!(missing(&fanout, moved), [], "{protocol:?}");
    }
}

#[test]
fn of_two_changes_each_is_lacked_by_its_own_type() {
    let fanout = fanout();
    fanout.source().set(0, Listener, "in", "1");
    publish(&fanout);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Listener, &[]);
    peer.ask(Route, &["80"]);
    peer.settle();
    fanout.source().set(0, Route, "80", "2");
    let (routes, by_routes) = concerned(&fanout);
    fanout.source().set(0, Listener, "in", "bad");
    let (listeners, by_listeners) = concerned(&fanout);
    // Both are sent with the second.
    for got in peer.drain() {
        match got.ty {
            Listener => peer.nack(&got, &[], "no"),
            _ => peer.ack(&got),
        }
    }
    let progress = fanout.progress().remove(0);
    assert_eq!(progress.lacks(routes, by_routes[0].types), None);
    let refused = progress.lacks(listeners, by_listeners[0].types);
    assert_eq!(refused, Some(Lacking { after: 1, until: listeners, refused: true }));
    let client = fanout.acknowledgements().1.remove(0);
    assert_eq!(client.missing(routes, by_routes[0].types).count(), 0);
    assert_eq!(client.missing(listeners, by_listeners[0].types).count(), 1);
}

#[test]
fn nothing_is_waited_for_of_secrets_that_a_client_may_not_see() {
    let fanout = fanout();
    fanout.source().move_client(ClientId(0), WITHOUT_SECRETS);
    let revision = publish(&fanout);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Secret, &["a"]);
    assert!(peer.settle().is_empty());
    assert_eq!(fanout.acknowledgements().1[0].missing_up_to(revision).count(), 0);
}

/// Accepts all responses that there are.
fn settle(peer: &mut Peer) {
    while let Some(got) = peer.next() {
        let names: &[&str] = if got.ty == Route { &["80"] } else { &[] };
        accept(peer, got.ty, names, &got.nonce);
    }
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
