//! Plans: the effects of changed files on the connected proxies.

use super::operations::object_key;
use super::{AdminState, problem};
use parking_lot::MutexGuard;
use pilotfish_admin::Abandoned;
use pilotfish_api::v1::{Failure, FailureKind, Plan, PlanFile, PlanRequest, Severity};
use pilotfish_config::kubernetes::EndpointSlice;
use pilotfish_config::networking::{ServiceEntry, WorkloadEntry};
use pilotfish_config::{Limits, SourceEvent};
use pilotfish_control_plane::control::{ControlMessage, Fork, Supposed};
use pilotfish_explain::{Planned, Subject, plan_until};
use pilotfish_files::{FileChange, FileContent, FileRole, FileState};
use pilotfish_model::{Kind, LabelMap, Labels, Object, ObjectKey, Workload, WorkloadKind, World};
use pilotfish_registry::{SelectorIndex, endpoint_count};
use pilotfish_translate::{ClientId, Proxy};
use pilotfish_xds::{ConnectionStatus, Names};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Timeout of the copy of the control loop's state.
const LONGEST: Duration = Duration::from_secs(20);
/// Timeout of the wait for another plan to finish.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limit on the objects of a plan.
pub(crate) const OBJECTS: usize = 10_000;
/// Limit on the endpoints of a plan's ServiceEntries and EndpointSlices, multiplied as in clusters.
pub(crate) const ENDPOINTS: usize = 200_000;

/// Computes the plan of a request, or returns the problems of its files. Plans are computed one at a time, on
/// the thread of the request and on a copy of the state, for as long as the client waits.
pub(super) fn of_running(
    state: &AdminState,
    request: &PlanRequest,
    abandoned: &Abandoned,
) -> Result<Plan, Failure> {
    let _turn = turn(state, abandoned)?;
    let is_abandoned = || abandoned.is_abandoned();
    let mut objects = BTreeMap::new();
    for deleted in &request.delete {
        objects.insert(object_key(deleted)?, None);
    }
    match read(&request.files) {
        Ok(read) => objects.extend(read.into_iter().map(|(key, object)| (key, Some(object)))),
        Err(plan) => return Ok(*plan),
    }
    check_size(&objects, &state.shared.world())?;
    let revision = state.fanout.revision();
    let fork = fork(state)?;
    if is_abandoned() {
        return Err(left());
    }
    let Supposed { before, after, changes, objects } = fork.suppose(objects);
    let planned = Planned { before, after, changes, objects };
    let plan = plan_until(&state.translator, &planned, &subjects(state), &is_abandoned).ok_or_else(left)?;
    Ok(Plan { revision: Some(revision), ..plan })
}

/// Waits for the turn of a plan, or of another computation on a separate translator.
///
/// # Errors
/// When nothing can be computed now, or the client has left.
pub(super) fn turn<'a>(state: &'a AdminState, abandoned: &Abandoned) -> Result<MutexGuard<'a, ()>, Failure> {
    if !state.resources.is_ready() {
        let failure = Failure::new(FailureKind::Unavailable, "the control plane is not ready yet");
        return Err(failure.hint("/ready says what it waits for"));
    }
    let Some(turn) = state.plans.try_lock_for(PATIENCE) else {
        let failure = Failure::new(FailureKind::Unavailable, "another plan is being made (limit plans)");
        return Err(failure.hint("try again"));
    };
    if abandoned.is_abandoned() { Err(left()) } else { Ok(turn) }
}

pub(super) fn left() -> Failure {
    Failure::new(FailureKind::Unavailable, "the client has left")
}

/// # Errors
/// When the objects are too many, or multiply to too much beside the workloads of the world.
fn check_size(objects: &BTreeMap<ObjectKey, Option<Object>>, world: &World) -> Result<(), Failure> {
    check_count("objects", objects.len(), OBJECTS)?;
    let selected = selected(objects, world)?;
    let mut count = 0_usize;
    for object in objects.values().flatten() {
        let selected = selected.get(object.key()).copied().unwrap_or_default();
        count = count.saturating_add(endpoints(object, selected));
        check_count("endpoints", count, ENDPOINTS)?;
    }
    Ok(())
}

fn check_count(what: &str, count: usize, most: usize) -> Result<(), Failure> {
    if count <= most {
        return Ok(());
    }
    let message = format!("the plan has {count} {what}, and at most {most} are allowed (limit plan-{what})");
    Err(Failure::new(FailureKind::Invalid, message).hint("plan fewer files at a time"))
}

