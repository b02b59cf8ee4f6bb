//! The book by sequences: what is wanted, what is stored, what is written.

use super::book::{Book, Outcome, Write};
use super::{Allowance, BURST, PAUSE};
use crate::watch::Stored;
use pilotfish_config::gateway_api::GatewayClass;
use pilotfish_config::status::{Condition, Message, Status};
use pilotfish_model::{KindSpec, Object, ObjectKey, ObjectMeta, Update, World, WorldWriter};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GatewayClass::KIND, "", name)
}

/// An object whose content is told apart by a number.
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
    Some(Arc::new(Status::Class(vec![Condition::good("Accepted", "Accepted", message)])))
}

fn stored(version: u32, generation: i64, status: Value) -> Stored {
    Stored { version: version.to_string(), generation, status }
}

/// The status that a write leaves behind, for a status that was empty or of the same form.
fn left(write: &Write) -> Value {
    write.patch["status"].clone()
}

const NOW: &str = "2026-01-02T03:04:05Z";

struct Case {
    book: Book,
    now: Instant,
}

impl Case {
    /// `a` with content 1 is wanted and stored as version 1.
    fn new() -> Self {
        let mut case = Self { book: Book::default(), now: Instant::now() };
        case.book.want(world(&[("a", 1)]), vec![(key("a"), status("fine"))]);
        case.book.stored(key("a"), Some(object("a", 1)), stored(1, 7, Value::Null));
        case
    }

    fn next(&mut self) -> Option<Write> {
        self.book.next(self.now, NOW)
    }

    fn written(&mut self, write: &Write, version: u32) -> Value {
        let status = left(write);
        self.book.ended(write, Outcome::Written(stored(version, 7, status.clone())), self.now);
        // Longer than an object rests after it was written.
        self.now += Duration::from_millis(100);
        status
    }
}

#[test]
fn a_difference_is_written_once_and_its_echo_asks_for_nothing() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    assert_eq!(write.patch["metadata"], json!({"resourceVersion": "1"}));
    assert_eq!(write.patch["status"]["conditions"][0]["observedGeneration"], 7);
    assert_eq!(case.next(), None, "it is under way");
    let status = case.written(&write, 2);
    assert_eq!(case.next(), None);
    case.book.stored(key("a"), Some(object("a", 1)), stored(2, 7, status.clone()));
    assert_eq!(case.next(), None);
    case.book.stored(key("a"), Some(object("a", 1)), stored(1, 7, Value::Null));
    assert_eq!(case.next(), None, "an event from before the write");
    assert_eq!(case.book.due(), None);
}

#[test]
fn what_is_stored_already_is_not_written() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    let mut other = Case { book: Book::default(), now: case.now };
    other.book.stored(key("a"), Some(object("a", 1)), stored(5, 7, left(&write)));
    other.book.want(world(&[("a", 1)]), vec![(key("a"), status("fine"))]);
    assert_eq!(other.next(), None);
}

#[test]
fn a_status_waits_for_the_object_that_it_was_made_from() {
    let mut case = Case::new();
    case.book.stored(key("a"), Some(object("a", 2)), stored(3, 8, Value::Null));
    assert_eq!(case.next(), None, "the world has not seen content 2 yet");
    case.book.want(world(&[("a", 2)]), Vec::new());
    let write = case.next().expect("the world has caught up");
    assert_eq!(write.patch["status"]["conditions"][0]["observedGeneration"], 8);

    case.book.want(world(&[("a", 3)]), vec![(key("a"), status("ahead"))]);
    case.written(&write, 4);
    assert_eq!(case.next(), None, "the world is ahead of the watch");
    case.book.stored(key("a"), Some(object("a", 3)), stored(5, 9, left(&write)));
    assert!(case.next().is_some());
}

#[test]
fn an_object_that_cannot_be_read_is_left_alone() {
    let mut case = Case::new();
    case.book.stored(key("a"), None, stored(2, 8, Value::Null));
    assert_eq!(case.next(), None);
}

#[test]
fn a_conflict_waits_for_the_newer_version() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    case.book.ended(&write, Outcome::Conflict, case.now);
    assert_eq!(case.next(), None, "what is known is out of date");
    case.book.stored(key("a"), Some(object("a", 1)), stored(2, 7, json!({"other": "field"})));
    let again = case.next().expect("the newer version");
    assert_eq!(again.patch["metadata"]["resourceVersion"], "2");
    assert_eq!(again.patch["status"].get("other"), None, "what others wrote is not touched");
}

