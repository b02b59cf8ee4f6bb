//! Make before break.

use crate::support::{Memory, Peer, body, fanout, version};
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint, Listener, Route};
use pilotfish_xds::{Fanout, Protocol};
use std::sync::Arc;
use std::time::Duration;

fn publish(fanout: &Arc<Fanout<Memory>>) {
    fanout.publish(&fanout.source().commit());
}

/// A proxy with a cluster, its endpoints, a listener and a route, all in sync.
fn synced(protocol: Protocol) -> (Arc<Fanout<Memory>>, Peer) {
    let fanout = fanout();
    fanout.source().set(0, Cluster, "old", "1");
    fanout.source().set(0, Endpoint, "old", "1");
    fanout.source().set(0, Listener, "l", "1");
    fanout.source().set(0, Route, "80", "old");
    let mut peer = Peer::new(&fanout, protocol);
    for (ty, names) in [(Cluster, vec![]), (Endpoint, vec!["old"]), (Listener, vec![]), (Route, vec!["80"])] {
        peer.ask(ty, &names);
        let got = peer.next().unwrap();
        accept(&mut peer, got.ty, &names, &got.nonce);
    }
    assert!(peer.next().is_none());
    (fanout, peer)
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

/// The route moves from the old cluster to a new one.
fn replace(fanout: &Arc<Fanout<Memory>>) {
    fanout.source().remove(0, Cluster, "old");
    fanout.source().remove(0, Endpoint, "old");
    fanout.source().set(0, Cluster, "new", "1");
    fanout.source().set(0, Endpoint, "new", "1");
    fanout.source().set(0, Route, "80", "new");
    publish(fanout);
}

#[test]
fn delta_adds_then_refers_then_removes() {
    let (fanout, mut peer) = synced(Protocol::Delta);
    replace(&fanout);
    let clusters = peer.next().unwrap();
    assert_eq!((clusters.ty, clusters.names(), clusters.removed.len()), (Cluster, vec!["new"], 0));
    assert!(peer.next().is_none(), "the route waits, and so does the old cluster with its endpoints");
    peer.ask(Endpoint, &["new"]);
    let endpoints = peer.next().unwrap();
    assert_eq!((endpoints.ty, endpoints.names()), (Endpoint, vec!["new"]));
    peer.ack(&endpoints);
    assert!(peer.next().is_none(), "Envoy acknowledges clusters when they are warm");
    peer.ack(&clusters);
    let routes = peer.next().unwrap();
    assert_eq!((routes.ty, routes.names()), (Route, vec!["80"]));
    assert!(peer.next().is_none());
    peer.ack(&routes);
    let removal = peer.next().unwrap();
    assert_eq!(
        (removal.ty, removal.names(), &removal.removed[..]),
        (Cluster, vec![], &["old".to_owned()][..])
    );
}

#[test]
fn the_acknowledgement_of_clusters_alone_does_not_release_routes() {
    let (fanout, mut peer) = synced(Protocol::Delta);
    replace(&fanout);
    let clusters = peer.next().unwrap();
    peer.ack(&clusters);
    assert!(peer.next().is_none());
    peer.ask(Endpoint, &["new"]);
    let endpoints = peer.next().unwrap();
    assert!(peer.next().is_none());
    peer.ack(&endpoints);
    assert_eq!(peer.next().unwrap().ty, Route);
}

#[test]
fn sotw_sends_the_old_clusters_along_until_routes_are_answered() {
    let (fanout, mut peer) = synced(Protocol::Sotw);
    replace(&fanout);
    let clusters = peer.next().unwrap();
    assert_eq!((clusters.ty, clusters.names()), (Cluster, vec!["new", "old"]));
    assert!(peer.next().is_none());
    peer.answer(Cluster, &[], &clusters.nonce);
    let nonce = fanout.connections()[0].types[&Endpoint].sent_nonce.clone().unwrap();
    peer.answer(Endpoint, &["new", "old"], &nonce);
    let endpoints = peer.next().unwrap();
    assert_eq!(endpoints.names(), ["new"]);
    peer.answer(Endpoint, &["new", "old"], &endpoints.nonce);
    let routes = peer.next().unwrap();
    assert_eq!((routes.ty, routes.names()), (Route, vec!["80"]));
    peer.answer(Route, &["80"], &routes.nonce);
    let clusters = peer.next().unwrap();
    assert_eq!((clusters.ty, clusters.names()), (Cluster, vec!["new"]));
}

#[test]
fn nothing_waits_for_ever() {
    let (fanout, mut peer) = synced(Protocol::Delta);
    replace(&fanout);
    assert_eq!(peer.next().unwrap().ty, Cluster);
    assert!(peer.next().is_none());
    assert!(peer.stream.lock().deadline().is_some());
    peer.later(Duration::from_secs(5));
    let got = peer.drain();
    assert_eq!((got.len(), got[0].ty), (1, Route), "the new cluster had its time");
    peer.later(Duration::from_secs(5));
    let got = peer.drain();
    assert_eq!((got[0].ty, &got[0].removed[..]), (Cluster, &["old".to_owned()][..]));
    assert_eq!((got.len(), got[1].ty), (2, Endpoint));
    assert!(peer.stream.lock().deadline().is_none());
}

#[test]
fn a_lone_change_of_endpoints_is_never_held() {
    let (fanout, mut peer) = synced(Protocol::Delta);
    fanout.source().set(0, Cluster, "new", "1");
    publish(&fanout);
    assert_eq!(peer.next().unwrap().ty, Cluster);
    fanout.source().set(0, Endpoint, "old", "2");
    fanout.source().set(0, Route, "80", "2");
    publish(&fanout);
    let got = peer.drain();
    assert_eq!((got.len(), got[0].ty, got[0].names()), (1, Endpoint, vec!["old"]));
}

#[test]
fn a_removal_that_nothing_else_goes_with_is_sent_at_once() {
    let (fanout, mut peer) = synced(Protocol::Delta);
    fanout.source().remove(0, Cluster, "old");
    publish(&fanout);
    assert_eq!(peer.next().unwrap().removed, ["old"]);
}

#[test]
fn clusters_stay_while_the_client_refuses_the_routes_that_give_them_up() {
    let (fanout, mut peer) = synced(Protocol::Delta);
    fanout.source().remove(0, Cluster, "old");
    fanout.source().set(0, Route, "80", "direct response");
    publish(&fanout);
    let routes = peer.next().unwrap();
    assert_eq!(routes.ty, Route);
    peer.nack(&routes, &[], "bad route");
    assert!(peer.next().is_none(), "the old route serves on, so its cluster has to");
    fanout.source().set(0, Route, "80", "better");
    publish(&fanout);
    let routes = peer.next().unwrap();
    assert_eq!(routes.ty, Route);
    peer.ack(&routes);
    assert_eq!(peer.next().unwrap().removed, ["old"]);
}

#[test]
fn a_cluster_that_comes_back_before_it_is_removed_stays() {
    let (fanout, mut peer) = synced(Protocol::Delta);
    replace(&fanout);
    assert_eq!(peer.next().unwrap().names(), ["new"]);
    fanout.source().set(0, Cluster, "old", "1");
    fanout.source().set(0, Endpoint, "old", "1");
    publish(&fanout);
    peer.later(Duration::from_secs(5));
    let got = peer.settle();
    assert!(got.iter().all(|got| got.removed.is_empty()));
    assert_eq!((got.len(), got[0].ty), (1, Route), "{got:?}");
}

#[test]
fn a_cluster_that_stays_for_now_is_not_told_to_be_absent() {
    let fanout = fanout();
    fanout.source().set(0, Cluster, "kept", "1");
    publish(&fanout);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &["kept"]);
    let had = peer.settle().remove(0).resources;
    fanout.source().remove(0, Cluster, "kept");
    publish(&fanout);
    // It comes back by name, and its listeners may refer to the cluster until they are answered.
    let mut back = Peer::delta(&fanout);
    back.resume(Cluster, &["kept"], &had);
    back.ask(Listener, &[]);
    let got = back.next().unwrap();
    assert_eq!((got.ty, got.removed.len()), (Cluster, 0));
    back.ack(&got);
    let got = back.next().unwrap();
    assert_eq!(got.ty, Listener);
    back.ack(&got);
    assert!(back.next().is_none(), "it may have routes");
    back.ask(Route, &["80"]);
    let got = back.next().unwrap();
    assert_eq!(got.ty, Route);
    back.ack(&got);
    assert_eq!(back.next().unwrap().removed, ["kept"]);
    assert!(back.next().is_none());
}

