//! A proxy that refuses.

use bytes::Bytes;
use pilotfish_bench::connection::Connection;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use pilotfish_testkit::real::Pilotfish;
use prost::Message;
use std::net::SocketAddr;

const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// Connects as `refuser` of a namespace, and refuses the clusters with these words: the field `error_detail`
/// of its request has a message.
pub(crate) async fn refusing(pilotfish: &Pilotfish, namespace: &str, words: &str) -> Connection {
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
    let id = format!("sidecar~10.0.0.9~refuser.{namespace}~{namespace}.svc.cluster.local");
    let node = Some(Node { id, ..Node::default() });
    let first = DiscoveryRequest { node, type_url, ..DiscoveryRequest::default() };
    let first = vec![Bytes::from(first.encode_to_vec())];
    let mut connection = Connection::open_with(target, SOTW, &[], first).await.unwrap();
    let response = DiscoveryResponse::decode(connection.next().await.unwrap().unwrap()).unwrap();
    connection.send(&refusal(&response, words)).unwrap();
    connection
}

/// Request that refuses a response with a short message.
pub(crate) fn refusal(response: &DiscoveryResponse, words: &str) -> Vec<u8> {
    let (type_url, response_nonce) = (response.type_url.clone(), response.nonce.clone());
    let mut refusal =
        DiscoveryRequest { type_url, response_nonce, ..DiscoveryRequest::default() }.encode_to_vec();
    // A google.rpc.Status with these words, which are short.
    let length = u8::try_from(words.len()).unwrap();
    assert!(length < 120, "lengths are one byte");
    refusal.extend([0x32, length + 2, 0x12, length]);
    refusal.extend(words.as_bytes());
    refusal
}
