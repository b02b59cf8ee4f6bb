use super::*;
use crate::value::encode;
use pilotfish_registration::{Instance, RecordState, Value, testing};

fn keys() -> Keys {
    Keys::new("/p")
}

fn pair(key: Vec<u8>, value: Vec<u8>, revision: i64, lease: i64) -> KeyValue {
    KeyValue { key: key.into(), create_revision: 1, mod_revision: revision, value: value.into(), lease }
}

fn json(weight: u32, state: RecordState) -> Vec<u8> {
    let instance = Arc::new(Instance { weight, ..testing::instance("a") });
    encode(&Value { instance, owner: "me".into(), state }).unwrap()
}

fn put_record(weight: u32, revision: i64) -> Event {
    let kv = pair(keys().record(&testing::key("a")), json(weight, RecordState::Serving), revision, 0);
    Event { r#type: 0, kv: Some(kv) }
}

fn put_lease(id: i64, revision: i64) -> Event {
    Event { r#type: 0, kv: Some(pair(keys().lease(&testing::key("a")), Vec::new(), revision, id)) }
}

fn gone(mut event: Event, revision: i64) -> Event {
    event.r#type = 1;
    event.kv.as_mut().unwrap().mod_revision = revision;
    event
}

fn told(events: &[StoreEvent]) -> String {
    let one = |event: &StoreEvent| match event {
        StoreEvent::Changed { revision, record: Some(record), .. } => {
            format!("{revision}={}", record.instance.weight)
        }
        StoreEvent::Changed { revision, record: None, .. } => format!("{revision}=gone"),
        StoreEvent::Lapsed(_) => "lapsed".to_owned(),
        StoreEvent::Renewed(_) => "renewed".to_owned(),
        StoreEvent::Reset { revision, records, lapsed } => {
            format!("{revision}: {} records, {} lapsed", records.len(), lapsed.len())
        }
        other => format!("{other:?}"),
    };
    events.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn registered() -> View {
    let mut view = View::new(keys());
    assert_eq!(told(&view.apply(&[put_record(1, 2), put_lease(7, 2)])), "2=1");
    view
}

fn lapsed() -> View {
    let mut view = registered();
    assert_eq!(told(&view.apply(&[gone(put_lease(7, 0), 3)])), "lapsed");
    view
}

#[test]
fn a_lease_key_that_goes_is_a_lapse_and_one_that_comes_a_renewal() {
    let mut view = lapsed();
    assert_eq!(told(&view.apply(&[put_lease(8, 4)])), "renewed");
    assert_eq!(told(&view.apply(&[put_lease(9, 5)])), "", "another lease is no news");
    assert_eq!(view.belief(&testing::key("a")).lease, Some(9));
    assert_eq!(view.revision(), 5);
}

#[test]
fn a_deregistration_is_no_lapse_whatever_the_order_of_its_keys() {
    for order in [[0, 1], [1, 0]] {
        let mut view = registered();
        let both = [gone(put_record(1, 0), 3), gone(put_lease(7, 0), 3)];
        let events: Vec<Event> = order.iter().map(|at| both[*at].clone()).collect();
        assert_eq!(told(&view.apply(&events)), "3=gone");
        assert!(view.entries.is_empty());
    }
}

#[test]
fn a_changed_record_has_not_lapsed_unless_that_is_told_after_it() {
    let mut view = lapsed();
    assert_eq!(told(&view.apply(&[put_record(2, 4)])), "4=2 lapsed");
    assert_eq!(told(&view.apply(&[put_record(3, 5), put_lease(8, 5)])), "5=3");
    let draining = pair(keys().record(&testing::key("a")), json(4, RecordState::Draining), 6, 0);
    let drain = Event { r#type: 0, kv: Some(draining) };
    assert_eq!(told(&view.apply(&[drain, gone(put_lease(8, 0), 6)])), "6=4", "it has no lease to lapse");
}

#[test]
fn what_is_missed_is_told_when_all_of_it_is_known() {
    let mut view = registered();
    view.hold();
    assert_eq!(told(&view.apply(&[gone(put_lease(7, 0), 3)])), "");
    assert_eq!(told(&view.apply(&[put_record(2, 4)])), "4=2");
    assert_eq!(told(&view.apply(&[put_lease(8, 5)])), "");
    assert_eq!(told(&view.release(HashSet::new())), "", "it lapsed and came back");

    view.hold();
    view.apply(&[gone(put_lease(8, 0), 6)]);
    assert_eq!(view.untold().count(), 1);
    assert_eq!(told(&view.release(HashSet::new())), "lapsed");
}

#[test]
fn a_lease_that_is_begun_anew_has_not_lapsed_until_that_failed() {
    let grace = || HashSet::from([testing::key("a")]);
    let mut view = registered();
    view.hold();
    view.apply(&[gone(put_lease(7, 0), 3)]);
    assert_eq!(told(&view.release(grace())), "");
    assert_eq!(told(&view.apply(&[put_lease(8, 4)])), "");
    assert_eq!(told(&view.end_grace(vec![testing::key("a")])), "", "it succeeded");

    let mut view = registered();
    view.hold();
    view.apply(&[gone(put_lease(7, 0), 3)]);
    view.release(grace());
    assert_eq!(told(&view.end_grace(vec![testing::key("a")])), "lapsed", "it failed");
}

#[test]
fn a_full_read_tells_everything() {
    let mut snapshot = Snapshot::default();
    let record = put_record(1, 2).kv.unwrap();
    snapshot.take(&keys(), &record);
    snapshot.take(&keys(), &pair(keys().record(&testing::key("b")), b"broken".to_vec(), 3, 0));
    snapshot.take(&keys(), &pair(keys().store("x"), Vec::new(), 3, 1));
    snapshot.take(&keys(), &pair(b"/p/other".to_vec(), Vec::new(), 3, 1));
    let mut view = View::new(keys());
    view.replace(snapshot, 9);
    assert_eq!((view.broken().len(), view.has_store("x"), view.has_store("y")), (1, true, false));
    assert_eq!(told(&[view.reset(HashSet::from([testing::key("a")]))]), "9: 1 records, 0 lapsed");
    assert_eq!(told(&[view.reset(HashSet::new())]), "9: 1 records, 1 lapsed");
    assert_eq!(view.belief(&testing::key("b")), Belief { record: None, revision: 3, lease: None });

    // The last good version of a record that is broken later stays.
    let broken = Event { r#type: 0, kv: Some(pair(keys().record(&testing::key("a")), b"{".to_vec(), 10, 0)) };
    assert_eq!(told(&view.apply(&[broken])), "");
    let belief = view.belief(&testing::key("a"));
    assert_eq!((belief.revision, belief.record.unwrap().revision), (10, 2));
    assert_eq!(view.broken().len(), 2);
    view.apply(&[put_record(3, 11)]);
    assert_eq!(view.broken().len(), 1, "it is repaired");
}

#[test]
fn renewals_are_passed_on_once_in_a_third_of_the_ttl() {
    let (mut view, now) = (registered(), Instant::now());
    let (key, ms) = (testing::key("a"), Duration::from_millis);
    assert_eq!(view.renewal(&key, now), Renewal::Extend(7));
    view.extended(&key, 7, now);
    assert_eq!(view.renewal(&key, now + ms(3_333)), Renewal::Done);
    assert_eq!(view.renewal(&key, now + ms(3_334)), Renewal::Extend(7));
    view.extended(&key, 6, now + ms(5_000));
    assert_eq!(view.renewal(&key, now + ms(5_000)), Renewal::Extend(7), "that was another lease");
    view.apply(&[put_record(2, 3), put_lease(7, 3)]);
    assert_eq!(view.renewal(&key, now + ms(1_000)), Renewal::Done, "the lease is the same");
    view.apply(&[put_lease(8, 4)]);
    assert_eq!(view.renewal(&key, now), Renewal::Extend(8));
    view.apply(&[gone(put_lease(8, 0), 5)]);
    assert_eq!(view.renewal(&key, now), Renewal::Look);
    assert_eq!(view.renewal(&testing::key("b"), now), Renewal::Look);
    for (ttl, wanted) in [(1_000, 2), (3_000, 4), (10_000, 14), (1, 1), (86_400_000, 115_200)] {
        assert_eq!(seconds(ms(ttl)), wanted);
    }
}
