//! Acknowledgements of a revision, of an object, or of everything, by the connected proxies.

use super::AdminState;
use super::operations::{is_of_registries, object_key, slashed};
use super::proxies::not_acknowledged;
use super::standing::{Standing, Standings, types_of};
use pilotfish_admin::WaitFor;
use pilotfish_api::v1::{Acknowledgement, Failure, FailureKind, WaitedObject};
use pilotfish_config::Severity;
use pilotfish_control_plane::control::ControlMessage;
use pilotfish_control_plane::history::{Change, ItemKind};
use pilotfish_kube_writer::lease::replica_name;
use pilotfish_model::{Kind, ObjectKey, ObjectMeta, Origin, World};
use pilotfish_proto::ResourceType;
use pilotfish_registry::ReadObject;
use pilotfish_xds::{ConnectionStatus, TypeStatus};
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

/// Limit on the proxies that are named as not having acknowledged.
const LISTED: usize = 100;
/// Timeout of the control loop's answer about an object, before which it publishes everything read so far.
const LONGEST: Duration = Duration::from_secs(5);

/// Changes that must be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The change of a revision, by the proxies that it concerned.
    Revision(u64),
    /// All changes up to a revision, by all proxies.
    UpTo(u64),
}

/// Returns the acknowledgements of a revision, an object or everything.
pub(super) fn acknowledgement(state: &AdminState, what: &WaitFor) -> Result<Acknowledgement, Failure> {
    // Read before the states of the proxies, so that later publications do not count.
    let object = match what {
        WaitFor::Object { object, generation } => Some(read_object(state, object, *generation)?),
        _ => None,
    };
    let standings = Standings::new(state);
    let current = state.fanout.revision();
    let connections = standings.connections();
    let waited = match (what, &object) {
        (WaitFor::Newest { up_to }, _) => Waited::UpTo(known(up_to.unwrap_or(current), current)?),
        (WaitFor::Revision(revision), _) => Waited::Revision(known(*revision, current)?),
        (WaitFor::Object { .. }, Some((_, waited))) => *waited,
        (WaitFor::Object { .. }, None) => Waited::UpTo(current),
    };
    let answer = match waited {
        Waited::UpTo(revision) => up_to(connections, revision),
        Waited::Revision(revision) => {
            let change = state.shared.history().change(revision).ok();
            let answer = of_change(connections, revision, change.as_deref());
            match change {
                Some(change) if answer.missing.is_empty() => {
                    let Standing { outcome, refusals, .. } = standings.of(&change);
                    Acknowledgement { outcome: Some(outcome), refusals, ..answer }
                }
                _ => answer,
            }
        }
    };
    Ok(Acknowledgement {
        current,
        replica: replica_name(),
        object: object.map(|(object, _)| object),
        ..answer
    })
}

fn known(revision: u64, current: u64) -> Result<u64, Failure> {
    if revision <= current {
        return Ok(revision);
    }
    let message = format!("revision {revision} is not known; {current} is in force");
    let failure = Failure::new(FailureKind::NotFound, message);
    Err(failure.hint("revisions belong to one replica, and start from 1 when it starts"))
}

/// Returns the proxies that lack a change up to a revision.
fn up_to(connections: &[ConnectionStatus], revision: u64) -> Acknowledgement {
    let mut answer = Acknowledgement {
        revision,
        everything: true,
        proxies: connections.len(),
        concerned: connections.len(),
        acknowledged: connections.len(),
        ..Acknowledgement::default()
    };
    for connection in connections {
        add(&mut answer, connection, connection.missing_up_to(revision));
    }
    answer
}

/// Returns the proxies that lack the change of a revision. A change that is no longer kept may have concerned
/// any proxy.
fn of_change(connections: &[ConnectionStatus], revision: u64, change: Option<&Change>) -> Acknowledgement {
    let mut answer = Acknowledgement {
        revision,
        proxies: connections.len(),
        acknowledged: connections.len(),
        ..Acknowledgement::default()
    };
    for connection in connections {
        let types = types_of(connection, revision, change);
        answer.concerned += usize::from(!types.is_empty() && connection.concerned >= revision);
        add(&mut answer, connection, connection.missing(revision, types));
    }
    answer
}

/// Adds the types that one proxy lacks.
fn add<'a>(
    answer: &mut Acknowledgement,
    connection: &ConnectionStatus,
    missing: impl Iterator<Item = (ResourceType, &'a TypeStatus)>,
) {
    let mut lacks = false;
    for (ty, status) in missing {
        lacks = true;
        if answer.missing.len() < LISTED {
            answer.missing.push(not_acknowledged(connection, ty, status));
        }
    }
    answer.acknowledged -= usize::from(lacks);
}

