//! Recorded conversations of a real istiod as server of configuration: what clients said is said to our
//! streams, which answer when istiod did.

use crate::support::{Peer, fanout};
use base64::prelude::{BASE64_STANDARD, Engine};
use pilotfish_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// One request of a recording: its type, and whether istiod answered before the next one.
struct Step {
    stream: u64,
    note: String,
    request: DiscoveryRequest,
    is_answered: bool,
}

fn steps(recording: &str) -> Vec<Step> {
    let recording: Value = serde_json::from_str(recording).unwrap();
    let (mut steps, mut note, mut is_change): (Vec<Step>, _, _) = (Vec::new(), String::new(), false);
    for row in recording["conversation"].as_array().unwrap() {
        let raw = row["raw"].as_str().map(|raw| BASE64_STANDARD.decode(raw).unwrap());
        match (row["from"].as_str().unwrap(), raw) {
            ("test", _) => {
                note = row["note"].as_str().unwrap_or_default().to_owned();
                is_change = note.contains("change");
            }
            ("client", Some(raw)) => {
                let request = DiscoveryRequest::decode(&raw[..]).unwrap();
                let stream = row["stream"].as_u64().unwrap();
                steps.push(Step { stream, note: note.clone(), request, is_answered: false });
            }
            ("server", Some(raw)) if !is_change => {
                let response = DiscoveryResponse::decode(&raw[..]).unwrap();
                let last = steps.last_mut().unwrap();
                last.is_answered |= last.request.type_url == response.type_url;
            }
            _ => {}
        }
    }
    steps
}

/// Says everything again. Gives the steps at which we answer otherwise, as `NOTE: TYPE`.
fn replay(recording: &str) -> (usize, Vec<String>) {
    let fanout = fanout();
    fanout.source().all_collections.store(true, Ordering::SeqCst);
    let mut peers: BTreeMap<u64, Peer> = BTreeMap::new();
    // Nonces are ours: what answers istiod's newest answers our newest.
    let (mut theirs, mut ours): (BTreeMap<_, String>, BTreeMap<_, String>) = Default::default();
    let (mut count, mut other) = (0, Vec::new());
    for Step { stream, note, mut request, is_answered } in steps(recording) {
        if request.node.as_ref().is_none_or(|node| !node.id.contains('~')) && !peers.contains_key(&stream) {
            continue;
        }
        if request.type_url.contains("envoy.") {
            continue;
        }
        let place = (stream, request.type_url.clone());
        let nonce = request.response_nonce.clone();
        if ours.contains_key(&place) && !nonce.is_empty() && is_istiods(&nonce) {
            let is_newer = theirs.get(&place).is_none_or(|known| *known <= nonce);
            theirs.insert(place.clone(), nonce);
            if is_newer {
                request.response_nonce = ours[&place].clone();
            }
        }
        let peer = peers.entry(stream).or_insert_with(|| Peer::sotw(&fanout));
        peer.send_sotw(request).unwrap();
        let mut answers = 0;
        while let Some(response) = peer.stream.lock().poll_response(peer.now) {
            let frame = response.concat();
            let message = DiscoveryResponse::decode(&frame[5..]).unwrap();
            assert_eq!(message.type_url, place.1, "in the spelling that was asked");
            ours.insert((stream, message.type_url), message.nonce);
            answers += 1;
        }
        count += 1;
        if (answers == 1) != is_answered || answers > 1 {
            other.push(format!("{note}: {}", place.1));
        }
    }
    (count, other)
}

/// The nonces of the recorded server begin with the time of its push.
fn is_istiods(nonce: &str) -> bool {
    nonce.starts_with("2026-") && nonce.contains("Z/")
}

#[test]
fn every_type_is_answered_once_as_istiod_does() {
    let (count, other) =
        replay(include_str!("../../../../sources/mcp/tests/recordings/server-types-sotw-api.json"));
    assert!(count >= 90, "{count}");
    // A kind is whole here, so an ACK with other names, and one without them again, ask for nothing.
    assert_eq!(other, [": networking.istio.io/v1/DestinationRule"; 2]);
}

#[test]
fn the_rules_of_the_protocol_are_istiods() {
    let (count, other) =
        replay(include_str!("../../../../sources/mcp/tests/recordings/server-protocol-sotw.json"));
    assert!(count >= 20, "{count}");
    let names = "networking.istio.io/v1/VirtualService";
    assert_eq!(
        other,
        [
            format!("ACK that now names one resource: {names}"),
            format!("ACK that now names two resources, one of them does not exist: {names}"),
            format!("ACK without names again: {names}"),
        ]
    );
}
