//! The client as sequences of answers, some of them recorded from a real istiod.

use super::content::{Answer, Content, ContentSettings, Incoming, Taken};
use super::stream::{ClientStream, Protocol};
use crate::kinds::{KINDS, McpKind};
use crate::resource::{Metadata, Resource, json_to_body};
use base64::prelude::{BASE64_STANDARD, Engine};
use pilotfish_config::{Effective, SourceEvent};
use pilotfish_model::{Kind, Object, ObjectKey};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3 as xds;
use pilotfish_runtime::GuardSettings;
use prost::Message;
use prost_types::Any;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

fn settings(guard: GuardSettings) -> ContentSettings {
    ContentSettings {
        origin: "mcp".into(),
        checks: Vec::new(),
        revision: None,
        guard,
        most_resources: 1_000,
        kinds: KINDS.iter().collect(),
    }
}

fn resource(kind: Kind, name: &str, version: &str, spec: &Value) -> Any {
    let metadata = Metadata { name: name.into(), version: version.into(), ..Metadata::default() };
    let body = json_to_body(McpKind::of(kind).unwrap(), spec).unwrap();
    Resource { metadata: Some(metadata), body: Some(body) }.into_any()
}

fn entry(name: &str, version: &str, host: &str) -> Any {
    let ports = json!([{"number": 80, "name": "http", "protocol": "HTTP"}]);
    let spec = json!({"hosts": [host], "ports": ports, "resolution": "STATIC",
        "endpoints": [{"address": "192.0.2.1"}]});
    resource(Kind::ServiceEntry, name, version, &spec)
}

/// A source with what it has sent.
struct Source {
    content: Content,
    objects: BTreeMap<ObjectKey, Object>,
    /// All events since the last look.
    events: Vec<String>,
    reports: Vec<(String, Effective)>,
}

impl Source {
    fn new(settings: ContentSettings) -> Self {
        let content = Content::new(settings);
        Self { content, objects: BTreeMap::new(), events: Vec::new(), reports: Vec::new() }
    }

    fn deliver(&mut self) {
        let batch = self.content.batch();
        if let Some(problems) = batch.problems {
            let reports = problems.reports.iter().map(|report| (report.message.clone(), report.effective));
            self.reports = reports.collect();
        }
        for event in batch.events {
            match event {
                SourceEvent::Apply(object) => {
                    self.events.push(format!("+{}", object.key()));
                    self.objects.insert(object.key().clone(), object);
                }
                SourceEvent::Delete(key) => {
                    self.events.push(format!("-{key}"));
                    assert!(self.objects.remove(&key).is_some(), "only what was applied is deleted");
                }
                other => self.events.push(format!("{other:?}")),
            }
        }
    }

    fn answer(&mut self, kind: Kind, resources: &[Any], answer: &Answer<'_>) -> Taken {
        self.answer_at(Instant::now(), kind, resources, answer)
    }

    fn answer_at(&mut self, now: Instant, kind: Kind, resources: &[Any], answer: &Answer<'_>) -> Taken {
        let incoming: Vec<_> =
            resources.iter().map(|body| Incoming { name: "", version: "", body }).collect();
        let taken = self.content.answer(McpKind::of(kind).unwrap(), &incoming, answer, now);
        self.deliver();
        taken
    }

    fn list(&mut self, kind: Kind, resources: &[Any]) -> Taken {
        self.answer(kind, resources, &Answer::All)
    }

    fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn keys(&self) -> Vec<String> {
        self.objects.keys().map(ToString::to_string).collect()
    }
}

#[test]
fn lists_become_differences() {
    let mut source = Source::new(settings(GuardSettings::off()));
    let kind = Kind::ServiceEntry;
    source.list(kind, &[entry("n/a", "1", "a.example"), entry("n/b", "1", "b.example")]);
    assert_eq!(source.events(), ["+ServiceEntry n/a", "+ServiceEntry n/b"]);
    // The same version is not even read again, another is, also a lower one; none counts as another.
    for (version, applied) in [("1", 0), ("2", 1), ("1", 1), ("", 1), ("", 1)] {
        source.list(kind, &[entry("n/a", version, "new.example"), entry("n/b", "1", "b.example")]);
        assert_eq!(source.events().len(), applied, "version {version:?}");
    }
    assert_eq!(source.list(kind, &[entry("n/a", "3", "a.example")]), Taken::default());
    assert_eq!(source.events(), ["+ServiceEntry n/a", "-ServiceEntry n/b"]);
    source.list(kind, &[]);
    assert_eq!(source.events(), ["-ServiceEntry n/a"]);
}

