//! The queue by sequences: what is wanted, what is stored, what is written.

use super::queue::{Outcome, StatusQueue, Write};
use pilotfish_config::gateway_api::GatewayClass;
use pilotfish_config::status::{Condition, HostAddress, Message, Status};
use pilotfish_config::{MeshFile, read_mesh_file};
use pilotfish_kube::watch::Stored;
use pilotfish_model::{
    Kind, KindSpec, Object, ObjectKey, ObjectMeta, REVISION_LABEL, Revision, Update, World, WorldWriter,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GatewayClass::KIND, "", name)
}

/// An object whose content differs by a number.
fn object(name: &str, content: i64) -> Object {
    let meta = ObjectMeta { created: content, ..ObjectMeta::of(key(name)) };
    Object::new(meta, GatewayClass::default())
}

fn world(objects: &[(&str, i64)]) -> Arc<World> {
    let mut writer = WorldWriter::new();
    objects.iter().for_each(|(name, content)| writer.apply(Update::Object(object(name, *content))));
    Arc::new(writer.world().clone())
}

fn status(message: &str) -> Option<Arc<Status>> {
    let conditions = vec![Condition::good("Accepted", "Accepted", message)];
    Some(Arc::new(Status::Class { conditions, features: &[] }))
}

fn stored(version: u32, generation: i64, status: Value) -> Stored {
    Stored { version: version.to_string(), generation, revision: None, status }
}

/// The status that a write leaves behind, for a status that was empty or of the same form.
fn left(write: &Write) -> Value {
    write.patch["status"].clone()
}

const NOW: &str = "2026-01-02T03:04:05Z";

struct Case {
    queue: StatusQueue,
    now: Instant,
}

impl Case {
    /// `a` with content 1 is wanted and stored as version 1.
    fn new() -> Self {
        let mut case = Self { queue: StatusQueue::default(), now: Instant::now() };
        case.queue.set_desired(world(&[("a", 1)]), vec![(key("a"), status("fine"))], false);
        case.queue.stored(key("a"), Some(object("a", 1)), stored(1, 7, Value::Null));
        case
    }

    fn next(&mut self) -> Option<Write> {
        self.queue.next(self.now, NOW)
    }

    fn written(&mut self, write: &Write, version: u32) -> Value {
        let status = left(write);
        self.queue.ended(write, Outcome::Written(stored(version, 7, status.clone())), self.now);
        // Longer than an object rests after it was written.
        self.now += Duration::from_millis(100);
        status
    }
}

#[test]
fn a_difference_is_written_once_and_its_event_needs_no_write() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    assert_eq!(write.patch["metadata"], json!({"resourceVersion": "1"}));
    assert_eq!(write.patch["status"]["conditions"][0]["observedGeneration"], 7);
    assert_eq!(case.next(), None, "it is under way");
    let status = case.written(&write, 2);
    assert_eq!(case.next(), None);
    case.queue.stored(key("a"), Some(object("a", 1)), stored(2, 7, status.clone()));
    assert_eq!(case.next(), None);
    case.queue.stored(key("a"), Some(object("a", 1)), stored(1, 7, Value::Null));
    assert_eq!(case.next(), None, "an event from before the write");
    assert_eq!(case.queue.due(), None);
}

#[test]
fn what_is_stored_already_is_not_written() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    let mut other = Case { queue: StatusQueue::default(), now: case.now };
    other.queue.stored(key("a"), Some(object("a", 1)), stored(5, 7, left(&write)));
    other.queue.set_desired(world(&[("a", 1)]), vec![(key("a"), status("fine"))], false);
    assert_eq!(other.next(), None);
}

#[test]
fn a_status_waits_for_the_object_that_it_was_made_from() {
    let mut case = Case::new();
    case.queue.stored(key("a"), Some(object("a", 2)), stored(3, 8, Value::Null));
    assert_eq!(case.next(), None, "the world has not seen content 2 yet");
    case.queue.set_desired(world(&[("a", 2)]), Vec::new(), false);
    let write = case.next().expect("the world has caught up");
    assert_eq!(write.patch["status"]["conditions"][0]["observedGeneration"], 8);

    case.queue.set_desired(world(&[("a", 3)]), vec![(key("a"), status("ahead"))], false);
    case.written(&write, 4);
    assert_eq!(case.next(), None, "the world is ahead of the watch");
    case.queue.stored(key("a"), Some(object("a", 3)), stored(5, 9, left(&write)));
    assert!(case.next().is_some());
}