#[test]
fn types_of_one_change_come_in_order() {
    let (fanout, mut peer) = synced(Protocol::Delta);
    for (ty, name) in [(Route, "80"), (Listener, "l"), (Endpoint, "old"), (Cluster, "old")] {
        fanout.source().set(0, ty, name, "2");
    }
    publish(&fanout);
    let types: Vec<_> = peer.drain().iter().map(|got| got.ty).collect();
    assert_eq!(types, [Cluster, Endpoint, Listener, Route]);
}

/// A delta client that has what [`synced`] has, from a stream that has ended, and the state of which is
/// another one since.
fn resumed(fanout: &Arc<Fanout<Memory>>, order: &[ResourceType], change: impl FnOnce()) -> Peer {
    let mut had = Vec::new();
    let mut before = Peer::delta(fanout);
    for (ty, names) in [(Cluster, vec![]), (Endpoint, vec!["old"]), (Listener, vec![]), (Route, vec!["80"])] {
        before.ask(ty, &names);
        had.push((ty, names, before.settle().remove(0).resources));
    }
    drop(before);
    change();
    let mut peer = Peer::delta(fanout);
    for ty in order {
        let (_, names, have) = had.iter().find(|(other, ..)| other == ty).unwrap();
        peer.resume(*ty, names, have);
    }
    peer
}