#[test]
fn it_is_in_sync_when_every_kind_was_answered_but_mesh_config() {
    let mut source = Source::new(settings(GuardSettings::default()));
    for entry in KINDS.iter().filter(|entry| entry.kind != Kind::MeshConfig) {
        assert!(!source.events().contains(&"Listed".to_owned()));
        source.list(entry.kind, &[]);
    }
    assert_eq!(source.events(), ["Listed"]);
    assert!(source.content.missing().is_empty());
    source.content.stream_began();
    assert_eq!(source.content.missing().len(), KINDS.len() - 1, "a new stream has to answer again");
    source.list(Kind::Gateway, &[]);
    assert_eq!(source.events().len(), 0, "in sync once");
}

#[test]
fn one_broken_resource_costs_one_resource_and_keeps_its_last_good_version() {
    let mut source = Source::new(settings(GuardSettings::default()));
    let kind = Kind::ServiceEntry;
    source.list(kind, &[entry("n/a", "1", "a.example"), entry("n/b", "1", "b.example")]);
    source.events();
    let garbled = |name: &str| {
        let metadata = Metadata { name: name.into(), version: "2".into(), ..Metadata::default() };
        let type_url = "istio.networking.v1alpha3.ServiceEntry".to_owned();
        let body = Any { type_url, value: vec![0xff, 0xff] };
        Resource { metadata: Some(metadata), body: Some(body) }.into_any()
    };
    let taken = source.list(kind, &[entry("n/a", "2", "new.example"), garbled("n/b"), garbled("n/c")]);
    let error = taken.error.unwrap();
    assert!(error.starts_with("n/b: the body does not decode"), "{error}");
    assert!(error.contains("n/c: the body does not decode"), "{error}");
    assert_eq!(source.events(), ["+ServiceEntry n/a"]);
    assert_eq!(source.keys(), ["ServiceEntry n/a", "ServiceEntry n/b"]);
    let effective: Vec<_> = source.reports.iter().map(|(_, effective)| *effective).collect();
    assert_eq!(effective, [Effective::LastGood, Effective::Dropped]);
    // Refused by validation, as from a file.
    let wrong = entry("n/b", "3", "no host!");
    let error = source.list(kind, &[entry("n/a", "2", "x"), wrong]).error.unwrap();
    assert!(error.contains("spec.hosts[0]"), "{error}");
    assert_eq!(source.keys(), ["ServiceEntry n/a", "ServiceEntry n/b"]);
    // Good again: nothing is left of the problem. What is in force has version 1.
    let all = [entry("n/a", "2", "x"), entry("n/b", "1", "b.example")];
    assert_eq!(source.list(kind, &all), Taken::default());
    let all = [entry("n/a", "2", "x"), entry("n/b", "4", "b2.example")];
    assert_eq!(source.list(kind, &all), Taken::default());
    assert_eq!((source.events(), source.reports.len()), (vec!["+ServiceEntry n/b".to_owned()], 0));
}

#[test]
fn a_resource_that_cannot_be_named_takes_nothing_away() {
    let mut source = Source::new(settings(GuardSettings::off()));
    source.list(Kind::ServiceEntry, &[entry("n/a", "1", "a.example")]);
    let other = Any { type_url: "type.googleapis.com/istio.mcp.v1alpha1.Resource".into(), value: vec![0xff] };
    assert!(source.list(Kind::ServiceEntry, &[other]).error.is_some());
    assert_eq!(source.keys(), ["ServiceEntry n/a"]);
    let odd = resource(Kind::ServiceEntry, "only-a-name", "1", &json!({"hosts": ["x.example"]}));
    let error = source.list(Kind::ServiceEntry, &[entry("n/a", "1", "x"), odd]).error.unwrap();
    assert_eq!(error, "only-a-name: its name is not NAMESPACE/NAME");
}

#[test]
fn a_broken_policy_that_was_never_good_is_closed() {
    let mut source = Source::new(settings(GuardSettings::default()));
    let metadata = Metadata { name: "n/deny".into(), ..Metadata::default() };
    let type_url = "istio.security.v1beta1.AuthorizationPolicy".to_owned();
    let body = Some(Any { type_url, value: vec![0xff] });
    let broken = Resource { metadata: Some(metadata), body }.into_any();
    assert!(source.list(Kind::AuthorizationPolicy, &[broken]).error.is_some());
    assert_eq!(source.keys(), ["AuthorizationPolicy n/deny"]);
    assert_eq!(source.reports[0].1, Effective::Closed);
    source.list(Kind::AuthorizationPolicy, &[]);
    assert_eq!(source.list(Kind::AuthorizationPolicy, &[]), Taken::default());
    assert_eq!((source.keys().len(), source.reports.len()), (0, 0));
}