#[test]
fn an_object_that_cannot_be_read_is_left_alone() {
    let mut case = Case::new();
    case.queue.stored(key("a"), None, stored(2, 8, Value::Null));
    assert_eq!(case.next(), None);
}

#[test]
fn a_conflict_waits_for_the_newer_version() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    case.queue.ended(&write, Outcome::Conflict, case.now);
    assert_eq!(case.next(), None, "what is known is out of date");
    case.queue.stored(key("a"), Some(object("a", 1)), stored(2, 7, json!({"other": "field"})));
    let again = case.next().expect("the newer version");
    assert_eq!(again.patch["metadata"]["resourceVersion"], "2");
    assert_eq!(again.patch["status"].get("other"), None, "what others wrote is not touched");
}

#[test]
fn failures_are_tried_again_ever_later() {
    let mut case = Case::new();
    for seconds in [1, 2, 4] {
        let write = case.next().expect("due");
        case.queue.ended(&write, Outcome::Failed, case.now);
        assert_eq!(case.next(), None);
        let due = case.queue.due().expect("later");
        assert_eq!(due - case.now, Duration::from_secs(seconds));
        case.now = due;
    }
    let write = case.next().expect("due");
    case.queue.ended(&write, Outcome::Failed, case.now);
    case.queue.set_desired(world(&[("a", 1)]), vec![(key("a"), status("else"))], false);
    assert!(case.next().is_some(), "what is new does not wait");
}

#[test]
fn two_controllers_that_write_different_statuses_do_not_race() {
    let mut case = Case::new();
    let mut version = 1;
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let write = case.next().expect("due");
        case.written(&write, version + 1);
        version += 2;
        // The other one writes at once, each time.
        let other =
            json!({"conditions": [{"type": "Accepted", "status": "False", "reason": "No", "message": "no"}]});
        case.queue.stored(key("a"), Some(object("a", 1)), stored(version, 7, other));
        assert_eq!(case.next(), None);
        let due = case.queue.due().expect("later");
        pauses.push((due - case.now).as_secs());
        case.now = due;
    }
    assert_eq!(pauses, [1, 2, 4, 8]);
}

#[test]
fn fields_that_a_definition_drops_are_not_written_again() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    let mut part = left(&write);
    part["conditions"][0].as_object_mut().expect("a condition").remove("observedGeneration");
    case.queue.ended(&write, Outcome::Written(stored(2, 7, part.clone())), case.now);
    case.now += Duration::from_secs(1);
    case.queue.stored(key("a"), Some(object("a", 1)), stored(2, 7, part));
    assert_eq!((case.next(), case.queue.due()), (None, None));
    case.queue.set_desired(world(&[("a", 1)]), vec![(key("a"), status("else"))], false);
    assert!(case.next().is_some(), "something new is");
}

#[test]
fn an_object_rests_between_writes() {
    let mut case = Case::new();
    let began = case.now;
    let write = case.next().expect("it differs");
    case.written(&write, 2);
    case.now = began;
    for message in ["two", "three"] {
        case.queue.set_desired(world(&[("a", 1)]), vec![(key("a"), status(message))], false);
        assert_eq!(case.next(), None, "{message} comes too soon");
    }
    case.now = case.queue.due().expect("later");
    assert_eq!(case.now - began, Duration::from_millis(100));
    let write = case.next().expect("only the last one");
    assert_eq!(write.patch["status"]["conditions"][0]["message"], "three");
    assert_eq!(case.next(), None);
}

#[test]
fn an_object_that_was_made_again_is_written_again() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    case.written(&write, 2);
    case.queue.gone(&key("a"));
    assert_eq!(case.next(), None);
    case.queue.stored(key("a"), Some(object("a", 1)), stored(3, 7, Value::Null));
    assert!(case.next().is_some());
}

#[test]
fn what_is_not_ours_any_more_is_left_as_it_is() {
    let mut case = Case::new();
    case.queue.set_desired(world(&[("a", 1)]), vec![(key("a"), None)], false);
    assert_eq!(case.next(), None);
}

/// A world in which all namespaces take part, or those that a selector matches.
fn mesh(selectors: &str, revision_of: &str) -> Arc<World> {
    let mut writer = WorldWriter::new();
    writer.apply(Update::Object(object(revision_of, 1)));
    if !selectors.is_empty() {
        let text = format!("discoverySelectors: [{{matchLabels: {{{selectors}}}}}]");
        let read = read_mesh_file(MeshFile::Config, "test", text.as_bytes(), &Default::default());
        read.objects.into_iter().for_each(|read| writer.apply(Update::Object(read.object)));
    }
    writer.publish().expect("it differs").0
}