#[test]
fn resumed_stream_keeps_removed_clusters_until_listeners_and_routes_are_acknowledged() {
    let (fanout, _) = synced(Protocol::Delta);
    let mut peer = resumed(&fanout, &[Cluster], || {
        fanout.source().remove(0, Cluster, "old");
        fanout.source().set(0, Route, "80", "direct response");
        publish(&fanout);
    });
    let clusters = peer.next().unwrap();
    assert_eq!((clusters.ty, clusters.removed.len()), (Cluster, 0));
    peer.ack(&clusters);
    assert!(peer.next().is_none(), "listeners and routes are not requested yet");
    let had = |ty, name: &str, content: &str| {
        vec![(name.to_owned(), format!("{:016x}", version(&body(ty, name, content))))]
    };
    peer.resume(Listener, &[], &had(Listener, "l", "1"));
    let listeners = peer.next().unwrap();
    assert_eq!((listeners.ty, listeners.resources.len()), (Listener, 0), "nothing differs");
    peer.ack(&listeners);
    assert!(peer.next().is_none(), "routes are not requested yet");
    peer.resume(Route, &["80"], &had(Route, "80", "old"));
    let routes = peer.next().unwrap();
    assert_eq!((routes.ty, routes.names()), (Route, vec!["80"]));
    assert!(peer.next().is_none());
    peer.ack(&routes);
    assert_eq!(peer.next().unwrap().removed, ["old"]);
    assert!(peer.next().is_none() && peer.stream.lock().deadline().is_none());
}

#[test]
fn resumed_listeners_and_routes_wait_for_clusters_in_any_order_of_requests() {
    for order in [[Route, Listener, Endpoint, Cluster], [Endpoint, Listener, Route, Cluster]] {
        let (fanout, _) = synced(Protocol::Delta);
        let mut peer = resumed(&fanout, &order[..3], || replace(&fanout));
        let got = peer.drain();
        assert!(got.iter().all(|got| got.ty == Endpoint), "clusters are not requested yet: {got:?}");
        got.iter().for_each(|got| peer.ack(got));
        peer.resume(Cluster, &[], &[("old".into(), format!("{:016x}", version(&body(Cluster, "old", "1"))))]);
        let clusters = peer.next().unwrap();
        assert_eq!((clusters.ty, clusters.names(), clusters.removed.len()), (Cluster, vec!["new"], 0));
        assert!(peer.next().is_none(), "the new cluster is not warm");
        peer.ask(Endpoint, &["new"]);
        let endpoints = peer.next().unwrap();
        assert_eq!((endpoints.ty, endpoints.names()), (Endpoint, vec!["new"]));
        peer.ack(&endpoints);
        peer.ack(&clusters);
        let referring = peer.settle();
        let types: Vec<_> = referring.iter().map(|got| got.ty).collect();
        assert_eq!(types[..2], [Listener, Route]);
        assert_eq!((types[2], &referring[2].removed[..]), (Cluster, &["old".to_owned()][..]));
    }
}

#[test]
fn resumed_stream_waits_no_longer_than_the_deadline_for_types_that_never_come() {
    let change = |fanout: &Arc<Fanout<Memory>>| {
        fanout.source().remove(0, Cluster, "old");
        fanout.source().set(0, Listener, "l", "2");
        publish(fanout);
    };
    // A proxy of TCP has no routes.
    let (fanout, _) = synced(Protocol::Delta);
    let mut peer = resumed(&fanout, &[Cluster, Listener], || change(&fanout));
    let got = peer.settle();
    assert!(got.iter().all(|got| got.removed.is_empty()), "{got:?}");
    peer.later(Duration::from_secs(5));
    assert_eq!(peer.settle()[0].removed, ["old"]);
    assert!(peer.stream.lock().deadline().is_none());
    fanout.source().set(0, Cluster, "later", "1");
    publish(&fanout);
    peer.settle();
    fanout.source().remove(0, Cluster, "later");
    publish(&fanout);
    assert_eq!(peer.settle()[0].removed, ["later"], "once over, it is not waited for again");
    // And an Envoy with clusters of its own never requests any.
    let (fanout, _) = synced(Protocol::Delta);
    let mut peer = resumed(&fanout, &[Listener, Route], || change(&fanout));
    assert!(peer.settle().iter().all(|got| got.resources.is_empty()));
    peer.later(Duration::from_secs(5));
    assert_eq!(peer.settle()[0].names(), ["l"]);
}

#[test]
fn resumed_stream_without_differences_waits_for_nothing() {
    let (fanout, _) = synced(Protocol::Delta);
    let mut peer = resumed(&fanout, &[Cluster, Endpoint, Listener, Route], || {});
    let got = peer.settle();
    assert_eq!(got.iter().map(|got| got.ty).collect::<Vec<_>>(), [Cluster, Endpoint, Listener, Route]);
    assert!(got.iter().all(|got| got.resources.is_empty() && got.removed.is_empty()), "{got:?}");
}