#[test]
fn list_without_most_resources_of_a_kind_is_held_until_a_second_one() {
    let mut source = Source::new(settings(GuardSettings::default()));
    let (kind, start) = (Kind::ServiceEntry, Instant::now());
    let all: Vec<Any> = (0..6).map(|i| entry(&format!("n/{i}"), "1", &format!("h{i}.example"))).collect();
    // Seconds, resources of the list, resources in force afterwards.
    for (second, listed, in_force) in [
        (0, 6, 6),
        (20, 3, 3),
        (40, 2, 2),
        (60, 0, 0),
        (80, 6, 6),
        (100, 0, 6),
        (105, 0, 6),
        (106, 6, 6),
        (120, 0, 6),
        (130, 0, 0),
    ] {
        let now = start + Duration::from_secs(second);
        assert_eq!(source.answer_at(now, kind, &all[..listed], &Answer::All), Taken::default());
        assert_eq!(source.keys().len(), in_force, "second {second}");
    }
    assert!(source.content.held().all(|(_, held)| held.is_none()));
}

#[test]
fn list_with_other_resources_in_the_place_of_most_is_held() {
    let mut source = Source::new(settings(GuardSettings::default()));
    let (kind, start) = (Kind::ServiceEntry, Instant::now());
    let all: Vec<Any> = (0..20).map(|i| entry(&format!("n/{i}"), "1", &format!("h{i}.example"))).collect();
    // Seconds, resources of the list, resources in force afterwards.
    for (second, listed, in_force) in
        [(0, 0..6, 6), (20, 6..12, 12), (30, 6..12, 6), (40, 10..16, 10), (50, 10..16, 6), (70, 13..19, 6)]
    {
        let now = start + Duration::from_secs(second);
        assert_eq!(source.answer_at(now, kind, &all[listed], &Answer::All), Taken::default());
        assert_eq!(source.keys().len(), in_force, "second {second}");
    }
}

#[test]
fn second_mass_loss_is_held_after_growth_by_differences() {
    let mut source = Source::new(settings(GuardSettings::default()));
    let (kind, start) = (Kind::ServiceEntry, Instant::now());
    let all: Vec<Any> = (0..6).map(|i| entry(&format!("n/{i}"), "1", &format!("h{i}.example"))).collect();
    for hour in 0..3 {
        let now = start + Duration::from_secs(3_600 * hour);
        source.answer_at(now, kind, &all, &Answer::Difference { removed: &[], is_first: false });
        for (second, in_force) in [(20, 6), (25, 6), (30, 0)] {
            source.answer_at(now + Duration::from_secs(second), kind, &[], &Answer::All);
            assert_eq!(source.keys().len(), in_force, "hour {hour}, second {second}");
        }
    }
}

#[test]
fn first_difference_of_a_stream_is_guarded_and_later_ones_name_what_is_gone() {
    let mut source = Source::new(settings(GuardSettings::default()));
    let (kind, now) = (Kind::ServiceEntry, Instant::now());
    let all: Vec<Any> = (0..6).map(|i| entry(&format!("n/{i}"), "1", &format!("h{i}.example"))).collect();
    let removed: Vec<String> = (0..6).map(|i| format!("n/{i}")).collect();
    source.answer_at(now, kind, &all, &Answer::All);
    source.answer_at(now, kind, &[], &Answer::Difference { removed: &removed, is_first: true });
    assert_eq!(source.keys().len(), 6);
    assert_eq!(source.content.versions(kind), None, "the next stream asks for everything");
    source.content.accept(now);
    source.answer_at(now, kind, &all, &Answer::All);
    assert_eq!(source.keys().len(), 6);
    source.answer_at(now, kind, &[], &Answer::Difference { removed: &removed, is_first: false });
    assert_eq!(source.keys().len(), 0);
}

