//! Outcome of a change among the connected proxies: the one answer of the history and of `wait`.

use super::AdminState;
use pilotfish_api::v1::{self as api, Refusals};
use pilotfish_control_plane::history::{Change, History, Outcome, RefusedBy, Resolution};
use pilotfish_proto::ResourceType;
use pilotfish_xds::{ClientId, ConnectionStatus, Types};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Outcome of a change, as it is reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Standing {
    pub(super) outcome: api::Outcome,
    /// Time until the last proxy that it concerned acknowledged it, if it is in force everywhere.
    pub(super) after: Option<Duration>,
    /// Number of connected proxies that have not acknowledged it.
    pub(super) missing: usize,
    pub(super) refusals: Refusals,
}

/// Connections, and the newest revision that was published when they had been read.
type Connections = (Vec<ConnectionStatus>, u64);

/// Outcomes of changes for one answer. The connections are read once, and only for changes whose recorded
/// outcome is not final.
pub(super) struct Standings<'a> {
    history: &'a History,
    connections: OnceCell<Connections>,
    read: Box<dyn Fn() -> Connections + 'a>,
    /// Kept changes in the order of their revisions.
    changes: OnceCell<Vec<Arc<Change>>>,
}

impl<'a> Standings<'a> {
    pub(super) fn new(state: &'a AdminState) -> Self {
        Self::over(state.shared.history(), || (state.fanout.connections(), state.fanout.revision()))
    }

    fn over(history: &'a History, read: impl Fn() -> Connections + 'a) -> Self {
        Self { history, connections: OnceCell::new(), read: Box::new(read), changes: OnceCell::new() }
    }

    pub(super) fn connections(&self) -> &[ConnectionStatus] {
        &self.read().0
    }

    fn read(&self) -> &Connections {
        self.connections.get_or_init(|| (self.read)())
    }

    pub(super) fn of(&self, change: &Change) -> Standing {
        let recorded = change.outcome.lock().clone();
        match recorded {
            Some(Outcome::InForce(after)) => in_force(Some(after)),
            Some(Outcome::Refused { by, resolution: Resolution::Accepted(with) }) => {
                let refusals = Refusals { accepted_with: with, ..refusals(&by) };
                Standing { refusals, ..in_force(None) }
            }
            Some(Outcome::Refused { by, resolution: Resolution::Superseded(with) }) => {
                refused(Refusals { superseded_by: Some(with), ..refusals(&by) })
            }
            Some(Outcome::Refused { resolution: Resolution::Left, .. }) | Some(Outcome::Late { .. }) => {
                self.among_connected(change, api::Outcome::Late)
            }
            Some(Outcome::Unwatched) => self.among_connected(change, api::Outcome::NotWatched),
            None => self.among_connected(change, api::Outcome::Pending),
        }
    }

    /// Returns the outcome of a change by the present states of the proxies; `open` while some lack it.
    fn among_connected(&self, change: &Change, open: api::Outcome) -> Standing {
        let connections = self.connections();
        let lacks = |connection: &&ConnectionStatus| lacking(connection, change).next().is_some();
        let missing = connections.iter().filter(lacks).count();
        let (by, is_queued) = self.history.refused_by(change);
        if missing > 0 {
            return Standing { outcome: open, missing, refusals: refusals(&by), ..Standing::default() };
        }
        if is_queued {
            // The tracker takes the refusal within milliseconds, and decides.
            return Standing { refusals: refusals(&by), ..Standing::default() };
        }
        if by.count() == 0 {
            return in_force(acknowledged_after(connections, change));
        }
        self.resolved(change, &by)
    }

    /// Returns the outcome of a refused change that no connected proxy lacks.
    fn resolved(&self, change: &Change, by: &RefusedBy) -> Standing {
        let refusals = refusals(by);
        let there: HashSet<ClientId> =
            self.connections().iter().map(|connection| connection.client).collect();
        let later = self.later(change);
        match by.resolution(change, later.clone(), |client| there.contains(&client)) {
            // The change that was accepted is not in the history yet.
            Resolution::Accepted(None) if self.history.span().1 < self.read().1 => {
                Standing { refusals, ..Standing::default() }
            }
            Resolution::Accepted(accepted_with) => {
                Standing { refusals: Refusals { accepted_with, ..refusals }, ..in_force(None) }
            }
            Resolution::Superseded(revision) => {
                refused(Refusals { superseded_by: Some(revision), ..refusals })
            }
            Resolution::Left => {
                let refusals = Refusals { gone: true, ..refusals };
                let came_since = self.connections().iter().any(|one| one.began >= change.revision);
                let is_replaced = later.clone().any(|later| later.may_replace(change));
                if came_since && !is_replaced {
                    Standing { refusals, ..in_force(None) }
                } else {
                    refused(refusals)
                }
            }
        }
    }

    fn later(&self, change: &Change) -> impl Iterator<Item = &Change> + Clone {
        let changes = self.changes.get_or_init(|| {
            let mut changes = self.history.changes();
            changes.reverse();
            changes
        });
        let from = changes.partition_point(|one| one.revision <= change.revision);
        changes.iter().skip(from).map(|one| &**one)
    }
}

/// Returns the types by which a change concerns a connection, whose first resources have all changes before
/// it connected. A change that is no longer kept may concern any type.
pub(super) fn types_of(connection: &ConnectionStatus, revision: u64, change: Option<&Change>) -> Types {
    match change {
        Some(change) if connection.began < revision => change.types_of(connection.client),
        _ => Types::ALL,
    }
}

