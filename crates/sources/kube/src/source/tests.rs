//! Which batches a source sends, and when.

use super::state::SourceState;
use super::unserved::{UnservedKind, unserved_kinds};
use crate::request::RequestError;
use crate::watch::{Change, WatchUpdate};
use pilotfish_config::{Effective, SourceBatch, SourceEvent, read_live};
use pilotfish_model::{Kind, ObjectKey};
use serde_json::json;
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

/// A group with its resources: version, kind and plural.
type Group<'a> = (&'a str, &'a [(&'a str, &'a str, &'a str)]);

/// The unserved kinds of an API server with these groups.
fn kinds_of(resources: &[Group<'_>]) -> Vec<UnservedKind> {
    let groups = resources.iter().map(|(group, resources)| {
        let versions = resources.iter().map(|(version, kind, plural)| {
            json!({"version": version, "resources": [
                {"resource": plural, "responseKind": {"kind": kind}, "verbs": ["list"]},
                {"resource": "imports", "responseKind": {"kind": "Import"}, "verbs": ["create"]}]})
        });
        json!({"metadata": {"name": group}, "versions": versions.collect::<Vec<_>>()})
    });
    let groups = serde_json::from_value(json!({"items": groups.collect::<Vec<_>>()}));
    unserved_kinds(&groups.unwrap())
}

#[test]
fn unserved_kinds_are_those_of_the_mesh_that_no_version_is_read_of() {
    let kinds = kinds_of(&[
        ("apps", &[("v1", "Deployment", "deployments")]),
        ("example.istio.io.example", &[("v1", "Other", "others")]),
        (
            "networking.istio.io",
            &[("v1", "VirtualService", "virtualservices"), ("v2", "Sidecar", "sidecars")],
        ),
        ("extensions.istio.io", &[("v1alpha1", "Rhythm", "rhythms")]),
        (
            "gateway.networking.k8s.io",
            &[
                ("v2", "HTTPRoute", "httproutes"),
                ("v1", "HTTPRoute", "httproutes"),
                ("v1alpha3", "UDPRoute", "udproutes"),
                ("v1alpha2", "UDPRoute", "udproutes"),
            ],
        ),
        ("gateway.networking.x-k8s.io", &[("v1alpha1", "XListenerSet", "xlistenersets")]),
    ]);
    let names: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "networking.istio.io/v2 Sidecar",
            "extensions.istio.io/v1alpha1 Rhythm",
            "gateway.networking.k8s.io/v1alpha3 UDPRoute",
            "gateway.networking.x-k8s.io/v1alpha1 XListenerSet",
        ]
    );
}

#[test]
fn objects_of_unserved_kinds_are_problems_with_their_number() {
    let kinds = kinds_of(&[
        ("extensions.istio.io", &[("v1alpha1", "Rhythm", "rhythms")]),
        (
            "gateway.networking.k8s.io",
            &[("v1alpha2", "UDPRoute", "udproutes"), ("v1", "BearRoute", "bearroutes")],
        ),
    ]);
    let mut state = state();
    let mut told = |counts: [Result<usize, (u16, &str)>; 3]| {
        let counts =
            counts.map(|count| count.map_err(|(status, text)| RequestError::of_status(status, text, 0)));
        state.counted(kinds.iter().cloned().zip(counts).collect());
        let problems = batch(&mut state).problems?;
        let lines = problems.reports.iter().map(ToString::to_string).collect::<Vec<_>>();
        Some((lines, problems.unserved().map(|(_, count)| count).collect::<Vec<_>>()))
    };
    let extensions = |end: &str| {
        format!(
            "cluster test: objects of extensions.istio.io/v1alpha1 Rhythm have no effect: this version does not serve their kind ({end})"
        )
    };
    assert_eq!(told([Ok(0), Ok(0), Ok(0)]), None, "a definition alone is no problem");
    let refused = "cluster test: gateway.networking.k8s.io/v1 BearRoute is not served by this version, and whether it has objects is \
                   unknown: 403: forbidden";
    let first = vec![extensions("3 objects"), refused.to_owned()];
    assert_eq!(told([Ok(3), Err((403, "forbidden")), Ok(0)]), Some((first, vec![3])));
    assert_eq!(told([Ok(3), Err((403, "forbidden")), Err((404, "gone"))]), None);
    assert_eq!(told([Err((503, "busy")), Err((503, "busy")), Ok(0)]), None, "what passes changes nothing");
    assert_eq!(told([Ok(1), Ok(0), Ok(0)]), Some((vec![extensions("1 object")], vec![1])));
    assert_eq!(told([Ok(0), Ok(0), Ok(0)]), Some((vec![], vec![])));
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