#[test]
fn more_resources_than_are_taken_are_refused_as_a_whole() {
    let mut source = Source::new(ContentSettings { most_resources: 2, ..settings(GuardSettings::off()) });
    let all: Vec<Any> = (0..3).map(|i| entry(&format!("n/{i}"), "1", &format!("h{i}.example"))).collect();
    assert_eq!(source.list(Kind::ServiceEntry, &all[..2]).error, None);
    let error = source.list(Kind::ServiceEntry, &all).error.unwrap();
    assert_eq!(error, "3 resources of one kind, 2 are taken");
    assert_eq!(source.keys().len(), 2);
}

#[test]
fn objects_of_other_revisions_are_left_out() {
    let mut source =
        Source::new(ContentSettings { revision: Some("blue".into()), ..settings(GuardSettings::off()) });
    let of = |name: &str, version: &str, revision: Option<&str>| {
        let mut resource = Resource::open(&entry(name, version, "a.example")).unwrap();
        let label = revision.map(|revision| ("istio.io/rev".to_owned(), revision.to_owned()));
        resource.metadata.as_mut().unwrap().labels.extend(label);
        resource.into_any()
    };
    let kind = Kind::ServiceEntry;
    source.list(
        kind,
        &[of("n/none", "1", None), of("n/blue", "1", Some("blue")), of("n/red", "1", Some("red"))],
    );
    assert_eq!(source.keys(), ["ServiceEntry n/blue", "ServiceEntry n/none"]);
    assert_eq!(
        source.list(kind, &[of("n/none", "2", Some("red")), of("n/blue", "1", Some("blue"))]).error,
        None
    );
    assert_eq!(source.keys(), ["ServiceEntry n/blue"]);
}

#[test]
fn mesh_config_is_read_bare_and_in_an_envelope() {
    let entry = McpKind::of(Kind::MeshConfig).unwrap();
    let body = json_to_body(entry, &json!({"trustDomain": "served.example"})).unwrap();
    let mut source = Source::new(settings(GuardSettings::off()));
    let wrapped = Resource { metadata: None, body: Some(body.clone()) }.into_any();
    for any in [body, wrapped] {
        assert_eq!(source.list(Kind::MeshConfig, &[any]), Taken::default());
        let object = source.objects.values().next().unwrap();
        let mesh = object.typed::<pilotfish_config::mesh::MeshConfig>().unwrap();
        assert_eq!(mesh.trust_domain, "served.example");
    }
    source.list(Kind::MeshConfig, &[]);
    assert_eq!(source.keys().len(), 0);
}

fn sotw(version: &str, nonce: &str, resources: Vec<Any>) -> Vec<u8> {
    let type_url = "networking.istio.io/v1/ServiceEntry".to_owned();
    let (version_info, nonce) = (version.to_owned(), nonce.to_owned());
    xds::DiscoveryResponse { version_info, nonce, type_url, resources, ..Default::default() }.encode_to_vec()
}

#[test]
fn lists_are_acknowledged_and_refused_with_the_last_version_that_was_taken() {
    let mut source = Source::new(settings(GuardSettings::off()));
    let node = Node { id: "me".into(), ..Node::default() };
    let mut stream = ClientStream::new(Protocol::Sotw, node, false);
    let first = stream.first_requests(&mut source.content);
    let requests: Vec<_> =
        first.iter().map(|bytes| xds::DiscoveryRequest::decode(&bytes[..]).unwrap()).collect();
    assert_eq!(requests.len(), KINDS.len());
    assert_eq!(
        requests.iter().filter(|request| request.node.is_some()).count(),
        1,
        "only the first has the node"
    );
    assert!(
        requests.iter().all(|request| request.response_nonce.is_empty() && request.resource_names.is_empty())
    );
    assert_eq!(requests[0].type_url, "core/v1alpha1/MeshConfig");
    let mut say = |version: &str, nonce: &str, resources| {
        let answered =
            stream.on_message(&sotw(version, nonce, resources), &mut source.content, Instant::now()).unwrap();
        xds::DiscoveryRequest::decode(&answered.reply[..]).unwrap()
    };
    let ack = say("v1", "n1", vec![entry("n/a", "1", "a.example")]);
    assert_eq!((&*ack.version_info, &*ack.response_nonce, ack.error_detail), ("v1", "n1", None));
    let nack = say("v2", "n2", vec![entry("n/a", "2", "no host!")]);
    assert_eq!((&*nack.version_info, &*nack.response_nonce), ("v1", "n2"));
    assert!(nack.error_detail.unwrap().message.starts_with("n/a: spec.hosts[0]"));
    let ack = say("v3", "n3", vec![]);
    assert_eq!((&*ack.version_info, ack.error_detail), ("v3", None));
}

