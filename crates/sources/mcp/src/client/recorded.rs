//! Tests of the client with recordings of a real istiod: changes that four clients received at the same time,
//! and endpoints by EDS.

use super::content::{Content, ContentSettings};
use super::stream::{ClientStream, Protocol};
use super::synthetic::Synthetic;
use crate::kinds::{KINDS, McpKind};
use crate::resource::{Metadata, Resource, json_to_body};
use base64::prelude::{BASE64_STANDARD, Engine};
use pilotfish_config::SourceEvent;
use pilotfish_config::networking::ServiceEntry;
use pilotfish_model::{Kind, Object, ObjectKey};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3 as xds;
use pilotfish_runtime::GuardSettings;
use prost::Message;
use prost_types::Any;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// A client with the events that it has passed on.
struct Client {
    content: Content,
    synthetic: Synthetic,
    stream: ClientStream,
    objects: BTreeMap<ObjectKey, Object>,
    is_listed: bool,
}

impl Client {
    fn new(protocol: Protocol) -> Self {
        let settings = ContentSettings {
            origin: "mcp".into(),
            checks: Vec::new(),
            revision: None,
            guard: GuardSettings::off(),
            most_resources: 1_000,
            kinds: KINDS.iter().collect(),
        };
        let mut content = Content::new(settings);
        let mut stream = ClientStream::new(protocol, Node::default(), false);
        stream.first_requests(&mut content);
        let (objects, is_listed) = Default::default();
        Self { content, synthetic: Synthetic::new(GuardSettings::off()), stream, objects, is_listed }
    }

    fn take(&mut self, message: &[u8]) {
        let now = Instant::now();
        let answered = self.stream.on_message(message, &mut self.content, now).unwrap();
        if let Some(answer) = answered.assignments {
            self.synthetic.answer(&answer, now);
        }
        for event in self.synthetic.complete(self.content.batch().events) {
            match event {
                SourceEvent::Apply(object) => drop(self.objects.insert(object.key().clone(), object)),
                SourceEvent::Delete(key) => drop(self.objects.remove(&key)),
                SourceEvent::Listed => self.is_listed = true,
                _ => {}
            }
        }
    }

    /// Endpoints of an entry as `ADDRESS PORT=NUMBER... LOCALITY WEIGHT`.
    fn endpoints(&self, name: &str) -> Option<Vec<String>> {
        let key = ObjectKey::new(Kind::ServiceEntry, "default", name);
        let entry = self.objects.get(&key)?.typed::<ServiceEntry>().unwrap();
        let shown = entry.endpoints.iter().map(|endpoint| {
            let ports: Vec<String> =
                endpoint.ports.iter().map(|(name, port)| format!("{name}={port}")).collect();
            format!("{} {} {} {}", endpoint.address, ports.join(","), endpoint.locality, endpoint.weight)
        });
        Some(shown.collect())
    }
}

/// A resource from its JSON form in a recording.
fn any(json: &Value) -> Any {
    let body = |json: &Value| {
        let Value::Object(mut fields) = json.clone() else { unreachable!("a body is an object") };
        let type_url = fields.remove("@type").unwrap();
        let entry =
            KINDS.iter().find(|entry| type_url.as_str().unwrap().ends_with(entry.kind.name())).unwrap();
        json_to_body(entry, &Value::Object(fields)).unwrap()
    };
    let Some(metadata) = json.get("metadata") else { return body(json) };
    let texts = |field: &str| {
        let fields = metadata.get(field).and_then(Value::as_object);
        fields
            .into_iter()
            .flatten()
            .map(|(name, text)| (name.clone(), text.as_str().unwrap().to_owned()))
            .collect()
    };
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = Metadata {
        name: text("name"),
        version: text("version"),
        labels: texts("labels"),
        annotations: texts("annotations"),
        ..Metadata::default()
    };
    Resource { metadata: Some(metadata), body: Some(body(&json["body"])) }.into_any()
}

