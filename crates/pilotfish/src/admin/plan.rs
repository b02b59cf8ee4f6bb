//! Plans: what files would change for the connected proxies.

use super::operations::object_key;
use super::proxies::name;
use super::{AdminState, problem};
use crate::control::{ControlMessage, Supposed};
use pilotfish_api::v1::{Failure, FailureKind, Plan, PlanFile, PlanRequest, Severity};
use pilotfish_config::file::{FileChange, FileContent, FileRole, FileState};
use pilotfish_config::{Limits, SourceEvent};
use pilotfish_explain::{Planned, Subject, plan};
use pilotfish_model::{Object, ObjectKey};
use pilotfish_translate::{ClientId, Proxy};
use pilotfish_xds::{ConnectionStatus, Names};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long the control loop may take to say what would be.
const LONGEST: Duration = Duration::from_secs(20);

/// The plan of a request, or what is wrong with its files.
pub(super) fn of_running(state: &AdminState, request: &PlanRequest) -> Result<Plan, Failure> {
    if !state.resources.is_ready() {
        let failure = Failure::new(FailureKind::Unavailable, "the control plane is not ready yet");
        return Err(failure.hint("/ready says what it waits for"));
    }
    let mut objects = BTreeMap::new();
    for deleted in &request.delete {
        objects.insert(object_key(deleted)?, None);
    }
    match read(&request.files) {
        Ok(read) => objects.extend(read.into_iter().map(|(key, object)| (key, Some(object)))),
        Err(plan) => return Ok(*plan),
    }
    let revision = state.fanout.revision();
    let Supposed { before, after, changes, objects } = suppose(state, objects)?;
    let planned = Planned { before, after, changes, objects };
    Ok(Plan { revision: Some(revision), ..plan(&state.translator, &planned, &subjects(state)) })
}

/// The objects of files; as a plan that says what is wrong where they have errors.
pub(crate) fn read(files: &[PlanFile]) -> Result<BTreeMap<ObjectKey, Object>, Box<Plan>> {
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

fn suppose(state: &AdminState, objects: BTreeMap<ObjectKey, Option<Object>>) -> Result<Supposed, Failure> {
    let busy = |what: &str| {
        Failure::new(FailureKind::Unavailable, format!("the control loop {what}")).hint("try again")
    };
    let (answer, answered) = mpsc::sync_channel(1);
    let control = state.control.upgrade().ok_or_else(|| busy("has ended"))?;
    let sent = control.try_send(ControlMessage::WhatIf { objects, answer });
    sent.map_err(|_| busy("has too much to do"))?;
    drop(control);
    answered.recv_timeout(LONGEST).map_err(|_| busy("has not answered in time"))
}

/// The connected proxies with what they subscribe to.
pub(super) fn subjects(state: &AdminState) -> Vec<Subject> {
    let proxies = state.translator.proxies();
    state.fanout.connections().iter().filter_map(|connection| subject(&proxies, connection)).collect()
}

/// A connected proxy with what it subscribes to; `None` when it has just left.
pub(super) fn subject(
    proxies: &BTreeMap<ClientId, Arc<Proxy>>,
    connection: &ConnectionStatus,
) -> Option<Subject> {
    let proxy = proxies.get(&ClientId(connection.client.0))?;
    let names = connection.types.iter().filter_map(|(ty, status)| match &status.names {
        Names::Named(names) => Some((*ty, names.iter().cloned().collect())),
        Names::Wildcard => None,
    });
    Some(Subject { name: name(connection).to_owned(), proxy: Proxy::clone(proxy), names: names.collect() })
}