#[test]
fn both_spellings_are_understood_in_answers_and_what_was_not_asked_for_is_dropped() {
    let mut source = Source::new(settings(GuardSettings::off()));
    let mut stream = ClientStream::new(Protocol::Sotw, Node::default(), false);
    stream.first_requests(&mut source.content);
    for (type_url, taken) in [
        ("networking.istio.io/v1alpha3/ServiceEntry", true),
        ("networking.istio.io/v1beta1/ServiceEntry", false),
        ("networking.istio.io/v1/ServiceEntry", true),
        ("networking.istio.io/v1alpha3/ServiceEntry", false),
        ("security.istio.io/v1beta1/PeerAuthentication", true),
        ("no.such.group/v1/Thing", false),
        ("", false),
    ] {
        let type_url = type_url.to_owned();
        let response =
            xds::DiscoveryResponse { type_url: type_url.clone(), nonce: "x".into(), ..Default::default() };
        let answered =
            stream.on_message(&response.encode_to_vec(), &mut source.content, Instant::now()).unwrap();
        assert_eq!(answered.taken.is_some(), taken, "{type_url}");
        let ack = xds::DiscoveryRequest::decode(&answered.reply[..]).unwrap();
        assert_eq!((ack.type_url, &*ack.response_nonce, ack.error_detail), (type_url, "x", None));
    }
    assert!(stream.on_message(&[0xff], &mut source.content, Instant::now()).is_err());
}

fn delta(resources: &[(&str, &str, Any)], removed: &[&str]) -> Vec<u8> {
    let resource = |(name, version, any): &(&str, &str, Any)| xds::Resource {
        name: (*name).to_owned(),
        version: (*version).to_owned(),
        resource: Some(any.clone()),
        ..Default::default()
    };
    let response = xds::DeltaDiscoveryResponse {
        type_url: "networking.istio.io/v1/ServiceEntry".into(),
        resources: resources.iter().map(resource).collect(),
        removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
        nonce: "n".into(),
        ..Default::default()
    };
    response.encode_to_vec()
}

/// What the first request for ServiceEntries lists as known.
fn known(stream: &mut ClientStream, content: &mut Content) -> BTreeMap<String, String> {
    let first = stream.first_requests(content);
    let requests = first.iter().map(|bytes| xds::DeltaDiscoveryRequest::decode(&bytes[..]).unwrap());
    let mut of_entries = requests.filter(|request| request.type_url.ends_with("/ServiceEntry"));
    of_entries.next().unwrap().initial_resource_versions
}

#[test]
fn delta_goes_on_where_the_last_stream_ended() {
    let mut source = Source::new(settings(GuardSettings::default()));
    let new = || ClientStream::new(Protocol::Delta, Node::default(), false);
    let mut stream = new();
    assert!(known(&mut stream, &mut source.content).is_empty());
    let (a, b) = (entry("n/a", "1", "a.example"), entry("n/b", "1", "b.example"));
    stream
        .on_message(&delta(&[("n/a", "x1", a), ("n/b", "x2", b)], &[]), &mut source.content, Instant::now())
        .unwrap();
    let broken = entry("n/b", "2", "no host!");
    let answered = stream
        .on_message(&delta(&[("n/b", "x3", broken)], &[]), &mut source.content, Instant::now())
        .unwrap();
    let nack = xds::DeltaDiscoveryRequest::decode(&answered.reply[..]).unwrap();
    assert!(nack.error_detail.is_some());
    source.deliver();
    let mut stream = new();
    let listed = known(&mut stream, &mut source.content);
    assert_eq!(listed["n/a"], "x1");
    assert!(!["x2", "x3"].contains(&&*listed["n/b"]), "the server has to send again what was refused");
    // Only what differs comes, and what is not named stays.
    stream.on_message(&delta(&[], &["n/a", "n/unknown"]), &mut source.content, Instant::now()).unwrap();
    source.deliver();
    assert_eq!(source.keys(), ["ServiceEntry n/b"]);
}