/// Returns the state of an object, and the changes that must be acknowledged so that it is in force.
fn read_object(
    state: &AdminState,
    text: &str,
    generation: Option<i64>,
) -> Result<(WaitedObject, Waited), Failure> {
    let key = object_key(text)?;
    let mut object = WaitedObject { name: key.to_string(), ..WaitedObject::default() };
    let errors = |report: &pilotfish_config::ProblemReport| {
        report.severity == Severity::Error && report.object.as_ref() == Some(&key)
    };
    let problems = state.shared.problems();
    object.problems = problems.iter().filter(|report| errors(report)).map(ToString::to_string).collect();
    match read(state, &key)? {
        ReadObject::Known(meta) => {
            if generation.is_some() && meta.generation == 0 {
                return Err(without_generation(&meta));
            }
            object.known = true;
            object.generation = (meta.generation > 0).then_some(meta.generation);
            object.source = meta.origin.to_string();
            Ok((object, in_force_since(state, &key)))
        }
        ReadObject::Unknown(near) => {
            if let Some(waited) = gone_since(state, &key) {
                return Ok((object, waited));
            }
            let unknown = unknown(text, &near);
            if generation.is_none() && object.problems.is_empty() {
                return Err(unknown);
            }
            // It may have been written a moment ago, or no version of it was ever valid.
            object.nearest = unknown.names;
            Ok((object, Waited::UpTo(0)))
        }
    }
}

fn without_generation(meta: &ObjectMeta) -> Failure {
    let message = format!("{} has no generation: it was read from {}", meta.key, meta.origin);
    Failure::new(FailureKind::Invalid, message).hint(
        "API servers count generations, of most kinds, and files have none; without --generation it is \
         waited for the object as it was read last",
    )
}

/// Returns the failure for an unknown object, with similar names.
pub(super) fn unknown(text: &str, near: &[ObjectKey]) -> Failure {
    let near: Vec<String> = near.iter().map(slashed).collect();
    Failure::unknown("object", text, near.iter().map(String::as_str))
}

/// Requests the state of an object from the control loop. Everything read before is published when this
/// returns.
pub(super) fn read(state: &AdminState, key: &ObjectKey) -> Result<ReadObject, Failure> {
    let busy = |what: &str| {
        Failure::new(FailureKind::Unavailable, format!("the control loop {what}")).hint("try again")
    };
    if !state.resources.is_ready() {
        let failure = Failure::new(FailureKind::Unavailable, "the control plane is not ready yet");
        return Err(failure.hint("/ready says what it waits for"));
    }
    let (answer, answered) = mpsc::sync_channel(1);
    let control = state.control.upgrade().ok_or_else(|| busy("has ended"))?;
    let sent = control.try_send(ControlMessage::Read { key: key.clone(), answer });
    sent.map_err(|_| busy("has too much to do"))?;
    drop(control);
    let found = answered.recv_timeout(LONGEST).map_err(|_| busy("has not answered in time"))?;
    // Mesh settings may be in the world although no source has them as objects.
    match (state.shared.world().object(key), found) {
        (Some(object), ReadObject::Unknown(_)) => Ok(ReadObject::Known(object.meta.clone())),
        (_, found) => Ok(found),
    }
}

/// Returns the changes by which the current version of an existing object came into force.
fn in_force_since(state: &AdminState, key: &ObjectKey) -> Waited {
    if !is_of_registries(key.kind) {
        return of_configuration(state, key);
    }
    let changes = state.shared.history().changes();
    let made = Made::by(key, &state.shared.world());
    let waited = changes.iter().find_map(|change| made.waited(change));
    // The object has not changed since the oldest kept change.
    waited.unwrap_or_else(|| Waited::UpTo(state.shared.history().span().0))
}

fn of_configuration(state: &AdminState, key: &ObjectKey) -> Waited {
    let revision = state.shared.revision_of(key);
    if state.shared.changed_lately(key) { Waited::Revision(revision) } else { Waited::UpTo(revision) }
}

/// Returns the changes by which a deleted object went out of force; `None` if it is not known to have
/// existed.
fn gone_since(state: &AdminState, key: &ObjectKey) -> Option<Waited> {
    if !is_of_registries(key.kind) {
        return state.shared.changed_lately(key).then(|| of_configuration(state, key));
    }
    let name = key.to_string();
    let changes = state.shared.history().changes();
    let last = changes.iter().find(|change| change.items.iter().any(|item| item.concerns(&name)))?;
    Some(Waited::Revision(last.revision))
}

/// Checks that an object exists, or existed recently.
///
/// # Errors
/// When it is unknown, with similar names.
pub(super) fn check_known(state: &AdminState, text: &str) -> Result<(), Failure> {
    let key = object_key(text)?;
    match read(state, &key)? {
        ReadObject::Unknown(near) if gone_since(state, &key).is_none() => Err(unknown(text, &near)),
        _ => Ok(()),
    }
}

/// Items that registries make of an object, by the names that they have in changes.
struct Made {
    key: ObjectKey,
    name: String,
    /// Names of services and endpoints.
    names: BTreeSet<String>,
}