#[test]
fn failures_are_tried_again_ever_later() {
    let mut case = Case::new();
    for seconds in [1, 2, 4] {
        let write = case.next().expect("due");
        case.book.ended(&write, Outcome::Failed, case.now);
        assert_eq!(case.next(), None);
        let due = case.book.due().expect("later");
        assert_eq!(due - case.now, Duration::from_secs(seconds));
        case.now = due;
    }
    let write = case.next().expect("due");
    case.book.ended(&write, Outcome::Failed, case.now);
    case.book.want(world(&[("a", 1)]), vec![(key("a"), status("else"))]);
    assert!(case.next().is_some(), "what is new does not wait");
}

#[test]
fn two_controllers_that_say_different_things_do_not_race() {
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
        case.book.stored(key("a"), Some(object("a", 1)), stored(version, 7, other));
        assert_eq!(case.next(), None);
        let due = case.book.due().expect("later");
        pauses.push((due - case.now).as_secs());
        case.now = due;
    }
    assert_eq!(pauses, [1, 2, 4, 8]);
}

#[test]
fn what_a_definition_does_not_take_is_not_said_again() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    let mut part = left(&write);
    part["conditions"][0].as_object_mut().expect("a condition").remove("observedGeneration");
    case.book.ended(&write, Outcome::Written(stored(2, 7, part.clone())), case.now);
    case.now += Duration::from_secs(1);
    case.book.stored(key("a"), Some(object("a", 1)), stored(2, 7, part));
    assert_eq!((case.next(), case.book.due()), (None, None));
    case.book.want(world(&[("a", 1)]), vec![(key("a"), status("else"))]);
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
        case.book.want(world(&[("a", 1)]), vec![(key("a"), status(message))]);
        assert_eq!(case.next(), None, "{message} comes too soon");
    }
    case.now = case.book.due().expect("later");
    assert_eq!(case.now - began, Duration::from_millis(100));
    let write = case.next().expect("only the last one");
    assert_eq!(write.patch["status"]["conditions"][0]["message"], "three");
    assert_eq!(case.next(), None);
}

#[test]
fn an_object_that_went_and_came_again_is_written_anew() {
    let mut case = Case::new();
    let write = case.next().expect("it differs");
    case.written(&write, 2);
    case.book.gone(&key("a"));
    assert_eq!(case.next(), None);
    case.book.stored(key("a"), Some(object("a", 1)), stored(3, 7, Value::Null));
    assert!(case.next().is_some());
}

#[test]
fn what_is_not_ours_any_more_is_left_as_it_is() {
    let mut case = Case::new();
    case.book.want(world(&[("a", 1)]), vec![(key("a"), None)]);
    assert_eq!(case.next(), None);
}

#[test]
fn what_is_wrong_with_an_object_needs_no_world() {
    let mut case = Case { book: Book::default(), now: Instant::now() };
    let odd = || vec![Message { error: true, text: "spec.hosts: odd".into() }];
    case.book.analysed(key("a"), odd(), stored(1, 3, Value::Null));
    let write = case.next().expect("it is told");
    let status = case.written(&write, 2);
    case.book.analysed(key("a"), odd(), stored(2, 3, status.clone()));
    assert_eq!(case.next(), None, "once");
    case.book.analysed(key("a"), Vec::new(), stored(3, 4, status));
    let mended = case.next().expect("it is mended");
    assert_eq!(mended.patch["status"]["conditions"][0]["status"], "True");
    case.book.analysed(key("b"), Vec::new(), stored(4, 1, Value::Null));
    assert_eq!(case.next(), None, "nothing ever was wrong with it");
    case.book.gone(&key("b"));
}

#[test]
fn a_burst_is_followed_by_a_steady_rate() {
    let begin = Instant::now();
    let mut allowance = Allowance::new(begin);
    let mut now = begin;
    let mut writes = 0;
    while now < begin + Duration::from_secs(10) {
        if allowance.has(now) {
            allowance.take();
            writes += 1;
        } else {
            now = allowance.refill().expect("there is none");
        }
    }
    let steady = u32::try_from(Duration::from_secs(10).as_millis() / PAUSE.as_millis()).unwrap();
    assert!((steady..=steady + BURST + 1).contains(&writes), "{writes}");
}
