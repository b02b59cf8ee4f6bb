//! Types that are known by their URL only: always whole, always answered, one response at a time.

use crate::support::{Memory, Peer, body, fanout, version};
use pilotfish_proto::ResourceType::{self, Cluster, Route};
use pilotfish_proto::envoy::service::discovery::v3 as discovery;
use pilotfish_xds::{Collection, Fanout, Limit, Protocol, Resource, StreamError};
use prost::Message;
use std::sync::Arc;

const THINGS: &str = "config/v1/Thing";

fn set(fanout: &Arc<Fanout<Memory>>, things: &[(&str, &str)]) {
    let resource = |(name, content): &(&str, &str)| {
        let body = body(ResourceType::Listener, name, content);
        let name: Arc<str> = Arc::from(*name);
        (
            name.clone(),
            Arc::new(Resource { name, version: version(&body), body, changed_at: 0, stands_in: false }),
        )
    };
    let collection: Collection = things.iter().map(resource).collect();
    fanout.source().collections.lock().insert(THINGS.to_owned(), Some(collection));
    fanout.publish_collections();
}

fn sotw(peer: &mut Peer, url: &str, nonce: &str, error: Option<&str>) -> Result<(), StreamError> {
    let status =
        |text: &str| pilotfish_proto::google::rpc::Status { message: text.into(), ..Default::default() };
    peer.send_sotw(discovery::DiscoveryRequest {
        type_url: url.into(),
        response_nonce: nonce.into(),
        error_detail: error.map(status),
        ..Default::default()
    })
}

/// The next list: its nonce, version and number of resources.
fn list(peer: &mut Peer) -> Option<(String, String, usize)> {
    let response = peer.stream.lock().poll_response(peer.now)?;
    let frame = response.concat();
    let message = discovery::DiscoveryResponse::decode(&frame[5..]).unwrap();
    Some((message.nonce, message.version_info, message.resources.len()))
}

/// Names with versions.
type Versions = Vec<(String, String)>;

/// The next difference: its nonce, what is new, what is gone.
fn difference(peer: &mut Peer) -> Option<(String, Versions, Vec<String>)> {
    let response = peer.stream.lock().poll_response(peer.now)?;
    let frame = response.concat();
    let message = discovery::DeltaDiscoveryResponse::decode(&frame[5..]).unwrap();
    let new = message.resources.into_iter().map(|resource| (resource.name, resource.version));
    Some((message.nonce, new.collect(), message.removed_resources))
}

fn delta(peer: &mut Peer, nonce: &str, known: &[(String, String)]) {
    let request = discovery::DeltaDiscoveryRequest {
        type_url: THINGS.into(),
        response_nonce: nonce.into(),
        initial_resource_versions: known.iter().cloned().collect(),
        ..Default::default()
    };
    peer.send_delta(request).unwrap();
}

#[test]
fn every_type_is_answered_whatever_the_nonce_of_the_first_request() {
    let fanout = fanout();
    set(&fanout, &[("n/a", "1")]);
    let mut peer = Peer::sotw(&fanout);
    sotw(&mut peer, THINGS, "2026-11-21 11:03:43 +0000 UTC m=+0.07", None).unwrap();
    sotw(&mut peer, "config/unknown", "", Some("a refusal of nothing")).unwrap();
    // In the order of their names.
    let (unknown, thing) = (list(&mut peer).unwrap(), list(&mut peer).unwrap());
    assert_eq!((thing.2, unknown.2), (1, 0));
    assert_eq!(list(&mut peer), None);
}

#[test]
fn a_stale_nonce_is_ignored_and_an_empty_one_begins_anew() {
    let fanout = fanout();
    set(&fanout, &[("n/a", "1")]);
    let mut peer = Peer::sotw(&fanout);
    sotw(&mut peer, THINGS, "", None).unwrap();
    let first = list(&mut peer).unwrap();
    for nonce in ["00000000000000ff", "foreign"] {
        sotw(&mut peer, THINGS, nonce, None).unwrap();
        assert_eq!(list(&mut peer), None, "{nonce}");
    }
    set(&fanout, &[("n/a", "2")]);
    assert_eq!(list(&mut peer), None, "the first is not answered yet");
    sotw(&mut peer, THINGS, "", None).unwrap();
    let again = list(&mut peer).unwrap();
    assert_ne!((first.0, first.1), (again.0, again.1));
}