impl Made {
    /// Searches the whole world, which is slow: only for requests of operators.
    fn by(key: &ObjectKey, world: &World) -> Self {
        let is_from = |origin: &Origin| origin.as_object().is_some_and(|reference| reference.object == *key);
        let mut names = BTreeSet::new();
        for (service, services) in world.services() {
            if services.iter().any(|service| is_from(&service.provenance)) {
                names.insert(format!("service {}", service.hostname));
                names.insert(format!("endpoints of {}", service.hostname));
            }
        }
        for (service, endpoints) in world.endpoints() {
            if endpoints.iter().any(|endpoint| is_from(&endpoint.attributes.provenance)) {
                names.insert(format!("endpoints of {}", service.hostname));
            }
        }
        Self { key: key.clone(), name: key.to_string(), names }
    }

    /// Returns the changes that must be acknowledged if a change is, or may be, of the object. Large changes
    /// do not list all their items, so they count for every object.
    fn waited(&self, change: &Change) -> Option<Waited> {
        if change.items.iter().any(|item| item.concerns(&self.name)) {
            return Some(Waited::Revision(change.revision));
        }
        let is_cut = |item: &pilotfish_control_plane::history::Item| {
            !matches!(item.kind, ItemKind::Object(_)) && item.names_few() && self.names.contains(&*item.what)
        };
        // Workloads are not items of changes; they follow from the other kinds.
        let makes_workloads = !matches!(self.key.kind, Kind::Service | Kind::EndpointSlice);
        let is_hidden = change.more > 0
            || change.items.iter().any(is_cut)
            || (makes_workloads && change.items.is_empty() && !change.is_first);
        is_hidden.then_some(Waited::UpTo(change.revision))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use pilotfish_control_plane::history::testing::{Case, object};
    use pilotfish_proto::envoy::config::core::v3::Node;
    use pilotfish_xds::{ClientId, ClientNode, Lacking, Names, PeerInfo, Protocol, ViewId};
    use std::time::SystemTime;

    /// A proxy that has acknowledged what is before `concerned`, and lacks it where a type is given.
    pub(crate) fn proxy(
        id: u64,
        began: u64,
        concerned: u64,
        lacks: Option<ResourceType>,
    ) -> ConnectionStatus {
        let status = |ty: ResourceType| TypeStatus {
            view: ViewId(0),
            names: Names::Wildcard,
            sent_nonce: None,
            acked_nonce: None,
            sent_at: None,
            resources: 0,
            lacking: (lacks == Some(ty)).then_some(Lacking { after: 1, until: u64::MAX, refused: false }),
            acked_revision: 1,
            acked_at: None,
            rejection: None,
        };
        let types = [ResourceType::Listener, ResourceType::Route].map(|ty| (ty, status(ty)));
        let node =
            Node { id: format!("sidecar~10.0.0.{id}~p{id}.shop~shop.svc.cluster.local"), ..Node::default() };
        ConnectionStatus {
            id: format!("p{id}-1"),
            client: ClientId(id),
            node: ClientNode::from(&node),
            peer: PeerInfo::default(),
            certificate: None,
            connected_at: SystemTime::UNIX_EPOCH,
            protocol: Protocol::Delta,
            types: types.into(),
            began,
            concerned,
        }
    }

    /// Number of concerned proxies, number of those in sync or not concerned, and names of those missing.
    fn told(answer: &Acknowledgement) -> (usize, usize, Vec<&str>) {
        let missing = answer.missing.iter().map(|missing| missing.proxy.as_str()).collect();
        (answer.concerned, answer.acknowledged, missing)
    }

    #[test]
    fn only_those_that_a_revision_concerned_are_named() {
        use ResourceType::{Listener, Route};
        let mut case = Case::default();
        case.publish(vec![object("a", "one")], &[]);
        case.publish(vec![object("a", "two")], &[]);
        let third = case.publish_by(vec![object("a", "three")], &[(1, Route), (2, Route), (3, Route)]);
        let all = [
            proxy(1, 1, 3, None),
            // It lacks a route, and may lack that of the third.
            proxy(2, 1, 3, Some(Route)),
            // It lacks listeners of a later revision.
            proxy(3, 1, 5, Some(Listener)),
            // A later revision concerns it, and the third did not.
            proxy(4, 1, 5, Some(Route)),
            // It came later, and lacks what it gets first.
            proxy(5, 4, 4, Some(Listener)),
        ];
        let answer = of_change(&all, 3, Some(&third));
        assert_eq!(told(&answer), (4, 3, vec!["p2.shop", "p5.shop"]));
        // The concerned proxies of a forgotten revision are unknown.
        assert_eq!(told(&of_change(&all, 3, None)), (5, 1, vec!["p2.shop", "p3.shop", "p4.shop", "p5.shop"]));
        assert_eq!(told(&up_to(&all, 5)), (5, 1, vec!["p2.shop", "p3.shop", "p4.shop", "p5.shop"]));
        assert_eq!(told(&up_to(&all, 1)), (5, 5, vec![]), "that is what they have acknowledged");
    }
}