/// Returns the types of a change that a connection lacks.
fn lacking(connection: &ConnectionStatus, change: &Change) -> impl Iterator<Item = ResourceType> {
    let types = types_of(connection, change.revision, Some(change));
    connection.missing(change.revision, types).map(|(ty, _)| ty)
}

fn acknowledged_after(connections: &[ConnectionStatus], change: &Change) -> Option<Duration> {
    let concerned = connections.iter().filter(|one| !change.types_of(one.client).is_empty());
    let last = concerned.flat_map(|one| one.types.values().filter_map(|status| status.acked_at)).max()?;
    last.duration_since(change.at).ok()
}

fn in_force(after: Option<Duration>) -> Standing {
    Standing { outcome: api::Outcome::InForce, after, ..Standing::default() }
}

fn refused(refusals: Refusals) -> Standing {
    Standing { outcome: api::Outcome::Refused, refusals, ..Standing::default() }
}

fn refusals(by: &RefusedBy) -> Refusals {
    let name = |(connection, ty): &(Arc<str>, ResourceType)| format!("{connection} ({})", ty.short());
    Refusals {
        refused: by.count(),
        refused_by: by.connections.iter().map(name).collect(),
        ..Refusals::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::tests::proxy;
    use pilotfish_api::v1::Outcome::{InForce, Late, Pending, Refused};
    use pilotfish_control_plane::history::testing::{Case, object};
    use pilotfish_control_plane::history::{Refusal, Tracker};

    const LDS: ResourceType = ResourceType::Listener;

    fn refusal() -> Refusal {
        Refusal { client: ClientId(1), connection: "web-0".into(), ty: LDS, after: 1, until: 2 }
    }

    /// Publishes a change that client 1 refuses, and later changes; returns the answer about the first.
    fn told(recorded: Option<Outcome>, later: &[&str], connections: &[ConnectionStatus]) -> Standing {
        let mut case = Case::default();
        case.publish(vec![object("a", "one")], &[]);
        let change = case.publish_by(vec![object("a", "two")], &[(1, LDS), (2, LDS)]);
        for name in later {
            case.publish_by(vec![object(name, "later")], &[(1, LDS)]);
        }
        let mut tracker = Tracker::default();
        tracker.add(change.clone());
        tracker.refused([refusal()]);
        *change.outcome.lock() = recorded;
        let standing = Standings::over(&case.history, || (connections.to_vec(), 0)).of(&change);
        let Refusals { refused, refused_by, .. } = &standing.refusals;
        assert_eq!((*refused, &**refused_by), (1, &["web-0 (lds)".to_owned()][..]));
        standing
    }

    #[test]
    fn refused_change_is_told_by_what_connected_proxies_have_accepted_since() {
        let late = || Some(Outcome::Late { missing: 1, clients: vec![ClientId(1)] });
        let left = || {
            let mut by = RefusedBy::default();
            by.add(ClientId(1), LDS, Some(&"web-0".into()));
            Some(Outcome::Refused { by, resolution: Resolution::Left })
        };
        let (same, has) = (|concerned, lacks| proxy(1, 1, concerned, lacks), || proxy(2, 1, 2, None));
        let new = |lacks| proxy(3, 3, 3, lacks);
        let cases = [
            ("refuses still", late(), vec![], vec![same(2, Some(LDS)), has()], (Late, 1, None, None, false)),
            // The tracker has given the change up.
            (
                "accepted later",
                late(),
                vec!["b"],
                vec![same(3, None), has()],
                (InForce, 0, None, Some(3), false),
            ),
            (
                "replaced later",
                late(),
                vec!["a"],
                vec![same(3, None), has()],
                (Refused, 0, Some(3), None, false),
            ),
            ("nobody came", left(), vec!["b"], vec![has()], (Refused, 0, None, None, true)),
            ("a new one accepts", left(), vec!["b"], vec![has(), new(None)], (InForce, 0, None, None, true)),
            (
                "a new one refuses",
                left(),
                vec!["b"],
                vec![has(), new(Some(LDS))],
                (Late, 1, None, None, false),
            ),
            ("replaced, then new", left(), vec!["a"], vec![has(), new(None)], (Refused, 0, None, None, true)),
        ];
        for (name, recorded, later, connections, expected) in cases {
            let Standing { outcome, missing, refusals, .. } = told(recorded, &later, &connections);
            let Refusals { superseded_by, accepted_with, gone, .. } = refusals;
            assert_eq!((outcome, missing, superseded_by, accepted_with, gone), expected, "{name}");
        }
    }

    #[test]
    fn accepted_change_is_in_force_only_after_queued_refusals_of_it_were_taken() {
        for is_queued in [false, true] {
            let mut case = Case::default();
            case.publish(vec![object("a", "one")], &[]);
            let change = case.publish_by(vec![object("a", "two")], &[(1, LDS)]);
            case.publish_by(vec![object("a", "three")], &[(1, LDS)]);
            if is_queued {
                case.history.refused(refusal());
            }
            let standings = Standings::over(&case.history, || (vec![proxy(1, 1, 3, None)], 0));
            let expected = if is_queued { Pending } else { InForce };
            assert_eq!(standings.of(&change).outcome, expected);
        }
    }
}