#[test]
fn a_delta_server_without_versions_sends_everything_on_a_new_stream() {
    let mut source = Source::new(settings(GuardSettings::off()));
    let new = || ClientStream::new(Protocol::Delta, Node::default(), false);
    let (a, b) = (entry("n/a", "1", "a.example"), entry("n/b", "1", "b.example"));
    let mut stream = new();
    known(&mut stream, &mut source.content);
    stream
        .on_message(
            &delta(&[("n/a", "", a.clone()), ("n/b", "", b)], &[]),
            &mut source.content,
            Instant::now(),
        )
        .unwrap();
    source.deliver();
    let mut stream = new();
    assert!(known(&mut stream, &mut source.content).is_empty(), "it could not tell what is missing");
    stream.on_message(&delta(&[("n/a", "", a.clone())], &[]), &mut source.content, Instant::now()).unwrap();
    source.deliver();
    assert_eq!(source.keys(), ["ServiceEntry n/a"], "b went meanwhile");
    stream.on_message(&delta(&[], &[]), &mut source.content, Instant::now()).unwrap();
    source.deliver();
    assert_eq!(source.keys(), ["ServiceEntry n/a"], "the second answer is a difference");
}

#[test]
fn a_server_that_was_told_what_we_have_need_not_answer() {
    let mut source = Source::new(settings(GuardSettings::off()));
    for entry in KINDS {
        source.list(entry.kind, &[]);
    }
    let mut stream = ClientStream::new(Protocol::Delta, Node::default(), false);
    stream.first_requests(&mut source.content);
    assert!(source.content.missing().is_empty());
    let mut stream = ClientStream::new(Protocol::Sotw, Node::default(), false);
    stream.first_requests(&mut source.content);
    assert_eq!(source.content.missing().len(), KINDS.len() - 1);
}

/// A recording of a real istiod as client: the servers' answers go to our client, which then has what istiod
/// has.
fn replay(text: &str, settings: ContentSettings) -> Vec<(String, BTreeSet<String>, BTreeSet<String>)> {
    let recording: Value = serde_json::from_str(text).unwrap();
    let mut source = Source::new(settings);
    let new = || ClientStream::new(Protocol::Sotw, Node::default(), false);
    let (mut stream, mut number, mut differ) = (new(), json!(null), Vec::new());
    for row in recording["conversation"].as_array().unwrap() {
        if let (Some(raw), "server") = (row["raw"].as_str(), row["from"].as_str().unwrap()) {
            if row["stream"] != number {
                (stream, number) = (new(), row["stream"].clone());
                stream.first_requests(&mut source.content);
            }
            let message = BASE64_STANDARD.decode(raw).unwrap();
            stream.on_message(&message, &mut source.content, Instant::now()).unwrap();
            source.deliver();
        } else if let Some(stored) = row["stored"].as_array() {
            let name = |text: &Value| text.as_str().unwrap().rsplitn(2, ' ').last().unwrap().to_owned();
            // With the time instead of a version there are more spaces.
            let cut = |text: String| text.split(" 20").next().unwrap_or_default().to_owned();
            let theirs: BTreeSet<String> = stored.iter().map(|text| cut(name(text))).collect();
            let ours: BTreeSet<String> =
                source.keys().into_iter().filter(|key| !key.starts_with("MeshConfig")).collect();
            let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect();
            differ.push((
                row["note"].as_str().unwrap().to_owned(),
                only(&ours, &theirs),
                only(&theirs, &ours),
            ));
        }
    }
    assert!(!differ.is_empty());
    differ
}

#[test]
fn recorded_answers_lead_to_what_istiod_held() {
    let differ = replay(include_str!("../../tests/recordings/client.json"), settings(GuardSettings::off()));
    let b = BTreeSet::from(["ServiceEntry default/b".to_owned()]);
    for (note, more, less) in differ {
        // istiod deletes what it cannot decode; here its last good version stays.
        assert!(more.is_empty() || (more == b && note.contains("entry b")), "{note}: {more:?}");
        assert!(less.is_empty(), "{note}: {less:?}");
    }
}

#[test]
fn recorded_answers_with_revisions_lead_to_what_istiod_held() {
    let blue = ContentSettings { revision: Some("blue".into()), ..settings(GuardSettings::default()) };
    for (note, more, less) in replay(include_str!("../../tests/recordings/client-revision.json"), blue) {
        assert!(more.is_empty() && less.is_empty(), "{note}: {more:?} {less:?}");
    }
}

#[test]
fn what_a_real_istiod_serves_is_taken_as_a_real_istiod_takes_it() {
    for (note, more, less) in
        replay(include_str!("../../tests/recordings/chain.json"), settings(GuardSettings::default()))
    {
        assert!(more.is_empty() && less.is_empty(), "{note}: {more:?} {less:?}");
    }
}
