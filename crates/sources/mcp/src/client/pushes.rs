//! Model of the changes that istiod pushes, which depend on the client's node: compared with recordings, and
//! used to test the client.

use super::content::{Content, ContentSettings};
use super::settings::McpSettings;
use super::stream::{ClientStream, Protocol};
use crate::kinds::{KINDS, McpKind};
use crate::resource::{Metadata, Resource};
use pilotfish_model::Kind;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use pilotfish_registry::testing::live_settings;
use pilotfish_runtime::GuardSettings;
use prost::Message;
use prost_types::Any;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// Changes in the recordings that are not pushed to some nodes, with their kind; true if the object is in
/// another namespace than the node, or exported to its own namespace only.
const STEPS: [(&str, Kind, bool); 7] = [
    ("change a Gateway", Kind::Gateway, false),
    ("delete the only Gateway", Kind::Gateway, false),
    ("change the Sidecar of namespace shop", Kind::Sidecar, true),
    ("change an AuthorizationPolicy of namespace shop", Kind::AuthorizationPolicy, true),
    ("change a VirtualService exported to its own namespace shop only", Kind::VirtualService, true),
    ("add a WorkloadGroup", Kind::WorkloadGroup, false),
    ("add a WorkloadEntry that nothing selects", Kind::WorkloadEntry, false),
];

/// True if istiod pushes the change of an object to a node of that type in namespace `default`.
fn is_pushed(node: &str, kind: Kind, is_elsewhere: bool) -> bool {
    match (kind, node) {
        (Kind::WorkloadGroup | Kind::WorkloadEntry, _) => false,
        (Kind::Gateway, "sidecar") | (Kind::Sidecar, "router") => false,
        (_, "sidecar") => !is_elsewhere,
        _ => true,
    }
}

#[test]
fn model_pushes_what_recorded_istiods_did() {
    for (node, text) in [
        ("sidecar", include_str!("../../tests/recordings/server-changes-sotw.json")),
        ("router", include_str!("../../tests/recordings/server-changes-router.json")),
    ] {
        let recording: Value = serde_json::from_str(text).unwrap();
        let notes: Vec<&str> = recording["conversation"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|row| row["note"].as_str())
            .collect();
        for (step, kind, is_elsewhere) in STEPS {
            let at = notes.iter().position(|note| *note == step).unwrap();
            let pushed = notes.get(at + 1) != Some(&"no push for this step");
            assert_eq!(pushed, is_pushed(node, kind, is_elsewhere), "{node}: {step}");
        }
    }
}

/// Model of istiod: each push has all subscribed kinds; a request without a nonce is answered.
#[derive(Default)]
struct Istiod {
    node: String,
    watched: BTreeMap<String, Kind>,
    names: BTreeMap<Kind, Vec<String>>,
    answers: usize,
}

impl Istiod {
    fn answer(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let request = DiscoveryRequest::decode(request).unwrap();
        if let Some(Node { id, .. }) = request.node {
            self.node = id.split('~').next().unwrap().to_owned();
        }
        let kind = McpKind::of_type_url(&request.type_url)?.kind;
        self.watched.insert(request.type_url.clone(), kind);
        request.response_nonce.is_empty().then(|| self.list(&request.type_url, kind))
    }

    fn list(&mut self, type_url: &str, kind: Kind) -> Vec<u8> {
        self.answers += 1;
        let body = |name: &String| {
            let metadata = Metadata { name: name.clone(), ..Metadata::default() };
            Resource { metadata: Some(metadata), body: Some(Any::default()) }.into_any()
        };
        let resources = self.names.get(&kind).into_iter().flatten().map(body).collect();
        let (type_url, nonce) = (type_url.to_owned(), self.answers.to_string());
        DiscoveryResponse { type_url, nonce, resources, ..DiscoveryResponse::default() }.encode_to_vec()
    }

    fn add(&mut self, kind: Kind, name: &str) -> Vec<Vec<u8>> {
        self.names.entry(kind).or_default().push(name.to_owned());
        if !is_pushed(&self.node, kind, true) {
            return Vec::new();
        }
        self.watched.clone().iter().map(|(type_url, kind)| self.list(type_url, *kind)).collect()
    }
}

fn content_settings() -> ContentSettings {
    ContentSettings {
        origin: "mcp".into(),
        checks: Vec::new(),
        revision: None,
        guard: GuardSettings::off(),
        most_resources: 100,
        kinds: KINDS.iter().collect(),
    }
}

/// Kinds of which a client with that node misses a change.
fn missed(node: &Node) -> Vec<Kind> {
    let mut content = Content::new(content_settings());
    let mut stream = ClientStream::new(Protocol::Sotw, node.clone(), false);
    let mut istiod = Istiod::default();
    let mut sent: Vec<Vec<u8>> =
        stream.first_requests(&mut content).iter().filter_map(|request| istiod.answer(request)).collect();
    let mut missed = Vec::new();
    for entry in KINDS.iter().filter(|entry| entry.kind != Kind::MeshConfig) {
        sent.extend(istiod.add(entry.kind, "shop/new"));
        // One request is enough: it is answered before the next one.
        for request in stream.relist().into_iter().chain(stream.relist()) {
            sent.extend(istiod.answer(&request));
        }
        for message in sent.drain(..) {
            let reply = stream.on_message(&message, &mut content, Instant::now()).unwrap().reply;
            assert_eq!(istiod.answer(&reply), None, "an acknowledgement is not answered");
        }
        if !content.names(entry.kind).contains("shop/new") {
            missed.push(entry.kind);
        }
    }
    missed
}

#[test]
fn default_node_misses_no_change_of_an_istiod() {
    let settings = McpSettings::parse(live_settings("mcp", "xds://127.0.0.1:1", &[])).unwrap();
    assert!(settings.node.id.starts_with("waypoint~127.0.0.1~pilotfish."), "{}", settings.node.id);
    assert_eq!(missed(&settings.node), []);
    let of = |id: &str| missed(&Node { id: format!("{id}~10.0.0.1~a.default~default"), ..Node::default() });
    assert_eq!(of("router"), [Kind::Sidecar]);
    assert!(of("sidecar").contains(&Kind::AuthorizationPolicy), "{:?}", of("sidecar"));
}

#[test]
fn list_that_was_not_answered_is_not_asked_for_again() {
    for (protocol, count) in [(Protocol::Sotw, 2), (Protocol::Delta, 0)] {
        let mut content = Content::new(content_settings());
        let mut stream = ClientStream::new(protocol, Node::default(), false);
        let mut istiod = Istiod::default();
        assert_eq!(stream.relist(), Vec::<Vec<u8>>::new(), "nothing was answered yet");
        let requests = stream.first_requests(&mut content);
        if protocol == Protocol::Sotw {
            for message in requests.iter().filter_map(|request| istiod.answer(request)).collect::<Vec<_>>() {
                stream.on_message(&message, &mut content, Instant::now()).unwrap();
            }
        }
        assert_eq!((stream.relist().len(), stream.relist().len()), (count, 0));
    }
}
