//! Conversion of a server's resources by a client, without a network: for tests.

use super::content::{Content, ContentSettings};
use super::stream::{ClientStream, Protocol};
use crate::kinds::KINDS;
use crate::server::Difference;
use pilotfish_config::SourceEvent;
use pilotfish_model::Object;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::DiscoveryResponse;
use pilotfish_runtime::GuardSettings;
use prost::Message;
use prost_types::Any;
use std::time::Instant;

/// Sends all resources as lists; returns the client's objects.
pub(crate) fn relay(all: &[Difference]) -> Vec<Object> {
    let settings = ContentSettings {
        origin: "mcp".into(),
        checks: Vec::new(),
        revision: None,
        guard: GuardSettings::off(),
        most_resources: usize::MAX,
        kinds: KINDS.iter().collect(),
    };
    let mut content = Content::new(settings);
    let mut stream = ClientStream::new(Protocol::Sotw, Node::default(), false);
    stream.first_requests(&mut content);
    let mut objects = Vec::new();
    for entry in KINDS {
        let of_kind = all.iter().filter(|(kind, ..)| *kind == entry.kind);
        let bodies = of_kind.filter_map(|(_, _, resource)| resource.as_ref());
        let resources = bodies.map(|resource| Any::decode(&*resource.any).expect("our own bytes")).collect();
        let response = DiscoveryResponse { type_url: entry.type_url(false), resources, ..Default::default() };
        let answered = stream
            .on_message(&response.encode_to_vec(), &mut content, Instant::now())
            .expect("our own bytes");
        let (_, taken) = answered.taken.expect("the kind was asked for");
        assert_eq!(taken.error, None, "{}", entry.kind);
        objects.extend(content.batch().events.into_iter().filter_map(|event| match event {
            SourceEvent::Apply(object) => Some(object),
            _ => None,
        }));
    }
    objects
}
