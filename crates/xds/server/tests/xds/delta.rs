//! Delta, rule by rule.

use crate::support::{
    Got, Peer, REFUSED_SECRETS, WITHOUT_SECRETS, fanout, fanout_that_knows_absent, fanout_with,
};
use pilotfish_proto::ResourceType::{Cluster, Endpoint, ExtensionConfig, Listener, NameTable, Route, Secret};
use pilotfish_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use pilotfish_xds::{ClientId, Fanout, Nack, Names, NoRecorder, Recorder, StreamError, StreamLimits};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

type Fan = Arc<Fanout<crate::support::Memory>>;

fn with_clusters(names: &[&str]) -> Fan {
    let fanout = fanout();
    for name in names {
        fanout.source().set(0, Cluster, name, "1");
    }
    fanout.publish(&fanout.source().commit());
    fanout
}

fn publish(fanout: &Fan) {
    fanout.publish(&fanout.source().commit());
}

fn known(got: &Got) -> Vec<(String, String)> {
    got.resources.clone()
}

#[test]
fn a_wildcard_subscription_gets_everything_then_what_changes() {
    let fanout = with_clusters(&["a", "b"]);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    let got = peer.settle();
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].ty, got[0].names()), (Cluster, vec!["a", "b"]));

    fanout.source().set(0, Cluster, "b", "2");
    fanout.source().set(0, Cluster, "c", "1");
    fanout.source().remove(0, Cluster, "a");
    publish(&fanout);
    let got = peer.settle();
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].names(), &got[0].removed[..]), (vec!["b", "c"], &["a".to_owned()][..]));
    assert!(peer.next().is_none());
}