fn odd() -> Vec<Message> {
    vec![Message { error: true, text: "spec.hosts: odd".into() }]
}

fn entry(namespace: &str) -> ObjectKey {
    ObjectKey::new(Kind::ServiceEntry, namespace, "a")
}

#[test]
fn problems_of_an_object_are_written_whatever_the_world_has() {
    let mut case = Case { queue: StatusQueue::default(), now: Instant::now() };
    let key = entry("shop");
    case.queue.analysed(&key, odd());
    case.queue.stored(key.clone(), None, stored(1, 3, Value::Null));
    assert_eq!(case.next(), None, "it is not known yet whether the namespace takes part");
    case.queue.set_desired(mesh("", "x"), Vec::new(), true);
    let write = case.next().expect("it takes part");
    let status = case.written(&write, 2);
    case.queue.analysed(&key, odd());
    case.queue.stored(key.clone(), None, stored(2, 3, status.clone()));
    assert_eq!(case.next(), None, "once");
    case.queue.analysed(&key, Vec::new());
    case.queue.stored(key.clone(), None, stored(3, 4, status));
    let mended = case.next().expect("it is mended");
    assert_eq!(mended.patch["status"]["conditions"][0]["status"], "True");
    case.queue.gone(&key);
    case.queue.ended(&mended, Outcome::Conflict, case.now);
    case.queue.analysed(&entry("b"), Vec::new());
    case.queue.stored(entry("b"), None, stored(4, 1, Value::Null));
    assert_eq!(case.next(), None, "nothing ever was wrong with it");
    case.queue.gone(&entry("b"));
    assert_eq!(case.queue.len(), 0);
}

#[test]
fn objects_of_namespaces_that_take_no_part_are_left_to_others() {
    let mut case = Case { queue: StatusQueue::default(), now: Instant::now() };
    case.queue.set_desired(mesh("team: ours", "x"), Vec::new(), true);
    for namespace in ["ours", "theirs"] {
        case.queue.analysed(&entry(namespace), odd());
        case.queue.stored(entry(namespace), None, stored(1, 1, Value::Null));
    }
    assert_eq!(case.next(), None, "neither has the label");
    case.queue.set_desired(mesh("kubernetes.io/metadata.name: ours", "y"), Vec::new(), true);
    assert_eq!(case.next().map(|write| write.key), Some(entry("ours")));
    assert_eq!(case.next(), None);
}

#[test]
fn problems_and_addresses_are_written_together() {
    let mut case = Case { queue: StatusQueue::default(), now: Instant::now() };
    case.queue.set_desired(mesh("", "x"), Vec::new(), true);
    let key = entry("shop");
    let addresses = vec![HostAddress { host: "a.com".into(), value: "240.240.0.1".into() }];
    case.queue.allocated(&key, addresses);
    case.queue.analysed(&key, odd());
    case.queue.stored(key.clone(), None, stored(1, 3, Value::Null));
    let write = case.next().expect("there is something to write");
    assert_eq!(write.patch["status"]["addresses"][0]["value"], "240.240.0.1");
    assert_eq!(write.patch["status"]["conditions"][0]["reason"], "Refused");
}

#[test]
fn deleted_objects_are_forgotten_in_any_order_of_events() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    case.queue.gone(&key("a"));
    case.queue.set_desired(world(&[]), vec![(key("a"), None)], false);
    assert_eq!(case.queue.len(), 1, "a write is under way");
    case.queue.ended(&write, Outcome::Written(stored(2, 7, left(&write))), case.now);
    assert_eq!(case.queue.len(), 0);
    assert_eq!(case.next(), None);

    let mut case = Case::new();
    case.queue.set_desired(world(&[]), vec![(key("a"), None)], false);
    case.queue.gone(&key("a"));
    assert_eq!(case.queue.len(), 0);

    let mut case = Case::new();
    case.queue.gone(&key("a"));
    case.queue.set_desired(world(&[]), vec![(key("a"), None)], false);
    assert_eq!(case.queue.len(), 0);
}

