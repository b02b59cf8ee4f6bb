//! Which batches a source sends, and when.

use super::state::SourceState;
use crate::watch::{Change, WatchUpdate};
use pilotfish_config::{Effective, SourceBatch, SourceEvent, read_live};
use pilotfish_model::{Kind, ObjectKey};
use std::time::SystemTime;

fn state() -> SourceState {
    let mut state = SourceState::new("test", Vec::new(), true);
    state.discovered(Ok(()));
    state.watch(Kind::Service);
    state.watch(Kind::Pod);
    state
}

fn batch(state: &mut SourceState) -> SourceBatch {
    state.batch(SystemTime::UNIX_EPOCH)
}

fn words(batch: &SourceBatch) -> Vec<String> {
    let word = |event: &SourceEvent| match event {
        SourceEvent::Apply(object) => format!("apply {}", object.key()),
        SourceEvent::Delete(key) => format!("delete {key}"),
        SourceEvent::Listed => "listed".into(),
        SourceEvent::Failed { reason, .. } => format!("failed: {reason}"),
        SourceEvent::Recovered => "recovered".into(),
        SourceEvent::ListBegan(kind) => format!("list of {kind} began"),
        SourceEvent::ListEnded(kind) => format!("list of {kind} ended"),
    };
    batch.events.iter().map(word).collect()
}

#[test]
fn listed_is_sent_once_when_every_kind_is() {
    let mut state = state();
    state.handle(Kind::Service, WatchUpdate::Listed);
    assert!(batch(&mut state).is_empty());
    state.handle(Kind::Pod, WatchUpdate::Listed);
    assert_eq!(words(&batch(&mut state)), ["listed"]);
    // A kind that appears later delays no listing.
    state.watch(Kind::VirtualService);
    assert!(batch(&mut state).is_empty());
}

#[test]
fn nothing_is_listed_before_it_is_known_what_there_is() {
    let mut state = SourceState::new("test", Vec::new(), true);
    state.discovered(Err("connection refused".into()));
    assert_eq!(words(&batch(&mut state)), ["failed: API groups: connection refused"]);
    state.discovered(Ok(()));
    state.watch(Kind::Pod);
    assert!(batch(&mut state).is_empty(), "the end of a failure is no complete list");
    state.handle(Kind::Pod, WatchUpdate::Listed);
    assert_eq!(words(&batch(&mut state)), ["listed"]);
}

#[test]
fn a_failure_lasts_until_every_watch_is_healthy() {
    let mut state = state();
    state.handle(Kind::Service, WatchUpdate::Listed);
    state.handle(Kind::Pod, WatchUpdate::Listed);
    batch(&mut state);
    state.handle(Kind::Pod, WatchUpdate::Failed("refused".into()));
    assert_eq!(words(&batch(&mut state)), ["failed: pods: refused"]);
    state.handle(Kind::Pod, WatchUpdate::Failed("refused".into()));
    assert!(batch(&mut state).is_empty(), "the same failure is not sent twice");
    state.handle(Kind::Service, WatchUpdate::Failed("refused".into()));
    assert!(batch(&mut state).is_empty(), "the failure that was sent still holds");
    state.handle(Kind::Pod, WatchUpdate::Failed("busy".into()));
    assert_eq!(words(&batch(&mut state)), ["failed: services: refused"]);
    state.handle(Kind::Service, WatchUpdate::Healthy);
    assert_eq!(words(&batch(&mut state)), ["failed: pods: busy"]);
    state.handle(Kind::Pod, WatchUpdate::Healthy);
    assert_eq!(words(&batch(&mut state)), ["recovered"]);
}

#[test]
fn problems_come_and_go_with_their_objects() {
    let mut state = state();
    let key = ObjectKey::new(Kind::Service, "shop", "a");
    let broken = br#"{"metadata": {"name": "a", "namespace": "shop"}, "spec": {"ports": 7}}"#;
    let refused = read_live(Kind::Service, &"cluster test".into(), broken).unwrap_err();
    let (revision, problems) = (refused.revision, refused.problems);
    let change = Change::Rejected { key: key.clone(), revision, problems, last_good: true, closed: None };
    state.handle(Kind::Service, WatchUpdate::Changes(vec![change.clone()]));
    let sent = batch(&mut state);
    let report = &sent.problems.as_ref().unwrap().reports[0];
    assert_eq!(report.effective, Effective::LastGood);
    assert!(report.to_string().starts_with("cluster test: Service shop/a: spec.ports: "), "{report}");
    assert!(sent.events.is_empty(), "the last good version stays");
    state.handle(Kind::Service, WatchUpdate::Changes(vec![change]));
    assert!(batch(&mut state).is_empty(), "equal problems are no news");

    state.handle(Kind::Service, WatchUpdate::Changes(vec![Change::Delete(key)]));
    let sent = batch(&mut state);
    assert!(sent.problems.unwrap().reports.is_empty());
    assert_eq!(sent.events.len(), 1);
}

#[test]
fn a_policy_that_was_never_good_is_closed() {
    let mut state = state();
    let broken =
        br#"{"metadata": {"name": "a", "namespace": "shop"}, "spec": {"rules": [{"from": "everybody"}]}}"#;
    let refused = read_live(Kind::AuthorizationPolicy, &"cluster test".into(), broken).unwrap_err();
    let (key, revision, closed) = (refused.key.unwrap(), refused.revision, refused.closed);
    let change = Change::Rejected { key, revision, problems: refused.problems, last_good: false, closed };
    state.handle(Kind::AuthorizationPolicy, WatchUpdate::Changes(vec![change]));
    let sent = batch(&mut state);
    assert_eq!(words(&sent), ["apply AuthorizationPolicy shop/a"]);
    let report = &sent.problems.as_ref().unwrap().reports[0];
    assert_eq!(report.effective, Effective::Closed);
    assert!(
        report.to_string().ends_with("; until it is mended, what it cannot decide is denied"),
        "{report}"
    );
}

#[test]
fn a_source_that_follows_another_is_listed_when_it_is_quiet() {
    let mut state = SourceState::new("test", Vec::new(), false);
    state.discovered(Ok(()));
    state.watch(Kind::Pod);
    assert!(!state.waits_for_quiet(), "nothing was listed yet");
    state.handle(Kind::Pod, WatchUpdate::Listed);
    assert!(state.waits_for_quiet());
    assert!(batch(&mut state).is_empty());
    state.settled();
    assert_eq!(words(&batch(&mut state)), ["listed"]);
}