#[test]
fn a_snapshot_that_is_waited_for_is_given_back_after_each_resource() {
    let names: Vec<String> = (0..20).map(|n| format!("c{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fanout = with_clusters(&names);
    for name in &names {
        fanout.source().set(0, Endpoint, name, "1");
    }
    publish(&fanout);
    fanout.source().is_waited_for.store(true, Ordering::SeqCst);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    assert_eq!(peer.settle()[0].names(), names);
    let before = fanout.source().snapshots.load(Ordering::SeqCst);
    peer.ask(Endpoint, &names);
    assert_eq!(peer.settle()[0].names(), names, "nothing is left out");
    assert!(fanout.source().snapshots.load(Ordering::SeqCst) >= before + names.len() as u64);
}

#[test]
fn a_large_subscription_is_taken_in_pieces() {
    const MANY: usize = 10_000;
    let names: Vec<String> = (0..MANY).map(|n| format!("e{n:05}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fanout = fanout();
    fanout.source().set(0, Secret, names[0], "1");
    fanout.source().set(0, Secret, names[MANY - 1], "1");
    publish(&fanout);
    let mut peers = [Peer::delta(&fanout), Peer::delta(&fanout), Peer::sotw(&fanout)];
    for peer in &mut peers {
        peer.ask(Secret, &names);
        assert!(peer.settle()[0].names() == [names[0], names[MANY - 1]]);
    }
    assert_eq!(fanout.group_count(), 1, "equal subscriptions share a group, however they were taken");
    fanout.source().set(0, Secret, names[MANY / 2], "1");
    publish(&fanout);
    for peer in &mut peers[..2] {
        assert!(peer.settle()[0].names() == [names[MANY / 2]]);
    }
    let [first, second, third] = peers;
    drop((first, third));
    assert!(fanout.is_subscribed(crate::support::view(0, Secret), Secret, names[1]));
    drop(second);
    assert_eq!(fanout.group_count(), 0);
    assert!(!fanout.is_subscribed(crate::support::view(0, Secret), Secret, names[1]));
    assert_eq!(fanout.source().free.lock().len(), MANY, "each name is let go once");
}

#[test]
fn a_star_is_a_wildcard_and_its_removal_ends_it() {
    let fanout = with_clusters(&["a", "b"]);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &["*"]);
    assert_eq!(peer.settle()[0].names(), ["a", "b"]);
    peer.unsubscribe(Cluster, &["*"]);
    assert!(peer.settle().is_empty());
    fanout.source().set(0, Cluster, "a", "2");
    publish(&fanout);
    assert!(peer.settle().is_empty());
    peer.ask(Cluster, &["a"]);
    assert_eq!(peer.settle()[0].names(), ["a"]);
}

#[test]
fn star_given_and_taken_at_once_subscribes_to_nothing() {
    let fanout = with_clusters(&["a"]);
    let mut peer = Peer::delta(&fanout);
    let star = || vec!["*".to_owned()];
    peer.send_delta(DeltaDiscoveryRequest {
        type_url: Cluster.type_url().into(),
        resource_names_subscribe: star(),
        resource_names_unsubscribe: star(),
        ..Default::default()
    })
    .unwrap();
    let got = peer.settle();
    assert_eq!((got.len(), got[0].names()), (1, vec![]));
}

#[test]
fn every_first_subscription_is_answered_even_with_nothing() {
    let fanout = fanout();
    let mut peer = Peer::delta(&fanout);
    for ty in [Cluster, Listener, NameTable] {
        peer.ask(ty, &[]);
        let got = peer.settle();
        assert_eq!((got.len(), got[0].ty, got[0].resources.len()), (1, ty, 0));
    }
    peer.ask(Secret, &["missing"]);
    assert_eq!(peer.settle()[0].removed, ["missing"]);
    // An Envoy would wait for it for ever.
    peer.ask(ExtensionConfig, &["missing"]);
    assert_eq!(peer.settle()[0].removed, Vec::<String>::new());
}

#[test]
fn absent_resources_are_removed_resources_and_come_when_they_exist() {
    for ty in [Cluster, Endpoint, Listener, Route, Secret, ExtensionConfig] {
        let fanout = fanout_that_knows_absent();
        let mut peer = Peer::delta(&fanout);
        peer.node.user_agent_name = "another client".into();
        peer.ask(ty, &["x", "", "y"]);
        let got = peer.settle();
        assert_eq!(
            (got.len(), got[0].names(), &got[0].removed[..]),
            (1, vec![], &["", "x", "y"].map(str::to_owned)[..])
        );
        peer.ask(ty, &["z"]);
        assert_eq!(peer.settle()[0].removed, ["z"]);
        peer.ask(ty, &["x"]);
        assert_eq!(peer.settle()[0].removed, ["x"], "asked once more");
        fanout.source().set(0, ty, "x", "1");
        publish(&fanout);
        let got = peer.settle();
        assert_eq!((got[0].names(), got[0].removed.len()), (vec!["x"], 0), "{}", ty.short());
        fanout.source().remove(0, ty, "x");
        publish(&fanout);
        let got = peer.settle();
        assert_eq!((got[0].names(), &got[0].removed[..]), (vec![], &["x".to_owned()][..]));
        // And so after another client was sent them.
        let mut back = Peer::delta(&fanout);
        back.node.user_agent_name = "another client".into();
        back.resume(ty, &["x", "y"], &[("x".into(), "0000000000000001".into())]);
        let mut got = back.settle();
        if ty == Cluster {
            assert_eq!(got[0].removed, ["y"], "listeners and routes may refer to what it has");
            back.later(Duration::from_secs(5));
            got = back.settle();
            got[0].removed.push("y".to_owned());
        }
        if matches!(ty, Listener | Route) {
            assert!(got.is_empty(), "clusters may still be requested");
            back.later(Duration::from_secs(5));
            got = back.settle();
        }
        assert_eq!(got[0].removed, ["x", "y"], "{}", ty.short());
    }
}

#[test]
fn envoys_are_not_told_that_routes_are_absent_and_lose_endpoints_by_an_empty_assignment() {
    let fanout = fanout_that_knows_absent();
    let mut peer = Peer::delta(&fanout);
    peer.ask(Endpoint, &["x"]);
    peer.ask(Route, &["80"]);
    let got = peer.settle();
    assert_eq!((got[0].names(), &got[0].removed[..]), (vec![], &["x".to_owned()][..]));
    assert_eq!((got[1].names(), got[1].removed.len()), (vec!["80"], 0), "a listener would wait for ever");
    fanout.source().set(0, Endpoint, "x", "10.0.0.1");
    publish(&fanout);
    assert_eq!(peer.settle()[0].names(), ["x"]);
    // Two of them share a response.
    let mut second = Peer::delta(&fanout);
    second.ask(Endpoint, &["x"]);
    second.settle();
    fanout.source().remove(0, Endpoint, "x");
    publish(&fanout);
    for peer in [&mut peer, &mut second] {
        let got = peer.settle();
        assert_eq!((got[0].names(), got[0].removed.len()), (vec!["x"], 0), "it would keep what is removed");
    }
    // Among other changes, too.
    peer.ask(Endpoint, &["y"]);
    peer.settle();
    fanout.source().set(0, Endpoint, "x", "10.0.0.2");
    fanout.source().set(0, Endpoint, "y", "10.0.0.3");
    publish(&fanout);
    assert_eq!(peer.settle()[0].names(), ["x", "y"]);
}

#[test]
fn secrets_that_a_client_will_never_see_are_answered_at_once() {
    let fanout = fanout();
    fanout.source().set(0, Secret, "a", "1");
    fanout.source().move_client(ClientId(0), REFUSED_SECRETS);
    fanout.source().move_client(ClientId(1), REFUSED_SECRETS);
    publish(&fanout);
    let mut delta = Peer::delta(&fanout);
    delta.ask(Secret, &["a", "b"]);
    let got = delta.settle();
    assert_eq!((got.len(), &got[0].removed[..]), (1, &["a", "b"].map(str::to_owned)[..]));
    delta.ask(Secret, &["c"]);
    assert_eq!(delta.settle()[0].removed, ["c"]);
    let mut sotw = Peer::sotw(&fanout);
    sotw.ask(Secret, &["a"]);
    let got = sotw.drain();
    assert_eq!((got.len(), got[0].resources.len()), (1, 0));
    // It is absent now, and pushed when it may be seen.
    fanout.source().move_client(ClientId(0), 0);
    publish(&fanout);
    assert_eq!(delta.settle()[0].names(), ["a"]);
}

#[test]
fn names_come_and_go() {
    let fanout = fanout();
    for name in ["a", "b", "c"] {
        fanout.source().set(0, Endpoint, name, "1");
    }
    let mut peer = Peer::delta(&fanout);
    peer.ask(Endpoint, &["a", "b"]);
    peer.settle();
    peer.ask(Endpoint, &["c"]);
    assert_eq!(peer.settle()[0].names(), ["c"]);
    peer.unsubscribe(Endpoint, &["a"]);
    assert!(peer.settle().is_empty(), "giving up is not answered");
    for name in ["a", "b", "c"] {
        fanout.source().set(0, Endpoint, name, "2");
    }
    publish(&fanout);
    assert_eq!(peer.settle()[0].names(), ["b", "c"]);
    // Asked for once more, it is sent once more, also unchanged: the client may have dropped it.
    peer.ask(Endpoint, &["b"]);
    assert_eq!(peer.settle()[0].names(), ["b"]);
}

#[test]
fn an_ack_is_silent_and_a_subscription_in_it_is_not() {
    let fanout = fanout();
    for name in ["a", "b"] {
        fanout.source().set(0, Endpoint, name, "1");
    }
    let mut peer = Peer::delta(&fanout);
    peer.ask(Endpoint, &["a"]);
    let got = peer.next().unwrap();
    peer.ack(&got);
    assert!(peer.next().is_none());
    peer.send_delta(DeltaDiscoveryRequest {
        type_url: Endpoint.type_url().into(),
        response_nonce: got.nonce,
        resource_names_subscribe: vec!["b".into()],
        ..Default::default()
    })
    .unwrap();
    assert_eq!(peer.next().unwrap().names(), ["b"]);
}

#[derive(Default)]
struct Count {
    rejected: AtomicUsize,
    expired: AtomicUsize,
}

impl Recorder for Count {
    fn rejected(&self, nack: &Nack<'_>) {
        assert!(nack.connection.starts_with("sidecar~"));
        assert_eq!((nack.resources().as_str(), nack.reason().as_str()), ("bad", "unknown filter"));
        self.rejected.fetch_add(1, Ordering::SeqCst);
    }

    fn expired_nonce(&self, _: pilotfish_proto::ResourceType) {
        self.expired.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_refusal_is_kept_and_counted_and_the_rest_is_served_on() {
    let count = Arc::new(Count::default());
    let fanout = fanout_with(Arc::clone(&count) as Arc<dyn Recorder>, StreamLimits::default());
    fanout.source().set(0, Listener, "bad", "1");
    let mut peer = Peer::delta(&fanout);
    peer.ask(Listener, &[]);
    peer.ask(Route, &["80"]);
    let got = peer.drain();
    peer.nack(&got[0], &[], "unknown filter");
    peer.ack(&got[1]);
    assert!(peer.next().is_none(), "a refusal is not answered");
    assert_eq!(count.rejected.load(Ordering::SeqCst), 1);
    let status = &fanout.connections()[0].types[&Listener];
    let rejection = status.rejection.as_ref().unwrap();
    assert_eq!((rejection.error.as_str(), &*rejection.names[0]), ("unknown filter", "bad"));
    assert!(!status.in_sync() && status.acked_nonce.is_none());

    fanout.source().set(0, Listener, "good", "1");
    fanout.source().set(0, Route, "80", "2");
    publish(&fanout);
    let got = peer.settle();
    assert_eq!(got[0].names(), ["good"], "the refused content is not sent again");
    assert_eq!((got[1].ty, got[1].names()), (Route, vec!["80"]));
    fanout.source().set(0, Listener, "bad", "repaired");
    publish(&fanout);
    assert_eq!(peer.settle()[0].names(), ["bad"]);
    assert!(fanout.connections()[0].types[&Listener].rejection.is_none());
}

#[test]
fn what_came_with_a_bad_resource_is_sent_once_more_without_it() {
    let fanout = fanout();
    let mut peer = Peer::delta(&fanout);
    peer.ask(Endpoint, &["bad", "good"]);
    let got = peer.next().unwrap();
    peer.nack(&got, &[], "bad: malformed address");
    let again = peer.next().unwrap();
    assert_eq!(again.names(), ["good"]);
    peer.nack(&again, &[], "good: malformed address, too");
    assert!(peer.next().is_none(), "once is enough");
}

#[test]
fn an_old_nonce_is_counted_and_its_names_still_count() {
    let count = Arc::new(Count::default());
    let fanout = fanout_with(Arc::clone(&count) as Arc<dyn Recorder>, StreamLimits::default());
    let mut peer = Peer::delta(&fanout);
    peer.ask(Endpoint, &["a"]);
    let first = peer.next().unwrap();
    fanout.source().set(0, Endpoint, "a", "2");
    publish(&fanout);
    let second = peer.next().unwrap();
    assert_ne!(first.nonce, second.nonce);
    peer.send_delta(DeltaDiscoveryRequest {
        type_url: Endpoint.type_url().into(),
        response_nonce: first.nonce,
        resource_names_subscribe: vec!["b".into()],
        ..Default::default()
    })
    .unwrap();
    assert_eq!(count.expired.load(Ordering::SeqCst), 1);
    assert_eq!(peer.next().unwrap().names(), ["b"]);
    peer.ack(&Got { nonce: "nonsense".into(), ..second });
    assert_eq!(count.expired.load(Ordering::SeqCst), 2);
}

#[test]
fn two_changes_while_the_client_is_away_are_one_push_of_the_newest() {
    let fanout = with_clusters(&["a"]);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    peer.settle();
    for content in ["2", "3"] {
        fanout.source().set(0, Cluster, "a", content);
        publish(&fanout);
    }
    fanout.source().set(0, Cluster, "b", "1");
    publish(&fanout);
    let got = peer.settle();
    assert_eq!((got.len(), got[0].names()), (1, vec!["a", "b"]));
    // There and back is no change.
    fanout.source().set(0, Cluster, "a", "4");
    publish(&fanout);
    fanout.source().set(0, Cluster, "a", "3");
    publish(&fanout);
    assert!(peer.settle().is_empty());
}

#[test]
fn a_resumed_client_gets_what_differs() {
    let fanout = with_clusters(&["a", "b", "c"]);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    peer.ask(Endpoint, &["a", "b", "c"]);
    let before = peer.settle();
    drop(peer);
    assert_eq!(fanout.source().gone.lock()[..], [ClientId(0)]);
    assert_eq!((fanout.stream_count(), fanout.group_count()), (0, 0));

    fanout.source().set(0, Cluster, "b", "2");
    fanout.source().remove(0, Cluster, "c");
    publish(&fanout);
    let mut peer = Peer::delta(&fanout);
    peer.resume(Cluster, &["*"], &known(&before[0]));
    let got = peer.settle();
    assert_eq!((got[0].names(), got[0].removed.len()), (vec!["b"], 0));
    peer.later(Duration::from_secs(5));
    assert_eq!(peer.settle()[0].removed, ["c"], "no listener and no route is requested");
    // The endpoints of the changed cluster go again: Envoy waits for them and does not ask.
    peer.resume(Endpoint, &["a", "b", "c"], &known(&before[1]));
    assert_eq!(peer.settle()[0].names(), ["b"]);
}

#[test]
fn a_resumed_client_that_is_up_to_date_gets_empty_answers() {
    let fanout = with_clusters(&["a"]);
    fanout.source().set(0, Listener, "l", "1");
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    peer.ask(Endpoint, &["a"]);
    peer.ask(Listener, &[]);
    let before = peer.settle();
    assert_eq!(before.len(), 3);
    drop(peer);
    let mut peer = Peer::delta(&fanout);
    peer.resume(Cluster, &[], &known(&before[0]));
    peer.resume(Endpoint, &["a"], &known(&before[1]));
    peer.resume(Listener, &[], &known(&before[2]));
    let got = peer.settle();
    assert_eq!(got.len(), 3, "each first subscription is answered");
    assert!(got.iter().all(|got| got.resources.is_empty() && got.removed.is_empty()));
    peer.later(Duration::from_secs(60));
    assert!(peer.settle().is_empty());
}

#[test]
fn a_vanished_endpoint_name_of_a_resumed_client_is_removed_and_foreign_versions_are_old() {
    let fanout = with_clusters(&["a"]);
    let mut peer = Peer::delta(&fanout);
    let have = |name: &str, version: &str| (name.to_owned(), version.to_owned());
    peer.resume(Cluster, &[], &[have("a", "2026-01-01T00:00:00Z/7"), have("gone", "x")]);
    let got = peer.settle();
    assert_eq!((got[0].names(), got[0].removed.len()), (vec!["a"], 0));
    peer.later(Duration::from_secs(5));
    assert_eq!(peer.settle()[0].removed, ["gone"]);
    peer.resume(Secret, &["s"], &[have("s", "x")]);
    assert_eq!(peer.settle()[0].removed, ["s"]);
}

#[test]
fn endpoints_of_a_client_that_did_not_resume_its_clusters_are_all_sent() {
    let fanout = with_clusters(&["a"]);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Endpoint, &["a"]);
    let have = known(&peer.settle()[0]);
    // Envoy holds its request for clusters back while one of them waits for endpoints.
    let mut peer = Peer::delta(&fanout);
    peer.resume(Endpoint, &["a"], &have);
    assert_eq!(peer.settle()[0].names(), ["a"]);
}

#[test]
fn a_resumed_client_that_does_not_acknowledge_its_clusters_gets_its_endpoints_again() {
    let fanout = with_clusters(&["a"]);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    peer.ask(Endpoint, &["a"]);
    let before = peer.settle();
    let mut peer = Peer::delta(&fanout);
    peer.resume(Cluster, &[], &known(&before[0]));
    peer.resume(Endpoint, &["a"], &known(&before[1]));
    let got = peer.drain();
    assert!(got.iter().all(|got| got.resources.is_empty()));
    peer.later(Duration::from_secs(1));
    assert!(peer.next().is_none());
    assert!(peer.stream.lock().deadline().is_some());
    peer.later(Duration::from_secs(2));
    assert_eq!(peer.next().unwrap().names(), ["a"]);
    peer.later(Duration::from_secs(60));
    assert!(peer.next().is_none());
    assert!(peer.stream.lock().deadline().is_none());
}

#[test]
fn endpoints_of_a_changed_cluster_follow_it() {
    let fanout = with_clusters(&["a", "b"]);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    peer.ask(Endpoint, &["a", "b"]);
    peer.settle();
    fanout.source().set(0, Cluster, "a", "2");
    publish(&fanout);
    let got = peer.settle();
    assert_eq!((got[0].ty, got[0].names()), (Cluster, vec!["a"]));
    assert_eq!((got[1].ty, got[1].names()), (Endpoint, vec!["a"]));
    assert_eq!(got.len(), 2);
}

#[test]
fn a_client_whose_view_changes_gets_the_difference() {
    let fanout = with_clusters(&["a", "b"]);
    fanout.source().set(1, Cluster, "b", "1");
    fanout.source().set(1, Cluster, "c", "1");
    publish(&fanout);
    let (mut moving, mut staying) = (Peer::delta(&fanout), Peer::delta(&fanout));
    for peer in [&mut moving, &mut staying] {
        peer.ask(Cluster, &[]);
        peer.settle();
    }
    fanout.source().move_client(ClientId(0), 1);
    publish(&fanout);
    let got = moving.settle();
    assert_eq!((got[0].names(), &got[0].removed[..]), (vec!["c"], &["a".to_owned()][..]));
    assert!(staying.settle().is_empty());
    fanout.source().set(1, Cluster, "c", "2");
    publish(&fanout);
    assert_eq!(moving.settle()[0].names(), ["c"]);
    assert!(!staying.stream.lock().mark().is_set());
}

#[test]
fn nothing_is_said_about_secrets_until_a_client_may_see_some() {
    let fanout = fanout();
    fanout.source().set(0, Secret, "a", "1");
    fanout.source().move_client(ClientId(0), WITHOUT_SECRETS);
    fanout.source().move_client(ClientId(1), WITHOUT_SECRETS);
    publish(&fanout);
    let (mut fresh, mut resumed) = (Peer::delta(&fanout), Peer::sotw(&fanout));
    for peer in [&mut fresh, &mut resumed] {
        peer.ask(Secret, &["a", "b"]);
        assert!(peer.settle().is_empty(), "not even that there is none");
        peer.ask(Secret, &["a", "b", "c"]);
        assert!(peer.settle().is_empty());
    }
    for client in [0, 1] {
        fanout.source().move_client(ClientId(client), 0);
    }
    publish(&fanout);
    let got = fresh.settle();
    assert_eq!(got[0].names(), ["a"]);
    assert_eq!(got[0].removed, ["b", "c"], "it may see secrets, and these are not there");
    assert_eq!(resumed.settle()[0].resources.len(), 1);
    // What it has, it keeps.
    fanout.source().move_client(ClientId(0), WITHOUT_SECRETS);
    publish(&fanout);
    assert!(fresh.settle().is_empty());
}

#[test]
fn a_change_marks_its_subscribers_only() {
    let fanout = fanout();
    let mut peers: Vec<_> = (0..10).map(|_| Peer::delta(&fanout)).collect();
    for (i, peer) in peers.iter_mut().enumerate() {
        peer.ask(Endpoint, &["all", if i < 3 { "some" } else { "other" }]);
        peer.settle();
    }
    assert_eq!(fanout.group_count(), 2, "equal subscriptions share one group");
    let endpoints = crate::support::view(0, Endpoint);
    assert!(fanout.is_subscribed(endpoints, Endpoint, "some"));
    assert!(!fanout.is_subscribed(endpoints, Endpoint, "nobody's"));
    fanout.source().set(0, Endpoint, "some", "2");
    publish(&fanout);
    let marked: Vec<_> = peers.iter().map(|peer| peer.stream.lock().mark().is_set()).collect();
    assert_eq!(marked, (0..10).map(|i| i < 3).collect::<Vec<_>>());
    // Streams in step share the encoded bytes.
    let poll = |peer: &Peer| peer.stream.lock().poll_response(peer.now).unwrap();
    let (one, two) = (poll(&peers[0]), poll(&peers[1]));
    assert_eq!(one.head.as_ptr(), two.head.as_ptr());
}

#[test]
fn a_change_of_equal_content_is_none() {
    let fanout = with_clusters(&["a"]);
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    peer.settle();
    fanout.source().set(0, Cluster, "a", "1");
    publish(&fanout);
    assert!(!peer.stream.lock().mark().is_set());
}

#[test]
fn streams_that_must_not_be_are_refused_with_the_reason() {
    let fanout = fanout_with(Arc::new(NoRecorder), StreamLimits { subscriptions: 3, ..Default::default() });
    let ask = |id: &str, names: &[&str]| {
        let mut peer = Peer::delta(&fanout);
        peer.node.id = id.into();
        peer.send_delta(DeltaDiscoveryRequest {
            type_url: Endpoint.type_url().into(),
            resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        })
    };
    assert!(matches!(ask("", &[]), Err(StreamError::InvalidArgument(text)) if text.contains("no id")));
    assert!(matches!(ask("bad", &[]), Err(StreamError::InvalidArgument(text)) if text.contains("namespace")));
    assert!(matches!(ask("foreign", &[]), Err(StreamError::PermissionDenied(_))));
    let many = ask("ok", &["a", "b", "c", "d"]);
    assert!(matches!(many, Err(StreamError::ResourceExhausted(error)) if error.allowed == 3));
    assert!(ask("ok", &["a", "b", "c"]).is_ok());
    let mut peer = Peer::delta(&fanout);
    assert!(matches!(
        peer.stream.lock().on_message(&[0xff; 20], peer.now),
        Err(StreamError::InvalidArgument(_))
    ));
    let request = DeltaDiscoveryRequest { type_url: Cluster.type_url().into(), ..Default::default() };
    peer.node = Default::default();
    assert!(matches!(peer.send_delta(request), Err(StreamError::InvalidArgument(_))));
    fanout.source().not_ready.store(true, Ordering::SeqCst);
    assert!(matches!(ask("ok", &[]), Err(StreamError::Unavailable(_))));
}

#[test]
fn health_before_the_first_request_and_requests_without_a_type_are_passed_over() {
    use prost::Message;
    let fanout = fanout();
    let mut peer = Peer::delta(&fanout);
    let health = DeltaDiscoveryRequest {
        type_url: "type.googleapis.com/istio.v1.HealthInformation".into(),
        ..Default::default()
    };
    peer.stream.lock().on_message(&health.encode_to_vec(), peer.now).unwrap();
    peer.ask(Cluster, &[]);
    assert_eq!(peer.settle().len(), 1);
    peer.send_delta(health.clone()).unwrap();
    assert!(peer.settle().is_empty());
    let problem = pilotfish_proto::google::rpc::Status { message: "too slow".into(), ..Default::default() };
    peer.send_delta(DeltaDiscoveryRequest { error_detail: Some(problem), ..health }).unwrap();
    peer.send_delta(DeltaDiscoveryRequest { type_url: "".into(), ..Default::default() }).unwrap();
    assert!(peer.settle().is_empty());
    let reported = fanout.source().reported.lock().clone();
    assert_eq!(reported, [None, Some("too slow".to_owned())], "only after the first request");
}

#[test]
fn connections_have_what_debug_pages_show() {
    let fanout = fanout();
    let mut peer = Peer::delta(&fanout);
    peer.ask(Cluster, &[]);
    peer.ask(Endpoint, &["b", "a"]);
    let got = peer.drain();
    peer.ack(&got[0]);
    let all = fanout.connections();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].id, "sidecar~10.0.0.1~a.ns~ns.svc.cluster.local-1");
    let (clusters, endpoints) = (&all[0].types[&Cluster], &all[0].types[&Endpoint]);
    assert_eq!(clusters.names, Names::Wildcard);
    assert_eq!(clusters.acked_nonce.as_ref(), Some(&got[0].nonce));
    assert!(clusters.in_sync() && !endpoints.in_sync());
    assert_eq!(endpoints.names, Names::Named(["a", "b"].into_iter().collect()));
    assert_eq!((endpoints.resources, endpoints.sent_nonce.as_ref()), (2, Some(&got[1].nonce)));
}

#[test]
fn what_a_report_costs_does_not_grow_with_subscriptions() {
    let fanout = fanout();
    let mut peer = Peer::delta(&fanout);
    let names: Vec<String> = (0..2_000).map(|n| format!("name-{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    peer.ask(Endpoint, &names);
    let report = || match fanout.connections()[0].types[&Endpoint].names.clone() {
        Names::Named(names) => names,
        Names::Wildcard => panic!("it has names"),
    };
    let (first, second) = (report(), report());
    assert!(first.ptr_eq(&second), "no report has names of its own");
    peer.ask(Endpoint, &["one more"]);
    assert_eq!((first.len(), report().len()), (2_000, 2_001), "a report stays as it was");
}