#[test]
fn a_slow_client_gets_everything_that_changed_meanwhile_at_once() {
    let fanout = fanout();
    set(&fanout, &[("n/a", "1")]);
    let mut peer = Peer::sotw(&fanout);
    sotw(&mut peer, THINGS, "", None).unwrap();
    let first = list(&mut peer).unwrap();
    for content in ["2", "3", "4"] {
        set(&fanout, &[("n/a", content), ("n/b", content)]);
        assert_eq!(list(&mut peer), None);
    }
    sotw(&mut peer, THINGS, &first.0, None).unwrap();
    let second = list(&mut peer).unwrap();
    assert_eq!(second.2, 2);
    sotw(&mut peer, THINGS, &second.0, None).unwrap();
    assert_eq!(list(&mut peer), None, "what did not differ is not sent");
}

#[test]
fn what_is_refused_is_not_sent_again_until_it_changes() {
    let fanout = fanout();
    set(&fanout, &[("n/a", "bad")]);
    let mut peer = Peer::sotw(&fanout);
    sotw(&mut peer, THINGS, "", None).unwrap();
    let first = list(&mut peer).unwrap();
    sotw(&mut peer, THINGS, &first.0, Some("n/a: bad")).unwrap();
    assert_eq!(list(&mut peer), None);
    fanout.publish_collections();
    assert_eq!(list(&mut peer), None, "nor by another state with the same content");
    set(&fanout, &[("n/a", "good")]);
    assert_eq!(list(&mut peer).unwrap().2, 1);
}

#[test]
fn delta_sends_what_differs_also_from_what_an_earlier_stream_had() {
    let fanout = fanout();
    set(&fanout, &[("n/a", "1"), ("n/b", "1"), ("n/c", "1")]);
    let mut peer = Peer::delta(&fanout);
    delta(&mut peer, "", &[]);
    let (nonce, known, gone) = difference(&mut peer).unwrap();
    assert_eq!((known.len(), gone.len()), (3, 0));
    delta(&mut peer, &nonce, &[]);
    set(&fanout, &[("n/a", "2"), ("n/b", "1")]);
    let (_, new, gone) = difference(&mut peer).unwrap();
    assert_eq!((new.len(), &*new[0].0, gone), (1, "n/a", vec!["n/c".to_owned()]));

    let mut later = Peer::delta(&fanout);
    delta(&mut later, "", &known);
    let (_, new, gone) = difference(&mut later).unwrap();
    assert_eq!((new.len(), &*new[0].0, gone), (1, "n/a", vec!["n/c".to_owned()]));
}

#[test]
fn a_collection_that_is_not_made_yet_is_waited_for() {
    let fanout = fanout();
    fanout.source().collections.lock().insert(THINGS.to_owned(), None);
    let mut peer = Peer::sotw(&fanout);
    sotw(&mut peer, THINGS, "", None).unwrap();
    assert_eq!(list(&mut peer), None);
    set(&fanout, &[]);
    assert_eq!(list(&mut peer).unwrap().2, 0);
}

#[test]
fn types_of_xds_go_on_beside_collections() {
    let fanout = fanout();
    set(&fanout, &[("n/a", "1")]);
    fanout.source().set(0, Cluster, "c", "1");
    fanout.publish(&fanout.source().commit());
    let mut peer = Peer::new(&fanout, Protocol::Sotw);
    sotw(&mut peer, THINGS, "", None).unwrap();
    peer.ask(Cluster, &[]);
    assert_eq!(peer.next().unwrap().names().len(), 1);
    assert_eq!(list(&mut peer).unwrap().2, 1);
}

