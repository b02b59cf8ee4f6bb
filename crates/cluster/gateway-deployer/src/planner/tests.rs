//! Plans, as sequences of events.

use super::*;
use serde_json::json;

struct Case {
    planner: Planner,
    now: Instant,
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::KubernetesGateway, "shop", name)
}

fn id(kind: ManagedKind, gateway: &str) -> ObjectId {
    ObjectId { kind, namespace: "shop".into(), name: format!("{gateway}-pilotfish").into() }
}

fn manifest(kind: ManagedKind, gateway: &str, replicas: u32) -> Manifest {
    let body = json!({
        "metadata": {
            "labels": {GATEWAY_NAME: gateway, MANAGED: "pilotfish"},
            "ownerReferences": [{"name": gateway, "uid": format!("uid-{gateway}")}],
        },
        "spec": {"replicas": replicas},
    });
    Manifest { id: id(kind, gateway), body }
}

fn desired(gateway: &str, replicas: u32, kinds: &[ManagedKind]) -> (ObjectKey, Desired) {
    let manifests = kinds.iter().map(|kind| manifest(*kind, gateway, replicas)).collect();
    (key(gateway), Desired { uid: format!("uid-{gateway}").into(), replaces_proxy: false, manifests })
}

const BOTH: &[ManagedKind] = &[ManagedKind::Service, ManagedKind::Deployment];

impl Case {
    fn new() -> Self {
        let mut case = Self { planner: Planner::default(), now: Instant::now() };
        for kind in ManagedKind::ALL {
            case.planner.listed(kind, BTreeMap::new(), case.now);
        }
        case
    }

    fn set(&mut self, all: impl IntoIterator<Item = (ObjectKey, Desired)>) {
        let all = all.into_iter().map(|(key, desired)| (key, Arc::new(desired)));
        self.planner.set_desired(all.collect(), self.now);
    }

    /// Advances to the next job that is due within that time.
    fn job_within(&mut self, limit: Duration) -> Option<Job> {
        let next = self.planner.next().filter(|next| *next <= self.now + limit)?;
        self.now = self.now.max(next);
        self.planner.take(self.now)
    }

    /// Applies everything that is due within a second; returns the Gateways.
    fn apply(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        while let Some(job) = self.job_within(Duration::from_secs(1)) {
            let stored = job.desired.manifests.iter().map(|it| (it.id.clone(), it.body.clone())).collect();
            self.planner.ended(&job, Some(stored), self.now);
            names.push(job.key.name.to_string());
        }
        names
    }

    fn change(&mut self, kind: ManagedKind, pointer: &str, value: Value) {
        let id = id(kind, "a");
        let mut object = self.planner.stored[&id].clone();
        *object.pointer_mut(pointer).unwrap() = value;
        self.planner.observed(id, Some(object), self.now);
    }

    fn rest(&mut self) {
        self.now += CALM;
    }
}

#[test]
fn each_gateway_is_applied_once_and_again_when_it_changes() {
    let mut case = Case::new();
    case.set([desired("a", 1, BOTH), desired("b", 1, BOTH)]);
    assert_eq!(case.apply(), ["a", "b"]);
    assert_eq!(case.planner.settled(), 2);
    case.set([desired("a", 1, BOTH), desired("b", 1, BOTH)]);
    assert!(case.apply().is_empty());
    case.set([desired("a", 2, BOTH), desired("b", 1, BOTH)]);
    assert_eq!(case.apply(), ["a"]);
    case.set([]);
    assert_eq!((case.apply().len(), case.planner.settled()), (0, 0));
}

#[test]
fn nothing_is_applied_before_all_kinds_are_listed() {
    let mut case = Case { planner: Planner::default(), now: Instant::now() };
    case.set([desired("a", 1, BOTH)]);
    for kind in ManagedKind::ALL {
        assert!(case.apply().is_empty());
        case.planner.listed(kind, BTreeMap::new(), case.now);
    }
    assert_eq!(case.apply(), ["a"]);
}