/// Returns the number of workloads that each ServiceEntry of a plan selects, of those of the plan and those
/// of the world.
///
/// # Errors
/// When they are more than the endpoints of a plan may be: each is an endpoint at least.
fn selected<'a>(
    objects: &'a BTreeMap<ObjectKey, Option<Object>>,
    world: &World,
) -> Result<BTreeMap<&'a ObjectKey, usize>, Failure> {
    let planned = || objects.values().flatten();
    let mut selectors = SelectorIndex::default();
    for object in planned() {
        let Some(entry) = object.typed::<ServiceEntry>() else { continue };
        if let Some(selector) = &entry.workload_selector {
            let labels = Labels::new(LabelMap::from(&selector.labels));
            selectors.set(object.key(), object.key().namespace.clone(), labels);
        }
    }
    let is_planned = |workload: &Workload| {
        let kind = match workload.key.kind {
            WorkloadKind::Pod => Kind::Pod,
            WorkloadKind::WorkloadEntry => Kind::WorkloadEntry,
            WorkloadKind::Registered(_) => return false,
        };
        objects.contains_key(&ObjectKey::new(kind, workload.key.namespace.clone(), workload.key.name.clone()))
    };
    let of_plan = planned()
        .filter_map(|object| Some((object.key().namespace.clone(), Labels::new(planned_labels(object)?))));
    let of_world = world.workloads().filter(|workload| !is_planned(workload));
    let of_world = of_world.map(|workload| (workload.key.namespace.clone(), workload.labels.clone()));
    let (mut counts, mut total) = (BTreeMap::new(), 0);
    for (namespace, labels) in of_plan.chain(of_world) {
        for entry in selectors.matching(&namespace, &labels) {
            *counts.entry(entry).or_default() += 1;
            total += 1;
        }
        check_count("endpoints", total, ENDPOINTS)?;
    }
    Ok(counts)
}

/// Returns the labels of a planned workload; `None` for other objects.
fn planned_labels(object: &Object) -> Option<LabelMap> {
    let meta = object.meta.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
    match object.typed::<WorkloadEntry>() {
        Some(entry) => Some(LabelMap::from(&entry.labels).with(meta)),
        None => (object.key().kind == Kind::Pod).then(|| LabelMap::default().with(meta)),
    }
}

/// Returns the number of endpoints of an object, which selects so many workloads.
fn endpoints(object: &Object, selected: usize) -> usize {
    if let Some(entry) = object.typed::<ServiceEntry>() {
        return endpoint_count(&entry, selected);
    }
    object
        .typed::<EndpointSlice>()
        .map_or(0, |slice| slice.endpoints.len().saturating_mul(slice.ports.len().max(1)))
}

/// Reads the objects of files. Errors are returned as a plan that lists them.
pub fn read(files: &[PlanFile]) -> Result<BTreeMap<ObjectKey, Object>, Box<Plan>> {
    let change = |file: &PlanFile| FileChange {
        path: Path::new(&file.name).into(),
        name: file.name.as_str().into(),
        role: FileRole::Objects,
        content: FileContent::Bytes(file.text.clone().into_bytes()),
    };
    let mut state = FileState::new(Limits::default()).with_checks(vec![pilotfish_translate::check_object]);
    let events = state.apply(files.iter().map(change).collect());
    let problems = state.problems();
    if problems.errors() > 0 {
        let problems =
            problems.reports.iter().map(problem).filter(|problem| problem.severity == "error").collect();
        return Err(Box::new(Plan { severity: Severity::Invalid, problems, ..Plan::default() }));
    }
    let object = |event| match event {
        SourceEvent::Apply(object) => Some((Object::key(&object).clone(), object)),
        _ => None,
    };
    Ok(events.into_iter().filter_map(object).collect())
}

/// Requests a copy of the control loop's state.
fn fork(state: &AdminState) -> Result<Box<Fork>, Failure> {
    let busy = |what: &str| {
        Failure::new(FailureKind::Unavailable, format!("the control loop {what}")).hint("try again")
    };
    let (answer, answered) = mpsc::sync_channel(1);
    let control = state.control.upgrade().ok_or_else(|| busy("has ended"))?;
    let sent = control.try_send(ControlMessage::Fork { answer });
    sent.map_err(|_| busy("has too much to do"))?;
    drop(control);
    answered.recv_timeout(LONGEST).map_err(|_| busy("has not answered in time"))
}

/// Returns the connected proxies with their subscriptions.
pub(super) fn subjects(state: &AdminState) -> Vec<Subject> {
    let proxies = state.translator.proxies();
    state.fanout.connections().iter().filter_map(|connection| subject(&proxies, connection)).collect()
}