#[test]
fn an_answer_older_than_the_last_event_is_ignored() {
    // People change the object while the answer is on its way, and their change arrives first.
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    case.queue.set_desired(world(&[("a", 2)]), Vec::new(), false);
    case.queue.stored(key("a"), Some(object("a", 2)), stored(3, 8, left(&write)));
    case.written(&write, 2);
    let write = case.next().expect("the new content was observed");
    assert_eq!(write.patch["metadata"]["resourceVersion"], "3");
    assert_eq!(write.patch["status"]["conditions"][0]["observedGeneration"], 8);

    // The object went and came again.
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    case.queue.gone(&key("a"));
    case.queue.stored(key("a"), Some(object("a", 1)), stored(5, 7, Value::Null));
    case.written(&write, 2);
    let write = case.next().expect("the new object has no status");
    assert_eq!(write.patch["metadata"]["resourceVersion"], "5");
}

#[test]
fn a_conflict_about_something_else_is_tried_again() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    case.queue.ended(&write, Outcome::Conflict, case.now);
    assert_eq!(case.next(), None);
    let due = case.queue.due().expect("not for ever");
    assert_eq!(due - case.now, Duration::from_secs(30));
    case.now = due;
    assert!(case.next().is_some());
}

#[test]
fn everybody_has_their_turn() {
    // `a` changes all the time; `b` changed once.
    let mut case = Case::new();
    case.queue.set_desired(world(&[("a", 1), ("b", 1)]), vec![(key("b"), status("fine"))], false);
    let mut versions = [1, 1];
    let mut turns = BTreeMap::new();
    case.queue.stored(key("b"), Some(object("b", 1)), stored(1, 7, Value::Null));
    for turn in 0..6 {
        case.queue.set_desired(
            world(&[("a", 1), ("b", 1)]),
            vec![(key("a"), status(&turn.to_string()))],
            false,
        );
        let Some(write) = case.next() else { continue };
        let index = usize::from(write.key != key("a"));
        versions[index] += 1;
        turns.entry(write.key.clone()).or_insert(turn);
        case.written(&write, versions[index]);
    }
    assert!(turns.get(&key("b")).is_some_and(|turn| *turn <= 1), "{turns:?}");
}

#[test]
fn status_of_another_revision_is_left_alone() {
    let named =
        |tags: &[&str]| Revision::named("canary").with_tags(tags.iter().map(|tag| Arc::from(*tag)).collect());
    let case_of = |label: Option<&str>| {
        let mut case = Case::new();
        let stored = Stored { revision: label.map(Arc::from), ..stored(2, 7, Value::Null) };
        case.queue.stored(key("a"), Some(object("a", 1)), stored);
        case
    };
    for (label, tags, is_ours) in [
        (Some("canary"), &[][..], true),
        (Some("stable"), &[], false),
        (Some("stable"), &["stable"], true),
        (None, &[], false),
        (None, &["default"], true),
    ] {
        let mut case = case_of(label);
        case.queue.set_revision(named(tags));
        assert_eq!(case.next().is_some(), is_ours, "{label:?} {tags:?}");
    }
    let mut case = case_of(Some("stable"));
    case.queue.set_revision(named(&[]));
    assert_eq!(case.next(), None);
    case.queue.set_revision(named(&["stable"]));
    case.next().expect("its label is a tag now");
    let mut case = case_of(Some("stable"));
    case.queue.set_revision(named(&[]));
    assert_eq!(case.next(), None);
    let moved = Stored { revision: Some("canary".into()), ..stored(3, 7, Value::Null) };
    case.queue.stored(key("a"), Some(object("a", 1)), moved);
    case.next().expect("its label names the revision now");
}

#[test]
fn status_follows_the_revision_of_the_namespace() {
    let namespace = |label: &str| {
        let labels = Arc::new([(REVISION_LABEL, label)].into_iter().collect());
        let meta = ObjectMeta { labels, ..ObjectMeta::of(ObjectKey::new(Kind::Namespace, "", "shop")) };
        Object::new(meta, pilotfish_config::kubernetes::Namespace::default())
    };
    let entry = ObjectKey::new(Kind::ServiceEntry, "shop", "a");
    let mut writer = WorldWriter::new();
    let mut world = |label| {
        writer.apply(Update::Object(namespace(label)));
        writer.publish().expect("it differs").0
    };
    let mut case = Case { queue: StatusQueue::default(), now: Instant::now() };
    case.queue.set_revision(Revision::named("canary"));
    case.queue.stored(entry.clone(), None, stored(1, 7, Value::Null));
    case.queue.analysed(&entry, vec![Message { error: true, text: "bad".into() }]);
    assert_eq!(case.next(), None, "the label of the namespace is not known");
    case.queue.set_desired(world("stable"), Vec::new(), true);
    assert_eq!(case.next(), None);
    case.queue.set_desired(world("canary"), Vec::new(), true);
    case.next().expect("the namespace has moved to our revision");
}