#[test]
fn who_may_not_have_a_collection_and_who_asks_for_too_many_is_ended() {
    let fanout = fanout();
    let refused = sotw(&mut Peer::sotw(&fanout), "config/secret", "", None);
    assert!(matches!(refused, Err(StreamError::Unauthenticated(_))), "{refused:?}");
    let mut peer = Peer::sotw(&fanout);
    let refused = (0..).find_map(|i| sotw(&mut peer, &format!("config/{i}"), "", None).err());
    let Some(StreamError::ResourceExhausted(exceeded)) = refused else { unreachable!("{refused:?}") };
    assert_eq!((exceeded.limit, exceeded.allowed), (Limit::Subscriptions, 128));
    let long = sotw(&mut Peer::sotw(&fanout), &format!("config/{}", "x".repeat(300)), "", None);
    assert!(matches!(long, Err(StreamError::InvalidArgument(_))), "{long:?}");
}

#[test]
fn delta_names_are_answered_and_unknown_ones_are_told_as_removed() {
    let fanout = fanout();
    set(&fanout, &[("n/a", "1"), ("n/b", "1")]);
    let mut peer = Peer::delta(&fanout);
    let subscribe = |peer: &mut Peer, nonce: &str, names: &[&str]| {
        peer.send_delta(discovery::DeltaDiscoveryRequest {
            type_url: THINGS.into(),
            response_nonce: nonce.into(),
            resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        })
    };
    subscribe(&mut peer, "", &["*", "n/none"]).unwrap();
    let (nonce, new, gone) = difference(&mut peer).unwrap();
    assert_eq!((new.len(), gone), (2, vec!["n/none".to_owned()]));
    subscribe(&mut peer, &nonce, &["n/a", "n/other"]).unwrap();
    let (nonce, new, gone) = difference(&mut peer).unwrap();
    assert_eq!((new.len(), gone), (1, vec!["n/other".to_owned()]));
    subscribe(&mut peer, &nonce, &[]).unwrap();
    assert_eq!(difference(&mut peer), None);
}

#[test]
fn what_a_client_says_it_has_counts_until_it_is_answered() {
    let fanout = fanout();
    set(&fanout, &[("n/a", "1")]);
    let mut peer = Peer::delta(&fanout);
    let known: Vec<_> = (0..10).map(|n| (format!("n/{n}"), "1".to_owned())).collect();
    delta(&mut peer, "", &known);
    assert_eq!(fanout.subscription_bytes(), 10 * (192 + 3));
    let (_, _, gone) = difference(&mut peer).unwrap();
    assert_eq!((gone.len(), fanout.subscription_bytes()), (10, 0));
}

/// What a tool asks may be as large as all that is known: nothing of it stays with the stream.
#[test]
fn the_answer_to_a_question_is_sent_once_and_nothing_of_it_is_kept() {
    for size in [10, 100_000] {
        let (fanout, held) = (fanout(), Arc::new(()));
        let answer = |text: &str| {
            let (name, body): (Arc<str>, _) =
                ("page".into(), body(ResourceType::Listener, "page", &text.repeat(size)));
            let weak =
                Arc::new(Resource { name: name.clone(), version: 1, body, changed_at: 0, stands_in: false });
            let collection = Collection::unit(name, Arc::clone(&weak));
            fanout.source().answers.lock().insert(THINGS.to_owned(), (collection, held.clone()));
            Arc::downgrade(&weak)
        };
        let mut peer = Peer::sotw(&fanout);
        let kept = answer("a");
        sotw(&mut peer, THINGS, "any time", None).unwrap();
        let response = peer.stream.lock().poll_response(peer.now).unwrap();
        assert!(kept.upgrade().is_none(), "the stream keeps nothing of {size} bytes");
        assert_eq!(
            Arc::strong_count(&held),
            2 + response.tail.len(),
            "it is held while they are on their way"
        );
        let nonce = discovery::DiscoveryResponse::decode(&response.concat()[5..]).unwrap().nonce;
        drop(response);
        assert_eq!(Arc::strong_count(&held), 1);

        fanout.publish_collections();
        sotw(&mut peer, THINGS, &nonce, None).unwrap();
        assert!(list(&mut peer).is_none(), "an acknowledgement asks nothing");
        answer("b");
        sotw(&mut peer, THINGS, "later", None).unwrap();
        assert!(list(&mut peer).is_some(), "a question does");
    }
}