/// Returns a connected proxy with its subscriptions; `None` if it has just disconnected.
pub(super) fn subject(
    proxies: &BTreeMap<ClientId, Arc<Proxy>>,
    connection: &ConnectionStatus,
) -> Option<Subject> {
    let proxy = proxies.get(&ClientId(connection.client.0))?;
    let names = connection.types.iter().filter_map(|(ty, status)| match &status.names {
        Names::Named(names) => Some((*ty, names.iter().cloned().collect())),
        Names::Wildcard => None,
    });
    Some(Subject {
        name: connection.proxy_name().to_owned(),
        proxy: Proxy::clone(proxy),
        names: names.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Provider, ShardKey, Update, WorldWriter};

    fn check(text: &str) -> Result<(), Failure> {
        check_beside(text, &World::default())
    }

    fn check_beside(text: &str, world: &World) -> Result<(), Failure> {
        let files = [PlanFile { name: "a.yaml".to_owned(), text: text.to_owned() }];
        let objects = read(&files).expect("it is valid");
        check_size(&objects.into_iter().map(|(key, object)| (key, Some(object))).collect(), world)
    }

    fn entry(name: usize, hosts: usize, endpoints: usize) -> String {
        let hosts: Vec<String> = (0..hosts).map(|n| format!("h{n}.s{name}.example.com")).collect();
        let endpoints: Vec<String> = (0..endpoints).map(|n| format!("{{address: 10.0.0.{n}}}")).collect();
        format!(
            "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: s{name}, namespace: n{name}}}\nspec: {{hosts: \
             [{}], resolution: STATIC, ports: [{{number: 1, name: tcp, protocol: TCP}}, {{number: 2, name: tcp-2, protocol: TCP}}], \
             endpoints: [{}]}}\n",
            hosts.join(", "),
            endpoints.join(", ")
        )
    }

    #[test]
    fn plan_that_multiplies_is_refused_with_the_figure_before_anything_is_made_of_it() {
        let entries = |count: usize| (0..count).map(|n| entry(n, 500, 40)).collect::<String>();
        assert_eq!(check(&entries(5)), Ok(()));
        let failure = check(&entries(6)).unwrap_err();
        assert!(failure.error.contains("240000 endpoints, and at most 200000"), "{failure:?}");
        assert!(failure.error.contains("limit plan-endpoints"), "{failure:?}");
        let many: String = (0..=OBJECTS)
            .map(|n| format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: n{n}}}\n"))
            .collect();
        let failure = check(&many).unwrap_err();
        assert!(failure.error.contains("10001 objects"), "{failure:?}");
    }

    /// An entry of 500 hosts and 2 ports that selects the workloads `app: a` of its namespace.
    fn selecting(name: usize) -> String {
        entry(name, 500, 0).replace("endpoints: []", "workloadSelector: {labels: {app: a}}")
    }

    fn workload_entry(namespace: usize, name: usize, labels: &str) -> String {
        format!(
            "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{name: w{name}, namespace: n{namespace}}}\n\
             spec: {{address: 10.1.0.{name}, labels: {labels}}}\n"
        )
    }

    #[test]
    fn workloads_that_entries_of_a_plan_select_count_as_endpoints() {
        let planned = |namespace: usize, count: usize, labels: &str| {
            (0..count).map(|name| workload_entry(namespace, name, labels)).collect::<String>()
        };
        // 500 hosts, 2 ports and 100 workloads are 100,000 endpoints.
        let two: String = (0..2).map(|n| selecting(n) + &planned(n, 100, "{app: a, v: x}")).collect();
        assert_eq!(check(&two), Ok(()));
        assert_eq!(check(&(two.clone() + &planned(2, 100, "{app: a}") + &planned(1, 0, ""))), Ok(()));
        assert_eq!(check(&(two.clone() + &planned(0, 120, "{app: b}"))), Ok(()));
        let failure = check(&(selecting(0) + &planned(0, 201, "{app: a}"))).unwrap_err();
        assert!(failure.error.contains("201000 endpoints, and at most 200000"), "{failure:?}");
    }

    #[test]
    fn running_workloads_that_entries_of_a_plan_select_count_once() {
        let shard = ShardKey::new(Provider::new(0, "Kubernetes"), "c");
        let mut writer = WorldWriter::new();
        let kinds = |name: usize| [(WorkloadKind::Pod, name), (WorkloadKind::WorkloadEntry, name)];
        for (kind, name) in (0..150).flat_map(kinds) {
            let mut workload =
                Workload::registered(&shard, "n0", format!("w{name}"), [Arc::from("10.1.0.1")]);
            workload.key.kind = kind;
            workload.labels = Arc::new([("app", "a")].into_iter().collect());
            writer.apply(Update::Workload(Arc::new(workload)));
        }
        let (world, _) = writer.publish().expect("there are workloads");
        let failure = check_beside(&selecting(0), &world).unwrap_err();
        assert!(failure.error.contains("300000 endpoints, and at most 200000"), "{failure:?}");
        // Entries that the plan replaces are no more than those of the plan.
        let others: String = (0..150).map(|name| workload_entry(0, name, "{app: b}")).collect();
        assert_eq!(check_beside(&(selecting(0) + &others), &world), Ok(()));
        assert_eq!(check_beside(&selecting(1), &world), Ok(()));
    }

    #[test]
    fn page_of_limits_has_those_of_plans() {
        let page = include_str!("../../../../docs/limits.md");
        for row in [
            format!("| Objects of a plan (`plan-objects`) | {OBJECTS} |"),
            format!("| Endpoints of a plan (`plan-endpoints`) | {ENDPOINTS} |"),
        ] {
            assert!(page.contains(&row), "{row}");
        }
    }
}
