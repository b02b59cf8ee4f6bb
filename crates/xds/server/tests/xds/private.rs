//! Secrets that one client alone is sent, among those that clients share.

use crate::support::{Got, Memory, Peer, WITHOUT_SECRETS, body, fanout};
use pilotfish_proto::ResourceType::Secret;
use pilotfish_xds::{ClientId, Fanout, PrivateSecret, Protocol, Resource};
use std::sync::Arc;

type Fan = Arc<Fanout<Memory>>;

fn with_private() -> Fan {
    let fanout = fanout();
    *fanout.source().private.lock() = Some([].into());
    fanout
}

/// Sets the private Secret of a client; a version of 0 is that of an absent one.
fn set(fanout: &Fan, client: u64, name: &str, version: u64) {
    let resource = || Resource {
        name: name.into(),
        version,
        body: body(Secret, name, &format!("{client}-{version}")),
        changed_at: 0,
        stands_in: false,
    };
    let state = match version {
        0 => PrivateSecret::Absent,
        _ => PrivateSecret::Is(Arc::new(resource())),
    };
    let mut private = fanout.source().private.lock();
    private.as_mut().unwrap().insert((ClientId(client), name.to_owned()), state);
    drop(private);
    if let Some(changed) = fanout.source().changed.lock().get(&ClientId(client)) {
        changed.announce();
    }
}

/// All responses that there are, each acknowledged.
fn settle(peer: &mut Peer, names: &[&str]) -> Vec<Got> {
    let mut all = Vec::new();
    while let Some(got) = peer.next() {
        match peer.protocol {
            Protocol::Delta => peer.ack(&got),
            Protocol::Sotw => peer.answer(Secret, names, &got.nonce),
        }
        all.push(got);
    }
    all
}

fn names(got: &[Got]) -> Vec<Vec<&str>> {
    got.iter().map(Got::names).collect()
}

const OWN: [&str; 2] = ["ROOTCA", "default"];

#[test]
fn private_secret_is_sent_when_it_is_made_and_again_when_it_is_renewed() {
    for protocol in [Protocol::Delta, Protocol::Sotw] {
        let fanout = with_private();
        let mut peer = Peer::new(&fanout, protocol);
        set(&fanout, 0, "ROOTCA", 1);
        peer.ask(Secret, &OWN);
        assert!(settle(&mut peer, &OWN).is_empty(), "the key is being made");
        assert!(!peer.stream.lock().has_pending());
        set(&fanout, 0, "default", 2);
        assert!(peer.stream.lock().has_pending());
        assert_eq!(names(&settle(&mut peer, &OWN)), [OWN], "{protocol:?}");
        set(&fanout, 0, "default", 3);
        assert_eq!(names(&settle(&mut peer, &OWN)), [["default"]], "{protocol:?}");
        set(&fanout, 0, "default", 3);
        assert!(settle(&mut peer, &OWN).is_empty(), "nothing is new");
    }
}

#[test]
fn client_that_is_sent_none_is_answered() {
    let fanout = with_private();
    for client in [0, 1] {
        OWN.iter().for_each(|name| set(&fanout, client, name, 0));
    }
    let mut delta = Peer::delta(&fanout);
    delta.ask(Secret, &OWN);
    assert_eq!(delta.settle()[0].removed, OWN);
    let mut sotw = Peer::sotw(&fanout);
    sotw.ask(Secret, &OWN);
    let got = settle(&mut sotw, &OWN);
    assert_eq!(names(&got), [[""; 0]]);
    set(&fanout, 1, "default", 1);
    assert_eq!(names(&settle(&mut sotw, &OWN)), [["default"]], "it comes later");
}