#[test]
fn types_that_nobody_serves_are_answered_at_once_with_nothing() {
    const RUNTIME: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";
    let fanout = fanout();
    let mut peer = Peer::sotw(&fanout);
    sotw(&mut peer, RUNTIME, "", None).unwrap();
    let (nonce, _, count) = list(&mut peer).unwrap();
    assert_eq!(count, 0);
    sotw(&mut peer, RUNTIME, &nonce, None).unwrap();
    assert_eq!(list(&mut peer), None, "an acknowledgement is not answered");
    let mut peer = Peer::delta(&fanout);
    let subscribe = |peer: &mut Peer, nonce: &str, names: &[&str], known: &[&str]| {
        peer.send_delta(discovery::DeltaDiscoveryRequest {
            type_url: RUNTIME.into(),
            response_nonce: nonce.into(),
            resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            initial_resource_versions: known
                .iter()
                .map(|name| ((*name).to_owned(), "1".to_owned()))
                .collect(),
            ..Default::default()
        })
    };
    subscribe(&mut peer, "", &["a", "b"], &["b", "c"]).unwrap();
    let (nonce, new, gone) = difference(&mut peer).unwrap();
    assert_eq!((new.len(), gone), (0, ["c", "a", "b"].map(str::to_owned).to_vec()));
    subscribe(&mut peer, &nonce, &["d"], &[]).unwrap();
    assert_eq!(difference(&mut peer).unwrap().2, ["d"]);
    // However many it asks for, its stream goes on.
    for i in 0..300 {
        let mut request =
            discovery::DeltaDiscoveryRequest { type_url: format!("unknown/{i}"), ..Default::default() };
        request.type_url.push_str(&"x".repeat(i));
        peer.send_delta(request).unwrap();
    }
    peer.ask(Cluster, &[]);
    assert_eq!(std::iter::from_fn(|| difference(&mut peer)).count(), 128);
}

#[test]
fn virtual_hosts_on_demand_are_answered_as_envoy_needs_it() {
    let url = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    let fanout = fanout();
    let mut peer = Peer::delta(&fanout);
    peer.ask(Route, &["80", "90"]);
    peer.settle();
    let ask = |peer: &mut Peer, names: &[&str]| {
        let request = discovery::DeltaDiscoveryRequest {
            type_url: url.into(),
            resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        };
        peer.send_delta(request).unwrap();
        let frame = peer.stream.lock().poll_response(peer.now).unwrap().concat();
        let got = discovery::DeltaDiscoveryResponse::decode(&frame[5..]).unwrap();
        let ack = discovery::DeltaDiscoveryRequest {
            type_url: url.into(),
            response_nonce: got.nonce.clone(),
            ..Default::default()
        };
        peer.send_delta(ack).unwrap();
        got
    };
    let first = ask(&mut peer, &[]);
    assert_eq!(
        (first.resources.len(), first.removed_resources),
        (0, vec!["80/none".into(), "90/none".into()])
    );
    let got = ask(&mut peer, &["80/a.test", "90/b.test"]);
    assert_eq!(got.removed_resources.len(), 0, "requests would wait");
    let names: Vec<&str> = got.resources.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["80/a.test", "90/b.test"]);
    let has_alias_only = |resource: &discovery::Resource| {
        resource.resource.is_none() && resource.aliases == [resource.name.clone()]
    };
    assert!(got.resources.iter().all(has_alias_only), "{got:?}");
}