/// One response of a recording as a message, and its resource names.
fn message(row: &Map<String, Value>, resources: &[Value], protocol: Protocol) -> (Vec<u8>, BTreeSet<String>) {
    let name = |resource: &Value| resource["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let text = |field: &str| row[field].as_str().unwrap().to_owned();
    match protocol {
        Protocol::Sotw => {
            let response = xds::DiscoveryResponse {
                type_url: text("type"),
                nonce: text("nonce"),
                resources: resources.iter().map(any).collect(),
                ..Default::default()
            };
            (response.encode_to_vec(), resources.iter().map(name).collect())
        }
        Protocol::Delta => {
            let named = |resource: &Value| xds::Resource {
                name: resource["name"].as_str().unwrap().to_owned(),
                resource: Some(any(&resource["resource"])),
                ..Default::default()
            };
            let removed = row.get("removed").and_then(Value::as_array).into_iter().flatten();
            let response = xds::DeltaDiscoveryResponse {
                type_url: text("type"),
                nonce: text("nonce"),
                resources: resources.iter().map(named).collect(),
                removed_resources: removed.map(|name| name.as_str().unwrap().to_owned()).collect(),
                ..Default::default()
            };
            (response.encode_to_vec(), resources.iter().map(|resource| name(&resource["resource"])).collect())
        }
    }
}

/// Replays a recording of changes. Checks the client's content after each response, and returns it at the
/// end.
fn replay(text: &str, protocol: Protocol) -> BTreeMap<ObjectKey, Object> {
    let recording: Value = serde_json::from_str(text).unwrap();
    let mut client = Client::new(protocol);
    let mut known: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let (mut step, mut answers) = (String::new(), 0);
    for row in recording["conversation"].as_array().unwrap() {
        let row = row.as_object().unwrap();
        if row["from"] == "test" {
            row["note"].as_str().unwrap().clone_into(&mut step);
            continue;
        }
        let resources = match row.get("as") {
            Some(nonce) => known[nonce.as_str().unwrap()].clone(),
            None => row["resources"].as_array().unwrap().clone(),
        };
        known.insert(row["nonce"].as_str().unwrap().to_owned(), resources.clone());
        let (message, names) = message(row, &resources, protocol);
        client.take(&message);
        answers += 1;
        let Some(entry) = McpKind::of_type_url(row["type"].as_str().unwrap()) else { continue };
        if entry.kind == Kind::MeshConfig {
            continue;
        }
        let held = client.content.names(entry.kind);
        if protocol == Protocol::Delta {
            // Deltas of istiod do not list all removed resources, which is why lists are requested: see
            // `is_unversioned`.
            assert!(held.is_superset(&names), "after {step:?}: {}", entry.kind);
            continue;
        }
        // The second spelling of a kind is ignored: it lags behind the first by one response.
        if row["type"] != "networking.istio.io/v1alpha3/VirtualService" {
            assert_eq!(held, names, "after {step:?}: {}", entry.kind);
        }
    }
    assert!(answers > 100, "{answers}");
    client.objects
}

#[test]
fn a_client_of_lists_has_what_there_is_after_recorded_changes_and_one_of_differences_more() {
    let lists = replay(include_str!("../../tests/recordings/server-changes-sotw.json"), Protocol::Sotw);
    let differences =
        replay(include_str!("../../tests/recordings/server-changes-delta.json"), Protocol::Delta);
    assert!(lists.len() > 10, "{:?}", lists.keys());
    let more: Vec<&ObjectKey> = differences.keys().filter(|key| !lists.contains_key(*key)).collect();
    assert_eq!(
        more,
        [&ObjectKey::new(Kind::WorkloadEntry, "default", "vm-2")],
        "which an istiod does not tell"
    );
    assert!(lists.iter().all(|(key, object)| differences.get(key) == Some(object)));
}

#[test]
fn differences_of_an_istiod_have_no_versions() {
    let text = include_str!("../../tests/recordings/server-changes-delta.json");
    let recording: Value = serde_json::from_str(text).unwrap();
    let mut client = Client::new(Protocol::Delta);
    let rows = recording["conversation"].as_array().unwrap().iter().filter_map(|row| {
        let row = row.as_object().unwrap();
        Some((row, row.get("resources")?.as_array()?.clone()))
    });
    let mut seen = 0;
    for (row, resources) in rows.filter(|(_, resources)| !resources.is_empty()) {
        let (message, _) = message(row, &resources, Protocol::Delta);
        seen += 1;
        assert!(
            client.stream.on_message(&message, &mut client.content, Instant::now()).unwrap().is_unversioned
        );
    }
    assert!(seen > 10);
}

#[test]
fn recorded_changes_for_a_limited_namespace_and_for_a_router_are_followed() {
    for text in [
        include_str!("../../tests/recordings/server-changes-scoped.json"),
        include_str!("../../tests/recordings/server-changes-router.json"),
    ] {
        assert!(!replay(text, Protocol::Sotw).is_empty());
    }
}

#[test]
fn services_of_an_istiod_have_the_endpoints_of_its_eds() {
    let recording: Value =
        serde_json::from_str(include_str!("../../tests/recordings/server-types-sotw-api.json")).unwrap();
    let answers: Vec<Vec<u8>> = recording["conversation"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["from"] == "server")
        .map(|row| BASE64_STANDARD.decode(row["raw"].as_str().unwrap()).unwrap())
        .collect();
    let of_type = |wanted: &str| {
        let is =
            |raw: &&Vec<u8>| xds::DiscoveryResponse::decode(&raw[..]).unwrap().type_url.ends_with(wanted);
        answers.iter().find(is).unwrap().clone()
    };
    let mut client = Client::new(Protocol::Sotw);
    client.take(&of_type("v1/ServiceEntry"));
    assert!(client.endpoints("external").is_some(), "what has its own endpoints is there at once");
    assert_eq!(client.endpoints("synthetic-web"), None, "and what has none waits for them");
    let (asked, left) = client.synthetic.take_subscriptions();
    assert!(left.is_empty());
    let web = ["outbound|5432||", "outbound|80||", "outbound|9090||"]
        .map(|port| format!("{port}web.default.svc.cluster.local"));
    assert!(web.iter().all(|name| asked.contains(name)), "{asked:?}");
    assert!(
        asked.iter().all(|name| !name.contains("outside")),
        "what has no resolution has no endpoints: {asked:?}"
    );
    let request = client.stream.ask_endpoints((asked, left)).unwrap();
    assert_eq!(xds::DiscoveryRequest::decode(&request[..]).unwrap().response_nonce, "");

    // The recording requested one of its ports; the others have no response, until the client gives up.
    client.take(&of_type("ClusterLoadAssignment"));
    assert_eq!(client.endpoints("synthetic-web"), None);
    assert!(client.synthetic.is_waiting());
    client.synthetic.give_up();
    client.take(&of_type("v1/ServiceEntry"));
    assert_eq!(
        client.endpoints("synthetic-web").unwrap(),
        ["10.0.1.1 http=8080  1", "10.0.1.2 http=8080  1"],
        "as the server's EDS has them"
    );
}