/// Encoded responses are shared by streams with equal subscriptions, also those of gRPC clients with all
/// resources.
#[test]
fn no_client_is_sent_the_secret_of_another() {
    let all = ["default", "shared"];
    for (protocol, agent) in
        [(Protocol::Delta, "envoy"), (Protocol::Sotw, "envoy"), (Protocol::Sotw, "grpc-go")]
    {
        let fanout = with_private();
        fanout.source().set(0, Secret, "shared", "1");
        fanout.publish(&fanout.source().commit());
        let mut peers = [0, 1, 2].map(|_| Peer::new(&fanout, protocol));
        for (client, peer) in peers.iter_mut().enumerate() {
            set(&fanout, client as u64, "default", [11, 12, 0][client]);
            peer.node.user_agent_name = agent.into();
            peer.ask(Secret, &all);
        }
        let is_own = |client: usize, got: &Got| {
            let own = body(Secret, "default", &format!("{client}-{}", 11 + client));
            let own = [format!("{:016x}", crate::support::version(&own)), format!("{:016x}", 11 + client)];
            let sent = got.resources.iter().find(|(name, _)| name == "default");
            sent.is_some_and(|(_, version)| own.contains(version))
        };
        for round in 0..2 {
            for (client, peer) in peers.iter_mut().enumerate() {
                let got = settle(peer, &all);
                let has_own = round == 0 || agent == "grpc-go";
                let expected: &[&str] = match (client, has_own) {
                    (2, _) | (_, false) => &["shared"],
                    _ => &all,
                };
                assert_eq!(names(&got), [expected], "{protocol:?} {agent} {client} {round}");
                assert_eq!(is_own(client, &got[0]), client < 2 && has_own, "{protocol:?} {agent} {client}");
            }
            fanout.source().set(0, Secret, "shared", "2");
            fanout.publish(&fanout.source().commit());
        }
    }
}

#[test]
fn names_of_views_wait_for_access_and_private_ones_alone_do_not() {
    for protocol in [Protocol::Delta, Protocol::Sotw] {
        let fanout = with_private();
        fanout.source().set(0, Secret, "shared", "1");
        fanout.source().move_client(ClientId(0), WITHOUT_SECRETS);
        fanout.publish(&fanout.source().commit());
        let mut peer = Peer::new(&fanout, protocol);
        set(&fanout, 0, "default", 1);
        peer.ask(Secret, &["default"]);
        let got = peer.next().unwrap();
        assert_eq!(got.names(), ["default"], "{protocol:?}");
        let all = ["default", "shared"];
        match protocol {
            Protocol::Delta => peer.ask(Secret, &["shared"]),
            Protocol::Sotw => peer.answer(Secret, &all, &got.nonce),
        }
        assert!(settle(&mut peer, &all).is_empty(), "access is not decided");
        fanout.source().move_client(ClientId(0), 0);
        fanout.publish(&fanout.source().commit());
        assert_eq!(names(&settle(&mut peer, &all)), [["shared"]], "{protocol:?}");
    }
}

#[test]
fn resumed_client_is_sent_its_new_key() {
    let fanout = with_private();
    set(&fanout, 0, "default", 5);
    set(&fanout, 0, "ROOTCA", 7);
    let mut peer = Peer::delta(&fanout);
    let known = |name: &str, version: u64| (name.to_owned(), format!("{version:016x}"));
    peer.resume(Secret, &OWN, &[known("default", 4), known("ROOTCA", 7)]);
    let got = peer.settle();
    assert_eq!(names(&got), [["default"]]);
    assert!(got[0].removed.is_empty());
}

#[test]
fn secret_that_is_subscribed_to_again_is_sent_again() {
    let fanout = with_private();
    set(&fanout, 0, "default", 1);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Secret, &["default"]);
    peer.settle();
    peer.unsubscribe(Secret, &["default"]);
    set(&fanout, 0, "default", 2);
    assert!(peer.settle().is_empty());
    peer.ask(Secret, &["default"]);
    assert_eq!(names(&peer.settle()), [["default"]]);
}

#[test]
fn content_of_a_secret_is_in_no_debug_output() {
    let resource = Resource {
        name: "default".into(),
        version: 1,
        body: "KEY-OF-WEB".into(),
        changed_at: 0,
        stands_in: false,
    };
    let shown = format!("{:?}", PrivateSecret::Is(Arc::new(resource)));
    assert!(shown.contains("default") && !shown.contains("KEY-OF-WEB"), "{shown}");
}