#[test]
fn changes_by_others_are_corrected_and_other_fields_are_left() {
    let mut case = Case::new();
    case.set([desired("a", 1, BOTH)]);
    case.apply();
    case.rest();
    case.change(ManagedKind::Deployment, "/spec/replicas", json!(7));
    assert_eq!(case.apply(), ["a"]);
    case.rest();
    case.change(
        ManagedKind::Service,
        "/metadata/labels",
        json!({GATEWAY_NAME: "a", MANAGED: "pilotfish", "x": "y"}),
    );
    assert!(case.apply().is_empty(), "another label is not ours");
    case.planner.observed(id(ManagedKind::Service, "a"), None, case.now);
    assert_eq!(case.apply(), ["a"], "it was deleted");
    case.rest();
    case.change(ManagedKind::Service, "/metadata/labels", json!({}));
    assert_eq!(case.apply(), ["a"], "without the label it is missing");
}

#[test]
fn disputes_and_failures_are_retried_with_growing_pauses() {
    let mut case = Case::new();
    case.set([desired("a", 1, BOTH)]);
    let job = case.job_within(Duration::ZERO).unwrap();
    case.planner.ended(&job, None, case.now);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let next = case.planner.next().unwrap();
        pauses.push(next.duration_since(case.now));
        case.now = next;
        let job = case.planner.take(case.now).unwrap();
        case.planner.ended(&job, None, case.now);
    }
    assert!(pauses.is_sorted() && pauses[0] >= Duration::from_secs(1), "{pauses:?}");
    assert_eq!(pauses.last(), Some(&Duration::from_secs(300)));
    case.set([desired("a", 2, BOTH)]);
    assert_eq!(case.apply(), ["a"], "a change is applied at once");
    case.planner.pause(case.now + Duration::from_secs(5));
    case.set([desired("a", 3, BOTH)]);
    assert_eq!(case.planner.next(), Some(case.now + Duration::from_secs(5)));
}

#[test]
fn a_gateway_is_settled_again_if_others_undo_a_change_that_was_not_taken_back() {
    let mut case = Case::new();
    let (one, two) = (desired("a", 1, BOTH), desired("a", 2, BOTH));
    case.set([one.clone()]);
    assert!(!case.planner.is_settled(&one.0), "it was never applied");
    case.apply();
    assert!(case.planner.is_settled(&one.0));
    case.rest();
    case.change(ManagedKind::Deployment, "/spec/replicas", json!(7));
    let job = case.job_within(Duration::from_secs(1)).unwrap();
    case.planner.ended(&job, None, case.now);
    assert!(!case.planner.is_settled(&one.0));
    case.change(ManagedKind::Deployment, "/spec/replicas", json!(1));
    assert!(case.planner.is_settled(&one.0) && case.planner.next().is_none());
    case.set([two]);
    assert!(!case.planner.is_settled(&one.0));
    case.set([one.clone()]);
    assert!(case.planner.is_settled(&one.0), "it is what is stored");
    case.set([]);
    assert!(!case.planner.is_settled(&one.0));
}

#[test]
fn jobs_know_what_the_gateway_owns() {
    let mut case = Case::new();
    let foreign = json!({"metadata": {"labels": {GATEWAY_NAME: "a"}, "ownerReferences": [{"uid": "other"}]}});
    case.planner.observed(id(ManagedKind::Service, "a"), Some(foreign), case.now);
    let own = manifest(ManagedKind::Deployment, "a", 1);
    case.planner.observed(own.id.clone(), Some(own.body.clone()), case.now);
    case.set([desired("a", 1, BOTH)]);
    let job = case.job_within(Duration::from_secs(1)).unwrap();
    assert_eq!(job.owned, BTreeMap::from([(own.id, own.body)]));
}

#[test]
fn optional_objects_without_parameters_are_superfluous() {
    let mut case = Case::new();
    let optional = [ManagedKind::HorizontalPodAutoscaler, ManagedKind::PodDisruptionBudget];
    let kinds = [ManagedKind::Deployment, optional[0], optional[1]];
    case.set([desired("a", 1, &kinds), desired("b", 1, &kinds)]);
    case.apply();
    for namespace in ["a", "z"] {
        let other = ObjectId { namespace: namespace.into(), ..id(optional[0], "a") };
        case.planner.observed(other, Some(manifest(optional[0], "a", 1).body), case.now);
    }
    case.set([desired("a", 1, &kinds[..1]), desired("b", 1, &kinds)]);
    let job = case.job_within(Duration::from_secs(1)).unwrap();
    assert_eq!(job.superfluous, optional.map(|kind| id(kind, "a")));
    let stored = job.desired.manifests.iter().map(|it| (it.id.clone(), it.body.clone())).collect();
    case.planner.ended(&job, Some(stored), case.now);
    assert_eq!(case.planner.next(), None);
}
